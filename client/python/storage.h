#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Memory that arrays lie in, and that ends with the last of them: in whichever thread that is, and without
 * the interpreter, for it is torch that lets go of a tensor. First member of a lease or a block. */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct storage {
        _Atomic uint32_t references;
        void (*end)(struct storage *storage); /* called by the last storage_unref */
};

static inline struct storage *storage_ref(struct storage *storage) {
        atomic_fetch_add_explicit(&storage->references, 1, memory_order_relaxed);
        return storage;
}

/* Returns NULL. Release and acquire: whoever ends the memory sees all that was done with it. */
static inline struct storage *storage_unref(struct storage *storage) {
        if (storage && atomic_fetch_sub_explicit(&storage->references, 1, memory_order_acq_rel) == 1)
                storage->end(storage);
        return NULL;
}
