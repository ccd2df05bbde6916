#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Anonymous shared memory: nameless from birth, so nothing is left behind by a crash. */

#include <stddef.h>
#include <stdint.h>

/* A POSIX shared memory object under a random name that starts with `prefix`, unlinked before this returns.
 * Mode 0600, close-on-exec, size 0. A descriptor or a negative errno (-ENOSPC, -EMFILE, ...). */
int shm_create(const char *prefix);

/* A memfd, mode 0600, close-on-exec, sealable, size 0. `name` shows in /proc only. A descriptor or a negative
 * errno. */
int shm_create_memfd(const char *name);

/* Forbids shrinking and growing of a memfd, and further seals: whoever may write to it could else forbid
 * future writing (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL). 0 or a negative errno. */
int shm_seal_size(int fd);

/* Forbids every change for ever: size, contents, seals. 0 or a negative errno. */
int shm_seal_all(int fd);

/* Really takes the pages of [offset, offset + size): a later touch of them never raises SIGBUS.
 * 0, or a negative errno (-ENOSPC when the backing is full: nothing else changes). */
int shm_reserve(int fd, uint64_t offset, uint64_t size);

/* Free bytes of the file system behind `fd` (tmpfs) into *free_bytes; UINT64_MAX where it has no limit of its
 * own. */
int shm_free_bytes(int fd, uint64_t *free_bytes);
