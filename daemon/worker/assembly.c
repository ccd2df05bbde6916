/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A row is made in one go: number -> sample -> source -> transforms -> its place in the slot.
 *
 * Everything that decides its bytes comes in with the chunk (seed, epoch, row) or stood in the recipe;
 * nothing is carried over from the row before except buffers and two caches that can be lost without a trace:
 * the order of the epoch in work and the table that turns pixel values into elements. So a chunk may be cut
 * anywhere, given to anybody and made twice.
 *
 * Sources without images write their fields themselves, straight into the slot. Images pass through the
 * transforms in one of two reused buffers, and the last step, out of that buffer into the slot, converts,
 * normalises and mirrors at once: each byte of the result is written once, each pixel read once.
 *
 * Three things can be wrong with a sample, and they are kept apart. An error of reading says nothing about
 * the sample: one that may pass is tried again after a while, and what stays ends the chunk, because a
 * storage that fails must not thin out the data in silence. A sample is bad when its bytes are no image for
 * this recipe, and condemned when the daemon says so; either one ends the chunk or, where bad samples are
 * replaced, the whole row is made from another sample: number, label, random draws and all, as that sample's
 * own row in this epoch would be. Only the hidden sample number stays, for it names the row's place in the
 * order, and a flag tells.
 *
 * The substitutes of a sample are the numbers uniform in [0, samples) that random_below_u64 draws from the
 * streams (seed, sample, epoch, RANDOM_SUBSTITUTE, attempt), attempt = 0, 1, 2 ...; the first one that is
 * neither bad nor condemned is taken. That is a function of the data and of the condemned, not of who works
 * on the row or has seen which samples before: what was found bad is therefore never remembered here. Where a
 * job has given the order, the numbers are rows of it: its samples are the only ones that are known to exist,
 * and a sampler that leaves samples out has its reasons.
 *
 * While a row is made the samples of the next ones are on their way: what the chunk has next is announced to
 * the source, up to SOURCE_AHEAD_MAX samples, but none that is condemned. Substitutes are not known before
 * they are needed, and other chunks may be recalled.
 *
 * Verifying is the same work without rows: the samples come by number, are loaded as wholes and thrown away.
 * An error of reading is told like any other then, since nobody's data are thinned out by a list. */

#include "daemon/worker/assembly.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/worker/image.h"
#include "daemon/worker/kernels/kernels.h"
#include "daemon/worker/orders.h"
#include "daemon/worker/progress.h"
#include "daemon/worker/sample-set.h"
#include "daemon/worker/source.h"
#include "daemon/worker/stages.h"
#include "daemon/worker/transform.h"
#include "proto/message-table.h"
#include "proto/order.h"
#include "proto/random.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <time.h>

/* Fields of a recipe whose source has images, as recipe_schema names them. */
enum {
        IMAGES,
        LABELS,
};

/* How a sample may be of no use without anything being wrong with the worker; work->why tells. */
enum sample_error {
        SAMPLE_E_BAD = 1,
        SAMPLE_E_CONDEMNED,
};

/* Pauses between tries where an error of reading may pass. */
static const unsigned pauses_ms[] = {10, 100, 1000};

struct assembly {
        const struct recipe *recipe;
        const struct schema *schema;
        const struct source_ops *ops;
        struct source *source;
        struct index index;
        int has_index;
        uint64_t samples;
        int shuffle;

        assembly_bad_fn bad; /* NULL: a bad sample ends its chunk */
        void *bad_context;
        struct sample_set condemned;

        /* the order of the epoch in work */
        struct order order;
        uint64_t order_seed;
        uint32_t order_epoch;
        int order_valid;

        struct stages stages; /* of the row in work */

        /* images only */
        uint32_t width, height; /* of the result */
        struct image image, spare;
        struct resizer resizer;
        struct convert_table table;
        float table_mean[3], table_std[3];
        int table_normalize;
        int table_valid;
};

struct assembly *assembly_free(struct assembly *assembly) {
        if (!assembly)
                return NULL;
        if (assembly->source)
                assembly->ops->close(assembly->source);
        if (assembly->has_index)
                index_deinit(&assembly->index);
        image_deinit(&assembly->image);
        image_deinit(&assembly->spare);
        resizer_deinit(&assembly->resizer);
        sample_set_deinit(&assembly->condemned);
        free(assembly);
        return NULL;
}

static void assembly_freep(struct assembly **assembly) {
        assembly_free(*assembly);
}

/* The size that the schema promises for every image. */
static void find_size(struct assembly *assembly) {
        const uint64_t *shape = assembly->schema->fields[IMAGES].shape;
        int hwc = assembly->recipe->output.layout == RECIPE_HWC;

        assembly->height = (uint32_t)shape[hwc ? 0 : 1];
        assembly->width = (uint32_t)shape[hwc ? 1 : 2];
}

static int map_index(struct assembly *assembly, int index_fd, struct fault *fault) {
        int r;

        if (index_fd < 0)
                return 0;
        r = index_init_map(&assembly->index, index_fd, fault);
        if (r < 0)
                return r;
        assembly->has_index = 1;
        if (assembly->index.header->samples != assembly->samples)
                return fault_set(fault, -EINVAL, "the index has %llu samples, told were %llu",
                                 (unsigned long long)assembly->index.header->samples,
                                 (unsigned long long)assembly->samples);
        return 0;
}

int assembly_new(struct assembly **assemblyp, const struct recipe *recipe, const struct schema *schema,
                 uint64_t samples, int shuffle, int index_fd, struct fault *fault) {
        _cleanup_(assembly_freep) struct assembly *assembly = NULL;
        int r;

        if (samples == 0)
                return fault_set(fault, -EINVAL, "the source has no samples");
        assembly = calloc(1, sizeof(*assembly));
        if (!assembly)
                return fault_set(fault, -ENOMEM, "no memory for the assembly");
        assembly->recipe = recipe;
        assembly->schema = schema;
        assembly->samples = samples;
        assembly->shuffle = shuffle;
        assembly->ops = source_find(recipe->source.type);
        if (!assembly->ops)
                return fault_set(fault, -EINVAL, "no source of type %d", recipe->source.type);
        if (assembly->ops->image)
                find_size(assembly);
        r = map_index(assembly, index_fd, fault);
        if (r < 0)
                return r;
        r = assembly->ops->open(&assembly->source, &recipe->source,
                                assembly->has_index ? &assembly->index : NULL, fault);
        if (r < 0)
                return r;
        *assemblyp = assembly;
        assembly = NULL;
        return 0;
}

void assembly_replace_bad(struct assembly *assembly, assembly_bad_fn bad, void *context) {
        assembly->bad = bad;
        assembly->bad_context = context;
}

int assembly_condemn(struct assembly *assembly, const uint64_t *samples, uint32_t n) {
        for (uint32_t i = 0; i < n; i++) {
                int r = sample_set_add(&assembly->condemned, samples[i]);

                if (r < 0)
                        return r;
        }
        return 0;
}

static uint64_t permuted_sample(struct assembly *assembly, uint64_t seed, uint32_t epoch, uint64_t row) {
        if (!assembly->order_valid || assembly->order_seed != seed || assembly->order_epoch != epoch) {
                order_init(&assembly->order, assembly->samples, seed, epoch);
                assembly->order_seed = seed;
                assembly->order_epoch = epoch;
                assembly->order_valid = 1;
        }
        return order_sample(&assembly->order, row);
}

/* How many samples there are is the dataset's to know; no number may be beyond what random.h counts. */
static int given_sample(const struct given_order *order, uint64_t row, uint64_t *sample,
                        struct fault *fault) {
        int64_t entry = order->entry[row];

        *sample = (uint64_t)entry;
        if (entry >= 0 && *sample < MESSAGE_SAMPLES_MAX)
                return 0;
        return fault_set(fault, -ERANGE, "row %llu of the given order is sample %lld, expected 0 to 2^48 - 1",
                         (unsigned long long)row, (long long)entry);
}

/* 0 or -ERANGE. */
static int find_sample(struct assembly *assembly, const struct assembly_chunk *chunk, uint64_t row,
                       uint64_t *sample, struct fault *fault) {
        row %= assembly->samples;
        if (order_names_samples(chunk->order, assembly->samples))
                return given_sample(chunk->order, row, sample, fault);
        *sample = row;
        if (assembly->shuffle && !chunk->order)
                *sample = permuted_sample(assembly, chunk->seed, chunk->epoch, row);
        return 0;
}

/* Remakes the table when a transform asks for other numbers than last time: in practice once. */
static int prepare_table(struct assembly *assembly, const struct transform_context *context,
                         struct fault *fault) {
        enum schema_dtype dtype = assembly->schema->fields[IMAGES].dtype;
        int r;

        if (assembly->table_valid && assembly->table_normalize == context->normalize &&
            memcmp(assembly->table_mean, context->mean, sizeof(context->mean)) == 0 &&
            memcmp(assembly->table_std, context->std, sizeof(context->std)) == 0)
                return 0;
        assembly->table_valid = 0;
        r = convert_table_init(&assembly->table, dtype, context->normalize, context->mean, context->std);
        if (r < 0)
                return fault_set(fault, r, "images cannot become %s", schema_dtype_name(dtype));
        assembly->table_normalize = context->normalize;
        memcpy(assembly->table_mean, context->mean, sizeof(context->mean));
        memcpy(assembly->table_std, context->std, sizeof(context->std));
        assembly->table_valid = 1;
        return 0;
}

static int write_image(struct assembly *assembly, const struct transform_context *context, void *cell,
                       struct fault *fault) {
        const struct image *image = &assembly->image;
        int r;

        if (image->width != assembly->width || image->height != assembly->height)
                return fault_set(fault, -EINVAL,
                                 "the transforms gave %ux%u pixels, the batch has room for %ux%u",
                                 image->width, image->height, assembly->width, assembly->height);
        r = prepare_table(assembly, context, fault);
        if (r < 0)
                return r;
        if (assembly->recipe->output.layout == RECIPE_CHW)
                convert_chw(&assembly->table, cell, image->pixels, image->stride, image->width, image->height,
                            image->mirrored);
        else
                convert_hwc(&assembly->table, cell, image->pixels, image->stride, image->width, image->height,
                            image->mirrored);
        return 0;
}

static int make_image(struct assembly *assembly, const struct source_request *request, void *const cells[],
                      struct fault *fault) {
        struct transform_context context = {
                .seed = request->seed,
                .epoch = request->epoch,
                .sample = request->sample,
                .pixels_max = assembly->recipe->source.max_pixels,
                .spare = &assembly->spare,
                .resizer = &assembly->resizer,
                .std = {1, 1, 1},
        };
        int r;

        r = assembly->ops->image(assembly->source, request, &assembly->image, cells[LABELS], fault);
        if (r >= 0)
                stages_enter_transforms(&assembly->stages, &assembly->image);
        for (uint32_t i = 0; r >= 0 && i < assembly->recipe->n_transforms; i++) {
                const struct recipe_transform *transform = &assembly->recipe->transforms[i];

                context.step = (uint16_t)i;
                r = transform_find(transform->type)->apply(transform, &context, &assembly->image, fault);
        }
        if (r < 0)
                return r;
        return write_image(assembly, &context, cells[IMAGES], fault);
}

/* ---- one sample ---- */

/* What is known of the row in work. */
struct work {
        const struct assembly_chunk *chunk;
        uint8_t *slot;
        struct worker_page *page;
        uint32_t done;      /* rows before it */
        uint32_t announced; /* rows whose samples were announced, and all before them */
        struct source_request request;
        void *cells[SCHEMA_FIELDS_MAX];
        int whole; /* the sample is looked at, not made into a row */
        int error; /* negative errno of what `why` tells */
        struct fault why;
        const struct source_exception *exception; /* of the same; NULL: none was raised */
};

/* What codecs and transforms say of an image; source.h keeps errors of reading apart from these. */
static int is_about_the_sample(int error) {
        return error == -EBADMSG || error == -EINVAL || error == -EFBIG || error == -EOPNOTSUPP;
}

static int may_pass(int error) {
        return error == -EIO || error == -ESTALE || error == -ETIMEDOUT || error == -EAGAIN ||
               error == -EINTR || error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}

/* Without a crop the window is the whole picture, and a codec judges all of the file. */
static int load_whole(struct assembly *assembly, struct work *work) {
        int64_t label;
        int r;

        r = assembly->ops->image(assembly->source, &work->request, &assembly->image, &label, &work->why);
        return r < 0 ? r : image_load(&assembly->image, &work->why);
}

static int make_sample(struct assembly *assembly, struct work *work) {
        work->why.text[0] = '\0';
        stages_enter(&assembly->stages, assembly->ops->write ? STAGE_MAKE : STAGE_READ);
        if (assembly->ops->write)
                return assembly->ops->write(assembly->source, &work->request, work->cells, &work->why);
        if (work->whole)
                return load_whole(assembly, work);
        return make_image(assembly, &work->request, work->cells, &work->why);
}

static void pause_ms(unsigned ms) {
        struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

        nanosleep(&left, NULL);
}

static int make_sample_patiently(struct assembly *assembly, struct work *work) {
        const unsigned pauses = sizeof(pauses_ms) / sizeof(pauses_ms[0]);
        int r = make_sample(assembly, work);
        unsigned again;

        for (again = 0; again < pauses && may_pass(r); again++) {
                pause_ms(pauses_ms[again]);
                r = make_sample(assembly, work);
        }
        if (r < 0 && again > 0)
                fault_set(&work->why, r, "%s, at the last of %u tries", work->why.text, again + 1);
        return r;
}

/* Fills the cells from this sample. 0, SAMPLE_E_BAD, SAMPLE_E_CONDEMNED, or a negative errno. */
static int try_sample(struct assembly *assembly, struct work *work, uint64_t sample) {
        int r;

        work->request.sample = sample;
        work->exception = NULL;
        if (sample_set_has(&assembly->condemned, sample)) {
                work->error =
                        fault_set(&work->why, -EIO, "sample %llu is condemned: workers died or hung at it",
                                  (unsigned long long)sample);
                return SAMPLE_E_CONDEMNED;
        }
        progress_begin_sample(work->page, sample, work->chunk->epoch, work->chunk->row + work->done);
        r = make_sample_patiently(assembly, work);
        work->error = r;
        if (r < 0 && assembly->ops->exception)
                work->exception = assembly->ops->exception();
        return is_about_the_sample(r) ? SAMPLE_E_BAD : r;
}

/* ---- what comes next ---- */

/* The sample of the chunk's n-th row. 0 or -ERANGE. */
static int sample_at(struct assembly *assembly, const struct work *work, uint32_t n, uint64_t *sample,
                     struct fault *fault) {
        *sample = work->chunk->row + n;
        return work->whole ? 0 : find_sample(assembly, work->chunk, *sample, sample, fault);
}

/* What is wrong with a sample, or with its number, is told when its row comes. */
static void announce_next(struct assembly *assembly, struct work *work) {
        uint32_t end = work->done + 1 + SOURCE_AHEAD_MAX;
        uint64_t sample;

        if (!assembly->ops->announce)
                return;
        if (end > work->chunk->rows)
                end = work->chunk->rows;
        if (work->announced <= work->done)
                work->announced = work->done + 1;
        for (; work->announced < end; work->announced++)
                if (sample_at(assembly, work, work->announced, &sample, NULL) == 0 &&
                    !sample_set_has(&assembly->condemned, sample))
                        assembly->ops->announce(assembly->source, sample);
}

static void begin_row(struct assembly *assembly, struct work *work) {
        stages_begin(&assembly->stages, work->page);
        announce_next(assembly, work);
}

static void end_row(struct assembly *assembly, struct work *work) {
        stages_end(&assembly->stages);
        progress_end_row(work->page, ++work->done);
}

static void end_chunk(struct assembly *assembly, const struct work *work) {
        if (assembly->ops->forget)
                assembly->ops->forget(assembly->source);
        progress_end_chunk(work->page, work->done);
}

/* ---- one row ---- */

static void name_file(struct assembly *assembly, uint64_t sample, char file[ASSEMBLY_FILE_MAX + 1]) {
        char name[PATH_MAX];

        assembly->ops->name_of(assembly->source, sample, name, sizeof(name));
        fault_sanitize(file, ASSEMBLY_FILE_MAX + 1, name, strlen(name));
}

static int tell_bad(struct assembly *assembly, const struct work *work) {
        char file[ASSEMBLY_FILE_MAX + 1];

        name_file(assembly, work->request.sample, file);
        return assembly->bad(assembly->bad_context, work->request.sample, file, work->error, work->why.text);
}

/* The order has no sample there: the row stands for it in what is told. */
static int no_sample(struct work *work, int error) {
        work->request.sample = work->request.row;
        work->exception = NULL;
        return error;
}

/* A candidate for a sample that is of no use. 0 or -ERANGE. */
static int draw_substitute(struct assembly *assembly, struct work *work, uint64_t own, uint16_t attempt,
                           uint64_t *candidate) {
        const struct assembly_chunk *chunk = work->chunk;
        struct random random;

        random_init(&random, chunk->seed, own, chunk->epoch, RANDOM_SUBSTITUTE, attempt);
        *candidate = random_below_u64(&random, assembly->samples);
        if (!assembly->shuffle || chunk->order)
                work->request.row = *candidate;
        if (!order_names_samples(chunk->order, assembly->samples))
                return 0;
        return given_sample(chunk->order, *candidate, candidate, &work->why);
}

/* Fills the cells from the first candidate that is any good; the row's own sample is known not to be. */
static int try_substitutes(struct assembly *assembly, struct work *work) {
        uint64_t own = work->request.sample, candidate;
        struct fault why_own = work->why;
        int error_own = work->error, r;

        for (uint16_t attempt = 0; attempt < ASSEMBLY_SUBSTITUTES_MAX; attempt++) {
                r = draw_substitute(assembly, work, own, attempt, &candidate);
                if (r < 0)
                        return no_sample(work, r);
                if (candidate == own)
                        continue;
                r = try_sample(assembly, work, candidate);
                if (r <= 0)
                        return r;
                if (r == SAMPLE_E_BAD)
                        r = tell_bad(assembly, work);
                if (r < 0)
                        return r;
        }
        work->request.sample = own;
        work->exception = NULL; /* of the last candidate; what the own one had raised is overwritten */
        return fault_set(&work->why, error_own, "%s; nor is any of %d substitutes for it good", why_own.text,
                         ASSEMBLY_SUBSTITUTES_MAX);
}

static void set_cells(const struct assembly *assembly, struct work *work, uint32_t place) {
        const struct schema *schema = assembly->schema;

        for (uint32_t i = 0; i < schema->n_fields; i++)
                work->cells[i] = work->slot + schema->fields[i].offset + place * schema->fields[i].row_bytes;
}

/* 0, 1 when the row holds a substitute, or a negative errno. */
static int make_row(struct assembly *assembly, struct work *work) {
        const struct schema *schema = assembly->schema;
        uint32_t place = work->chunk->first + work->done;
        uint64_t sample;
        int replaced, r;

        work->request.row = work->chunk->row + work->done;
        r = sample_at(assembly, work, work->done, &sample, &work->why);
        if (r < 0)
                return no_sample(work, r);
        set_cells(assembly, work, place);
        r = try_sample(assembly, work, sample);
        replaced = r > 0;
        if (replaced && !assembly->bad)
                return work->error;
        if (r == SAMPLE_E_BAD)
                r = tell_bad(assembly, work);
        if (replaced && r >= 0)
                r = try_substitutes(assembly, work);
        if (r < 0)
                return r;
        ((int64_t *)(work->slot + schema->ids_offset))[place] = (int64_t)sample;
        (work->slot + schema->flags_offset)[place] = replaced ? SCHEMA_ROW_REPLACED : SCHEMA_ROW_GOOD;
        return replaced;
}

int assembly_fill(struct assembly *assembly, const struct assembly_chunk *chunk, void *slot,
                  struct worker_page *page, uint32_t *replaced, struct assembly_failure *failure,
                  struct fault *fault) {
        struct work work = {
                .chunk = chunk,
                .slot = slot,
                .page = page,
                .request = {.seed = chunk->seed, .epoch = chunk->epoch, .stages = &assembly->stages}};
        uint32_t n_replaced = 0;
        int r = 0;

        if (chunk->order) {
                work.request.order = chunk->order->entry;
                work.request.entries = chunk->order->entries;
        }

        progress_begin_chunk(page, chunk->slot, chunk->first);
        while (work.done < chunk->rows) {
                begin_row(assembly, &work);
                r = make_row(assembly, &work);
                if (r < 0)
                        break;
                n_replaced += (uint32_t)r;
                end_row(assembly, &work);
        }
        end_chunk(assembly, &work);
        if (r < 0) {
                failure->sample = work.request.sample;
                failure->first = chunk->first + work.done;
                failure->exception = work.exception;
                name_file(assembly, failure->sample, failure->file);
                return fault_set(fault, r, "%s", work.why.text);
        }
        if (replaced)
                *replaced = n_replaced;
        return 0;
}

int assembly_verify(struct assembly *assembly, const struct assembly_chunk *chunk, void *slot,
                    struct worker_page *page) {
        struct work work = {
                .chunk = chunk,
                .slot = slot,
                .page = page,
                .whole = 1,
                .request = {.seed = chunk->seed, .epoch = chunk->epoch, .stages = &assembly->stages}};
        int r = 0;

        set_cells(assembly, &work, 0);
        progress_begin_chunk(page, chunk->slot, chunk->first);
        while (r >= 0 && work.done < chunk->rows) {
                work.request.row = chunk->row + work.done;
                begin_row(assembly, &work);
                r = try_sample(assembly, &work, work.request.row);
                if (r != 0)
                        r = tell_bad(assembly, &work);
                if (r >= 0)
                        end_row(assembly, &work);
        }
        end_chunk(assembly, &work);
        return r;
}
