#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The filters of the resize as functions of the distance. */

#include "daemon/worker/kernels/kernels.h"

struct resize_filter_ops {
        double (*at)(double x); /* x in inputs, or in outputs where an axis shrinks */
        double support;         /* beyond it the filter is 0 */
};

/* NULL for RESIZE_NEAREST, which weighs nothing. */
const struct resize_filter_ops *resize_filter_find(enum resize_filter filter);

/* sin(x) and cos(x) for |x| <= 10, the same bits on every CPU, and less than one unit in the last place from
 * the truth. */
double resize_sine(double x);
double resize_cosine(double x);
