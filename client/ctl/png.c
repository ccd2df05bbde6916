/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A picture is encoded in memory first, so that what can go wrong there leaves no trace. The bytes then go to
 * a file without a name in the directory of the one that is asked for, which gets the name when all of them
 * are in: whoever has the name open, or is interrupted, finds the old file or the new one, and a process that
 * is killed while it writes leaves nothing. A name that is taken cannot be given directly, only by renaming:
 * for that moment the file has a second one. So it has from the beginning where the file system knows no
 * files without names.
 *
 * A link is followed, and the file that it names is replaced, not the link; a link to nothing is replaced
 * itself. */

#include "client/ctl/png.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/number.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spng.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
        BYTES = 3, /* of a pixel */
};

/* ---- encoding ---- */

static void spng_ctx_freep(spng_ctx **context) {
        spng_ctx_free(*context);
}

int png_encode(const uint8_t *pixels, uint32_t width, uint32_t height, void **bytes, size_t *n,
               struct fault *fault) {
        _cleanup_(spng_ctx_freep) spng_ctx *context = spng_ctx_new(SPNG_CTX_ENCODER);
        struct spng_ihdr header = {
                .width = width, .height = height, .bit_depth = 8, .color_type = SPNG_COLOR_TYPE_TRUECOLOR};
        int r;

        if (!context)
                return fault_set(fault, -ENOMEM, "no memory to write a PNG");
        r = spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
        if (r == 0)
                r = spng_set_ihdr(context, &header);
        if (r == 0)
                r = spng_encode_image(context, pixels, (size_t)width * height * BYTES, SPNG_FMT_PNG,
                                      SPNG_ENCODE_FINALIZE);
        *bytes = r == 0 ? spng_get_png_buffer(context, n, &r) : NULL;
        if (r != 0)
                return fault_set(fault, r == SPNG_EMEM ? -ENOMEM : -EIO, "a PNG of %ux%u pixels: %s", width,
                                 height, spng_strerror(r));
        return 0;
}

/* ---- the file ---- */

static int fail(struct fault *fault, const char *doing, const char *path) {
        int error = errno;

        return fault_set(fault, -error, "cannot %s %s: %s", doing, path, strerror(error));
}

/* Up to its last slash, "." without one. */
static void find_directory(char directory[PATH_MAX], const char *path) {
        const char *slash = strrchr(path, '/');

        snprintf(directory, PATH_MAX, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
}

/* Whether something other than a file is there, which can only be written to. */
static bool is_stream(const char *path) {
        struct stat status;

        return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

int png_check_path(const char *path, struct fault *fault) {
        char directory[PATH_MAX];
        struct stat status;

        if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
                return fault_set(fault, -EISDIR, "cannot write %s: it is a directory; name a file in it",
                                 path);
        if (access(path, W_OK) < 0 && errno != ENOENT)
                return fail(fault, "write", path);
        find_directory(directory, path);
        return is_stream(path) || access(directory, W_OK) == 0 ? 0 : fail(fault, "write in", directory);
}

static int write_all(int fd, const uint8_t *bytes, size_t n) {
        while (n > 0) {
                ssize_t written = write(fd, bytes, n);

                if (written < 0 && errno == EINTR)
                        continue;
                if (written < 0)
                        return -1;
                bytes += written;
                n -= (size_t)written;
        }
        return 0;
}

static int write_stream(const char *path, const void *bytes, size_t n, struct fault *fault) {
        _cleanup_(fd_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd < 0 || write_all(fd, bytes, n) < 0)
                return fail(fault, "write", path);
        return 0;
}

/* The rights that a new file has; mkostemp gives fewer. */
static mode_t usual_mode(void) {
        mode_t mask = umask(0);

        umask(mask);
        return 0666 & ~mask;
}

static int fill_file(int fd, const void *bytes, size_t n) {
        if (fchmod(fd, usual_mode()) < 0 || write_all(fd, bytes, n) < 0)
                return -1;
        return fsync(fd);
}

/* A file without a name; -1: the file system has none. */
static int open_unnamed(const char *target) {
        char directory[PATH_MAX];

        find_directory(directory, target);
        return open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
}

/* Takes the name of `target`, or is gone. */
static int put_in_place(const char *temporary, const char *target) {
        int error;

        if (rename(temporary, target) == 0)
                return 0;
        error = errno;
        unlink(temporary);
        errno = error;
        return -1;
}

/* At once where the name is free, else in two steps. */
static int give_name(int fd, const char *target, const char *temporary) {
        char unnamed[NUMBER_TEXT_MAX + 16];

        snprintf(unnamed, sizeof(unnamed), "/proc/self/fd/%d", fd);
        if (linkat(AT_FDCWD, unnamed, AT_FDCWD, target, AT_SYMLINK_FOLLOW) == 0)
                return 0;
        if (errno != EEXIST || linkat(AT_FDCWD, unnamed, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW) < 0)
                return -1;
        return put_in_place(temporary, target);
}

/* Where there are no files without names. */
static int write_named(const char *target, char *temporary, const void *bytes, size_t n) {
        _cleanup_(fd_closep) int fd = mkostemp(temporary, O_CLOEXEC);
        int error;

        if (fd < 0)
                return -1;
        if (fill_file(fd, bytes, n) == 0)
                return put_in_place(temporary, target);
        error = errno;
        unlink(temporary);
        errno = error;
        return -1;
}

static int write_file(const char *target, const void *bytes, size_t n) {
        _cleanup_(fd_closep) int fd = open_unnamed(target);
        char temporary[PATH_MAX];

        if ((size_t)snprintf(temporary, sizeof(temporary), "%s.XXXXXX", target) >= sizeof(temporary)) {
                errno = ENAMETOOLONG;
                return -1;
        }
        if (fd < 0)
                return write_named(target, temporary, bytes, n);
        snprintf(strrchr(temporary, '.'), sizeof(".XXXXXX"), ".%06d", (int)getpid() % 1000000);
        return fill_file(fd, bytes, n) < 0 ? -1 : give_name(fd, target, temporary);
}

int png_write_file(const char *path, const void *bytes, size_t n, struct fault *fault) {
        _cleanup_(freep) char *target = realpath(path, NULL); /* NULL: there is none yet */

        if (is_stream(path))
                return write_stream(path, bytes, n, fault);
        return write_file(target ? target : path, bytes, n) < 0 ? fail(fault, "write", path) : 0;
}
