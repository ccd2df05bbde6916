/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How tests tell the fake CUDA runtime what to do, and hear what it has seen. A setting that is not
 * understood ends the program: a test that failed to plant its fault must not pass.
 *
 * Violations lie in memory that a process shares with the children it forks, since a call in one of those is
 * itself a violation, and the parent's test is what looks. It is made at the first call or violation, so that
 * the cases of a test program, which are forked by one that makes no calls, do not see each other's. The list
 * has no lock: a child may meet it while some thread of its parent held one. */

#include "tests/support/fake-cudart-internal.h"

#include "base/cleanup.h"
#include "base/number.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
        VIOLATIONS_MAX = 64, /* kept; all are counted */
        VIOLATION_TEXT_MAX = 240,
        SETTINGS_MAX = 1024,
};

struct violations {
        atomic_uint n;
        char text[VIOLATIONS_MAX][VIOLATION_TEXT_MAX];
};

static _Atomic(struct violations *) violations;

/* ---- violations ---- */

void violations_prepare(void) {
        struct violations *none = NULL, *list;

        if (atomic_load(&violations))
                return;
        list = mmap(NULL, sizeof(*list), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (list == MAP_FAILED)
                abort();
        if (!atomic_compare_exchange_strong(&violations, &none, list))
                munmap(list, sizeof(*list));
}

void violation(const char *format, ...) {
        struct violations *list;
        va_list arguments;
        unsigned i;

        violations_prepare();
        list = atomic_load(&violations);
        i = atomic_fetch_add(&list->n, 1);
        va_start(arguments, format);
        if (i < VIOLATIONS_MAX)
                vsnprintf(list->text[i], VIOLATION_TEXT_MAX, format, arguments);
        va_end(arguments);
        if (!runtime.settings.abort)
                return;
        if (i < VIOLATIONS_MAX)
                fprintf(stderr, "fake CUDA runtime: %s\n", list->text[i]);
        abort();
}

const char *fake_cuda_violation(unsigned i) {
        struct violations *list = atomic_load(&violations);

        return list && i < VIOLATIONS_MAX && i < atomic_load(&list->n) ? list->text[i] : NULL;
}

/* What must be gone when the process ends, and is not. In a fork's child it is the parent's, which may still
 * need it; with a dead context nothing can be undone. */
static void note_leftovers(void) {
        const struct fake_cuda_figures *now = &runtime.figures;
        const struct {
                const char *what;
                uint64_t n;
        } left[] = {
                {"registrations", now->registrations},
                {"page-locked allocations", now->host_allocations},
                {"device allocations", now->device_allocations},
                {"streams", now->streams},
                {"events", now->events},
                {"copies that had not run", now->copies_queued - now->copies_done},
        };
        static bool noted;

        if (noted || runtime.settings.sticky || !process_is_user())
                return;
        noted = true;
        for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++)
                if (left[i].n > 0)
                        violation("left at the end: %" PRIu64 " %s", left[i].n, left[i].what);
}

unsigned fake_cuda_finish(void) {
        struct violations *list;

        pthread_mutex_lock(&runtime.lock);
        note_leftovers();
        pthread_mutex_unlock(&runtime.lock);
        list = atomic_load(&violations);
        return list ? atomic_load(&list->n) : 0;
}

/* ---- settings ---- */

#define SETTING_ROW(name, value) {#name, offsetof(struct settings, name)},
static const struct {
        const char *name;
        size_t offset;
} numbers[] = {FAKE_SETTINGS(SETTING_ROW)};

static void refuse(const char *setting) {
        fprintf(stderr, "fake CUDA runtime: what is \"%s\"? See tests/support/fake-cudart.h\n", setting);
        abort();
}

static bool set_number(const char *name, const char *value) {
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
                if (strcmp(numbers[i].name, name) == 0)
                        return number_parse_bytes(value, (uint64_t *)((char *)&runtime.settings +
                                                                      numbers[i].offset)) == 0;
        return false;
}

/* NAME:FROM:CODE[:TIMES[:sticky]] */
static bool set_rule(char *text) {
        char *part[5] = {NULL}, *rest = text;
        struct rule rule = {0};
        uint64_t code = 0;

        if (strcmp(text, "none") == 0) {
                runtime.n_rules = 0;
                return true;
        }
        for (int i = 0; i < 5; i++)
                part[i] = strsep(&rest, ":");
        if (rest || !part[2] || !call_find(part[0], &rule.call) ||
            number_parse_u64(part[1], &rule.from) < 0 || number_parse_u64(part[2], &code) < 0 ||
            rule.from == 0 || code == 0 || runtime.n_rules == FAKE_RULES_MAX)
                return false;
        if (part[3] && number_parse_u64(part[3], &rule.times) < 0)
                return false;
        if (part[4] && strcmp(part[4], "sticky") != 0)
                return false;
        rule.times = rule.times > 0 ? rule.times : UINT64_MAX;
        rule.code = (cuda_error)code;
        rule.sticky = part[4] != NULL;
        runtime.rules[runtime.n_rules++] = rule;
        return true;
}

static bool set_one(char *name) {
        char *value = strchr(name, '=');

        if (!value)
                return false;
        *value++ = 0;
        if (strcmp(name, "fail") == 0)
                return set_rule(value);
        if (strcmp(name, "report") == 0)
                return snprintf(runtime.settings.report, FAKE_REPORT_PATH_MAX, "%s", value) <
                       FAKE_REPORT_PATH_MAX;
        return set_number(name, value) && runtime.settings.devices <= FAKE_DEVICES_MAX;
}

void fake_cuda_set(const char *settings) {
        char copy[SETTINGS_MAX], word[SETTINGS_MAX], *rest = copy, *next;

        if (strlen(settings) >= sizeof(copy))
                refuse(settings);
        memcpy(copy, settings, strlen(settings) + 1);
        pthread_mutex_lock(&runtime.lock);
        while ((next = strsep(&rest, " "))) {
                memcpy(word, next, strlen(next) + 1);
                if (*next && !set_one(next))
                        refuse(word);
        }
        pthread_cond_broadcast(&runtime.changed);
        pthread_mutex_unlock(&runtime.lock);
}

static void allow(uint64_t copies, bool more) {
        pthread_mutex_lock(&runtime.lock);
        runtime.allowance = more && runtime.allowance != UINT64_MAX ? runtime.allowance + copies : copies;
        pthread_cond_broadcast(&runtime.changed);
        pthread_mutex_unlock(&runtime.lock);
}

void fake_cuda_hold(void) {
        allow(0, false);
}

void fake_cuda_let(unsigned copies) {
        allow(copies, true);
}

void fake_cuda_go(void) {
        allow(UINT64_MAX, false);
}

/* ---- figures ---- */

void fake_cuda_read(struct fake_cuda_figures *figures) {
        pthread_mutex_lock(&runtime.lock);
        *figures = runtime.figures;
        pthread_mutex_unlock(&runtime.lock);
}

static uint64_t count(const struct caller *caller, bool all, enum call call) {
        uint64_t n = 0;

        for (unsigned i = 0; all && i < N_CALLS; i++)
                n += caller->calls[i];
        return all ? n : caller->calls[call];
}

uint64_t fake_cuda_calls(const char *name, const char *thread_name) {
        enum call call = 0;
        uint64_t n = 0;

        if (name && !call_find(name, &call))
                refuse(name);
        pthread_mutex_lock(&runtime.lock);
        for (unsigned i = 0; i < runtime.n_callers; i++)
                if (!thread_name || strcmp(runtime.callers[i].name, thread_name) == 0)
                        n += count(&runtime.callers[i], !name, call);
        pthread_mutex_unlock(&runtime.lock);
        return n;
}

const char *fake_cuda_context(int device) {
        const char *made_by;

        if (device < 0 || device >= FAKE_DEVICES_MAX)
                return NULL;
        pthread_mutex_lock(&runtime.lock);
        made_by = runtime.devices[device].made_by;
        pthread_mutex_unlock(&runtime.lock);
        return made_by;
}

/* ---- the report: one line of JSON ---- */

/* Each device that has a context, and the call that made it. */
static void report_devices(FILE *out) {
        const char *comma = "";

        fprintf(out, "\"devices\":{");
        for (int i = 0; i < FAKE_DEVICES_MAX; i++) {
                if (!runtime.devices[i].made_by)
                        continue;
                fprintf(out, "%s\"%d\":\"%s\"", comma, i, runtime.devices[i].made_by);
                comma = ",";
        }
        fprintf(out, "}");
}

static void report_calls(FILE *out, const struct caller *caller) {
        const char *comma = "";

        fprintf(out, "{");
        for (unsigned i = 0; i < N_CALLS; i++) {
                if (caller->calls[i] == 0)
                        continue;
                fprintf(out, "%s\"%s\":%" PRIu64, comma, call_name(i), caller->calls[i]);
                comma = ",";
        }
        fprintf(out, "}");
}

/* A thread's name may hold anything. */
static void report_text(FILE *out, const char *text) {
        fputc('"', out);
        for (; *text; text++)
                fputc(*text == '"' || *text == '\\' || (unsigned char)*text < 0x20 ? '?' : *text, out);
        fputc('"', out);
}

static void report_all_calls(FILE *out) {
        struct caller sum = {.name = ""};

        for (unsigned i = 0; i < runtime.n_callers; i++)
                for (unsigned j = 0; j < N_CALLS; j++)
                        sum.calls[j] += runtime.callers[i].calls[j];
        fprintf(out, ",\"calls\":");
        report_calls(out, &sum);
        fprintf(out, ",\"threads\":{");
        for (unsigned i = 0; i < runtime.n_callers; i++) {
                fprintf(out, "%s", i > 0 ? "," : "");
                report_text(out, runtime.callers[i].name);
                fputc(':', out);
                report_calls(out, &runtime.callers[i]);
        }
        fprintf(out, "}");
}

static void report_violations(FILE *out) {
        const char *text;

        fprintf(out, ",\"violations\":[");
        for (unsigned i = 0; (text = fake_cuda_violation(i)); i++) {
                fprintf(out, "%s", i > 0 ? "," : "");
                report_text(out, text);
        }
        fprintf(out, "]");
}

#define REPORT_FIGURE(name) fprintf(out, ",\"" #name "\":%" PRIu64, runtime.figures.name);

static void report_write(FILE *out) {
        fprintf(out, "{\"pid\":%d,\"forked\":%s,\"version\":%" PRIu64 ",", getpid(),
                process_is_user() ? "false" : "true", runtime.settings.version);
        report_devices(out);
        report_all_calls(out);
        FAKE_CUDA_FIGURES(REPORT_FIGURE)
        report_violations(out);
        fprintf(out, "}\n");
}

/* Its caller's to free. */
static char *report_line(size_t *length) {
        char *line = NULL;
        FILE *out = open_memstream(&line, length);

        if (!out)
                abort();
        pthread_mutex_lock(&runtime.lock);
        report_write(out);
        pthread_mutex_unlock(&runtime.lock);
        if (fclose(out) != 0)
                abort();
        return line;
}

size_t fake_cuda_report(char *text, size_t size) {
        size_t length;
        char *line _cleanup_(freep) = report_line(&length);

        snprintf(text, size, "%s", line);
        return length;
}

/* ---- the process ---- */

static void before_fork(void) {
        pthread_mutex_lock(&runtime.lock);
}

static void in_parent(void) {
        pthread_mutex_unlock(&runtime.lock);
}

static void in_child(void) {
        pthread_mutex_unlock(&runtime.lock);
        runtime.changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

__attribute__((constructor)) static void begin(void) {
        const char *settings = getenv("PINFEED_FAKE_CUDA");

        if (pthread_atfork(before_fork, in_parent, in_child) != 0)
                abort();
        if (settings)
                fake_cuda_set(settings);
}

/* In one write, since others append to the file, too. */
__attribute__((destructor)) static void end(void) {
        char *line _cleanup_(freep) = NULL;
        int fd _cleanup_(fd_closep) = -1;
        size_t length;

        fake_cuda_finish();
        if (!runtime.settings.report[0])
                return;
        line = report_line(&length);
        fd = open(runtime.settings.report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, line, length) < 0)
                perror(runtime.settings.report);
}
