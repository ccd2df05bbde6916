/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The jobs that want their slots page-locked, each in a line, and all others in one: those have nothing to do
 * with a GPU, and nobody should read of it because of them. */

#include "client/ctl/doctor.h"

#include "client/ctl/ctl.h"

#include <stdio.h>
#include <string.h>

/* It wanted its slots page-locked, and has not got that. One that is not attached yet may still. */
static bool has_missed(const json_t *job) {
        return json_is_true(json_object_get(job, "pins")) &&
               json_is_string(json_object_get(job, "map_reason")) &&
               strcmp(ctl_text_of(job, "map"), "pinned") != 0;
}

bool doctor_any_has_missed(const json_t *status) {
        size_t index;
        json_t *j;

        json_array_foreach(json_object_get(status, "jobs"), index, j) {
                if (has_missed(j))
                        return true;
        }
        return false;
}

static void tell_job(struct doctor *doctor, const json_t *job, const char *map) {
        const char *reason = json_string_value(json_object_get(job, "map_reason"));
        char what[NUMBER_TEXT_MAX], text[2048];
        bool missed = has_missed(job);

        snprintf(what, sizeof(what), "job %llu", (unsigned long long)ctl_number_of(job, "id"));
        snprintf(text, sizeof(text), "%s, pid %llu, %s%s%s", ctl_text_of(job, "name"),
                 (unsigned long long)ctl_number_of(job, "pid"), map, reason ? ": " : "",
                 reason ? reason : "");
        if (missed)
                doctor_find_text(
                        doctor, DOCTOR_WARNING, what, text,
                        "see \"When it does not work\" in docs/gpu.md, or attach with pin=\"never\"");
        else
                doctor_find(doctor, DOCTOR_OK, what, NULL, "%s", text);
}

void doctor_look_at_jobs(struct doctor *doctor) {
        char map[NUMBER_TEXT_MAX * 2];
        unsigned plain = 0;
        size_t index;
        json_t *j;

        json_array_foreach(json_object_get(doctor->status, "jobs"), index, j) {
                if (ctl_map(j, map, sizeof(map)))
                        tell_job(doctor, j, map);
                else
                        plain++;
        }
        if (plain > 0)
                doctor_find(doctor, DOCTOR_OK, "jobs", NULL, "%u that page-lock%s nothing", plain,
                            plain == 1 ? "s" : "");
}
