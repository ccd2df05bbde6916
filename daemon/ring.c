/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The ring's memory.
 *
 * A tmpfs file whose size was merely set raises SIGBUS in whoever touches it first when the file system is
 * full, in a worker or in a trainer, hours later. So every slot is reserved (fallocate) before anybody sees
 * it, and want of space is an error here and now, with both numbers. Zeroing 64 GiB takes half a minute,
 * hence the steps: the daemon reserves RING_RESERVE_STEP bytes, returns to its loop, and answers whoever asks
 * in between.
 *
 * The file has no name: a POSIX object is unlinked before shm_create returns, a memfd never had one. Whatever
 * kills the daemon, the kernel frees the memory with the last descriptor and mapping. Clients get a second
 * descriptor that was opened read-only: the kernel refuses them a writable mapping. Those that may page-lock
 * the ring for a GPU get the workers' (map.c).
 *
 * Slots lie slot_stride apart (2 MiB boundaries); only slot_bytes of each are reserved, the holes between are
 * never touched by anybody.
 *
 * Free space is what the file system has left and what the machine has left: a memfd lives in a file system
 * without a limit of its own, and taking more than the machine has wakes the OOM killer. */

#include "daemon/ring.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/number.h"
#include "base/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *ring_backing_name(const struct ring *ring) {
        if (ring->fd < 0)
                return NULL;
        return ring->backing == CONFIG_BACKING_SHM ? "shm" : "memfd";
}

/* MemAvailable of /proc/meminfo in bytes; UINT64_MAX where it cannot be read. */
static uint64_t memory_available(void) {
        _cleanup_(fd_closep) int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
        char text[4096];
        const char *line;
        uint64_t kib;
        ssize_t n;

        if (fd < 0)
                return UINT64_MAX;
        n = fd_pread_full(fd, text, sizeof(text) - 1, 0);
        if (n <= 0)
                return UINT64_MAX;
        text[n] = 0;
        line = strstr(text, "MemAvailable:");
        if (!line || sscanf(line, "MemAvailable: %" SCNu64, &kib) != 1)
                return UINT64_MAX;
        return kib * 1024;
}

static uint64_t free_bytes_of(int fd) {
        uint64_t memory = memory_available(), bytes;

        if (shm_free_bytes(fd, &bytes) < 0 || bytes > memory)
                return memory;
        return bytes;
}

static int refuse(const struct ring *ring, const struct config *config,
                  const struct config_pipeline *pipeline, uint64_t needed, uint64_t available,
                  struct fault *fault) {
        char text[3][NUMBER_TEXT_MAX];

        return fault_set(fault, -ENOSPC,
                         "pipeline %s: the ring needs %" PRIu64 " bytes (%s, %" PRIu32
                         " slots of %s), %s has %" PRIu64
                         " bytes free (%s); set a smaller `ring:` or `slots:` at %s:%u%s",
                         pipeline->name, needed, number_format_bytes(text[0], needed), ring->slots,
                         number_format_bytes(text[1], ring->slot_bytes),
                         ring->backing == CONFIG_BACKING_SHM ? "/dev/shm" : "memory", available,
                         number_format_bytes(text[2], available), config->file, pipeline->ring_line,
                         pipeline->backing == CONFIG_BACKING_SHM ? ", or `backing: auto`" : "");
}

/* Of two backings the one that lacks less counts. */
static void note_missing(struct ring *ring, uint64_t missing) {
        if (ring->missing == 0 || missing < ring->missing)
                ring->missing = missing;
}

/* The number of slots when nobody said one: the default, but at most half of what is free. */
static uint32_t default_slots(const struct config_pipeline *pipeline, uint64_t available) {
        uint64_t fitting = available / 2 / pipeline->schema.slot_bytes;

        if (fitting >= pipeline->n_slots)
                return pipeline->n_slots;
        return fitting < CONFIG_SLOTS_LEAST ? CONFIG_SLOTS_LEAST : (uint32_t)fitting;
}

/* Makes the file on one backing. -ENOSPC when it cannot hold the ring. */
static int create(struct ring *ring, const struct config *config, const struct config_pipeline *pipeline,
                  struct fault *fault) {
        bool shm = ring->backing == CONFIG_BACKING_SHM;
        _cleanup_(fd_closep) int fd = -1;
        uint64_t available, size;
        int r;

        fd = shm ? shm_create("pinfeed") : shm_create_memfd("pinfeed-ring");
        if (fd < 0)
                return fault_set(fault, fd, "pipeline %s: cannot create the ring %s: %s", pipeline->name,
                                 shm ? "in /dev/shm" : "as a memfd", strerror(-fd));
        available = free_bytes_of(fd);
        ring->slots =
                pipeline->slots || pipeline->ring ? pipeline->n_slots : default_slots(pipeline, available);
        if (ring_bytes(ring) > available) {
                note_missing(ring, ring_bytes(ring) - available);
                return refuse(ring, config, pipeline, ring_bytes(ring), available, fault);
        }
        r = schema_ring_bytes(&pipeline->schema, ring->slots, &size);
        if (r < 0 || size > INT64_MAX)
                return fault_set(fault, -EOVERFLOW, "pipeline %s: the ring is larger than a file can be",
                                 pipeline->name);
        if (ftruncate(fd, (off_t)size) < 0)
                return fault_set(fault, -errno, "pipeline %s: cannot size the ring: %s", pipeline->name,
                                 strerror(errno));
        if (!shm && (r = shm_seal_size(fd)) < 0)
                return fault_set(fault, r, "pipeline %s: cannot seal the ring: %s", pipeline->name,
                                 strerror(-r));
        ring->fd_readonly = fd_reopen_readonly(fd);
        if (ring->fd_readonly < 0)
                return fault_set(fault, ring->fd_readonly, "pipeline %s: cannot open the ring read-only: %s",
                                 pipeline->name, strerror(-ring->fd_readonly));
        ring->fd = fd_take(&fd);
        return 0;
}

int ring_init(struct ring *ring, const struct config *config, const struct config_pipeline *pipeline,
              struct fault *fault) {
        int r;

        *ring = (struct ring)RING_INIT;
        ring->slot_bytes = pipeline->schema.slot_bytes;
        ring->slot_stride = pipeline->schema.slot_stride;
        ring->backing = pipeline->backing == CONFIG_BACKING_MEMFD ? CONFIG_BACKING_MEMFD : CONFIG_BACKING_SHM;
        r = create(ring, config, pipeline, fault);
        if (r < 0 && pipeline->backing == CONFIG_BACKING_AUTO) {
                ring->backing = CONFIG_BACKING_MEMFD;
                r = create(ring, config, pipeline, fault);
        }
        return r;
}

int ring_reserve(struct ring *ring, const struct config *config, const struct config_pipeline *pipeline,
                 bool *finished, struct fault *fault) {
        uint64_t budget = RING_RESERVE_STEP;

        while (budget > 0 && ring->reserved < ring_bytes(ring)) {
                uint64_t slot = ring->reserved / ring->slot_bytes;
                uint64_t within = ring->reserved % ring->slot_bytes;
                uint64_t n = ring->slot_bytes - within < budget ? ring->slot_bytes - within : budget;
                int r = shm_reserve(ring->fd, slot * ring->slot_stride + within, n);

                if (r == -ENOSPC)
                        return refuse(ring, config, pipeline, ring_bytes(ring),
                                      ring->reserved + free_bytes_of(ring->fd), fault);
                if (r < 0)
                        return fault_set(fault, r, "pipeline %s: cannot reserve the ring: %s", pipeline->name,
                                         strerror(-r));
                ring->reserved += n;
                budget -= n;
        }
        *finished = ring->reserved == ring_bytes(ring);
        return 0;
}

void ring_deinit(struct ring *ring) {
        fd_closep(&ring->fd);
        fd_closep(&ring->fd_readonly);
        *ring = (struct ring)RING_INIT;
}
