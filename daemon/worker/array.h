#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Arrays that grow while they are filled. */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

enum {
        ARRAY_FIRST_ROOM = 64, /* items of the first allocation */
};

/* Makes room in *(item **)itemsp for `more` items of `size` bytes after the `used` ones; doubles, so that
 * adding is cheap on average. 0, or -ENOMEM and nothing has changed. */
static inline int array_grow(void *itemsp, size_t size, uint64_t used, uint64_t more, uint64_t *room) {
        uint64_t wanted = *room > 0 ? *room : ARRAY_FIRST_ROOM;
        void *items;

        if (used + more <= *room)
                return 0;
        while (wanted < used + more)
                wanted *= 2;
        items = reallocarray(*(void **)itemsp, wanted, size);
        if (!items)
                return -ENOMEM;
        *(void **)itemsp = items;
        *room = wanted;
        return 0;
}
