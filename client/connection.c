/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The talk before batches flow:
 *
 *   connect -> whose socket is it? -> HELLO, ATTACH -> HELLO, PROGRESS ..., ATTACHED with the ring's
 * descriptor or at any point REFUSED or FAILED
 *
 * HELLO and ATTACH go out at once, without waiting for the daemon's HELLO, so that attaching costs one round
 * trip. A daemon that refuses early may have closed before it read them: an error of sending is therefore not
 * the last word, what the daemon said before it closed is.
 *
 * The other side of the socket is checked by the kernel's word (SO_PEERCRED) before anything is sent or
 * believed: in a directory such as /tmp somebody else's process may listen where we expect our own daemon. */

#include "client/connection.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/seqpacket.h"
#include "client/job.h"
#include "client/registry.h"
#include "proto/runtime.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
        CONNECTION_PROGRESS_MS = 100, /* pinfeed.h: at most ten times a second */
};

/* The latest progress that the caller has not seen, and when it may be shown. */
struct progress {
        const struct pinfeed_attach *attach;
        uint64_t due_ns;
        bool pending;
        char text[128];
};

uint64_t connection_deadline(uint32_t timeout_ms) {
        return timeout_ms == UINT32_MAX ? UINT64_MAX : clock_ns() + timeout_ms * NS_PER_MS;
}

int connection_wait(int socket, uint64_t deadline_ns) {
        struct pollfd entry = {.fd = socket, .events = POLLIN};
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
        int r = message_receive(job->socket, &job->message, fds, n_fds, MESSAGE_BY_DAEMON_TO_JOB,
                                &job->fault);

        if (r == MESSAGE_E_CLOSED || r == -EPIPE || r == -ECONNRESET)
                return fault_set(&job->fault, -EPIPE, "pinfeedd (pid %d) is gone", (int)job->daemon_pid);
        if (r == -EBADMSG)
                return fault_prefix(&job->fault, -EPROTO, "pinfeedd (pid %d) sent a broken message",
                                    (int)job->daemon_pid);
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

int connection_failed(struct pinfeed_job *job, const struct message_failed *failed) {
        char details[MESSAGE_FILE_MAX + 160] = "";

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
                return fault_set(&job->fault, -EIO, "%s", failed->text);
        return fault_set(&job->fault, -EIO, "%s (%s)", failed->text, details + 2);
}

static int connection_open_socket(struct pinfeed_job *job, const char *given) {
        char directory[RUNTIME_PATH_MAX + 1], path[RUNTIME_PATH_MAX + sizeof("/" RUNTIME_JOB_SOCKET)];
        gid_t gid;
        uid_t uid;
        int r;

        r = runtime_find_directory(directory, given, true, &job->fault);
        if (r < 0)
                return r;
        snprintf(path, sizeof(path), "%s/%s", directory, RUNTIME_JOB_SOCKET);

        registry_hold();
        r = seqpacket_connect(path);
        if (r >= 0)
                job->socket = r; /* where a fork's child finds it */
        registry_put();
        if (r == -ENOENT || r == -ECONNREFUSED || r == -ENOTDIR)
                return fault_set(&job->fault, -ENOENT,
                                 "no pinfeedd listens on %s; start one with 'pinfeedd --config FILE'", path);
        if (r == -EACCES || r == -EPERM)
                return fault_set(&job->fault, -EPERM, "%s belongs to somebody else", path);
        if (r < 0)
                return fault_set(&job->fault, r, "connecting to %s failed: %s", path, strerror(-r));

        r = seqpacket_peer(job->socket, &job->daemon_pid, &uid, &gid);
        if (r < 0)
                return fault_set(&job->fault, r, "asking who listens on %s failed: %s", path, strerror(-r));
        if (uid != 0 && uid != geteuid())
                return fault_set(&job->fault, -EPERM,
                                 "the daemon at %s (pid %d) belongs to uid %u, not to uid %u or root", path,
                                 (int)job->daemon_pid, uid, geteuid());
        return 0;
}

/* Copies a name of the caller's; `to` has room for MESSAGE_NAME_MAX bytes. */
static int connection_copy_name(struct pinfeed_job *job, char *to, const char *name, const char *what) {
        size_t length = strlen(name);

        if (length > MESSAGE_NAME_MAX)
                return fault_set(&job->fault, -EINVAL, "the %s name has %zu bytes, at most %d are allowed",
                                 what, length, MESSAGE_NAME_MAX);
        fault_sanitize(to, MESSAGE_NAME_MAX + 1, name, length);
        return 0;
}

static int connection_send(struct pinfeed_job *job) {
        int r = message_send(job->socket, &job->message, NULL, 0);

        if (r < 0 && r != -EPIPE && r != -ECONNRESET)
                return fault_set(&job->fault, r, "sending to pinfeedd (pid %d) failed: %s",
                                 (int)job->daemon_pid, strerror(-r));
        return 0;
}

static int connection_ask(struct pinfeed_job *job, const struct pinfeed_attach *attach) {
        struct message_attach *request = &job->message.attach;
        int r;

        job->message.type = MESSAGE_HELLO;
        job->message.hello = (struct message_hello){
                .major = MESSAGE_MAJOR, .minor = MESSAGE_MINOR, .program = "libpinfeed " PINFEED_VERSION};
        r = connection_send(job);
        if (r < 0)
                return r;

        job->message.type = MESSAGE_ATTACH;
        *request = (struct message_attach){
                .seed_given = attach->seed_given,
                .seed = attach->seed_given ? attach->seed : 0,
                .start_epoch = attach->start_epoch,
                .start_row = attach->start_row,
                .batch_size = attach->batch_size,
                .rank = attach->rank,
                .world_size = attach->world_size ? attach->world_size : 1,
                .last_batch = (uint8_t)attach->last_batch,
                .max_held = attach->max_held_batches,
        };
        r = connection_copy_name(job, request->pipeline, attach->pipeline, "pipeline's");
        if (r < 0)
                return r;
        r = connection_copy_name(job, request->name, attach->name, "job's");
        if (r < 0)
                return r;
        return connection_send(job);
}

static void connection_describe(struct progress *progress, const struct message_progress *message) {
        unsigned long long done = message->done, total = message->total;
        char count[NUMBER_TEXT_MAX];

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
                         "waiting until other jobs give back slots of the ring: %llu needed", total);
                break;
        case MESSAGE_STAGE_STARTING:
                snprintf(progress->text, sizeof(progress->text), "starting workers: %llu of %llu", done,
                         total);
                break;
        }
        progress->pending = true;
}

static void connection_show(struct progress *progress) {
        uint64_t now = clock_ns();

        if (!progress->pending || now < progress->due_ns)
                return;
        progress->pending = false;
        progress->due_ns = now + CONNECTION_PROGRESS_MS * NS_PER_MS;
        if (progress->attach->progress)
                progress->attach->progress(progress->attach->progress_context, progress->text);
}

static int connection_check_version(struct pinfeed_job *job, const struct message_hello *hello) {
        if (hello->major == MESSAGE_MAJOR)
                return 0;
        return fault_set(&job->fault, -EPROTO,
                         "pinfeedd (pid %d) speaks protocol %u.%u, this library %d.%d; install the same "
                         "version of both",
                         (int)job->daemon_pid, hello->major, hello->minor, MESSAGE_MAJOR, MESSAGE_MINOR);
}

/* One message of the talk. 1: it was ATTACHED; 0: go on; or a negative errno. */
static int connection_handle(struct pinfeed_job *job, struct progress *progress, bool *greeted) {
        const struct message *message = &job->message;

        if (message->type == MESSAGE_REFUSED)
                return fault_set(&job->fault, -(int)message->refused.error, "%s", message->refused.text);
        if (message->type == MESSAGE_FAILED)
                return connection_failed(job, &message->failed);
        if (message->type == MESSAGE_HELLO && !*greeted) {
                *greeted = true;
                return connection_check_version(job, &message->hello);
        }
        if (message->type == MESSAGE_PROGRESS && *greeted) {
                connection_describe(progress, &message->progress);
                return 0;
        }
        if (message->type == MESSAGE_ATTACHED && *greeted) {
                job->attached = message->attached;
                return 1;
        }
        return fault_set(&job->fault, -EPROTO, "pinfeedd (pid %d) sent %s out of turn", (int)job->daemon_pid,
                         message_name(message->type));
}

/* Waits for the next message, showing progress when it is due meanwhile. 0, or a negative errno. */
static int connection_wait_attaching(struct pinfeed_job *job, struct progress *progress,
                                     uint64_t deadline_ns) {
        for (;;) {
                bool showing = progress->pending && progress->due_ns < deadline_ns;
                int r = connection_wait(job->socket, showing ? progress->due_ns : deadline_ns);

                if (r != 0)
                        return r < 0 ? fault_set(&job->fault, r, "waiting for pinfeedd failed: %s",
                                                 strerror(-r))
                                     : 0;
                if (!showing)
                        return fault_set(&job->fault, -ETIMEDOUT,
                                         "pinfeedd (pid %d) is not ready in time%s%s", (int)job->daemon_pid,
                                         progress->text[0] ? "; its last word: " : "", progress->text);
                connection_show(progress);
        }
}

int connection_attach(struct pinfeed_job *job, const struct pinfeed_attach *attach, uint64_t deadline_ns,
                      int *ring) {
        struct progress progress = {.attach = attach};
        int fds[SEQPACKET_FDS_MAX];
        bool greeted = false;
        size_t n_fds;
        int r;

        r = connection_open_socket(job, attach->runtime_dir);
        if (r < 0)
                return r;
        r = connection_ask(job, attach);
        if (r < 0)
                return r;
        for (;;) {
                r = connection_receive(job, fds, &n_fds);
                if (r < 0)
                        return r;
                if (r == MESSAGE_E_AGAIN) {
                        r = connection_wait_attaching(job, &progress, deadline_ns);
                        if (r < 0)
                                return r;
                        continue;
                }
                r = connection_handle(job, &progress, &greeted);
                if (r < 0)
                        return r;
                if (r > 0) {
                        *ring = fds[0]; /* the decoder has counted it: ATTACHED comes with exactly one */
                        return 0;
                }
                connection_show(&progress);
        }
}
