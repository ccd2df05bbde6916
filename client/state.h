#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The state of a job as text: where in which stream it is. */

#include "proto/message-table.h"

#include <stddef.h>
#include <stdint.h>

struct fault;

enum {
        STATE_PREFIX_MAX = 1152, /* any name and fingerprint fit, whatever bytes have to be escaped */
};

struct state {
        char pipeline[MESSAGE_NAME_MAX + 1];
        char fingerprint[MESSAGE_FINGERPRINT_MAX + 1];
        uint64_t seed;
        uint32_t epoch;
        uint64_t row;
};

/* Reads a state that somebody has kept. 0, or -EINVAL with what is wrong with it, or -ENOMEM. */
int state_parse(struct state *state, const char *text, struct fault *fault);

/* What is the same in all states of a job, up to the epoch. 0 or -ENOMEM. */
int state_make_prefix(char prefix[STATE_PREFIX_MAX], const char *pipeline, const char *fingerprint,
                      uint64_t seed);

/* A whole state. Its length, or -ENOSPC. */
int state_print(char *text, size_t size, const char *prefix, uint32_t epoch, uint64_t row);
