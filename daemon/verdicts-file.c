/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One file for each fingerprint, verdicts-FFFF.json with the first half of it:
 *
 *   {"pipeline": "imagenet", "fingerprint": "...",
 *    "samples": [{"sample": 812, "file": "n01440764/x.JPEG", "text": "...", "time": 1764000000}]}
 *
 * A verdict costs three workers and, if it is lost, rows change their contents. Therefore:
 *
 * - A new file replaces the old one as a whole, by rename, after fsync of the file and before fsync of the
 *   directory: whatever is killed or loses power, one of the two is there.
 * - A file that makes no sense is moved aside, never written over. One that cannot be read (I/O error,
 *   permissions) is left where it is, and nothing is saved either.
 * - Several daemons of one user, and several pipelines of one fingerprint, write the same file. Whoever saves
 *   locks the directory, reads what is there, and adds to it; only what it took back itself goes.
 *
 * The directory is trusted: what lies in it makes us replace samples. So it must belong to us or to root, and
 * nobody else may write it; the last part of a file's name may not be a link, the directory may (systemd's
 * are).
 *
 * All functions block, for as long as the disk likes, and run in libuv's threads.
 */

#include "daemon/verdicts.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        ASIDE_MAX = 100, /* damaged files that may lie beside each other */
        NAME_BYTES = 64, /* of a file, with its ending */
        NAME_HEX = 32,   /* of the fingerprint, in the name */
};

#define FILE_BYTES_MAX (INT64_C(128) << 20) /* over what VERDICTS_MAX verdicts take at worst */

/* ---- the directory ---- */

static const char *variable(const char *name) {
        const char *value = getenv(name);

        return value && *value ? value : NULL;
}

int verdicts_find_directory(char path[PATH_MAX], struct fault *fault) {
        const char *own = variable("PINFEED_STATE_DIR"), *service = variable("STATE_DIRECTORY"),
                   *xdg = variable("XDG_STATE_HOME"), *home = variable("HOME");
        int length;

        if (own)
                length = snprintf(path, PATH_MAX, "%s", own);
        else if (service) /* several are separated by colons */
                length = snprintf(path, PATH_MAX, "%.*s", (int)strcspn(service, ":"), service);
        else if (xdg && *xdg == '/') /* relative ones are to be ignored, says its specification */
                length = snprintf(path, PATH_MAX, "%s/pinfeed", xdg);
        else if (home && *home == '/')
                length = snprintf(path, PATH_MAX, "%s/.local/state/pinfeed", home);
        else
                return fault_set(fault, -ENOENT,
                                 "no place for a state directory: none of PINFEED_STATE_DIR, "
                                 "STATE_DIRECTORY, XDG_STATE_HOME and HOME is set; set the first");
        if (length >= PATH_MAX)
                return fault_set(fault, -ENAMETOOLONG,
                                 "state directory: its path has %d bytes, at most %d are possible; choose a "
                                 "shorter one with PINFEED_STATE_DIR",
                                 length, PATH_MAX - 1);
        return 0;
}

/* mkdir -p -m 0700. */
static int make_directory(const char *directory, struct fault *fault) {
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s", directory);
        for (char *end = path + 1;; end++) {
                char byte = *end;

                if (byte && byte != '/')
                        continue;
                *end = 0;
                if (mkdir(path, 0700) < 0 && errno != EEXIST)
                        return fault_set(fault, -errno,
                                         "state directory %s: cannot make %s: %s (%d); set PINFEED_STATE_DIR "
                                         "to a place where this user may write",
                                         directory, path, strerror(errno), errno);
                if (!byte)
                        return 0;
                *end = byte;
        }
}

static int check_directory(int fd, const char *directory, struct fault *fault) {
        struct stat status;

        if (fstat(fd, &status) < 0)
                return fault_set(fault, -errno, "state directory %s: %s (%d)", directory, strerror(errno),
                                 errno);
        if (status.st_uid != geteuid() && status.st_uid != 0)
                return fault_set(fault, -EPERM, "state directory %s belongs to uid %lu, this is uid %lu",
                                 directory, (unsigned long)status.st_uid, (unsigned long)geteuid());
        if (status.st_mode & (S_IWGRP | S_IWOTH))
                return fault_set(fault, -EPERM,
                                 "state directory %s has mode %04o: others may write it; chmod go-w it",
                                 directory, (unsigned)status.st_mode & 07777);
        return 0;
}

/* Opens and locks it: the lock goes with the descriptor. -ENOENT without a text when it is missing. */
static int open_directory(const char *directory, struct fault *fault) {
        _cleanup_(fd_closep) int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r;

        if (fd < 0 && errno == ENOENT)
                return -ENOENT;
        if (fd < 0)
                return fault_set(fault, -errno, "state directory %s: cannot open it: %s (%d)", directory,
                                 strerror(errno), errno);
        r = check_directory(fd, directory, fault);
        if (r < 0)
                return r;
        /* where there are no locks (some network file systems), two who save at once lose what one added */
        while (flock(fd, LOCK_EX) < 0 && errno == EINTR)
                ;
        return fd_take(&fd);
}

static void name_file(char name[NAME_BYTES], const struct verdicts *verdicts) {
        snprintf(name, NAME_BYTES, "verdicts-%.*s.json", NAME_HEX, verdicts->fingerprint);
}

/* ---- reading ---- */

/* The file as JSON. 0 and *json, which is NULL when there is no file; VERDICTS_E_DAMAGED with the reason, or
 * a negative errno. */
static int read_file(json_t **json, int directory_fd, const char *name, struct fault *fault) {
        _cleanup_(fd_closep) int fd =
                openat(directory_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        struct stat status;
        json_error_t error;

        *json = NULL;
        if (fd < 0 && errno == ENOENT)
                return 0;
        if (fd < 0 || fstat(fd, &status) < 0)
                return fault_set(fault, -errno, "cannot open it: %s (%d)", strerror(errno), errno);
        if (!S_ISREG(status.st_mode))
                return fault_set(fault, -EINVAL, "it is no regular file; remove it");
        if (status.st_size > FILE_BYTES_MAX)
                return fault_set(fault, VERDICTS_E_DAMAGED, "it has %jd bytes, at most %jd are possible",
                                 (intmax_t)status.st_size, (intmax_t)FILE_BYTES_MAX);
        errno = 0;
        *json = json_loadfd(fd, JSON_REJECT_DUPLICATES, &error);
        if (*json)
                return 0;
        if (errno == EIO || errno == ENOMEM || errno == ESTALE)
                return fault_set(fault, -errno, "cannot read it: %s (%d)", strerror(errno), errno);
        return fault_set(fault, VERDICTS_E_DAMAGED, "line %d: %s", error.line, error.text);
}

/* One entry of the list. 0 also when it is known, or was taken back. */
static int merge_entry(struct verdicts *verdicts, const json_t *entry) {
        const json_t *sample = json_object_get(entry, "sample"), *time = json_object_get(entry, "time");
        const char *file = json_string_value(json_object_get(entry, "file")),
                   *text = json_string_value(json_object_get(entry, "text"));
        json_int_t number = json_integer_value(sample);
        int r;

        if (!json_is_integer(sample) || number < 0 || (uint64_t)number >= VERDICTS_SAMPLE_MAX ||
            !json_is_integer(time) || json_integer_value(time) < 0 || !file || !text)
                return VERDICTS_E_DAMAGED;
        if (verdicts_was_cleared(verdicts, (uint64_t)number))
                return 0;
        r = verdicts_add(verdicts, (uint64_t)number, file, text, (uint64_t)json_integer_value(time));
        return r == VERDICTS_E_KNOWN ? 0 : r;
}

/* Adds the file's verdicts, or some of them when it fails. */
static int merge(struct verdicts *verdicts, const json_t *json, struct fault *fault) {
        const char *fingerprint = json_string_value(json_object_get(json, "fingerprint"));
        const json_t *samples = json_object_get(json, "samples");
        int r;

        if (!fingerprint || strcmp(fingerprint, verdicts->fingerprint) != 0)
                return fault_set(fault, VERDICTS_E_DAMAGED, "its fingerprint is %s, expected %s",
                                 fingerprint ? "another one" : "missing", verdicts->fingerprint);
        if (!json_is_array(samples))
                return fault_set(fault, VERDICTS_E_DAMAGED, "it has no list of samples");
        for (size_t i = 0; i < json_array_size(samples); i++) {
                r = merge_entry(verdicts, json_array_get(samples, i));
                if (r == VERDICTS_E_FULL)
                        return fault_set(fault, -EOVERFLOW,
                                         "more than %d samples are condemned; mend the data set, then "
                                         "remove this file",
                                         VERDICTS_MAX);
                if (r < 0)
                        return fault_set(fault, r, "out of memory");
                if (r)
                        return fault_set(fault, VERDICTS_E_DAMAGED,
                                         "samples[%zu]: expected sample, file, text and time", i);
        }
        return 0;
}

/* Renames the damaged file to the first free name; the fault has the reason and gets the rest. */
static int put_aside(int directory_fd, const char *name, struct fault *fault) {
        char aside[NAME_BYTES + 16];
        struct fault reason = *fault;
        struct stat status;
        int i = 0;

        snprintf(aside, sizeof(aside), "%s.damaged", name);
        while (fstatat(directory_fd, aside, &status, AT_SYMLINK_NOFOLLOW) == 0) {
                if (++i == ASIDE_MAX)
                        return fault_set(fault, -EEXIST, "%s; remove the files that end in .damaged*",
                                         reason.text);
                snprintf(aside, sizeof(aside), "%s.damaged%d", name, i);
        }
        if (renameat(directory_fd, name, directory_fd, aside) < 0)
                return fault_set(fault, -errno, "%s; cannot rename it to %s: %s (%d)", reason.text, aside,
                                 strerror(errno), errno);
        return fault_set(fault, VERDICTS_E_DAMAGED,
                         "%s; it is %s now, and the samples in it will be condemned anew", reason.text,
                         aside);
}

/* Adds what the file says; moves it aside when it is damaged. All of it, or `verdicts` is as before. */
static int merge_file(struct verdicts *verdicts, int directory_fd, const char *directory, const char *name,
                      struct fault *fault) {
        struct verdicts *merged, before = *verdicts;
        json_t *json = NULL;
        struct fault reason;
        int r;

        r = verdicts_copy(&merged, verdicts);
        if (r < 0)
                return fault_set(fault, r, "condemned samples: out of memory");
        r = read_file(&json, directory_fd, name, &reason);
        if (!r && json)
                r = merge(merged, json, &reason);
        json_decref(json);
        if (r == VERDICTS_E_DAMAGED)
                r = put_aside(directory_fd, name, &reason);
        if (!r) {
                *verdicts = *merged;
                *merged = before;
        }
        verdicts_free(merged);
        return r ? fault_set(fault, r, "%s/%s: %s", directory, name, reason.text) : 0;
}

int verdicts_load(struct verdicts *verdicts, const char *directory, struct fault *fault) {
        _cleanup_(fd_closep) int directory_fd = open_directory(directory, fault);
        char name[NAME_BYTES];

        if (directory_fd < 0)
                return directory_fd == -ENOENT ? 0 : directory_fd;
        name_file(name, verdicts);
        return merge_file(verdicts, directory_fd, directory, name, fault);
}

/* ---- writing ---- */

static json_t *samples_to_json(const struct verdicts *verdicts) {
        json_t *samples = json_array();

        for (size_t i = 0; i < verdicts->n; i++) {
                const struct verdict *verdict = &verdicts->list[i];
                json_t *entry;

                if (verdict->lifted)
                        continue;
                entry = json_pack("{s:I, s:s, s:s, s:I}", "sample", (json_int_t)verdict->sample, "file",
                                  verdict->file, "text", verdict->text, "time", (json_int_t)verdict->time);
                if (json_array_append_new(samples, entry) < 0) {
                        json_decref(samples);
                        return NULL;
                }
        }
        return samples;
}

/* One line for each sample would need a writer of our own; an indentation of one is as good to look at. */
static char *to_text(const struct verdicts *verdicts) {
        json_t *samples = samples_to_json(verdicts);
        json_t *json = samples ? json_pack("{s:s, s:s, s:o}", "pipeline", verdicts->pipeline, "fingerprint",
                                           verdicts->fingerprint, "samples", samples)
                               : NULL;
        char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;

        json_decref(json);
        return text;
}

/* The lock on the directory makes a fixed name safe, and what a crash left under it is overwritten. */
static int write_file(int directory_fd, const char *name, const char *text) {
        char temporary[NAME_BYTES + 8];
        _cleanup_(fd_closep) int fd = -1;
        int r;

        snprintf(temporary, sizeof(temporary), "%s.tmp", name);
        fd = openat(directory_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        r = fd_pwrite_full(fd, text, strlen(text), 0);
        if (!r && (fsync(fd) < 0 || renameat(directory_fd, temporary, directory_fd, name) < 0))
                r = -errno;
        if (r < 0)
                (void)unlinkat(directory_fd, temporary, 0);
        return r;
}

/* Puts the file where it belongs, or removes it when there is nothing to say. */
static int replace_file(int directory_fd, const char *name, const struct verdicts *verdicts) {
        _cleanup_(freep) char *text = NULL;
        int r;

        if (verdicts_count_lasting(verdicts) > 0) {
                text = to_text(verdicts);
                r = text ? write_file(directory_fd, name, text) : -ENOMEM;
        } else {
                r = unlinkat(directory_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
        }
        if (!r && fsync(directory_fd) < 0 && errno != EINVAL && errno != ENOTSUP)
                r = -errno; /* not every file system can do that with a directory */
        return r;
}

/* Like open_directory, but makes it. */
static int need_directory(const char *directory, struct fault *fault) {
        int fd = open_directory(directory, fault), r;

        if (fd != -ENOENT)
                return fd;
        r = make_directory(directory, fault);
        if (r < 0)
                return r;
        fd = open_directory(directory, fault);
        return fd == -ENOENT ? fault_set(fault, fd, "state directory %s: removed at once", directory) : fd;
}

static int save(struct verdicts *verdicts, int directory_fd, const char *directory, struct fault *fault) {
        char name[NAME_BYTES];
        int merged, r;

        name_file(name, verdicts);
        merged = merge_file(verdicts, directory_fd, directory, name, fault);
        if (merged < 0)
                return merged;
        r = replace_file(directory_fd, name, verdicts);
        if (r < 0)
                return fault_set(fault, r, "%s/%s: cannot write it: %s (%d)", directory, name, strerror(-r),
                                 -r);
        return merged;
}

int verdicts_save(const struct verdicts *verdicts, const char *directory, struct fault *fault) {
        _cleanup_(fd_closep) int directory_fd = -1;
        struct verdicts *all;
        int r;

        directory_fd = verdicts_count_lasting(verdicts) > 0 ? need_directory(directory, fault)
                                                            : open_directory(directory, fault);
        if (directory_fd < 0)
                return directory_fd == -ENOENT && verdicts_count_lasting(verdicts) == 0 ? 0 : directory_fd;
        r = verdicts_copy(&all, verdicts);
        if (r < 0)
                return fault_set(fault, r, "condemned samples: out of memory");
        r = save(all, directory_fd, directory, fault);
        verdicts_free(all);
        return r;
}
