/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A path on storage that is gone, a driver in a bad state, a manager that does not answer: whoever touches
 * them may never return. So a child does, of which this process reads what it writes, and on which it does
 * not depend. It gets a process group of its own, which is killed when its time is over, and once more when
 * it has ended, for it may have started others that still hold the pipe.
 *
 * A process that sleeps in the kernel does not die of that either. It is then left: it has no terminal to
 * write to, it holds nothing that anybody needs, and it ends when its storage comes back. */

#include "client/ctl/doctor.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        CHILD_GROUPS_MAX = 1024,
        CHILD_NOT_STARTED = 127, /* as shells have it */
        CHILD_POLL_MS = 5,
        CHILD_DYING_MS = 500, /* from SIGKILL on; then it is left */
};

/* ---- in the child ---- */

__attribute__((noreturn)) static void begin(int output, void (*body)(void *context), void *context) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (null >= 0)
                dup2(null, STDIN_FILENO);
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        body(context);
        exit(0);
}

/* ---- in this process ---- */

static int milliseconds_left(uint64_t deadline) {
        uint64_t now = clock_ns();

        return now < deadline ? (int)((deadline - now) / NS_PER_MS) + 1 : 0;
}

/* Until all that have the other end are gone. False: too late. */
static bool read_output(struct doctor_child *child, int input, uint64_t deadline) {
        struct pollfd readable = {.fd = input, .events = POLLIN};
        char beyond[4096];
        ssize_t n;

        for (int left; (left = milliseconds_left(deadline)) > 0;) {
                size_t room = sizeof(child->output) - 1 - child->length;

                if (poll(&readable, 1, left) <= 0)
                        continue;
                n = read(input, room ? child->output + child->length : beyond, room ? room : sizeof(beyond));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return true;
                child->length += room ? (size_t)n : 0;
        }
        return false;
}

/* It is not reaped by that, so that its number stays its own. */
static bool has_ended(pid_t pid, uint64_t deadline) {
        siginfo_t info = {};

        while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0 &&
               milliseconds_left(deadline) > 0)
                poll(NULL, 0, CHILD_POLL_MS);
        return info.si_pid == pid;
}

static void follow(struct doctor_child *child, pid_t pid, int input, unsigned seconds) {
        uint64_t deadline = clock_ns() + seconds * NS_PER_S;
        int status;

        setpgid(pid, pid); /* whoever comes first */
        child->timed_out = !read_output(child, input, deadline) || !has_ended(pid, deadline);
        kill(-pid, SIGKILL);
        if (has_ended(pid, clock_ns() + CHILD_DYING_MS * NS_PER_MS) && waitpid(pid, &status, 0) == pid)
                child->exit = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        child->output[child->length] = 0;
}

void doctor_child_call(struct doctor_child *child, unsigned seconds, void (*body)(void *context),
                       void *context) {
        int ends[2];
        pid_t pid;

        *child = (struct doctor_child){.exit = CHILD_NOT_STARTED};
        if (pipe2(ends, O_CLOEXEC) < 0)
                return;
        fflush(NULL);
        pid = fork();
        if (pid == 0)
                begin(ends[1], body, context);
        close(ends[1]);
        child->started = pid > 0;
        if (child->started)
                follow(child, pid, ends[0], seconds);
        close(ends[0]);
}

/* ---- programs ---- */

struct program {
        const char *const *argv;
        bool changes_user;
        uid_t uid;
        gid_t gid;
        gid_t groups[CHILD_GROUPS_MAX];
        size_t n_groups;
};

static void run_program(void *context) {
        const struct program *program = context;

        if (program->changes_user && (setgroups(program->n_groups, program->groups) < 0 ||
                                      setgid(program->gid) < 0 || setuid(program->uid) < 0))
                exit(CHILD_NOT_STARTED);
        execvp(program->argv[0], (char *const *)program->argv);
        exit(CHILD_NOT_STARTED);
}

/* The effective ones are the second of four. */
static bool read_id(const char *text, const char *name, unsigned *id) {
        const char *at = strstr(text, name);

        return at && sscanf(at + strlen(name), "%*u %u", id) == 1;
}

/* The user and groups of a process, when they are not those of this one, and this one may take them. */
static void take_user(struct program *program, pid_t as) {
        struct doctor machine = {.root = ""};
        char text[DOCTOR_SMALL_FILE], *at, *end;

        if (as <= 0 || geteuid() != 0 || !doctor_read(&machine, text, "/proc/%d/status", (int)as) ||
            !read_id(text, "\nUid:", &program->uid) || !read_id(text, "\nGid:", &program->gid) ||
            program->uid == geteuid())
                return;
        program->changes_user = true;
        at = strstr(text, "\nGroups:");
        for (at = at ? at + strlen("\nGroups:") : text + strlen(text); program->n_groups < CHILD_GROUPS_MAX;
             at = end) {
                at += strspn(at, " \t");
                program->groups[program->n_groups] = (gid_t)strtoul(at, &end, 10);
                if (end == at)
                        return;
                program->n_groups++;
        }
}

bool doctor_child_run(struct doctor_child *child, unsigned seconds, pid_t as, const char *const argv[]) {
        struct program program = {.argv = argv};

        take_user(&program, as);
        doctor_child_call(child, seconds, run_program, &program);
        return child->started && !child->timed_out && child->exit == 0;
}
