/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Which file a running daemon was started with. It says the name that it was given, which may start in its
 * own working directory. */

#include "client/ctl/ctl.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ctl_config_path(const json_t *status, char path[PATH_MAX]) {
        const char *config = json_string_value(json_object_get(status, "config"));
        char beginning[64] = "";

        if (!config)
                return false;
        if (*config != '/')
                snprintf(beginning, sizeof(beginning), "/proc/%llu/cwd/",
                         (unsigned long long)ctl_number_of(status, "pid"));
        if ((size_t)snprintf(path, PATH_MAX, "%s%s", beginning, config) >= PATH_MAX)
                return false;
        return true;
}
