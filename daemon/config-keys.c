/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One line a key: whoever adds one adds it here, and parser, errors, `pinfeedd --help-config` and the
 * documents that are made from it (script/config-docs) know it.
 *
 * A key that is `live` decides neither what a row is nor how the ring is laid out: at a reload a pipeline
 * takes its new value over and goes on. One that is not makes another pipeline of it.
 *
 * A default outside a key's own range (0 workers, 0 slots, 0 bytes) means "not said": nobody can say it.
 */

#include "daemon/config-keys.h"

#include "daemon/config.h"
#include "daemon/metrics-address.h"

#define TOP(member)      .offset = offsetof(struct config, member)
#define PIPELINE(member) .offset = offsetof(struct config_pipeline, member)
#define RANGE(low, high) .least = (low), .most = (high)

#define SEED_MAX     18446744073709551616.0 /* 2^64: every key of proto/random.h */
#define MAX_LEAD_MAX 281474976710656.0      /* 2^48: an epoch has no more rows */
#define RING_MAX     9223372036854775808.0  /* 2^63: no file is larger */
#define IDLE_MAX     31536000               /* a year */
#define DRAIN_MAX    86400                  /* a day */

static const char *const last_batch_names[] = {"short", "drop", "pad",
                                               NULL};                      /* enum last_batch, from SHORT */
static const char *const backing_names[] = {"auto", "shm", "memfd", NULL}; /* enum config_backing */
static const char *const reserve_names[] = {"attach", "start", NULL};      /* enum config_reserve */
static const char *const sharing_names[] = {"elastic", "lockstep", NULL};  /* enum config_sharing */
static const char *const on_error_names[] = {"replace", "fail", NULL};     /* enum config_on_error */

const char *config_last_batch_name(enum last_batch last_batch) {
        return last_batch_names[last_batch - LAST_BATCH_SHORT];
}

const struct config_part config_parts[] = {
        {"cpus", "auto or a whole number from 1 to 1024", "auto",
         "workers that may be busy at once, over all pipelines without `workers` of their own; auto: the "
         "processors "
         "that affinity and cgroup allow"},
        {"pipelines", "a mapping of up to 64 pipelines by name", NULL,
         "what is prepared; a name has 1 to 64 of A-Z a-z 0-9 . _ -; `{}`: nothing yet"},
        {"allow", "a mapping of `users` and `groups`", "{}",
         "who may attach, beside root and the daemon's own user, to pipelines without `allow` of their own"},
        {"allow_pinned", "a mapping of `users` and `groups`", "{}",
         "who of these may map a ring for writing, to page-lock it for a GPU, of pipelines without "
         "`allow_pinned` of their own"},
        {"socket_group", "the name or number of a group", "-",
         "the group that may connect to the daemon's sockets; not said: only root and the daemon's own user; "
         "sockets from systemd have the group that their unit says"},
        {0},
};

const struct key config_keys[] = {
        {"nice", KEY_U64, TOP(nice), RANGE(0, 19), .fallback = "10", .help = "niceness of the workers"},
        {"idle", KEY_DOUBLE, TOP(idle), RANGE(0, IDLE_MAX), .fallback = "600.0",
         .help = "seconds without a job after which a pipeline's ring and workers go, until the next attach; "
                 "for pipelines without `idle` of their own"},
        {"metrics_listen", KEY_TEXT, TOP(metrics_listen), RANGE(1, METRICS_ADDRESS_MAX - 1),
         .fallback = "null",
         .help = "where Prometheus finds metrics over HTTP: an address of the loopback and a port, "
                 "\"127.0.0.1:9187\" or \"[::1]:9187\"; null: nowhere"},
        {"drain", KEY_DOUBLE, TOP(drain), RANGE(0, DRAIN_MAX), .fallback = "0.0",
         .help = "seconds for which SIGTERM lets attached jobs go on before it stops the daemon; no other "
                 "job "
                 "is let in meanwhile; 0: it stops at once"},
        {0},
};

const struct key config_cpus_key = {"cpus", KEY_U64, TOP(cpus), RANGE(1, CONFIG_WORKERS_MAX),
                                    .fallback = "0"};

const struct config_part config_pipeline_parts[] = {
        {"source", "a mapping with `type` and the keys of that source", NULL, "where samples come from"},
        {"transforms", "a list of transforms: names, or names with keys", "[]",
         "what is done to a sample, in order"},
        {"output", "a mapping", "{}", "how images are stored"},
        {"allow", "a mapping of `users` and `groups`", "-",
         "who may attach, beside root and the daemon's own user; not said: those of the file's `allow`"},
        {"allow_pinned", "a mapping of `users` and `groups`", "-",
         "who of these may map the ring for writing, to page-lock it for a GPU; not said: those of the "
         "file's "
         "`allow_pinned`; with anybody here the ring lies in a memfd"},
        {0},
};

const struct config_part config_access_parts[] = {
        {"users", "a list of names or numbers", "[]", "these users"},
        {"groups", "a list of names or numbers", "[]",
         "users who are of one of these groups when they connect, as their primary group or another"},
        {0},
};

const struct key config_pipeline_keys[] = {
        {"batch_size", KEY_U64, PIPELINE(batch_size), RANGE(1, INT32_MAX),
         .help = "rows of a slot, and of a batch"},
        {"shuffle", KEY_BOOL, PIPELINE(shuffle), .fallback = "false",
         .help = "whether each epoch has an order of its own, made from the seed"},
        {"seed", KEY_U64, PIPELINE(seed), RANGE(0, SEED_MAX), .fallback = "0",
         .help = "decides the order and all random transforms"},
        {"last_batch", KEY_NAME, PIPELINE(last_batch), .fallback = "\"short\"", .names = last_batch_names,
         .help = "what becomes of the rows after an epoch's last whole step of all ranks: short batches, "
                 "nothing, or whole batches padded with the epoch's first rows"},
        {"drop_last", KEY_BOOL, PIPELINE(drop_last), .fallback = "false",
         .help = "true is another way to say `last_batch: drop`"},
        {"lookahead", KEY_U64, PIPELINE(lookahead), .live = true, RANGE(0, CONFIG_LOOKAHEAD_MAX),
         .fallback = "1000001",
         .help = "epochs after the one a job is in that are prepared and delivered before it asks for them; "
                 "not said: 1 with `shuffle`, else 0"},
        {"workers", KEY_U64, PIPELINE(workers), .live = true, RANGE(1, CONFIG_WORKERS_MAX), .fallback = "0",
         .help = "worker processes of this pipeline, also more than there are processors; not said: `cpus` "
                 "decides"},
        {"slots", KEY_U64, PIPELINE(slots), RANGE(CONFIG_SLOTS_LEAST, CONFIG_SLOTS_MAX), .fallback = "0",
         .help = "batches that the ring holds; not said, nor `ring`: 8, or what fits half of the free "
                 "memory"},
        {"ring", KEY_BYTES, PIPELINE(ring), RANGE(1, RING_MAX), .fallback = "0",
         .help = "bytes of the ring, another way to say `slots`; K, M, G, T for powers of 1024"},
        {"backing", KEY_NAME, PIPELINE(backing), .fallback = "\"auto\"", .names = backing_names,
         .help = "where the ring lives: in /dev/shm, in a memfd, or (auto) the first of them that has room"},
        {"reserve", KEY_NAME, PIPELINE(reserve), .live = true, .fallback = "\"attach\"",
         .names = reserve_names,
         .help = "when the ring is reserved and the workers start: with the first job, or with the daemon"},
        {"idle", KEY_DOUBLE, PIPELINE(idle), .live = true, RANGE(0, IDLE_MAX), .fallback = "-1.0",
         .help = "seconds without a job after which ring and workers go, until the next attach; not said: "
                 "the "
                 "daemon's `idle`; with `reserve: start` they stay"},
        {"on_error", KEY_NAME, PIPELINE(on_error), .fallback = "\"replace\"", .names = on_error_names,
         .help = "what becomes of a sample that cannot be made: another one takes its row, or its jobs get "
                 "an error; of a source of type python: fail, unless something else is said"},
        {"max_errors", KEY_DOUBLE, PIPELINE(max_errors), .live = true, RANGE(0, 1), .fallback = "0.001",
         .help = "share of the samples that may be replaced; more is an error, judged from 1,000 rows on"},
        {"sample_timeout", KEY_DOUBLE, PIPELINE(sample_timeout), .live = true, RANGE(0.5, 86400),
         .fallback = "60.0",
         .help = "seconds that a worker may take for one sample; one that takes longer is killed, and the "
                 "sample tried alone"},
        {"sharing", KEY_NAME, PIPELINE(sharing), .fallback = "\"elastic\"", .names = sharing_names,
         .help = "whether jobs of a stream wait for each other: elastic, no, and what a slow one has missed "
                 "is "
                 "prepared again; lockstep, yes, and everything is prepared once"},
        {"max_lead", KEY_U64, PIPELINE(max_lead), RANGE(1, MAX_LEAD_MAX), .fallback = "0",
         .help = "lockstep: rows that a job may be ahead of the last one; not said: as many as the ring has "
                 "room "
                 "for"},
        {"lag_timeout", KEY_DOUBLE, PIPELINE(lag_timeout), .live = true, RANGE(0.1, 86400),
         .fallback = "60.0",
         .help = "lockstep: seconds after which a job that gives nothing back is waited for no more"},
        {"catch_up", KEY_DOUBLE, PIPELINE(catch_up), .live = true, RANGE(0, 86400), .fallback = "60.0",
         .help = "seconds of work that a job may be behind another of its stream and still be brought on to "
                 "it, "
                 "so that both share one preparation; 0: never"},
        {"warm", KEY_U64, PIPELINE(warm), RANGE(0, CONFIG_SLOTS_MAX), .fallback = "0",
         .help = "slots of the first epoch's beginning that are prepared while there is no job, so that the "
                 "next one begins at once; more than 0 means `reserve: start`"},
        {0},
};
