#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Files that are opened and read ahead, by a thread that may hang in place of the worker. */

#include <stddef.h>
#include <stdint.h>

struct ahead;

/* `root` stays the caller's and is used until ahead_free. 0 or -ENOMEM. */
int ahead_new(struct ahead **ahead, int root);
struct ahead *ahead_free(struct ahead *ahead);

/* Opens a file below root as the worker does; may hang for as long as the storage does. -1 with errno. */
int ahead_open_file(int root, const char *name);

/* This file is wanted, after those that were wanted before. Never blocks; a name that is too long or one too
 * many is left out. */
void ahead_want(struct ahead *ahead, uint64_t sample, const char *name, size_t length);

/* A descriptor of that sample's file, the caller's from now on, or -1: it was not wanted, could not be
 * opened, or would have been opened later. Blocks while it is being opened, as the storage does. */
int ahead_take(struct ahead *ahead, uint64_t sample);

/* Nothing is wanted any more. */
void ahead_forget(struct ahead *ahead);

/* A file was read, in so much time: it tells whether reading ahead is of any use. */
void ahead_judge(struct ahead *ahead, size_t bytes, uint64_t ns);
