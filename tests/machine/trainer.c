/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* trainer PIPELINE [--batches N] [--more N] [--step MICROSECONDS] [--reconnect SECONDS]: a training job that
 * believes nothing. It reads an unshuffled ramp from its first row on, over the ends of epochs, and asserts
 * the place and every byte of every batch.
 *
 * It ends after N batches or, at SIGTERM, after so many --more, as a trainer that goes on to where it can
 * save its state; without either it reads for ever. What it says is a line at each of its steps: "attached",
 * "saving", "read N batches". Exit status: 0; 1 what pinfeed said went wrong; 2 a wrong place or byte. */

#include "client/pinfeed.h"
#include "tests/support/ramp.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
        FAILED = 1,
        WRONG = 2,
};

struct trainer {
        struct pinfeed_job *job;
        struct pinfeed_info info;
        uint32_t epoch;
        uint64_t row;
        uint64_t batches, end; /* read; to be read, 0: no end is known */
        uint64_t more;
        useconds_t step_us;
        uint32_t reconnect_s;
};

static volatile sig_atomic_t told_to_end;

static void on_signal(int number) {
        told_to_end = 1;
}

static void __attribute__((noreturn)) wrong(const struct trainer *trainer, const char *what) {
        printf("wrong %s: row %llu of epoch %u, batch %llu\n", what, (unsigned long long)trainer->row,
               trainer->epoch, (unsigned long long)trainer->batches);
        exit(WRONG);
}

static void check_segment(struct trainer *trainer, const struct pinfeed_batch *batch, uint32_t segment) {
        uint32_t field = trainer->info.n_fields - 1, rows;
        const int64_t *ids = pinfeed_batch_ids(batch, segment, &rows);
        const uint8_t *data = pinfeed_batch_data(batch, segment, field, &rows);
        struct pinfeed_field facts;

        if (pinfeed_job_field(trainer->job, field, &facts) < 0 || !ids || !data)
                wrong(trainer, "field");
        for (uint32_t i = 0; i < rows; i++, trainer->row++, data += facts.row_bytes) {
                if (ids[i] != (int64_t)trainer->row)
                        wrong(trainer, "sample");
                if (!ramp_check(data, facts.row_bytes, trainer->row, trainer->epoch, NULL))
                        wrong(trainer, "byte");
        }
}

static void check(struct trainer *trainer, struct pinfeed_batch *batch) {
        if (pinfeed_batch_epoch(batch) != trainer->epoch || pinfeed_batch_row(batch) != trainer->row)
                wrong(trainer, "place");
        for (uint32_t i = 0; i < pinfeed_batch_segments(batch); i++)
                check_segment(trainer, batch, i);
        trainer->batches++;
}

/* 1: a batch was read; 0: an epoch has ended; or a negative errno. */
static int read_one(struct trainer *trainer) {
        struct pinfeed_batch *batch;
        int r = pinfeed_next(trainer->job, &batch);

        if (r == 1) {
                check(trainer, batch);
                return pinfeed_batch_release(batch) < 0 ? -1 : 1;
        }
        if (r == 0) {
                if (trainer->row != trainer->info.samples)
                        wrong(trainer, "end of an epoch");
                trainer->row = 0;
                trainer->epoch++;
        }
        return r;
}

static int train(struct trainer *trainer) {
        bool saving = false;
        int r;

        while (trainer->end == 0 || trainer->batches < trainer->end) {
                if (told_to_end && !saving) {
                        saving = true;
                        trainer->end = trainer->batches + trainer->more;
                        printf("saving\n");
                        continue;
                }
                r = read_one(trainer);
                if (r < 0)
                        return r;
                usleep(trainer->step_us);
        }
        return 0;
}

static int run(struct trainer *trainer, const char *pipeline) {
        struct pinfeed_attach attach = {
                .size = sizeof(attach), .pipeline = pipeline, .reconnect_s = trainer->reconnect_s};
        int r = pinfeed_open(&trainer->job, &attach);

        if (r == 0) {
                pinfeed_job_info(trainer->job, &trainer->info);
                printf("attached\n");
                r = train(trainer);
        }
        if (r < 0)
                printf("%s\n", pinfeed_error(trainer->job));
        printf("read %llu batches\n", (unsigned long long)trainer->batches);
        pinfeed_close(trainer->job);
        return r < 0 ? FAILED : 0;
}

int main(int argc, char **argv) {
        static const struct option options[] = {{"batches", required_argument, NULL, 'b'},
                                                {"more", required_argument, NULL, 'm'},
                                                {"step", required_argument, NULL, 's'},
                                                {"reconnect", required_argument, NULL, 'r'},
                                                {}};
        struct trainer trainer = {};
        int c;

        while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
                uint64_t number = optarg ? strtoull(optarg, NULL, 10) : 0;

                if (c == '?')
                        return FAILED;
                trainer.end = c == 'b' ? number : trainer.end;
                trainer.more = c == 'm' ? number : trainer.more;
                trainer.step_us = c == 's' ? (useconds_t)number : trainer.step_us;
                trainer.reconnect_s = c == 'r' ? (uint32_t)number : trainer.reconnect_s;
        }
        setvbuf(stdout, NULL, _IOLBF, 0);
        signal(SIGTERM, on_signal);
        return run(&trainer, argv[optind] ? argv[optind] : "ramp");
}
