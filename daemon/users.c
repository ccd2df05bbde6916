/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The kernel tells numbers, people want names, and the database between them may be a server that does not
 * answer. So a thread asks, for one user after the other, and until it has an answer there is no name.
 *
 * The thread is none of libuv's: those are few, and the daemon waits for each of them before it ends. This
 * one may hang as long as it likes: it owns what it works at (struct users_question) together with the loop,
 * and whoever of the two lets go last frees it. It touches the loop only through the handle, only while that
 * is open, and only under the question's lock. */

#include "daemon/users.h"

#include "base/fault.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        RECORD_BYTES = 4096, /* of a user; one that has more has no name here */
};

struct users_question {
        pthread_mutex_t lock;
        uv_async_t *answered; /* NULL: the loop has let go */
        bool done;            /* the thread has */
        uid_t uid;
        char name[USERS_NAME_MAX + 1];
};

static void question_free(struct users_question *question) {
        pthread_mutex_destroy(&question->lock);
        free(question);
}

/* ---- the thread ---- */

static void *look_up(void *context) {
        struct users_question *question = context;
        struct passwd entry, *found = NULL;
        char record[RECORD_BYTES];
        bool alone;

        if (getpwuid_r(question->uid, &entry, record, sizeof(record), &found) == 0 && found)
                fault_sanitize(question->name, sizeof(question->name), found->pw_name,
                               strlen(found->pw_name));
        pthread_mutex_lock(&question->lock);
        question->done = true;
        alone = !question->answered;
        if (!alone)
                uv_async_send(question->answered);
        pthread_mutex_unlock(&question->lock);
        if (alone)
                question_free(question);
        return NULL;
}

/* Signals are the loop's. */
static int start(struct users_question *question) {
        sigset_t all, before;
        pthread_attr_t attributes;
        pthread_t thread;
        int r;

        sigfillset(&all);
        r = pthread_attr_init(&attributes);
        if (r != 0)
                return -r;
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_create(&thread, &attributes, look_up, question);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        return -r;
}

/* ---- the loop ---- */

/* The place of a user; users->n: it has none. */
static uint32_t find(const struct users *users, uid_t uid) {
        uint32_t i = 0;

        while (i < users->n && users->entries[i].uid != uid)
                i++;
        return i;
}

/* Has the thread do the next one, unless it is at work. What cannot be asked stays without a name. */
static void ask_next(struct users *users) {
        struct users_question *question;
        uint32_t i = 0;

        while (i < users->n && users->entries[i].asked)
                i++;
        if (i == users->n || users->question || !users->open)
                return;
        question = calloc(1, sizeof(*question));
        if (!question)
                return;
        users->entries[i].asked = true;
        question->uid = users->entries[i].uid;
        question->answered = &users->answered;
        pthread_mutex_init(&question->lock, NULL);
        if (start(question) < 0)
                question_free(question);
        else
                users->question = question;
}

static void on_answered(uv_async_t *async) {
        struct users *users = async->data;
        struct users_question *question = users->question;
        bool done;

        if (!question)
                return;
        pthread_mutex_lock(&question->lock);
        done = question->done;
        pthread_mutex_unlock(&question->lock);
        if (!done)
                return;
        memcpy(users->entries[find(users, question->uid)].name, question->name, sizeof(question->name));
        question_free(question);
        users->question = NULL;
        ask_next(users);
}

int users_init(struct users *users, uv_loop_t *loop) {
        int r;

        *users = (struct users){};
        r = uv_async_init(loop, &users->answered, on_answered);
        if (r < 0)
                return r;
        users->answered.data = users;
        uv_unref((uv_handle_t *)&users->answered);
        users->open = true;
        return 0;
}

void users_stop(struct users *users) {
        struct users_question *question = users->question;
        bool done;

        if (!users->open)
                return;
        users->open = false;
        users->question = NULL;
        if (question) {
                pthread_mutex_lock(&question->lock);
                question->answered = NULL;
                done = question->done;
                pthread_mutex_unlock(&question->lock);
                if (done)
                        question_free(question);
        }
        uv_close((uv_handle_t *)&users->answered, NULL);
}

void users_learn(struct users *users, uid_t uid) {
        if (find(users, uid) == users->n && users->n < USERS_MAX)
                users->entries[users->n++] = (struct users_entry){.uid = uid};
        ask_next(users);
}

const char *users_name(const struct users *users, uid_t uid) {
        uint32_t i = find(users, uid);

        return i < users->n && *users->entries[i].name ? users->entries[i].name : NULL;
}

const char *users_describe(const struct users *users, uid_t uid, char text[USERS_TEXT_MAX]) {
        const char *name = users_name(users, uid);

        if (name)
                snprintf(text, USERS_TEXT_MAX, "%s (uid %u)", name, (unsigned)uid);
        else
                snprintf(text, USERS_TEXT_MAX, "uid %u", (unsigned)uid);
        return text;
}
