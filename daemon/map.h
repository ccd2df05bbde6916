#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How a job maps its pipeline's ring: what it may, and what it says has become of it. */

#include "proto/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct fault;

enum {
        MAP_NOTES_SPARE = 16, /* MAPPED that a job may send beyond one for each slot */
};

enum map_error {
        MAP_E_GIVEN_UP = 1, /* the job wanted to page-lock slots and does not any more; said once */
};

struct map {
        enum message_map kind;             /* what was granted; from the first MAPPED on what the job says */
        bool pins;                         /* it asked for one that can be page-locked */
        bool given_up;                     /* it was said that it does not */
        uint32_t slots;                    /* of the ring; 0: not attached */
        uint32_t registered;               /* of these, page-locked */
        uint32_t notes;                    /* MAPPED that have come */
        char reason[MESSAGE_TEXT_MAX + 1]; /* why `kind` is what it is; "" if there is nothing to say */
};

/* What a process of user `peer` may have that `asked` for it, and is `trusted` with the ring or not. `where`
 * is the place of who is. `reason` says why that is not what was asked for, with a remedy; "" if it is. */
enum message_map map_decide(enum message_map asked, bool trusted, uid_t peer, const char *where, char *reason,
                            size_t size);

/* The job is attached, with this answer. 0 or MAP_E_GIVEN_UP: it has been given less than it asked for. */
int map_init(struct map *map, enum message_map asked, const struct message_attached *attached);

/* What the job says. 0 or MAP_E_GIVEN_UP; -EPROTO with words: more slots than there are, or too often. */
int map_note(struct map *map, const struct message_mapped *mapped, struct fault *fault);

const char *map_kind_name(enum message_map kind); /* "read-only" or "pinned" */
