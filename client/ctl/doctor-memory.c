/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Where rings may lie and how their pages are made. A small /dev/shm is no fault by itself, since a ring
 * that has no room there becomes a memfd; whether one that must lie there fits, the check of the
 * configuration says, and the daemon when it reserves it. */

#include "client/ctl/doctor.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
        STRICT_OVERCOMMIT = 2,
};

#define KIB       ((uint64_t)1024)
#define SHM_SMALL (64 * KIB * KIB) /* what container engines give by default */

/* ---- /dev/shm ---- */

void doctor_judge_shm(struct doctor *doctor, uint64_t total, uint64_t left) {
        char text[2][NUMBER_TEXT_MAX];
        bool is_small = total <= SHM_SMALL;

        doctor_find(doctor, is_small ? DOCTOR_NOTE : DOCTOR_OK, "shared memory",
                    is_small
                            ? "start the container with a larger --shm-size, or mount /dev/shm with a larger "
                              "size=, where `backing: shm` is wanted"
                            : NULL,
                    "%s of %s free in /dev/shm%s", number_format_bytes(text[0], left),
                    number_format_bytes(text[1], total),
                    is_small ? "; with `backing: auto` larger rings are memfds" : "");
}

static void look_at_shm(struct doctor *doctor) {
        char path[PATH_MAX];
        struct statvfs shm;

        snprintf(path, sizeof(path), "%s/dev/shm", doctor->root);
        if (statvfs(path, &shm) < 0)
                doctor_find(doctor, DOCTOR_NOTE, "shared memory", "mount a tmpfs at /dev/shm",
                            "no /dev/shm: %s; rings are memfds then", strerror(errno));
        else if (shm.f_blocks == 0)
                doctor_find(doctor, DOCTOR_OK, "shared memory", NULL, "/dev/shm has no limit of its own");
        else
                doctor_judge_shm(doctor, (uint64_t)shm.f_blocks * shm.f_frsize,
                                 (uint64_t)shm.f_bavail * shm.f_frsize);
}

/* ---- the machine's memory ---- */

static void look_at_ram(struct doctor *doctor, const char *meminfo) {
        char text[2][NUMBER_TEXT_MAX];
        uint64_t total, available;

        if (doctor_read_number(meminfo, "MemTotal:", &total) &&
            doctor_read_number(meminfo, "MemAvailable:", &available))
                doctor_find(doctor, DOCTOR_OK, "memory", NULL, "%s of %s available",
                            number_format_bytes(text[0], available * KIB),
                            number_format_bytes(text[1], total * KIB));
}

/* Strict accounting counts a ring in full from its reservation on. */
static void look_at_overcommit(struct doctor *doctor, const char *meminfo) {
        char text[DOCTOR_SMALL_FILE], sizes[2][NUMBER_TEXT_MAX];
        uint64_t mode, limit, used;

        if (!doctor_read(doctor, text, "/proc/sys/vm/overcommit_memory") ||
            !doctor_read_number(text, "", &mode) || mode != STRICT_OVERCOMMIT ||
            !doctor_read_number(meminfo, "CommitLimit:", &limit) ||
            !doctor_read_number(meminfo, "Committed_AS:", &used))
                return;
        doctor_find(doctor, DOCTOR_NOTE, "overcommit",
                    "set sysctl vm.overcommit_memory to 0, or raise vm.overcommit_ratio",
                    "strict: %s of %s are committed, and rings count in full",
                    number_format_bytes(sizes[0], used * KIB), number_format_bytes(sizes[1], limit * KIB));
}

/* ---- pages ---- */

/* "always within_size advise [never] deny force" */
static bool read_choice(const struct doctor *doctor, const char *path, char choice[NUMBER_TEXT_MAX]) {
        char text[DOCTOR_SMALL_FILE];
        const char *at;

        return doctor_read(doctor, text, "%s", path) && (at = strchr(text, '[')) &&
               sscanf(at, "[%31[a-z_]]", choice) == 1;
}

static void look_at_huge_pages(struct doctor *doctor) {
        char choice[NUMBER_TEXT_MAX];
        bool may;

        if (!read_choice(doctor, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", choice))
                return;
        may = strcmp(choice, "always") == 0 || strcmp(choice, "within_size") == 0 ||
              strcmp(choice, "force") == 0;
        doctor_find(
                doctor, may ? DOCTOR_OK : DOCTOR_NOTE, "huge pages",
                may ? NULL
                    : "write within_size to /sys/kernel/mm/transparent_hugepage/shmem_enabled to try them",
                "shmem_enabled is %s: %s", choice,
                may ? "rings in a memfd may have pages of 2 MiB"
                    : "rings in a memfd have pages of 4 KiB, which are slower to map for the first time");
}

/* "0" or "0-1" or "0,2-3": more than one as soon as there is more than one number. */
static void look_at_nodes(struct doctor *doctor) {
        char text[DOCTOR_SMALL_FILE];

        if (doctor_read(doctor, text, "/sys/devices/system/node/online") && strpbrk(text, "-,"))
                doctor_find(doctor, DOCTOR_NOTE, "NUMA", NULL,
                            "nodes %s: a slot lies in the memory of the node whose worker filled it first",
                            text);
}

void doctor_look_at_memory(struct doctor *doctor) {
        char meminfo[DOCTOR_SMALL_FILE] = "";

        look_at_shm(doctor);
        (void)doctor_read(doctor, meminfo, "/proc/meminfo");
        look_at_ram(doctor, meminfo);
        look_at_overcommit(doctor, meminfo);
        look_at_huge_pages(doctor);
        look_at_nodes(doctor);
}
