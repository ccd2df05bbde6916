/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The fake CUDA runtime notices each thing that a client must not do. What is not noticed here would be
 * passed by every test that relies on it. */

#include "tests/support/run.h"
#include "tests/unit/fake-cudart-client.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the source of a copy ---- */

START_TEST(a_source_that_changed_is_noticed) {
        make(BYTES);
        fake_cuda_hold();
        ok(copy(BYTES));
        host[BYTES - 1]++;
        fake_cuda_go();
        ok(cudaStreamSynchronize(stream));
        expect_violation("changed before the copy of them had run");
}
END_TEST

/* By samples, which what writes a whole slot cannot miss; `hash` makes it exact. */
START_TEST(a_large_source_that_changed_is_noticed) {
        make(LARGE);
        fake_cuda_hold();
        ok(copy(LARGE));
        memset(host + LARGE / 2, 2, LARGE / 100);
        fake_cuda_go();
        ok(cudaStreamSynchronize(stream));
        expect_violation("changed before the copy of them had run");
}
END_TEST

START_TEST(a_byte_of_a_large_source_is_noticed_when_asked_for) {
        fake_cuda_set("hash=1G");
        make(LARGE);
        fake_cuda_hold();
        ok(copy(LARGE));
        host[LARGE / 2 + 1000]++;
        fake_cuda_go();
        ok(cudaStreamSynchronize(stream));
        expect_violation("changed before the copy of them had run");
}
END_TEST

START_TEST(an_unregistered_source_is_noticed) {
        make(BYTES);
        fake_cuda_hold();
        ok(copy(BYTES));
        ok(cudaHostUnregister(host));
        expect_violation("while queued copies need it: 1");
        fake_cuda_go();
        ok(cudaStreamSynchronize(stream));
        ck_assert_ptr_nonnull(strstr(fake_cuda_violation(1), "were not page-locked when the copy ran"));
}
END_TEST

START_TEST(a_source_that_is_unregistered_meanwhile_is_noticed) {
        fake_cuda_set("delay_us=200000");
        make(BYTES);
        ok(copy(BYTES));
        while (figures().copies_begun == 0)
                usleep(100);
        ok(cudaHostUnregister(host));
        expect_violation("while queued copies need it: 1");
        ok(cudaStreamSynchronize(stream));
        ck_assert_ptr_nonnull(strstr(fake_cuda_violation(1), "were not page-locked until the copy had run"));
}
END_TEST

START_TEST(an_unmapped_source_is_noticed) {
        make(BYTES);
        fake_cuda_hold();
        ok(copy(BYTES));
        mmap(host + PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); /* stays a hole */
        fake_cuda_go();
        ok(cudaStreamSynchronize(stream));
        expect_violation("were not mapped when the copy ran");
}
END_TEST

START_TEST(freed_page_locked_memory_is_noticed) {
        make_pageable(PAGE);
        munmap(host, PAGE);
        ok(cudaHostAlloc((void **)&host, PAGE, CUDA_HOST_ALLOC_PORTABLE));
        fake_cuda_set("delay_us=20000");
        ok(copy(PAGE));
        ok(cudaFreeHost(host));
        expect_violation("cudaFreeHost");
}
END_TEST

START_TEST(a_copy_across_registrations_is_refused) {
        make(PAGE * 2);
        ok(cudaHostUnregister(host));
        ok(cudaHostRegister(host, PAGE, 0));
        fails(copy(2 * PAGE), FAKE_CUDA_INVALID_VALUE); /* half of it is pageable */
        ok(cudaHostRegister(host + PAGE, PAGE, 0));
        fails(copy(2 * PAGE), FAKE_CUDA_INVALID_VALUE);
        ck_assert_ptr_nonnull(strstr(fake_cuda_violation(1), "goes across the border"));
        fake_cuda_set("across=1");
        ok(copy(2 * PAGE));
        ok(cudaStreamSynchronize(stream));
        ck_assert_ptr_null(fake_cuda_violation(2));
}
END_TEST

START_TEST(a_copy_beyond_device_memory_is_refused) {
        make(2 * PAGE);
        fails(cudaMemcpyAsync(device + PAGE, host, 2 * PAGE, CUDA_MEMCPY_HOST_TO_DEVICE, stream),
              FAKE_CUDA_INVALID_VALUE);
        expect_violation("goes beyond the end of device memory");
}
END_TEST

START_TEST(a_copy_of_another_kind_is_refused) {
        make(PAGE);
        fails(cudaMemcpyAsync(host, device, PAGE, CUDA_MEMCPY_HOST_TO_DEVICE, stream),
              FAKE_CUDA_INVALID_VALUE);
        expect_violation("a copy of the kind 1");
}
END_TEST

/* ---- registrations ---- */

START_TEST(zero_bytes_are_noticed) {
        make(PAGE);
        fails(cudaHostRegister(host + PAGE, 0, 0), FAKE_CUDA_INVALID_VALUE);
        expect_violation("cudaHostRegister of 0 bytes");
}
END_TEST

START_TEST(overlaps_are_noticed) {
        make(2 * PAGE);
        fails(cudaHostRegister(host + PAGE, PAGE, 0), FAKE_CUDA_ALREADY_REGISTERED);
        expect_violation("known already");
}
END_TEST

START_TEST(unknown_pointers_are_noticed) {
        make(2 * PAGE);
        fails(cudaHostUnregister(host + PAGE), FAKE_CUDA_NOT_REGISTERED);
        expect_violation("which is not registered");
}
END_TEST

/* Far below what is mapped next, by a sanitizer for one, which would come to lie in the hole. */
START_TEST(what_is_not_mapped_is_noticed) {
        uint8_t *p = mmap((void *)UINT64_C(0x700000000000), 4 * PAGE, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        ck_assert_ptr_ne(p, MAP_FAILED);
        munmap(p + 2 * PAGE, PAGE);
        fails(cudaHostRegister(p, 4 * PAGE, 0), FAKE_CUDA_INVALID_VALUE);
        expect_violation("which are not all mapped");
}
END_TEST

START_TEST(what_is_read_only_is_registered_as_such) {
        uint8_t *p = map(2 * PAGE, PROT_READ, MAP_SHARED);

        fails(cudaHostRegister(p, PAGE, CUDA_HOST_REGISTER_READ_ONLY), FAKE_CUDA_NOT_SUPPORTED);
        fake_cuda_set("read_only=1");
        ok(cudaHostRegister(p, PAGE, CUDA_HOST_REGISTER_READ_ONLY));
        ck_assert_ptr_null(fake_cuda_violation(0));
        fails(cudaHostRegister(p + PAGE, PAGE, 0), FAKE_CUDA_INVALID_VALUE);
        expect_violation("which may not be written");
}
END_TEST

/* At an address, or NULL: anywhere. */
static void *map_file(void *address, int flags) {
        char path[] = "/tmp/pinfeed-test-XXXXXX";
        int fd = mkstemp(path);
        void *p;

        ck_assert_int_ge(fd, 0);
        unlink(path);
        ck_assert_int_eq(ftruncate(fd, 2 * PAGE), 0);
        p = mmap(address, 2 * PAGE, PROT_READ | PROT_WRITE, flags | (address ? MAP_FIXED : 0), fd, 0);
        ck_assert_ptr_ne(p, MAP_FAILED);
        close(fd);
        return p;
}

START_TEST(a_private_mapping_of_a_file_is_noticed) {
        fails(cudaHostRegister(map_file(NULL, MAP_PRIVATE), PAGE, 0), FAKE_CUDA_INVALID_VALUE);
        expect_violation("private mapping of a file");
}
END_TEST

START_TEST(what_was_unmapped_is_noticed) {
        uint8_t *p = map_file(NULL, MAP_SHARED);

        ok(cudaHostRegister(p + PAGE, PAGE, 0));
        munmap(p, 2 * PAGE);
        ok(cudaHostUnregister(p + PAGE));
        expect_violation("were unmapped while they were registered");
}
END_TEST

START_TEST(what_was_replaced_is_noticed) {
        uint8_t *p = map_file(NULL, MAP_SHARED);

        ok(cudaHostRegister(p, 2 * PAGE, 0));
        ck_assert_ptr_eq(map_file(p, MAP_SHARED), p);
        ok(cudaHostUnregister(p));
        expect_violation("were unmapped while they were registered");
}
END_TEST

/* ---- handles, threads, processes ---- */

START_TEST(an_event_of_another_device) {
        cuda_event event;

        fake_cuda_set("devices=2");
        make(PAGE);
        ok(cudaSetDevice(1));
        ok(cudaEventCreateWithFlags(&event, CUDA_EVENT_DISABLE_TIMING));
        fails(cudaEventRecord(event, stream), FAKE_CUDA_INVALID_HANDLE);
        expect_violation("an event of device 1 in a stream of device 0");
}
END_TEST

START_TEST(handles_that_are_none) {
        cuda_event event;

        make(PAGE);
        ok(cudaEventCreateWithFlags(&event, CUDA_EVENT_DISABLE_TIMING));
        ok(cudaEventDestroy(event));
        fails(cudaEventQuery(event), FAKE_CUDA_INVALID_HANDLE);
        fails(cudaEventDestroy(event), FAKE_CUDA_INVALID_HANDLE);
        ok(cudaStreamDestroy(stream));
        fails(copy(PAGE), FAKE_CUDA_INVALID_HANDLE);
        ck_assert_ptr_nonnull(strstr(fake_cuda_violation(0), "cudaEventQuery"));
        ck_assert_ptr_nonnull(strstr(fake_cuda_violation(1), "cudaEventDestroy"));
        ck_assert_ptr_nonnull(strstr(fake_cuda_violation(2), "which does not exist"));
}
END_TEST

static void call_a_call(void *data) {
        ck_assert_uint_eq(cudaEventQuery(NULL), FAKE_CUDA_NOT_PERMITTED);
}

START_TEST(a_function_calls_nothing) {
        make_pageable(PAGE);
        ok(cudaLaunchHostFunc(stream, call_a_call, NULL));
        ok(cudaStreamSynchronize(stream));
        expect_violation("cudaEventQuery was called by a function that cudaLaunchHostFunc had queued");
}
END_TEST

START_TEST(a_stream_that_is_captured) {
        cuda_graph graph;

        make(PAGE);
        ok(cudaStreamBeginCapture(stream, FAKE_CUDA_CAPTURE_RELAXED));
        fails(copy(PAGE), FAKE_CUDA_CAPTURE_UNSUPPORTED);
        expect_violation("while it is captured");
        ok(cudaStreamEndCapture(stream, &graph));
}
END_TEST

static cuda_event asked;

static void *ask_from_thread(void *mode) {
        int wanted = *(int *)mode;

        ok(cudaThreadExchangeStreamCaptureMode(&wanted));
        ck_assert_int_eq(wanted, FAKE_CUDA_CAPTURE_GLOBAL);
        *(int *)mode = (int)cudaEventQuery(asked);
        return NULL;
}

/* What a thread that polls events does to a capture that goes on elsewhere. */
START_TEST(another_threads_query_spoils_a_capture) {
        cuda_graph graph;
        pthread_t id;
        int polite = FAKE_CUDA_CAPTURE_THREAD_LOCAL, rude = FAKE_CUDA_CAPTURE_GLOBAL;

        make(PAGE);
        ok(cudaEventCreateWithFlags(&asked, 0));
        ok(cudaStreamBeginCapture(stream, FAKE_CUDA_CAPTURE_GLOBAL));
        pthread_create(&id, NULL, ask_from_thread, &polite);
        pthread_join(id, NULL);
        ck_assert_int_eq(polite, CUDA_SUCCESS);
        ok(cudaStreamEndCapture(stream, &graph));
        ck_assert_ptr_null(fake_cuda_violation(0));

        ok(cudaStreamBeginCapture(stream, FAKE_CUDA_CAPTURE_GLOBAL));
        pthread_create(&id, NULL, ask_from_thread, &rude);
        pthread_join(id, NULL);
        ck_assert_int_eq(rude, FAKE_CUDA_CAPTURE_UNSUPPORTED);
        expect_violation("cudaEventQuery was called while a stream was being captured");
        fails(cudaStreamEndCapture(stream, &graph), FAKE_CUDA_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(a_call_in_a_forks_child_is_noticed) {
        int status, n;
        pid_t child;

        make(PAGE);
        child = fork();
        if (child == 0)
                _exit(cudaGetDeviceCount(&n) == FAKE_CUDA_NOT_INITIALIZED ? 0 : 1);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
        expect_violation("cudaGetDeviceCount was called in a fork's child");
}
END_TEST

START_TEST(what_is_left_is_noticed) {
        cuda_event event;
        void *locked;

        make(PAGE);
        ok(cudaHostAlloc(&locked, PAGE, 0));
        ok(cudaEventCreateWithFlags(&event, 0));
        fake_cuda_hold();
        ok(copy(PAGE));
        ck_assert_uint_eq(fake_cuda_finish(), 6);
        ck_assert_str_eq(fake_cuda_violation(0), "left at the end: 1 registrations");
        ck_assert_str_eq(fake_cuda_violation(5), "left at the end: 1 copies that had not run");
        ck_assert_uint_eq(fake_cuda_finish(), 6);
}
END_TEST

static void add_source_of_a_copy(Suite *suite) {
        TCase *tcase = tcase_create("the source of a copy");

        tcase_add_test(tcase, a_source_that_changed_is_noticed);
        tcase_add_test(tcase, a_large_source_that_changed_is_noticed);
        tcase_add_test(tcase, a_byte_of_a_large_source_is_noticed_when_asked_for);
        tcase_add_test(tcase, an_unregistered_source_is_noticed);
        tcase_add_test(tcase, a_source_that_is_unregistered_meanwhile_is_noticed);
        tcase_add_test(tcase, an_unmapped_source_is_noticed);
        tcase_add_test(tcase, freed_page_locked_memory_is_noticed);
        tcase_add_test(tcase, a_copy_across_registrations_is_refused);
        tcase_add_test(tcase, a_copy_beyond_device_memory_is_refused);
        tcase_add_test(tcase, a_copy_of_another_kind_is_refused);
        suite_add_tcase(suite, tcase);
}

static void add_registrations(Suite *suite) {
        TCase *tcase = tcase_create("registrations");

        tcase_add_test(tcase, zero_bytes_are_noticed);
        tcase_add_test(tcase, overlaps_are_noticed);
        tcase_add_test(tcase, unknown_pointers_are_noticed);
        tcase_add_test(tcase, what_is_not_mapped_is_noticed);
        tcase_add_test(tcase, what_is_read_only_is_registered_as_such);
        tcase_add_test(tcase, a_private_mapping_of_a_file_is_noticed);
        tcase_add_test(tcase, what_was_unmapped_is_noticed);
        tcase_add_test(tcase, what_was_replaced_is_noticed);
        suite_add_tcase(suite, tcase);
}

static void add_handles(Suite *suite) {
        TCase *tcase = tcase_create("handles, threads, processes");

        tcase_add_test(tcase, an_event_of_another_device);
        tcase_add_test(tcase, handles_that_are_none);
        tcase_add_test(tcase, a_function_calls_nothing);
        tcase_add_test(tcase, a_stream_that_is_captured);
        tcase_add_test(tcase, another_threads_query_spoils_a_capture);
        tcase_add_test(tcase, a_call_in_a_forks_child_is_noticed);
        tcase_add_test(tcase, what_is_left_is_noticed);
        suite_add_tcase(suite, tcase);
}

int main(void) {
        Suite *suite = suite_create("fake-cudart-checks");

        add_source_of_a_copy(suite);
        add_registrations(suite);
        add_handles(suite);
        return run_suite(suite);
}
