/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Reads the line of a case, which player.c describes. Lines come from cases.py or from somebody's shell: what
 * is no case is refused, but what position_check should refuse passes, since that is part of the play. */

#include "tests/model/player.h"

#include <stdlib.h>
#include <string.h>

static const char *next_word(void) {
        const char *word = strtok(NULL, " \n");

        if (!word)
                die("a case ends too early");
        return word;
}

static uint64_t next_number(uint64_t most) {
        const char *word = next_word();
        char *end;
        uint64_t number = strtoull(word, &end, 10);

        if (*end || number > most)
                die("a number of a case is none, or too large");
        return number;
}

static enum last_batch next_tail(void) {
        const char *word = next_word();

        return !strcmp(word, "short")  ? LAST_BATCH_SHORT
               : !strcmp(word, "drop") ? LAST_BATCH_DROP
               : !strcmp(word, "pad")  ? LAST_BATCH_PAD
                                       : LAST_BATCH_DEFAULT;
}

static void read_leg(const struct game *game, struct group *group, const char *kind) {
        struct leg *leg = &group->legs[group->n_legs++];

        *leg = (struct leg){.kind = !strcmp(kind, "attach")   ? LEG_ATTACH
                                    : !strcmp(kind, "resume") ? LEG_RESUME
                                                              : LEG_SEEK};
        if (leg->kind == LEG_SEEK) {
                leg->plan = leg[-1].plan;
        } else {
                leg->plan.samples = game->config.samples;
                leg->plan.world_size = (uint32_t)next_number(WORLD_MAX);
                leg->plan.batch_size = (uint32_t)next_number(INT32_MAX);
                leg->plan.last_batch = next_tail();
        }
        if (leg->kind != LEG_RESUME) {
                leg->place.epoch = (uint32_t)next_number(UINT32_MAX);
                leg->place.row = next_number(UINT64_MAX);
        }
        leg->take = (uint32_t)next_number(UINT32_MAX);
}

static void read_group(struct group *group) {
        group->n_legs = group->leg = group->n_ranks = group->awaited = 0;
        group->entered = false;
        group->answer.n = 0;
        group->seed = next_number(UINT64_MAX);
        group->lookahead = (uint32_t)next_number(UINT32_MAX);
        group->held = (uint32_t)next_number(HELD_MAX);
}

static void read_groups(struct game *game) {
        const char *word;

        game->n_groups = 0;
        while ((word = strtok(NULL, " \n"))) {
                struct group *group = &game->groups[game->n_groups];

                if (!strcmp(word, "group")) {
                        if (game->n_groups++ == GROUPS_MAX)
                                die("a case has too many groups");
                        read_group(group);
                        continue;
                }
                if (game->n_groups == 0)
                        die("a case does not begin with a group");
                --group;
                if (group->n_legs == LEGS_MAX || (group->n_legs == 0 && strcmp(word, "attach") != 0))
                        die("a group has too many legs, or does not begin with attach");
                read_leg(game, group, word);
        }
        if (game->n_groups == 0)
                die("a case has no group");
}

uint32_t case_read(struct game *game, char *line) {
        const char *word = strtok(line, " \n");
        uint32_t spare;

        if (!word)
                die("an empty case");
        game->config.samples = strtoull(word, NULL, 10);
        game->config.slot_rows = (uint32_t)next_number(INT32_MAX);
        spare = (uint32_t)next_number(SCHEDULER_SLOTS_MAX);
        game->dice = next_number(UINT64_MAX);
        game->n_chunks = 0;
        read_groups(game);
        return spare;
}
