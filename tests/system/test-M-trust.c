/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases M1, M5, M6: what is open to others: no network, nothing to unpickle, no other uid, no number that
 * overflows, nothing to write to. What a peer may say that breaks the protocol is in test-M-wire.c. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/raw.h"
#include "tests/system/reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        SAMPLES = 1000,
        BATCH = 8,
        SOON_MS = 10000,
        PIDS = 64,
        TEXT = 1200,
        NOBODY = 65534,
};

static struct harness *start_with(const char *backing) {
        struct harness *h = harness_new();

        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %d, bytes: 1024}\n"
                             "    batch_size: %d\n"
                             "    slots: 16\n"
                             "    lookahead: 1\n" /* raw jobs do not ask for epochs */
                             "    backing: %s\n"
                             "    workers: 2\n",
                             SAMPLES, BATCH, backing);
        harness_start(h);
        return h;
}

static struct harness *start(void) {
        return start_with("auto");
}

/* ---- M1: no network ---- */

/* Whether a socket with this inode is in one of the kernel's tables of network sockets. */
static bool is_network_socket(unsigned long inode) {
        static const char *const tables[] = {"tcp",     "tcp6", "udp",  "udp6",
                                             "udplite", "raw",  "raw6", "packet"};
        bool found = false;

        for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
                char path[32], line[512], wanted[32];
                FILE *file;

                snprintf(path, sizeof(path), "/proc/net/%s", tables[i]);
                snprintf(wanted, sizeof(wanted), " %lu ", inode);
                file = fopen(path, "re");
                while (file && fgets(line, sizeof(line), file)) {
                        line[strcspn(line, "\n")] = ' ';
                        found = found || strstr(line, wanted);
                }
                if (file)
                        fclose(file);
        }
        return found;
}

/* Sockets of a process, and how many of them are network sockets. */
static size_t count_sockets(pid_t pid, size_t *network) {
        char path[300], target[64];
        struct dirent *entry;
        size_t n = 0;
        DIR *fds;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        fds = opendir(path);
        ck_assert_ptr_nonnull(fds);
        while ((entry = readdir(fds))) {
                unsigned long inode;
                ssize_t length;

                snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, entry->d_name);
                length = readlink(path, target, sizeof(target) - 1);
                target[length > 0 ? length : 0] = 0;
                if (sscanf(target, "socket:[%lu]", &inode) != 1)
                        continue;
                n++;
                *network += is_network_socket(inode);
        }
        closedir(fds);
        return n;
}

START_TEST(test_M1_no_network_sockets) {
        struct harness *h = start();
        int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        size_t network = 0, n;
        struct reader reader;
        pid_t pids[PIDS];

        if (tcp >= 0) { /* the search finds what it looks for */
                ck_assert_int_eq(bind(tcp, (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET},
                                      sizeof(struct sockaddr_in)),
                                 0);
                ck_assert_int_eq(listen(tcp, 1), 0);
                count_sockets(getpid(), &network);
                ck_assert_uint_eq(network, 1);
                close(tcp);
                network = 0;
        }
        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, 4);
        reader_wait_workers(h, 2);
        /* The daemon: two that listen, this job, two workers. A worker: one. */
        ck_assert_uint_ge(count_sockets(harness_daemon_pid(h), &network), 5);
        n = harness_worker_pids(h, pids, PIDS);
        ck_assert_uint_eq(n, 2);
        for (size_t i = 0; i < n; i++)
                ck_assert_uint_eq(count_sockets(pids[i], &network), 1);
        ck_assert_uint_eq(network, 0);
        reader_close(&reader);
        harness_free(h);
}
END_TEST

/* ---- M1: plain structs ---- */

static bool has(const uint8_t *record, size_t length, const char *bytes, size_t n) {
        return memmem(record, length, bytes, n) != NULL;
}

/* Opcodes that every pickle of some protocol must have, and the imports that do the harm. */
static void expect_no_pickle(const uint8_t *record, size_t length) {
        for (char protocol = 2; protocol <= 5; protocol++)
                ck_assert(record[0] != 0x80 && !has(record, length, (char[]){(char)0x80, protocol, '}'}, 3) &&
                          !has(record, length, (char[]){(char)0x80, protocol, ']'}, 3) &&
                          !has(record, length, (char[]){(char)0x80, protocol, (char)0x95}, 3));
        ck_assert(!has(record, length, "c__builtin__\n", 13));
        ck_assert(!has(record, length, "cbuiltins\n", 10));
        ck_assert(!has(record, length, "cnumpy", 6));
}

/* The record as it came must be what our encoder makes of the fields that our decoder found in it. */
static size_t expect_plain(int fd, struct message *message) {
        static uint8_t record[MESSAGE_RECORD_MAX], again[MESSAGE_RECORD_MAX];
        int fds[SEQPACKET_FDS_MAX];
        struct fault fault = {};
        size_t length, n_fds;

        ck_assert(raw_readable(fd, RAW_ANSWER_MS));
        ck_assert_int_eq(seqpacket_receive(fd, record, sizeof(record), &length, fds, &n_fds), 0);
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]);
        expect_no_pickle(record, length);
        ck_assert_msg(message_decode(message, record, length, n_fds, MESSAGE_BY_DAEMON_TO_JOB, &fault) == 0,
                      "%s", fault.text);
        ck_assert_uint_eq(raw_encode(message, again), length);
        ck_assert_int_eq(memcmp(record, again, length), 0);
        return length;
}

START_TEST(test_M1_the_wire_is_plain_structs) {
        static const char pickle[] = "\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06"
                                     "system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94.";
        struct harness *h = start();
        struct message message = raw_hello();
        uint64_t batches = 0, bytes = 0;
        int fd = raw_connect(h);

        raw_send(fd, &message);
        expect_plain(fd, &message);
        ck_assert_int_eq(message.type, MESSAGE_HELLO);
        message = raw_attach("ramp");
        raw_send(fd, &message);
        do
                expect_plain(fd, &message);
        while (message.type == MESSAGE_PROGRESS);
        ck_assert_int_eq(message.type, MESSAGE_ATTACHED);
        while (batches < 200) {
                struct message release = {.type = MESSAGE_RELEASE};

                bytes += expect_plain(fd, &message);
                ck_assert_int_eq(message.type, MESSAGE_BATCHES);
                release.release.n_number = message.batches.n_batch;
                for (uint32_t i = 0; i < message.batches.n_batch; i++)
                        release.release.number[i] = message.batches.batch[i].number;
                batches += message.batches.n_batch;
                raw_send(fd, &release);
        }
        ck_assert_uint_le(bytes / batches, 144); /* DESIGN: 128 + 16 x segments */
        close(fd);

        fd = raw_greeted(h);
        ck_assert_int_eq(seqpacket_send(fd, pickle, sizeof(pickle) - 1, NULL, 0), 0);
        raw_expect_closed(fd, "after a pickle");
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- M1: whose socket ---- */

/* Whether all that was said is that the process is turned away. */
static bool is_refusal(int i, const uint8_t *record, size_t length) {
        static struct message message;
        struct fault fault = {};

        if (i > 0)
                return has(record, length, "{\"error\":", 9) && has(record, length, "turned away", 11);
        return message_decode(&message, record, length, 0, MESSAGE_BY_DAEMON_TO_JOB, &fault) == 0 &&
               message.type == MESSAGE_REFUSED && message.refused.error == EPERM;
}

/* As somebody else: does the daemon do anything, or even take the connection? 0: no; 1: it answered. */
static int try_as_nobody(const char *directory) {
        static const char *const names[] = {"pinfeed.sock", "control.sock"};
        static const int types[] = {SOCK_SEQPACKET, SOCK_STREAM};
        struct message hello = raw_hello();
        static uint8_t record[MESSAGE_RECORD_MAX];

        if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
                return 2;
        for (int i = 0; i < 2; i++) {
                struct sockaddr_un address = {.sun_family = AF_UNIX};
                int fd = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);
                size_t length;
                ssize_t n;

                snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", directory, names[i]);
                if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                        continue;
                if (message_encode(&hello, record, sizeof(record), &length) < 0)
                        return 2;
                if (i == 0)
                        send(fd, record, length, MSG_NOSIGNAL);
                else
                        send(fd, "status\n", 7, MSG_NOSIGNAL);
                n = recv(fd, record, sizeof(record), 0);
                if (n > 0 && !is_refusal(i, record, (size_t)n))
                        return 1;
        }
        return 0;
}

static void expect_turned_away(struct harness *h) {
        int status;
        pid_t pid = fork();

        if (pid == 0)
                _exit(try_as_nobody(harness_runtime_directory(h)));
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(status == 0, "another uid was served (%x)", status);
}

static void open_to_all(const char *directory, const char *name, mode_t mode) {
        char path[200];

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        ck_assert_int_eq(chmod(path, mode), 0);
}

static mode_t mode_of(const char *directory, const char *name) {
        char path[200];
        struct stat facts;

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        ck_assert_int_eq(stat(path, &facts), 0);
        return facts.st_mode & 07777;
}

static bool is_in_log(struct harness *h, void *text) {
        return harness_log_contains(h, text);
}

START_TEST(test_M1_another_uid) {
        struct harness *h = start();
        const char *run = harness_runtime_directory(h);
        struct reader reader;

        ck_assert_uint_eq(mode_of(run, "."), 0700);
        ck_assert_uint_eq(mode_of(run, "pinfeed.sock"), 0600);
        ck_assert_uint_eq(mode_of(run, "control.sock"), 0600);
        if (geteuid() != 0) {
                harness_skip("only root can be somebody else");
                harness_free(h);
                return;
        }
        expect_turned_away(h); /* by the modes */
        open_to_all(harness_directory(h), ".", 0755);
        open_to_all(run, ".", 0755);
        open_to_all(run, "pinfeed.sock", 0666);
        open_to_all(run, "control.sock", 0666);
        expect_turned_away(h); /* by the daemon, which asks the kernel */
        harness_wait(h, "a line in the log", is_in_log, "uid 65534", SOON_MS);
        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, 2);
        reader_close(&reader);
        harness_free(h);
}
END_TEST

/* ---- M5: numbers that cannot be ---- */

START_TEST(test_M5_numbers_to_libpinfeed) {
        struct harness *h = start();
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2), wrong = attach;
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;
        char text[TEXT];

        wrong.batch_size = UINT32_C(1) << 31;
        reader_expect_refusal(&wrong, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "2147483648");
        wrong.batch_size = INT32_MAX;
        reader_expect_refusal(&wrong, -ENOSPC, text, sizeof(text));
        harness_expect_words(text, "slots");
        wrong = attach;
        wrong.start_row = UINT64_C(1) << 63;
        reader_expect_refusal(&wrong, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "9223372036854775808");
        wrong = attach;
        wrong.max_held_batches = UINT32_MAX;
        reader_expect_refusal(&wrong, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "4294967295");
        wrong = attach;
        wrong.rank = UINT32_MAX;
        reader_expect_refusal(&wrong, -EINVAL, text, sizeof(text));

        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        ck_assert_int_eq(pinfeed_next(job, &batch), 1);
        ck_assert_ptr_null(pinfeed_batch_data(batch, UINT32_MAX, 0, NULL));
        ck_assert_ptr_null(pinfeed_batch_data(batch, 0, UINT32_MAX, NULL));
        ck_assert_ptr_null(pinfeed_batch_ids(batch, 1, NULL));
        ck_assert_ptr_null(pinfeed_batch_flags(batch, 1, NULL));
        ck_assert_int_eq(pinfeed_batch_copy(batch, 2, text, sizeof(text)), -EINVAL);
        ck_assert_int_eq(pinfeed_job_field(job, UINT32_MAX, &(struct pinfeed_field){}), -EINVAL);
        pinfeed_close(job);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

START_TEST(test_M5_numbers_in_the_configuration) {
        static const char *const lines[] = {
                "batch_size: -1",
                "batch_size: 0",
                "batch_size: 2147483648",
                "batch_size: 9223372036854775808",
                "batch_size: 18446744073709551616",
                "batch_size: 8\n    slots: -1",
                "batch_size: 8\n    slots: 4294967296",
                "batch_size: 8\n    ring: -1",
                "batch_size: 8\n    ring: 18446744073709551615",
                "batch_size: 8\n    ring: 16777216T",
                "batch_size: 8\n    seed: -1",
                "batch_size: 8\n    seed: 18446744073709551616",
        };
        static const char *const sources[] = {"samples: -1", "samples: 18446744073709551615",
                                              "samples: 10, delay_us: -1", "samples: 10, features: -1",
                                              "samples: 10, mode: ramp, bytes: -1"};
        static const char huge[] =
                "pipelines:\n  x:\n    source: {type: synthetic, samples: 100, features: 16777216}\n"
                "    batch_size: 2147483647\n    slots: 1048576\n";
        char *refused;
        struct harness *h = harness_new();

        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
                char *text;

                harness_write_config(
                        h, "pipelines:\n  x:\n    source: {type: synthetic, samples: 100}\n    %s\n",
                        lines[i]);
                text = harness_start_expect_failure(h, NULL);
                harness_expect_words(text, strchr(lines[i], '\n') ? "pinfeed.yaml:5:" : "pinfeed.yaml:4:");
                free(text);
        }
        for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
                char *text;

                harness_write_config(
                        h, "pipelines:\n  x:\n    source: {type: synthetic, %s}\n    batch_size: 8\n",
                        sources[i]);
                text = harness_start_expect_failure(h, NULL);
                harness_expect_words(text, "pinfeed.yaml:3:");
                free(text);
        }
        /* Each number is good, their product is not. */
        harness_write_config(h, "%s", huge);
        refused = harness_start_expect_failure(h, NULL);
        harness_expect_words(refused, "pinfeed.yaml:5:");
        harness_expect_words(refused, "1048576 slots");
        free(refused);
        harness_free(h);
}
END_TEST

/* ---- M6: the ring is for reading ---- */

static void expect_read_only(const char *backing) {
        struct harness *h = start_with(backing);
        struct message message;
        int ring = -1, fd = raw_attached(h, "ramp", &message, &ring);
        struct reader beside;
        struct stat before, after;
        void *map;

        ck_assert_int_ge(ring, 0);
        reader_open(&beside, h, "ramp", 2);
        reader_read(&beside, 4);
        ck_assert_int_eq(fstat(ring, &before), 0);
        ck_assert_int_eq(fcntl(ring, F_GETFL) & O_ACCMODE, O_RDONLY);
        ck_assert(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0) == MAP_FAILED);
        ck_assert_int_eq(errno, EACCES);
        ck_assert(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, ring, 0) == MAP_FAILED);
        map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, ring, 0);
        ck_assert(map != MAP_FAILED);
        ck_assert_int_lt(mprotect(map, 4096, PROT_READ | PROT_WRITE), 0);
        ck_assert_int_eq(errno, EACCES);
        munmap(map, 4096);
        ck_assert_int_lt(pwrite(ring, "x", 1, 0), 0);
        ck_assert_int_lt(ftruncate(ring, 0), 0);
        ck_assert_int_lt(fallocate(ring, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
        ck_assert_int_eq(fstat(ring, &after), 0);
        ck_assert_int_eq(before.st_size, after.st_size);
        ck_assert_int_eq(before.st_blocks, after.st_blocks);
        reader_read(&beside, 2 * SAMPLES / BATCH);
        reader_close(&beside);
        close(ring);
        close(fd);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

START_TEST(test_M6_client_maps_for_writing) {
        expect_read_only("shm");
        expect_read_only("memfd");
}
END_TEST

/* For the daemon's own user, who has asked for it, so that slots can be page-locked. It is the file that jobs
 * beside it read; a memfd keeps its size and can always be mapped for writing by the next worker. */
static void expect_writable(const char *backing) {
        struct harness *h = start_with(backing);
        struct message attach = raw_attach("ramp"), message;
        struct stat own, others;
        int ring = -1, readonly = -1, fd, other;
        uint8_t *map;

        attach.attach.map = MESSAGE_MAP_PINNED;
        fd = raw_attached_by(h, &attach, &message, &ring);
        ck_assert_int_eq(message.attached.map, MESSAGE_MAP_PINNED);
        ck_assert_str_eq(message.attached.map_reason, "");
        ck_assert_int_eq(fcntl(ring, F_GETFL) & O_ACCMODE, O_RDWR);
        ck_assert_int_eq(fcntl(ring, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
        ck_assert(map != MAP_FAILED);
        ck_assert_int_eq(mprotect(map, 4096, PROT_READ), 0);
        munmap(map, 4096);

        other = raw_attached(h, "ramp", &message, &readonly);
        ck_assert_int_eq(message.attached.map, MESSAGE_MAP_READ_ONLY);
        ck_assert_int_eq(fcntl(readonly, F_GETFL) & O_ACCMODE, O_RDONLY);
        ck_assert_int_eq(fstat(ring, &own) | fstat(readonly, &others), 0);
        ck_assert(own.st_ino == others.st_ino && own.st_dev == others.st_dev);
        if (strcmp(backing, "memfd") == 0) {
                ck_assert_int_lt(ftruncate(ring, 0), 0);
                ck_assert_int_lt(ftruncate(ring, 2 * own.st_size), 0);
                ck_assert_int_lt(fcntl(ring, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
                ck_assert_int_eq(errno, EPERM);
        }
        close(readonly);
        close(other);
        close(ring);
        close(fd);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

START_TEST(test_M6_owner_maps_for_writing) {
        expect_writable("shm");
        expect_writable("memfd");
}
END_TEST

/* A job that is not asked to ask gets nothing, and asking for less gets less. */
START_TEST(test_M6_who_does_not_ask) {
        struct harness *h = start();
        struct message attach = raw_attach("ramp"), message;
        int ring = -1, fd;

        attach.attach.map = MESSAGE_MAP_READ_ONLY;
        fd = raw_attached_by(h, &attach, &message, &ring);
        ck_assert_int_eq(message.attached.map, MESSAGE_MAP_READ_ONLY);
        ck_assert_int_eq(fcntl(ring, F_GETFL) & O_ACCMODE, O_RDONLY);
        close(ring);
        close(fd);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("M-trust");
        TCase *tcase = tcase_create("M");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_M1_no_network_sockets);
        tcase_add_test(tcase, test_M1_the_wire_is_plain_structs);
        tcase_add_test(tcase, test_M1_another_uid);
        tcase_add_test(tcase, test_M5_numbers_to_libpinfeed);
        tcase_add_test(tcase, test_M5_numbers_in_the_configuration);
        tcase_add_test(tcase, test_M6_client_maps_for_writing);
        tcase_add_test(tcase, test_M6_owner_maps_for_writing);
        tcase_add_test(tcase, test_M6_who_does_not_ask);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
