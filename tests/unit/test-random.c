/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Philox against the vectors that its authors published, the layout of the counter against the formula in
 * DESIGN, exp and log against libm's long doubles, and all of them against fixed values: these numbers are
 * part of the bits. */

#include "proto/random.h"
#include "tests/support/run.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Random123, tests/kat_vectors: philox4x32, 10 rounds. */
START_TEST(test_known_answers) {
        static const struct {
                uint32_t counter[4], key[2], out[4];
        } vectors[] = {
                {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                 {0xffffffff, 0xffffffff},
                 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                 {0xa4093822, 0x299f31d0},
                 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
        };

        for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
                uint32_t out[4];

                random_philox4x32(out, vectors[i].counter, vectors[i].key);
                ck_assert_mem_eq(out, vectors[i].out, sizeof(out));
        }
}
END_TEST

/* sample (48) . epoch (32) . domain (8) . step (16) . block (24), as one 128-bit number */
static void check_counter(uint64_t seed, uint64_t sample, uint32_t epoch, uint8_t domain, uint16_t step) {
        struct random random;

        random_init(&random, seed, sample, epoch, (enum random_domain)domain, step);
        for (uint32_t block = 0; block < 3; block++) {
                unsigned __int128 number = sample;
                uint32_t counter[4], key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];

                number = number << 32 | epoch;
                number = number << 8 | domain;
                number = number << 16 | step;
                number = number << 24 | block;
                for (int i = 0; i < 4; i++)
                        counter[i] = (uint32_t)(number >> 32 * i);
                random_philox4x32(out, counter, key);
                for (int i = 0; i < 4; i++)
                        ck_assert_uint_eq(random_u32(&random), out[i]);
        }
}

START_TEST(test_counter) {
        check_counter(0, 0, 0, 0, 0);
        check_counter(UINT64_MAX, (UINT64_C(1) << 48) - 1, UINT32_MAX, 255, UINT16_MAX);
        check_counter(UINT64_C(0x0123456789abcdef), UINT64_C(0x89abcdef0123), 0x45678901, 0xfe, 0xdcba);
        for (int bit = 0; bit < 48; bit++)
                check_counter(1, UINT64_C(1) << bit, 0, RANDOM_TRANSFORM, 0);
        for (int bit = 0; bit < 32; bit++)
                check_counter(UINT64_C(1) << (bit + 32), 0, UINT32_C(1) << bit, RANDOM_SUBSTITUTE, 0);
        for (int bit = 0; bit < 16; bit++)
                check_counter(3, 0, 0, RANDOM_USER, (uint16_t)(1 << bit));
}
END_TEST

/* The last block is followed by the first one, not by the next step's. */
START_TEST(test_block_wraps) {
        struct random random, again;

        random_init(&random, 7, 1, 2, RANDOM_USER, 3);
        again = random;
        random.counter[0] |= 0xffffff;
        for (int i = 0; i < 4; i++)
                random_u32(&random);
        ck_assert_mem_eq(random.counter, again.counter, sizeof(again.counter));
}
END_TEST

START_TEST(test_unit) {
        struct random random, words;
        double sum = 0;

        random_init(&random, 11, 0, 0, RANDOM_USER, 0);
        words = random;
        for (int i = 0; i < 100000; i++) {
                uint64_t high = random_u32(&words), bits = (high << 32 | random_u32(&words)) >> 11;
                double unit = random_unit(&random);

                if (!(unit >= 0 && unit < 1) || unit != ldexp((double)bits, -53))
                        ck_abort_msg("%d: %.17g", i, unit);
                sum += unit;
        }
        /* variance 1/12; six sigma */
        ck_assert_double_lt(fabs(sum - 50000), 6 * sqrt(100000 / 12.0));
}
END_TEST

static double chi_squared_of(const double *counts, uint32_t bins, double draws) {
        double sum = 0, expected = draws / bins;

        for (uint32_t i = 0; i < bins; i++)
                sum += pow(counts[i] - expected, 2) / expected;
        return sum;
}

/* Equally often in every part of the range, and for every remainder modulo `bins`. */
static void check_below(uint32_t bound, uint32_t bins) {
        enum {
                DRAWS = 60000
        };
        double parts[16] = {}, remainders[16] = {}, limit = 31 + 3.6 * bins;
        struct random random;

        random_init(&random, 5, bound, 0, RANDOM_USER, 0);
        for (int i = 0; i < DRAWS; i++) {
                uint32_t number = random_below(&random, bound);

                if (number >= bound)
                        ck_abort_msg("%u is not below %u", number, bound);
                parts[(uint64_t)number * bins / bound]++;
                remainders[number % bins]++;
        }
        /* exceeded by chance with 1e-9: the quantiles of 1, 2, 5, 11 degrees of freedom are 37, 41, 51, 67 */
        ck_assert_double_lt(chi_squared_of(parts, bins, DRAWS), limit);
        ck_assert_double_lt(chi_squared_of(remainders, bins, DRAWS), limit);
}

START_TEST(test_below) {
        struct random random;

        random_init(&random, 0, 0, 0, RANDOM_USER, 0);
        for (int i = 0; i < 10; i++)
                ck_assert_uint_eq(random_below(&random, 1), 0);
        check_below(2, 2);
        check_below(3, 3);
        check_below(6, 6);
        check_below(12, 12);
        check_below(1000003, 12);
        /* without rejection each third number would come twice as often */
        check_below(UINT32_C(3) << 30, 3);
        check_below(UINT32_MAX, 12);
}
END_TEST

/* ---- exp and log ---- */

/* valgrind computes long doubles with the precision of doubles */
static int long_double_is_longer(void) {
        volatile long double sum = 1;

        sum += 0x1p-60L;
        return sum != 1;
}

static double error_ulp(double got, long double want) {
        double ulp = nextafter(fabs((double)want), INFINITY) - fabs((double)want);

        return (double)(fabsl(got - want) / ulp);
}

/* Points all over the range, and all around x = 0, where r is small; both signs. */
static double exp_point(struct random *random, int i) {
        double unit = random_unit(random) * 2 - 1;

        return i % 3 == 0 ? unit * 700 : i % 3 == 1 ? unit * 2 : ldexp(unit, -(i % 60));
}

/* Points of every exponent, and all around x = 1, where the result is small. */
static double log_point(struct random *random, int i) {
        double unit = random_unit(random);

        return i % 3 == 0   ? ldexp(1 + unit, i % 2045 - 1022)
               : i % 3 == 1 ? 0.5 + unit
                            : 1 + ldexp(unit - 0.5, -(i % 50));
}

/* Against a second definition, and evenly spread where the bound is far from a power of two. */
START_TEST(test_below_u64) {
        static const uint64_t bounds[] = {
                1, 2, 3, 1 << 20, (UINT64_C(1) << 32) + 1, UINT64_C(3) << 46, UINT64_MAX};
        struct random random, words;
        uint64_t counts[6] = {0};

        for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
                random_init(&random, 5, 6, 7, RANDOM_SUBSTITUTE, (uint16_t)i);
                words = random;
                for (int n = 0; n < 1000; n++) {
                        uint64_t ones = 0, expected;

                        while (ones < bounds[i] - 1)
                                ones = ones << 1 | 1;
                        do {
                                uint64_t high = random_u32(&words);

                                expected = (high << 32 | random_u32(&words)) & ones;
                        } while (expected >= bounds[i]);
                        ck_assert_uint_eq(random_below_u64(&random, bounds[i]), expected);
                }
        }
        random_init(&random, 1, 2, 3, RANDOM_SUBSTITUTE, 0);
        for (int n = 0; n < 60000; n++)
                counts[random_below_u64(&random, UINT64_C(6) << 40) >> 40]++;
        for (int i = 0; i < 6; i++)
                ck_assert(counts[i] > 9600 && counts[i] < 10400);
}
END_TEST

START_TEST(test_exp_log_error) {
        double worst_exp = 0, worst_log = 0;
        struct random random;

        if (!long_double_is_longer())
                return;
        random_init(&random, 1, 0, 0, RANDOM_USER, 0);
        for (int i = 0; i < 1000000; i++) {
                double x = exp_point(&random, i), y = log_point(&random, i);

                worst_exp = fmax(worst_exp, error_ulp(random_exp(x), expl(x)));
                worst_log = fmax(worst_log, error_ulp(random_log(y), logl(y)));
        }
        ck_assert_double_lt(worst_exp, 2);
        ck_assert_double_lt(worst_log, 2);
}
END_TEST

START_TEST(test_exp_log_special) {
        ck_assert(random_exp(0) == 1);
        ck_assert(random_log(1) == 0);
        for (int k = -1000; k <= 1000; k += 50)
                ck_assert_double_lt(fabs(random_log(ldexp(1, k)) - k * log(2)), 2e-16 * 1000);
        /* the ends of the range, and what lies beyond: still finite */
        ck_assert_double_lt(fabs(random_exp(700) / exp(700) - 1), 1e-15);
        ck_assert_double_lt(fabs(random_exp(-700) / exp(-700) - 1), 1e-15);
        ck_assert(random_exp(INFINITY) == random_exp(700));
        ck_assert(random_exp(-INFINITY) == random_exp(-700));
        ck_assert(random_exp(NAN) == random_exp(-700));
}
END_TEST

static uint64_t hash_double(uint64_t hash, double value) {
        uint64_t bits;

        memcpy(&bits, &value, sizeof(bits));
        return (hash ^ bits) * UINT64_C(0x100000001b3); /* FNV-1a, by words */
}

/* Every bit of 40,000 results: the same on every machine, with any compiler and flags. */
START_TEST(test_exp_log_pinned) {
        uint64_t hash = UINT64_C(0xcbf29ce484222325);

        for (int i = 0; i < 20000; i++) {
                hash = hash_double(hash, random_exp(-700 + i * 0.07));
                hash = hash_double(hash, random_log((i + 1) * 0.01));
        }
        ck_assert_uint_eq(hash, UINT64_C(0xff160b89da832fb0));
}
END_TEST

int main(void) {
        Suite *suite = suite_create("random");
        TCase *tests = tcase_create("random");

        suite_add_tcase(suite, tests);
        tcase_set_timeout(tests, 120);
        tcase_add_test(tests, test_known_answers);
        tcase_add_test(tests, test_counter);
        tcase_add_test(tests, test_block_wraps);
        tcase_add_test(tests, test_unit);
        tcase_add_test(tests, test_below);
        tcase_add_test(tests, test_below_u64);
        tcase_add_test(tests, test_exp_log_error);
        tcase_add_test(tests, test_exp_log_special);
        tcase_add_test(tests, test_exp_log_pinned);
        return run_suite(suite);
}
