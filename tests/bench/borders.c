/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Whether the end of an epoch is felt: a job that does nothing but take batches and look at the clock.
 *
 *     borders RUNTIME_DIR PIPELINE EPOCHS
 *
 * The gap before a batch is the time since the one before it came. Those before the first batch of an epoch
 * are the border's, the others the inner ones; the first epoch is left out, since everything starts in it.
 * Prints JSON: how many gaps of either kind, and of each the median and the 99th percentile in microseconds.
 */

#include "base/clock.h"
#include "client/pinfeed.h"
#include "tests/bench/samples.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct gaps {
        uint64_t *ns;
        size_t n;
};

static void print_gaps(const char *name, struct gaps *gaps, const char *after) {
        samples_sort(gaps->ns, gaps->n);
        printf("\"%s\": %zu, \"%s_us\": {\"p50\": %.1f, \"p99\": %.1f}%s", name, gaps->n, name,
               samples_quantile_us(gaps->ns, gaps->n, 0.5), samples_quantile_us(gaps->ns, gaps->n, 0.99),
               after);
}

/* 0, or what pinfeed_next said. */
static int read_epochs(struct pinfeed_job *job, unsigned epochs, struct gaps *inner, struct gaps *border) {
        struct gaps *kind = border;
        uint64_t last = clock_ns();

        for (unsigned ended = 0; ended < epochs;) {
                struct pinfeed_batch *batch;
                int r = pinfeed_next(job, &batch);
                uint64_t now = clock_ns();

                if (r < 0)
                        return r;
                if (r == 0) {
                        ended++;
                        kind = border;
                        continue;
                }
                if (ended > 0)
                        kind->ns[kind->n++] = now - last;
                last = now;
                kind = inner;
                pinfeed_batch_release(batch);
        }
        return 0;
}

int main(int argc, char **argv) {
        struct pinfeed_attach attach = {.size = sizeof(attach)};
        struct gaps inner = {}, border = {};
        struct pinfeed_info info;
        struct pinfeed_job *job;
        unsigned epochs;
        int r;

        if (argc != 4) {
                fprintf(stderr, "usage: borders RUNTIME_DIR PIPELINE EPOCHS\n");
                return 2;
        }
        attach.runtime_dir = argv[1];
        attach.pipeline = argv[2];
        epochs = (unsigned)atoi(argv[3]);
        r = pinfeed_open(&job, &attach);
        if (r == 0) {
                pinfeed_job_info(job, &info);
                inner.ns = calloc(epochs * info.batches_per_epoch + 1, sizeof(uint64_t));
                border.ns = calloc((size_t)epochs + 1, sizeof(uint64_t));
                r = inner.ns && border.ns ? read_epochs(job, epochs, &inner, &border) : -ENOMEM;
        }
        if (r < 0) {
                fprintf(stderr, "borders: %d, %s\n", r, pinfeed_error(job));
                return 1;
        }
        printf("{");
        print_gaps("inner", &inner, ", ");
        print_gaps("border", &border, "}\n");
        pinfeed_close(job);
        free(inner.ns);
        free(border.ns);
        return 0;
}
