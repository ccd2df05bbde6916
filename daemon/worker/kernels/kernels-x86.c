/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The sets of kernels for x86-64. What the CPU can comes from the compiler's runtime, which also asks whether
 * the operating system saves the wide registers.
 */

#include "daemon/worker/kernels/kernels-avx2.h"
#include "daemon/worker/kernels/kernels-avx512.h"
#include "daemon/worker/kernels/kernels-c.h"

static const struct kernels kernels_avx2 = {
        .name = "avx2",
        .needs = KERNEL_CPU_AVX2,
        .resize_horizontal = resize_horizontal_avx2,
        .resize_vertical = resize_vertical_avx2,
        .convert_chw = {convert_chw_8_avx2, convert_chw_16_avx2, convert_chw_32_avx2},
        .convert_hwc = {convert_hwc_8_avx2, convert_hwc_16_avx2, convert_hwc_32_avx2},
        .mirror = mirror_avx2,
};

static const struct kernels kernels_avx512 = {
        .name = "avx512",
        .needs = KERNEL_CPU_AVX2 | KERNEL_CPU_AVX512_VNNI,
        .resize_horizontal = resize_horizontal_avx512,
        .resize_vertical = resize_vertical_avx512,
        .convert_chw = {convert_chw_8_avx2, convert_chw_16_avx512, convert_chw_32_avx2},
        .convert_hwc = {convert_hwc_8_avx2, convert_hwc_16_avx2, convert_hwc_32_avx2},
        .mirror = mirror_avx2,
};

static const struct kernels kernels_vbmi = {
        .name = "vbmi",
        .needs = KERNEL_CPU_AVX2 | KERNEL_CPU_AVX512_VNNI | KERNEL_CPU_AVX512_VBMI,
        .resize_horizontal = resize_horizontal_vbmi,
        .resize_vertical = resize_vertical_avx512,
        .convert_chw = {convert_chw_8_avx2, convert_chw_16_avx512, convert_chw_32_avx2},
        .convert_hwc = {convert_hwc_8_avx2, convert_hwc_16_avx2, convert_hwc_32_avx2},
        .mirror = mirror_avx2,
};

const struct kernels *const kernels_all[] = {
        &kernels_c, &kernels_avx2, &kernels_avx512, &kernels_vbmi, NULL,
};

unsigned kernels_cpu(void) {
        unsigned cpu = KERNEL_CPU_ANY;

        if (__builtin_cpu_supports("avx2"))
                cpu |= KERNEL_CPU_AVX2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vnni"))
                cpu |= KERNEL_CPU_AVX512_VNNI;
        if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi"))
                cpu |= KERNEL_CPU_AVX512_VBMI;
        return cpu;
}
