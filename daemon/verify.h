#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The verification of a pipeline: every sample is read and decoded once, the bad ones are listed. */

#include "base/fault.h"
#include "base/list.h"
#include "daemon/findings.h"
#include "daemon/pool.h"
#include "daemon/verdicts.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct pipeline;

/* One function in verify.c per edge. */
enum verify_state {
        VERIFY_IDLE,
        VERIFY_WAITING,  /* for the pipeline to be ready */
        VERIFY_TRYING,   /* samples */
        VERIFY_ENDING,   /* its workers are */
        VERIFY_CLEARING, /* the file of condemned samples is written */
        VERIFY_TELLING,  /* what was found, a line whenever the one before was taken */
        VERIFY_STOPPED,  /* with the daemon, for good */
};

/* The one who asked. */
struct verify_events {
        /* False while a line has not been taken; when it was, verify_on_taken is to be called. */
        bool (*can_tell)(void *context);
        void (*tell)(void *context, json_t *line); /* consumes it */
        /* The last line; nothing follows. Consumes it, too. */
        void (*end)(void *context, json_t *line);
};

/* One for each daemon, and at most one verification at a time. */
struct verify {
        uv_loop_t *loop;
        enum verify_state state;
        struct pipeline *pipeline;
        const struct verify_events *events; /* NULL: nobody listens any more */
        void *context;
        uv_timer_t tick;
        uv_idle_t growing; /* some more workers per turn */
        struct pool pool;
        bool started; /* the pipeline was, for this verification */

        /* from VERIFY_TRYING on */
        struct message_setup setup;
        struct message_index index;
        int index_fd;
        int ring_fd; /* an empty file: there is nothing to write to */
        uint32_t workers;
        char fingerprint[VERDICTS_HEX_BYTES + 1]; /* of the verdicts that findings began with */
        uint64_t next;                            /* no sample from here on was given to a worker yet */
        uint64_t done;                            /* samples that are judged */
        struct list pieces;                       /* of what was given back by workers that died */
        struct findings findings;
        uint32_t vain_deaths; /* since a sample was last judged */
        uint64_t vain_ns;     /* when the last of them was counted */

        /* from VERIFY_ENDING on */
        struct fault failure; /* its text is empty when there is none */
        uint32_t cleared;
        bool restarted;
        uint32_t told; /* lines about bad samples */
};

#define VERIFY_NONE ((struct verify){.index_fd = -1, .ring_fd = -1})

/* `program` is the worker's path; it and the loop outlive the verifier. */
void verify_init(struct verify *verify, uv_loop_t *loop, const char *program, int nice);
/* After the loop has run dry, also of VERIFY_NONE. */
void verify_deinit(struct verify *verify);

/* Begins. 0, or a negative errno with the reason (-EBUSY: another one runs), and `events` are not used. */
int verify_start(struct verify *verify, struct pipeline *pipeline, const struct verify_events *events,
                 void *context, struct fault *fault);
void verify_on_taken(struct verify *verify);

/* The one who asked has gone. */
void verify_cancel(struct verify *verify);

/* The daemon ends, and whoever has asked was told so. */
void verify_stop(struct verify *verify);

/* The samples of this pipeline that are judged, and all, for status. False: it is not being verified, or not
 * yet. */
bool verify_progress(const struct verify *verify, const struct pipeline *pipeline, uint64_t *done,
                     uint64_t *total);

/* For verify.c and verify-work.c. */

/* Takes what the work needs from the pipeline, which is ready, and hands out the first samples. */
void verify_begin_work(struct verify *verify);
/* More workers, where some have died. */
void verify_grow(struct verify *verify);
/* All is done, or cannot be: workers end, then the answer is made. `failure` says which. */
void verify_end_work(struct verify *verify);
/* The last worker is gone. */
void verify_on_ended(struct verify *verify);
extern const struct pool_events verify_pool_events;
