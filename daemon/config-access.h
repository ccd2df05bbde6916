#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Who may use a daemon and its pipelines, as the configuration says it. */

#include "daemon/config-document.h"

struct access;
struct config;

/* Reads `allow`, `allow_pinned` and `socket_group` of the file and of its pipelines, which have been read
 * before, and settles what follows for their rings. Asks the system's databases of users and groups, and may
 * wait for them. 0, or a negative errno with "FILE:LINE:COLUMN: ...". */
int config_read_access(struct config *config, struct document *document, struct fault *fault);

/* For a definition, which may say none of this: 0 or -EINVAL. Asks nobody. */
int config_refuse_access(struct document *document, struct fault *fault);
