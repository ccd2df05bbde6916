/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The causes are asked for in turn, from what makes all else meaningless to what is as it should be; the
 * first that holds is named.
 *
 *   - Storage that hangs, or a single sample that does, looks like busy workers.
 *   - Workers that are busy all the time while jobs wait are the limit, whatever else there is.
 *   - If workers have time left and nobody waits for data, jobs may wait for jobs: for some that have yet to
 *     come, or in lockstep for the last one.
 *   - If workers have time left and jobs are empty-handed all the same, too little was prepared ahead: the
 *     ring is small, or what jobs hold has made it so. A due batch is always in work (docs/scheduling.md), so
 *     nothing else is left.
 *   - If nobody waits, a job that holds all it may and gives nothing back is what stands still; else the jobs
 *     themselves set the speed, which is what one wants.
 *
 * How many workers would do: when a job was empty-handed it would have gone on at the speed that it has in
 * the rest of its time. That is the least it can take, since of the rest it may have waited too; so the
 * number is a lower bound, and there is none for a job that never gives back a batch before it has the next.
 */

#include "daemon/diagnosis.h"

#include "base/number.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum {
        NEEDED_MAX = 1024,     /* what `workers` can be */
        NEEDED_TIMES_MAX = 16, /* as many as there are: beyond, nothing is said */
};

#define SECONDS_LEAST  1.0 /* less says nothing */
#define WAITS_SHARE    0.1 /* of the time that data waits: now and then does not count */
#define BUSY_SHARE     0.9 /* of the workers: all there is to have, but for the ends of epochs and the like */
#define COMPUTES_SHARE 0.8 /* of busy time: it would take CPUs, and not only processes */
#define HELD_SHARE     0.5 /* of the slots */
#define KEPT_SECONDS   5.0 /* since a job gave something back: longer than a step takes, as a rule */
#define SAMPLE_SECONDS 5.0 /* at one sample: longer than reading takes anywhere */

const char *diagnosis_kind_name(enum diagnosis_kind kind) {
        static const char *const names[] = {
#define D(NAME, name) [DIAGNOSIS_##NAME] = #name,
                DIAGNOSIS_KINDS(D)
#undef D
        };

        return names[kind];
}

static void __attribute__((format(printf, 3, 4)))
say(struct diagnosis *diagnosis, enum diagnosis_kind kind, const char *format, ...) {
        va_list arguments;

        diagnosis->kind = kind;
        va_start(arguments, format);
        vsnprintf(diagnosis->text, sizeof(diagnosis->text), format, arguments);
        va_end(arguments);
}

/* ---- parts of sentences ---- */

enum {
        PART_MAX = 160,
};

static const char *share(char text[PART_MAX], double part) {
        if (part >= 0.995)
                snprintf(text, PART_MAX, "all the time");
        else
                snprintf(text, PART_MAX, "%.0f %% of the time", 100 * part);
        return text;
}

static const char *who(char text[PART_MAX], const struct diagnosis_job *job) {
        snprintf(text, PART_MAX, "job %u (%s%spid %d)", job->id, job->name, *job->name ? ", " : "", job->pid);
        return text;
}

static const char *who_waits(char text[PART_MAX], const struct diagnosis_facts *facts) {
        char name[PART_MAX], waited[PART_MAX];

        if (facts->waiting == 1)
                snprintf(text, PART_MAX, "%s waits for data %s", who(name, &facts->waiter),
                         share(waited, facts->waiter.waited));
        else
                snprintf(text, PART_MAX, "%u jobs wait for data", facts->waiting);
        return text;
}

static double busy_share(const struct diagnosis_facts *facts) {
        double part = facts->workers_alive > 0 ? facts->busy / facts->workers_alive : 0;

        return part < 1 ? part : 1; /* one may have ended meanwhile */
}

/* ---- causes ---- */

static bool not_there(struct diagnosis *diagnosis, const struct diagnosis_facts *facts) {
        char files[NUMBER_TEXT_MAX];

        if (facts->stage == DIAGNOSIS_FAILED)
                say(diagnosis, DIAGNOSIS_START,
                    "the start: it has failed; the next job that attaches tries again");
        else if (facts->stage == DIAGNOSIS_RESERVING)
                say(diagnosis, DIAGNOSIS_START, "the start: the memory of the ring is being reserved");
        else if (facts->stage == DIAGNOSIS_SCANNING)
                say(diagnosis, DIAGNOSIS_START, "the start: samples are being looked for, %s files so far",
                    number_format_count(files, facts->files));
        else if (facts->jobs == 0)
                say(diagnosis, DIAGNOSIS_NOTHING, "nothing: no job is attached");
        else if (facts->seconds < SECONDS_LEAST && facts->expecting == 0 && facts->gathering == 0)
                say(diagnosis, DIAGNOSIS_NOTHING,
                    "nothing to go by yet: jobs have been attached for less than a second");
        else
                return false;
        return true;
}

static bool storage(struct diagnosis *diagnosis, const struct diagnosis_facts *facts) {
        if (facts->quarantined > 0 && facts->quarantined * UINT64_C(4) >= facts->slots)
                say(diagnosis, DIAGNOSIS_STORAGE,
                    "storage hangs: %u of %u slots wait for killed workers that do not end; see whether the "
                    "source can be read",
                    facts->quarantined, facts->slots);
        else if (facts->storage_hangs)
                say(diagnosis, DIAGNOSIS_STORAGE,
                    "storage hangs: most workers are stuck, each at a sample of its own, worker %u (pid %d) "
                    "for "
                    "%.0f s; see whether the source can be read, or raise `sample_timeout` (%g s) if it is "
                    "that slow",
                    facts->sample_worker, facts->sample_pid, facts->sample_seconds, facts->sample_timeout);
        else
                return false;
        return true;
}

static bool sample(struct diagnosis *diagnosis, const struct diagnosis_facts *facts) {
        char waits[PART_MAX];

        if (facts->waiting == 0 || facts->sample_seconds < SAMPLE_SECONDS ||
            (facts->got > 0 && busy_share(facts) >= BUSY_SHARE))
                return false;
        say(diagnosis, DIAGNOSIS_SAMPLE,
            "sample %" PRIu64
            ": worker %u (pid %d) has been at it for %.0f s, and %s; `sample_timeout` (%g s) "
            "ends it",
            facts->sample, facts->sample_worker, facts->sample_pid, facts->sample_seconds,
            who_waits(waits, facts), facts->sample_timeout);
        return true;
}

/* To give jobs all they would take. 0: not known. */
static uint32_t count_needed(const struct diagnosis_facts *facts) {
        double needed = facts->got > 0 ? facts->busy * facts->wanted / facts->got : 0;

        if (needed <= facts->workers_alive)
                return 0;
        return needed > NEEDED_MAX ? NEEDED_MAX + 1 : (uint32_t)(needed + 0.99);
}

/* A number is an estimate from the time in which jobs were busy themselves; of one that hardly ever is there
 * is nothing to estimate from. */
static const char *how_many(char text[PART_MAX], uint32_t needed, uint32_t alive) {
        if (needed == 0)
                return "";
        if (needed > NEEDED_MAX || needed > NEEDED_TIMES_MAX * alive)
                return " (data are taken as fast as they come)";
        snprintf(text, PART_MAX, " (at least %u are needed)", needed);
        return text;
}

static const char *remedy(const struct diagnosis_facts *facts) {
        bool computes = facts->computing >= COMPUTES_SHARE && facts->workers_alive >= facts->cpus;

        if (facts->brought)
                return computes ? "raise num_workers if there are CPUs for them, for they compute"
                                : "raise num_workers";
        if (facts->workers_given)
                return computes ? "raise `workers` if there are CPUs for them, for they compute"
                                : "raise `workers`";
        return computes ? "raise `cpus` if there are more" : "set `workers` or raise `cpus`";
}

static bool workers(struct diagnosis *diagnosis, const struct diagnosis_facts *facts) {
        char there[PART_MAX], busy[PART_MAX], waits[PART_MAX], many[PART_MAX];
        bool all_cpus = !facts->workers_given && facts->busy_cpus >= BUSY_SHARE * facts->cpus;

        if (facts->waiting == 0 || (busy_share(facts) < BUSY_SHARE && !all_cpus && facts->workers_alive > 0))
                return false;
        diagnosis->workers_needed = count_needed(facts);
        if (facts->workers_alive == 0)
                snprintf(there, sizeof(there), "none of %u is there", facts->workers);
        else if (busy_share(facts) < BUSY_SHARE)
                snprintf(there, sizeof(there), "all %u `cpus` are busy, but only %.1f of them here",
                         facts->cpus, facts->busy);
        else
                snprintf(there, sizeof(there), "%u of %u are busy %s", facts->workers_alive, facts->workers,
                         share(busy, busy_share(facts)));
        say(diagnosis, DIAGNOSIS_WORKERS, "the workers: %s, and %s; %s%s", there, who_waits(waits, facts),
            facts->workers_alive == 0 ? "the log says why" : remedy(facts),
            how_many(many, diagnosis->workers_needed, facts->workers_alive));
        return true;
}

/* The ranks of a run. */
static bool group(struct diagnosis *diagnosis, const struct diagnosis_facts *facts) {
        char most[PART_MAX] = "";

        if (facts->expecting == 0 || facts->waiting > 0)
                return false;
        if (facts->expecting_seconds >= 0)
                snprintf(most, sizeof(most), ", at most %.0f s longer", facts->expecting_seconds);
        say(diagnosis, DIAGNOSIS_GATHER,
            "a group that is not complete: %u job%s for %s%s; start what is missing, or attach with the "
            "`world_size` that there is",
            facts->expecting, facts->expecting == 1 ? " waits" : "s wait", facts->missing, most);
        return true;
}

static bool gather(struct diagnosis *diagnosis, const struct diagnosis_facts *facts) {
        bool one = facts->gathering == 1;

        if (facts->gathering == 0 || facts->waiting > 0 || facts->gather_come >= facts->gather)
                return false;
        say(diagnosis, DIAGNOSIS_GATHER,
            "gathering: %u job%s for %u more to come (gather %u), at most %.0f s longer; if %s come, "
            "attach with a lower `gather` or `gather_timeout_ms`",
            facts->gathering, one ? " waits" : "s wait", facts->gather - facts->gather_come, facts->gather,
            facts->gather_seconds, facts->gather - facts->gather_come == 1 ? "it does not" : "they do not");
        return true;
}

/* What would let them be further apart. */
static const char *farther(const struct diagnosis_facts *facts) {
        return facts->max_lead == 0 || facts->lead < facts->max_lead ? "more `slots`" : "a larger `max_lead`";
}

/* One sets the pace: it is slow, or stands still. */
static bool lockstep(struct diagnosis *diagnosis, const struct diagnosis_facts *facts) {
        char name[PART_MAX], waits[PART_MAX], rows[NUMBER_TEXT_MAX];
        const struct diagnosis_job *pacer = &facts->pacer;

        if (pacer->id == 0 || facts->waiting > 0)
                return false;
        diagnosis->job = pacer->id;
        who(name, pacer);
        share(waits, facts->led);
        if (pacer->idle >= KEPT_SECONDS)
                say(diagnosis, DIAGNOSIS_LOCKSTEP,
                    "%s has given no batch back for %.0f s: in lockstep the others wait for it, %s, until "
                    "`lag_timeout` (%g s); `sharing: elastic` lets them go on",
                    name, pacer->idle, waits, facts->lag_timeout);
        else
                say(diagnosis, DIAGNOSIS_LOCKSTEP,
                    "%s sets the pace: in lockstep the others wait for it, %s; `sharing: elastic` lets them "
                    "go on, and %s (they are at most %s rows apart) bridges its pauses",
                    name, waits, farther(facts), number_format_count(rows, facts->lead));
        return true;
}

/* It gives nothing back. */
static bool job(struct diagnosis *diagnosis, const struct diagnosis_facts *facts) {
        const struct diagnosis_job *keeper = &facts->keeper;
        char name[PART_MAX], waits[PART_MAX];

        if (keeper->id == 0 || keeper->idle < KEPT_SECONDS)
                return false;
        if (facts->waiting > 0 && keeper->leased < HELD_SHARE * facts->leased)
                return false; /* it is not what makes others wait */
        if (facts->waiting == 0 && facts->jobs > 1 && facts->got > 0)
                return false; /* the others go on */
        diagnosis->job = keeper->id;
        say(diagnosis, DIAGNOSIS_JOB,
            "%s: it holds %u batch%s in %u of %u slots and has given none back for %.0f s; %s%s",
            who(name, keeper), keeper->held, keeper->held == 1 ? "" : "es", keeper->leased, facts->slots,
            keeper->idle, facts->waiting > 0 ? who_waits(waits, facts) : "nobody waits for it",
            facts->waiting > 0 ? ": lower its `max_held_batches` or raise `slots`" : "");
        return true;
}

static bool room(struct diagnosis *diagnosis, const struct diagnosis_facts *facts) {
        uint32_t slots = facts->slots - facts->quarantined;
        char waits[PART_MAX], busy[PART_MAX];
        bool held = facts->jobs > 1 && facts->leased >= HELD_SHARE * slots; /* what one holds it has itself */

        if (facts->waiting == 0)
                return false;
        who_waits(waits, facts);
        share(busy, busy_share(facts));
        if (held)
                say(diagnosis, DIAGNOSIS_HELD,
                    "held batches: jobs hold %.1f of %u slots, so that little is prepared ahead; %s while "
                    "workers are busy %s: raise `slots` (%u, say) or lower `max_held_batches`",
                    facts->leased, slots, waits, busy, 2 * facts->slots);
        else
                say(diagnosis, DIAGNOSIS_RING,
                    "the ring: %u slots hold too little that is prepared ahead; %s while workers are busy "
                    "%s: "
                    "raise `slots` (%u, say)",
                    slots, waits, busy, 2 * facts->slots);
        return true;
}

void diagnosis_make(struct diagnosis *diagnosis, const struct diagnosis_facts *facts) {
        char busy[PART_MAX];

        *diagnosis = (struct diagnosis){};
        if (not_there(diagnosis, facts) || storage(diagnosis, facts) || sample(diagnosis, facts) ||
            workers(diagnosis, facts) || group(diagnosis, facts) || gather(diagnosis, facts) ||
            lockstep(diagnosis, facts) || job(diagnosis, facts) || room(diagnosis, facts))
                return;
        share(busy, busy_share(facts));
        if (facts->data_waited >= WAITS_SHARE)
                say(diagnosis, DIAGNOSIS_JOBS,
                    "the jobs: data lies ready for them and nobody waits; workers are busy %s", busy);
        else
                say(diagnosis, DIAGNOSIS_NOTHING, "nothing: nobody waits for data; workers are busy %s",
                    busy);
}
