/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* kernels [ROUNDS]
 *
 * What each operation of the kernel table costs in each set that this CPU runs: a crop of 500 x 375 pixels
 * resized to 224 x 224 with each filter, pass by pass, or mirrored, and 224 x 224 pixels written as each type
 * of element in each layout. One pinned core; the sets take turns, call by call, and the table has medians,
 * in microseconds.
 *
 * What a resize writes is read again at once, so it goes to a buffer that stays in the cache. A converted
 * image goes to the next place of a ring that is larger than any cache, as in a worker: what a store costs
 * there is most of it. The last lines are of whole resizes with the best set, planning included. */

#include "base/clock.h"
#include "daemon/worker/kernels/kernels.h"
#include "tests/bench/samples.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
        PHOTO_WIDTH = 500,
        PHOTO_HEIGHT = 375,
        EDGE = 224,
        BYTES = 3,
        ROUNDS = 300,
        SETS_MAX = 8,
        RING_BYTES = 512 << 20,
};

struct bench {
        uint8_t photo[PHOTO_HEIGHT][PHOTO_WIDTH][BYTES];
        uint8_t between[PHOTO_HEIGHT][EDGE][BYTES];
        uint8_t small[EDGE][EDGE][BYTES];
        struct resizer resizer; /* planned for the filter that is measured */
        struct convert_table table;
        uint8_t *ring;
        size_t place;
        uint64_t *times; /* [SETS_MAX][rounds] */
        size_t rounds;
};

typedef void (*bench_fn)(struct bench *bench, const struct kernels *kernels);

static const struct {
        const char *name;
        enum resize_filter filter;
} filters[] = {
        {"nearest", RESIZE_NEAREST}, {"box", RESIZE_BOX},         {"bilinear", RESIZE_BILINEAR},
        {"hamming", RESIZE_HAMMING}, {"bicubic", RESIZE_BICUBIC}, {"lanczos", RESIZE_LANCZOS},
};

static const enum schema_dtype dtypes[] = {SCHEMA_UINT8, SCHEMA_FLOAT16, SCHEMA_FLOAT32};

/* ---- what is measured ---- */

static void horizontal(struct bench *bench, const struct kernels *kernels) {
        kernels->resize_horizontal(&bench->resizer.horizontal, bench->between[0][0],
                                   sizeof(bench->between[0]), bench->photo[0][0], sizeof(bench->photo[0]),
                                   PHOTO_HEIGHT);
}

static void vertical(struct bench *bench, const struct kernels *kernels) {
        const struct resize_axis *axis = &bench->resizer.vertical;

        for (uint32_t y = 0; y < axis->outputs; y++)
                kernels->resize_vertical(bench->small[y][0], bench->between[axis->first[y]][0],
                                         sizeof(bench->between[0]), sizeof(bench->small[0]),
                                         axis->weights + (size_t)y * axis->taps, axis->counts[y]);
}

static void mirror(struct bench *bench, const struct kernels *kernels) {
        kernels->mirror(bench->photo[0][0], sizeof(bench->photo[0]), PHOTO_WIDTH, PHOTO_HEIGHT);
}

/* The image's place in the ring, and the next one's. */
static void *next_place(struct bench *bench, unsigned class) {
        size_t bytes = sizeof(bench->small) << class;

        if (bench->place + bytes > RING_BYTES)
                bench->place = 0;
        bench->place += bytes;
        return bench->ring + bench->place - bytes;
}

static unsigned class_of(const struct bench *bench) {
        return bench->table.dtype == SCHEMA_UINT8 ? 0 : bench->table.dtype == SCHEMA_FLOAT32 ? 2 : 1;
}

static void convert(struct bench *bench, const convert_fn functions[3], int mirrored) {
        unsigned class = class_of(bench);

        functions[class](&bench->table, next_place(bench, class), bench->small[0][0], sizeof(bench->small[0]),
                         EDGE, EDGE, mirrored);
}

static void chw(struct bench *bench, const struct kernels *kernels) {
        convert(bench, kernels->convert_chw, 0);
}

static void chw_mirrored(struct bench *bench, const struct kernels *kernels) {
        convert(bench, kernels->convert_chw, 1);
}

static void hwc(struct bench *bench, const struct kernels *kernels) {
        convert(bench, kernels->convert_hwc, 0);
}

static void hwc_mirrored(struct bench *bench, const struct kernels *kernels) {
        convert(bench, kernels->convert_hwc, 1);
}

static const struct {
        const char *name;
        bench_fn run;
} passes[] = {{"horizontal", horizontal}, {"vertical", vertical}},
  layouts[] = {{"chw", chw}, {"chw, mirrored", chw_mirrored}, {"hwc", hwc}, {"hwc, mirrored", hwc_mirrored}};

/* ---- measuring ---- */

static double median_us(uint64_t *times, size_t n) {
        samples_sort(times, n);
        return samples_quantile_us(times, n, 0.5);
}

/* Medians of all sets, 0 for one that this CPU does not run. */
static void measure(struct bench *bench, bench_fn run, double us[SETS_MAX]) {
        for (size_t round = 0; round < bench->rounds; round++)
                for (size_t set = 0; kernels_all[set]; set++) {
                        uint64_t begin;

                        if (!kernels_usable(kernels_all[set]))
                                continue;
                        begin = clock_ns();
                        run(bench, kernels_all[set]);
                        bench->times[set * bench->rounds + round] = clock_ns() - begin;
                }
        for (size_t set = 0; kernels_all[set]; set++)
                us[set] = kernels_usable(kernels_all[set])
                                  ? median_us(bench->times + set * bench->rounds, bench->rounds)
                                  : 0;
}

static void print_line(const char *what, const char *kind, const double us[SETS_MAX]) {
        printf("%-10s %-14s", what, kind);
        for (size_t set = 0; kernels_all[set]; set++)
                printf(us[set] > 0 ? " %8.1f" : "        -", us[set]);
        for (size_t set = 1; kernels_all[set]; set++)
                printf(us[set] > 0 ? " %7.2fx" : "        -", us[0] / us[set]);
        printf("\n");
}

static void print_head(void) {
        printf("%-25s", "operation");
        for (size_t set = 0; kernels_all[set]; set++)
                printf(" %5s us", kernels_all[set]->name);
        for (size_t set = 1; kernels_all[set]; set++)
                printf(" %8s", kernels_all[set]->name);
        printf("\n");
}

static int resize_once(struct bench *bench, enum resize_filter filter) {
        return resizer_run(&bench->resizer, filter, bench->small[0][0], sizeof(bench->small[0]), EDGE, EDGE,
                           bench->photo[0][0], sizeof(bench->photo[0]), PHOTO_WIDTH, PHOTO_HEIGHT);
}

static int measure_passes(struct bench *bench) {
        double us[SETS_MAX];

        for (size_t f = 0; f < sizeof(filters) / sizeof(filters[0]); f++) {
                if (filters[f].filter == RESIZE_NEAREST)
                        continue;
                if (resize_once(bench, filters[f].filter) < 0)
                        return -ENOMEM;
                for (size_t i = 0; i < sizeof(passes) / sizeof(passes[0]); i++) {
                        measure(bench, passes[i].run, us);
                        print_line(filters[f].name, passes[i].name, us);
                }
        }
        return 0;
}

static void measure_mirror(struct bench *bench) {
        double us[SETS_MAX];

        measure(bench, mirror, us);
        print_line("mirror", "500 x 375", us);
}

static void measure_layouts(struct bench *bench) {
        static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
        double us[SETS_MAX];

        for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
                convert_table_init(&bench->table, dtypes[d], dtypes[d] != SCHEMA_UINT8, mean, std);
                for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
                        measure(bench, layouts[i].run, us);
                        print_line(schema_dtype_name(dtypes[d]), layouts[i].name, us);
                }
        }
}

static void measure_whole(struct bench *bench) {
        for (size_t f = 0; f < sizeof(filters) / sizeof(filters[0]); f++) {
                double us;

                for (size_t round = 0; round < bench->rounds; round++) {
                        uint64_t begin = clock_ns();

                        resize_once(bench, filters[f].filter);
                        bench->times[round] = clock_ns() - begin;
                }
                us = median_us(bench->times, bench->rounds);
                printf("%-10s %-14s %8.1f us, %.0f a second\n", filters[f].name, "whole", us, 1e6 / us);
        }
}

/* ---- the ring, the core ---- */

static int prepare(struct bench *bench) {
        cpu_set_t one;

        CPU_ZERO(&one);
        CPU_SET((unsigned)sched_getcpu(), &one);
        sched_setaffinity(0, sizeof(one), &one);
        bench->times = calloc(SETS_MAX * bench->rounds, sizeof(uint64_t));
        bench->ring = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (!bench->times || bench->ring == MAP_FAILED)
                return -ENOMEM;
        memset(bench->ring, 0,
               RING_BYTES); /* the second touch of a page is dear, too, in a virtual machine */
        for (size_t i = 0; i < sizeof(bench->photo); i++)
                ((uint8_t *)bench->photo)[i] = (uint8_t)(i * 2654435761u >> 13);
        return 0;
}

int main(int argc, char **argv) {
        static struct bench bench;

        bench.rounds = argc > 1 ? (size_t)atoi(argv[1]) : ROUNDS;
        if (bench.rounds == 0 || prepare(&bench) < 0) {
                fputs("usage: kernels [ROUNDS], with 512 MiB of memory to spare\n", stderr);
                return 2;
        }
        print_head();
        if (measure_passes(&bench) < 0)
                return 1;
        measure_mirror(&bench);
        measure_layouts(&bench);
        measure_whole(&bench);
        resizer_deinit(&bench.resizer);
        munmap(bench.ring, RING_BYTES);
        free(bench.times);
        return 0;
}
