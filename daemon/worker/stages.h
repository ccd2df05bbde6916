#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How long each stage of a row takes, for the worker page. */

#include "proto/stages.h"

struct fault;
struct image;
struct worker_page;

struct stages {
        struct worker_page *page; /* NULL: nobody wants to know */
        enum row_stage stage;     /* that it is in, if any bit of `entered` is set */
        uint32_t entered;         /* a bit for each stage that it has been in */
        uint64_t since_ns;
        uint64_t spent_ns[STAGE_KINDS];
        int (*load)(struct image *image, struct fault *fault); /* of a pending image, and its loader */
        void *loader;
};

/* A row begins. `page` may be NULL. */
void stages_begin(struct stages *stages, struct worker_page *page);

/* From now on the time is this stage's. `stages` may be NULL. */
void stages_enter(struct stages *stages, enum row_stage stage);

/* From now on the time is STAGE_TRANSFORM's, but for that in which a pending image is loaded. */
void stages_enter_transforms(struct stages *stages, struct image *image);

/* The row is whole: each stage that it was in is counted once. */
void stages_end(struct stages *stages);
