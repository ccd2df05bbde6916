/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Orders come from a job, by way of the daemon, which looks at none of their entries. The file must be sealed
 * and as long as was said, so that no read of it can fail later; what an entry says is checked by whoever
 * uses it, when it does, because an epoch may have a billion of them and a worker may meet only some.
 *
 * Few are kept: jobs of one stream are an epoch or two apart, and one that comes back to an older epoch gives
 * its order again. */

#include "daemon/worker/orders.h"

#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void forget(struct given_order *order) {
        if (order->entry)
                munmap((void *)order->entry, order->entries * sizeof(*order->entry));
        *order = (struct given_order){0};
}

void orders_deinit(struct orders *orders) {
        for (unsigned i = 0; i < ORDERS_KEPT; i++)
                forget(&orders->kept[i]);
}

static int check_file(int fd, uint64_t entries, struct fault *fault) {
        int seals = fcntl(fd, F_GET_SEALS), needed = F_SEAL_SHRINK | F_SEAL_WRITE;
        struct stat status;

        if (seals < 0 || (seals & needed) != needed)
                return fault_set(fault, -EINVAL, "the order is not sealed");
        if (fstat(fd, &status) < 0)
                return fault_set(fault, -errno, "the order: %s", strerror(errno));
        if (entries == 0 || (uint64_t)status.st_size / sizeof(int64_t) < entries)
                return fault_set(fault, -EINVAL, "the order has %llu bytes, told were %llu entries of 8",
                                 (unsigned long long)status.st_size, (unsigned long long)entries);
        return 0;
}

int orders_add(struct orders *orders, uint64_t seed, uint32_t epoch, uint64_t entries, int fd,
               struct fault *fault) {
        struct given_order *order = (struct given_order *)orders_find(orders, seed, epoch);
        void *mapped;
        int r;

        r = check_file(fd, entries, fault);
        if (r < 0)
                return r;
        mapped = mmap(NULL, entries * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED)
                return fault_set(fault, -errno, "mapping an order of %llu entries: %s",
                                 (unsigned long long)entries, strerror(errno));
        if (!order) {
                order = &orders->kept[orders->next];
                orders->next = (orders->next + 1) % ORDERS_KEPT;
        }
        forget(order);
        *order = (struct given_order){.seed = seed, .epoch = epoch, .entries = entries, .entry = mapped};
        return 0;
}

const struct given_order *orders_find(const struct orders *orders, uint64_t seed, uint32_t epoch) {
        for (unsigned i = 0; i < ORDERS_KEPT; i++) {
                const struct given_order *order = &orders->kept[i];

                if (order->entry && order->seed == seed && order->epoch == epoch)
                        return order;
        }
        return NULL;
}
