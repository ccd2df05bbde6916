/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A slot is registered when its first batch comes, not the ring when the job attaches: 64 GiB take half a
 * minute, and the first batch would wait for the last slot.
 *
 * A registration pins the pages as they are mapped, so they are populated first. It asks for pages that the
 * process may write (the copy engine of most GPUs reads through a mapping made for both), while the mapping
 * as a whole is protected against writing: nothing but accidents would write to it, and they would spoil
 * everybody's batch. So a slot becomes writable for the time of its registration alone. Afterwards its pages
 * are pinned, and what the processor may do to them is of no interest to the device. Devices that can
 * register memory which the process cannot write at all (attribute 113) get it as it is.
 *
 * One call registers a piece at most. When a later piece fails, those before it are unregistered: a slot is
 * registered as a whole or not at all. Registering is then given up for the whole ring, since what a limit
 * has refused once it would refuse for every batch to come; which limit it was nobody says, so the words give
 * the one that can be read, RLIMIT_MEMLOCK. (Drivers differ in whether it counts for them.)
 *
 * The number of registrations is bounded by slots times pieces, and does not grow with batches. */

#include "client/pin.h"

#include "base/fault.h"
#include "base/number.h"
#include "client/device.h"
#include "client/view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

int pins_init(struct pins *pins, const struct view *view, bool read_only, uint64_t piece) {
        *pins = (struct pins){.wanted = true, .read_only = read_only, .piece = piece};
        pins->slots = calloc((view->slots + 7) / 8, 1);
        return pins->slots ? 0 : -ENOMEM;
}

void pins_deinit(struct pins *pins) {
        free(pins->slots);
        *pins = (struct pins){};
}

/* Unregisters the pieces of the slot's first `bytes`. There is nobody to tell of a failure, nor a remedy. */
static void remove_pieces(const struct pins *pins, uint8_t *start, uint64_t bytes,
                          const struct device *device) {
        for (uint64_t offset = 0; offset < bytes; offset += pins->piece)
                (void)device->backend->unpin(device, start + offset, NULL);
}

/* All pieces or none; never one of 0 bytes. */
static int add_pieces(const struct pins *pins, uint8_t *start, uint64_t bytes, const struct device *device,
                      struct fault *fault) {
        for (uint64_t offset = 0; offset < bytes; offset += pins->piece) {
                int r = device->backend->pin(device, start + offset, pins_run(pins, offset, bytes - offset),
                                             pins->read_only, fault);

                if (r < 0) {
                        remove_pieces(pins, start, offset, device);
                        return r;
                }
        }
        return 0;
}

/* Puts in front what was being done, and behind what may be in the way. */
static int explain(const struct pins *pins, const struct view *view, const struct device *device,
                   uint32_t slot, int r, struct fault *fault) {
        char bytes[NUMBER_TEXT_MAX], limit[NUMBER_TEXT_MAX] = "unlimited";
        struct fault why = *fault;
        struct rlimit memlock;

        number_format_bytes(bytes, view->slot_bytes);
        if (getrlimit(RLIMIT_MEMLOCK, &memlock) < 0)
                strcpy(limit, "unknown");
        else if (memlock.rlim_cur != RLIM_INFINITY)
                number_format_bytes(limit, memlock.rlim_cur);
        return fault_set(fault, r,
                         "slot %u (%s) cannot be page-locked for %s, %u are: %s; RLIMIT_MEMLOCK is %s%s",
                         slot, bytes, device->name, pins->n, why.text, limit,
                         strcmp(limit, "unlimited") == 0 ? ", see the kernel's log for the driver's reason"
                                                         : ", raise it with ulimit -l or LimitMEMLOCK=");
}

int pins_add(struct pins *pins, struct view *view, const struct device *device, uint32_t slot,
             struct fault *fault) {
        uint8_t *start = (uint8_t *)view_slot(view, slot);
        uint64_t bytes = view_slot_pages(view);
        int r;

        if (!pins->read_only && mprotect(start, bytes, PROT_READ | PROT_WRITE) < 0) {
                r = fault_set(fault, -errno, "making it writable for that failed: %s", strerror(errno));
                return explain(pins, view, device, slot, r, fault);
        }
        view_populate(view, slot, !pins->read_only);
        r = add_pieces(pins, start, bytes, device, fault);
        if (!pins->read_only && mprotect(start, bytes, PROT_READ) < 0 && r == 0) {
                r = fault_set(fault, -errno, "protecting it again failed: %s", strerror(errno));
                remove_pieces(pins, start, bytes, device);
        }
        if (r < 0)
                return explain(pins, view, device, slot, r, fault);
        pins->slots[slot / 8] |= 1u << slot % 8;
        pins->n++;
        return 0;
}

bool pins_remove_one(struct pins *pins, const struct view *view, const struct device *device) {
        uint32_t slot = 0;

        if (pins->n == 0)
                return false;
        while (!pins_has(pins, slot))
                slot++;
        remove_pieces(pins, (uint8_t *)view_slot(view, slot), view_slot_pages(view), device);
        pins->slots[slot / 8] &= ~(1u << slot % 8);
        pins->n--;
        return true;
}
