#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A set of sample numbers. */

#include <stddef.h>
#include <stdint.h>

enum sample_set_error {
        SAMPLE_SET_E_KNOWN = 1, /* it was there already */
};

/* Starts zeroed. */
struct sample_set {
        uint64_t *places; /* a sample's number + 1; 0: free */
        size_t capacity;  /* 0, or a power of two */
        size_t count;
};

void sample_set_deinit(struct sample_set *set);

/* 0, SAMPLE_SET_E_KNOWN or -ENOMEM. `sample` < UINT64_MAX. */
int sample_set_add(struct sample_set *set, uint64_t sample);
int sample_set_has(const struct sample_set *set, uint64_t sample);

/* Forgets all of them and keeps the memory. */
void sample_set_clear(struct sample_set *set);
