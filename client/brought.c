/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A definition is text and goes out with each attempt (connection.c). What a dataset in Python needs besides
 * are descriptors: the socket of the process that forks the workers, and the orders of epochs that nobody can
 * compute. They are kept, so that the next daemon gets them again, before ATTACH; and they are given later
 * too, when the caller has made another zygote or comes to the next epoch.
 *
 * Each daemon is told each of them once (`told`), when the socket has room, by whichever call on the job
 * finds that it has. A SEEK leads into an epoch whose order must be there before, so none is sent while any
 * of this is still to be told (link.c).
 *
 * Two orders are enough. A job is in one epoch and has been given the next at most; one that goes back to an
 * older epoch brings its order again, for its daemon keeps few of them as well.
 *
 * What is kept are duplicates: the caller may close its own at once. A fork's child closes them, and nothing
 * of the caller's. Otherwise a zygote that is forked later would hold on to the socket of the one before,
 * which would then not see that everybody else has left it. For the same reason they are made and closed
 * under the registry's write lock, so that there is none that fork does not know of. */

#include "client/brought.h"

#include "base/cleanup.h"
#include "client/attachment.h"
#include "client/job.h"
#include "client/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum {
        BROUGHT_FD_MIN = 3, /* a program that has closed its standard output must not find it taken */
};

static int duplicate(int fd) {
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, BROUGHT_FD_MIN);

        return copy < 0 ? -errno : copy;
}

static int fail_to_keep(struct pinfeed_job *job, int error, const char *what, int fd) {
        return fault_set(&job->fault, error, "keeping the %s, descriptor %d, failed: %s (%d)", what, fd,
                         strerror(-error), -error);
}

int brought_keep_zygote(struct pinfeed_job *job, int fd, uint32_t pid) {
        struct brought *brought = &job->brought;
        int copy;

        if (pid == 0 || pid > INT32_MAX)
                return fault_set(&job->fault, -EINVAL, "the zygote's pid is %u, expected 1 to %d", pid,
                                 INT32_MAX);
        if (!job->definition)
                return fault_set(&job->fault, -EINVAL,
                                 "a zygote forks workers for a pipeline that its job defines, and this job "
                                 "has none; attach with a definition");
        registry_change();
        copy = duplicate(fd);
        if (copy >= 0) {
                fd_closep(&brought->zygote);
                brought->zygote = copy;
                brought->zygote_pid = pid;
                brought->zygote_told = false;
        }
        registry_put();
        return copy < 0 ? fail_to_keep(job, copy, "zygote's socket", fd) : 0;
}

/* Makes room at the end: in place of an order of the same epoch, else of the one that was given first. */
static struct brought_order *make_room(struct brought *brought, uint32_t epoch) {
        struct brought_order *orders = brought->orders;
        unsigned i = 0, last = BROUGHT_ORDERS_MAX - 1;

        while (i < last && (orders[i].fd < 0 || orders[i].epoch != epoch))
                i++;
        if (orders[i].fd >= 0 && orders[i].epoch != epoch)
                i = 0;
        fd_closep(&orders[i].fd);
        for (; i < last; i++)
                orders[i] = orders[i + 1];
        return &orders[last];
}

int brought_keep_order(struct pinfeed_job *job, uint32_t epoch, int fd, uint64_t entries) {
        int copy;

        if (entries == 0 || entries > MESSAGE_SAMPLES_MAX)
                return fault_set(&job->fault, -EINVAL,
                                 "the order of epoch %u has %llu entries, expected 1 to %llu", epoch,
                                 (unsigned long long)entries, (unsigned long long)MESSAGE_SAMPLES_MAX);
        registry_change();
        copy = duplicate(fd);
        if (copy >= 0)
                *make_room(&job->brought, epoch) =
                        (struct brought_order){.fd = copy, .epoch = epoch, .entries = entries};
        registry_put();
        return copy < 0 ? fail_to_keep(job, copy, "epoch's order", fd) : 0;
}

bool brought_is_news(const struct brought *brought) {
        bool news = brought->zygote >= 0 && !brought->zygote_told;

        for (unsigned i = 0; i < BROUGHT_ORDERS_MAX; i++)
                news = news || (brought->orders[i].fd >= 0 && !brought->orders[i].told);
        return news;
}

void brought_begin_anew(struct brought *brought) {
        brought->zygote_told = false;
        for (unsigned i = 0; i < BROUGHT_ORDERS_MAX; i++)
                brought->orders[i].told = false;
}

static int tell_zygote(struct pinfeed_job *job) {
        struct brought *brought = &job->brought;
        int r;

        if (brought->zygote < 0 || brought->zygote_told)
                return 0;
        job->message.type = MESSAGE_BRING;
        job->message.bring = (struct message_bring){.pid = brought->zygote_pid};
        r = message_send(job->current->socket, &job->message, &brought->zygote, 1);
        brought->zygote_told = r == 0;
        return r;
}

static int tell_order(struct pinfeed_job *job, struct brought_order *order) {
        int r;

        if (order->fd < 0 || order->told)
                return 0;
        job->message.type = MESSAGE_ORDER;
        job->message.order = (struct message_order){
                .seed = job->request.seed, .epoch = order->epoch, .entries = order->entries};
        r = message_send(job->current->socket, &job->message, &order->fd, 1);
        order->told = r == 0;
        return r;
}

int brought_tell(struct pinfeed_job *job) {
        int r = tell_zygote(job);

        for (unsigned i = 0; i < BROUGHT_ORDERS_MAX && r == 0; i++)
                r = tell_order(job, &job->brought.orders[i]);
        return r;
}

void brought_deinit(struct brought *brought) {
        fd_closep(&brought->zygote);
        for (unsigned i = 0; i < BROUGHT_ORDERS_MAX; i++)
                fd_closep(&brought->orders[i].fd);
}
