#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The version of the bits that pinfeed makes. */

enum {
        /* Raised by every release in which a row of an unchanged pipeline has another byte anywhere: another
         * order, another random number, another rounding. It is part of every saved state, which then is
         * refused rather than continued with other data. See docs/order.md. */
        BITS_VERSION = 1,
};
