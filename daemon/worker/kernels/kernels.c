/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which function carries out which operation on this CPU.
 *
 * Each set of functions is for one instruction set and lives in its own files (x-c.c, x-avx2.c), compiled
 * with that set's flags only. The plain C set comes first and defines the results: every other set must give
 * the same bits, which a test that walks kernels_all[] holds. A set that has nothing better for an operation
 * names the C function.
 *
 * Callers do not choose: resizer_run, convert_chw and others ask kernels_best(). The answer never changes in
 * a process, but where a test asks for that.
 */

#include "daemon/worker/kernels/kernels-c.h"

const struct kernels kernels_c = {
        .name = "c",
        .needs = KERNEL_CPU_ANY,
        .resize_horizontal = resize_horizontal_c,
        .resize_vertical = resize_vertical_c,
        .convert_chw = {convert_chw_8_c, convert_chw_16_c, convert_chw_32_c},
        .convert_hwc = {convert_hwc_8_c, convert_hwc_16_c, convert_hwc_32_c},
        .mirror = mirror_c,
};

int kernels_usable(const struct kernels *kernels) {
        return (kernels->needs & ~kernels_cpu()) == 0;
}

const struct kernels *kernels_best(void) {
        const struct kernels *best = kernels_all[0];

        for (size_t i = 1; kernels_all[i]; i++)
                if (kernels_usable(kernels_all[i]) && kernels_allowed(kernels_all[i]))
                        best = kernels_all[i];
        return best;
}

void mirror_rows(uint8_t *pixels, size_t stride, uint32_t width, uint32_t height) {
        if (width > 0)
                kernels_best()->mirror(pixels, stride, width, height);
}
