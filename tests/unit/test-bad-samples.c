/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What becomes of samples that are bad, condemned or cannot be read, and what the page says meanwhile. The
 * substitutes are drawn here a second time, from their definition in PROTOCOL.md. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/worker/progress.h"
#include "daemon/worker/sample-set.h"
#include "proto/random.h"
#include "tests/support/assembly.h"
#include "tests/support/ramp.h"
#include "tests/support/run.h"

#include <errno.h>
#include <limits.h>

struct told {
        int n;
        uint64_t sample;
        int error;
        char file[ASSEMBLY_FILE_MAX + 1];
        char text[FAULT_TEXT_MAX + 1];
        int result; /* what to answer */
};

static int tell(void *context, uint64_t sample, const char *file, int error, const char *text) {
        struct told *told = context;

        told->n++;
        told->sample = sample;
        told->error = error;
        strcpy(told->file, file);
        strcpy(told->text, text);
        return told->result;
}

/* The substitute by its definition, with the good ones given. */
static uint64_t substitute_of(uint64_t sample, uint64_t samples, uint64_t seed, uint32_t epoch,
                              const char *good) {
        for (uint16_t attempt = 0; attempt < 100; attempt++) {
                struct random random;
                uint64_t candidate;

                random_init(&random, seed, sample, epoch, RANDOM_SUBSTITUTE, attempt);
                candidate = random_below_u64(&random, samples);
                if (good[candidate] == '+')
                        return candidate;
        }
        return UINT64_MAX;
}

static uint8_t flag_at(struct fixture *fixture, uint32_t row) {
        return fixture->slot[fixture->schema.flags_offset + row];
}

#define CHW "\"output\": {\"dtype\": \"uint8\", \"layout\": \"chw\"}"

/* Eight photos, of which 2 is cut and 5 is none. */
static int scan_with_bad_ones(char recipe[PATH_MAX]) {
        int index_fd = -1;

        put_photos(8);
        ck_assert_int_eq(truncate(in_folder("a/02.jpg"), 300), 0);
        put_file("b/05.jpg", 100);
        ck_assert_int_eq(scan_folder(&index_fd, NULL), 8);
        image_recipe(recipe, CROP, CHW);
        return index_fd;
}

/* As the substitute's own row in this epoch: pixels, label, crop and flip; the hidden number stays. */
START_TEST(a_bad_sample_becomes_a_substitute) {
        char recipe[PATH_MAX];
        _cleanup_(fd_closep) int index_fd = scan_with_bad_ones(recipe);
        uint64_t seen[3];
        struct fixture fixture, plain;
        struct told told = {0};

        fixture_init(&fixture, recipe, 8, 16, 0, index_fd);
        fixture_init(&plain, recipe, 8, 16, 0, index_fd);
        assembly_replace_bad(fixture.assembly, tell, &told);
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
                uint64_t substitute = substitute_of(5, 8, 7, epoch, "++-++-++");

                ck_assert_msg(fill(&fixture, 7, epoch, 0, 4, 8) == 0, "%s", fixture.fault.text);
                ck_assert_uint_eq(fixture.replaced, 2);
                for (uint32_t row = 0; row < 8; row++) {
                        ck_assert_int_eq(id_at(&fixture, 4 + row), row);
                        ck_assert_int_eq(flag_at(&fixture, 4 + row),
                                         row == 2 || row == 5 ? SCHEMA_ROW_REPLACED : SCHEMA_ROW_GOOD);
                }
                ck_assert_int_eq(fill(&plain, 7, epoch, substitute, 0, 1), 0);
                ck_assert_int_eq(memcmp(cell(&plain, 0, 0), cell(&fixture, 0, 4 + 5), 8 * 8 * 3), 0);
                ck_assert_int_eq(*(int64_t *)cell(&fixture, 1, 4 + 5), substitute >= 4);
                seen[epoch] = substitute;
        }
        ck_assert(seen[0] != seen[1] || seen[1] != seen[2]);
        ck_assert_int_ge(told.n, 6);

        told.n = 0;
        ck_assert_int_eq(fill(&fixture, 7, 0, 2, 0, 1), 0);
        ck_assert_int_ge(told.n, 1);
        fixture_deinit(&plain);
        fixture_deinit(&fixture);
}
END_TEST

START_TEST(substitutes_do_not_depend_on_the_cut) {
        char recipe[PATH_MAX];
        _cleanup_(fd_closep) int index_fd = scan_with_bad_ones(recipe);
        static const uint64_t condemned[] = {3, 6};
        struct fixture whole, cut;
        struct told told = {0};

        fixture_init(&whole, recipe, 8, 16, 1, index_fd);
        fixture_init(&cut, recipe, 8, 16, 1, index_fd);
        assembly_replace_bad(whole.assembly, tell, &told);
        assembly_replace_bad(cut.assembly, tell, &told);
        ck_assert_int_eq(assembly_condemn(whole.assembly, condemned, 2), 0);
        ck_assert_int_eq(assembly_condemn(cut.assembly, condemned + 1, 1), 0);
        ck_assert_int_eq(assembly_condemn(cut.assembly, condemned, 1), 0);
        ck_assert_int_eq(fill(&whole, 7, 1, 0, 0, 16), 0);
        ck_assert_uint_eq(whole.replaced, 8);
        ck_assert_int_eq(fill(&cut, 7, 1, 11, 11, 5), 0);
        ck_assert_int_eq(fill(&cut, 9, 0, 0, 0, 8), 0); /* something else meanwhile */
        for (uint32_t row = 11; row-- > 0;)
                ck_assert_int_eq(fill(&cut, 7, 1, row, row, 1), 0);
        ck_assert_int_eq(memcmp(whole.slot, cut.slot, whole.schema.slot_stride), 0);
        fixture_deinit(&whole);
        fixture_deinit(&cut);
}
END_TEST

START_TEST(reasons_name_file_and_bytes) {
        char recipe[PATH_MAX];
        _cleanup_(fd_closep) int index_fd = scan_with_bad_ones(recipe);
        struct fixture fixture;
        struct told told = {0};

        fixture_init(&fixture, recipe, 8, 8, 0, index_fd);
        assembly_replace_bad(fixture.assembly, tell, &told);
        told.result = -ECANCELED; /* ends the chunk */
        ck_assert_int_eq(fill(&fixture, 0, 0, 2, 0, 1), -ECANCELED);
        ck_assert_uint_eq(told.sample, 2);
        ck_assert_int_eq(told.error, -EBADMSG);
        ck_assert_str_eq(told.file, "a/02.jpg");
        ck_assert_ptr_nonnull(strstr(told.text, "its 300 bytes end in"));

        /* cut, emptied and replaced after the scan: judged by what they are now */
        ck_assert_int_eq(truncate(in_folder("a/01.jpg"), 200), 0);
        ck_assert_int_eq(fill(&fixture, 0, 0, 1, 0, 1), -ECANCELED);
        ck_assert_ptr_nonnull(strstr(told.text, "its 200 bytes end in"));
        ck_assert_int_eq(truncate(in_folder("a/01.jpg"), 0), 0);
        ck_assert_int_eq(fill(&fixture, 0, 0, 1, 0, 1), -ECANCELED);
        ck_assert_str_eq(told.text, "the file is empty");
        put_jpeg("b/05.jpg", 77);
        ck_assert_int_eq(fill(&fixture, 0, 0, 5, 0, 1), 0);
        ck_assert_int_eq(flag_at(&fixture, 0), SCHEMA_ROW_GOOD);
        fixture_deinit(&fixture);
}
END_TEST

START_TEST(a_file_that_cannot_be_read_is_not_replaced) {
        char recipe[PATH_MAX];
        _cleanup_(fd_closep) int index_fd = scan_with_bad_ones(recipe);
        struct told told = {0};
        struct fixture fixture;
        uint64_t begin = clock_ns();

        fixture_init(&fixture, recipe, 8, 8, 0, index_fd);
        assembly_replace_bad(fixture.assembly, tell, &told);
        ck_assert_int_eq(remove(in_folder("b/06.jpg")), 0);
        ck_assert_int_eq(fill(&fixture, 0, 0, 6, 3, 1), -ENOENT);
        ck_assert_str_eq(fixture.failure.file, "b/06.jpg");
        ck_assert_str_eq(fixture.fault.text, "cannot open it: No such file or directory");
        ck_assert_uint_eq(fixture.failure.first, 3);
        put_link("b/06.jpg", "06.jpg");
        ck_assert_int_eq(fill(&fixture, 0, 0, 6, 3, 1), -ELOOP);
        ck_assert_int_eq(told.n, 0);
        ck_assert_uint_lt(clock_ns() - begin, 900 * NS_PER_MS); /* at once */
        fixture_deinit(&fixture);
}
END_TEST

#define DIE(sample, keys) SYNTHETIC("\"mode\": \"die\", \"bytes\": 37, \"die_sample\": " #sample ", " keys)

START_TEST(errors_that_may_pass_get_their_time) {
        struct fixture fixture;
        struct told told = {0};
        uint64_t begin = clock_ns();

        if (!has_test_modes())
                return;
        fixture_init(&fixture, DIE(5, "\"die_how\": \"read_error\""), 100, 16, 0, -1);
        assembly_replace_bad(fixture.assembly, tell, &told);
        ck_assert_int_eq(fill(&fixture, 0, 0, 0, 0, 16), -EIO);
        ck_assert_uint_ge(clock_ns() - begin, 1110 * NS_PER_MS);
        ck_assert_str_eq(fixture.fault.text, "cannot read it: Input/output error, at the last of 4 tries");
        ck_assert_uint_eq(fixture.failure.sample, 5);
        ck_assert_uint_eq(fixture.page.chunk_done, 5);
        ck_assert_int_eq(told.n, 0);
        fixture_deinit(&fixture);
}
END_TEST

/* It would end this process. */
START_TEST(the_condemned_are_never_touched) {
        struct fixture fixture;
        struct told told = {0};
        uint64_t condemned[25], substitute;
        char good[101];

        if (!has_test_modes())
                return;
        memset(good, '+', 100);
        for (uint64_t i = 0; i < 25; i++) {
                condemned[i] = 1 + 4 * i;
                good[condemned[i]] = '-';
        }
        fixture_init(&fixture, DIE(1, "\"die_how\": \"abort\", \"die_every\": 4"), 100, 100, 0, -1);
        ck_assert_int_eq(assembly_condemn(fixture.assembly, condemned, 25), 0);
        ck_assert_int_eq(fill(&fixture, 3, 2, 0, 0, 100), -EIO);
        ck_assert_str_eq(fixture.fault.text, "sample 1 is condemned: workers died or hung at it");
        ck_assert_uint_eq(fixture.failure.sample, 1);
        ck_assert_uint_eq(fixture.failure.first, 1);

        assembly_replace_bad(fixture.assembly, tell, &told);
        for (int twice = 0; twice < 2; twice++) {
                ck_assert_int_eq(fill(&fixture, 3, 2, 0, 0, 100), 0);
                ck_assert_uint_eq(fixture.replaced, 25);
                ck_assert_int_eq(assembly_condemn(fixture.assembly, condemned, 25), 0);
        }
        for (uint32_t row = 0; row < 100; row++) {
                ck_assert_int_eq(id_at(&fixture, row), row);
                substitute = good[row] == '+' ? row : substitute_of(row, 100, 3, 2, good);
                ck_assert_uint_eq(*(uint64_t *)cell(&fixture, 0, row), substitute);
                ck_assert(ramp_check(cell(&fixture, 1, row), 37, substitute, 2, NULL));
        }
        ck_assert_int_eq(told.n, 0);
        fixture_deinit(&fixture);
}
END_TEST

START_TEST(without_good_samples_there_is_an_end) {
        struct fixture fixture;
        struct told told = {0};

        if (!has_test_modes())
                return;
        fixture_init(&fixture, DIE(0, "\"die_how\": \"raise\", \"die_every\": 1"), 100, 16, 0, -1);
        assembly_replace_bad(fixture.assembly, tell, &told);
        ck_assert_int_eq(fill(&fixture, 0, 0, 9, 2, 1), -EBADMSG);
        ck_assert_str_eq(fixture.fault.text, "sample 9 raises; nor is any of 100 substitutes for it good");
        ck_assert_uint_eq(fixture.failure.sample, 9);
        ck_assert_uint_eq(fixture.failure.first, 2);
        ck_assert(told.n > 90 && told.n <= 101);
        fixture_deinit(&fixture);
}
END_TEST

static void assert_one_line_of_text(const char *text) {
        ck_assert_uint_le(strlen(text), FAULT_TEXT_MAX);
        for (; *text; text++)
                ck_assert((uint8_t)*text >= 0x20 && *text != 0x7f);
}

START_TEST(ugly_reasons_are_cut_and_escaped) {
        struct fixture fixture;
        struct told told = {0};

        if (!has_test_modes())
                return;
        fixture_init(&fixture, DIE(5, "\"die_how\": \"raise_ugly\""), 100, 16, 0, -1);
        ck_assert_int_eq(fill(&fixture, 0, 0, 0, 0, 16), -EBADMSG);
        ck_assert_int_eq(strncmp(fixture.fault.text,
                                 "sample 5 raises: ugly ? ? ?( ?[31m ?? %s%n \xe2\x82\xac ??? ", 51),
                         0);
        ck_assert_uint_gt(strlen(fixture.fault.text), FAULT_TEXT_MAX - 8);
        ck_assert_str_eq(fixture.fault.text + strlen(fixture.fault.text) - 3, "...");
        assert_one_line_of_text(fixture.fault.text);
        assembly_replace_bad(fixture.assembly, tell, &told);
        ck_assert_int_eq(fill(&fixture, 0, 0, 0, 0, 16), 0);
        ck_assert_str_eq(told.text, fixture.fault.text);
        fixture_deinit(&fixture);
}
END_TEST

START_TEST(sets_keep_what_they_got) {
        struct sample_set set = {0};

        ck_assert(!sample_set_has(&set, 0));
        for (uint64_t i = 0; i < 10000; i++) {
                ck_assert(!sample_set_has(&set, i << 30));
                ck_assert_int_eq(sample_set_add(&set, i << 30), 0);
                ck_assert_int_eq(sample_set_add(&set, i << 30), SAMPLE_SET_E_KNOWN);
        }
        ck_assert_uint_eq(set.count, 10000);
        for (uint64_t i = 0; i < 10000; i++) {
                ck_assert(sample_set_has(&set, i << 30));
                ck_assert(!sample_set_has(&set, (i << 30) + 1));
        }
        sample_set_clear(&set);
        ck_assert(!sample_set_has(&set, 0));
        ck_assert_int_eq(sample_set_add(&set, 0), 0);
        sample_set_deinit(&set);
        ck_assert(!sample_set_has(&set, 0));
}
END_TEST

/* After each store that a death could follow. */
START_TEST(the_page_is_right_at_any_moment) {
        struct worker_page page = {0};

        progress_init(&page);
        ck_assert_uint_eq(page.sample, WORKER_PAGE_IDLE);
        ck_assert_uint_eq(page.chunk_slot, WORKER_PAGE_IDLE);
        for (uint32_t chunk = 3; chunk < 5; chunk++) {
                progress_begin_chunk(&page, chunk, 10 * chunk);
                ck_assert_uint_eq(page.chunk_slot, chunk);
                ck_assert_uint_eq(page.chunk_first, 10 * chunk);
                ck_assert_uint_eq(page.chunk_done, 0);
                ck_assert_uint_eq(page.sample, WORKER_PAGE_IDLE);
                for (uint32_t row = 0; row < 3; row++) {
                        progress_begin_sample(&page, 7 + row, 2, 100 + row);
                        ck_assert_uint_eq(page.sample, 7 + row);
                        ck_assert_uint_eq(page.epoch, 2);
                        ck_assert_uint_eq(page.row, 100 + row);
                        ck_assert_uint_eq(page.chunk_done, row);
                        ck_assert(page.started_ns > 0 && page.started_ns <= clock_ns());
                        progress_end_row(&page, row + 1);
                        ck_assert_uint_eq(page.sample, WORKER_PAGE_IDLE);
                        ck_assert_uint_eq(page.chunk_done, row + 1);
                }
                progress_end_chunk(&page, 3);
                ck_assert_uint_eq(page.chunk_slot, WORKER_PAGE_IDLE);
                ck_assert_uint_eq(page.rows_done, 3 * (chunk - 2));
                ck_assert_uint_gt(page.cpu_ns, 0);
        }
}
END_TEST

static Suite *bad_samples_suite(void) {
        Suite *suite = suite_create("bad-samples");
        TCase *bad = tcase_create("bad samples");

        tcase_add_checked_fixture(bad, make_folder, remove_folder);
        tcase_set_timeout(bad, 30);
        tcase_add_test(bad, a_bad_sample_becomes_a_substitute);
        tcase_add_test(bad, substitutes_do_not_depend_on_the_cut);
        tcase_add_test(bad, reasons_name_file_and_bytes);
        tcase_add_test(bad, a_file_that_cannot_be_read_is_not_replaced);
        tcase_add_test(bad, errors_that_may_pass_get_their_time);
        tcase_add_test(bad, the_condemned_are_never_touched);
        tcase_add_test(bad, without_good_samples_there_is_an_end);
        tcase_add_test(bad, ugly_reasons_are_cut_and_escaped);
        tcase_add_test(bad, sets_keep_what_they_got);
        tcase_add_test(bad, the_page_is_right_at_any_moment);
        suite_add_tcase(suite, bad);
        return suite;
}

int main(void) {
        return run_suite(bad_samples_suite());
}
