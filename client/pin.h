#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Which slots of an attachment's ring are page-locked, and page-locking them. */

#include <stdbool.h>
#include <stdint.h>

struct device;
struct fault;
struct view;

/* Changed by the device thread (reaper.h), while the job's thread waits for it or nobody uses the ring. */
struct pins {
        bool wanted;    /* slots are to be registered; no more once one could not be */
        bool read_only; /* as memory that we cannot write; else each becomes writable for as long as it takes
                         */
        bool untold;    /* the daemon is to be told (MAPPED); the job's thread's */
        uint64_t piece; /* bytes of one call at most */
        uint32_t n;     /* slots that are registered */
        uint8_t *slots; /* a bit for each */
};

/* What one call may register, from where it does (pin-piece.c). */
uint64_t pin_piece(void);

/* From here on slots are wanted. 0 or -ENOMEM. */
int pins_init(struct pins *pins, const struct view *view, bool read_only, uint64_t piece);
void pins_deinit(struct pins *pins);

/* Populates and registers a slot that is not registered, or does nothing to it that lasts. 0, or a negative
 * errno with the call, its code and the limits that count. */
int pins_add(struct pins *pins, struct view *view, const struct device *device, uint32_t slot,
             struct fault *fault);

/* Unregisters one slot. False: none was left. */
bool pins_remove_one(struct pins *pins, const struct view *view, const struct device *device);

static inline bool pins_has(const struct pins *pins, uint32_t slot) {
        return pins->slots && pins->slots[slot / 8] & 1u << slot % 8;
}

/* Of `bytes` from `offset` in a slot, how many lie in one piece. A copy must not go across the border of two
 * registrations. */
static inline uint64_t pins_run(const struct pins *pins, uint64_t offset, uint64_t bytes) {
        uint64_t left = pins->slots ? pins->piece - offset % pins->piece : bytes;

        return bytes < left ? bytes : left;
}
