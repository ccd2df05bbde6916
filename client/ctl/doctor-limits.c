/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Resource limits: of this process, which a job started from the same shell has too, and of the daemon. The
 * daemon raises its own number of descriptors as far as it may, so there the hard limit counts. */

#include "client/ctl/doctor.h"

#include <stdio.h>
#include <string.h>

enum {
        FILES_LEAST = 256,         /* of a job: its own, those of its framework, one for the ring */
        DAEMON_FILES_LEAST = 1024, /* three for a job, two for a worker */
        PROCESSES_LEAST = 256,
};

struct limit {
        uint64_t soft, hard; /* UINT64_MAX: none */
};

static bool parse(const char *word, uint64_t *limit) {
        *limit = UINT64_MAX;
        return strcmp(word, "unlimited") == 0 || number_parse_u64(word, limit) == 0;
}

/* "Max open files            1024                 524288               files" */
static bool find_limit(const char *limits, const char *name, struct limit *limit) {
        const char *at = strstr(limits, name);
        char soft[NUMBER_TEXT_MAX], hard[NUMBER_TEXT_MAX];

        return at && sscanf(at + strlen(name), "%31s %31s", soft, hard) == 2 && parse(soft, &limit->soft) &&
               parse(hard, &limit->hard);
}

static const char *format(char text[NUMBER_TEXT_MAX], uint64_t limit) {
        if (limit == UINT64_MAX)
                return "unlimited";
        return number_format_count(text, limit);
}

/* ---- this process ---- */

static void look_at_own_files(struct doctor *doctor, const char *limits) {
        char text[2][NUMBER_TEXT_MAX];
        struct limit limit;
        bool few;

        if (!find_limit(limits, "Max open files", &limit))
                return;
        few = limit.soft < FILES_LEAST;
        doctor_find(doctor, few ? DOCTOR_WARNING : DOCTOR_OK, "open files",
                    few ? "raise it with 'ulimit -n 1024' before a job is started" : NULL,
                    "RLIMIT_NOFILE is %s here, at most %s", format(text[0], limit.soft),
                    format(text[1], limit.hard));
}

static void look_at_own_processes(struct doctor *doctor, const char *limits) {
        char text[NUMBER_TEXT_MAX];
        struct limit limit;
        bool few;

        if (!find_limit(limits, "Max processes", &limit))
                return;
        few = limit.soft < PROCESSES_LEAST;
        doctor_find(doctor, few ? DOCTOR_WARNING : DOCTOR_OK, "processes",
                    few ? "raise it with 'ulimit -u 4096'; a daemon that a job starts has it, too" : NULL,
                    "RLIMIT_NPROC is %s here", format(text, limit.soft));
}

static void look_at_own_memlock(struct doctor *doctor, const char *limits) {
        char text[NUMBER_TEXT_MAX];
        struct limit limit;

        if (!find_limit(limits, "Max locked memory", &limit))
                return;
        doctor_find(doctor, DOCTOR_OK, "locked memory", NULL, "RLIMIT_MEMLOCK is %s",
                    limit.soft == UINT64_MAX ? "unlimited" : number_format_bytes(text, limit.soft));
}

/* ---- the daemon ---- */

static void look_at_daemon(struct doctor *doctor, const char *limits) {
        struct limit files = {}, processes = {};
        char text[3][NUMBER_TEXT_MAX];
        bool few;

        if (!find_limit(limits, "Max open files", &files) || !find_limit(limits, "Max processes", &processes))
                return;
        few = files.hard < DAEMON_FILES_LEAST || processes.soft < PROCESSES_LEAST;
        doctor_find(doctor, few ? DOCTOR_WARNING : DOCTOR_OK, "daemon's limits",
                    few ? "set LimitNOFILE=65536 and LimitNPROC=infinity for its unit, or raise both with "
                          "ulimit where it is started"
                        : NULL,
                    "RLIMIT_NOFILE %s of %s, RLIMIT_NPROC %s", format(text[0], files.soft),
                    format(text[1], files.hard), format(text[2], processes.soft));
}

void doctor_look_at_limits(struct doctor *doctor) {
        char limits[DOCTOR_SMALL_FILE];

        if (doctor_read(doctor, limits, "/proc/self/limits")) {
                look_at_own_files(doctor, limits);
                look_at_own_processes(doctor, limits);
                look_at_own_memlock(doctor, limits);
        }
        if (doctor->daemon > 0 && doctor_read(doctor, limits, "/proc/%d/limits", (int)doctor->daemon))
                look_at_daemon(doctor, limits);
}
