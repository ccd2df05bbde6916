#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The inside of a job, shared by the files of libpinfeed. */

#include "base/fault.h"
#include "client/brought.h"
#include "client/device.h"
#include "client/pinfeed.h"
#include "client/staging.h"
#include "client/starter.h"
#include "client/state.h"
#include "proto/message.h"
#include "proto/position.h"
#include "proto/runtime.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct attachment;
struct reaper;

/* How a job stands to its daemon; link.c has the edges. */
enum job_stage {
        JOB_LOST = 0,  /* no socket; the next attempt is at retry_ns. Every job begins like this */
        JOB_ATTACHING, /* HELLO and ATTACH are sent, the answer is not there */
        JOB_ATTACHED,
};

/* The beginning of a step of all ranks. */
struct job_place {
        uint32_t epoch;
        uint64_t row;
};

/* What is called while a job waits, and with which words. */
struct job_progress {
        void (*call)(void *context, const char *text);
        void *context;
        uint64_t due_ns; /* not before */
        bool pending;    /* `text` has not been shown */
        char text[256];
};

/* seek.c: a journey of the job. At most one SEEK is on its way; what is asked for meanwhile waits for its
 * SOUGHT. */
struct job_seek {
        bool wanted;             /* a SEEK to `here` is to be sent */
        bool sent;               /* its SOUGHT has not come */
        bool returning;          /* back to `from`, for the daemon has said no */
        struct job_place target; /* of the SEEK that was sent */
        struct job_place from;
        bool from_ended; /* epoch_ended, there */
        int error;       /* what the daemon said, for the next pinfeed_next; 0: nothing */
        struct fault fault;
};

struct pinfeed_job {
        /* registry.c */
        struct pinfeed_job *next_living;
        uint64_t process;           /* generation of the process that opened it */
        bool is_hidden;             /* it is being closed: its batches are not found any more */
        struct attachment *current; /* NULL: LOST. Like `retired` changed under the write lock only */
        struct attachment *retired;

        /* open.c: what the caller asked for */
        char directory[RUNTIME_PATH_MAX + 1];
        struct message_attach request; /* sent with each attempt; from the first ATTACHED on its places too */
        char *definition;              /* sent with each attempt, too; NULL: the pipeline is the daemon's */
        char definition_file[MESSAGE_FILE_MAX + 1];
        uint32_t timeout_ms;
        uint32_t reconnect_s;
        struct job_progress progress;
        struct brought brought; /* changed by pinfeed_bring and pinfeed_give_order, too */

        struct starter starter;

        /* link.c */
        enum job_stage stage;
        bool greeted; /* the daemon's HELLO has come */
        bool attached_once;
        bool begun;       /* batches have come: nobody is waited for any more */
        bool reads;       /* the caller has asked for a batch */
        pid_t daemon_pid; /* 0: not known yet */
        char daemon[40];  /* see connection_daemon */
        uint64_t retry_ns;
        uint64_t lost_ns;    /* since when no batch has come; 0: one has, or nothing was ever lost */
        struct fault reason; /* why the last attempt came to nothing, or why the job has ended */
        uint32_t reconnects;

        /* What the daemon said last, and what it said first and has to repeat. */
        struct message_attached attached;
        struct position_plan plan;
        struct pinfeed_field fields[SCHEMA_FIELDS_MAX];
        char names[SCHEMA_FIELDS_MAX][SCHEMA_NAME_MAX + 1];
        char state[STATE_PREFIX_MAX]; /* pinfeed_job_state's text, up to the epoch */
        uint64_t batches_first_epoch;

        struct job_place here; /* after the batch that was handed over last, or where it was sent to */
        bool epoch_ended;      /* the next pinfeed_next says so */
        struct job_seek seek;
        uint64_t waited_ms; /* in calls that timed out, since one had something to hand over */

        /* transfer.c, mapping.c */
        struct device device;
        uint32_t pin;          /* enum pinfeed_pin */
        struct reaper *reaper; /* NULL: a job without a GPU */
        struct staging staging;
        uint64_t copies; /* bytes that were copied in this process on their way to the GPU */
        char map_reason[FAULT_TEXT_MAX + 1];

        struct message_failed *failed; /* what ended the job, if that was a sample; NULL: it was not */

        int error; /* negative errno that every later call gives once the queue is empty; 0: none */
        struct fault fault;
        struct message message; /* what came last; some 40 KiB, so not on a stack */
};
