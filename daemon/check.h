#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* `pinfeedd --check`: what a configuration means on this machine, before anything is started. */

#include <stdio.h>

struct config;
struct config_pipeline;
struct fault;

/* Prints pipelines, fields, bytes and warnings, and opens one file of each source as the caller. 0, or the
 * first negative errno and text of a source that cannot be read; all of them are printed. What the machine
 * has too little of is a warning. A dataset in Python is made, by an interpreter of its own, and two of its
 * samples. */
int check_print(const struct config *config, FILE *out, struct fault *fault);

/* Makes this process one of `user`'s, a name or number, for good: for what follows. 0, or a negative errno
 * with the reason: only root can become another one. */
int check_become(const char *user, struct fault *fault);

/* Prints all keys of the configuration file as Markdown: docs/configuration.md and pinfeed.yaml(5) hold
 * copies. */
void check_print_keys(FILE *out);

/* Opens one file of the pipeline's source. 0 and its name in `found` ("" when the source has no files), or a
 * negative errno and the part of the path that refuses. */
int check_source(const struct config_pipeline *pipeline, char *found, size_t size, struct fault *fault);

/* Has the pipeline's dataset described, and prints what it is, or what was raised; may take as long as the
 * dataset wants. 0 and *completed, which is as description_complete leaves it, or a negative errno. */
int check_dataset(const struct config *config, const struct config_pipeline *pipeline, FILE *out,
                  struct config_pipeline *completed, struct fault *fault);
