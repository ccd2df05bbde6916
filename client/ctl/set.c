/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* set: changes a number of a running daemon. */

#include "client/ctl/ctl.h"

#include "base/fault.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        SET_WORKERS_MAX = 1024,
};

static json_t *ask(const struct ctl *ctl, const char *pipeline, json_t *workers, struct fault *fault) {
        json_t *request = json_pack("{s:s, s:s, s:o}", "command", "set", "pipeline", pipeline, "workers",
                                    workers),
               *answer;
        char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;

        json_decref(request);
        if (!text) {
                fault_set(fault, -EINVAL, "the pipeline's name is no UTF-8, or memory is short");
                return NULL;
        }
        answer = control_ask(ctl->runtime_dir, text, fault);
        free(text);
        return answer;
}

static int set_workers(const struct ctl *ctl, const char *pipeline, const char *text) {
        struct fault fault = {0};
        json_t *workers = NULL, *answer;
        uint64_t number;

        if (strcmp(text, "auto") == 0)
                workers = json_string("auto");
        else if (ctl_number(ctl, "workers", text, 1, SET_WORKERS_MAX, &number) != 0)
                return CTL_USAGE;
        else
                workers = json_integer((json_int_t)number);
        answer = ask(ctl, pipeline, workers, &fault);
        if (!answer)
                return ctl_fail("%s", fault.text);
        number = (uint64_t)json_integer_value(json_object_get(answer, "workers"));
        printf("%s may have %llu worker%s%s from now on, until pinfeedd ends\n", pipeline,
               (unsigned long long)number, number == 1 ? "" : "s",
               json_is_true(json_object_get(answer, "workers_auto")) ? ", within the daemon's cpus," : "");
        json_decref(answer);
        return CTL_OK;
}

int command_set(const struct ctl *ctl, int argc, char **argv) {
        static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {0}};
        int c;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0)
                return c == 'h' ? ctl_help(ctl) : ctl_usage(ctl, NULL);
        if (optind + 3 != argc || strcmp(argv[optind], "workers") != 0)
                return ctl_usage(ctl, "expected workers, a pipeline and a number");
        return set_workers(ctl, argv[optind + 1], argv[optind + 2]);
}
