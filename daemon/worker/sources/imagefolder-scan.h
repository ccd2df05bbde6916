#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Walks a folder of class folders in torchvision's order. */

#include "daemon/worker/source.h"

#include <stdint.h>

struct fault;

/* An open directory of the source, for both scan and reader. A descriptor or a negative errno. */
int imagefolder_open_root(const char *path, struct fault *fault);

/* source_ops.scan of the image folder. */
int imagefolder_scan(const struct recipe_source *recipe, source_progress_fn progress, void *context,
                     uint64_t *samples, uint32_t *classes, int *index_fd, struct fault *fault);
