/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* pinfeedd's command line. */

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/number.h"
#include "daemon/background.h"
#include "daemon/check.h"
#include "daemon/config.h"
#include "daemon/counters.h"
#include "daemon/daemon.h"
#include "daemon/linger.h"
#include "daemon/log.h"
#include "daemon/service.h"
#include "proto/runtime.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
        "Usage: pinfeedd --config FILE [OPTION]...\n"
        "       pinfeedd --private [OPTION]...\n"
        "Loads training data once per machine and feeds it to every training job there.\n"
        "\n"
        "  -c, --config FILE       what to serve, see pinfeed.yaml(5)\n"
        "  -d, --runtime-dir DIR   where the sockets go (default: $PINFEED_RUNTIME_DIR,\n"
        "                          $XDG_RUNTIME_DIR/pinfeed or /tmp/pinfeed-UID)\n"
        "      --private           take pipelines that jobs of this user define, and end some time\n"
        "                          after the last job has left\n"
        "      --linger SECONDS    that time, 1 to 31536000 (default: 60)\n"
        "      --background        return once jobs can connect, and print DIR\n"
        "      --log FILE          where its lines go (default: standard error; with --background\n"
        "                          DIR/pinfeedd.log)\n"
        "      --check             say what FILE would take, try the sources, serve nothing\n"
        "      --user NAME         as that user, for root: the one that the service runs as\n"
        "      --help-config       print every key of FILE\n"
        "      --help-metrics      print every counter\n"
        "      --version\n"
        "  -h, --help\n"
        "\n"
        "Exit status: 0 after SIGTERM, 130 after SIGINT, 1 on failure, 2 for a bad command line.\n";

struct options {
        const char *config;
        const char *directory;
        const char *log;
        const char *user;
        uint64_t linger_s; /* 0: not given */
        bool check;
        bool is_private;
        bool background;
};

enum {
        OPTION_BACKGROUND = 256,
        OPTION_CHECK,
        OPTION_HELP_CONFIG,
        OPTION_HELP_METRICS,
        OPTION_LINGER,
        OPTION_LOG,
        OPTION_PRIVATE,
        OPTION_USER,
        OPTION_VERSION,
};

static int refuse(const char *text) {
        fprintf(stderr, "pinfeedd: %s\n", text);
        return 2;
}

/* -1: they go together; else the exit status. */
static int check_options(const struct options *options) {
        if (!options->config && (!options->is_private || options->check))
                return refuse("no configuration given; try --config FILE");
        if (options->linger_s > 0 && !options->is_private)
                return refuse("--linger is for a daemon with --private");
        if (options->user && !options->check)
                return refuse("--user goes with --check; a service's user is said in its unit");
        return -1;
}

/* Options that have a value. -1: go on; else the exit status. */
static int take_value(struct options *options, int option, const char *value) {
        if (option == 'c') {
                options->config = value;
        } else if (option == 'd') {
                options->directory = value;
        } else if (option == OPTION_LOG) {
                options->log = value;
        } else if (option == OPTION_USER) {
                options->user = value;
        } else if (number_parse_u64(value, &options->linger_s) < 0 || options->linger_s < 1 ||
                   options->linger_s > LINGER_MAX_S) {
                fprintf(stderr, "pinfeedd: --linger: expected a whole number from 1 to %d, got \"%s\"\n",
                        LINGER_MAX_S, value);
                return 2;
        }
        return -1;
}

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, struct options *options) {
        static const struct option table[] = {
                {"config", required_argument, NULL, 'c'},
                {"runtime-dir", required_argument, NULL, 'd'},
                {"background", no_argument, NULL, OPTION_BACKGROUND},
                {"check", no_argument, NULL, OPTION_CHECK},
                {"help-config", no_argument, NULL, OPTION_HELP_CONFIG},
                {"help-metrics", no_argument, NULL, OPTION_HELP_METRICS},
                {"linger", required_argument, NULL, OPTION_LINGER},
                {"log", required_argument, NULL, OPTION_LOG},
                {"private", no_argument, NULL, OPTION_PRIVATE},
                {"user", required_argument, NULL, OPTION_USER},
                {"version", no_argument, NULL, OPTION_VERSION},
                {"help", no_argument, NULL, 'h'},
                {},
        };
        int option, r;

        while ((option = getopt_long(argc, argv, "c:d:h", table, NULL)) != -1) {
                if (optarg) {
                        r = take_value(options, option, optarg);
                        if (r >= 0)
                                return r;
                } else if (option == OPTION_BACKGROUND) {
                        options->background = true;
                } else if (option == OPTION_CHECK) {
                        options->check = true;
                } else if (option == OPTION_PRIVATE) {
                        options->is_private = true;
                } else if (option == OPTION_HELP_CONFIG) {
                        check_print_keys(stdout);
                        return 0;
                } else if (option == OPTION_HELP_METRICS) {
                        counters_print(stdout);
                        return 0;
                } else if (option == OPTION_VERSION) {
                        puts("pinfeedd " PINFEED_VERSION);
                        return 0;
                } else if (option == 'h') {
                        fputs(usage, stdout);
                        return 0;
                } else {
                        return refuse("try --help");
                }
        }
        if (optind < argc) {
                fprintf(stderr, "pinfeedd: unexpected argument \"%s\"; try --help\n", argv[optind]);
                return 2;
        }
        return check_options(options);
}

static int fail(int error, const struct fault *fault) {
        log_line(LOG_ERROR, "%s", fault->text);
        service_failed(error, fault->text);
        return 1;
}

static int fail_without_memory(void) {
        log_line(LOG_ERROR, "out of memory");
        return 1;
}

/* The daemon in this process, or in one of its own. `config` is taken over. */
static int serve(struct config *config, const char *file, const char *directory,
                 const struct options *options) {
        _cleanup_(freep) char *log = NULL;
        struct daemon_options how = {.is_private = options->is_private,
                                     .linger_s = options->linger_s ? options->linger_s : LINGER_DEFAULT_S,
                                     .background = BACKGROUND_NONE,
                                     .config = file};
        int r = 0;

        if (options->log)
                log = background_absolute(options->log);
        else if (options->background)
                r = asprintf(&log, "%s/" RUNTIME_LOG, directory);
        if (r < 0 || (options->log && !log)) {
                config_unref(config);
                return fail_without_memory();
        }
        how.log = log;
        if (options->background && (r = background_start(&how.background, directory)) >= 0) {
                config_unref(config);
                return r;
        }
        return daemon_run(config, directory, &how);
}

/* Where the sockets go; in full for a daemon that will not stay in this directory. */
static int find_directory(char directory[RUNTIME_PATH_MAX + 1], const struct options *options,
                          struct fault *fault) {
        _cleanup_(freep) char *absolute = NULL;
        int r = runtime_find_directory(directory, options->directory, RUNTIME_DAEMON, fault);

        if (r < 0 || !options->background)
                return r;
        absolute = background_absolute(directory);
        if (!absolute)
                return fault_set(fault, -ENOMEM, "out of memory");
        return runtime_find_directory(directory, absolute, RUNTIME_DAEMON, fault);
}

/* What to serve. The file is read again at a reload, and relative paths in it start where it is: both have to
 * mean the same for as long as the daemon runs. */
static int load(struct config **config, const struct options *options, char **absolute, struct fault *fault) {
        if (!options->config)
                return config_new(config, fault);
        if (options->check)
                return config_load(config, options->config, fault);
        *absolute = background_absolute(options->config);
        if (!*absolute)
                return fault_set(fault, -ENOMEM, "out of memory");
        return config_load(config, *absolute, fault);
}

static int run(const struct options *options) {
        _cleanup_(freep) char *file = NULL;
        char directory[RUNTIME_PATH_MAX + 1];
        struct config *config;
        struct fault fault;
        int r;

        if (options->user) {
                r = check_become(options->user, &fault);
                if (r < 0)
                        return fail(r, &fault);
        }
        r = load(&config, options, &file, &fault);
        if (r < 0)
                return fail(r, &fault);
        if (options->check) {
                r = check_print(config, stdout, &fault);
                config_unref(config);
                return r < 0 ? fail(r, &fault) : 0;
        }
        r = find_directory(directory, options, &fault);
        if (r < 0) {
                config_unref(config);
                return fail(r, &fault);
        }
        return serve(config, file, directory, options);
}

int main(int argc, char **argv) {
        struct options options = {};
        int r = parse_options(argc, argv, &options);

        if (r >= 0)
                return r;
        if (options.background)
                closefrom(STDERR_FILENO + 1); /* whatever whoever started this had open */
        log_init();
        service_init(!options.background && !options.check);
        return run(&options);
}
