#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Orders of epochs that jobs have given: descriptors of sealed files, by seed and epoch. */

#include "base/list.h"

#include <stdint.h>

struct fault;
struct message_order;

enum {
        ORDERS_EPOCHS_MAX = 4, /* of one seed: those given last */
        ORDERS_MAX = 256,      /* in all */
};

struct order {
        struct list link;
        uint64_t seed;
        uint32_t epoch;
        uint64_t entries;
        int fd;
};

struct orders {
        struct list list; /* the one given last is the last */
        uint32_t count;
};

enum orders_error {
        ORDERS_E_THERE = 1, /* that epoch has one: it holds, the other one is not looked at */
};

void orders_init(struct orders *orders);
void orders_deinit(struct orders *orders); /* leaves them empty, and usable */

/* Takes *fd over if all goes well. 0 and *order, ORDERS_E_THERE, or a negative errno: -EINVAL when the file
 * may still change or is too short, -ENOSPC when there are too many, -ENOMEM. */
int orders_add(struct orders *orders, const struct message_order *message, int *fd, struct order **order,
               struct fault *fault);
/* NULL: there is none. */
const struct order *orders_find(const struct orders *orders, uint64_t seed, uint32_t epoch);
