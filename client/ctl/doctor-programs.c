/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What is installed: programs of other versions than this one, and what systemd makes of the service. Both
 * are asked for by running something, which is not waited for for long. Where there is no systemd, and where
 * it knows no such unit, nothing is said. */

#include "client/ctl/doctor.h"

#include "base/program.h"
#include "client/pinfeed.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
        PROGRAM_TIMEOUT_S = 3,
};

/* ---- versions ---- */

/* "pinfeedd 0.1.0", as all our programs say it. */
static void tell_version(struct doctor *doctor, const char *name, const struct doctor_child *child) {
        const char *space = strchr(child->output, ' ');
        char version[NUMBER_TEXT_MAX] = "";

        if (space)
                snprintf(version, sizeof(version), "%.*s", (int)strcspn(space + 1, "\n"), space + 1);
        if (strcmp(version, pinfeed_version()) == 0)
                doctor_find(doctor, DOCTOR_OK, name, NULL, "%s", version);
        else
                doctor_find(doctor, DOCTOR_WARNING, name, "install one version", "version %s, and this is %s",
                            *version ? version : "unknown", pinfeed_version());
}

static void look_at_program(struct doctor *doctor, const char *name, const char *const places[]) {
        struct doctor_child child;
        char path[PATH_MAX];

        if (program_find(path, places) < 0) {
                doctor_find(doctor, DOCTOR_ERROR, name, "install it together with pinfeedctl",
                            "not beside this program");
                return;
        }
        (void)doctor_child_run(&child, PROGRAM_TIMEOUT_S, 0, (const char *const[]){path, "--version", NULL});
        tell_version(doctor, name, &child);
}

/* That of the python3 in $PATH, if it has one; jobs may have another interpreter. */
static void look_at_package(struct doctor *doctor) {
        static const char *const argv[] = {
                "python3", "-c",
                "from importlib.metadata import version; print('pinfeed', version('pinfeed'))", NULL};
        struct doctor_child child;

        if (doctor_child_run(&child, PROGRAM_TIMEOUT_S, 0, argv))
                tell_version(doctor, "Python package", &child);
}

void doctor_look_at_programs(struct doctor *doctor) {
        static const char *const daemons[] = {"pinfeedd", "../bin/pinfeedd", "../../daemon/pinfeedd", NULL};
        static const char *const workers[] = {"../libexec/pinfeed/pinfeed-worker",
                                              "../../daemon/worker/pinfeed-worker", NULL};

        look_at_program(doctor, "pinfeedd", daemons);
        look_at_program(doctor, "pinfeed-worker", workers);
        look_at_package(doctor);
}

/* ---- units ---- */

/* The one word that systemctl prints; what it says besides of a unit that it does not know is more. */
static void ask_systemctl(const char *question, const char *unit, char answer[NUMBER_TEXT_MAX]) {
        struct doctor_child child;

        (void)doctor_child_run(&child, PROGRAM_TIMEOUT_S, 0,
                               (const char *const[]){"systemctl", question, unit, NULL});
        snprintf(answer, NUMBER_TEXT_MAX, "%s", child.timed_out ? "" : child.output);
        answer[strcspn(answer, "\n")] = 0;
}

void doctor_judge_unit(struct doctor *doctor, const char *unit, const char *active, const char *enabled) {
        bool failed = strcmp(active, "failed") == 0;
        char remedy[128];

        if (!*enabled || strchr(enabled, ' ') || strcmp(enabled, "not-found") == 0)
                return;
        snprintf(remedy, sizeof(remedy), "read 'journalctl -u %s', and 'systemctl restart %s'", unit, unit);
        doctor_find(doctor, failed ? DOCTOR_ERROR : DOCTOR_OK, unit, failed ? remedy : NULL, "%s, %s",
                    *active ? active : "unknown", enabled);
}

void doctor_look_at_units(struct doctor *doctor) {
        static const char *const units[] = {"pinfeedd.socket", "pinfeedd.service"};
        char active[NUMBER_TEXT_MAX], enabled[NUMBER_TEXT_MAX];

        if (access("/run/systemd/system", F_OK) < 0)
                return;
        for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
                ask_systemctl("is-enabled", units[i], enabled);
                ask_systemctl("is-active", units[i], active);
                doctor_judge_unit(doctor, units[i], active, enabled);
        }
}
