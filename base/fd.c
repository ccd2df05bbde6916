/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Reads and writes name their offset, so that several threads or processes may share a descriptor: nobody
 * moves a file position that somebody else relies on. */

#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

ssize_t fd_pread_full(int fd, void *to, size_t size, uint64_t offset) {
        size_t done = 0;

        while (done < size) {
                ssize_t n = pread(fd, (char *)to + done, size - done, (off_t)(offset + done));

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                done += (size_t)n;
        }
        return (ssize_t)done;
}

int fd_pwrite_full(int fd, const void *from, size_t size, uint64_t offset) {
        size_t done = 0;

        while (done < size) {
                ssize_t n = pwrite(fd, (const char *)from + done, size - done, (off_t)(offset + done));

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                done += (size_t)n;
        }
        return 0;
}

int fd_set_nonblocking(int fd, int on) {
        int flags = fcntl(fd, F_GETFL);

        if (flags < 0)
                return -errno;
        flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
        return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

int fd_count(void) {
        DIR *directory = opendir("/proc/self/fd");
        int count = 0;

        if (!directory)
                return -errno;
        for (struct dirent *entry; (entry = readdir(directory));)
                count += entry->d_name[0] != '.';
        closedir(directory);
        return count - 1; /* the directory's own */
}

int fd_reopen_readonly(int fd) {
        char path[32];
        int opened;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        opened = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        return opened < 0 ? -errno : opened;
}
