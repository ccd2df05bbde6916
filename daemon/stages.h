#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Stage times, as `status` tells them. */

#include "proto/stages.h"

#include <jansson.h>

struct worker_page;

/* What the page says, added to `sum`. */
void stages_add_page(struct stage_times *sum, const struct worker_page *page);

/* An object with a member for each stage that rows were in. */
json_t *stages_to_json(const struct stage_times *times);
