#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Assembly: from a row's place in a stream to its final bytes in a slot. The worker and the bare loop of
 * tests/bench call the same functions. */

#include "proto/recipe.h"
#include "proto/index.h"

#include <stdint.h>

struct assembly;
struct fault;
struct given_order;
struct source_exception;
struct worker_page;

/* Rows [first, first + rows) of a slot: global rows [row, row + rows) of (seed, epoch). */
struct assembly_chunk {
        uint32_t slot; /* its number, for the page */
        uint64_t seed;
        uint32_t epoch;
        uint64_t row;
        uint32_t first;
        uint32_t rows;
        const struct given_order *order; /* of the epoch, at least as long; NULL: none was given */
};

enum {
        ASSEMBLY_FILE_MAX = 512, /* = MESSAGE_FILE_MAX */
        ASSEMBLY_SUBSTITUTES_MAX = 100,
};

/* Where a chunk stopped: `sample` is the row's own or a substitute for it. */
struct assembly_failure {
        uint64_t sample;
        uint32_t first;                           /* its row in the slot */
        char file[ASSEMBLY_FILE_MAX + 1];         /* valid UTF-8, "" where samples have no names */
        const struct source_exception *exception; /* NULL: none was raised; valid until the next call */
};

/* `schema` is laid out; it and `recipe` outlive the assembly. `index_fd` (-1: none) is mapped and stays the
 * caller's. `shuffle` as in the pipeline. 0 or a negative errno. */
int assembly_new(struct assembly **assembly, const struct recipe *recipe, const struct schema *schema,
                 uint64_t samples, int shuffle, int index_fd, struct fault *fault);
struct assembly *assembly_free(struct assembly *assembly);

/* Told of each sample that turns out to be bad, each time; `file` as in assembly_failure. 0, or what shall
 * end the chunk. */
typedef int (*assembly_bad_fn)(void *context, uint64_t sample, const char *file, int error, const char *text);

/* From now on a bad sample's row is filled from another sample. Without it, such a sample ends its chunk.
 * assembly_verify needs it, and only tells. */
void assembly_replace_bad(struct assembly *assembly, assembly_bad_fn bad, void *context);

/* Never touches these samples any more: they count as bad. 0 or -ENOMEM. */
int assembly_condemn(struct assembly *assembly, const uint64_t *samples, uint32_t n);

/* Looks at the samples [chunk->row, chunk->row + chunk->rows), each as a whole: a file is read and decoded to
 * its end, whatever the transforms would leave of it, and those are not run. Of each one that is bad or
 * cannot be read `bad` is told. A source without files writes its samples to row 0 of `slot`, one over the
 * other. Chunk and page as with assembly_fill. 0, or what `bad` has failed with. */
int assembly_verify(struct assembly *assembly, const struct assembly_chunk *chunk, void *slot,
                    struct worker_page *page);

/* Fills the rows of a chunk: fields, sample numbers, flags. `slot` is the start of the slot in memory; `page`
 * (may be NULL) says what is in work. 0 and *replaced, the number of rows that hold substitutes (NULL: not
 * wanted), or a negative errno with *failure filled in; rows before it are whole. */
int assembly_fill(struct assembly *assembly, const struct assembly_chunk *chunk, void *slot,
                  struct worker_page *page, uint32_t *replaced, struct assembly_failure *failure,
                  struct fault *fault);
