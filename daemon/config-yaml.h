#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* From a file's bytes to libyaml's document, within bounds. */

#include <yaml.h>

struct fault;

/* Composes the one document of `file`, which has a root then: of what stands in it, or of `text` in its place
 * if that is not NULL. 0, or a negative errno with "FILE:LINE:COLUMN: ..." or "FILE: ..." and nothing to
 * delete. */
int yaml_compose(yaml_document_t *yaml, const char *file, const char *text, struct fault *fault);
