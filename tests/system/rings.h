#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The rings that a process holds, as the kernel sees them. */

#include "tests/support/harness.h"

#include <check.h>
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        RINGS_BLOCK = 512, /* st_blocks counts these whatever the file system */
};

struct ring_file {
        dev_t device;
        ino_t inode;
        uint64_t bytes; /* really taken */
};

static inline bool rings_is_ring(const char *target) {
        return !strncmp(target, "/dev/shm/pinfeed", 16) || !strncmp(target, "/memfd:pinfeed-ring", 19);
}

/* For harness_wait: no ring has a name in /dev/shm. Each has one for a moment when it is made, also those of
 * the tests that run beside this one. */
static inline bool rings_are_nameless(struct harness *h, void *context) {
        return harness_shm_objects() == 0;
}

/* At most `max` of them, each once however many descriptors it has. Returns how many. */
static inline size_t rings_of(pid_t pid, struct ring_file *rings, size_t max) {
        char path[300], target[256];
        struct dirent *entry;
        struct stat facts;
        size_t n = 0;
        DIR *fds;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        fds = opendir(path);
        ck_assert_ptr_nonnull(fds);
        while ((entry = readdir(fds))) {
                bool known = false;
                ssize_t length;

                snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, entry->d_name);
                length = readlink(path, target, sizeof(target) - 1);
                target[length > 0 ? length : 0] = 0;
                if (!rings_is_ring(target) || stat(path, &facts) < 0)
                        continue;
                for (size_t i = 0; i < n; i++)
                        known |= rings[i].inode == facts.st_ino && rings[i].device == facts.st_dev;
                if (known)
                        continue;
                ck_assert_uint_lt(n, max);
                rings[n++] = (struct ring_file){facts.st_dev, facts.st_ino,
                                                (uint64_t)facts.st_blocks * RINGS_BLOCK};
        }
        closedir(fds);
        return n;
}

/* The only ring of the daemon. */
static inline struct ring_file rings_only(struct harness *h) {
        struct ring_file ring = {};

        ck_assert_uint_eq(rings_of(harness_daemon_pid(h), &ring, 1), 1);
        return ring;
}

/* Bytes of rings that the process has mapped and touched, to the page. */
static inline uint64_t rings_resident_bytes(pid_t pid) {
        char path[64], line[512];
        bool is_ring = false;
        uint64_t bytes = 0;
        FILE *maps;

        snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
        maps = fopen(path, "re");
        ck_assert_ptr_nonnull(maps);
        while (fgets(line, sizeof(line), maps)) {
                const char *target = strchr(line, '/');
                unsigned long long kib;

                if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
                        is_ring = target && rings_is_ring(target);
                else if (is_ring && sscanf(line, "Rss: %llu kB", &kib) == 1)
                        bytes += (uint64_t)kib * 1024;
        }
        fclose(maps);
        return bytes;
}
