#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Source, transforms and output of a pipeline, as the configuration file says them. */

#include "daemon/config-mapping.h"
#include "proto/recipe.h"

/* Reads them from a pipeline's mapping into a zeroed recipe and checks it. A relative path of a source starts
 * at `directory`. 0, or a negative errno; the recipe is good for recipe_deinit in any case. */
int config_read_recipe(struct recipe *recipe, const struct mapping *pipeline, const char *directory,
                       struct fault *fault);
