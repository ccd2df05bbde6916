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

/* cudaError_t, an enum, so an unsigned int. */
typedef unsigned cuda_error;

enum {
        CUDA_SUCCESS = 0,
        CUDA_ERROR_NOT_READY = 600,

        CUDA_HOST_REGISTER_PORTABLE = 0x01, /* page-locked for all contexts */
        CUDA_HOST_REGISTER_READ_ONLY = 0x08,
        CUDA_HOST_ALLOC_PORTABLE = 0x01,
        CUDA_EVENT_DISABLE_TIMING = 0x02,
        CUDA_MEMCPY_HOST_TO_DEVICE = 1,
        CUDA_ATTRIBUTE_REGISTER_READ_ONLY = 113, /* cudaDevAttrHostRegisterReadOnlySupported */
        CUDA_CAPTURE_NONE = 0,
};

/* C(name, parameters): all return cuda_error. */
#define CUDA_CALLS(C)                                                                                        \
        C(cudaRuntimeGetVersion, (int *version))                                                             \
        C(cudaDriverGetVersion, (int *version))                                                              \
        C(cudaGetDeviceCount, (int *count))                                                                  \
        C(cudaGetDevice, (int *device))                                                                      \
        C(cudaSetDevice, (int device))                                                                       \
        C(cudaDeviceGetAttribute, (int *value, int attribute, int device))                                   \
        C(cudaGetLastError, (void))                                                                          \
        C(cudaHostRegister, (void *start, size_t bytes, unsigned flags))                                     \
        C(cudaHostUnregister, (void *start))                                                                 \
        C(cudaHostAlloc, (void **start, size_t bytes, unsigned flags))                                       \
        C(cudaFreeHost, (void *start))                                                                       \
        C(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, cuda_stream stream))         \
        C(cudaStreamIsCapturing, (cuda_stream stream, int *status))                                          \
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

/* The runtime of this process, loaded once and never unloaded: the copy that the process has already (13, 12,
 * 11.0), else PINFEED_LIBCUDART, else `given` (may be NULL), else the usual names, else where Python wheels
 * keep it. It makes no context and asks for no device. NULL, with each place that was tried and what was
 * wrong there in `fault`: then no later call finds one that was not named before either. From any thread. */
const struct cuda *cuda_load(const char *given, struct fault *fault);

/* "cudaHostRegister failed: cudaErrorMemoryAllocation (2), out of memory". The error is taken out of the
 * runtime's memory, so that no later call of the user's meets it. -EIO. */
int cuda_fail(const struct cuda *cuda, struct fault *fault, const char *call, cuda_error error);
