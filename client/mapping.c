/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a job asks for is in its ATTACH, and depends on the device: one that can register memory which this
 * process may not write needs no more than everybody gets; for all others a descriptor is needed that may
 * write, and the daemon decides who is given one. A job that wants nothing page-locked asks for nothing.
 *
 * Slots are page-locked when their first batch is handed out (pin.c), by the device thread, while the job's
 * waits. The first failure is the last try of this attachment: the slots that are registered stay so, batches
 * in them go to the device directly, all others through buffers (staging.c). Where the caller requires
 * page-locking, the batch stays in the queue and pinfeed_next gives the words, as often as it is called.
 *
 * The daemon hears of each step, so that `status` shows how far it has come and why no further. That is for
 * people: it can wait when the socket is full, and what has changed meanwhile goes in one message. */

#include "client/mapping.h"

#include "base/fault.h"
#include "client/attachment.h"
#include "client/job.h"
#include "client/reaper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(((struct pinfeed_job *)NULL)->map_reason) >= sizeof(struct fault),
               "the words of a failure are a reason");

static int refuse(struct pinfeed_job *job) {
        return fault_set(&job->fault, -ENOTSUP, "pin is require: %s", job->map_reason);
}

/* Whether slots can be page-locked as far as is known now, and the sentence for it. */
static bool decide(struct pinfeed_job *job, const struct message_attached *answer) {
        const char *device = job->device.name;
        char *reason = job->map_reason;
        size_t size = sizeof(job->map_reason);

        if (job->pin == PINFEED_PIN_NEVER) {
                snprintf(reason, size, "pin is never");
                return false;
        }
        if (job->device.registers_read_only) {
                snprintf(reason, size,
                         "slots are page-locked for %s when their first batch comes, and stay read-only",
                         device);
                return true;
        }
        if (answer->map == MESSAGE_MAP_PINNED) {
                snprintf(reason, size, "slots are page-locked for %s when their first batch comes", device);
                return true;
        }
        snprintf(reason, size, "%s",
                 *answer->map_reason ? answer->map_reason
                                     : "pinfeedd grants no mapping that can be page-locked");
        return false;
}

int mapping_begin(struct pinfeed_job *job, const struct message_attached *answer) {
        struct attachment *attachment = job->current;
        int r;

        if (!job->reaper)
                return 0;
        if (!decide(job, answer)) {
                attachment->pins.untold = true;
                return job->pin == PINFEED_PIN_REQUIRE ? refuse(job) : 0;
        }
        r = pins_init(&attachment->pins, &attachment->view, job->device.registers_read_only, pin_piece());
        return r < 0 ? fault_set(&job->fault, r, "out of memory") : 0;
}

/* ---- the slots of a batch ---- */

static bool is_registered(const struct pinfeed_batch *batch) {
        const struct batch_segment *segments = batch_segments(batch);

        for (uint32_t i = 0; i < batch->n_segments; i++)
                if (!pins_has(&batch->attachment->pins, segments[i].slot))
                        return false;
        return true;
}

/* By the device thread. */
static int register_slots(struct reaper *reaper, void *context, struct fault *fault) {
        const struct pinfeed_batch *batch = context;
        const struct batch_segment *segments = batch_segments(batch);
        struct attachment *attachment = batch->attachment;
        int r = 0;

        for (uint32_t i = 0; i < batch->n_segments && r == 0; i++)
                if (!pins_has(&attachment->pins, segments[i].slot))
                        r = pins_add(&attachment->pins, &attachment->view, &attachment->job->device,
                                     segments[i].slot, fault);
        return r;
}

/* 0: they are, or it is given up; -EXDEV: it was not tried. */
static int try_to_register(struct pinfeed_job *job, struct pinfeed_batch *batch) {
        struct attachment *attachment = batch->attachment;
        struct pins *pins = &attachment->pins;
        uint32_t before = pins->n;
        int r;

        r = reaper_call(job->reaper, register_slots, batch, &job->fault);
        if (r == -EXDEV)
                return r;
        if (before == 0 && pins->n > 0)
                attachment_ref_device(attachment);
        pins->untold = true;
        if (r < 0) {
                pins->wanted = false;
                strcpy(job->map_reason, job->fault.text);
                job->fault.text[0] = 0;
        }
        return 0;
}

int mapping_prepare(struct pinfeed_job *job, struct pinfeed_batch *batch) {
        int r = 0;

        if (!job->reaper)
                return 0;
        batch->registered = is_registered(batch);
        if (batch->attachment->pins.wanted && !batch->registered) {
                r = try_to_register(job, batch);
                mapping_tell(job);
                batch->registered = is_registered(batch);
        }
        if (r == 0 && job->pin == PINFEED_PIN_REQUIRE && !batch->registered)
                return refuse(job);
        return r;
}

/* ---- the daemon ---- */

bool mapping_is_news(const struct pinfeed_job *job) {
        return job->current->pins.untold;
}

void mapping_tell(struct pinfeed_job *job) {
        struct pins *pins = &job->current->pins;
        struct message_mapped *mapped = &job->message.mapped;
        int r;

        if (!pins->untold)
                return;
        job->message.type = MESSAGE_MAPPED;
        mapped->map = pins->wanted ? MESSAGE_MAP_PINNED : MESSAGE_MAP_READ_ONLY;
        mapped->registered = pins->n;
        fault_sanitize(mapped->reason, sizeof(mapped->reason), job->map_reason, strlen(job->map_reason));
        r = message_send(job->current->socket, &job->message, NULL, 0);
        pins->untold = r == -EAGAIN || r == -ENOBUFS;
}
