/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases J4, J10 and J13: a CUDA call fails, whichever it is; a copy dies on the device; the daemon dies under
 * copies. Who is concerned is told which call it was and of what batch, and nobody else is; nothing is left
 * on the device. */

#include "tests/support/run.h"
#include "tests/system/gpu.h"

enum {
        ROUNDS = 200,
        STEP = 100, /* J10: the copy that fails */
        KILLS = 4,
        BATCH = 8,
        BYTES = 1024,
};

static const struct gpu_shape tight = {.samples = 1000, .batch_size = BATCH, .bytes = 256, .slots = 2};
static const struct gpu_shape roomy = {.samples = 1000, .batch_size = BATCH, .bytes = BYTES, .slots = 8};

/* ---- each call fails ---- */

static const char *const calls[] = {
        "cudaGetDeviceCount",
        "cudaGetDevice",
        "cudaSetDevice",
        "cudaDeviceGetAttribute",
        "cudaHostRegister",
        "cudaHostUnregister",
        "cudaHostAlloc",
        "cudaFreeHost",
        "cudaMemcpyAsync",
        "cudaStreamIsCapturing",
        "cudaThreadExchangeStreamCaptureMode",
        "cudaEventCreateWithFlags",
        "cudaEventRecord",
        "cudaEventQuery",
        "cudaEventDestroy",
};

enum {
        CALLS = sizeof(calls) / sizeof(calls[0]),
        FAILING_ROUNDS = 4,
        FAILING_MOST = 10, /* of each call, the n-th that fails */
};

/* A round in which any call to libpinfeed may fail once, if it says which of CUDA's has. True: the batch was
 * said to be on its way, and what has arrived is right. */
static bool try_round(struct gpu *gpu, const char *call) {
        struct gpu_place *place = &gpu->places[0];
        struct pinfeed_batch *batch;
        int64_t copied;
        int r;

        while ((r = pinfeed_next(gpu->job, &batch)) == -EIO)
                harness_expect_words(pinfeed_error(gpu->job), call);
        ck_assert_msg(r == 1, "%s: %d, %s", call, r, pinfeed_error(gpu->job));
        place->position = (struct position){.rows = BATCH, .row = pinfeed_batch_row(batch)};
        copied = pinfeed_batch_copy_all_async(batch, place->fields, gpu->stream);
        if (copied < 0) {
                ck_assert_int_eq(copied, -EIO);
                harness_expect_words(pinfeed_error(gpu->job), call);
                harness_expect_words(pinfeed_error(gpu->job), "of epoch 0 to cuda:0");
        }
        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        gpu_must(cudaStreamSynchronize(gpu->stream));
        return copied > 0 && gpu_is_right(gpu, place);
}

/* A job from its beginning to its end, with `call` failing for the n-th time. False: it is not called as
 * often. */
static bool fail_once(struct harness *h, struct gpu *gpu, const char *call, unsigned n, uint32_t pin) {
        struct pinfeed_attach attach = gpu_attach(h, "cuda", pin);
        struct fake_cuda_figures before = gpu_figures(), after;
        uint64_t called = fake_cuda_calls(call, NULL);
        unsigned good = 0;
        char settings[96];
        int r;

        snprintf(settings, sizeof(settings), "fail=%s:%u:999:1", call, n);
        fake_cuda_set(settings);
        r = pinfeed_open(&gpu->job, &attach);
        if (r == -ENODEV)
                harness_expect_words(pinfeed_error(gpu->job), call);
        else
                ck_assert_msg(r == 0, "%s: %d, %s", call, r, pinfeed_error(gpu->job));
        for (int i = 0; r == 0 && i < FAILING_ROUNDS; i++)
                good += try_round(gpu, call);
        gpu->job = pinfeed_close(gpu->job);
        fake_cuda_set("fail=none");
        ck_assert_msg(r < 0 || good >= FAILING_ROUNDS - 1, "%s, time %u: %u rounds went well", call, n, good);
        after = gpu_figures();
        ck_assert_msg(after.registrations == before.registrations && after.events == before.events &&
                              after.host_allocations == before.host_allocations,
                      "%s, time %u: %llu registrations, %llu events, %llu allocations are left", call, n,
                      (unsigned long long)(after.registrations - before.registrations),
                      (unsigned long long)(after.events - before.events),
                      (unsigned long long)(after.host_allocations - before.host_allocations));
        return fake_cuda_calls(call, NULL) - called >= n;
}

START_TEST(J4_any_call_may_fail) {
        struct gpu gpu, other, scratch;
        struct pinfeed_batch *held[2];
        struct harness *h;

        if (_i % 2)
                setenv("PINFEED_NO_THREAD", "1", 1);
        h = gpu_start((struct gpu_shape){800, BATCH, BYTES, 16});
        gpu_open(&other, h, "cuda:0", PINFEED_PIN_AUTO);
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_AUTO);
        gpu.job = pinfeed_close(gpu.job);
        for (int i = 0; i < CALLS; i++) {
                unsigned n = 1;

                for (int k = 0; k < 2; k++) /* as many as it may hold: so none of its copies is under way */
                        held[k] = gpu_next(&other);
                scratch = gpu;
                while (fail_once(h, &scratch, calls[i], n, _i / 2 ? PINFEED_PIN_NEVER : PINFEED_PIN_AUTO) &&
                       n < FAILING_MOST)
                        n++;
                for (int k = 0; k < 2; k++)
                        ck_assert_int_eq(pinfeed_batch_release(held[k]), 0);
                gpu_rounds(&other, 2);
        }
        gpu_close(&gpu);
        gpu_close(&other);
        gpu_finish(h);
}
END_TEST

/* ---- J10: a copy cannot be made ---- */

START_TEST(J10_a_copy_that_cannot_be_queued) {
        struct harness *h = gpu_start(roomy);
        struct pinfeed_batch *batch;
        struct gpu_place *place;
        struct gpu gpu, other;
        int64_t r;

        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        gpu_open(&other, h, "cuda:0", PINFEED_PIN_REQUIRE);
        gpu_rounds(&gpu, STEP - 1);
        place = gpu_next_place(&gpu);
        batch = gpu_next(&gpu);
        fake_cuda_set("fail=cudaMemcpyAsync:2:1:1"); /* its second field */
        r = pinfeed_batch_copy_all_async(batch, place->fields, gpu.stream);
        ck_assert_int_eq(r, -EIO);
        harness_expect_words(pinfeed_error(gpu.job), "rows 792+8 of epoch 0 to cuda:0");
        harness_expect_words(pinfeed_error(gpu.job), "field data");
        harness_expect_words(pinfeed_error(gpu.job), "cudaMemcpyAsync failed: cudaErrorInvalidValue (1)");
        gpu_must(cudaGetLastError()); /* no later call meets it */
        gpu_release(batch);
        gpu_rounds(&gpu, ROUNDS);
        gpu_rounds(&other, ROUNDS);
        gpu_close(&gpu);
        gpu_close(&other);
        gpu_finish(h);
}
END_TEST

/* It was queued, and then the device has an accident. */
START_TEST(J10_a_copy_that_dies_on_the_device) {
        struct harness *h = gpu_start(tight);
        struct pinfeed_batch *batch;
        struct gpu gpu;
        int r;

        gpu_open_for_one(&gpu, h);
        gpu_rounds(&gpu, 4);
        gpu_check_all(&gpu);
        fake_cuda_hold();
        gpu_release(gpu_take(&gpu));
        fake_cuda_set("fail=execute:1:700");
        fake_cuda_go();
        gpu_wait_delivered(h, 6);
        r = pinfeed_next(gpu.job, &batch);
        ck_assert_int_eq(r, -EIO);
        harness_expect_words(pinfeed_error(gpu.job), "copies of rows 32+8 of epoch 0 to cuda:0 may not have");
        harness_expect_words(pinfeed_error(gpu.job), "cudaEventQuery failed: cudaErrorIllegalAddress (700)");
        gpu_release(gpu_next(&gpu)); /* the batches come all the same */
        gpu.job = pinfeed_close(gpu.job);
        harness_wait(h, "no job", harness_no_job_is_there, NULL, GPU_SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

static bool nothing_is_registered(struct harness *h, void *context) {
        return gpu_figures().registrations <= 1;
}

/* ---- J13: the daemon dies during a step ---- */

/* The ring of the daemon that died is read to its end, and unregistered before it is unmapped. */
START_TEST(J13_the_daemon_is_killed_while_copies_run) {
        struct harness *h = gpu_start(roomy);
        struct pinfeed_attach attach = gpu_attach(h, "cuda:0", PINFEED_PIN_REQUIRE);
        struct pinfeed_batch *held;
        struct gpu gpu;

        attach.reconnect_s = 30;
        attach.max_held_batches = 3;
        gpu_open_with(&gpu, &attach);
        gpu_rounds(&gpu, 20);
        gpu_check_all(&gpu);
        fake_cuda_hold();
        gpu_release(gpu_take(&gpu));
        held = gpu_take(&gpu);
        harness_kill(h);
        ck_assert_uint_ge(gpu_figures().registrations, 2);
        harness_start(h);
        for (gpu_look(&gpu); gpu.info.reconnects == 0; gpu_look(&gpu))
                gpu_release(gpu_next(&gpu)); /* what had come before, and one of the next daemon's ring */
        ck_assert_uint_eq(gpu.info.slots_registered, 1);
        gpu_release(held);
        ck_assert_uint_ge(gpu_figures().registrations, 3);
        fake_cuda_go();
        harness_wait(h, "the old ring's registrations gone", nothing_is_registered, NULL, GPU_SOON_MS);
        gpu_rounds(&gpu, 20);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* Again and again, while another thread releases: whoever is the last to need a ring, it goes. */
START_TEST(J13_daemons_come_and_go) {
        struct gpu_handing handing;
        struct harness *h = gpu_start(roomy);
        struct pinfeed_attach attach = gpu_attach(h, "cuda:0", PINFEED_PIN_REQUIRE);
        struct gpu gpu;

        if (_i)
                setenv("PINFEED_NO_THREAD", "1", 1);
        fake_cuda_set("delay_us=200");
        attach.reconnect_s = 30;
        attach.max_held_batches = 4;
        gpu_open_with(&gpu, &attach);
        gpu_start_handing(&handing);
        for (int i = 0; i < KILLS; i++) {
                gpu_hand_on(&handing, &gpu, 3 + 5 * i);
                harness_kill(h);
                harness_start(h);
        }
        gpu_hand_on(&handing, &gpu, 50);
        gpu_end_handing(&handing);
        gpu_look(&gpu);
        ck_assert_uint_eq(gpu.info.reconnects, KILLS);
        ck_assert_uint_eq(gpu_figures().registrations, gpu.info.slots_registered);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("J-failures");
        TCase *tc = tcase_create("failures");

        tcase_set_timeout(tc, 60);
        tcase_add_loop_test(tc, J4_any_call_may_fail, 0, 4);
        tcase_add_test(tc, J10_a_copy_that_cannot_be_queued);
        tcase_add_test(tc, J10_a_copy_that_dies_on_the_device);
        tcase_add_test(tc, J13_the_daemon_is_killed_while_copies_run);
        tcase_add_loop_test(tc, J13_daemons_come_and_go, 0, 2);
        suite_add_tcase(s, tc);
        return s;
}

int main(void) {
        return run_suite(suite());
}
