/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A GPU of NVIDIA's, through the runtime that cuda.c has found.
 *
 * Only three of the calls make no context: cudaGetDeviceCount, cudaGetDevice and cudaDeviceGetAttribute. They
 * are what pinfeed_open makes; the others wait for the first batch, and for a thread on the right device.
 *
 * Any call may report the failure of an earlier one in place of doing its own work. Where that would do harm,
 * because nobody undoes later what it was to undo, or because a copy would be taken for finished, it is made
 * once more.
 *
 * A capture into a graph that is under way anywhere in the process forbids other threads most calls, even to
 * ask whether an event has been reached, and the capture is lost to whoever asks. A thread can declare that
 * its calls have nothing to do with captures (the relaxed mode): our own does so for good, another one for as
 * long as it does our work. */

#include "client/device.h"

#include "base/fault.h"
#include "base/number.h"
#include "client/cuda.h"

#include <errno.h>
#include <stdio.h>

/* ---- without a context ---- */

/* Which of `count` devices is meant. */
static int cuda_choose(const struct cuda *cuda, const char *text, int count, int *ordinal,
                       struct fault *fault) {
        uint64_t number;
        cuda_error error;

        if (!*text) {
                error = cuda->cudaGetDevice(ordinal);
                if (error == CUDA_SUCCESS)
                        return 0;
                cuda_fail(cuda, fault, "cudaGetDevice", error);
                return fault_prefix(fault, -ENODEV, "the current device is not known, name one");
        }
        if (number_parse_u64(text, &number) < 0)
                return fault_set(fault, -EINVAL, "device is 'cuda:%.64s', expected cuda or cuda:N", text);
        if (number >= (uint64_t)count)
                return fault_set(fault, -ENODEV,
                                 "there is no cuda:%.64s: this process sees %d device%s "
                                 "(CUDA_VISIBLE_DEVICES hides others)",
                                 text, count, count == 1 ? "" : "s");
        *ordinal = (int)number;
        return 0;
}

/* An attribute that cannot be had is not there. */
static bool cuda_has(const struct cuda *cuda, int attribute, int ordinal) {
        int value = 0;
        cuda_error error = cuda->cudaDeviceGetAttribute(&value, attribute, ordinal);

        if (error)
                cuda_fail(cuda, NULL, "cudaDeviceGetAttribute", error);
        return !error && value;
}

static int cuda_open(struct device *device, const char *text, const char *runtime, struct fault *fault) {
        const struct cuda *cuda = cuda_load(runtime, fault);
        cuda_error error;
        int count = 0, r;

        if (!cuda)
                return fault_prefix(fault, -ENODEV, "device cuda needs a CUDA runtime");
        error = cuda->cudaGetDeviceCount(&count);
        if (error) {
                cuda_fail(cuda, fault, "cudaGetDeviceCount", error);
                return fault_prefix(fault, -ENODEV, "%s finds no GPU", cuda->path);
        }
        r = cuda_choose(cuda, text, count, &device->ordinal, fault);
        if (r < 0)
                return r;
        device->cuda = cuda;
        device->registers_read_only = cuda_has(cuda, CUDA_ATTRIBUTE_REGISTER_READ_ONLY, device->ordinal);
        snprintf(device->name, sizeof(device->name), "cuda:%d", device->ordinal);
        return 0;
}

static int cuda_check_thread(const struct device *device, struct fault *fault) {
        int current;
        cuda_error error = device->cuda->cudaGetDevice(&current);

        if (error)
                return cuda_fail(device->cuda, fault, "cudaGetDevice", error);
        if (current == device->ordinal)
                return 0;
        return fault_set(fault, -EXDEV,
                         "the current device of this thread is cuda:%d, the job's is cuda:%d: call "
                         "cudaSetDevice(%d) in it first",
                         current, device->ordinal, device->ordinal);
}

/* ---- with one ---- */

static int cuda_set_capture_mode(const struct device *device, int mode, int *before, struct fault *fault) {
        cuda_error error = device->cuda->cudaThreadExchangeStreamCaptureMode(&mode);

        *before = mode;
        return error ? cuda_fail(device->cuda, fault, "cudaThreadExchangeStreamCaptureMode", error) : 0;
}

/* From CUDA 12 on cudaSetDevice makes the context, too. */
static int cuda_enter_thread(const struct device *device, struct fault *fault) {
        cuda_error error = device->cuda->cudaSetDevice(device->ordinal);
        int before;

        if (error)
                return cuda_fail(device->cuda, fault, "cudaSetDevice", error);
        return cuda_set_capture_mode(device, CUDA_CAPTURE_MODE_RELAXED, &before, fault);
}

static void cuda_leave_captures(const struct device *device, int *before) {
        if (cuda_set_capture_mode(device, CUDA_CAPTURE_MODE_RELAXED, before, NULL) < 0)
                *before = CUDA_CAPTURE_MODE_RELAXED; /* which it is not, but nothing is to be put back */
}

static void cuda_join_captures(const struct device *device, int before) {
        if (before != CUDA_CAPTURE_MODE_RELAXED)
                (void)cuda_set_capture_mode(device, before, &before, NULL);
}

static int cuda_pin(const struct device *device, void *start, size_t bytes, bool read_only,
                    struct fault *fault) {
        unsigned flags = CUDA_HOST_REGISTER_PORTABLE | (read_only ? CUDA_HOST_REGISTER_READ_ONLY : 0);
        cuda_error error = device->cuda->cudaHostRegister(start, bytes, flags);

        return error ? cuda_fail(device->cuda, fault, "cudaHostRegister", error) : 0;
}

static int cuda_unpin(const struct device *device, void *start, struct fault *fault) {
        cuda_error error = device->cuda->cudaHostUnregister(start);

        if (error)
                error = device->cuda->cudaHostUnregister(start);
        return error ? cuda_fail(device->cuda, fault, "cudaHostUnregister", error) : 0;
}

static int cuda_allocate(const struct device *device, void **start, size_t bytes, struct fault *fault) {
        cuda_error error = device->cuda->cudaHostAlloc(start, bytes, CUDA_HOST_ALLOC_PORTABLE);

        return error ? cuda_fail(device->cuda, fault, "cudaHostAlloc", error) : 0;
}

static void cuda_free(const struct device *device, void *start) {
        cuda_error error = device->cuda->cudaFreeHost(start);

        if (error)
                error = device->cuda->cudaFreeHost(start);
        if (error)
                cuda_fail(device->cuda, NULL, "cudaFreeHost", error);
}

static int cuda_check_stream(const struct device *device, void *stream, struct fault *fault) {
        int status = CUDA_CAPTURE_NONE;
        cuda_error error = device->cuda->cudaStreamIsCapturing(stream, &status);

        if (error && error != CUDA_ERROR_CAPTURE_IMPLICIT)
                return cuda_fail(device->cuda, fault, "cudaStreamIsCapturing", error);
        if (error)
                cuda_fail(device->cuda, NULL, "cudaStreamIsCapturing", error);
        else if (status == CUDA_CAPTURE_NONE)
                return 0;
        return fault_set(fault, -EBUSY,
                         "the stream is being captured into a graph, which would copy from the slot again "
                         "when other rows lie in it: copy outside of the capture");
}

static int cuda_copy(const struct device *device, void *to, const void *from, size_t bytes, void *stream,
                     struct fault *fault) {
        cuda_error error = device->cuda->cudaMemcpyAsync(to, from, bytes, CUDA_MEMCPY_HOST_TO_DEVICE, stream);

        return error ? cuda_fail(device->cuda, fault, "cudaMemcpyAsync", error) : 0;
}

static int cuda_mark_new(const struct device *device, device_mark *mark, struct fault *fault) {
        cuda_event event;
        cuda_error error = device->cuda->cudaEventCreateWithFlags(&event, CUDA_EVENT_DISABLE_TIMING);

        if (error)
                return cuda_fail(device->cuda, fault, "cudaEventCreateWithFlags", error);
        *mark = event;
        return 0;
}

static int cuda_mark(const struct device *device, device_mark mark, void *stream, struct fault *fault) {
        cuda_error error = device->cuda->cudaEventRecord(mark, stream);

        return error ? cuda_fail(device->cuda, fault, "cudaEventRecord", error) : 0;
}

/* Some runtimes remember even that an event was not ready as the thread's last error. */
static int cuda_reached(const struct device *device, device_mark mark, struct fault *fault) {
        cuda_error error = device->cuda->cudaEventQuery(mark);

        if (error != CUDA_SUCCESS && error != CUDA_ERROR_NOT_READY)
                error = device->cuda->cudaEventQuery(mark);
        if (error == CUDA_SUCCESS)
                return 1;
        if (error != CUDA_ERROR_NOT_READY)
                return cuda_fail(device->cuda, fault, "cudaEventQuery", error);
        (void)device->cuda->cudaGetLastError();
        return 0;
}

static void cuda_mark_free(const struct device *device, device_mark mark) {
        cuda_error error = device->cuda->cudaEventDestroy(mark);

        if (error)
                error = device->cuda->cudaEventDestroy(mark);
        if (error)
                cuda_fail(device->cuda, NULL, "cudaEventDestroy", error);
}

const struct device_backend device_cuda = {
        .name = "cuda",
        .open = cuda_open,
        .enter_thread = cuda_enter_thread,
        .check_thread = cuda_check_thread,
        .leave_captures = cuda_leave_captures,
        .join_captures = cuda_join_captures,
        .pin = cuda_pin,
        .unpin = cuda_unpin,
        .allocate = cuda_allocate,
        .free = cuda_free,
        .check_stream = cuda_check_stream,
        .copy = cuda_copy,
        .mark_new = cuda_mark_new,
        .mark = cuda_mark,
        .reached = cuda_reached,
        .mark_free = cuda_mark_free,
};
