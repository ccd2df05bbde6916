/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Three circles. Root and the daemon's own user may everything: what they may not, they could do to the
 * process itself. Users whom a pipeline's `allow` names may use it and see what becomes of it. Everybody else
 * is told so and sent away; the modes of the sockets keep most of them out before.
 *
 * Members of a group are no strangers to each other: who asks for a pipeline that is another group's is told
 * that it is there and for whom, and not that it is not. But lists name only what the reader may use. */

#include "daemon/guard.h"

#include "base/fault.h"
#include "daemon/access.h"
#include "daemon/daemon.h"
#include "daemon/log.h"

#include <errno.h>
#include <unistd.h>

/* Whether the configuration lets anybody in who is not trusted anyway. */
static bool has_others(const struct config *config) {
        bool has = access_has_others(&config->allow);

        for (uint32_t i = 0; i < config->n_pipelines; i++)
                has = has || access_has_others(&config->pipelines[i].allow);
        return has;
}

void guard_warn_unreachable(const struct daemon *daemon) {
        if (has_others(daemon->config))
                log_line(LOG_WARNING,
                         "%s names users in `allow` who cannot connect: the sockets in %s are for uid %u "
                         "alone; "
                         "say `socket_group`, a group that they are in",
                         daemon->config->file, daemon->directory, (unsigned)geteuid());
}

int guard_check_config(const struct daemon *daemon, const struct config *config, struct fault *fault) {
        if (!daemon->options.is_private || (!has_others(config) && config->socket_group_line == 0))
                return 0;
        return fault_set(
                fault, -EINVAL,
                "%s lets other users in (allow, socket_group), and a daemon with --private is for its "
                "own user only; start it without --private, or leave those keys out",
                config->file);
}

bool guard_may_use(const struct pipeline *pipeline, const struct peer *peer) {
        return access_allows(config_allow(pipeline->whole, pipeline->defined), peer);
}

bool guard_may_pin(const struct pipeline *pipeline, const struct peer *peer) {
        return access_allows(config_allow_pinned(pipeline->whole, pipeline->defined), peer);
}

int guard_welcome(const struct daemon *daemon, const struct peer *peer, struct fault *fault) {
        char user[USERS_TEXT_MAX], owner[USERS_TEXT_MAX];
        bool is_shared = has_others(daemon->config);

        if (access_allows(&daemon->config->allow, peer))
                return 0;
        for (uint32_t i = 0; i < daemon->n_pipelines; i++)
                if (guard_may_use(daemon->pipelines[i], peer))
                        return 0;
        users_describe(&daemon->users, peer->uid, user);
        users_describe(&daemon->users, geteuid(), owner);
        if (!is_shared)
                return fault_set(fault, -EPERM,
                                 "%s (pid %d) is turned away: this daemon is for %s and root; use a private "
                                 "daemon, or have `allow` said in %s",
                                 user, (int)peer->pid, owner, daemon->config->file);
        return fault_set(
                fault, -EPERM,
                "%s (pid %d) is turned away: no `allow` in %s names this user or a group of it; have "
                "it added there, and log in again after a change of groups",
                user, (int)peer->pid, daemon->config->file);
}

int guard_check_use(const struct daemon *daemon, const struct pipeline *pipeline, const struct peer *peer,
                    struct fault *fault) {
        const struct access *allow = config_allow(pipeline->whole, pipeline->defined);
        char user[USERS_TEXT_MAX], owner[USERS_TEXT_MAX];

        if (access_allows(allow, peer))
                return 0;
        users_describe(&daemon->users, peer->uid, user);
        if (allow->line == 0)
                return fault_set(
                        fault, -EPERM,
                        "pipeline %s is not for %s: it has no `allow` (%s:%u), so it is for root and "
                        "%s only; have `allow: {users: [%u]}` added to it",
                        pipeline->label, user, pipeline->whole->file, pipeline->defined->line,
                        users_describe(&daemon->users, geteuid(), owner), (unsigned)peer->uid);
        return fault_set(
                fault, -EPERM,
                "pipeline %s is not for %s: its `allow` (%s:%u) names %s; have the user added there, "
                "or to one of those groups",
                pipeline->label, user, pipeline->whole->file, allow->line, access_text(allow));
}

int guard_check_change(const struct daemon *daemon, const char *word, const struct peer *peer,
                       struct fault *fault) {
        char user[USERS_TEXT_MAX], owner[USERS_TEXT_MAX];

        if (peer_is_trusted(peer))
                return 0;
        return fault_set(fault, -EPERM, "%s is for root and %s, this is %s; use sudo", word,
                         users_describe(&daemon->users, geteuid(), owner),
                         users_describe(&daemon->users, peer->uid, user));
}
