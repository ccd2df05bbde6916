/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* bareloop --json RECIPE.json --batch N --rows N [--epoch E] [--seed S] [--shuffle]
 *
 * What a row costs when nobody is asked, told or waited for: one process that fills one slot of its own over
 * and over with the worker's assembly. The CPU time of daemon and workers for each row is measured against
 * this. Scanning and the first touch of the slot's memory are done before the clock starts, as in a worker
 * that has seen its slots. The recipe is JSON as recipe_to_json writes it; keys that have defaults may be
 * left out. */

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/number.h"
#include "daemon/worker/assembly.h"
#include "daemon/worker/source.h"
#include "tests/bench/bare.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct options {
        const char *recipe;
        uint64_t batch, rows, epoch, seed;
        int shuffle;
};

struct bench {
        struct options options;
        struct recipe recipe;
        struct schema schema;
        uint64_t samples;
        struct assembly *assembly;
        void *slot;
};

static int parse(int argc, char **argv, struct options *options) {
        static const struct option known[] = {
                {"json", required_argument, NULL, 'j'},
                {"batch", required_argument, NULL, 'b'},
                {"rows", required_argument, NULL, 'r'},
                {"epoch", required_argument, NULL, 'e'},
                {"seed", required_argument, NULL, 's'},
                {"shuffle", no_argument, NULL, 'u'},
                {0},
        };
        int c, r = 0;

        while (r == 0 && (c = getopt_long(argc, argv, "", known, NULL)) >= 0) {
                if (c == 'j')
                        options->recipe = optarg;
                else if (c == 'b')
                        r = number_parse_u64(optarg, &options->batch);
                else if (c == 'r')
                        r = number_parse_u64(optarg, &options->rows);
                else if (c == 'e')
                        r = number_parse_u64(optarg, &options->epoch);
                else if (c == 's')
                        r = number_parse_u64(optarg, &options->seed);
                else if (c == 'u')
                        options->shuffle = 1;
                else
                        r = -EINVAL;
        }
        if (r < 0 || optind < argc || !options->recipe || options->batch == 0 || options->batch > INT32_MAX ||
            options->rows == 0 || options->epoch > UINT32_MAX)
                return -EINVAL;
        return 0;
}

static int read_recipe(struct bench *bench, struct fault *fault) {
        json_error_t error;
        json_t *json;
        int place, r;

        json = json_load_file(bench->options.recipe, 0, &error);
        if (!json)
                return fault_set(fault, -EINVAL, "%s:%d:%d: %s", bench->options.recipe, error.line,
                                 error.column, error.text);
        r = recipe_from_json(&bench->recipe, json, fault);
        json_decref(json);
        if (r >= 0)
                r = recipe_check(&bench->recipe, &place, fault);
        if (r < 0)
                return fault_prefix(fault, r, "%s", bench->options.recipe);
        recipe_schema(&bench->recipe, &bench->schema);
        return schema_lay_out(&bench->schema, (uint32_t)bench->options.batch, fault);
}

static int prepare(struct bench *bench, struct fault *fault) {
        _cleanup_(fd_closep) int index_fd = -1;
        uint32_t classes;
        int r;

        r = read_recipe(bench, fault);
        if (r < 0)
                return r;
        r = source_find(bench->recipe.source.type)
                    ->scan(&bench->recipe.source, NULL, NULL, &bench->samples, &classes, &index_fd, fault);
        if (r < 0)
                return r;
        bench->slot = mmap(NULL, bench->schema.slot_bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (bench->slot == MAP_FAILED)
                return fault_set(fault, -errno, "a slot of %llu bytes: %s",
                                 (unsigned long long)bench->schema.slot_bytes, strerror(errno));
        return assembly_new(&bench->assembly, &bench->recipe, &bench->schema, bench->samples,
                            bench->options.shuffle, index_fd, fault);
}

/* All rows, slot by slot, from epoch into epoch. */
static int fill(struct bench *bench, struct fault *fault) {
        struct assembly_chunk chunk = {.seed = bench->options.seed, .epoch = (uint32_t)bench->options.epoch};
        struct assembly_failure failure;
        uint64_t left = bench->options.rows;

        while (left > 0) {
                uint64_t rows = bench->options.batch;
                int r;

                if (rows > left)
                        rows = left;
                if (rows > bench->samples - chunk.row)
                        rows = bench->samples - chunk.row;
                chunk.rows = (uint32_t)rows;
                r = assembly_fill(bench->assembly, &chunk, bench->slot, NULL, NULL, &failure, fault);
                if (r < 0)
                        return fault_prefix(fault, r, "sample %llu %s", (unsigned long long)failure.sample,
                                            failure.file);
                left -= rows;
                chunk.row += rows;
                if (chunk.row == bench->samples) {
                        chunk.row = 0;
                        chunk.epoch++;
                }
        }
        return 0;
}

static int measure(struct bench *bench, struct fault *fault) {
        struct bare_meter meter;
        int r;

        bare_meter_start(&meter);
        r = fill(bench, fault);
        if (r < 0)
                return r;
        bare_meter_print(&meter, bench->options.rows);
        return 0;
}

int main(int argc, char **argv) {
        struct bench bench = {.slot = MAP_FAILED};
        struct fault fault = {0};
        int r;

        if (parse(argc, argv, &bench.options) < 0) {
                fputs("usage: bareloop --json RECIPE.json --batch N --rows N [--epoch E] [--seed S] "
                      "[--shuffle]\n",
                      stderr);
                return 2;
        }
        bare_keep_memory();
        r = prepare(&bench, &fault);
        if (r >= 0)
                r = measure(&bench, &fault);
        if (r < 0)
                fprintf(stderr, "bareloop: %s\n", fault.text);
        assembly_free(bench.assembly);
        if (bench.slot != MAP_FAILED)
                munmap(bench.slot, bench.schema.slot_bytes);
        recipe_deinit(&bench.recipe);
        return r < 0;
}
