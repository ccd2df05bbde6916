/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The one source of a worker in Python. */

#include "daemon/worker/source.h"

extern const struct source_ops source_python;

const struct source_ops *const source_table[SOURCE_TYPES] = {
        [RECIPE_PYTHON] = &source_python,
};
