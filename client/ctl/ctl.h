#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* pinfeedctl: what its commands share. */

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fault;
struct pinfeed_job;

/* Exit codes. */
enum {
        CTL_OK = 0,
        CTL_FAILED = 1,
        CTL_USAGE = 2,
        CTL_INTERRUPTED = 130, /* by SIGINT */
};

struct ctl {
        const char *runtime_dir; /* NULL: not given */
        const struct command *command;
};

struct command {
        const char *name;
        const char *arguments; /* for the usage line */
        const char *summary;
        const char *help; /* whole lines; "" if there is nothing to add */
        int (*run)(const struct ctl *ctl, int argc, char **argv);
};

/* Each parses its own options, argv[0] being its name, and returns an exit code. */
int command_status(const struct ctl *ctl, int argc, char **argv);
int command_bench(const struct ctl *ctl, int argc, char **argv);
int command_set(const struct ctl *ctl, int argc, char **argv);
int command_digest(const struct ctl *ctl, int argc, char **argv);
int command_peek(const struct ctl *ctl, int argc, char **argv);
int command_verify(const struct ctl *ctl, int argc, char **argv);
int command_run(const struct ctl *ctl, int argc, char **argv);
int command_inspect(const struct ctl *ctl, int argc, char **argv);
int command_reload(const struct ctl *ctl, int argc, char **argv);
int command_drain(const struct ctl *ctl, int argc, char **argv);
int command_doctor(const struct ctl *ctl, int argc, char **argv);
int command_top(const struct ctl *ctl, int argc, char **argv);
int command_metrics(const struct ctl *ctl, int argc, char **argv);

/* Says what is wrong with the command line. Returns CTL_USAGE. `format` NULL: getopt_long has said it. */
int ctl_usage(const struct ctl *ctl, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --help of one command. Returns CTL_OK. */
int ctl_help(const struct ctl *ctl);

/* "pinfeedctl: TEXT" on stderr. Returns CTL_FAILED. */
int ctl_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says why `job` failed, behind the pipeline's name unless the reason has it. Returns CTL_FAILED. */
int ctl_fail_job(const struct pinfeed_job *job, const char *pipeline);

/* Parses the value of a number option. 0, or CTL_USAGE after saying what was expected. */
int ctl_number(const struct ctl *ctl, const char *option, const char *text, uint64_t least, uint64_t most,
               uint64_t *value);

/* Parses the options of a command that has only --json and --help. True: to be gone on with, from optind on.
 * False: *r is to be returned. */
bool ctl_json_option(const struct ctl *ctl, int argc, char **argv, bool *as_json, int *r);

/* member.c: a member of an answer: its text, or "-"; its number, or 0. */
const char *ctl_text_of(const json_t *object, const char *name);
uint64_t ctl_number_of(const json_t *object, const char *name);

/* A line on stderr that the next one replaces, at most ten times a second; nothing unless stderr is a
 * terminal. */
void ctl_live(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Removes it. */
void ctl_live_end(void);

/* What a noun ends in after this number. */
static inline const char *ctl_plural(uint64_t n) {
        return n == 1 ? "" : "s";
}

/* For struct pinfeed_attach: shows the daemon's progress as a live line. */
void ctl_progress(void *context, const char *text);

/* control.c: a connection to the daemon, which waits for neither side for longer than `seconds`, or (0) not
 * at all. It, -ENOENT when none listens there, or another negative errno; -EAGAIN: without waiting it was not
 * to be had. */
int control_connect(const char *runtime_dir, unsigned seconds, struct fault *fault);

/* Sends one line to the daemon and returns the last line of its reply (a new reference); NULL with
 * the text of what went wrong, also when that is the daemon's own answer. */
json_t *control_ask(const char *runtime_dir, const char *line, struct fault *fault);

/* The same for who cannot wait as long as that takes at most. */
json_t *control_ask_within(const char *runtime_dir, const char *line, unsigned seconds, struct fault *fault);

/* Whether a daemon listens there, or something else is wrong than that none does. *pid is who listens, or 0
 * where that cannot be seen. */
bool control_is_served(const char *runtime_dir, pid_t *pid);

/* The same for an answer of many lines: each but the last is given to `on_line`, which may keep a reference.
 * None may take longer than a whole answer of control_ask. The last one is returned as it is, also when it
 * has an "error"; NULL: there was none. */
json_t *control_ask_long(const char *runtime_dir, const char *line,
                         void (*on_line)(void *context, json_t *line), void *context, struct fault *fault);

/* map.c: how a job maps the ring, "pinned 6/16" or "read-only"; NULL when there is nothing to say, since
 * it asks for no slots that a GPU can read. */
const char *ctl_map(const json_t *job, char *text, size_t size);

/* config.c: the file that the daemon was started with, as this process would open it. False: there is none,
 * as with a private daemon. */
bool ctl_config_path(const json_t *status, char path[PATH_MAX]);

/* stages.c: a table of the stages that rows go through, behind an empty line; nothing where there are none.
 */
void ctl_print_stages(const json_t *pipelines);

/* Prints one JSON document as a line. */
void ctl_print_json(const json_t *json);
