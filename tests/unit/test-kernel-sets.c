/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Every set of kernels that this CPU runs against the definition, in plain C: each operation on random input
 * of odd sizes, strides and alignments, and then whole streams by their digests.
 *
 * The rows that a kernel reads lie in one of three ways, so that what is read beyond them is noticed: packed
 * in a block of exactly their size, which a sanitizer watches; each row up to the end of a page, or from its
 * beginning, with pages between that nobody may touch, which needs no sanitizer. What is written lies between
 * margins that must stay as they were.
 */

#include "base/cleanup.h"
#include "base/fd.h"
#include "daemon/worker/kernels/kernels.h"
#include "tests/support/assembly.h"
#include "tests/support/run.h"

#include <check.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
        ROUNDS = 10000,
        ROWS_MAX = 9,
        INPUTS_MAX = 90,
        WIDTH_MAX = 600, /* pixels of a converted row: more than kernels take at once */
        BYTES = 3,
        MARGIN = 64, /* bytes around a result that must stay as they were */
        CANARY = 0xa5,
};

/* A small generator of its own, so that this test stands alone. */
static uint32_t next_random(uint64_t *state) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (uint32_t)(*state >> 33);
}

/* ---- where rows lie ---- */

/* ROWS_MAX pages, and pages that nobody may touch before, between and after them. */
static struct {
        uint8_t *first;
        size_t page;
} fences;

static void set_up_fences(void) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        uint8_t *start = mmap(NULL, (2 * ROWS_MAX + 1) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        ck_assert_ptr_ne(start, MAP_FAILED);
        fences.page = page;
        fences.first = start + page;
        for (size_t i = 0; i < ROWS_MAX; i++)
                ck_assert_int_eq(mprotect(fences.first + 2 * i * page, page, PROT_READ | PROT_WRITE), 0);
}

static void tear_down_fences(void) {
        munmap(fences.first - fences.page, (2 * ROWS_MAX + 1) * fences.page);
}

struct rows {
        const uint8_t *first;
        size_t stride;
        uint8_t *block; /* of packed ones */
};

static struct rows rows_new(size_t bytes, uint32_t n, uint64_t *state) {
        uint32_t way = next_random(state) % 4, before = next_random(state) % 32;
        struct rows rows = {.stride = 2 * fences.page};
        uint8_t *first;

        if (way == 0) {
                first = fences.first;
        } else if (way == 1) {
                first = fences.first + fences.page - bytes;
        } else {
                if (way == 2)
                        before = 0; /* so that the sanitizer knows where the first row begins, too */
                rows.stride = bytes + next_random(state) % 5;
                rows.block = malloc(before + rows.stride * (n - 1) + bytes);
                first = rows.block + before;
        }
        for (uint32_t y = 0; y < n; y++)
                for (size_t i = 0; i < bytes; i++)
                        first[y * rows.stride + i] = (uint8_t)next_random(state);
        rows.first = first;
        return rows;
}

static void rows_free(struct rows *rows) {
        free(rows->block);
}

/* Two results of the same size in the same place of a line: what the definition gave, and what was got. */
struct results {
        uint8_t *want_block, *got_block, *want, *got;
        size_t size;
};

static uint8_t *new_block(size_t size) {
        uint8_t *block = aligned_alloc(MARGIN, (size + MARGIN - 1) / MARGIN * MARGIN);

        ck_assert_ptr_nonnull(block);
        memset(block, CANARY, size);
        return block;
}

/* On a border of `unit` bytes, and every second time on the one that a kernel may like best. */
static struct results results_new(size_t size, size_t unit, uint64_t *state) {
        size_t place = MARGIN + (next_random(state) % 2 ? next_random(state) % (MARGIN / unit) * unit : 0);
        struct results results = {.size = size + 3 * MARGIN};

        results.want_block = new_block(results.size);
        results.got_block = new_block(results.size);
        results.want = results.want_block + place;
        results.got = results.got_block + place;
        return results;
}

static void results_check(const struct results *results, const struct kernels *kernels, const char *what,
                          unsigned round) {
        if (memcmp(results->want_block, results->got_block, results->size) != 0)
                ck_abort_msg("%s of %s, round %u: not what the definition gives", what, kernels->name, round);
}

static void results_free(struct results *results) {
        free(results->want_block);
        free(results->got_block);
}

/* ---- one operation on one input ---- */

/* All of an output's weights together stay in what 255 times them, plus one half, fits 32 bits. */
static int32_t random_weight(uint64_t *state, uint32_t taps) {
        int32_t most = (1 << 23) / (int32_t)taps - 1, least = -most / 4;

        switch (next_random(state) % 8) {
        case 0:
                return most;
        case 1:
                return least;
        default:
                return least + (int32_t)(next_random(state) % (uint32_t)(most - least));
        }
}

/* Every second time the inputs of neighbours lie together, as they do where a picture is resized. */
static void random_axis(struct resize_axis *axis, uint32_t inputs, uint64_t *state) {
        uint32_t rising = next_random(state) % 2;

        axis->inputs = inputs;
        axis->outputs = 1 + next_random(state) % 70;
        axis->taps = (1 + next_random(state) % 4) * RESIZE_GROUP;
        axis->first = malloc(axis->outputs * sizeof(uint32_t));
        axis->counts = malloc(axis->outputs * sizeof(uint32_t));
        axis->weights = calloc((size_t)axis->outputs * axis->taps, sizeof(int32_t));
        axis->halves = malloc((size_t)axis->outputs * axis->taps * sizeof(int32_t));
        for (uint32_t i = 0; i < axis->outputs; i++) {
                axis->counts[i] = 1 + next_random(state) % (axis->taps < inputs ? axis->taps : inputs);
                axis->first[i] = rising ? (inputs - axis->counts[i]) * i / axis->outputs
                                        : next_random(state) % (inputs - axis->counts[i] + 1);
                for (uint32_t x = 0; x < axis->counts[i]; x++)
                        axis->weights[i * axis->taps + x] = random_weight(state, axis->taps);
        }
        for (uint32_t x = 0; x < axis->outputs * axis->taps; x++) {
                int16_t *group = axis->halves + x / RESIZE_GROUP * 2 * RESIZE_GROUP;

                group[x % RESIZE_GROUP] = (int16_t)(axis->weights[x] >> 8);
                group[x % RESIZE_GROUP + RESIZE_GROUP] = (int16_t)(axis->weights[x] & 255);
        }
}

static void free_axis(struct resize_axis *axis) {
        free(axis->first);
        free(axis->counts);
        free(axis->weights);
        free(axis->halves);
}

static void compare_horizontal(const struct kernels *kernels, uint64_t *state, unsigned round) {
        uint32_t inputs = 1 + next_random(state) % INPUTS_MAX, n = 1 + next_random(state) % ROWS_MAX;
        struct rows rows = rows_new((size_t)inputs * BYTES, n, state);
        struct results results;
        struct resize_axis axis;
        size_t stride;

        random_axis(&axis, inputs, state);
        stride = (size_t)axis.outputs * BYTES + next_random(state) % 3;
        results = results_new(stride * n, 1, state);
        kernels_c.resize_horizontal(&axis, results.want, stride, rows.first, rows.stride, n);
        kernels->resize_horizontal(&axis, results.got, stride, rows.first, rows.stride, n);
        results_check(&results, kernels, "resize_horizontal", round);
        results_free(&results);
        free_axis(&axis);
        rows_free(&rows);
}

static void compare_vertical(const struct kernels *kernels, uint64_t *state, unsigned round) {
        uint32_t n = 1 + next_random(state) % ROWS_MAX;
        size_t bytes = 1 + next_random(state) % (INPUTS_MAX * BYTES);
        struct rows rows = rows_new(bytes, n, state);
        struct results results = results_new(bytes, 1, state);
        int32_t weights[ROWS_MAX];

        for (uint32_t y = 0; y < n; y++)
                weights[y] = random_weight(state, n);
        kernels_c.resize_vertical(results.want, rows.first, rows.stride, bytes, weights, n);
        kernels->resize_vertical(results.got, rows.first, rows.stride, bytes, weights, n);
        results_check(&results, kernels, "resize_vertical", round);
        results_free(&results);
        rows_free(&rows);
}

/* Any width, and those that a kernel may like best. */
static uint32_t random_width(uint64_t *state) {
        uint32_t width = 1 + next_random(state) % (next_random(state) % 8 == 0 ? WIDTH_MAX : INPUTS_MAX);
        uint32_t unit = 8u << next_random(state) % 3;

        return next_random(state) % 2 ? (width + unit - 1) / unit * unit : width;
}

static void compare_convert(const struct kernels *kernels, uint64_t *state, unsigned round) {
        uint32_t width = random_width(state), height = 1 + next_random(state) % 5;
        unsigned class = next_random(state) % 3, mirrored = next_random(state) % 2;
        struct rows rows = rows_new((size_t)width * BYTES, height, state);
        size_t unit = (size_t)1 << class, size = (size_t)width * height * BYTES * unit;
        struct results chw = results_new(size, unit, state), hwc = results_new(size, unit, state);
        static struct convert_table table;

        if (round % 100 == 0)
                for (size_t i = 0; i < sizeof(table.of); i++)
                        ((uint8_t *)&table.of)[i] = (uint8_t)next_random(state);
        kernels_c.convert_chw[class](&table, chw.want, rows.first, rows.stride, width, height, mirrored);
        kernels->convert_chw[class](&table, chw.got, rows.first, rows.stride, width, height, mirrored);
        results_check(&chw, kernels, "convert_chw", round);
        kernels_c.convert_hwc[class](&table, hwc.want, rows.first, rows.stride, width, height, mirrored);
        kernels->convert_hwc[class](&table, hwc.got, rows.first, rows.stride, width, height, mirrored);
        results_check(&hwc, kernels, "convert_hwc", round);
        results_free(&chw);
        results_free(&hwc);
        rows_free(&rows);
}

static void compare_mirror(const struct kernels *kernels, uint64_t *state, unsigned round) {
        uint32_t width = random_width(state), height = 1 + next_random(state) % 3;
        size_t stride = (size_t)width * BYTES + next_random(state) % 4, size = stride * height;
        struct results results = results_new(size, 1, state);

        for (size_t i = 0; i < size; i++)
                results.want[i] = results.got[i] = (uint8_t)next_random(state);
        kernels_c.mirror(results.want, stride, width, height);
        kernels->mirror(results.got, stride, width, height);
        results_check(&results, kernels, "mirror", round);
        results_free(&results);
}

START_TEST(test_every_set_equals_the_definition) {
        unsigned rounds = getenv("PINFEED_TEST_QUICK") ? ROUNDS / 10 : ROUNDS;

        ck_assert_ptr_eq(kernels_all[0], &kernels_c);
        for (size_t i = 1; kernels_all[i]; i++) {
                uint64_t state = 1;

                if (!kernels_usable(kernels_all[i])) {
                        printf("# kernels %s: not for this CPU\n", kernels_all[i]->name);
                        continue;
                }
                for (unsigned round = 0; round < rounds; round++) {
                        compare_horizontal(kernels_all[i], &state, round);
                        compare_vertical(kernels_all[i], &state, round);
                        compare_convert(kernels_all[i], &state, round);
                        compare_mirror(kernels_all[i], &state, round);
                }
        }
}
END_TEST

/* ---- whole streams ---- */

static void put_noisy_jpeg(const char *name, unsigned width, unsigned height, uint64_t *state) {
        struct jpeg_error_mgr errors;
        struct jpeg_compress_struct jpeg = {.err = jpeg_std_error(&errors)};
        FILE *file = fopen(in_folder(name), "wb");
        uint8_t *row = malloc((size_t)width * BYTES);

        ck_assert(file && row);
        jpeg_create_compress(&jpeg);
        jpeg_stdio_dest(&jpeg, file);
        jpeg.image_width = width;
        jpeg.image_height = height;
        jpeg.input_components = BYTES;
        jpeg.in_color_space = JCS_RGB;
        jpeg_set_defaults(&jpeg);
        jpeg_start_compress(&jpeg, TRUE);
        while (jpeg.next_scanline < jpeg.image_height) {
                for (size_t i = 0; i < (size_t)width * BYTES; i++)
                        row[i] = (uint8_t)next_random(state);
                jpeg_write_scanlines(&jpeg, &row, 1);
        }
        jpeg_finish_compress(&jpeg);
        jpeg_destroy_compress(&jpeg);
        fclose(file);
        free(row);
}

static void digest_of_slot(const char *recipe, int index_fd, uint8_t digest[SHA256_DIGEST_SIZE]) {
        struct sha256_ctx context;
        struct fixture fixture;

        fixture_init(&fixture, recipe, 8, 16, 1, index_fd);
        ck_assert_msg(fill(&fixture, 3, 1, 0, 0, 16) == 0, "%s", fixture.fault.text);
        sha256_init(&context);
        sha256_update(&context, fixture.schema.slot_stride, fixture.slot);
        sha256_digest(&context, SHA256_DIGEST_SIZE, digest);
        fixture_deinit(&fixture);
}

static void check_digests(const char *recipe, int index_fd) {
        uint8_t want[SHA256_DIGEST_SIZE], got[SHA256_DIGEST_SIZE];

        for (size_t i = 0; kernels_all[i]; i++) {
                if (!kernels_usable(kernels_all[i]))
                        continue;
                setenv("PINFEED_TEST_KERNELS", kernels_all[i]->name, 1);
                ck_assert_ptr_eq(kernels_best(), kernels_all[i]);
                digest_of_slot(recipe, index_fd, i == 0 ? want : got);
                if (i > 0)
                        ck_assert_msg(memcmp(want, got, sizeof(want)) == 0, "%s: %s", kernels_all[i]->name,
                                      recipe);
        }
        unsetenv("PINFEED_TEST_KERNELS");
}

/* Sizes that the faster copies like, and one that they leave to the definition. */
START_TEST(test_digests_are_the_same_with_every_set) {
        static const char *const filters[] = {"nearest", "box", "bilinear", "bicubic", "lanczos", "hamming"};
        static const char *const outputs[] = {
                "\"uint8\", \"layout\": \"chw\"",   "\"uint8\", \"layout\": \"hwc\"",
                "\"float16\", \"layout\": \"chw\"", "\"bfloat16\", \"layout\": \"channels_last\"",
                "\"float32\", \"layout\": \"chw\"", "\"float32\", \"layout\": \"hwc\""};
        _cleanup_(fd_closep) int index_fd = -1;
        char recipe[PATH_MAX], transforms[256], output[128], name[16];
        uint64_t state = 5;

        if (!has_test_modes()) {
                printf("# digests: no test build, so the set cannot be chosen\n");
                return;
        }
        put_directory("a");
        for (unsigned i = 0; i < 8; i++) {
                snprintf(name, sizeof(name), "a/%u.jpg", i);
                put_noisy_jpeg(name, 100 + 31 * i, 170 - 13 * i, &state);
        }
        ck_assert_int_eq(scan_folder(&index_fd, NULL), 8);
        for (unsigned i = 0; i < 6; i++)
                for (unsigned size = 63; size <= 64; size++) {
                        snprintf(transforms, sizeof(transforms),
                                 "[{\"random_resized_crop\": {\"size\": %u, \"interpolation\": \"%s\"}}, "
                                 "{\"random_horizontal_flip\": {}}]",
                                 size, filters[i]);
                        snprintf(output, sizeof(output), "\"output\": {\"dtype\": %s}", outputs[i]);
                        image_recipe(recipe, transforms, output);
                        check_digests(recipe, index_fd);
                }
}
END_TEST

int main(void) {
        Suite *suite = suite_create("kernel-sets");
        TCase *operations = tcase_create("operations"), *streams = tcase_create("streams");

        tcase_add_checked_fixture(operations, set_up_fences, tear_down_fences);
        tcase_add_checked_fixture(streams, make_folder, remove_folder);
        tcase_add_test(operations, test_every_set_equals_the_definition);
        tcase_add_test(streams, test_digests_are_the_same_with_every_set);
        tcase_set_timeout(operations, 60);
        tcase_set_timeout(streams, 60);
        suite_add_tcase(suite, operations);
        suite_add_tcase(suite, streams);
        return run_suite(suite);
}
