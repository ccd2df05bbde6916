/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What doctor makes of a machine, told by trees of files that look like those of machines and containers.
 * What it makes of this one is a system test. */

#include "client/ctl/doctor.h"
#include "tests/support/run.h"
#include "tests/unit/file-tree.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct doctor doctor;

static void begin(void) {
        make_directory();
        doctor = (struct doctor){.root = directory, .area = "Test", .findings = json_array()};
}

static void end(void) {
        remove_directory();
        json_decref(doctor.findings);
        json_decref(doctor.status);
}

static json_t *find(const char *what) {
        size_t index;
        json_t *f;

        json_array_foreach(doctor.findings, index, f) {
                if (strcmp(json_string_value(json_object_get(f, "what")), what) == 0)
                        return f;
        }
        return NULL;
}

/* It was found, at this level, with these words and such a remedy (NULL: with none), once. */
static void expect(const char *what, const char *level, const char *words, const char *remedy) {
        json_t *f = find(what);
        const char *text = json_string_value(json_object_get(f, "text"));
        const char *its_remedy = json_string_value(json_object_get(f, "remedy"));

        ck_assert_msg(f != NULL, "no finding of %s", what);
        ck_assert_str_eq(json_string_value(json_object_get(f, "level")), level);
        ck_assert_msg(strstr(text, words) != NULL, "%s: no \"%s\" in: %s", what, words, text);
        if (remedy)
                ck_assert_msg(its_remedy && strstr(its_remedy, remedy), "%s: no \"%s\" in: %s", what, remedy,
                              its_remedy ? its_remedy : "none");
        else
                ck_assert_msg(!its_remedy, "%s: %s", what, its_remedy);
        ck_assert(json_is_true(json_object_get(f, "attention")) ==
                  (strcmp(level, "warning") == 0 || strcmp(level, "error") == 0));
}

/* ---- findings ---- */

START_TEST(texts_and_their_remedies) {
        doctor_find_text(&doctor, DOCTOR_ERROR, "both", "it broke; and again; mend it", "not this");
        expect("both", "error", "it broke; and again", "mend it");
        doctor_find_text(&doctor, DOCTOR_WARNING, "cause", "it broke", "mend it like that");
        expect("cause", "warning", "it broke", "mend it like that");
        doctor_find(&doctor, DOCTOR_OK, "bytes", NULL, "two\nlines and \xff%s", "");
        expect("bytes", "ok", "two?lines and ?", NULL);
        ck_assert_uint_eq(doctor.counts[DOCTOR_ERROR], 1);
        ck_assert_uint_eq(doctor.counts[DOCTOR_WARNING], 1);
        ck_assert_uint_eq(doctor.counts[DOCTOR_OK], 1);
}
END_TEST

/* ---- memory ---- */

START_TEST(memory_of_a_usual_machine) {
        write_file("proc/meminfo",
                   "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   8388608 kB\n");
        write_file("proc/sys/vm/overcommit_memory", "0\n");
        write_file("sys/kernel/mm/transparent_hugepage/shmem_enabled",
                   "always [within_size] advise never deny force\n");
        write_file("sys/devices/system/node/online", "0\n");
        doctor_look_at_memory(&doctor);
        expect("shared memory", "note", "no /dev/shm: No such file or directory", "mount a tmpfs");
        expect("memory", "ok", "8 GiB of 16 GiB available", NULL);
        expect("huge pages", "ok", "shmem_enabled is within_size", NULL);
        ck_assert_ptr_null(find("overcommit"));
        ck_assert_ptr_null(find("NUMA"));
}
END_TEST

START_TEST(memory_of_an_unusual_machine) {
        write_file("proc/meminfo",
                   "MemTotal: 16777216 kB\nCommitLimit: 2097152 kB\nCommitted_AS: 1048576 kB\n");
        write_file("proc/sys/vm/overcommit_memory", "2\n");
        write_file("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always advise [never] deny\n");
        write_file("sys/devices/system/node/online", "0-1\n");
        doctor_look_at_memory(&doctor);
        expect("overcommit", "note", "1 GiB of 2 GiB are committed", "vm.overcommit_memory");
        expect("huge pages", "note", "shmem_enabled is never", "within_size");
        expect("NUMA", "note", "nodes 0-1", NULL);
        ck_assert_ptr_null(find("memory"));
}
END_TEST

START_TEST(shared_memory_of_a_container) {
        doctor_judge_shm(&doctor, UINT64_C(64) << 20, UINT64_C(60) << 20);
        expect("shared memory", "note", "60 MiB of 64 MiB free in /dev/shm", "--shm-size");
        json_array_clear(doctor.findings);
        doctor_judge_shm(&doctor, UINT64_C(65) << 20, UINT64_C(60) << 20);
        expect("shared memory", "ok", "60 MiB of 65 MiB free in /dev/shm", NULL);
}
END_TEST

START_TEST(container_by_its_files) {
        doctor_look_at_kernel(&doctor);
        ck_assert_ptr_null(find("container"));
        write_file("run/systemd/container", "lxc\n");
        doctor_look_at_kernel(&doctor);
        expect("container", "note", "lxc;", NULL);
        json_array_clear(doctor.findings);
        write_file(".dockerenv", "");
        doctor_look_at_kernel(&doctor);
        expect("container", "note", "docker;", NULL);
}
END_TEST

/* ---- limits ---- */

#define LIMITS(files_soft, files_hard, processes, memlock)                                                   \
        "Limit                     Soft Limit           Hard Limit           Units     \n"                   \
        "Max processes             " processes "                96364                processes \n"           \
        "Max open files            " files_soft "                " files_hard "               files     \n"  \
        "Max locked memory         " memlock "              unlimited              bytes     \n"

START_TEST(limits_of_processes) {
        doctor.daemon = 77;
        write_file("proc/self/limits", LIMITS("1024", "524288", "unlimited", "8388608"));
        write_file("proc/77/limits", LIMITS("20000", "20000", "5000", "unlimited"));
        doctor_look_at_limits(&doctor);
        expect("open files", "ok", "RLIMIT_NOFILE is 1,024 here, at most 524,288", NULL);
        expect("processes", "ok", "RLIMIT_NPROC is unlimited", NULL);
        expect("locked memory", "ok", "RLIMIT_MEMLOCK is 8 MiB", NULL);
        expect("daemon's limits", "ok", "RLIMIT_NOFILE 20,000 of 20,000, RLIMIT_NPROC 5,000", NULL);
        json_array_clear(doctor.findings);
        write_file("proc/self/limits", LIMITS("255", "255", "64", "unlimited"));
        write_file("proc/77/limits", LIMITS("64", "1023", "5000", "unlimited"));
        doctor_look_at_limits(&doctor);
        expect("open files", "warning", "RLIMIT_NOFILE is 255 here", "ulimit -n");
        expect("processes", "warning", "RLIMIT_NPROC is 64", "ulimit -u");
        expect("locked memory", "ok", "unlimited", NULL);
        expect("daemon's limits", "warning", "RLIMIT_NOFILE 64 of 1,023", "LimitNOFILE=");
}
END_TEST

START_TEST(limits_that_make_no_sense) {
        doctor_look_at_limits(&doctor);
        write_file("proc/self/limits", "Max open files\nMax processes 1\n");
        doctor_look_at_limits(&doctor);
        ck_assert_uint_eq(json_array_size(doctor.findings), 0);
}
END_TEST

/* ---- control groups ---- */

#define V1_MEMORY "33 31 0:30 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n"
#define V2        "41 31 0:38 / /cg rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"

static json_t *status_with(json_int_t ring_bytes, json_int_t oom, json_int_t cpus) {
        return json_pack("{s:i, s:b, s:[{}, {}], s:[{s:s, s:I, s:{s:I}}]}", "cpus", (int)cpus, "cpus_auto", 0,
                         "workers", "pipelines", "name", "images", "ring_bytes", ring_bytes, "deaths", "oom",
                         oom);
}

/* Rings of 1 GiB, two workers and the daemon: 1 GiB and 48 MiB. */
START_TEST(cgroup_memory_of_version_2) {
        doctor.daemon = 77;
        doctor.status = status_with(1 << 30, 0, 1);
        write_file("proc/meminfo", "MemTotal:       16777216 kB\n");
        write_file("proc/self/mountinfo", V2);
        write_file("proc/self/cgroup", "0::/user\n");
        write_file("proc/77/cgroup", "0::/system/pinfeedd.service\n");
        write_file("cg/user/memory.max", "max\n");
        write_file("cg/system/memory.max", "1073741824\n");
        write_file("cg/system/pinfeedd.service/memory.max", "8589934592\n");
        doctor_look_at_cgroups(&doctor);
        expect("memory limit", "ok", "the cgroup sets none", NULL);
        expect("daemon's memory", "warning", "allows 1 GiB; rings and workers may take 1.05 GiB",
               "MemoryMax=");
        expect("daemon's memory", "warning", "its cgroup", "cg/system above 1.05 GiB");
        json_array_clear(doctor.findings);
        write_file("cg/system/memory.max", "4294967296\n");
        write_file("cg/system/pinfeedd.service/memory.max", "2147483648\n");
        doctor_look_at_cgroups(&doctor);
        expect("daemon's memory", "ok", "allows 2 GiB", NULL);
}
END_TEST

START_TEST(cgroup_memory_of_version_1) {
        write_file("proc/meminfo", "MemTotal:       16777216 kB\n");
        write_file("proc/self/mountinfo", V1_MEMORY);
        write_file("proc/self/cgroup", "4:memory:/a\n");
        write_file("cg/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
        doctor_look_at_cgroups(&doctor);
        expect("memory limit", "ok", "the cgroup sets none", NULL);
        json_array_clear(doctor.findings);
        write_file("cg/memory/a/memory.limit_in_bytes", "3221225472\n");
        write_file("cg/memory/a/memory.usage_in_bytes", "1073741824\n");
        doctor_look_at_cgroups(&doctor);
        expect("memory limit", "note", "3 GiB, 1 GiB in use, in ", NULL);
        ck_assert_ptr_null(find("daemon's memory"));
        ck_assert_ptr_null(find("out of memory"));
}
END_TEST

START_TEST(killed_for_memory_and_too_many_processors) {
        doctor.status = status_with(1 << 20, 3, 8192);
        doctor_look_at_cgroups(&doctor);
        expect("out of memory", "warning", "3 workers of pipeline images were killed", "memory limit");
        expect("daemon's processors", "warning", "8192 workers busy at once", "cpus: auto");
}
END_TEST

START_TEST(processors_of_a_container) {
        doctor_judge_cpus(&doctor, 2, 16);
        expect("processors", "note", "2 of the machine's 16", "CPUQuota=");
        json_array_clear(doctor.findings);
        doctor_judge_cpus(&doctor, 16, 16);
        expect("processors", "ok", "16 of the machine's 16", NULL);
}
END_TEST

/* ---- children ---- */

static void hang_with_a_child(void *context) {
        puts("words");
        fflush(stdout);
        if (fork() == 0)
                signal(SIGTERM, SIG_IGN);
        for (;;)
                pause();
}

static void die(void *context) {
        raise(SIGKILL);
}

START_TEST(children_that_end_and_that_do_not) {
        struct doctor_child child;

        ck_assert(doctor_child_run(&child, 10, 0,
                                   (const char *const[]){"sh", "-c", "echo a; echo b >&2", NULL}));
        ck_assert_str_eq(child.output, "a\nb\n");
        ck_assert(!doctor_child_run(&child, 10, 0, (const char *const[]){"sh", "-c", "exit 7", NULL}));
        ck_assert_int_eq(child.exit, 7);
        ck_assert(!doctor_child_run(&child, 10, 0, (const char *const[]){"/nowhere/x", NULL}));
        ck_assert_int_eq(child.exit, 127);
        doctor_child_call(&child, 10, die, NULL);
        ck_assert_int_eq(child.exit, -SIGKILL);
        doctor_child_call(&child, 1, hang_with_a_child, NULL);
        ck_assert(child.timed_out);
        ck_assert_str_eq(child.output, "words\n");
        ck_assert(doctor_child_run(&child, 10, 0,
                                   (const char *const[]){"sh", "-c", "yes | head -c 100000", NULL}));
        ck_assert_uint_eq(strlen(child.output), sizeof(child.output) - 1);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("doctor");
        TCase *tcase = tcase_create("doctor");

        tcase_add_checked_fixture(tcase, begin, end);
        tcase_set_timeout(tcase, 60);
        tcase_add_test(tcase, texts_and_their_remedies);
        tcase_add_test(tcase, memory_of_a_usual_machine);
        tcase_add_test(tcase, memory_of_an_unusual_machine);
        tcase_add_test(tcase, shared_memory_of_a_container);
        tcase_add_test(tcase, container_by_its_files);
        tcase_add_test(tcase, limits_of_processes);
        tcase_add_test(tcase, limits_that_make_no_sense);
        tcase_add_test(tcase, cgroup_memory_of_version_2);
        tcase_add_test(tcase, cgroup_memory_of_version_1);
        tcase_add_test(tcase, killed_for_memory_and_too_many_processors);
        tcase_add_test(tcase, processors_of_a_container);
        tcase_add_test(tcase, children_that_end_and_that_do_not);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
