/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A start may take minutes when it reserves a large ring, and the manager kills a start that takes too long.
 * So the start asks for more time while memory is still coming, and only then: one that hangs ends at the
 * manager's limit. The line for people is made from counters that are there anyway, once a second, and goes
 * out when it has changed.
 *
 * The beat comes from a timer of the loop: a loop that does not turn does not beat. */

#include "daemon/announce.h"

#include "base/clock.h"
#include "base/number.h"
#include "daemon/daemon.h"
#include "daemon/job.h"
#include "daemon/service.h"

#include <stdio.h>
#include <string.h>

enum {
        ANNOUNCE_MORE_S = 30,     /* asked for at each look that sees a start get on */
        ANNOUNCE_LINE_MAX = 1500, /* a warning fits */
};

static void on_beating(uv_timer_t *timer) {
        service_beat();
}

void announce_start(struct daemon *daemon) {
        uint64_t ms = service_watchdog_ms();

        uv_timer_init(&daemon->loop, &daemon->announcer.beating);
        uv_unref((uv_handle_t *)&daemon->announcer.beating);
        if (ms > 0)
                uv_timer_start(&daemon->announcer.beating, on_beating, 0, ms);
}

void announce_ready(struct daemon *daemon) {
        daemon->announcer.ready = true;
        service_ready();
        announce_state(daemon);
}

void announce_stop(struct daemon *daemon) {
        uv_close((uv_handle_t *)&daemon->announcer.beating, NULL);
        service_stopping();
}

static void say_start(struct daemon *daemon) {
        char line[ANNOUNCE_LINE_MAX], done[NUMBER_TEXT_MAX], all[NUMBER_TEXT_MAX];
        uint64_t reserved = 0, bytes = 0;

        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                const struct pipeline *pipeline = daemon->pipelines[i];

                if (pipeline->config->reserve != CONFIG_RESERVE_START)
                        continue;
                reserved += pipeline->ring.reserved;
                bytes += ring_bytes(&pipeline->ring);
        }
        if (reserved > daemon->announcer.reserved)
                service_extend(ANNOUNCE_MORE_S);
        daemon->announcer.reserved = reserved;
        snprintf(line, sizeof(line), "starting: %s of %s reserved", number_format_bytes(done, reserved),
                 number_format_bytes(all, bytes));
        service_say(line);
}

static uint32_t count_jobs(const struct daemon *daemon) {
        uint32_t n = 0;

        list_for_each (link, &daemon->jobs)
                n += container_of(link, struct job, link)->state == JOB_ATTACHED;
        return n;
}

static uint32_t count_ready(const struct daemon *daemon) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < daemon->n_pipelines; i++)
                n += daemon->pipelines[i]->state == PIPELINE_READY;
        return n;
}

/* Delivered a second since the last look. A pipeline that was forgotten meanwhile takes its count along. */
static uint64_t take_rate(struct daemon *daemon) {
        struct announcer *announcer = &daemon->announcer;
        uint64_t now = clock_ns(), since = now - announcer->looked_ns, rows = 0, grown;
        struct scheduler_counters counters;

        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                pipeline_counters(daemon->pipelines[i], &counters);
                rows += counters.rows_delivered;
        }
        grown = rows > announcer->rows ? rows - announcer->rows : 0;
        announcer->rows = rows;
        announcer->looked_ns = now;
        return (uint64_t)((double)grown * NS_PER_S / (double)(since > 0 ? since : 1));
}

/* The first one; status has all. */
static void add_warnings(char line[ANNOUNCE_LINE_MAX], const struct daemon *daemon) {
        const struct surroundings *surroundings = &daemon->surroundings;
        size_t length = strlen(line);
        char others[64] = "";

        if (surroundings->n == 0)
                return;
        if (surroundings->n > 1)
                snprintf(others, sizeof(others), ", first of %u: see pinfeedctl status", surroundings->n);
        snprintf(line + length, ANNOUNCE_LINE_MAX - length, "; warning%s: %s", others,
                 surroundings->warnings[0].text);
}

static void say_work(struct daemon *daemon) {
        uint32_t jobs = count_jobs(daemon), ready = count_ready(daemon);
        char line[ANNOUNCE_LINE_MAX], rate[NUMBER_TEXT_MAX];

        snprintf(line, sizeof(line), "%u job%s, %u of %u pipelines ready, %s rows/s", jobs,
                 jobs == 1 ? "" : "s", ready, daemon->n_pipelines,
                 number_format_count(rate, take_rate(daemon)));
        add_warnings(line, daemon);
        service_say(line);
}

void announce_state(struct daemon *daemon) {
        if (!service_is_told())
                return;
        if (daemon->announcer.ready)
                say_work(daemon);
        else
                say_start(daemon);
}
