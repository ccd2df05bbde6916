#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A font of dots for the letters of ASCII. */

#include <stdbool.h>

enum {
        FONT_WIDTH = 5,
        FONT_HEIGHT = 9,
};

/* Whether there is such a letter; all others look like '?'. */
bool font_has(char letter);

/* Whether the dot in column x and row y belongs to the letter; false beyond its edges. */
bool font_dot(char letter, int x, int y);
