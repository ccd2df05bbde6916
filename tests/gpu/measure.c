/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One check of what lies between a slot and the GPU, with its figures, for tests/gpu/check, which judges
 * them.
 *
 *     measure CHECK --runtime-dir DIR --daemon PINFEEDD [--kernels LIBRARY] [--device N] [--bytes B]
 *             [--slots N] [--rounds N] [--pin auto|require|never] [--busy]
 *
 * A program of plain C: the CUDA runtime is found as libpinfeed finds it, and may be the fake one. Each run
 * is a process of its own, so that one check leaves no context, page-locked memory or error to the next. Its
 * jobs start the daemon; whoever runs this ends it.
 *
 * Whatever goes wrong ends the program at once: the exit code is the result, and there is nothing to clean up
 * that the end of the process does not. */

#include "tests/gpu/measure.h"

#include "base/clock.h"
#include "base/number.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
        const char *name;
        void (*run)(const struct measure *measure);
} checks[] = {
        {"device", check_device},
        {"maps", check_maps},
        {"bandwidth", check_bandwidth},
        {"overlap", check_overlap},
        {"bytes", check_bytes},
        {"wrong-client", check_wrong_client},
        {"capture", check_capture},
        {"contexts", check_contexts},
        {"survival", check_survival},
        {"start", check_start},
        {0},
};

static const char *const pins[] = {
        [PINFEED_PIN_AUTO] = "auto", [PINFEED_PIN_REQUIRE] = "require", [PINFEED_PIN_NEVER] = "never", NULL};

void say(const char *name, const char *format, ...) {
        va_list arguments;

        printf("%s ", name);
        va_start(arguments, format);
        vprintf(format, arguments);
        va_end(arguments);
        putchar('\n');
        fflush(stdout);
}

static void complain(const char *format, va_list arguments) {
        vfprintf(stderr, format, arguments);
        fputc('\n', stderr);
}

void fail(const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        complain(format, arguments);
        va_end(arguments);
        exit(MEASURE_FAILED);
}

void lack(const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        complain(format, arguments);
        va_end(arguments);
        exit(MEASURE_LACKS);
}

double seconds_since(uint64_t start_ns) {
        return (double)(clock_ns() - start_ns) / NS_PER_S;
}

static void usage(void) {
        fputs("usage: measure CHECK --runtime-dir DIR --daemon PINFEEDD [--kernels LIBRARY] [--device N]\n"
              "               [--bytes B] [--slots N] [--rounds N] [--pin auto|require|never] [--busy]\n"
              "checks:",
              stderr);
        for (size_t i = 0; checks[i].name; i++)
                fprintf(stderr, " %s", checks[i].name);
        fputc('\n', stderr);
        exit(MEASURE_USAGE);
}

static uint64_t parse_number(const char *text) {
        uint64_t value;

        if (number_parse_bytes(text, &value) < 0)
                usage();
        return value;
}

static uint32_t parse_pin(const char *text) {
        for (uint32_t i = 0; pins[i]; i++)
                if (strcmp(pins[i], text) == 0)
                        return i;
        usage();
        return 0;
}

static void parse(struct measure *measure, int argc, char **argv) {
        static const struct option options[] = {{"runtime-dir", required_argument, NULL, 'd'},
                                                {"daemon", required_argument, NULL, 'p'},
                                                {"kernels", required_argument, NULL, 'k'},
                                                {"device", required_argument, NULL, 'g'},
                                                {"bytes", required_argument, NULL, 'b'},
                                                {"slots", required_argument, NULL, 's'},
                                                {"rounds", required_argument, NULL, 'r'},
                                                {"pin", required_argument, NULL, 'm'},
                                                {"busy", no_argument, NULL, 'y'},
                                                {0}};

        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
                switch (c) {
                case 'd':
                        measure->runtime_dir = optarg;
                        break;
                case 'p':
                        measure->daemon = optarg;
                        break;
                case 'k':
                        measure->kernels = optarg;
                        break;
                case 'g':
                        measure->device = (int)parse_number(optarg);
                        break;
                case 'b':
                        measure->bytes = parse_number(optarg);
                        break;
                case 's':
                        measure->slots = parse_number(optarg);
                        break;
                case 'r':
                        measure->rounds = parse_number(optarg);
                        break;
                case 'm':
                        measure->pin = parse_pin(optarg);
                        break;
                case 'y':
                        measure->busy = true;
                        break;
                default:
                        usage();
                }
        }
}

int main(int argc, char **argv) {
        struct measure measure = {.bytes = 1 << 20, .slots = 8, .rounds = 10};

        parse(&measure, argc, argv);
        if (optind + 1 != argc)
                usage();
        for (size_t i = 0; checks[i].name; i++) {
                if (strcmp(checks[i].name, argv[optind]) != 0)
                        continue;
                checks[i].run(&measure);
                return 0;
        }
        usage();
        return 0;
}
