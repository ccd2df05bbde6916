/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A lease ends when the copies from its slot have finished, and the caller should not have to wait for that
 * nor come back to say so: a job that pauses for validation would sit on its slots. So somebody looks, and a
 * thread of the job's own is the only one who can: a callback of the stream's may make no CUDA calls, would
 * run on a thread of the runtime's, and holds up the stream.
 *
 * Since that thread is there, it also makes all calls for which the current device counts. The caller's
 * thread may have any device as its current one, and to change that for a moment is no way: from CUDA 12 on
 * cudaSetDevice makes a context of some hundred MiB on whatever it is given, also on the way back. On the
 * caller's thread are made those calls alone that belong to its stream: the copies, and recording the mark
 * behind them (transfer.c).
 *
 * What lies between the threads, all of it under `lock`, which is never held while a call is made:
 *
 *   - `request`: what the job's thread waits for. There is one such thread at a time, hence one at most.
 *   - `released`: batches that are COPYING. From any thread that releases; the device thread moves them to
 * `copying`, its own list, looks at their marks, and releases them as anybody would, under the registry's
 * read lock (attachment_release). Until then each has its reference, so its attachment cannot go away.
 *   - `left`: attachments that nobody but the device thread needs. Their slots are unregistered one between
 * two looks, or the leases of others would wait for a ring of 64 GiB to go.
 *   - `unused`: marks. They are made a few at a time and used again; a mark for each copy call, since two
 * calls on one stream need not be on one stream (cudaStreamPerThread is another in each thread).
 *
 * The order of locks is the registry's, then this one.
 *
 * A mark that cannot be asked for counts as reached: its context is dead, and nothing is copied any more. Of
 * whatever was under way then nobody knows what has arrived, so the job's next pinfeed_next says so.
 *
 * The thread looks again after REAPER_LEAST_NS, and after twice as long each time that nothing has got on: a
 * lease outlives its copy by no more than the copy took, and by REAPER_MOST_NS at most. When there is nothing
 * to look at it sleeps.
 *
 * Without a thread everything is done in calls on the job by their thread, whose current device must be the
 * job's; one that waits has a look now and then, since other threads release meanwhile. Only the last one, in
 * pinfeed_close, cannot be refused: it goes ahead, and if another device is current and has no context yet,
 * it may get one by that. */

#include "client/reaper.h"

#include "base/clock.h"
#include "base/fault.h"
#include "client/attachment.h"
#include "client/registry.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum {
        REAPER_LEAST_NS = 50 * 1000,
        REAPER_MOST_NS = 1000 * 1000,
        REAPER_MARKS = 4, /* that are made at once */
};

struct request {
        reaper_work work;
        void *context;
        struct fault *fault;
        int result;
};

struct reaper {
        const struct device *device;
        bool threaded;
        bool started; /* the thread runs, or the first call has been made without one */
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t wake;     /* the device thread waits for it */
        pthread_cond_t answered; /* the caller of reaper_call does */

        /* Under the lock. */
        bool called; /* something has come since the last look */
        bool ending;
        struct request *request;
        struct pinfeed_batch *released;
        struct attachment *left;
        struct mark *unused;
        int error;
        struct fault fault;

        /* The device thread's. */
        bool entered;
        struct pinfeed_batch *copying;
        struct mark *made;
};

/* ---- what is done on the device ---- */

static void put_mark(struct reaper *reaper, struct mark *mark) {
        pthread_mutex_lock(&reaper->lock);
        mark->next = reaper->unused;
        reaper->unused = mark;
        pthread_mutex_unlock(&reaper->lock);
}

static void note_error(struct reaper *reaper, const struct mark *mark, int r, struct fault *fault) {
        pthread_mutex_lock(&reaper->lock);
        if (!reaper->error) {
                reaper->error = r;
                reaper->fault = *fault;
                fault_prefix(&reaper->fault, r,
                             "copies of rows %llu+%u of epoch %u to %s may not have arrived",
                             (unsigned long long)mark->position.row, mark->position.rows,
                             mark->position.epoch, reaper->device->name);
        }
        pthread_mutex_unlock(&reaper->lock);
}

static bool is_reached(struct reaper *reaper, struct mark *mark) {
        struct fault fault;
        int r;

        if (!mark->recorded)
                return true;
        r = reaper->device->backend->reached(reaper->device, mark->handle, &fault);
        if (r < 0)
                note_error(reaper, mark, r, &fault);
        mark->recorded = r == 0;
        return r != 0;
}

bool reaper_reach(struct reaper *reaper, struct mark **marks) {
        while (*marks && is_reached(reaper, *marks)) {
                struct mark *mark = *marks;

                *marks = mark->next;
                put_mark(reaper, mark);
        }
        return !*marks;
}

bool reaper_is_done(struct reaper *reaper) {
        for (struct mark *mark = reaper->made; mark; mark = mark->next_made)
                if (!is_reached(reaper, mark))
                        return false;
        return true;
}

static int enter(struct reaper *reaper, struct fault *fault) {
        int r;

        if (reaper->entered || !reaper->threaded)
                return 0;
        r = reaper->device->backend->enter_thread(reaper->device, fault);
        reaper->entered = r == 0;
        return r;
}

static bool answer(struct reaper *reaper) {
        struct request *request;
        int r;

        pthread_mutex_lock(&reaper->lock);
        request = reaper->request;
        pthread_mutex_unlock(&reaper->lock);
        if (!request)
                return false;
        r = enter(reaper, request->fault);
        if (r == 0)
                r = request->work(reaper, request->context, request->fault);
        if (r == REAPER_LATER)
                return false;
        pthread_mutex_lock(&reaper->lock);
        request->result = r;
        reaper->request = NULL;
        pthread_cond_signal(&reaper->answered);
        pthread_mutex_unlock(&reaper->lock);
        return true;
}

static void take_released(struct reaper *reaper) {
        struct pinfeed_batch **end = &reaper->copying;

        while (*end)
                end = &(*end)->next;
        pthread_mutex_lock(&reaper->lock);
        *end = reaper->released;
        reaper->released = NULL;
        pthread_mutex_unlock(&reaper->lock);
}

static bool end_leases(struct reaper *reaper) {
        bool ended = false;

        take_released(reaper);
        for (struct pinfeed_batch **link = &reaper->copying; *link;) {
                struct pinfeed_batch *batch = *link;

                if (!reaper_reach(reaper, &batch->marks)) {
                        link = &batch->next;
                        continue;
                }
                *link = batch->next;
                registry_read();
                (void)attachment_release(batch->attachment, batch); /* pinfeed_next finds out */
                registry_put();
                ended = true;
        }
        return ended;
}

/* One slot of one attachment. */
static bool give_back(struct reaper *reaper) {
        struct attachment *attachment;

        pthread_mutex_lock(&reaper->lock);
        attachment = reaper->left;
        pthread_mutex_unlock(&reaper->lock);
        if (!attachment || pins_remove_one(&attachment->pins, &attachment->view, reaper->device))
                return attachment;

        registry_read();
        pthread_mutex_lock(&reaper->lock);
        for (struct attachment **link = &reaper->left; *link; link = &(*link)->next_left)
                if (*link == attachment) {
                        *link = attachment->next_left;
                        break;
                }
        pthread_mutex_unlock(&reaper->lock);
        attachment_unref_device(attachment);
        registry_put();
        return true;
}

/* Whether something has got on. */
static bool look(struct reaper *reaper) {
        bool answered = answer(reaper), ended = end_leases(reaper), given = give_back(reaper);

        return answered || ended || given;
}

/* What was brought and is not over. */
static bool is_busy(const struct reaper *reaper) {
        return reaper->request || reaper->released || reaper->copying || reaper->left;
}

static void destroy_marks(struct reaper *reaper) {
        while (reaper->made) {
                struct mark *mark = reaper->made;

                reaper->made = mark->next_made;
                if (mark->handle)
                        reaper->device->backend->mark_free(reaper->device, mark->handle);
                free(mark);
        }
}

/* ---- the thread ---- */

static struct timespec after(uint64_t pause_ns) {
        uint64_t then = clock_ns() + pause_ns;

        return (struct timespec){(time_t)(then / NS_PER_S), (long)(then % NS_PER_S)};
}

/* Until something comes, or the pause is over and there is something to look at again. False: it ends. */
static bool wait_for_work(struct reaper *reaper, uint64_t *pause_ns) {
        struct timespec until = after(*pause_ns);
        bool goes_on;
        int r = 0;

        pthread_mutex_lock(&reaper->lock);
        while (!reaper->called && !reaper->ending && r != ETIMEDOUT) {
                if (is_busy(reaper))
                        r = pthread_cond_timedwait(&reaper->wake, &reaper->lock, &until);
                else
                        pthread_cond_wait(&reaper->wake, &reaper->lock);
        }
        if (reaper->called)
                *pause_ns = REAPER_LEAST_NS;
        reaper->called = false;
        goes_on = !reaper->ending;
        pthread_mutex_unlock(&reaper->lock);
        return goes_on;
}

static void *run(void *data) {
        struct reaper *reaper = data;
        uint64_t pause_ns = REAPER_LEAST_NS;

        while (wait_for_work(reaper, &pause_ns)) {
                bool moved = look(reaper);

                pause_ns = moved ? REAPER_LEAST_NS : pause_ns * 2;
                if (pause_ns > REAPER_MOST_NS)
                        pause_ns = REAPER_MOST_NS;
        }
        destroy_marks(reaper);
        return NULL;
}

/* Where no thread can be had the calls on the job do its work. */
static void start(struct reaper *reaper) {
        sigset_t all, before;

        if (reaper->started)
                return;
        reaper->started = true;
        if (!reaper->threaded)
                return;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        reaper->threaded = pthread_create(&reaper->thread, NULL, run, reaper) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (reaper->threaded)
                pthread_setname_np(reaper->thread, "pinfeed-cuda");
}

struct reaper *reaper_new(const struct device *device) {
        struct reaper *reaper = calloc(1, sizeof(*reaper));
        pthread_condattr_t monotonic;

        if (!reaper)
                return NULL;
        reaper->device = device;
        reaper->threaded = !getenv("PINFEED_NO_THREAD");
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_mutex_init(&reaper->lock, NULL);
        pthread_cond_init(&reaper->wake, &monotonic);
        pthread_cond_init(&reaper->answered, NULL);
        pthread_condattr_destroy(&monotonic);
        return reaper;
}

void reaper_free(struct reaper *reaper, bool is_ours) {
        if (!reaper)
                return;
        if (is_ours && reaper->started && reaper->threaded) {
                pthread_mutex_lock(&reaper->lock);
                reaper->ending = true;
                pthread_cond_signal(&reaper->wake);
                pthread_mutex_unlock(&reaper->lock);
                pthread_join(reaper->thread, NULL);
        } else if (is_ours) {
                destroy_marks(reaper);
        } else { /* their memory alone */
                for (struct mark *mark = reaper->made, *next; mark; mark = next) {
                        next = mark->next_made;
                        free(mark);
                }
        }
        if (is_ours) {
                pthread_cond_destroy(&reaper->answered);
                pthread_cond_destroy(&reaper->wake);
                pthread_mutex_destroy(&reaper->lock);
        }
        free(reaper);
}

/* ---- calls ---- */

static void call_thread(struct reaper *reaper) {
        reaper->called = true;
        pthread_cond_signal(&reaper->wake);
}

static int call_and_wait(struct reaper *reaper, struct request *request) {
        pthread_mutex_lock(&reaper->lock);
        reaper->request = request;
        call_thread(reaper);
        while (reaper->request)
                pthread_cond_wait(&reaper->answered, &reaper->lock);
        pthread_mutex_unlock(&reaper->lock);
        return request->result;
}

/* As the thread would, on this one. */
static int do_and_wait(struct reaper *reaper, const struct request *request) {
        const struct device *device = reaper->device;
        int r, before;

        device->backend->leave_captures(device, &before);
        while ((r = request->work(reaper, request->context, request->fault)) == REAPER_LATER)
                nanosleep(&(struct timespec){.tv_nsec = REAPER_LEAST_NS}, NULL);
        device->backend->join_captures(device, before);
        return r;
}

int reaper_call(struct reaper *reaper, reaper_work work, void *context, struct fault *fault) {
        struct request request = {.work = work, .context = context, .fault = fault};
        int r;

        start(reaper);
        if (reaper->threaded)
                return call_and_wait(reaper, &request);
        r = reaper->device->backend->check_thread(reaper->device, fault);
        return r < 0 ? r : do_and_wait(reaper, &request);
}

void reaper_finish(struct reaper *reaper, reaper_work work, void *context) {
        struct fault fault;
        struct request request = {.work = work, .context = context, .fault = &fault};

        if (!reaper->started)
                return;
        if (reaper->threaded)
                call_and_wait(reaper, &request);
        else
                do_and_wait(reaper, &request);
}

/* One is enough to go on with. */
static int make_marks(struct reaper *reaper, void *context, struct fault *fault) {
        int r = 0;

        for (int i = 0; i < REAPER_MARKS && r == 0; i++) {
                struct mark *mark = calloc(1, sizeof(*mark));

                if (!mark)
                        return fault_set(fault, -ENOMEM, "out of memory");
                r = reaper->device->backend->mark_new(reaper->device, &mark->handle, fault);
                if (r < 0) {
                        free(mark);
                        return i > 0 ? 0 : r;
                }
                mark->next_made = reaper->made;
                reaper->made = mark;
                put_mark(reaper, mark);
        }
        return 0;
}

int reaper_take_mark(struct reaper *reaper, struct mark **markp, struct fault *fault) {
        struct mark *mark;
        int r = 0;

        do {
                pthread_mutex_lock(&reaper->lock);
                mark = reaper->unused;
                if (mark)
                        reaper->unused = mark->next;
                pthread_mutex_unlock(&reaper->lock);
        } while (!mark && (r = reaper_call(reaper, make_marks, NULL, fault)) == 0);
        *markp = mark;
        return r;
}

void reaper_add(struct reaper *reaper, struct pinfeed_batch *batch) {
        pthread_mutex_lock(&reaper->lock);
        batch->next = reaper->released;
        reaper->released = batch;
        call_thread(reaper);
        pthread_mutex_unlock(&reaper->lock);
}

void reaper_leave(struct reaper *reaper, struct attachment *attachment) {
        pthread_mutex_lock(&reaper->lock);
        attachment->next_left = reaper->left;
        reaper->left = attachment;
        call_thread(reaper);
        pthread_mutex_unlock(&reaper->lock);
}

int reaper_turn(struct reaper *reaper, struct fault *fault) {
        const struct device *device = reaper->device;
        bool busy = false;
        int r, before;

        if (reaper_has_no_thread(reaper)) {
                pthread_mutex_lock(&reaper->lock);
                busy = is_busy(reaper);
                pthread_mutex_unlock(&reaper->lock);
        }
        if (!busy)
                return 0;
        r = device->backend->check_thread(device, fault);
        if (r < 0)
                return r;
        device->backend->leave_captures(device, &before);
        end_leases(reaper);
        while (give_back(reaper))
                continue;
        device->backend->join_captures(device, before);
        return 0;
}

bool reaper_has_no_thread(const struct reaper *reaper) {
        return reaper->started && !reaper->threaded;
}

int reaper_take_error(struct reaper *reaper, struct fault *fault) {
        int r;

        pthread_mutex_lock(&reaper->lock);
        r = reaper->error;
        if (r < 0)
                *fault = reaper->fault;
        reaper->error = 0;
        pthread_mutex_unlock(&reaper->lock);
        return r;
}
