#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The process of a worker: a child of this one, or one that a zygote has forked. */

#include <stdbool.h>
#include <uv.h>

struct fault;
struct process;
struct zygote;
struct zygote_child;

enum process_kind {
        PROCESS_NONE, /* no start was tried */
        PROCESS_SPAWNED,
        PROCESS_FORKED,
};

#define PROCESS_GRACE_MS 1000 /* for a zygote to say how one ended, or whether one that is unwanted came */

/* Embedded in its owner. Once a start was tried, process_close must follow. */
struct process {
        enum process_kind kind;
        int pid;         /* 0: not known, since the zygote has not answered, or never any */
        int signal;      /* that ended it; 0: none did */
        int exit_status; /* of one that exited by itself */
        int error;       /* a positive errno: its zygote could not fork it */
        bool orphaned;   /* its zygote went first, and took it along */
        bool ended;      /* `on_exited` was called, or nobody waits for it */
        void (*on_exited)(struct process *process);
        void (*on_closed)(struct process *process);
        uv_process_t spawned;
        /* of a fork */
        uv_poll_t death; /* on pidfd */
        uv_timer_t timer;
        unsigned handles;           /* of these two, not yet closed */
        int pidfd;                  /* -1: its zygote has not answered */
        int leash;                  /* while this is open the process may live */
        bool unwanted;              /* it is killed when it comes */
        struct zygote_child *child; /* NULL: the zygote owes nothing any more */
};

/* `on_exited` comes once when the process has ended, unless it is closed before. It is never called from
 * within a call of these functions. Where `error` or `orphaned` say that nothing ever ran it comes too. */
void process_init(struct process *process, void (*on_exited)(struct process *process));

/* Starts a program with `socket` as descriptor 3: the first of `arguments`, which end with NULL, and --daemon
 * and --nice come behind them. 0 or -EIO. */
int process_spawn(struct process *process, uv_loop_t *loop, const char *const arguments[], int nice,
                  int socket, struct fault *fault);

/* Has the zygote fork it, with `socket` (the caller's still). 0, or a negative errno for want of something
 * here; what the zygote makes of it is told by `on_exited`, or by `pid`. */
int process_fork(struct process *process, uv_loop_t *loop, struct zygote *zygote, uint32_t number, int nice,
                 int socket, struct fault *fault);

/* One that its zygote has not answered for is killed when it comes, whatever the signal: it has done nothing.
 */
void process_kill(struct process *process, int signal);

/* Whether it is known to live: one that is to be forked may never. */
static inline bool process_is_there(const struct process *process) {
        return process->pid > 0 && !process->ended;
}

/* Lets go of it, dead or alive, also of one that could not be started; `on_closed` comes a turn later. */
void process_close(struct process *process, void (*on_closed)(struct process *process));
