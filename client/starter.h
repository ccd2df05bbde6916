#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Starting a private daemon for a job that finds none. */

#include "base/fault.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct pinfeed_job;

struct starter {
        char *program; /* pinfeedd's path; NULL: none is started */
        uint32_t linger_s;
        int lock;           /* on RUNTIME_START_LOCK; -1: not held */
        int words;          /* the reading end of its standard error */
        pid_t pid;          /* of the one that is on its way into the background; 0: none is */
        uint64_t since_ns;  /* when the lock was first found taken; 0: it was not */
        uint64_t again_ns;  /* not before is another one started */
        uint64_t first_ns;  /* when the first one was called for; 0: it was not */
        struct fault fault; /* why the last start came to nothing; "": it did not */
};

#define STARTER_NONE ((struct starter){.lock = -1, .words = -1})

/* Nobody listens: goes on with starting somebody, without waiting. 1: it is worth a try to connect now; 0:
 * not yet, look again in STARTER_LOOK_MS; or -ENOENT with its text in job->fault: it cannot be started, for
 * now. */
int starter_step(struct pinfeed_job *job);

enum {
        STARTER_LOOK_MS = 5,
};

/* Whether a job that was never attached should still look for a daemon that does not go away at once. */
bool starter_is_patient(struct starter *starter);

/* Somebody listens: others may go on. */
void starter_let_go(struct starter *starter);

/* What it has open, also in a fork's child. */
void starter_close(struct starter *starter);

/* In a fork's child: it has started nothing. */
void starter_forget(struct starter *starter);

void starter_deinit(struct starter *starter);
