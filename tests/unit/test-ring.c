/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A ring's memory: really there step by step, read-only for jobs, refused with numbers. */

#include "tests/unit/config-file.h"

#include "daemon/ring.h"
#include "tests/support/run.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define MEMFD "    backing: memfd\n"

static void ring_deinitp(struct ring *ring) {
        ring_deinit(ring);
}

START_TEST(test_reserve_in_steps) {
        /* a slot: 8 x 1,048,576 float32 and what is hidden: 32 MiB and some; three to five steps for eight */
        _cleanup_(config_unrefp) struct config *config =
                load(HEAD "    source: {type: synthetic, samples: 100, features: 1048576}\n" BATCH
                          "    slots: 8\n" MEMFD);
        _cleanup_(ring_deinitp) struct ring ring = RING_INIT;
        const struct config_pipeline *pipeline = &config->pipelines[0];
        bool finished = false;
        struct fault fault;
        unsigned steps = 0;
        struct stat status;

        ck_assert_int_eq(ring_init(&ring, config, pipeline, &fault), 0);
        ck_assert_uint_eq(ring.reserved, 0);
        for (; !finished; steps++) {
                uint64_t before = ring.reserved;

                ck_assert_int_eq(ring_reserve(&ring, config, pipeline, &finished, &fault), 0);
                ck_assert_uint_le(ring.reserved - before, RING_RESERVE_STEP);
                fstat(ring.fd, &status);
                ck_assert_uint_ge((uint64_t)status.st_blocks * 512, ring.reserved);
        }
        ck_assert_uint_eq(steps, (ring_bytes(&ring) + RING_RESERVE_STEP - 1) / RING_RESERVE_STEP);
        ck_assert_uint_eq(ring.reserved, ring_bytes(&ring));
        ck_assert_uint_eq(ring.slots, 8);
        ck_assert_uint_ge((uint64_t)status.st_size, 7 * ring.slot_stride + ring.slot_bytes);
        /* the holes between slots are not taken */
        ck_assert_uint_le((uint64_t)status.st_blocks * 512, ring_bytes(&ring) + 8 * 4096);
}
END_TEST

START_TEST(test_jobs_cannot_write) {
        _cleanup_(config_unrefp) struct config *config = load(HEAD SOURCE BATCH "    slots: 2\n" MEMFD);
        _cleanup_(ring_deinitp) struct ring ring = RING_INIT;
        struct fault fault;
        void *map;

        ck_assert_int_eq(ring_init(&ring, config, &config->pipelines[0], &fault), 0);
        ck_assert_str_eq(ring_backing_name(&ring), "memfd");
        map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd_readonly, 0);
        ck_assert_ptr_eq(map, MAP_FAILED);
        ck_assert_int_eq(errno, EACCES);
        ck_assert_int_eq(ftruncate(ring.fd, 0), -1);
        map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, ring.fd_readonly, 0);
        ck_assert_ptr_ne(map, MAP_FAILED);
        ck_assert_int_eq(mprotect(map, 4096, PROT_READ | PROT_WRITE), -1);
        munmap(map, 4096);
}
END_TEST

/* More than any machine has: refused before anything is taken, with both numbers and the place. */
START_TEST(test_too_large) {
        static const char *const backings[] = {"memfd", "shm", "auto"};
        char text[512];
        struct config *config;
        struct ring ring = RING_INIT;
        struct fault fault;

        snprintf(text, sizeof(text),
                 HEAD "    source: {type: synthetic, samples: 100, features: 1048576}\n" BATCH
                      "    slots: 1048576\n    backing: %s\n",
                 backings[_i]);
        config = load(text);
        ck_assert_int_eq(ring_init(&ring, config, &config->pipelines[0], &fault), -ENOSPC);
        ck_assert_int_eq(ring.fd, -1);
        ck_assert_int_eq(ring.fd_readonly, -1);
        ck_assert_ptr_nonnull(strstr(fault.text, "pipeline a: the ring needs "));
        ck_assert_ptr_nonnull(strstr(fault.text, "bytes free"));
        ck_assert_ptr_nonnull(strstr(fault.text, "`slots:`"));
        ck_assert_ptr_eq(ring_backing_name(&ring), NULL);
        ring_deinit(&ring);
        config_unref(config);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("ring");
        TCase *test_case = tcase_create("ring");

        tcase_add_test(test_case, test_reserve_in_steps);
        tcase_add_test(test_case, test_jobs_cannot_write);
        tcase_add_loop_test(test_case, test_too_large, 0, 3);
        suite_add_tcase(suite, test_case);
        return run_suite(suite);
}
