#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The source of type python: what a worker needs an interpreter for. */

#include <stdint.h>

struct fault;
struct schema;
struct source_exception;
struct source_request;

/* As struct source_ops, without what a dataset has not. `schema` is laid out for one row, so `row_bytes` of
 * its fields are the sizes of the cells, and outlives the source. */
struct python_functions {
        int (*scan)(uint64_t *samples, struct fault *fault);
        int (*open)(uint32_t worker, const struct schema *schema, struct fault *fault);
        int (*write)(const struct source_request *request, void *const cells[], struct fault *fault);
        const struct source_exception *(*exception)(void);
        int (*set_up)(const char *recipe, const char *layout, struct fault *fault);
};

/* Before the session begins, by a process that has an interpreter; NULL takes them away. */
void python_set_functions(const struct python_functions *functions);
