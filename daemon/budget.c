/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One CPU budget over all pipelines.
 *
 * `cpus` is a number of places. A worker takes one when it goes from idle to busy and has it until it is idle
 * again or gone, whatever it does meanwhile: also while it hangs at a sample, until it is killed, and while
 * it tries a suspect. The places taken are not booked but counted, from what the pools say of their workers,
 * so there is nothing that could be forgotten when a worker dies.
 *
 * Whose turn it is is decided chunk by chunk, by rule 4 over all pipelines: chunks of due batches before all
 * others, the job that has waited longest first; then what is used sooner. A job that got a batch waits from
 * then on, behind all that waited before, so every job that can take a batch has its turn once each of them
 * has had one batch: nobody starves. Chunks prepared ahead are worth less than any due one and may wait as
 * long as there are such.
 *
 * The first in line may lack a place. Then nobody after it gets anything either: where chunks are short a
 * worker is handed the next ones while it still works, is never idle, and would keep its place for ever. So
 * workers run dry, within POOL_CHUNKS_MAX short chunks, until there is a place. Nobody has to be told of it:
 * the event that makes a worker idle shares out again, on behalf of all.
 *
 * While only one pipeline has jobs and workers to spare, which is nearly always, nothing is compared.
 *
 * What a member can count on when it reckons how much it will get done is another question, of seconds and
 * not of chunks: what the others did not take lately, and in any case the equal share of those who want
 * something, since rule 4 gives it that as soon as its jobs wait. */

#include "daemon/budget.h"

#include <stddef.h>

void budget_init(struct budget *budget, uint32_t places) {
        budget->places = places;
        budget->sabotage = 0;
        list_init(&budget->members);
}

void budget_member_init(struct budget_member *member, const struct budget_events *events, void *context) {
        *member = (struct budget_member){.events = events, .context = context};
        list_init(&member->link);
}

void budget_join(struct budget *budget, struct budget_member *member) {
        list_unlink(&member->link);
        list_append(&budget->members, &member->link);
}

void budget_leave(struct budget_member *member) {
        list_unlink(&member->link);
}

static struct budget_member *member_of(struct list *link) {
        return container_of(link, struct budget_member, link);
}

static bool is_left_out(const struct budget *budget, enum budget_sabotage rule) {
        return budget->sabotage & rule;
}

static bool has_place(const struct budget *budget) {
        uint32_t taken = 0;

        if (is_left_out(budget, BUDGET_WITHOUT_PLACES))
                return true;
        list_for_each (link, &budget->members)
                taken += member_of(link)->events->busy(member_of(link)->context);
        return taken < budget->places;
}

static bool precedes(const struct budget *budget, const struct budget_claim *a,
                     const struct budget_claim *b) {
        if (is_left_out(budget, BUDGET_WITHOUT_DUE))
                return a->since_ns < b->since_ns;
        if (is_left_out(budget, BUDGET_WITHOUT_WAITING))
                return a->use < b->use;
        return a->use < b->use || (a->use == b->use && a->since_ns < b->since_ns);
}

/* The only one that could take anything, if it is only one. */
static struct budget_member *only_one(const struct budget *budget) {
        struct budget_member *found = NULL;

        list_for_each (link, &budget->members) {
                if (!member_of(link)->events->could(member_of(link)->context))
                        continue;
                if (found && !is_left_out(budget, BUDGET_WITHOUT_COMPARING))
                        return NULL;
                found = found ? found : member_of(link);
        }
        return found;
}

static struct budget_member *first_in_line(const struct budget *budget) {
        struct budget_member *first = NULL;
        struct budget_claim best = {0}, claim;

        list_for_each (link, &budget->members) {
                struct budget_member *member = member_of(link);

                if (!member->events->could(member->context) ||
                    !member->events->claim(member->context, &claim) ||
                    (first && !precedes(budget, &claim, &best)))
                        continue;
                first = member;
                best = claim;
        }
        return first;
}

static bool give(const struct budget *budget, struct budget_member *member) {
        return member->events->give(member->context, has_place(budget));
}

void budget_share_out(struct budget *budget) {
        struct budget_member *only = only_one(budget), *member;

        while ((member = only ? only : first_in_line(budget)) && give(budget, member)) {
                if (is_left_out(budget, BUDGET_WITHOUT_MORE))
                        return;
        }
        if (is_left_out(budget, BUDGET_WITHOUT_RUNNING_DRY))
                list_for_each (link, &budget->members)
                        while (member_of(link)->events->give(member_of(link)->context, false))
                                ;
}

double budget_share(const struct budget *budget, const struct budget_member *member) {
        double left = budget->places, equal;
        uint32_t n = 1;

        list_for_each (link, &budget->members) {
                const struct budget_member *other = member_of(link);

                if (other == member || other->lately <= 0)
                        continue;
                left -= other->lately;
                n++;
        }
        equal = (double)budget->places / n;
        return left > equal ? left : equal;
}
