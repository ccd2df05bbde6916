#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Kernels for CPUs with AVX-512 (F, BW) and its VNNI, the last one with VL and VBMI too; see struct kernels
 * for what each does. */

#include "daemon/worker/kernels/kernels.h"

void resize_horizontal_avx512(const struct resize_axis *axis, uint8_t *to, size_t to_stride,
                              const uint8_t *from, size_t from_stride, uint32_t rows);
void resize_vertical_avx512(uint8_t *to, const uint8_t *from, size_t stride, size_t bytes,
                            const int32_t *weights, uint32_t count);

void convert_chw_16_avx512(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                           uint32_t width, uint32_t height, int mirrored);

void resize_horizontal_vbmi(const struct resize_axis *axis, uint8_t *to, size_t to_stride,
                            const uint8_t *from, size_t from_stride, uint32_t rows);
