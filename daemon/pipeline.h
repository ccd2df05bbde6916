#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A pipeline at work: its ring, its workers, its scheduler and the jobs that read it. */

#include "base/fault.h"
#include "base/list.h"
#include "daemon/budget.h"
#include "daemon/config.h"
#include "daemon/interpreter.h"
#include "daemon/ledger.h"
#include "daemon/orders.h"
#include "daemon/pool.h"
#include "daemon/recent.h"
#include "daemon/ring.h"
#include "daemon/scheduler.h"
#include "daemon/space.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct description;
struct job;
struct pipeline;
struct suspects;
struct verdicts;

/* A pipeline's life. RESERVING and SCANNING run side by side: the state names what is still awaited.
 * DESCRIBING comes before them, where a dataset in Python stands in the configuration. */
#define PIPELINE_STATES(S)                                                                                   \
        S(IDLE, idle)             /* nobody needs it: no ring, no workers */                                 \
        S(DESCRIBING, describing) /* what its rows are */                                                    \
        S(RESERVING, reserving)   /* the ring's memory */                                                    \
        S(SCANNING, scanning)     /* the samples */                                                          \
        S(READY, ready)                                                                                      \
        S(FAILED, failed)     /* `failure` says why; the next attach tries again */                          \
        S(STOPPING, stopping) /* its workers are ending */

enum pipeline_state {
#define S(NAME, name) PIPELINE_##NAME,
        PIPELINE_STATES(S)
#undef S
};

enum {
        PIPELINE_LABEL_MAX = MESSAGE_NAME_MAX + 12,
};

/* What all its jobs have waited for, see struct scheduler_account. */
struct pipeline_past {
        uint64_t jobs; /* that were let in */
        uint64_t waited, empty, data_waited, waited_for_jobs;
};

/* A ring that does not fit yet, see pipeline-space.c. */
struct pipeline_space {
        bool awaited;
        bool is_short; /* what there is room for would do, but fewer slots than there should be */
        bool settled;  /* it will have to do */
        bool is_last;  /* try: at the last look nobody held anything */
        bool only_shm; /* the ring can live nowhere else */
        bool looking;  /* a thread is, at who holds the space */
        uv_work_t work;
        uv_timer_t pause; /* between two tries */
        uint64_t since_ns;
        struct space_report report; /* the thread's while it is looking */
        uint64_t bytes;             /* that others held at the last look */
        char text[SPACE_TEXT_MAX];  /* who is waited for; "" before that is known */
};

struct pipeline_events {
        /* reserve: start only: the ring's memory is there, or the pipeline has failed before it was. Called
         * once. May be NULL. */
        void (*reserved)(void *context, struct pipeline *pipeline, int error);
        /* It has neither ring nor workers any more, and nobody who waits for them. May be NULL. */
        void (*rested)(void *context, struct pipeline *pipeline);
        /* After pipeline_stop: its last handle is closed, it may be freed. May be NULL. */
        void (*gone)(void *context, struct pipeline *pipeline);
};

struct pipeline {
        struct config *whole;                 /* a reference of its own */
        const struct config_pipeline *config; /* `completed`, once that is known, or `defined` */
        uv_loop_t *loop;
        const struct pipeline_events *events;
        void *context;
        enum pipeline_state state;
        struct fault failure; /* the last one, of the pipeline or of a stream */
        struct ring ring;
        bool reserved;
        bool announced;       /* the event `reserved` was given */
        uv_idle_t reserving;  /* one step of the reservation per turn */
        uv_idle_t growing;    /* some more workers per turn */
        uv_timer_t reporting; /* progress for waiting jobs */
        uv_timer_t lagging;   /* lockstep: whether a job lags, also when nothing happens */
        uint64_t looked_ns;   /* the last time that it was seen to */
        struct pool pool;
        uint32_t workers; /* that it may have; 0: the budget decides */
        struct budget *budget;
        struct budget_member member; /* of it, while it decides */
        bool scanned;
        struct message_index index;
        int index_fd;
        uint64_t scan_files;
        uint32_t scan_classes;
        char fingerprint[MESSAGE_FINGERPRINT_MAX + 1]; /* of what its rows contain; see fingerprint.h */
        struct scheduler *scheduler;
        struct scheduler_counters past; /* of runs that have ended */
        struct recent recent;           /* see observe.c */
        uint64_t *slot_ready_ns; /* per slot: when the last of its chunks was done, by the worker's clock */
        struct list jobs;        /* ATTACHING and ATTACHED */
        struct ledger ledger;    /* bad samples */
        bool spoilt;             /* there were too many of them; the next attach looks at all of them anew */
        struct suspects *suspects; /* rows whose worker died */
        struct verdicts *verdicts; /* condemned samples; NULL before they were read */
        uv_work_t verdict_work;    /* reading or writing them, in another thread */
        char state_directory[PATH_MAX];
        struct verdicts *work_copy; /* what that thread has; NULL: it does not run */
        struct fault work_fault;
        int work_result;
        bool verdicts_dirty;  /* to be written again */
        uv_timer_t resting;   /* `idle` after the last one who needed it */
        int kept;             /* by so many who are no jobs */
        uv_timer_t restart;   /* when workers are started again after a death */
        uint32_t vain_deaths; /* of workers, since a chunk was last done; one for each start anew */
        uint64_t vain_ns;     /* when the last of them was counted */
        uint32_t quarantined; /* slots that a killed worker which has not ended may still write into */
        uint32_t awaited;     /* slots that jobs which come or go elsewhere wait for; others give them back */
        bool unsettled;       /* a job has come, gone or asked to go elsewhere, or waits for room */
        bool stepping;        /* pipeline_step is on the stack */
        bool again;           /* and something has happened since */
        char label[PIPELINE_LABEL_MAX + 1]; /* its name, or NAME#2 where another has that name: for people */
        /* definition.c */
        const struct config *definition; /* sent by a job: `whole`; NULL: the daemon's */
        uint64_t asked;                  /* when it was defined last, in the order of such events */
        bool leaving;                    /* it was taken out and is freed when it is gone */
        /* pipeline-brought.c */
        struct list zygotes; /* of its jobs; the one that has been there longest forks */
        int zygote_pid;      /* of the one that forks, or of the last one that did */
        struct orders orders;
        /* pipeline-described.c */
        const struct config_pipeline *defined; /* as it was said */
        struct config_pipeline completed;      /* with what a dataset in Python has shown of itself */
        char *layout;                          /* of its samples, for workers and jobs; NULL: none */
        struct description *description;       /* while it is DESCRIBING */
        struct interpreter interpreter;        /* that runs its workers, if one does */
        struct pipeline_past past_jobs;        /* those that are there: only `jobs` */
        bool superseded; /* roster.c: it goes on for the jobs that it has, and gets no others */
        uint64_t made_ns;
        struct pipeline_space space;
};

/* `program` is the worker's path; it, the budget and the loop outlive the pipeline. */
int pipeline_new(struct pipeline **pipeline, uv_loop_t *loop, struct config *whole,
                 const struct config_pipeline *config, struct budget *budget, const char *program,
                 const struct pipeline_events *events, void *context);
/* To be called after the loop has run dry. */
struct pipeline *pipeline_free(struct pipeline *pipeline);

/* Takes ring and workers now (reserve: start). */
void pipeline_start(struct pipeline *pipeline);

/* pipeline-reload.c: from now on it goes by this configuration, in which it is alike (config_is_alike). */
void pipeline_take_config(struct pipeline *pipeline, struct config *whole,
                          const struct config_pipeline *config);

/* Closes every job and ends the workers; its handles close when the last one is gone. */
void pipeline_stop(struct pipeline *pipeline);

/* The events of a job, see job.h. */
void pipeline_attach(struct pipeline *pipeline, struct job *job);
int pipeline_release(struct pipeline *pipeline, struct job *job, const uint64_t *numbers, uint32_t n_numbers);
void pipeline_seek(struct pipeline *pipeline);
void pipeline_read(struct pipeline *pipeline, struct job *job);
void pipeline_bring(struct pipeline *pipeline, struct job *job);
/* 0 or a negative errno; *fd is taken over if it is of use. */
int pipeline_take_order(struct pipeline *pipeline, const struct message_order *message, int *fd,
                        struct fault *fault);
void pipeline_detach(struct pipeline *pipeline, struct job *job);

uint32_t pipeline_workers(const struct pipeline *pipeline); /* how many it may have */
/* Since the daemon started: they only grow, however often the ring comes and goes. */
void pipeline_counters(const struct pipeline *pipeline, struct scheduler_counters *counters);
void pipeline_past_add(struct pipeline_past *past, const struct scheduler_account *account);
/* From now on it may have so many, in place of what the configuration says; 0: the budget decides. More are
 * started if it is up; of those beyond, who holds a chunk finishes it first. */
void pipeline_set_workers(struct pipeline *pipeline, uint32_t workers);
/* What each of its workers is told first, but for the number. 0 or a negative errno. */
int pipeline_make_setup(const struct pipeline *pipeline, struct message_setup *setup, struct fault *fault);

/* Takes the verdicts on these samples back. They go from the file at once. For the rows of this run they stay
 * in force, and the run ends with its last job: at once, when it has none, and the next one begins with the
 * shorter list. The pipeline is READY. How many there were. */
uint32_t pipeline_lift(struct pipeline *pipeline, const uint64_t *samples, uint32_t n);
/* Whether the file is being written. When it is no more, pipeline->work_result < 0 says that it could not be.
 */
bool pipeline_is_saving(const struct pipeline *pipeline);
/* Somebody who is no job needs it, or (wanted false) does so no more: it does not go to rest meanwhile. */
void pipeline_keep(struct pipeline *pipeline, bool wanted);
/* Of a job that waits for ranks of its group: "rank 2", "ranks 1, 3", "2 more ranks"; and until when. */
void pipeline_name_missing(const struct pipeline *pipeline, const struct job *job, char *text, size_t size);
uint64_t pipeline_group_until(const struct job *job);
/* Its workers are forked by zygotes of its jobs. */
bool pipeline_is_brought(const struct pipeline *pipeline);
/* Who it waits for, to have room for its ring; NULL: it does not. */
const char *pipeline_waiting_for(const struct pipeline *pipeline);
const char *pipeline_state_name(enum pipeline_state state);
