#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A CUDA runtime without a GPU, for tests: libcudart-fake.so. Streams are threads that do what was queued
 * later and in order; device memory cannot be touched by the host; what a real runtime would leave to chance
 * is checked, and recorded as a *violation*.
 *
 * A test program links it and names it in PINFEED_LIBCUDART, so that libpinfeed meets the same copy; another
 * program gets it by PINFEED_LIBCUDART, or as libcudart.so.13 in LD_LIBRARY_PATH, and is told by
 * $PINFEED_FAKE_CUDA what fake_cuda_set would tell it:
 *
 *     PINFEED_FAKE_CUDA="devices=2 delay_us=500 fail=cudaHostRegister:3:2 report=/tmp/report"
 *
 * `report` names a file to which each process appends one line of JSON when it exits. */

#include "tests/support/fake-cudart-calls.h"

#include <stddef.h>
#include <stdint.h>

/* F(name): what is counted, over all devices and threads. */
#define FAKE_CUDA_FIGURES(F)                                                                                 \
        F(contexts)                                                                                          \
        F(registrations)      /* now */                                                                      \
        F(registrations_most) /* at one time */                                                              \
        F(registrations_made)                                                                                \
        F(registered_bytes) /* now */                                                                        \
        F(registered_bytes_most)                                                                             \
        F(host_allocations) /* now, by cudaHostAlloc */                                                      \
        F(device_allocations)                                                                                \
        F(device_bytes)                                                                                      \
        F(streams)                                                                                           \
        F(events)                                                                                            \
        F(copies_queued)                                                                                     \
        F(copies_begun) /* or done */                                                                        \
        F(copies_done)                                                                                       \
        F(bytes_done)                                                                                        \
        F(pageable) /* copies whose source was not page-locked, staged by the runtime */                     \
        F(pageable_bytes)

#define FAKE_CUDA_DECLARE_FIGURE(name) uint64_t name;

struct fake_cuda_figures {
        FAKE_CUDA_FIGURES(FAKE_CUDA_DECLARE_FIGURE)
};

#undef FAKE_CUDA_DECLARE_FIGURE

#pragma GCC visibility push(default)

#define FAKE_CUDA_DECLARE_CALL(name, need, parameters, arguments) cuda_error name parameters;
FAKE_CUDA_CALLS(FAKE_CUDA_DECLARE_CALL)
#undef FAKE_CUDA_DECLARE_CALL

const char *cudaGetErrorName(cuda_error error);
const char *cudaGetErrorString(cuda_error error);

/* Words like those in $PINFEED_FAKE_CUDA. One that is not understood ends the program, with its name.
 *
 *     devices=N             (1) at most 8
 *     version=V             (13000) the runtime's
 *     driver=V              (as version) 0: there is none
 *     read_only=0|1         (0) attribute 113
 *     memory=B              (16G) of each device
 *     delay_us=N            (0) that a copy takes at least
 *     register_us=N         (0) that a registration takes
 *     register_max=B        one registration's bytes; beyond these three: out of memory
 *     registered_max=B      those of all
 *     registrations_max=N
 *     across=0|1            (0) a copy may go across the border of two registrations
 *     hash=B                (1M) what is larger is compared by samples
 *     sticky=CODE           (0) the context is dead: every later call says so
 *     abort=0|1             (0) a violation ends the program
 *     report=PATH
 *     fail=NAME:FROM:CODE[:TIMES[:sticky]]
 *
 * `fail`: from its FROM-th time on, counted from now, the call NAME fails with CODE, for ever or TIMES times;
 * `sticky`: and all calls after it. The name `execute` is a copy when it runs, which then kills the context.
 * Several may be given; fail=none takes all back. */
void fake_cuda_set(const char *settings);

/* No copy begins to run, until `copies` have been let through, or all. */
void fake_cuda_hold(void);
void fake_cuda_let(unsigned copies);
void fake_cuda_go(void);

void fake_cuda_read(struct fake_cuda_figures *figures);
/* How often `call` was called by the thread of that name when it made its first call; NULL: by any. A call
 * NULL: all calls. */
uint64_t fake_cuda_calls(const char *call, const char *thread);
/* The call that made the device's context, or NULL: it has none. */
const char *fake_cuda_context(int device);

/* The i-th violation of this process and its forked children, or NULL. */
const char *fake_cuda_violation(unsigned i);
/* Notes what was not undone as violations, too, as the end of the process does. The number of all. */
unsigned fake_cuda_finish(void);

/* Where the host can see what device memory holds, for tests that look without a call. */
const void *fake_cuda_see(const void *device_pointer);

/* The line of the report, cut to `size`. Its whole length. */
size_t fake_cuda_report(char *text, size_t size);

#pragma GCC visibility pop
