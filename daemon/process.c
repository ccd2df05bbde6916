/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Processes of workers, of two makes.
 *
 * One that was spawned is a child of this process: libuv tells of its end, with its status.
 *
 * One that a zygote has forked is the zygote's child. It is asked for, and lives or does not; its pid is
 * known when the zygote has answered. All that is done to it goes by the pidfd which came with the answer: a
 * bare number may be another's by the time a signal is sent. It ends by a signal, or because its leash is let
 * go: the kernel kills it when the writing end of that pipe is closed, which happens at the latest when this
 * process ends.
 *
 *      fork --> ASKED --FORKED--> LIVING --EXITED--------------------------> ended, with its status
 *                 |                 |  \--pidfd, and PROCESS_GRACE_MS------> ended, as if by SIGKILL
 *                 |                 +--zygote gone--> killed --pidfd-------> ended, as if by SIGKILL
 *                 +--error, zygote gone, killed and PROCESS_GRACE_MS-------> ended without having lived
 *
 * The pidfd alone says that it is gone, the zygote alone how: so the one is waited for, and the other only so
 * long as it can be expected. A zygote that tells of the end of one which lives has a bug; its word would
 * give rows away that are still written.
 *
 * One that is killed before its zygote has answered was never given anything (pool_free_worker). It is killed
 * when it comes; a zygote that takes long is not waited for, since the leash is closed already, and zygote.c
 * kills what nobody waits for. */

#include "daemon/process.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
        ARGUMENTS_MAX = 16,
        PROCESS_OOM_MORE = 500,  /* half of the scale above the daemon: see oom_score_adj in proc(5) */
        PROCESS_OOM_MOST = 1000, /* its end */
};

void process_init(struct process *process, void (*on_exited)(struct process *process)) {
        *process = (struct process){.on_exited = on_exited, .pidfd = -1, .leash = -1};
}

static void end(struct process *process, int signal, int exit_status) {
        if (process->ended)
                return;
        process->ended = true;
        process->signal = signal;
        process->exit_status = exit_status;
        process->on_exited(process);
}

/* When the kernel has to kill for want of memory, it shall be a worker, which is replaced, and neither the
 * daemon nor a job. Anybody may offer a process of theirs; where that fails (no /proc) all stand as before.
 */
static void offer_to_oom_killer(int pid) {
        char path[64];
        int own = 0, offered, fd;
        FILE *file = fopen("/proc/self/oom_score_adj", "re");

        if (!file)
                return;
        if (fscanf(file, "%d", &own) != 1)
                own = 0;
        fclose(file);
        offered = own + PROCESS_OOM_MORE < PROCESS_OOM_MOST ? own + PROCESS_OOM_MORE : PROCESS_OOM_MOST;
        snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", pid);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return;
        dprintf(fd, "%d\n", offered); /* or it has ended already */
        close(fd);
}

/* ---- spawned ---- */

static void on_spawned_exited(uv_process_t *spawned, int64_t exit_status, int signal) {
        end(spawned->data, signal, (int)exit_status);
}

/* All arguments that a worker gets. */
static void complete(char *all[ARGUMENTS_MAX], const char *const arguments[], char *parent, char *niceness) {
        char *const last[] = {"--daemon", parent, "--nice", niceness, NULL};
        size_t n = 0;

        for (; n < ARGUMENTS_MAX - 5 && arguments[n]; n++)
                all[n] = (char *)arguments[n];
        memcpy(&all[n], last, sizeof(last));
}

int process_spawn(struct process *process, uv_loop_t *loop, const char *const arguments[], int nice,
                  int socket, struct fault *fault) {
        char parent[16], niceness[16], *all[ARGUMENTS_MAX];
        uv_stdio_container_t stdio[4] = {
                {.flags = UV_IGNORE},
                {.flags = UV_INHERIT_FD,
                 .data.fd = STDERR_FILENO}, /* a library's stray print is a log line */
                {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
                {.flags = UV_INHERIT_FD, .data.fd = socket},
        };
        /* In a session of its own: Ctrl-C in a terminal goes to the whole group, and would kill a worker that
         * is too young to ignore it. */
        uv_process_options_t options = {.exit_cb = on_spawned_exited,
                                        .flags = UV_PROCESS_DETACHED,
                                        .file = arguments[0],
                                        .args = all,
                                        .stdio_count = 4,
                                        .stdio = stdio};
        int r;

        process->kind = PROCESS_SPAWNED;
        process->spawned.data = process;
        snprintf(parent, sizeof(parent), "%d", (int)getpid());
        snprintf(niceness, sizeof(niceness), "%d", nice);
        complete(all, arguments, parent, niceness);
        r = uv_spawn(loop, &process->spawned, &options);
        if (r < 0) /* not its own errno: a job would read ENOENT as "no such pipeline" */
                return fault_set(fault, -EIO, "cannot start %s: %s", arguments[0], uv_strerror(r));
        process->pid = uv_process_get_pid(&process->spawned);
        offer_to_oom_killer(process->pid);
        return 0;
}

/* ---- forked ---- */

static void on_timer(uv_timer_t *timer) {
        end(timer->data, SIGKILL, 0); /* as far as anybody knows */
}

/* A turn later at the earliest: whoever brings this about may be in the midst of its own doings. */
static void end_after(struct process *process, uint64_t ms) {
        uv_timer_start(&process->timer, on_timer, ms, 0);
}

/* The pidfd stands for this process and no other, also when it has ended. */
static void send_signal(struct process *process, int signal) {
        if (signal == SIGKILL)
                fd_closep(&process->leash);
        syscall(SYS_pidfd_send_signal, process->pidfd, signal, NULL, 0);
}

static void forget(struct process *process) {
        if (process->child)
                zygote_forget(process->child);
        process->child = NULL;
}

/* The process has ended; the zygote may yet say how. */
static void on_death(uv_poll_t *poll, int status, int events) {
        struct process *process = poll->data;

        uv_poll_stop(poll);
        end_after(process, process->child ? PROCESS_GRACE_MS : 0);
}

static bool has_ended(const struct process *process) {
        struct pollfd poll_fd = {.fd = process->pidfd, .events = POLLIN};

        return poll(&poll_fd, 1, 0) != 0;
}

/* Of the process behind a pidfd: its pid, -1 when it was waited for already, 0 when it is beyond our sight;
 * false when this is no pidfd at all. */
static bool read_pid(int pidfd, int *pid) {
        char path[64], line[128];
        FILE *file;
        bool found = false;

        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
        file = fopen(path, "re");
        while (file && !found && fgets(line, sizeof(line), file))
                found = sscanf(line, "Pid: %d", pid) == 1;
        if (file)
                fclose(file);
        return found;
}

/* A guard against mistakes: who forges may do so to itself only, a zygote is of our own uid. */
static int check_pidfd(int pidfd, int *pid) {
        int seen;

        if (!read_pid(pidfd, &seen) || seen == (int)getpid())
                return EBADF;
        if (seen > 0)
                *pid = seen;
        return 0;
}

static void on_forked(void *context, int error, int pid, int pidfd) {
        struct process *process = context;

        process->pidfd = pidfd;
        if (error > 0)
                process->child = NULL;
        else
                error = check_pidfd(pidfd, &pid);
        if (error == 0 && uv_poll_init(process->timer.loop, &process->death, pidfd) < 0)
                error = ENOTSUP;
        if (error == 0) {
                process->pid = pid;
                offer_to_oom_killer(pid);
                process->death.data = process;
                process->handles++;
                uv_poll_start(&process->death, UV_READABLE, on_death);
                uv_timer_stop(&process->timer);
                if (process->unwanted)
                        send_signal(process, SIGKILL);
                return;
        }
        fd_closep(&process->leash); /* in case that there is one after all */
        fd_closep(&process->pidfd);
        forget(process);
        process->error = error;
        end_after(process, 0);
}

static bool on_exited(void *context, int signal, int exit_status) {
        struct process *process = context;

        if (!has_ended(process))
                return false;
        process->child = NULL;
        end(process, signal, exit_status);
        return true;
}

static void on_orphaned(void *context) {
        struct process *process = context;

        process->child = NULL;
        process->orphaned = true;
        process_kill(process, SIGKILL);
        if (uv_is_active((uv_handle_t *)&process->timer))
                end_after(process, 0); /* nobody will say more */
}

int process_fork(struct process *process, uv_loop_t *loop, struct zygote *zygote, uint32_t number, int nice,
                 int socket, struct fault *fault) {
        static const struct zygote_child_events events = {
                .forked = on_forked, .exited = on_exited, .orphaned = on_orphaned};
        _cleanup_(fd_closep) int theirs = -1;
        int ends[2];

        process->kind = PROCESS_FORKED;
        process->handles = 1;
        uv_timer_init(loop, &process->timer);
        process->timer.data = process;
        if (pipe2(ends, O_CLOEXEC) < 0)
                return fault_set(fault, -errno, "cannot make a worker's leash: %s", strerror(errno));
        theirs = ends[0];
        process->leash = ends[1];
        if (zygote_fork(zygote, number, nice, socket, theirs, &events, process, &process->child) < 0)
                return fault_set(fault, -ENOMEM, "no memory for a worker");
        return 0;
}

/* ---- both ---- */

/* One that has not come yet is let off its leash: it dies as soon as it comes, or never comes. */
static void kill_fork(struct process *process, int signal) {
        if (process->pidfd >= 0) {
                send_signal(process, signal);
                return;
        }
        process->unwanted = true;
        fd_closep(&process->leash);
        if (!uv_is_active((uv_handle_t *)&process->timer))
                end_after(process, process->child ? PROCESS_GRACE_MS : 0);
}

void process_kill(struct process *process, int signal) {
        if (process->ended)
                return;
        if (process->kind == PROCESS_SPAWNED)
                uv_process_kill(&process->spawned, signal);
        else if (process->kind == PROCESS_FORKED)
                kill_fork(process, signal);
}

static void on_spawned_closed(uv_handle_t *handle) {
        struct process *process = handle->data;

        process->on_closed(process);
}

static void on_fork_closed(uv_handle_t *handle) {
        struct process *process = handle->data;

        if (--process->handles > 0)
                return;
        fd_closep(&process->pidfd);
        process->on_closed(process);
}

void process_close(struct process *process, void (*on_closed)(struct process *process)) {
        process->on_closed = on_closed;
        process->ended = true;
        if (process->kind == PROCESS_SPAWNED) {
                uv_close((uv_handle_t *)&process->spawned, on_spawned_closed);
                return;
        }
        forget(process);
        fd_closep(&process->leash);
        if (process->handles > 1)
                uv_close((uv_handle_t *)&process->death, on_fork_closed);
        uv_close((uv_handle_t *)&process->timer, on_fork_closed);
}
