#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Pixel kernels: resizing as Pillow does it, and writing pixels as tensors. One table binds them to the CPU.
 */

#include "proto/schema.h"

#include <stddef.h>
#include <stdint.h>

/* ---- resize: 8 bit, 3 channels, the bits of Pillow's Image.resize ---- */

enum resize_filter {
        RESIZE_BILINEAR, /* triangle, support 1 */
        RESIZE_BICUBIC,  /* a = -0.5, support 2 */
        RESIZE_NEAREST,  /* copies of pixels, without averaging */
        RESIZE_BOX,      /* support 0.5 */
        RESIZE_LANCZOS,  /* three lobes, support 3 */
        RESIZE_HAMMING,  /* a sinc under a Hamming window, support 1 */
};

enum {
        /* A coefficient is a fraction of 2^22: 8 bits are for the result and two for what negative lobes add.
         * Pillow's choice, part of the bits. */
        RESIZE_PRECISION = 32 - 8 - 2,
        RESIZE_GROUP = 4, /* weights that a vector kernel may load at once */
};

/* For each place of the output along one axis: which inputs count, and how much. */
struct resize_axis {
        uint32_t inputs;
        uint32_t outputs;
        uint32_t taps; /* weights kept for each output, a multiple of RESIZE_GROUP; those behind counts[i] are
                          0 */
        uint32_t *first;  /* [outputs] */
        uint32_t *counts; /* [outputs], 1 ... taps */
        int32_t *weights; /* [outputs][taps], each below 2^23 in absolute value */
        /* The same for arithmetic in 16 bits: of each RESIZE_GROUP weights first what is above the lowest 8
         * bits, with the sign, and then those 8 bits. */
        int16_t *halves; /* [outputs][taps / RESIZE_GROUP][2][RESIZE_GROUP] */
};

/* Buffers of the resize, which grow and never shrink. Zeroed is empty. */
struct resizer {
        struct resize_axis horizontal, vertical;
        size_t axis_capacity[2];
        double *fractions; /* of the axis that is being computed */
        size_t fractions_capacity;
        uint8_t *between; /* after the horizontal pass */
        size_t between_capacity;
};

/* Resizes width x height pixels at `from` to to_width x to_height at `to`; strides in bytes; no overlap. All
 * sizes >= 1. 0, -EOVERFLOW or -ENOMEM. */
int resizer_run(struct resizer *resizer, enum resize_filter filter, uint8_t *to, size_t to_stride,
                uint32_t to_width, uint32_t to_height, const uint8_t *from, size_t from_stride,
                uint32_t width, uint32_t height);
void resizer_deinit(struct resizer *resizer);

/* ---- convert: RGB rows to the elements of a tensor ---- */

/* What each value of each channel becomes; filled in once for a recipe. Bytes stay what they are. */
struct convert_table {
        enum schema_dtype dtype;
        union {
                uint16_t u16[3][256]; /* float16, bfloat16: bit patterns */
                float f32[3][256];
        } of;
};

/* x/255 and, with `normalize`, (x/255 - mean) / std, all in float32, then one rounding to the dtype. For
 * uint8: x. 0, or -EINVAL for a dtype that images cannot have (or uint8 with `normalize`). */
int convert_table_init(struct convert_table *table, enum schema_dtype dtype, int normalize,
                       const float mean[3], const float std[3]);

/* Writes width x height pixels packed, chw or hwc; `mirrored` reads each row from its right end. */
void convert_chw(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                 uint32_t width, uint32_t height, int mirrored);
void convert_hwc(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                 uint32_t width, uint32_t height, int mirrored);

/* ---- mirror: left and right exchanged, for pixels that a later step reads ---- */

/* In place; nothing outside width x height pixels is touched. */
void mirror_rows(uint8_t *pixels, size_t stride, uint32_t width, uint32_t height);

/* ---- the table: operation -> function, by what the CPU can ---- */

enum kernel_cpu {
        KERNEL_CPU_ANY = 0, /* plain C, the definition of every operation */
        KERNEL_CPU_AVX2 = 1 << 0,
        KERNEL_CPU_AVX512_VNNI = 1 << 1, /* F, BW and VNNI */
        KERNEL_CPU_AVX512_VBMI = 1 << 2, /* and VL and VBMI */
};

/* As convert_chw and convert_hwc, for one size of element. */
typedef void (*convert_fn)(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                           uint32_t width, uint32_t height, int mirrored);

struct kernels {
        const char *name;
        unsigned needs; /* enum kernel_cpu */

        /* `rows` rows of axis->outputs pixels of 3 bytes from as many rows of axis->inputs pixels. Nothing
         * outside the rows is read or written. */
        void (*resize_horizontal)(const struct resize_axis *axis, uint8_t *to, size_t to_stride,
                                  const uint8_t *from, size_t from_stride, uint32_t rows);
        /* One row of `bytes` bytes from `count` rows at `from`, `stride` apart, weighted. */
        void (*resize_vertical)(uint8_t *to, const uint8_t *from, size_t stride, size_t bytes,
                                const int32_t *weights, uint32_t count);
        /* By size of the element: 1, 2, 4 bytes are 0, 1, 2. */
        convert_fn convert_chw[3];
        convert_fn convert_hwc[3];
        /* As mirror_rows, for a width of 1 at least. */
        void (*mirror)(uint8_t *pixels, size_t stride, uint32_t width, uint32_t height);
};

/* All sets that were built, the definition first, the best last; ends with NULL. From kernels-x86.c or
 * kernels-plain.c, like what the CPU can (enum kernel_cpu). */
extern const struct kernels *const kernels_all[];
unsigned kernels_cpu(void);

/* The definition. */
extern const struct kernels kernels_c;

/* Whether this CPU can run a set. */
int kernels_usable(const struct kernels *kernels);

/* Whether callers may be given a set: always, but in test builds. From kernels-limit.c or
 * kernels-limit-test.c. */
int kernels_allowed(const struct kernels *kernels);

/* The last set that this CPU can run and that is allowed. */
const struct kernels *kernels_best(void);
