/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How many processors may be used, told by trees of files that look like those of machines and containers.
 * Case L7 with real cgroups needs root and is a system test. Each fixture that says 1 would say the machine's
 * number if the one thing it is about were overlooked. */

#include "base/cpu.h"
#include "tests/support/run.h"
#include "tests/unit/file-tree.h"

#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V1_CPU    "32 31 0:29 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
#define V1_CPUSET "34 31 0:31 / /cg/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset\n"
#define V2        "41 31 0:38 / /cg rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"

static int count_with(const char *mountinfo, const char *cgroup) {
        write_file("proc/self/mountinfo", mountinfo);
        write_file("proc/self/cgroup", cgroup);
        return cpu_count_usable(directory);
}

START_TEST(cpus_without_limits) {
        cpu_set_t set;
        int all = cpu_count_usable(directory); /* nothing there at all */

        ck_assert_int_ge(all, 1);
        ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
        ck_assert_int_eq(all, CPU_COUNT(&set));
        write_file("cg/cpu.max", "max 100000\n");
        write_file("cg/a/cpu.max", "100000000 100000\n");
        write_file("cg/a/cpuset.cpus.effective", "0-8191\n");
        ck_assert_int_eq(count_with(V2, "0::/a\n"), all);
        write_file("cg/cpu/cpu.cfs_quota_us", "-1\n");
        write_file("cg/cpu/cpu.cfs_period_us", "100000\n");
        write_file("cg/cpuset/cpuset.cpus", "\n");
        ck_assert_int_eq(count_with(V1_CPU V1_CPUSET, "1:cpuset:/\n2:cpuacct,cpu:/\n"), all);
        write_file("cg/a/cpu.max", "nonsense\n");
        write_file("cg/a/cpuset.cpus.effective", "5-3,x\n");
        ck_assert_int_eq(count_with(V2 "garbage\n - \n", "x\n0::/a\n"), all);
        ck_assert_int_ge(cpu_count_usable(""), 1);
}
END_TEST

START_TEST(cpus_by_affinity) {
        cpu_set_t set;
        int first = 0;

        ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
        while (!CPU_ISSET(first, &set))
                first++;
        CPU_ZERO(&set);
        CPU_SET(first, &set);
        ck_assert_int_eq(sched_setaffinity(0, sizeof(set), &set), 0);
        ck_assert_int_eq(cpu_count_usable(directory), 1);
}
END_TEST

START_TEST(cpus_v1_cpuset) {
        write_file("cg/cpuset/cpuset.effective_cpus", "0-63\n");
        write_file("cg/cpuset/job/cpuset.effective_cpus", "1\n");
        ck_assert_int_eq(count_with(V1_CPU V1_CPUSET, "3:cpuset:/job\n1:cpu,cpuacct:/\n"), 1);
}
END_TEST

START_TEST(cpus_v1_old_cpuset) {
        write_file("cg/cpuset/job/cpuset.cpus", "7\n");
        ck_assert_int_eq(count_with(V1_CPUSET, "3:cpuset:/job/deeper\n"), 1);
}
END_TEST

START_TEST(cpus_v1_quota) {
        write_file("cg/cpu/job/cpu.cfs_quota_us", "100000\n");
        write_file("cg/cpu/job/cpu.cfs_period_us", "100000\n");
        ck_assert_int_eq(count_with(V1_CPU V1_CPUSET, "3:cpuset:/\n1:cpu,cpuacct:/job\n"), 1);
}
END_TEST

START_TEST(cpus_v1_namespace) { /* the container's tree is mounted, the paths are the machine's */
        write_file("cg/cpu/cpu.cfs_quota_us", "150000\n");
        write_file("cg/cpu/cpu.cfs_period_us", "100000\n");
        ck_assert_int_eq(count_with("32 31 0:29 /docker/abc /cg/cpu rw - cgroup cgroup rw,cpu\n",
                                    "1:cpu:/docker/abc\n"),
                         1);
}
END_TEST

START_TEST(cpus_below_a_mounted_part) {
        write_file("cg/cpu/in/cpu.cfs_quota_us", "50000\n");
        write_file("cg/cpu/in/cpu.cfs_period_us", "100000\n");
        ck_assert_int_eq(count_with("32 31 0:29 /docker/abc /cg/cpu rw - cgroup cgroup rw,cpu\n",
                                    "1:cpu:/docker/abc/in\n"),
                         1);
}
END_TEST

START_TEST(cpus_v2_cpuset) {
        write_file("cg/a/b/cpuset.cpus.effective", "3\n");
        ck_assert_int_eq(count_with(V2, "0::/a/b\n"), 1);
}
END_TEST

START_TEST(cpus_v2_quota_of_a_parent) {
        write_file("cg/a/cpu.max", "100000 100000\n");
        write_file("cg/a/b/cpu.max", "max 100000\n");
        ck_assert_int_eq(count_with(V2, "0::/a/b/c\n"), 1);
}
END_TEST

START_TEST(cpus_v2_beside_v1) { /* both mounted; a place in a space-carrying directory */
        write_file("cg two/a/cpu.max", "199999 100000\n");
        ck_assert_int_eq(count_with(V1_CPU "41 31 0:38 / /cg\\040two rw - cgroup2 cgroup2 rw\n",
                                    "1:cpu,cpuacct:/\n0::/a\n"),
                         1);
}
END_TEST

START_TEST(cpus_outside_the_namespace) {
        int all = cpu_count_usable(directory);

        write_file("cg/cpu.max", "max 100000\n");
        write_file("elsewhere/cpu.max", "50000 100000\n"); /* beside the mount: must not be read */
        ck_assert_int_eq(count_with(V2, "0::/../elsewhere\n"), all);
        write_file("cg/cpu.max", "100000 100000\n");
        ck_assert_int_eq(count_with(V2, "0::/../elsewhere\n"), 1);
}
END_TEST

static Suite *cpu_suite(void) {
        Suite *suite = suite_create("cpu");
        TCase *limits = tcase_create("limits");

        tcase_set_timeout(limits, 60);
        tcase_add_checked_fixture(limits, make_directory, remove_directory);
        tcase_add_test(limits, cpus_without_limits);
        tcase_add_test(limits, cpus_by_affinity);
        tcase_add_test(limits, cpus_v1_cpuset);
        tcase_add_test(limits, cpus_v1_old_cpuset);
        tcase_add_test(limits, cpus_v1_quota);
        tcase_add_test(limits, cpus_v1_namespace);
        tcase_add_test(limits, cpus_below_a_mounted_part);
        tcase_add_test(limits, cpus_v2_cpuset);
        tcase_add_test(limits, cpus_v2_quota_of_a_parent);
        tcase_add_test(limits, cpus_v2_beside_v1);
        tcase_add_test(limits, cpus_outside_the_namespace);
        suite_add_tcase(suite, limits);
        return suite;
}

int main(void) {
        return run_suite(cpu_suite());
}
