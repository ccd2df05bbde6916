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
 * The page tells the daemon which sample is in work, row by row, because a hang or a crash must be pinned on
 * one. */

#include "daemon/worker/assembly.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "daemon/worker/image.h"
#include "daemon/worker/kernels/kernels.h"
#include "daemon/worker/source.h"
#include "daemon/worker/transform.h"
#include "proto/order.h"
#include "proto/worker-page.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/* Fields of a recipe whose source has images, as recipe_schema names them. */
enum {
        IMAGES,
        LABELS,
};

struct assembly {
        const struct recipe *recipe;
        const struct schema *schema;
        const struct source_ops *ops;
        struct source *source;
        struct index index;
        int has_index;
        uint64_t samples;
        int shuffle;

        /* the order of the epoch in work */
        struct order order;
        uint64_t order_seed;
        uint32_t order_epoch;
        int order_valid;

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

static uint64_t find_sample(struct assembly *assembly, uint64_t seed, uint32_t epoch, uint64_t row) {
        row %= assembly->samples;
        if (!assembly->shuffle)
                return row;
        if (!assembly->order_valid || assembly->order_seed != seed || assembly->order_epoch != epoch) {
                order_init(&assembly->order, assembly->samples, seed, epoch);
                assembly->order_seed = seed;
                assembly->order_epoch = epoch;
                assembly->order_valid = 1;
        }
        return order_sample(&assembly->order, row);
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
                .spare = &assembly->spare,
                .resizer = &assembly->resizer,
                .std = {1, 1, 1},
        };
        int r;

        r = assembly->ops->image(assembly->source, request, &assembly->image, cells[LABELS], fault);
        for (uint32_t i = 0; r >= 0 && i < assembly->recipe->n_transforms; i++) {
                const struct recipe_transform *transform = &assembly->recipe->transforms[i];

                context.step = (uint16_t)i;
                r = transform_find(transform->type)->apply(transform, &context, &assembly->image, fault);
        }
        if (r < 0)
                return r;
        return write_image(assembly, &context, cells[IMAGES], fault);
}

static int make_row(struct assembly *assembly, const struct source_request *request, uint8_t *slot,
                    uint32_t place, struct fault *fault) {
        const struct schema *schema = assembly->schema;
        void *cells[SCHEMA_FIELDS_MAX];
        int r;

        for (uint32_t i = 0; i < schema->n_fields; i++)
                cells[i] = slot + schema->fields[i].offset + place * schema->fields[i].row_bytes;
        if (assembly->ops->write)
                r = assembly->ops->write(assembly->source, request, cells, fault);
        else
                r = make_image(assembly, request, cells, fault);
        if (r < 0)
                return r;
        ((int64_t *)(slot + schema->ids_offset))[place] = (int64_t)request->sample;
        (slot + schema->flags_offset)[place] = SCHEMA_ROW_GOOD;
        return 0;
}

static void note_failure(struct assembly *assembly, uint64_t sample, uint32_t place,
                         struct assembly_failure *failure) {
        char name[PATH_MAX];

        assembly->ops->name_of(assembly->source, sample, name, sizeof(name));
        fault_sanitize(failure->file, sizeof(failure->file), name, strlen(name));
        failure->sample = sample;
        failure->first = place;
}

static void page_begin(struct worker_page *page, const struct source_request *request, uint64_t row) {
        if (!page)
                return;
        atomic_store_explicit(&page->epoch, request->epoch, memory_order_relaxed);
        atomic_store_explicit(&page->row, row, memory_order_relaxed);
        atomic_store_explicit(&page->started_ns, clock_ns(), memory_order_relaxed);
        atomic_store_explicit(&page->sample, request->sample, memory_order_release);
}

static void page_end(struct worker_page *page, uint32_t rows) {
        struct timespec used;

        if (!page)
                return;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        atomic_fetch_add_explicit(&page->rows_done, rows, memory_order_relaxed);
        atomic_store_explicit(&page->cpu_ns, (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec,
                              memory_order_relaxed);
        atomic_store_explicit(&page->sample, WORKER_PAGE_IDLE, memory_order_release);
}

int assembly_fill(struct assembly *assembly, const struct assembly_chunk *chunk, void *slot,
                  struct worker_page *page, struct assembly_failure *failure, struct fault *fault) {
        struct source_request request = {.seed = chunk->seed, .epoch = chunk->epoch};
        uint32_t done;
        int r = 0;

        for (done = 0; done < chunk->rows; done++) {
                request.sample = find_sample(assembly, chunk->seed, chunk->epoch, chunk->row + done);
                page_begin(page, &request, chunk->row + done);
                r = make_row(assembly, &request, slot, chunk->first + done, fault);
                if (r < 0)
                        break;
        }
        if (r < 0)
                note_failure(assembly, request.sample, chunk->first + done, failure);
        page_end(page, done);
        return r;
}
