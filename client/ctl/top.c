/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* top: asks the daemon again and again, and shows what it says: on a terminal as a screen, elsewhere as
 * lines, with --once as text.
 *
 * One loop, which waits for whatever comes first: an answer, a key, a signal, the time for the next question.
 * The daemon may stop answering, end, and come back; top says so and goes on, and leaves what it last knew on
 * the screen, for that may be what one wants to see then.
 *
 * Rates are of the last five seconds, as the daemon's sentences are: batches come in lumps, and the number of
 * them in one second says little. So some earlier answers are kept, about a second apart; what is shown is
 * the difference of the last answer and the oldest of these. With a longer interval they are neighbours. */

#include "client/ctl/top.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/number.h"
#include "client/ctl/ctl.h"
#include "client/ctl/screen.h"
#include "client/ctl/table.h"
#include "client/ctl/terminal.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
        HISTORY = 8,
        APART_MS = 900,   /* earlier answers are, at least; a question a second is asked a little later */
        WINDOW_MS = 5500, /* and no older than this, but for one */
        SILENT_MS = 1000, /* an open question is worth a word: the daemon promises a second */
        TICK_MS = 250,    /* how often that word is looked at */
        ONCE_COLUMNS = 100,
        ONCE_ROWS_PIPELINE = 10, /* more than one takes */
        LETTER_Q = TERMINAL_LETTER + 'q',
};

static const double interval_least = 0.2, interval_most = 60;

/* What + and - go through. */
static const double intervals[] = {0.2, 0.5, 1, 2, 5, 10, 30, 60};

enum trouble {
        TROUBLE_NONE,
        TROUBLE_SILENT,
        TROUBLE_GONE,
};

struct history {
        json_t *now; /* the last answer */
        uint64_t now_ns;
        json_t *kept[HISTORY]; /* earlier ones, the oldest first */
        uint64_t kept_ns[HISTORY];
        uint32_t n;
};

struct top {
        const struct ctl *ctl;
        bool on_terminal;
        double interval;
        struct top_link link;
        struct history history;
        uint64_t due_ns;  /* the next question */
        uint64_t gone_ns; /* since when there is no daemon; 0: there is one */
        struct fault gone;
        enum trouble trouble;
        char notice[TOP_NOTICE_MAX];
        bool paused, stale; /* stale: the screen shows something else */
        uint32_t first_job;
        struct top_shown shown;
};

/* ---- answers ---- */

static void history_forget(struct history *history, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                json_decref(history->kept[i]);
        history->n -= n;
        memmove(history->kept, history->kept + n, history->n * sizeof(history->kept[0]));
        memmove(history->kept_ns, history->kept_ns + n, history->n * sizeof(history->kept_ns[0]));
}

static void history_deinit(struct history *history) {
        history_forget(history, history->n);
        json_decref(history->now);
        history->now = NULL;
}

/* Keeps the last answer as an earlier one, if the one before it is old enough. */
static void history_keep(struct history *history) {
        uint32_t n = history->n;

        if (n > 0 && history->now_ns - history->kept_ns[n - 1] < APART_MS * NS_PER_MS) {
                json_decref(history->now);
                return;
        }
        if (n == HISTORY)
                history_forget(history, 1);
        history->kept[history->n] = history->now;
        history->kept_ns[history->n++] = history->now_ns;
}

/* Takes the answer over. That of another daemon has no history. */
static void history_add(struct history *history, json_t *answer, uint64_t now) {
        bool other = history->now && ctl_number_of(history->now, "pid") != ctl_number_of(answer, "pid");

        if (other)
                history_deinit(history);
        if (history->now)
                history_keep(history);
        history->now = answer;
        history->now_ns = now;
        while (history->n > 1 && now - history->kept_ns[0] > WINDOW_MS * NS_PER_MS)
                history_forget(history, 1);
}

static struct top_view make_view(const struct top *top) {
        return (struct top_view){.now = top->history.now,
                                 .before = top->history.n > 0 ? top->history.kept[0] : NULL,
                                 .notice = *top->notice ? top->notice : NULL,
                                 .interval = top->interval,
                                 .keys = top->on_terminal && terminal_has_keys(),
                                 .paused = top->paused,
                                 .first_job = top->first_job};
}

/* ---- what is shown ---- */

static void format_time(char text[NUMBER_TEXT_MAX]) {
        time_t now = time(NULL);
        struct tm parts;

        strftime(text, NUMBER_TEXT_MAX, "%Y-%m-%dT%H:%M:%S%z", localtime_r(&now, &parts));
}

static int print_lines(const struct top *top) {
        struct top_view view = make_view(top);
        char now[NUMBER_TEXT_MAX];

        format_time(now);
        if (view.before)
                top_print_lines(stdout, &view, now);
        return fflush(stdout) == 0 ? 0 : -errno;
}

static int draw(struct top *top) {
        struct top_view view = make_view(top);
        uint32_t columns, rows;
        struct screen screen;
        char *bytes;
        size_t n;
        int r;

        terminal_size(&columns, &rows);
        if (screen_init(&screen, columns, rows, table_is_utf8()) < 0)
                return -ENOMEM;
        top_draw(&screen, &view, &top->shown);
        if (top->first_job > top->shown.of - top->shown.jobs)
                top->first_job = top->shown.of - top->shown.jobs;
        bytes = screen_paint(&screen, table_is_bold(), &n);
        screen_deinit(&screen);
        r = bytes ? terminal_write(bytes, n) : -ENOMEM;
        free(bytes);
        top->stale = r == -EINTR; /* a signal came between; what it means is done first */
        return top->stale ? 0 : r;
}

static enum trouble find_trouble(const struct top *top, uint64_t now) {
        if (top->gone_ns > 0)
                return TROUBLE_GONE;
        if (top->link.asked_ns > 0 && now - top->link.asked_ns >= SILENT_MS * NS_PER_MS)
                return TROUBLE_SILENT;
        return TROUBLE_NONE;
}

/* Says what is wrong, on the screen as long as it is and in a line when it begins. */
static int note_trouble(struct top *top, uint64_t now) {
        enum trouble trouble = find_trouble(top, now);
        bool begins = trouble != top->trouble;
        char notice[TOP_NOTICE_MAX] = "", time[NUMBER_TEXT_MAX];

        if (trouble == TROUBLE_SILENT)
                snprintf(notice, sizeof(notice),
                         "no answer for %llu s from pinfeedd, which promises one within a second",
                         (unsigned long long)((now - top->link.asked_ns) / NS_PER_S));
        else if (trouble == TROUBLE_GONE && top->history.now)
                snprintf(notice, sizeof(notice),
                         "pinfeedd with pid %llu has ended %llu s ago; waiting for the next one",
                         (unsigned long long)ctl_number_of(top->history.now, "pid"),
                         (unsigned long long)((now - top->gone_ns) / NS_PER_S));
        else if (trouble == TROUBLE_GONE)
                snprintf(notice, sizeof(notice), "%s; waiting for one", top->gone.text);
        top->stale |= strcmp(notice, top->notice) != 0;
        strcpy(top->notice, notice);
        top->trouble = trouble;
        if (top->on_terminal || !begins || trouble == TROUBLE_NONE)
                return 0;
        format_time(time);
        printf("%s - %s\n", time, notice);
        return fflush(stdout) == 0 ? 0 : -errno;
}

/* ---- questions ---- */

static uint64_t interval_ns(const struct top *top) {
        return (uint64_t)(top->interval * NS_PER_S);
}

/* Nobody is there, or not any more: looks again soon. */
static int daemon_is_gone(struct top *top, const struct fault *fault, uint64_t now) {
        uint64_t soon = interval_ns(top) < NS_PER_S ? interval_ns(top) : NS_PER_S;

        if (top->gone_ns == 0)
                top->gone_ns = now;
        top->gone = *fault;
        top->due_ns = now + soon;
        return 0;
}

static int ask(struct top *top, struct fault *fault, uint64_t now) {
        int r;

        if (top->paused || now < top->due_ns)
                return 0;
        top->due_ns += interval_ns(top);
        if (top->due_ns <= now) /* the first time, or far too late */
                top->due_ns = now + interval_ns(top);
        r = top_link_ask(&top->link, fault);
        return r == TOP_LINK_E_GONE ? daemon_is_gone(top, fault, now) : r;
}

static int read_answer(struct top *top, struct fault *fault, uint64_t now) {
        json_t *answer;
        int r = top_link_read(&top->link, &answer, fault);

        if (r == TOP_LINK_E_GONE)
                return daemon_is_gone(top, fault, now);
        if (r != 0)
                return r == TOP_LINK_E_MORE ? 0 : r;
        top->gone_ns = 0;
        history_add(&top->history, answer, now);
        top->stale = true;
        if (top->on_terminal || print_lines(top) == 0)
                return 0;
        return fault_set(fault, -EIO, "writing the output failed");
}

/* ---- keys ---- */

static void change_interval(struct top *top, int step) {
        int n = sizeof(intervals) / sizeof(intervals[0]), i = 0;

        while (i < n - 1 && intervals[i] < top->interval)
                i++;
        if (step < 0 && i > 0)
                i--;
        else if (step > 0 && intervals[i] <= top->interval && i < n - 1)
                i++;
        top->interval = intervals[i];
        top->due_ns = 0;
}

static void scroll(struct top *top, int64_t by) {
        int64_t first = (int64_t)top->first_job + by;

        top->first_job = first > 0 ? (uint32_t)first : 0; /* drawing says where the end is */
}

static void on_key(struct top *top, unsigned event) {
        int64_t page = top->shown.jobs > 1 ? top->shown.jobs - 1 : 1;

        if (event == TERMINAL_LETTER + ' ')
                top->paused = !top->paused;
        else if (event == TERMINAL_LETTER + '+' || event == TERMINAL_LETTER + '=')
                change_interval(top, 1);
        else if (event == TERMINAL_LETTER + '-')
                change_interval(top, -1);
        else if (event == TERMINAL_UP || event == TERMINAL_DOWN)
                scroll(top, event == TERMINAL_UP ? -1 : 1);
        else if (event == TERMINAL_PAGE_UP || event == TERMINAL_PAGE_DOWN)
                scroll(top, event == TERMINAL_PAGE_UP ? -page : page);
        top->stale = true;
}

/* True: it is over, with *code. */
static bool take_events(struct top *top, int *code) {
        unsigned event;

        while ((event = terminal_next_event()) != TERMINAL_NOTHING) {
                *code = event == TERMINAL_INTERRUPTED ? CTL_INTERRUPTED : CTL_OK;
                if (event == TERMINAL_INTERRUPTED || event == TERMINAL_ENDED || event == LETTER_Q)
                        return true;
                on_key(top, event);
        }
        return false;
}

/* ---- the loop ---- */

/* Until something comes, or is due. */
static void wait_for_something(const struct top *top, struct pollfd polled[], nfds_t n) {
        uint64_t now = clock_ns(), left = top->due_ns > now ? top->due_ns - now : 0;
        int ms = (int)(left / NS_PER_MS) + 1;

        if (top->link.asked_ns > 0 || top->gone_ns > 0)
                ms = ms < TICK_MS ? ms : TICK_MS;
        if (poll(polled, n, top->paused && top->link.asked_ns == 0 ? -1 : ms) < 0)
                for (nfds_t i = 0; i < n; i++)
                        polled[i].revents = 0;
}

/* One turn. True: it is over, with *code. */
static bool turn(struct top *top, int *code, struct fault *fault) {
        struct pollfd polled[1 + TERMINAL_POLLED] = {
                {.fd = top->link.fd, .events = POLLIN}, {.fd = STDOUT_FILENO}, {.fd = -1}};
        int r = 0;

        if (top->on_terminal)
                terminal_poll(polled + 1);
        wait_for_something(top, polled, 1 + TERMINAL_POLLED);
        if (top->on_terminal && take_events(top, code))
                return true;
        if (!top->on_terminal && (polled[1].revents & (POLLERR | POLLHUP)))
                return true; /* nobody reads any more: that is how a pipe ends */
        if (polled[0].revents)
                r = read_answer(top, fault, clock_ns());
        if (r == 0)
                r = ask(top, fault, clock_ns());
        if (r == 0)
                r = note_trouble(top, clock_ns());
        if (r == 0 && top->on_terminal && top->stale)
                r = draw(top);
        if (r < 0)
                *code = CTL_FAILED;
        return r < 0;
}

static int watch(struct top *top) {
        struct fault fault = {0};
        int code = CTL_OK;

        if (top->on_terminal && terminal_open() < 0)
                return ctl_fail("out of descriptors");
        top_link_init(&top->link, top->ctl->runtime_dir);
        while (!turn(top, &code, &fault))
                ;
        terminal_close();
        top_link_deinit(&top->link);
        history_deinit(&top->history);
        if (code == CTL_FAILED)
                return ctl_fail("%s", *fault.text ? fault.text : "writing the output failed");
        return code;
}

/* ---- once ---- */

/* Whoever reads it through a pipe may still say how wide it is to be. */
static uint32_t once_columns(void) {
        const char *columns = getenv("COLUMNS");
        uint32_t limit = table_limit();
        uint64_t given;

        if (limit < SCREEN_COLUMNS_MAX)
                return limit;
        if (columns && number_parse_u64(columns, &given) == 0 && given > 0 && given < SCREEN_COLUMNS_MAX)
                return (uint32_t)given;
        return ONCE_COLUMNS;
}

static int print_once(const struct top *top) {
        struct top_view view = make_view(top);
        size_t rows = json_array_size(json_object_get(view.now, "pipelines")) * ONCE_ROWS_PIPELINE +
                      2 * json_array_size(json_object_get(view.now, "jobs")) + ONCE_ROWS_PIPELINE;
        struct top_shown shown;
        struct screen screen;
        char *text;

        view.as_text = true;
        if (screen_init(&screen, once_columns(), (uint32_t)rows, table_is_utf8()) < 0)
                return ctl_fail("out of memory");
        top_draw(&screen, &view, &shown);
        text = screen_text(&screen);
        screen_deinit(&screen);
        fputs(text ? text : "", stdout);
        free(text);
        return CTL_OK;
}

static int once(struct top *top) {
        struct fault fault = {0};
        int code = CTL_OK;

        for (int i = 0; i < 2; i++) {
                json_t *answer = control_ask(top->ctl->runtime_dir, "status", &fault);

                if (!answer) {
                        code = ctl_fail("%s", fault.text);
                        break;
                }
                history_add(&top->history, answer, clock_ns());
                if (i == 0)
                        usleep((useconds_t)(top->interval * 1e6));
        }
        if (code == CTL_OK)
                code = print_once(top);
        history_deinit(&top->history);
        return code;
}

/* ---- the command ---- */

int command_top(const struct ctl *ctl, int argc, char **argv) {
        static const struct option options[] = {{"interval", required_argument, NULL, 'i'},
                                                {"once", no_argument, NULL, 'o'},
                                                {"help", no_argument, NULL, 'h'},
                                                {0}};
        struct top top = {.ctl = ctl, .interval = 1, .on_terminal = terminal_is_there()};
        bool only_once = false;
        int c;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
                if (c == 'i' && (number_parse_double(optarg, &top.interval) < 0 ||
                                 top.interval < interval_least || top.interval > interval_most))
                        return ctl_usage(ctl, "--interval: expected seconds from 0.2 to 60, got \"%s\"",
                                         optarg);
                if (c == 'h')
                        return ctl_help(ctl);
                if (c != 'i' && c != 'o')
                        return ctl_usage(ctl, NULL);
                only_once |= c == 'o';
        }
        if (optind < argc)
                return ctl_usage(ctl, "unexpected \"%s\"", argv[optind]);
        if (!only_once)
                return watch(&top);
        top.on_terminal = false;
        return once(&top);
}
