#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How a Python interpreter of a user's choice becomes a worker. */

#include <limits.h>

enum {
        INTERPRETER_ARGUMENTS_MAX = 6,
};

/* Not to be moved: its arguments point into it. `program` outlives it. */
struct interpreter {
        char package[PATH_MAX]; /* the pinfeed package of this daemon; "": the interpreter looks for its own
                                 */
        const char *arguments[INTERPRETER_ARGUMENTS_MAX]; /* for process_spawn: a worker */
        const char *describe[INTERPRETER_ARGUMENTS_MAX]; /* one that describes a dataset, see description.h */
};

void interpreter_init(struct interpreter *interpreter, const char *program);
