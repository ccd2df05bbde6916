#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Other users, by number: what they do is done in a process of theirs. Only root can make one. */

#include "tests/support/harness.h"

#include <check.h>
#include <grp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        PEOPLE_SOON_MS = 20000,
};

struct person {
        uid_t uid;
        gid_t gid;
        size_t n_groups;
        gid_t groups[2];
};

/* Whether there can be several users; says so where not. */
static inline bool people_exist(void) {
        if (geteuid() != 0)
                harness_skip("only root can be somebody else");
        return geteuid() == 0;
}

/* From now on this process is theirs. Its own files in /proc stay its own. */
static inline bool person_become(const struct person *person) {
        return setgroups(person->n_groups, person->groups) == 0 && setgid(person->gid) == 0 &&
               setuid(person->uid) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
}

/* Has `act` done by them, and asserts that nothing in it fails. */
static inline void person_does(const struct person *person, struct harness *h,
                               void (*act)(struct harness *h, void *context), void *context) {
        pid_t pid = fork();

        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                ck_assert(person_become(person));
                act(h, context);
                _exit(0);
        }
        ck_assert_int_eq(harness_join(h, pid, PEOPLE_SOON_MS), 0);
}

/* Others may enter the harness's directory. */
static inline void people_let_in(const struct harness *h) {
        ck_assert_int_eq(chmod(harness_directory(h), 0755), 0);
}
