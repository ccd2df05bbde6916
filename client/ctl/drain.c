/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* drain: the daemon lets no job in any more and stops with the last one that it has. Its process is waited
 * for by a pidfd: that the socket is closed comes before the workers have ended, and asking at the socket
 * whether anybody is there could start the next daemon where systemd holds it.
 *
 * There is no way back from a drain, so Ctrl-C ends the waiting only, and says so. */

#include "client/ctl/ctl.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/number.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
        DRAIN_SECONDS_MAX = 86400,
        DRAIN_END_MS = 10000, /* for the daemon to end once its jobs have left */
        DRAIN_INTERRUPTED = 130,
};

struct wait {
        int pidfd; /* of the daemon; -1: not known */
        uint64_t jobs;
};

static void on_interrupt(int number) {
        static const char text[] = "\npinfeedctl: the drain goes on: pinfeedd ends when its jobs have left\n";

        if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
                _exit(CTL_FAILED);
        _exit(DRAIN_INTERRUPTED);
}

static void on_line(void *context, json_t *line) {
        const json_t *seconds = json_object_get(line, "seconds");
        uint64_t jobs = ctl_number_of(line, "jobs");
        struct wait *wait = context;

        if (wait->pidfd < 0)
                wait->pidfd = (int)syscall(SYS_pidfd_open, (pid_t)ctl_number_of(line, "pid"), 0);
        wait->jobs = jobs;
        if (json_is_number(seconds))
                ctl_live("draining: %llu job%s left, %.0f s at most", (unsigned long long)jobs,
                         ctl_plural(jobs), json_number_value(seconds));
        else
                ctl_live("draining: %llu job%s left", (unsigned long long)jobs, ctl_plural(jobs));
}

/* The socket is closed, and it ends now. */
static int await_end(int pidfd) {
        struct pollfd ended = {.fd = pidfd, .events = POLLIN};

        if (pidfd < 0 || poll(&ended, 1, DRAIN_END_MS) != 0)
                return CTL_OK;
        return ctl_fail("pinfeedd has no job any more and has not ended in %d s; its log may say why",
                        DRAIN_END_MS / 1000);
}

static int drain(const struct ctl *ctl, uint64_t seconds) {
        struct wait wait = {.pidfd = -1};
        struct fault fault = {0};
        char request[96] = "drain";
        json_t *answer;
        int r;

        if (seconds > 0)
                snprintf(request, sizeof(request), "{\"command\":\"drain\",\"seconds\":%llu}",
                         (unsigned long long)seconds);
        signal(SIGINT, on_interrupt);
        answer = control_ask_long(ctl->runtime_dir, request, on_line, &wait, &fault);
        if (answer && !json_is_string(json_object_get(answer, "error")))
                on_line(&wait, answer);
        if (answer && json_is_string(json_object_get(answer, "error")))
                r = ctl_fail("%s", ctl_text_of(answer, "error"));
        else if (!answer && wait.pidfd < 0)
                r = ctl_fail("%s", fault.text);
        else
                r = await_end(wait.pidfd); /* also where somebody has stopped it meanwhile */
        ctl_live_end();
        if (r == CTL_OK && wait.jobs > 0)
                printf("the time was over: %llu job%s had not left\n", (unsigned long long)wait.jobs,
                       ctl_plural(wait.jobs));
        json_decref(answer);
        fd_closep(&wait.pidfd);
        return r;
}

int command_drain(const struct ctl *ctl, int argc, char **argv) {
        static const struct option options[] = {
                {"timeout", required_argument, NULL, 't'}, {"help", no_argument, NULL, 'h'}, {0}};
        uint64_t seconds = 0;
        int c;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
                if (c != 't')
                        return c == 'h' ? ctl_help(ctl) : ctl_usage(ctl, NULL);
                if (ctl_number(ctl, "--timeout", optarg, 1, DRAIN_SECONDS_MAX, &seconds) != 0)
                        return CTL_USAGE;
        }
        if (optind != argc)
                return ctl_usage(ctl, "unexpected argument \"%s\"", argv[optind]);
        return drain(ctl, seconds);
}
