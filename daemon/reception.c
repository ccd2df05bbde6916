/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Where jobs come in: both sockets, whose they are, and to which pipeline a job is led. What is said to a job
 * later is between it and its pipeline; here is only who is let in at all, and how many at a time. */

#include "daemon/reception.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/seqpacket.h"
#include "daemon/access.h"
#include "daemon/control.h"
#include "daemon/daemon.h"
#include "daemon/definition.h"
#include "daemon/guard.h"
#include "daemon/job.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/roster.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
        RECEPTION_BACKLOG = 128,
        RECEPTION_ACCEPTS_PER_TURN = 16,
        RECEPTION_ACCEPT_PAUSE_MS = 500,
        RECEPTION_REFUSALS_MS = 1000, /* one line about refused connections in so long */
};

/* ---- a job ---- */

/* Those that it may use. */
static void refuse_unknown(const struct daemon *daemon, struct job *job) {
        char names[512] = "";
        struct fault fault;

        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                size_t n = strlen(names);

                if (!daemon->pipelines[i]->superseded && guard_may_use(daemon->pipelines[i], &job->peer))
                        snprintf(names + n, sizeof(names) - n, "%s%s", n > 0 ? ", " : "",
                                 daemon->pipelines[i]->label);
        }
        if (daemon->n_pipelines == 0 && daemon->options.is_private)
                fault_set(&fault, -ENOENT,
                          "no pipeline \"%s\": this daemon has no configuration, and none was defined yet",
                          job->attach.pipeline);
        else if (daemon->n_pipelines == 0)
                fault_set(&fault, -ENOENT, "no pipeline \"%s\": there is none yet in %s; have it added there",
                          job->attach.pipeline, daemon->config->file);
        else if (!*names)
                fault_set(&fault, -ENOENT,
                          "no pipeline \"%s\", and those that there are in %s are not for uid %u; have it "
                          "named "
                          "by `allow`",
                          job->attach.pipeline, daemon->config->file, (unsigned)job->uid);
        else
                fault_set(&fault, -ENOENT, "no pipeline \"%s\"; there are: %s (%s)", job->attach.pipeline,
                          names, daemon->config->file);
        job_refuse(job, -ENOENT, fault.text);
}

static void on_attach(void *context, struct job *job) {
        struct daemon *daemon = context;
        struct pipeline *pipeline;
        struct fault fault;
        int r;

        if (drain_refuses(&daemon->drain, job))
                return;
        if (job->definition.file) {
                r = definition_take(daemon, job, &pipeline, &fault);
        } else {
                pipeline = roster_find_group(daemon, job);
                if (!pipeline)
                        pipeline = daemon_find_pipeline(daemon, job->attach.pipeline);
                if (!pipeline) {
                        refuse_unknown(daemon, job);
                        return;
                }
                r = guard_check_use(daemon, pipeline, &job->peer, &fault);
        }
        if (r < 0) {
                job_refuse(job, r, fault.text);
                return;
        }
        job->may_pin = guard_may_pin(pipeline, &job->peer);
        pipeline_attach(pipeline, job);
}

static int on_welcome(void *context, const struct peer *peer, struct fault *fault) {
        struct daemon *daemon = context;
        int r = guard_welcome(daemon, peer, fault);

        if (r == 0)
                users_learn(&daemon->users, peer->uid);
        return r;
}

static int on_release(void *context, struct job *job, const uint64_t *numbers, uint32_t n_numbers) {
        return pipeline_release(job->owner, job, numbers, n_numbers);
}

static void on_seek(void *context, struct job *job) {
        pipeline_seek(job->owner);
}

static void on_read(void *context, struct job *job) {
        pipeline_read(job->owner, job);
}

static void on_bring(void *context, struct job *job) {
        pipeline_bring(job->owner, job);
}

static void on_order(void *context, struct job *job, const struct message_order *order, int *fd) {
        struct fault fault;

        if (pipeline_take_order(job->owner, order, fd, &fault) < 0)
                job_close(job, fault.text);
}

static void on_refused(void *context) {
        struct daemon *daemon = context;

        daemon->refused_jobs++;
}

static void on_closed(void *context, struct job *job) {
        struct daemon *daemon = context;

        linger_note(&daemon->linger);
        if (job->owner)
                pipeline_detach(job->owner, job);
        drain_note(&daemon->drain);
}

static const struct job_events job_events = {.attach = on_attach,
                                             .release = on_release,
                                             .seek = on_seek,
                                             .closed = on_closed,
                                             .read = on_read,
                                             .bring = on_bring,
                                             .order = on_order,
                                             .refused = on_refused,
                                             .welcome = on_welcome};

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer) {
        struct daemon *daemon = timer->data;

        if (!drain_keeps_out(&daemon->drain))
                uv_poll_start(&daemon->job_poll, UV_READABLE, on_connection);
}

/* Whoever tries again and again must not fill the log. */
void reception_log_refusal(struct daemon *daemon, const char *text) {
        uint64_t now = clock_ns();

        daemon->refused_connections++;
        if (daemon->refused_ns != 0 && now - daemon->refused_ns < RECEPTION_REFUSALS_MS * NS_PER_MS) {
                daemon->unlogged++;
                return;
        }
        if (daemon->unlogged > 0)
                log_line(LOG_WARNING, "%s (and %" PRIu64 " more since the last line about such)", text,
                         daemon->unlogged);
        else
                log_line(LOG_WARNING, "%s", text);
        daemon->refused_ns = now;
        daemon->unlogged = 0;
}

/* What cannot be accepted now is left in the queue for a moment: the socket stays readable, and looking at it
 * again at once would take all of a CPU. */
static void on_connection(uv_poll_t *poll, int status, int events) {
        struct daemon *daemon = poll->data;
        struct fault fault;

        for (int i = 0; i < RECEPTION_ACCEPTS_PER_TURN; i++) {
                int socket, r = listener_accept(daemon->job_socket, &socket, &fault);

                if (r == LISTENER_E_NONE)
                        return;
                if (r != 0)
                        reception_log_refusal(daemon, fault.text);
                if (r < 0) {
                        uv_poll_stop(&daemon->job_poll);
                        uv_timer_start(&daemon->job_pause, on_pause_over, RECEPTION_ACCEPT_PAUSE_MS, 0);
                        return;
                }
                if (r != 0)
                        continue;
                if (job_new(&daemon->loop, &daemon->jobs, &daemon->quota, socket, ++daemon->next_job,
                            &job_events, daemon, &fault) < 0)
                        reception_log_refusal(daemon, fault.text);
        }
}

void reception_look(struct daemon *daemon) {
        if (!uv_is_active((uv_handle_t *)&daemon->job_pause))
                on_connection(&daemon->job_poll, 0, UV_READABLE);
}

/* ---- the sockets ---- */

void reception_remove(struct daemon *daemon) {
        char path[RUNTIME_PATH_MAX + 32];

        if (daemon->job_socket < 0)
                return;
        fd_closep(&daemon->job_socket);
        snprintf(path, sizeof(path), "%s/%s", daemon->directory, RUNTIME_JOB_SOCKET);
        if (!daemon->job_socket_stays)
                unlink(path);
}

/* Sockets that are made here are for this user alone, until they are a group's. */
static int share_sockets(const struct daemon *daemon, struct fault *fault) {
        const struct config *config = daemon->config;
        int r;

        if (daemon->activated) /* who made them has said whose they are */
                return 0;
        if (config->socket_group_line == 0) {
                guard_warn_unreachable(daemon);
                return 0;
        }
        r = listener_share_socket(daemon->directory, RUNTIME_CONTROL_SOCKET, config->socket_gid, fault);
        if (r == 0)
                r = listener_share_socket(daemon->directory, RUNTIME_JOB_SOCKET, config->socket_gid, fault);
        if (r == 0)
                r = listener_share_directory(daemon->directory, config->socket_gid, fault);
        return r < 0 ? fault_prefix(fault, r, "%s:%u: socket_group", config->file, config->socket_group_line)
                     : 0;
}

static int bind_job_socket(struct daemon *daemon, struct fault *fault) {
        char path[RUNTIME_PATH_MAX + 32];
        int r = listener_prepare(path, daemon->directory, RUNTIME_JOB_SOCKET, fault);

        if (r < 0)
                return r;
        daemon->job_socket = seqpacket_listen(path, RECEPTION_BACKLOG);
        if (daemon->job_socket < 0)
                return fault_set(fault, daemon->job_socket, "cannot listen on %s: %s", path,
                                 strerror(-daemon->job_socket));
        return 0;
}

int reception_open(struct daemon *daemon, struct fault *fault) {
        int r = control_new(&daemon->control, daemon, &daemon->inherited.control, fault);

        if (r < 0)
                return r;
        daemon->job_socket_stays = daemon->inherited.job >= 0;
        daemon->job_socket = fd_take(&daemon->inherited.job);
        r = daemon->job_socket_stays ? 0 : bind_job_socket(daemon, fault);
        if (r < 0)
                return r;
        r = uv_poll_init(&daemon->loop, &daemon->job_poll, daemon->job_socket);
        if (r < 0) {
                reception_remove(daemon);
                return fault_set(fault, r, "cannot watch the jobs' socket in %s: %s", daemon->directory,
                                 uv_strerror(r));
        }
        daemon->job_poll.data = daemon;
        uv_poll_start(&daemon->job_poll, UV_READABLE, on_connection);
        return share_sockets(daemon, fault);
}
