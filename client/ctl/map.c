/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How a job maps the ring, in a word or two, for the commands that show jobs. Most jobs have nothing to do
 * with a GPU, and nobody should read of page-locking because of them: there is something to say of one that
 * wants it, has it, or gave a reason. */

#include "client/ctl/ctl.h"

#include <stdio.h>
#include <string.h>

const char *ctl_map(const json_t *job, char *text, size_t size) {
        unsigned long long slots = ctl_number_of(job, "slots"),
                           registered = ctl_number_of(job, "slots_registered");
        const char *map = json_string_value(json_object_get(job, "map"));

        if (!json_is_true(json_object_get(job, "pins")) &&
            !json_is_string(json_object_get(job, "map_reason")) && registered == 0)
                return NULL;
        if (map && (registered > 0 || strcmp(map, "pinned") == 0))
                snprintf(text, size, "%s %llu/%llu", map, registered, slots);
        else
                snprintf(text, size, "%s", map ? map : "-");
        return text;
}
