/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * From bytes to the elements of a tensor, by table.
 *
 * A byte has 256 values and a channel one mean and one deviation, so 3 x 256 entries hold every result there
 * is. They are computed once for a recipe exactly as PyTorch would (float32 throughout: divide by 255,
 * subtract, divide), and rounded once to the output type, to nearest and even. A row then costs one load and
 * one store per element, and no vector unit has a way to round differently.
 */

#include "daemon/worker/kernels/kernels.h"

#include <errno.h>
#include <string.h>

static uint16_t bfloat16_from_float(float value) {
        uint32_t bits;

        memcpy(&bits, &value, sizeof(bits));
        if ((bits & 0x7fffffff) > 0x7f800000)
                return (uint16_t)(bits >> 16 | 0x0040); /* stays a NaN, made quiet */
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rounds value / 2^shift to nearest, ties to even; 1 <= shift <= 31. */
static uint32_t shift_rounded(uint32_t value, unsigned shift) {
        uint32_t kept = value >> shift, rest = value & ((UINT32_C(1) << shift) - 1),
                 half = UINT32_C(1) << (shift - 1);

        return kept + (rest > half || (rest == half && (kept & 1)));
}

static uint16_t float16_from_float(float value) {
        uint32_t bits, sign, magnitude;
        int exponent;

        memcpy(&bits, &value, sizeof(bits));
        sign = bits >> 16 & 0x8000;
        magnitude = bits & 0x7fffffff;
        if (magnitude > 0x7f800000)
                return (uint16_t)(sign | 0x7e00);
        if (magnitude >= 0x47800000) /* 2^16 and more, infinity */
                return (uint16_t)(sign | 0x7c00);

        exponent = (int)(magnitude >> 23) - 127;
        if (exponent >= -14)
                /* Rounding may carry into the exponent, up to infinity: that is the right result. */
                return (uint16_t)(sign | shift_rounded(magnitude - ((127 - 15) << 23), 13));
        if (exponent < -25)
                return (uint16_t)sign;
        /* Subnormal: units of 2^-24. */
        return (uint16_t)(sign | shift_rounded((magnitude & 0x7fffff) | 0x800000, (unsigned)(-1 - exponent)));
}

static float normalized(unsigned value, int normalize, float mean, float std) {
        float x = (float)value / 255.0f;

        return normalize ? (x - mean) / std : x;
}

int convert_table_init(struct convert_table *table, enum schema_dtype dtype, int normalize,
                       const float mean[3], const float std[3]) {
        switch (dtype) {
        case SCHEMA_UINT8:
                if (normalize)
                        return -EINVAL;
                break;
        case SCHEMA_FLOAT16:
        case SCHEMA_BFLOAT16:
        case SCHEMA_FLOAT32:
                break;
        default:
                return -EINVAL;
        }

        table->dtype = dtype;
        if (dtype == SCHEMA_UINT8)
                return 0;
        for (unsigned c = 0; c < 3; c++)
                for (unsigned v = 0; v < 256; v++) {
                        float x = normalize ? normalized(v, 1, mean[c], std[c]) : normalized(v, 0, 0, 1);

                        if (dtype == SCHEMA_FLOAT16)
                                table->of.u16[c][v] = float16_from_float(x);
                        else if (dtype == SCHEMA_BFLOAT16)
                                table->of.u16[c][v] = bfloat16_from_float(x);
                        else
                                table->of.f32[c][v] = x;
                }
        return 0;
}

/* Place in the kernel table: log2 of the element's size. */
static unsigned size_class(enum schema_dtype dtype) {
        switch (dtype) {
        case SCHEMA_UINT8:
                return 0;
        case SCHEMA_FLOAT16:
        case SCHEMA_BFLOAT16:
                return 1;
        default:
                return 2;
        }
}

void convert_chw(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                 uint32_t width, uint32_t height, int mirrored) {
        kernels_best()->convert_chw[size_class(table->dtype)](table, to, from, stride, width, height,
                                                              mirrored);
}

void convert_hwc(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                 uint32_t width, uint32_t height, int mirrored) {
        kernels_best()->convert_hwc[size_class(table->dtype)](table, to, from, stride, width, height,
                                                              mirrored);
}
