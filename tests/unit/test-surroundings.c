/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the daemon warns of at its start, told by trees of files that look like those of machines. Each
 * warning has a tree in which it is due, and its neighbour in which it is not. */

#include "base/clock.h"
#include "daemon/surroundings.h"
#include "tests/support/run.h"
#include "tests/unit/file-tree.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static struct surroundings surroundings;

#define V1                                                                                                   \
        "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n39 31 0:36 / /cg/pids rw - cgroup cgroup "    \
        "rw,pids\n"
#define V2 "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n"

enum {
        MIB = 1 << 20,
};

/* 100 MiB of rings, 4 workers, the daemon: 180 MiB. */
static const struct surroundings_needs usual = {
        .ring_bytes = 100 * MIB, .pipelines = 2, .workers = 4, .uid = 500};
static const struct surroundings_limits unlimited = {RLIM_INFINITY, RLIM_INFINITY};

static void look(const char *mountinfo, const char *cgroup, const struct surroundings_needs *needs,
                 const struct surroundings_limits *limits) {
        write_file("proc/self/mountinfo", mountinfo);
        write_file("proc/self/cgroup", cgroup);
        surroundings_look(&surroundings, directory, needs, limits);
}

static void expect_one(const char *words) {
        ck_assert_uint_eq(surroundings.n, 1);
        ck_assert_msg(strstr(surroundings.warnings[0].text, words) != NULL, "\"%s\" does not say \"%s\"",
                      surroundings.warnings[0].text, words);
}

START_TEST(nothing_there_says_nothing) {
        surroundings_look(&surroundings, directory, &usual, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0);
        write_file("cg/memory.max", "max\n");
        write_file("cg/pids.max", "max\n");
        write_file("cg/a/memory.max", "nonsense\n");
        look(V2, "0::/a\n", &usual, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0);
        write_file("cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
        look(V1, "1:memory:/\n2:pids:/\n", &usual, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0);
}
END_TEST

START_TEST(memory_of_version_2) {
        write_file("cg/a/memory.max", "188743680\n"); /* 180 MiB */
        write_file("cg/a/b/memory.max", "max\n");
        look(V2, "0::/a/b\n", &usual, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0);
        write_file("cg/a/memory.max", "188743679\n");
        look(V2, "0::/a/b\n", &usual, &unlimited);
        expect_one("cg/a may have 180 MiB");
        expect_one("rings (100 MiB), 4 workers");
        expect_one("MemoryMax=180M or more");
}
END_TEST

START_TEST(memory_of_version_1) {
        write_file("cg/memory/top/memory.limit_in_bytes", "67108864\n");
        write_file("cg/memory/top/own/memory.limit_in_bytes", "134217728\n");
        look(V1, "1:memory:/top/own\n2:pids:/\n", &usual, &unlimited);
        expect_one("cg/memory/top may have 64 MiB");
}
END_TEST

START_TEST(tasks) {
        struct surroundings_needs many = usual;

        many.workers = 1000;
        many.ring_bytes = 0;
        write_file("cg/a/pids.max", "1064\n");
        look(V2, "0::/a\n", &many, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0);
        write_file("cg/a/pids.max", "1063\n");
        look(V2, "0::/a\n", &many, &unlimited);
        expect_one("1000 workers and the daemon need 1064: raise TasksMax=");
        write_file("cg/pids/pids.max", "33\n");
        look(V1, "1:memory:/\n2:pids:/\n", &usual, &unlimited);
        expect_one("cg/pids may have 33 tasks");
}
END_TEST

START_TEST(descriptors) {
        struct surroundings_limits limits = {.descriptors = 202, .processes = RLIM_INFINITY};

        look(V2, "0::/\n", &usual, &limits);
        ck_assert_uint_eq(surroundings.n, 0);
        limits.descriptors = 201;
        look(V2, "0::/\n", &usual, &limits);
        expect_one("201 descriptors may be open, 4 workers, 2 pipelines and 64 jobs need 202: raise "
                   "LimitNOFILE=");
}
END_TEST

START_TEST(processes) {
        struct surroundings_limits limits = {.descriptors = RLIM_INFINITY, .processes = 67};
        struct surroundings_needs root = usual;

        look(V2, "0::/\n", &usual, &limits);
        expect_one("uid 500 may have 67 processes, 4 workers and the daemon need 68: raise LimitNPROC=");
        root.uid = 0;
        look(V2, "0::/\n", &root, &limits);
        ck_assert_uint_eq(surroundings.n, 0);
        limits.processes = 68;
        look(V2, "0::/\n", &usual, &limits);
        ck_assert_uint_eq(surroundings.n, 0);
}
END_TEST

/* A service of a login user's, where logind has not been told to leave its memory alone. */
START_TEST(remove_ipc) {
        struct surroundings_needs login = usual;

        login.uid = 1000;
        look(V2, "0::/system.slice/x.service\n", &login, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0); /* no logind */
        write_file("run/systemd/users/1000", "");
        look(V2, "0::/system.slice/x.service\n", &login, &unlimited);
        expect_one("RemoveIPC= in logind.conf is not no");
        write_file("etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n");
        look(V2, "0::/system.slice/x.service\n", &login, &unlimited);
        expect_one("uid 1000 is a login user's");
        write_file("etc/systemd/logind.conf.d/ours.conf", "[Login]\nRemoveIPC = no\n");
        look(V2, "0::/system.slice/x.service\n", &login, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0);
        write_file("etc/systemd/logind.conf.d/zz.conf", "[Login]\nRemoveIPC=yes\n");
        look(V2, "0::/system.slice/x.service\n", &login, &unlimited);
        expect_one("RemoveIPC");
        login.is_private = true;
        look(V2, "0::/system.slice/x.service\n", &login, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0);
        login.is_private = false;
        login.uid = 999;
        look(V2, "0::/system.slice/x.service\n", &login, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0);
        login.uid = 65534;
        look(V2, "0::/system.slice/x.service\n", &login, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0);
}
END_TEST

START_TEST(kill_user_processes) {
        struct surroundings_needs login = usual;

        login.uid = 1000;
        login.is_private = true;
        write_file("run/systemd/users/1000", "");
        look(V2, "0::/user.slice/user-1000.slice/session-3.scope\n", &login, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0);
        write_file("etc/systemd/logind.conf", "[Login]\nKillUserProcesses=yes\n");
        look(V2, "0::/user.slice/user-1000.slice/session-3.scope/below\n", &login, &unlimited);
        expect_one("this daemon is in session-3.scope and ends when that login does");
        look("31 23 0:37 / /cg rw - cgroup cgroup rw,name=systemd\n",
             "9:name=systemd:/user.slice/user-1000.slice/session-c2.scope\n", &login, &unlimited);
        expect_one("session-c2.scope");
        look(V2, "0::/user.slice/user-1000.slice/user@1000.service/pinfeedd.service\n", &login, &unlimited);
        ck_assert_uint_eq(surroundings.n, 0);
}
END_TEST

START_TEST(this_machine) {
        uint64_t before = clock_ns();
        struct surroundings_limits limits;

        surroundings_limits(&limits);
        ck_assert_uint_gt(limits.descriptors, 0);
        surroundings_look(&surroundings, "", &usual, &limits);
        ck_assert_uint_lt(clock_ns() - before, 10 * NS_PER_S);
}
END_TEST

static Suite *surroundings_suite(void) {
        Suite *suite = suite_create("surroundings");
        TCase *warnings = tcase_create("warnings");

        tcase_set_timeout(warnings, 60);
        tcase_add_checked_fixture(warnings, make_directory, remove_directory);
        tcase_add_test(warnings, nothing_there_says_nothing);
        tcase_add_test(warnings, memory_of_version_2);
        tcase_add_test(warnings, memory_of_version_1);
        tcase_add_test(warnings, tasks);
        tcase_add_test(warnings, descriptors);
        tcase_add_test(warnings, processes);
        tcase_add_test(warnings, remove_ipc);
        tcase_add_test(warnings, kill_user_processes);
        tcase_add_test(warnings, this_machine);
        suite_add_tcase(suite, warnings);
        return suite;
}

int main(void) {
        return run_suite(surroundings_suite());
}
