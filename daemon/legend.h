#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the numbers in a pipeline's rows mean, for those who draw them. */

#include <jansson.h>

struct fault;
struct pipeline;

enum {
        LEGEND_LABELS_MAX = 128, /* of a question, which fits a line of control.c with the largest numbers */
};

/* {"pipeline": ..., "pixels": {"mean": [...], "std": [...]} or null, "classes": [name or null, ...]}, the
 * latter of `labels`, an array of whole numbers, one by one. NULL with the reason: it is no such array, or
 * too long. */
json_t *legend_make(const struct pipeline *pipeline, const json_t *labels, struct fault *fault);
