#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* doctor: what its looks share. */

#include "base/number.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ctl;

enum doctor_level {
        DOCTOR_OK,
        DOCTOR_NOTE,    /* neither good nor bad, and worth knowing */
        DOCTOR_WARNING, /* works, but not as somebody has asked for */
        DOCTOR_ERROR,   /* does not work */
        DOCTOR_LEVELS,
};

enum {
        DOCTOR_SMALL_FILE = 4096, /* of /proc and /sys, with room */
};

struct doctor {
        const struct ctl *ctl;
        const char *config; /* the file that was named; NULL: none was */
        const char *root;   /* "" for the machine; tests have a tree of files that looks like one */
        json_t *status;     /* the daemon's; NULL: there is none that answers */
        pid_t daemon;       /* as this process sees it; 0: there is none, or it cannot be seen */
        bool missed;        /* a job wanted a GPU to read its slots, and has not got that */
        const char *area;   /* of the looks that are being taken */
        json_t *findings;
        unsigned counts[DOCTOR_LEVELS];
};

/* ---- doctor-findings.c ---- */

/* `what`: a word or two, the same each time. `remedy`: one thing to do; NULL where nothing is to be done. */
void doctor_find(struct doctor *doctor, enum doctor_level level, const char *what, const char *remedy,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* A text that has its own remedy behind its last semicolon, as those of struct fault have; `remedy` is for
 * one that has not. */
void doctor_find_text(struct doctor *doctor, enum doctor_level level, const char *what, const char *text,
                      const char *remedy);

const char *doctor_level_name(enum doctor_level level);

/* The beginning of a small file below doctor->root, without the last newline. False: it cannot be read. */
bool doctor_read(const struct doctor *doctor, char text[DOCTOR_SMALL_FILE], const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* The number behind `name` in such a text ("MemTotal:"), as it stands there. False: there is none. */
bool doctor_read_number(const char *text, const char *name, uint64_t *number);

/* ---- doctor-child.c: what may hang is done by a process that need not be waited for ---- */

struct doctor_child {
        bool started;
        bool timed_out;
        int exit; /* the code, or minus the signal */
        size_t length;
        char output[16384]; /* standard output and error, as much as fits, ended by a NUL */
};

/* Calls `body` in a child process, which ends with it, and kills that, with all that it has started, if it
 * takes longer than `seconds`. */
void doctor_child_call(struct doctor_child *child, unsigned seconds, void (*body)(void *context),
                       void *context);

/* A program with its arguments (NULL-terminated; a name without a slash is looked for in $PATH); `as` (0:
 * this one): the process whose user and groups it gets, where this one may do that. Returns true when it
 * ended in time with 0. */
bool doctor_child_run(struct doctor_child *child, unsigned seconds, pid_t as, const char *const argv[]);

/* ---- looks, one for each file ---- */

void doctor_look_at_daemon(struct doctor *doctor);
void doctor_look_at_places(struct doctor *doctor);
void doctor_look_at_config(struct doctor *doctor);
void doctor_look_at_programs(struct doctor *doctor);
void doctor_look_at_units(struct doctor *doctor);
void doctor_look_at_kernel(struct doctor *doctor);
void doctor_look_at_memory(struct doctor *doctor);
void doctor_look_at_limits(struct doctor *doctor);
void doctor_look_at_cgroups(struct doctor *doctor);
void doctor_look_at_driver(struct doctor *doctor);
void doctor_look_at_cuda(struct doctor *doctor);
void doctor_look_at_jobs(struct doctor *doctor);

/* Whether a job wanted a GPU to read its slots, and has not got that. */
bool doctor_any_has_missed(const json_t *status);

/* ---- parts of them, for their tests ---- */

void doctor_judge_shm(struct doctor *doctor, uint64_t total, uint64_t left);
void doctor_judge_cpus(struct doctor *doctor, unsigned usable, unsigned online);
void doctor_judge_check(struct doctor *doctor, const char *file, unsigned uid,
                        const struct doctor_child *child);
void doctor_judge_unit(struct doctor *doctor, const char *unit, const char *active, const char *enabled);
