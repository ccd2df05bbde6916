/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* On processors for which there is nothing better; see copy-x86.c. */

#include "client/copy.h"

#include <string.h>

void copy_bytes(void *to, const void *from, size_t size, size_t whole) {
        memcpy(to, from, size);
}
