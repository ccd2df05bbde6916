#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* An assembly with one slot, for unit tests. */

#include "base/fault.h"
#include "daemon/worker/assembly.h"
#include "proto/worker-page.h"
#include "tests/support/photos.h"

#include <check.h>
#include <string.h>

struct fixture {
        struct recipe recipe;
        struct schema schema;
        struct assembly *assembly;
        uint8_t *slot;
        struct worker_page page;
        uint32_t replaced;
        struct assembly_failure failure;
        struct fault fault;
};

static inline void fixture_init(struct fixture *fixture, const char *recipe, uint64_t samples,
                                uint32_t slot_rows, int shuffle, int index_fd) {
        json_t *json = json_loads(recipe, 0, NULL);

        *fixture = (struct fixture){0};
        ck_assert_ptr_nonnull(json);
        ck_assert_msg(recipe_from_json(&fixture->recipe, json, &fixture->fault) == 0, "%s",
                      fixture->fault.text);
        json_decref(json);
        recipe_schema(&fixture->recipe, &fixture->schema);
        ck_assert_int_eq(schema_lay_out(&fixture->schema, slot_rows, &fixture->fault), 0);
        fixture->slot = aligned_alloc(4096, fixture->schema.slot_stride);
        memset(fixture->slot, 0xee, fixture->schema.slot_stride);
        ck_assert_msg(assembly_new(&fixture->assembly, &fixture->recipe, &fixture->schema, samples, shuffle,
                                   index_fd, &fixture->fault) == 0,
                      "%s", fixture->fault.text);
}

static inline void fixture_deinit(struct fixture *fixture) {
        assembly_free(fixture->assembly);
        recipe_deinit(&fixture->recipe);
        free(fixture->slot);
}

static inline int fill(struct fixture *fixture, uint64_t seed, uint32_t epoch, uint64_t row, uint32_t first,
                       uint32_t rows) {
        struct assembly_chunk chunk = {
                .seed = seed, .epoch = epoch, .row = row, .first = first, .rows = rows};

        return assembly_fill(fixture->assembly, &chunk, fixture->slot, &fixture->page, &fixture->replaced,
                             &fixture->failure, &fixture->fault);
}

static inline uint8_t *cell(struct fixture *fixture, uint32_t field, uint32_t row) {
        return fixture->slot + fixture->schema.fields[field].offset +
               row * fixture->schema.fields[field].row_bytes;
}

static inline int64_t id_at(struct fixture *fixture, uint32_t row) {
        return ((int64_t *)(fixture->slot + fixture->schema.ids_offset))[row];
}

static inline int has_test_modes(void) {
        for (int i = 0; recipe_synthetic_modes[i]; i++)
                if (strcmp(recipe_synthetic_modes[i], "rng") == 0)
                        return 1;
        return 0;
}
