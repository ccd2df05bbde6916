/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the control groups leave of the machine. Processors are counted as the daemon counts them (base/cpu);
 * memory is bounded by the least limit between a process and the top of its tree.
 *
 * A ring is charged to the cgroup of whoever writes it first, the daemon and its workers, never to jobs: so
 * only the daemon's limit is compared with what it needs. */

#include "client/ctl/doctor.h"

#include "base/cgroup.h"
#include "base/cpu.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

enum {
        WORKER_MIB = 16, /* of its own, besides what it decodes */
        DAEMON_MIB = 16,
};

/* ---- processors ---- */

void doctor_judge_cpus(struct doctor *doctor, unsigned usable, unsigned online) {
        const char *remedy = usable < online ? "raise CPUQuota= or AllowedCPUs= of the cgroup (--cpus of a "
                                               "container), or start with a wider taskset, to have more"
                                             : NULL;

        doctor_find(doctor, usable < online ? DOCTOR_NOTE : DOCTOR_OK, "processors", remedy,
                    "%u of the machine's %u may be used%s", usable, online,
                    usable < online ? ": affinity or the cgroup allows no more" : "");
}

static void look_at_daemon_cpus(struct doctor *doctor, unsigned online) {
        bool is_auto = json_is_true(json_object_get(doctor->status, "cpus_auto"));
        json_int_t cpus = json_integer_value(json_object_get(doctor->status, "cpus"));
        bool many = cpus > (json_int_t)online;

        if (cpus <= 0)
                return;
        doctor_find(doctor, many ? DOCTOR_WARNING : DOCTOR_OK, "daemon's processors",
                    many ? "set `cpus: auto`" : NULL, "%lld workers busy at once (cpus: %s)%s",
                    (long long)cpus, is_auto ? "auto" : "as configured",
                    many ? ", more than the machine has" : "");
}

/* ---- memory ---- */

struct memory {
        uint64_t limit; /* UINT64_MAX: none */
        uint64_t used;  /* where that holds */
        bool is_v2;
        char directory[PATH_MAX];
};

static bool read_bytes(const char *directory, const char *name, uint64_t *bytes) {
        char line[NUMBER_TEXT_MAX];

        return cgroup_read_line(directory, name, line, sizeof(line)) && number_parse_u64(line, bytes) == 0;
}

static bool take_memory(void *context, const char *directory, bool is_v2) {
        struct memory *memory = context;
        uint64_t limit;

        if (read_bytes(directory, is_v2 ? "memory.max" : "memory.limit_in_bytes", &limit) &&
            limit < memory->limit) {
                memory->limit = limit;
                memory->is_v2 = is_v2;
                snprintf(memory->directory, sizeof(memory->directory), "%s", directory);
                if (!read_bytes(directory, is_v2 ? "memory.current" : "memory.usage_in_bytes", &memory->used))
                        memory->used = 0;
        }
        return true;
}

/* False: there is no limit below what the machine has; version 1 writes a very large one for none. */
static bool find_memory(const struct doctor *doctor, const char *process, struct memory *memory) {
        static const char *const controllers[] = {"memory", NULL};
        char meminfo[DOCTOR_SMALL_FILE];
        uint64_t machine = UINT64_MAX / 1024;

        *memory = (struct memory){.limit = UINT64_MAX};
        cgroup_visit_of(doctor->root, process, controllers, take_memory, memory);
        if (doctor_read(doctor, meminfo, "/proc/meminfo"))
                (void)doctor_read_number(meminfo, "MemTotal:", &machine);
        return memory->limit < machine * 1024;
}

static void look_at_own_memory(struct doctor *doctor) {
        char text[2][NUMBER_TEXT_MAX];
        struct memory memory;

        if (find_memory(doctor, "self", &memory))
                doctor_find(doctor, DOCTOR_NOTE, "memory limit", NULL, "%s, %s in use, in %s",
                            number_format_bytes(text[0], memory.limit),
                            number_format_bytes(text[1], memory.used), memory.directory);
        else
                doctor_find(doctor, DOCTOR_OK, "memory limit", NULL, "the cgroup sets none");
}

static uint64_t needed_memory(const json_t *status) {
        uint64_t workers = json_array_size(json_object_get(status, "workers"));
        uint64_t bytes = (DAEMON_MIB + WORKER_MIB * workers) * MIB;
        size_t index;
        json_t *p;

        json_array_foreach(json_object_get(status, "pipelines"), index, p) {
                bytes += (uint64_t)json_integer_value(json_object_get(p, "ring_bytes"));
        }
        return bytes;
}

static void look_at_daemon_memory(struct doctor *doctor) {
        char process[NUMBER_TEXT_MAX], text[2][NUMBER_TEXT_MAX], remedy[256];
        uint64_t needed = needed_memory(doctor->status);
        struct memory memory;
        bool little;

        snprintf(process, sizeof(process), "%d", (int)doctor->daemon);
        if (!find_memory(doctor, process, &memory))
                return;
        little = memory.limit < needed;
        number_format_bytes(text[0], memory.limit);
        number_format_bytes(text[1], needed);
        snprintf(remedy, sizeof(remedy), "raise %s of %s above %s, or lower `slots` or `ring`",
                 memory.is_v2 ? "memory.max (MemoryMax=)" : "memory.limit_in_bytes", memory.directory,
                 text[1]);
        doctor_find(doctor, little ? DOCTOR_WARNING : DOCTOR_OK, "daemon's memory", little ? remedy : NULL,
                    "its cgroup allows %s; rings and workers may take %s", text[0], text[1]);
}

/* ---- the OOM killer ---- */

static void look_at_oom(struct doctor *doctor) {
        size_t index;
        json_t *p;

        json_array_foreach(json_object_get(doctor->status, "pipelines"), index, p) {
                json_int_t kills = json_integer_value(json_object_get(json_object_get(p, "deaths"), "oom"));
                const char *name = json_string_value(json_object_get(p, "name"));

                if (kills <= 0 || !name)
                        continue;
                doctor_find(doctor, DOCTOR_WARNING, "out of memory",
                            "raise the memory limit of the daemon's cgroup, or give the pipeline fewer "
                            "`workers`",
                            "%lld worker%s of pipeline %s %s killed since the daemon started",
                            (long long)kills, kills == 1 ? "" : "s", name, kills == 1 ? "was" : "were");
        }
}

void doctor_look_at_cgroups(struct doctor *doctor) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        unsigned machine = online > 0 ? (unsigned)online : 1;

        doctor_judge_cpus(doctor, (unsigned)cpu_count_usable(doctor->root), machine);
        look_at_own_memory(doctor);
        if (!doctor->status)
                return;
        look_at_daemon_cpus(doctor, machine);
        if (doctor->daemon > 0)
                look_at_daemon_memory(doctor);
        look_at_oom(doctor);
}
