/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Which kinds of mapping this driver page-locks, and how long it takes; without a daemon and without
 * libpinfeed, so that what pinfeed does can be compared with what could be done.
 *
 * A kind that is registered is also copied from, after it has been protected against writing where pinfeed
 * would do so, and the bytes that come back are compared: a registration that succeeds and reads something
 * else would be worse than none. */

#include "base/clock.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
        PATTERN_STEP = 4096,
};

struct kind {
        const char *name;
        int open;        /* how the memory's descriptor is opened */
        int protection;  /* of the mapping when it is registered */
        bool protect;    /* it is made PROT_READ afterwards */
        unsigned flags;  /* of cudaHostRegister, besides PORTABLE */
        bool in_dev_shm; /* else a memfd */
};

static const struct kind kinds[] = {
        {"writable", O_RDWR, PROT_READ | PROT_WRITE, false, 0, false},
        {"writable_shm", O_RDWR, PROT_READ | PROT_WRITE, false, 0, true},
        {"then_protected", O_RDWR, PROT_READ | PROT_WRITE, true, 0, false},
        {"protected_before", O_RDWR, PROT_READ, false, 0, false},
        {"read_only", O_RDONLY, PROT_READ, false, 0, false},
        {"read_only_flag", O_RDONLY, PROT_READ, false, CUDA_HOST_REGISTER_READ_ONLY, false},
};

static int make_memory(const struct kind *kind, size_t bytes) {
        char path[64];
        int fd, again;

        if (kind->in_dev_shm) {
                snprintf(path, sizeof(path), "/pinfeed-gpu-%d", (int)getpid());
                fd = shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
                shm_unlink(path);
        } else {
                fd = memfd_create("pinfeed-gpu", MFD_CLOEXEC);
        }
        if (fd < 0 || (errno = posix_fallocate(fd, 0, (off_t)bytes))) {
                close(fd);
                return -1;
        }
        for (size_t at = 0; at < bytes; at += PATTERN_STEP)
                if (pwrite(fd, &at, sizeof(at), (off_t)at) != sizeof(at))
                        fail("writing to the memory failed: %s", strerror(errno));
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        again = open(path, kind->open | O_CLOEXEC);
        close(fd);
        return again;
}

/* By way of the device. */
static bool bytes_arrive(const struct gpu *gpu, cuda_stream stream, const uint8_t *map, size_t bytes) {
        uint8_t *device = gpu_memory(gpu, bytes), *back = gpu_host_memory(gpu, bytes);
        bool same;

        gpu_must(gpu, cudaMemcpyAsync, device, map, bytes, CUDA_MEMCPY_HOST_TO_DEVICE, stream);
        gpu_must(gpu, cudaMemcpyAsync, back, device, bytes, GPU_MEMCPY_DEVICE_TO_HOST, stream);
        gpu_must(gpu, cudaStreamSynchronize, stream);
        same = memcmp(map, back, bytes) == 0;
        gpu_must(gpu, cudaFree, device);
        gpu_must(gpu, cudaFreeHost, back);
        return same;
}

/* "registers" or the error's name. */
static const char *try_map(const struct gpu *gpu, cuda_stream stream, const struct kind *kind, uint8_t *map,
                           size_t bytes) {
        unsigned flags = CUDA_HOST_REGISTER_PORTABLE | kind->flags;
        cuda_error error = gpu->cudaHostRegister(map, bytes, flags);

        if (error)
                return gpu_name(gpu, error);
        if (kind->protect && mprotect(map, bytes, PROT_READ) < 0)
                fail("mprotect failed: %s", strerror(errno));
        if (!bytes_arrive(gpu, stream, map, bytes))
                fail("the mapping '%s' was page-locked, and other bytes came to the GPU", kind->name);
        gpu_must(gpu, cudaHostUnregister, map);
        return "registers";
}

static void try_kind(const struct gpu *gpu, cuda_stream stream, const struct kind *kind, size_t bytes) {
        int fd = make_memory(kind, bytes);
        uint8_t *map = MAP_FAILED;

        if (fd >= 0)
                map = mmap(NULL, bytes, kind->protection, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
                say(kind->name, "no memory: %s", strerror(errno));
                return;
        }
        say(kind->name, "%s", try_map(gpu, stream, kind, map, bytes));
        munmap(map, bytes);
        close(fd);
}

/* Whether one copy may read from two registrations that lie side by side, as pieces of a slot do. */
static void try_border(const struct gpu *gpu, cuda_stream stream, size_t bytes) {
        int fd = make_memory(&kinds[0], bytes);
        uint8_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        uint8_t *device = gpu_memory(gpu, bytes);
        cuda_error error;

        if (map == MAP_FAILED)
                fail("no memory to register: %s", strerror(errno));
        gpu_must(gpu, cudaHostRegister, map, bytes / 2, CUDA_HOST_REGISTER_PORTABLE);
        gpu_must(gpu, cudaHostRegister, map + bytes / 2, bytes / 2, CUDA_HOST_REGISTER_PORTABLE);
        error = gpu->cudaMemcpyAsync(device, map, bytes, CUDA_MEMCPY_HOST_TO_DEVICE, stream);
        say("across_registrations", "%s", error ? gpu_name(gpu, error) : "copies");
        gpu_must(gpu, cudaStreamSynchronize, stream);
        gpu_must(gpu, cudaHostUnregister, map);
        gpu_must(gpu, cudaHostUnregister, map + bytes / 2);
        gpu_must(gpu, cudaFree, device);
        munmap(map, bytes);
        close(fd);
}

/* Seconds a GiB of a mapping whose pages are there. */
static void time_registering(const struct gpu *gpu, size_t bytes) {
        int fd = make_memory(&kinds[0], bytes);
        uint8_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        double gib = (double)bytes / (1 << 30), took;
        uint64_t start;

        if (map == MAP_FAILED)
                fail("no memory to register: %s", strerror(errno));
        start = clock_ns();
        gpu_must(gpu, cudaHostRegister, map, bytes, CUDA_HOST_REGISTER_PORTABLE);
        took = seconds_since(start);
        start = clock_ns();
        gpu_must(gpu, cudaHostUnregister, map);
        say("register_s_per_gib", "%.3f", took / gib);
        say("unregister_s_per_gib", "%.3f", seconds_since(start) / gib);
        munmap(map, bytes);
        close(fd);
}

static void say_limit(void) {
        struct rlimit limit;

        getrlimit(RLIMIT_MEMLOCK, &limit);
        if (limit.rlim_cur == RLIM_INFINITY)
                say("memlock", "unlimited");
        else
                say("memlock", "%llu", (unsigned long long)limit.rlim_cur);
}

void check_maps(const struct measure *measure) {
        cuda_stream stream;
        struct gpu gpu;

        gpu_open(&gpu, measure);
        stream = gpu_stream(&gpu);
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
                try_kind(&gpu, stream, &kinds[i], measure->bytes / 16);
        try_border(&gpu, stream, measure->bytes / 16);
        time_registering(&gpu, measure->bytes);
        say_limit();
        gpu_expect_clean(&gpu);
}
