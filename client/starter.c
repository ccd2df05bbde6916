/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One of many clients starts the daemon; the others wait until it listens. Which one it is, a lock on a file
 * in the runtime directory says. Whoever gets it tries to connect once more, since the one before may just
 * have succeeded, and only then starts `pinfeedd --private --background`. That there is never more than one
 * daemon does not depend on this lock but on the daemon's own; this one only saves a herd of processes, so it
 * is not waited for without end: a client that was stopped while it had it must not stop all others.
 *
 *     connect: nobody --> take the lock --> connect: nobody --> spawn --> ended with 0 --> connect
 *                           |  ^                                  |
 *                 somebody  +--+ else                             +--> ended otherwise: its last line is the
 *                 listens                                              error, and the next start is some
 *                                                                      time away
 *
 * Each arrow is a step that returns at once, because the call that it is made from may be one that must not
 * block; link.c makes the next one a little later. The process that is spawned is the one that waits for the
 * daemon, which is its child and in a session of its own; nothing else is started and nobody else's child is
 * waited for. It gets no descriptor of this process but the pipe for its words (all of ours are
 * close-on-exec, and it closes what others have left open), no signal that this process ignores or blocks,
 * and a session of its own, so that a signal to our process group does not end a start that others wait for.
 *
 * That it has ended is asked of the kernel by its pid. A host program that reaps children which are not its
 * own, or ignores SIGCHLD, takes the answer away; then it is taken for a success, which connecting soon
 * confirms or not. */

#include "client/starter.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "client/job.h"
#include "client/registry.h"
#include "proto/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        STARTER_LOCK_MS = 5000,      /* for which another client's start is waited for */
        STARTER_PAUSE_MS = 100,      /* between starts: the last daemon may still be ending */
        STARTER_FAILURE_MS = 1000,   /* after one that has failed: the next one would fail, too */
        STARTER_PATIENCE_MS = 10000, /* for daemons that are gone again before they have answered */
        STARTER_WORDS_MAX = 4096,
};

extern char **environ;

static int fail(struct pinfeed_job *job, const char *reason) {
        struct starter *starter = &job->starter;

        starter->again_ns = clock_ns() + STARTER_FAILURE_MS * NS_PER_MS;
        starter_let_go(starter);
        return fault_set(&starter->fault, -ENOENT,
                         "no pinfeedd listens in %s, and %s could not be started: %s", job->directory,
                         starter->program, reason);
}

/* ---- the lock ---- */

/* 1: it is ours, or was waited for long enough; 0: somebody else has it. */
static int take_lock(struct pinfeed_job *job) {
        struct starter *starter = &job->starter;
        char path[RUNTIME_PATH_MAX + sizeof("/" RUNTIME_START_LOCK)];
        struct fault reason;
        int fd, r;

        if (runtime_make_directory(job->directory, &reason) < 0)
                return fail(job, reason.text);
        snprintf(path, sizeof(path), "%s/" RUNTIME_START_LOCK, job->directory);
        registry_change(); /* so that no fork's child keeps it */
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        r = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ? errno : 0;
        if (fd >= 0 && r != 0)
                close(fd);
        if (r == 0)
                starter->lock = fd;
        registry_put();
        if (r != 0 && r != EWOULDBLOCK) {
                fault_set(&reason, -r, "cannot lock %s: %s", path, strerror(r));
                return fail(job, reason.text);
        }
        if (starter->since_ns == 0)
                starter->since_ns = clock_ns();
        return r == 0 || clock_ns() > starter->since_ns + STARTER_LOCK_MS * NS_PER_MS;
}

/* Explicitly: a child of some fork may have the descriptor, too. */
void starter_let_go(struct starter *starter) {
        if (starter->lock >= 0)
                flock(starter->lock, LOCK_UN);
        fd_closep(&starter->lock);
        starter->since_ns = 0;
}

/* ---- the process ---- */

/* Its standard streams, its session, and signals as they are in a new process. */
static int prepare(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes, int words) {
        sigset_t all, none;
        int r;

        sigfillset(&all);
        sigemptyset(&none);
        r = posix_spawn_file_actions_adddup2(actions, words, STDERR_FILENO);
        if (r == 0)
                r = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        if (r == 0)
                r = posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
        if (r == 0)
                r = posix_spawnattr_setsigdefault(attributes, &all);
        if (r == 0)
                r = posix_spawnattr_setsigmask(attributes, &none);
        if (r == 0)
                r = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF |
                                                                 POSIX_SPAWN_SETSIGMASK);
        return r;
}

static int spawn(struct pinfeed_job *job, int words) {
        char *program = job->starter.program, linger[16];
        char *argv[] = {program,        "--private", "--background", "--runtime-dir",
                        job->directory, NULL,        linger,         NULL};
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attributes;
        int r;

        if (job->starter.linger_s > 0)
                argv[5] = "--linger";
        snprintf(linger, sizeof(linger), "%u", job->starter.linger_s);
        if (posix_spawn_file_actions_init(&actions) != 0)
                return ENOMEM;
        if (posix_spawnattr_init(&attributes) != 0) {
                posix_spawn_file_actions_destroy(&actions);
                return ENOMEM;
        }
        r = prepare(&actions, &attributes, words);
        if (r == 0)
                r = posix_spawn(&job->starter.pid, program, &actions, &attributes, argv, environ);
        posix_spawnattr_destroy(&attributes);
        posix_spawn_file_actions_destroy(&actions);
        return r;
}

static int start(struct pinfeed_job *job) {
        struct starter *starter = &job->starter;
        int ends[2], r;

        registry_change();
        r = pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0 ? errno : 0;
        if (r == 0)
                starter->words = ends[0];
        registry_put();
        if (r == 0) {
                fd_set_nonblocking(ends[1], false);
                r = spawn(job, ends[1]);
                close(ends[1]);
        }
        if (r == 0)
                return 0;
        starter->pid = 0;
        fd_closep(&starter->words);
        return fail(job, strerror(r));
}

/* The last line that it wrote, without its name. */
static void read_words(struct starter *starter, char words[STARTER_WORDS_MAX]) {
        ssize_t n = read(starter->words, words, STARTER_WORDS_MAX - 1);
        char *line;

        while (n > 0 && words[n - 1] == '\n')
                n--;
        words[n > 0 ? n : 0] = 0;
        line = strrchr(words, '\n');
        line = line ? line + 1 : words;
        if (!strncmp(line, "pinfeedd: error: ", strlen("pinfeedd: error: ")))
                line += strlen("pinfeedd: error: ");
        memmove(words, line, strlen(line) + 1);
}

/* 1: it has brought a daemon into the background, or says that one is there; 0: it is still at it. */
static int look(struct pinfeed_job *job) {
        struct starter *starter = &job->starter;
        char words[STARTER_WORDS_MAX], reason[STARTER_WORDS_MAX + 64];
        int status = 0;
        pid_t pid;

        do
                pid = waitpid(starter->pid, &status, WNOHANG);
        while (pid < 0 && errno == EINTR);
        if (pid == 0)
                return 0;
        starter->pid = 0;
        read_words(starter, words);
        fd_closep(&starter->words);
        starter->again_ns = clock_ns() + STARTER_PAUSE_MS * NS_PER_MS;
        if (pid < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
                return 1;
        if (WIFEXITED(status))
                snprintf(reason, sizeof(reason), "%s",
                         *words ? words : "it has ended without a word; its log may say why");
        else
                snprintf(reason, sizeof(reason), "it was killed by signal %d", WTERMSIG(status));
        return fail(job, reason);
}

/* ---- the steps ---- */

/* With the lock, the next thing is to connect once more. */
static int begin(struct pinfeed_job *job) {
        int r = take_lock(job);

        return r <= 0 || job->starter.lock >= 0 ? r : start(job);
}

int starter_step(struct pinfeed_job *job) {
        struct starter *starter = &job->starter;
        int r;

        if (starter->pid > 0) {
                r = look(job);
        } else if (clock_ns() < starter->again_ns) {
                r = *starter->fault.text ? -ENOENT : 0;
        } else if (!starter_is_patient(starter) && !job->attached_once) {
                r = fail(job, "it was, and is gone each time before it can be connected to; its log may say "
                              "why");
        } else {
                starter->fault.text[0] = 0;
                r = starter->lock >= 0 ? start(job) : begin(job);
        }
        if (r < 0)
                job->fault = starter->fault;
        return r;
}

bool starter_is_patient(struct starter *starter) {
        uint64_t now = clock_ns();

        if (starter->first_ns == 0)
                starter->first_ns = now;
        return now < starter->first_ns + STARTER_PATIENCE_MS * NS_PER_MS;
}

void starter_close(struct starter *starter) {
        fd_closep(&starter->lock);
        fd_closep(&starter->words);
}

void starter_forget(struct starter *starter) {
        starter->pid = 0;
}

void starter_deinit(struct starter *starter) {
        starter_let_go(starter);
        fd_closep(&starter->words);
        while (starter->pid > 0 && waitpid(starter->pid, NULL, 0) < 0 && errno == EINTR)
                ;
        free(starter->program);
        *starter = STARTER_NONE;
}
