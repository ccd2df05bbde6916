/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * "Permission denied" for /data/imagenet/train says nothing about which of the four directories refuses, and
 * a daemon with an uid of its own meets it more often than its administrator. So the path is tried piece by
 * piece, as the caller, and then the first file that a plain walk meets is opened.
 *
 * That is a probe and no scan: it stops at the first file, three levels down, and after a bounded number of
 * entries. It runs in the process of `--check`, never in the daemon, since storage that hangs would hang it.
 */

#include "daemon/check.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
        SEARCH_LEVELS = 3,      /* classes, and two levels of folders in them */
        SEARCH_ENTRIES = 10000, /* looked at before giving up */
};

struct search {
        char path[PATH_MAX]; /* of the entry that is looked at */
        unsigned entries;
        bool cut; /* something was left out */
};

static void closedirp(DIR **directory) {
        if (*directory)
                closedir(*directory);
}

static int refuse_directory(const char *path, const struct stat *st, const char *right, struct fault *fault) {
        return fault_set(fault, -EACCES,
                         "%s refuses user %u: it needs the right to %s (mode %04o, owner %u, group %u)", path,
                         (unsigned)geteuid(), right, (unsigned)st->st_mode & 07777, (unsigned)st->st_uid,
                         (unsigned)st->st_gid);
}

/* One directory of the way; the last one must be readable too. */
static int check_directory(const char *path, bool last, struct fault *fault) {
        struct stat st;
        int r;

        if (stat(path, &st) < 0) {
                r = -errno;
                return fault_set(fault, r, "%s: %s", path, r == -ENOENT ? "does not exist" : strerror(-r));
        }
        if (!S_ISDIR(st.st_mode))
                return fault_set(fault, -ENOTDIR, "%s is not a directory", path);
        if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0)
                return refuse_directory(path, &st, "enter it (x)", fault);
        if (last && faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) < 0)
                return refuse_directory(path, &st, "list it (r)", fault);
        return 0;
}

static int check_path(const char *path, struct fault *fault) {
        char prefix[PATH_MAX];
        const char *end = path;
        int r;

        do {
                end += strspn(end, "/");
                end += strcspn(end, "/");
                if ((size_t)(end - path) >= sizeof(prefix))
                        return fault_set(fault, -ENAMETOOLONG, "the path is too long");
                memcpy(prefix, path, (size_t)(end - path));
                prefix[end - path] = 0;
                r = check_directory(prefix, end[strspn(end, "/")] == 0, fault);
        } while (r == 0 && end[strspn(end, "/")]);
        return r;
}

static int open_file(const char *path, struct fault *fault) {
        _cleanup_(fd_closep) int fd = -1;
        char byte;
        ssize_t n;

        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
                return fault_set(fault, -errno, "%s cannot be opened as user %u: %s", path,
                                 (unsigned)geteuid(), strerror(errno));
        n = pread(fd, &byte, 1, 0);
        return n < 0 ? fault_set(fault, -errno, "%s cannot be read: %s", path, strerror(errno)) : 1;
}

static int search_directory(struct search *search, unsigned level, struct fault *fault);

/* 1: a file was opened, its name is in search->path; 0: go on. */
static int search_entry(struct search *search, unsigned level, struct fault *fault) {
        struct stat st;

        if (stat(search->path, &st) < 0)
                return 0; /* a dangling link is no sample */
        if (S_ISREG(st.st_mode) && level > 0)
                return open_file(search->path, fault);
        if (!S_ISDIR(st.st_mode))
                return 0;
        if (level < SEARCH_LEVELS)
                return search_directory(search, level + 1, fault);
        search->cut = true;
        return 0;
}

static int search_directory(struct search *search, unsigned level, struct fault *fault) {
        _cleanup_(closedirp) DIR *directory = opendir(search->path);
        size_t length = strlen(search->path);
        struct dirent *entry;
        int r = 0;

        if (!directory)
                return fault_set(fault, -errno, "%s cannot be listed as user %u: %s", search->path,
                                 (unsigned)geteuid(), strerror(errno));
        while (r == 0 && (entry = readdir(directory))) {
                size_t room = sizeof(search->path) - length;

                if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
                        continue;
                if (++search->entries > SEARCH_ENTRIES ||
                    (size_t)snprintf(search->path + length, room, "/%s", entry->d_name) >= room)
                        search->cut = true;
                else
                        r = search_entry(search, level, fault);
                if (r == 0)
                        search->path[length] = 0;
                if (search->entries > SEARCH_ENTRIES)
                        break;
        }
        return r;
}

int check_source(const struct config_pipeline *pipeline, char *found, size_t size, struct fault *fault) {
        struct search search = {};
        int r;

        *found = 0;
        if (pipeline->recipe.source.type != RECIPE_IMAGEFOLDER)
                return 0;
        r = check_path(pipeline->recipe.source.path, fault);
        if (r < 0)
                return r;
        snprintf(search.path, sizeof(search.path), "%s", pipeline->recipe.source.path);
        r = search_directory(&search, 0, fault);
        if (r < 0)
                return r;
        if (r == 0 && !search.cut)
                return fault_set(fault, -ENOENT, "%s has no file in a directory of a class",
                                 pipeline->recipe.source.path);
        if (r > 0)
                snprintf(found, size, "%s", search.path);
        return 0;
}
