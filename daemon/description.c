/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the rows of a user's dataset are only an interpreter can tell, and this process runs none. So before
 * there is a ring, a process is started as a worker is, and asked:
 *
 *      spawn --> DESCRIBE --> the factory, two samples --> DESCRIBED, or BROKEN with what was raised
 *
 * It has all the time it wants, as a scan has: a factory may read an index for minutes. It is killed as soon
 * as it has answered, for it has nothing else to do; a dataset that wants to clean up at its end is no other
 * in workers.
 *
 * The owner may let go of it at any time. What is left then, the process until it has ended and two handles
 * of libuv, goes by itself. */

#include "daemon/description.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/list.h"
#include "base/seqpacket.h"
#include "daemon/config.h"
#include "daemon/config-pipeline.h"
#include "daemon/interpreter.h"
#include "daemon/process.h"
#include "proto/message.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct description {
        const struct description_events *events; /* NULL: nobody wants to hear any more */
        void *context;
        struct process process;
        uv_poll_t poll;
        int socket;
        unsigned handles; /* the two above, until they are closed */
        bool exited;
};

/* ---- its end ---- */

static void on_closed(struct description *description) {
        if (--description->handles == 0)
                free(description);
}

static void on_poll_closed(uv_handle_t *handle) {
        on_closed(handle->data);
}

static void on_process_closed(struct process *process) {
        on_closed(container_of(process, struct description, process));
}

static void close_socket(struct description *description) {
        if (description->socket < 0)
                return;
        uv_close((uv_handle_t *)&description->poll, on_poll_closed);
        fd_closep(&description->socket);
}

struct description *description_free(struct description *description, bool for_good) {
        if (!description)
                return NULL;
        description->events = NULL;
        close_socket(description);
        if (process_is_there(&description->process))
                process_kill(&description->process, SIGKILL);
        if (for_good && !description->exited) {
                description->exited = true;
                process_close(&description->process, on_process_closed);
        }
        return NULL;
}

/* ---- its answer ---- */

static void take_described(struct description *description, const struct message_described *described) {
        const struct description_events *events = description->events;

        description->events = NULL;
        if (events)
                events->described(description->context, described);
}

static void take_failure(struct description *description, const struct message_broken *broken) {
        const struct description_events *events = description->events;

        description->events = NULL;
        if (events)
                events->failed(description->context, broken);
}

static void fail(struct description *description, const char *text) {
        struct message_broken broken = {.error = EIO};

        snprintf(broken.text, sizeof(broken.text), "%s", text);
        take_failure(description, &broken);
}

/* False: nothing more to read, now or ever. */
static bool receive(struct description *description) {
        int fds[SEQPACKET_FDS_MAX];
        struct message message;
        struct fault fault;
        size_t n_fds;
        int r;

        if (description->socket < 0)
                return false;
        r = message_receive(description->socket, &message, fds, &n_fds, MESSAGE_BY_WORKER, &fault);
        if (r == MESSAGE_E_AGAIN)
                return false;
        if (r == MESSAGE_E_CLOSED || r == -ECONNRESET) {
                close_socket(description);
                process_kill(&description->process, SIGKILL);
                return false;
        }
        for (size_t i = 0; r == 0 && i < n_fds; i++)
                close(fds[i]);
        if (r < 0)
                fail(description, fault.text);
        else if (message.type == MESSAGE_DESCRIBED)
                take_described(description, &message.described);
        else if (message.type == MESSAGE_BROKEN)
                take_failure(description, &message.broken);
        else
                fail(description, "it answered with a message out of turn");
        return true;
}

static void on_readable(uv_poll_t *poll, int status, int events) {
        receive(poll->data);
}

static void on_exited(struct process *process) {
        struct description *description = container_of(process, struct description, process);
        char how[64], text[256];

        description->exited = true;
        while (receive(description))
                ;
        if (process->signal)
                snprintf(how, sizeof(how), "was killed by signal %d", process->signal);
        else
                snprintf(how, sizeof(how), "ended with exit status %d", process->exit_status);
        snprintf(text, sizeof(text),
                 "the interpreter (pid %d) %s before it had described the dataset; what it has printed, if "
                 "anything, stands in the daemon's log",
                 process->pid, how);
        fail(description, text);
        close_socket(description);
        process_close(process, on_process_closed);
}

/* ---- the question ---- */

static int ask(struct description *description, const struct recipe *recipe, struct fault *fault) {
        _cleanup_(freep) char *text = recipe_to_text(recipe);
        struct message message = {.type = MESSAGE_DESCRIBE};
        int r;

        if (!text)
                return fault_set(fault, -ENOMEM, "no memory for the recipe");
        if (strlen(text) > MESSAGE_RECIPE_MAX)
                return fault_set(fault, -E2BIG, "the recipe has %zu bytes, %d are possible", strlen(text),
                                 MESSAGE_RECIPE_MAX);
        strcpy(message.describe.recipe, text);
        r = message_send(description->socket, &message, NULL, 0);
        if (r == 0 || r == -EPIPE || r == -ECONNRESET)
                return 0; /* its exit will be seen, and then says more */
        return fault_set(fault, r, "asking the interpreter: %s", strerror(-r));
}

static int start_process(struct description *description, uv_loop_t *loop,
                         const struct interpreter *interpreter, int nice, struct fault *fault) {
        _cleanup_(fd_closep) int theirs = -1;
        int pair[2], r = seqpacket_pair(pair);

        if (r < 0)
                return fault_set(fault, r, "cannot make a socket: %s", strerror(-r));
        description->socket = pair[0];
        theirs = pair[1];
        r = uv_poll_init(loop, &description->poll, description->socket);
        if (r < 0) {
                fd_closep(&description->socket);
                return fault_set(fault, r, "cannot watch a socket: %s", uv_strerror(r));
        }
        description->poll.data = description;
        description->handles++;
        process_init(&description->process, on_exited);
        r = process_spawn(&description->process, loop, interpreter->describe, nice, theirs, fault);
        description->handles++; /* it has to be closed even if nothing was started */
        return r < 0 ? fault_prefix(fault, r, "interpreter") : 0;
}

int description_start(struct description **descriptionp, uv_loop_t *loop,
                      const struct interpreter *interpreter, int nice, const struct recipe *recipe,
                      const struct description_events *events, void *context, struct fault *fault) {
        struct description *description = calloc(1, sizeof(*description));
        int r;

        if (!description)
                return fault_set(fault, -ENOMEM, "out of memory");
        *description = (struct description){.events = events, .context = context, .socket = -1};
        r = start_process(description, loop, interpreter, nice, fault);
        if (description->handles == 0) {
                free(description);
                return r;
        }
        if (r >= 0)
                r = ask(description, recipe, fault);
        if (r < 0) {
                description_free(description, description->process.pid == 0);
                return r;
        }
        uv_poll_start(&description->poll, UV_READABLE, on_readable);
        *descriptionp = description;
        return 0;
}

/* ---- what follows from it ---- */

static bool is_same_field(const struct schema_field *a, const struct schema_field *b) {
        return a->dtype == b->dtype && a->n_dims == b->n_dims &&
               memcmp(a->shape, b->shape, a->n_dims * sizeof(a->shape[0])) == 0;
}

/* Names are the configuration's to give. */
static int check_fields(const char *given, const char *found, struct fault *fault) {
        struct schema theirs = {}, ours = {};
        int r = recipe_parse_fields(&theirs, found, fault);
        bool same;

        if (r < 0)
                return fault_prefix(fault, -EPROTO, "what the interpreter says cannot be");
        if (!given)
                return 0;
        r = recipe_parse_fields(&ours, given, fault);
        same = r == 0 && ours.n_fields == theirs.n_fields;
        for (uint32_t i = 0; same && i < ours.n_fields; i++)
                same = is_same_field(&ours.fields[i], &theirs.fields[i]);
        return r < 0 || same ? r
                             : fault_set(fault, -EINVAL,
                                         "fields: expected what the first samples have, %.400s, got %.400s; "
                                         "they may also be left out",
                                         found, given);
}

int description_complete(struct config_pipeline *completed, const struct config_pipeline *defined,
                         const char *file, const struct message_described *described, struct fault *fault) {
        const struct recipe_source *given = &defined->recipe.source;
        struct recipe_source *source = &completed->recipe.source;
        int r = check_fields(given->fields, described->fields, fault);

        *completed = *defined;
        source->fields = NULL;
        if (r < 0)
                return fault_prefix(fault, r, "pipeline %s (%s:%u)", defined->name, file, defined->line);
        source->fields = strdup(given->fields ? given->fields : described->fields);
        source->samples = described->samples;
        source->deterministic = given->deterministic && described->deterministic;
        if (!source->fields)
                return fault_set(fault, -ENOMEM, "no memory for the fields of pipeline %s", defined->name);
        return config_complete_pipeline(completed, file, fault);
}

void description_retake(struct config_pipeline *completed, const struct config_pipeline *defined) {
        const struct config_pipeline found = *completed;

        *completed = *defined;
        completed->recipe.source.fields = found.recipe.source.fields;
        completed->recipe.source.samples = found.recipe.source.samples;
        completed->recipe.source.deterministic = found.recipe.source.deterministic;
        completed->schema = found.schema;
        completed->n_slots = found.n_slots;
        completed->ring_bytes = found.ring_bytes;
}

void description_forget(struct config_pipeline *completed) {
        free(completed->recipe.source.fields); /* all else is not its own */
        *completed = (struct config_pipeline){};
}
