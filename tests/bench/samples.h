#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Times of a benchmark: sorted for a median and a 99th percentile. */

#include <stdint.h>
#include <stdlib.h>

static inline int samples_compare(const void *a, const void *b) {
        uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

        return (left > right) - (left < right);
}

static inline void samples_sort(uint64_t *samples, size_t n) {
        qsort(samples, n, sizeof(*samples), samples_compare);
}

/* Of sorted nanoseconds, in microseconds. */
static inline double samples_quantile_us(const uint64_t *samples, size_t n, double q) {
        return n ? (double)samples[(size_t)(q * (double)(n - 1))] / 1000.0 : 0;
}
