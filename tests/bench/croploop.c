/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* croploop --through libjpeg|codec --rows N [--digest] FOLDER
 *
 * What it costs to read and decode the part of a photograph that random_resized_crop wants, and nothing more.
 * "libjpeg" is the yardstick: the fewest calls of the library that give the pixels, one decompressor for all
 * files, no look at damage. "codec" goes through the worker's codecs. All else is one code for both: files,
 * their order and the windows, which are those of a pipeline with `shuffle` whose first transform is
 * random_resized_crop, seed 0, from epoch 0 on. JPEG files only, as all that the yardstick can read.
 *
 * With --digest the clock is left out, and the SHA-256 of all pixels printed: are both the same work? */

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/number.h"
#include "daemon/worker/codec.h"
#include "daemon/worker/image.h"
#include "daemon/worker/sources/imagefolder-scan.h"
#include "daemon/worker/transforms/transforms.h"
#include "proto/index.h"
#include "proto/order.h"
#include "tests/bench/bare.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jpeglib.h>

enum {
        EDGE = 2, /* pixels beside the window that its chroma is smoothed with; see codecs/jpeg.c */
        ROWS_AT_ONCE = 4,
        BYTES = 3, /* of a pixel */
};

struct bench;

/* Leaves the window's pixels in bench->image. */
typedef int (*decode_fn)(struct bench *bench, size_t length, struct random *random, struct fault *fault);

struct bench {
        const char *folder;
        decode_fn decode;
        uint64_t rows;
        int digest;

        struct recipe recipe;
        struct index index;
        int root;
        uint8_t *bytes; /* of the file in work */
        size_t capacity;
        struct image image;
        struct sha256_ctx sha256;

        struct decoder *decoder;
        struct jpeg_decompress_struct jpeg;
        struct jpeg_error_mgr errors;
};

/* ---- the two ways ---- */

static void read_rows(struct jpeg_decompress_struct *jpeg, uint32_t until, uint8_t *to, size_t stride) {
        JSAMPROW rows[ROWS_AT_ONCE];

        while (jpeg->output_scanline < until) {
                JDIMENSION left = until - jpeg->output_scanline, n;

                for (n = 0; n < left && n < ROWS_AT_ONCE; n++)
                        rows[n] = to + n * stride;
                to += jpeg_read_scanlines(jpeg, rows, n) * stride;
        }
}

static int through_libjpeg(struct bench *bench, size_t length, struct random *random, struct fault *fault) {
        struct jpeg_decompress_struct *jpeg = &bench->jpeg;
        struct transform_window window;
        JDIMENSION left, width;
        int r;

        jpeg_mem_src(jpeg, bench->bytes, length);
        jpeg_read_header(jpeg, TRUE);
        transform_random_window(&bench->recipe.transforms[0], random, jpeg->image_width, jpeg->image_height,
                                &window);
        jpeg->out_color_space = JCS_RGB;
        jpeg_start_decompress(jpeg);
        left = window.left > EDGE ? window.left - EDGE : 0;
        width = window.left + window.width + EDGE - left;
        if (width > jpeg->output_width - left)
                width = jpeg->output_width - left;
        jpeg_crop_scanline(jpeg, &left, &width);
        r = image_reset(&bench->image, jpeg->output_width, window.height);
        if (r < 0)
                return fault_set(fault, r, "no memory for %u x %u pixels", jpeg->output_width, window.height);
        if (window.top > 0)
                jpeg_skip_scanlines(jpeg, window.top);
        read_rows(jpeg, window.top + window.height, bench->image.pixels, bench->image.stride);
        jpeg_abort_decompress(jpeg);
        image_crop(&bench->image, window.left - left, 0, window.width, window.height);
        return 0;
}

static int through_codec(struct bench *bench, size_t length, struct random *random, struct fault *fault) {
        struct transform_window window;
        const char *format;
        int r;

        r = decoder_open(bench->decoder, bench->bytes, length, &bench->image, &format, fault);
        if (r < 0)
                return r;
        transform_random_window(&bench->recipe.transforms[0], random, bench->image.width, bench->image.height,
                                &window);
        image_crop(&bench->image, window.left, window.top, window.width, window.height);
        return image_load(&bench->image, fault);
}

/* ---- files ---- */

static int find_files(struct bench *bench, struct fault *fault) {
        json_t *json =
                json_pack("{s:{s:s, s:s}, s:[{s:{s:i}}], s:{}}", "source", "type", "imagefolder", "path",
                          bench->folder, "transforms", "random_resized_crop", "size", 224, "output");
        _cleanup_(fd_closep) int index_fd = -1;
        uint64_t samples;
        uint32_t classes;
        int r = recipe_from_json(&bench->recipe, json, fault);

        json_decref(json);
        if (r >= 0)
                r = imagefolder_scan(&bench->recipe.source, NULL, NULL, &samples, &classes, &index_fd, fault);
        if (r >= 0)
                r = index_init_map(&bench->index, index_fd, fault);
        if (r >= 0)
                r = bench->root = imagefolder_open_root(bench->folder, fault);
        return r;
}

static int make_room(struct bench *bench, size_t size) {
        if (size <= bench->capacity)
                return 0;
        free(bench->bytes);
        bench->bytes = malloc(size);
        bench->capacity = bench->bytes ? size : 0;
        return bench->bytes ? 0 : -ENOMEM;
}

/* The number of bytes, or a negative errno. */
static ssize_t read_file(struct bench *bench, const char *name) {
        _cleanup_(fd_closep) int fd = openat(bench->root, name, O_RDONLY | O_CLOEXEC);
        struct stat status;

        if (fd < 0 || fstat(fd, &status) < 0)
                return -errno;
        if (make_room(bench, (size_t)status.st_size) < 0)
                return -ENOMEM;
        return fd_pread_full(fd, bench->bytes, (size_t)status.st_size, 0);
}

static int take(struct bench *bench, uint32_t epoch, uint64_t sample, struct fault *fault) {
        const struct index_entry *entry = &bench->index.entries[sample];
        char name[PATH_MAX];
        struct random random;
        ssize_t n;
        int r;

        memcpy(name, bench->index.base + entry->name_offset, entry->name_length);
        name[entry->name_length] = '\0';
        n = read_file(bench, name);
        if (n < 0)
                return fault_set(fault, (int)n, "%s: %s", name, strerror((int)-n));
        random_init(&random, 0, sample, epoch, RANDOM_TRANSFORM, 0);
        r = bench->decode(bench, (size_t)n, &random, fault);
        return r < 0 ? fault_prefix(fault, r, "%s", name) : 0;
}

/* ---- the loop ---- */

static void digest_pixels(struct bench *bench) {
        const struct image *image = &bench->image;

        for (uint32_t y = 0; y < image->height; y++)
                sha256_update(&bench->sha256, (size_t)image->width * BYTES,
                              image->pixels + y * image->stride);
}

static int loop(struct bench *bench, struct fault *fault) {
        uint64_t samples = bench->index.header->samples;
        struct order order;
        int r;

        for (uint64_t row = 0; row < bench->rows; row++) {
                uint32_t epoch = (uint32_t)(row / samples);

                if (row % samples == 0)
                        order_init(&order, samples, 0, epoch);
                r = take(bench, epoch, order_sample(&order, row % samples), fault);
                if (r < 0)
                        return r;
                if (bench->digest)
                        digest_pixels(bench);
        }
        return 0;
}

static void print_digest(struct bench *bench) {
        uint8_t sha256[SHA256_DIGEST_SIZE];

        sha256_digest(&bench->sha256, sizeof(sha256), sha256);
        printf("{\"rows\": %llu, \"sha256\": \"", (unsigned long long)bench->rows);
        for (size_t i = 0; i < sizeof(sha256); i++)
                printf("%02x", sha256[i]);
        puts("\"}");
}

static int run(struct bench *bench, struct fault *fault) {
        struct bare_meter meter;
        int r;

        bare_keep_memory();
        r = find_files(bench, fault);
        if (r >= 0)
                r = decoder_new(&bench->decoder, &codec_options_default);
        if (r < 0)
                return r;
        bench->jpeg.err = jpeg_std_error(&bench->errors);
        jpeg_create_decompress(&bench->jpeg);
        sha256_init(&bench->sha256);
        bare_meter_start(&meter);
        r = loop(bench, fault);
        if (r < 0)
                return r;
        if (bench->digest)
                print_digest(bench);
        else
                bare_meter_print(&meter, bench->rows);
        return 0;
}

static int parse(int argc, char **argv, struct bench *bench) {
        static const struct option known[] = {
                {"through", required_argument, NULL, 't'},
                {"rows", required_argument, NULL, 'r'},
                {"digest", no_argument, NULL, 'd'},
                {0},
        };
        int c, r = 0;

        while (r == 0 && (c = getopt_long(argc, argv, "", known, NULL)) >= 0) {
                if (c == 't' && strcmp(optarg, "libjpeg") == 0)
                        bench->decode = through_libjpeg;
                else if (c == 't' && strcmp(optarg, "codec") == 0)
                        bench->decode = through_codec;
                else if (c == 'r')
                        r = number_parse_u64(optarg, &bench->rows);
                else if (c == 'd')
                        bench->digest = 1;
                else
                        r = -EINVAL;
        }
        if (r < 0 || optind != argc - 1 || !bench->decode || bench->rows == 0)
                return -EINVAL;
        bench->folder = argv[optind];
        return 0;
}

static void deinit(struct bench *bench) {
        decoder_free(bench->decoder);
        jpeg_destroy_decompress(&bench->jpeg);
        image_deinit(&bench->image);
        index_deinit(&bench->index);
        recipe_deinit(&bench->recipe);
        fd_closep(&bench->root);
        free(bench->bytes);
}

int main(int argc, char **argv) {
        struct bench bench = {.root = -1};
        struct fault fault = {0};
        int r;

        if (parse(argc, argv, &bench) < 0) {
                fputs("usage: croploop --through libjpeg|codec --rows N [--digest] FOLDER\n", stderr);
                return 2;
        }
        r = run(&bench, &fault);
        if (r < 0)
                fprintf(stderr, "croploop: %s\n", fault.text);
        deinit(&bench);
        return r < 0;
}
