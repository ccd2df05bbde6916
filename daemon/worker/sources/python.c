/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A user's own dataset. This file knows no Python: the extension module pinfeed._worker, which is a worker
 * around this same code, hangs its functions in here. pinfeed-worker has no interpreter and leaves them out;
 * what it then says is for people who have started the wrong program, since the daemon starts the right one.
 *
 * The functions are the process's and not a source's: a worker has one source, and one interpreter. */

#include "daemon/worker/sources/python.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/worker/source.h"

#include <errno.h>
#include <stdlib.h>

struct source {
        struct schema schema; /* of one row */
};

static const struct python_functions *functions;
static uint32_t worker;

void python_set_functions(const struct python_functions *ours) {
        functions = ours;
}

static int no_interpreter(struct fault *fault) {
        return fault_set(fault, -EOPNOTSUPP,
                         "a source of type python needs a worker in Python, `python -m pinfeed.worker`; this "
                         "one is pinfeed-worker");
}

static void python_set_worker(uint32_t number) {
        worker = number;
}

static int python_scan(const struct recipe_source *recipe, source_progress_fn progress, void *context,
                       uint64_t *samples, uint32_t *classes, int *index_fd, struct fault *fault) {
        if (!functions)
                return no_interpreter(fault);
        *classes = 0;
        *index_fd = -1;
        return functions->scan(samples, fault);
}

static struct source *python_close(struct source *source) {
        free(source);
        return NULL;
}

static void python_closep(struct source **source) {
        python_close(*source);
}

static int python_open(struct source **sourcep, const struct recipe_source *recipe, const struct index *index,
                       struct fault *fault) {
        _cleanup_(python_closep) struct source *source = NULL;
        int r;

        if (!functions)
                return no_interpreter(fault);
        source = calloc(1, sizeof(*source));
        if (!source)
                return fault_set(fault, -ENOMEM, "no memory for the source");
        r = recipe_parse_fields(&source->schema, recipe->fields, fault);
        if (r >= 0)
                r = schema_lay_out(&source->schema, 1, fault);
        if (r >= 0)
                r = functions->open(worker, &source->schema, fault);
        if (r < 0)
                return r;
        *sourcep = source;
        source = NULL;
        return 0;
}

static int python_write(struct source *source, const struct source_request *request, void *const cells[],
                        struct fault *fault) {
        return functions->write(request, cells, fault);
}

static const struct source_exception *python_exception(void) {
        return functions ? functions->exception() : NULL;
}

static int python_set_up(const char *recipe, const char *layout, struct fault *fault) {
        return functions ? functions->set_up(recipe, layout, fault) : no_interpreter(fault);
}

/* The samples of a dataset have no names. */
static void python_name_of(struct source *source, uint64_t sample, char *name, size_t size) {
        if (size > 0)
                name[0] = 0;
}

const struct source_ops source_python = {
        .name = "python",
        .scan = python_scan,
        .open = python_open,
        .close = python_close,
        .write = python_write,
        .name_of = python_name_of,
        .set_worker = python_set_worker,
        .exception = python_exception,
        .set_up = python_set_up,
};
