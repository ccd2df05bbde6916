#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One daemon per runtime directory: the lock, and sockets that replace stale ones and nothing else. */

#include "proto/runtime.h"

#include <sys/types.h>

struct fault;

/* Takes the directory for this process and writes its pid into RUNTIME_LOCK. The descriptor to keep open, or
 * -EBUSY with the pid of the daemon that has it, or another negative errno with the reason. */
int listener_lock(const char *directory, struct fault *fault);

/* Removes the lock file and closes the descriptor. */
void listener_unlock(const char *directory, int lock);

/* "DIRECTORY/NAME" for a socket that is to be bound there: whatever stale socket lies there is removed. The
 * caller holds the lock. -EEXIST for anything that is no socket, or a socket that somebody serves: it is left
 * alone and named. */
int listener_prepare(char path[RUNTIME_PATH_MAX + 32], const char *directory, const char *name,
                     struct fault *fault);

/* Lets a group into the directory (unless everybody may enter it), and to a socket there, which were ours
 * alone until then. 0, or a negative errno with the reason: -EPERM we are not of that group. */
int listener_share_directory(const char *directory, gid_t gid, struct fault *fault);
int listener_share_socket(const char *directory, const char *name, gid_t gid, struct fault *fault);

enum {
        LISTENER_RESERVE = 8, /* descriptors that jobs cannot take: for operators, rings, workers */
};

enum listener_error {
        LISTENER_E_NONE = 1, /* nobody waits */
        LISTENER_E_FULL,     /* somebody was refused for want of descriptors; fault says so */
        LISTENER_E_GONE,     /* the process that connected has ended */
};

/* Takes the next connection of a job: close-on-exec, non-blocking. 0, a positive LISTENER_E_*, or a negative
 * errno: it still waits, try again later. */
int listener_accept(int listening, int *socket, struct fault *fault);

/* A descriptor that becomes readable when the process that connected ends, whoever may have its socket by
 * then: *pidfd, or -1 where none is to be had. *watched says which, and why: a text that lives for ever. 0,
 * LISTENER_E_GONE, or LISTENER_E_FULL after refusing it as listener_accept does. */
int listener_watch_peer(int socket, pid_t pid, int *pidfd, const char **watched, struct fault *fault);

/* Sends REFUSED, so that the peer sees more than a closed socket; closing it is the caller's. */
void listener_turn_away(int socket, int error, const char *text);
