/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The fake CUDA runtime does what a runtime does, late and in order, and what it is told. What it notices of
 * a client is the matter of test-fake-cudart-checks.c. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/unit/fake-cudart-client.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- copies ---- */

START_TEST(a_copy_runs_late_and_in_order) {
        cuda_event event;

        make(BYTES);
        ok(cudaEventCreateWithFlags(&event, CUDA_EVENT_DISABLE_TIMING));
        ok(cudaEventQuery(event)); /* never recorded */
        fake_cuda_hold();
        ok(copy(BYTES));
        ok(cudaEventRecord(event, stream));
        fails(cudaEventQuery(event), CUDA_ERROR_NOT_READY);
        fails(cudaGetLastError(), CUDA_ERROR_NOT_READY);
        ok(cudaGetLastError());
        fails(cudaStreamQuery(stream), CUDA_ERROR_NOT_READY);
        ck_assert(device_holds(0xdb, BYTES)); /* the poison */
        fake_cuda_go();
        ok(cudaEventSynchronize(event));
        ck_assert(device_holds(1, BYTES));
        ok(cudaEventQuery(event));
        ok(cudaEventDestroy(event));
        ok(cudaHostUnregister(host));
        unmake();
        expect_none();
        ck_assert_uint_eq(figures().copies_done, 1);
        ck_assert_uint_eq(figures().bytes_done, BYTES);
        ck_assert_uint_eq(figures().pageable, 0);
}
END_TEST

START_TEST(copies_are_let_through_one_by_one) {
        make(2 * PAGE);
        fake_cuda_hold();
        for (int i = 0; i < 3; i++)
                ok(copy(PAGE));
        for (unsigned i = 1; i <= 3; i++) {
                fake_cuda_let(1);
                while (figures().copies_done < i)
                        usleep(100);
                usleep(2000);
                ck_assert_uint_eq(figures().copies_done, i);
        }
        fake_cuda_go();
        ok(cudaHostUnregister(host));
        unmake();
        expect_none();
}
END_TEST

START_TEST(a_delay_is_not_the_callers) {
        uint64_t began;

        make(PAGE);
        fake_cuda_set("delay_us=20000");
        began = clock_ns();
        ok(copy(PAGE));
        ok(cudaStreamSynchronize(stream));
        ck_assert_uint_ge(clock_ns() - began, 20 * NS_PER_MS);
        fake_cuda_set("delay_us=900000000");
        ok(copy(PAGE));
        fails(cudaStreamQuery(stream), CUDA_ERROR_NOT_READY);
}
END_TEST

START_TEST(a_pageable_source_is_staged_at_once) {
        make_pageable(BYTES);
        fake_cuda_hold();
        ok(copy(BYTES));
        memset(host, 2, BYTES);
        munmap(host, BYTES);
        fake_cuda_go();
        ok(cudaStreamSynchronize(stream));
        ck_assert(device_holds(1, BYTES));
        unmake();
        expect_none();
        ck_assert_uint_eq(figures().pageable, 1);
        ck_assert_uint_eq(figures().pageable_bytes, BYTES);
}
END_TEST

START_TEST(bytes_come_back) {
        uint8_t back[PAGE];

        make(BYTES);
        memset(host + PAGE, 7, PAGE);
        ok(copy(BYTES));
        ok(cudaStreamSynchronize(stream));
        ok(cudaMemcpy(back, device + PAGE, PAGE, FAKE_CUDA_DEVICE_TO_HOST));
        ck_assert_int_eq(back[0], 7);
        ck_assert_int_eq(back[PAGE - 1], 7);
        ok(cudaMemsetAsync(device, 9, PAGE, stream));
        ok(cudaMemcpyAsync(back, device, PAGE, FAKE_CUDA_BY_ADDRESS, stream)); /* pageable: waits */
        ck_assert_int_eq(back[0], 9);
        ok(cudaMemcpyAsync(host, device, PAGE, FAKE_CUDA_DEVICE_TO_HOST, stream));
        ok(cudaDeviceSynchronize());
        ck_assert_int_eq(host[PAGE - 1], 9);
        ok(cudaMemcpyAsync(device + PAGE, device, PAGE, FAKE_CUDA_DEVICE_TO_DEVICE, stream));
        ok(cudaStreamSynchronize(stream));
        ck_assert(device_holds(9, 2 * PAGE));
        ok(cudaHostUnregister(host));
        unmake();
        expect_none();
}
END_TEST

START_TEST(the_default_stream_waits_for_others_and_they_for_it) {
        cuda_stream blocking;

        make(BYTES);
        ok(cudaStreamCreate(&blocking));
        fake_cuda_hold();
        ok(cudaMemcpyAsync(device, host, PAGE, CUDA_MEMCPY_HOST_TO_DEVICE, blocking));
        ok(cudaMemsetAsync(device, 8, PAGE, NULL));       /* after that copy */
        ok(cudaMemsetAsync(device, 9, 64, blocking));     /* after the default stream */
        ok(cudaMemsetAsync(device + PAGE, 5, 1, stream)); /* after nobody */
        ok(cudaStreamSynchronize(stream));
        fails(cudaStreamQuery(NULL), CUDA_ERROR_NOT_READY);
        fake_cuda_go();
        ok(cudaStreamSynchronize(blocking));
        ck_assert(device_holds(9, 64));
        ck_assert_int_eq(((const uint8_t *)fake_cuda_see(device))[64], 8);
        ok(cudaStreamDestroy(blocking));
        ok(cudaHostUnregister(host));
        unmake();
        expect_none();
}
END_TEST

START_TEST(a_stream_waits_for_an_event_of_another) {
        cuda_event event, end;
        cuda_stream other;
        float ms;

        make(BYTES);
        ok(cudaEventCreate(&event));
        ok(cudaEventCreate(&end));
        ok(cudaStreamCreateWithFlags(&other, FAKE_CUDA_STREAM_NON_BLOCKING));
        fake_cuda_hold();
        ok(copy(BYTES));
        ok(cudaEventRecord(event, stream));
        ok(cudaStreamWaitEvent(other, event, 0));
        ok(cudaMemsetAsync(device, 3, BYTES, other));
        ok(cudaEventRecord(end, other));
        fails(cudaEventElapsedTime(&ms, event, end), CUDA_ERROR_NOT_READY);
        fake_cuda_go();
        ok(cudaStreamSynchronize(other));
        ck_assert(device_holds(3, BYTES));
        ok(cudaEventElapsedTime(&ms, event, end));
        ck_assert_float_ge(ms, 0);
        ok(cudaEventDestroy(event));
        ok(cudaEventDestroy(end));
        ok(cudaStreamDestroy(other));
        ok(cudaHostUnregister(host));
        unmake();
        expect_none();
}
END_TEST

static void count_up(void *data) {
        ++*(int *)data;
}

START_TEST(a_function_runs_in_its_turn) {
        int n = 0;

        make_pageable(PAGE);
        ok(cudaLaunchHostFunc(stream, count_up, &n));
        ok(cudaStreamSynchronize(stream));
        ck_assert_int_eq(n, 1);
        unmake();
        munmap(host, PAGE);
        expect_none();
}
END_TEST

/* ---- memory ---- */

START_TEST(the_host_cannot_touch_device_memory) {
        int status;
        pid_t child;

        make_pageable(PAGE);
        child = fork();
        if (child == 0) {
                signal(SIGSEGV, SIG_DFL);
                _exit(device[0]);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 0xdb);
        unmake();
        munmap(host, PAGE);
        expect_none();
}
END_TEST

START_TEST(device_memory_has_an_end) {
        size_t room, total;
        void *first, *second;

        fake_cuda_set("memory=64K");
        ok(cudaMalloc(&first, 48 << 10));
        ok(cudaMemGetInfo(&room, &total));
        ck_assert_uint_eq(room, 16 << 10);
        ck_assert_uint_eq(total, 64 << 10);
        fails(cudaMalloc(&second, 32 << 10), FAKE_CUDA_OUT_OF_MEMORY);
        ok(cudaFree(first));
        ok(cudaMalloc(&second, 32 << 10));
        ok(cudaFree(second));
        ok(cudaFree(NULL));
        expect_none();
        fails(cudaFree(second), FAKE_CUDA_INVALID_VALUE);
        expect_violation("cudaFree");
}
END_TEST

/* Protecting what is registered is not what a registration is about. */
START_TEST(a_registration_outlives_protection) {
        make(4 * PAGE);
        ck_assert_int_eq(mprotect(host, 2 * PAGE, PROT_READ), 0);
        ok(copy(4 * PAGE));
        ok(cudaStreamSynchronize(stream));
        ok(cudaHostUnregister(host));
        unmake();
        expect_none();
}
END_TEST

START_TEST(limits_of_registrations) {
        uint8_t *p = map(8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);

        fake_cuda_set("register_max=8K registered_max=16K registrations_max=2");
        fails(cudaHostRegister(p, 3 * PAGE, 0), FAKE_CUDA_OUT_OF_MEMORY);
        ok(cudaHostRegister(p, PAGE, 0));
        ok(cudaHostRegister(p + PAGE, PAGE, 0));
        fails(cudaHostRegister(p + 2 * PAGE, PAGE, 0), FAKE_CUDA_OUT_OF_MEMORY);
        fake_cuda_set("registrations_max=9");
        ok(cudaHostRegister(p + 2 * PAGE, 2 * PAGE, 0));
        fails(cudaHostRegister(p + 4 * PAGE, PAGE, 0), FAKE_CUDA_OUT_OF_MEMORY);
        ck_assert_uint_eq(figures().registrations, 3);
        ck_assert_uint_eq(figures().registered_bytes, 4 * PAGE);
        for (int i = 0; i < 3; i++)
                ok(cudaHostUnregister(p + i * PAGE));
        ck_assert_uint_eq(figures().registrations_most, 3);
        ck_assert_uint_eq(figures().registrations_made, 3);
        ck_assert_uint_eq(figures().registered_bytes, 0);
        expect_none();
}
END_TEST

START_TEST(what_a_pointer_is) {
        struct {
                struct cuda_pointer_attributes attributes;
                uint8_t behind[8];
        } a = {.behind = "intact"};
        size_t old = offsetof(struct cuda_pointer_attributes, reserved);

        ck_assert_uint_eq(sizeof(a.attributes), 88);
        make(PAGE);
        ok(cudaPointerGetAttributes(&a.attributes, host + 5));
        ck_assert_uint_eq(a.attributes.type, FAKE_CUDA_MEMORY_HOST);
        ok(cudaPointerGetAttributes(&a.attributes, device));
        ck_assert_uint_eq(a.attributes.type, FAKE_CUDA_MEMORY_DEVICE);
        memset(&a.attributes, 0x55, sizeof(a.attributes));
        ok(cudaPointerGetAttributes(&a.attributes, &a));
        ck_assert_uint_eq(a.attributes.type, 0);
        ck_assert_uint_eq(((uint8_t *)&a)[sizeof(a.attributes) - 1], 0);
        fake_cuda_set("version=12060");
        memset(&a.attributes, 0x55, sizeof(a.attributes));
        ok(cudaPointerGetAttributes(&a.attributes, &a));
        ck_assert_uint_eq(((uint8_t *)&a)[old - 1], 0);
        ck_assert_uint_eq(((uint8_t *)&a)[old], 0x55);
        ck_assert_str_eq((char *)a.behind, "intact");
}
END_TEST

/* ---- devices ---- */

START_TEST(contexts_and_what_makes_them) {
        int n, value;

        fake_cuda_set("devices=3");
        ok(cudaRuntimeGetVersion(&value));
        ck_assert_int_eq(value, 13000);
        ok(cudaDriverGetVersion(&value));
        ok(cudaGetDeviceCount(&n));
        ck_assert_int_eq(n, 3);
        ok(cudaGetDevice(&n));
        ck_assert_int_eq(n, 0);
        ok(cudaDeviceGetAttribute(&value, CUDA_ATTRIBUTE_REGISTER_READ_ONLY, 2));
        ck_assert_int_eq(value, 0);
        fails(cudaDeviceGetAttribute(&value, CUDA_ATTRIBUTE_REGISTER_READ_ONLY, 3), FAKE_CUDA_INVALID_DEVICE);
        ck_assert_uint_eq(figures().contexts, 0);
        fails(cudaSetDevice(3), FAKE_CUDA_INVALID_DEVICE);
        ok(cudaSetDevice(1));
        ck_assert_uint_eq(figures().contexts, 1);
        ck_assert_str_eq(fake_cuda_context(1), "cudaSetDevice");
        ck_assert_ptr_null(fake_cuda_context(0));
        ck_assert_ptr_null(fake_cuda_context(2));
}
END_TEST

static void *call_from_thread(void *data) {
        pthread_setname_np(pthread_self(), "other");
        ok(cudaDeviceSynchronize());
        return NULL;
}

/* The current device is a thread's own, and 0 at first. */
START_TEST(a_context_by_another_thread) {
        pthread_t id;

        fake_cuda_set("devices=2 version=11080");
        ok(cudaSetDevice(1));
        ck_assert_uint_eq(figures().contexts, 0);
        ck_assert_int_eq(pthread_create(&id, NULL, call_from_thread, NULL), 0);
        pthread_join(id, NULL);
        ck_assert_str_eq(fake_cuda_context(0), "cudaDeviceSynchronize");
        ck_assert_ptr_null(fake_cuda_context(1));
        ck_assert_uint_eq(fake_cuda_calls("cudaDeviceSynchronize", "other"), 1);
        ck_assert_uint_eq(fake_cuda_calls(NULL, "other"), 1);
        ck_assert_uint_eq(fake_cuda_calls("cudaSetDevice", "other"), 0);
        ck_assert_uint_eq(fake_cuda_calls(NULL, NULL), 2);
        ok(cudaDeviceSynchronize());
        ck_assert_str_eq(fake_cuda_context(1), "cudaDeviceSynchronize");
}
END_TEST

START_TEST(no_driver_and_no_device) {
        int n;

        fake_cuda_set("driver=0");
        fails(cudaGetDeviceCount(&n), FAKE_CUDA_INSUFFICIENT_DRIVER);
        fails(cudaSetDevice(0), FAKE_CUDA_INSUFFICIENT_DRIVER);
        ok(cudaDriverGetVersion(&n));
        ck_assert_int_eq(n, 0);
        fake_cuda_set("driver=12080"); /* older than the runtime */
        fails(cudaGetDeviceCount(&n), FAKE_CUDA_INSUFFICIENT_DRIVER);
        fake_cuda_set("driver=13010 devices=0");
        fails(cudaGetDeviceCount(&n), FAKE_CUDA_NO_DEVICE);
        ck_assert_str_eq(cudaGetErrorName(FAKE_CUDA_NO_DEVICE), "cudaErrorNoDevice");
        ck_assert_str_eq(cudaGetErrorString(FAKE_CUDA_NO_DEVICE), "no CUDA-capable device is detected");
        ck_assert_uint_eq(figures().contexts, 0);
}
END_TEST

START_TEST(a_stream_is_captured) {
        cuda_stream blocking;
        cuda_graph graph;
        int status;

        make(PAGE);
        ok(cudaStreamCreate(&blocking));
        ok(cudaStreamIsCapturing(stream, &status));
        ck_assert_int_eq(status, CUDA_CAPTURE_NONE);
        ok(cudaStreamBeginCapture(stream, FAKE_CUDA_CAPTURE_GLOBAL));
        ok(cudaStreamIsCapturing(stream, &status));
        ck_assert_int_eq(status, 1);
        ok(cudaStreamIsCapturing(NULL, &status)); /* which has nothing to do with it */
        ok(cudaStreamEndCapture(stream, &graph));
        ok(copy(PAGE));
        ok(cudaStreamBeginCapture(blocking, FAKE_CUDA_CAPTURE_RELAXED));
        fails(cudaStreamIsCapturing(NULL, &status), FAKE_CUDA_CAPTURE_IMPLICIT);
}
END_TEST

/* ---- failures ---- */

START_TEST(a_call_fails_from_a_time_on) {
        make_pageable(PAGE);
        fake_cuda_set("fail=cudaHostRegister:3:2");
        for (int i = 0; i < 2; i++) {
                ok(cudaHostRegister(host, PAGE, 0));
                ok(cudaHostUnregister(host));
        }
        for (int i = 0; i < 2; i++)
                fails(cudaHostRegister(host, PAGE, 0), FAKE_CUDA_OUT_OF_MEMORY);
        fails(cudaGetLastError(), FAKE_CUDA_OUT_OF_MEMORY);
        ok(cudaGetLastError());
        fake_cuda_set("fail=none");
        ok(cudaHostRegister(host, PAGE, 0));
        ok(cudaHostUnregister(host));
        unmake();
        expect_none();
}
END_TEST

START_TEST(a_call_fails_once) {
        cuda_event event;

        fake_cuda_set("fail=cudaEventCreateWithFlags:1:719:1");
        fails(cudaEventCreateWithFlags(&event, 0), FAKE_CUDA_LAUNCH_FAILURE);
        ok(cudaEventCreateWithFlags(&event, 0));
        fails(cudaPeekAtLastError(), FAKE_CUDA_LAUNCH_FAILURE);
        ok(cudaEventDestroy(event));
        expect_none();
}
END_TEST

START_TEST(an_error_sticks) {
        cuda_event event;
        int n;

        make(PAGE);
        ok(cudaEventCreateWithFlags(&event, 0));
        fake_cuda_set("fail=cudaEventQuery:1:700:1:sticky");
        fails(cudaEventQuery(event), FAKE_CUDA_ILLEGAL_ADDRESS);
        for (int i = 0; i < 2; i++) {
                fails(cudaGetLastError(), FAKE_CUDA_ILLEGAL_ADDRESS);
                fails(copy(PAGE), FAKE_CUDA_ILLEGAL_ADDRESS);
                fails(cudaHostUnregister(host), FAKE_CUDA_ILLEGAL_ADDRESS);
        }
        ok(cudaGetDeviceCount(&n));
}
END_TEST

START_TEST(a_copy_fails_when_it_runs) {
        cuda_event event;

        make(PAGE);
        ok(cudaEventCreateWithFlags(&event, 0));
        fake_cuda_set("fail=execute:2:719");
        fake_cuda_hold();
        for (int i = 0; i < 3; i++)
                ok(copy(PAGE));
        fake_cuda_let(2); /* who waits for the third does not wait for ever */
        fails(cudaStreamSynchronize(stream), FAKE_CUDA_LAUNCH_FAILURE);
        fails(cudaEventRecord(event, stream), FAKE_CUDA_LAUNCH_FAILURE);
        fails(cudaEventQuery(event), FAKE_CUDA_LAUNCH_FAILURE);
        ck_assert_uint_eq(figures().copies_done, 1);
}
END_TEST

/* ---- settings and report ---- */

/* How a child ends that is told this, and then copies from nowhere. */
static int status_with(const char *settings) {
        int status;
        pid_t child;

        fflush(NULL);
        child = fork();
        if (child == 0) {
                ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
                fake_cuda_set(settings);
                _exit(cudaMemcpyAsync(&status, &child, 1, CUDA_MEMCPY_HOST_TO_DEVICE, NULL) == CUDA_SUCCESS);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        return status;
}

START_TEST(settings_that_are_not_understood) {
        const char *const bad[] = {"device=2",
                                   "devices",
                                   "devices=9",
                                   "devices=x",
                                   "fail=cudaNothing:1:2",
                                   "fail=cudaMalloc:0:2",
                                   "fail=cudaMalloc:1",
                                   "fail=cudaMalloc:1:2:1:stick"};

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                int status = status_with(bad[i]);

                ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s", bad[i]);
        }
        ck_assert_int_eq(status_with(""), 0);
}
END_TEST

START_TEST(a_violation_ends_the_program) {
        int status = status_with("abort=1");

        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
END_TEST

/* A program that is told by its environment. */
START_TEST(a_report_is_written) {
        char path[] = "/tmp/pinfeed-test-XXXXXX", settings[128];
        int fd = mkstemp(path), status;
        json_t *report;
        pid_t child;

        ck_assert_int_ge(fd, 0);
        child = fork();
        if (child == 0) {
                snprintf(settings, sizeof(settings), "version=12060 devices=2 report=%s", path);
                fake_cuda_set(settings);
                make_pageable(PAGE);
                ok(cudaSetDevice(1));
                exit(0);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        report = json_load_file(path, 0, NULL);
        unlink(path);
        close(fd);
        ck_assert_ptr_nonnull(report);
        ck_assert_int_eq(json_integer_value(json_object_get(report, "version")), 12060);
        ck_assert_int_eq(json_integer_value(json_object_get(report, "pid")), child);
        ck_assert_int_eq((int)json_object_size(json_object_get(report, "devices")), 2);
        ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(report, "calls"), "cudaMalloc")),
                         1);
        ck_assert_int_eq((int)json_object_size(json_object_get(report, "threads")), 1);
        ck_assert_int_eq(json_integer_value(json_object_get(report, "streams")), 1);
        ck_assert_int_eq((int)json_array_size(json_object_get(report, "violations")), 2);
        json_decref(report);
}
END_TEST

static void add_copies(Suite *suite) {
        TCase *tcase = tcase_create("copies");

        tcase_add_test(tcase, a_copy_runs_late_and_in_order);
        tcase_add_test(tcase, copies_are_let_through_one_by_one);
        tcase_add_test(tcase, a_delay_is_not_the_callers);
        tcase_add_test(tcase, a_pageable_source_is_staged_at_once);
        tcase_add_test(tcase, bytes_come_back);
        tcase_add_test(tcase, the_default_stream_waits_for_others_and_they_for_it);
        tcase_add_test(tcase, a_stream_waits_for_an_event_of_another);
        tcase_add_test(tcase, a_function_runs_in_its_turn);
        suite_add_tcase(suite, tcase);
}

static void add_memory(Suite *suite) {
        TCase *tcase = tcase_create("memory");

        tcase_add_test(tcase, the_host_cannot_touch_device_memory);
        tcase_add_test(tcase, device_memory_has_an_end);
        tcase_add_test(tcase, a_registration_outlives_protection);
        tcase_add_test(tcase, limits_of_registrations);
        tcase_add_test(tcase, what_a_pointer_is);
        suite_add_tcase(suite, tcase);
}

static void add_devices(Suite *suite) {
        TCase *tcase = tcase_create("devices");

        tcase_add_test(tcase, contexts_and_what_makes_them);
        tcase_add_test(tcase, a_context_by_another_thread);
        tcase_add_test(tcase, no_driver_and_no_device);
        tcase_add_test(tcase, a_stream_is_captured);
        suite_add_tcase(suite, tcase);
}

static void add_failures(Suite *suite) {
        TCase *tcase = tcase_create("failures");

        tcase_add_test(tcase, a_call_fails_from_a_time_on);
        tcase_add_test(tcase, a_call_fails_once);
        tcase_add_test(tcase, an_error_sticks);
        tcase_add_test(tcase, a_copy_fails_when_it_runs);
        suite_add_tcase(suite, tcase);
}

static void add_settings_and_report(Suite *suite) {
        TCase *tcase = tcase_create("settings and report");

        tcase_add_test(tcase, settings_that_are_not_understood);
        tcase_add_test(tcase, a_violation_ends_the_program);
        tcase_add_test(tcase, a_report_is_written);
        suite_add_tcase(suite, tcase);
}

int main(void) {
        Suite *suite = suite_create("fake-cudart");

        add_copies(suite);
        add_memory(suite);
        add_devices(suite);
        add_failures(suite);
        add_settings_and_report(suite);
        return run_suite(suite);
}
