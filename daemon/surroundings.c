/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Limits around a daemon are set by somebody who did not know its configuration, and they strike hours later,
 * when the last pipeline takes its ring or the hundredth job comes. So they are compared once, at the start,
 * with all that the configuration allows at the same time. Nothing is refused: perhaps not all of it will be
 * used at once.
 *
 * Memory counts in every cgroup up to the top, each with a limit of its own; so do processes. Rings count:
 * pages of shared memory are charged to who touches them first, which is the daemon when it reserves them.
 *
 * Of what logind does when somebody logs out, two things matter. It ends the processes of the session if it
 * was told to (KillUserProcesses=). And it removes the shared memory of a user who has no session left
 * (RemoveIPC=), unless that is a system user; it does so by name, and rings have none, so they stay. Names
 * that a Python dataset makes do not.
 *
 * A file that is missing or makes no sense says nothing. */

#include "daemon/surroundings.h"

#include "base/cgroup.h"
#include "base/cleanup.h"
#include "base/number.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define SURROUNDINGS_WORKER_BYTES (UINT64_C(16) << 20) /* the budget of README, without what it decodes */
#define SURROUNDINGS_OWN_BYTES    (UINT64_C(16) << 20)
#define SURROUNDINGS_UNLIMITED    (UINT64_C(1) << 60) /* version 1 writes a number near 2^63 for "none" */

enum {
        SURROUNDINGS_JOBS = 64,       /* that there should be room for; a machine with 8 GPUs has fewer */
        SURROUNDINGS_OWN = 64,        /* descriptors of the daemon's own, and threads with those of libuv */
        SURROUNDINGS_USER_MIN = 1000, /* where login users begin (SYS_UID_MAX of login.defs is one below) */
        SURROUNDINGS_NOBODY = 65534,
        MIB = 1 << 20,
};

/* The least value of one file in all cgroups, and whose it is. */
struct least {
        const char *v1;
        const char *v2;
        uint64_t value;
        char directory[PATH_MAX];
};

struct fault *surroundings_next(struct surroundings *surroundings) {
        return &surroundings->warnings[surroundings->n++];
}

/* ---- control groups ---- */

static bool take_least(void *context, const char *directory, bool is_v2) {
        struct least *least = context;
        char line[64];
        uint64_t value;

        if (cgroup_read_line(directory, is_v2 ? least->v2 : least->v1, line, sizeof(line)) &&
            number_parse_u64(line, &value) == 0 && value < least->value) {
                least->value = value;
                snprintf(least->directory, sizeof(least->directory), "%s", directory);
        }
        return true;
}

static void look_at_memory(struct surroundings *surroundings, const char *root,
                           const struct surroundings_needs *needs) {
        static const char *const controllers[] = {"memory", NULL};
        struct least least = {
                .v1 = "memory.limit_in_bytes", .v2 = "memory.max", .value = SURROUNDINGS_UNLIMITED};
        uint64_t bytes =
                needs->ring_bytes + needs->workers * SURROUNDINGS_WORKER_BYTES + SURROUNDINGS_OWN_BYTES;
        char limit[NUMBER_TEXT_MAX], all[NUMBER_TEXT_MAX], rings[NUMBER_TEXT_MAX];

        cgroup_visit(root, controllers, take_least, &least);
        if (least.value >= bytes || least.value >= SURROUNDINGS_UNLIMITED)
                return;
        fault_set(surroundings_next(surroundings), 0,
                  "cgroup %s may have %s of memory (MemoryMax), less than the %s that rings (%s), %u workers "
                  "(16 "
                  "MiB each) and the daemon may take: set MemoryMax=%" PRIu64
                  "M or more, or fewer `slots` and `workers`",
                  least.directory, number_format_bytes(limit, least.value), number_format_bytes(all, bytes),
                  number_format_bytes(rings, needs->ring_bytes), needs->workers, (bytes + MIB - 1) / MIB);
}

static void look_at_tasks(struct surroundings *surroundings, const char *root,
                          const struct surroundings_needs *needs) {
        static const char *const controllers[] = {"pids", NULL};
        struct least least = {.v1 = "pids.max", .v2 = "pids.max", .value = UINT64_MAX};
        uint64_t tasks = (uint64_t)needs->workers + SURROUNDINGS_OWN;

        cgroup_visit(root, controllers, take_least, &least);
        if (least.value < tasks)
                fault_set(surroundings_next(surroundings), 0,
                          "cgroup %s may have %" PRIu64
                          " tasks (TasksMax), %u workers and the daemon need %" PRIu64
                          ": raise TasksMax=, or set fewer `workers`",
                          least.directory, least.value, needs->workers, tasks);
}

/* ---- limits of the process ---- */

void surroundings_limits(struct surroundings_limits *limits) {
        struct rlimit files = {.rlim_cur = RLIM_INFINITY}, processes = {.rlim_cur = RLIM_INFINITY};

        getrlimit(RLIMIT_NOFILE, &files);
        getrlimit(RLIMIT_NPROC, &processes);
        *limits =
                (struct surroundings_limits){.descriptors = files.rlim_cur, .processes = processes.rlim_cur};
}

static void look_at_limits(struct surroundings *surroundings, const struct surroundings_needs *needs,
                           const struct surroundings_limits *limits) {
        uint64_t tasks = (uint64_t)needs->workers + SURROUNDINGS_OWN;
        uint64_t descriptors =
                needs->workers + 3 * (uint64_t)needs->pipelines + 2 * SURROUNDINGS_JOBS + SURROUNDINGS_OWN;

        if (limits->descriptors < descriptors)
                fault_set(surroundings_next(surroundings), 0,
                          "%" PRIu64
                          " descriptors may be open, %u workers, %u pipelines and %d jobs need %" PRIu64
                          ": raise LimitNOFILE=, or ulimit -Hn where the daemon is started",
                          limits->descriptors, needs->workers, needs->pipelines, SURROUNDINGS_JOBS,
                          descriptors);
        if (needs->uid != 0 && limits->processes < tasks) /* root has no such limit */
                fault_set(surroundings_next(surroundings), 0,
                          "uid %u may have %" PRIu64 " processes, %u workers and the daemon need %" PRIu64
                          ": raise LimitNPROC=, or ulimit -Hu where the daemon is started",
                          (unsigned)needs->uid, limits->processes, needs->workers, tasks);
}

/* ---- logind ---- */

/* The value of `key` in one file, if it is there. */
static void read_setting(const char *path, const char *key, char value[16]) {
        FILE *file = fopen(path, "re");
        char line[256], word[16];
        size_t length = strlen(key);

        while (file && fgets(line, sizeof(line), file)) {
                if (strncmp(line, key, length) == 0 && sscanf(line + length, " = %15s", word) == 1)
                        snprintf(value, 16, "%s", word);
        }
        if (file)
                fclose(file);
}

static int is_setting_file(const struct dirent *entry) {
        const char *dot = strrchr(entry->d_name, '.');

        return dot && strcmp(dot, ".conf") == 0;
}

static void read_settings(const char *directory, const char *key, char value[16]) {
        struct dirent **entries = NULL;
        int n = scandir(directory, &entries, is_setting_file, alphasort);

        for (int i = 0; i < n; i++) {
                char path[PATH_MAX + NAME_MAX];

                snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name);
                read_setting(path, key, value);
                free(entries[i]);
        }
        free(entries);
}

/* What logind.conf(5) says, as far as it matters in which order: the last word counts. */
static bool logind_says(const char *root, const char *key, bool otherwise) {
        static const char *const places[] = {"/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d",
                                             "/etc/systemd/logind.conf.d"};
        char path[PATH_MAX], value[16] = "";

        snprintf(path, sizeof(path), "%s/etc/systemd/logind.conf", root);
        read_setting(path, key, value);
        for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
                snprintf(path, sizeof(path), "%s%s", root, places[i]);
                read_settings(path, key, value);
        }
        if (!*value)
                return otherwise;
        return strcasecmp(value, "yes") == 0 || strcasecmp(value, "true") == 0 ||
               strcasecmp(value, "on") == 0 || strcmp(value, "1") == 0;
}

static bool logind_is_there(const char *root) {
        char path[PATH_MAX];
        struct stat status;

        snprintf(path, sizeof(path), "%s/run/systemd/users", root);
        return stat(path, &status) == 0;
}

/* Sets *found to the scope of a login session that this process is in. */
static bool find_session(void *context, const char *directory, bool is_v2) {
        const char *name = strrchr(directory, '/');
        char *found = context;

        if (!name || strncmp(name, "/session-", strlen("/session-")) != 0)
                return true;
        snprintf(found, NAME_MAX, "%s", name + 1);
        return false;
}

static void look_at_logind(struct surroundings *surroundings, const char *root,
                           const struct surroundings_needs *needs) {
        static const char *const controllers[] = {"name=systemd", NULL};
        char session[NAME_MAX] = "";

        if (needs->uid < SURROUNDINGS_USER_MIN || needs->uid == SURROUNDINGS_NOBODY || !logind_is_there(root))
                return;
        cgroup_visit(root, controllers, find_session, session);
        if (*session && logind_says(root, "KillUserProcesses", false))
                fault_set(surroundings_next(surroundings), 0,
                          "this daemon is in %s and ends when that login does (KillUserProcesses=yes in "
                          "logind.conf): run it as a user's unit, which stays after loginctl enable-linger",
                          session);
        if (!needs->is_private && logind_says(root, "RemoveIPC", true))
                fault_set(surroundings_next(surroundings), 0,
                          "uid %u is a login user's, and when its last session ends, shared memory of that "
                          "user "
                          "is removed (RemoveIPC= in logind.conf is not no): rings stay, since they have no "
                          "name, "
                          "but not what a Python dataset shares by name; run the service as a system user",
                          (unsigned)needs->uid);
}

void surroundings_look(struct surroundings *surroundings, const char *root,
                       const struct surroundings_needs *needs, const struct surroundings_limits *limits) {
        surroundings->n = 0;
        look_at_memory(surroundings, root, needs);
        look_at_tasks(surroundings, root, needs);
        look_at_limits(surroundings, needs, limits);
        look_at_logind(surroundings, root, needs);
}
