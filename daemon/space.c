/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A ring has no name, so nothing can be read from a directory: its memory is there for as long as some
 * process maps it or has a descriptor of it. A daemon that was killed leaves its ring to its clients, until
 * they notice, and for as long as they keep batches of it.
 *
 * Such rings are found in /proc: a mapping or descriptor of a file by the name of a ring, which no pinfeedd
 * has open. A daemon has a descriptor of each ring that it serves, this one included, so all others are left
 * behind. A pinfeedd itself, at its end, is no holder that anybody should wait for.
 *
 * Processes of other users cannot be looked at. What they hold in /dev/shm shows all the same: what is taken
 * there, less the files that have a name, less the rings that were seen. Of memfds nothing shows. */

#include "daemon/space.h"

#include "base/cleanup.h"
#include "base/number.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum {
        HOLDS_MAX = 4096,       /* of a ring by a process; more are not looked at */
        BLOCK = 512,            /* st_blocks counts these whatever the file system */
        UNSEEN_LEAST = 1 << 20, /* less is the file system's own */
        TARGET_MAX = 256,
};

/* A process has a ring. */
struct hold {
        dev_t device;
        ino_t inode;
        uint64_t bytes;
        pid_t pid;
        bool serves; /* it is a pinfeedd */
};

struct look {
        struct hold *holds;
        size_t n;
        bool only_shm;
        dev_t shm;
};

static bool is_ring(const char *target) {
        const char *name = strrchr(target, '/');

        return name && (strncmp(name, "/pinfeed-", strlen("/pinfeed-")) == 0 ||
                        strncmp(name, "/memfd:pinfeed-ring", strlen("/memfd:pinfeed-ring")) == 0);
}

/* Once, however often the process has it. */
static void note(struct look *look, const struct hold *hold) {
        if (look->only_shm && hold->device != look->shm)
                return;
        for (size_t i = look->n; i-- > 0 && look->holds[i].pid == hold->pid;) {
                struct hold *known = &look->holds[i];

                if (known->device != hold->device || known->inode != hold->inode)
                        continue;
                if (hold->bytes > known->bytes)
                        known->bytes = hold->bytes;
                return;
        }
        if (look->n < HOLDS_MAX)
                look->holds[look->n++] = *hold;
}

/* ---- one process ---- */

static bool read_name(pid_t pid, char name[SPACE_NAME_MAX]) {
        _cleanup_(fd_closep) int fd = -1;
        char path[64];
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, name, SPACE_NAME_MAX - 1);
        name[n > 0 ? n : 0] = 0;
        name[strcspn(name, "\n")] = 0;
        return n > 0;
}

/* What is really taken of a mapped file, where this process may ask for it; else as long as the mapping is.
 */
static uint64_t bytes_behind(pid_t pid, uint64_t start, uint64_t end) {
        char path[96];
        struct stat facts;

        snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid, start, end);
        return stat(path, &facts) == 0 ? (uint64_t)facts.st_blocks * BLOCK : end - start;
}

static void look_at_mappings(struct look *look, struct hold hold) {
        _cleanup_(freep) char *line = NULL;
        char path[64];
        size_t size = 0;
        FILE *maps;

        snprintf(path, sizeof(path), "/proc/%d/maps", (int)hold.pid);
        maps = fopen(path, "re");
        if (!maps)
                return;
        while (getline(&line, &size, maps) > 0) {
                uint64_t start, end, inode;
                unsigned major, minor;
                int name = 0;

                if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %x:%x %" SCNu64 " %n", &start, &end, &major,
                           &minor, &inode, &name) < 5 ||
                    !is_ring(line + name))
                        continue;
                hold.device = makedev(major, minor);
                hold.inode = inode;
                hold.bytes = bytes_behind(hold.pid, start, end);
                note(look, &hold);
        }
        fclose(maps);
}

static void look_at_descriptors(struct look *look, struct hold hold) {
        char path[64 + NAME_MAX], target[TARGET_MAX];
        const struct dirent *entry;
        struct stat facts;
        DIR *fds;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)hold.pid);
        fds = opendir(path);
        while (fds && (entry = readdir(fds))) {
                ssize_t n;

                snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)hold.pid, entry->d_name);
                n = readlink(path, target, sizeof(target) - 1);
                target[n > 0 ? n : 0] = 0;
                if (!is_ring(target) || stat(path, &facts) < 0)
                        continue;
                hold.device = facts.st_dev;
                hold.inode = facts.st_ino;
                hold.bytes = (uint64_t)facts.st_blocks * BLOCK;
                note(look, &hold);
        }
        if (fds)
                closedir(fds);
}

static void look_at_all(struct look *look) {
        DIR *processes = opendir("/proc");
        const struct dirent *entry;
        char name[SPACE_NAME_MAX];

        while (processes && (entry = readdir(processes))) {
                struct hold hold = {.pid = atoi(entry->d_name)};

                if (!isdigit((unsigned char)*entry->d_name) || !read_name(hold.pid, name))
                        continue;
                hold.serves = hold.pid == getpid() || strcmp(name, "pinfeedd") == 0;
                look_at_mappings(look, hold);
                look_at_descriptors(look, hold);
        }
        if (processes)
                closedir(processes);
}

/* ---- what that means ---- */

static bool is_served(const struct look *look, const struct hold *hold) {
        for (size_t i = 0; i < look->n; i++)
                if (look->holds[i].serves && look->holds[i].device == hold->device &&
                    look->holds[i].inode == hold->inode)
                        return true;
        return false;
}

/* The first one of this ring. */
static bool is_first(const struct look *look, size_t place) {
        for (size_t i = 0; i < place; i++)
                if (look->holds[i].device == look->holds[place].device &&
                    look->holds[i].inode == look->holds[place].inode)
                        return false;
        return true;
}

/* Of files in /dev/shm that have a name. */
static uint64_t named_bytes(void) {
        DIR *directory = opendir("/dev/shm");
        const struct dirent *entry;
        uint64_t bytes = 0;
        struct stat facts;

        while (directory && (entry = readdir(directory)))
                if (fstatat(dirfd(directory), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0)
                        bytes += (uint64_t)facts.st_blocks * BLOCK;
        if (directory)
                closedir(directory);
        return bytes;
}

static uint64_t find_unseen(const struct look *look) {
        uint64_t seen = named_bytes(), taken;
        struct statvfs vfs;

        if (statvfs("/dev/shm", &vfs) < 0 || vfs.f_blocks == 0)
                return 0;
        taken = (uint64_t)(vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize;
        for (size_t i = 0; i < look->n; i++)
                if (look->holds[i].device == look->shm && is_first(look, i))
                        seen += look->holds[i].bytes;
        return taken > seen + UNSEEN_LEAST ? taken - seen : 0;
}

static int compare(const void *a, const void *b) {
        const struct space_holder *left = a, *right = b;

        return (left->bytes < right->bytes) - (left->bytes > right->bytes);
}

/* Holds of one process lie side by side. */
static void add_holder(struct space_report *report, const struct hold *hold) {
        struct space_holder *last = &report->holders[SPACE_HOLDERS_MAX - 1];

        for (uint32_t i = 0; i < report->n_holders && i < SPACE_HOLDERS_MAX; i++) {
                if (report->holders[i].pid != hold->pid)
                        continue;
                report->holders[i].bytes += hold->bytes;
                return;
        }
        if (report->n_holders < SPACE_HOLDERS_MAX)
                last = &report->holders[report->n_holders];
        report->n_holders++;
        *last = (struct space_holder){.pid = hold->pid, .bytes = hold->bytes};
        read_name(hold->pid, last->name);
}

void space_look(struct space_report *report, bool only_shm) {
        struct look look = {.only_shm = only_shm, .holds = calloc(HOLDS_MAX, sizeof(*look.holds))};
        struct stat shm;

        *report = (struct space_report){};
        if (!look.holds)
                return;
        if (stat("/dev/shm", &shm) == 0)
                look.shm = shm.st_dev;
        look_at_all(&look);
        for (size_t i = 0; i < look.n; i++) {
                if (is_served(&look, &look.holds[i]))
                        continue;
                add_holder(report, &look.holds[i]);
                if (is_first(&look, i))
                        report->bytes += look.holds[i].bytes;
        }
        report->unseen = find_unseen(&look);
        qsort(report->holders, report->n_holders < SPACE_HOLDERS_MAX ? report->n_holders : SPACE_HOLDERS_MAX,
              sizeof(*report->holders), compare);
        free(look.holds);
}

/* ---- words ---- */

static bool is_among(pid_t pid, const pid_t *pids, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                if (pids[i] == pid)
                        return true;
        return false;
}

static void append(char text[SPACE_TEXT_MAX], const char *more) {
        size_t used = strlen(text);

        snprintf(text + used, SPACE_TEXT_MAX - used, "%s%s", used > 0 ? ", " : "", more);
}

void space_describe(const struct space_report *report, const pid_t *waiting, uint32_t n_waiting,
                    char text[SPACE_TEXT_MAX]) {
        enum {
                NAMED = 3,
        };
        char one[160], bytes[NUMBER_TEXT_MAX];
        uint32_t i;

        *text = 0;
        for (i = 0; i < report->n_holders && i < NAMED; i++) {
                const struct space_holder *holder = &report->holders[i];

                snprintf(one, sizeof(one), "%s (pid %d) holds %s of an earlier ring%s", holder->name,
                         (int)holder->pid, number_format_bytes(bytes, holder->bytes),
                         is_among(holder->pid, waiting, n_waiting)
                                 ? " and waits for this one itself: it has to release its batches (see "
                                   "max_held_batches)"
                                 : "");
                append(text, one);
        }
        if (report->n_holders > i) {
                snprintf(one, sizeof(one), "%u more processes hold such, too", report->n_holders - i);
                append(text, one);
        }
        if (report->unseen > 0) {
                snprintf(one, sizeof(one),
                         "%s in /dev/shm are files without a name, perhaps rings that processes of other "
                         "users hold",
                         number_format_bytes(bytes, report->unseen));
                append(text, one);
        }
}
