/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Where this process stands in the trees of control groups. Version 1 has a tree for each controller, version
 * 2 one for all, and machines exist that mount both. So: go over every mounted cgroup tree, find this
 * process's place in it, walk from there to the top.
 *
 * Where a tree is mounted is taken from mountinfo, whose `root` field matters inside containers: a bind mount
 * shows the part of the tree below `root`, while proc/self/cgroup may still give the path from the true top.
 */

#include "base/cgroup.h"

#include "base/cleanup.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

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

bool cgroup_read_line(const char *directory, const char *name, char *line, int size) {
        _cleanup_(fclosep) FILE *file = NULL;
        char path[2 * PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        file = fopen(path, "re");
        if (!file || !fgets(line, size, file))
                return false;
        line[strcspn(line, "\n")] = 0;
        return true;
}

/* Is `word` one of the comma-separated words of `list`? */
static bool list_has(const char *list, const char *word) {
        size_t length = strlen(word);

        for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
                if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == 0))
                        return true;
        return false;
}

/* Is one of `controllers` in both lists? */
static bool share_one(const char *a, const char *b, const char *const controllers[]) {
        for (size_t i = 0; controllers[i]; i++)
                if (list_has(a, controllers[i]) && list_has(b, controllers[i]))
                        return true;
        return false;
}

/* The process's path in the tree, from a line "ID:CONTROLLERS:PATH" of its proc/PROCESS/cgroup. */
static bool find_place(const char *root, const char *process, const struct tree *tree,
                       const char *const controllers[], char place[PATH_MAX]) {
        _cleanup_(fclosep) FILE *file = NULL;
        bool is_v2 = strcmp(tree->type, "cgroup2") == 0;
        char path[PATH_MAX + 32], line[PATH_MAX + 512];

        snprintf(path, sizeof(path), "%s/proc/%s/cgroup", root, process);
        file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file)) {
                char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;

                if (!at)
                        continue;
                *names++ = *at++ = 0;
                at[strcspn(at, "\n")] = 0;
                if (is_v2 ? *names != 0 || strcmp(line, "0") != 0
                          : !share_one(tree->options, names, controllers))
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

static void visit_tree(const char *root, const char *process, const struct tree *tree,
                       const char *const controllers[], cgroup_visit_fn visit, void *context) {
        char place[PATH_MAX], directory[3 * PATH_MAX];
        size_t top;

        if (!find_place(root, process, tree, controllers, place))
                return;
        top = (size_t)snprintf(directory, sizeof(directory), "%s%s", root, tree->mount_point);
        snprintf(directory + top, sizeof(directory) - top, "%s", below_root(place, tree->root));
        while (visit(context, directory, strcmp(tree->type, "cgroup2") == 0)) {
                char *slash = strrchr(directory, '/');

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

void cgroup_visit_of(const char *root, const char *process, const char *const controllers[],
                     cgroup_visit_fn visit, void *context) {
        _cleanup_(fclosep) FILE *file = NULL;
        _cleanup_(freep) char *line = NULL;
        char path[PATH_MAX];
        struct tree tree;
        size_t size = 0;

        snprintf(path, sizeof(path), "%s/proc/self/mountinfo", root);
        file = fopen(path, "re");
        while (file && getline(&line, &size, file) > 0)
                if (parse_mount(line, &tree))
                        visit_tree(root, process, &tree, controllers, visit, context);
}

void cgroup_visit(const char *root, const char *const controllers[], cgroup_visit_fn visit, void *context) {
        cgroup_visit_of(root, "self", controllers, visit, context);
}

/* Only its own cgroup: what happens to neighbours is not this process's business. */
static bool add_oom_kills(void *context, const char *directory, bool is_v2) {
        _cleanup_(fclosep) FILE *file = NULL;
        char path[3 * PATH_MAX + 32], line[128];
        uint64_t *sum = context, kills;

        snprintf(path, sizeof(path), "%s/%s", directory, is_v2 ? "memory.events" : "memory.oom_control");
        file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file))
                if (sscanf(line, "oom_kill %" SCNu64, &kills) == 1)
                        *sum += kills;
        return false;
}

uint64_t cgroup_oom_kills(const char *root) {
        static const char *const controllers[] = {"memory", NULL};
        uint64_t sum = 0;

        cgroup_visit(root, controllers, add_oom_kills, &sum);
        return sum;
}
