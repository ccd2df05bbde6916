/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon is killed while a copy is queued: what has been copied stays, what is queued arrives, no call of
 * the runtime fails, and the job goes on with the next batch, from a daemon that it starts itself. */

#include "base/clock.h"
#include "tests/gpu/feed.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/measure.h"
#include "tests/gpu/verifier.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
        RECONNECT_S = 30,
        DELAY_US = 100000, /* for which the copy stays queued */
        EPOCH_BATCHES = 8,
        GONE_MS = 5000,
};

struct survival {
        struct gpu gpu;
        struct feed feed;
        struct verifier verifier;
        struct landing before, during, after;
        cuda_stream stream;
        uint64_t rows[2]; /* of the batches in `before` and `during`, of epoch 0 */
};

static void copy_next(struct survival *s, const struct landing *landing) {
        struct pinfeed_batch *batch = feed_next(&s->feed);

        feed_copy(&s->feed, batch, landing, s->stream);
        feed_release(&s->feed, batch);
}

static void kill_daemon(int pid) {
        uint64_t start = clock_ns();

        if (kill(pid, SIGKILL) < 0)
                fail("the daemon, pid %d, could not be killed: %s", pid, strerror(errno));
        while (kill(pid, 0) == 0 && clock_ns() - start < GONE_MS * NS_PER_MS)
                usleep(1000);
}

static void kill_while_queued(struct survival *s) {
        s->rows[0] = s->feed.row;
        copy_next(s, &s->before);
        gpu_must(&s->gpu, cudaStreamSynchronize, s->stream);

        gpu_delay(&s->gpu, s->stream, DELAY_US);
        s->rows[1] = s->feed.row;
        copy_next(s, &s->during);
        kill_daemon(feed_info(&s->feed).daemon_pid);
        gpu_must(&s->gpu, cudaStreamSynchronize, s->stream);

        verifier_queue(&s->verifier, &s->before, 0, s->rows[0], s->stream);
        verifier_queue(&s->verifier, &s->during, 0, s->rows[1], s->stream);
        say("wrong_words_at_death", "%llu", (unsigned long long)verifier_wrong(&s->verifier, s->stream));
        gpu_expect_clean(&s->gpu);
}

static void go_on(struct survival *s, uint64_t rounds) {
        uint64_t start = clock_ns();

        for (uint64_t i = 0; i < rounds; i++) {
                uint32_t epoch = (uint32_t)s->feed.epoch;
                uint64_t row = s->feed.row;

                copy_next(s, &s->after);
                verifier_queue(&s->verifier, &s->after, epoch, row, s->stream);
        }
        say("wrong_words", "%llu", (unsigned long long)verifier_wrong(&s->verifier, s->stream));
        say("went_on_for_s", "%.2f", seconds_since(start));
        say("reconnects", "%u", feed_info(&s->feed).reconnects);
        say("map", "%s", feed_info(&s->feed).map);
}

void check_survival(const struct measure *measure) {
        struct feed_shape shape = {.bytes = measure->bytes,
                                   .slots = measure->slots,
                                   .batches = measure->slots + EPOCH_BATCHES,
                                   .held = 2,
                                   .reconnect_s = RECONNECT_S};
        struct survival s = {0};

        gpu_open(&s.gpu, measure);
        feed_open(&s.feed, measure, &shape);
        verifier_init(&s.verifier, &s.gpu, &s.feed);
        s.stream = gpu_stream(&s.gpu);
        s.before = landing_new(&s.gpu, &s.feed);
        s.during = landing_new(&s.gpu, &s.feed);
        s.after = landing_new(&s.gpu, &s.feed);

        kill_while_queued(&s);
        go_on(&s, measure->rounds);
        pinfeed_close(s.feed.job);
        gpu_expect_clean(&s.gpu);
}
