#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a worker writes on its page, in the order that proto/worker-page.h promises. `page` may be NULL. */

#include <stdbool.h>
#include <stdint.h>

struct worker_page;

void progress_init(struct worker_page *page);

/* Before anything is done for the chunk with this ordinal, also for one that is declined. False: the daemon
 * has taken it back, nothing of it may be written. */
bool progress_may_begin(struct worker_page *page, uint64_t ordinal);

void progress_begin_chunk(struct worker_page *page, uint32_t slot, uint32_t first);

/* `row` is in the epoch. */
void progress_begin_sample(struct worker_page *page, uint64_t sample, uint32_t epoch, uint64_t row);

/* The chunk's first `done` rows are whole. */
void progress_end_row(struct worker_page *page, uint32_t done);

/* Before the chunk is answered. */
void progress_end_chunk(struct worker_page *page, uint32_t done);
