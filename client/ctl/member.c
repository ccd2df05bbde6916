/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Members of the daemon's answers. One that is missing, or of another type than expected, is another
 * version's: it reads as nothing. */

#include "client/ctl/ctl.h"

const char *ctl_text_of(const json_t *object, const char *name) {
        const char *text = json_string_value(json_object_get(object, name));

        return text ? text : "-";
}

uint64_t ctl_number_of(const json_t *object, const char *name) {
        return (uint64_t)json_integer_value(json_object_get(object, name));
}
