/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The sources of pinfeed-worker, by place in enum recipe_source_type. The worker in Python has a table of its
 * own, with which it needs no codecs: python/source-table.c. */

#include "daemon/worker/source.h"

extern const struct source_ops source_synthetic;
extern const struct source_ops source_imagefolder;
extern const struct source_ops source_python;

const struct source_ops *const source_table[SOURCE_TYPES] = {
        [RECIPE_SYNTHETIC] = &source_synthetic,
        [RECIPE_IMAGEFOLDER] = &source_imagefolder,
        [RECIPE_PYTHON] = &source_python,
};
