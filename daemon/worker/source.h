#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A source yields samples by number. One file under sources/ and one line in source-table.c make a new one.
 */

#include "proto/message-table.h"
#include "proto/recipe.h"
#include "proto/index.h"

#include <stdint.h>
#include <stddef.h>

struct fault;
struct image;
struct stages;

/* What a source knows about the sample it is asked for. */
struct source_request {
        uint64_t seed;
        uint32_t epoch;
        uint64_t sample;
        uint64_t row;          /* of the epoch: the sample's own where that is known, else the one it fills */
        const int64_t *order;  /* of the epoch, as a job has given it; NULL: none was */
        uint64_t entries;      /* of `order` */
        struct stages *stages; /* whose clock runs for STAGE_READ, or for STAGE_MAKE where it is `write` */
};

/* What a sample's making has raised, for sources that run code of the user's. Valid UTF-8 without NUL. */
struct source_exception {
        char type[MESSAGE_TYPE_MAX + 1];
        char traceback[MESSAGE_TRACEBACK_MAX + 1];
};

/* A scan calls this now and then; it may be NULL. */
typedef void (*source_progress_fn)(void *context, uint64_t files, uint32_t classes);

struct source;

/* Two kinds of errors come from write and image. -EBADMSG, -EINVAL, -EFBIG and -EOPNOTSUPP say that the
 * sample is bad: its bytes were read and are of no use. Everything else says that it could not be read (or
 * that memory is short) and nothing about the sample; a source gives no errno of the first kind for that,
 * whatever the system calls it. */

struct source_ops {
        const char *name; /* as in recipe_sources[] */

        /* Finds all samples. *samples, *classes; *index_fd is a sealed memfd in the form of proto/index.h, or
         * -1 when the source needs none. 0 or a negative errno. Runs in one worker, once. */
        int (*scan)(const struct recipe_source *recipe, source_progress_fn progress, void *context,
                    uint64_t *samples, uint32_t *classes, int *index_fd, struct fault *fault);

        /* Makes a reader; `index` is NULL for sources without one and outlives it. */
        int (*open)(struct source **source, const struct recipe_source *recipe, const struct index *index,
                    struct fault *fault);
        struct source *(*close)(struct source *source);

        /* Writes every field of the sample to its place: cells[i] is where field i of recipe_schema goes. For
         * sources whose fields need no transforms; NULL otherwise. */
        int (*write)(struct source *source, const struct source_request *request, void *const cells[],
                     struct fault *fault);

        /* Brings the sample's image, decoded or pending (see image.h: whoever needs pixels settles it; the
         * source keeps its file until the next request), and gives its label. NULL for sources that have no
         * images. */
        int (*image)(struct source *source, const struct source_request *request, struct image *image,
                     int64_t *label, struct fault *fault);

        /* Name of a sample for messages, "" if it has none; cut to `size`. */
        void (*name_of)(struct source *source, uint64_t sample, char *name, size_t size);

        /* Tells the worker's number, before all else. NULL where it makes no difference. */
        void (*set_worker)(uint32_t worker);

        /* What the call that has just failed had raised, valid until the next call; NULL: nothing. NULL for
         * sources that raise nothing. */
        const struct source_exception *(*exception)(void);

        /* Gives SETUP's texts, after set_worker and before all else; they live as long as the call. 0 or a
         * negative errno. NULL where recipe and index are enough. */
        int (*set_up)(const char *recipe, const char *layout, struct fault *fault);

        /* This sample is wanted soon, after those that were announced before: its file may be opened and read
         * ahead. It does not block, whatever the file does, and tells of nothing that goes wrong: that is met
         * again when the sample's turn comes. At most SOURCE_AHEAD_MAX are kept. NULL where there is nothing
         * to gain. */
        void (*announce)(struct source *source, uint64_t sample);

        /* What was announced and did not come will not come. NULL where `announce` is. */
        void (*forget)(struct source *source);
};

enum {
        SOURCE_AHEAD_MAX = 4, /* samples: with a millisecond of work each, as long as slow storage takes */
        SOURCE_TYPES = RECIPE_PYTHON + 1,
};

/* Those that this program has; NULL in the places of others. */
extern const struct source_ops *const source_table[SOURCE_TYPES];

/* By place: enum recipe_source_type; NULL for one that is not in the table. */
const struct source_ops *source_find(int type);

enum {
        SOURCE_SHA256_BYTES = 32,
};

/* SHA-256 over names, classes and sizes of all samples in their order; independent of the file's layout. */
void source_index_sha256(const struct index *index, uint8_t sha256[SOURCE_SHA256_BYTES]);
