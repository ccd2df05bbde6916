/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How the CUDA runtime is found: where it is looked for, in which order, and what is said when there is none.
 * A process finds one once, and what its linker finds is fixed when it starts; so each search is this program
 * in a process of its own ("look"), with an environment and directories made for it. Real runtimes of the
 * machine are hidden by files of their names which are no libraries. */

#include "client/cuda.h"

#include "base/fault.h"
#include "tests/support/run.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        TEXT_MAX = 4096,
        PATH_LENGTH = 512,
        THREADS = 8,
};

static char directory[64], program[PATH_LENGTH];
static const char *fake, *partial;

/* ---- "look": PRELOAD GIVEN... ---- */

/* Searches once for each GIVEN ("-": none), after loading PRELOAD (the same), and says what it has got. */
static int look(char **arguments) {
        struct fault fault = {""};

        if (strcmp(arguments[0], "-") != 0 && !dlopen(arguments[0], RTLD_NOW | RTLD_LOCAL)) {
                printf("%s\n", dlerror());
                return 1;
        }
        for (int i = 1; arguments[i]; i++) {
                const struct cuda *cuda =
                        cuda_load(strcmp(arguments[i], "-") != 0 ? arguments[i] : NULL, &fault);

                if (cuda)
                        printf("%d %s\n", cuda->version, cuda->path);
                else
                        printf("%s\n", fault.text);
        }
        return 0;
}

/* ---- a machine to look in ---- */

__attribute__((format(printf, 1, 2))) static void shell(const char *format, ...) {
        char command[TEXT_MAX];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(command, sizeof(command), format, arguments);
        va_end(arguments);
        ck_assert_msg(system(command) == 0, "%s", command);
}

static void make_directory(void) {
        ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

        ck_assert_int_gt(length, 0);
        fake = getenv("PINFEED_TEST_CUDART");
        partial = getenv("PINFEED_TEST_CUDART_PARTIAL");
        ck_assert_msg(fake && partial, "run this by meson test, or set PINFEED_TEST_CUDART and ..._PARTIAL");
        snprintf(directory, sizeof(directory), "/tmp/pinfeed-test-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(directory));
        shell("mkdir %s/hidden && cd %s/hidden && touch libcudart.so.13 libcudart.so.12 libcudart.so.11.0",
              directory, directory);
        unsetenv("LD_LIBRARY_PATH");
        unsetenv("PINFEED_LIBCUDART");
        unsetenv("PINFEED_FAKE_CUDA");
        unsetenv("VIRTUAL_ENV");
        unsetenv("CONDA_PREFIX");
}

static void remove_directory(void) {
        shell("rm -rf %s", directory);
}

/* A path in the directory. It stays for three more. */
static const char *at(const char *name) {
        static char paths[4][PATH_LENGTH];
        static unsigned next;
        char *path = paths[next++ % 4];

        snprintf(path, PATH_LENGTH, "%s/%s", directory, name);
        return path;
}

/* A copy of the fake runtime, since two names of one file are one library. */
static const char *install(const char *name) {
        const char *path = at(name);

        shell("mkdir -p $(dirname %s) && cp %s %s", path, fake, path);
        return path;
}

static void set(const char *variable, const char *name) {
        setenv(variable, at(name), 1);
}

/* What a process says that has loaded `preload` and is given `given`. */
static const char *looked(const char *preload, const char *given, const char *again) {
        static char text[TEXT_MAX];
        char command[TEXT_MAX];
        size_t length;
        FILE *output;

        snprintf(command, sizeof(command), "%s look %s %s %s", program, preload ? preload : "-",
                 given ? given : "-", again ? again : "");
        output = popen(command, "r");
        ck_assert_ptr_nonnull(output);
        length = fread(text, 1, sizeof(text) - 1, output);
        text[length] = 0;
        ck_assert_msg(pclose(output) == 0, "%s: %s", command, text);
        return text;
}

static void expect(const char *text, const char *words) {
        ck_assert_msg(strstr(text, words), "\"%s\" is not in: %s", words, text);
}

/* ---- the order ---- */

START_TEST(what_the_process_has_comes_first) {
        shell("mkdir %s/lib && cp %s %s/lib/libcudart.so.12 && touch %s/lib/libcudart.so.13", directory, fake,
              directory, directory);
        set("LD_LIBRARY_PATH", "lib");
        setenv("PINFEED_LIBCUDART", install("named.so"), 1);
        expect(looked("libcudart.so.12", install("given.so"), NULL), at("lib/libcudart.so.12\n"));
        expect(looked(NULL, at("given.so"), NULL), at("named.so\n"));
        unsetenv("PINFEED_LIBCUDART");
        expect(looked(NULL, at("given.so"), NULL), at("given.so\n"));
        expect(looked(NULL, NULL, NULL), at("lib/libcudart.so.12\n"));
}
END_TEST

START_TEST(the_newest_of_the_usual_names) {
        install("lib/libcudart.so.11.0");
        install("lib/libcudart.so.12");
        install("lib/libcudart.so.13");
        set("LD_LIBRARY_PATH", "lib");
        setenv("PINFEED_FAKE_CUDA", "version=12060", 1);
        expect(looked(NULL, NULL, NULL), "12060 ");
        expect(looked(NULL, NULL, NULL), at("lib/libcudart.so.13\n"));
        shell("truncate -s 0 %s", at("lib/libcudart.so.13"));
        expect(looked(NULL, NULL, NULL), at("lib/libcudart.so.12\n"));
        shell("truncate -s 0 %s", at("lib/libcudart.so.12"));
        expect(looked(NULL, NULL, NULL), at("lib/libcudart.so.11.0\n"));
}
END_TEST

START_TEST(where_wheels_and_conda_keep_it) {
        set("LD_LIBRARY_PATH", "hidden");
        shell("mkdir -p %s/bin && cp %s %s/bin/python3", at("base"), program, at("base"));
        snprintf(program, sizeof(program), "%s", at("base/bin/python3"));
        install("base/lib/python3.12/dist-packages/nvidia/cuda_runtime/lib/libcudart.so.12");
        expect(looked(NULL, NULL, NULL), at("base/lib/python3.12/dist-packages/nvidia/cuda_runtime/lib/"));

        install("conda/lib/libcudart.so.12");
        set("CONDA_PREFIX", "conda");
        expect(looked(NULL, NULL, NULL), at("conda/lib/libcudart.so.12\n"));

        install("venv/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12");
        set("VIRTUAL_ENV", "venv");
        expect(looked(NULL, NULL, NULL), at("venv/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/"));
        install("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libcudart.so.13");
        expect(looked(NULL, NULL, NULL), at("venv/lib/python3.11/site-packages/nvidia/cu13/lib/"));
}
END_TEST

/* ---- what cannot be used ---- */

START_TEST(nothing_is_found) {
        const char *text;

        set("LD_LIBRARY_PATH", "hidden");
        set("VIRTUAL_ENV", "hidden");
        set("CONDA_PREFIX", "nowhere");
        text = looked(NULL, "/nowhere/cuda.so", NULL);
        expect(text, "no CUDA runtime was found (PINFEED_LIBCUDART may name one): this process has none; ");
        expect(text, "; /nowhere/cuda.so: cannot open shared object file: No such file or directory; ");
        expect(text, at("hidden/libcudart.so.13: file too short; "));
        expect(text, at("hidden/libcudart.so.12: file too short; "));
        expect(text, at("hidden/libcudart.so.11.0: file too short; "));
        expect(text, "; none under ");
        expect(text, at("hidden; none under "));
        expect(text, at("nowhere; none under "));
}
END_TEST

START_TEST(another_call_looks_again) {
        const char *text;

        set("LD_LIBRARY_PATH", "hidden");
        text = looked(NULL, "/nowhere/cuda.so", install("given.so"));
        expect(text, "no CUDA runtime was found");
        expect(text, at("given.so\n"));
}
END_TEST

START_TEST(a_name_that_does_not_load_is_the_end) {
        const char *text;

        install("lib/libcudart.so.13");
        set("LD_LIBRARY_PATH", "lib");
        setenv("PINFEED_LIBCUDART", "/nowhere/cuda.so", 1);
        text = looked(NULL, at("lib/libcudart.so.13"), NULL);
        ck_assert_str_eq(text,
                         "PINFEED_LIBCUDART names no CUDA runtime that can be used: /nowhere/cuda.so: cannot "
                         "open shared object file: No such file or directory\n");
        setenv("PINFEED_LIBCUDART", "", 1);
        expect(looked(NULL, NULL, NULL), at("lib/libcudart.so.13\n"));
}
END_TEST

START_TEST(libraries_that_lack_calls) {
        char expected[TEXT_MAX];

        setenv("PINFEED_LIBCUDART", partial, 1);
        snprintf(expected, sizeof(expected),
                 "PINFEED_LIBCUDART names no CUDA runtime that can be used: %s lacks cudaEventQuery\n",
                 partial);
        ck_assert_str_eq(looked(NULL, NULL, NULL), expected);
        setenv("PINFEED_LIBCUDART", "libm.so.6", 1);
        expect(looked(NULL, NULL, NULL),
               "libm.so.6 lacks cudaRuntimeGetVersion, cudaDriverGetVersion, cudaGetDeviceCount and ");
}
END_TEST

/* One that the process has is passed over all the same when it cannot be used. */
START_TEST(a_useless_copy_in_the_process) {
        shell("mkdir %s/lib && cp %s %s/lib/libcudart.so.13", directory, partial, directory);
        install("lib/libcudart.so.12");
        set("LD_LIBRARY_PATH", "lib");
        expect(looked("libcudart.so.13", NULL, NULL), at("lib/libcudart.so.12\n"));
        shell("rm %s && touch %s %s", at("lib/libcudart.so.12"), at("lib/libcudart.so.12"),
              at("lib/libcudart.so.11.0"));
        expect(looked("libcudart.so.13", NULL, NULL),
               "may name one): libcudart.so.13 lacks cudaEventQuery; ");
}
END_TEST

START_TEST(versions_that_are_too_old) {
        setenv("PINFEED_LIBCUDART", fake, 1);
        setenv("PINFEED_FAKE_CUDA", "version=10020", 1);
        expect(looked(NULL, NULL, NULL), "libcudart-fake.so is of version 10.2, older than 11.0\n");
        setenv("PINFEED_FAKE_CUDA", "version=11000", 1);
        expect(looked(NULL, NULL, NULL), "11000 ");
        setenv("PINFEED_FAKE_CUDA", "fail=cudaRuntimeGetVersion:1:719", 1);
        expect(looked(NULL, NULL, NULL), "cudaRuntimeGetVersion failed: cudaErrorLaunchFailure (719)\n");
}
END_TEST

/* ---- what is done with it ---- */

static void *load_from_thread(void *data) {
        struct fault fault;

        return (void *)cuda_load(NULL, &fault);
}

START_TEST(all_threads_get_the_same) {
        pthread_t threads[THREADS];
        void *cuda, *first = NULL;

        setenv("PINFEED_LIBCUDART", fake, 1);
        for (int i = 0; i < THREADS; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, load_from_thread, NULL), 0);
        for (int i = 0; i < THREADS; i++) {
                pthread_join(threads[i], &cuda);
                ck_assert_ptr_nonnull(cuda);
                ck_assert(!first || cuda == first);
                first = cuda;
        }
}
END_TEST

START_TEST(loading_asks_for_no_device) {
        uint64_t (*calls)(const char *call, const char *thread);
        void *library;

        setenv("PINFEED_LIBCUDART", fake, 1);
        ck_assert_ptr_nonnull(cuda_load(NULL, NULL));
        library = dlopen(fake, RTLD_NOW | RTLD_NOLOAD);
        ck_assert_ptr_nonnull(library);
        *(void **)&calls = dlsym(library, "fake_cuda_calls");
        ck_assert_uint_eq(calls(NULL, NULL), 1);
        ck_assert_uint_eq(calls("cudaRuntimeGetVersion", NULL), 1);
        dlclose(library);
}
END_TEST

START_TEST(a_failure_in_words) {
        struct fault fault;
        const struct cuda *cuda;
        cuda_error error;

        setenv("PINFEED_LIBCUDART", fake, 1);
        setenv("PINFEED_FAKE_CUDA", "fail=cudaSetDevice:1:2", 1);
        cuda = cuda_load(NULL, &fault);
        ck_assert_ptr_nonnull(cuda);
        error = cuda->cudaSetDevice(0);
        ck_assert_uint_eq(error, 2);
        ck_assert_int_eq(cuda_fail(cuda, &fault, "cudaSetDevice", error), -EIO);
        ck_assert_str_eq(fault.text, "cudaSetDevice failed: cudaErrorMemoryAllocation (2), out of memory");
        ck_assert_uint_eq(cuda->cudaGetLastError(), CUDA_SUCCESS);
}
END_TEST

/* A real runtime without a driver, where there is one. */
START_TEST(no_driver) {
        struct fault fault;
        const struct cuda *cuda = cuda_load(NULL, &fault);
        cuda_error error;
        int devices;

        if (!cuda) {
                printf("# no CUDA runtime here: %s\n", fault.text);
                return;
        }
        error = cuda->cudaGetDeviceCount(&devices);
        printf("# %s, %d: %s\n", cuda->path, cuda->version, cuda->cudaGetErrorString(error));
        if (error == CUDA_SUCCESS)
                return;
        ck_assert_int_eq(cuda_fail(cuda, &fault, "cudaGetDeviceCount", error), -EIO);
        expect(fault.text, "cudaGetDeviceCount failed: cudaError");
        expect(fault.text, error == 35 ? "(35), CUDA driver version is insufficient" : "(");
}
END_TEST

int main(int argc, char **argv) {
        Suite *suite;
        TCase *tcase;

        if (argc > 3 && strcmp(argv[1], "look") == 0)
                return look(argv + 2);
        suite = suite_create("cuda");
        tcase = tcase_create("search");
        tcase_add_checked_fixture(tcase, make_directory, remove_directory);
        tcase_add_test(tcase, what_the_process_has_comes_first);
        tcase_add_test(tcase, the_newest_of_the_usual_names);
        tcase_add_test(tcase, where_wheels_and_conda_keep_it);
        tcase_add_test(tcase, nothing_is_found);
        tcase_add_test(tcase, another_call_looks_again);
        tcase_add_test(tcase, a_name_that_does_not_load_is_the_end);
        tcase_add_test(tcase, libraries_that_lack_calls);
        tcase_add_test(tcase, a_useless_copy_in_the_process);
        tcase_add_test(tcase, versions_that_are_too_old);
        tcase_add_test(tcase, all_threads_get_the_same);
        tcase_add_test(tcase, loading_asks_for_no_device);
        tcase_add_test(tcase, a_failure_in_words);
        tcase_add_test(tcase, no_driver);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
