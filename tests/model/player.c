/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Plays cases with the real scheduler and tells what every job was given; check.py draws the cases and knows
 * what that has to be. A case is a line of words:
 *
 *     SAMPLES SLOT_ROWS SPARE DICE  then up to GROUPS_MAX times
 *     group SEED LOOKAHEAD HELD     then up to LEGS_MAX times one of
 *         attach W B TAIL EPOCH ROW TAKE    W ranks come, at that row
 *         resume W B TAIL TAKE              those before leave; W ranks come, at the state those before had
 *         seek EPOCH ROW TAKE               those who are there go to that row
 *
 * All ranks of a group take TAKE batches of b rows; then its next leg begins, and whatever more they were
 * sent is lost, as what a trainer has prefetched is when it stops. All groups play at once. DICE decides what
 * the case leaves open and what must not matter: how many workers there are, how large chunks are and in
 * which order they end, who takes or releases a batch before whom. The ring has the slots that the jobs need
 * at least, and SPARE more.
 *
 * The answer has a line per group, leg and rank: its batches, each with a `;` behind it,
 *
 *     EPOCH ROW ROWS PADDING EPOCH' ROW':rows
 *
 * that is its position, how many rows are padding, the state after it, and its rows as they lie in the slots,
 * those with a `*` that are marked as padding. A `>` before a batch: the job asked for that epoch, having
 * been given nothing beyond the one before. A leg that is refused is the line "refused", and the last of its
 * group. What must never happen is a line that begins with `!`. A line "." ends each case.
 *
 * The memory of the slots is played too: a cell holds what the worker's chunk said it should. So a row of the
 * answer is what a trainer would have read there. */

#include "tests/model/player.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        PATIENCE = 200, /* rounds without an event; where one can be, each has it with a probability of 1/4 at
                           least */
        ROUNDS_MAX = 100000,
};

/* ---- dice, text ---- */

/* splitmix64 */
static uint64_t draw(struct game *game) {
        uint64_t z = game->dice += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

static uint32_t draw_below(struct game *game, uint32_t n) {
        return (uint32_t)(draw(game) % n);
}

static bool toss(struct game *game) {
        return draw(game) & 1;
}

void die(const char *words) {
        fprintf(stderr, "player: %s\n", words);
        exit(2);
}

static void put(struct text *text, const char *bytes, size_t n) {
        if (n == 0)
                return; /* of an empty text, whose `bytes` are NULL */
        if (text->n + n > text->room) {
                text->room = 2 * (text->n + n);
                text->bytes = realloc(text->bytes, text->room);
                if (!text->bytes)
                        die("no memory");
        }
        memcpy(text->bytes + text->n, bytes, n);
        text->n += n;
}

static void put_words(struct text *text, const char *words) {
        put(text, words, strlen(words));
}

/* The number and the character behind it: most of what is written, so not by printf. */
static void put_number(struct text *text, uint64_t number, char behind) {
        char digits[24], *at = digits + sizeof(digits);

        *--at = behind;
        do
                *--at = (char)('0' + number % 10);
        while ((number /= 10) > 0);
        put(text, at, (size_t)(digits + sizeof(digits) - at));
}

/* ---- deliveries ---- */

static struct rank *find_rank(struct game *game, uint32_t id, struct group **group) {
        for (uint32_t i = 0; i < game->n_groups; ++i) {
                *group = &game->groups[i];
                for (uint32_t j = 0; j < (*group)->n_ranks; ++j)
                        if ((*group)->ranks[j].id == id)
                                return &(*group)->ranks[j];
        }
        return NULL;
}

static void tell_segment(const struct game *game, struct rank *rank, uint64_t seed, uint32_t epoch,
                         const struct scheduler_segment *segment) {
        const struct cell *cells = &game->memory[(size_t)segment->slot * game->config.slot_rows];

        if (segment->slot >= game->config.slots || segment->first >= game->config.slot_rows ||
            segment->rows > game->config.slot_rows - segment->first) {
                put_words(&rank->line, "! outside the slot ");
                return;
        }
        for (uint32_t i = segment->first; i < segment->first + segment->rows; ++i) {
                if (cells[i].seed != seed || cells[i].epoch != epoch)
                        put_words(&rank->line, "! of another epoch or seed ");
                put_number(&rank->line, cells[i].row, segment->padding ? '*' : ' ');
                if (segment->padding)
                        put(&rank->line, " ", 1);
        }
}

static void tell(const struct game *game, const struct group *group, struct rank *rank,
                 const struct scheduler_delivery *delivery, struct place after) {
        const struct position *position = &delivery->position;

        if (rank->asked)
                put(&rank->line, ">", 1);
        put_number(&rank->line, position->epoch, ' ');
        put_number(&rank->line, position->row, ' ');
        put_number(&rank->line, position->rows, ' ');
        put_number(&rank->line, position_padding(&rank->plan, position), ' ');
        put_number(&rank->line, after.epoch, ' ');
        put_number(&rank->line, after.row, ':');
        for (uint32_t i = 0; i < delivery->n_segments; ++i)
                tell_segment(game, rank, group->seed, position->epoch, &delivery->segments[i]);
        rank->line.bytes[rank->line.n - 1] = ';';
}

static void release(struct game *game, struct group *group, struct rank *rank, uint32_t i) {
        struct batch *batch = &rank->batches[i];

        if (scheduler_release(game->scheduler, rank->id, batch->number, ++game->now) != 0)
                put_words(&group->answer, "! a batch could not be released\n");
        memmove(batch, batch + 1, (--rank->n_batches - i) * sizeof(*batch));
        if (i < rank->n_taken)
                --rank->n_taken;
}

static void take_delivery(struct game *game, const struct scheduler_delivery *delivery) {
        struct group *group;
        struct rank *rank = find_rank(game, delivery->job, &group);
        struct batch *batch;

        if (!rank || rank->n_batches == group->held || delivery->number != rank->number++) {
                put_words(&game->groups[0].answer,
                          "! a delivery to nobody, one too many or a wrong number\n");
                return;
        }
        batch = &rank->batches[rank->n_batches++];
        batch->number = delivery->number;
        batch->after.row = position_after(&rank->plan, &delivery->position, &batch->after.epoch);
        tell(game, group, rank, delivery, batch->after);
        batch->text_end = rank->line.n;
        rank->asked = false;
}

/* ---- work ---- */

static void end_chunk(struct game *game, uint32_t i) {
        struct scheduler_chunk chunk = game->chunks[i];
        struct cell *cells = &game->memory[(size_t)chunk.slot * game->config.slot_rows + chunk.first];

        for (uint32_t j = 0; j < chunk.rows; ++j)
                cells[j] = (struct cell){chunk.seed, chunk.row + j, chunk.epoch};
        if (scheduler_chunk_done(game->scheduler, chunk.slot, chunk.first, chunk.rows) != 0)
                put_words(&game->groups[0].answer, "! a chunk could not be reported\n");
        game->chunks[i] = game->chunks[--game->n_chunks];
}

/* What the scheduler wants done after every event. */
static void pump(struct game *game) {
        struct scheduler_delivery delivery;
        struct scheduler_chunk *chunk;

        while (scheduler_next_delivery(game->scheduler, ++game->now, &delivery))
                take_delivery(game, &delivery);
        while (game->n_chunks < game->workers) {
                chunk = &game->chunks[game->n_chunks];
                if (!scheduler_next_chunk(game->scheduler, 1 + draw_below(game, game->config.slot_rows),
                                          game->workers, chunk))
                        break;
                if (chunk->slot >= game->config.slots ||
                    chunk->rows > game->config.slot_rows - chunk->first) {
                        put_words(&game->groups[0].answer, "! a chunk outside its slot\n");
                        break;
                }
                ++game->n_chunks;
        }
}

static bool work(struct game *game) {
        bool moved = game->n_chunks > 0;

        pump(game);
        while (game->n_chunks > 0) {
                end_chunk(game, draw_below(game, game->n_chunks));
                pump(game);
                if (!game->eager)
                        return true;
        }
        return moved;
}

/* ---- ranks ---- */

static void come(struct game *game, struct rank *rank, const struct position_plan *plan, uint32_t number,
                 struct place place) {
        struct text line = rank->line; /* its memory is used again */

        line.n = 0;
        *rank = (struct rank){.id = ++game->next_id, .plan = *plan, .state = place, .line = line};
        rank->plan.rank = number;
}

static void take(struct rank *rank) {
        const struct batch *batch = &rank->batches[rank->n_taken++];

        ++rank->taken;
        rank->state = batch->after;
        rank->line_taken = batch->text_end;
}

/* What was sent and not taken goes back unseen. */
static void drop_untaken(struct game *game, struct group *group, struct rank *rank) {
        while (rank->n_batches > rank->n_taken)
                release(game, group, rank, rank->n_batches - 1);
}

/* With a lookahead of 0, as a client does when it is asked for more after an epoch's end. */
static bool ask(struct game *game, struct group *group, struct rank *rank) {
        struct scheduler_job_view view;

        if (group->lookahead > 0 || scheduler_view_job(game->scheduler, rank->id, &view) != 0 || !view.parked)
                return false;
        rank->asked = true;
        return scheduler_seek(game->scheduler, rank->id, view.next.epoch, 0, 0, ++game->now, NULL) == 0;
}

static bool move_rank(struct game *game, struct group *group, struct rank *rank, uint32_t wanted) {
        if (toss(game))
                return false;
        if (rank->n_taken > 0 && toss(game)) {
                release(game, group, rank, draw_below(game, rank->n_taken));
                return true;
        }
        if (rank->seeking || rank->taken == wanted)
                return false;
        if (rank->n_batches == rank->n_taken)
                return ask(game, group, rank);
        take(rank);
        return true;
}

/* ---- groups ---- */

static int attach(struct game *game, struct group *group, struct rank *rank) {
        struct scheduler_job job = {.id = rank->id,
                                    .seed = group->seed,
                                    .plan = rank->plan,
                                    .start_epoch = rank->state.epoch,
                                    .start_row = rank->state.row,
                                    .max_held = group->held,
                                    .lookahead = group->lookahead};

        return scheduler_attach(game->scheduler, &job, ++game->now, NULL);
}

static void leave(struct game *game, struct group *group) {
        for (uint32_t i = 0; i < group->n_ranks; ++i)
                scheduler_detach(game->scheduler, group->ranks[i].id);
        group->n_ranks = 0;
}

static uint32_t minimum_of(const struct game *game, const struct position_plan *plan, uint32_t rank,
                           uint64_t row) {
        struct position_plan of_rank = *plan;

        of_rank.rank = rank;
        return scheduler_minimum(&game->config, &of_rank, row);
}

static uint32_t minimum_of_all(const struct game *game, const struct position_plan *plan, uint64_t row) {
        uint32_t minimum = 0;

        for (uint32_t rank = 0; rank < plan->world_size; ++rank)
                minimum += minimum_of(game, plan, rank, row);
        return minimum;
}

/* A group comes as a whole: if one of it has to wait, all do. */
static int enter_anew(struct game *game, struct group *group, const struct leg *leg) {
        struct place place = leg->kind == LEG_RESUME ? group->ranks[0].state : leg->place;
        int r = 0;

        if (group->n_ranks > 0)
                leave(game, group);
        for (uint32_t i = 0; r == 0 && i < leg->plan.world_size; ++i) {
                come(game, &group->ranks[i], &leg->plan, i, place);
                r = attach(game, group, &group->ranks[i]);
                if (r == 0)
                        ++group->n_ranks;
        }
        if (r != 0)
                leave(game, group);
        group->awaited = r > 0 ? minimum_of_all(game, &leg->plan, place.row) : 0;
        return r;
}

static int enter_by_seek(struct game *game, struct group *group, const struct leg *leg) {
        int all = 0, r;

        for (uint32_t i = 0; i < group->n_ranks; ++i) {
                struct rank *rank = &group->ranks[i];

                if (group->awaited > 0 && !rank->seeking)
                        continue;
                r = scheduler_seek(game->scheduler, rank->id, leg->place.epoch, leg->place.row, 0,
                                   ++game->now, NULL);
                if (r < 0)
                        return r;
                drop_untaken(game, group, rank);
                rank->seeking = r > 0;
                rank->line.n = rank->line_taken = 0;
                rank->taken = 0;
                rank->state = leg->place;
                all |= r;
        }
        group->awaited = all ? minimum_of_all(game, &leg->plan, leg->place.row) : 0;
        return all;
}

static bool enter(struct game *game, struct group *group) {
        const struct leg *leg = &group->legs[group->leg];
        bool waited = group->awaited > 0;
        int r = leg->kind == LEG_SEEK ? enter_by_seek(game, group, leg) : enter_anew(game, group, leg);

        if (r < 0) {
                put_words(&group->answer, "refused\n");
                leave(game, group);
                group->leg = group->n_legs;
        } else if (r == SCHEDULER_E_LATER) {
                return !waited;
        } else if (r > 0) {
                put_words(&group->answer, "! no room, or unknown\n");
                group->leg = group->n_legs;
        } else {
                group->entered = true;
        }
        return true;
}

static void end_leg(struct game *game, struct group *group) {
        for (uint32_t i = 0; i < group->n_ranks; ++i) {
                struct rank *rank = &group->ranks[i];

                put(&group->answer, rank->line.bytes, rank->line_taken);
                put(&group->answer, "\n", 1);
        }
        group->entered = false;
        if (++group->leg == group->n_legs)
                leave(game, group);
}

static bool move_group(struct game *game, struct group *group) {
        const struct leg *leg = &group->legs[group->leg];
        bool moved = false, done = true;

        if (group->leg == group->n_legs)
                return false;
        if (!group->entered && enter(game, group))
                return true;
        for (uint32_t i = 0; i < group->n_ranks; ++i) {
                moved |= move_rank(game, group, &group->ranks[i], leg->take);
                done &= group->ranks[i].taken == leg->take;
        }
        if (!done || !group->entered)
                return moved;
        end_leg(game, group);
        return true;
}

/* ---- cases ---- */

/* Where a leg that begins at `place` ends. */
static struct place place_after(const struct leg *leg, struct place place) {
        struct position position = position_first(&leg->plan, place.epoch, place.row);

        for (uint32_t i = 0; i < leg->take; ++i) {
                place.row = position_after(&leg->plan, &position, &place.epoch);
                position = position_next(&leg->plan, position);
        }
        return place;
}

/* What its ranks need at least. When they are sent elsewhere one goes after the other: each counts with the
 * more it needs before or after. */
static uint32_t slots_of(const struct game *game, const struct group *group) {
        uint32_t most = 0, minimums[WORLD_MAX];
        struct place place = {0};

        for (uint32_t i = 0; i < group->n_legs; ++i) {
                const struct leg *leg = &group->legs[i];
                uint32_t sum = 0;

                if (leg->kind != LEG_RESUME)
                        place = leg->place;
                if (position_check(&leg->plan, place.row, NULL) < 0)
                        break;
                for (uint32_t rank = 0; rank < leg->plan.world_size; ++rank) {
                        uint32_t minimum = minimum_of(game, &leg->plan, rank, place.row);

                        if (leg->kind != LEG_SEEK || minimums[rank] < minimum)
                                minimums[rank] = minimum;
                        sum += minimums[rank];
                }
                if (sum > most)
                        most = sum;
                place = place_after(leg, place);
        }
        return most;
}

static void make_ring(struct game *game, uint32_t spare) {
        size_t cells;

        game->config.slots = spare;
        for (uint32_t i = 0; i < game->n_groups; ++i)
                game->config.slots += slots_of(game, &game->groups[i]);
        if (game->config.slots == 0) /* everything will be refused */
                game->config.slots = 1;
        cells = (size_t)game->config.slots * game->config.slot_rows;
        if (cells > game->n_memory) {
                free(game->memory);
                game->memory = malloc(cells * sizeof(*game->memory));
                game->n_memory = cells;
        }
        if (!game->memory || scheduler_new(&game->scheduler, &game->config) < 0)
                die("no scheduler: is the case too large?");
        memset(game->memory, 0xff, cells * sizeof(*game->memory)); /* what nobody wrote is of no epoch */
}

static void play(struct game *game) {
        uint32_t idle = 0, awaited;
        bool moved;

        game->workers = 1 + draw_below(game, WORKERS_MAX);
        game->eager = toss(game);
        for (uint32_t round = 0; idle < PATIENCE && round < ROUNDS_MAX; ++round) {
                awaited = 0;
                moved = work(game);
                for (uint32_t i = 0; i < game->n_groups; ++i) {
                        moved |= move_group(game, &game->groups[i]);
                        awaited += game->groups[i].awaited;
                }
                scheduler_set_awaited(game->scheduler, awaited);
                idle = moved ? 0 : idle + 1;
                for (uint32_t i = 0; i < game->n_groups && game->groups[i].leg == game->groups[i].n_legs; ++i)
                        if (i + 1 == game->n_groups)
                                return;
        }
        put_words(&game->groups[0].answer,
                  "! stuck: nothing more happens, and not all have had their batches\n");
}

int main(void) {
        static struct game game;
        char *line = NULL;
        size_t room = 0;

        while (getline(&line, &room, stdin) > 0) {
                make_ring(&game, case_read(&game, line));
                play(&game);
                for (uint32_t i = 0; i < game.n_groups; ++i)
                        fwrite(game.groups[i].answer.bytes, 1, game.groups[i].answer.n, stdout);
                fputs(".\n", stdout);
                fflush(stdout); /* so that whoever waits knows which case it is that does not end */
                game.scheduler = scheduler_free(game.scheduler);
        }
        free(line);
        return 0;
}
