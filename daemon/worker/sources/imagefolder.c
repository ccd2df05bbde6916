/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The image folder as a source: reads one file, whole, and has it decoded.
 *
 * Names come from the shared index and are opened relative to a descriptor of the root, so that a renamed or
 * mounted-over root changes nothing for a running worker. Files are read, never mapped: one that is cut short
 * while it is read gives a decoding error in place of a SIGBUS. What the scan saw of a file counts for
 * nothing here: it is read as long as it is now, and its bytes are judged. They are opened without blocking,
 * because a FIFO under an image's name would otherwise hold the worker for ever; what is not a regular file
 * is refused. The read buffer and the decoder's state grow to the largest file and are kept.
 *
 * A file costs four system calls, one of which reads all of it. Those of the next samples are opened ahead,
 * by a thread, and their bytes are on their way when it is their turn (ahead.c). */

#include "daemon/worker/source.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "daemon/worker/codec.h"
#include "daemon/worker/sources/ahead.h"
#include "daemon/worker/sources/imagefolder-scan.h"
#include "daemon/worker/stages.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

struct source {
        const struct index *index;
        struct decoder *decoder;
        struct ahead *ahead;
        int root;
        off_t file_bytes_max;
        uint8_t *bytes;
        size_t capacity;
        char name[PATH_MAX]; /* of the file in work; openat takes no longer one */
};

static struct source *imagefolder_close(struct source *source) {
        if (!source)
                return NULL;
        decoder_free(source->decoder);
        ahead_free(source->ahead); /* before the root that it opens from */
        fd_closep(&source->root);
        free(source->bytes);
        free(source);
        return NULL;
}

static void imagefolder_closep(struct source **source) {
        imagefolder_close(*source);
}

static int imagefolder_open(struct source **sourcep, const struct recipe_source *recipe,
                            const struct index *index, struct fault *fault) {
        _cleanup_(imagefolder_closep) struct source *source = NULL;
        int r;

        if (!index)
                return fault_set(fault, -EINVAL, "an image folder needs the index of its scan");
        source = calloc(1, sizeof(*source));
        if (!source)
                return fault_set(fault, -ENOMEM, "no memory for the source");
        source->index = index;
        source->root = imagefolder_open_root(recipe->path, fault);
        if (source->root < 0)
                return source->root;
        source->file_bytes_max = (off_t)recipe->max_file_bytes;
        r = decoder_new(&source->decoder, &(struct codec_options){
                                                  .accept_damaged = recipe->damaged == RECIPE_DAMAGED_ACCEPT,
                                                  .orient = recipe->orient == RECIPE_ORIENT_EXIF,
                                                  .pixels_max = recipe->max_pixels,
                                                  .scans_max = (uint32_t)recipe->max_scans,
                                          });
        if (r < 0)
                return fault_set(fault, r, "no memory for the decoder");
        r = ahead_new(&source->ahead, source->root);
        if (r < 0)
                return fault_set(fault, r, "no memory to read ahead");
        *sourcep = source;
        source = NULL;
        return 0;
}

static void imagefolder_name_of(struct source *source, uint64_t sample, char *name, size_t size) {
        const struct index_entry *entry;
        size_t length;

        if (size == 0)
                return;
        name[0] = '\0';
        if (sample >= source->index->header->samples)
                return;
        entry = &source->index->entries[sample];
        length = entry->name_length < size - 1 ? entry->name_length : size - 1;
        memcpy(name, source->index->base + entry->name_offset, length);
        name[length] = '\0';
}

static int make_room(struct source *source, size_t size) {
        uint8_t *bytes;

        if (size <= source->capacity)
                return 0;
        bytes = malloc(size);
        if (!bytes)
                return -ENOMEM;
        free(source->bytes);
        source->bytes = bytes;
        source->capacity = size;
        return 0;
}

/* Some of the system's errors have numbers that say "a bad sample" here, a failed checksum of the file system
 * (EBADMSG) for one. */
static int system_fault(int error, const char *doing, struct fault *fault) {
        int taken = error == EBADMSG || error == EINVAL || error == EFBIG || error == EOPNOTSUPP;

        return fault_set(fault, taken ? -EIO : -error, "cannot %s it: %s", doing, strerror(error));
}

/* Reads the sample's file, which is called source->name, into source->bytes. The number of bytes, or a
 * negative errno. */
static ssize_t read_file(struct source *source, uint64_t sample, struct fault *fault) {
        _cleanup_(fd_closep) int fd = ahead_take(source->ahead, sample);
        struct stat status;
        ssize_t n;

        if (fd < 0)
                fd = ahead_open_file(source->root, source->name);
        if (fd < 0)
                return system_fault(errno, "open", fault);
        if (fstat(fd, &status) < 0)
                return system_fault(errno, "look at", fault);
        if (!S_ISREG(status.st_mode))
                return fault_set(fault, -EINVAL, "not a regular file");
        if (status.st_size == 0)
                return fault_set(fault, -EBADMSG, "the file is empty");
        if (status.st_size > source->file_bytes_max)
                return fault_set(fault, -EFBIG, "%lld bytes, the limit is %lld (max_file_bytes)",
                                 (long long)status.st_size, (long long)source->file_bytes_max);
        if (make_room(source, (size_t)status.st_size) < 0)
                return fault_set(fault, -ENOMEM, "no memory for its %lld bytes", (long long)status.st_size);
        n = fd_pread_full(fd, source->bytes, (size_t)status.st_size, 0);
        if (n < 0)
                return system_fault((int)-n, "read", fault);
        return n;
}

static int imagefolder_image(struct source *source, const struct source_request *request, struct image *image,
                             int64_t *label, struct fault *fault) {
        uint64_t begin = clock_ns();
        const char *format;
        ssize_t n;
        int r;

        if (request->sample >= source->index->header->samples)
                return fault_set(fault, -ERANGE, "sample %llu of %llu", (unsigned long long)request->sample,
                                 (unsigned long long)source->index->header->samples);
        imagefolder_name_of(source, request->sample, source->name, sizeof(source->name));
        n = read_file(source, request->sample, fault);
        if (n < 0)
                return (int)n;
        ahead_judge(source->ahead, (size_t)n, clock_ns() - begin);
        stages_enter(request->stages, STAGE_DECODE);
        r = decoder_open(source->decoder, source->bytes, (size_t)n, image, &format, fault);
        if (r < 0)
                return r;
        *label = source->index->entries[request->sample].class;
        return 0;
}

static void imagefolder_announce(struct source *source, uint64_t sample) {
        const struct index_entry *entry;

        if (sample >= source->index->header->samples)
                return;
        entry = &source->index->entries[sample];
        ahead_want(source->ahead, sample, source->index->base + entry->name_offset, entry->name_length);
}

static void imagefolder_forget(struct source *source) {
        ahead_forget(source->ahead);
}

const struct source_ops source_imagefolder = {
        .name = "imagefolder",
        .scan = imagefolder_scan,
        .open = imagefolder_open,
        .close = imagefolder_close,
        .image = imagefolder_image,
        .name_of = imagefolder_name_of,
        .announce = imagefolder_announce,
        .forget = imagefolder_forget,
};
