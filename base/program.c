/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A path fixed at build time breaks as soon as somebody moves or copies the installed tree, or runs from the
 * build directory. The kernel knows where the running executable lies; everything else is relative to that.
 */

#include "base/program.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_executable_file(const char *path) {
        struct stat status;

        return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

static int own_directory(char path[PATH_MAX]) {
        ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
        char *slash;

        if (n < 0)
                return -ENOENT;
        path[n] = 0;
        slash = strrchr(path, '/');
        if (!slash)
                return -ENOENT;
        *slash = 0;
        return 0;
}

int program_find_file(char path[PATH_MAX], const char *const relatives[], const char *file) {
        char directory[PATH_MAX], candidate[2 * PATH_MAX];
        int r = own_directory(directory);

        for (size_t i = 0; r == 0 && relatives[i]; i++) {
                snprintf(candidate, sizeof(candidate), "%s/%s/%s", directory, relatives[i], file);
                if (access(candidate, R_OK) < 0)
                        continue;
                snprintf(candidate, sizeof(candidate), "%s/%s", directory, relatives[i]);
                if (realpath(candidate, path))
                        return 0;
        }
        return -ENOENT;
}

int program_find(char path[PATH_MAX], const char *const relatives[]) {
        char directory[PATH_MAX], candidate[2 * PATH_MAX];
        int r;

        r = own_directory(directory);
        if (r < 0)
                return r;
        for (size_t i = 0; relatives[i]; i++) {
                snprintf(candidate, sizeof(candidate), "%s/%s", directory, relatives[i]);
                if (is_executable_file(candidate) && realpath(candidate, path))
                        return 0;
        }
        return -ENOENT;
}
