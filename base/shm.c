/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A shared memory object has a name only for the moment between its creation and its unlinking. The name is
 * random, so nobody can lie in wait for it, and O_EXCL makes sure that what we got is new. Whoever shall see
 * the memory is handed a descriptor; when the last one is closed the pages are gone, whatever way the
 * processes ended.
 *
 * Space is taken with fallocate and never by ftruncate alone: a file that is merely long lets the first write
 * to a full file system raise SIGBUS, long after the moment at which somebody could have said how much was
 * missing. */

#include "base/shm.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
        SHM_TRIES = 16, /* each meets an existing 64-bit name with a chance of about zero */
};

static int shm_try(const char *prefix) {
        char name[NAME_MAX];
        uint64_t random;
        int fd;

        if (getrandom(&random, sizeof(random), 0) != sizeof(random))
                return -EIO;
        snprintf(name, sizeof(name), "/%.64s-%016llx", prefix, (unsigned long long)random);
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        shm_unlink(name);
        return fd;
}

int shm_create(const char *prefix) {
        int fd = -EEXIST;

        for (int i = 0; i < SHM_TRIES && fd == -EEXIST; i++)
                fd = shm_try(prefix);
        return fd;
}

/* A memfd is born with mode 0777. Whoever is handed a descriptor that was opened for reading could then open
 * the file for writing through /proc/self/fd. */
int shm_create_memfd(const char *name) {
        _cleanup_(fd_closep) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

        return fd < 0 || fchmod(fd, 0600) < 0 ? -errno : fd_take(&fd);
}

int shm_seal_size(int fd) {
        return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ? -errno : 0;
}

int shm_seal_all(int fd) {
        int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

        return fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

int shm_reserve(int fd, uint64_t offset, uint64_t size) {
        if (size == 0)
                return 0;
        if (offset > INT64_MAX || size > INT64_MAX - offset)
                return -EFBIG;
        while (fallocate(fd, 0, (off_t)offset, (off_t)size) < 0)
                if (errno != EINTR)
                        return -errno;
        return 0;
}

int shm_free_bytes(int fd, uint64_t *free_bytes) {
        struct statvfs vfs;

        while (fstatvfs(fd, &vfs) < 0)
                if (errno != EINTR)
                        return -errno;
        /* A tmpfs without a size, and the kernel's own behind memfds, count no blocks at all. */
        if (vfs.f_blocks == 0 ||
            __builtin_mul_overflow((uint64_t)vfs.f_bavail, (uint64_t)vfs.f_frsize, free_bytes))
                *free_bytes = UINT64_MAX;
        return 0;
}
