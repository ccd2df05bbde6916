/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Names become numbers when the configuration is read, and only numbers are compared afterwards: the
 * databases of users may be a server elsewhere, and the daemon's loop must not wait for one. For the same
 * reason a group is not spelt out into its members. Of which groups somebody is says the kernel: it keeps
 * with each connection what the process had at the moment of connect (SO_PEERCRED, SO_PEERGROUPS), and no
 * process can claim a group that was not given to it by root. So whoever is added to a group has to log in
 * again, as for a file of that group.
 *
 * A text of digits alone is a number, and need not be anybody's: accounts of other machines have numbers
 * here, too. Anything else is a name that must be known. */

#include "daemon/access.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/number.h"
#include "base/seqpacket.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59 /* Linux 4.13 */
#endif

enum {
        DATABASE_BYTES = 1024, /* of an entry; more where it does not fit */
        DATABASE_BYTES_MAX = 16 << 20,
        GROUPS_FEW = 64, /* most have fewer; the kernel's own limit is 65,536 */
};

/* ---- names ---- */

/* 0 and the number that all of `text` is; -ENOENT: it is a name; -EINVAL with words: no id is so large. */
static int read_number(const char *text, uint32_t *id, struct fault *fault) {
        uint64_t number;
        int r = number_parse_u64(text, &number);

        if (r == -EINVAL)
                return -ENOENT;
        if (r < 0 || number >= UINT32_MAX) /* the last one stands for "none" */
                return fault_set(fault, -EINVAL, "expected a number below %u, got %s", UINT32_MAX, text);
        *id = (uint32_t)number;
        return 0;
}

/* Some databases report an unknown name as an error. */
static bool is_unknown(int error) {
        return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

/* The number of a user: 0, or a positive errno, of which is_unknown says that there is none of that name. */
static int ask_user(const char *name, uid_t *uid, char *buffer, size_t size) {
        struct passwd entry, *found = NULL;
        int r = getpwnam_r(name, &entry, buffer, size, &found);

        if (found)
                *uid = found->pw_uid;
        return found ? 0 : r ? r : ENOENT;
}

static int ask_group(const char *name, gid_t *gid, char *buffer, size_t size) {
        struct group entry, *found = NULL;
        int r = getgrnam_r(name, &entry, buffer, size, &found);

        if (found)
                *gid = found->gr_gid;
        return found ? 0 : r ? r : ENOENT;
}

/* Asks with as much memory as the entry takes: a group may have thousands of members. */
static int ask(int (*question)(const char *, uint32_t *, char *, size_t), const char *name, uint32_t *id) {
        int r = ERANGE;

        for (size_t size = DATABASE_BYTES; r == ERANGE && size <= DATABASE_BYTES_MAX; size *= 4) {
                _cleanup_(freep) char *buffer = malloc(size);

                r = buffer ? question(name, id, buffer, size) : ENOMEM;
        }
        return r;
}

static int find(const char *what, const char *database,
                int (*question)(const char *, uint32_t *, char *, size_t), const char *text, uint32_t *id,
                struct fault *fault) {
        int r = read_number(text, id, fault);

        if (r != -ENOENT)
                return r;
        r = ask(question, text, id);
        if (r == 0)
                return 0;
        if (is_unknown(r))
                return fault_set(fault, -EINVAL,
                                 "this machine knows no %s \"%.64s\"; see 'getent %s', or give a number",
                                 what, text, database);
        return fault_set(fault, -r, "looking up %s \"%.64s\" failed: %s; give its number", what, text,
                         strerror(r));
}

int access_find_group(const char *group, gid_t *gid, struct fault *fault) {
        return find("group", "group", ask_group, group, gid, fault);
}

/* ---- lists ---- */

/* Adds to the words: the first one of its kind says which kind it is. */
static void describe(struct access *access, const char *kind, bool first, const char *name) {
        size_t n = strlen(access->text), room = sizeof(access->text) - n;
        int length;

        if (first)
                length = snprintf(access->text + n, room, "%s%s %s", n > 0 ? "; " : "", kind, name);
        else
                length = snprintf(access->text + n, room, ", %s", name);
        if ((size_t)length >= room)
                memcpy(access->text + ACCESS_TEXT_MAX - 3, "...", 4);
}

static int add(uint32_t **list, size_t *n, uint32_t id, struct fault *fault) {
        uint32_t *longer;

        if (*n >= ACCESS_ENTRIES_MAX)
                return fault_set(fault, -E2BIG, "expected at most %d entries; name a group instead",
                                 ACCESS_ENTRIES_MAX);
        longer = reallocarray(*list, *n + 1, sizeof(*longer));
        if (!longer)
                return fault_set(fault, -ENOMEM, "out of memory");
        longer[(*n)++] = id;
        *list = longer;
        return 0;
}

int access_add_user(struct access *access, const char *user, struct fault *fault) {
        uid_t uid;
        int r = find("user", "passwd", ask_user, user, &uid, fault);

        if (r == 0)
                r = add(&access->uids, &access->n_uids, uid, fault);
        if (r == 0)
                describe(access, "users", access->n_uids == 1, user);
        return r;
}

int access_add_group(struct access *access, const char *group, struct fault *fault) {
        gid_t gid;
        int r = access_find_group(group, &gid, fault);

        if (r == 0)
                r = add(&access->gids, &access->n_gids, gid, fault);
        if (r == 0)
                describe(access, "groups", access->n_gids == 1, group);
        return r;
}

void access_deinit(struct access *access) {
        free(access->uids);
        free(access->gids);
        *access = (struct access){};
}

static bool has(const uint32_t *list, size_t n, uint32_t id) {
        for (size_t i = 0; i < n; i++)
                if (list[i] == id)
                        return true;
        return false;
}

bool access_allows(const struct access *access, const struct peer *peer) {
        if (peer_is_trusted(peer) || has(access->uids, access->n_uids, peer->uid) ||
            has(access->gids, access->n_gids, peer->gid))
                return true;
        for (size_t i = 0; i < peer->n_groups; i++)
                if (has(access->gids, access->n_gids, peer->groups[i]))
                        return true;
        return false;
}

bool access_has_others(const struct access *access) {
        for (size_t i = 0; i < access->n_uids; i++)
                if (!peer_is_trusted(&(struct peer){.uid = access->uids[i]}))
                        return true;
        return access->n_gids > 0;
}

bool access_is_same(const struct access *a, const struct access *b) {
        return a->n_uids == b->n_uids && a->n_gids == b->n_gids &&
               (a->n_uids == 0 || memcmp(a->uids, b->uids, a->n_uids * sizeof(*a->uids)) == 0) &&
               (a->n_gids == 0 || memcmp(a->gids, b->gids, a->n_gids * sizeof(*a->gids)) == 0);
}

const char *access_text(const struct access *access) {
        return *access->text ? access->text : "nobody but root and the daemon's own user";
}

/* ---- peers ---- */

bool peer_is_trusted(const struct peer *peer) {
        return peer->uid == 0 || peer->uid == geteuid();
}

/* Fills groups[]; *n is their room, and how many there are. The kernel says ERANGE where it is too small. */
static int ask_groups(int socket, gid_t *groups, size_t *n) {
        socklen_t size = (socklen_t)(*n * sizeof(gid_t));
        int r = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &size);

        *n = size / sizeof(gid_t);
        return r < 0 ? -errno : 0;
}

/* A kernel or a sandbox that knows no SO_PEERGROUPS leaves the primary group. */
static int take_groups(struct peer *peer, int socket) {
        gid_t few[GROUPS_FEW], *groups;
        size_t n = GROUPS_FEW;
        int r = ask_groups(socket, few, &n);

        if (r < 0 && r != -ERANGE)
                return r == -ENOPROTOOPT || r == -ENODATA ? 0 : r;
        groups = calloc(n > 0 ? n : 1, sizeof(*groups));
        if (!groups)
                return -ENOMEM;
        if (r == 0)
                memcpy(groups, few, n * sizeof(*groups));
        else
                r = ask_groups(socket, groups, &n);
        if (r < 0) {
                free(groups);
                return r;
        }
        peer->groups = groups;
        peer->n_groups = n;
        return 0;
}

int peer_init(struct peer *peer, int socket, struct fault *fault) {
        int r;

        *peer = (struct peer){};
        r = seqpacket_peer(socket, &peer->pid, &peer->uid, &peer->gid);
        if (r == 0 && !peer_is_trusted(peer)) /* of whom nobody asks for groups */
                r = take_groups(peer, socket);
        return r < 0 ? fault_set(fault, r, "cannot ask who has connected: %s", strerror(-r)) : 0;
}

void peer_deinit(struct peer *peer) {
        free(peer->groups);
        peer->groups = NULL;
        peer->n_groups = 0;
}
