/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The pixel kernels against two judges: digests that Pillow 9.4 gave for a pattern that both sides can draw,
 * and a naive resize by the filter's definition in long double (which may be off by rounding, and needs no
 * other program). Conversion is checked for every value there is. That every set of kernels gives the same is
 * test-kernel-sets.c's matter.
 */

#include "daemon/worker/kernels/kernels.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        PATTERN_WIDTH = 301,
        PATTERN_HEIGHT = 203,
        MARGIN = 64, /* bytes around a result that must stay as they were */
        CANARY = 0xa5,
};

static uint8_t pattern[PATTERN_HEIGHT][PATTERN_WIDTH][3];

static void draw_pattern(void) {
        for (unsigned y = 0; y < PATTERN_HEIGHT; y++)
                for (unsigned x = 0; x < PATTERN_WIDTH; x++)
                        for (unsigned c = 0; c < 3; c++)
                                pattern[y][x][c] =
                                        (uint8_t)((x * x * 3 + y * x * 7 + c * 85 + y * 11) ^ (x * 29 >> c));
}

/* A small generator of its own, so that this test stands alone. */
static uint32_t next_random(uint64_t *state) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (uint32_t)(*state >> 33);
}

static void check_margins(const uint8_t *block, size_t size) {
        for (size_t i = 0; i < MARGIN; i++) {
                ck_assert_uint_eq(block[i], CANARY);
                ck_assert_uint_eq(block[MARGIN + size + i], CANARY);
        }
}

static uint8_t *new_block(size_t size) {
        uint8_t *block = malloc(size + 2 * MARGIN);

        ck_assert_ptr_nonnull(block);
        memset(block, CANARY, size + 2 * MARGIN);
        return block;
}

static void hex_digest(const uint8_t *bytes, size_t size, char hex[65]) {
        uint8_t digest[SHA256_DIGEST_SIZE];
        struct sha256_ctx context;

        sha256_init(&context);
        sha256_update(&context, size, bytes);
        sha256_digest(&context, sizeof(digest), digest);
        for (unsigned i = 0; i < sizeof(digest); i++)
                sprintf(hex + 2 * i, "%02x", digest[i]);
}

/* Crops of the pattern (left, top, width, height) to a size: SHA-256 of im.crop(...).resize(...).tobytes().
 */
static const struct {
        enum resize_filter filter;
        uint32_t left, top, width, height, to_width, to_height;
        const char *sha256;
} digests[] = {
        {RESIZE_BILINEAR, 0, 0, 301, 203, 224, 224,
         "3712666e0c8c0cff153eef4478b1fc8cf5edf1f680173eedd5d8ea8af3564142"},
        {RESIZE_BICUBIC, 0, 0, 301, 203, 224, 224,
         "0908a7a5a9794a94ebc1e978e87afa3e1427d4490c84855af85688ee4b5cb232"},
        {RESIZE_BILINEAR, 17, 5, 100, 150, 224, 224,
         "419e94a1317ebdba07b32a429f2d8dc20f10e512554aca966ccd2ef25bf4b957"},
        {RESIZE_BICUBIC, 17, 5, 100, 150, 224, 224,
         "e6b356687180fbfa52de874721855395babf3ef4fac952c7424cd406265f8e0c"},
        {RESIZE_BILINEAR, 17, 5, 224, 150, 224, 100,
         "f0733de58cc09b5ad44e7ece251046ebf1f920ac018f9e9588bc0946b9797e08"},
        {RESIZE_BICUBIC, 17, 5, 224, 150, 224, 100,
         "7b33938363296729cdae25a1e39c1725633c8dc53746992af3242387a7cb1afb"},
        {RESIZE_BILINEAR, 17, 5, 224, 150, 100, 150,
         "9378cb38826aafd544d1dc3e0a7c801ca95a29f0b3d39888c82bc98880b59d26"},
        {RESIZE_BICUBIC, 17, 5, 224, 150, 100, 150,
         "855f9fcd6081b4c1c2413e2cfb91aafcb3d1461c5ffe55c2ef8e617c1568719c"},
        {RESIZE_BILINEAR, 1, 2, 300, 200, 7, 5,
         "1220674b157e6d483183b34f849f02255333011c3ffcc38eb923f8b12ce4d9dc"},
        {RESIZE_BICUBIC, 1, 2, 300, 200, 7, 5,
         "8a2676008f6d3f3796acf6a34315f7b5054b2b66403fe6aa93f16d2c232ce339"},
        {RESIZE_BILINEAR, 10, 20, 3, 2, 64, 48,
         "8866c0a201ebce68835efe7aa8b17073111181040628a779c54bee2b30de8bfb"},
        {RESIZE_BICUBIC, 10, 20, 3, 2, 64, 48,
         "f397f3cd2eeb413600d5eb1608a0b22785007ec5f42ff71ed108fc7ecd399a36"},
        {RESIZE_BILINEAR, 0, 0, 301, 203, 1, 1,
         "d8d83e152275cdecf91efea09d7aebf3060c10fe7042abaabf8b5df0c6d36173"},
        {RESIZE_BICUBIC, 0, 0, 301, 203, 1, 1,
         "d8d83e152275cdecf91efea09d7aebf3060c10fe7042abaabf8b5df0c6d36173"},
        {RESIZE_BILINEAR, 50, 60, 1, 1, 9, 11,
         "392c1fadde9a133d4224db2623988cfa8671c4b64ba7e0078f82fd9bae364cd6"},
        {RESIZE_BICUBIC, 50, 60, 1, 1, 9, 11,
         "392c1fadde9a133d4224db2623988cfa8671c4b64ba7e0078f82fd9bae364cd6"},
        {RESIZE_BILINEAR, 0, 0, 301, 203, 301, 203,
         "42b77dd45fcc970a5f9cab8c37cd017fb66710a4a86c4b0e06a2afafb5b88c06"},
        {RESIZE_BICUBIC, 0, 0, 301, 203, 301, 203,
         "42b77dd45fcc970a5f9cab8c37cd017fb66710a4a86c4b0e06a2afafb5b88c06"},
        {RESIZE_BILINEAR, 0, 0, 301, 3, 33, 203,
         "12acf20deeb40ef291019ca7ebebccff4e783419df49ced8cec1f539bd6fddcc"},
        {RESIZE_BICUBIC, 0, 0, 301, 3, 33, 203,
         "374910bb802feeaf2ae78252ee55cbcf150d1b04c79c99b48162f3fb806f6f7e"},
        {RESIZE_NEAREST, 0, 0, 301, 203, 224, 224,
         "c0ee8a92f04a931bf9ceb8d83fb9d119a502a2ae77cd2327d1455aeb089855d6"},
        {RESIZE_NEAREST, 17, 5, 100, 150, 224, 224,
         "e9be39801a5c779d35796e43fa44c0cc78400073d41124dc99e74209d63f585d"},
        {RESIZE_NEAREST, 17, 5, 224, 150, 224, 100,
         "d4af0706961686b79ec58e02719c0365fafe7d95acbc71430d47ef97cf7885e7"},
        {RESIZE_NEAREST, 17, 5, 224, 150, 100, 150,
         "25f809ba1b8573349cc39301a6fca6dd4cdf3f9396a0d37e5054cd97a196b1f0"},
        {RESIZE_NEAREST, 1, 2, 300, 200, 7, 5,
         "ba833163d4338673ec2b2e99fe9778f68624ede9bb4a1f767d1d6f584288fe44"},
        {RESIZE_NEAREST, 10, 20, 3, 2, 64, 48,
         "d5cb59276c271552089f0e53ead85e41a33407ba14308880f3c8242ca0b11c51"},
        {RESIZE_NEAREST, 0, 0, 301, 203, 1, 1,
         "3c00802eee8dc7d386928bdaaa3cc741d2300b4008a19c09993c50063301fc8c"},
        {RESIZE_NEAREST, 0, 0, 301, 3, 33, 203,
         "7bafd0afbea19300f93f076bf59f81a84a21b36b880197e76a98ab3b816dc994"},
        {RESIZE_BOX, 0, 0, 301, 203, 224, 224,
         "af3f7e476027b8e6f4c17df59b4fa3d9b406fe6b253750dc88321e25ba77ebe1"},
        {RESIZE_BOX, 17, 5, 100, 150, 224, 224,
         "e9be39801a5c779d35796e43fa44c0cc78400073d41124dc99e74209d63f585d"},
        {RESIZE_BOX, 17, 5, 224, 150, 224, 100,
         "4c019c5f19a402ca7fd6d6c2dc4467c43dd27ea1b997d29d631e12171494c0b2"},
        {RESIZE_BOX, 17, 5, 224, 150, 100, 150,
         "1893feafe64363ac63e775b099f63b700d2426cea0966508b5fe511c1a0100d1"},
        {RESIZE_BOX, 1, 2, 300, 200, 7, 5,
         "075aae0a17f8791a9a43e9b076074dc33b3bb8c009de95e4b2e1f5d18481aa9f"},
        {RESIZE_BOX, 10, 20, 3, 2, 64, 48,
         "d5cb59276c271552089f0e53ead85e41a33407ba14308880f3c8242ca0b11c51"},
        {RESIZE_BOX, 0, 0, 301, 203, 1, 1,
         "d8d83e152275cdecf91efea09d7aebf3060c10fe7042abaabf8b5df0c6d36173"},
        {RESIZE_BOX, 0, 0, 301, 3, 33, 203,
         "73325e2213699e56e6986059ece0fd12d700fdfbdb20775818ea57f2e6631cc2"},
        {RESIZE_LANCZOS, 0, 0, 301, 203, 224, 224,
         "17dcd8fda33d13522ba7691049b32ad6f91af2701311ca4cbcd0bf1bb25df6d8"},
        {RESIZE_LANCZOS, 17, 5, 100, 150, 224, 224,
         "a46f04d01594ed91f3d284c255c281231ac10b1b94138f051bdde11a5780b902"},
        {RESIZE_LANCZOS, 17, 5, 224, 150, 224, 100,
         "952dfe6947e3f31de7b75538e9433181a6a3dbdf2119f3fd49b8a4400eec713f"},
        {RESIZE_LANCZOS, 17, 5, 224, 150, 100, 150,
         "caac0b4a677c7778b9f7a50f0fd5c06e8a14554d883328a2b511175ea20e7540"},
        {RESIZE_LANCZOS, 1, 2, 300, 200, 7, 5,
         "3949387e1d3a058731b68701fa9ac1a0b778867b7ab91f020a2b0190ee9b05ea"},
        {RESIZE_LANCZOS, 10, 20, 3, 2, 64, 48,
         "0d8b859e414a604bd6a7f0436e499e2cf561e12a9d1c607a066dd095b91ae704"},
        {RESIZE_LANCZOS, 0, 0, 301, 203, 1, 1,
         "d8d83e152275cdecf91efea09d7aebf3060c10fe7042abaabf8b5df0c6d36173"},
        {RESIZE_LANCZOS, 0, 0, 301, 3, 33, 203,
         "405fdbf3b93625235b5924aabc067260616c5facb7cc302f55731ad12ad694b5"},
        {RESIZE_HAMMING, 0, 0, 301, 203, 224, 224,
         "95d64fd1fe78203ceb3b6af75e0c89818ff0cb19a63e6bea25d85aa4c2ff3f92"},
        {RESIZE_HAMMING, 17, 5, 100, 150, 224, 224,
         "78dbb3d36c8874de3df3e0b552483e3e8ec46cc32de099768ef7a330cac1169a"},
        {RESIZE_HAMMING, 17, 5, 224, 150, 224, 100,
         "19bc362ab188e9f263be3a3cb9937da50279dce5d20af038a1f01a60f616ce57"},
        {RESIZE_HAMMING, 17, 5, 224, 150, 100, 150,
         "9c053278049c778d9a4566252e14b9a09884229326322edaeb814a4dd7593b91"},
        {RESIZE_HAMMING, 1, 2, 300, 200, 7, 5,
         "3252d9b8e16bfc3b682fba53755c77d3074ac90ce38e2d53afbaacb71dc5c8f5"},
        {RESIZE_HAMMING, 10, 20, 3, 2, 64, 48,
         "acbc6777f16c8e7be4a870d0263c6605eff9f5f9cc475d7bcf0f5f8515f2fe25"},
        {RESIZE_HAMMING, 0, 0, 301, 203, 1, 1,
         "d8d83e152275cdecf91efea09d7aebf3060c10fe7042abaabf8b5df0c6d36173"},
        {RESIZE_HAMMING, 0, 0, 301, 3, 33, 203,
         "d5c8ca050a5c0ba34a8723b70af0a268d8e6c7ad69003c103451fd5abab3357c"},
};

START_TEST(test_resize_gives_pillows_bits) {
        struct resizer resizer = {0};

        draw_pattern();
        for (size_t i = 0; i < sizeof(digests) / sizeof(digests[0]); i++) {
                uint32_t w = digests[i].to_width, h = digests[i].to_height;
                size_t size = (size_t)w * h * 3;
                uint8_t *block = new_block(size);
                char hex[65];

                ck_assert_int_eq(resizer_run(&resizer, digests[i].filter, block + MARGIN, (size_t)w * 3, w, h,
                                             pattern[digests[i].top][digests[i].left], sizeof(pattern[0]),
                                             digests[i].width, digests[i].height),
                                 0);
                check_margins(block, size);
                hex_digest(block + MARGIN, size, hex);
                ck_assert_msg(strcmp(hex, digests[i].sha256) == 0, "case %zu: %s", i, hex);
                free(block);
        }
        resizer_deinit(&resizer);
}
END_TEST

static long double sincl(long double x) {
        return x == 0 ? 1 : sinl(M_PIl * x) / (M_PIl * x);
}

static const long double support[] = {
        [RESIZE_BILINEAR] = 1, [RESIZE_BICUBIC] = 2, [RESIZE_BOX] = 0.5L,
        [RESIZE_LANCZOS] = 3,  [RESIZE_HAMMING] = 1,
};

/* Within the support. */
static long double filter_at(enum resize_filter filter, long double x) {
        x = fabsl(x);
        switch (filter) {
        case RESIZE_BILINEAR:
                return 1 - x;
        case RESIZE_BICUBIC:
                return x < 1 ? 1.5L * x * x * x - 2.5L * x * x + 1
                             : -0.5L * x * x * x + 2.5L * x * x - 4 * x + 2;
        case RESIZE_LANCZOS:
                return sincl(x) * sincl(x / 3);
        case RESIZE_HAMMING:
                return sincl(x) * (0.54L + 0.46L * cosl(M_PIl * x));
        default:
                return 1;
        }
}

/* One axis of the definition: sum of value * filter(distance / stretch) / sum of the filter. */
static long double weighted(enum resize_filter filter, const uint8_t *from, size_t step, uint32_t inputs,
                            uint32_t outputs, uint32_t i) {
        long double scale = (long double)inputs / outputs, stretch = scale < 1 ? 1 : scale, sum = 0,
                    total = 0;
        long double center = (i + 0.5L) * scale, reach = support[filter] * stretch;

        for (uint32_t x = 0; x < inputs; x++) {
                long double distance = x + 0.5L - center, weight;

                if (fabsl(distance) > reach || (filter == RESIZE_BOX && distance == -reach))
                        continue;
                weight = filter_at(filter, distance / stretch);
                sum += weight * from[x * step];
                total += weight;
        }
        return sum / total;
}

static uint8_t rounded(long double value) {
        return value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)floorl(value + 0.5L);
}

/* Bits may differ by one where the definition lies within a hair of a half, in either pass. */
static void check_definition(enum resize_filter filter, uint32_t w, uint32_t h, uint32_t to_w,
                             uint32_t to_h) {
        struct resizer resizer = {0};
        uint8_t *between = malloc((size_t)to_w * h), *result = malloc((size_t)to_w * to_h * 3);

        ck_assert_int_eq(resizer_run(&resizer, filter, result, (size_t)to_w * 3, to_w, to_h, pattern[0][0],
                                     sizeof(pattern[0]), w, h),
                         0);
        for (unsigned c = 0; c < 3; c++) {
                for (uint32_t y = 0; y < h; y++)
                        for (uint32_t x = 0; x < to_w; x++)
                                between[y * to_w + x] =
                                        rounded(weighted(filter, &pattern[y][0][c], 3, w, to_w, x));
                for (uint32_t y = 0; y < to_h; y++)
                        for (uint32_t x = 0; x < to_w; x++) {
                                int want = rounded(weighted(filter, between + x, to_w, h, to_h, y));
                                int got = result[((size_t)y * to_w + x) * 3 + c];

                                ck_assert_msg(abs(want - got) <= 1, "%ux%u to %ux%u at %u,%u: %d, not %d", w,
                                              h, to_w, to_h, x, y, got, want);
                        }
        }
        free(between);
        free(result);
        resizer_deinit(&resizer);
}

START_TEST(test_resize_follows_the_definition) {
        static const uint32_t sizes[][4] = {{40, 30, 17, 13}, {13, 17, 40, 31}, {50, 3, 7, 9},
                                            {1, 60, 5, 4},    {60, 1, 4, 5},    {31, 31, 31, 7},
                                            {31, 31, 8, 31},  {2, 2, 64, 64},   {97, 101, 3, 2},
                                            {64, 64, 32, 32}, {9, 9, 9, 9}};

        draw_pattern();
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                check_definition(RESIZE_BILINEAR, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
                check_definition(RESIZE_BICUBIC, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
                check_definition(RESIZE_BOX, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
                check_definition(RESIZE_LANCZOS, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
                check_definition(RESIZE_HAMMING, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
        }
}
END_TEST

/* Which pixel is copied, and where halves fall: of 3 to 2 the first and the last, of 2 to 4 each twice. */
START_TEST(test_nearest_copies_pixels) {
        static const struct {
                uint32_t inputs, outputs, places[6];
        } cases[] = {
                {3, 2, {0, 2}},    {2, 4, {0, 0, 1, 1}}, {5, 5, {0, 1, 2, 3, 4}}, {1, 6, {0, 0, 0, 0, 0, 0}},
                {9, 3, {1, 4, 7}}, {8, 2, {2, 6}},       {100, 1, {50}},
        };
        struct resizer resizer = {0};
        uint8_t got[6][6][3];

        draw_pattern();
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                uint32_t inputs = cases[i].inputs, outputs = cases[i].outputs;

                ck_assert_int_eq(resizer_run(&resizer, RESIZE_NEAREST, got[0][0], sizeof(got[0]), outputs,
                                             outputs, pattern[0][0], sizeof(pattern[0]), inputs, inputs),
                                 0);
                for (uint32_t y = 0; y < outputs; y++)
                        for (uint32_t x = 0; x < outputs; x++)
                                ck_assert_mem_eq(got[y][x], pattern[cases[i].places[y]][cases[i].places[x]],
                                                 3);
        }
        resizer_deinit(&resizer);
}
END_TEST

START_TEST(test_resize_keeps_extremes) {
        struct resizer resizer = {0};
        uint8_t *from = malloc(100 * 100 * 3), *to = malloc(37 * 53 * 3), *want = malloc(37 * 53 * 3);

        for (int value = 0; value < 256; value += 51) {
                memset(from, value, 100 * 100 * 3);
                for (int filter = RESIZE_BILINEAR; filter <= RESIZE_HAMMING; filter++) {
                        ck_assert_int_eq(
                                resizer_run(&resizer, filter, to, 37 * 3, 37, 53, from, 100 * 3, 100, 100),
                                0);
                        memset(want, value, 37 * 53 * 3);
                        ck_assert_mem_eq(to, want, 37 * 53 * 3);
                }
        }
        free(from);
        free(to);
        free(want);
        resizer_deinit(&resizer);
}
END_TEST

START_TEST(test_a_used_resizer_gives_the_same) {
        struct resizer used = {0};
        uint8_t first[16 * 16 * 3], second[16 * 16 * 3], other[90 * 90 * 3];

        draw_pattern();
        resizer_run(&used, RESIZE_BICUBIC, first, 16 * 3, 16, 16, pattern[0][0], sizeof(pattern[0]), 200,
                    100);
        resizer_run(&used, RESIZE_BILINEAR, other, 90 * 3, 90, 90, pattern[0][0], sizeof(pattern[0]), 20, 33);
        resizer_run(&used, RESIZE_BICUBIC, second, 16 * 3, 16, 16, pattern[0][0], sizeof(pattern[0]), 200,
                    100);
        ck_assert_mem_eq(first, second, sizeof(first));
        resizer_deinit(&used);
        resizer_deinit(&used);
}
END_TEST

/* A row of pixels as wide as a PNG can be, to one pixel: its weights are more than 32 bits count, and no
 * pixel is read. */
START_TEST(test_weights_that_cannot_be_counted) {
        struct resizer resizer = {0};
        uint8_t from[3] = {0}, to[3];

        ck_assert_int_eq(resizer_run(&resizer, RESIZE_LANCZOS, to, 3, 1, 1, from, 3, 715827890, 1),
                         -EOVERFLOW);
        ck_assert_int_eq(resizer_run(&resizer, RESIZE_LANCZOS, to, 3, 1, 1, from, 3, 1, 715827890),
                         -EOVERFLOW);
        resizer_deinit(&resizer);
}
END_TEST

/* ---- convert ---- */

static const float mean[3] = {0.485f, 0.456f, 0.406f}, deviation[3] = {0.229f, 0.224f, 0.225f};

/* The value of a float16 by its definition. */
static double half_value(uint16_t bits) {
        int exponent = bits >> 10 & 31, fraction = bits & 1023;
        double value = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);

        return bits & 0x8000 ? -value : value;
}

/* The float16 nearest to x, the even one of two, by looking at all that are finite. */
static uint16_t half_nearest(float x) {
        uint16_t best = 0;
        double distance = INFINITY;

        for (uint32_t bits = 0; bits < 0x7c00; bits++) {
                double d = fabs(fabs((double)x) - half_value((uint16_t)bits));

                if (d < distance || (d == distance && !(bits & 1))) {
                        distance = d;
                        best = (uint16_t)bits;
                }
        }
        return (uint16_t)(best | (signbit(x) ? 0x8000 : 0));
}

static float bfloat_value(uint32_t bits) {
        uint32_t wide = bits << 16;
        float value;

        memcpy(&value, &wide, sizeof(value));
        return value;
}

static void check_bfloat(uint16_t got, float x) {
        double below = fabs((double)bfloat_value(got - 1u) - x), here = fabs((double)bfloat_value(got) - x);
        double above = fabs((double)bfloat_value(got + 1u) - x);

        if (got & 0x7fff)
                ck_assert(here < below || (here == below && !(got & 1)));
        ck_assert(here < above || (here == above && !(got & 1)));
        ck_assert_int_eq(got >> 15, signbit(x) ? 1 : 0);
}

static float expected(unsigned value, unsigned channel, int normalize) {
        float x = (float)value;

        x /= 255.0f;
        if (normalize) {
                x -= mean[channel];
                x /= deviation[channel];
        }
        return x;
}

START_TEST(test_every_value_converts_right) {
        struct convert_table f32, f16, bf16, u8;

        for (int normalize = 0; normalize < 2; normalize++) {
                ck_assert_int_eq(convert_table_init(&f32, SCHEMA_FLOAT32, normalize, mean, deviation), 0);
                ck_assert_int_eq(convert_table_init(&f16, SCHEMA_FLOAT16, normalize, mean, deviation), 0);
                ck_assert_int_eq(convert_table_init(&bf16, SCHEMA_BFLOAT16, normalize, mean, deviation), 0);
                for (unsigned c = 0; c < 3; c++)
                        for (unsigned v = 0; v < 256; v++) {
                                float x = expected(v, c, normalize);

                                ck_assert_mem_eq(&f32.of.f32[c][v], &x, sizeof(x));
                                ck_assert_uint_eq(f16.of.u16[c][v], half_nearest(x));
                                check_bfloat(bf16.of.u16[c][v], x);
                        }
        }
        ck_assert_int_eq(convert_table_init(&u8, SCHEMA_UINT8, 0, mean, deviation), 0);
        ck_assert_int_lt(convert_table_init(&u8, SCHEMA_UINT8, 1, mean, deviation), 0);
        ck_assert_int_lt(convert_table_init(&u8, SCHEMA_INT64, 0, mean, deviation), 0);
}
END_TEST

/* Means and deviations that reach the ends of float16: subnormals, the largest, infinity, zero. */
START_TEST(test_float16_at_its_ends) {
        static const float none[3] = {0, 0, 0}, wide[3] = {1e-9f, 1.53e-5f, 7e3f};
        struct convert_table table;

        ck_assert_int_eq(convert_table_init(&table, SCHEMA_FLOAT16, 1, none, wide), 0);
        for (unsigned v = 1; v < 256; v++) {
                float large = (float)v / 255.0f / wide[1], small = (float)v / 255.0f / wide[2];

                ck_assert_uint_eq(table.of.u16[0][v], 0x7c00);
                ck_assert_uint_eq(table.of.u16[1][v], large >= 65520 ? 0x7c00 : half_nearest(large));
                ck_assert_uint_eq(table.of.u16[2][v], half_nearest(small));
        }
        ck_assert_uint_eq(table.of.u16[0][0], 0);
}
END_TEST

/* (255/255 - mean) / 1 exactly between two results: the even one. */
START_TEST(test_ties_go_to_even) {
        static const float half[3] = {-0x1p-11f, -0x3p-11f, 0}, bfloat[3] = {-0x1p-8f, -0x3p-8f, 2 + 0x1p-8f};
        static const float one[3] = {1, 1, 1};
        struct convert_table table;

        ck_assert_int_eq(convert_table_init(&table, SCHEMA_FLOAT16, 1, half, one), 0);
        ck_assert_uint_eq(table.of.u16[0][255], 0x3c00);
        ck_assert_uint_eq(table.of.u16[1][255], 0x3c02);
        ck_assert_int_eq(convert_table_init(&table, SCHEMA_BFLOAT16, 1, bfloat, one), 0);
        ck_assert_uint_eq(table.of.u16[0][255], 0x3f80);
        ck_assert_uint_eq(table.of.u16[1][255], 0x3f82);
        ck_assert_uint_eq(table.of.u16[2][255], 0xbf80);
}
END_TEST

START_TEST(test_layouts_and_mirroring) {
        enum {
                W = 19,
                H = 7,
                SKIP = 5, /* pixels between rows that are not of the image */
        };
        struct convert_table table;
        uint8_t from[H][W + SKIP][3];
        float chw[3][H][W], hwc[H][W][3];
        uint8_t bytes[H][W][3];
        uint64_t state = 5;

        for (size_t i = 0; i < sizeof(from); i++)
                ((uint8_t *)from)[i] = (uint8_t)next_random(&state);
        for (int mirrored = 0; mirrored < 2; mirrored++) {
                convert_table_init(&table, SCHEMA_FLOAT32, 1, mean, deviation);
                convert_chw(&table, chw, from[0][0], sizeof(from[0]), W, H, mirrored);
                convert_hwc(&table, hwc, from[0][0], sizeof(from[0]), W, H, mirrored);
                convert_table_init(&table, SCHEMA_UINT8, 0, mean, deviation);
                convert_hwc(&table, bytes, from[0][0], sizeof(from[0]), W, H, mirrored);
                for (unsigned y = 0; y < H; y++)
                        for (unsigned x = 0; x < W; x++)
                                for (unsigned c = 0; c < 3; c++) {
                                        uint8_t value = from[y][mirrored ? W - 1 - x : x][c];

                                        ck_assert_float_eq(chw[c][y][x], expected(value, c, 1));
                                        ck_assert_float_eq(hwc[y][x][c], expected(value, c, 1));
                                        ck_assert_uint_eq(bytes[y][x][c], value);
                                }
        }
}
END_TEST

START_TEST(test_mirror) {
        uint8_t rows[2][5][3], want[2][5][3];

        for (unsigned width = 0; width <= 4; width++) {
                draw_pattern();
                for (unsigned y = 0; y < 2; y++)
                        for (unsigned x = 0; x < 5; x++) {
                                memcpy(rows[y][x], pattern[y][x], 3);
                                memcpy(want[y][x], pattern[y][x < width ? width - 1 - x : x], 3);
                        }
                mirror_rows(rows[0][0], sizeof(rows[0]), width, 2);
                ck_assert_mem_eq(rows, want, sizeof(want));
        }
}
END_TEST

int main(void) {
        Suite *suite = suite_create("kernels");
        TCase *resize = tcase_create("resize"), *convert = tcase_create("convert");

        tcase_add_test(resize, test_resize_gives_pillows_bits);
        tcase_add_test(resize, test_resize_follows_the_definition);
        tcase_add_test(resize, test_nearest_copies_pixels);
        tcase_add_test(resize, test_resize_keeps_extremes);
        tcase_add_test(resize, test_a_used_resizer_gives_the_same);
        tcase_add_test(resize, test_weights_that_cannot_be_counted);
        tcase_add_test(convert, test_every_value_converts_right);
        tcase_add_test(convert, test_float16_at_its_ends);
        tcase_add_test(convert, test_ties_go_to_even);
        tcase_add_test(convert, test_layouts_and_mirroring);
        tcase_add_test(convert, test_mirror);
        tcase_set_timeout(resize, 60);
        tcase_set_timeout(convert, 60);
        suite_add_tcase(suite, resize);
        suite_add_tcase(suite, convert);
        return run_suite(suite);
}
