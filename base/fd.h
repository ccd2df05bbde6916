#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Descriptors: whole reads, flags, counting. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads up to `size` bytes at `offset` with pread, going on after short reads and EINTR.
 * Returns the bytes read (fewer than `size` only at the end of the file), or a negative errno. */
ssize_t fd_pread_full(int fd, void *to, size_t size, uint64_t offset);

/* Writes all `size` bytes at `offset`, or returns a negative errno. */
int fd_pwrite_full(int fd, const void *from, size_t size, uint64_t offset);

/* Sets or clears O_NONBLOCK. 0 or a negative errno. */
int fd_set_nonblocking(int fd, int on);

/* Number of open descriptors of this process (reads /proc/self/fd), or a negative errno. */
int fd_count(void);

/* Opens the same file again for reading only, whatever `fd` allows: what a client is given. The new
 * descriptor (close-on-exec) or a negative errno. */
int fd_reopen_readonly(int fd);
