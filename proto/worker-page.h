#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The page on which a worker says what it is doing; it alone writes it, the daemon reads it. */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
        WORKER_PAGE_BYTES = 4096,
};

#define WORKER_PAGE_IDLE UINT64_MAX

/* Order of the stores: epoch, row and started_ns relaxed, then `sample` with release; a reader loads `sample`
 * with acquire first. After the worker is dead everything it wrote is there anyway. */
struct worker_page {
        _Atomic uint64_t sample; /* sample number in work, or WORKER_PAGE_IDLE */
        _Atomic uint64_t epoch;
        _Atomic uint64_t row;
        _Atomic uint64_t started_ns; /* clock_ns() at the start of this sample */
        _Atomic uint64_t rows_done;  /* since the worker started; only grows */
        _Atomic uint64_t cpu_ns;     /* CPU time of the worker at the end of its last chunk; only grows */
};

_Static_assert(offsetof(struct worker_page, cpu_ns) == 40, "shared by two processes");
_Static_assert(sizeof(struct worker_page) <= WORKER_PAGE_BYTES, "one page");
