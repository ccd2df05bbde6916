#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A daemon that the library starts in a harness's directory, and jobs that bring their pipelines. */

#include "base/clock.h"
#include "proto/runtime.h"
#include "tests/support/process.h"
#include "tests/system/reader.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        PRIVATE_SOON_MS = 10000,
        PRIVATE_LINGER_S = 2,
};

/* 100 samples in batches of 8, in the order of their numbers. */
#define PRIVATE_RAMP                                                                                         \
        "pipelines:\n"                                                                                       \
        "  ramp:\n"                                                                                          \
        "    source: {type: synthetic, samples: 100, mode: ramp, bytes: 5000}\n"                             \
        "    batch_size: 8\n"                                                                                \
        "    slots: 24\n"                                                                                    \
        "    workers: 1\n"

/* A harness that starts nothing itself, and the environment for daemons that others start. */
static inline struct harness *private_new(void) {
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX];

        snprintf(path, sizeof(path), "%s/state", harness_directory(h));
        setenv("PINFEED_STATE_DIR", path, 1);
        harness_set_environment(h, "PINFEED_STATE_DIR", path);
        return h;
}

/* Of a job that brings `definition` and starts the installed pinfeedd. */
static inline struct pinfeed_attach private_attach(const struct harness *h, const char *definition) {
        static char daemon[HARNESS_PATH_MAX];
        struct pinfeed_attach attach = reader_attach(h, NULL, 4);

        attach.definition = definition;
        attach.definition_file = "/nowhere/train.yaml";
        attach.daemon = harness_program("pinfeedd", daemon);
        attach.linger_s = PRIVATE_LINGER_S;
        return attach;
}

static inline char *private_read(const struct harness *h, const char *name) {
        char path[HARNESS_PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", harness_runtime_directory(h), name);
        return process_read_file(path);
}

/* The daemon of the directory, by its lock; 0: there is none. */
static inline pid_t private_pid(const struct harness *h) {
        char *text = private_read(h, RUNTIME_LOCK);
        pid_t pid = text ? (pid_t)atoi(text) : 0;

        free(text);
        return pid;
}

static inline void private_wait_ended(pid_t pid, int timeout_ms) {
        uint64_t deadline = clock_ns() + (uint64_t)timeout_ms * (uint64_t)harness_slowdown() * NS_PER_MS;

        while (harness_alive(pid) && clock_ns() < deadline)
                usleep(HARNESS_POLL_US);
        ck_assert_msg(!harness_alive(pid), "pinfeedd (pid %d) still runs after %d ms", (int)pid, timeout_ms);
        waitpid(pid, NULL, WNOHANG); /* ours as its subreaper */
}

/* Ends whatever daemon runs, and the test. */
static inline void private_finish(struct harness *h) {
        pid_t pid = private_pid(h);

        if (pid > 0 && harness_alive(pid) && kill(pid, SIGTERM) == 0)
                ck_assert_int_eq(harness_join(h, pid, PRIVATE_SOON_MS), 0); /* ours as its subreaper */
        harness_free(h);
}

/* How many daemons have become ready in this directory. */
static inline unsigned private_starts(const struct harness *h) {
        char *log = private_read(h, RUNTIME_LOG);
        unsigned n = 0;

        for (const char *at = log; at && (at = strstr(at, "pinfeedd: ready")); at++)
                n++;
        free(log);
        return n;
}
