/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A user without a configuration file sends the pipeline with the job. It is read by the same code as a file,
 * with the same errors, and becomes a pipeline beside the others; a definition is the name of a pipeline and
 * everything that is said of it.
 *
 * A definition is compared by what it means, not by its text: jobs that say the same share one pipeline,
 * whatever file they say it in. So nothing is ever redefined under a running job. Who says something else
 * under the same name gets a pipeline of its own, and the older one goes on for its jobs until it rests; the
 * newer one is what the name means from then on to those who send no definition (daemon_find_pipeline). If
 * somebody defines the older one again before that, it is the newer one again.
 *
 * A definition may say that the job brings the workers. Then less of it counts (config_is_same), and it is
 * forgotten with its last job: nobody else could go on with it.
 *
 * What only a user may do: code of theirs will run with the rights of this process, and a path in a
 * definition is opened with them. So a definition is taken by a daemon that says it is private, from its own
 * uid; not even from root, which should not find its files read by a user's daemon by mistake.
 *
 * There is room for a number of pipelines. A definition that finds none takes the place of the pipeline
 * without a job that was asked for longest ago; what is in the configuration stays. */

#include "daemon/definition.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/daemon.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/roster.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
        NAMES_MAX = 512, /* of pipelines, listed in an error */
};

static void config_unrefp(struct config **config) {
        config_unref(*config);
}

/* ---- whether, and which ---- */

static int check_trust(const struct daemon *daemon, const struct job *job, struct fault *fault) {
        if (!daemon->options.is_private)
                return fault_set(
                        fault, -EPERM,
                        "pipeline definitions are taken by a private daemon only; the one at %s (pid "
                        "%d) serves what stands in %s: attach to one of its pipelines by name, or "
                        "give another runtime directory",
                        daemon->directory, (int)getpid(), daemon->config->file);
        if (job->uid != geteuid())
                return fault_set(fault, -EPERM,
                                 "pipeline definitions are taken from uid %u only, whose private daemon this "
                                 "is (pid %d); this job is of uid %u",
                                 (unsigned)geteuid(), (int)getpid(), (unsigned)job->uid);
        return 0;
}

/* The file's name goes into errors and log lines, and paths start from it. */
static int check_file(const char *file, struct fault *fault) {
        char clean[MESSAGE_FILE_MAX + 1];

        fault_sanitize(clean, sizeof(clean), file, strlen(file));
        if (*file != '/' || strcmp(clean, file) != 0)
                return fault_set(fault, -EINVAL,
                                 "the definition's file \"%s\" is expected as an absolute path without "
                                 "control bytes",
                                 clean);
        return 0;
}

static void list_names(const struct config *config, char names[NAMES_MAX]) {
        size_t n = 0;

        for (uint32_t i = 0; i < config->n_pipelines && n < NAMES_MAX; i++)
                n += (size_t)snprintf(names + n, NAMES_MAX - n, "%s%s", i > 0 ? ", " : "",
                                      config->pipelines[i].name);
}

/* The one that is meant: by its name, or because it is alone. */
static int choose(const struct config *config, const char *name, const struct config_pipeline **chosen,
                  struct fault *fault) {
        char names[NAMES_MAX];

        *chosen = *name ? config_find(config, name) : &config->pipelines[0];
        if (*chosen && (*name || config->n_pipelines == 1))
                return 0;
        list_names(config, names);
        if (*name)
                return fault_set(fault, -ENOENT, "no pipeline \"%s\" in %s; there are: %s", name,
                                 config->file, names);
        return fault_set(fault, -EINVAL, "%s defines %u pipelines, say which one is meant: %s", config->file,
                         config->n_pipelines, names);
}

/* ---- pipelines that come ---- */

/* 0, or -ENOSPC when every one of them is needed. */
static int make_room(struct daemon *daemon, struct fault *fault) {
        uint32_t oldest = UINT32_MAX;

        if (daemon->n_pipelines < CONFIG_PIPELINES_MAX)
                return 0;
        for (uint32_t i = 0; i < daemon->n_pipelines; i++)
                if (daemon->pipelines[i]->definition && roster_is_unused(daemon->pipelines[i]) &&
                    (oldest == UINT32_MAX || daemon->pipelines[i]->asked < daemon->pipelines[oldest]->asked))
                        oldest = i;
        if (oldest == UINT32_MAX)
                return fault_set(fault, -ENOSPC,
                                 "pinfeedd has %d pipelines, as many as it may, and none of them can be "
                                 "forgotten for another definition; end some jobs",
                                 CONFIG_PIPELINES_MAX);
        log_about(&(struct log_subject){.pipeline = daemon->pipelines[oldest]->label}, LOG_INFO,
                  "pipeline %s of %s is forgotten for another one", daemon->pipelines[oldest]->label,
                  daemon->pipelines[oldest]->whole->file);
        roster_remove(daemon, oldest);
        return 0;
}

static struct pipeline *find_same(const struct daemon *daemon, const struct config_pipeline *meant) {
        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                const struct config_pipeline *there = daemon->pipelines[i]->defined;

                if (!daemon->pipelines[i]->superseded && strcmp(there->name, meant->name) == 0 &&
                    config_is_same(there, meant))
                        return daemon->pipelines[i];
        }
        return NULL;
}

static int add(struct daemon *daemon, struct config *definition, const struct config_pipeline *meant,
               struct pipeline **pipeline, struct fault *fault) {
        int r = make_room(daemon, fault);

        if (r == 0)
                r = roster_make(daemon, definition, meant, pipeline, fault);
        if (r < 0)
                return r;
        (*pipeline)->definition = definition;
        roster_add(daemon, *pipeline);
        log_about(&(struct log_subject){.pipeline = (*pipeline)->label}, LOG_INFO,
                  "pipeline %s is defined by %s, line %u", (*pipeline)->label, definition->file, meant->line);
        return 0;
}

int definition_take(struct daemon *daemon, const struct job *job, struct pipeline **pipeline,
                    struct fault *fault) {
        _cleanup_(config_unrefp) struct config *definition = NULL;
        const struct config_pipeline *meant;
        int r;

        r = check_trust(daemon, job, fault);
        if (r == 0)
                r = check_file(job->definition.file, fault);
        if (r == 0)
                r = config_define(&definition, job->definition.file, job->definition.text, daemon->config,
                                  fault);
        if (r == 0)
                r = choose(definition, job->attach.pipeline, &meant, fault);
        if (r < 0)
                return r;
        *pipeline = find_same(daemon, meant);
        if (!*pipeline)
                r = add(daemon, definition, meant, pipeline, fault);
        if (r < 0)
                return r;
        if ((*pipeline)->definition)
                (*pipeline)->asked = ++daemon->definitions;
        roster_sweep(daemon, *pipeline);
        return 0;
}
