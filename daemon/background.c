/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The classic way into the background, for whoever starts a daemon in passing: a training job, a shell. The
 * daemon has to outlive them, and must not cost them anything: it leaves their session and process group
 * (Ctrl-C in the terminal, the end of a batch job's step), holds none of their descriptors (a pipe whose
 * other end waits for its end of file, a socket, a lock), and keeps no directory of theirs busy.
 *
 * Whoever starts it wants to connect next, so the parent lives until the sockets listen, or until it knows
 * why they will not. The child says so in one record over a pipe: an errno, 0 for success, and the words. An
 * end of file without one means that the child has died.
 *
 * That another daemon has the directory is no failure here: a daemon is there, which is what was wanted. Ten
 * clients that start one at the same moment all succeed. */

#include "daemon/background.h"

#include "base/cleanup.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What goes through the pipe. */
struct word {
        int32_t error;
        char text[FAULT_TEXT_MAX + 1];
};

char *background_absolute(const char *path) {
        _cleanup_(freep) char *here = NULL;
        char *absolute;

        if (*path == '/')
                return strdup(path);
        here = getcwd(NULL, 0);
        if (!here || asprintf(&absolute, "%s/%s", here, path) < 0)
                return NULL;
        return absolute;
}

static int fail(const char *what) {
        fprintf(stderr, "pinfeedd: error: cannot go into the background: %s: %s\n", what, strerror(errno));
        return 1;
}

/* In the parent. A record of this size goes through a pipe as a whole. */
static int await_word(int pipe, const char *directory) {
        struct word word;
        ssize_t n;

        do
                n = read(pipe, &word, sizeof(word));
        while (n < 0 && errno == EINTR);
        if (n != sizeof(word)) {
                fputs("pinfeedd: error: the daemon ended before it could be connected to; its log may say "
                      "why\n",
                      stderr);
                return 1;
        }
        if (word.error == -EBUSY)
                fprintf(stderr, "pinfeedd: already runs: %s\n", word.text);
        else if (word.error < 0)
                fprintf(stderr, "pinfeedd: error: %s\n", word.text);
        if (word.error < 0 && word.error != -EBUSY)
                return 1;
        puts(directory);
        return 0;
}

/* In the child; that it cannot is told like any other failure. */
static int leave(void) {
        _cleanup_(fd_closep) int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null < 0 || setsid() < 0 || chdir("/") < 0)
                return -errno;
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
                if (dup2(null, fd) < 0)
                        return -errno;
        return 0;
}

int background_start(struct background *background, const char *directory) {
        _cleanup_(fd_closep) int reading = -1, writing = -1;
        struct fault fault;
        int ends[2], r;
        pid_t child;

        if (pipe2(ends, O_CLOEXEC) < 0)
                return fail("no pipe");
        reading = ends[0];
        writing = ends[1];
        child = fork();
        if (child < 0)
                return fail("no process");
        if (child > 0) {
                fd_closep(&writing);
                return await_word(reading, directory);
        }
        background->pipe = fd_take(&writing);
        r = leave();
        if (r == 0)
                return -1;
        fault_set(&fault, r, "cannot go into the background: %s", strerror(-r));
        background_tell(background, r, &fault);
        return 1;
}

void background_tell(struct background *background, int error, const struct fault *fault) {
        struct word word = {.error = error};

        if (background->pipe < 0)
                return;
        if (error < 0)
                snprintf(word.text, sizeof(word.text), "%s", fault->text);
        if (write(background->pipe, &word, sizeof(word)) < 0)
                error = -errno; /* the parent was killed: nobody wants to know */
        fd_closep(&background->pipe);
}
