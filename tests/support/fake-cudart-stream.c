/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Streams of the fake CUDA runtime. A stream is a queue and a thread that works it off. Its items are
 * numbered, so that a *point* in it is a stream and a number, reached when that many items are done. All
 * waiting is for points: an event's, a stream's last, and that of the legacy default stream with the others,
 * which queue up behind each other by items that wait.
 *
 * A stream stays in the list when it is destroyed, so that points in it stay valid.
 *
 * Of capturing there is the state only: what would be captured is refused, as pinfeed has to refuse it, too.
 */

#include "tests/support/fake-cudart-internal.h"

#include "base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

static struct CUstream_st *streams;

/* ---- points ---- */

bool point_reached(const struct point *point) {
        return !point->stream || point->stream->done >= point->number || broken();
}

void point_wait(const struct point *point) {
        while (!point_reached(point))
                pthread_cond_wait(&runtime.changed, &runtime.lock);
}

struct point point_of(struct CUstream_st *stream) {
        return (struct point){.stream = stream, .number = stream->queued};
}

/* ---- running what is queued ---- */

static void run_function(const struct item *item) {
        pthread_mutex_unlock(&runtime.lock);
        item->function(item->data);
        pthread_mutex_lock(&runtime.lock);
}

static void run_item(struct item *item) {
        switch (item->kind) {
        case ITEM_COPY:
                copy_run(&item->copy);
                break;
        case ITEM_SET:
                copy_run_set(&item->copy);
                break;
        case ITEM_WAIT:
                point_wait(&item->point);
                break;
        case ITEM_MARK:
                if (item->event)
                        item->event->time_ns = clock_ns();
                break;
        case ITEM_FUNCTION:
                run_function(item);
                break;
        }
}

static void item_free(struct item *item) {
        event_unref(item->event);
        free(item->copy.staged);
        free(item);
}

static void *stream_run(void *data) {
        struct CUstream_st *stream = data;

        prctl(PR_SET_NAME, "fake-stream");
        thread.is_stream = true;
        pthread_mutex_lock(&runtime.lock);
        for (;;) {
                struct item *item = stream->first;

                if (!item && stream->gone)
                        break;
                if (!item) {
                        pthread_cond_wait(&runtime.changed, &runtime.lock);
                        continue;
                }
                if (!broken())
                        run_item(item);
                stream->first = item->next;
                if (!stream->first)
                        stream->last = &stream->first;
                stream->done = item->number;
                item_free(item);
                pthread_cond_broadcast(&runtime.changed);
        }
        stream->started = false;
        pthread_mutex_unlock(&runtime.lock);
        return NULL;
}

/* ---- queueing ---- */

static void stream_start(struct CUstream_st *stream) {
        pthread_attr_t attributes;
        sigset_t all, old;
        pthread_t id;

        sigfillset(&all);
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_sigmask(SIG_BLOCK, &all, &old);
        if (pthread_create(&id, &attributes, stream_run, stream) != 0)
                abort();
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        pthread_attr_destroy(&attributes);
        stream->started = true;
}

static struct item *queue_last(struct CUstream_st *stream, enum item_kind kind) {
        struct item *item = must_allocate(sizeof(*item));

        item->kind = kind;
        item->number = ++stream->queued;
        *stream->last = item;
        stream->last = &item->next;
        if (!stream->started)
                stream_start(stream);
        pthread_cond_broadcast(&runtime.changed);
        return item;
}

/* Behind what the default stream's rules put before it. */
struct item *queue(struct CUstream_st *stream, enum item_kind kind) {
        for (struct CUstream_st *other = streams; other; other = other->next) {
                if (other == stream || other->device != stream->device || other->done == other->queued)
                        continue;
                if ((stream->legacy && other->blocking) || (stream->blocking && other->legacy))
                        queue_last(stream, ITEM_WAIT)->point = point_of(other);
        }
        return queue_last(stream, kind);
}

void stream_wait(struct CUstream_st *stream) {
        struct point point;

        queue(stream, ITEM_MARK);
        point = point_of(stream);
        point_wait(&point);
}

void stream_drain(int device) {
        for (struct CUstream_st *stream = streams; stream; stream = stream->next) {
                struct point point = point_of(stream);

                if (device < 0 || stream->device == device)
                        point_wait(&point);
        }
}

unsigned stream_copies_of(const void *start, size_t bytes) {
        uintptr_t from = (uintptr_t)start, to = from + bytes;
        unsigned n = 0;

        for (struct CUstream_st *stream = streams; stream; stream = stream->next)
                for (struct item *item = stream->first; item; item = item->next) {
                        const struct copy *copy = &item->copy;

                        if (item->kind != ITEM_COPY || copy->staged)
                                continue;
                        n += ((uintptr_t)copy->from < to && (uintptr_t)copy->from + copy->bytes > from) ||
                             ((uintptr_t)copy->to < to && (uintptr_t)copy->to + copy->bytes > from);
                }
        return n;
}

/* ---- streams ---- */

static struct CUstream_st *stream_new(bool legacy, bool blocking) {
        struct CUstream_st *stream = must_allocate(sizeof(*stream));

        *stream = (struct CUstream_st){
                .next = streams, .device = thread.device, .legacy = legacy, .blocking = blocking};
        stream->last = &stream->first;
        streams = stream;
        return stream;
}

/* NULL and cudaStreamLegacy: the current device's default stream. NULL: no such stream. */
static struct CUstream_st *stream_find(cuda_stream handle) {
        struct device *device = &runtime.devices[thread.device];

        if (handle == NULL || handle == (cuda_stream)1) {
                if (!device->legacy)
                        device->legacy = stream_new(true, false);
                return device->legacy;
        }
        for (struct CUstream_st *stream = streams; stream; stream = stream->next)
                if (stream == handle && !stream->gone)
                        return stream;
        return NULL;
}

/* Does a stream capture that this one would have to wait for? */
static struct CUstream_st *stream_capturing_behind(const struct CUstream_st *stream) {
        for (struct CUstream_st *other = streams; other && stream->legacy; other = other->next)
                if (other->blocking && other->device == stream->device && other->capture != CAPTURE_NONE)
                        return other;
        return NULL;
}

/* The stream, for something to be queued in. What would be captured is not: there are no graphs here. */
cuda_error stream_for_work(cuda_stream handle, const char *call, struct CUstream_st **stream) {
        struct CUstream_st *capturing;

        *stream = stream_find(handle);
        if (!*stream) {
                violation("%s in the stream %p, which does not exist", call, (void *)handle);
                return FAKE_CUDA_INVALID_HANDLE;
        }
        capturing = stream_capturing_behind(*stream);
        if (!capturing && (*stream)->capture == CAPTURE_NONE)
                return CUDA_SUCCESS;
        violation("%s in the stream %p, while it is captured", call, (void *)handle);
        if (!capturing)
                return FAKE_CUDA_CAPTURE_UNSUPPORTED;
        capturing->capture = CAPTURE_INVALIDATED;
        return FAKE_CUDA_CAPTURE_IMPLICIT;
}

cuda_error run_cudaStreamCreateWithFlags(cuda_stream *stream, unsigned flags) {
        *stream = stream_new(false, !(flags & FAKE_CUDA_STREAM_NON_BLOCKING));
        runtime.figures.streams++;
        return CUDA_SUCCESS;
}

cuda_error run_cudaStreamCreate(cuda_stream *stream) {
        return run_cudaStreamCreateWithFlags(stream, 0);
}

/* What is queued still runs. */
cuda_error run_cudaStreamDestroy(cuda_stream handle) {
        struct CUstream_st *stream = stream_find(handle);

        if (!stream || stream->legacy) {
                violation("cudaStreamDestroy of %p, which is no stream", (void *)handle);
                return FAKE_CUDA_INVALID_HANDLE;
        }
        stream->gone = true;
        stream->capture = CAPTURE_NONE;
        runtime.figures.streams--;
        pthread_cond_broadcast(&runtime.changed);
        return CUDA_SUCCESS;
}

cuda_error run_cudaStreamQuery(cuda_stream handle) {
        struct CUstream_st *stream = stream_find(handle);

        if (!stream)
                return FAKE_CUDA_INVALID_HANDLE;
        return stream->done == stream->queued ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

cuda_error run_cudaStreamSynchronize(cuda_stream handle) {
        struct CUstream_st *stream;
        cuda_error error = stream_for_work(handle, "cudaStreamSynchronize", &stream);

        if (error)
                return error;
        stream_wait(stream);
        return broken();
}

cuda_error run_cudaLaunchHostFunc(cuda_stream handle, cuda_host_function function, void *data) {
        struct CUstream_st *stream;
        cuda_error error = stream_for_work(handle, "cudaLaunchHostFunc", &stream);
        struct item *item;

        if (error)
                return error;
        item = queue(stream, ITEM_FUNCTION);
        item->function = function;
        item->data = data;
        return CUDA_SUCCESS;
}

/* ---- capture: its state only ---- */

cuda_error run_cudaStreamBeginCapture(cuda_stream handle, int mode) {
        struct CUstream_st *stream = stream_find(handle);

        if (!stream)
                return FAKE_CUDA_INVALID_HANDLE;
        if (stream->legacy)
                return FAKE_CUDA_CAPTURE_UNSUPPORTED;
        if (stream->capture != CAPTURE_NONE || mode < FAKE_CUDA_CAPTURE_GLOBAL ||
            mode > FAKE_CUDA_CAPTURE_RELAXED)
                return FAKE_CUDA_INVALID_VALUE;
        stream->capture = CAPTURE_ACTIVE;
        stream->capture_mode = mode;
        stream->capturer = pthread_self();
        return CUDA_SUCCESS;
}

cuda_error run_cudaStreamEndCapture(cuda_stream handle, cuda_graph *graph) {
        struct CUstream_st *stream = stream_find(handle);
        bool spoilt;

        *graph = NULL;
        if (!stream)
                return FAKE_CUDA_INVALID_HANDLE;
        if (stream->capture == CAPTURE_NONE)
                return FAKE_CUDA_INVALID_VALUE;
        spoilt = stream->capture == CAPTURE_INVALIDATED;
        stream->capture = CAPTURE_NONE;
        return spoilt ? FAKE_CUDA_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

cuda_error run_cudaStreamIsCapturing(cuda_stream handle, int *status) {
        struct CUstream_st *stream = stream_find(handle);

        if (!stream)
                return FAKE_CUDA_INVALID_HANDLE;
        if (stream_capturing_behind(stream))
                return FAKE_CUDA_CAPTURE_IMPLICIT;
        *status = (int)stream->capture;
        return CUDA_SUCCESS;
}

/* Its own captures bind a thread that is not relaxed; those of others bind it when both are global. */
bool stream_spoils_capture(void) {
        bool spoils = false;

        for (struct CUstream_st *stream = streams; stream; stream = stream->next) {
                bool own = pthread_equal(stream->capturer, pthread_self());
                bool binding = own ? stream->capture_mode != FAKE_CUDA_CAPTURE_RELAXED
                                   : stream->capture_mode == FAKE_CUDA_CAPTURE_GLOBAL &&
                                               thread.capture_mode == FAKE_CUDA_CAPTURE_GLOBAL;

                if (stream->capture == CAPTURE_NONE || !binding ||
                    thread.capture_mode == FAKE_CUDA_CAPTURE_RELAXED)
                        continue;
                stream->capture = CAPTURE_INVALIDATED;
                spoils = true;
        }
        return spoils;
}
