#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What this process takes of the machine. */

#include <stdint.h>

struct footprint {
        uint64_t resident_bytes;
        uint64_t open_fds;
        uint64_t max_fds; /* UINT64_MAX: as many as it likes */
};

void footprint_look(struct footprint *footprint);
