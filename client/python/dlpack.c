/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* An exported tensor is one piece of memory: the struct that others know, and behind it the shape that it
 * points to and the storage that its deleter gives up. So nothing of it is Python's, and the deleter may run
 * where there is no interpreter. */

#include "client/python/dlpack.h"

#include "client/python/storage.h"

#include <stdlib.h>

static const struct {
        uint8_t code, bits;
} dlpack_types[] = {
        [PINFEED_UINT8] = {1, 8},    [PINFEED_INT32] = {0, 32},    [PINFEED_INT64] = {0, 64},
        [PINFEED_FLOAT16] = {2, 16}, [PINFEED_BFLOAT16] = {4, 16}, [PINFEED_FLOAT32] = {2, 32},
        [PINFEED_FLOAT64] = {2, 64},
};

struct managed {
        struct dlpack_managed head;
        struct shape shape;
};

struct versioned {
        struct dlpack_versioned head;
        struct shape shape;
};

size_t dlpack_size(enum pinfeed_dtype dtype) {
        return dlpack_types[dtype].bits / 8;
}

static void delete_managed(struct dlpack_managed *managed) {
        storage_unref(managed->context);
        free(managed);
}

static void delete_versioned(struct dlpack_versioned *managed) {
        storage_unref(managed->context);
        free(managed);
}

/* `shape` has to live as long as the tensor. */
static struct dlpack_tensor make_tensor(struct shape *shape, void *data) {
        return (struct dlpack_tensor){.data = data,
                                      .device = {DLPACK_CPU, 0},
                                      .n_dims = (int32_t)shape->n_dims,
                                      .code = dlpack_types[shape->dtype].code,
                                      .bits = dlpack_types[shape->dtype].bits,
                                      .lanes = 1,
                                      .shape = shape->sizes,
                                      .strides = shape->strides};
}

struct dlpack_managed *dlpack_export(const struct shape *shape, void *data, struct storage *storage) {
        struct managed *managed = calloc(1, sizeof(*managed));

        if (!managed)
                return NULL;
        managed->shape = *shape;
        managed->head = (struct dlpack_managed){.tensor = make_tensor(&managed->shape, data),
                                                .context = storage_ref(storage),
                                                .deleter = delete_managed};
        return &managed->head;
}

struct dlpack_versioned *dlpack_export_versioned(const struct shape *shape, void *data,
                                                 struct storage *storage, uint64_t flags) {
        struct versioned *managed = calloc(1, sizeof(*managed));

        if (!managed)
                return NULL;
        managed->shape = *shape;
        managed->head = (struct dlpack_versioned){.major = DLPACK_MAJOR,
                                                  .minor = DLPACK_MINOR,
                                                  .context = storage_ref(storage),
                                                  .deleter = delete_versioned,
                                                  .flags = flags,
                                                  .tensor = make_tensor(&managed->shape, data)};
        return &managed->head;
}

/* A dimension of one element has any stride. */
static bool has_strides(const struct dlpack_tensor *tensor, const struct shape *shape) {
        int64_t row_major = 1;

        for (uint32_t i = shape->n_dims; i-- > 0;) {
                int64_t stride = tensor->strides ? tensor->strides[i] : row_major;

                if (tensor->shape[i] > 1 && stride != shape->strides[i])
                        return false;
                row_major *= tensor->shape[i];
        }
        return true;
}

bool dlpack_matches(const struct dlpack_tensor *tensor, const struct shape *shape) {
        if (tensor->device.type != DLPACK_CPU && tensor->device.type != DLPACK_CUDA_HOST)
                return false;
        if (tensor->code != dlpack_types[shape->dtype].code ||
            tensor->bits != dlpack_types[shape->dtype].bits || tensor->lanes != 1)
                return false;
        if (tensor->n_dims != (int32_t)shape->n_dims)
                return false;
        for (uint32_t i = 0; i < shape->n_dims; i++)
                if (tensor->shape[i] != shape->sizes[i])
                        return false;
        return has_strides(tensor, shape);
}
