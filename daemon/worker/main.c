/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* pinfeed-worker: options, and what makes a process a worker; the work is in session.c and inspect.c.
 *
 * A worker must not outlive its daemon, however that ends. The kernel is asked to kill it then, and because
 * the daemon may have died just before that, its pid is compared afterwards. Signals that a terminal sends to
 * the whole group are ignored: the daemon gets them too, and ends its workers in its own time. */

#include "base/fault.h"
#include "base/number.h"
#include "daemon/worker/inspect.h"
#include "daemon/worker/session.h"

#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
        WORKER_SOCKET = 3, /* where the daemon, or pinfeedctl, has put its end of the socket */
        NICE_MOST = 19,
};

struct options {
        uint64_t daemon;
        uint64_t nice;
        int inspect;
};

static int usage(void) {
        fputs("usage: pinfeed-worker --daemon PID [--nice N] | --inspect | --version\n"
              "Started by pinfeedd and pinfeedctl, with a socket as descriptor 3; of no use by hand.\n",
              stderr);
        return 2;
}

static int parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *number) {
        return number_parse_u64(text, number) < 0 || *number < least || *number > most ? -1 : 0;
}

/* 0, or -1 when they make no sense; --version ends the process. */
static int parse(int argc, char **argv, struct options *options) {
        static const struct option known[] = {
                {"daemon", required_argument, NULL, 'd'},
                {"nice", required_argument, NULL, 'n'},
                {"inspect", no_argument, NULL, 'i'},
                {"version", no_argument, NULL, 'V'},
                {0},
        };
        int c, r = 0;

        while (r == 0 && (c = getopt_long(argc, argv, "", known, NULL)) >= 0) {
                if (c == 'd')
                        r = parse_number(optarg, 1, INT_MAX, &options->daemon);
                else if (c == 'n')
                        r = parse_number(optarg, 0, NICE_MOST, &options->nice);
                else if (c == 'i')
                        options->inspect = 1;
                else if (c == 'V') {
                        puts("pinfeed-worker " PINFEED_VERSION);
                        exit(0);
                } else
                        r = -1;
        }
        if (r < 0 || optind < argc || options->inspect == (options->daemon > 0))
                return -1;
        return 0;
}

/* The daemon may have started us with any set of them blocked or ignored. */
static void reset_signals(void) {
        static const int ignored[] = {SIGINT, SIGHUP, SIGPIPE};
        sigset_t none;

        for (int i = 1; i < NSIG; i++)
                signal(i, SIG_DFL);
        for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
                signal(ignored[i], SIG_IGN);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
}

int main(int argc, char **argv) {
        struct options options = {0};
        struct fault fault = {0};
        int r;

        if (parse(argc, argv, &options) < 0)
                return usage();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (options.daemon > 0 && (uint64_t)getppid() != options.daemon)
                return 0;
        prctl(PR_SET_NAME, "pinfeed-worker");
        reset_signals();
        /* Fails only where we are nicer already, which is as good. */
        if (options.nice > 0)
                setpriority(PRIO_PROCESS, 0, (int)options.nice);

        r = options.inspect ? inspect_run(WORKER_SOCKET, &fault) : session_run(WORKER_SOCKET, &fault);
        if (r < 0) {
                fprintf(stderr, "pinfeed-worker (pid %d): %s\n", (int)getpid(), fault.text);
                return 1;
        }
        return 0;
}
