#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A client of the fake CUDA runtime, for the tests of that. */

#include "tests/support/fake-cudart.h"

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum {
        PAGE = 4096,
        BYTES = 16 * PAGE,
        LARGE = 4 << 20,
};

#define ok(call)            ck_assert_uint_eq(call, CUDA_SUCCESS)
#define fails(call, expect) ck_assert_uint_eq(call, expect)

/* The only violation so far says this. */
static inline void expect_violation(const char *words) {
        const char *text = fake_cuda_violation(0);

        ck_assert_msg(text && strstr(text, words), "\"%s\" instead of \"%s\"", text ? text : "nothing",
                      words);
        ck_assert_ptr_null(fake_cuda_violation(1));
}

static inline void expect_none(void) {
        unsigned n = fake_cuda_finish();

        ck_assert_msg(n == 0, "%u: %s", n, n > 0 ? fake_cuda_violation(0) : "");
}

static inline struct fake_cuda_figures figures(void) {
        struct fake_cuda_figures now;

        fake_cuda_read(&now);
        return now;
}

/* Memory and a stream, as a client has them. */
static uint8_t *host, *device;
static cuda_stream stream;

static inline void *map(size_t bytes, int protection, int flags) {
        void *p = mmap(NULL, bytes, protection, flags | MAP_ANONYMOUS, -1, 0);

        ck_assert_ptr_ne(p, MAP_FAILED);
        return p;
}

static inline void make_pageable(size_t bytes) {
        host = map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
        memset(host, 1, bytes);
        ok(cudaMalloc((void **)&device, bytes));
        ok(cudaStreamCreateWithFlags(&stream, FAKE_CUDA_STREAM_NON_BLOCKING));
}

static inline void make(size_t bytes) {
        make_pageable(bytes);
        ok(cudaHostRegister(host, bytes, CUDA_HOST_REGISTER_PORTABLE));
}

static inline cuda_error copy(size_t bytes) {
        return cudaMemcpyAsync(device, host, bytes, CUDA_MEMCPY_HOST_TO_DEVICE, stream);
}

static inline void unmake(void) {
        ok(cudaStreamDestroy(stream));
        ok(cudaFree(device));
}

static inline bool device_holds(uint8_t value, size_t bytes) {
        const uint8_t *seen = fake_cuda_see(device);

        ck_assert_ptr_nonnull(seen);
        for (size_t i = 0; i < bytes; i++)
                if (seen[i] != value)
                        return false;
        return true;
}
