/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a job with a GPU and its daemon say to each other: how the ring is asked for, granted and used. The
 * daemon is one of our own (tests/support/fake-daemon.h), and so is the GPU (tests/support/fake-cudart.h). */

#include "client/pinfeed.h"
#include "tests/support/fake-cudart.h"
#include "tests/support/fake-daemon.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the daemon's side ---- */

/* The next message is MAPPED and says this. */
static void expect_mapped(struct fake *fake, uint8_t map, uint32_t registered, const char *reason) {
        const struct message_mapped *mapped = &fake->message.mapped;

        ck_assert(fake_receive(fake));
        ck_assert_int_eq(fake->message.type, MESSAGE_MAPPED);
        ck_assert_uint_eq(mapped->map, map);
        ck_assert_uint_eq(mapped->registered, registered);
        ck_assert_msg(strstr(mapped->reason, reason), "%s", mapped->reason);
}

static void grant(struct message_attached *attached) {
        attached->map = MESSAGE_MAP_PINNED;
}

static void refuse(struct message_attached *attached) {
        strcpy(attached->map_reason, "uid 7 may not write to the ring");
}

/* A second field, of which a row has no bytes. */
static void add_empty_field(struct message_attached *attached) {
        grant(attached);
        attached->field[1] = (struct message_field){
                .name = "nothing", .dtype = SCHEMA_INT32, .n_shape = 1, .offset = attached->ids_offset};
        attached->n_field = 2;
}

/* ---- the job's ---- */

static struct pinfeed_attach attach_with(uint32_t pin) {
        return (struct pinfeed_attach){.device = "cuda:0", .pin = pin};
}

static void expect_map(struct pinfeed_job *job, const char *map, const char *reason) {
        struct pinfeed_info info;

        pinfeed_job_info(job, &info);
        ck_assert_str_eq(info.map, map);
        ck_assert_msg(strstr(info.map_reason, reason), "%s", info.map_reason);
        ck_assert_str_eq(info.device, "cuda:0");
        ck_assert_uint_eq(info.slots, FAKE_SLOTS);
}

/* Copies a whole batch to the device and back. */
static void copy_batch(struct pinfeed_job *job, uint64_t row, uint32_t rows) {
        struct pinfeed_batch *batch = next(job);
        int32_t x[2 * FAKE_SLOT_ROWS];
        void *to[2] = {};

        ck_assert_uint_eq(cudaMalloc(&to[0], sizeof(x)), CUDA_SUCCESS);
        to[1] = to[0]; /* of a field that has no bytes */
        ck_assert_int_eq(pinfeed_batch_copy_all_async(batch, to, NULL), (int64_t)(rows * 8));
        release(batch);
        ck_assert_uint_eq(cudaMemcpy(x, to[0], rows * 8, FAKE_CUDA_DEVICE_TO_HOST), CUDA_SUCCESS);
        for (uint32_t i = 0; i < rows; i++)
                ck_assert_int_eq(x[2 * i], (int32_t)(row + i));
        ck_assert_uint_eq(cudaFree(to[0]), CUDA_SUCCESS);
}

static void expect_no_violation(void) {
        ck_assert_msg(fake_cuda_finish() == 0, "%s", fake_cuda_violation(0));
}

/* ---- granted ---- */

static void script_pinned(struct fake *fake) {
        ck_assert_uint_eq(fake->request.map, MESSAGE_MAP_PINNED);
        for (uint32_t i = 1; i <= 3; i++) {
                fake_send_batches(fake, 1);
                expect_mapped(fake, MESSAGE_MAP_PINNED, i, "page-locked for cuda:0");
                fake_wait_releases(fake, i);
        }
        fake_wait_close(fake);
}

/* The daemon hears of each slot, once. */
START_TEST(test_pinned) {
        struct fake fake = {.script = script_pinned, .alter = grant};
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job(attach_with(PINFEED_PIN_REQUIRE));
        expect_map(job, "pinned", "page-locked for cuda:0 when their first batch comes");
        copy_batch(job, 0, 4);
        copy_batch(job, 4, 4);
        copy_batch(job, 8, 2);
        pinfeed_close(job);
        fake_stop(&fake);
        expect_no_violation();
}
END_TEST

static void script_empty_field(struct fake *fake) {
        fake_send_batches(fake, 1);
        expect_mapped(fake, MESSAGE_MAP_PINNED, 1, "");
        fake_wait_releases(fake, 1);
        fake_wait_close(fake);
}

/* J2: 0 bytes are nothing to be copied. */
START_TEST(J2_an_empty_field) {
        struct fake fake = {.script = script_empty_field, .alter = add_empty_field};
        struct fake_cuda_figures figures;
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job(attach_with(PINFEED_PIN_AUTO));
        copy_batch(job, 0, 4);
        fake_cuda_read(&figures);
        ck_assert_uint_eq(figures.copies_queued, 2); /* field x, and back */
        pinfeed_close(job);
        fake_stop(&fake);
        expect_no_violation();
}
END_TEST

static void script_gives_up(struct fake *fake) {
        fake_send_batches(fake, 1);
        expect_mapped(fake, MESSAGE_MAP_PINNED, 1, "page-locked for cuda:0");
        fake_wait_releases(fake, 1);
        fake_send_batches(fake, 2);
        expect_mapped(fake, MESSAGE_MAP_READ_ONLY, 1, "cudaHostRegister failed: cudaErrorMemoryAllocation");
        fake_wait_releases(fake, 3);
        fake_wait_close(fake);
}

START_TEST(test_pinned_until_it_fails) {
        struct fake fake = {.script = script_gives_up, .alter = grant};
        struct pinfeed_job *job;

        fake_cuda_set("fail=cudaHostRegister:2:2");
        fake_start(&fake);
        job = open_job(attach_with(PINFEED_PIN_AUTO));
        copy_batch(job, 0, 4);
        copy_batch(job, 4, 4);
        copy_batch(job, 8, 2);
        expect_map(job, "read-only", "RLIMIT_MEMLOCK is");
        pinfeed_close(job);
        fake_stop(&fake);
        expect_no_violation();
}
END_TEST

/* ---- not granted ---- */

static void script_read_only(struct fake *fake) {
        ck_assert_uint_eq(fake->request.map, MESSAGE_MAP_PINNED);
        fake_send_batches(fake, 1);
        expect_mapped(fake, MESSAGE_MAP_READ_ONLY, 0, "uid 7 may not write to the ring");
        fake_wait_releases(fake, 1);
        fake_wait_close(fake);
}

START_TEST(test_not_granted) {
        struct fake fake = {.script = script_read_only, .alter = refuse};
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job(attach_with(PINFEED_PIN_AUTO));
        expect_map(job, "read-only", "uid 7 may not write to the ring");
        copy_batch(job, 0, 4);
        pinfeed_close(job);
        fake_stop(&fake);
        expect_no_violation();
}
END_TEST

START_TEST(test_required_and_not_granted) {
        struct fake fake = {.script = fake_wait_close, .alter = refuse};
        struct pinfeed_job *job;

        fake_start(&fake);
        ck_assert_int_eq(open_with(&job, attach_with(PINFEED_PIN_REQUIRE)), -ENOTSUP);
        ck_assert_str_eq(pinfeed_error(job), "pin is require: uid 7 may not write to the ring");
        pinfeed_close(job);
        fake_stop(&fake);
        expect_no_violation();
}
END_TEST

/* ---- not asked for ---- */

static void script_never(struct fake *fake) {
        ck_assert_uint_eq(fake->request.map, MESSAGE_MAP_ANY);
        fake_send_batches(fake, 1);
        expect_mapped(fake, MESSAGE_MAP_READ_ONLY, 0, "pin is never");
        fake_wait_releases(fake, 1);
        fake_wait_close(fake);
}

START_TEST(test_never) {
        struct fake fake = {.script = script_never};
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job(attach_with(PINFEED_PIN_NEVER));
        copy_batch(job, 0, 4);
        pinfeed_close(job);
        fake_stop(&fake);
        expect_no_violation();
}
END_TEST

static void script_registers_read_only(struct fake *fake) {
        ck_assert_uint_eq(fake->request.map, MESSAGE_MAP_READ_ONLY);
        fake_send_batches(fake, 1);
        expect_mapped(fake, MESSAGE_MAP_PINNED, 1, "and stay read-only");
        fake_wait_releases(fake, 1);
        fake_wait_close(fake);
}

START_TEST(test_read_only_is_enough) {
        struct fake fake = {.script = script_registers_read_only};
        struct pinfeed_job *job;

        fake_cuda_set("read_only=1");
        fake_start(&fake);
        job = open_job(attach_with(PINFEED_PIN_REQUIRE));
        copy_batch(job, 0, 4);
        pinfeed_close(job);
        fake_stop(&fake);
        expect_no_violation();
}
END_TEST

/* A job without a GPU says nothing of it, and takes no more than it asked for. */
START_TEST(test_granted_without_being_asked) {
        struct fake fake = {.script = fake_wait_close, .alter = grant};
        struct pinfeed_job *job;

        fake_start(&fake);
        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){.pin = PINFEED_PIN_REQUIRE}), -EPROTO);
        ck_assert_ptr_nonnull(strstr(pinfeed_error(job), "which was not asked for"));
        ck_assert_uint_eq(fake.request.map, MESSAGE_MAP_ANY);
        pinfeed_close(job);
        fake_stop(&fake);
        ck_assert_uint_eq(fake_cuda_calls(NULL, NULL), 0);
}
END_TEST

START_TEST(test_arguments) {
        struct pinfeed_job *job;

        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){.pin = 3}), -EINVAL);
        ck_assert_str_eq(pinfeed_error(job), "pin is 3, expected 0, 1 or 2");
        pinfeed_close(job);
        ck_assert_int_eq(pinfeed_batch_copy_async(NULL, 0, &job, NULL), -EINVAL);
        ck_assert_int_eq(pinfeed_batch_copy_all_async((void *)&job, NULL, NULL), -EINVAL);
}
END_TEST

static Suite *client_gpu_suite(void) {
        Suite *suite = suite_create("client-gpu");
        TCase *tc = tcase_create("gpu");

        tcase_set_timeout(tc, 30);
        tcase_add_test(tc, test_pinned);
        tcase_add_test(tc, J2_an_empty_field);
        tcase_add_test(tc, test_pinned_until_it_fails);
        tcase_add_test(tc, test_not_granted);
        tcase_add_test(tc, test_required_and_not_granted);
        tcase_add_test(tc, test_never);
        tcase_add_test(tc, test_read_only_is_enough);
        tcase_add_test(tc, test_granted_without_being_asked);
        tcase_add_test(tc, test_arguments);
        suite_add_tcase(suite, tc);
        return suite;
}

int main(void) {
        int r;

        setenv("PINFEED_LIBCUDART", getenv("PINFEED_TEST_CUDART"), 1);
        fake_make_directory();
        r = run_suite(client_gpu_suite());
        rmdir(fake_directory);
        return r;
}
