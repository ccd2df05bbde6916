/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A bare round trip of one small record between two processes over SOCK_SEQPACKET: the floor under every
 * hand-over on this machine. Prints JSON with the median and 99th percentile in microseconds. */

#include "base/clock.h"
#include "tests/bench/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        RECORD_BYTES = 64,
};

static void echo(int fd) {
        char record[RECORD_BYTES];

        while (recv(fd, record, sizeof(record), 0) > 0) {
                if (send(fd, record, sizeof(record), MSG_NOSIGNAL) < 0)
                        return;
        }
}

int main(int argc, char **argv) {
        unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 20000;
        uint64_t *times = calloc(rounds, sizeof(*times));
        char record[RECORD_BYTES] = {};
        int pair[2], status;
        pid_t child;

        if (!times || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return 1;
        child = fork();
        if (child == 0) {
                close(pair[0]);
                echo(pair[1]);
                _exit(0);
        }
        close(pair[1]);
        for (unsigned i = 0; i < rounds; i++) {
                uint64_t start = clock_ns();

                if (send(pair[0], record, sizeof(record), 0) < 0 ||
                    recv(pair[0], record, sizeof(record), 0) <= 0)
                        return 1;
                times[i] = clock_ns() - start;
        }
        close(pair[0]);
        waitpid(child, &status, 0);
        samples_sort(times, rounds);
        printf("{\"rounds\": %u, \"roundtrip_us\": {\"p50\": %.1f, \"p99\": %.1f}}\n", rounds,
               samples_quantile_us(times, rounds, 0.5), samples_quantile_us(times, rounds, 0.99));
        free(times);
        return 0;
}
