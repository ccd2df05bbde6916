#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Pipelines that jobs define: of a private daemon. */

struct daemon;
struct fault;
struct job;
struct pipeline;

/* The pipeline that job->definition and job->attach mean: one that is there, or a new one. 0, or a negative
 * errno with words for the job: -EPERM this daemon takes none, or none of this user; -EINVAL with file, line
 * and column; -ENOENT the definition has no such pipeline; -ENOSPC there are too many. */
int definition_take(struct daemon *daemon, const struct job *job, struct pipeline **pipeline,
                    struct fault *fault);
