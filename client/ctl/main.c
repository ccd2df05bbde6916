/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* pinfeedctl: a table of commands. Options before the command are everybody's, those behind it the command's
 * own, which parses them itself; --help is known in both places. What goes wrong is one line on stderr: exit
 * code 2 when the command line is at fault, 1 when anything else is. */

#include "client/ctl/ctl.h"

#include "base/clock.h"
#include "base/number.h"
#include "base/utf8.h"
#include "client/pinfeed.h"

#include <ctype.h>
#include <getopt.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
        LIVE_INTERVAL_MS = 100,
        LIVE_BYTES = 512,
};

static const struct command commands[] = {
        {"status", "[--json]", "everything: the daemon, pipelines, jobs, workers, slots",
         "What is delivered was handed to a job, where it may still lie unread.\n\n"
         "  --json             as JSON, with every number there is\n",
         command_status},
        {"jobs", "[--json]", "the attached jobs and where they are", "  --json             as JSON\n",
         command_status},
        {"workers", "[--json]", "the workers and what they are doing", "  --json             as JSON\n",
         command_status},
        {"pipelines", "[--json]", "the configured pipelines",
         "What is delivered was handed to a job, where it may still lie unread.\n\n"
         "  --json             as JSON\n",
         command_status},
        {"top", "[options]", "watch it: rates, workers, rings, jobs",
         "On a terminal a screen that is drawn anew after each interval: q ends it, space pauses, + and -\n"
         "change the interval, arrows and pages scroll the jobs. Elsewhere a line for each pipeline and\n"
         "interval. Goes on when the daemon ends and comes back.\n\n"
         "  --interval S       seconds, from 0.2 to 60 (default: 1)\n"
         "  --once             print one screen as text, after one interval, and end\n",
         command_top},
        {"doctor", "[--config FILE] [--json]",
         "what a job would find on this machine, and what to do about it",
         "The daemon, its sockets and configuration, kernel, memory, limits, control groups and GPUs, as\n"
         "this process sees them. What needs attention is marked !, what does not work ✗ (X), each with\n"
         "one remedy below it. Exit code 0 if nothing needs attention, 1 for warnings, 3 for errors.\n\n"
         "  --config FILE      check this one, instead of the daemon's or /etc/pinfeed/pinfeed.yaml\n"
         "  --json             as JSON: findings (area, what, level, text, remedy, attention),\n"
         "                     attention (how many need it), worst (a level)\n",
         command_doctor},
        {"bench", "PIPELINE [options]", "attach jobs, read, and measure",
         "  --jobs N           attach N jobs, all before the first of them reads (default: 1)\n"
         "  --seconds S        read for S seconds (default: 5)\n"
         "  --rows N           read at least N rows in each job instead\n"
         "  --touch            read every byte of every row\n"
         "  --start S          live: with the leading job of the stream; given: at row 0 of epoch 0\n"
         "                     (default)\n"
         "  --json             as JSON: jobs, seconds, rows, rows_per_second, batches, bytes,\n"
         "                     first_batch_ms (the slowest job's, after it was attached),\n"
         "                     cpu_seconds (of daemon and workers), cpu_seconds_daemon,\n"
         "                     rows_prepared, handover_us (p50 and p99, of batches that a job\n"
         "                     was already waiting for)\n",
         command_bench},
        {"digest", "PIPELINE [options]", "SHA-256 over the rows of an epoch",
         "Over rows in order: the bytes of each row's fields as the schema has them, then its\n"
         "sample number (8 bytes, little-endian). The digest is the same for any number of\n"
         "workers and jobs, on any machine. Rows of padding are left out.\n\n"
         "  --seed S           instead of the pipeline's\n"
         "  --epoch E          (default: 0)\n"
         "  --rows A:B         rows A to B, without B; A: is from A on, :B up to B (default: all)\n"
         "  --rank R           the rows of one rank (default: 0)\n"
         "  --world-size W     of so many, who begin at row A together (default: 1)\n"
         "  --batch-size B     instead of the pipeline's\n"
         "  --last-batch T     short, drop or pad (default: short)\n",
         command_digest},
        {"peek", "PIPELINE --out FILE.png [options]", "draw one batch, as a job gets it",
         "A contact sheet: up to 64 images of the batch after all transforms, brought back to what\n"
         "they looked like before they were normalized, with classes and sample numbers below.\n"
         "Rows that were replaced, and rows of padding, are framed.\n\n"
         "  --out FILE.png     where it goes; -: to standard output\n"
         "  --epoch E          (default: 0)\n"
         "  --row R            where the batch begins (default: 0)\n"
         "  --seed S           instead of the pipeline's\n",
         command_peek},
        {"verify", "PIPELINE [--json]", "decode every sample and list the bad ones",
         "In workers of its own, whole files and not only what the transforms leave of them; jobs\n"
         "go on meanwhile. Condemned samples are tried, too: those that are good are cleared.\n"
         "Ctrl-C ends it. Exit code 1 if any sample is bad.\n\n"
         "  --json             as JSON: samples, bad, condemned (and still so), cleared, restarted\n"
         "                     (the pipeline had no job, and uses those that were cleared from now\n"
         "                     on), list (sample, file, text, condemned; the first 1,000)\n",
         command_verify},
        {"set", "workers PIPELINE N", "change the number of a pipeline's workers while it runs",
         "N is from 1 to 1024, or auto: as many as the daemon's cpus, together with the other\n"
         "pipelines that have no number of their own. More are started at once; of those beyond,\n"
         "each ends when it has finished what it has in hand, so that no job notices. The number\n"
         "holds until pinfeedd ends.\n",
         command_set},
        {"reload", "[--json]", "have pinfeedd read its configuration again",
         "All of the new file is taken, or, if anything is wrong with it, nothing: exit code 1. Pipelines\n"
         "that are the same go on; of those that differ only in workers, idle and the like, the values\n"
         "are taken over (updated). Any other one that differs is made anew (changed): jobs that are\n"
         "attached go on with the one before, until they leave.\n\n"
         "  --json             as JSON: generation, kept, updated, changed, added, removed (names),\n"
         "                     superseded (pipelines that go on for the jobs they have),\n"
         "                     superseded_jobs\n",
         command_reload},
        {"drain", "[--timeout S]", "let no job in any more, and stop pinfeedd when the last one has left",
         "Waits until pinfeedd has ended. Ctrl-C ends the waiting, not the drain, which cannot be taken\n"
         "back.\n\n"
         "  --timeout S        stop after so many seconds even if there are jobs left (default: `drain`\n"
         "                     of the configuration, else however long it takes)\n",
         command_drain},
        {"inspect", "FILE...", "decode files in a worker and say what is in them",
         "Needs no daemon. A JSON line for each file: its name, ok, and format, width, height and\n"
         "rgb_sha256, or error. Exit code 1 if any of them is not ok.\n",
         command_inspect},
        {"run", "[options] -- COMMAND...", "run a command with a private daemon beside it",
         "Starts pinfeedd --private in the background unless one runs, sets PINFEED_RUNTIME_DIR and\n"
         "becomes COMMAND. The daemon ends some time after its last job has left.\n\n"
         "  --linger S         that time in seconds (default: 60), also until the first job comes\n"
         "  --config FILE      pipelines that are there from the beginning; a daemon that runs\n"
         "                     already must have been started with it\n",
         command_run},
        {"metrics", "[--out FILE]", "every counter as text for Prometheus",
         "For a node exporter's textfile collector; with metrics_listen in its configuration the daemon\n"
         "serves the same text over HTTP. docs/metrics.md says what each is.\n\n"
         "  --out FILE         into this file, which is replaced as a whole\n",
         command_metrics},
        {NULL},
};

static int main_help(void) {
        fputs("Usage: pinfeedctl [-d DIR] COMMAND ...\n"
              "Looks into a running pinfeedd, or starts one for a command.\n\ncommands:\n",
              stdout);
        for (const struct command *c = commands; c->name; c++)
                printf("  %-10s %s\n", c->name, c->summary);
        fputs("\noptions:\n"
              "  -d, --runtime-dir DIR  where the daemon's sockets are (default: $PINFEED_RUNTIME_DIR, else\n"
              "                         the first of $XDG_RUNTIME_DIR/pinfeed, /tmp/pinfeed-UID and\n"
              "                         /run/pinfeed with a daemon)\n"
              "  --version              print the version and end\n"
              "  -h, --help             also behind a command\n"
              "\nExit status: 0, 1 on failure, 2 for a bad command line.\n",
              stdout);
        return CTL_OK;
}

int ctl_help(const struct ctl *ctl) {
        const struct command *c = ctl->command;

        printf("Usage: pinfeedctl [-d DIR] %s %s\n%c%s.\n%s", c->name, c->arguments, toupper(c->summary[0]),
               c->summary + 1, *c->help ? "\n" : "");
        fputs(c->help, stdout);
        return CTL_OK;
}

int ctl_usage(const struct ctl *ctl, const char *format, ...) {
        va_list arguments;

        fprintf(stderr, "pinfeedctl: ");
        if (format) {
                va_start(arguments, format);
                vfprintf(stderr, format, arguments);
                va_end(arguments);
                fputs("; ", stderr);
        }
        fprintf(stderr, "try 'pinfeedctl %s%s--help'\n", ctl->command ? ctl->command->name : "",
                ctl->command ? " " : "");
        return CTL_USAGE;
}

int ctl_fail(const char *format, ...) {
        va_list arguments;

        ctl_live_end();
        fprintf(stderr, "pinfeedctl: ");
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        fputc('\n', stderr);
        return CTL_FAILED;
}

int ctl_fail_job(const struct pinfeed_job *job, const char *pipeline) {
        const char *reason = job ? pinfeed_error(job) : "out of memory";

        if (strstr(reason, "pipeline ")) /* most begin with "pipeline NAME" */
                return ctl_fail("%s", reason);
        return ctl_fail("%s: %s", pipeline, reason);
}

int ctl_number(const struct ctl *ctl, const char *option, const char *text, uint64_t least, uint64_t most,
               uint64_t *value) {
        if (number_parse_u64(text, value) == 0 && *value >= least && *value <= most)
                return 0;
        return ctl_usage(ctl, "%s: expected a whole number from %llu to %llu, got \"%s\"", option,
                         (unsigned long long)least, (unsigned long long)most, text);
}

bool ctl_json_option(const struct ctl *ctl, int argc, char **argv, bool *as_json, int *r) {
        static const struct option options[] = {
                {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
        int c;

        *as_json = false;
        while ((c = getopt_long(argc, argv, "h", options, NULL)) == 'j')
                *as_json = true;
        if (c >= 0)
                *r = c == 'h' ? ctl_help(ctl) : ctl_usage(ctl, NULL);
        return c < 0;
}

static bool live_shown;
static uint64_t live_due_ns;

/* Bytes of the text that stay on one line of the terminal: what wraps could not be taken back. */
static size_t length_that_fits(const char *text) {
        size_t length = strlen(text), at = 0;
        struct winsize size = {};
        unsigned left = LIVE_BYTES;

        if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
                left = size.ws_col - 1u;
        for (size_t step; at < length && left > 0; at += step, left--) {
                step = utf8_step(text + at, length - at);
                step = step > 0 ? step : 1;
        }
        return at;
}

void ctl_live(const char *format, ...) {
        uint64_t now = clock_ns();
        char text[LIVE_BYTES];
        va_list arguments;

        if (now < live_due_ns || !isatty(STDERR_FILENO))
                return;
        live_due_ns = now + LIVE_INTERVAL_MS * NS_PER_MS;
        live_shown = true;
        fputc('\r', stderr);
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        fprintf(stderr, "%.*s\033[K", (int)length_that_fits(text), text);
        fflush(stderr);
}

void ctl_live_end(void) {
        if (live_shown)
                fputs("\r\033[K", stderr);
        live_shown = false;
}

void ctl_progress(void *context, const char *text) {
        ctl_live("%s", text);
}

void ctl_print_json(const json_t *json) {
        json_dumpf(json, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15));
        fputc('\n', stdout);
}

static const struct command *main_find(const char *name) {
        for (const struct command *c = commands; c->name; c++)
                if (strcmp(c->name, name) == 0)
                        return c;
        return NULL;
}

int main(int argc, char **argv) {
        static const struct option options[] = {{"runtime-dir", required_argument, NULL, 'd'},
                                                {"version", no_argument, NULL, 'V'},
                                                {"help", no_argument, NULL, 'h'},
                                                {0}};
        struct ctl ctl = {0};
        int c, r;

        if (argc > 0)
                argv[0] = (char *)"pinfeedctl";
        setlocale(LC_CTYPE, ""); /* for the look of tables; numbers stay those of the C locale */
        while ((c = getopt_long(argc, argv, "+d:h", options, NULL)) >= 0) {
                if (c == 'h')
                        return main_help();
                if (c == 'V') {
                        printf("pinfeedctl %s\n", pinfeed_version());
                        return CTL_OK;
                }
                if (c != 'd')
                        return ctl_usage(&ctl, NULL);
                ctl.runtime_dir = optarg;
        }
        if (optind == argc)
                return ctl_usage(&ctl, "expected a command");
        ctl.command = main_find(argv[optind]);
        if (!ctl.command)
                return ctl_usage(&ctl, "unknown command \"%s\"", argv[optind]);
        argc -= optind;
        argv += optind;
        argv[0] = (char *)"pinfeedctl"; /* for what getopt_long says */
        optind = 0;                     /* 0, not 1: glibc starts afresh */
        r = ctl.command->run(&ctl, argc, argv);
        if (fflush(stdout) != 0 || ferror(stdout))
                return ctl_fail("writing the output failed");
        return r;
}
