#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The DLPack exchange of tensors (dmlc.github.io/dlpack), as far as host memory needs it. */

#include "client/pinfeed.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

struct storage;

enum {
        DLPACK_CPU = 1,
        DLPACK_CUDA_HOST = 3,
        DLPACK_MAJOR = 1,
        DLPACK_MINOR = 0,
        DLPACK_DIMS_MAX = PINFEED_DIMS_MAX + 1, /* a field's, and the rows */
};

#define DLPACK_READ_ONLY UINT64_C(1)

/* Capsules are told apart by these names; whoever takes a tensor over renames its capsule. */
#define DLPACK_CAPSULE           "dltensor"
#define DLPACK_CAPSULE_VERSIONED "dltensor_versioned"

struct dlpack_device {
        int32_t type;
        int32_t id;
};

struct dlpack_tensor {
        void *data;
        struct dlpack_device device;
        int32_t n_dims;
        uint8_t code; /* 0 int, 1 unsigned, 2 float, 4 bfloat */
        uint8_t bits;
        uint16_t lanes;
        int64_t *shape;
        int64_t *strides; /* in elements; NULL: row-major */
        uint64_t byte_offset;
};

struct dlpack_managed {
        struct dlpack_tensor tensor;
        void *context;
        void (*deleter)(struct dlpack_managed *managed);
};

struct dlpack_versioned {
        uint32_t major, minor;
        void *context;
        void (*deleter)(struct dlpack_versioned *managed);
        uint64_t flags;
        struct dlpack_tensor tensor;
};

/* The layout is an agreement with every library there is. */
static_assert(sizeof(struct dlpack_tensor) == 48, "DLTensor");
static_assert(offsetof(struct dlpack_tensor, shape) == 24, "DLTensor.shape");
static_assert(offsetof(struct dlpack_managed, deleter) == 56, "DLManagedTensor.deleter");
static_assert(offsetof(struct dlpack_versioned, tensor) == 32, "DLManagedTensorVersioned.dl_tensor");

/* What an array is. */
struct shape {
        enum pinfeed_dtype dtype;
        uint32_t n_dims;
        int64_t sizes[DLPACK_DIMS_MAX];
        int64_t strides[DLPACK_DIMS_MAX]; /* in elements */
};

/* Bytes of a value. */
size_t dlpack_size(enum pinfeed_dtype dtype);

/* A tensor of its own for somebody else, who calls its deleter once, in any thread; until then it holds the
 * storage. NULL: out of memory. */
struct dlpack_managed *dlpack_export(const struct shape *shape, void *data, struct storage *storage);
struct dlpack_versioned *dlpack_export_versioned(const struct shape *shape, void *data,
                                                 struct storage *storage, uint64_t flags);

/* Whether somebody's tensor is host memory of exactly this type and shape, in the same order. */
bool dlpack_matches(const struct dlpack_tensor *tensor, const struct shape *shape);
