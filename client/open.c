/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The beginning and the end of a job. What the caller asks for is checked here and becomes the ATTACH message
 * (job->request) that goes out with each attempt, so nothing of the caller's has to outlive pinfeed_open: a
 * job that finds another daemon an hour later asks it for the same. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "client/attachment.h"
#include "client/connection.h"
#include "client/job.h"
#include "client/link.h"
#include "client/registry.h"
#include "client/transfer.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
        OPEN_TIMEOUT_DEFAULT_MS = 300000,
        OPEN_MAX_HELD_DEFAULT = 4,
        OPEN_GATHER_DEFAULT_MS = 60000,
        OPEN_GROUP_DEFAULT_MS = 300000,
};

_Static_assert((int)PINFEED_START_LIVE == (int)MESSAGE_START_LIVE,
               "the public numbers are those of the wire");
_Static_assert((int)PINFEED_LAST_BATCH_PAD == (int)LAST_BATCH_PAD &&
                       (int)PINFEED_LAST_BATCH_SHORT == (int)LAST_BATCH_SHORT,
               "the public numbers are those of the wire");

/* The caller's struct may be of an older or newer header: what it lacks is 0, what we do not know must be 0.
 */
static int open_copy(struct pinfeed_job *job, struct pinfeed_attach *to, const struct pinfeed_attach *from) {
        const uint8_t *bytes = (const uint8_t *)from;

        if (!from || from->size < offsetof(struct pinfeed_attach, runtime_dir))
                return fault_set(&job->fault, -EINVAL, "pinfeed_attach.size is not set");
        for (size_t i = sizeof(*to); i < from->size; i++)
                if (bytes[i])
                        return fault_set(&job->fault, -EINVAL,
                                         "pinfeed_attach asks for something newer than this "
                                         "library, " PINFEED_VERSION);
        memset(to, 0, sizeof(*to));
        memcpy(to, from, from->size < sizeof(*to) ? from->size : sizeof(*to));

        if (to->definition && !to->definition[0])
                to->definition = NULL;
        if (to->daemon && !to->daemon[0])
                to->daemon = NULL;
        if (!to->pipeline)
                to->pipeline = "";
        if (!to->pipeline[0] && !to->definition)
                return fault_set(&job->fault, -EINVAL, "pinfeed_attach.pipeline is not set");
        if (!to->name)
                to->name = program_invocation_short_name;
        if (!to->group)
                to->group = "";
        if (!to->world_size)
                to->world_size = 1;
        if (!to->max_held_batches)
                to->max_held_batches = OPEN_MAX_HELD_DEFAULT;
        if (!to->timeout_ms)
                to->timeout_ms = OPEN_TIMEOUT_DEFAULT_MS;
        return 0;
}

static int open_check(struct pinfeed_job *job, const struct pinfeed_attach *attach) {
        if (attach->world_size > POSITION_WORLD_MAX)
                return fault_set(&job->fault, -EINVAL, "world_size is %u, at most %d ranks are allowed",
                                 attach->world_size, POSITION_WORLD_MAX);
        if (attach->rank >= attach->world_size)
                return fault_set(&job->fault, -EINVAL, "rank is %u in a world_size of %u, expected 0 to %u",
                                 attach->rank, attach->world_size, attach->world_size - 1);
        if (attach->max_held_batches > MESSAGE_SLOTS_MAX)
                return fault_set(&job->fault, -EINVAL, "max_held_batches is %u, at most %d are allowed",
                                 attach->max_held_batches, MESSAGE_SLOTS_MAX);
        if (attach->batch_size > MESSAGE_ROWS_MAX)
                return fault_set(&job->fault, -EINVAL, "batch_size is %u, at most %d rows are allowed",
                                 attach->batch_size, MESSAGE_ROWS_MAX);
        if (attach->start_row >= MESSAGE_SAMPLES_MAX)
                return fault_set(&job->fault, -EINVAL, "start_row is %llu, beyond any source",
                                 (unsigned long long)attach->start_row);
        if (attach->last_batch > PINFEED_LAST_BATCH_PAD)
                return fault_set(&job->fault, -EINVAL, "last_batch is %u, expected 0, 1, 2 or 3",
                                 attach->last_batch);
        if (attach->gather > MESSAGE_SLOTS_MAX)
                return fault_set(&job->fault, -EINVAL, "gather is %u, at most %d jobs are allowed",
                                 attach->gather, MESSAGE_SLOTS_MAX);
        if (attach->group_size > attach->world_size)
                return fault_set(&job->fault, -EINVAL,
                                 "group_size is %u, more than the %u ranks of world_size", attach->group_size,
                                 attach->world_size);
        if (attach->group_size && !*attach->group)
                return fault_set(&job->fault, -EINVAL,
                                 "group_size is %u, but there is no group to be counted", attach->group_size);
        if (attach->pin > PINFEED_PIN_NEVER)
                return fault_set(&job->fault, -EINVAL, "pin is %u, expected 0, 1 or 2", attach->pin);
        if (attach->start > PINFEED_START_LIVE)
                return fault_set(&job->fault, -EINVAL, "start is %u, expected 0 or 1", attach->start);
        if (attach->start == PINFEED_START_LIVE &&
            (attach->start_epoch || attach->start_row || attach->state))
                return fault_set(&job->fault, -EINVAL,
                                 "start is live, so start_epoch, start_row and state must not be given");
        return 0;
}

/* Copies a name of the caller's; `to` has room for MESSAGE_NAME_MAX bytes. */
static int open_copy_name(struct pinfeed_job *job, char *to, const char *name, const char *what) {
        size_t length = strlen(name);

        if (length > MESSAGE_NAME_MAX)
                return fault_set(&job->fault, -EINVAL, "the %s name has %zu bytes, at most %d are allowed",
                                 what, length, MESSAGE_NAME_MAX);
        fault_sanitize(to, MESSAGE_NAME_MAX + 1, name, length);
        return 0;
}

static int open_take_names(struct pinfeed_job *job, const struct pinfeed_attach *attach) {
        int r;

        r = open_copy_name(job, job->request.pipeline, attach->pipeline, "pipeline's");
        if (r == 0)
                r = open_copy_name(job, job->request.name, attach->name, "job's");
        if (r == 0)
                r = open_copy_name(job, job->request.group, attach->group, "group's");
        return r;
}

/* A state in place of the start. */
static int open_take_state(struct pinfeed_job *job, const struct pinfeed_attach *attach) {
        struct message_attach *request = &job->request;
        struct state state;
        int r;

        if (!attach->state)
                return 0;
        r = state_parse(&state, attach->state, &job->fault);
        if (r < 0)
                return r;
        if (!attach->force && !attach->pipeline[0])
                strcpy(request->pipeline, state.pipeline); /* of those that are defined */
        else if (!attach->force && strcmp(state.pipeline, attach->pipeline) != 0)
                return fault_set(
                        &job->fault, -ESTALE,
                        "the state is of pipeline %s, this job attaches to %s: attach to %s, or with "
                        "force to take the state's epoch and row alone",
                        state.pipeline, attach->pipeline, state.pipeline);
        request->state_given = 1;
        request->force = attach->force;
        request->state_seed = state.seed;
        request->start_epoch = state.epoch;
        request->start_row = state.row;
        fault_sanitize(request->fingerprint, sizeof(request->fingerprint), state.fingerprint,
                       strlen(state.fingerprint));
        return 0;
}

/* The file is made absolute here: the daemon is elsewhere. */
static int open_take_file(struct pinfeed_job *job, const char *file) {
        _cleanup_(freep) char *here = NULL;
        int length;

        if (!file || !*file)
                file = "definition";
        if (*file != '/' && !(here = getcwd(NULL, 0)))
                return fault_set(&job->fault, -errno,
                                 "definition_file is relative, and the working directory is not known: %s",
                                 strerror(errno));
        length = snprintf(job->definition_file, sizeof(job->definition_file), "%s%s%s", here ? here : "",
                          here ? "/" : "", file);
        if (length > MESSAGE_FILE_MAX)
                return fault_set(&job->fault, -EINVAL,
                                 "definition_file: its path has %d bytes, at most %d are allowed", length,
                                 MESSAGE_FILE_MAX);
        if (!utf8_is_text(job->definition_file, (size_t)length))
                return fault_set(&job->fault, -EINVAL, "definition_file is expected as UTF-8");
        return 0;
}

static int open_take_definition(struct pinfeed_job *job, const struct pinfeed_attach *attach) {
        size_t length;

        if (!attach->definition)
                return 0;
        length = strlen(attach->definition);
        if (length > MESSAGE_DEFINITION_MAX)
                return fault_set(&job->fault, -EINVAL,
                                 "the definition has %zu bytes, at most %d are allowed; leave out pipelines "
                                 "that are not used",
                                 length, MESSAGE_DEFINITION_MAX);
        if (!utf8_is_text(attach->definition, length))
                return fault_set(&job->fault, -EINVAL, "the definition is expected as UTF-8");
        job->definition = strdup(attach->definition);
        if (!job->definition)
                return fault_set(&job->fault, -ENOMEM, "out of memory");
        return open_take_file(job, attach->definition_file);
}

/* Where the machine's service is, or was, nobody starts another daemon. */
static int open_take_daemon(struct pinfeed_job *job, const struct pinfeed_attach *attach) {
        if (!attach->daemon || strcmp(job->directory, RUNTIME_SERVICE) == 0)
                return 0;
        job->starter.linger_s = attach->linger_s;
        job->starter.program = strdup(attach->daemon);
        return job->starter.program ? 0 : fault_set(&job->fault, -ENOMEM, "out of memory");
}

/* Who forks the workers, and the order of the epoch that the job begins with. */
static int open_take_brought(struct pinfeed_job *job, const struct pinfeed_attach *attach) {
        int r = 0;

        if (attach->zygote_pid)
                r = brought_keep_zygote(job, attach->zygote_fd, attach->zygote_pid);
        if (r < 0 || !attach->order_entries)
                return r;
        if (!attach->seed_given)
                return fault_set(&job->fault, -EINVAL, "an order is for one seed: give it with the order");
        if (attach->start == PINFEED_START_LIVE)
                return fault_set(&job->fault, -EINVAL,
                                 "start is live, so nobody knows yet for which epoch the order would be");
        return brought_keep_order(job, job->request.start_epoch, attach->order_fd, attach->order_entries);
}

static int open_make_request(struct pinfeed_job *job, const struct pinfeed_attach *attach) {
        int r;

        job->request = (struct message_attach){
                .seed_given = attach->seed_given,
                .seed = attach->seed_given ? attach->seed : 0,
                .start_epoch = attach->start_epoch,
                .start_row = attach->start_row,
                .batch_size = attach->batch_size,
                .rank = attach->rank,
                .world_size = attach->world_size,
                .last_batch = (uint8_t)attach->last_batch,
                .max_held = attach->max_held_batches,
                .start = (uint8_t)attach->start,
                .gather = attach->gather,
                .gather_ms = attach->gather_timeout_ms ? attach->gather_timeout_ms : OPEN_GATHER_DEFAULT_MS,
                .group_size = attach->group_size,
                .group_ms = attach->group_timeout_ms ? attach->group_timeout_ms : OPEN_GROUP_DEFAULT_MS,
                .duplicate_rank = attach->duplicate_rank,
        };
        r = open_take_names(job, attach);
        if (r == 0)
                r = open_take_state(job, attach);
        if (r == 0)
                r = open_take_definition(job, attach);
        if (r == 0)
                r = open_take_brought(job, attach);
        if (r == 0)
                r = runtime_find_directory(job->directory, attach->runtime_dir,
                                           attach->definition ? RUNTIME_DEFINER : RUNTIME_CLIENT,
                                           &job->fault);
        if (r == 0)
                r = open_take_daemon(job, attach);
        if (r == 0)
                r = transfer_open(job, attach);
        return r;
}

static int open_timed_out(struct pinfeed_job *job) {
        if (job->stage == JOB_LOST)
                return fault_set(&job->fault, -ETIMEDOUT, "no pinfeedd in %u ms: %s", job->timeout_ms,
                                 job->reason.text);
        return fault_set(&job->fault, -ETIMEDOUT, "%s is not ready in time%s%s", connection_daemon(job),
                         job->progress.text[0] ? "; its last word: " : "", job->progress.text);
}

/* Until the job is attached for the first time. */
static int open_wait(struct pinfeed_job *job) {
        uint64_t deadline = connection_deadline(job->timeout_ms);
        int r;

        for (;;) {
                r = link_advance(job, false);
                if (r < 0 || job->stage == JOB_ATTACHED)
                        return r;
                r = link_wait(job, deadline);
                if (r == 0)
                        return open_timed_out(job);
                if (r < 0)
                        return fault_set(&job->fault, r, "waiting for pinfeedd failed: %s", strerror(-r));
        }
}

int pinfeed_open(struct pinfeed_job **jobp, const struct pinfeed_attach *given) {
        struct pinfeed_attach attach;
        struct pinfeed_job *job;
        int r;

        *jobp = job = calloc(1, sizeof(*job));
        if (!job)
                return -ENOMEM;
        job->starter = STARTER_NONE;
        job->brought = BROUGHT_NONE;
        r = registry_add(job);
        if (r < 0)
                return job->error =
                               fault_set(&job->fault, r, "preparing for fork() failed: %s", strerror(-r));

        r = open_copy(job, &attach, given);
        if (r == 0)
                r = open_check(job, &attach);
        if (r == 0)
                r = open_make_request(job, &attach);
        if (r < 0)
                return job->error = r;
        job->timeout_ms = attach.timeout_ms;
        job->reconnect_s = attach.reconnect_s;
        job->progress.call = attach.progress;
        job->progress.context = attach.progress_context;
        return job->error = open_wait(job);
}

struct pinfeed_job *pinfeed_close(struct pinfeed_job *job) {
        if (!job)
                return NULL;
        registry_hide(job);
        transfer_close(job); /* before the rings are unmapped, and the daemon is told */
        if (registry_is_ours(job))
                starter_let_go(&job->starter);
        registry_remove(job);
        attachment_free(job->current);
        while (job->retired) {
                struct attachment *attachment = job->retired;

                job->retired = attachment->next;
                attachment_free(attachment);
        }
        if (registry_is_ours(job))
                starter_deinit(&job->starter);
        free(job->starter.program);
        free(job->definition);
        free(job->failed);
        free(job);
        return NULL;
}
