/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* In a directory such as /tmp somebody else's process may listen where we expect a daemon. So the other side
 * of the socket is checked by the kernel's word (SO_PEERCRED) before anything is sent or believed. Good are:
 *
 *   - this user, and root, who may do with this process what they like anyway. A socket that systemd made is
 *     root's;
 *   - in the service's directory (RUNTIME_SERVICE) the user whom it belongs to, if nobody else may write it:
 *     only root can have made it there, and has said so whose service it is;
 *   - anywhere else whom the environment names (PINFEED_SERVER_USER), a name or a number.
 *
 * What a directory elsewhere belongs to says nothing: whoever lies in wait there owns it.
 *
 * A name is looked up only when it decides, so that a client of its own daemon never waits for a database of
 * users. */

#include "client/server.h"

#include "base/fault.h"
#include "base/number.h"
#include "base/seqpacket.h"
#include "client/pinfeed.h"
#include "proto/runtime.h"

#include <errno.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        RECORD_BYTES = 16384, /* of a user, of whom no more than the number is wanted */
};

/* Whether the service's directory is that user's, and nobody else's to write. */
static bool owns_service(const char *directory, uid_t uid) {
        size_t length = strlen(directory);
        struct stat facts;

        while (length > 1 && directory[length - 1] == '/')
                length--;
        return length == strlen(RUNTIME_SERVICE) && strncmp(directory, RUNTIME_SERVICE, length) == 0 &&
               lstat(RUNTIME_SERVICE, &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == uid &&
               !(facts.st_mode & (S_IWGRP | S_IWOTH));
}

static bool is_named(const char *user, uid_t uid) {
        struct passwd entry, *found = NULL;
        char record[RECORD_BYTES];
        uint64_t number;

        if (!user || !*user)
                return false;
        if (number_parse_u64(user, &number) == 0)
                return number == uid;
        return getpwnam_r(user, &entry, record, sizeof(record), &found) == 0 && found && found->pw_uid == uid;
}

int server_check(int socket, const char *directory, pid_t *pid, struct fault *fault) {
        const char *named = getenv("PINFEED_SERVER_USER");
        uid_t uid;
        gid_t gid;
        int r = seqpacket_peer(socket, pid, &uid, &gid);

        if (r < 0)
                return fault_set(fault, r, "asking who listens in %s failed: %s", directory, strerror(-r));
        if (uid == 0 || uid == geteuid() || owns_service(directory, uid) || is_named(named, uid))
                return 0;
        if (named && *named)
                return fault_set(fault, -EPERM,
                                 "the daemon in %s (pid %d) belongs to uid %u, not to uid %u, root or "
                                 "PINFEED_SERVER_USER, %.64s; name the user there whose daemon is meant",
                                 directory, (int)*pid, (unsigned)uid, (unsigned)geteuid(), named);
        return fault_set(
                fault, -EPERM,
                "the daemon in %s (pid %d) belongs to uid %u, not to uid %u or root; if it is meant, set "
                "PINFEED_SERVER_USER=%u",
                directory, (int)*pid, (unsigned)uid, (unsigned)geteuid(), (unsigned)uid);
}

int pinfeed_check_server(int socket, const char *directory, char *text, size_t size) {
        struct fault fault = {};
        pid_t pid;
        int r = server_check(socket, directory, &pid, &fault);

        if (text && size > 0)
                snprintf(text, size, "%s", fault.text);
        return r;
}
