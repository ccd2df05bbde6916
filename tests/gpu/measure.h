#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* `measure`: what its checks share. Each is one file. */

#include "client/pinfeed.h"

#include <stdbool.h>
#include <stdint.h>

/* Exit codes, besides 0. */
enum {
        MEASURE_FAILED = 1,
        MEASURE_USAGE = 2,
        MEASURE_LACKS = 77, /* something that the check needs is not here */
};

/* The command line. */
struct measure {
        const char *runtime_dir;
        const char *daemon;  /* the pinfeedd that the first job starts */
        const char *kernels; /* the library of kernels.cu, or NULL */
        uint64_t bytes;      /* of a batch */
        uint64_t slots;
        uint64_t rounds;
        uint32_t pin; /* enum pinfeed_pin */
        int device;
        bool busy; /* the GPU has other work to do meanwhile */
};

void check_device(const struct measure *measure);
void check_maps(const struct measure *measure);
void check_bandwidth(const struct measure *measure);
void check_overlap(const struct measure *measure);
void check_bytes(const struct measure *measure);
void check_wrong_client(const struct measure *measure);
void check_capture(const struct measure *measure);
void check_contexts(const struct measure *measure);
void check_survival(const struct measure *measure);
void check_start(const struct measure *measure);

/* A line of the result on standard output: "NAME TEXT". */
void say(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends the program: with MEASURE_FAILED, or with MEASURE_LACKS, and the words on standard error. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void lack(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Seconds since `start_ns` of clock_ns. */
double seconds_since(uint64_t start_ns);
