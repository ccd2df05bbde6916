#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Who may: lists of users and groups, and the processes that are held against them. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct fault;

enum {
        ACCESS_ENTRIES_MAX = 1000, /* users and groups of one list */
        ACCESS_TEXT_MAX = 200,     /* of a list in words, cut where it is longer */
};

/* Those whom a list names, beside root and the daemon's own user, who may in any case. */
struct access {
        unsigned line; /* where it stands; 0: it was not said */
        uid_t *uids;
        size_t n_uids;
        gid_t *gids;
        size_t n_gids;
        char text[ACCESS_TEXT_MAX + 1]; /* as it was said: "users alice, 1001; groups vision" */
};

/* A process at the other end of a socket, as it was when it connected. */
struct peer {
        pid_t pid;
        uid_t uid;
        gid_t gid;
        gid_t *groups; /* supplementary ones */
        size_t n_groups;
};

/* Adds a user or a group by name or number. Asks the system's databases, which may take long: never in the
 * daemon's loop. 0, or a negative errno with the reason: -EINVAL there is none of that name, -E2BIG the list
 * is full. */
int access_add_user(struct access *access, const char *user, struct fault *fault);
int access_add_group(struct access *access, const char *group, struct fault *fault);
void access_deinit(struct access *access);

/* The number of a group by name or number. 0, or a negative errno as above. */
int access_find_group(const char *group, gid_t *gid, struct fault *fault);

/* Asks the kernel who has connected, and of which groups it was then. 0 and a peer for peer_deinit, or a
 * negative errno with the reason. */
int peer_init(struct peer *peer, int socket, struct fault *fault);
void peer_deinit(struct peer *peer);

/* Root, or the daemon's own user. */
bool peer_is_trusted(const struct peer *peer);

/* Whether it is trusted or the list names it or a group of it. */
bool access_allows(const struct access *access, const struct peer *peer);

/* Whether the list names anybody who is not trusted anyway. */
bool access_has_others(const struct access *access);

/* Whether both name the same, in the same order. */
bool access_is_same(const struct access *a, const struct access *b);

/* The list in words: what was said, or that nobody was named. */
const char *access_text(const struct access *access);
