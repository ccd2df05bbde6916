#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the fake CUDA runtime has in common with the real one, in tables: constants, and every call.
 * Prototypes, entry points, names, counters and what tests/unit/test-cuda-header.c compares with the real
 * header come from here. */

#include "client/cuda.h"

#include <stddef.h>

typedef void (*cuda_host_function)(void *data);
typedef struct CUgraph_st *cuda_graph;

/* As large as in the newest version; before 13 it ended with `host`. */
struct cuda_pointer_attributes {
        unsigned type;
        int device;
        void *device_pointer;
        void *host_pointer;
        long reserved[8];
};

/* C(name, value, its name there): what tests ask for or expect. */
#define FAKE_CUDA_CONSTANTS(C)                                                                               \
        C(FAKE_CUDA_INVALID_VALUE, 1, cudaErrorInvalidValue)                                                 \
        C(FAKE_CUDA_OUT_OF_MEMORY, 2, cudaErrorMemoryAllocation)                                             \
        C(FAKE_CUDA_NOT_INITIALIZED, 3, cudaErrorInitializationError)                                        \
        C(FAKE_CUDA_INSUFFICIENT_DRIVER, 35, cudaErrorInsufficientDriver)                                    \
        C(FAKE_CUDA_NO_DEVICE, 100, cudaErrorNoDevice)                                                       \
        C(FAKE_CUDA_INVALID_DEVICE, 101, cudaErrorInvalidDevice)                                             \
        C(FAKE_CUDA_INVALID_HANDLE, 400, cudaErrorInvalidResourceHandle)                                     \
        C(FAKE_CUDA_ILLEGAL_ADDRESS, 700, cudaErrorIllegalAddress)                                           \
        C(FAKE_CUDA_ALREADY_REGISTERED, 712, cudaErrorHostMemoryAlreadyRegistered)                           \
        C(FAKE_CUDA_NOT_REGISTERED, 713, cudaErrorHostMemoryNotRegistered)                                   \
        C(FAKE_CUDA_LAUNCH_FAILURE, 719, cudaErrorLaunchFailure)                                             \
        C(FAKE_CUDA_NOT_PERMITTED, 800, cudaErrorNotPermitted)                                               \
        C(FAKE_CUDA_NOT_SUPPORTED, 801, cudaErrorNotSupported)                                               \
        C(FAKE_CUDA_CAPTURE_UNSUPPORTED, 900, cudaErrorStreamCaptureUnsupported)                             \
        C(FAKE_CUDA_CAPTURE_INVALIDATED, 901, cudaErrorStreamCaptureInvalidated)                             \
        C(FAKE_CUDA_CAPTURE_IMPLICIT, 906, cudaErrorStreamCaptureImplicit)                                   \
        C(FAKE_CUDA_HOST_TO_HOST, 0, cudaMemcpyHostToHost)                                                   \
        C(FAKE_CUDA_DEVICE_TO_HOST, 2, cudaMemcpyDeviceToHost)                                               \
        C(FAKE_CUDA_DEVICE_TO_DEVICE, 3, cudaMemcpyDeviceToDevice)                                           \
        C(FAKE_CUDA_BY_ADDRESS, 4, cudaMemcpyDefault)                                                        \
        C(FAKE_CUDA_STREAM_NON_BLOCKING, 1, cudaStreamNonBlocking)                                           \
        C(FAKE_CUDA_CAPTURE_GLOBAL, 0, cudaStreamCaptureModeGlobal)                                          \
        C(FAKE_CUDA_CAPTURE_THREAD_LOCAL, 1, cudaStreamCaptureModeThreadLocal)                               \
        C(FAKE_CUDA_CAPTURE_RELAXED, 2, cudaStreamCaptureModeRelaxed)                                        \
        C(FAKE_CUDA_MEMORY_HOST, 1, cudaMemoryTypeHost)                                                      \
        C(FAKE_CUDA_MEMORY_DEVICE, 2, cudaMemoryTypeDevice)

#define FAKE_CUDA_DECLARE_CONSTANT(name, value, real) name = (value),
enum {
        FAKE_CUDA_CONSTANTS(FAKE_CUDA_DECLARE_CONSTANT)
};
#undef FAKE_CUDA_DECLARE_CONSTANT

/* C(name, need, parameters, arguments). What a call needs, and by that makes:
 *   NOTHING  works without a driver
 *   DRIVER   a driver and a device, no context
 *   CONTEXT  a context on the calling thread's current device, which comes into being if there was none
 *   UNSAFE   the same, and refused while a stream is being captured: see cudaThreadExchangeStreamCaptureMode
 * The real runtime promises less about contexts; whatever it does not exclude happens here. */
#define FAKE_CUDA_CALLS(C)                                                                                   \
        C(cudaRuntimeGetVersion, NOTHING, (int *version), (version))                                         \
        C(cudaDriverGetVersion, NOTHING, (int *version), (version))                                          \
        C(cudaGetLastError, NOTHING, (void), ())                                                             \
        C(cudaPeekAtLastError, NOTHING, (void), ())                                                          \
        C(cudaGetDeviceCount, DRIVER, (int *count), (count))                                                 \
        C(cudaGetDevice, DRIVER, (int *device), (device))                                                    \
        C(cudaSetDevice, DRIVER, (int device), (device))                                                     \
        C(cudaDeviceGetAttribute, DRIVER, (int *value, cuda_attribute attribute, int device),                \
          (value, attribute, device))                                                                        \
        C(cudaDeviceSynchronize, UNSAFE, (void), ())                                                         \
        C(cudaMemGetInfo, CONTEXT, (size_t * unused, size_t * total), (unused, total))                       \
        C(cudaMalloc, UNSAFE, (void **start, size_t bytes), (start, bytes))                                  \
        C(cudaFree, UNSAFE, (void *start), (start))                                                          \
        C(cudaHostRegister, UNSAFE, (void *start, size_t bytes, unsigned flags), (start, bytes, flags))      \
        C(cudaHostUnregister, UNSAFE, (void *start), (start))                                                \
        C(cudaHostAlloc, UNSAFE, (void **start, size_t bytes, unsigned flags), (start, bytes, flags))        \
        C(cudaFreeHost, UNSAFE, (void *start), (start))                                                      \
        C(cudaPointerGetAttributes, CONTEXT,                                                                 \
          (struct cuda_pointer_attributes * attributes, const void *pointer), (attributes, pointer))         \
        C(cudaMemcpy, UNSAFE, (void *to, const void *from, size_t bytes, cuda_copy_kind kind),               \
          (to, from, bytes, kind))                                                                           \
        C(cudaMemcpyAsync, CONTEXT,                                                                          \
          (void *to, const void *from, size_t bytes, cuda_copy_kind kind, cuda_stream stream),               \
          (to, from, bytes, kind, stream))                                                                   \
        C(cudaMemsetAsync, CONTEXT, (void *start, int value, size_t bytes, cuda_stream stream),              \
          (start, value, bytes, stream))                                                                     \
        C(cudaStreamCreate, CONTEXT, (cuda_stream * stream), (stream))                                       \
        C(cudaStreamCreateWithFlags, CONTEXT, (cuda_stream * stream, unsigned flags), (stream, flags))       \
        C(cudaStreamDestroy, CONTEXT, (cuda_stream stream), (stream))                                        \
        C(cudaStreamQuery, UNSAFE, (cuda_stream stream), (stream))                                           \
        C(cudaStreamSynchronize, UNSAFE, (cuda_stream stream), (stream))                                     \
        C(cudaStreamWaitEvent, CONTEXT, (cuda_stream stream, cuda_event event, unsigned flags),              \
          (stream, event, flags))                                                                            \
        C(cudaLaunchHostFunc, CONTEXT, (cuda_stream stream, cuda_host_function function, void *data),        \
          (stream, function, data))                                                                          \
        C(cudaStreamBeginCapture, CONTEXT, (cuda_stream stream, cuda_capture_mode mode), (stream, mode))     \
        C(cudaStreamEndCapture, CONTEXT, (cuda_stream stream, cuda_graph * graph), (stream, graph))          \
        C(cudaStreamIsCapturing, CONTEXT, (cuda_stream stream, cuda_capture_status * status),                \
          (stream, status))                                                                                  \
        C(cudaThreadExchangeStreamCaptureMode, CONTEXT, (cuda_capture_mode * mode), (mode))                  \
        C(cudaEventCreate, CONTEXT, (cuda_event * event), (event))                                           \
        C(cudaEventCreateWithFlags, CONTEXT, (cuda_event * event, unsigned flags), (event, flags))           \
        C(cudaEventRecord, CONTEXT, (cuda_event event, cuda_stream stream), (event, stream))                 \
        C(cudaEventQuery, UNSAFE, (cuda_event event), (event))                                               \
        C(cudaEventSynchronize, UNSAFE, (cuda_event event), (event))                                         \
        C(cudaEventElapsedTime, CONTEXT, (float *ms, cuda_event start, cuda_event end), (ms, start, end))    \
        C(cudaEventDestroy, CONTEXT, (cuda_event event), (event))
