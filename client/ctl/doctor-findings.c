/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Findings as they are collected: JSON from the start, so that what programs read and what people read cannot
 * differ. Texts come from files, other processes and the daemon, so each is made one clean line. */

#include "client/ctl/doctor.h"

#include "base/fault.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const level_names[DOCTOR_LEVELS] = {
        [DOCTOR_OK] = "ok", [DOCTOR_NOTE] = "note", [DOCTOR_WARNING] = "warning", [DOCTOR_ERROR] = "error"};

const char *doctor_level_name(enum doctor_level level) {
        return level_names[level];
}

static void store(struct doctor *doctor, enum doctor_level level, const char *what, const char *text,
                  const char *remedy) {
        struct fault clean, clean_remedy; /* which make each one clean line */
        json_t *finding;

        fault_set(&clean, 0, "%s", text);
        fault_set(&clean_remedy, 0, "%s", remedy ? remedy : "");
        finding = json_pack("{s:s, s:s, s:s, s:s, s:b, s:s?}", "area", doctor->area, "what", what, "level",
                            level_names[level], "text", clean.text, "attention", level >= DOCTOR_WARNING,
                            "remedy", remedy ? clean_remedy.text : NULL);
        json_array_append_new(doctor->findings, finding);
        doctor->counts[level]++;
}

void doctor_find(struct doctor *doctor, enum doctor_level level, const char *what, const char *remedy,
                 const char *format, ...) {
        char text[2 * FAULT_TEXT_MAX];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        store(doctor, level, what, text, remedy);
}

void doctor_find_text(struct doctor *doctor, enum doctor_level level, const char *what, const char *text,
                      const char *remedy) {
        char cause[2 * FAULT_TEXT_MAX], *end = NULL;

        snprintf(cause, sizeof(cause), "%s", text);
        for (char *at = cause; (at = strstr(at, "; ")); at++)
                end = at;
        if (end) {
                *end = 0;
                remedy = end + 2;
        }
        store(doctor, level, what, cause, remedy);
}

/* ---- small files ---- */

bool doctor_read(const struct doctor *doctor, char text[DOCTOR_SMALL_FILE], const char *format, ...) {
        char path[PATH_MAX];
        size_t root, length;
        va_list arguments;
        FILE *file;

        root = (size_t)snprintf(path, sizeof(path), "%s", doctor->root);
        if (root >= sizeof(path))
                return false;
        va_start(arguments, format);
        vsnprintf(path + root, sizeof(path) - root, format, arguments);
        va_end(arguments);
        file = fopen(path, "re");
        if (!file)
                return false;
        length = fread(text, 1, DOCTOR_SMALL_FILE - 1, file);
        fclose(file);
        text[length] = 0;
        if (length > 0 && text[length - 1] == '\n')
                text[length - 1] = 0;
        return true;
}

bool doctor_read_number(const char *text, const char *name, uint64_t *number) {
        const char *at = strstr(text, name);
        char *end;

        if (!at)
                return false;
        at += strlen(name);
        at += strspn(at, " \t");
        errno = 0;
        *number = strtoull(at, &end, 10);
        return end > at && *at >= '0' && *at <= '9' && errno == 0;
}
