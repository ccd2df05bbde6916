#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job's view of the ring: its geometry, checked, and its mapping, which is read-only but for slots that are
 * just being page-locked (pin.c). */

#include "client/pinfeed.h"
#include "proto/message.h"

#include <stddef.h>
#include <stdint.h>

struct fault;

enum {
        VIEW_PAGE = 4096, /* what slots are counted in, whatever the kernel's are */
};

struct view {
        const uint8_t *base; /* NULL: not mapped */
        size_t mapped;
        uint32_t slots;
        uint32_t slot_rows;
        uint64_t slot_stride;
        uint64_t slot_bytes;
        uint64_t ids_offset;
        uint64_t flags_offset;
        uint32_t n_fields;
        struct pinfeed_field fields[SCHEMA_FIELDS_MAX];
        uint64_t offsets[SCHEMA_FIELDS_MAX];
        char names[SCHEMA_FIELDS_MAX][SCHEMA_NAME_MAX + 1];
        uint8_t *seen; /* a bit for each slot: its pages are populated */
};

/* Checks the geometry against itself and against the file behind `ring`, and maps it. 0, -EPROTO with what is
 * wrong, -ENOMEM. `ring` stays the caller's and may be closed afterwards. */
int view_init(struct view *view, const struct message_attached *attached, int ring, struct fault *fault);
void view_deinit(struct view *view);

/* Makes the slot's pages present, once; with `to_write`, of one that may be written just now, for that. */
void view_populate(struct view *view, uint32_t slot, bool to_write);

/* The first byte of a slot; `slot` must be less than `slots`. */
static inline const uint8_t *view_slot(const struct view *view, uint32_t slot) {
        return view->base + (size_t)slot * view->slot_stride;
}

/* The bytes of a slot in whole pages; no other slot has a part of them. */
static inline uint64_t view_slot_pages(const struct view *view) {
        return (view->slot_bytes + VIEW_PAGE - 1) / VIEW_PAGE * VIEW_PAGE;
}
