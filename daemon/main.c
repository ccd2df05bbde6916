/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* pinfeedd's command line. */

#include "base/fault.h"
#include "daemon/check.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "proto/runtime.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
        "Usage: pinfeedd --config FILE [OPTION]...\n"
        "Loads training data once per machine and feeds it to every training job there.\n"
        "\n"
        "  -c, --config FILE       what to serve, see pinfeed.yaml(5)\n"
        "  -d, --runtime-dir DIR   where the sockets go (default: $PINFEED_RUNTIME_DIR,\n"
        "                          $XDG_RUNTIME_DIR/pinfeed or /tmp/pinfeed-UID)\n"
        "      --check             say what FILE would take, try the sources, start nothing\n"
        "      --help-config       print every key of FILE\n"
        "      --version\n"
        "  -h, --help\n"
        "\n"
        "Exit status: 0 after SIGTERM, 130 after SIGINT, 1 on failure, 2 for a bad command line.\n";

struct options {
        const char *config;
        const char *directory;
        bool check;
};

enum {
        OPTION_CHECK = 256,
        OPTION_HELP_CONFIG,
        OPTION_VERSION,
};

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, struct options *options) {
        static const struct option table[] = {
                {"config", required_argument, NULL, 'c'},
                {"runtime-dir", required_argument, NULL, 'd'},
                {"check", no_argument, NULL, OPTION_CHECK},
                {"help-config", no_argument, NULL, OPTION_HELP_CONFIG},
                {"version", no_argument, NULL, OPTION_VERSION},
                {"help", no_argument, NULL, 'h'},
                {},
        };
        int option;

        while ((option = getopt_long(argc, argv, "c:d:h", table, NULL)) != -1) {
                if (option == 'c') {
                        options->config = optarg;
                } else if (option == 'd') {
                        options->directory = optarg;
                } else if (option == OPTION_CHECK) {
                        options->check = true;
                } else if (option == OPTION_HELP_CONFIG) {
                        check_print_keys(stdout);
                        return 0;
                } else if (option == OPTION_VERSION) {
                        puts("pinfeedd " PINFEED_VERSION);
                        return 0;
                } else if (option == 'h') {
                        fputs(usage, stdout);
                        return 0;
                } else {
                        fputs("pinfeedd: try --help\n", stderr);
                        return 2;
                }
        }
        if (optind < argc) {
                fprintf(stderr, "pinfeedd: unexpected argument \"%s\"; try --help\n", argv[optind]);
                return 2;
        }
        if (!options->config) {
                fputs("pinfeedd: no configuration given; try --config FILE\n", stderr);
                return 2;
        }
        return -1;
}

static int fail(const struct fault *fault) {
        log_line(LOG_ERROR, "%s", fault->text);
        return 1;
}

int main(int argc, char **argv) {
        char directory[RUNTIME_PATH_MAX + 1];
        struct options options = {};
        struct config *config;
        struct fault fault;
        int r;

        r = parse_options(argc, argv, &options);
        if (r >= 0)
                return r;
        if (config_load(&config, options.config, &fault) < 0)
                return fail(&fault);
        if (options.check) {
                r = check_print(config, stdout, &fault);
                config_free(config);
                return r < 0 ? fail(&fault) : 0;
        }
        if (runtime_find_directory(directory, options.directory, false, &fault) < 0) {
                config_free(config);
                return fail(&fault);
        }
        return daemon_run(config, directory);
}
