/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Finding the CUDA runtime. A process should have one: two would each keep a current device, a last error and
 * a capture mode for every thread, and the caller's cudaSetDevice would mean nothing to us. So the copy that
 * is there already comes first, whatever its version, and only a process without one gets one of ours:
 *
 *     1  a copy in this process, by soname   PyTorch's, or what the program was linked with
 *     2  PINFEED_LIBCUDART                   the user's word: if it cannot be loaded, that is the end
 *     3  what the caller gave                Python knows where its packages are
 *     4  the sonames, newest first           the dynamic linker's search
 *     5  where wheels and conda keep it      under the prefixes that a C program can know of
 *
 * A runtime that was linked into the program statically has no name to be found by. Then there are two; what
 * they share is the driver's: contexts, streams, events.
 *
 * It is opened with RTLD_LOCAL, since its symbols are for nobody else, in the namespace of libpinfeed, where
 * the caller's copy would be, and with RTLD_NOW, so that what is broken is found here. Each call is looked up
 * by name; a library that lacks one is no runtime for us and the search goes on. */

#include "client/cuda.h"

#include "base/fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
        CUDA_OLDEST = 11000,
        CUDA_MISSING_NAMED = 3, /* of the calls that a library lacks */
};

static const char *const sonames[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};

enum {
        N_SONAMES = sizeof(sonames) / sizeof(sonames[0]),
};

#define CUDA_SYMBOL(name, parameters) {#name, offsetof(struct cuda, name)},
static const struct {
        const char *name;
        size_t offset;
} symbols[] = {CUDA_CALLS(CUDA_SYMBOL) CUDA_WORDS(CUDA_SYMBOL)};

static pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda cuda_found;
static bool cuda_is_found;

/* The places that were tried and what was wrong there, for the text: each begins with NOTE_BETWEEN. */
#define NOTE_BETWEEN "; "

struct search {
        struct cuda *cuda;
        char tried[FAULT_TEXT_MAX + 1];
        size_t used;
};

__attribute__((format(printf, 2, 3))) static void note(struct search *search, const char *format, ...) {
        size_t room = sizeof(search->tried) - search->used;
        va_list arguments;
        int n;

        va_start(arguments, format);
        n = vsnprintf(search->tried + search->used, room, format, arguments);
        va_end(arguments);
        search->used += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

/* ---- one library ---- */

/* The calls' addresses; false, and the names of those that it lacks. */
static bool resolve(struct search *search, void *library, const char *name) {
        unsigned missing = 0;

        for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
                void *address = dlsym(library, symbols[i].name);

                memcpy((char *)search->cuda + symbols[i].offset, &address, sizeof(address));
                if (address)
                        continue;
                if (missing == 0)
                        note(search, NOTE_BETWEEN "%s lacks ", name);
                if (missing < CUDA_MISSING_NAMED)
                        note(search, "%s%s", missing > 0 ? ", " : "", symbols[i].name);
                missing++;
        }
        if (missing > CUDA_MISSING_NAMED)
                note(search, " and %u more calls", missing - CUDA_MISSING_NAMED);
        return missing == 0;
}

static bool check_version(struct search *search, const char *name) {
        struct cuda *cuda = search->cuda;
        cuda_error error = cuda->cudaRuntimeGetVersion(&cuda->version);

        if (error) {
                note(search, NOTE_BETWEEN "%s: cudaRuntimeGetVersion failed: %s (%u)", name,
                     cuda->cudaGetErrorName(error), error);
                return false;
        }
        if (cuda->version < CUDA_OLDEST) {
                note(search, NOTE_BETWEEN "%s is of version %d.%d, older than 11.0", name,
                     cuda->version / 1000, cuda->version % 1000 / 10);
                return false;
        }
        return true;
}

/* Takes the handle over. */
static bool take(struct search *search, void *library, const char *name) {
        Dl_info info;

        if (!resolve(search, library, name) || !check_version(search, name)) {
                dlclose(library);
                return false;
        }
        if (dladdr((void *)search->cuda->cudaSetDevice, &info) != 0)
                name = info.dli_fname;
        snprintf(search->cuda->path, sizeof(search->cuda->path), "%s", name);
        return true;
}

static bool try(struct search *search, const char *name) {
        void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        const char *words;

        if (library)
                return take(search, library, name);
        words = dlerror(); /* which mostly begins with the name */
        if (strncmp(words, name, strlen(name)) == 0)
                note(search, NOTE_BETWEEN "%s", words);
        else
                note(search, NOTE_BETWEEN "%s: %s", name, words);
        return false;
}

/* ---- places ---- */

static bool try_this_process(struct search *search) {
        bool any = false;

        for (int i = 0; i < N_SONAMES; i++) {
                void *library = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

                if (library && take(search, library, sonames[i]))
                        return true;
                any = any || library;
        }
        if (!any)
                note(search, NOTE_BETWEEN "this process has none");
        return false;
}

static bool try_sonames(struct search *search) {
        for (int i = 0; i < N_SONAMES; i++)
                if (try(search, sonames[i]))
                        return true;
        return false;
}

static bool try_pattern(struct search *search, const char *pattern, bool *any) {
        glob_t paths = {0};
        bool found = false;

        if (glob(pattern, 0, NULL, &paths) == 0)
                for (size_t i = 0; i < paths.gl_pathc && !found; i++) {
                        *any = true;
                        found = try(search, paths.gl_pathv[i]);
                }
        globfree(&paths);
        return found;
}

/* As pip lays it out (nvidia/cu13/lib, nvidia/cuda_runtime/lib) and as conda does. */
static bool try_prefix(struct search *search, const char *prefix) {
        static const char *const places[] = {"lib/python3*/*-packages/nvidia/*/lib", "lib"};
        char pattern[PATH_MAX];
        bool any = false;

        for (int i = 0; i < N_SONAMES; i++)
                for (int j = 0; j < 2; j++) {
                        if (snprintf(pattern, sizeof(pattern), "%s/%s/%s", prefix, places[j], sonames[i]) >=
                            (int)sizeof(pattern))
                                continue;
                        if (try_pattern(search, pattern, &any))
                                return true;
                }
        if (!any)
                note(search, NOTE_BETWEEN "none under %s", prefix);
        return false;
}

/* "/opt/python" for a program /opt/python/bin/python3; "" when that is not known. */
static void program_prefix(char prefix[PATH_MAX]) {
        ssize_t length = readlink("/proc/self/exe", prefix, PATH_MAX - 1);
        char *slash;

        prefix[length < 0 ? 0 : length] = 0;
        for (int i = 0; i < 2; i++) {
                slash = strrchr(prefix, '/');
                if (slash)
                        *slash = 0;
        }
}

static bool try_prefixes(struct search *search) {
        char program[PATH_MAX];
        const char *const prefixes[] = {getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), program};

        program_prefix(program);
        for (int i = 0; i < 3; i++)
                if (prefixes[i] && prefixes[i][0] && try_prefix(search, prefixes[i]))
                        return true;
        return false;
}

/* ---- the search ---- */

static bool search_everywhere(struct search *search, const char *given, struct fault *fault) {
        const char *named = getenv("PINFEED_LIBCUDART");

        if (try_this_process(search))
                return true;
        if (named && named[0]) {
                search->used = 0;
                if (try(search, named))
                        return true;
                fault_set(fault, -ENODEV, "PINFEED_LIBCUDART names no CUDA runtime that can be used: %s",
                          search->tried + strlen(NOTE_BETWEEN));
                return false;
        }
        if ((given && given[0] && try(search, given)) || try_sonames(search) || try_prefixes(search))
                return true;
        fault_set(fault, -ENODEV, "no CUDA runtime was found (PINFEED_LIBCUDART may name one): %s",
                  search->tried + strlen(NOTE_BETWEEN));
        return false;
}

const struct cuda *cuda_load(const char *given, struct fault *fault) {
        const struct cuda *found = NULL;
        struct cuda cuda = {0};
        struct search search = {.cuda = &cuda};

        pthread_mutex_lock(&cuda_lock);
        if (!cuda_is_found && search_everywhere(&search, given, fault)) {
                cuda_found = cuda;
                cuda_is_found = true;
        }
        if (cuda_is_found)
                found = &cuda_found;
        pthread_mutex_unlock(&cuda_lock);
        return found;
}

int cuda_fail(const struct cuda *cuda, struct fault *fault, const char *call, cuda_error error) {
        cuda->cudaGetLastError();
        return fault_set(fault, -EIO, "%s failed: %s (%u), %s", call, cuda->cudaGetErrorName(error), error,
                         cuda->cudaGetErrorString(error));
}
