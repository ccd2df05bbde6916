/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What pinfeed needs of the kernel. A version number says little: containers refuse calls that the kernel
 * has, and distributions add some that it had not. So each is tried, in a way that leaves nothing. */

#include "client/ctl/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

/* 0, or what the system call failed with. */
static int try_memfd(void) {
        int fd = memfd_create("pinfeed-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        int error = fd < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0 ? errno : 0;

        if (fd >= 0)
                close(fd);
        return error;
}

static int try_pidfd(void) {
        int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

        if (fd < 0)
                return errno;
        close(fd);
        return 0;
}

static int try_peer_pidfd(void) {
        socklen_t size = sizeof(int);
        int ends[2], pidfd = -1, error;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return errno;
        error = getsockopt(ends[0], SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) < 0 ? errno : 0;
        if (error == 0 && pidfd >= 0)
                close(pidfd);
        close(ends[0]);
        close(ends[1]);
        return error;
}

static int try_populate(void) {
        size_t size = (size_t)sysconf(_SC_PAGESIZE);
        void *page = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int error;

        if (page == MAP_FAILED)
                return errno;
        error = madvise(page, size, MADV_POPULATE_READ) < 0 ? errno : 0;
        munmap(page, size);
        return error;
}

static const struct facility {
        const char *name;
        int (*try)(void);
        enum doctor_level level; /* of its absence */
        const char *since;
        const char *without;
        const char *remedy;
} facilities[] = {
        {"memfd_create", try_memfd, DOCTOR_WARNING, "3.17",
         "a ring that has no room in /dev/shm has no other place, and no job of another user may pin one",
         "allow memfd_create in the container's seccomp profile, and set sysctl vm.memfd_noexec to 0 or 1"},
        {"pidfd_open", try_pidfd, DOCTOR_WARNING, "5.3",
         "the end of a job is seen by its socket only, which a child of it may keep open",
         "allow pidfd_open in the container's seccomp profile"},
        {"SO_PEERPIDFD", try_peer_pidfd, DOCTOR_OK, "6.5", "pidfd_open is used in its place", NULL},
        {"MADV_POPULATE", try_populate, DOCTOR_NOTE, "5.14",
         "the first batch of each slot is slower, page by page", "use Linux 5.14 or newer"},
};

static void look_at_version(struct doctor *doctor) {
        struct utsname name;

        if (uname(&name) == 0)
                doctor_find(doctor, DOCTOR_OK, "kernel", NULL, "%s %s, %s", name.sysname, name.release,
                            name.machine);
}

static void look_at_facilities(struct doctor *doctor) {
        char works[256] = "";

        for (size_t i = 0; i < sizeof(facilities) / sizeof(*facilities); i++) {
                const struct facility *f = &facilities[i];
                int error = f->try();

                if (error)
                        doctor_find(doctor, f->level, f->name, f->remedy,
                                    "not here (%s; Linux has it since "
                                    "%s): %s",
                                    strerror(error), f->since, f->without);
                else
                        snprintf(works + strlen(works), sizeof(works) - strlen(works), "%s%s",
                                 *works ? ", " : "", f->name);
        }
        if (*works)
                doctor_find(doctor, DOCTOR_OK, "system calls", NULL, "%s", works);
}

/* ---- the container ---- */

static bool is_there(const struct doctor *doctor, const char *path) {
        char text[DOCTOR_SMALL_FILE];

        return doctor_read(doctor, text, "%s", path);
}

static void look_at_container(struct doctor *doctor) {
        char manager[DOCTOR_SMALL_FILE];
        const char *kind = NULL;

        if (is_there(doctor, "/.dockerenv"))
                kind = "docker";
        else if (is_there(doctor, "/run/.containerenv"))
                kind = "podman";
        else if (doctor_read(doctor, manager, "/run/systemd/container") && *manager)
                kind = manager;
        if (kind)
                doctor_find(doctor, DOCTOR_NOTE, "container", NULL,
                            "%s; memory, processors and devices are what it was given", kind);
}

void doctor_look_at_kernel(struct doctor *doctor) {
        look_at_version(doctor);
        look_at_facilities(doctor);
        look_at_container(doctor);
}
