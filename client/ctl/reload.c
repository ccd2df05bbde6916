/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* reload: the daemon reads its configuration again and says what became of each pipeline; what it refuses is
 * refused as a whole, and then it says why. */

#include "client/ctl/ctl.h"

#include "base/fault.h"

#include <getopt.h>
#include <stdio.h>

static void on_line(void *context, json_t *line) {
        ctl_live("waiting for %s to be read", ctl_text_of(line, "waiting"));
}

/* "changed    a, b" */
static void print_names(const json_t *answer, const char *kind) {
        const json_t *names = json_object_get(answer, kind);

        if (json_array_size(names) == 0)
                return;
        printf("%-9s", kind);
        for (size_t i = 0; i < json_array_size(names); i++)
                printf("%s%s", i > 0 ? ", " : " ", json_string_value(json_array_get(names, i)));
        putchar('\n');
}

static void print(const json_t *answer) {
        static const char *const kinds[] = {"kept", "updated", "changed", "added", "removed"};
        uint64_t jobs = ctl_number_of(answer, "superseded_jobs"), older = ctl_number_of(answer, "superseded");

        for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
                print_names(answer, kinds[i]);
        if (older > 0)
                printf("%llu job%s go%s on with what %llu pipeline%s %s before\n", (unsigned long long)jobs,
                       ctl_plural(jobs), jobs == 1 ? "es" : "", (unsigned long long)older, ctl_plural(older),
                       older == 1 ? "was" : "were");
}

int command_reload(const struct ctl *ctl, int argc, char **argv) {
        struct fault fault = {0};
        json_t *answer;
        int r = CTL_OK, usage;
        bool as_json;

        if (!ctl_json_option(ctl, argc, argv, &as_json, &usage))
                return usage;
        if (optind != argc)
                return ctl_usage(ctl, "unexpected argument \"%s\"", argv[optind]);
        answer = control_ask_long(ctl->runtime_dir, "reload", on_line, NULL, &fault);
        ctl_live_end();
        if (answer && json_is_string(json_object_get(answer, "error")))
                r = ctl_fail("%s", ctl_text_of(answer, "error"));
        else if (!answer)
                r = ctl_fail("%s", fault.text);
        else if (as_json)
                ctl_print_json(answer);
        else
                print(answer);
        json_decref(answer);
        return r;
}
