/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The talk before batches flow:
 *
 *   connect -> whose socket is it? -> HELLO, ATTACH -> HELLO, PROGRESS ..., ATTACHED with the ring's
 * descriptor or at any point REFUSED or FAILED
 *
 * HELLO, what the job defines (DEFINE) and brings (brought.c), and ATTACH go out at once, without waiting for
 * the daemon's HELLO, so that attaching costs one round trip. A daemon that refuses early may have closed
 * before it read them: an error of sending is therefore not the last word, what the daemon said before it
 * closed is.
 *
 * Who is at the other side of the socket is checked before anything is sent or believed (server.c).
 *
 * Nothing here waits but connection_wait. Which attempt is made when, and what follows from its failure, is
 * link.c's. */

#include "client/connection.h"

#include "base/clock.h"
#include "base/number.h"
#include "base/seqpacket.h"
#include "base/utf8.h"
#include "client/attachment.h"
#include "client/job.h"
#include "client/registry.h"
#include "client/server.h"
#include "proto/runtime.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t connection_deadline(uint32_t timeout_ms) {
        return timeout_ms == UINT32_MAX ? UINT64_MAX : clock_ns() + timeout_ms * NS_PER_MS;
}

int connection_wait(int socket, short events, uint64_t deadline_ns) {
        struct pollfd entry = {.fd = socket, .events = events};
        struct timespec left;

        for (;;) {
                uint64_t now = clock_ns();
                uint64_t ns = deadline_ns > now ? deadline_ns - now : 0;
                int r;

                left = (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
                r = ppoll(&entry, 1, deadline_ns == UINT64_MAX ? NULL : &left, NULL);
                if (r >= 0)
                        return r > 0;
                if (errno != EINTR)
                        return -errno;
        }
}

int connection_receive(struct pinfeed_job *job, int fds[], size_t *n_fds) {
        int r = message_receive(job->current->socket, &job->message, fds, n_fds, MESSAGE_BY_DAEMON_TO_JOB,
                                &job->fault);

        if (r == MESSAGE_E_CLOSED || r == -EPIPE || r == -ECONNRESET)
                return fault_set(&job->fault, -EPIPE, "%s is gone%s", connection_daemon(job),
                                 job->reconnect_s || !job->attached_once
                                         ? ""
                                         : "; a job with reconnect_s goes on with the next one");
        if (r == -EBADMSG)
                return fault_prefix(&job->fault, -EPROTO, "%s sent a broken message", connection_daemon(job));
        return r;
}

/* Appends ", PHRASE" unless the daemon's sentence has it already. */
static void connection_add(char *details, size_t size, const char *sentence, const char *format, ...) {
        char phrase[MESSAGE_FILE_MAX + 32];
        size_t used = strlen(details);
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(phrase, sizeof(phrase), format, arguments);
        va_end(arguments);
        if (!strstr(sentence, phrase))
                snprintf(details + used, size - used, ", %s", phrase);
}

/* For pinfeed_failure. Without memory for it the sentence alone has to do. */
static void connection_keep_failed(struct pinfeed_job *job, const struct message_failed *failed) {
        if (!failed->sample_given && !failed->exception[0])
                return;
        free(job->failed);
        job->failed = malloc(sizeof(*job->failed));
        if (job->failed)
                *job->failed = *failed;
}

int connection_failed(struct pinfeed_job *job, const struct message_failed *failed) {
        char details[MESSAGE_FILE_MAX + 160] = "";
        int error = failed->error == ETIMEDOUT && !failed->sample_given ? -ETIMEDOUT : -EIO;

        connection_keep_failed(job, failed);
        if (failed->sample_given)
                connection_add(details, sizeof(details), failed->text, "sample %llu",
                               (unsigned long long)failed->sample);
        if (failed->file[0])
                connection_add(details, sizeof(details), failed->text, "%s", failed->file);
        if (failed->pid) {
                connection_add(details, sizeof(details), failed->text, "worker %u", failed->worker);
                connection_add(details, sizeof(details), failed->text, "pid %u", failed->pid);
        }
        if (failed->signal)
                connection_add(details, sizeof(details), failed->text, "signal %u", failed->signal);
        else if (failed->exit_status)
                connection_add(details, sizeof(details), failed->text, "status %u", failed->exit_status);

        if (!details[0])
                return fault_set(&job->fault, error, "%s", failed->text);
        return fault_set(&job->fault, error, "%s (%s)", failed->text, details + 2);
}

/* The kernel names who made the socket. That may be systemd, or somebody in another pid namespace; then the
 * pid is not known before ATTACHED tells it. */
const char *connection_daemon(struct pinfeed_job *job) {
        if (job->daemon_pid > 0)
                snprintf(job->daemon, sizeof(job->daemon), "pinfeedd (pid %d)", (int)job->daemon_pid);
        else
                snprintf(job->daemon, sizeof(job->daemon), "pinfeedd");
        return job->daemon;
}

/* Makes the job's current attachment, which has no more than a socket. */
static int connection_open_socket(struct pinfeed_job *job) {
        char path[RUNTIME_PATH_MAX + sizeof("/" RUNTIME_JOB_SOCKET)];
        struct attachment *attachment = attachment_new(job);
        int r;

        if (!attachment)
                return fault_set(&job->fault, -ENOMEM, "out of memory");
        snprintf(path, sizeof(path), "%s/%s", job->directory, RUNTIME_JOB_SOCKET);

        registry_change();
        r = seqpacket_connect(path);
        attachment->socket = r;
        if (r >= 0)
                job->current = attachment;
        registry_put();
        if (r >= 0) {
                r = server_check(attachment->socket, job->directory, &job->daemon_pid, &job->fault);
                if (job->daemon_pid == 1)
                        job->daemon_pid = 0;
                return r;
        }
        attachment_free(attachment);
        if (r == -ENOENT || r == -ECONNREFUSED || r == -ENOTDIR)
                return fault_set(&job->fault, -ENOENT,
                                 "no pinfeedd listens on %s; start one with 'pinfeedd --config FILE' or "
                                 "'pinfeedctl run'",
                                 path);
        if (r == -EACCES || r == -EPERM)
                return fault_set(
                        &job->fault, -EPERM,
                        "%s is not open to this user (uid %u); be added to the group of its sockets, "
                        "and log in again, or give another runtime directory",
                        path, (unsigned)geteuid());
        if (r == -EAGAIN)
                return fault_set(&job->fault, -EAGAIN,
                                 "pinfeedd does not take connections from %s at the moment", path);
        return fault_set(&job->fault, r, "connecting to %s failed: %s", path, strerror(-r));
}

/* What became of sending. Of a daemon that is gone the receiving end has the words. */
static int connection_sent(struct pinfeed_job *job, int r) {
        if (r < 0 && r != -EPIPE && r != -ECONNRESET)
                return fault_set(&job->fault, r, "sending to %s failed: %s", connection_daemon(job),
                                 strerror(-r));
        return 0;
}

static int connection_send(struct pinfeed_job *job) {
        return connection_sent(job, message_send(job->current->socket, &job->message, NULL, 0));
}

/* As much of `text` as one DEFINE holds, ending with a whole character. */
static size_t connection_part(const char *text) {
        size_t length = strlen(text), end = 0, n;

        if (length <= MESSAGE_DEFINE_MAX)
                return length;
        while ((n = utf8_step(text + end, length - end)) > 0 && end + n <= MESSAGE_DEFINE_MAX)
                end += n;
        return end;
}

static int connection_define(struct pinfeed_job *job) {
        struct message_define *define = &job->message.define;
        const char *rest = job->definition;
        int r = 0;

        job->message.type = MESSAGE_DEFINE;
        strcpy(define->file, job->definition_file);
        while (r == 0 && *rest) {
                size_t n = connection_part(rest);

                memcpy(define->text, rest, n);
                define->text[n] = 0;
                r = connection_send(job);
                define->file[0] = 0; /* the first one has named it */
                rest += n;
        }
        return r;
}

int connection_open(struct pinfeed_job *job) {
        int r;

        r = connection_open_socket(job);
        if (r < 0)
                return r;
        job->message.type = MESSAGE_HELLO;
        job->message.hello = (struct message_hello){
                .major = MESSAGE_MAJOR, .minor = MESSAGE_MINOR, .program = "libpinfeed " PINFEED_VERSION};
        r = connection_send(job);
        if (r == 0 && job->definition)
                r = connection_define(job);
        if (r < 0)
                return r;
        brought_begin_anew(&job->brought);
        r = connection_sent(job, brought_tell(job));
        if (r < 0)
                return r;
        job->message.type = MESSAGE_ATTACH;
        job->message.attach = job->request;
        return connection_send(job);
}

static void connection_describe(struct job_progress *progress, const struct message_progress *message) {
        unsigned long long done = message->done, total = message->total;
        char count[NUMBER_TEXT_MAX], sizes[2][NUMBER_TEXT_MAX];

        switch (message->stage) {
        case MESSAGE_STAGE_RESERVING:
                snprintf(progress->text, sizeof(progress->text), "reserving the ring: %llu of %llu MiB",
                         done >> 20, (total + (1 << 20) - 1) >> 20);
                break;
        case MESSAGE_STAGE_SCANNING:
                snprintf(progress->text, sizeof(progress->text), "scanning: %s files",
                         number_format_count(count, done));
                break;
        case MESSAGE_STAGE_WAITING:
                snprintf(progress->text, sizeof(progress->text),
                         "waiting until other jobs give back slots of the ring: %llu needed. 'pinfeedctl "
                         "jobs' shows who holds them, also unread; end a job, or give the pipeline more "
                         "`slots`",
                         total);
                break;
        case MESSAGE_STAGE_SPACE:
                snprintf(progress->text, sizeof(progress->text),
                         "waiting for room: processes still hold %s of an earlier ring, this one needs %s; "
                         "'pinfeedctl pipelines' shows which",
                         number_format_bytes(sizes[0], done), number_format_bytes(sizes[1], total));
                break;
        case MESSAGE_STAGE_STARTING:
                snprintf(progress->text, sizeof(progress->text), "starting workers: %llu of %llu", done,
                         total);
                break;
        }
        progress->pending = true;
}

static int connection_check_version(struct pinfeed_job *job, const struct message_hello *hello) {
        if (hello->major == MESSAGE_MAJOR)
                return 0;
        return fault_set(&job->fault, -EPROTO,
                         "%s speaks protocol %u.%u, this library %d.%d; install the same "
                         "version of both",
                         connection_daemon(job), hello->major, hello->minor, MESSAGE_MAJOR, MESSAGE_MINOR);
}

/* A job that only reconnects never gave a state of its own. */
static int connection_refused(struct pinfeed_job *job, const struct message_refused *refused) {
        int error = -(int)refused->error;

        if (error == -ESTALE && job->attached_once)
                return fault_set(
                        &job->fault, error,
                        "pinfeedd came back with a pipeline that has changed, so the job cannot go on: %s",
                        refused->text);
        return fault_set(&job->fault, error, "%s", refused->text);
}

/* One message of the talk. 1: it was ATTACHED; 0: go on; or a negative errno. */
static int connection_handle(struct pinfeed_job *job) {
        const struct message *message = &job->message;

        if (message->type == MESSAGE_REFUSED)
                return connection_refused(job, &message->refused);
        if (message->type == MESSAGE_FAILED)
                return connection_failed(job, &message->failed);
        if (message->type == MESSAGE_HELLO && !job->greeted) {
                job->greeted = true;
                return connection_check_version(job, &message->hello);
        }
        if (message->type == MESSAGE_PROGRESS && job->greeted) {
                connection_describe(&job->progress, &message->progress);
                return 0;
        }
        if (message->type == MESSAGE_ATTACHED && job->greeted) {
                if (message->attached.pid > 0)
                        job->daemon_pid = (pid_t)message->attached.pid;
                return 1;
        }
        return fault_set(&job->fault, -EPROTO, "%s sent %s out of turn", connection_daemon(job),
                         message_name(message->type));
}

int connection_talk(struct pinfeed_job *job, int *ring) {
        int fds[SEQPACKET_FDS_MAX];
        size_t n_fds;
        int r;

        do {
                r = connection_receive(job, fds, &n_fds);
                if (r != 0)
                        return r == MESSAGE_E_AGAIN ? 0 : r;
                r = connection_handle(job);
        } while (r == 0);
        if (job->message.type == MESSAGE_ATTACHED) {
                if (r > 0)
                        *ring = fds[0]; /* the decoder has counted it: ATTACHED comes with exactly one */
                else
                        close(fds[0]);
        }
        return r;
}
