/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The slots: what lies where, and how far it is.
 *
 *     FREE ──start──► FILLING ──ready──► READY ──take──► FREE (and started at once)
 *       ▲                │ drop: lost, or nobody wants it
 *       ├────────────────┤
 *       └── QUARANTINED ◄┘ drop, if `stuck`; FREE ones come here too
 *
 * Quarantine is counted, not flagged, since a second worker can get stuck in the slot before it was given up.
 * It shrinks the capacity from the call on, while the filling ends like any that lost a chunk: what others
 * are still at has to come back first, because they write there too and the key has no second slot.
 *
 * A key is in at most one slot, and the hash finds it. A slot is in one list at most: `free`; `open` while
 * FILLING with rows that no worker has; what READY slots are in, scheduler-eviction.c tells. */

#include "daemon/scheduler-internal.h"

static uint32_t hash(const struct scheduler *scheduler, struct slot_key key) {
        uint64_t x = key.seed ^ (key.index + ((uint64_t)key.epoch << 40)) * UINT64_C(0x9e3779b97f4a7c15);

        x ^= x >> 32;
        x *= UINT64_C(0xd6e8feb86659fd93);
        return (uint32_t)(x >> 32) & scheduler->mask;
}

static bool same_key(struct slot_key a, struct slot_key b) {
        return a.index == b.index && a.epoch == b.epoch && a.seed == b.seed;
}

struct slot *slots_find(const struct scheduler *scheduler, struct slot_key key) {
        uint32_t at = scheduler->heads[hash(scheduler, key)];

        while (at != SCHEDULER_NONE && !same_key(scheduler->slots[at].key, key))
                at = scheduler->slots[at].chain;
        return at == SCHEDULER_NONE ? NULL : &scheduler->slots[at];
}

static void unhash(struct scheduler *scheduler, struct slot *slot) {
        uint32_t *at = &scheduler->heads[hash(scheduler, slot->key)];

        while (*at != slot_number(scheduler, slot))
                at = &scheduler->slots[*at].chain;
        *at = slot->chain;
}

void slots_start(struct scheduler *scheduler, struct slot *slot, struct slot_key key) {
        uint64_t left = scheduler->config.samples - key.index * scheduler->config.slot_rows;
        uint32_t *head = &scheduler->heads[hash(scheduler, key)];

        slot->state = SCHEDULER_SLOT_FILLING;
        slot->key = key;
        slot->rows = left < scheduler->config.slot_rows ? (uint32_t)left : scheduler->config.slot_rows;
        slot->rows_assigned = slot->rows_done = 0;
        slot->lost = slot->delivered = false; /* nothing is returned: slots_drop saw to that */
        slot->warmed = list_is_empty(&scheduler->consumers);
        slot->chain = *head;
        *head = slot_number(scheduler, slot);
        list_unlink(&slot->link);
        list_append(&scheduler->open, &slot->link);
}

void slots_ready(struct scheduler *scheduler, struct slot *slot) {
        list_unlink(&slot->link);
        slot->state = SCHEDULER_SLOT_READY;
        ++scheduler->counters.slots_filled;
        if (history_add(scheduler, slot->key))
                books_refilled(scheduler, slot->key.seed, slot->rows);
        consumers_slot_ready(scheduler, slot->key);
        list_append(&scheduler->idle, &slot->link);
}

static void set_unused(struct scheduler *scheduler, struct slot *slot) {
        list_unlink(&slot->link);
        slot->state = slot->stuck > 0 ? SCHEDULER_SLOT_QUARANTINED : SCHEDULER_SLOT_FREE;
        if (slot->state == SCHEDULER_SLOT_FREE)
                list_append(&scheduler->free, &slot->link);
}

/* Forgets what is in it, or was being filled in. No chunk of it is out, nobody leases it. */
void slots_drop(struct scheduler *scheduler, struct slot *slot) {
        bool was_ready = slot->state == SCHEDULER_SLOT_READY;

        unhash(scheduler, slot);
        slots_unsettle(scheduler, slot);
        chunks_forget_returned(scheduler, slot);
        set_unused(scheduler, slot);
        consumers_slot_dropped(scheduler, slot->key, was_ready);
}

int scheduler_slot_quarantine(struct scheduler *scheduler, uint32_t number) {
        struct slot *slot = number < scheduler->config.slots ? &scheduler->slots[number] : NULL;

        if (!slot || slot->state == SCHEDULER_SLOT_READY)
                return SCHEDULER_E_UNKNOWN;
        if (slot->stuck++ > 0)
                return 0;
        ++scheduler->n_quarantined;
        if (slot->state == SCHEDULER_SLOT_FILLING)
                chunks_give_up(scheduler, slot);
        else
                set_unused(scheduler, slot);
        consumers_choose_due(scheduler);
        return 0;
}

int scheduler_slot_return(struct scheduler *scheduler, uint32_t number) {
        struct slot *slot = number < scheduler->config.slots ? &scheduler->slots[number] : NULL;

        if (!slot || slot->stuck == 0)
                return SCHEDULER_E_UNKNOWN;
        if (--slot->stuck > 0)
                return 0;
        --scheduler->n_quarantined;
        if (slot->state == SCHEDULER_SLOT_QUARANTINED)
                set_unused(scheduler, slot);
        consumers_choose_due(scheduler);
        return 0;
}
