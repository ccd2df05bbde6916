/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* metrics: the daemon's counters as text for Prometheus. Into a file it goes as a whole or not at all: a
 * collector that reads it meanwhile finds the old one. Until then it has a name that begins with a dot and
 * does not end in .prom, which collectors leave alone. */

#include "client/ctl/ctl.h"

#include "base/cleanup.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0 or a negative errno. */
static int write_whole(int fd, const char *text) {
        size_t left = strlen(text);

        while (left > 0) {
                ssize_t n = write(fd, text, left);

                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n > 0) {
                        text += n;
                        left -= (size_t)n;
                }
        }
        return fchmod(fd, 0644) < 0 ? -errno : 0;
}

/* "DIRECTORY/.NAME.XXXXXX" beside `path`; free it. */
static char *name_beside(const char *path) {
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
        char *beside;

        return asprintf(&beside, "%.*s.%s.XXXXXX", (int)(name - path), path, name) < 0 ? NULL : beside;
}

static int write_file(const char *path, const char *text) {
        _cleanup_(freep) char *beside = name_beside(path);
        _cleanup_(fd_closep) int fd = -1;
        int r;

        if (!beside)
                return ctl_fail("out of memory");
        fd = mkostemp(beside, O_CLOEXEC);
        if (fd < 0)
                return ctl_fail("%s cannot be made: %s; nothing was written", beside, strerror(errno));
        r = write_whole(fd, text);
        if (r >= 0 && rename(beside, path) < 0)
                r = -errno;
        if (r >= 0)
                return CTL_OK;
        unlink(beside);
        return ctl_fail("%s cannot be written: %s; what was there is as it was", path, strerror(-r));
}

static int print_text(const struct ctl *ctl, const char *path) {
        struct fault fault = {0};
        json_t *answer = control_ask(ctl->runtime_dir, "metrics", &fault);
        const char *text = json_string_value(json_object_get(answer, "text"));
        int r = CTL_OK;

        if (!answer)
                return ctl_fail("%s", fault.text);
        if (!text)
                r = ctl_fail("the daemon's answer has no text; is it of another version?");
        else if (path)
                r = write_file(path, text);
        else
                fputs(text, stdout);
        json_decref(answer);
        return r;
}

int command_metrics(const struct ctl *ctl, int argc, char **argv) {
        static const struct option options[] = {
                {"out", required_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {0}};
        const char *path = NULL;
        int c;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
                if (c != 'o')
                        return c == 'h' ? ctl_help(ctl) : ctl_usage(ctl, NULL);
                path = optarg;
        }
        if (optind < argc)
                return ctl_usage(ctl, "unexpected argument \"%s\"", argv[optind]);
        if (path && !*path)
                return ctl_usage(ctl, "--out: expected the name of a file");
        return print_text(ctl, path);
}
