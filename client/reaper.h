#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job's device thread: it does what must not be done on the caller's thread, and ends leases when the
 * copies of a batch have finished. With PINFEED_NO_THREAD in the environment there is no thread, and calls on
 * the job do its work. */

#include "client/device.h"
#include "proto/position.h"

#include <stdbool.h>
#include <stdint.h>

struct attachment;
struct fault;
struct pinfeed_batch;
struct reaper;

enum {
        REAPER_LATER = 1, /* what a work says that is not done yet: it is called again soon */
};

/* The place in a stream behind some copies. In use until it is seen to be reached, then used again. */
struct mark {
        struct mark *next;      /* in the list it is in */
        struct mark *next_made; /* among all of the job's */
        device_mark handle;
        struct position position; /* of the batch, for people */
        bool recorded;            /* in a stream, and not known to be reached */
};

/* What the device thread does for a caller that waits: 0, a negative errno, or REAPER_LATER. */
typedef int (*reaper_work)(struct reaper *reaper, void *context, struct fault *fault);

/* NULL for want of memory. The thread starts when it is first needed. */
struct reaper *reaper_new(const struct device *device);

/* Ends the thread and destroys all marks; after reaper_finish, or in a fork's child, where there is no thread
 * and nothing of the device's is touched (`is_ours` is false). NULL is fine. */
void reaper_free(struct reaper *reaper, bool is_ours);

/* Has `work` done on the device, and waits until it is. Its result; also -EXDEV without a thread when the
 * caller's device is another one, and what is wrong when the device cannot be had. By the job's thread. */
int reaper_call(struct reaper *reaper, reaper_work work, void *context, struct fault *fault);

/* The last call of all, when nobody can find the job any more: as reaper_call, but whatever device is the
 * caller's. If the device was never touched it stays so, and this does nothing. */
void reaper_finish(struct reaper *reaper, reaper_work work, void *context);

/* A mark that is in no stream, to be recorded and put into a list that the device thread will look at: 0 or
 * as reaper_call. By the job's thread. */
int reaper_take_mark(struct reaper *reaper, struct mark **mark, struct fault *fault);

/* Takes the marks that have been reached out of a list. True: it is empty. By the device thread. */
bool reaper_reach(struct reaper *reaper, struct mark **marks);

/* Whether no mark at all is still to be reached. By the device thread. */
bool reaper_is_done(struct reaper *reaper);

/* The lease of a batch, which is COPYING, is to end when its marks have been reached. From any thread, under
 * the registry's lock. */
void reaper_add(struct reaper *reaper, struct pinfeed_batch *batch);

/* The device thread's reference to the attachment is the only one that is left: it unregisters its slots,
 * which nobody uses any more, and gives the reference back. From any thread, under the registry's lock. */
void reaper_leave(struct reaper *reaper, struct attachment *attachment);

/* Without a thread: does what there is to do. 0, or -EXDEV. With a thread, or nothing to do, it costs
 * nothing. By the job's thread. */
int reaper_turn(struct reaper *reaper, struct fault *fault);

/* Whether nobody else ends leases, also of batches that other threads release: then the job's thread must not
 * wait for long without calling reaper_turn. */
bool reaper_has_no_thread(const struct reaper *reaper);

/* Why copies that were queued may not have arrived, said once. 0, or -EIO with its text. */
int reaper_take_error(struct reaper *reaper, struct fault *fault);
