/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases M3, A20: jobs in containers.
 *
 * A container is made as container runtimes make it: namespaces of their own for users, mounts, IPC and, if
 * asked for, processes; a root in which nothing is but the runtime directory, at the service's place, and a
 * /dev/shm of 64 MiB. What the job reads is larger than that. That it works means that memory comes as a
 * descriptor, and that nobody has to share /dev/shm or the IPC namespace for it.
 *
 * A job with little memory of its own is in a memory cgroup. The ring's pages are paid for by whoever touches
 * them first, and this has to be the daemon. */

#include "tests/support/run.h"
#include "tests/system/cgroup.h"
#include "tests/system/reader.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

enum {
        SHM_MIB = 64, /* of the container */
        RING_MIB = 256,
        BATCH = 8,      /* samples of 1 MiB */
        SAMPLES = 320,  /* more than the ring */
        MANY = 1024,    /* samples: the GiB of A20 */
        LIMIT_MIB = 64, /* of the cgroup */
        SOON_MS = 10000,
};

static struct harness *start(const char *backing, int samples) {
        struct harness *h = harness_new();

        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %d, bytes: 1M}\n"
                             "    batch_size: %d\n"
                             "    ring: %dM\n"
                             "    backing: %s\n"
                             "    workers: 2\n",
                             samples, BATCH, RING_MIB, backing);
        harness_start(h);
        return h;
}

static int wait_child(pid_t pid) {
        int status;

        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        return status;
}

/* ---- M3: a container ---- */

struct container {
        const char *backing;
        unsigned uid; /* the job's inside */
        int more;     /* namespaces, besides the usual ones */
};

/* Between the test and its job. */
struct shared {
        _Atomic int pid; /* outside of the container */
        _Atomic bool has_read, go_on;
};

static bool write_text(const char *path, const char *text) {
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

        if (fd >= 0)
                close(fd);
        return written;
}

/* One user is known in there, and no other. */
static bool map_ids(unsigned uid, uid_t outer_uid, gid_t outer_gid) {
        char uids[64], gids[64];

        snprintf(uids, sizeof(uids), "%u %u 1", uid, (unsigned)outer_uid);
        snprintf(gids, sizeof(gids), "%u %u 1", uid, (unsigned)outer_gid);
        return write_text("/proc/self/setgroups", "deny") && write_text("/proc/self/uid_map", uids) &&
               write_text("/proc/self/gid_map", gids);
}

/* What is in the new root, which is the working directory. */
static bool furnish(const char *runtime) {
        char size[32];

        snprintf(size, sizeof(size), "size=%dM", SHM_MIB);
        return mkdir("dev", 0755) == 0 && mkdir("dev/shm", 01777) == 0 &&
               mount("tmpfs", "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, size) == 0 &&
               mkdir("run", 0755) == 0 && mkdir("run/pinfeed", 0755) == 0 &&
               mount(runtime, "run/pinfeed", NULL, MS_BIND, NULL) == 0;
}

static bool change_root(const struct harness *h) {
        char root[HARNESS_PATH_MAX];

        snprintf(root, sizeof(root), "%s/root", harness_directory(h));
        return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mkdir(root, 0755) == 0 &&
               mount("tmpfs", root, "tmpfs", 0, "size=1M") == 0 && chdir(root) == 0 &&
               furnish(harness_runtime_directory(h)) && syscall(SYS_pivot_root, ".", ".") == 0 &&
               umount2(".", MNT_DETACH) == 0 && chdir("/") == 0;
}

/* The calling process is in the container afterwards; with CLONE_NEWPID its next child is. */
static void enter(const struct harness *h, const struct container *container) {
        uid_t uid = geteuid();
        gid_t gid = getegid();

        ck_assert_msg(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | container->more) == 0,
                      "namespaces: %s", strerror(errno));
        ck_assert_msg(map_ids(container->uid, uid, gid), "user and group maps: %s", strerror(errno));
        ck_assert_msg(change_root(h), "the root of the container: %s", strerror(errno));
}

/* A little shared memory, and nothing of the host's. */
static void expect_bare(const struct container *container) {
        struct statvfs shm;

        ck_assert_uint_eq(geteuid(), container->uid);
        ck_assert_int_eq(statvfs("/dev/shm", &shm), 0);
        ck_assert_uint_eq((uint64_t)shm.f_blocks * shm.f_frsize, SHM_MIB * MIB);
        ck_assert_uint_eq(harness_shm_objects(), 0);
        ck_assert_int_lt(access("/proc", F_OK), 0);
        ck_assert_int_eq(access("/run/pinfeed/pinfeed.sock", F_OK), 0);
}

/* Reads more than its /dev/shm would hold, and, once the test has looked at it, the rest of the epoch. */
static void __attribute__((noreturn))
work(const struct harness *h, const struct container *container, struct shared *shared) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        struct reader reader;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        expect_bare(container);
        attach.runtime_dir = NULL; /* it is found */
        reader_open_with(&reader, &attach);
        reader_read(&reader, 2 * SHM_MIB / BATCH);
        atomic_store(&shared->has_read, true);
        while (!atomic_load(&shared->go_on))
                usleep(HARNESS_POLL_US);
        reader_read(&reader, reader.info.batches_per_epoch - reader.batches);
        reader_close(&reader);
        _exit(0);
}

static void __attribute__((noreturn))
live(const struct harness *h, const struct container *container, struct shared *shared) {
        pid_t pid = getpid();

        enter(h, container);
        if (container->more & CLONE_NEWPID) {
                pid = fork(); /* the first process in there */
                if (pid == 0)
                        work(h, container, shared);
        }
        atomic_store(&shared->pid, pid);
        if (pid == getpid())
                work(h, container, shared);
        _exit(wait_child(pid) == 0 ? 0 : 1);
}

static bool has_read(struct harness *h, void *context) {
        const struct shared *shared = context;

        return atomic_load(&shared->has_read);
}

/* What `status` says of the only job. */
static void expect_seen(struct harness *h, const struct shared *shared) {
        json_t *status = harness_status(h);

        ck_assert_uint_eq(json_array_size(json_object_get(status, "jobs")), 1);
        ck_assert_double_eq(harness_number(status, "jobs/0/pid"), atomic_load(&shared->pid));
        ck_assert_double_eq(harness_number(status, "jobs/0/uid"), geteuid());
        ck_assert_str_eq(json_string_value(harness_member(status, "jobs/0/map")), "read-only");
        ck_assert_str_eq(json_string_value(harness_member(status, "jobs/0/watched")), "pidfd and socket");
        json_decref(status);
}

/* Some containers, and roots that are none, forbid their like. */
static bool have_namespaces(void) {
        pid_t pid = fork();

        if (pid == 0)
                _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID) < 0);
        if (wait_child(pid) == 0)
                return true;
        harness_skip("no user namespaces here");
        return false;
}

static void check_container(const struct container *container) {
        struct shared *shared =
                mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct harness *h;
        pid_t pid;

        ck_assert_ptr_ne(shared, MAP_FAILED);
        if (!have_namespaces())
                return;
        h = start(container->backing, SAMPLES);
        pid = fork();
        if (pid == 0)
                live(h, container, shared);
        harness_wait(h, "the job has read", has_read, shared, READER_TIMEOUT_MS);
        expect_seen(h, shared);
        atomic_store(&shared->go_on, true);
        ck_assert_int_eq(wait_child(pid), 0);
        harness_wait(h, "the job's end", harness_no_job_is_there, NULL, SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
        munmap(shared, sizeof(*shared));
}

START_TEST(test_M3_root_in_a_container) {
        check_container(&(struct container){.backing = "shm"});
}
END_TEST

START_TEST(test_M3_a_user_in_a_container_with_its_own_processes) {
        check_container(&(struct container){.backing = "memfd", .uid = 1000, .more = CLONE_NEWPID});
}
END_TEST

/* ---- A20: who pays for the ring ---- */

static void remove_group(void) {
        cgroup_remove("memory");
}

static bool have_small_group(char group[CGROUP_PATH_MAX]) {
        char parent[CGROUP_PARENT_MAX], bytes[32];

        snprintf(bytes, sizeof(bytes), "%d", (int)(LIMIT_MIB * MIB));
        if (cgroup_make("memory", parent, group) && cgroup_write(group, "memory.limit_in_bytes", bytes))
                return true;
        harness_skip("no writable cgroup v1 tree for memory here");
        return false;
}

static double read_bytes(const char *group, const char *name) {
        char text[CGROUP_TEXT_MAX];

        ck_assert(cgroup_read(group, name, text));
        return strtod(text, NULL);
}

/* In the group, does what `run` says. Returns the status of its end. */
static int run_in(const char *group, void (*run)(const struct harness *h), const struct harness *h) {
        pid_t pid = fork();

        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                ck_assert(cgroup_enter(group));
                run(h);
                _exit(0);
        }
        return wait_child(pid);
}

static void take_too_much(const struct harness *h) {
        char *memory =
                mmap(NULL, 2 * LIMIT_MIB * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        ck_assert_ptr_ne(memory, MAP_FAILED);
        for (uint64_t i = 0; i < 2 * LIMIT_MIB * MIB; i += 4096)
                memory[i] = 1;
}

static void read_all(const struct harness *h) {
        struct reader reader;

        reader_open(&reader, h, "ramp", 2);
        reader_read_epochs(&reader, 1);
        reader_close(&reader);
}

static void check_payer(const char *backing) {
        char group[CGROUP_PATH_MAX];
        struct harness *h;
        int status;

        if (!have_small_group(group))
                return;
        h = start(backing, MANY);
        ck_assert_int_eq(run_in(group, read_all, h), 0);
        /* Not even at its limit: a sixteenth of what it has read, its own memory included. */
        ck_assert_double_eq(read_bytes(group, "memory.failcnt"), 0);
        ck_assert_double_lt(read_bytes(group, "memory.max_usage_in_bytes"), (double)LIMIT_MIB / 2 * MIB);

        status = run_in(group, take_too_much, h); /* the limit is one */
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", (unsigned)status);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

START_TEST(test_A20_the_daemon_pays_for_the_ring) {
        check_payer("shm");
}
END_TEST

START_TEST(test_A20_the_daemon_pays_for_a_memfd) {
        check_payer("memfd");
}
END_TEST

/* One test each: the group is removed between them. */
static void add_group_test(Suite *suite, const char *name, const TTest *test) {
        TCase *tcase = tcase_create(name);

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_unchecked_fixture(tcase, NULL, remove_group);
        tcase_add_test(tcase, test);
        suite_add_tcase(suite, tcase);
}

int main(void) {
        Suite *suite = suite_create("M-containers");
        TCase *tcase = tcase_create("M");

        cgroup_owner = getpid();
        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_M3_root_in_a_container);
        tcase_add_test(tcase, test_M3_a_user_in_a_container_with_its_own_processes);
        suite_add_tcase(suite, tcase);
        add_group_test(suite, "A20 shm", test_A20_the_daemon_pays_for_the_ring);
        add_group_test(suite, "A20 memfd", test_A20_the_daemon_pays_for_a_memfd);
        return run_suite(suite);
}
