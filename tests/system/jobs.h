#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs in processes of their own, to be killed and stopped.
 *
 * What such a job has reached it writes into a page that it shares with the test: batches read, the longest
 * time between two of them, and where it stands. So a gap is measured where it is felt, and not by looking at
 * `status` now and then. Every byte is checked by the jobs themselves (reader.h); one that finds a wrong one
 * aborts, and its exit status is asserted. */

#include "base/clock.h"
#include "tests/system/reader.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        SAMPLES = 4000,
        BATCH = 8,
        BYTES = 1024,
        SLOTS = 32,
        SOON_MS = 10000,
        BACK_MS = 1000,  /* cases D1, D2: a dead job's slots are back */
        STALL_MS = 500,  /* where the cases give no number: what nobody would call a stall */
        STEP_US = 1000,  /* a training step, so that the machine is not busy with these jobs alone */
        SETTLE_MS = 300, /* for jobs to get going before something happens to one */
        TEXT = 1200,
};

static inline struct harness *jobs_start(void) {
        struct harness *h = harness_new();

        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %d, bytes: %d}\n"
                             "    batch_size: %d\n"
                             "    slots: %d\n"
                             "    reserve: start\n"
                             "    workers: 2\n",
                             SAMPLES, BYTES, BATCH, SLOTS);
        harness_start(h);
        return h;
}

static inline bool jobs_are(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        size_t n = json_array_size(json_object_get(status, "jobs"));

        json_decref(status);
        return n == *(size_t *)context;
}

static inline void jobs_wait(struct harness *h, size_t n, int timeout_ms) {
        char what[32];

        snprintf(what, sizeof(what), "%zu jobs", n);
        harness_wait(h, what, jobs_are, &n, timeout_ms);
}

/* That a job leaves is a line in the log, and there may be few of those after the signal. */
static inline void jobs_finish(struct harness *h) {
        jobs_wait(h, 0, SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

static inline bool jobs_hold_nothing(struct harness *h, void *context) {
        return harness_status_number(h, "pipelines/ramp/slots_leased") == 0;
}

static inline void jobs_sleep(int ms) {
        usleep((useconds_t)ms * 1000);
}

/* ---- a job in a process of its own ---- */

enum behaviour {
        READ_ON,       /* and release each at once */
        HOLD_ALL,      /* takes all it may hold, then sleeps */
        FORK_AND_HOLD, /* the same, and has forked a child that lives on */
        FORK_SECRETLY, /* that child was made behind libpinfeed's back and has the socket */
};

struct shared {
        _Atomic uint64_t batches;
        _Atomic uint64_t longest_ns; /* between two of them */
        _Atomic uint64_t last_ns;    /* when the last one came */
        _Atomic uint32_t held;
        _Atomic int child;
        _Atomic bool stop;
};

struct child {
        pid_t pid;
        struct shared *shared;
};

static inline struct shared *new_shared(void) {
        struct shared *shared =
                mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        ck_assert_ptr_ne(shared, MAP_FAILED);
        return shared;
}

static inline void note_batch(struct shared *shared) {
        uint64_t now = clock_ns(), last = atomic_load(&shared->last_ns);

        if (last && now - last > atomic_load(&shared->longest_ns))
                atomic_store(&shared->longest_ns, now - last);
        atomic_store(&shared->last_ns, now);
        atomic_fetch_add(&shared->batches, 1);
}

static inline void read_on(struct reader *reader, struct shared *shared) {
        while (!atomic_load(&shared->stop)) {
                reader_read(reader, 1);
                note_batch(shared);
                usleep(STEP_US);
        }
}

static inline void __attribute__((noreturn)) live_on(void) {
        prctl(PR_SET_PDEATHSIG, 0);
        for (;;)
                pause();
}

static inline void hold_all(struct reader *reader, struct shared *shared, enum behaviour behaviour) {
        for (uint32_t i = 0; i < reader->info.max_held_batches; i++) {
                reader_next(reader);
                note_batch(shared);
        }
        if (behaviour != HOLD_ALL) {
                pid_t pid = behaviour == FORK_SECRETLY ? _Fork() : fork();

                if (pid == 0)
                        live_on();
                atomic_store(&shared->child, pid);
        }
        atomic_store(&shared->held, reader->info.max_held_batches);
        for (;;)
                pause();
}

static inline void jobs_start_child(struct harness *h, struct child *child, enum behaviour behaviour,
                                    uint32_t max_held, uint64_t seed) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", max_held);
        struct reader reader;

        attach.seed_given = true;
        attach.seed = seed;
        child->shared = new_shared();
        child->pid = fork();
        ck_assert_int_ge(child->pid, 0);
        if (child->pid > 0)
                return;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        reader_open_with(&reader, &attach);
        if (behaviour == READ_ON)
                read_on(&reader, child->shared);
        else
                hold_all(&reader, child->shared, behaviour);
        reader_close(&reader);
        _exit(0);
}

static inline bool has_read(struct harness *h, void *context) {
        const struct child *child = context;

        return atomic_load(&child->shared->batches) >= 10;
}

static inline bool holds_all(struct harness *h, void *context) {
        const struct child *child = context;

        return atomic_load(&child->shared->held) > 0;
}

static inline void jobs_kill_child(struct child *child) {
        ck_assert_int_eq(kill(child->pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child->pid, NULL, 0), child->pid);
}

static inline void jobs_bury(struct child *child) {
        munmap(child->shared, sizeof(*child->shared));
}

/* The job ends by itself and has found nothing wrong. */
static inline void jobs_end_child(struct child *child) {
        int status;

        atomic_store(&child->shared->stop, true);
        ck_assert_int_eq(waitpid(child->pid, &status, 0), child->pid);
        ck_assert_msg(status == 0, "job %d ended with status %x", (int)child->pid, (unsigned)status);
        jobs_bury(child);
}

static inline uint64_t longest_gap_ms(const struct child *child) {
        uint64_t since = clock_ns() - atomic_load(&child->shared->last_ns);
        uint64_t longest = atomic_load(&child->shared->longest_ns);

        return (since > longest ? since : longest) / NS_PER_MS;
}

static inline void jobs_forget_gaps(struct child *child) {
        atomic_store(&child->shared->longest_ns, 0);
}

static inline void jobs_start_readers(struct harness *h, struct child *readers, size_t n) {
        for (size_t i = 0; i < n; i++)
                jobs_start_child(h, &readers[i], READ_ON, 4, 0);
        for (size_t i = 0; i < n; i++)
                harness_wait(h, "readers at work", has_read, &readers[i], SOON_MS);
        jobs_sleep(SETTLE_MS);
        for (size_t i = 0; i < n; i++)
                jobs_forget_gaps(&readers[i]);
}

static inline uint64_t jobs_longest_gap(struct child *readers, size_t n, const char *what) {
        uint64_t longest = 0;

        for (size_t i = 0; i < n; i++) {
                uint64_t gap = longest_gap_ms(&readers[i]);

                printf("# %s: longest gap of reader %zu %llu ms\n", what, i, (unsigned long long)gap);
                longest = gap > longest ? gap : longest;
        }
        return longest;
}

static inline void jobs_expect_no_stall(struct child *reader, const char *what) {
        uint64_t gap = jobs_longest_gap(reader, 1, what);

        ck_assert_msg(gap < (uint64_t)STALL_MS * (uint64_t)harness_slowdown(),
                      "%s: another job waited %llu ms for a batch", what, (unsigned long long)gap);
}
