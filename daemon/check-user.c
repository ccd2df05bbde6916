/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What root may read says nothing about what the service may. So `--check --user NAME` becomes that user
 * before it reads anything, the configuration included: with the groups of the databases and no capability,
 * as systemd starts the service.
 *
 * The order matters: groups can be set only as long as this is root, and the last step is the one that cannot
 * be taken back. That it cannot is tried. */

#include "daemon/check.h"

#include "base/fault.h"
#include "base/number.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static int find(const char *user, const struct passwd **found, struct fault *fault) {
        uint64_t number;

        errno = 0;
        if (number_parse_u64(user, &number) == 0)
                *found = number < UINT32_MAX ? getpwuid((uid_t)number) : NULL;
        else
                *found = getpwnam(user);
        if (!*found && errno != 0 && errno != ENOENT && errno != ESRCH)
                return fault_set(fault, -errno, "--user: looking up %s failed: %s", user, strerror(errno));
        if (!*found)
                return fault_set(fault, -EINVAL, "--user: this machine knows no user %s; see 'getent passwd'",
                                 user);
        return 0;
}

static int drop(const struct passwd *user) {
        uid_t uid = user->pw_uid, real, effective, saved;
        gid_t gid = user->pw_gid;

        if (initgroups(user->pw_name, gid) < 0 || setresgid(gid, gid, gid) < 0 ||
            setresuid(uid, uid, uid) < 0)
                return -errno;
        if (getresuid(&real, &effective, &saved) < 0 || real != uid || effective != uid || saved != uid ||
            (uid != 0 && setuid(0) == 0))
                return -EPERM;
        return 0;
}

int check_become(const char *user, struct fault *fault) {
        const struct passwd *found;
        int r = find(user, &found, fault);

        if (r < 0)
                return r;
        if (geteuid() == found->pw_uid && geteuid() != 0)
                return 0;
        if (geteuid() != 0)
                return fault_set(fault, -EPERM, "--user %s is for root, this is uid %u; use sudo", user,
                                 (unsigned)geteuid());
        r = drop(found);
        return r < 0 ? fault_set(fault, r, "--user: becoming %s (uid %u) failed: %s", user,
                                 (unsigned)found->pw_uid, strerror(-r))
                     : 0;
}
