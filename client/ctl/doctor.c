/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* doctor: what a job would find on this machine, from the daemon to the GPU. It is a table of looks, each of
 * which adds findings; none of them depends on what another has found, but for the daemon's status, which the
 * first one gets. Most findings are neither good nor bad. One that needs attention says what to do, once.
 *
 * Nothing may hang: whoever calls doctor has a machine on which something does. What may is done by children
 * (doctor-child.c), or has a time limit. */

#include "client/ctl/doctor.h"

#include "client/ctl/ctl.h"
#include "client/ctl/table.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum {
        DOCTOR_SCHEMA = 1,
        DOCTOR_INDENT = 6,        /* of what follows the first line of a finding */
        DOCTOR_REMEDY_INDENT = 8, /* the same, of its remedy */
        DOCTOR_EXIT_ERROR = 3,    /* 2 is a bad command line's */
};

static const struct look {
        const char *area;
        void (*take)(struct doctor *doctor);
} looks[] = {
        {"Daemon", doctor_look_at_daemon},
        {"Daemon", doctor_look_at_places},
        {"Daemon", doctor_look_at_units},
        {"Configuration", doctor_look_at_config},
        {"Installation", doctor_look_at_programs},
        {"Kernel", doctor_look_at_kernel},
        {"Memory", doctor_look_at_memory},
        {"Limits", doctor_look_at_limits},
        {"Control groups", doctor_look_at_cgroups},
        {"GPU", doctor_look_at_driver},
        {"GPU", doctor_look_at_cuda},
        {"Jobs", doctor_look_at_jobs},
};

static enum doctor_level worst(const struct doctor *doctor) {
        enum doctor_level level = DOCTOR_ERROR;

        while (level > DOCTOR_OK && doctor->counts[level] == 0)
                level--;
        return level;
}

static unsigned attention(const struct doctor *doctor) {
        return doctor->counts[DOCTOR_ERROR] + doctor->counts[DOCTOR_WARNING];
}

/* ---- for people ---- */

static const char *mark(const char *level) {
        static const char *const marks[DOCTOR_LEVELS][2] = {[DOCTOR_OK] = {"+", "✓"},
                                                            [DOCTOR_NOTE] = {"-", "·"},
                                                            [DOCTOR_WARNING] = {"!", "!"},
                                                            [DOCTOR_ERROR] = {"X", "✗"}};

        for (unsigned i = 0; i < DOCTOR_LEVELS; i++) {
                if (strcmp(level, doctor_level_name(i)) == 0)
                        return marks[i][table_is_utf8()];
        }
        return "?";
}

static void print_area(const char *area, bool is_first) {
        bool bold = table_is_bold();

        printf("%s%s%s%s\n", is_first ? "" : "\n", bold ? "\033[1m" : "", area, bold ? "\033[0m" : "");
}

static void print_finding(const json_t *finding) {
        const char *remedy = json_string_value(json_object_get(finding, "remedy"));

        table_print_text(DOCTOR_INDENT, "  %s %s: %s", mark(ctl_text_of(finding, "level")),
                         ctl_text_of(finding, "what"), ctl_text_of(finding, "text"));
        if (remedy)
                table_print_text(DOCTOR_REMEDY_INDENT, "      %s %s", table_is_utf8() ? "→" : ">", remedy);
}

/* "2 of 24 need attention: 1 error, 1 warning" */
static void print_sum(const struct doctor *doctor) {
        unsigned errors = doctor->counts[DOCTOR_ERROR], warnings = doctor->counts[DOCTOR_WARNING];
        unsigned n = attention(doctor);

        putchar('\n');
        if (n == 0) {
                printf("nothing needs attention: %u ok, %u note%s\n", doctor->counts[DOCTOR_OK],
                       doctor->counts[DOCTOR_NOTE], ctl_plural(doctor->counts[DOCTOR_NOTE]));
                return;
        }
        printf("%u of %zu need%s attention: ", n, json_array_size(doctor->findings), n == 1 ? "s" : "");
        if (errors > 0)
                printf("%u error%s%s", errors, ctl_plural(errors), warnings > 0 ? ", " : "\n");
        if (warnings > 0)
                printf("%u warning%s\n", warnings, ctl_plural(warnings));
}

static void print(const struct doctor *doctor) {
        const char *area = NULL;
        size_t index;
        json_t *f;

        json_array_foreach(doctor->findings, index, f) {
                if (!area || strcmp(area, ctl_text_of(f, "area")) != 0)
                        print_area(ctl_text_of(f, "area"), !area);
                area = ctl_text_of(f, "area");
                print_finding(f);
        }
        print_sum(doctor);
}

/* ---- for programs ---- */

static void print_as_json(const struct doctor *doctor) {
        json_t *json =
                json_pack("{s:i, s:O, s:i, s:s}", "schema", DOCTOR_SCHEMA, "findings", doctor->findings,
                          "attention", (int)attention(doctor), "worst", doctor_level_name(worst(doctor)));

        ctl_print_json(json);
        json_decref(json);
}

/* ---- the command ---- */

static int examine(struct doctor *doctor, bool as_json) {
        static const int exits[DOCTOR_LEVELS] = {CTL_OK, CTL_OK, CTL_FAILED, DOCTOR_EXIT_ERROR};

        doctor->findings = json_array();
        for (size_t i = 0; i < sizeof(looks) / sizeof(*looks); i++) {
                ctl_live("looking at: %s", looks[i].area);
                doctor->area = looks[i].area;
                looks[i].take(doctor);
                doctor->missed = doctor_any_has_missed(doctor->status);
        }
        ctl_live_end();
        if (as_json)
                print_as_json(doctor);
        else
                print(doctor);
        json_decref(doctor->status);
        json_decref(doctor->findings);
        return exits[worst(doctor)];
}

int command_doctor(const struct ctl *ctl, int argc, char **argv) {
        static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                                {"config", required_argument, NULL, 'c'},
                                                {"help", no_argument, NULL, 'h'},
                                                {0}};
        struct doctor doctor = {.ctl = ctl, .root = ""};
        bool as_json = false;
        int c;

        while ((c = getopt_long(argc, argv, "c:h", options, NULL)) >= 0) {
                if (c == 'h' || c == '?')
                        return c == 'h' ? ctl_help(ctl) : ctl_usage(ctl, NULL);
                if (c == 'c')
                        doctor.config = optarg;
                as_json |= c == 'j';
        }
        if (optind < argc)
                return ctl_usage(ctl, "unexpected \"%s\"", argv[optind]);
        return examine(&doctor, as_json);
}
