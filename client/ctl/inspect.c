/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Files are opened here, as the caller, and decoded in a pinfeed-worker that gets nothing but a descriptor
 * and a name: untrusted bytes are parsed in a process of their own here, too. When a file kills it, that is
 * the answer for this file, and the next one gets a new worker. */

#include "client/ctl/ctl.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/program.h"
#include "base/seqpacket.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum {
        INSPECT_SOCKET = 3, /* where the worker expects it */
};

extern char **environ;

struct inspector {
        char program[PATH_MAX];
        pid_t pid; /* 0: no worker */
        int socket;
};

/* Installed beside pinfeedctl, or in the build tree. */
static const char *const inspect_programs[] = {"../libexec/pinfeed/pinfeed-worker",
                                               "../../daemon/worker/pinfeed-worker", NULL};

static int inspector_spawn(struct inspector *inspector) {
        char *arguments[] = {inspector->program, (char *)"--inspect", NULL};
        posix_spawn_file_actions_t actions;
        int sockets[2], r;

        r = seqpacket_pair(sockets);
        if (r < 0)
                return r;
        (void)fd_set_nonblocking(sockets[0], false);
        (void)fd_set_nonblocking(sockets[1], false);
        r = -posix_spawn_file_actions_init(&actions);
        if (r == 0) {
                r = -posix_spawn_file_actions_adddup2(&actions, sockets[1], INSPECT_SOCKET);
                if (r == 0)
                        r = -posix_spawn(&inspector->pid, inspector->program, &actions, NULL, arguments,
                                         environ);
                posix_spawn_file_actions_destroy(&actions);
        }
        close(sockets[1]);
        if (r < 0) {
                close(sockets[0]);
                inspector->pid = 0;
                return r;
        }
        inspector->socket = sockets[0];
        return 0;
}

/* Ends the worker, by closing its socket, and says how it ended. */
static void inspector_reap(struct inspector *inspector, struct fault *fault) {
        int status = 0;

        if (inspector->pid == 0)
                return;
        close(inspector->socket);
        while (waitpid(inspector->pid, &status, 0) < 0 && errno == EINTR)
                continue;
        inspector->pid = 0;
        if (WIFSIGNALED(status))
                fault_set(fault, -EIO, "the worker was killed by signal %d", WTERMSIG(status));
        else
                fault_set(fault, -EIO, "the worker ended with exit status %d", WEXITSTATUS(status));
}

/* Sends the file and receives what the worker says about it. A new reference, or NULL with the reason. */
static json_t *inspector_ask(struct inspector *inspector, const char *file, int fd, struct fault *fault) {
        char record[SEQPACKET_RECORD_MAX];
        int fds[SEQPACKET_FDS_MAX];
        size_t length, n_fds;
        json_t *answer;
        int r;

        r = inspector->pid ? 0 : inspector_spawn(inspector);
        if (r < 0) {
                fault_set(fault, r, "starting %s failed: %s", inspector->program, strerror(-r));
                return NULL;
        }
        r = seqpacket_send(inspector->socket, file, strlen(file), &fd, 1);
        if (r == 0)
                r = seqpacket_receive(inspector->socket, record, sizeof(record), &length, fds, &n_fds);
        if (r != 0) {
                inspector_reap(inspector, fault);
                return NULL;
        }
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]);
        answer = json_loadb(record, length, 0, NULL);
        if (!json_is_object(answer)) {
                fault_set(fault, -EPROTO, "the worker's answer is no JSON object");
                json_decref(answer);
                return NULL;
        }
        return answer;
}

/* One line for one file. Returns whether it is ok. */
static bool inspect_file(struct inspector *inspector, const char *file) {
        _cleanup_(fd_closep) int fd = -1;
        char name[PATH_MAX];
        struct fault fault = {0};
        json_t *answer = NULL;
        bool ok;

        fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a FIFO must not hold us up */
        if (fd < 0)
                fault_set(&fault, -errno, "%s", strerror(errno));
        else
                answer = inspector_ask(inspector, file, fd, &fault);
        if (!answer) {
                fault_sanitize(name, sizeof(name), file, strlen(file));
                answer = json_pack("{s:s, s:b, s:s}", "file", name, "ok", 0, "error", fault.text);
        }
        ok = json_is_true(json_object_get(answer, "ok"));
        ctl_print_json(answer);
        json_decref(answer);
        return ok;
}

int command_inspect(const struct ctl *ctl, int argc, char **argv) {
        static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {0}};
        struct inspector inspector = {0};
        bool all_ok = true;
        int c;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0)
                return c == 'h' ? ctl_help(ctl) : ctl_usage(ctl, NULL);
        if (optind == argc)
                return ctl_usage(ctl, "expected files");
        if (program_find(inspector.program, inspect_programs) < 0)
                return ctl_fail(
                        "pinfeed-worker is not where it was installed together with this program (%s)",
                        inspect_programs[0]);
        for (int i = optind; i < argc; i++)
                all_ok &= inspect_file(&inspector, argv[i]);
        inspector_reap(&inspector, NULL);
        return all_ok ? CTL_OK : CTL_FAILED;
}
