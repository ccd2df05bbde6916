/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Ranks and batch sizes of their own (cases F6, G1, G3 to G7): what all ranks of a world get together,
 * through one real daemon with many pipelines. A rank is a job in a thread of its own. */

#include "tests/support/run.h"
#include "tests/system/taker.h"

#include <pthread.h>

enum {
        WORLD_MAX = 8,
        EPOCHS_MAX = 5,
        TEXT = 1024,
};

/* Called "n1", "n2" and so on. */
static const struct {
        unsigned samples, batch_size, slots, workers;
        bool shuffle;
} pipelines[] = {
        {1, 4, 64, 1, true},     {2, 4, 64, 1, true},       {7, 4, 64, 1, true},     {10, 4, 64, 1, false},
        {26, 6, 64, 1, true},    {101, 8, 8, 5, true},      {1000, 64, 32, 2, true}, {1003, 16, 128, 1, true},
        {1009, 16, 64, 1, true}, {50000, 256, 64, 2, true},
};

static struct harness *start(void) {
        struct harness *h = harness_new();
        char text[4096] = "pipelines:\n";

        for (size_t i = 0; i < sizeof(pipelines) / sizeof(pipelines[0]); i++) {
                size_t length = strlen(text);

                snprintf(text + length, sizeof(text) - length,
                         "  n%u:\n"
                         "    source: {type: synthetic, mode: ramp, bytes: 8, samples: %u}\n"
                         "    batch_size: %u\n"
                         "    slots: %u\n"
                         "    workers: %u\n"
                         "    shuffle: %s\n",
                         pipelines[i].samples, pipelines[i].samples, pipelines[i].batch_size,
                         pipelines[i].slots, pipelines[i].workers, pipelines[i].shuffle ? "true" : "false");
        }
        harness_write_config(h, "%s", text);
        harness_start(h);
        return h;
}

static void finish(struct harness *h) {
        taker_stop(h);
        harness_free(h);
}

/* ---- a world ---- */

struct world {
        uint32_t size;
        uint32_t batch_size;
        enum pinfeed_last_batch last_batch;
        uint32_t epochs;
        struct rank {
                struct taker taker;
                const struct world *world;
                size_t batches[EPOCHS_MAX]; /* of each epoch */
                pthread_t thread;
        } ranks[WORLD_MAX];
};

static void *read_rank(void *argument) {
        struct rank *rank = argument;
        struct pinfeed_attach attach = rank->taker.attach;

        taker_open(&rank->taker, &attach);
        for (uint32_t epoch = 0; epoch < rank->world->epochs; epoch++)
                rank->batches[epoch] = taker_take_epoch(&rank->taker);
        taker_close(&rank->taker);
        return NULL;
}

static struct pinfeed_attach attach_rank(const struct harness *h, const char *pipeline,
                                         const struct world *world, uint32_t rank) {
        struct pinfeed_attach attach = reader_attach(h, pipeline, 2);

        attach.rank = rank;
        attach.world_size = world->size;
        attach.batch_size = world->batch_size;
        attach.last_batch = world->last_batch;
        attach.group = "world";
        return attach;
}

/* All ranks read side by side. */
static void run_world(const struct harness *h, const char *pipeline, struct world *world) {
        for (uint32_t r = 0; r < world->size; r++) {
                struct rank *rank = &world->ranks[r];

                rank->world = world;
                rank->taker.attach = attach_rank(h, pipeline, world, r);
                ck_assert_int_eq(pthread_create(&rank->thread, NULL, read_rank, rank), 0);
        }
        for (uint32_t r = 0; r < world->size; r++)
                ck_assert_int_eq(pthread_join(world->ranks[r].thread, NULL), 0);
}

static void free_world(struct world *world) {
        for (uint32_t r = 0; r < world->size; r++)
                taker_free(&world->ranks[r].taker);
}

/* Batches, and their rows, are as many on each rank, and as was told at attach. */
static void check_counts(const struct world *world) {
        const struct rank *first = &world->ranks[0];

        for (uint32_t r = 0; r < world->size; r++) {
                const struct rank *rank = &world->ranks[r];

                ck_assert_uint_eq(rank->taker.info.rank, r);
                ck_assert_uint_eq(rank->taker.info.world_size, world->size);
                ck_assert_uint_eq(rank->taker.info.batches_first_epoch, rank->taker.info.batches_per_epoch);
                for (uint32_t epoch = 0; epoch < world->epochs; epoch++)
                        reader_must(rank->batches[epoch] == rank->taker.info.batches_per_epoch,
                                    "rank %u of %u had %zu batches in epoch %u, told were %llu", r,
                                    world->size, rank->batches[epoch], epoch,
                                    (unsigned long long)rank->taker.info.batches_per_epoch);
                for (size_t i = 0; i < rank->taker.n_batches; i++)
                        ck_assert_uint_eq(rank->taker.batches[i].rows, first->taker.batches[i].rows);
        }
}

/* Whole steps lie one after the other, rank after rank. */
static void check_places(const struct world *world, uint64_t samples) {
        uint64_t step_rows = (uint64_t)world->size * world->batch_size;

        for (uint32_t r = 0; r < world->size; r++) {
                const struct taker *taker = &world->ranks[r].taker;
                uint64_t step = 0;

                for (size_t i = 0; i < taker->n_batches; i++, step++) {
                        const struct taken_batch *batch = &taker->batches[i];

                        if (i > 0 && batch->epoch != batch[-1].epoch)
                                step = 0;
                        if ((step + 1) * step_rows > samples)
                                continue;
                        ck_assert_uint_eq(batch->rows, world->batch_size);
                        ck_assert_uint_eq(taker->rows[batch->first].row,
                                          step * step_rows + (uint64_t)r * world->batch_size);
                }
        }
}

/* How many rows of padding an epoch has, by the words of the contract. */
static uint64_t padding_of(const struct world *world, uint64_t samples) {
        uint64_t step_rows = (uint64_t)world->size * world->batch_size, rest = samples % step_rows;

        if (rest == 0 || world->last_batch == PINFEED_LAST_BATCH_DROP)
                return 0;
        if (world->last_batch == PINFEED_LAST_BATCH_PAD)
                return step_rows - rest;
        return rest % world->size == 0 ? 0 : world->size - rest % world->size;
}

static void check_union(const struct world *world, uint64_t samples) {
        uint64_t step_rows = (uint64_t)world->size * world->batch_size;

        for (uint32_t epoch = 0; epoch < world->epochs; epoch++) {
                struct union_of whole = union_new(samples, epoch);

                for (uint32_t r = 0; r < world->size; r++)
                        union_add(&whole, &world->ranks[r].taker);
                for (uint32_t r = 0; r < world->size; r++)
                        union_check_padding(&whole, &world->ranks[r].taker);
                ck_assert_uint_eq(whole.padding, padding_of(world, samples));
                if (world->last_batch == PINFEED_LAST_BATCH_SHORT)
                        ck_assert_uint_lt(whole.padding, world->size);
                if (world->last_batch == PINFEED_LAST_BATCH_DROP)
                        ck_assert_uint_eq(whole.rows, samples / step_rows * step_rows);
                else
                        union_expect_whole(&whole);
                union_free(&whole);
        }
}

static size_t n_worlds, n_rows; /* for the log: how much was tried */

static void try_world(const struct harness *h, const char *pipeline, uint64_t samples, struct world world) {
        run_world(h, pipeline, &world);
        check_counts(&world);
        check_places(&world, samples);
        check_union(&world, samples);
        n_worlds++;
        for (uint32_t r = 0; r < world.size; r++)
                n_rows += world.ranks[r].taker.n_rows;
        free_world(&world);
}

/* With fewer samples than a step of all ranks `drop` would leave nothing. */
static void expect_nothing_left(const struct harness *h, const char *pipeline, uint64_t samples,
                                const struct world *world) {
        struct pinfeed_attach attach = attach_rank(h, pipeline, world, world->size - 1);
        char text[TEXT], number[32];

        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        snprintf(number, sizeof(number), "%llu samples", (unsigned long long)samples);
        ck_assert_msg(strstr(text, number) != NULL, "%s", text);
        snprintf(number, sizeof(number), "%u", world->size * world->batch_size);
        ck_assert_msg(strstr(text, number) != NULL, "%s", text);
}

/* Every world over one pipeline, with these batch sizes (0 ends them). */
static void try_worlds(const struct harness *h, const char *pipeline, uint64_t samples, uint32_t epochs,
                       const uint32_t *batch_sizes) {
        static const uint32_t sizes[] = {1, 2, 3, 4, 7, 8};

        for (size_t w = 0; w < sizeof(sizes) / sizeof(sizes[0]); w++)
                for (const uint32_t *b = batch_sizes; *b; b++)
                        for (int last = PINFEED_LAST_BATCH_SHORT; last <= PINFEED_LAST_BATCH_PAD; last++) {
                                struct world world = {.size = sizes[w],
                                                      .batch_size = *b,
                                                      .last_batch = (enum pinfeed_last_batch)last,
                                                      .epochs = epochs};

                                if (last == PINFEED_LAST_BATCH_DROP && samples < (uint64_t)sizes[w] * *b)
                                        expect_nothing_left(h, pipeline, samples, &world);
                                else
                                        try_world(h, pipeline, samples, world);
                        }
}

START_TEST(test_every_world) {
        struct harness *h = start();

        n_worlds = n_rows = 0;
        switch (_i) {
        case 0:
                try_worlds(h, "n1", 1, 2, (const uint32_t[]){1, 5, 0});
                try_worlds(h, "n2", 2, 2, (const uint32_t[]){1, 2, 5, 0});
                break;
        case 1:
                try_worlds(h, "n7", 7, 2, (const uint32_t[]){1, 2, 3, 0});
                break;
        case 2:
                try_worlds(h, "n1003", 1003, 2, (const uint32_t[]){10, 16, 64, 0});
                break;
        case 3:
                try_worlds(h, "n50000", 50000, 1, (const uint32_t[]){100, 256, 0});
                break;
        }
        printf("# %zu worlds, %zu rows\n", n_worlds, n_rows);
        finish(h);
}
END_TEST

/* ---- F6: the same rows at each global step ---- */

static int compare_ids(const void *a, const void *b) {
        int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;

        return (one > other) - (one < other);
}

/* The samples of all ranks' batches number `step`, without padding, sorted; returns how many. */
static size_t step_ids(const struct world *world, size_t step, int64_t *ids) {
        size_t n = 0;

        for (uint32_t r = 0; r < world->size; r++) {
                const struct taker *taker = &world->ranks[r].taker;
                const struct taken_batch *batch = &taker->batches[step];

                for (size_t i = batch->first; i < batch->first + batch->rows - batch->padding; i++)
                        ids[n++] = taker->rows[i].id;
        }
        qsort(ids, n, sizeof(*ids), compare_ids);
        return n;
}

START_TEST(test_F6_same_rows_at_each_global_step) {
        static const uint32_t sizes[] = {1, 2, 3, 4, 6, 8};
        enum {
                GLOBAL_BATCH = 48
        };
        struct harness *h = start();
        struct world worlds[sizeof(sizes) / sizeof(sizes[0])];

        for (size_t w = 0; w < sizeof(sizes) / sizeof(sizes[0]); w++) {
                worlds[w] = (struct world){.size = sizes[w],
                                           .batch_size = GLOBAL_BATCH / sizes[w],
                                           .last_batch = PINFEED_LAST_BATCH_SHORT,
                                           .epochs = 2};
                run_world(h, "n1003", &worlds[w]);
                ck_assert_uint_eq(worlds[w].ranks[0].taker.n_batches, worlds[0].ranks[0].taker.n_batches);
                for (size_t step = 0; step < worlds[0].ranks[0].taker.n_batches; step++) {
                        int64_t expected[GLOBAL_BATCH] = {}, ids[GLOBAL_BATCH + WORLD_MAX] = {};
                        size_t n = step_ids(&worlds[0], step, expected);

                        ck_assert_uint_eq(step_ids(&worlds[w], step, ids), n);
                        ck_assert_mem_eq(ids, expected, n * sizeof(*ids));
                }
        }
        for (size_t w = 0; w < sizeof(sizes) / sizeof(sizes[0]); w++)
                free_world(&worlds[w]);
        finish(h);
}
END_TEST

/* ---- the cases by name ---- */

START_TEST(test_G1_counts_are_equal_under_every_policy) {
        struct harness *h = start();

        for (int last = PINFEED_LAST_BATCH_SHORT; last <= PINFEED_LAST_BATCH_PAD; last++)
                try_world(h, "n1003", 1003,
                          (struct world){.size = 4,
                                         .batch_size = 10,
                                         .last_batch = (enum pinfeed_last_batch)last,
                                         .epochs = 2});
        finish(h);
}
END_TEST

START_TEST(test_G3_ranks_do_not_overlap) {
        struct harness *h = start();

        try_world(h, "n10", 10,
                  (struct world){
                          .size = 4, .batch_size = 3, .last_batch = PINFEED_LAST_BATCH_SHORT, .epochs = 3});
        finish(h);
}
END_TEST

START_TEST(test_G4_every_epoch_is_as_long) {
        struct harness *h = start();

        try_world(h, "n1009", 1009,
                  (struct world){
                          .size = 6, .batch_size = 16, .last_batch = PINFEED_LAST_BATCH_SHORT, .epochs = 5});
        finish(h);
}
END_TEST

/* That no batch is empty every taker asserts. */
START_TEST(test_G5_no_batch_is_empty) {
        struct harness *h = start();

        for (int last = PINFEED_LAST_BATCH_SHORT; last <= PINFEED_LAST_BATCH_PAD; last++)
                try_world(h, "n26", 26,
                          (struct world){.size = 4,
                                         .batch_size = 6,
                                         .last_batch = (enum pinfeed_last_batch)last,
                                         .epochs = 4});
        finish(h);
}
END_TEST

START_TEST(test_G6_the_remainder_is_one_batch) {
        struct harness *h = start();
        struct world world = {
                .size = 1, .batch_size = 8, .last_batch = PINFEED_LAST_BATCH_SHORT, .epochs = 1};

        run_world(h, "n101", &world);
        ck_assert_uint_eq(world.ranks[0].taker.n_batches, 13);
        check_union(&world, 101);
        free_world(&world);
        finish(h);
}
END_TEST

/* Nothing but rank and world_size is said: the stream is divided, not given twice. */
START_TEST(test_G7_ranks_divide_the_stream) {
        struct harness *h = start();
        struct world world = {.size = 2, .epochs = 1};

        run_world(h, "n1000", &world);
        world.batch_size = world.ranks[0].taker.info.batch_size;
        world.last_batch = PINFEED_LAST_BATCH_SHORT;
        ck_assert_uint_eq(world.ranks[0].taker.n_rows, 500);
        ck_assert_uint_eq(world.ranks[1].taker.n_rows, 500);
        check_union(&world, 1000);
        free_world(&world);
        finish(h);
}
END_TEST

/* ---- several batch sizes on one stream ---- */

/* Whoever is behind reads next. */
static struct taker *last_of(struct taker *takers, size_t n) {
        struct taker *last = &takers[0];

        for (size_t i = 1; i < n; i++)
                if (takers[i].n_rows < last->n_rows)
                        last = &takers[i];
        return last;
}

static bool is_at_rest(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool is = harness_number(status, "pipelines/n1000/workers_busy") == 0 &&
                  harness_number(status, "pipelines/n1000/slots_filling") == 0;

        json_decref(status);
        return is;
}

/* Jobs with these batch sizes read `rows` rows each; the rows that were prepared for it, in a daemon of its
 * own. */
static double read_together(const uint32_t *batch_sizes, size_t n, size_t rows, struct taker *takers) {
        struct harness *h = start();
        double prepared;

        for (size_t i = 0; i < n; i++) {
                struct pinfeed_attach attach = reader_attach(h, "n1000", 2);

                attach.batch_size = batch_sizes[i];
                takers[i] = (struct taker){};
                taker_open(&takers[i], &attach);
        }
        while (last_of(takers, n)->n_rows < rows)
                taker_step(last_of(takers, n));
        harness_wait(h, "the ring full of what comes next", is_at_rest, NULL, READER_TIMEOUT_MS / 2);
        prepared = harness_status_number(h, "pipelines/n1000/rows_prepared");
        for (size_t i = 0; i < n; i++)
                taker_close(&takers[i]);
        finish(h);
        return prepared;
}

START_TEST(test_batch_sizes_share_one_stream) {
        static const uint32_t sizes[] = {7, 32, 64};
        enum {
                EPOCHS = 20,
                ROWS = EPOCHS * 1000,
                JOBS = 3
        };
        struct taker takers[JOBS], alone[1];
        double together = read_together(sizes, JOBS, ROWS, takers),
               single = read_together(&sizes[2], 1, ROWS, alone);

        printf("# rows prepared: for three jobs %.0f, for one %.0f\n", together, single);
        ck_assert_double_le(together, 1.02 * single);
        for (size_t j = 0; j < JOBS; j++) {
                for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
                        struct union_of whole = union_new(1000, epoch);

                        union_add(&whole, &takers[j]);
                        union_expect_whole(&whole);
                        union_free(&whole);
                }
                for (size_t i = 0; i < ROWS; i++)
                        ck_assert_int_eq(takers[j].rows[i].id, alone[0].rows[i].id);
                taker_free(&takers[j]);
        }
        taker_free(&alone[0]);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("system: G, ranks");
        TCase *tcase = tcase_create("G");

        tcase_set_timeout(tcase, 120 * harness_slowdown());
        tcase_add_loop_test(tcase, test_every_world, 0, 4);
        tcase_add_test(tcase, test_F6_same_rows_at_each_global_step);
        tcase_add_test(tcase, test_G1_counts_are_equal_under_every_policy);
        tcase_add_test(tcase, test_G3_ranks_do_not_overlap);
        tcase_add_test(tcase, test_G4_every_epoch_is_as_long);
        tcase_add_test(tcase, test_G5_no_batch_is_empty);
        tcase_add_test(tcase, test_G6_the_remainder_is_one_batch);
        tcase_add_test(tcase, test_G7_ranks_divide_the_stream);
        tcase_add_test(tcase, test_batch_sizes_share_one_stream);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
