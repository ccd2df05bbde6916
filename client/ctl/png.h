#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Pixels as a PNG, and its way to a file. */

#include <stddef.h>
#include <stdint.h>

struct fault;

/* `pixels` are 3 bytes each, row by row. *bytes is to be freed. 0 or a negative errno. */
int png_encode(const uint8_t *pixels, uint32_t width, uint32_t height, void **bytes, size_t *n,
               struct fault *fault);

/* Whether a file could be written there, as far as can be told before. 0 or a negative errno. */
int png_check_path(const char *path, struct fault *fault);

/* Replaces the file, or makes it: it is there as a whole or as it was. What is no file, such as a pipe, is
 * written to. 0 or a negative errno. */
int png_write_file(const char *path, const void *bytes, size_t n, struct fault *fault);
