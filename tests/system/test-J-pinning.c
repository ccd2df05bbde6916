/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases C10, J1 to J4, J9, J12 and J14: what is page-locked and when, what happens where it cannot be, and
 * that nothing is left behind on any device.
 *
 * What the fake runtime counts is asserted, not what libpinfeed says of itself alone. That each registration
 * is undone before its memory goes, that no call is made with 0 bytes or in a fork's child, and more, the
 * fake sees by itself: gpu_finish asserts that it has nothing to say. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/gpu.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum {
        SLOTS = 8,
        BATCH = 8,
        BYTES = 1024,
        ROUNDS = 3 * SLOTS,
        PIECE = 65536,
        PIECES = 5, /* of a slot of 8 rows of PIECE / 2 bytes, and a page for their indexes */
        REGISTER_US = 20000,
};

static const struct gpu_shape shape = {.samples = 1000, .batch_size = BATCH, .bytes = BYTES, .slots = SLOTS};
static const struct gpu_shape large = {
        .samples = 64, .batch_size = BATCH, .bytes = PIECE / 2, .slots = SLOTS};

static void expect_map(struct gpu *gpu, const char *map, uint32_t registered, const char *reason) {
        gpu_look(gpu);
        ck_assert_str_eq(gpu->info.map, map);
        ck_assert_uint_eq(gpu->info.slots_registered, registered);
        ck_assert_uint_eq(gpu->info.slots, SLOTS);
        harness_expect_words(gpu->info.map_reason, reason);
}

/* ---- J1: one call does not register everything ---- */

START_TEST(J1_a_slot_is_registered_in_pieces) {
        struct harness *h;
        struct gpu gpu;

        setenv("PINFEED_TEST_PIECE", "65536", 1);
        fake_cuda_set("register_max=65536");
        h = gpu_start(large);
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        gpu_rounds(&gpu, ROUNDS); /* also of rows that lie across two pieces */
        expect_map(&gpu, "pinned", SLOTS, "page-locked for cuda:0 when their first batch comes");
        ck_assert_uint_eq(gpu_figures().registrations, SLOTS * PIECES);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* The third piece of the second slot. */
START_TEST(J1_a_piece_that_fails_is_rolled_back) {
        struct harness *h;
        struct gpu gpu;

        setenv("PINFEED_TEST_PIECE", "65536", 1);
        fake_cuda_set("fail=cudaHostRegister:8:2:1");
        h = gpu_start(large);
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_AUTO);
        gpu_rounds(&gpu, ROUNDS);
        expect_map(&gpu, "read-only", 1, "cudaHostRegister failed: cudaErrorMemoryAllocation (2)");
        ck_assert_uint_eq(gpu_figures().registrations, PIECES);
        ck_assert_uint_eq(fake_cuda_calls("cudaHostRegister", NULL), PIECES + 3);
        ck_assert_uint_eq(gpu_figures().pageable, 0);
        gpu_must(cudaGetLastError()); /* whose, if not that call's */
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* ---- J3: no more of them than slots ---- */

static size_t count_ring_mappings(void) {
        FILE *maps = fopen("/proc/self/maps", "re");
        char line[512];
        size_t n = 0;

        ck_assert_ptr_nonnull(maps);
        while (fgets(line, sizeof(line), maps))
                n += strstr(line, "/dev/shm/pinfeed") != NULL;
        fclose(maps);
        return n;
}

START_TEST(J3_registrations_do_not_add_up) {
        struct harness *h = gpu_start((struct gpu_shape){80, BATCH, BYTES, SLOTS});
        struct gpu gpu;

        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        gpu_rounds(&gpu, 20);
        ck_assert_uint_eq(count_ring_mappings(), 1); /* which came apart for each slot, and is whole again */
        gpu_rounds(&gpu, 200);                       /* 20 epochs */
        ck_assert_uint_eq(count_ring_mappings(), 1);
        ck_assert_uint_eq(gpu_figures().registrations_made, SLOTS);
        ck_assert_uint_eq(gpu_figures().registrations, SLOTS);
        ck_assert_uint_le(gpu_figures().events, GPU_PLACES + 8);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* ---- J4: it is limited, or refused ---- */

static void limit_memlock(void) {
        struct rlimit limit = {.rlim_cur = 3 << 20, .rlim_max = 8 << 20};

        ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

/* What is registered stays, and is used; the rest goes through the buffers. */
START_TEST(J4_page_locking_is_limited) {
        struct harness *h;
        struct gpu gpu;

        limit_memlock();
        fake_cuda_set("registrations_max=3");
        h = gpu_start(shape);
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_AUTO);
        gpu_rounds(&gpu, ROUNDS);
        expect_map(&gpu, "read-only", 3,
                   "slot 3 (16 KiB) cannot be page-locked for cuda:0, 3 are: "
                   "cudaHostRegister failed");
        harness_expect_words(gpu.info.map_reason, "RLIMIT_MEMLOCK is 3 MiB, raise it");
        ck_assert_uint_eq(fake_cuda_calls("cudaHostRegister", NULL), 4);
        ck_assert_uint_eq(gpu_figures().host_allocations, 1);
        ck_assert_uint_eq(gpu_figures().pageable, 0);
        ck_assert_uint_gt(gpu.info.copies, 0);
        ck_assert_uint_lt(gpu.info.copies, ROUNDS * BATCH * (BYTES + 8));
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

START_TEST(J4_page_locking_is_required) {
        struct harness *h = gpu_start(shape);
        struct pinfeed_batch *batch;
        struct gpu gpu;

        fake_cuda_set("fail=cudaHostRegister:3:800");
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        gpu_rounds(&gpu, 2);
        for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(pinfeed_next(gpu.job, &batch), -ENOTSUP);
                harness_expect_words(pinfeed_error(gpu.job), "pin is require: slot 2 (16 KiB) cannot be");
                harness_expect_words(pinfeed_error(gpu.job), "cudaErrorNotPermitted (800)");
        }
        ck_assert_uint_eq(fake_cuda_calls("cudaHostRegister", NULL), 3);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

START_TEST(J4_page_locking_is_not_wanted) {
        struct harness *h = gpu_start(shape);
        struct gpu gpu;

        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_NEVER);
        gpu_rounds(&gpu, ROUNDS);
        expect_map(&gpu, "read-only", 0, "pin is never");
        ck_assert_uint_eq(fake_cuda_calls("cudaHostRegister", NULL), 0);
        ck_assert_uint_eq(gpu.info.copies, ROUNDS * BATCH * (BYTES + 8));
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* Neither slots nor buffers: CUDA copies from pageable memory, and the lease holds until it has. */
START_TEST(J4_nothing_can_be_page_locked) {
        struct harness *h = gpu_start(shape);
        struct gpu gpu;

        fake_cuda_set("fail=cudaHostRegister:1:801 fail=cudaHostAlloc:1:2 delay_us=200");
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_AUTO);
        gpu_rounds(&gpu, ROUNDS);
        expect_map(&gpu, "read-only", 0, "slot 0 (16 KiB) cannot be page-locked for cuda:0, 0 are");
        harness_expect_words(gpu.info.map_reason, "; nor can buffers be had: cudaHostAlloc failed");
        ck_assert_uint_eq(fake_cuda_calls("cudaHostAlloc", NULL), 1);
        ck_assert_uint_eq(gpu_figures().pageable, ROUNDS * GPU_FIELDS);
        ck_assert_uint_eq(gpu.info.copies, ROUNDS * BATCH * (BYTES + 8));
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* Attribute 113: then no mapping that may write is asked for. */
START_TEST(J4_read_only_memory_can_be_page_locked) {
        struct harness *h;
        struct gpu gpu;

        fake_cuda_set("read_only=1");
        h = gpu_start(shape);
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        gpu_rounds(&gpu, ROUNDS);
        expect_map(&gpu, "pinned", SLOTS, "and stay read-only");
        ck_assert_uint_eq(gpu.info.copies, 0);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

START_TEST(J4_slots_cannot_be_written) {
        struct harness *h = gpu_start(shape);
        struct gpu gpu;
        int status;
        pid_t pid;

        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        gpu_rounds(&gpu, 1);
        pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                FILE *maps = fopen("/proc/self/maps", "re");
                char line[512];

                while (fgets(line, sizeof(line), maps))
                        if (strstr(line, "/dev/shm/pinfeed") && !strstr(line, " r--s "))
                                _exit(1);
                _exit(0);
        }
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* ---- J9: no context where none was asked for ---- */

static void expect_contexts_on(int device) {
        for (int i = 0; i < 4; i++) {
                const char *made_by = fake_cuda_context(i);

                ck_assert_msg(!made_by == (i != device), "device %d: %s", i, made_by ? made_by : "none");
        }
}

/* The current device, by name or without one; a job on each device would be four of these. */
START_TEST(J9_a_context_on_the_job_s_device_alone) {
        struct harness *h;
        struct gpu gpu;

        fake_cuda_set(_i < 2 ? "devices=4" : "devices=4 version=11080 driver=11080");
        gpu_must(cudaSetDevice(2));
        h = gpu_start(shape);
        gpu_open(&gpu, h, _i % 2 ? "cuda" : "cuda:2", PINFEED_PIN_AUTO);
        ck_assert_str_eq(gpu.info.device, "cuda:2");
        gpu_rounds(&gpu, ROUNDS);
        gpu_close(&gpu);
        expect_contexts_on(2);
        gpu_finish(h);
}
END_TEST

/* The job's is none that the program has made current, and stays its own business. */
START_TEST(J9_the_thread_has_the_device_to_itself) {
        struct harness *h;
        struct pinfeed_attach attach;
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;
        int current;

        fake_cuda_set("devices=4 version=11080 driver=11080"); /* where cudaSetDevice makes no context */
        h = gpu_start(shape);
        attach = gpu_attach(h, "cuda:3", PINFEED_PIN_REQUIRE);
        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        expect_contexts_on(-1);
        ck_assert_int_eq(pinfeed_next(job, &batch), 1);
        ck_assert_int_eq(pinfeed_batch_copy_async(batch, 0, &current, NULL), -EXDEV);
        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        pinfeed_close(job);
        expect_contexts_on(3);
        gpu_must(cudaGetDevice(&current));
        ck_assert_int_eq(current, 0);
        gpu_finish(h);
}
END_TEST

/* ---- J12: no CUDA at all ---- */

static void expect_no_device(struct harness *h, const char *device, int error, const char *words) {
        struct pinfeed_attach attach = gpu_attach(h, device, PINFEED_PIN_AUTO);
        char text[1200];

        reader_expect_refusal(&attach, error, text, sizeof(text));
        harness_expect_words(text, words);
}

START_TEST(J12_a_machine_without_a_driver) {
        struct harness *h = gpu_start(shape);
        struct pinfeed_attach attach = gpu_attach(h, "cpu", PINFEED_PIN_REQUIRE);
        struct pinfeed_info info;
        struct reader reader;

        fake_cuda_set("driver=0");
        expect_no_device(h, "cuda", -ENODEV, "cudaGetDeviceCount failed: cudaErrorInsufficientDriver (35)");
        fake_cuda_set("driver=13000 devices=1");
        expect_no_device(h, "cuda:1", -ENODEV, "there is no cuda:1: this process sees 1 device");
        expect_no_device(h, "cuda:x", -EINVAL, "device is 'cuda:x', expected cuda or cuda:N");
        expect_no_device(h, "tpu", -EINVAL, "device is 'tpu', expected cpu, cuda or cuda:N");
        reader_open_with(&reader, &attach);
        reader_read(&reader, ROUNDS);
        pinfeed_job_info(reader.job, &info);
        ck_assert_str_eq(info.device, "cpu");
        ck_assert_str_eq(info.map, "read-only");
        reader_close(&reader);
        gpu_finish(h);
}
END_TEST

START_TEST(J12_a_machine_without_a_runtime) {
        struct harness *h = gpu_start(shape);

        setenv("PINFEED_LIBCUDART", "/nowhere/libcudart.so.13", 1);
        expect_no_device(h, "cuda", -ENODEV, "device cuda needs a CUDA runtime: PINFEED_LIBCUDART names");
        expect_no_device(h, "cuda", -ENODEV, "/nowhere/libcudart.so.13: cannot open shared object file");
        gpu_finish(h);
}
END_TEST

/* ---- J14: registering takes its time, slot by slot ---- */

START_TEST(J14_the_first_batch_does_not_wait_for_the_last_slot) {
        struct harness *h;
        uint64_t began, first;
        struct gpu gpu;

        fake_cuda_set("register_us=20000");
        h = gpu_start(shape);
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        expect_map(&gpu, "pinned", 0, "");
        began = clock_ns();
        gpu_rounds(&gpu, 1);
        first = clock_ns() - began;
        expect_map(&gpu, "pinned", 1, "");
        gpu_rounds(&gpu, 1);
        expect_map(&gpu, "pinned", 2, "");
        gpu_rounds(&gpu, ROUNDS);
        expect_map(&gpu, "pinned", SLOTS, "");
        ck_assert_uint_ge(clock_ns() - began, (uint64_t)SLOTS * REGISTER_US * NS_PER_US);
        ck_assert_uint_lt(first, (uint64_t)SLOTS * REGISTER_US * NS_PER_US * (unsigned)harness_slowdown());
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* ---- C10: neither the daemon nor its workers know CUDA ---- */

static void expect_no_cuda(pid_t pid) {
        char path[300], target[256], line[512];
        struct dirent *entry;
        FILE *maps;
        DIR *fds;

        snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
        maps = fopen(path, "re");
        ck_assert_ptr_nonnull(maps);
        while (fgets(line, sizeof(line), maps))
                ck_assert_msg(!strstr(line, "cuda") && !strstr(line, "nvidia"), "%d: %s", (int)pid, line);
        fclose(maps);
        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        fds = opendir(path);
        ck_assert_ptr_nonnull(fds);
        while ((entry = readdir(fds))) {
                ssize_t length;

                snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, entry->d_name);
                length = readlink(path, target, sizeof(target) - 1);
                target[length > 0 ? length : 0] = 0;
                ck_assert_msg(!strstr(target, "nvidia"), "%d: %s", (int)pid, target);
        }
        closedir(fds);
}

static void expect_no_cuda_but_here(struct harness *h) {
        pid_t workers[8];
        size_t n = harness_worker_pids(h, workers, 8);

        ck_assert_uint_eq(n, 2);
        expect_no_cuda(harness_daemon_pid(h));
        for (size_t i = 0; i < n; i++)
                expect_no_cuda(workers[i]);
}

START_TEST(C10_a_worker_is_replaced_while_slots_are_registered) {
        struct harness *h = gpu_start(shape);
        pid_t workers[8];
        struct gpu gpu;

        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_REQUIRE);
        gpu_rounds(&gpu, SLOTS);
        expect_no_cuda_but_here(h);
        ck_assert_uint_eq(harness_worker_pids(h, workers, 8), 2);
        ck_assert_int_eq(kill(workers[0], SIGKILL), 0);
        gpu_rounds(&gpu, ROUNDS);
        harness_wait_number(h, "pipelines/ramp/worker_deaths", 1, GPU_SOON_MS);
        reader_wait_workers(h, 2);
        gpu_rounds(&gpu, ROUNDS);
        expect_no_cuda_but_here(h);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* ---- a fork's child ---- */

/* It gets errors, and may close; the parent's copies and registrations are none of its business. */
static int be_a_child(struct gpu *gpu, struct pinfeed_batch *held) {
        struct pinfeed_batch *batch;

        if (pinfeed_next(gpu->job, &batch) != -ECHILD || pinfeed_dispatch(gpu->job) != -ECHILD ||
            pinfeed_batch_release(held) != -ECHILD ||
            pinfeed_batch_copy_async(held, 0, gpu->places[0].fields[0], gpu->stream) != -ECHILD)
                return 1;
        pinfeed_close(gpu->job);
        return fake_cuda_violation(0) ? 2 : 0;
}

START_TEST(C10_a_child_makes_no_calls) {
        struct harness *h = gpu_start(shape);
        struct pinfeed_batch *held;
        struct gpu gpu;
        int status;
        pid_t pid;

        gpu_open(&gpu, h, "cuda:0", _i ? PINFEED_PIN_NEVER : PINFEED_PIN_REQUIRE);
        gpu_rounds(&gpu, SLOTS);
        gpu_check_all(&gpu);
        fake_cuda_hold();
        held = gpu_take(&gpu);
        pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0)
                _exit(be_a_child(&gpu, held));
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        fake_cuda_go();
        ck_assert_int_eq(pinfeed_batch_release(held), 0);
        gpu_rounds(&gpu, ROUNDS);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

/* ---- side by side ---- */

START_TEST(J4_a_pinned_a_read_only_and_a_host_job) {
        struct harness *h = gpu_start((struct gpu_shape){1000, BATCH, BYTES, 16});
        struct gpu pinned, read_only;
        struct reader reader;

        fake_cuda_set("delay_us=100");
        gpu_open(&pinned, h, "cuda:0", PINFEED_PIN_REQUIRE);
        gpu_open(&read_only, h, "cuda:0", PINFEED_PIN_NEVER);
        reader_open(&reader, h, "ramp", 2);
        for (int i = 0; i < 100; i++) {
                gpu_rounds(&pinned, 1);
                gpu_rounds(&read_only, 1);
                reader_read(&reader, 1);
        }
        gpu_look(&pinned);
        ck_assert_uint_eq(pinned.info.copies, 0);
        reader_close(&reader);
        gpu_close(&pinned);
        gpu_rounds(&read_only, 10);
        gpu_close(&read_only);
        gpu_finish(h);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("J-pinning");
        TCase *tc = tcase_create("pinning");

        tcase_set_timeout(tc, 60);
        tcase_add_loop_test(tc, C10_a_child_makes_no_calls, 0, 2);
        tcase_add_test(tc, C10_a_worker_is_replaced_while_slots_are_registered);
        tcase_add_test(tc, J1_a_slot_is_registered_in_pieces);
        tcase_add_test(tc, J1_a_piece_that_fails_is_rolled_back);
        tcase_add_test(tc, J3_registrations_do_not_add_up);
        tcase_add_test(tc, J4_page_locking_is_limited);
        tcase_add_test(tc, J4_page_locking_is_required);
        tcase_add_test(tc, J4_page_locking_is_not_wanted);
        tcase_add_test(tc, J4_nothing_can_be_page_locked);
        tcase_add_test(tc, J4_read_only_memory_can_be_page_locked);
        tcase_add_test(tc, J4_slots_cannot_be_written);
        tcase_add_test(tc, J4_a_pinned_a_read_only_and_a_host_job);
        tcase_add_loop_test(tc, J9_a_context_on_the_job_s_device_alone, 0, 4);
        tcase_add_test(tc, J9_the_thread_has_the_device_to_itself);
        tcase_add_test(tc, J12_a_machine_without_a_driver);
        tcase_add_test(tc, J12_a_machine_without_a_runtime);
        tcase_add_test(tc, J14_the_first_batch_does_not_wait_for_the_last_slot);
        suite_add_tcase(s, tc);
        return s;
}

int main(void) {
        return run_suite(suite());
}
