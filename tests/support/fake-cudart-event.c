/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Events of the fake CUDA runtime: the point of a stream at which one was last recorded, see
 * fake-cudart-stream.c, and the time when the stream got there. An event that is destroyed before that is
 * kept until then. */

#include "tests/support/fake-cudart-internal.h"

#include "base/clock.h"

#include <stdlib.h>

static struct CUevent_st *events;

void event_unref(struct CUevent_st *event) {
        if (event && --event->users == 0)
                free(event);
}

static struct CUevent_st *event_find(cuda_event handle, const char *call) {
        for (struct CUevent_st *event = events; event; event = event->next)
                if (event == handle)
                        return event;
        violation("%s of %p, which is no event", call, (void *)handle);
        return NULL;
}

cuda_error run_cudaEventCreateWithFlags(cuda_event *event, unsigned flags) {
        *event = must_allocate(sizeof(**event));
        **event = (struct CUevent_st){.next = events, .device = thread.device, .flags = flags, .users = 1};
        events = *event;
        runtime.figures.events++;
        return CUDA_SUCCESS;
}

cuda_error run_cudaEventCreate(cuda_event *event) {
        return run_cudaEventCreateWithFlags(event, 0);
}

cuda_error run_cudaEventRecord(cuda_event handle, cuda_stream in) {
        struct CUevent_st *event = event_find(handle, "cudaEventRecord");
        struct CUstream_st *stream;
        cuda_error error;

        if (!event)
                return FAKE_CUDA_INVALID_HANDLE;
        error = stream_for_work(in, "cudaEventRecord", &stream);
        if (error)
                return error;
        if (stream->device != event->device) {
                violation("cudaEventRecord of an event of device %d in a stream of device %d", event->device,
                          stream->device);
                return FAKE_CUDA_INVALID_HANDLE;
        }
        queue(stream, ITEM_MARK)->event = event;
        event->users++;
        event->point = point_of(stream);
        return CUDA_SUCCESS;
}

cuda_error run_cudaEventQuery(cuda_event handle) {
        struct CUevent_st *event = event_find(handle, "cudaEventQuery");

        if (!event)
                return FAKE_CUDA_INVALID_HANDLE;
        return point_reached(&event->point) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

cuda_error run_cudaEventSynchronize(cuda_event handle) {
        struct CUevent_st *event = event_find(handle, "cudaEventSynchronize");

        if (!event)
                return FAKE_CUDA_INVALID_HANDLE;
        point_wait(&(struct point){.stream = event->point.stream, .number = event->point.number});
        return broken();
}

cuda_error run_cudaStreamWaitEvent(cuda_stream handle, cuda_event of, unsigned flags) {
        struct CUevent_st *event = event_find(of, "cudaStreamWaitEvent");
        struct CUstream_st *stream;
        cuda_error error;

        if (!event)
                return FAKE_CUDA_INVALID_HANDLE;
        error = stream_for_work(handle, "cudaStreamWaitEvent", &stream);
        if (!error)
                queue(stream, ITEM_WAIT)->point = event->point;
        return error;
}

cuda_error run_cudaEventElapsedTime(float *ms, cuda_event from, cuda_event to) {
        struct CUevent_st *start = event_find(from, "cudaEventElapsedTime");
        struct CUevent_st *end = event_find(to, "cudaEventElapsedTime");

        if (!start || !end || (start->flags | end->flags) & CUDA_EVENT_DISABLE_TIMING ||
            !start->point.stream || !end->point.stream)
                return FAKE_CUDA_INVALID_HANDLE;
        if (!point_reached(&start->point) || !point_reached(&end->point))
                return CUDA_ERROR_NOT_READY;
        *ms = (float)((double)(int64_t)(end->time_ns - start->time_ns) / (double)NS_PER_MS);
        return CUDA_SUCCESS;
}

cuda_error run_cudaEventDestroy(cuda_event handle) {
        struct CUevent_st *event = event_find(handle, "cudaEventDestroy"), **link = &events;

        if (!event)
                return FAKE_CUDA_INVALID_HANDLE;
        while (*link != event)
                link = &(*link)->next;
        *link = event->next;
        event_unref(event);
        runtime.figures.events--;
        return CUDA_SUCCESS;
}
