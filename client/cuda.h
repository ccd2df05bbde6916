#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The CUDA runtime as far as libpinfeed uses it. It is never linked: one binary serves machines with and
 * without a GPU. These prototypes are our own, so that no CUDA has to be there to build; where it is,
 * tests/unit/test-cuda-header.c compares each with cuda_runtime_api.h. All of them exist unchanged from 11.0
 * to 13. */

#include <stddef.h>

struct CUevent_st;
struct CUstream_st;
struct fault;

typedef struct CUevent_st *cuda_event;
typedef struct CUstream_st *cuda_stream;

/* Enums there. */
typedef unsigned cuda_error;
typedef int cuda_attribute;
typedef int cuda_copy_kind;
typedef int cuda_capture_status;
typedef int cuda_capture_mode;

/* C(name, value, its name there). */
#define CUDA_CONSTANTS(C)                                                                                    \
        C(CUDA_SUCCESS, 0, cudaSuccess)                                                                      \
        C(CUDA_ERROR_NOT_READY, 600, cudaErrorNotReady)                                                      \
        C(CUDA_ERROR_CAPTURE_IMPLICIT, 906, cudaErrorStreamCaptureImplicit) /* the legacy stream's */        \
        C(CUDA_HOST_REGISTER_PORTABLE, 1, cudaHostRegisterPortable) /* page-locked for all contexts */       \
        C(CUDA_HOST_REGISTER_READ_ONLY, 8, cudaHostRegisterReadOnly)                                         \
        C(CUDA_HOST_ALLOC_PORTABLE, 1, cudaHostAllocPortable)                                                \
        C(CUDA_EVENT_DISABLE_TIMING, 2, cudaEventDisableTiming)                                              \
        C(CUDA_MEMCPY_HOST_TO_DEVICE, 1, cudaMemcpyHostToDevice)                                             \
        C(CUDA_ATTRIBUTE_REGISTER_READ_ONLY, 113, cudaDevAttrHostRegisterReadOnlySupported)                  \
        C(CUDA_CAPTURE_NONE, 0, cudaStreamCaptureStatusNone)                                                 \
        C(CUDA_CAPTURE_MODE_RELAXED, 2, cudaStreamCaptureModeRelaxed)

#define CUDA_DECLARE_CONSTANT(name, value, real) name = (value),
enum {
        CUDA_CONSTANTS(CUDA_DECLARE_CONSTANT)
};
#undef CUDA_DECLARE_CONSTANT

/* C(name, parameters): all return cuda_error.
 *
 * A thread that polls events while another one captures a graph would spoil the capture, unless it has asked
 * cudaThreadExchangeStreamCaptureMode to mind its own captures only. */
#define CUDA_CALLS(C)                                                                                        \
        C(cudaRuntimeGetVersion, (int *version))                                                             \
        C(cudaDriverGetVersion, (int *version))                                                              \
        C(cudaGetDeviceCount, (int *count))                                                                  \
        C(cudaGetDevice, (int *device))                                                                      \
        C(cudaSetDevice, (int device))                                                                       \
        C(cudaDeviceGetAttribute, (int *value, cuda_attribute attribute, int device))                        \
        C(cudaGetLastError, (void))                                                                          \
        C(cudaHostRegister, (void *start, size_t bytes, unsigned flags))                                     \
        C(cudaHostUnregister, (void *start))                                                                 \
        C(cudaHostAlloc, (void **start, size_t bytes, unsigned flags))                                       \
        C(cudaFreeHost, (void *start))                                                                       \
        C(cudaMemcpyAsync,                                                                                   \
          (void *to, const void *from, size_t bytes, cuda_copy_kind kind, cuda_stream stream))               \
        C(cudaStreamIsCapturing, (cuda_stream stream, cuda_capture_status * status))                         \
        C(cudaThreadExchangeStreamCaptureMode, (cuda_capture_mode * mode))                                   \
        C(cudaEventCreateWithFlags, (cuda_event * event, unsigned flags))                                    \
        C(cudaEventRecord, (cuda_event event, cuda_stream stream))                                           \
        C(cudaEventQuery, (cuda_event event))                                                                \
        C(cudaEventSynchronize, (cuda_event event))                                                          \
        C(cudaEventDestroy, (cuda_event event))

/* The two that return text. */
#define CUDA_WORDS(C)                                                                                        \
        C(cudaGetErrorName, (cuda_error error))                                                              \
        C(cudaGetErrorString, (cuda_error error))

#define CUDA_DECLARE_CALL(name, parameters) cuda_error(*name) parameters;
#define CUDA_DECLARE_WORD(name, parameters) const char *(*name)parameters;

struct cuda {
        CUDA_CALLS(CUDA_DECLARE_CALL)
        CUDA_WORDS(CUDA_DECLARE_WORD)
        int version;    /* of the runtime, 13000 for 13.0 */
        char path[256]; /* where it was found, for people */
};

#undef CUDA_DECLARE_CALL
#undef CUDA_DECLARE_WORD

/* The runtime of this process: the copy that the process has already (13, 12, 11.0), else PINFEED_LIBCUDART,
 * else `given` (may be NULL), else the usual names, else where Python wheels keep it. It makes no context and
 * asks for no device. Once found it stays, whatever is given later, and is never unloaded. NULL, and in
 * `fault` each place that was tried and what was wrong there; the next call looks again, since the process
 * may have loaded one in between. From any thread. */
const struct cuda *cuda_load(const char *given, struct fault *fault);

/* "cudaHostRegister failed: cudaErrorMemoryAllocation (2), out of memory". The error is taken out of the
 * runtime's memory, so that no later call of the user's meets it. -EIO. */
int cuda_fail(const struct cuda *cuda, struct fault *fault, const char *call, cuda_error error);
