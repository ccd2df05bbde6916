/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon keeps orders and hands them on; it neither reads nor maps them. What it can say without that it
 * checks: that nobody can change or shorten the file any more, so that all workers see one order and none of
 * them dies of it, and that it is as long as it should be.
 *
 * Jobs that read one stream each bring the order of an epoch, and they cannot be compared without reading.
 * Rows that were made by the first one may be in the ring, so that one holds. */

#include "daemon/orders.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "proto/message.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

static struct order *order_of(struct list *link) {
        return container_of(link, struct order, link);
}

void orders_init(struct orders *orders) {
        list_init(&orders->list);
        orders->count = 0;
}

static void drop(struct orders *orders, struct order *order) {
        list_unlink(&order->link);
        fd_closep(&order->fd);
        free(order);
        orders->count--;
}

void orders_deinit(struct orders *orders) {
        while (!list_is_empty(&orders->list))
                drop(orders, order_of(orders->list.next));
}

static int check_file(const struct message_order *message, int fd, struct fault *fault) {
        const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
        int seals = fcntl(fd, F_GET_SEALS);
        struct stat st;

        if (seals < 0 || (seals & wanted) != wanted)
                return fault_set(fault, -EINVAL,
                                 "the order of epoch %u is no memfd that is sealed against every change",
                                 message->epoch);
        if (fstat(fd, &st) < 0 || (uint64_t)st.st_size / sizeof(uint64_t) < message->entries)
                return fault_set(fault, -EINVAL,
                                 "the order of epoch %u has %" PRIu64 " bytes, %" PRIu64
                                 " entries need 8 each",
                                 message->epoch, (uint64_t)st.st_size, message->entries);
        return 0;
}

/* The oldest ones of this seed, so that one more is not too many. */
static void make_room(struct orders *orders, uint64_t seed) {
        uint32_t n = 0;

        list_for_each (link, &orders->list)
                n += order_of(link)->seed == seed;
        list_for_each_safe (link, &orders->list) {
                if (n < ORDERS_EPOCHS_MAX)
                        return;
                if (order_of(link)->seed != seed)
                        continue;
                drop(orders, order_of(link));
                n--;
        }
}

int orders_add(struct orders *orders, const struct message_order *message, int *fd, struct order **orderp,
               struct fault *fault) {
        struct order *order;
        int r;

        if (orders_find(orders, message->seed, message->epoch))
                return ORDERS_E_THERE;
        r = check_file(message, *fd, fault);
        if (r < 0)
                return r;
        make_room(orders, message->seed);
        if (orders->count == ORDERS_MAX)
                return fault_set(fault, -ENOSPC, "%d orders of epochs were given, as many as may be",
                                 ORDERS_MAX);
        order = malloc(sizeof(*order));
        if (!order)
                return fault_set(fault, -ENOMEM, "no memory for the order of epoch %u", message->epoch);
        *order = (struct order){.seed = message->seed,
                                .epoch = message->epoch,
                                .entries = message->entries,
                                .fd = fd_take(fd)};
        list_append(&orders->list, &order->link);
        orders->count++;
        *orderp = order;
        return 0;
}

const struct order *orders_find(const struct orders *orders, uint64_t seed, uint32_t epoch) {
        list_for_each (link, &orders->list) {
                if (order_of(link)->seed == seed && order_of(link)->epoch == epoch)
                        return order_of(link);
        }
        return NULL;
}
