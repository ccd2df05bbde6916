/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases J5, J6, J7 and J9: copies to a GPU that run late, from slots that are used again at once.
 *
 * Copies are late in two ways. With a delay each waits for its turn a little, as on a busy device; and they
 * can be held, all of them, until the test has seen what happens meanwhile. What is registered, how and how
 * long, is in test-J-pinning.c. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum {
        ROUNDS = 10000,
        SOME = 200,
        SETTLE_MS = 50,
        LARGE = 64 << 20,
};

static const struct gpu_shape tight = {.samples = 1000, .batch_size = 8, .bytes = 256, .slots = 2};
static const struct gpu_shape roomy = {.samples = 1000, .batch_size = 8, .bytes = 1024, .slots = 8};

static void expect_delivered(struct harness *h, double n) {
        usleep(SETTLE_MS * 1000);
        ck_assert_double_eq(harness_status_number(h, "pipelines/ramp/batches_delivered"), n);
}

/* ---- J6, J7: the slot is used again before the copy is done ---- */

static void run_rounds(uint64_t rounds, const char *fake, uint32_t pin) {
        struct harness *h = gpu_start(tight);
        struct gpu gpu;

        fake_cuda_set(fake);
        gpu_open(&gpu, h, "cuda:0", pin);
        gpu_rounds(&gpu, harness_quick() ? rounds / 10 : rounds);
        gpu_look(&gpu);
        if (pin == PINFEED_PIN_REQUIRE) {
                ck_assert_str_eq(gpu.info.map, "pinned");
                ck_assert_uint_eq(gpu.info.slots_registered, 2);
                ck_assert_uint_eq(gpu.info.copies, 0);
        } else {
                ck_assert_str_eq(gpu.info.map, "read-only");
                ck_assert_uint_eq(gpu.info.copies, gpu.rounds * 8 * (256 + 8));
        }
        ck_assert_uint_eq(gpu_figures().pageable, 0);
        gpu_close(&gpu);
        gpu_finish(h);
}

START_TEST(J6_a_ring_of_two_slots) {
        run_rounds(ROUNDS, "delay_us=20", PINFEED_PIN_REQUIRE);
}
END_TEST

START_TEST(J7_a_ring_of_two_slots_and_a_busy_device) {
        run_rounds(SOME, "delay_us=2000", PINFEED_PIN_REQUIRE);
}
END_TEST

START_TEST(J6_through_buffers) {
        run_rounds(SOME, "delay_us=2000", PINFEED_PIN_NEVER);
}
END_TEST

/* Batches that are not copied go by until the first one's struct comes again, with other rows. */
START_TEST(J6_a_buffer_with_rows_of_long_ago) {
        struct harness *h = gpu_start(tight);
        struct pinfeed_batch *first, *batch;
        struct gpu gpu;

        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_NEVER);
        first = gpu_take(&gpu);
        gpu_release(first);
        while ((batch = gpu_next(&gpu)) != first)
                gpu_release(batch);
        ck_assert_int_gt(gpu_copy(&gpu, batch, &gpu.places[2]), 0);
        gpu_release(batch);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* It takes the bytes' address, queues a copy of its own and releases: what DataLoader users write. */
START_TEST(J6_a_client_that_releases_too_early_is_caught) {
        struct harness *h = gpu_start(tight);
        struct pinfeed_batch *batch;
        struct gpu gpu;
        unsigned i = 0;

        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        fake_cuda_hold();
        batch = gpu_next(&gpu);
        gpu_must(cudaMemcpyAsync(gpu.places[0].fields[GPU_DATA], pinfeed_batch_data(batch, 0, GPU_DATA, NULL),
                                 8 * 256, CUDA_MEMCPY_HOST_TO_DEVICE, gpu.stream));
        gpu_release(batch);
        for (int k = 0; k < 4; k++)
                gpu_release(gpu_next(&gpu));
        fake_cuda_go();
        gpu_must(cudaStreamSynchronize(gpu.stream));
        gpu_close(&gpu);
        while (fake_cuda_violation(i) && !strstr(fake_cuda_violation(i), "changed before the copy"))
                i++;
        ck_assert_msg(fake_cuda_violation(i), "%u other violations", i);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- who ends the lease ---- */

START_TEST(J6_a_release_does_not_end_the_lease) {
        struct harness *h = gpu_start(tight);
        struct pinfeed_batch *batch;
        struct gpu gpu;

        gpu_open_for_one(&gpu, h);
        fake_cuda_hold();
        batch = gpu_take(&gpu);
        gpu_release(batch);
        ck_assert_int_eq(pinfeed_batch_release(batch), -EALREADY);
        ck_assert_uint_eq(pinfeed_batch_rows(batch), 0);
        ck_assert_int_eq(pinfeed_batch_copy_async(batch, 0, gpu.places[1].fields[0], gpu.stream), -EINVAL);
        expect_delivered(h, 1);
        fake_cuda_go();
        gpu_wait_delivered(h, 2); /* this thread calls nothing, as one that validates */
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* Both slots are still being read: there is nothing wrong with that, and nothing to hand out either. */
START_TEST(J6_next_waits_for_copies) {
        struct harness *h = gpu_start(tight);
        struct pinfeed_batch *batch;
        struct gpu gpu;

        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        fake_cuda_hold();
        gpu_release(gpu_take(&gpu));
        gpu_release(gpu_take(&gpu));
        ck_assert_int_eq(pinfeed_next_timeout(gpu.job, &batch, 0), -EAGAIN);
        ck_assert_int_eq(pinfeed_next_timeout(gpu.job, &batch, SETTLE_MS), -ETIMEDOUT);
        harness_expect_words(pinfeed_error(gpu.job), "copies of 2 batches to cuda:0 have not finished");
        fake_cuda_go();
        gpu_rounds(&gpu, 4);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

START_TEST(J6_batches_that_are_held_are_busy_all_the_same) {
        struct harness *h = gpu_start(tight);
        struct pinfeed_batch *batches[2], *batch;
        struct gpu gpu;

        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        batches[0] = gpu_take(&gpu);
        batches[1] = gpu_take(&gpu);
        gpu_check_all(&gpu);
        ck_assert_int_eq(pinfeed_next(gpu.job, &batch), -EBUSY);
        gpu_release(batches[0]);
        gpu_release(batches[1]);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* ---- releases in other threads ---- */

START_TEST(J6_released_by_another_thread) {
        struct gpu_handing handing;
        struct harness *h = gpu_start(roomy);
        struct pinfeed_attach attach = gpu_attach(h, "cuda:0", PINFEED_PIN_REQUIRE);
        struct gpu gpu;

        fake_cuda_set("delay_us=100");
        attach.max_held_batches = 4;
        gpu_open_with(&gpu, &attach);
        gpu_start_handing(&handing);
        gpu_hand_on(&handing, &gpu, 5 * SOME);
        gpu_end_handing(&handing);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

static void *release_later(void *data) {
        usleep(SETTLE_MS * 1000);
        gpu_release(data);
        return NULL;
}

/* The ring is full, and pinfeed_next waits, when another thread releases a batch whose copies have run. */
START_TEST(J6_released_while_next_waits) {
        struct harness *h = gpu_start(tight);
        struct pinfeed_attach attach = gpu_attach(h, "cuda:0", PINFEED_PIN_REQUIRE);
        struct pinfeed_batch *first, *second;
        pthread_t thread;
        struct gpu gpu;

        if (_i)
                setenv("PINFEED_NO_THREAD", "1", 1);
        attach.max_held_batches = 3;
        gpu_open_with(&gpu, &attach);
        first = gpu_take(&gpu);
        second = gpu_take(&gpu);
        ck_assert_int_eq(pthread_create(&thread, NULL, release_later, first), 0);
        gpu_release(gpu_take(&gpu));
        pthread_join(thread, NULL);
        gpu_release(second);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* ---- no thread ---- */

START_TEST(J6_without_a_thread) {
        struct harness *h = gpu_start(tight);
        struct gpu gpu;

        setenv("PINFEED_NO_THREAD", "1", 1);
        fake_cuda_set("delay_us=200");
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        gpu_rounds(&gpu, SOME);
        ck_assert_uint_eq(fake_cuda_calls(NULL, "pinfeed-cuda"), 0);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

START_TEST(J6_dispatch_ends_leases_without_a_thread) {
        struct harness *h = gpu_start(tight);
        struct gpu gpu;

        setenv("PINFEED_NO_THREAD", "1", 1);
        gpu_open_for_one(&gpu, h);
        fake_cuda_hold();
        gpu_release(gpu_take(&gpu));
        ck_assert_int_eq(pinfeed_dispatch(gpu.job), 0);
        expect_delivered(h, 1);
        fake_cuda_go();
        gpu_check_all(&gpu);
        expect_delivered(h, 1); /* nobody has looked */
        ck_assert_int_eq(pinfeed_dispatch(gpu.job), 0);
        gpu_wait_delivered(h, 2);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* ---- the end ---- */

static void *let_go_soon(void *data) {
        usleep(SETTLE_MS * 1000);
        atomic_store((atomic_bool *)data, true);
        fake_cuda_go();
        return NULL;
}

/* One batch is released and one is not; of both the copies are under way. */
static void close_with_copies(bool threaded) {
        struct harness *h = gpu_start(tight);
        atomic_bool gone = false;
        pthread_t thread;
        struct gpu gpu;

        if (!threaded)
                setenv("PINFEED_NO_THREAD", "1", 1);
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        fake_cuda_hold();
        gpu_release(gpu_take(&gpu));
        gpu_take(&gpu);
        ck_assert_int_eq(pthread_create(&thread, NULL, let_go_soon, &gone), 0);
        gpu.job = pinfeed_close(gpu.job);
        ck_assert_msg(atomic_load(&gone), "pinfeed_close has not waited");
        ck_assert_uint_eq(gpu_figures().copies_done, 2 * GPU_FIELDS);
        ck_assert_uint_eq(gpu_figures().registrations, 0);
        pthread_join(thread, NULL);
        gpu_close(&gpu);
        gpu_finish(h);
}

START_TEST(J6_close_waits_for_copies) {
        close_with_copies(_i == 0);
}
END_TEST

/* ---- segments, streams, and what is refused ---- */

/* Batches of three rows in slots of eight; two ranks, and a padded tail. */
START_TEST(J6_batches_that_lie_in_several_slots) {
        struct harness *h =
                gpu_start((struct gpu_shape){.samples = 50, .batch_size = 8, .bytes = 300, .slots = 8});
        struct pinfeed_attach attach =
                gpu_attach(h, "cuda:0", _i % 2 ? PINFEED_PIN_NEVER : PINFEED_PIN_REQUIRE);
        struct gpu gpu;

        fake_cuda_set("delay_us=100");
        attach.batch_size = _i < 2 ? 3 : 12;
        attach.rank = 1;
        attach.world_size = 2;
        attach.last_batch = PINFEED_LAST_BATCH_PAD;
        gpu_open_with(&gpu, &attach);
        gpu_rounds(&gpu, 40);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* Each field by itself, on two streams, and one of them twice. */
START_TEST(J7_two_streams_for_one_batch) {
        struct harness *h = gpu_start(tight);
        cuda_stream second;
        struct gpu gpu;
        void *twice;

        fake_cuda_set("delay_us=300");
        gpu_must(cudaStreamCreateWithFlags(&second, FAKE_CUDA_STREAM_NON_BLOCKING));
        gpu_must(cudaMalloc(&twice, 8 * 256));
        gpu_open(&gpu, h, "cuda:0", _i ? PINFEED_PIN_NEVER : PINFEED_PIN_REQUIRE);
        for (int i = 0; i < SOME / 4; i++) {
                struct gpu_place *place = gpu_next_place(&gpu);
                struct pinfeed_batch *batch = gpu_next(&gpu);
                void *const *to = place->fields;

                ck_assert_int_eq(pinfeed_batch_copy_async(batch, GPU_DATA, to[GPU_DATA], gpu.stream),
                                 8 * 256);
                ck_assert_int_eq(pinfeed_batch_copy_async(batch, GPU_INDEX, to[GPU_INDEX], second), 8 * 8);
                ck_assert_int_eq(pinfeed_batch_copy_async(batch, GPU_DATA, twice, second), 8 * 256);
                gpu_must(cudaEventRecord(place->arrived, gpu.stream));
                gpu_must(cudaStreamWaitEvent(second, place->arrived, 0));
                gpu_expect(place, batch, second);
                gpu_release(batch);
        }
        gpu_look(&gpu);
        ck_assert_uint_eq(gpu.info.copies, _i ? gpu.rounds * 8 * (256 + 8) : 0); /* each field once */
        gpu_close(&gpu);
        gpu_must(cudaFree(twice));
        gpu_must(cudaStreamDestroy(second));
        gpu_finish(h);
}
END_TEST

/* While anybody looks whether copies have finished, which must not spoil the capture. */
START_TEST(J6_a_stream_that_is_being_captured) {
        struct harness *h = gpu_start(roomy);
        struct pinfeed_batch *batch;
        cuda_stream captured;
        cuda_graph graph;
        struct gpu gpu;

        if (_i)
                setenv("PINFEED_NO_THREAD", "1", 1);
        gpu_must(cudaStreamCreate(&captured));
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        gpu_rounds(&gpu, 2);
        gpu_check_all(&gpu);
        fake_cuda_hold();
        gpu_release(gpu_take(&gpu));
        batch = gpu_next(&gpu);
        gpu_must(cudaStreamBeginCapture(captured, FAKE_CUDA_CAPTURE_GLOBAL));
        ck_assert_int_eq(pinfeed_batch_copy_all_async(batch, gpu.places[0].fields, captured), -EBUSY);
        harness_expect_words(pinfeed_error(gpu.job), "captured into a graph");
        ck_assert_int_eq(pinfeed_batch_copy_all_async(batch, gpu.places[0].fields, NULL), -EBUSY);
        ck_assert_int_eq(pinfeed_dispatch(gpu.job), 0);
        usleep(SETTLE_MS * 1000);
        gpu_must(cudaStreamEndCapture(captured, &graph));
        fake_cuda_go();
        gpu_release(batch);
        gpu_must(cudaStreamDestroy(captured));
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

START_TEST(J9_another_device_is_current) {
        struct harness *h;
        struct pinfeed_batch *batch;
        struct gpu gpu;

        fake_cuda_set("devices=3");
        gpu_must(cudaSetDevice(1));
        h = gpu_start(tight);
        gpu_open(&gpu, h, "cuda:1", PINFEED_PIN_REQUIRE);
        batch = gpu_next(&gpu);
        gpu_must(cudaSetDevice(2));
        ck_assert_int_eq(pinfeed_batch_copy_async(batch, 0, gpu.places[0].fields[0], gpu.stream), -EXDEV);
        harness_expect_words(pinfeed_error(gpu.job), "is cuda:2, the job's is cuda:1: call cudaSetDevice(1)");
        gpu_must(cudaSetDevice(1));
        ck_assert_int_gt(gpu_copy(&gpu, batch, &gpu.places[0]), 0);
        gpu_release(batch);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* What a script without a GPU calls, too. */
START_TEST(J6_without_a_device_it_is_a_plain_copy) {
        struct harness *h = gpu_start(tight);
        struct pinfeed_attach attach = gpu_attach(h, NULL, PINFEED_PIN_AUTO);
        uint8_t data[8 * 256];
        int64_t index[8];
        void *to[] = {index, data};
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;

        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        ck_assert_int_eq(pinfeed_next(job, &batch), 1);
        ck_assert_int_eq(pinfeed_batch_copy_all_async(batch, to, NULL), sizeof(data) + sizeof(index));
        for (int i = 0; i < 8; i++)
                ck_assert(index[i] == i && ramp_check(data + i * 256, 256, (uint64_t)i, 0, NULL));
        ck_assert_int_eq(pinfeed_batch_copy_async(batch, 0, index, NULL), sizeof(index));
        ck_assert_int_eq(pinfeed_batch_copy_async(batch, 2, index, NULL), -EINVAL);
        ck_assert_int_eq(pinfeed_batch_copy_async(batch, 0, index, (void *)1), -EINVAL);
        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        pinfeed_close(job);
        ck_assert_uint_eq(fake_cuda_calls(NULL, NULL), 0);
        gpu_finish(h);
}
END_TEST

/* ---- J5: no copy but the device's ---- */

static uint64_t thread_cpu_ns(void) {
        struct timespec now;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* 64 MiB a batch. The fake copies, too, but on its stream's thread. */
START_TEST(J5_no_copy_on_this_side) {
        struct harness *h =
                gpu_start((struct gpu_shape){.samples = 64, .batch_size = 8, .bytes = LARGE / 8, .slots = 2});
        uint64_t least = UINT64_MAX, spent;
        struct gpu gpu;

        fake_cuda_set("hash=4096"); /* its own looking at the source is on this thread, too */

        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        for (int i = 0; i < 6; i++) {
                struct pinfeed_batch *batch = gpu_next(&gpu);
                uint64_t before = thread_cpu_ns();

                reader_must(pinfeed_batch_copy_all_async(batch, gpu.places[0].fields, gpu.stream) > LARGE,
                            "%s", pinfeed_error(gpu.job));
                gpu_release(batch);
                spent = thread_cpu_ns() - before;
                least = spent < least ? spent : least;
        }
        printf("# J5: %llu us of the calling thread for each batch of 64 MiB\n",
               (unsigned long long)(least / NS_PER_US));
        gpu_look(&gpu);
        ck_assert_uint_eq(gpu.info.copies, 0);
        ck_assert_uint_eq(gpu_figures().pageable, 0);
        ck_assert_uint_eq(gpu_figures().host_allocations, 0);
        ck_assert_uint_lt(least, NS_PER_MS * (uint64_t)harness_slowdown());
        gpu_rounds(&gpu, 1);
        gpu_check_all(&gpu);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("J-copies");
        TCase *tc = tcase_create("copies");

        tcase_set_timeout(tc, 60);
        tcase_add_test(tc, J5_no_copy_on_this_side);
        tcase_add_test(tc, J6_a_ring_of_two_slots);
        tcase_add_test(tc, J6_through_buffers);
        tcase_add_test(tc, J6_a_buffer_with_rows_of_long_ago);
        tcase_add_test(tc, J6_a_client_that_releases_too_early_is_caught);
        tcase_add_test(tc, J6_a_release_does_not_end_the_lease);
        tcase_add_test(tc, J6_next_waits_for_copies);
        tcase_add_test(tc, J6_batches_that_are_held_are_busy_all_the_same);
        tcase_add_test(tc, J6_released_by_another_thread);
        tcase_add_loop_test(tc, J6_released_while_next_waits, 0, 2);
        tcase_add_test(tc, J6_without_a_thread);
        tcase_add_test(tc, J6_dispatch_ends_leases_without_a_thread);
        tcase_add_loop_test(tc, J6_close_waits_for_copies, 0, 2);
        tcase_add_loop_test(tc, J6_batches_that_lie_in_several_slots, 0, 4);
        tcase_add_loop_test(tc, J6_a_stream_that_is_being_captured, 0, 2);
        tcase_add_test(tc, J6_without_a_device_it_is_a_plain_copy);
        tcase_add_test(tc, J7_a_ring_of_two_slots_and_a_busy_device);
        tcase_add_loop_test(tc, J7_two_streams_for_one_batch, 0, 2);
        tcase_add_test(tc, J9_another_device_is_current);
        suite_add_tcase(s, tc);
        return s;
}

int main(void) {
        return run_suite(suite());
}
