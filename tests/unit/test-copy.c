/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Copies of every alignment and odd size, as a part of a large copy and of a small one. */

#include "client/copy.h"
#include "tests/support/run.h"

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
        SIZE_MAX_TESTED = 5 * 16384 + 999, /* some turns of four pages, and a rest */
        MARGIN = 128,
        LARGE = 1 << 30,
};

static uint8_t from[SIZE_MAX_TESTED + 2 * MARGIN], to[SIZE_MAX_TESTED + 2 * MARGIN];

static void check_copy(size_t source, size_t target, size_t size, size_t whole) {
        memset(to, 0xee, sizeof(to));
        copy_bytes(to + target, from + source, size, whole);
        ck_assert_mem_eq(to + target, from + source, size);
        for (size_t i = 0; i < target; i++)
                ck_assert_uint_eq(to[i], 0xee);
        for (size_t i = target + size; i < target + size + MARGIN; i++)
                ck_assert_uint_eq(to[i], 0xee);
}

START_TEST(test_copy) {
        static const size_t sizes[] = {0, 1, 63, 64, 65, 16383, 16384, 16447, 40000, SIZE_MAX_TESTED};

        for (size_t i = 0; i < sizeof(from); i++)
                from[i] = (uint8_t)(i * 2654435761U >> 13);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                for (size_t target = 0; target < 65; target += 1 + target / 3)
                        for (size_t source = 0; source < 17; source += 5) {
                                check_copy(source, target, sizes[i], LARGE);
                                check_copy(source, target, sizes[i], sizes[i]);
                        }
}
END_TEST

int main(void) {
        Suite *suite = suite_create("copy");
        TCase *tcase = tcase_create("copy");

        tcase_add_test(tcase, test_copy);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
