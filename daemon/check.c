/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * `pinfeedd --check` answers, before anything is started, what an administrator would otherwise learn from a
 * failure: how many bytes the rings take, where they would lie, and whether the sources can be read by this
 * user.
 *
 * The number of slots may depend on free memory, so it is not computed a second time here: ring_init, the
 * daemon's own code, is asked for a ring of which nothing is reserved, and the ring is closed at once.
 */

#include "daemon/check.h"

#include "base/cleanup.h"
#include "base/cpu.h"
#include "base/fault.h"
#include "base/number.h"
#include "base/shm.h"
#include "daemon/config.h"
#include "daemon/description.h"
#include "daemon/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

/* What the rings of all pipelines add up to. */
struct totals {
        uint64_t bytes;
        uint64_t shm_bytes;
        unsigned shm_rings;
};

static void add(uint64_t *total, uint64_t bytes) {
        if (!number_add_u64(*total, bytes, total))
                *total = UINT64_MAX;
}

static void print_bytes(FILE *out, const char *what, uint64_t bytes) {
        char text[NUMBER_TEXT_MAX];

        fprintf(out, "  %-11s %" PRIu64 " bytes (%s)\n", what, bytes, number_format_bytes(text, bytes));
}

static void print_field(FILE *out, const struct schema *schema, const struct schema_field *field) {
        fprintf(out, "  %-11s %s: %s, %" PRIu32, "field", field->name, schema_dtype_name(field->dtype),
                schema->slot_rows);
        for (uint32_t i = 0; i < field->n_dims; i++)
                fprintf(out, " x %" PRIu64, field->shape[i]);
        if (field->order == SCHEMA_CHANNELS_LAST)
                fputs(", channels_last", out);
        fprintf(out, ", %" PRIu64 " bytes a row\n", field->row_bytes);
}

static void print_recipe(FILE *out, const struct recipe *recipe) {
        const struct recipe_source *source = &recipe->source;

        fprintf(out, "  %-11s %s", "source", recipe_sources[source->type].name);
        if (source->type == RECIPE_SYNTHETIC)
                fprintf(out, " %s, %" PRIu64 " samples\n", recipe_synthetic_modes[source->mode],
                        source->samples);
        else
                fprintf(out, " %s\n", source->type == RECIPE_PYTHON ? source->dataset : source->path);
        for (uint32_t i = 0; i < recipe->n_transforms; i++)
                fprintf(out, "%s%s", i ? ", " : "  transforms  ",
                        recipe_transforms[recipe->transforms[i].type].name);
        if (recipe->n_transforms)
                fputc('\n', out);
}

static const char *describe_last_batch(int last_batch) {
        switch (last_batch) {
        case LAST_BATCH_DROP:
                return "dropped when short";
        case LAST_BATCH_PAD:
                return "padded when short";
        default:
                return "short";
        }
}

static void print_slot(FILE *out, const struct config_pipeline *pipeline) {
        const struct schema *schema = &pipeline->schema;
        uint64_t row_bytes = 0;

        fprintf(out, "  %-11s %" PRIu64 " rows, %s, seed %" PRIu64 ", last batch %s\n", "batch",
                pipeline->batch_size, pipeline->shuffle ? "shuffled" : "in order", pipeline->seed,
                describe_last_batch(pipeline->last_batch));
        for (uint32_t i = 0; i < schema->n_fields; i++) {
                print_field(out, schema, &schema->fields[i]);
                add(&row_bytes, schema->fields[i].row_bytes);
        }
        print_bytes(out, "row", row_bytes);
        print_bytes(out, "slot", schema->slot_bytes);
}

static void print_ring(FILE *out, const struct config *config, const struct config_pipeline *pipeline,
                       struct totals *totals) {
        struct ring ring = RING_INIT;
        uint64_t bytes = pipeline->ring_bytes;
        uint32_t slots = pipeline->n_slots;
        char text[NUMBER_TEXT_MAX];
        struct fault reason;
        int r;

        r = ring_init(&ring, config, pipeline, &reason);
        if (r >= 0) {
                slots = ring.slots;
                bytes = ring_bytes(&ring);
        }
        fprintf(out, "  %-11s %" PRIu32 " slots, %" PRIu64 " bytes (%s)", "ring", slots, bytes,
                number_format_bytes(text, bytes));
        if (r < 0)
                fprintf(out, "\n  warning     %s\n", reason.text);
        else
                fprintf(out, ", in %s, reserved %s\n",
                        ring.backing == CONFIG_BACKING_SHM ? "/dev/shm" : "a memfd",
                        pipeline->reserve == CONFIG_RESERVE_START ? "at the start" : "with the first job");
        add(&totals->bytes, bytes);
        if (r >= 0 && ring.backing == CONFIG_BACKING_SHM) {
                add(&totals->shm_bytes, bytes);
                totals->shm_rings++;
        }
        ring_deinit(&ring);
}

static void print_workers(FILE *out, const struct config_pipeline *pipeline) {
        if (pipeline->workers)
                fprintf(out, "  %-11s %" PRIu64 "\n", "workers", pipeline->workers);
        else
                fprintf(out, "  %-11s shared with all pipelines, see cpus\n", "workers");
}

/* How jobs share, where that is not the usual. */
static void print_sharing(FILE *out, const struct config_pipeline *pipeline) {
        if (pipeline->sharing == CONFIG_SHARING_LOCKSTEP && pipeline->max_lead > 0)
                fprintf(out, "  %-11s lockstep, at most %" PRIu64 " rows apart\n", "sharing",
                        pipeline->max_lead);
        else if (pipeline->sharing == CONFIG_SHARING_LOCKSTEP)
                fprintf(out, "  %-11s lockstep, as far apart as the ring has room for\n", "sharing");
        if (pipeline->sharing == CONFIG_SHARING_LOCKSTEP &&
            pipeline->lag_timeout != CONFIG_LAG_TIMEOUT_DEFAULT)
                fprintf(out, "  %-11s %.10g seconds, then a job is waited for no more\n", "lag_timeout",
                        pipeline->lag_timeout);
        if (pipeline->warm > 0)
                fprintf(out, "  %-11s %" PRIu64 " slots, while there is no job\n", "warm", pipeline->warm);
        if (pipeline->catch_up != CONFIG_CATCH_UP_DEFAULT)
                fprintf(out, "  %-11s %.10g seconds of work\n", "catch_up", pipeline->catch_up);
}

/* What becomes of bad samples, where that is not the usual. */
static void print_errors(FILE *out, const struct config_pipeline *pipeline) {
        if (pipeline->on_error == CONFIG_ON_ERROR_FAIL)
                fprintf(out, "  %-11s fail: a bad sample ends its jobs\n", "on_error");
        else if (pipeline->max_errors != CONFIG_MAX_ERRORS_DEFAULT)
                fprintf(out, "  %-11s at most %.10g of the samples are replaced\n", "max_errors",
                        pipeline->max_errors);
        if (pipeline->sample_timeout != CONFIG_SAMPLE_TIMEOUT_DEFAULT)
                fprintf(out, "  %-11s %.10g seconds for a sample\n", "timeout", pipeline->sample_timeout);
}

static int print_readable(FILE *out, const struct config_pipeline *pipeline, struct fault *fault) {
        char found[PATH_MAX];
        struct fault reason;
        int r;

        r = check_source(pipeline, found, sizeof(found), &reason);
        if (r < 0) {
                fprintf(out, "  %-11s no: %s\n", "readable", reason.text);
                return fault_set(fault, r, "pipeline %s: %s", pipeline->name, reason.text);
        }
        if (*found)
                fprintf(out, "  %-11s yes, opened %s\n", "readable", found);
        return 0;
}

/* Whether it works, and all that the samples decide: what is not known is left out. */
static int print_pipeline(FILE *out, const struct config *config, const struct config_pipeline *pipeline,
                          struct totals *totals, struct fault *fault) {
        struct config_pipeline completed = {};
        bool is_described = recipe_is_described(&pipeline->recipe);
        int r;

        fprintf(out, "\n%s (line %u)\n", pipeline->name, pipeline->line);
        print_recipe(out, &pipeline->recipe);
        if (is_described)
                r = check_dataset(config, pipeline, out, &completed, fault);
        else
                r = print_readable(out, pipeline, fault);
        if (is_described && r >= 0)
                pipeline = &completed;
        if (pipeline->schema.n_fields > 0) {
                print_slot(out, pipeline);
                print_ring(out, config, pipeline, totals);
        }
        print_workers(out, pipeline);
        print_errors(out, pipeline);
        print_sharing(out, pipeline);
        description_forget(&completed);
        return r;
}

/* Rings that fit each alone may not fit together. */
static void warn_of_totals(FILE *out, const struct totals *totals) {
        _cleanup_(fd_closep) int fd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        char text[2][NUMBER_TEXT_MAX];
        uint64_t free_bytes;

        if (totals->shm_rings < 2 || fd < 0 || shm_free_bytes(fd, &free_bytes) < 0 ||
            totals->shm_bytes <= free_bytes)
                return;
        fprintf(out,
                "warning: %u rings in /dev/shm need %" PRIu64 " bytes (%s) together, %" PRIu64
                " bytes (%s) are free; say `backing: memfd` or fewer `slots` for some\n",
                totals->shm_rings, totals->shm_bytes, number_format_bytes(text[0], totals->shm_bytes),
                free_bytes, number_format_bytes(text[1], free_bytes));
}

static void print_head(FILE *out, const struct config *config) {
        fprintf(out, "%s: %" PRIu32 " pipeline%s\n", config->file, config->n_pipelines,
                config->n_pipelines == 1 ? "" : "s");
        if (config->cpus)
                fprintf(out, "cpus %" PRIu64 ", workers at nice %" PRId64 "\n", config->cpus, config->nice);
        else
                fprintf(out, "cpus auto (%d here), workers at nice %" PRId64 "\n", cpu_count_usable(""),
                        config->nice);
}

int check_print(const struct config *config, FILE *out, struct fault *fault) {
        struct totals totals = {};
        char text[NUMBER_TEXT_MAX];
        int result = 0, r;

        print_head(out, config);
        for (uint32_t i = 0; i < config->n_pipelines; i++) {
                r = print_pipeline(out, config, &config->pipelines[i], &totals, result ? NULL : fault);
                if (!result)
                        result = r;
        }
        fprintf(out, "\nall rings: %" PRIu64 " bytes (%s)\n", totals.bytes,
                number_format_bytes(text, totals.bytes));
        warn_of_totals(out, &totals);
        if (fflush(out) != 0 || ferror(out))
                return result ? result : fault_set(fault, -EIO, "cannot write the result of the check");
        return result;
}
