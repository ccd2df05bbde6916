/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* doctor: what a job would find on this machine, a line each, from the daemon to the GPU. Most of it is
 * neither good nor bad: a machine without a GPU is a fine machine. What needs attention is what somebody has
 * asked for and not got, and what is there and does not work:
 *
 *   - a daemon that is there and does not answer, or is of another version;
 *   - a job that wanted its slots page-locked and has not got that, with what it said why;
 *   - a CUDA runtime or devices that are missing where there is such a job; a runtime that was named and is
 *     none; a driver that the runtime cannot use.
 *
 * It looks with the eyes of its own process: a job may have another environment, and a CUDA runtime that came
 * with its Python packages. So where a job has what it wants, what is missing here is no fault. */

#include "client/ctl/ctl.h"

#include "base/fault.h"
#include "base/number.h"
#include "client/ctl/table.h"
#include "client/pinfeed.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

enum {
        DOCTOR_SCHEMA = 1,
        DOCTOR_INDENT = 4,                 /* of what follows the first line of a finding */
        DOCTOR_CUDA_ERROR_NO_DEVICE = 100, /* cudaErrorNoDevice: none is there, or all are hidden */
};

struct doctor {
        json_t *findings;
        unsigned attention; /* findings that need it */
};

__attribute__((format(printf, 4, 5))) static void find(struct doctor *doctor, bool attention,
                                                       const char *what, const char *format, ...) {
        struct fault text; /* which makes it one clean line */
        char scratch[2 * FAULT_TEXT_MAX];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(scratch, sizeof(scratch), format, arguments);
        va_end(arguments);
        fault_set(&text, 0, "%s", scratch);
        json_array_append_new(doctor->findings, json_pack("{s:s, s:s, s:b}", "what", what, "text", text.text,
                                                          "attention", attention));
        doctor->attention += attention;
}

/* ---- the daemon ---- */

/* Its status, or NULL. */
static json_t *look_at_daemon(struct doctor *doctor, const struct ctl *ctl) {
        char directory[PATH_MAX] = "";
        struct fault fault = {};
        json_t *status;

        pinfeed_runtime_dir(directory, sizeof(directory), ctl->runtime_dir);
        status = control_ask(ctl->runtime_dir, "status", &fault);
        if (status && strcmp(ctl_text_of(status, "version"), pinfeed_version()) == 0)
                find(doctor, false, "daemon", "pinfeedd %s, pid %llu, in %s", ctl_text_of(status, "version"),
                     (unsigned long long)ctl_number_of(status, "pid"), directory);
        else if (status)
                find(doctor, true, "daemon",
                     "pinfeedd %s, pid %llu, in %s, and this is %s; install one version",
                     ctl_text_of(status, "version"), (unsigned long long)ctl_number_of(status, "pid"),
                     directory, pinfeed_version());
        else if (!control_is_served(ctl->runtime_dir))
                find(doctor, false, "daemon", "none in %s; a job that brings its pipeline starts one",
                     directory);
        else
                find(doctor, true, "daemon", "%s", fault.text);
        return status;
}

/* ---- memory ---- */

static void look_at_memory(struct doctor *doctor) {
        char text[2][NUMBER_TEXT_MAX];
        struct rlimit limit;
        struct statvfs shm;

        if (statvfs("/dev/shm", &shm) < 0)
                find(doctor, false, "shared memory", "no /dev/shm: %s; rings are memfds then",
                     strerror(errno));
        else if (shm.f_blocks == 0)
                find(doctor, false, "shared memory", "/dev/shm has no limit of its own");
        else
                find(doctor, false, "shared memory", "%s of %s free in /dev/shm",
                     number_format_bytes(text[0], (uint64_t)shm.f_bavail * shm.f_frsize),
                     number_format_bytes(text[1], (uint64_t)shm.f_blocks * shm.f_frsize));
        if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
                return;
        if (limit.rlim_cur == RLIM_INFINITY)
                find(doctor, false, "locked memory", "RLIMIT_MEMLOCK is unlimited");
        else
                find(doctor, false, "locked memory", "RLIMIT_MEMLOCK is %s",
                     number_format_bytes(text[0], limit.rlim_cur));
}

/* ---- the GPU ---- */

static const char *version(char text[NUMBER_TEXT_MAX], uint32_t number) {
        snprintf(text, NUMBER_TEXT_MAX, "%u.%u", number / 1000, number % 1000 / 10);
        return text;
}

/* `missed`: by a job that wanted a GPU to read its slots. */
static void look_at_runtime(struct doctor *doctor, const struct pinfeed_cuda *cuda, bool missed) {
        const char *named = getenv("PINFEED_LIBCUDART");
        bool wanted = missed || (named && *named);
        char text[NUMBER_TEXT_MAX];

        if (cuda->runtime > 0)
                find(doctor, false, "CUDA runtime", "%s, %s", version(text, cuda->runtime), cuda->path);
        else
                find(doctor, wanted, "CUDA runtime", "none%s: %s",
                     wanted ? "" : ", which only jobs with a GPU need", cuda->text);
}

static void look_at_gpus(struct doctor *doctor, const struct pinfeed_cuda *cuda, bool missed) {
        char text[NUMBER_TEXT_MAX], driver[NUMBER_TEXT_MAX + 32] = "no driver";
        bool broken = cuda->driver > 0 && cuda->error && cuda->error != DOCTOR_CUDA_ERROR_NO_DEVICE;

        if (cuda->driver > 0)
                snprintf(driver, sizeof(driver), "the driver serves CUDA %s", version(text, cuda->driver));
        if (cuda->devices > 0)
                find(doctor, false, "GPUs", "%u, %s", cuda->devices, driver);
        else
                find(doctor, missed || broken, "GPUs", "none, %s%s%s%s", driver, *cuda->text ? ": " : "",
                     cuda->text,
                     broken && cuda->driver < cuda->runtime
                             ? "; install a newer driver, or name an older runtime in PINFEED_LIBCUDART"
                             : "");
}

static void look_at_cuda(struct doctor *doctor, bool missed) {
        struct pinfeed_cuda cuda;

        pinfeed_cuda_probe(&cuda, NULL);
        look_at_runtime(doctor, &cuda, missed);
        if (cuda.runtime > 0)
                look_at_gpus(doctor, &cuda, missed);
}

/* ---- jobs ---- */

static bool is_pinned(const json_t *job) {
        return strcmp(ctl_text_of(job, "map"), "pinned") == 0;
}

/* It wanted its slots page-locked, and has not got that. One that is not attached yet may still. */
static bool has_missed(const json_t *job) {
        return json_is_true(json_object_get(job, "pins")) &&
               json_is_string(json_object_get(job, "map_reason")) && !is_pinned(job);
}

static bool has_any_missed(const json_t *jobs) {
        size_t index;
        json_t *j;

        json_array_foreach(jobs, index, j) {
                if (has_missed(j))
                        return true;
        }
        return false;
}

static void look_at_job(struct doctor *doctor, const json_t *job, const char *map) {
        const char *reason = json_string_value(json_object_get(job, "map_reason"));
        char what[NUMBER_TEXT_MAX];

        snprintf(what, sizeof(what), "job %llu", (unsigned long long)ctl_number_of(job, "id"));
        find(doctor, has_missed(job), what, "%s, pid %llu, %s%s%s", ctl_text_of(job, "name"),
             (unsigned long long)ctl_number_of(job, "pid"), map, reason ? ": " : "", reason ? reason : "");
}

/* One line for all that have nothing to do with a GPU. */
static void look_at_jobs(struct doctor *doctor, const json_t *jobs) {
        char map[NUMBER_TEXT_MAX * 2];
        unsigned plain = 0;
        size_t index;
        json_t *j;

        json_array_foreach(jobs, index, j) {
                if (ctl_map(j, map, sizeof(map)))
                        look_at_job(doctor, j, map);
                else
                        plain++;
        }
        if (plain > 0)
                find(doctor, false, "jobs", "%u that page-lock%s nothing", plain, plain == 1 ? "s" : "");
}

/* ---- the command ---- */

static void print(const struct doctor *doctor) {
        size_t index;
        json_t *f;

        json_array_foreach(doctor->findings, index, f) {
                table_print_text(DOCTOR_INDENT, "%c %s: %s",
                                 json_is_true(json_object_get(f, "attention")) ? '!' : ' ',
                                 ctl_text_of(f, "what"), ctl_text_of(f, "text"));
        }
        if (doctor->attention == 0)
                puts("nothing needs attention");
        else
                printf("%u of these need%s attention\n", doctor->attention,
                       doctor->attention == 1 ? "s" : "");
}

static void print_as_json(const struct doctor *doctor) {
        json_t *json = json_pack("{s:i, s:O, s:i}", "schema", DOCTOR_SCHEMA, "findings", doctor->findings,
                                 "attention", (int)doctor->attention);

        ctl_print_json(json);
        json_decref(json);
}

static int examine(const struct ctl *ctl, bool as_json) {
        struct doctor doctor = {.findings = json_array()};
        const json_t *jobs;
        json_t *status;

        status = look_at_daemon(&doctor, ctl);
        jobs = json_object_get(status, "jobs");
        look_at_memory(&doctor);
        look_at_cuda(&doctor, has_any_missed(jobs));
        look_at_jobs(&doctor, jobs);
        if (as_json)
                print_as_json(&doctor);
        else
                print(&doctor);
        json_decref(status);
        json_decref(doctor.findings);
        return doctor.attention > 0 ? CTL_FAILED : CTL_OK;
}

int command_doctor(const struct ctl *ctl, int argc, char **argv) {
        bool as_json;
        int r;

        if (!ctl_json_option(ctl, argc, argv, &as_json, &r))
                return r;
        if (optind < argc)
                return ctl_usage(ctl, "unexpected \"%s\"", argv[optind]);
        return examine(ctl, as_json);
}
