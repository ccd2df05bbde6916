/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The sets of kernels for machines without any of their own: the plain C one.
 */

#include "daemon/worker/kernels/kernels.h"

const struct kernels *const kernels_all[] = {
        &kernels_c,
        NULL,
};

unsigned kernels_cpu(void) {
        return KERNEL_CPU_ANY;
}
