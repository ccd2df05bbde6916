/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Three things bound the processors of a process, and each may be set anywhere between it and the root of its
 * cgroup tree: the affinity mask, the cpuset, and a quota of CPU time per period. Version 1 has a tree for
 * each controller, version 2 one for all, and machines exist that mount both. So: go over every mounted
 * cgroup tree, find this process's place in it, walk from there to the top, and keep the least number that
 * any file on the way names. A file that is missing or makes no sense says nothing.
 *
 * Where a tree is mounted is taken from mountinfo, whose `root` field matters inside containers: a bind mount
 * shows the part of the tree below `root`, while proc/self/cgroup may still give the path from the true top.
 */

#include "base/cpu.h"

#include "base/cleanup.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
        CPUS_KNOWN_MAX = 1 << 16, /* the kernel's own bound is 8192 */
};

/* One mounted tree. */
struct tree {
        char root[PATH_MAX];
        char mount_point[PATH_MAX];
        char type[16];
        char options[512];
};

static void fclosep(FILE **file) {
        if (*file)
                fclose(*file);
}

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

/* First line of DIRECTORY/NAME, without its newline. */
static bool read_line(const char *directory, const char *name, char *line, int size) {
        _cleanup_(fclosep) FILE *file = NULL;
        char path[2 * PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        file = fopen(path, "re");
        if (!file || !fgets(line, size, file))
                return false;
        line[strcspn(line, "\n")] = 0;
        return true;
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

        if (read_line(directory, name, line, sizeof(line)))
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
        if (read_line(directory, "cpu.cfs_quota_us", quota, sizeof(quota)) &&
            read_line(directory, "cpu.cfs_period_us", period, sizeof(period)) &&
            sscanf(quota, "%lld", &q) == 1 && sscanf(period, "%lld", &p) == 1)
                take_quota(least, q, p);
}

/* cpu.max is "QUOTA PERIOD" or "max PERIOD". */
static void take_v2(int *least, const char *directory) {
        char line[128];
        long long q, p;

        take_cpuset(least, directory, "cpuset.cpus.effective");
        if (read_line(directory, "cpu.max", line, sizeof(line)) && sscanf(line, "%lld %lld", &q, &p) == 2)
                take_quota(least, q, p);
}

/* Is `word` one of the comma-separated words of `list`? */
static bool list_has(const char *list, const char *word) {
        size_t length = strlen(word);

        for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
                if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == 0))
                        return true;
        return false;
}

/* This process's path in the tree, from a line "ID:CONTROLLERS:PATH" of proc/self/cgroup. */
static bool find_place(const char *root, const struct tree *tree, char place[PATH_MAX]) {
        _cleanup_(fclosep) FILE *file = NULL;
        bool is_v2 = strcmp(tree->type, "cgroup2") == 0;
        char path[PATH_MAX + 32], line[PATH_MAX + 512];

        snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
        file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file)) {
                char *controllers = strchr(line, ':'),
                     *at = controllers ? strchr(controllers + 1, ':') : NULL;

                if (!at)
                        continue;
                *controllers++ = *at++ = 0;
                at[strcspn(at, "\n")] = 0;
                if (is_v2 ? *controllers != 0 || strcmp(line, "0") != 0
                          : !(list_has(tree->options, "cpu") && list_has(controllers, "cpu")) &&
                                    !(list_has(tree->options, "cpuset") && list_has(controllers, "cpuset")))
                        continue;
                return snprintf(place, PATH_MAX, "%s", at) < PATH_MAX;
        }
        return false;
}

/* What is left of `place` below the part of the tree that is mounted. Outside of it, all that can be seen is
 * the top. */
static const char *below_root(const char *place, const char *root) {
        size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);

        if (strncmp(place, root, length) != 0 || (place[length] != '/' && place[length] != 0) ||
            strstr(place, "/.."))
                return "";
        return strcmp(place + length, "/") == 0 ? "" : place + length;
}

static void take_tree(int *least, const char *root, const struct tree *tree) {
        char place[PATH_MAX], directory[3 * PATH_MAX];
        size_t top;

        if (!find_place(root, tree, place))
                return;
        top = (size_t)snprintf(directory, sizeof(directory), "%s%s", root, tree->mount_point);
        snprintf(directory + top, sizeof(directory) - top, "%s", below_root(place, tree->root));
        for (;;) {
                char *slash;

                if (strcmp(tree->type, "cgroup2") == 0)
                        take_v2(least, directory);
                else
                        take_v1(least, directory);
                slash = strrchr(directory, '/');
                if (!slash || slash < directory + top)
                        return;
                *slash = 0;
        }
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text) {
        char *to = text;
        unsigned code;

        for (const char *from = text; *from; to++) {
                if (sscanf(from, "\\%3o", &code) == 1 && from[0] == '\\') {
                        *to = (char)code;
                        from += 4;
                } else {
                        *to = *from++;
                }
        }
        *to = 0;
}

/* "ID PARENT MAJOR:MINOR ROOT MOUNT-POINT OPTIONS [TAGS...] - TYPE SOURCE SUPER-OPTIONS" */
static bool parse_mount(const char *line, struct tree *tree) {
        const char *rest = strstr(line, " - ");

        if (!rest || sscanf(line, "%*s %*s %*s %4095s %4095s", tree->root, tree->mount_point) != 2)
                return false;
        if (sscanf(rest, " - %15s %*s %511s", tree->type, tree->options) != 2)
                return false;
        unescape(tree->root);
        unescape(tree->mount_point);
        return strcmp(tree->type, "cgroup") == 0 || strcmp(tree->type, "cgroup2") == 0;
}

int cpu_count_usable(const char *root) {
        _cleanup_(fclosep) FILE *file = NULL;
        _cleanup_(freep) char *line = NULL;
        char path[PATH_MAX];
        struct tree tree;
        size_t size = 0;
        int least = count_affinity();

        snprintf(path, sizeof(path), "%s/proc/self/mountinfo", root);
        file = fopen(path, "re");
        while (file && getline(&line, &size, file) > 0)
                if (parse_mount(line, &tree))
                        take_tree(&least, root, &tree);
        return least;
}
