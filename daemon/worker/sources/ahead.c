/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Reading ahead: while one sample is decoded, the files of the next ones are opened, and the kernel is told
 * that they will be needed (posix_fadvise), so that their bytes are on their way.
 *
 * None of the calls for that can be trusted to return. On dead or slow storage openat hangs, and so may the
 * advice, when the kernel has to find out where a file's blocks are. If the worker itself did that ahead of
 * time, it would hang under a wrong name: its page says which sample is in work, and one that is good would
 * be blamed; or the page would have to name a sample of a row that is not the next one, and the rows before
 * it would wait for it. So a thread does it, which has nothing else to do. When it hangs, nothing happens:
 * the worker makes its rows, comes to that sample in its turn, and waits there under the right name, as if
 * nothing had been read ahead. The files behind the one that hangs it opens itself. A slow file delays no row
 * but its own.
 *
 * A place, in a ring of SOURCE_AHEAD_MAX and one for the sample in work:
 *
 *      EMPTY --want--> WANTED --the thread--> OPENING --> OPEN --take, forget--> EMPTY
 *                         |                    |    |
 *                         +-- take, forget     |    +-- it failed --> EMPTY
 *                             --> EMPTY        +-- forget --> DROPPED --the thread: closed--> EMPTY
 *
 * A place that is OPENING or DROPPED is the thread's; there is one of these at most. The lock is never held
 * across a call that may block, and only the thread's own sample is ever waited for: where storage takes
 * longer than the work on a sample, to open the file a second time would take even longer.
 *
 * Where files are in the page cache a row needs none of this, and waking a thread costs it 7 us. So the
 * worker judges by how long files took it. Where more than one in MEMORY takes longer than a copy out of
 * memory, the next AHEAD_CREDIT files are read ahead; when these are used up the next few, read without, show
 * how things are. One alone tells nothing: another process may have had the processor meanwhile.
 *
 * What is read is the file that was there when it was opened. Descriptors do not outlive the chunk, a matter
 * of milliseconds, and the file's length is asked for when it is read: a file that is replaced in between is
 * read as it was before or as it is after, as ever. An error of opening ahead is dropped, for it is met
 * again. Where no thread can be had, nothing is read ahead. */

#include "daemon/worker/sources/ahead.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/worker/source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum {
        PLACES = SOURCE_AHEAD_MAX + 1,
        AHEAD_CREDIT = 256,
        MEMORY = 16,   /* files, for one that was slow */
        JOIN_MS = 100, /* for the thread to end; one that hangs is left to itself */
};

/* What is in the page cache was measured to take 10 us and 0.3 ns a byte, and 60 us for 110 KB where others
 * want the memory too; what an SSD has, 130 us at least. */
#define QUICK_NS         (50 * NS_PER_US)
#define QUICK_BYTES_A_NS 2

enum place_state {
        PLACE_EMPTY,
        PLACE_WANTED,
        PLACE_OPENING,
        PLACE_OPEN,
        PLACE_DROPPED,
};

struct place {
        enum place_state state;
        uint64_t sample;
        int fd;
        char name[PATH_MAX];
};

struct ahead {
        int root;
        unsigned credit;   /* files that are still read ahead; the worker's alone, like `slowness` */
        unsigned slowness; /* MEMORY for each file that was slow, one less for each that was not */
        bool running;      /* the thread */
        bool failed;       /* there can be none */
        pthread_t thread;

        pthread_mutex_t lock; /* of what follows */
        pthread_cond_t wanted, opened;
        bool stop, ended, abandoned;
        unsigned next; /* place of the next one that is wanted */
        struct place places[PLACES];
};

int ahead_open_file(int root, const char *name) {
        return openat(root, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static void dispose(struct ahead *ahead) {
        pthread_cond_destroy(&ahead->opened);
        pthread_cond_destroy(&ahead->wanted);
        pthread_mutex_destroy(&ahead->lock);
        free(ahead);
}

/* ---- the thread ---- */

/* The one that has waited longest; NULL: there is none. */
static struct place *find_wanted(struct ahead *ahead) {
        for (unsigned i = 0; i < PLACES; i++) {
                struct place *place = &ahead->places[(ahead->next + i) % PLACES];

                if (place->state == PLACE_WANTED)
                        return place;
        }
        return NULL;
}

/* Called with the lock held, which is let go meanwhile: closing may block, too. */
static void open_place(struct ahead *ahead, struct place *place) {
        int fd;

        place->state = PLACE_OPENING;
        pthread_mutex_unlock(&ahead->lock);
        fd = ahead_open_file(ahead->root, place->name);
        if (fd >= 0)
                (void)posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);
        pthread_mutex_lock(&ahead->lock);
        pthread_cond_signal(&ahead->opened);
        if (place->state == PLACE_OPENING && fd >= 0) {
                place->state = PLACE_OPEN;
                place->fd = fd;
                return;
        }
        if (fd >= 0) {
                pthread_mutex_unlock(&ahead->lock);
                close(fd);
                pthread_mutex_lock(&ahead->lock);
        }
        place->state = PLACE_EMPTY; /* not before: it is the thread's until then */
}

static void *run(void *context) {
        struct ahead *ahead = context;
        struct place *place;
        bool abandoned;

        pthread_mutex_lock(&ahead->lock);
        while (!ahead->stop) {
                place = find_wanted(ahead);
                if (place)
                        open_place(ahead, place);
                else
                        pthread_cond_wait(&ahead->wanted, &ahead->lock);
        }
        ahead->ended = true;
        abandoned = ahead->abandoned;
        pthread_mutex_unlock(&ahead->lock);
        if (abandoned)
                dispose(ahead);
        return NULL;
}

/* With the first file that is wanted. Signals are the worker's. */
static void start(struct ahead *ahead) {
        sigset_t all, before;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        ahead->failed = pthread_create(&ahead->thread, NULL, run, ahead) != 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        ahead->running = !ahead->failed;
}

/* ---- the worker ---- */

int ahead_new(struct ahead **aheadp, int root) {
        struct ahead *ahead = calloc(1, sizeof(*ahead));

        if (!ahead)
                return -ENOMEM;
        ahead->root = root;
        ahead->credit = AHEAD_CREDIT;
        pthread_mutex_init(&ahead->lock, NULL);
        pthread_cond_init(&ahead->wanted, NULL);
        pthread_cond_init(&ahead->opened, NULL);
        *aheadp = ahead;
        return 0;
}

/* False: it hangs, and all of this is its own from now on. */
static bool stop(struct ahead *ahead) {
        struct timespec until;
        bool hangs;

        pthread_mutex_lock(&ahead->lock);
        ahead->stop = true;
        pthread_cond_signal(&ahead->wanted);
        pthread_mutex_unlock(&ahead->lock);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += JOIN_MS * (long)NS_PER_MS;
        until.tv_sec += until.tv_nsec / (long)NS_PER_S;
        until.tv_nsec %= (long)NS_PER_S;
        if (pthread_clockjoin_np(ahead->thread, NULL, CLOCK_MONOTONIC, &until) == 0)
                return true;
        pthread_mutex_lock(&ahead->lock);
        hangs = ahead->abandoned = !ahead->ended;
        if (hangs)
                pthread_detach(ahead->thread);
        pthread_mutex_unlock(&ahead->lock);
        return !hangs && pthread_join(ahead->thread, NULL) == 0;
}

struct ahead *ahead_free(struct ahead *ahead) {
        if (!ahead)
                return NULL;
        ahead_forget(ahead);
        if (ahead->running && !stop(ahead))
                return NULL;
        ahead_forget(ahead); /* what the thread was opening */
        dispose(ahead);
        return NULL;
}

void ahead_want(struct ahead *ahead, uint64_t sample, const char *name, size_t length) {
        struct place *place;

        if (ahead->credit == 0 || ahead->failed || length >= sizeof(place->name))
                return;
        if (!ahead->running)
                start(ahead);
        pthread_mutex_lock(&ahead->lock);
        place = &ahead->places[ahead->next];
        if (place->state == PLACE_EMPTY) {
                ahead->credit--;
                place->state = PLACE_WANTED;
                place->sample = sample;
                memcpy(place->name, name, length);
                place->name[length] = '\0';
                ahead->next = (ahead->next + 1) % PLACES;
                pthread_cond_signal(&ahead->wanted);
        }
        pthread_mutex_unlock(&ahead->lock);
}

/* Its descriptor, or -1. */
static int give_up(struct place *place) {
        bool open = place->state == PLACE_OPEN;

        if (place->state == PLACE_OPENING)
                place->state = PLACE_DROPPED;
        else if (place->state != PLACE_DROPPED)
                place->state = PLACE_EMPTY;
        return open ? place->fd : -1;
}

int ahead_take(struct ahead *ahead, uint64_t sample) {
        int fd = -1;

        if (!ahead->running)
                return -1;
        pthread_mutex_lock(&ahead->lock);
        for (unsigned i = 0; i < PLACES; i++) {
                struct place *place = &ahead->places[i];

                if (place->state == PLACE_EMPTY || place->state == PLACE_DROPPED || place->sample != sample)
                        continue;
                while (place->state == PLACE_OPENING)
                        pthread_cond_wait(&ahead->opened, &ahead->lock);
                fd = give_up(place);
                break;
        }
        pthread_mutex_unlock(&ahead->lock);
        return fd;
}

void ahead_forget(struct ahead *ahead) {
        if (!ahead->running)
                return;
        for (unsigned i = 0; i < PLACES; i++) {
                _cleanup_(fd_closep) int fd = -1;

                pthread_mutex_lock(&ahead->lock);
                fd = give_up(&ahead->places[i]);
                pthread_mutex_unlock(&ahead->lock);
        }
}

void ahead_judge(struct ahead *ahead, size_t bytes, uint64_t ns) {
        if (ns <= QUICK_NS + (uint64_t)bytes / QUICK_BYTES_A_NS) {
                ahead->slowness -= ahead->slowness > 0;
                return;
        }
        ahead->slowness += MEMORY;
        if (ahead->slowness <= 2 * MEMORY)
                return;
        ahead->slowness = 2 * MEMORY; /* one more is enough while it lasts */
        ahead->credit = AHEAD_CREDIT;
}
