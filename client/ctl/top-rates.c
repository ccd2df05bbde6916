/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What happened between two answers. All that counts in them only grows while the thing it belongs to is
 * there, so a rate is a difference divided by the time between, which the daemon's own uptime gives: how long
 * an answer was on its way does not matter. Where a number has fallen the thing is another one of the same
 * name, and nothing is known of it yet.
 *
 * Things are found again by what tells them apart. They nearly always stand where they stood, and are looked
 * for there first: a thousand workers cost no million comparisons. */

#include "client/ctl/top.h"

#include "client/ctl/ctl.h"

#include <math.h>
#include <string.h>

static double real_of(const json_t *object, const char *name) {
        return json_number_value(json_object_get(object, name));
}

double top_seconds(const struct top_view *view) {
        return view->before ? real_of(view->now, "uptime_seconds") - real_of(view->before, "uptime_seconds")
                            : 0;
}

/* Members that tell the things of any list apart; most lack some of them, and so does the other. */
static bool is_same(const json_t *a, const json_t *b) {
        static const char *const members[] = {"id", "number", "pid"};

        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
                if (ctl_number_of(a, members[i]) != ctl_number_of(b, members[i]))
                        return false;
        return strcmp(ctl_text_of(a, "pipeline"), ctl_text_of(b, "pipeline")) == 0 &&
               strcmp(ctl_text_of(a, "name"), ctl_text_of(b, "name")) == 0;
}

const json_t *top_before(const struct top_view *view, const char *list, const json_t *now, size_t index) {
        const json_t *things = json_object_get(view->before, list), *thing = json_array_get(things, index);

        if (thing && is_same(thing, now))
                return thing;
        for (size_t i = 0; i < json_array_size(things); i++)
                if (is_same(json_array_get(things, i), now))
                        return json_array_get(things, i);
        return NULL;
}

double top_grown(const struct top_view *view, const json_t *before, const json_t *now, const char *member) {
        double seconds = top_seconds(view), grown = real_of(now, member) - real_of(before, member);

        if (!before || seconds <= 0 || grown < 0 || !json_is_number(json_object_get(now, member)))
                return NAN;
        return grown / seconds;
}

/* A member of "recent", which is of no time at all right after the start. */
static double recent_of(const json_t *object, const char *member) {
        const json_t *recent = json_object_get(object, "recent");

        if (real_of(recent, "seconds") <= 0)
                return NAN;
        return real_of(recent, member);
}

double top_pipeline_rate(const struct top_view *view, const json_t *before, const json_t *pipeline,
                         const char *member) {
        double rate = top_grown(view, before, pipeline, member);
        char recent[64];

        if (!isnan(rate))
                return rate;
        snprintf(recent, sizeof(recent), "%s_per_second", member);
        return recent_of(pipeline, recent);
}

double top_pipeline_busy(const struct top_view *view, const json_t *before, const json_t *pipeline) {
        double busy = top_grown(view, before, pipeline, "busy_seconds");

        return isnan(busy) ? recent_of(pipeline, "workers_busy") : busy;
}

double top_busy(const struct top_view *view) {
        const json_t *pipelines = json_object_get(view->now, "pipelines");
        double sum = 0;

        for (size_t i = 0; i < json_array_size(pipelines); i++) {
                const json_t *p = json_array_get(pipelines, i);
                double busy = top_pipeline_busy(view, top_before(view, "pipelines", p, i), p);

                sum += isnan(busy) ? 0 : busy;
        }
        return sum;
}

double top_worker_busy(const struct top_view *view, const json_t *worker, size_t index) {
        double busy = top_grown(view, top_before(view, "workers", worker, index), worker, "busy_seconds");
        double uptime = real_of(worker, "uptime_seconds");

        if (isnan(busy))
                busy = uptime > 0 ? real_of(worker, "busy_seconds") / uptime : 0;
        return busy > 1 ? 1 : busy;
}

double top_job_share(const struct top_view *view, const json_t *before, const json_t *job, const char *name) {
        char member[64];
        double share;

        snprintf(member, sizeof(member), "%s_s", name);
        share = top_grown(view, before, job, member);
        if (isnan(share))
                share = recent_of(job, name);
        return share > 1 ? 1 : share;
}

double top_job_rate(const struct top_view *view, const json_t *before, const json_t *job) {
        double rate = top_grown(view, before, job, "rows");

        if (isnan(rate) && json_is_number(json_object_get(job, "rows_per_second")))
                rate = real_of(job, "rows_per_second");
        return rate;
}

static const json_t *find_pipeline(const json_t *status, const char *name) {
        const json_t *pipelines = json_object_get(status, "pipelines");

        for (size_t i = 0; i < json_array_size(pipelines); i++)
                if (strcmp(ctl_text_of(json_array_get(pipelines, i), "name"), name) == 0)
                        return json_array_get(pipelines, i);
        return NULL;
}

double top_job_lag(const struct top_view *view, const json_t *job) {
        const json_t *jobs = json_object_get(view->now, "jobs"), *seed = json_object_get(job, "seed");
        const char *name = ctl_text_of(job, "pipeline");
        double samples = real_of(find_pipeline(view->now, name), "samples");
        double own = real_of(job, "epoch") * samples + real_of(job, "row"), first = own;
        uint32_t others = 0;

        for (size_t i = 0; i < json_array_size(jobs); i++) {
                const json_t *j = json_array_get(jobs, i);
                double place = real_of(j, "epoch") * samples + real_of(j, "row");

                if (j == job || strcmp(ctl_text_of(j, "pipeline"), name) != 0 ||
                    !json_equal(json_object_get(j, "seed"), seed))
                        continue;
                others++;
                first = place > first ? place : first;
        }
        return others > 0 && samples > 0 ? first - own : NAN;
}

const char *top_sentence(const json_t *pipeline) {
        const char *text = json_string_value(json_object_get(pipeline, "error"));

        if (!text)
                text = json_string_value(json_object_get(pipeline, "waiting_for"));
        if (!text)
                text = json_string_value(json_object_get(json_object_get(pipeline, "held_back_by"), "text"));
        return text && *text ? text : NULL;
}

const char *top_state(const json_t *pipeline) {
        return json_is_true(json_object_get(pipeline, "superseded")) ? "superseded"
                                                                     : ctl_text_of(pipeline, "state");
}

uint32_t top_count_jobs(const json_t *status, const json_t *pipeline) {
        const json_t *jobs = json_object_get(status, "jobs");
        const char *name = ctl_text_of(pipeline, "name");
        uint32_t n = 0;

        for (size_t i = 0; i < json_array_size(jobs); i++)
                n += strcmp(ctl_text_of(json_array_get(jobs, i), "pipeline"), name) == 0;
        return n;
}

/* What is leased is ready, too, and is counted once here. A ring that is not there has no slot in use. */
void top_count_slots(struct top_slots *slots, const json_t *pipeline) {
        uint64_t used;

        slots->all = ctl_number_of(pipeline, "slots");
        slots->leased = ctl_number_of(pipeline, "slots_leased");
        slots->ready = ctl_number_of(pipeline, "slots_ready");
        slots->ready -= slots->ready < slots->leased ? slots->ready : slots->leased;
        slots->filling = ctl_number_of(pipeline, "slots_filling");
        slots->quarantined = ctl_number_of(pipeline, "slots_quarantined");
        used = slots->leased + slots->ready + slots->filling + slots->quarantined;
        slots->free = slots->all > used ? slots->all - used : 0;
}
