#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a process writes to a terminal of a given width: a pseudo-terminal, whose other end the test reads. */

#include <check.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum {
        TERMINAL_OUTPUT_MAX = 1 << 16,
};

/* Standard output of this process from now on, which writes lines as they are. */
static inline void terminal_enter(const char *path, uint16_t columns) {
        struct winsize size = {.ws_row = 24, .ws_col = columns};
        struct termios modes;
        int fd = open(path, O_RDWR | O_NOCTTY);

        if (fd < 0 || tcgetattr(fd, &modes) != 0)
                _exit(126);
        modes.c_oflag &= ~(tcflag_t)OPOST;
        if (tcsetattr(fd, TCSANOW, &modes) != 0 || ioctl(fd, TIOCSWINSZ, &size) != 0 ||
            dup2(fd, STDOUT_FILENO) < 0)
                _exit(126);
        close(fd);
}

/* Calls `body` in a process of its own, which must end well. What it has written; free it. */
static inline char *terminal_run(uint16_t columns, void (*body)(void *context), void *context) {
        int status, master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        char path[64], *text;
        size_t length = 0;
        ssize_t got;
        pid_t pid;

        ck_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
        ck_assert_int_eq(ptsname_r(master, path, sizeof(path)), 0);
        fflush(stdout);
        pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                terminal_enter(path, columns);
                body(context);
                fflush(stdout);
                _exit(0);
        }
        text = calloc(1, TERMINAL_OUTPUT_MAX); /* here: the child ends without giving anything back */
        ck_assert_ptr_nonnull(text);
        /* Ends with EIO when the last one has closed it; before the first has opened it, it waits. */
        while (length + 1 < TERMINAL_OUTPUT_MAX &&
               (got = read(master, text + length, TERMINAL_OUTPUT_MAX - 1 - length)) > 0)
                length += (size_t)got;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        close(master);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "it ended with %#x and wrote: %s",
                      (unsigned)status, text);
        return text;
}

/* Characters of the longest line, of UTF-8. */
static inline size_t terminal_longest_line(const char *text) {
        size_t longest = 0, length = 0;

        for (; *text; text++) {
                length = *text == '\n' ? 0 : length + (((unsigned char)*text & 0xc0) != 0x80);
                longest = length > longest ? length : longest;
        }
        return longest;
}
