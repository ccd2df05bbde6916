/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases A: the capacity and the lifetime of shared memory.
 *
 * A full /dev/shm is made, not awaited: where mounts of our own are allowed, a tmpfs of a few MiB lies over
 * it, and what fills it is a file beside the ring. What is asserted of space is asserted of the file system
 * (statvfs, st_blocks), never of what the daemon says about it.
 *
 * Each case runs in two modes: the ring is reserved when the daemon starts, and then it is the start that is
 * refused; or when the first job comes, and then it is the attach. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/reader.h"
#include "tests/system/rings.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

#define FILLER "/dev/shm/filler"

enum {
        RING_LINE = 3, /* of the configurations here */
        TEXT = 1200,
};

enum mode {
        AT_START,
        AT_ATTACH,
};

static const char *const modes[] = {"reserve: start", "reserve: attach"};

/* A slot has 8 MiB and four pages. */
static void write_config(struct harness *h, const char *ring, const char *backing, enum mode mode) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    %s\n"
                             "    source: {type: synthetic, mode: ramp, samples: 44, bytes: 1M}\n"
                             "    batch_size: 8\n"
                             "    workers: 2\n"
                             "    backing: %s\n"
                             "    %s\n",
                             ring, backing, modes[mode]);
}

/* ---- a /dev/shm of our own ---- */

static bool have_small_shm(uint64_t bytes) {
        if (!harness_isolate_mounts()) {
                harness_skip("no mounts of our own here: run as root or allow user namespaces");
                return false;
        }
        harness_mount_tmpfs("/dev/shm", bytes);
        return true;
}

static uint64_t shm_free(void) {
        struct statvfs vfs;

        ck_assert_int_eq(statvfs("/dev/shm", &vfs), 0);
        return (uint64_t)vfs.f_bavail * vfs.f_frsize;
}

/* What a foreign process would do. */
static void fill_shm(uint64_t leave) {
        int fd = open(FILLER, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(fallocate(fd, 0, 0, (off_t)(shm_free() - leave)), 0);
        close(fd);
        ck_assert_uint_eq(shm_free(), leave);
}

static void unfill_shm(void) {
        ck_assert_int_eq(unlink(FILLER), 0);
}

/* ---- refusals ---- */

/* Wanted, available, where it was set. */
static void check_refusal(const char *text) {
        char place[64];
        const char *at;

        snprintf(place, sizeof(place), "pinfeed.yaml:%d", RING_LINE);
        ck_assert_msg(strstr(text, place) != NULL, "no %s in: %s", place, text);
        at = strstr(text, "the ring needs ");
        ck_assert_msg(at && strtoull(at + 15, NULL, 10) > MIB, "no needed bytes in: %s", text);
        at = strstr(text, "/dev/shm has ");
        ck_assert_msg(at && at[13] >= '0' && at[13] <= '9', "no free bytes in: %s", text);
}

static void expect_refused_start(struct harness *h) {
        int exit_code;
        char *text = harness_start_expect_failure(h, &exit_code);

        ck_assert_int_eq(exit_code, 1);
        check_refusal(text);
        free(text);
        ck_assert_uint_eq(harness_shm_objects(), 0);
}

static void expect_refused_attach(struct harness *h) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        json_t *status;
        char text[TEXT];

        reader_expect_refusal(&attach, -ENOSPC, text, sizeof(text));
        check_refusal(text);
        ck_assert_uint_eq(harness_shm_objects(), 0);
        status = harness_status(h);
        ck_assert_str_eq(json_string_value(harness_member(status, "pipelines/ramp/state")), "failed");
        check_refusal(json_string_value(harness_member(status, "pipelines/ramp/error")));
        json_decref(status);
}

static void read_some(struct harness *h, uint64_t batches) {
        struct reader reader;

        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, batches);
        reader_close(&reader);
}

/* ---- A1 ---- */

START_TEST(test_A1_shm_too_small) {
        struct harness *h;

        if (!have_small_shm(16 * MIB))
                return;
        h = harness_new();
        write_config(h, "ring: 64M", "shm", AT_START);
        expect_refused_start(h);
        write_config(h, "ring: 64M", "shm", AT_ATTACH);
        harness_start(h);
        expect_refused_attach(h);
        expect_refused_attach(h); /* and not only the first time */
        harness_stop(h, SIGTERM, 0);
        ck_assert_uint_eq(shm_free(), 16 * MIB);
        harness_free(h);
}
END_TEST

/* Who did not insist on /dev/shm gets a memfd, and can see it. */
START_TEST(test_A1_shm_too_small_auto) {
        struct harness *h;

        if (!have_small_shm(16 * MIB))
                return;
        h = harness_new();
        for (enum mode mode = AT_START; mode <= AT_ATTACH; mode++) {
                json_t *status;

                write_config(h, "ring: 64M", "auto", mode);
                harness_start(h);
                read_some(h, 12);
                status = harness_status(h);
                ck_assert_str_eq(json_string_value(harness_member(status, "pipelines/ramp/backing")),
                                 "memfd");
                json_decref(status);
                harness_stop(h, SIGTERM, 0);
        }
        harness_free(h);
}
END_TEST

/* ---- A2 ---- */

static void expect_reserved(struct harness *h) {
        uint64_t needed = (uint64_t)harness_status_number(h, "pipelines/ramp/ring_bytes");

        ck_assert_uint_ge(needed, 24 * MIB);
        ck_assert_uint_ge(rings_only(h).bytes, needed);
}

START_TEST(test_A2_space_is_really_reserved) {
        struct harness *h;

        if (!have_small_shm(48 * MIB))
                return;
        h = harness_new();
        write_config(h, "slots: 4", "shm", AT_START);
        harness_start(h);
        expect_reserved(h);
        harness_stop(h, SIGTERM, 0);

        fill_shm(20 * MIB);
        expect_refused_start(h);
        write_config(h, "slots: 4", "shm", AT_ATTACH);
        harness_start(h);
        expect_refused_attach(h);
        unfill_shm();
        read_some(h, 12);
        expect_reserved(h);
        harness_stop(h, SIGTERM, 0);
        ck_assert_uint_eq(shm_free(), 48 * MIB);
        harness_free(h);
}
END_TEST

enum {
        RACE_TOTAL = 320, /* MiB */
        RACE_STEP = 4,
};

/* The daemon that has written its pid file by now. */
static pid_t running_daemon(struct harness *h) {
        char path[HARNESS_PATH_MAX];
        FILE *file;
        int pid = 0;

        snprintf(path, sizeof(path), "%s/pinfeedd.pid", harness_runtime_directory(h));
        file = fopen(path, "re");
        if (!file || fscanf(file, "%d", &pid) != 1)
                pid = 0;
        if (file)
                fclose(file);
        return pid;
}

/* Takes all that is left as soon as the ring's first step is reserved. The daemon stands still meanwhile: on
 * a busy machine it would win the race now and then. */
static pid_t start_racing(struct harness *h) {
        pid_t pid = fork(), daemon;
        int fd;

        ck_assert_int_ge(pid, 0);
        if (pid > 0)
                return pid;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpriority(PRIO_PROCESS, 0, -20); /* helps where it is allowed */
        fd = open(FILLER, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        while (shm_free() > (RACE_TOTAL - 8) * MIB)
                ;
        daemon = running_daemon(h);
        if (daemon > 0)
                kill(daemon, SIGSTOP);
        for (off_t at = 0; fallocate(fd, 0, at, RACE_STEP * (off_t)MIB) == 0; at += RACE_STEP * (off_t)MIB)
                ;
        if (daemon > 0)
                kill(daemon, SIGCONT);
        _exit(errno == ENOSPC ? 0 : 1);
}

static void finish_racing(pid_t pid) {
        int status;

        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the race for space ended with %d",
                      status);
        unfill_shm();
}

static bool shm_is_empty(struct harness *h, void *context) {
        return shm_free() == RACE_TOTAL * MIB;
}

/* The space was there when the ring was sized, and is gone before it is reserved. */
START_TEST(test_A2_space_goes_while_reserving) {
        struct harness *h;
        pid_t racer;

        if (!have_small_shm(RACE_TOTAL * MIB))
                return;
        h = harness_new();
        write_config(h, "slots: 30", "shm", AT_START);
        racer = start_racing(h);
        expect_refused_start(h);
        finish_racing(racer);
        harness_wait(h, "the half-made ring's end", shm_is_empty, NULL, 1000);

        write_config(h, "slots: 30", "shm", AT_ATTACH);
        harness_start(h);
        racer = start_racing(h);
        expect_refused_attach(h);
        finish_racing(racer);
        harness_wait(h, "the half-made ring's end", shm_is_empty, NULL, 1000);
        read_some(h, 3); /* and a later attach tries anew */
        harness_free(h);
}
END_TEST

/* ---- A3 ---- */

START_TEST(test_A3_shm_filled_while_reading) {
        struct harness *h;

        if (!have_small_shm(64 * MIB))
                return;
        h = harness_new();
        for (enum mode mode = AT_START; mode <= AT_ATTACH; mode++) {
                struct reader reader;

                write_config(h, "slots: 6", "shm", mode);
                harness_start(h);
                if (mode == AT_START)
                        fill_shm(0);
                reader_open(&reader, h, "ramp", 2);
                if (mode == AT_ATTACH)
                        fill_shm(0);
                reader_read_epochs(&reader, 3);
                harness_status_number(h, "pid"); /* and it answers */
                reader_close(&reader);
                read_some(h, 12);
                unfill_shm();
                harness_stop(h, SIGTERM, 0);
        }
        harness_free(h);
}
END_TEST

/* ---- A5 ---- */

/* The ring takes more than half of what there is, so nothing of the last one may be left for the next one. */
START_TEST(test_A5_restart_after_kill) {
        int rounds = harness_quick() ? 4 : 20;
        bool small = harness_isolate_mounts();
        struct harness *h;
        uint64_t before;
        size_t objects;

        if (small)
                harness_mount_tmpfs("/dev/shm", 40 * MIB);
        before = small ? shm_free() : 0;
        objects = harness_shm_objects();
        h = harness_new();
        for (int i = 0; i < rounds; i++) {
                struct reader reader;

                write_config(h, "slots: 3", "shm", i % 2 ? AT_START : AT_ATTACH);
                harness_start(h);
                reader_open(&reader, h, "ramp", 2);
                reader_read(&reader, 5);
                if (i % 4 < 2)
                        reader_close(&reader);
                harness_kill(h);
                reader_close(&reader);
                ck_assert_uint_eq(harness_shm_objects(), objects);
                ck_assert_uint_eq(small ? shm_free() : 0, before);
        }
        harness_start(h);
        read_some(h, 5);
        harness_free(h);
}
END_TEST

/* A client that keeps its ring, and what it keeps of it until somebody else needs the memory. */
struct keeper {
        struct reader reader;
        struct pinfeed_batch *batch;
        pthread_t thread;
};

enum {
        KEEP_MS = 700,
        SHORT_PATIENCE_MS = 800,
};

static void keep(struct harness *h, struct keeper *keeper, uint32_t reconnect_s) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);

        attach.reconnect_s = reconnect_s;
        reader_open_with(&keeper->reader, &attach);
        reader_read(&keeper->reader, 3);
        keeper->batch = reader_next(&keeper->reader);
}

static void *let_go_later(void *data) {
        struct keeper *keeper = data;

        usleep(KEEP_MS * 1000);
        reader_must(pinfeed_batch_release(keeper->batch) == 0, "release");
        reader_read_epochs(&keeper->reader, 2);
        return NULL;
}

static bool somebody_is_waited_for(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        const char *text = json_string_value(harness_member(status, "pipelines/ramp/waiting_for"));
        char *own = context;
        bool is = text && strstr(text, own) && strstr(text, "of an earlier ring");

        json_decref(status);
        return is;
}

/* The old ring takes more than half of what there is and a client keeps it; the daemon waits, and says for
 * whom. */
START_TEST(test_A5_restart_with_a_client) {
        enum mode mode = (enum mode)_i;
        const char *const argv[] = {"pinfeedctl", "digest", "ramp", NULL};
        struct keeper keeper;
        struct harness *h;
        char own[64];
        pid_t other = 0;

        if (!have_small_shm(40 * MIB))
                return;
        snprintf(own, sizeof(own), "(pid %d) holds ", (int)getpid());
        h = harness_new();
        write_config(h, "slots: 3", "shm", mode);
        harness_start(h);
        keep(h, &keeper, 60);
        harness_kill(h);
        ck_assert_uint_lt(shm_free(), 20 * MIB);
        if (mode == AT_ATTACH) {
                harness_start(h);
                other = harness_spawn(h, NULL, argv);
                harness_wait(h, "it waits for this process", somebody_is_waited_for, own, 10000);
        }
        ck_assert_int_eq(pthread_create(&keeper.thread, NULL, let_go_later, &keeper), 0);
        if (mode == AT_START)
                harness_start(h);
        ck_assert_int_eq(pthread_join(keeper.thread, NULL), 0);
        if (mode == AT_ATTACH)
                ck_assert_int_eq(harness_join(h, other, 10000), 0);
        ck_assert(harness_log_contains(h, "pipeline ramp waits for space, 30 s at most: "));
        reader_close(&keeper.reader);
        harness_free(h);
}
END_TEST

/* What the client keeps would not be enough: then nobody is waited for. */
START_TEST(test_A5_a_ring_that_never_fits) {
        struct keeper keeper;
        struct harness *h;
        char *log;

        if (!have_small_shm(40 * MIB))
                return;
        h = harness_new();
        write_config(h, "slots: 3", "shm", AT_START);
        harness_start(h);
        keep(h, &keeper, 0);
        harness_kill(h);
        write_config(h, "slots: 300", "shm", AT_START);
        log = harness_start_expect_failure(h, NULL);
        harness_expect_words(log, "the ring needs ");
        ck_assert_ptr_null(strstr(log, "waits for space"));
        free(log);
        reader_close(&keeper.reader);
        harness_free(h);
}
END_TEST

/* It keeps a batch of the old ring and waits for the new one: nobody can help it, and it is told. */
START_TEST(test_A5_client_that_waits_for_itself) {
        struct pinfeed_batch *batch;
        struct keeper keeper;
        struct harness *h;
        char own[128];
        const char *text;
        int r;

        if (!have_small_shm(40 * MIB))
                return;
        h = harness_new();
        snprintf(own, sizeof(own), "%d", SHORT_PATIENCE_MS);
        harness_set_environment(h, "PINFEED_TEST_SPACE_MS", own);
        write_config(h, "slots: 3", "shm", AT_ATTACH);
        harness_start(h);
        keep(h, &keeper, 2);
        harness_kill(h);
        harness_start(h);
        do /* one may have come before the daemon was killed; it is kept, too */
                r = pinfeed_next(keeper.reader.job, &batch);
        while (r == 1);
        text = pinfeed_error(keeper.reader.job);
        ck_assert_msg(r == -EPIPE, "%d: %s", r, text);
        harness_expect_words(text, "no pinfeedd took the job again in 2 s (reconnect_s): ");
        check_refusal(text);
        snprintf(own, sizeof(own), "(pid %d) holds 24 MiB of an earlier ring and waits for this one itself",
                 (int)getpid());
        harness_expect_words(text, own);
        harness_expect_words(text, "it has to release its batches (see max_held_batches)");
        reader_close(&keeper.reader);
        read_some(h, 5); /* now there is room */
        harness_free(h);
}
END_TEST

/* Where nobody said how many slots there are a ring with fewer would do; but not for the sake of an old one
 * that is about to go. */
START_TEST(test_A5_slots_are_not_fewer_afterwards) {
        struct keeper keeper;
        struct harness *h;

        if (!have_small_shm(160 * MIB))
                return;
        h = harness_new();
        write_config(h, "seed: 0", "shm", AT_ATTACH);
        harness_start(h);
        keep(h, &keeper, 60);
        ck_assert_double_eq(harness_status_number(h, "pipelines/ramp/slots"), 8);
        harness_kill(h);
        harness_start(h);
        ck_assert_int_eq(pthread_create(&keeper.thread, NULL, let_go_later, &keeper), 0);
        read_some(h, 5);
        ck_assert_double_eq(harness_status_number(h, "pipelines/ramp/slots"), 8);
        ck_assert_int_eq(pthread_join(keeper.thread, NULL), 0);
        reader_close(&keeper.reader);
        harness_free(h);
}
END_TEST

/* ---- A9 ---- */

enum {
        CRASHES = 30,
        CRASH_STEP_US = 1500, /* so that they come from the first instruction to a ring that is there */
};

START_TEST(test_A9_crashes_at_start_up) {
        struct harness *h;
        uint64_t before;

        if (!have_small_shm(3 * (16 * MIB + 64 * 1024)))
                return;
        before = shm_free();
        h = harness_new();
        write_config(h, "slots: 2", "shm", AT_START);
        for (int i = 0; i < CRASHES; i++) {
                const char *const argv[] = {"pinfeedd",
                                            "--config",
                                            harness_config_path(h),
                                            "--runtime-dir",
                                            harness_runtime_directory(h),
                                            NULL};
                pid_t pid = harness_spawn(h, NULL, argv);

                usleep((useconds_t)(i * CRASH_STEP_US));
                ck_assert_int_eq(kill(pid, SIGKILL), 0);
                ck_assert_int_eq(harness_join(h, pid, 5000), -SIGKILL);
        }
        harness_start(h);
        read_some(h, 5);
        harness_stop(h, SIGTERM, 0);
        ck_assert_uint_eq(shm_free(), before);
        harness_free(h);
}
END_TEST

/* ---- A6 ---- */

enum {
        CROWD = 16,
};

struct crowd {
        pid_t pid;
        char directory[100];
        char config[100];
};

static void write_crowd_config(struct crowd *one, unsigned i) {
        FILE *file = fopen(one->config, "we");

        ck_assert_ptr_nonnull(file);
        /* Each has another number of samples, by which its ring is known. */
        fprintf(file,
                "pipelines: {ramp: {source: {type: synthetic, mode: ramp, samples: %u, bytes: 4K}, "
                "batch_size: 2,\n"
                "  slots: 4, workers: 1, reserve: start, backing: shm}}\n",
                CROWD + i);
        ck_assert_int_eq(fclose(file), 0);
}

static bool crowd_attach(const struct crowd *one, struct reader *reader) {
        struct pinfeed_attach attach = {.size = sizeof(attach),
                                        .pipeline = "ramp",
                                        .runtime_dir = one->directory,
                                        .timeout_ms = READER_TIMEOUT_MS};
        struct pinfeed_job *job;
        int r = pinfeed_open(&job, &attach);

        pinfeed_close(job);
        if (r == -ENOENT || r == -ECONNREFUSED)
                return false; /* it does not listen yet */
        reader_open_with(reader, &attach);
        return true;
}

static void check_crowd_member(struct crowd *one, unsigned i, struct ring_file *ring) {
        uint64_t deadline =
                clock_ns() + (uint64_t)READER_TIMEOUT_MS * (uint64_t)harness_slowdown() * NS_PER_MS;
        struct reader reader;

        while (!crowd_attach(one, &reader)) {
                reader_must(harness_alive(one->pid), "daemon %u ended", i);
                reader_must(clock_ns() < deadline, "daemon %u does not listen", i);
                usleep(HARNESS_POLL_US);
        }
        ck_assert_int_eq(reader.info.daemon_pid, one->pid);
        ck_assert_uint_eq(reader.info.samples, CROWD + i);
        reader_read_epochs(&reader, 1);
        ck_assert_uint_eq(rings_of(one->pid, ring, 1), 1);
        reader_close(&reader);
}

static void check_distinct(const struct ring_file *rings) {
        for (unsigned i = 0; i < CROWD; i++)
                for (unsigned k = 0; k < i; k++)
                        reader_must(rings[i].inode != rings[k].inode || rings[i].device != rings[k].device,
                                    "daemons %u and %u share a ring", i, k);
}

START_TEST(test_A6_sixteen_starts_at_once) {
        int rounds = harness_quick() ? 2 : 50;
        struct harness *h = harness_new();
        struct crowd crowd[CROWD];
        struct ring_file rings[CROWD];

        for (unsigned i = 0; i < CROWD; i++) {
                snprintf(crowd[i].directory, sizeof(crowd[i].directory), "%s/run%u", harness_directory(h), i);
                snprintf(crowd[i].config, sizeof(crowd[i].config), "%s/%u.yaml", harness_directory(h), i);
                write_crowd_config(&crowd[i], i);
        }
        for (int round = 0; round < rounds; round++) {
                for (unsigned i = 0; i < CROWD; i++)
                        crowd[i].pid = harness_spawn(h, NULL,
                                                     (const char *const[]){"pinfeedd", "--config",
                                                                           crowd[i].config, "--runtime-dir",
                                                                           crowd[i].directory, NULL});
                for (unsigned i = 0; i < CROWD; i++)
                        check_crowd_member(&crowd[i], i, &rings[i]);
                check_distinct(rings);
                for (unsigned i = 0; i < CROWD; i++)
                        ck_assert_int_eq(kill(crowd[i].pid, SIGTERM), 0);
                for (unsigned i = 0; i < CROWD; i++)
                        ck_assert_int_eq(harness_join(h, crowd[i].pid, 5000), 0);
        }
        harness_free(h);
}
END_TEST

/* ---- A15 ---- */

struct ring_size {
        const char *text; /* or a number of slots and bytes: */
        unsigned slots;
        int more;
        bool works;
};

static void write_sized_config(struct harness *h, const char *size, enum mode mode) {
        char ring[64];

        snprintf(ring, sizeof(ring), size ? "ring: %s" : "shuffle: false", size);
        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    %s\n"
                             "    source: {type: synthetic, mode: ramp, samples: 10, bytes: 1000}\n"
                             "    batch_size: 3\n"
                             "    workers: 1\n"
                             "    backing: shm\n"
                             "    %s\n",
                             ring, modes[mode]);
}

static uint64_t learn_slot_bytes(struct harness *h) {
        uint64_t bytes;

        write_sized_config(h, NULL, AT_ATTACH);
        harness_start(h);
        bytes = (uint64_t)harness_status_number(h, "pipelines/ramp/slot_bytes");
        harness_stop(h, SIGTERM, 0);
        return bytes;
}

static void check_ring_size(struct harness *h, const char *size, bool works) {
        for (enum mode mode = AT_START; mode <= AT_ATTACH; mode++) {
                write_sized_config(h, size, mode);
                if (works) {
                        harness_start(h);
                        read_some(h, 9);
                        harness_stop(h, SIGTERM, 0);
                } else {
                        char *text = harness_start_expect_failure(h, NULL);

                        ck_assert_msg(strstr(text, "pinfeed.yaml:3") && strstr(text, "ring"),
                                      "ring: %s is refused without saying why: %s", size, text);
                        free(text);
                }
        }
}

START_TEST(test_A15_ring_sizes) {
        static const struct ring_size sizes[] = {
                {.text = "0"},
                {.text = "1"},
                {.text = "4095"},
                {.text = "4096"},
                {.slots = 1, .more = -1},
                {.slots = 1},
                {.slots = 2, .more = -1},
                {.slots = 2, .works = true},
                {.slots = 3, .more = -1, .works = true},
                {.text = "1099511627776"},        /* 2^40: more slots than can be */
                {.text = "9223372036854775807"},  /* 2^63 - 1 */
                {.text = "9223372036854775808"},  /* 2^63 */
                {.text = "18446744073709551615"}, /* 2^64 - 1 */
                {.text = "18446744073709551616"}, /* 2^64 */
                {.text = "16777216T"},
                {.text = "-1"},
        };
        struct harness *h = harness_new();
        uint64_t slot_bytes = learn_slot_bytes(h);

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                char text[32];

                snprintf(text, sizeof(text), "%llu",
                         (unsigned long long)(sizes[i].slots * slot_bytes) +
                                 (unsigned long long)sizes[i].more);
                check_ring_size(h, sizes[i].text ? sizes[i].text : text, sizes[i].works);
        }
        harness_free(h);
}
END_TEST

/* 2^40 bytes that are a number of slots which can be, but more than there is. */
START_TEST(test_A15_ring_larger_than_memory) {
        struct harness *h;

        if (!have_small_shm(16 * MIB))
                return;
        h = harness_new();
        write_config(h, "ring: 1099511627776", "shm", AT_START);
        expect_refused_start(h);
        write_config(h, "ring: 1T", "shm", AT_ATTACH);
        harness_start(h);
        expect_refused_attach(h);
        harness_free(h);
}
END_TEST

static Suite *make_suite(void) {
        Suite *suite = suite_create("A-memory");
        TCase *tcase = tcase_create("A");

        tcase_set_timeout(tcase, 120 * harness_slowdown());
        tcase_add_test(tcase, test_A1_shm_too_small);
        tcase_add_test(tcase, test_A1_shm_too_small_auto);
        tcase_add_test(tcase, test_A2_space_is_really_reserved);
        tcase_add_test(tcase, test_A2_space_goes_while_reserving);
        tcase_add_test(tcase, test_A3_shm_filled_while_reading);
        tcase_add_test(tcase, test_A5_restart_after_kill);
        tcase_add_loop_test(tcase, test_A5_restart_with_a_client, AT_START, AT_ATTACH + 1);
        tcase_add_test(tcase, test_A5_a_ring_that_never_fits);
        tcase_add_test(tcase, test_A5_client_that_waits_for_itself);
        tcase_add_test(tcase, test_A5_slots_are_not_fewer_afterwards);
        tcase_add_test(tcase, test_A9_crashes_at_start_up);
        tcase_add_test(tcase, test_A6_sixteen_starts_at_once);
        tcase_add_test(tcase, test_A15_ring_sizes);
        tcase_add_test(tcase, test_A15_ring_larger_than_memory);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(make_suite());
}
