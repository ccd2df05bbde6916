/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Takes the place of recipe-modes.c in test builds: adds the modes that show or provoke faults, so that
 * nobody can say them to an installed daemon. Order: enum recipe_synthetic_mode. */

#include "proto/recipe.h"

const char *const recipe_synthetic_modes[] = {"features", "ramp", "rng", "slow", "die", "stages", NULL};
