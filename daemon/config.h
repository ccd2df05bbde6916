#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The configuration file as checked values: what it says is possible, or it is refused with file, line,
 * column. */

#include "daemon/access.h"
#include "proto/position.h"
#include "proto/recipe.h"

#include <stdbool.h>
#include <stdint.h>

struct fault;

enum {
        CONFIG_PIPELINES_MAX = 64,
        CONFIG_WORKERS_MAX = 1024,
        CONFIG_SLOTS_DEFAULT = 8,
        CONFIG_SLOTS_MAX = 1 << 20,
        CONFIG_SLOTS_LEAST = 2, /* one held, one next: rule 1 of scheduler.c for an aligned job */
        CONFIG_LOOKAHEAD_MAX = 1000000,
};

/* In place of a file's name, where the configuration came from none. */
#define CONFIG_NO_FILE "no configuration file"

enum config_backing {
        CONFIG_BACKING_AUTO,
        CONFIG_BACKING_SHM,
        CONFIG_BACKING_MEMFD,
};

enum config_reserve {
        CONFIG_RESERVE_ATTACH,
        CONFIG_RESERVE_START,
};

enum config_sharing {
        CONFIG_SHARING_ELASTIC,
        CONFIG_SHARING_LOCKSTEP,
};

enum config_on_error {
        CONFIG_ON_ERROR_REPLACE,
        CONFIG_ON_ERROR_FAIL,
};

#define CONFIG_MAX_ERRORS_DEFAULT     0.001
#define CONFIG_SAMPLE_TIMEOUT_DEFAULT 60.0 /* seconds */
#define CONFIG_CATCH_UP_DEFAULT       60.0 /* seconds */
#define CONFIG_LAG_TIMEOUT_DEFAULT    60.0 /* seconds */

struct config_pipeline {
        char *name; /* 1 ... 64 of A-Z a-z 0-9 . _ - */
        struct recipe recipe;
        uint64_t batch_size;
        bool shuffle;
        uint64_t seed;
        int last_batch;        /* enum last_batch; never DEFAULT */
        bool drop_last;        /* the other way to say it; whoever said which, last_batch is what counts */
        uint64_t lookahead;    /* epochs that a job is given without asking, after the one it is in */
        uint64_t workers;      /* 0: not given, the daemon's cpus */
        double idle;           /* seconds without a job until ring and workers go */
        uint64_t slots;        /* 0: not given */
        uint64_t ring;         /* bytes, 0: not given; with `slots` given too: refused */
        int backing;           /* enum config_backing */
        int reserve;           /* enum config_reserve */
        int on_error;          /* enum config_on_error */
        double max_errors;     /* share of the samples that may be replaced, 0 ... 1; see ledger_judge */
        double sample_timeout; /* seconds that a worker may take for one sample */
        int sharing;           /* enum config_sharing */
        uint64_t max_lead;     /* lockstep: rows; 0: not said, as many as the ring has room for */
        double lag_timeout;    /* lockstep: seconds */
        uint64_t warm;         /* slots that are prepared while there is no job */
        double catch_up; /* seconds of work that a job may be behind and still be brought on; 0: never */
        /* derived */
        struct schema schema; /* laid out for batch_size rows */
        uint32_t n_slots;     /* of `slots`, `ring` or the default */
        uint64_t ring_bytes;  /* slots x slot_bytes: what is reserved */
        unsigned line;        /* where the pipeline stands */
        unsigned batch_size_line, ring_line,
                samples_line;              /* of these keys, or `line`; for errors found later */
        struct access allow, allow_pinned; /* its own; see config_allow */
};

struct config {
        char *file;    /* as given, for error texts */
        uint64_t cpus; /* 0: auto */
        int64_t nice;
        double idle;          /* of pipelines that do not say theirs */
        char *metrics_listen; /* NULL: nowhere; else metrics_address_parse takes it */
        uint32_t n_pipelines;
        struct config_pipeline *pipelines;
        struct access allow, allow_pinned; /* of pipelines that do not say theirs */
        gid_t socket_gid;                  /* whose the sockets are */
        unsigned socket_group_line;        /* 0: not given, they are for the daemon's own user */
        double drain;                      /* seconds for which SIGTERM waits for attached jobs */
        unsigned references;               /* what was loaded has one */
};

/* Reads and checks `file`. 0 and *config, or a negative errno and "FILE:LINE:COLUMN: KEY: expected ..., got
 * ...". Checked: YAML syntax, unknown and duplicate keys (with the nearest known one), types, ranges,
 * recipe_check, too few samples where the source says its number, sizes that overflow, slots and ring that
 * contradict, a ring below CONFIG_SLOTS_LEAST slots, users and groups that this machine does not know. Opens
 * nothing but `file`; asks for users and groups, which may take long. */
int config_load(struct config **config, const char *file, struct fault *fault);

/* The configuration of a daemon that was given none: no pipeline, every other key as if it was not said. 0 or
 * -ENOMEM. */
int config_new(struct config **config, struct fault *fault);

/* Checks `text`, the `pipelines:` of a client, as if it stood in `file`: an absolute path that errors name
 * and relative paths start from; it is not opened. What only a daemon can say is refused by name, and taken
 * from `daemon`. Else as config_load. */
int config_define(struct config **config, const char *file, const char *text, const struct config *daemon,
                  struct fault *fault);
/* Also those of pipelines: what is said of one stays for as long as it lives, whatever the file says by now.
 * config_unref takes NULL, frees with the last reference, and returns NULL. */
struct config *config_ref(struct config *config);
struct config *config_unref(struct config *config);

/* "short", "drop", "pad"; not DEFAULT */
const char *config_last_batch_name(enum last_batch last_batch);

/* Who may attach to a pipeline of the configuration, and who may map its ring for writing, to page-lock it.
 */
const struct access *config_allow(const struct config *config, const struct config_pipeline *pipeline);
const struct access *config_allow_pinned(const struct config *config, const struct config_pipeline *pipeline);

const struct config_pipeline *config_find(const struct config *config, const char *name);

/* Whether two pipelines are the same but for their names and places: every key and the whole recipe. Of one
 * whose workers are brought only what decides the rows: the recipe, shuffle, on_error and max_errors. */
bool config_is_same(const struct config_pipeline *a, const struct config_pipeline *b);

/* The same, but for keys that decide neither the rows nor the ring (`live` in config-keys.c): a pipeline at
 * work can take them over. */
bool config_is_alike(const struct config_pipeline *a, const struct config_pipeline *b);
