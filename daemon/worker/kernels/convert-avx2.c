/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pixels to tensors with AVX2: as convert-c.c, but written past the caches.
 *
 * What costs is not the look-up but the memory: an ordinary store first reads the line that it is about to
 * overwrite, and then pushes out of the caches what the next image needs. Nobody on this CPU reads the result
 * soon, so it is streamed, as whole lines where rows have them: by half lines, to three planes by turns,
 * three quarters of the bandwidth are reached. The fence at the end makes the lines visible to others before
 * the worker says that it has finished.
 *
 * Elements that are looked up are loaded one by one (a gather instruction is no faster where its microcode is
 * mended against leaking), put together in a general register, and streamed from there, eight bytes at a
 * time: vectors are the slower way, because only one port can insert into them. Bytes need no table: 16
 * pixels fill three registers, and shuffles of those are the three of the result. They are collected on the
 * stack, a run of a row at a time, and streamed from there.
 *
 * All this needs rows of the result that begin and end on 32-byte borders, which is so for all usual sizes;
 * else the C version does it. tests/bench/kernels.c measures it.
 */

#include "daemon/worker/kernels/shuffle-x86.h"
#include "daemon/worker/kernels/kernels-avx2.h"
#include "daemon/worker/kernels/kernels-c.h"

#include <string.h>

enum {
        BYTES = 3, /* of a pixel */
        VALUES = 256,
        BORDER = 32, /* bytes, on which rows must begin and end */
        LINE = 64,
        WORD = 8,
        PIXELS = 4, /* whose elements are whole words in any case */
        RUN = 256,  /* pixels whose bytes are collected */
};

#define ALWAYS_INLINE inline __attribute__((always_inline)) /* so that sizes and steps are constants */

static inline int begins_on(const void *to, size_t row_bytes, size_t border) {
        return (uintptr_t)to % border == 0 && row_bytes % border == 0;
}

/* ---- elements of two and of four bytes ---- */

static ALWAYS_INLINE const uint8_t *row_start(const uint8_t *row, uint32_t width, ptrdiff_t step) {
        return step < 0 ? row + (size_t)(width - 1) * BYTES : row;
}

static ALWAYS_INLINE uint64_t look_up(const uint8_t *table, size_t size, uint8_t value) {
        uint64_t element = 0;

        memcpy(&element, table + value * size, size);
        return element;
}

/* `bytes` bytes of one channel, of pixels that are `step` bytes apart. */
static ALWAYS_INLINE void stream_channel(uint8_t *to, size_t bytes, const uint8_t *table, size_t size,
                                         const uint8_t *from, ptrdiff_t step) {
        const uint32_t count = WORD / size;

#pragma GCC unroll 8
        for (uint32_t i = 0; i < bytes / WORD; i++, from += count * step) {
                uint64_t word = 0;

#pragma GCC unroll 4
                for (uint32_t k = 0; k < count; k++)
                        word |= look_up(table, size, from[k * step]) << (8 * size * k);
                _mm_stream_si64((long long *)to + i, (long long)word);
        }
}

/* All channels of PIXELS pixels. */
static ALWAYS_INLINE void stream_pixels(uint8_t *to, const uint8_t *tables, size_t size, const uint8_t *from,
                                        ptrdiff_t step) {
        const uint32_t count = WORD / size;

#pragma GCC unroll 6
        for (uint32_t i = 0; i < PIXELS * BYTES; i += count, to += WORD) {
                uint64_t word = 0;

#pragma GCC unroll 4
                for (uint32_t k = 0; k < count; k++) {
                        uint32_t channel = (i + k) % BYTES, pixel = (i + k) / BYTES;

                        word |= look_up(tables + channel * VALUES * size, size, from[pixel * step + channel])
                                << (8 * size * k);
                }
                _mm_stream_si64((long long *)to, (long long)word);
        }
}

/* Lines of each channel, or parts of lines, by turns. */
static ALWAYS_INLINE void chw_by(size_t bytes, const struct convert_table *table, size_t size, uint8_t *to,
                                 const uint8_t *from, size_t stride, uint32_t width, uint32_t height,
                                 ptrdiff_t step) {
        const uint8_t *tables = (const uint8_t *)&table->of;
        const uint32_t run = bytes / size;
        size_t plane = (size_t)width * height * size;

        for (uint32_t y = 0; y < height; y++, from += stride) {
                const uint8_t *pixel = row_start(from, width, step);

                for (uint32_t x = 0; x < width; x += run, pixel += run * step, to += bytes)
#pragma GCC unroll 3
                        for (unsigned c = 0; c < BYTES; c++)
                                stream_channel(to + c * plane, bytes, tables + c * VALUES * size, size,
                                               pixel + c, step);
        }
        _mm_sfence();
}

static ALWAYS_INLINE void chw(const struct convert_table *table, size_t size, uint8_t *to,
                              const uint8_t *from, size_t stride, uint32_t width, uint32_t height,
                              ptrdiff_t step) {
        if (begins_on(to, width * size, LINE))
                chw_by(LINE, table, size, to, from, stride, width, height, step);
        else
                chw_by(BORDER, table, size, to, from, stride, width, height, step);
}

static ALWAYS_INLINE void hwc(const struct convert_table *table, size_t size, uint8_t *to,
                              const uint8_t *from, size_t stride, uint32_t width, uint32_t height,
                              ptrdiff_t step) {
        for (uint32_t y = 0; y < height; y++, from += stride) {
                const uint8_t *pixel = row_start(from, width, step);

                for (uint32_t x = 0; x < width;
                     x += PIXELS, pixel += PIXELS * step, to += PIXELS * BYTES * size)
                        stream_pixels(to, (const uint8_t *)&table->of, size, pixel, step);
        }
        _mm_sfence();
}

#define CONVERT(layout, bits, row_bytes)                                                                     \
        void convert_##layout##_##bits##_avx2(const struct convert_table *table, void *to,                   \
                                              const uint8_t *from, size_t stride, uint32_t width,            \
                                              uint32_t height, int mirrored) {                               \
                if (!begins_on(to, row_bytes, BORDER))                                                       \
                        convert_##layout##_##bits##_c(table, to, from, stride, width, height, mirrored);     \
                else if (mirrored)                                                                           \
                        layout(table, bits / 8, to, from, stride, width, height, -BYTES);                    \
                else                                                                                         \
                        layout(table, bits / 8, to, from, stride, width, height, BYTES);                     \
        }

CONVERT(chw, 16, (size_t)width * 2)
CONVERT(chw, 32, (size_t)width * 4)
CONVERT(hwc, 16, (size_t)width * 2 * BYTES)
CONVERT(hwc, 32, (size_t)width * 4 * BYTES)

/* ---- bytes ---- */

static inline uint32_t at_most(uint32_t most, uint32_t n) {
        return n < most ? n : most;
}

static inline void stream(uint8_t *to, const uint8_t *from, size_t bytes) {
        for (size_t i = 0; i < bytes; i += BORDER)
                _mm256_stream_si256((__m256i *)(to + i), _mm256_loadu_si256((const __m256i *)(from + i)));
}

/* Rearranges the groups that give the pixels x ... x + n - 1 of the result. The registers of a group go
 * `part_step` bytes apart, and those of the next group go `group_step` behind. */
static inline void shuffle_run(const struct shuffle *shuffle, uint8_t *run, size_t part_step,
                               size_t group_step, const uint8_t *row, uint32_t width, uint32_t x, uint32_t n,
                               int mirrored) {
        for (uint32_t end = x + n; x < end; x += SHUFFLE_GROUP, run += group_step) {
                const uint8_t *group = row + (size_t)(mirrored ? width - SHUFFLE_GROUP - x : x) * BYTES;
                struct shuffled shuffled = shuffle_group(shuffle, group);

                for (unsigned i = 0; i < SHUFFLE_PARTS; i++)
                        _mm_store_si128((__m128i *)(run + i * part_step), shuffled.part[i]);
        }
}

void convert_chw_8_avx2(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                        uint32_t width, uint32_t height, int mirrored) {
        uint8_t run[BYTES][RUN] __attribute__((aligned(BORDER))), *out = to;
        struct shuffle shuffle = shuffle_to_planes(mirrored);
        size_t plane = (size_t)width * height;

        if (!begins_on(to, width, BORDER)) {
                convert_chw_8_c(table, to, from, stride, width, height, mirrored);
                return;
        }
        for (uint32_t y = 0; y < height; y++, from += stride)
                for (uint32_t x = 0, n; x < width; x += n, out += n) {
                        n = at_most(RUN, width - x);
                        shuffle_run(&shuffle, run[0], RUN, SHUFFLE_GROUP, from, width, x, n, mirrored);
                        for (unsigned c = 0; c < BYTES; c++)
                                stream(out + c * plane, run[c], n);
                }
        _mm_sfence();
}

static void stream_mirrored(uint8_t *to, const uint8_t *row, uint32_t width, const struct shuffle *shuffle) {
        uint8_t run[RUN * BYTES] __attribute__((aligned(BORDER)));

        for (uint32_t x = 0, n; x < width; x += n, to += n * BYTES) {
                n = at_most(RUN, width - x);
                shuffle_run(shuffle, run, SHUFFLE_GROUP, SHUFFLE_PARTS * SHUFFLE_GROUP, row, width, x, n, 1);
                stream(to, run, (size_t)n * BYTES);
        }
}

void convert_hwc_8_avx2(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                        uint32_t width, uint32_t height, int mirrored) {
        struct shuffle shuffle = shuffle_to_mirror();
        size_t bytes = (size_t)width * BYTES;
        uint8_t *out = to;

        if (!begins_on(to, bytes, BORDER)) {
                convert_hwc_8_c(table, to, from, stride, width, height, mirrored);
                return;
        }
        for (uint32_t y = 0; y < height; y++, from += stride, out += bytes)
                if (mirrored)
                        stream_mirrored(out, from, width, &shuffle);
                else
                        stream(out, from, bytes);
        _mm_sfence();
}
