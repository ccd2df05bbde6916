/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Three things bound the processors of a process, and each may be set anywhere between it and the root of its
 * cgroup tree: the affinity mask, the cpuset, and a quota of CPU time per period. So: go from this process's
 * place in every mounted cgroup tree to its top, and keep the least number that any file on the way names. A
 * file that is missing or makes no sense says nothing. */

#include "base/cpu.h"

#include "base/cgroup.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

enum {
        CPUS_KNOWN_MAX = 1 << 16, /* the kernel's own bound is 8192 */
};

static int count_affinity(void) {
        for (int n = 1024; n <= CPUS_KNOWN_MAX; n *= 2) {
                cpu_set_t *set = CPU_ALLOC(n);
                size_t size = CPU_ALLOC_SIZE(n);
                int count = 0;

                if (!set)
                        return 1;
                if (sched_getaffinity(0, size, set) == 0)
                        count = CPU_COUNT_S(size, set);
                CPU_FREE(set);
                if (count > 0)
                        return count;
        }
        return 1;
}

/* CPUs in a list such as "0-3,8,10-11"; 0 when it is empty or none. */
static int count_list(const char *list) {
        unsigned first, last;
        int count = 0, n;

        while (*list) {
                if (sscanf(list, "%u%n", &first, &n) != 1)
                        return 0;
                list += n;
                last = first;
                if (*list == '-') {
                        if (sscanf(++list, "%u%n", &last, &n) != 1)
                                return 0;
                        list += n;
                }
                if (last < first || last >= CPUS_KNOWN_MAX)
                        return 0;
                count += (int)(last - first + 1);
                list += *list == ',';
        }
        return count;
}

static void take_least(int *least, int count) {
        if (count > 0 && count < *least)
                *least = count;
}

static void take_cpuset(int *least, const char *directory, const char *name) {
        char line[8192];

        if (cgroup_read_line(directory, name, line, sizeof(line)))
                take_least(least, count_list(line));
}

/* Less than one whole CPU still is one worker. */
static void take_quota(int *least, long long quota, long long period) {
        if (quota > 0 && period > 0)
                take_least(least, quota < period             ? 1
                                  : quota / period > INT_MAX ? INT_MAX
                                                             : (int)(quota / period));
}

static void take_v1(int *least, const char *directory) {
        char quota[64], period[64];
        long long q, p;

        take_cpuset(least, directory, "cpuset.cpus");
        take_cpuset(least, directory, "cpuset.effective_cpus");
        if (cgroup_read_line(directory, "cpu.cfs_quota_us", quota, sizeof(quota)) &&
            cgroup_read_line(directory, "cpu.cfs_period_us", period, sizeof(period)) &&
            sscanf(quota, "%lld", &q) == 1 && sscanf(period, "%lld", &p) == 1)
                take_quota(least, q, p);
}

/* cpu.max is "QUOTA PERIOD" or "max PERIOD". */
static void take_v2(int *least, const char *directory) {
        char line[128];
        long long q, p;

        take_cpuset(least, directory, "cpuset.cpus.effective");
        if (cgroup_read_line(directory, "cpu.max", line, sizeof(line)) &&
            sscanf(line, "%lld %lld", &q, &p) == 2)
                take_quota(least, q, p);
}

static bool take(void *context, const char *directory, bool is_v2) {
        int *least = context;

        if (is_v2)
                take_v2(least, directory);
        else
                take_v1(least, directory);
        return true;
}

int cpu_count_usable(const char *root) {
        static const char *const controllers[] = {"cpu", "cpuset", NULL};
        int least = count_affinity();

        cgroup_visit(root, controllers, take, &least);
        return least;
}
