#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Copying much memory at once. */

#include <stddef.h>

/* memcpy, but for the time it takes. `whole` is the size of the copy that this is a part of. */
void copy_bytes(void *to, const void *from, size_t size, size_t whole);
