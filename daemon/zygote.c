/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Zygotes.
 *
 * A zygote is a process of the user's, made of the user's code, so it may be slow, stopped, broken or gone at
 * any time, and nothing here waits for it. What it owes is a list: each child that it was asked for stands in
 * it until its end was reported, in the order of the FORKs, since FORKED comes in that order. At most
 * ZYGOTE_FORKS_MAX of them are without FORKED; a zygote into whose socket not even these fit does not read,
 * and is given up like one that says what cannot be.
 *
 * Its socket may have belonged to an earlier daemon, whose questions it answers yet. So each daemon has a
 * number, drawn at random, and answers to another one are dropped, with the pidfds that came with them.
 *
 * The end of a zygote is told a turn later, from the call-back of its handle: it is found out while something
 * is sent to it, deep in the pipeline's own doings, and ends all of its workers. Its owner hears first, so
 * that nobody asks it for others in their place. */

#include "daemon/zygote.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/seqpacket.h"
#include "daemon/log.h"
#include "proto/message.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct zygote_child *child_of(struct list *link) {
        return container_of(link, struct zygote_child, link);
}

/* Of this process, and of no other before or after it. */
static uint64_t daemon_number(void) {
        static uint64_t number;

        while (number == 0)
                if (getrandom(&number, sizeof(number), 0) != sizeof(number))
                        number = 0;
        return number;
}

/* ---- end ---- */

static void remove_child(struct zygote_child *child) {
        list_unlink(&child->link);
        if (!child->forked)
                child->zygote->unanswered--;
        free(child);
}

static void orphan(struct zygote_child *child) {
        const struct zygote_child_events *events = child->events;
        void *context = child->context;

        remove_child(child);
        if (context)
                events->orphaned(context);
}

static void on_closed(uv_handle_t *handle) {
        struct zygote *zygote = handle->data;

        if (zygote->events)
                zygote->events->gone(zygote->context, zygote);
        while (!list_is_empty(&zygote->children))
                orphan(child_of(zygote->children.next));
        fd_closep(&zygote->socket); /* after the handle, which would take another's number out of the loop */
        list_unlink(&zygote->link);
        free(zygote);
}

static void begin_end(struct zygote *zygote) {
        zygote->closed = true;
        uv_close((uv_handle_t *)&zygote->poll, on_closed);
}

static void give_up(struct zygote *zygote, const char *reason) {
        if (zygote->closed)
                return;
        log_line(LOG_ERROR, "the zygote (pid %d) is given up: %s", zygote->pid, reason);
        begin_end(zygote);
}

void zygote_close(struct zygote *zygote) {
        zygote->events = NULL;
        list_unlink(&zygote->link);
        if (!zygote->closed)
                begin_end(zygote);
}

/* ---- what it says ---- */

static struct zygote_child *find_child(struct zygote *zygote, uint32_t number) {
        list_for_each (link, &zygote->children) {
                if (child_of(link)->number == number)
                        return child_of(link);
        }
        return NULL;
}

/* FORKED comes in the order of the FORKs. */
static struct zygote_child *first_unanswered(struct zygote *zygote) {
        list_for_each (link, &zygote->children) {
                if (!child_of(link)->forked)
                        return child_of(link);
        }
        return NULL;
}

/* Whoever asked has ended the matter meanwhile. The leash is closed, but it may not wear it yet. */
static void kill_unwanted(int pidfd) {
        if (pidfd >= 0)
                syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

static void on_forked(struct zygote *zygote, const struct message_forked *forked, int *pidfd) {
        struct zygote_child *child = first_unanswered(zygote);
        const struct zygote_child_events *events;
        void *context;

        if (!child || child->number != forked->worker || (forked->error == 0) != (*pidfd >= 0) ||
            (forked->error == 0 && forked->pid == 0)) {
                give_up(zygote, "it answered what it was not asked");
                return;
        }
        events = child->events;
        context = child->context;
        child->forked = true;
        zygote->unanswered--;
        if (forked->error > 0)
                remove_child(child);
        if (context)
                events->forked(context, forked->error, (int)forked->pid, fd_take(pidfd));
        else
                kill_unwanted(*pidfd);
        if (zygote->events)
                zygote->events->answered(zygote->context, zygote);
}

static void on_exited(struct zygote *zygote, const struct message_exited *exited) {
        struct zygote_child *child = find_child(zygote, exited->worker);
        const struct zygote_child_events *events = child ? child->events : NULL;
        void *context = child ? child->context : NULL;

        if (!child || !child->forked) {
                give_up(zygote, "it told of the end of a worker that it was not asked for");
                return;
        }
        if (context && !events->exited(context, exited->signal, exited->exit_status)) {
                give_up(zygote, "it told of the end of a worker that lives");
                return;
        }
        remove_child(child);
}

static void on_message(struct zygote *zygote, const struct message *message, int *fd) {
        uint64_t daemon = message->type == MESSAGE_FORKED ? message->forked.daemon : message->exited.daemon;

        if (daemon != daemon_number())
                return; /* an earlier one's */
        if (message->type == MESSAGE_FORKED)
                on_forked(zygote, &message->forked, fd);
        else
                on_exited(zygote, &message->exited);
}

/* One message. False: nothing more to read now, or ever. */
static bool receive(struct zygote *zygote) {
        int fds[SEQPACKET_FDS_MAX];
        struct message message;
        struct fault fault;
        size_t n_fds;
        int r;

        if (zygote->closed)
                return false;
        r = message_receive(zygote->socket, &message, fds, &n_fds, MESSAGE_BY_ZYGOTE, &fault);
        if (r == MESSAGE_E_AGAIN)
                return false;
        if (r == MESSAGE_E_CLOSED || r == -ECONNRESET) { /* as it does with its script */
                begin_end(zygote);
                return false;
        }
        if (r < 0) {
                give_up(zygote, fault.text);
                return false;
        }
        {
                _cleanup_(fd_closep) int fd = n_fds > 0 ? fds[0] : -1;

                on_message(zygote, &message, &fd);
        }
        return true;
}

static void on_readable(uv_poll_t *poll, int status, int events) {
        while (receive(poll->data) && status < 0)
                ;
}

/* ---- what it is asked ---- */

/* Anything may have been sent in its place: a file would never tell that it is gone. */
static int check_socket(int socket, struct fault *fault) {
        int type = 0, domain = 0;
        socklen_t size = sizeof(type);
        int r;

        if (getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) < 0 ||
            getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 || type != SOCK_SEQPACKET ||
            domain != AF_UNIX)
                return fault_set(fault, -EINVAL,
                                 "the zygote's descriptor is no socket of type SOCK_SEQPACKET");
        r = fd_set_nonblocking(socket, 1);
        return r < 0 ? fault_set(fault, r, "cannot use the zygote's socket: %s", strerror(-r)) : 0;
}

int zygote_new(struct zygote **zygotep, uv_loop_t *loop, int *socket, int pid,
               const struct zygote_events *events, void *context, struct fault *fault) {
        struct zygote *zygote;
        int r = check_socket(*socket, fault);

        if (r < 0)
                return r;
        zygote = calloc(1, sizeof(*zygote));
        if (!zygote)
                return fault_set(fault, -ENOMEM, "no memory for a zygote");
        *zygote = (struct zygote){.pid = pid, .events = events, .context = context};
        list_init(&zygote->link);
        list_init(&zygote->children);
        zygote->poll.data = zygote;
        r = uv_poll_init(loop, &zygote->poll, *socket);
        if (r < 0) {
                free(zygote);
                return fault_set(fault, r, "cannot watch a zygote's socket: %s", uv_strerror(r));
        }
        zygote->socket = fd_take(socket);
        uv_poll_start(&zygote->poll, UV_READABLE, on_readable);
        *zygotep = zygote;
        return 0;
}

bool zygote_may_fork(const struct zygote *zygote) {
        return !zygote->closed && zygote->unanswered < ZYGOTE_FORKS_MAX;
}

int zygote_fork(struct zygote *zygote, uint32_t number, int nice, int socket, int leash,
                const struct zygote_child_events *events, void *context, struct zygote_child **childp) {
        struct message message = {.type = MESSAGE_FORK};
        struct zygote_child *child = calloc(1, sizeof(*child));
        int r;

        if (!child)
                return -ENOMEM;
        *child = (struct zygote_child){
                .zygote = zygote, .number = number, .events = events, .context = context};
        list_append(&zygote->children, &child->link);
        zygote->unanswered++;
        *childp = child;
        message.fork = (struct message_fork){daemon_number(), number, (uint8_t)nice};
        r = message_send(zygote->socket, &message, (int[]){socket, leash}, 2);
        if (r == -EAGAIN)
                give_up(zygote, "it does not read what it is asked");
        else if (r < 0 && r != -EPIPE && r != -ECONNRESET) /* those are seen, and then say more */
                give_up(zygote, strerror(-r));
        return 0;
}

void zygote_forget(struct zygote_child *child) {
        child->context = NULL;
}
