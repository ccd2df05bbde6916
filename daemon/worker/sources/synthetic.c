/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Samples out of nothing, in the modes of enum recipe_synthetic_mode.
 *
 *   - features: float32 in [0, 1) and a label below 10, all from (seed, sample): the epoch stays out, as the
 *     same "file" read again would. One Philox block makes four values; at 512 values a sample this is the
 *     hot path, so the counter is stepped here instead of drawing word by word.
 *   - ramp: the sample's own number and bytes that name (sample, epoch, offset), see ramp.h: a mix-up, a tear
 *     or a stale slot shows in any byte.
 *   - rng: a piece from every random stream that a row may draw from, for tests of seeds and orders.
 *   - slow: the ramp, and one sample (or each n-th from it) that takes its time.
 *   - die: the ramp, and a sample that its worker does not survive, see die.c.
 *   - stages: sleeps in each stage that an image has, and writes down how long it took, in ns, three words of
 *     64 bits: stage times are compared with that.
 *
 * A delay is one nanosleep a sample and nothing else: what is measured against it is the article's loop,
 * which does the same. */

#include "daemon/worker/source.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "daemon/worker/sources/die.h"
#include "daemon/worker/sources/ramp.h"
#include "daemon/worker/stages.h"
#include "proto/random.h"

#include <errno.h>
#include <string.h>
#include <time.h>

enum {
        LABELS = 10,
        VALUES_STEP = 0, /* values and label draw from streams of their own */
        LABEL_STEP = 1,
        DRAWS_PIECE = 8,
        IMAGE_STAGES = 3,
};

struct source {
        const struct recipe_source *recipe;
        struct die die;
};

static int synthetic_scan(const struct recipe_source *recipe, source_progress_fn progress, void *context,
                          uint64_t *samples, uint32_t *classes, int *index_fd, struct fault *fault) {
        *samples = recipe->samples;
        *classes = recipe->mode == RECIPE_FEATURES ? LABELS : 0;
        *index_fd = -1;
        return 0;
}

static int synthetic_open(struct source **sourcep, const struct recipe_source *recipe,
                          const struct index *index, struct fault *fault) {
        struct source *source;
        int modes = 0;

        while (recipe_synthetic_modes[modes])
                modes++;
        if (recipe->mode < 0 || recipe->mode >= modes)
                return fault_set(fault, -EINVAL, "this build has no mode %d of the synthetic source",
                                 recipe->mode);

        source = calloc(1, sizeof(*source));
        if (!source)
                return fault_set(fault, -ENOMEM, "no memory for the source");
        source->recipe = recipe;
        *sourcep = source;
        return 0;
}

static struct source *synthetic_close(struct source *source) {
        free(source);
        return NULL;
}

static void sleep_us(uint64_t us) {
        struct timespec delay = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

        if (us > 0)
                nanosleep(&delay, NULL);
}

/* At most 2^24 values, see recipe-keys.c: their blocks never outgrow the counter's 24 bits for them. */
static void write_features(const struct source_request *request, uint64_t n, float *values) {
        struct random random;
        uint32_t words[4];

        random_init(&random, request->seed, request->sample, 0, RANDOM_USER, VALUES_STEP);
        for (uint64_t i = 0; i < n; i += 4) {
                random_philox4x32(words, random.counter, random.key);
                random.counter[0]++;
                for (uint64_t j = 0; j < 4 && i + j < n; j++)
                        values[i + j] = (float)(words[j] >> 8) * 0x1p-24f;
        }
}

static void write_label(const struct source_request *request, int64_t *label) {
        struct random random;

        random_init(&random, request->seed, request->sample, 0, RANDOM_USER, LABEL_STEP);
        *label = random_below(&random, LABELS);
}

static void write_ramp(const struct source_request *request, uint64_t bytes, int64_t *index, uint8_t *data) {
        uint64_t state = ramp_state(request->sample, request->epoch);
        uint64_t whole = bytes / 8, word;

        *index = (int64_t)request->sample;
        for (uint64_t k = 0; k < whole; k++) {
                word = ramp_word(state, k);
                memcpy(data + 8 * k, &word, 8);
        }
        word = ramp_word(state, whole);
        memcpy(data + 8 * whole, &word, bytes % 8);
}

static void write_draws(const struct source_request *request, uint8_t *draws) {
        static const struct {
                enum random_domain domain;
                uint16_t step;
        } streams[] = {
                {RANDOM_TRANSFORM, 0}, {RANDOM_TRANSFORM, 1}, {RANDOM_SUBSTITUTE, 0}, {RANDOM_USER, 0}};

        for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
                struct random random;
                uint32_t words[2];

                random_init(&random, request->seed, request->sample, request->epoch, streams[i].domain,
                            streams[i].step);
                words[0] = random_u32(&random);
                words[1] = random_u32(&random);
                memcpy(draws + DRAWS_PIECE * i, words, DRAWS_PIECE);
        }
}

static void write_stages(const struct source_request *request, uint64_t bytes, int64_t *index,
                         uint8_t *data) {
        static const struct {
                enum row_stage stage;
                uint64_t us;
        } steps[IMAGE_STAGES] = {{STAGE_READ, 1000}, {STAGE_DECODE, 5000}, {STAGE_TRANSFORM, 2000}};
        uint64_t took[IMAGE_STAGES], begin;

        for (int i = 0; i < IMAGE_STAGES; i++) {
                stages_enter(request->stages, steps[i].stage);
                begin = clock_ns();
                sleep_us(steps[i].us);
                took[i] = clock_ns() - begin;
        }
        stages_enter(request->stages, STAGE_MAKE);
        *index = (int64_t)request->sample;
        memset(data, 0, bytes);
        memcpy(data, took, bytes < sizeof(took) ? bytes : sizeof(took));
}

static int is_slow(const struct recipe_source *recipe, uint64_t sample) {
        if (sample < recipe->slow_sample)
                return 0;
        if (recipe->slow_every == 0)
                return sample == recipe->slow_sample;
        return (sample - recipe->slow_sample) % recipe->slow_every == 0;
}

static int synthetic_write(struct source *source, const struct source_request *request, void *const cells[],
                           struct fault *fault) {
        const struct recipe_source *recipe = source->recipe;
        int r;

        sleep_us(recipe->delay_us);
        switch (recipe->mode) {
        case RECIPE_FEATURES:
                write_features(request, recipe->features, cells[0]);
                write_label(request, cells[1]);
                return 0;
        case RECIPE_DIE:
                r = die_at(&source->die, recipe, request->sample, fault);
                if (r == 0)
                        write_ramp(request, recipe->bytes, cells[0], cells[1]);
                return r;
        case RECIPE_SLOW:
                if (is_slow(recipe, request->sample))
                        sleep_us(recipe->slow_us);
                /* fall through */
        case RECIPE_RAMP:
                write_ramp(request, recipe->bytes, cells[0], cells[1]);
                return 0;
        case RECIPE_STAGES:
                write_stages(request, recipe->bytes, cells[0], cells[1]);
                return 0;
        case RECIPE_RNG:
                *(int64_t *)cells[0] = (int64_t)request->sample;
                write_draws(request, cells[1]);
                return 0;
        }
        return fault_set(fault, -ENOSYS, "the synthetic source has no mode %d", recipe->mode);
}

static void synthetic_name_of(struct source *source, uint64_t sample, char *name, size_t size) {
        if (size > 0)
                name[0] = '\0';
}

const struct source_ops source_synthetic = {
        .name = "synthetic",
        .scan = synthetic_scan,
        .open = synthetic_open,
        .close = synthetic_close,
        .write = synthetic_write,
        .name_of = synthetic_name_of,
};
