/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Which rows a worker gets next, and what becomes of them.
 *
 * There are two kinds of work: rows of slots that are being filled (the open list, short since every slot
 * that was begun goes before what is not more urgent) and slots that are missing (every job's cursor stands
 * at its first one). The more urgent one is taken, where urgency is the distance to the first use, which is 0
 * for due batches only, and among these the time that the job has waited. A missing slot that cannot be had,
 * because nothing that may be evicted is used later, makes way for the open ones; then no less urgent missing
 * slot could be had either.
 *
 * While somebody catches up (scheduler-catch-up.c) there are two rounds: first only what those behind lack on
 * their stretch is looked at, each with the urgency it has for them, and then, when nothing of that can be
 * done, everything.
 *
 * Chunks that are out are remembered, so that one which was never handed out, or is reported twice, changes
 * nothing. A lost chunk takes its slot's filling with it, once the slot's other chunks have come back; a
 * filling that nobody wants any more, since its jobs have gone, ends the same way unless all its rows were
 * handed out already: then it becomes READY, and is the first to be evicted.
 *
 * Rows that came back undone are kept with their slot as ranges, in order and never two that touch; one that
 * touches the rows that were never handed out joins them. So the lowest row that nobody has always goes next.
 * The slot is open again, before all open ones of the same use, and cursors that have passed it go back.
 *
 * Chunks that are out and ranges share one pool, and a split must not fail. It makes two of one at most, a
 * suspect and a range, and that only of a chunk with more than one row; of any other it makes one. So as many
 * entries as there are long chunks out are never touched otherwise: unused >= long ones out. Ranges must not
 * eat up the rest, or nothing could be handed out and nothing would ever come back. Therefore a chunk is
 * handed out only if two entries more than it may need are left. When nothing is out it always can be: what
 * comes back touches the rows it was taken from unless others were handed out after it, so of all that is out
 * at once at least one leaves no range; should that be wrong, the two entries are there for the only chunk.
 * With 2 x chunks_max + 2 entries this stops nobody who has not thousands of ranges. */

#include "daemon/scheduler-internal.h"

struct urgency {
        uint64_t use;
        uint32_t turn;
        uint64_t since; /* the same as a time, for other schedulers */
};

/* What goes next, and into which slot: an open one, or one that is FREE or goes for it. */
struct choice {
        struct slot *slot;
        struct slot_key key;
        bool begins; /* it is not open yet */
        struct urgency urgency;
};

static bool more_urgent(struct urgency a, struct urgency b) {
        return a.use < b.use || (a.use == b.use && a.use == 0 && a.turn < b.turn);
}

/* How urgent `key` is, and for whom. `first`: only for those who catch up. Not wanted: *who stays NULL. */
static struct urgency urgency_of(const struct scheduler *scheduler, struct slot_key key, bool first,
                                 struct consumer **who) {
        struct urgency urgency = {.use = first ? catch_up_use(scheduler, key, who)
                                               : consumers_use(scheduler, key, who)};

        if (!*who)
                return urgency;
        urgency.turn = (*who)->turn;
        urgency.since = (*who)->waiting_since;
        return urgency;
}

static struct slot *most_urgent_open(struct scheduler *scheduler, bool first, struct urgency *urgency) {
        struct slot *found = NULL;

        list_for_each (entry, &scheduler->open) {
                struct slot *slot = container_of(entry, struct slot, link);
                struct consumer *who = NULL;
                struct urgency its = urgency_of(scheduler, slot->key, first, &who);

                if (!who)
                        continue; /* its jobs have gone: only chunks that are out are finished */
                if (found && !more_urgent(its, *urgency))
                        continue;
                found = slot;
                *urgency = its;
        }
        return found;
}

static struct consumer *most_urgent_missing(struct scheduler *scheduler, bool first,
                                            struct urgency *urgency) {
        struct consumer *found = NULL;

        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link), *who = NULL;
                struct urgency its = {.turn = consumer->turn, .since = consumer->waiting_since};

                if (!consumer_advance(scheduler, consumer))
                        continue; /* at an open slot, which goes before all that this job misses */
                its.use = consumer->cursor.number - consumer->number + !consumer->due;
                if (first)
                        its = urgency_of(scheduler, cursor_key(&consumer->cursor, consumer), true, &who);
                if (first && !who)
                        continue;
                if (found && !more_urgent(its, *urgency))
                        continue;
                found = consumer;
                *urgency = its;
        }
        return found;
}

/* False: there is nothing to do, or no room to do it. Changes nothing that counts. */
static bool choose_among(struct scheduler *scheduler, bool first, struct choice *choice) {
        struct urgency open_urgency = {0}, missing_urgency = {0};
        struct slot *open = most_urgent_open(scheduler, first, &open_urgency), *room;
        const struct consumer *missing = most_urgent_missing(scheduler, first, &missing_urgency);

        if (missing && (!open || more_urgent(missing_urgency, open_urgency))) {
                room = slots_find_room(scheduler, missing_urgency.use);
                if (room) {
                        *choice = (struct choice){room, cursor_key(&missing->cursor, missing), true,
                                                  missing_urgency};
                        return true;
                }
        }
        if (open)
                *choice = (struct choice){open, open->key, false, open_urgency};
        return open != NULL;
}

/* Nobody is there: what is to be warm for who comes. */
static bool choose_warm(struct scheduler *scheduler, struct choice *choice) {
        struct slot *open;

        *choice = (struct choice){.urgency = {.use = SCHEDULER_NEVER}};
        if (!warm_choose(scheduler, &open, &choice->key))
                return false;
        choice->begins = !open;
        choice->slot = open ? open : slots_find_room(scheduler, SCHEDULER_NEVER);
        return choice->slot;
}

/* Those who catch up come first. How soon it is used is told as for any other: somebody else may wait for it,
 * too. */
static bool choose(struct scheduler *scheduler, struct choice *choice) {
        struct consumer *who = NULL;

        if (scheduler->catch_up.front && choose_among(scheduler, true, choice))
                choice->urgency = urgency_of(scheduler, choice->key, false, &who);
        else if (!choose_among(scheduler, false, choice))
                return choose_warm(scheduler, choice);
        return true;
}

/* The slot that the choice fell on, open in any case. */
static struct slot *take(struct scheduler *scheduler, const struct choice *choice) {
        if (!choice->begins)
                return choice->slot;
        slots_make_room(scheduler, choice->slot);
        slots_start(scheduler, choice->slot, choice->key);
        return choice->slot;
}

static uint32_t least_of(uint32_t a, uint32_t b) {
        return a < b ? a : b;
}

/* While somebody waits, everybody gets an equal share of what is not done. */
static uint32_t chunk_rows(const struct slot *slot, uint32_t open_rows, uint64_t use, uint32_t rows_wanted,
                           uint32_t workers) {
        uint32_t rows = least_of(open_rows, rows_wanted > 0 ? rows_wanted : 1);
        uint32_t undone = slot->rows - slot->rows_done;

        if (use > 0 || workers == 0)
                return rows;
        return least_of(rows, undone / workers + (undone % workers > 0));
}

/* ---- the pool ---- */

void chunks_init(struct scheduler *scheduler, uint32_t chunks_max) {
        scheduler->chunks_max = chunks_max;
        scheduler->n_unused = 2 * chunks_max + 2;
        for (uint32_t i = 0; i < scheduler->n_unused; ++i)
                scheduler->chunks[i].next = i + 1 < scheduler->n_unused ? i + 1 : SCHEDULER_NONE;
}

static void insert(struct scheduler *scheduler, uint32_t *where, uint32_t first, uint32_t rows) {
        uint32_t at = scheduler->unused;

        scheduler->unused = scheduler->chunks[at].next;
        --scheduler->n_unused;
        scheduler->chunks[at] = (struct slot_chunk){first, rows, *where};
        *where = at;
}

static void discard(struct scheduler *scheduler, uint32_t *where) {
        uint32_t at = *where;

        *where = scheduler->chunks[at].next;
        scheduler->chunks[at].next = scheduler->unused;
        scheduler->unused = at;
        ++scheduler->n_unused;
}

/* A chunk costs an entry, and one that is kept for its split. */
static bool may_hand_out(const struct scheduler *scheduler) {
        if (scheduler->n_out == 0)
                return true;
        return scheduler->n_out < scheduler->chunks_max &&
               scheduler->n_unused >= scheduler->n_out_long + 2 + 2;
}

static void set_out(struct scheduler *scheduler, struct slot *slot, uint32_t first, uint32_t rows) {
        insert(scheduler, &slot->chunks, first, rows);
        ++scheduler->n_out;
        scheduler->n_out_long += rows > 1;
}

/* ---- rows that come back undone ---- */

static void join_next(struct scheduler *scheduler, uint32_t at) {
        struct slot_chunk *range = &scheduler->chunks[at];

        if (range->next == SCHEDULER_NONE ||
            range->first + range->rows != scheduler->chunks[range->next].first)
                return;
        range->rows += scheduler->chunks[range->next].rows;
        discard(scheduler, &range->next);
}

/* The last range, if it touches what was never handed out. */
static void join_rest(struct scheduler *scheduler, struct slot *slot) {
        uint32_t *at = &slot->returned;

        while (scheduler->chunks[*at].next != SCHEDULER_NONE)
                at = &scheduler->chunks[*at].next;
        if (scheduler->chunks[*at].first + scheduler->chunks[*at].rows != slot->rows_assigned)
                return;
        slot->rows_assigned = scheduler->chunks[*at].first;
        discard(scheduler, at);
}

static void give_back(struct scheduler *scheduler, struct slot *slot, uint32_t first, uint32_t rows) {
        uint32_t *at = &slot->returned, before = SCHEDULER_NONE;
        bool was_open = slot_is_open(slot);

        while (*at != SCHEDULER_NONE && scheduler->chunks[*at].first < first) {
                before = *at;
                at = &scheduler->chunks[before].next;
        }
        insert(scheduler, at, first, rows);
        join_next(scheduler, *at);
        if (before != SCHEDULER_NONE)
                join_next(scheduler, before);
        join_rest(scheduler, slot);
        if (was_open)
                return;
        list_append(scheduler->open.next, &slot->link); /* as the first */
        consumers_slot_reopened(scheduler, slot->key);
}

void chunks_forget_returned(struct scheduler *scheduler, struct slot *slot) {
        while (slot->returned != SCHEDULER_NONE)
                discard(scheduler, &slot->returned);
}

/* ---- handing out ---- */

/* The rows together that go next. */
static uint32_t open_run(const struct scheduler *scheduler, const struct slot *slot) {
        return slot->returned != SCHEDULER_NONE ? scheduler->chunks[slot->returned].rows
                                                : slot->rows - slot->rows_assigned;
}

static uint32_t take_rows(struct scheduler *scheduler, struct slot *slot, uint32_t rows) {
        struct slot_chunk *range;
        uint32_t first = slot->rows_assigned;

        if (slot->returned == SCHEDULER_NONE) {
                slot->rows_assigned += rows;
                return first;
        }
        range = &scheduler->chunks[slot->returned];
        first = range->first;
        range->first += rows;
        range->rows -= rows;
        if (range->rows == 0)
                discard(scheduler, &slot->returned);
        return first;
}

static uint32_t hand_out(struct scheduler *scheduler, struct slot *slot, uint32_t rows) {
        uint32_t first = take_rows(scheduler, slot, rows);

        set_out(scheduler, slot, first, rows);
        if (!slot_is_open(slot))
                list_unlink(&slot->link);
        return first;
}

static bool find_work(struct scheduler *scheduler, struct choice *choice) {
        if (may_hand_out(scheduler) && choose(scheduler, choice))
                return true;
        catch_up_note_rest(scheduler);
        return false;
}

bool scheduler_next_chunk(struct scheduler *scheduler, uint32_t rows_wanted, uint32_t workers,
                          struct scheduler_chunk *chunk) {
        struct choice choice;
        struct slot *slot;
        uint32_t rows, first;

        if (!find_work(scheduler, &choice))
                return false;
        slot = take(scheduler, &choice);
        rows = chunk_rows(slot, open_run(scheduler, slot), choice.urgency.use, rows_wanted, workers);
        first = hand_out(scheduler, slot, rows);
        *chunk = (struct scheduler_chunk){
                .slot = slot_number(scheduler, slot),
                .first = first,
                .rows = rows,
                .epoch = slot->key.epoch,
                .row = slot->key.index * scheduler->config.slot_rows + first,
                .seed = slot->key.seed,
        };
        return true;
}

/* What comes first in a catch-up is often not wanted soon. It comes before the due batches of this ring,
 * whose jobs wait for its sake; other rings shall not come before them for it. */
bool scheduler_peek_chunk(struct scheduler *scheduler, uint64_t *use, uint64_t *since) {
        struct choice choice, waiting;

        if (!find_work(scheduler, &choice))
                return false;
        if (scheduler->catch_up.front && !(scheduler->sabotage & SCHEDULER_WITHOUT_CATCH_UP_RANK) &&
            choose_among(scheduler, false, &waiting) && more_urgent(waiting.urgency, choice.urgency))
                choice = waiting;
        *use = choice.urgency.use;
        *since = choice.urgency.since;
        return true;
}

/* The slot whose chunk this is; the chunk is out no more. NULL: there is no such chunk. */
static struct slot *take_back(struct scheduler *scheduler, uint32_t number, uint32_t first, uint32_t rows) {
        struct slot *slot;
        uint32_t *at;

        if (number >= scheduler->config.slots)
                return NULL;
        slot = &scheduler->slots[number];
        at = &slot->chunks;
        while (*at != SCHEDULER_NONE &&
               (scheduler->chunks[*at].first != first || scheduler->chunks[*at].rows != rows))
                at = &scheduler->chunks[*at].next;
        if (*at == SCHEDULER_NONE)
                return NULL;
        discard(scheduler, at);
        --scheduler->n_out;
        scheduler->n_out_long -= rows > 1;
        return slot;
}

static void give_up_unwanted(struct scheduler *scheduler, struct slot *slot) {
        if (slot_is_open(slot) && slot->chunks == SCHEDULER_NONE && !warm_is_wanted(scheduler, slot->key) &&
            consumers_use(scheduler, slot->key, NULL) == SCHEDULER_NEVER)
                slots_drop(scheduler, slot);
}

/* After a job has gone, or another one has come to what was being made warm. */
void chunks_give_up_unwanted(struct scheduler *scheduler) {
        list_for_each_safe (entry, &scheduler->open)
                give_up_unwanted(scheduler, container_of(entry, struct slot, link));
}

/* Gives up what is being filled, once no chunk of it is out. */
void chunks_give_up(struct scheduler *scheduler, struct slot *slot) {
        slot->lost = true;
        list_unlink(&slot->link);
        if (slot->chunks == SCHEDULER_NONE)
                slots_drop(scheduler, slot);
}

static void come_back(struct scheduler *scheduler, struct slot *slot, uint32_t done) {
        slot->rows_done += done;
        books_prepared(scheduler, slot->key.seed, done);
        if (slot->lost)
                chunks_give_up(scheduler, slot);
        else if (slot->rows_done == slot->rows)
                slots_ready(scheduler, slot);
        else
                give_up_unwanted(scheduler, slot);
}

int scheduler_chunk_done(struct scheduler *scheduler, uint32_t number, uint32_t first, uint32_t rows) {
        struct slot *slot = take_back(scheduler, number, first, rows);

        if (!slot)
                return SCHEDULER_E_UNKNOWN;
        come_back(scheduler, slot, rows);
        return 0;
}

int scheduler_chunk_lost(struct scheduler *scheduler, uint32_t number, uint32_t first, uint32_t rows) {
        struct slot *slot = take_back(scheduler, number, first, rows);

        if (!slot)
                return SCHEDULER_E_UNKNOWN;
        chunks_give_up(scheduler, slot);
        if (list_is_empty(&scheduler->consumers)) {
                scheduler->warm.in_vain = true;
                chunks_give_up_unwanted(scheduler);
        }
        return 0;
}

int scheduler_chunk_split(struct scheduler *scheduler, uint32_t number, uint32_t first, uint32_t rows,
                          uint32_t done, bool suspect) {
        struct slot *slot = done < rows ? take_back(scheduler, number, first, rows) : NULL;

        if (!slot)
                return SCHEDULER_E_UNKNOWN;
        if (suspect)
                set_out(scheduler, slot, first + done, 1);
        if (!slot->lost && done + suspect < rows)
                give_back(scheduler, slot, first + done + suspect, rows - done - suspect);
        come_back(scheduler, slot, done);
        return 0;
}
