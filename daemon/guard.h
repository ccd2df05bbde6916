#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Who may do what with this daemon: connect, use a pipeline, change something. */

#include <stdbool.h>

struct config;
struct daemon;
struct fault;
struct peer;
struct pipeline;

/* Whether this daemon can have that configuration: a private one has no other users. 0 or -EINVAL. */
int guard_check_config(const struct daemon *daemon, const struct config *config, struct fault *fault);

/* Says in the log when others may use pipelines and cannot connect: the sockets are for our user alone. */
void guard_warn_unreachable(const struct daemon *daemon);

/* Somebody has connected. 0, or -EPERM with the reason: there is no pipeline that it may use. */
int guard_welcome(const struct daemon *daemon, const struct peer *peer, struct fault *fault);

/* Whether it may use, and so know of, this pipeline; the second with words: 0 or -EPERM. */
bool guard_may_use(const struct pipeline *pipeline, const struct peer *peer);
int guard_check_use(const struct daemon *daemon, const struct pipeline *pipeline, const struct peer *peer,
                    struct fault *fault);

/* Whether it may map the pipeline's ring for writing. */
bool guard_may_pin(const struct pipeline *pipeline, const struct peer *peer);

/* Whether it may do what changes the daemon for all, `word`. 0 or -EPERM. */
int guard_check_change(const struct daemon *daemon, const char *word, const struct peer *peer,
                       struct fault *fault);
