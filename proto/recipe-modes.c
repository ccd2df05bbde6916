/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The modes of the synthetic source that everybody has. Order: enum recipe_synthetic_mode. */

#include "proto/recipe.h"

const char *const recipe_synthetic_modes[] = {"features", "ramp", NULL};
