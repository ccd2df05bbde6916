#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Finding files that were installed together with the running program, wherever the whole tree was put. */

#include <limits.h>

/* The first of `relatives` (NULL-terminated; relative to the directory of the running executable) that is an
 * executable file, as an absolute path. 0, or -ENOENT when there is none. */
int program_find(char path[PATH_MAX], const char *const relatives[]);

/* The first of `relatives` that is a directory with such a file in it. */
int program_find_file(char path[PATH_MAX], const char *const relatives[], const char *file);
