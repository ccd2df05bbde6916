#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Looking into a batch, from inside. */

#include <stdbool.h>
#include <stdint.h>

struct pinfeed_batch;

/* Whether it may be read: 0; -EINVAL: not of a living job, or not held; -ECHILD: of the parent's. */
int batch_check(const struct pinfeed_batch *batch);

/* The bytes of a segment in the part of its slot that starts at `offset` and has `row_bytes` a row. `rows`
 * may be NULL. */
const void *batch_locate(const struct pinfeed_batch *batch, uint32_t index, uint64_t offset,
                         uint64_t row_bytes, uint32_t *rows);

/* How many bytes a field of all its segments has. */
uint64_t batch_field_bytes(const struct pinfeed_batch *batch, uint32_t field);

/* Copies a field of all segments, in order. */
void batch_copy_field(const struct pinfeed_batch *batch, uint32_t field, void *to);
