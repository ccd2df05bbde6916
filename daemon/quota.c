/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Connecting costs a process nothing and us two descriptors and an entry in the loop; attaching costs slots
 * and workers' time. So a uid may have so many connections and is served so many new ones a second. Those
 * beyond the first number are refused. Those beyond the second are taken from the socket's queue, where they
 * would stand before other uids' connections, but are not read until it is their turn.
 *
 * The turns of a uid are points in time 1/QUOTA_PER_SECOND apart; `next` is the first that nobody has. It may
 * lie ahead of the clock by a burst before anybody has to wait. One who leaves before its turn gives one
 * back: or a process that connects and vanishes would use up the turns of the hour, and no job of its user
 * could attach. */

#include "daemon/quota.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>

#define TURN_NS  (NS_PER_S / QUOTA_PER_SECOND)
#define BURST_NS ((QUOTA_BURST - 1) * TURN_NS)

/* Stays until the end: there are as many as there are uids that are let in. */
struct quota_uid {
        struct list link;
        uid_t uid;
        uint32_t connections;
        uint64_t next;
};

void quota_init(struct quota *quota) {
        list_init(&quota->uids);
}

void quota_deinit(struct quota *quota) {
        list_for_each_safe (link, &quota->uids) {
                list_unlink(link);
                free(container_of(link, struct quota_uid, link));
        }
}

static struct quota_uid *find(struct quota *quota, uid_t uid) {
        list_for_each (link, &quota->uids) {
                struct quota_uid *entry = container_of(link, struct quota_uid, link);

                if (entry->uid == uid)
                        return entry;
        }
        return NULL;
}

static struct quota_uid *add(struct quota *quota, uid_t uid) {
        struct quota_uid *entry = calloc(1, sizeof(*entry));

        if (!entry)
                return NULL;
        entry->uid = uid;
        list_append(&quota->uids, &entry->link);
        return entry;
}

int quota_enter(struct quota *quota, uid_t uid, uint64_t now, uint64_t *wait_ns) {
        struct quota_uid *entry = find(quota, uid);

        if (!entry)
                entry = add(quota, uid);
        if (!entry)
                return -ENOMEM;
        if (entry->connections >= QUOTA_CONNECTIONS_MAX)
                return QUOTA_E_FULL;
        if (entry->next < now)
                entry->next = now;
        *wait_ns = entry->next - now > BURST_NS ? entry->next - now - BURST_NS : 0;
        entry->next += TURN_NS;
        entry->connections++;
        return 0;
}

void quota_leave(struct quota *quota, uid_t uid, bool served) {
        struct quota_uid *entry = find(quota, uid);

        entry->connections--;
        if (!served)
                entry->next -= TURN_NS;
}
