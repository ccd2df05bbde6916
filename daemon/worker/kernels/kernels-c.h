#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The plain C functions that define every kernel; see struct kernels for what each does. */

#include "daemon/worker/kernels/kernels.h"

void resize_horizontal_c(const struct resize_axis *axis, uint8_t *to, size_t to_stride, const uint8_t *from,
                         size_t from_stride, uint32_t rows);
void resize_vertical_c(uint8_t *to, const uint8_t *from, size_t stride, size_t bytes, const int32_t *weights,
                       uint32_t count);

void convert_chw_8_c(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                     uint32_t width, uint32_t height, int mirrored);
void convert_chw_16_c(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                      uint32_t width, uint32_t height, int mirrored);
void convert_chw_32_c(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                      uint32_t width, uint32_t height, int mirrored);
void convert_hwc_8_c(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                     uint32_t width, uint32_t height, int mirrored);
void convert_hwc_16_c(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                      uint32_t width, uint32_t height, int mirrored);
void convert_hwc_32_c(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                      uint32_t width, uint32_t height, int mirrored);

void mirror_c(uint8_t *pixels, size_t stride, uint32_t width, uint32_t height);
