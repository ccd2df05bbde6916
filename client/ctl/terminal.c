/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A terminal is shared with the shell that started us, so whatever is changed is changed back on every way
 * out: the end, a signal that ends us, and a stop, which may last for days.
 *
 * Signals only leave a mark and wake up whoever polls; what they mean is done in the ordinary course. They
 * are not blocked meanwhile, so that a write that hangs (Ctrl-S, a line that is down) is interrupted and the
 * process still ends when asked to. Keys that make signals go on making them: Ctrl-C is SIGINT here, too. */

#include "client/ctl/terminal.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum {
        COLUMNS_DEFAULT = 80,
        ROWS_DEFAULT = 24,
        KEYS_MAX = 64, /* bytes of keys at a time */
};

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP, SIGCONT};

static struct {
        bool taken, has_keys;
        struct termios before;
        int wake[2];
        char keys[KEYS_MAX];
        size_t n_keys;
} terminal = {.wake = {-1, -1}};

static volatile sig_atomic_t marks[64];

static void on_signal(int number) {
        int error = errno;

        marks[number] = 1;
        if (write(terminal.wake[1], "", 1) < 0)
                errno = 0; /* full: it wakes up anyway */
        errno = error;
}

bool terminal_is_there(void) {
        const char *kind = getenv("TERM");

        return isatty(STDOUT_FILENO) && kind && *kind && strcmp(kind, "dumb") != 0;
}

void terminal_size(uint32_t *columns, uint32_t *rows) {
        struct winsize size = {};

        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
                size.ws_col = 0;
        *columns = size.ws_col > 0 ? size.ws_col : COLUMNS_DEFAULT;
        *rows = size.ws_row > 0 ? size.ws_row : ROWS_DEFAULT;
}

/* ---- there and back ---- */

static void enter(void) {
        static const char sequence[] = "\033[?1049h\033[?25l\033[H\033[2J";
        struct termios modes = terminal.before;

        modes.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        modes.c_cc[VMIN] = 1;
        modes.c_cc[VTIME] = 0;
        if (terminal.has_keys)
                tcsetattr(STDIN_FILENO, TCSANOW, &modes);
        terminal_write(sequence, sizeof(sequence) - 1);
}

static void leave(void) {
        static const char sequence[] = "\033[m\033[?25h\033[?1049l";

        terminal_write(sequence, sizeof(sequence) - 1);
        if (terminal.has_keys)
                tcsetattr(STDIN_FILENO, TCSANOW, &terminal.before);
}

static void watch_signals(void (*handler)(int number)) {
        struct sigaction action = {.sa_handler = handler}; /* without SA_RESTART: a write is interrupted */

        sigemptyset(&action.sa_mask);
        for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
                sigaction(signals[i], &action, NULL);
}

int terminal_open(void) {
        if (pipe2(terminal.wake, O_CLOEXEC | O_NONBLOCK) < 0)
                return -errno;
        terminal.has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &terminal.before) == 0;
        watch_signals(on_signal);
        enter();
        terminal.taken = true;
        return 0;
}

void terminal_close(void) {
        if (!terminal.taken)
                return;
        leave();
        watch_signals(SIG_DFL);
        close(terminal.wake[0]);
        close(terminal.wake[1]);
        terminal.taken = false;
}

bool terminal_has_keys(void) {
        return terminal.has_keys;
}

/* Returns when it is continued. */
static void stop(void) {
        leave();
        raise(SIGSTOP);
        marks[SIGCONT] = 0;
        enter();
}

/* ---- events ---- */

void terminal_poll(struct pollfd polled[TERMINAL_POLLED]) {
        polled[0] = (struct pollfd){.fd = terminal.wake[0], .events = POLLIN};
        polled[1] = (struct pollfd){.fd = terminal.has_keys ? STDIN_FILENO : -1, .events = POLLIN};
}

static bool take_mark(int number) {
        bool marked = marks[number];

        marks[number] = 0;
        return marked;
}

static unsigned next_signal(void) {
        char bytes[KEYS_MAX];

        while (read(terminal.wake[0], bytes, sizeof(bytes)) > 0)
                ;
        if (take_mark(SIGTERM) || take_mark(SIGHUP))
                return TERMINAL_ENDED;
        if (take_mark(SIGINT))
                return TERMINAL_INTERRUPTED;
        if (take_mark(SIGTSTP)) {
                stop();
                return TERMINAL_REDRAW;
        }
        if (take_mark(SIGCONT)) { /* stopped by SIGSTOP, which nobody sees: the shell had the terminal */
                enter();
                return TERMINAL_REDRAW;
        }
        return take_mark(SIGWINCH) ? TERMINAL_REDRAW : TERMINAL_NOTHING;
}

/* The keys that send more than a letter, as terminals send them in either of their modes. */
static const struct {
        const char *bytes;
        enum terminal_event event;
} sequences[] = {
        {"\033[A", TERMINAL_UP},   {"\033OA", TERMINAL_UP},       {"\033[B", TERMINAL_DOWN},
        {"\033OB", TERMINAL_DOWN}, {"\033[5~", TERMINAL_PAGE_UP}, {"\033[6~", TERMINAL_PAGE_DOWN},
};

static unsigned take_keys(size_t n, unsigned event) {
        terminal.n_keys -= n;
        memmove(terminal.keys, terminal.keys + n, terminal.n_keys);
        return event;
}

/* Of keys that are there. Those that nobody knows are letters that mean nothing. */
static unsigned next_key(void) {
        for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++) {
                size_t n = strlen(sequences[i].bytes);

                if (terminal.n_keys >= n && memcmp(terminal.keys, sequences[i].bytes, n) == 0)
                        return take_keys(n, sequences[i].event);
        }
        return take_keys(1, TERMINAL_LETTER + (unsigned char)terminal.keys[0]);
}

unsigned terminal_next_event(void) {
        unsigned event = next_signal();
        struct pollfd polled = {.fd = STDIN_FILENO, .events = POLLIN};
        ssize_t n;

        if (event != TERMINAL_NOTHING)
                return event;
        if (terminal.n_keys > 0)
                return next_key();
        if (!terminal.has_keys || poll(&polled, 1, 0) <= 0)
                return TERMINAL_NOTHING;
        n = read(STDIN_FILENO, terminal.keys, sizeof(terminal.keys));
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return TERMINAL_NOTHING;
        if (n <= 0)
                return TERMINAL_ENDED;
        terminal.n_keys = (size_t)n;
        return next_key();
}

int terminal_write(const char *bytes, size_t n) {
        while (n > 0) {
                ssize_t written = write(STDOUT_FILENO, bytes, n);

                if (written < 0)
                        return -errno;
                bytes += written;
                n -= (size_t)written;
        }
        return 0;
}
