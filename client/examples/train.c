/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How to train from pinfeed in plain C: a linear layer, softmax, cross-entropy, Adam.
 *
 * The pipeline's first field is the input (float32, or uint8 scaled to 0...1), flattened; its second is an
 * int64 label. What there is to know about pinfeed is in main(), train(), learn_batch() and the two functions
 * about the state; the rest is the model. (The state says which rows come next. A trainer that means it keeps
 * its weights in the same checkpoint, and ranks add up their gradients.) */

#include "client/pinfeed.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
        LANES = 16,  /* classes are padded to a multiple, for vector instructions */
        BLOCK = 256, /* features worked on together, so that their weights stay in the cache for all rows */
        SAVE_BATCHES = 10, /* between two states */
};

struct options {
        const char *runtime_dir, *name, *pipeline, *state_file;
        long epochs, classes, rank, world_size, batch_size, reconnect;
        float rate;
        bool json, force;
};

static const struct option known_options[] = {{"runtime-dir", required_argument, NULL, 'd'},
                                              {"epochs", required_argument, NULL, 'e'},
                                              {"lr", required_argument, NULL, 'l'},
                                              {"classes", required_argument, NULL, 'c'},
                                              {"name", required_argument, NULL, 'n'},
                                              {"rank", required_argument, NULL, 'r'},
                                              {"world-size", required_argument, NULL, 'w'},
                                              {"batch-size", required_argument, NULL, 'b'},
                                              {"reconnect", required_argument, NULL, 'R'},
                                              {"state", required_argument, NULL, 's'},
                                              {"force", no_argument, NULL, 'f'},
                                              {"json", no_argument, NULL, 'j'},
                                              {0}};

struct model {
        size_t features, classes, width;           /* width: classes with padding */
        bool bytes;                                /* the input is uint8 */
        float *weights, *gradient, *mean, *square; /* [features + 1][width]; the last row is the bias's */
        float *logits;                             /* [rows of a batch][width] */
        long steps;
};

struct score {
        double loss, correct, rows;
};

static double now(void) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int fail(const char *what, const char *why) {
        fprintf(stderr, "train: %s: %s\n", what, why);
        return 1;
}

/* While pinfeed_open waits, or pinfeed_next for a daemon that has gone. */
static void show_progress(void *context, const char *text) {
        if (isatty(STDERR_FILENO))
                fprintf(stderr, "\r%s: %s\033[K", (const char *)context, text);
}

static void add_scaled(float *to, const float *from, float scale, size_t width) {
        for (size_t i = 0; i < width; i += LANES)
                for (size_t k = 0; k < LANES; k++)
                        to[i + k] += scale * from[i + k];
}

/* Features [at, at + n) of all rows as they lie in the batch; bytes are converted into `space`. */
static const float *load(const struct model *m, const void *input, size_t at, size_t n, float *space) {
        if (!m->bytes)
                return (const float *)input + at;
        for (size_t i = 0; i < n; i++)
                space[i] = ((const uint8_t *)input)[at + i] * (1.0f / 255);
        return space;
}

/* Forward: logits += x * weights. Backward: gradient += x^T * logits, which are derivatives by then. */
static void multiply(struct model *m, const void *input, size_t rows, bool backward) {
        float space[BLOCK];

        for (size_t start = 0; start < m->features; start += BLOCK)
                for (size_t r = 0; r < rows; r++) {
                        size_t n = m->features - start < BLOCK ? m->features - start : BLOCK;
                        const float *x = load(m, input, r * m->features + start, n, space);
                        float *logits = m->logits + r * m->width;

                        for (size_t f = 0; f < n; f++)
                                if (backward)
                                        add_scaled(m->gradient + (start + f) * m->width, logits, x[f],
                                                   m->width);
                                else
                                        add_scaled(logits, m->weights + (start + f) * m->width, x[f],
                                                   m->width);
                }
}

/* Turns one row's logits into the derivative of its loss, and scores it. */
static void softmax(const struct model *m, float *logits, size_t label, struct score *score) {
        float own = logits[label], most, sum = 1e-30f; /* not 0, for the logarithm */
        size_t best = 0;

        for (size_t c = 1; c < m->classes; c++)
                if (logits[c] > logits[best])
                        best = c;
        most = logits[best];
        for (size_t c = 0; c < m->classes; c++)
                sum += logits[c] = expf(logits[c] - most);
        for (size_t c = 0; c < m->classes; c++)
                logits[c] /= sum;
        logits[label] -= 1;
        score->loss += logf(sum) + most - own;
        score->correct += best == label;
        score->rows++;
}

static void adam(struct model *m, float rate, size_t rows) {
        float mean_share = 1 - powf(0.9f, (float)++m->steps),
              square_share = 1 - powf(0.999f, (float)m->steps);

        for (size_t i = 0; i < (m->features + 1) * m->width; i++) {
                float g = m->gradient[i] / (float)rows;

                m->mean[i] = 0.9f * m->mean[i] + 0.1f * g;
                m->square[i] = 0.999f * m->square[i] + 0.001f * g * g;
                m->weights[i] -=
                        rate * (m->mean[i] / mean_share) / (sqrtf(m->square[i] / square_share) + 1e-8f);
                m->gradient[i] = 0;
        }
}

/* One optimiser step. A batch is one run of rows in shared memory, or a few where it does not coincide with a
 * slot of the ring; they are read in place, without a copy. 0, or -EDOM for a label outside the classes. */
static int learn_batch(struct model *m, const struct pinfeed_batch *batch, float rate, struct score *score) {
        for (uint32_t s = 0; s < pinfeed_batch_segments(batch); s++) {
                uint32_t rows;
                const void *input = pinfeed_batch_data(batch, s, 0, &rows);
                const int64_t *labels = pinfeed_batch_data(batch, s, 1, &rows);
                size_t bias = m->features * m->width;

                for (size_t r = 0; r < rows; r++)
                        memcpy(m->logits + r * m->width, m->weights + bias, m->width * sizeof(float));
                multiply(m, input, rows, false);
                for (size_t r = 0; r < rows; r++) {
                        if (labels[r] < 0 || (size_t)labels[r] >= m->classes)
                                return -EDOM;
                        softmax(m, m->logits + r * m->width, (size_t)labels[r], score);
                        add_scaled(m->gradient + bias, m->logits + r * m->width, 1, m->width);
                }
                multiply(m, input, rows, true);
        }
        adam(m, rate, pinfeed_batch_rows(batch));
        return 0;
}

/* 0, -EINVAL when the pipeline's fields do not suit, -ENOMEM. */
static int model_init(struct model *m, const struct pinfeed_job *job, long classes) {
        struct pinfeed_field input, label;
        struct pinfeed_info info;
        size_t n;

        pinfeed_job_info(job, &info);
        if (pinfeed_job_field(job, 0, &input) < 0 || pinfeed_job_field(job, 1, &label) < 0 ||
            (input.dtype != PINFEED_FLOAT32 && input.dtype != PINFEED_UINT8) ||
            label.dtype != PINFEED_INT64 || label.n_dims > 0)
                return -EINVAL;
        m->bytes = input.dtype == PINFEED_UINT8;
        m->features = input.row_bytes / (m->bytes ? 1 : sizeof(float));
        m->classes = (size_t)classes;
        m->width = (m->classes + LANES - 1) / LANES * LANES;
        n = (m->features + 1) * m->width;
        m->weights = calloc(4 * n, sizeof(float));
        m->logits = calloc(info.batch_size * m->width, sizeof(float));
        if (!m->weights || !m->logits)
                return -ENOMEM;
        m->gradient = m->weights + n;
        m->mean = m->gradient + n;
        m->square = m->mean + n;
        return 0;
}

/* Reads the state of an earlier run. 1; 0: there is none yet; or -1 after saying why it cannot be read. */
static int load_state(const struct options *o, char state[PINFEED_STATE_MAX]) {
        FILE *file = o->state_file ? fopen(o->state_file, "r") : NULL;
        size_t length;

        if (!file)
                return !o->state_file || errno == ENOENT ? 0 : (fail(o->state_file, strerror(errno)), -1);
        length = fread(state, 1, PINFEED_STATE_MAX - 1, file);
        state[length] = 0; /* what it is worth is pinfeed_open's to say */
        if (ferror(file))
                fail(o->state_file, strerror(errno));
        return ferror(file) | fclose(file) ? -1 : 1;
}

/* Keeps the state as it is after the last batch that pinfeed_next gave. The old one is there until the new
 * one is whole. 0, or 1 after saying what went wrong. */
static int save_state(const struct options *o, const struct pinfeed_job *job) {
        char state[PINFEED_STATE_MAX], path[4096];
        FILE *file;
        int bad;

        if (!o->state_file)
                return 0;
        snprintf(path, sizeof(path), "%s.new", o->state_file);
        file = pinfeed_job_state(job, state, sizeof(state)) > 0 ? fopen(path, "w") : NULL;
        if (!file)
                return fail(path, strerror(errno));
        bad = fputs(state, file) < 0;
        bad |= fclose(file) != 0;
        return bad || rename(path, o->state_file) < 0 ? fail(path, strerror(errno)) : 0;
}

static int train(const struct options *o, struct pinfeed_job *job, struct model *m, double start) {
        double first = 0, seconds = 0, rows = 0, shown = 0;
        struct pinfeed_batch *batch;
        struct score score = {0}; /* of the epoch */
        unsigned long batches = 0;
        int r = 0;

        for (long epoch = 0; epoch < o->epochs; epoch++) {
                score = (struct score){0};
                while ((r = pinfeed_next(job, &batch)) > 0) { /* 0 at the epoch's end */
                        first = first > 0 ? first : now() - start;
                        rows += pinfeed_batch_rows(batch);
                        if (learn_batch(m, batch, o->rate, &score) < 0)
                                return fail(o->pipeline, "a label is outside --classes");
                        /* As soon as it is read. A daemon that is gone is pinfeed_next's to say. */
                        pinfeed_batch_release(batch);
                        if (++batches % SAVE_BATCHES == 0 && save_state(o, job) != 0)
                                return 1;
                        seconds = now() - start;
                        if (!isatty(STDERR_FILENO) || seconds - shown < 0.1)
                                continue;
                        shown = seconds;
                        fprintf(stderr,
                                "\r%s: epoch %ld, row %.0f, loss %.4f, accuracy %.3f, %.0f rows/s\033[K",
                                o->name, epoch, score.rows, score.loss / score.rows,
                                score.correct / score.rows, rows / seconds);
                }
                if (r < 0)
                        return fail(o->pipeline, pinfeed_error(job));
                if (save_state(o, job) != 0)
                        return 1;
        }
        fputs(shown > 0 ? "\r\033[K" : "", stderr);
        printf(o->json ? "{\"name\":\"%s\",\"epochs\":%ld,\"rows\":%.0f,\"seconds\":%.3f,\"first_batch_ms\":%"
                         ".1f,"
                         "\"loss\":%.5f,\"accuracy\":%.5f,\"rows_per_second\":%.1f}\n"
                       : "%s: epochs %ld, rows %.0f in %.1f s, first batch after %.1f ms, last epoch's loss "
                         "%.4f and "
                         "accuracy %.3f, %.0f rows/s\n",
               o->name, o->epochs, rows, seconds, first * 1e3, score.loss / score.rows,
               score.correct / score.rows, rows / seconds);
        return 0;
}

/* 0, or -1 when the command line is no good. */
static int parse(struct options *o, int argc, char **argv) {
        for (int c; (c = getopt_long(argc, argv, "", known_options, NULL)) >= 0;) {
                o->runtime_dir = c == 'd' ? optarg : o->runtime_dir;
                o->name = c == 'n' ? optarg : o->name;
                o->epochs = c == 'e' ? atol(optarg) : o->epochs;
                o->classes = c == 'c' ? atol(optarg) : o->classes;
                o->rate = c == 'l' ? strtof(optarg, NULL) : o->rate;
                o->rank = c == 'r' ? atol(optarg) : o->rank;
                o->world_size = c == 'w' ? atol(optarg) : o->world_size;
                o->batch_size = c == 'b' ? atol(optarg) : o->batch_size;
                o->reconnect = c == 'R' ? atol(optarg) : o->reconnect;
                o->state_file = c == 's' ? optarg : o->state_file;
                o->json = o->json || c == 'j';
                o->force = o->force || c == 'f';
                if (c == '?')
                        return -1;
        }
        if (optind + 1 != argc || o->epochs < 1 || o->classes < 2 || o->classes > 100000 || !(o->rate > 0))
                return -1;
        o->pipeline = argv[optind];
        return 0;
}

int main(int argc, char **argv) {
        struct options o = {.name = "train", .epochs = 1, .classes = 10, .rate = 1e-3f};
        char state[PINFEED_STATE_MAX];
        struct model model = {0};
        struct pinfeed_job *job;
        double start = now();
        int r;

        if (parse(&o, argc, argv) < 0) {
                fputs("usage: train [--runtime-dir DIR] [--epochs N] [--lr X] [--classes N] [--name NAME] "
                      "[--json]\n"
                      "             [--rank R --world-size W] [--batch-size B] [--reconnect SECONDS] "
                      "[--state FILE [--force]] PIPELINE\n",
                      stderr);
                return 2;
        }
        r = load_state(&o, state);
        if (r < 0)
                return 1;
        /* With a state the job goes on where that was saved, without one it starts at the first row. */
        r = pinfeed_open(&job, &(struct pinfeed_attach){.size = sizeof(struct pinfeed_attach),
                                                        .pipeline = o.pipeline,
                                                        .runtime_dir = o.runtime_dir,
                                                        .name = o.name,
                                                        .rank = (uint32_t)o.rank,
                                                        .world_size = (uint32_t)o.world_size,
                                                        .batch_size = (uint32_t)o.batch_size,
                                                        .state = r > 0 ? state : NULL,
                                                        .force = o.force,
                                                        .progress = show_progress,
                                                        .progress_context = (void *)o.name,
                                                        .reconnect_s = (uint32_t)o.reconnect});
        if (r < 0)
                r = fail(o.pipeline, job ? pinfeed_error(job) : strerror(-r));
        else if ((r = model_init(&model, job, o.classes)) < 0)
                r = fail(o.pipeline,
                         r == -ENOMEM ? strerror(-r) : "its fields are not float32 or uint8, then int64");
        else
                r = train(&o, job, &model, start);
        free(model.weights);
        free(model.logits);
        pinfeed_close(job);
        return r;
}
