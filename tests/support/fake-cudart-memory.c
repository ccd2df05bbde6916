/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Memory of the fake CUDA runtime. Device memory is a memfd that is mapped twice: once at the address that
 * the program gets, where nothing may be touched, and once where streams write. So a host that reads through
 * a device pointer dies at once, as it would with a GPU, and nothing has to be opened and closed around
 * copies. It is poisoned when it is allocated, as page-locked memory is.
 *
 * Registering locks nothing. What can be known about a range is looked up in /proc/self/maps: that it is
 * there, that it may be written (or is registered as read-only), that it is no private mapping of a file,
 * whose locked pages would be a stale copy; and when it is unregistered, that the same thing is still there.
 */

#include "tests/support/fake-cudart-internal.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
        POISON_DEVICE = 0xdb,
        POISON_HOST = 0xdc,
        HASH_LINES = 256, /* samples of what is too large to be read as a whole */
        HASH_LINE = 64,
        NO_DEVICE = -2,     /* cudaInvalidDeviceId */
        MOVE_MAX = 1 << 30, /* in one system call, which ends at 2 GiB */
};

static struct region *regions;

/* ---- what is where ---- */

static bool overlaps(const struct region *region, const void *start, size_t bytes) {
        return (uintptr_t)start < (uintptr_t)region->start + region->bytes &&
               (uintptr_t)region->start < (uintptr_t)start + bytes;
}

static bool contains(const struct region *region, const void *start, size_t bytes) {
        return (uintptr_t)start >= (uintptr_t)region->start &&
               (uintptr_t)start + bytes <= (uintptr_t)region->start + region->bytes;
}

static struct region *find_overlap(const void *start, size_t bytes) {
        for (struct region *region = regions; region; region = region->next)
                if (overlaps(region, start, bytes))
                        return region;
        return NULL;
}

static struct region *find_start(const void *start, enum region_kind kind) {
        for (struct region *region = regions; region; region = region->next)
                if (region->kind == kind && region->start == start)
                        return region;
        return NULL;
}

static struct region *region_add(enum region_kind kind, void *start, size_t bytes) {
        struct region *region = must_allocate(sizeof(*region));

        *region = (struct region){
                .next = regions, .kind = kind, .device = thread.device, .start = start, .bytes = bytes};
        regions = region;
        return region;
}

static void region_remove(struct region *region) {
        struct region **link = &regions;

        while (*link != region)
                link = &(*link)->next;
        *link = region->next;
        free(region);
}

enum host_memory memory_of_host(const void *start, size_t bytes) {
        const uint8_t *at = start;
        const struct region *region = find_overlap(start, bytes);

        if (!region)
                return HOST_PAGEABLE;
        if (region->kind != REGION_DEVICE && contains(region, start, bytes))
                return HOST_LOCKED;
        if (!runtime.settings.across)
                return HOST_MIXED;
        while (at < (const uint8_t *)start + bytes) {
                region = find_overlap(at, 1);
                if (!region || region->kind == REGION_DEVICE)
                        return HOST_MIXED;
                at = region->start + region->bytes;
        }
        return HOST_LOCKED;
}

bool memory_is_device(const void *start, size_t bytes) {
        const struct region *region = find_overlap(start, bytes);

        return region && region->kind == REGION_DEVICE;
}

void *memory_alias(const void *start, size_t bytes, bool device) {
        const struct region *region;

        if (!device)
                return (void *)start;
        region = find_overlap(start, bytes);
        if (!region || region->kind != REGION_DEVICE || !contains(region, start, bytes))
                return NULL;
        return region->alias + ((const uint8_t *)start - region->start);
}

const void *fake_cuda_see(const void *device_pointer) {
        const void *alias;

        pthread_mutex_lock(&runtime.lock);
        alias = memory_alias(device_pointer, 1, true);
        pthread_mutex_unlock(&runtime.lock);
        return alias;
}

/* ---- moving and comparing ---- */

/* The kernel does it, which finds out by itself what is not there. */
bool memory_move(void *to, const void *from, size_t bytes) {
        size_t done = 0;

        while (done < bytes) {
                size_t n = bytes - done < MOVE_MAX ? bytes - done : MOVE_MAX;
                struct iovec here = {.iov_base = (uint8_t *)to + done, .iov_len = n};
                struct iovec there = {.iov_base = (uint8_t *)from + done, .iov_len = n};
                ssize_t moved = process_vm_readv(getpid(), &here, 1, &there, 1, 0);

                if (moved < 0 && (errno == ENOSYS || errno == EPERM)) {
                        memcpy(here.iov_base, there.iov_base, n); /* a sandbox without the call */
                        moved = (ssize_t)n;
                }
                if (moved <= 0)
                        return false;
                done += (size_t)moved;
        }
        return true;
}

static uint64_t hash_line(uint64_t hash, const uint8_t *line, size_t bytes) {
        uint64_t word;

        for (; bytes >= sizeof(word); line += sizeof(word), bytes -= sizeof(word)) {
                memcpy(&word, line, sizeof(word));
                hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
                hash ^= hash >> 29;
        }
        while (bytes-- > 0)
                hash = (hash ^ *line++) * UINT64_C(0x100000001b3);
        return hash;
}

uint64_t memory_hash(const void *start, size_t bytes) {
        const uint8_t *line = start;
        uint64_t hash = bytes;
        size_t step;

        if (bytes <= runtime.settings.hash || bytes <= (size_t)HASH_LINES * HASH_LINE)
                return hash_line(hash, line, bytes);
        step = (bytes - HASH_LINE) / (HASH_LINES - 1);
        for (unsigned i = 0; i < HASH_LINES; i++)
                hash = hash_line(hash, line + i * step, HASH_LINE);
        return hash;
}

/* ---- device memory ---- */

static uint64_t device_room(void) {
        uint64_t used = runtime.devices[thread.device].bytes;

        return runtime.settings.memory > used ? runtime.settings.memory - used : 0;
}

cuda_error run_cudaMemGetInfo(size_t *unused, size_t *total) {
        *unused = device_room();
        *total = runtime.settings.memory;
        return CUDA_SUCCESS;
}

cuda_error run_cudaMalloc(void **start, size_t bytes) {
        int fd _cleanup_(fd_closep) = -1;
        struct region *region;
        void *address, *alias;

        *start = NULL;
        if (bytes == 0)
                return CUDA_SUCCESS;
        if (bytes > device_room())
                return FAKE_CUDA_OUT_OF_MEMORY;
        fd = memfd_create("fake-device-memory", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
                return FAKE_CUDA_OUT_OF_MEMORY;
        alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        address = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
        if (alias == MAP_FAILED || address == MAP_FAILED)
                return FAKE_CUDA_OUT_OF_MEMORY;
        memset(alias, POISON_DEVICE, bytes);
        region = region_add(REGION_DEVICE, address, bytes);
        region->alias = alias;
        runtime.devices[region->device].bytes += bytes;
        runtime.figures.device_allocations++;
        runtime.figures.device_bytes += bytes;
        *start = address;
        return CUDA_SUCCESS;
}

/* Waits for all work, as the real one does; so nothing that is queued ever meets freed memory. */
cuda_error run_cudaFree(void *start) {
        struct region *region;

        if (!start)
                return CUDA_SUCCESS;
        stream_drain(-1);
        region = find_start(start, REGION_DEVICE);
        if (!region) {
                violation("cudaFree of %p, which cudaMalloc did not give", start);
                return FAKE_CUDA_INVALID_VALUE;
        }
        munmap(region->start, region->bytes);
        munmap(region->alias, region->bytes);
        runtime.devices[region->device].bytes -= region->bytes;
        runtime.figures.device_allocations--;
        runtime.figures.device_bytes -= region->bytes;
        region_remove(region);
        return CUDA_SUCCESS;
}

/* ---- page-locked memory of the runtime's own ---- */

cuda_error run_cudaHostAlloc(void **start, size_t bytes, unsigned flags) {
        void *address;

        *start = NULL;
        if (bytes == 0) {
                violation("cudaHostAlloc of 0 bytes");
                return CUDA_SUCCESS;
        }
        address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (address == MAP_FAILED)
                return FAKE_CUDA_OUT_OF_MEMORY;
        memset(address, POISON_HOST, bytes);
        region_add(REGION_HOST, address, bytes);
        runtime.figures.host_allocations++;
        *start = address;
        return CUDA_SUCCESS;
}

cuda_error run_cudaFreeHost(void *start) {
        struct region *region;
        unsigned pending;

        if (!start)
                return CUDA_SUCCESS;
        region = find_start(start, REGION_HOST);
        if (!region) {
                violation("cudaFreeHost of %p, which cudaHostAlloc did not give", start);
                return FAKE_CUDA_INVALID_VALUE;
        }
        pending = stream_copies_of(region->start, region->bytes);
        if (pending > 0)
                violation("cudaFreeHost of %p while queued copies need it: %u", start, pending);
        stream_drain(-1);
        munmap(region->start, region->bytes);
        runtime.figures.host_allocations--;
        region_remove(region);
        return CUDA_SUCCESS;
}

/* ---- registrations ---- */

/* One line of /proc/self/maps that touches the range. */
static void mapping_take(struct mapping *mapping, bool first, uint64_t lead, const char mode[5],
                         uint64_t offset, const uint64_t file[2]) {
        bool named = file[1] != 0;

        if (first) {
                *mapping = (struct mapping){.device = file[0], .inode = file[1], .writable = true};
                mapping->offset = named ? offset + lead : 0;
        }
        mapping->writable = mapping->writable && mode[1] == 'w';
        mapping->private_file = mapping->private_file || (named && mode[3] == 'p');
}

/* False: a part of the range is not mapped. */
static bool mapping_find(const void *start, size_t bytes, struct mapping *mapping) {
        FILE *maps = fopen("/proc/self/maps", "re");
        uint64_t at = (uintptr_t)start, end = at + bytes, from, to, offset, inode;
        unsigned major, minor;
        char line[512], mode[5];

        if (!maps)
                abort();
        while (at < end && fgets(line, sizeof(line), maps)) {
                if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &from, &to, mode,
                           &offset, &major, &minor, &inode) != 7 ||
                    to <= at)
                        continue;
                if (from > at)
                        break;
                mapping_take(mapping, at == (uintptr_t)start, at - from, mode, offset,
                             (uint64_t[]){(uint64_t)major << 32 | minor, inode});
                at = to;
        }
        fclose(maps);
        return at >= end;
}

static cuda_error check_range(void *start, size_t bytes, unsigned flags, struct mapping *mapping) {
        const struct region *other = find_overlap(start, bytes);

        if (other) {
                violation("cudaHostRegister of %zu bytes at %p, where %zu bytes at %p are known already",
                          bytes, start, other->bytes, (void *)other->start);
                return FAKE_CUDA_ALREADY_REGISTERED;
        }
        if (!mapping_find(start, bytes, mapping)) {
                violation("cudaHostRegister of %zu bytes at %p, which are not all mapped", bytes, start);
                return FAKE_CUDA_INVALID_VALUE;
        }
        if (mapping->private_file) {
                violation("cudaHostRegister of a private mapping of a file at %p", start);
                return FAKE_CUDA_INVALID_VALUE;
        }
        if (!mapping->writable && !(flags & CUDA_HOST_REGISTER_READ_ONLY)) {
                violation("cudaHostRegister of %p, which may not be written", start);
                return FAKE_CUDA_INVALID_VALUE;
        }
        return CUDA_SUCCESS;
}

/* A registration takes its time, in which other threads go on. */
static void register_slowly(void) {
        uint64_t us = runtime.settings.register_us;

        if (us == 0)
                return;
        pthread_mutex_unlock(&runtime.lock);
        usleep((useconds_t)us);
        pthread_mutex_lock(&runtime.lock);
}

static bool over_limits(size_t bytes) {
        const struct settings *settings = &runtime.settings;
        const struct fake_cuda_figures *now = &runtime.figures;

        return bytes > settings->register_max || now->registrations >= settings->registrations_max ||
               bytes > settings->registered_max || now->registered_bytes > settings->registered_max - bytes;
}

static void count_registration(size_t bytes) {
        struct fake_cuda_figures *now = &runtime.figures;

        now->registrations++;
        now->registrations_made++;
        now->registered_bytes += bytes;
        if (now->registrations > now->registrations_most)
                now->registrations_most = now->registrations;
        if (now->registered_bytes > now->registered_bytes_most)
                now->registered_bytes_most = now->registered_bytes;
}

cuda_error run_cudaHostRegister(void *start, size_t bytes, unsigned flags) {
        struct mapping mapping = {0};
        cuda_error error;

        if (!start || bytes == 0) {
                violation("cudaHostRegister of %zu bytes at %p", bytes, start);
                return FAKE_CUDA_INVALID_VALUE;
        }
        if (flags & CUDA_HOST_REGISTER_READ_ONLY && !runtime.settings.read_only)
                return FAKE_CUDA_NOT_SUPPORTED;
        register_slowly();
        error = check_range(start, bytes, flags, &mapping);
        if (error)
                return error;
        if (over_limits(bytes))
                return FAKE_CUDA_OUT_OF_MEMORY;
        region_add(REGION_REGISTERED, start, bytes)->mapping = mapping;
        count_registration(bytes);
        return CUDA_SUCCESS;
}

cuda_error run_cudaHostUnregister(void *start) {
        struct region *region = find_start(start, REGION_REGISTERED);
        struct mapping now = {0};
        unsigned pending;

        if (!region) {
                violation("cudaHostUnregister of %p, which is not registered", start);
                return FAKE_CUDA_NOT_REGISTERED;
        }
        pending = stream_copies_of(region->start, region->bytes);
        if (pending > 0)
                violation("cudaHostUnregister of %p while queued copies need it: %u", start, pending);
        if (!mapping_find(region->start, region->bytes, &now) || now.device != region->mapping.device ||
            now.inode != region->mapping.inode || now.offset != region->mapping.offset)
                violation("%zu bytes at %p were unmapped while they were registered", region->bytes, start);
        runtime.figures.registrations--;
        runtime.figures.registered_bytes -= region->bytes;
        region_remove(region);
        return CUDA_SUCCESS;
}

/* ---- what a pointer is ---- */

cuda_error run_cudaPointerGetAttributes(struct cuda_pointer_attributes *attributes, const void *pointer) {
        bool larger = runtime.settings.version >= 13000;
        const struct region *region = find_overlap(pointer, 1);

        memset(attributes, 0,
               larger ? sizeof(*attributes) : offsetof(struct cuda_pointer_attributes, reserved));
        attributes->device = region ? region->device : NO_DEVICE;
        attributes->host_pointer = (void *)pointer;
        if (!region)
                return CUDA_SUCCESS;
        attributes->type = region->kind == REGION_DEVICE ? FAKE_CUDA_MEMORY_DEVICE : FAKE_CUDA_MEMORY_HOST;
        attributes->device_pointer = (void *)pointer;
        if (region->kind == REGION_DEVICE)
                attributes->host_pointer = NULL;
        return CUDA_SUCCESS;
}
