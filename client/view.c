/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon says where everything lies, once, in ATTACHED. It is believed only as far as it can be checked:
 * parts in order and without overlap inside a slot, slots inside the file as large as it really is. After
 * that a batch message is checked against slots and rows alone (job.c), and no pointer that follows from it
 * can leave the mapping.
 *
 * The whole ring is mapped in one piece when the job attaches, so that no batch costs a mapping. The pages
 * are there (the daemon reserved them), but the first touch of each is a fault in this process; the kernel
 * fills in a slot's pages with one call at its first handle, which is several times cheaper, and is never
 * called for that slot again.
 *
 * The mapping is read-only whatever the descriptor allows. One that may write is for pin.c alone. */

#include "client/view.h"

#include "base/fault.h"
#include "base/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22 /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

_Static_assert((int)PINFEED_UINT8 == (int)SCHEMA_UINT8 && (int)PINFEED_FLOAT64 == (int)SCHEMA_FLOAT64,
               "the public numbers are those of the wire");
_Static_assert((int)PINFEED_DIMS_MAX == (int)SCHEMA_DIMS_MAX, "the public limit is that of the wire");

/* Takes [offset, offset + bytes) of the slot, which must lie behind everything before it and be aligned. */
static int view_take(uint64_t *end, uint64_t offset, uint64_t bytes, uint64_t align,
                     const struct message_attached *a) {
        uint64_t stop;

        if (offset < *end || offset % align || !number_add_u64(offset, bytes, &stop) || stop > a->slot_bytes)
                return -EPROTO;
        *end = stop;
        return 0;
}

static int view_init_field(struct view *view, uint32_t index, const struct message_attached *attached,
                           uint64_t *end) {
        const struct message_field *from = &attached->field[index];
        struct pinfeed_field *field = &view->fields[index];
        uint64_t size = schema_dtype_size(from->dtype);
        uint64_t bytes = size;

        if (!size || (from->order == SCHEMA_CHANNELS_LAST && from->n_shape != 3))
                return -EPROTO;
        for (uint32_t i = 0; i < from->n_shape; i++) {
                if (!number_multiply_u64(bytes, from->shape[i], &bytes))
                        return -EPROTO;
                field->shape[i] = from->shape[i];
        }
        field->row_bytes = bytes;
        if (!number_multiply_u64(bytes, attached->slot_rows, &bytes) || bytes != from->capacity)
                return -EPROTO;

        memcpy(view->names[index], from->name, sizeof(view->names[index]));
        field->name = view->names[index];
        field->dtype = (enum pinfeed_dtype)from->dtype;
        field->channels_last = from->order == SCHEMA_CHANNELS_LAST;
        field->n_dims = from->n_shape;
        view->offsets[index] = from->offset;
        return view_take(end, from->offset, bytes, size, attached);
}

/* Fields, then ids, then flags, all inside a slot. */
static int view_init_slot(struct view *view, const struct message_attached *attached, struct fault *fault) {
        uint64_t end = 0;
        uint64_t rows = attached->slot_rows;

        for (uint32_t i = 0; i < attached->n_field; i++)
                if (view_init_field(view, i, attached, &end) < 0)
                        return fault_set(fault, -EPROTO,
                                         "the daemon's layout of field '%s' does not hold together",
                                         attached->field[i].name);
        if (view_take(&end, attached->ids_offset, rows * sizeof(int64_t), sizeof(int64_t), attached) < 0 ||
            view_take(&end, attached->flags_offset, rows, 1, attached) < 0)
                return fault_set(fault, -EPROTO,
                                 "the daemon's layout of sample numbers and flags does not hold together");
        return 0;
}

/* The bytes that the ring's file must have. */
static int view_measure(struct view *view, const struct message_attached *attached, int ring, uint64_t *bytes,
                        struct fault *fault) {
        struct stat status;

        if (attached->slot_bytes > attached->slot_stride || attached->slot_stride % VIEW_PAGE ||
            !number_multiply_u64(attached->slot_stride, attached->slots - 1, bytes) ||
            !number_add_u64(*bytes, attached->slot_bytes, bytes) || *bytes > PTRDIFF_MAX)
                return fault_set(fault, -EPROTO,
                                 "the daemon's %u slots of %llu bytes every %llu bytes do not hold together",
                                 attached->slots, (unsigned long long)attached->slot_bytes,
                                 (unsigned long long)attached->slot_stride);
        if (fstat(ring, &status) < 0)
                return fault_set(fault, -errno, "the ring's descriptor cannot be used: %s", strerror(errno));
        if (status.st_size < 0 || (uint64_t)status.st_size < *bytes)
                return fault_set(fault, -EPROTO, "the ring has %lld bytes, its %u slots need %llu",
                                 (long long)status.st_size, attached->slots, (unsigned long long)*bytes);
        return 0;
}

int view_init(struct view *view, const struct message_attached *attached, int ring, struct fault *fault) {
        uint64_t bytes = 0;
        void *base;
        int r;

        view->slots = attached->slots;
        view->slot_rows = attached->slot_rows;
        view->slot_stride = attached->slot_stride;
        view->slot_bytes = attached->slot_bytes;
        view->ids_offset = attached->ids_offset;
        view->flags_offset = attached->flags_offset;
        view->n_fields = attached->n_field;

        r = view_init_slot(view, attached, fault);
        if (r < 0)
                return r;
        r = view_measure(view, attached, ring, &bytes, fault);
        if (r < 0)
                return r;

        view->seen = calloc((attached->slots + 7) / 8, 1);
        if (!view->seen)
                return fault_set(fault, -ENOMEM, "out of memory");
        base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, ring, 0);
        if (base == MAP_FAILED)
                return fault_set(fault, -errno, "mapping the ring of %llu bytes failed: %s",
                                 (unsigned long long)bytes, strerror(errno));
        view->base = base;
        view->mapped = bytes;
        return 0;
}

void view_deinit(struct view *view) {
        if (view->base)
                munmap((void *)view->base, view->mapped);
        free(view->seen);
        view->base = NULL;
        view->seen = NULL;
}

void view_populate(struct view *view, uint32_t slot, bool to_write) {
        uint8_t bit = 1u << slot % 8;

        if (view->seen[slot / 8] & bit)
                return;
        view->seen[slot / 8] |= bit;
        /* Only saves faults; a kernel without it says EINVAL and the touches do the same work. */
        (void)madvise((void *)view_slot(view, slot), view->slot_bytes,
                      to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}
