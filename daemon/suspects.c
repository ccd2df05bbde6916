/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The life of a suspect:
 *
 *                          +-------- suspects_died: RETRY --------+
 *                          v                                      |
 *    suspects_add -----> WAITING -- suspects_next, _tried --> TRIED -----> suspects_remove
 *                          |                                      |
 *                          +------- suspects_remove_slot ---------+
 *
 *    event                     before   after    what the caller does with the chunk (slot, first, 1)
 *    a worker dies in company  -        WAITING  leaves it out: scheduler_chunk_split(.., suspect)
 *    a fresh worker is free    WAITING  TRIED    assigns it to that worker, which gets nothing else
 *    the row is made           TRIED    -        scheduler_chunk_done
 *    its sample is bad         TRIED    -        what on_error says
 *    the worker dies           TRIED    WAITING  nothing
 *    ... the second that counts         -        condemns the sample, assigns the chunk like any other
 *    the slot is given up      any      -        scheduler_chunk_lost
 *
 * A verdict is about a sample, a suspect is a row, and the same sample may be in work for two streams or two
 * epochs. Its deaths alone therefore count for all rows of it, and only one of them is tried at a time: else
 * a sample would kill three workers for each of its rows. What remains of them after the verdict is tried
 * like before, by workers that know the verdict, and is made.
 *
 * The first death, in company, counts for nothing: the worker may have died of an earlier row. A death that
 * is nobody's fault leaves the count alone; how often that may go on is a matter of the pool's back-off.
 *
 * There are as many places as a pipeline may have workers, so that storage that hangs for all of them at once
 * finds room. More than that is not the fault of single samples.
 */

#include "daemon/suspects.h"

#include "daemon/config.h"

#include <assert.h>
#include <stddef.h>

_Static_assert((int)SUSPECTS_MAX >= (int)CONFIG_WORKERS_MAX, "every worker may die at once");

const char *suspect_state_name(enum suspect_state state) {
        static const char *const names[] = {
                [SUSPECT_NONE] = "none",
                [SUSPECT_WAITING] = "waiting",
                [SUSPECT_TRIED] = "tried",
        };

        return names[state];
}

void suspects_init(struct suspects *suspects) {
        suspects->count = suspects->used = 0;
        suspects->next_number = 0;
        for (uint32_t i = 0; i < SUSPECTS_MAX; i++)
                suspects->places[i] = (struct suspect){.state = SUSPECT_NONE};
}

const struct suspect *suspects_iterate(const struct suspects *suspects, uint32_t *place) {
        while (*place < suspects->used) {
                const struct suspect *suspect = &suspects->places[(*place)++];

                if (suspect->state != SUSPECT_NONE)
                        return suspect;
        }
        return NULL;
}

static struct suspect *iterate(struct suspects *suspects, uint32_t *place) {
        return (struct suspect *)suspects_iterate(suspects, place);
}

/* The first free place, or NULL. */
static struct suspect *take_place(struct suspects *suspects) {
        uint32_t i = 0;

        while (i < suspects->used && suspects->places[i].state != SUSPECT_NONE)
                i++;
        if (i == SUSPECTS_MAX)
                return NULL;
        if (i == suspects->used)
                suspects->used++;
        return &suspects->places[i];
}

/* A suspect of the sample in that state, or in any when it is SUSPECT_NONE. */
static struct suspect *find_sample(struct suspects *suspects, uint64_t sample, enum suspect_state state) {
        struct suspect *suspect;

        for (uint32_t place = 0; (suspect = iterate(suspects, &place));)
                if (suspect->sample == sample && (state == SUSPECT_NONE || suspect->state == state))
                        return suspect;
        return NULL;
}

int suspects_add(struct suspects *suspects, const struct suspect *row, struct suspect **added) {
        struct suspect *place, *same = find_sample(suspects, row->sample, SUSPECT_NONE);

        if (suspects_find(suspects, row->slot, row->first))
                return SUSPECTS_E_KNOWN;
        place = take_place(suspects);
        if (!place)
                return SUSPECTS_E_FULL;
        *place = *row;
        place->state = SUSPECT_WAITING;
        place->deaths_alone = same ? same->deaths_alone : 0;
        place->number = suspects->next_number++;
        suspects->count++;
        if (added)
                *added = place;
        return 0;
}

struct suspect *suspects_find(struct suspects *suspects, uint32_t slot, uint32_t first) {
        struct suspect *suspect;

        for (uint32_t place = 0; (suspect = iterate(suspects, &place));)
                if (suspect->slot == slot && suspect->first == first)
                        return suspect;
        return NULL;
}

struct suspect *suspects_next(struct suspects *suspects) {
        struct suspect *suspect, *oldest = NULL;

        for (uint32_t place = 0; (suspect = iterate(suspects, &place));)
                if (suspect->state == SUSPECT_WAITING && (!oldest || suspect->number < oldest->number) &&
                    !find_sample(suspects, suspect->sample, SUSPECT_TRIED))
                        oldest = suspect;
        return oldest;
}

void suspects_tried(struct suspects *suspects, struct suspect *suspect) {
        assert(suspect->state == SUSPECT_WAITING);
        suspect->state = SUSPECT_TRIED;
}

enum suspect_outcome suspects_died(struct suspects *suspects, struct suspect *suspect, bool counts) {
        struct suspect *other;

        assert(suspect->state == SUSPECT_TRIED);
        suspect->state = SUSPECT_WAITING;
        if (!counts)
                return SUSPECT_RETRY;
        for (uint32_t place = 0; (other = iterate(suspects, &place));)
                if (other->sample == suspect->sample)
                        other->deaths_alone++;
        return suspect->deaths_alone >= SUSPECTS_DEATHS ? SUSPECT_CONDEMN : SUSPECT_RETRY;
}

void suspects_remove(struct suspects *suspects, struct suspect *suspect) {
        assert(suspect->state != SUSPECT_NONE);
        *suspect = (struct suspect){.state = SUSPECT_NONE};
        suspects->count--;
        while (suspects->used > 0 && suspects->places[suspects->used - 1].state == SUSPECT_NONE)
                suspects->used--;
}

uint32_t suspects_remove_slot(struct suspects *suspects, uint32_t slot) {
        struct suspect *suspect;
        uint32_t before = suspects->count;

        for (uint32_t place = 0; (suspect = iterate(suspects, &place));)
                if (suspect->slot == slot)
                        suspects_remove(suspects, suspect);
        return before - suspects->count;
}
