/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions.
 *
 *     connect --> QUEUED --> NEW --HELLO--> GREETED --ATTACH--> ATTACHING --> ATTACHED --> CLOSED (from
 *                                             | ^                                           every state)
 *                                             DEFINE, BRING, ORDER (these two also later)
 *
 * QUEUED only if its uid connects more often than daemon/quota.h allows: such a connection is not read until
 * it is its turn, but that it is gone is noticed. From NEW on it has JOB_SILENCE_MS until ATTACH.
 *
 * The end of a job is seen twice, by its socket and by a pidfd of its process. The socket tells when it
 * detaches, and the pidfd when the process has ended but not the socket, because a child inherited it.
 *
 * There is no queue of bytes for a slow reader. What a job may be owed is bounded by its credit, and all of
 * it is known: the batches it leases. Those that did not fit into the socket stay in the outbox, which was
 * sized for the whole credit at attach, and go out, many to a record, when the socket is writable again. A
 * job that never reads costs its leases and nothing else. (A small record costs the kernel some 800 bytes of
 * send buffer, so a job allowed 1,000 batches overruns a default buffer without having done anything wrong:
 * closing it on EAGAIN would be unjust.)
 *
 * A job that has sent a SEEK wants none of the batches before its answer, so none is sent: they stay in the
 * outbox, to be taken back if the job is sent elsewhere, or to follow the answer if it is not. SEEKs are
 * answered one after the other, the next one when the answer before has gone into the socket, and a job may
 * have JOB_SEEKS_MAX of them under way: so there is no queue of answers either.
 *
 * What a job says of its mapping (map.c) is kept and shown, and changes nothing here.
 *
 * Anything malformed or out of turn closes the connection, with the reason in the log, and touches nobody
 * else. */

#include "daemon/job.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/seqpacket.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/quota.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_poll(uv_poll_t *poll, int status, int events);

const char *job_state_name(enum job_state state) {
        static const char *const names[] = {
#define S(NAME, name) [JOB_##NAME] = #name,
                JOB_STATES(S)
#undef S
        };

        return names[state];
}

static void forget_definition(struct job *job) {
        free(job->definition.file);
        free(job->definition.text);
        job->definition = (struct job_definition){};
}

static void on_closed(uv_handle_t *handle) {
        struct job *job = handle->data;

        if (--job->handles > 0)
                return;
        fd_closep(&job->pidfd);
        fd_closep(&job->socket); /* last: the peer sees it, and may count what is left */
        forget_definition(job);
        fd_closep(&job->zygote_fd);
        orders_deinit(&job->orders);
        peer_deinit(&job->peer);
        free(job->outbox);
        free(job->segments);
        free(job);
}

void job_close(struct job *job, const char *reason) {
        bool had_asked = job->state == JOB_ATTACHING || job->state == JOB_ATTACHED;
        bool served = job->state != JOB_QUEUED;

        if (job->state == JOB_CLOSED)
                return;
        if (reason)
                log_about(&(struct log_subject){.pipeline = job->attach.pipeline, .job = job->id},
                          LOG_WARNING, "job %u (pid %d) is closed: %s", job->id, (int)job->pid, reason);
        job->state = JOB_CLOSED;
        list_unlink(&job->link);
        if (had_asked)
                job->events->closed(job->context, job);
        quota_leave(job->quota, job->uid, served);
        uv_close((uv_handle_t *)&job->poll, on_closed);
        uv_close((uv_handle_t *)&job->timer, on_closed);
        if (job->pidfd >= 0)
                uv_close((uv_handle_t *)&job->death, on_closed);
}

/* That the peer is gone is no news. */
static void close_unsent(struct job *job, int error) {
        job_close(job, error == -EPIPE || error == -ECONNRESET ? NULL : strerror(-error));
}

static void send_or_close(struct job *job, const struct message *message, int fd) {
        int r = message_send(job->socket, message, &fd, fd >= 0 ? 1 : 0);

        if (r < 0)
                close_unsent(job, r);
}

void job_refuse(struct job *job, int error, const char *text) {
        struct message message = {.type = MESSAGE_REFUSED};

        message.refused.error = (uint16_t)-error;
        snprintf(message.refused.text, sizeof(message.refused.text), "%s", text);
        log_about(&(struct log_subject){.pipeline = job->attach.pipeline, .job = job->id}, LOG_INFO,
                  "job %u (pid %d) is refused: %s", job->id, (int)job->pid, text);
        send_or_close(job, &message, -1);
        if (job->events->refused)
                job->events->refused(job->context);
        job_close(job, NULL);
}

void job_fail(struct job *job, const struct message_failed *failed) {
        struct message message = {.type = MESSAGE_FAILED, .failed = *failed};

        send_or_close(job, &message, -1);
        job_close(job, NULL);
}

/* A job that does not read while it waits misses some of the news. */
void job_send_progress(struct job *job, enum message_stage stage, uint64_t done, uint64_t total) {
        struct message message = {.type = MESSAGE_PROGRESS, .progress = {(uint8_t)stage, done, total}};
        int r = message_send(job->socket, &message, NULL, 0);

        if (r < 0 && r != -EAGAIN && r != -ENOBUFS)
                close_unsent(job, r);
}

/* Its slots are not page-locked, or no more of them, though it asked for that. */
static void warn_given_up(const struct job *job) {
        log_about(&(struct log_subject){.pipeline = job->attach.pipeline, .job = job->id}, LOG_WARNING,
                  "job %u (%s, pid %d) reads with %u of %u slots page-locked: %s", job->id,
                  *job->attach.name ? job->attach.name : "unnamed", (int)job->pid, job->map.registered,
                  job->map.slots, *job->map.reason ? job->map.reason : "it does not say why");
}

void job_set_attached(struct job *job, const struct message *attached, int ring_fd, uint32_t segments_each) {
        job->outbox_size = attached->attached.max_held;
        job->segments_each = segments_each;
        job->outbox = calloc(job->outbox_size, sizeof(*job->outbox));
        job->segments = calloc((size_t)job->outbox_size * segments_each, sizeof(*job->segments));
        if (!job->outbox || !job->segments) {
                job_refuse(job, -ENOMEM,
                           "pinfeedd has no memory for so many batches; ask for a smaller max_held_batches");
                return;
        }
        recent_note(&job->recent, clock_ns(), (const uint64_t[RECENT_VALUES]){});
        job->state = JOB_ATTACHED;
        if (map_init(&job->map, (enum message_map)job->attach.map, &attached->attached) == MAP_E_GIVEN_UP)
                warn_given_up(job);
        send_or_close(job, attached, ring_fd);
}

struct message_segment *job_deliver(struct job *job, const struct message_batch *batch) {
        uint32_t place = (job->outbox_first + job->outbox_count) % job->outbox_size;

        job->outbox[place] = *batch;
        job->outbox_count++;
        job->dirty = true;
        return &job->segments[(size_t)place * job->segments_each];
}

bool job_take_back(struct job *job, uint64_t *number) {
        if (job->outbox_count == 0)
                return false;
        *number = job->outbox[job->outbox_first].number;
        job->outbox_first = (job->outbox_first + 1) % job->outbox_size;
        job->outbox_count--;
        return true;
}

/* Fills one record from the outbox; returns how many batches it took. */
static uint32_t pack(const struct job *job, struct message_batches *batches) {
        uint32_t n = 0;

        batches->n_segment = 0;
        for (; n < job->outbox_count && n < MESSAGE_BATCHES_MAX; n++) {
                uint32_t place = (job->outbox_first + n) % job->outbox_size;
                const struct message_batch *batch = &job->outbox[place];

                if (batches->n_segment + batch->segments > MESSAGE_SEGMENTS_MAX)
                        break;
                batches->batch[n] = *batch;
                memcpy(&batches->segment[batches->n_segment],
                       &job->segments[(size_t)place * job->segments_each],
                       batch->segments * sizeof(*job->segments));
                batches->n_segment += batch->segments;
        }
        batches->n_batch = n;
        return n;
}

static void await_writable(struct job *job, bool wanted) {
        if (job->blocked == wanted)
                return;
        job->blocked = wanted;
        uv_poll_start(&job->poll, UV_READABLE | (wanted ? UV_WRITABLE : 0), on_poll);
}

/* False: the socket is full, and there will be another try when it is not; or the job is closed now. */
static bool send_now(struct job *job, const struct message *message) {
        int r = message_send(job->socket, message, NULL, 0);

        if (r == -EAGAIN || r == -ENOBUFS)
                await_writable(job, true);
        else if (r < 0)
                close_unsent(job, r);
        return r >= 0;
}

static bool send_answer(struct job *job) {
        struct message message = {.type = MESSAGE_SOUGHT, .sought = job->answer};

        if (!send_now(job, &message))
                return false;
        job->answering = false;
        if (job->seeks_count > 0)
                job->events->seek(job->context, job);
        return true;
}

static bool may_have_batches(const struct job *job) {
        return job->state == JOB_ATTACHED && job->seeks_count == 0 && !job->answering;
}

void job_flush(struct job *job) {
        struct message message;

        job->dirty = false;
        if (job->state == JOB_ATTACHED && job->answering && !send_answer(job))
                return;
        message.type = MESSAGE_BATCHES;
        while (may_have_batches(job) && job->outbox_count > 0) {
                uint32_t n = pack(job, &message.batches);

                if (!send_now(job, &message))
                        return;
                job->sent = message.batches.batch[n - 1].number + 1;
                job->outbox_first = (job->outbox_first + n) % job->outbox_size;
                job->outbox_count -= n;
        }
        if (job->state == JOB_ATTACHED && !job->answering)
                await_writable(job, false);
}

const struct message_seek *job_next_seek(const struct job *job) {
        if (job->state != JOB_ATTACHED || job->seeks_count == 0 || job->answering)
                return NULL;
        return &job->seeks[job->seeks_first];
}

void job_answer_seek(struct job *job, uint64_t next, int error, const char *text) {
        if (job->outbox_count > 0)
                next = job->outbox[job->outbox_first].number;
        job->answer = (struct message_sought){.number = next, .error = (uint16_t)-error};
        if (error < 0)
                snprintf(job->answer.text, sizeof(job->answer.text), "%s", text);
        job->answering = true;
        job->seeks_first = (job->seeks_first + 1) % JOB_SEEKS_MAX;
        job->seeks_count--;
        job_flush(job);
}

static void on_hello(struct job *job, const struct message_hello *hello) {
        struct message message = {.type = MESSAGE_HELLO, .hello = {MESSAGE_MAJOR, MESSAGE_MINOR, "pinfeedd"}};
        char text[128];

        if (hello->major != MESSAGE_MAJOR) {
                snprintf(text, sizeof(text),
                         "this pinfeedd speaks protocol %d, the job speaks %u: install one version",
                         MESSAGE_MAJOR, hello->major);
                job_refuse(job, -EPROTO, text);
                return;
        }
        job->state = JOB_GREETED;
        send_or_close(job, &message, -1);
}

static void on_release(struct job *job, const struct message_release *release) {
        bool known = true;

        /* What still lies in the outbox is leased, but the job cannot know of it. */
        for (uint32_t i = 0; i < release->n_number; i++)
                known = known && release->number[i] < job->sent;
        if (!known || job->events->release(job->context, job, release->number, release->n_number) < 0)
                job_close(job, "it released a batch that it does not hold");
}

static void on_seek(struct job *job, const struct message_seek *seek) {
        if (job->seeks_count + job->answering >= JOB_SEEKS_MAX) {
                char reason[64];

                snprintf(reason, sizeof(reason), "it sent more than %d SEEKs without an answer",
                         JOB_SEEKS_MAX);
                job_close(job, reason);
                return;
        }
        job->seeks[(job->seeks_first + job->seeks_count++) % JOB_SEEKS_MAX] = *seek;
        job->events->seek(job->context, job);
}

static void on_mapped(struct job *job, const struct message_mapped *mapped) {
        struct fault fault = {};
        int r = map_note(&job->map, mapped, &fault);

        if (r < 0)
                job_close(job, fault.text);
        else if (r == MAP_E_GIVEN_UP)
                warn_given_up(job);
}

/* Its texts go into log lines and answers: valid UTF-8 already, but control bytes have no business there. */
static void take_attach(struct job *job, const struct message_attach *attach) {
        job->attach = *attach;
        fault_sanitize(job->attach.name, sizeof(job->attach.name), attach->name, strlen(attach->name));
        fault_sanitize(job->attach.pipeline, sizeof(job->attach.pipeline), attach->pipeline,
                       strlen(attach->pipeline));
        fault_sanitize(job->attach.group, sizeof(job->attach.group), attach->group, strlen(attach->group));
        fault_sanitize(job->attach.fingerprint, sizeof(job->attach.fingerprint), attach->fingerprint,
                       strlen(attach->fingerprint));
}

/* Kept until ATTACH says which of its pipelines is meant. Whether this daemon takes any is said then, too. */
static void on_define(struct job *job, const struct message_define *define) {
        struct job_definition *definition = &job->definition;
        size_t length = strlen(define->text);
        char *text;

        if (!*define->file != (definition->file != NULL)) {
                job_close(job, "it named the file of its definition twice, or not at all");
                return;
        }
        if (definition->length + length > MESSAGE_DEFINITION_MAX) {
                job_close(job, "its definition is too long");
                return;
        }
        text = realloc(definition->text, definition->length + length + 1);
        if (text)
                definition->text = text;
        if (!definition->file)
                definition->file = strdup(define->file);
        if (!text || !definition->file) {
                job_refuse(job, -ENOMEM, "pinfeedd has no memory for the definition of a pipeline");
                return;
        }
        memcpy(text + definition->length, define->text, length + 1);
        definition->length += length;
}

/* Kept until ATTACH, as the definition; the last one counts. */
static void on_bring(struct job *job, const struct message_bring *bring, int *fd) {
        fd_closep(&job->zygote_fd);
        job->zygote_fd = fd_take(fd);
        job->zygote_pid = bring->pid;
        if (job->state != JOB_GREETED)
                job->events->bring(job->context, job);
}

static void on_order(struct job *job, const struct message_order *message, int *fd) {
        struct order *order;
        struct fault fault;

        if (job->state != JOB_GREETED)
                job->events->order(job->context, job, message, fd);
        else if (orders_add(&job->orders, message, fd, &order, &fault) < 0)
                job_close(job, fault.text);
}

/* Descriptors of others would use up ours, and nobody has a use for what they bring. */
static void refuse_gift(struct job *job) {
        struct fault fault;

        fault_set(
                &fault, -EPERM,
                "zygotes and orders are taken from uid %u only, whose daemon this is; this job is of uid %u: "
                "pinfeed.DataLoader wants a private daemon",
                (unsigned)geteuid(), (unsigned)job->uid);
        if (job->state == JOB_GREETED)
                job_refuse(job, -EPERM, fault.text);
        else
                job_close(job, fault.text);
}

/* What comes with descriptors: what the job brings to its pipeline. False: it is not of these. */
static bool on_gift(struct job *job, const struct message *message, int *fd) {
        bool is_gift = message->type == MESSAGE_BRING || message->type == MESSAGE_ORDER;

        if (!is_gift ||
            (job->state != JOB_GREETED && job->state != JOB_ATTACHING && job->state != JOB_ATTACHED))
                return false;
        if (!peer_is_trusted(&job->peer))
                refuse_gift(job);
        else if (message->type == MESSAGE_BRING)
                on_bring(job, &message->bring, fd);
        else
                on_order(job, &message->order, fd);
        return true;
}

static void on_message(struct job *job, const struct message *message, int *fd) {
        if (message->type == MESSAGE_HELLO && job->state == JOB_NEW) {
                on_hello(job, &message->hello);
        } else if (message->type == MESSAGE_ATTACH && job->state == JOB_GREETED) {
                take_attach(job, &message->attach);
                job->state = JOB_ATTACHING;
                uv_timer_stop(&job->timer);
                job->events->attach(job->context, job);
                forget_definition(job);
                peer_deinit(&job->peer);
        } else if (message->type == MESSAGE_DEFINE && job->state == JOB_GREETED) {
                on_define(job, &message->define);
        } else if (message->type == MESSAGE_RELEASE && job->state == JOB_ATTACHED) {
                on_release(job, &message->release);
        } else if (message->type == MESSAGE_SEEK && job->state == JOB_ATTACHED) {
                on_seek(job, &message->seek);
        } else if (message->type == MESSAGE_MAPPED && job->state == JOB_ATTACHED) {
                on_mapped(job, &message->mapped);
        } else if (message->type == MESSAGE_READ && job->state == JOB_ATTACHED) {
                job->events->read(job->context, job);
        } else if (!on_gift(job, message, fd)) {
                char reason[64];

                snprintf(reason, sizeof(reason), "it sent %s out of turn", message_name(message->type));
                job_close(job, reason);
        }
}

static void receive(struct job *job) {
        int fds[SEQPACKET_FDS_MAX];
        struct message message;
        struct fault fault;
        size_t n_fds;
        int r;

        r = message_receive(job->socket, &message, fds, &n_fds, MESSAGE_BY_JOB, &fault);
        if (r == 0) {
                _cleanup_(fd_closep) int fd = n_fds > 0 ? fds[0] : -1; /* the decoder allows one at most */

                on_message(job, &message, &fd);
        } else if (r == MESSAGE_E_CLOSED || r == -ECONNRESET)
                job_close(job, NULL);
        else if (r < 0)
                job_close(job, fault.text);
}

static void on_poll(uv_poll_t *poll, int status, int events) {
        struct job *job = poll->data;

        if (status < 0 || (events & UV_DISCONNECT)) {
                job_close(job, NULL);
                return;
        }
        /* One record a turn, so that no peer can keep the loop to itself. */
        if (events & UV_READABLE)
                receive(job);
        if ((events & UV_WRITABLE) && job->state == JOB_ATTACHED)
                job_flush(job);
}

static void on_death(uv_poll_t *poll, int status, int events) {
        job_close(poll->data, NULL);
}

/* ---- from connect to ATTACH ---- */

static void on_silence(uv_timer_t *timer) {
        struct job *job = timer->data;
        char text[96];

        if (!job->late) {
                job->late = true;
                uv_timer_start(timer, on_silence, JOB_SECOND_LOOK_MS, 0);
                return;
        }
        snprintf(text, sizeof(text), "it has connected and not attached within %d s; connect again",
                 JOB_SILENCE_MS / 1000);
        job_refuse(job, -ETIMEDOUT, text);
}

static void serve(struct job *job) {
        job->state = JOB_NEW;
        uv_poll_start(&job->poll, UV_READABLE, on_poll);
        uv_timer_start(&job->timer, on_silence, JOB_SILENCE_MS, 0);
}

static void on_turn(uv_timer_t *timer) {
        serve(timer->data);
}

/* Two or three handles; a job that is given up later closes those that there are. */
static int init_handles(struct job *job, uv_loop_t *loop, struct fault *fault) {
        int r = uv_poll_init(loop, &job->poll, job->socket);

        if (r < 0)
                return fault_set(fault, r, "cannot watch a job's socket: %s", uv_strerror(r));
        uv_timer_init(loop, &job->timer);
        job->poll.data = job->timer.data = job->death.data = job;
        job->handles = 2;
        if (job->pidfd >= 0 && uv_poll_init(loop, &job->death, job->pidfd) < 0) {
                fd_closep(&job->pidfd);
                job->watched = "socket only: the pidfd cannot be polled";
        }
        if (job->pidfd >= 0) {
                job->handles++;
                uv_poll_start(&job->death, UV_READABLE, on_death);
        }
        return 0;
}

static int identify(struct job *job, struct fault *fault) {
        int r = peer_init(&job->peer, job->socket, fault);

        if (r < 0)
                return r;
        job->pid = job->peer.pid;
        job->uid = job->peer.uid;
        if (job->events->welcome)
                r = job->events->welcome(job->context, &job->peer, fault);
        else if (!peer_is_trusted(&job->peer))
                r = fault_set(fault, -EPERM, "uid %u is turned away", (unsigned)job->uid);
        if (r < 0)
                listener_turn_away(job->socket, r, fault->text);
        return r;
}

/* Who it is, and whether one more of its user may come; the last thing here that can fail is the entry. */
static int admit(struct job *job, uint64_t *wait_ns, struct fault *fault) {
        int r = identify(job, fault);

        if (r < 0)
                return r;
        r = listener_watch_peer(job->socket, job->pid, &job->pidfd, &job->watched, fault);
        if (r != 0)
                return r == LISTENER_E_GONE ? JOB_E_GONE : -EMFILE;
        r = quota_enter(job->quota, job->uid, clock_ns(), wait_ns);
        if (r == QUOTA_E_FULL) {
                fault_set(fault, -EMFILE,
                          "uid %u has %d connections to pinfeedd, as many as a user may; end some jobs",
                          (unsigned)job->uid, QUOTA_CONNECTIONS_MAX);
                listener_turn_away(job->socket, -EMFILE, fault->text);
                return -EMFILE;
        }
        return r < 0 ? fault_set(fault, r, "no memory for a job") : 0;
}

int job_new(uv_loop_t *loop, struct list *jobs, struct quota *quota, int socket, uint32_t id,
            const struct job_events *events, void *context, struct fault *fault) {
        _cleanup_(fd_closep) int owned = socket;
        _cleanup_(freep) struct job *owner = calloc(1, sizeof(*owner));
        struct job *job = owner;
        uint64_t wait_ns;
        int r;

        if (!job)
                return fault_set(fault, -ENOMEM, "no memory for a job");
        *job = (struct job){.id = id,
                            .socket = socket,
                            .pidfd = -1,
                            .zygote_fd = -1,
                            .quota = quota,
                            .events = events,
                            .context = context,
                            .connected_ns = clock_ns()};
        list_init(&job->pipeline_link);
        orders_init(&job->orders);
        r = admit(job, &wait_ns, fault);
        if (r == 0 && (r = init_handles(job, loop, fault)) < 0)
                quota_leave(quota, job->uid, false);
        if (r != 0) {
                fd_closep(&job->pidfd);
                peer_deinit(&job->peer);
                return r;
        }
        fd_take(&owned); /* consumed */
        owner = NULL;    /* likewise */
        list_append(jobs, &job->link);
        if (wait_ns == 0) {
                serve(job);
        } else {
                uv_poll_start(&job->poll, UV_DISCONNECT, on_poll);
                uv_timer_start(&job->timer, on_turn, wait_ns / NS_PER_MS + 1, 0);
        }
        return 0;
}
