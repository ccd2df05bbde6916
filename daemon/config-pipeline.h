#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One pipeline of the configuration file, with what follows from its keys. */

#include "daemon/config-document.h"

struct config_pipeline;

/* Reads the pair `name`: `value` of the mapping at `up` into a zeroed pipeline. 0, or a negative errno; the
 * pipeline is good for config_pipeline_deinit in any case. */
int config_read_pipeline(struct config_pipeline *pipeline, struct document *document,
                         const struct document_path *up, const struct yaml_node_s *name,
                         const struct yaml_node_s *value, const char *directory, struct fault *fault);

/* For one whose recipe says by now what a row is: the rest of what follows from its keys. 0, or a negative
 * errno with pipeline, `file`, line and key. */
int config_complete_pipeline(struct config_pipeline *pipeline, const char *file, struct fault *fault);
void config_pipeline_deinit(struct config_pipeline *pipeline);
