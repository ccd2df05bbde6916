/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon: whether there is one, answers and has this version, and what it says of itself. It promises an
 * answer within a second, so one that takes twice as long is not waited for: it is stopped, or its loop is
 * held up, and /proc tells which. */

#include "client/ctl/doctor.h"

#include "base/fault.h"
#include "client/ctl/ctl.h"
#include "client/pinfeed.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        DAEMON_TIMEOUT_S = 2,
};

/* Its number is that of its own pid namespace, which need not be this one. */
static pid_t visible_pid(const struct doctor *doctor, json_int_t pid) {
        char name[DOCTOR_SMALL_FILE];

        if (pid <= 0 || !doctor_read(doctor, name, "/proc/%lld/comm", (long long)pid) ||
            strcmp(name, "pinfeedd") != 0)
                return 0;
        return (pid_t)pid;
}

static void tell_version(struct doctor *doctor, const char *directory) {
        const char *version = ctl_text_of(doctor->status, "version");
        unsigned long long pid = ctl_number_of(doctor->status, "pid");

        if (strcmp(version, pinfeed_version()) == 0)
                doctor_find(doctor, DOCTOR_OK, "daemon", NULL, "pinfeedd %s, pid %llu, in %s", version, pid,
                            directory);
        else
                doctor_find(doctor, DOCTOR_WARNING, "daemon", "install one version, and restart the daemon",
                            "pinfeedd %s, pid %llu, in %s, and this is %s", version, pid, directory,
                            pinfeed_version());
}

/* What it found when it started. */
static void tell_warnings(struct doctor *doctor) {
        size_t index;
        json_t *w;

        json_array_foreach(json_object_get(doctor->status, "warnings"), index, w) {
                doctor_find_text(doctor, DOCTOR_WARNING, "daemon's warning",
                                 json_is_string(w) ? json_string_value(w) : "-",
                                 "see the daemon's log, and restart it when that is mended");
        }
}

static void tell_reload(struct doctor *doctor) {
        const char *error =
                json_string_value(json_object_get(json_object_get(doctor->status, "reloaded"), "error"));

        if (error)
                doctor_find_text(doctor, DOCTOR_WARNING, "reload", error,
                                 "mend the file, and try 'pinfeedctl reload' again");
        if (json_is_true(json_object_get(doctor->status, "draining")))
                doctor_find(doctor, DOCTOR_NOTE, "drain", NULL,
                            "the daemon takes no new jobs, and ends after the last one");
}

static void tell_pipelines(struct doctor *doctor) {
        size_t index;
        json_t *p;

        json_array_foreach(json_object_get(doctor->status, "pipelines"), index, p) {
                const char *error = json_string_value(json_object_get(p, "error"));
                const char *waits = json_string_value(json_object_get(p, "waiting_for"));
                const char *allow = json_string_value(json_object_get(p, "allow"));
                char what[128];

                snprintf(what, sizeof(what), "pipeline %s", ctl_text_of(p, "name"));
                if (error)
                        doctor_find_text(doctor, DOCTOR_ERROR, what, error,
                                         "mend that, and attach a job again");
                if (waits)
                        doctor_find(doctor, DOCTOR_NOTE, what, NULL, "waits for %s", waits);
                if (allow)
                        doctor_find(doctor, DOCTOR_OK, what, NULL, "allowed: %s", allow);
        }
}

/* It is there, and gives no answer. */
static void tell_silence(struct doctor *doctor, const char *directory, const char *reason) {
        char remedy[64] = "restart the daemon, and keep its log", state[DOCTOR_SMALL_FILE] = "";
        const char *at;
        bool stopped;

        doctor->daemon = visible_pid(doctor, doctor->daemon);
        if (doctor->daemon > 0)
                (void)doctor_read(doctor, state, "/proc/%d/status", (int)doctor->daemon);
        at = strstr(state, "State:\t");
        stopped = at && (at[7] == 'T' || at[7] == 't');
        if (stopped)
                snprintf(remedy, sizeof(remedy), "let it go on with 'kill -CONT %d'", (int)doctor->daemon);
        doctor_find(doctor, DOCTOR_ERROR, "daemon", remedy, "in %s: %s%s", directory, reason,
                    stopped ? ", for it was stopped by a signal" : "");
}

void doctor_look_at_daemon(struct doctor *doctor) {
        char directory[PATH_MAX] = "";
        struct fault fault = {};

        pinfeed_runtime_dir(directory, sizeof(directory), doctor->ctl->runtime_dir);
        doctor->status = control_ask_within(doctor->ctl->runtime_dir, "status", DAEMON_TIMEOUT_S, &fault);
        if (doctor->status) {
                tell_version(doctor, directory);
                tell_warnings(doctor);
                tell_reload(doctor);
                tell_pipelines(doctor);
                doctor->daemon =
                        visible_pid(doctor, json_integer_value(json_object_get(doctor->status, "pid")));
        } else if (!control_is_served(doctor->ctl->runtime_dir, &doctor->daemon)) {
                doctor_find(doctor, DOCTOR_NOTE, "daemon", NULL,
                            "none in %s; a job that brings its pipeline starts one", directory);
        } else {
                tell_silence(doctor, directory, fault.text);
        }
}
