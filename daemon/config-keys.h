#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The keys of the configuration file, above those of a recipe: for its parser, its errors and its manual
 * page. */

#include "proto/keys.h"

/* A key that holds other keys, or a value that keys_set does not know: code of its own reads it. A table ends
 * with a NULL name. */
struct config_part {
        const char *name;
        const char *type;     /* what may be said, after "expected" */
        const char *fallback; /* as it would be said; NULL: the key is required */
        const char *help;
};

extern const struct key config_keys[]; /* of struct config */
extern const struct config_part config_parts[];

extern const struct key config_pipeline_keys[]; /* of struct config_pipeline */
extern const struct config_part config_pipeline_parts[];

extern const struct config_part config_access_parts[]; /* of `allow` and `allow_pinned` */

/* The number behind `cpus`, where it is not auto. */
extern const struct key config_cpus_key;
