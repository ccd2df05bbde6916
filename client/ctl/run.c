/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* run: a command with a private daemon beside it. The daemon is the user's, not the command's: it may be
 * there already, and it stays for others when the command has ended. So this process becomes the command, and
 * has nothing to clean up.
 *
 * pinfeedd itself says where it is to be found, in a line on its standard output; then the command is told.
 */

#include "client/ctl/ctl.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/program.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        RUN_LINGER_MAX_S = 31536000,
        RUN_ARGUMENTS_MAX = 10,
        RUN_STATUS_S = 10,
        RUN_NOT_EXECUTABLE = 126, /* as shells have it */
        RUN_NOT_FOUND = 127,
};

extern char **environ;

static const char *const daemons[] = {
        "pinfeedd",              /* installed */
        "../bin/pinfeedd",       /* elsewhere in the same tree */
        "../../daemon/pinfeedd", /* the build tree */
        NULL,
};

struct run {
        char program[PATH_MAX];
        const char *linger;
        const char *config;
        char directory[PATH_MAX]; /* where the daemon is */
};

static int spawn(const struct ctl *ctl, const struct run *run, int output, pid_t *pid) {
        const char *argv[RUN_ARGUMENTS_MAX] = {"pinfeedd", "--private", "--background"};
        const char *const values[][2] = {
                {"--runtime-dir", ctl->runtime_dir}, {"--linger", run->linger}, {"--config", run->config}};
        posix_spawn_file_actions_t actions;
        size_t n = 3;
        int r;

        for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
                if (!values[i][1])
                        continue;
                argv[n++] = values[i][0];
                argv[n++] = values[i][1];
        }
        r = posix_spawn_file_actions_init(&actions);
        if (r != 0)
                return r;
        r = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
        if (r == 0)
                r = posix_spawn(pid, run->program, &actions, NULL, (char *const *)argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        return r;
}

/* The line that pinfeedd writes; it ends, and so does its standard output, when jobs can connect. */
static void read_directory(struct run *run, int input) {
        size_t length = 0;
        ssize_t n;

        while (length < sizeof(run->directory) - 1) {
                n = read(input, run->directory + length, sizeof(run->directory) - 1 - length);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        break;
                length += (size_t)n;
        }
        run->directory[length] = 0;
        run->directory[strcspn(run->directory, "\n")] = 0;
}

/* A daemon is there afterwards. Of a failure pinfeedd has said why. */
static int start(const struct ctl *ctl, struct run *run) {
        _cleanup_(fd_closep) int input = -1, output = -1;
        int ends[2], r, status;
        pid_t pid;

        if (program_find(run->program, daemons) < 0)
                return ctl_fail("pinfeedd is not where it was installed together with this program");
        if (pipe2(ends, O_CLOEXEC) < 0)
                return ctl_fail("no pipe: %s", strerror(errno));
        input = ends[0];
        output = ends[1];
        r = spawn(ctl, run, output, &pid);
        if (r != 0)
                return ctl_fail("cannot start %s: %s", run->program, strerror(r));
        fd_closep(&output);
        read_directory(run, input);
        while ((r = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
                ;
        if (r == pid && WIFSIGNALED(status))
                return ctl_fail("%s was killed by signal %d", run->program, WTERMSIG(status));
        return *run->directory ? CTL_OK : CTL_FAILED;
}

/* A daemon that was there before does not read the file, so it must have been started with it: else the
 * command would find other pipelines than it was given. */
static int expect_config(const struct run *run) {
        char file[PATH_MAX], served[PATH_MAX] = "no file";
        struct fault fault;
        json_t *status;
        bool same;
        int r = CTL_OK;

        status = control_ask_within(run->directory, "status", RUN_STATUS_S, &fault);
        if (!status)
                return ctl_fail("%s", fault.text);
        if (ctl_config_path(status, file) && !realpath(file, served))
                snprintf(served, sizeof(served), "%s", file);
        same = realpath(run->config, file) && strcmp(file, served) == 0;
        if (!same)
                r = ctl_fail("the daemon in %s (pid %llu) was started with %s and not with %s; end it with "
                             "'kill %llu', or leave --config out",
                             run->directory, (unsigned long long)ctl_number_of(status, "pid"), served,
                             run->config, (unsigned long long)ctl_number_of(status, "pid"));
        json_decref(status);
        return r;
}

int command_run(const struct ctl *ctl, int argc, char **argv) {
        static const struct option options[] = {{"linger", required_argument, NULL, 'l'},
                                                {"config", required_argument, NULL, 'c'},
                                                {"help", no_argument, NULL, 'h'},
                                                {0}};
        struct run run = {0};
        uint64_t linger;
        int c;

        while ((c = getopt_long(argc, argv, "+h", options, NULL)) >= 0) {
                if (c == 'h' || c == '?')
                        return c == 'h' ? ctl_help(ctl) : ctl_usage(ctl, NULL);
                if (c == 'c')
                        run.config = optarg;
                else if (ctl_number(ctl, "--linger", run.linger = optarg, 1, RUN_LINGER_MAX_S, &linger) != 0)
                        return CTL_USAGE;
        }
        if (optind == argc)
                return ctl_usage(ctl, "expected a command to run");
        if (start(ctl, &run) != CTL_OK || (run.config && expect_config(&run) != CTL_OK))
                return CTL_FAILED;
        if (setenv("PINFEED_RUNTIME_DIR", run.directory, 1) < 0)
                return ctl_fail("out of memory");
        execvp(argv[optind], argv + optind);
        c = errno;
        ctl_fail("cannot run %s: %s", argv[optind], strerror(c));
        return c == ENOENT ? RUN_NOT_FOUND : RUN_NOT_EXECUTABLE;
}
