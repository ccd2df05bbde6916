#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What holds a pipeline back right now, in one sentence, and which number to change: facts in, words out. */

#include <stdbool.h>
#include <stdint.h>

#define DIAGNOSIS_KINDS(D)                                                                                   \
        D(NOTHING, nothing)   /* nobody is there, or it is too early to say */                               \
        D(START, start)       /* the ring or the samples are not there yet, or a start has failed */         \
        D(STORAGE, storage)   /* workers hang where they read */                                             \
        D(SAMPLE, sample)     /* one takes very long, and a job waits for it */                              \
        D(WORKERS, workers)   /* all are busy, and still jobs wait */                                        \
        D(GATHER, gather)     /* jobs wait for others that have not come */                                  \
        D(LOCKSTEP, lockstep) /* jobs wait for the last one */                                               \
        D(JOB, job)           /* one gives nothing back */                                                   \
        D(HELD, held_batches) /* jobs wait, for what others hold leaves little to prepare in */              \
        D(RING, ring)         /* the same, for it is small */                                                \
        D(JOBS, jobs)         /* data lies ready for them: nothing could be faster */

enum diagnosis_kind {
#define D(NAME, name) DIAGNOSIS_##NAME,
        DIAGNOSIS_KINDS(D)
#undef D
};

enum diagnosis_stage {
        DIAGNOSIS_IDLE,
        DIAGNOSIS_RESERVING,
        DIAGNOSIS_SCANNING,
        DIAGNOSIS_FAILED,
        DIAGNOSIS_READY,
};

enum {
        DIAGNOSIS_NAME_MAX = 64,
        DIAGNOSIS_TEXT_MAX = 480,
        DIAGNOSIS_MISSING_MAX = 224,
};

/* A job; id 0: none. */
struct diagnosis_job {
        uint32_t id;
        int pid;
        char name[DIAGNOSIS_NAME_MAX + 1]; /* printable */
        double waited;                     /* for data, surely: the share of the time */
        double idle;                       /* seconds since it last gave a batch back */
        uint32_t held, max_held;           /* batches */
        uint32_t leased;                   /* slots */
};

/* Averages are over the last seconds. */
struct diagnosis_facts {
        enum diagnosis_stage stage;
        uint64_t files;   /* seen by the scan so far */
        double seconds;   /* how many those last ones are */
        uint32_t workers; /* it may have */
        uint32_t workers_alive;
        bool workers_given; /* by `workers`, not by `cpus` */
        bool brought;       /* by a job, which calls them num_workers */
        uint32_t cpus;
        double busy;      /* workers on average */
        double busy_cpus; /* those of all pipelines that go by `cpus` */
        double computing; /* of the time they were busy, the share that was CPU time */
        uint32_t slots, quarantined;
        double leased; /* slots on average */
        bool storage_hangs;
        uint32_t jobs, waiting;      /* waiting: those that surely did, and not only now and then */
        struct diagnosis_job waiter; /* that waited most */
        struct diagnosis_job keeper; /* of those that hold all they may: that gave nothing back for longest */
        double data_waited;          /* the largest share of the time that data waited for a job */
        double got, wanted;          /* rows a second: by all jobs, and if they had never been empty-handed */
        /* The one that a worker has been at for longest, in seconds. */
        double sample_seconds, sample_timeout;
        uint64_t sample;
        uint32_t sample_worker;
        int sample_pid;
        /* Jobs that gather, and of these the one that will do so for longest. */
        uint32_t gathering;
        uint32_t gather, gather_come; /* jobs that are to come, and how many have */
        double gather_seconds;
        /* Jobs that wait for ranks of their group, "rank 2 of group run" of one of them, and how long it will
         * do so at most; below 0: for ever. */
        uint32_t expecting;
        char missing[DIAGNOSIS_MISSING_MAX];
        double expecting_seconds;
        /* In lockstep. */
        struct diagnosis_job pacer; /* the last one, if others surely waited for it */
        double led;                 /* of those, the largest share of the time */
        uint64_t lead, max_lead;    /* rows: as it is in force, and as configured, 0: not */
        double lag_timeout;
};

struct diagnosis {
        enum diagnosis_kind kind;
        uint32_t workers_needed; /* WORKERS: to make what is wanted, at least; 0: not known */
        uint32_t job;            /* JOB, LOCKSTEP: its number */
        char text[DIAGNOSIS_TEXT_MAX];
};

void diagnosis_make(struct diagnosis *diagnosis, const struct diagnosis_facts *facts);
const char *diagnosis_kind_name(enum diagnosis_kind kind);
