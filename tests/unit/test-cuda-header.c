/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Our prototypes and constants of the CUDA runtime, and those of the fake one, against CUDA's own header. The
 * compiler does it: each call of the tables is declared once more with our parameters, in which the names of
 * our types stand for CUDA's, and a declaration that differs from the header's is an error; so is a constant
 * of another value. Where our type is another one (an enum is an int here), its size is compared. Built only
 * where the header is installed. */

#include <cuda_runtime_api.h>

#include "client/cuda.h"
#include "tests/support/fake-cudart-calls.h"
#include "tests/support/run.h"

#include <assert.h>
#include <check.h>
#include <stddef.h>
#include <stdio.h>

#define SAME_SIZE(ours, theirs)                                                                              \
        static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), #theirs)

SAME_SIZE(cuda_error, cudaError_t);
SAME_SIZE(cuda_attribute, enum cudaDeviceAttr);
SAME_SIZE(cuda_copy_kind, enum cudaMemcpyKind);
SAME_SIZE(cuda_capture_status, enum cudaStreamCaptureStatus);
SAME_SIZE(cuda_capture_mode, enum cudaStreamCaptureMode);

/* Never smaller than theirs, which has grown in 13. */
#define SAME_PLACE(ours, theirs)                                                                             \
        static_assert(offsetof(struct cuda_pointer_attributes, ours) ==                                      \
                                      offsetof(struct cudaPointerAttributes, theirs) &&                      \
                              sizeof(((struct cuda_pointer_attributes *)0)->ours) ==                         \
                                      sizeof(((struct cudaPointerAttributes *)0)->theirs),                   \
                      #theirs)

SAME_PLACE(type, type);
SAME_PLACE(device, device);
SAME_PLACE(device_pointer, devicePointer);
SAME_PLACE(host_pointer, hostPointer);
static_assert(sizeof(struct cuda_pointer_attributes) >= sizeof(struct cudaPointerAttributes), "it has grown");
static_assert(CUDART_VERSION < 13000 ||
                      sizeof(struct cuda_pointer_attributes) == sizeof(struct cudaPointerAttributes),
              "it has another size in 13");

#define SAME_VALUE(name, value, real) static_assert((int)(name) == (int)(real), #real);
CUDA_CONSTANTS(SAME_VALUE)
FAKE_CUDA_CONSTANTS(SAME_VALUE)

/* That the header has each of them at all. */
#define IS_THERE(name, parameters)                        static_assert(sizeof(&name) > 0, #name);
#define FAKED_IS_THERE(name, need, parameters, arguments) IS_THERE(name, parameters)
CUDA_CALLS(IS_THERE)
CUDA_WORDS(IS_THERE)
FAKE_CUDA_CALLS(FAKED_IS_THERE)

/* From here on our names are CUDA's types. */
#define cuda_error              cudaError_t
#define cuda_attribute          enum cudaDeviceAttr
#define cuda_copy_kind          enum cudaMemcpyKind
#define cuda_capture_status     enum cudaStreamCaptureStatus
#define cuda_capture_mode       enum cudaStreamCaptureMode
#define cuda_stream             cudaStream_t
#define cuda_event              cudaEvent_t
#define cuda_graph              cudaGraph_t
#define cuda_host_function      cudaHostFn_t
#define cuda_pointer_attributes cudaPointerAttributes

#define DECLARE_CALL(name, parameters)                  extern cudaError_t CUDARTAPI name parameters;
#define DECLARE_WORD(name, parameters)                  extern const char *CUDARTAPI name parameters;
#define DECLARE_FAKE(name, need, parameters, arguments) extern cudaError_t CUDARTAPI name parameters;
CUDA_CALLS(DECLARE_CALL)
CUDA_WORDS(DECLARE_WORD)
FAKE_CUDA_CALLS(DECLARE_FAKE)

START_TEST(the_header_agrees) {
        printf("# compared with CUDA %d.%d\n", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
        ck_assert_int_ge(CUDART_VERSION, 11000);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("cuda-header");
        TCase *tcase = tcase_create("header");

        tcase_add_test(tcase, the_header_agrees);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
