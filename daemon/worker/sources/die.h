#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the synthetic source's mode `die` does to its worker. In test builds only, see die-none.c. */

#include "proto/recipe.h"

#include <stdint.h>

struct fault;

/* Starts zeroed; one for each source. */
struct die {
        uint64_t ordinal; /* of this process among those that met such a sample; 0: it has not yet */
};

/* Does not return, or returns what the sample is said to fail with, or 0 when it is a good one. */
int die_at(struct die *die, const struct recipe_source *recipe, uint64_t sample, struct fault *fault);
