/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* draw-images DIR [--per-class N] [--classes N] [--size WxH] [--seed S]
 *
 * Draws an image folder for tests and the demo: DIR/class_0/00000.jpg and so on, little landscapes. A class
 * is a time and a place (dawn, noon, desert, sea ...): colours of the sky, height of the sun, height and
 * colour of the hills. An image is one view of it: the sun and the hills move, the light changes, a good part
 * of another class's colours is mixed in, and film grain lies over it. A linear model on 32 x 32 pixels
 * learns to tell ten of them apart, but not at once and not without error, which is what a demonstration of
 * training needs.
 *
 * Only whole numbers, and random numbers of our own: the same arguments give the same pixels everywhere.
 * Lengths are in 1/16 of a pixel, weights in 1/256. */

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jpeglib.h>

enum {
        CHANNELS = 3,
        PALETTES = 10,
        RIDGES = 3, /* rows of hills, far to near */
        KNOTS = 8,  /* of a ridge, over the width */
        ONE = 256,  /* a weight of 1 */
        SUB = 16,   /* parts of a pixel */
        QUALITY = 90,
        GRAIN = 14,     /* grey levels, up and down */
        MIX_MOST = 130, /* weight of the colours of another class */
        EDGE_MOST = 4096,
};

struct options {
        const char *directory;
        unsigned per_class, classes, width, height;
        uint64_t seed;
};

struct colour {
        int c[CHANNELS];
};

/* What a class looks like. Places are in 1/256 of the image. */
struct palette {
        struct colour top, bottom, sun, hills;
        int sun_x, sun_y, sun_size;
        int horizon;
};

static const struct palette palettes[PALETTES] = {
        {{{40, 52, 110}}, {{250, 170, 130}}, {{255, 232, 190}}, {{62, 48, 84}}, 60, 150, 26, 176}, /* dawn */
        {{{52, 128, 220}}, {{190, 226, 250}}, {{255, 252, 224}}, {{70, 140, 74}}, 150, 46, 24, 190}, /* noon
                                                                                                      */
        {{{96, 156, 200}},
         {{250, 220, 160}},
         {{255, 244, 200}},
         {{206, 142, 76}},
         208,
         70,
         30,
         160}, /* desert
                */
        {{{120, 190, 220}}, {{220, 240, 240}}, {{255, 255, 240}}, {{22, 100, 140}}, 36, 60, 22, 130}, /* sea
                                                                                                       */
        {{{150, 190, 160}}, {{226, 236, 200}}, {{250, 250, 210}}, {{24, 78, 48}}, 110, 90, 20, 120}, /* forest
                                                                                                      */
        {{{76, 28, 92}}, {{246, 98, 62}}, {{255, 190, 96}}, {{40, 20, 48}}, 180, 140, 36, 180}, /* dusk */
        {{{8, 12, 40}}, {{40, 60, 110}}, {{236, 240, 255}}, {{6, 10, 24}}, 200, 50, 18, 190},   /* night */
        {{{166, 190, 214}}, {{236, 240, 248}}, {{255, 255, 255}}, {{208, 222, 238}}, 80, 40, 22, 140}, /* snow
                                                                                                        */
        {{{60, 140, 190}}, {{236, 196, 150}}, {{255, 240, 210}}, {{170, 66, 40}}, 128, 30, 20, 96}, /* canyon
                                                                                                     */
        {{{110, 90, 180}}, {{250, 190, 220}}, {{255, 224, 240}}, {{120, 170, 60}}, 40, 100, 28, 150}, /* heath
                                                                                                       */
};

/* SplitMix64. */
static uint64_t draw(uint64_t *state) {
        uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

/* Uniform in [least, most]. */
static int draw_between(uint64_t *state, int least, int most) {
        return least + (int)(draw(state) % (uint64_t)(most - least + 1));
}

static int clamp(int value, int least, int most) {
        return value < least ? least : value > most ? most : value;
}

static int mix_int(int a, int b, int weight) {
        return a + (b - a) * weight / ONE;
}

static struct colour mix(struct colour a, struct colour b, int weight) {
        struct colour result;

        for (int i = 0; i < CHANNELS; i++)
                result.c[i] = mix_int(a.c[i], b.c[i], weight);
        return result;
}

/* 3t^2 - 2t^3 for t in [0, 256]. */
static int smooth(int t) {
        return t * t * (3 * ONE - 2 * t) / (ONE * ONE);
}

static int square_root(int64_t n) {
        int64_t root = 0;

        for (int64_t bit = INT64_C(1) << 40; bit > 0; bit >>= 2) {
                if (n >= root + bit) {
                        n -= root + bit;
                        root = (root >> 1) + bit;
                } else
                        root >>= 1;
        }
        return (int)root;
}

/* One view of a class: its palette after all chance was taken. */
struct scene {
        int width, height;
        struct palette palette;
        int sun_x, sun_y, sun_radius;  /* 1/16 pixels */
        int ridges[RIDGES][KNOTS + 1]; /* heights, 1/16 pixels from the top */
        struct colour ridge_colours[RIDGES];
        int light; /* weight */
};

static void choose_palette(struct scene *scene, unsigned class, uint64_t *state) {
        const struct palette *own = &palettes[class % PALETTES];
        const struct palette *other = &palettes[draw(state) % PALETTES];
        int weight = draw_between(state, 0, MIX_MOST);

        scene->palette = *own;
        scene->palette.top = mix(own->top, other->top, weight);
        scene->palette.bottom = mix(own->bottom, other->bottom, weight);
        scene->palette.hills = mix(own->hills, other->hills, weight);
        scene->palette.sun_x = (own->sun_x + 97 * (int)(class / PALETTES % ONE)) % ONE;
        scene->light = draw_between(state, ONE * 3 / 4, ONE * 9 / 8);
}

static void place_sun(struct scene *scene, uint64_t *state) {
        const struct palette *palette = &scene->palette;
        int x = palette->sun_x + draw_between(state, -28, 28),
            y = palette->sun_y + draw_between(state, -22, 22);

        scene->sun_x = x * scene->width * SUB / ONE;
        scene->sun_y = y * scene->height * SUB / ONE;
        scene->sun_radius =
                palette->sun_size * scene->height * SUB / ONE * draw_between(state, 180, 320) / ONE / 2;
}

static void raise_hills(struct scene *scene, uint64_t *state) {
        const struct colour far = scene->palette.bottom, near = scene->palette.hills;
        int base = scene->palette.horizon + draw_between(state, -14, 14);

        for (int ridge = 0; ridge < RIDGES; ridge++) {
                int height = base + (ONE - base) * ridge / RIDGES, wave = 34 - 8 * ridge;

                for (int knot = 0; knot <= KNOTS; knot++)
                        scene->ridges[ridge][knot] =
                                (height + draw_between(state, -wave, wave / 2)) * scene->height * SUB / ONE;
                scene->ridge_colours[ridge] = mix(far, near, ONE * (ridge + 2) / (RIDGES + 1));
        }
}

/* Height of a ridge over column x. */
static int ridge_at(const struct scene *scene, int ridge, int x) {
        int place = x * KNOTS * ONE / scene->width, knot = place / ONE;

        return mix_int(scene->ridges[ridge][knot], scene->ridges[ridge][knot + 1], smooth(place % ONE));
}

/* How much of the pixel at y lies below the line, as a weight. */
static int cover_below(int y, int line) {
        return clamp((y + 1) * SUB - line, 0, SUB) * ONE / SUB;
}

static struct colour sky_at(const struct scene *scene, int x, int y) {
        const struct palette *palette = &scene->palette;
        int64_t dx = x * SUB + SUB / 2 - scene->sun_x, dy = y * SUB + SUB / 2 - scene->sun_y;
        int distance = square_root(dx * dx + dy * dy), reach = 5 * scene->sun_radius;
        struct colour colour = mix(palette->top, palette->bottom, smooth(y * ONE / scene->height));

        if (distance < reach) {
                int glow = (reach - distance) * ONE / reach;

                colour = mix(colour, palette->sun, glow * glow / ONE * 3 / 4);
        }
        return mix(colour, palette->sun, clamp(scene->sun_radius - distance, 0, SUB) * ONE / SUB);
}

static struct colour pixel_at(const struct scene *scene, int x, int y, const int lines[RIDGES]) {
        struct colour colour = sky_at(scene, x, y);

        for (int ridge = 0; ridge < RIDGES; ridge++) {
                int cover = cover_below(y, lines[ridge]);
                int depth = clamp((y * SUB - lines[ridge]) * 3 / scene->height, 0, 48);
                struct colour ground = mix(scene->ridge_colours[ridge], (struct colour){{0, 0, 0}}, depth);

                if (cover > 0)
                        colour = mix(colour, ground, cover);
        }
        return colour;
}

static void draw_scene(const struct scene *scene, uint64_t *state, uint8_t *pixels) {
        for (int x = 0; x < scene->width; x++) {
                int lines[RIDGES];

                for (int ridge = 0; ridge < RIDGES; ridge++)
                        lines[ridge] = ridge_at(scene, ridge, x);
                for (int y = 0; y < scene->height; y++) {
                        struct colour colour = pixel_at(scene, x, y, lines);
                        uint64_t noise = draw(state);
                        /* two draws added: small changes are likelier than large ones */
                        int grain = ((int)(noise & 255) + (int)(noise >> 8 & 255) - 255) * GRAIN / 255;
                        uint8_t *to = pixels + CHANNELS * ((size_t)y * scene->width + x);

                        for (int i = 0; i < CHANNELS; i++)
                                to[i] = (uint8_t)clamp(colour.c[i] * scene->light / ONE + grain, 0, 255);
                }
        }
}

/* libjpeg ends the program on an error, with a line: what a tool like this one should do. */
static int write_jpeg(const char *path, const uint8_t *pixels, int width, int height) {
        struct jpeg_error_mgr errors;
        struct jpeg_compress_struct jpeg = {.err = jpeg_std_error(&errors)};
        FILE *file;

        file = fopen(path, "wbe");
        if (!file)
                return -errno;
        jpeg_create_compress(&jpeg);
        jpeg_stdio_dest(&jpeg, file);
        jpeg.image_width = (JDIMENSION)width;
        jpeg.image_height = (JDIMENSION)height;
        jpeg.input_components = CHANNELS;
        jpeg.in_color_space = JCS_RGB;
        jpeg_set_defaults(&jpeg);
        jpeg_set_quality(&jpeg, QUALITY, TRUE);
        jpeg_start_compress(&jpeg, TRUE);
        while (jpeg.next_scanline < jpeg.image_height) {
                JSAMPROW row = (JSAMPROW)(pixels + (size_t)CHANNELS * width * jpeg.next_scanline);

                jpeg_write_scanlines(&jpeg, &row, 1);
        }
        jpeg_finish_compress(&jpeg);
        jpeg_destroy_compress(&jpeg);
        return fclose(file) == 0 ? 0 : -errno;
}

static int make_directory(const char *path) {
        if (mkdir(path, 0777) == 0 || errno == EEXIST)
                return 0;
        fprintf(stderr, "draw-images: %s: %s\n", path, strerror(errno));
        return -1;
}

/* `pixels` has room for an image an eighth larger than asked for. */
static int draw_image(const struct options *options, unsigned class, unsigned number, uint8_t *pixels) {
        uint64_t state =
                options->seed + (((uint64_t) class << 32 | number) + 1) * UINT64_C(0xd1b54a32d192ed03);
        int width = (int)options->width, height = (int)options->height, r;
        char path[PATH_MAX];
        struct scene scene;

        draw(&state);
        scene.width = draw_between(&state, width - width / 8, width + width / 8);
        scene.height = draw_between(&state, height - height / 8, height + height / 8);
        choose_palette(&scene, class, &state);
        place_sun(&scene, &state);
        raise_hills(&scene, &state);
        draw_scene(&scene, &state, pixels);
        snprintf(path, sizeof(path), "%s/class_%u/%05u.jpg", options->directory, class, number);
        r = write_jpeg(path, pixels, scene.width, scene.height);
        if (r < 0)
                fprintf(stderr, "draw-images: %s: %s\n", path, strerror(-r));
        return r;
}

static int draw_folder(const struct options *options) {
        size_t most = (size_t)CHANNELS * (options->width * 9 / 8 + 1) * (options->height * 9 / 8 + 1);
        uint8_t *pixels = malloc(most);
        int r = pixels ? make_directory(options->directory) : -1;

        for (unsigned class = 0; r == 0 && class < options->classes; class ++) {
                char path[PATH_MAX];

                snprintf(path, sizeof(path), "%s/class_%u", options->directory, class);
                r = make_directory(path);
                for (unsigned i = 0; r == 0 && i < options->per_class; i++)
                        r = draw_image(options, class, i, pixels);
        }
        free(pixels);
        return r;
}

static int parse_number(const char *text, unsigned least, unsigned most, unsigned *number) {
        char *end;
        unsigned long value;

        errno = 0;
        value = strtoul(text, &end, 10);
        if (errno != 0 || end == text || *end != '\0' || value < least || value > most)
                return -1;
        *number = (unsigned)value;
        return 0;
}

static int parse_size(char *text, struct options *options) {
        char *x = strchr(text, 'x');

        if (!x)
                return -1;
        *x = '\0';
        return parse_number(text, 8, EDGE_MOST, &options->width) < 0 ||
                               parse_number(x + 1, 8, EDGE_MOST, &options->height) < 0
                       ? -1
                       : 0;
}

static int parse(int argc, char **argv, struct options *options) {
        static const struct option known[] = {
                {"per-class", required_argument, NULL, 'n'},
                {"classes", required_argument, NULL, 'c'},
                {"size", required_argument, NULL, 's'},
                {"seed", required_argument, NULL, 'r'},
                {0},
        };
        unsigned seed = 0;
        int c, r = 0;

        while (r == 0 && (c = getopt_long(argc, argv, "", known, NULL)) >= 0) {
                if (c == 'n')
                        r = parse_number(optarg, 1, 1000000, &options->per_class);
                else if (c == 'c')
                        r = parse_number(optarg, 1, 10000, &options->classes);
                else if (c == 's')
                        r = parse_size(optarg, options);
                else if (c == 'r')
                        r = parse_number(optarg, 0, UINT_MAX, &seed);
                else
                        r = -1;
        }
        options->seed = seed;
        if (r < 0 || optind + 1 != argc)
                return -1;
        options->directory = argv[optind];
        return 0;
}

int main(int argc, char **argv) {
        struct options options = {.per_class = 40, .classes = PALETTES, .width = 160, .height = 120};

        if (parse(argc, argv, &options) < 0) {
                fputs("usage: draw-images DIR [--per-class N] [--classes N] [--size WxH] [--seed S]\n",
                      stderr);
                return 2;
        }
        return draw_folder(&options) < 0 ? 1 : 0;
}
