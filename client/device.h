#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Where a job's batches go. A backend is one file and one line of the table in device.c.
 *
 * Which thread calls what matters, for a runtime may make a context on the calling thread's current device
 * for any call. `check_thread`, which makes none, then `check_stream`, `copy` and `mark` are called by the
 * thread that the copies are of; everything else by the job's device thread (reaper.c), whose device is the
 * job's for good, or by the thread that stands in for it. A call that fails leaves nothing behind that a
 * later call of the user's would meet. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cuda;
struct fault;

struct device {
        const struct device_backend *backend;
        const struct cuda *cuda; /* NULL: host */
        int ordinal;
        bool registers_read_only; /* memory that this process may not write can be page-locked */
        char name[32];            /* "cpu", "cuda:1" */
};

/* Marks a point in a stream. The backend's; a cuda_event. */
typedef void *device_mark;

/* Of the host there are the first two alone: nothing is copied, so nobody asks for the others. */
struct device_backend {
        const char *name; /* what stands before the colon of a device's name */

        /* Finds the device that `text` ("", "1") names, without touching it. 0 or -ENODEV, -EINVAL. */
        int (*open)(struct device *device, const char *text, const char *runtime, struct fault *fault);

        /* Makes the device the calling thread's, which is ours. */
        int (*enter_thread)(const struct device *device, struct fault *fault);
        /* Between these two the calls of a thread that is not ours have nothing to do with captures into
         * graphs, as those of ours never have; `before` is for the second one. */
        void (*leave_captures)(const struct device *device, int *before);
        void (*join_captures)(const struct device *device, int before);
        /* -EXDEV when the calling thread's current device is another one. */
        int (*check_thread)(const struct device *device, struct fault *fault);

        /* Page-locks [start, start + bytes), whole pages, never 0, for all devices; undoes it. */
        int (*pin)(const struct device *device, void *start, size_t bytes, bool read_only,
                   struct fault *fault);
        int (*unpin)(const struct device *device, void *start, struct fault *fault);
        /* Page-locked memory of our own. */
        int (*allocate)(const struct device *device, void **start, size_t bytes, struct fault *fault);
        void (*free)(const struct device *device, void *start);

        /* -EBUSY: the stream is being captured. */
        int (*check_stream)(const struct device *device, void *stream, struct fault *fault);
        int (*copy)(const struct device *device, void *to, const void *from, size_t bytes, void *stream,
                    struct fault *fault);

        int (*mark_new)(const struct device *device, device_mark *mark, struct fault *fault);
        int (*mark)(const struct device *device, device_mark mark, void *stream, struct fault *fault);
        /* 1: what was queued before the mark has finished; 0: not yet; or a negative errno. */
        int (*reached)(const struct device *device, device_mark mark, struct fault *fault);
        void (*mark_free)(const struct device *device, device_mark mark);
};

/* "cuda:1", "cuda", "cpu", "" or NULL. 0; -EINVAL for another name; -ENODEV, and where it was looked for. */
int device_open(struct device *device, const char *name, const char *runtime, struct fault *fault);

static inline bool device_is_host(const struct device *device) {
        return !device->backend->copy;
}

/* The backends. */
extern const struct device_backend device_host;
extern const struct device_backend device_cuda;
