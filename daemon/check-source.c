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
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        SEARCH_LEVELS = 3,      /* classes, and two levels of folders in them */
        SEARCH_ENTRIES = 10000, /* looked at before giving up */
        NAME_BYTES = 33,        /* of a user or a group */
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

/* A name, or the number where there is none. */
static const char *name_user(uid_t uid, char name[NAME_BYTES]) {
        const struct passwd *user = getpwuid(uid);

        if (user)
                snprintf(name, NAME_BYTES, "%s", user->pw_name);
        else
                snprintf(name, NAME_BYTES, "%u", (unsigned)uid);
        return name;
}

static const char *name_group(gid_t gid, char name[NAME_BYTES]) {
        const struct group *group = getgrgid(gid);

        if (group)
                snprintf(name, NAME_BYTES, "%s", group->gr_name);
        else
                snprintf(name, NAME_BYTES, "%u", (unsigned)gid);
        return name;
}

/* The rights that the mode gives this user. */
static mode_t rights_of(const struct stat *st) {
        if (st->st_uid == geteuid())
                return st->st_mode >> 6 & 7;
        if (st->st_gid == getegid() || group_member(st->st_gid))
                return st->st_mode >> 3 & 7;
        return st->st_mode & 7;
}

/* What would help. Not the mode alone decides: there are lists of rights, and file systems with a mind of
 * their own. */
static void find_remedy(const char *part, const struct stat *st, mode_t wanted, const char *group, char *text,
                        size_t size) {
        char right = wanted == S_IXOTH ? 'x' : 'r';

        if (rights_of(st) & wanted)
                snprintf(text, size,
                         "its mode would allow that: look at its access control list (getfacl) and at its "
                         "file "
                         "system");
        else if (st->st_uid == geteuid())
                snprintf(text, size, "chmod u+%c %s", right, part);
        else if (st->st_mode >> 3 & wanted)
                snprintf(text, size, "add the user to group %s, or chmod o+%c %s", group, right, part);
        else
                snprintf(text, size, "chmod o+%c %s, or give it to a group that the user is in, with g+%c",
                         right, part, right);
}

/* `part` of the way to `path` refuses; `wanted` is S_IROTH or S_IXOTH. */
static int refuse(const char *path, const char *part, const struct stat *st, mode_t wanted,
                  struct fault *fault) {
        char user[NAME_BYTES], owner[NAME_BYTES], group[NAME_BYTES], remedy[PATH_MAX + 128];
        const char *kind = S_ISDIR(st->st_mode) ? "directory" : "file", *verb = "enter";

        if (wanted == S_IROTH)
                verb = S_ISDIR(st->st_mode) ? "list" : "read";
        find_remedy(part, st, wanted, name_group(st->st_gid, group), remedy, sizeof(remedy));
        return fault_set(fault, -EACCES, "%s: %s %s is %04o %s:%s, user %s (uid %u) may not %s it; %s", path,
                         kind, part, (unsigned)st->st_mode & 07777, name_user(st->st_uid, owner), group,
                         name_user(geteuid(), user), (unsigned)geteuid(), verb, remedy);
}

/* One directory of the way to `path`; the last one must be readable too. */
static int check_directory(const char *path, const char *part, bool last, struct fault *fault) {
        struct stat st;
        int r;

        if (stat(part, &st) < 0) {
                r = -errno;
                return fault_set(fault, r, "%s: %s", part, r == -ENOENT ? "does not exist" : strerror(-r));
        }
        if (!S_ISDIR(st.st_mode))
                return fault_set(fault, -ENOTDIR, "%s is not a directory", part);
        if (faccessat(AT_FDCWD, part, X_OK, AT_EACCESS) < 0)
                return refuse(path, part, &st, S_IXOTH, fault);
        if (last && faccessat(AT_FDCWD, part, R_OK, AT_EACCESS) < 0)
                return refuse(path, part, &st, S_IROTH, fault);
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
                r = check_directory(path, prefix, end[strspn(end, "/")] == 0, fault);
        } while (r == 0 && end[strspn(end, "/")]);
        return r;
}

static int open_file(const char *path, struct fault *fault) {
        _cleanup_(fd_closep) int fd = -1;
        struct stat st;
        char byte;
        ssize_t n;

        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 && errno == EACCES && stat(path, &st) == 0)
                return refuse(path, path, &st, S_IROTH, fault);
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
        struct stat st;
        int r = 0;

        if (!directory && errno == EACCES && stat(search->path, &st) == 0)
                return refuse(search->path, search->path, &st, S_IROTH, fault);
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
