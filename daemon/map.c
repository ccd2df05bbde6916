/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Map kinds. A GPU copies from page-locked memory only, and most drivers page-lock only what the process may
 * write. So a job that wants the copy engine to read the slots themselves asks for a descriptor that may
 * write, and with it for trust: it could spoil the batches of all.
 *
 * Whose trust, is decided when a job attaches (guard.c). The daemon's own user has it, since nothing is given
 * to him that he has not got: the kernel lets him open the ring for writing through /proc, and root may
 * anything. Others have it whom `allow_pinned` names, and then the ring's memory is made for it
 * (config-access.c):
 *
 *   - A POSIX shared memory object can be truncated by whoever may write to it, and then a touch of it raises
 *     SIGBUS in every worker and every job. So it must be a memfd, sealed against shrinking and growing.
 *   - It must be sealed against further seals, too: one against future writing would not hurt who has it
 *     mapped, and no worker that is started later could map it.
 *   - What is left is what trust means: wrong bytes, and holes punched into it, which read as zeros.
 *
 * Everybody else gets a descriptor that was opened for reading, and cannot make a better one of it through
 * /proc: the mode of the file lets only its owner (shm.c).
 *
 * The descriptor is the one that workers get, and good for this one file. A job that closes it or not keeps
 * no more alive than with its mapping: the ring of a pipeline that rests, or begins anew, is given up by the
 * daemon as ever, its memory lives until the last job that still reads from it has gone, and the next ring
 * is another file. Nobody here or in a worker goes by the descriptor's offset or flags, which it shares.
 *
 * What becomes of it only the job knows, and says in MAPPED. That is for people: nothing here depends on it.
 */

#include "daemon/map.h"

#include "base/fault.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum message_map map_decide(enum message_map asked, bool trusted, uid_t peer, const char *where, char *reason,
                            size_t size) {
        *reason = 0;
        if (asked != MESSAGE_MAP_PINNED)
                return MESSAGE_MAP_READ_ONLY;
        if (trusted)
                return MESSAGE_MAP_PINNED;
        snprintf(reason, size,
                 "pinfeedd gives memory that may be written to root, to its own user (uid %u), and to whom "
                 "`allow_pinned` names, this job is of uid %u; have it named there (%s), or use a private "
                 "daemon",
                 (unsigned)geteuid(), (unsigned)peer, where);
        return MESSAGE_MAP_READ_ONLY;
}

/* Whether there is something to tell that was not told. */
static int give_up(struct map *map) {
        if (!map->pins || map->given_up)
                return 0;
        map->given_up = true;
        return MAP_E_GIVEN_UP;
}

int map_init(struct map *map, enum message_map asked, const struct message_attached *attached) {
        *map = (struct map){.kind = (enum message_map)attached->map,
                            .pins = asked != MESSAGE_MAP_ANY,
                            .slots = attached->slots};
        snprintf(map->reason, sizeof(map->reason), "%s", attached->map_reason);
        return *map->reason ? give_up(map) : 0;
}

int map_note(struct map *map, const struct message_mapped *mapped, struct fault *fault) {
        if (map->notes++ >= map->slots + MAP_NOTES_SPARE)
                return fault_set(fault, -EPROTO, "it sent MAPPED more than %u times, for %u slots",
                                 map->slots + MAP_NOTES_SPARE, map->slots);
        if (mapped->registered > map->slots)
                return fault_set(fault, -EPROTO, "it says that %u slots are page-locked, there are %u",
                                 mapped->registered, map->slots);
        map->kind = (enum message_map)mapped->map;
        map->registered = mapped->registered;
        fault_sanitize(map->reason, sizeof(map->reason), mapped->reason, strlen(mapped->reason));
        return map->kind == MESSAGE_MAP_READ_ONLY ? give_up(map) : 0;
}

const char *map_kind_name(enum message_map kind) {
        return kind == MESSAGE_MAP_PINNED ? "pinned" : "read-only";
}
