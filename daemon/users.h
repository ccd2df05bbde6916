#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What users are called: asked of the system once each, and never waited for. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

enum {
        USERS_MAX = 256,      /* that are remembered; of those beyond only the numbers are known */
        USERS_NAME_MAX = 64,  /* bytes of a name; longer ones are cut */
        USERS_TEXT_MAX = 100, /* a name and a number */
};

struct users_question;

struct users_entry {
        uid_t uid;
        bool asked;
        char name[USERS_NAME_MAX + 1]; /* "": not known, or there is none */
};

struct users {
        uv_async_t answered;
        bool open;
        struct users_question *question; /* that a thread works at; NULL: none does */
        struct users_entry entries[USERS_MAX];
        uint32_t n;
};

/* 0 or a negative errno. Keeps no loop alive. */
int users_init(struct users *users, uv_loop_t *loop);

/* Whoever still looks something up is left alone with it. To be called while the loop still runs. */
void users_stop(struct users *users);

/* Has the name looked up, if nobody has before. */
void users_learn(struct users *users, uid_t uid);

/* The name, or NULL where it is not known, or not yet. */
const char *users_name(const struct users *users, uid_t uid);

/* "alice (uid 1001)", or "uid 1001" where there is no name. Returns `text`. */
const char *users_describe(const struct users *users, uid_t uid, char text[USERS_TEXT_MAX]);
