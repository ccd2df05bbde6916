#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job's connection: making it, the talk until ATTACHED, waiting, and the words for its failures. */

#include <stddef.h>
#include <stdint.h>

struct message_failed;
struct pinfeed_job;

/* When `timeout_ms` from now is over, as clock_ns counts; UINT64_MAX for UINT32_MAX: never. */
uint64_t connection_deadline(uint32_t timeout_ms);

/* Waits for one of poll's `events` or until the peer is gone: 1; 0 when the deadline has passed; or a
 * negative errno. Goes on after EINTR. A negative socket is none: time passes. */
int connection_wait(int socket, short events, uint64_t deadline_ns);

/* One attempt: connects, which makes job->current, and sends HELLO to ATTACH. Does not wait. 0 or a negative
 * errno with its text in job->fault: -ENOENT nobody listens, -EPERM somebody else does, -EAGAIN the daemon's
 * backlog is full. */
int connection_open(struct pinfeed_job *job);

/* Goes on with the talk as far as it can without waiting. 1: ATTACHED has come, in job->message, and *ring is
 * the descriptor that came with it, the caller's to close; 0: more is to come; or a negative errno with its
 * text. */
int connection_talk(struct pinfeed_job *job, int *ring);

/* Receives one message into job->message. 0, MESSAGE_E_AGAIN, or a negative errno with its text: -EPIPE when
 * the daemon is gone, -EPROTO when the message is broken. `fds` has room for SEQPACKET_FDS_MAX. */
int connection_receive(struct pinfeed_job *job, int fds[], size_t *n_fds);

/* How errors name the daemon: "pinfeedd (pid 77)". Valid until the next call for this job. */
const char *connection_daemon(struct pinfeed_job *job);

/* Puts a FAILED message into words, and keeps what it says of a sample (job->failed). Returns -EIO, or
 * -ETIMEDOUT for ranks that did not come. */
int connection_failed(struct pinfeed_job *job, const struct message_failed *failed);
