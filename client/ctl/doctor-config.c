/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The configuration and its data: `pinfeedd --check` knows both, and says which part of a path refuses whom.
 * It reads where the data lie, so it is a process that is not waited for when storage hangs; and it is run as
 * the user that the daemon is, for what root can read says nothing about it. */

#include "client/ctl/doctor.h"

#include "base/program.h"
#include "client/ctl/ctl.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERVICE_CONFIG "/etc/pinfeed/pinfeed.yaml"

enum {
        CHECK_TIMEOUT_S = 10,
};

/* ---- what the check said ---- */

/* The text of a line that is a warning of a pipeline, "  warning     TEXT", or of all, "warning: TEXT". */
static const char *warning_of(const char *line) {
        static const char word[] = "warning";

        line += strspn(line, " ");
        if (strncmp(line, word, strlen(word)) != 0)
                return NULL;
        return line + strlen(word) + strspn(line + strlen(word), ": ");
}

static const char *error_of(const char *line) {
        static const char begin[] = "pinfeedd: error: ";

        return strncmp(line, begin, strlen(begin)) == 0 ? line + strlen(begin) : NULL;
}

static void tell_line(struct doctor *doctor, const char *file, const char *line) {
        const char *warning = warning_of(line), *error = error_of(line);
        char text[2 * DOCTOR_SMALL_FILE], remedy[PATH_MAX + 64];
        bool names_it;

        if (!warning && !error)
                return;
        names_it = strncmp(warning ? warning : error, file, strlen(file)) == 0;
        snprintf(text, sizeof(text), "%s%s%s", names_it ? "" : file, names_it ? "" : ": ",
                 warning ? warning : error);
        snprintf(remedy, sizeof(remedy), "mend it, and try 'pinfeedd --config %s --check'", file);
        doctor_find_text(doctor, error ? DOCTOR_ERROR : DOCTOR_WARNING, error ? "configuration" : "rings",
                         text, remedy);
}

void doctor_judge_check(struct doctor *doctor, const char *file, unsigned uid,
                        const struct doctor_child *child) {
        unsigned errors = doctor->counts[DOCTOR_ERROR];
        char line[DOCTOR_SMALL_FILE];

        for (const char *at = child->output; *at;) {
                size_t length = strcspn(at, "\n");

                snprintf(line, sizeof(line), "%.*s", (int)length, at);
                tell_line(doctor, file, line);
                at += length + (at[length] == '\n');
        }
        if (child->timed_out)
                doctor_find(doctor, DOCTOR_ERROR, "configuration",
                            "try 'ls' on the paths in it, and remount storage that does not answer",
                            "%s: its check has not ended in %d s", file, CHECK_TIMEOUT_S);
        else if (child->exit == 0)
                doctor_find(doctor, DOCTOR_OK, "configuration", NULL,
                            "%s is good, and its data can be read by user %u", file, uid);
        else if (doctor->counts[DOCTOR_ERROR] == errors)
                doctor_find(doctor, DOCTOR_ERROR, "configuration",
                            "run 'pinfeedd --config FILE --check' by hand", "%s: its check ended with %s %d",
                            file, child->exit < 0 ? "signal" : "exit code",
                            child->exit < 0 ? -child->exit : child->exit);
}

/* ---- the check ---- */

/* The user that the check is run as: the daemon's, if this one may become that. */
static unsigned reader(pid_t as) {
        char path[NUMBER_TEXT_MAX];
        struct stat status;

        snprintf(path, sizeof(path), "/proc/%d", (int)as);
        if (geteuid() == 0 && as > 0 && stat(path, &status) == 0)
                return status.st_uid;
        return geteuid();
}

static void check(struct doctor *doctor, const char *file, pid_t as) {
        static const char *const daemons[] = {"pinfeedd", "../bin/pinfeedd", "../../daemon/pinfeedd", NULL};
        struct doctor_child child;
        char program[PATH_MAX];

        if (program_find(program, daemons) < 0) {
                doctor_find(doctor, DOCTOR_ERROR, "configuration",
                            "install pinfeedd together with pinfeedctl",
                            "there is no pinfeedd beside this program to check %s with", file);
                return;
        }
        (void)doctor_child_run(&child, CHECK_TIMEOUT_S, as,
                               (const char *const[]){program, "--config", file, "--check", NULL});
        doctor_judge_check(doctor, file, reader(as), &child);
}

/* The file that was named, else the daemon's, else the service's. */
void doctor_look_at_config(struct doctor *doctor) {
        char file[PATH_MAX];

        if (doctor->config)
                check(doctor, doctor->config, 0);
        else if (doctor->status && ctl_config_path(doctor->status, file))
                check(doctor, file, doctor->daemon);
        else if (doctor->status)
                doctor_find(doctor, DOCTOR_OK, "configuration", NULL,
                            "none; jobs bring their pipelines to the daemon");
        else if (access(SERVICE_CONFIG, F_OK) == 0)
                check(doctor, SERVICE_CONFIG, 0);
        else
                doctor_find(doctor, DOCTOR_OK, "configuration", NULL,
                            "no %s; name another with --config FILE", SERVICE_CONFIG);
}
