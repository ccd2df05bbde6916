/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Is it a permutation, and is it a good one? The first is checked row by row; the second by statistics over
 * many seeds. All seeds are fixed, so a run always gives the same result; a threshold is the value that a
 * perfect shuffle would exceed with the probability FALSE_ALARM, had the seeds been drawn anew. */

#include "proto/order.h"
#include "tests/support/run.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* FALSE_ALARM = 1e-9 a test: the quantile of the normal distribution */
#define QUANTILE 5.9978

/* Wilson, Hilferty (1931): (chi^2 / k)^(1/3) is nearly normal. */
static double chi_squared_limit(double k) {
        double c = 2 / (9 * k);

        return k * pow(1 - c + QUANTILE * sqrt(c), 3);
}

static uint64_t multiply_modulo(uint64_t a, uint64_t b, uint64_t n) {
        return (uint64_t)((unsigned __int128)a * b % n);
}

/* ---- a permutation ---- */

static void check_permutation(uint64_t n, uint64_t seed, uint32_t epoch) {
        unsigned char *seen = calloc(n, 1);
        struct order order;

        order_init(&order, n, seed, epoch);
        for (uint64_t row = 0; row < n; row++) {
                uint64_t sample = order_sample(&order, row);

                if (sample >= n || seen[sample])
                        ck_abort_msg("N %lu: sample %lu", (unsigned long)n, (unsigned long)sample);
                seen[sample] = 1;
        }
        free(seen);
}

START_TEST(test_permutation_small) {
        for (uint64_t n = 1; n <= 1100; n++)
                check_permutation(n, n * 77, (uint32_t)n);
}
END_TEST

START_TEST(test_permutation_primes) {
        static const uint64_t primes[] = {1009, 7919, 65521, 65537, 104729, 1299709};

        for (size_t i = 0; i < sizeof(primes) / sizeof(primes[0]); i++)
                check_permutation(primes[i], i, 3);
}
END_TEST

START_TEST(test_permutation_powers) {
        for (int k = 1; k <= 18; k++)
                for (int off = -1; off <= 1; off++)
                        check_permutation((UINT64_C(1) << k) + (uint64_t)off, 5, (uint32_t)k);
        /* squares, and one off them: where both halves are full */
        for (uint64_t root = 10; root <= 700; root += 69)
                for (int off = -1; off <= 1; off++)
                        check_permutation(root * root + (uint64_t)off, root, 0);
}
END_TEST

static int compare_u64(const void *a, const void *b) {
        const uint64_t *x = a, *y = b;

        return (*x > *y) - (*x < *y);
}

/* Different rows, all over [0, n), give different samples, all over [0, n). */
static void check_sampled(uint64_t n) {
        enum {
                DRAWS = 200000,
                BINS = 100
        };
        uint64_t *samples = malloc(DRAWS * sizeof(*samples)), stride = n / DRAWS;
        double bins[BINS] = {}, chi_squared = 0;
        struct order order;

        order_init(&order, n, 2024, 1);
        for (uint64_t i = 0; i < DRAWS; i++) {
                samples[i] = order_sample(&order, i < DRAWS / 2 ? i : n - 1 - (i - DRAWS / 2) * stride);
                if (samples[i] >= n)
                        ck_abort_msg("N %lu: sample %lu", (unsigned long)n, (unsigned long)samples[i]);
                bins[(unsigned __int128)samples[i] * BINS / n]++;
        }
        qsort(samples, DRAWS, sizeof(*samples), compare_u64);
        for (uint64_t i = 1; i < DRAWS; i++)
                if (samples[i - 1] == samples[i])
                        ck_abort_msg("N %lu: sample %lu twice", (unsigned long)n, (unsigned long)samples[i]);
        for (int i = 0; i < BINS; i++)
                chi_squared += pow(bins[i] - DRAWS / BINS, 2) / (DRAWS / BINS);
        ck_assert_double_lt(chi_squared, chi_squared_limit(BINS - 1));
        free(samples);
}

START_TEST(test_permutation_huge) {
        check_sampled(1000000000);
        check_sampled(UINT64_C(1) << 32);
        check_sampled((UINT64_C(1) << 40) + 1);
        check_sampled((UINT64_C(1) << 48) - 1);
        check_sampled(UINT64_C(1) << 48);
}
END_TEST

/* ---- every order equally often ---- */

static uint32_t rank_of_order(const struct order *order, uint32_t n) {
        uint32_t rank = 0, items[8];

        for (uint32_t i = 0; i < n; i++)
                items[i] = (uint32_t)order_sample(order, i);
        for (uint32_t i = 0; i < n; i++) {
                uint32_t smaller = 0;

                for (uint32_t j = i + 1; j < n; j++)
                        smaller += items[j] < items[i];
                rank = rank * (n - i) + smaller;
        }
        return rank;
}

/* `by_epoch`: one seed and many epochs, instead of many seeds. */
static void check_all_orders(uint32_t n, uint32_t n_orders, int by_epoch) {
        uint32_t each = 1000, counts[720] = {};
        double chi_squared = 0;
        struct order order;

        for (uint32_t i = 0; i < each * n_orders; i++) {
                order_init(&order, n, by_epoch ? 42 : i, by_epoch ? i : 0);
                counts[rank_of_order(&order, n)]++;
        }
        for (uint32_t i = 0; i < n_orders; i++) {
                ck_assert_uint_gt(counts[i], 0);
                chi_squared += pow((double)counts[i] - each, 2) / each;
        }
        if (n_orders > 1)
                ck_assert_msg(chi_squared < chi_squared_limit(n_orders - 1), "N %u: %g", n, chi_squared);
}

START_TEST(test_all_orders) {
        static const uint32_t factorial[] = {1, 1, 2, 6, 24, 120, 720};

        for (uint32_t n = 1; n <= 6; n++) {
                check_all_orders(n, factorial[n], 0);
                check_all_orders(n, factorial[n], 1);
        }
}
END_TEST

/* ---- every item equally often at every position ---- */

static void check_places(uint32_t n, uint32_t seeds) {
        uint32_t *counts = calloc((size_t)n * n, sizeof(*counts));
        double expected = (double)seeds / n, chi_squared = 0;
        struct order order;

        for (uint32_t seed = 0; seed < seeds; seed++) {
                order_init(&order, n, seed, seed % 7);
                for (uint32_t row = 0; row < n; row++)
                        counts[row * n + order_sample(&order, row)]++;
        }
        for (size_t i = 0; i < (size_t)n * n; i++)
                chi_squared += pow(counts[i] - expected, 2) / expected;
        /* each column and each row of the table has a fixed sum: (n-1)^2 degrees of freedom, and a cell's
         * variance is (1 - 1/n) of the expected value */
        chi_squared *= (n - 1.0) / n;
        ck_assert_msg(chi_squared < chi_squared_limit(pow(n - 1, 2)), "N %u: %g", n, chi_squared);
        free(counts);
}

START_TEST(test_places) {
        static const uint32_t beyond[] = {65, 95, 96, 97, 98, 99, 100, 101, 110, 121, 127, 128, 200, 257};

        for (uint32_t n = 2; n <= 64; n++)
                check_places(n, 100 * n);
        for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++)
                check_places(beyond[i], 50 * beyond[i]);
}
END_TEST

/* ---- neighbours ---- */

/* The distance of the samples at two rows `lag` apart is any of 1 ... n-1 equally often. */
static void check_distances(uint32_t n, uint32_t lag, uint32_t seeds) {
        uint32_t *counts = calloc(n, sizeof(*counts));
        double expected = (double)seeds * n / (n - 1), chi_squared = 0;
        struct order order;

        for (uint32_t seed = 0; seed < seeds; seed++) {
                order_init(&order, n, seed, 1);
                for (uint32_t row = 0; row < n; row++) {
                        uint64_t a = order_sample(&order, row), b = order_sample(&order, (row + lag) % n);

                        counts[(b + n - a) % n]++;
                }
        }
        ck_assert_uint_eq(counts[0], 0);
        for (uint32_t i = 1; i < n; i++)
                chi_squared += pow(counts[i] - expected, 2) / expected;
        ck_assert_msg(chi_squared < chi_squared_limit(n - 2), "N %u, lag %u: %g", n, lag, chi_squared);
        free(counts);
}

/* Correlation of the samples at rows `lag` apart, the epoch closed to a ring: mean -1/(n-1), variance about
 * 1/n. */
static void check_correlation(uint32_t n, uint32_t lag, uint32_t seeds) {
        double middle = (n - 1) / 2.0, variance = ((double)n * n - 1) / 12, sum = 0, deviation;
        struct order order;

        for (uint32_t seed = 0; seed < seeds; seed++) {
                order_init(&order, n, seed, 2);
                for (uint32_t row = 0; row < n; row++) {
                        double a = (double)order_sample(&order, row) - middle;
                        double b = (double)order_sample(&order, (row + lag) % n) - middle;

                        sum += a * b / variance / n;
                }
        }
        deviation = (sum / seeds + 1.0 / (n - 1)) * sqrt((double)n * seeds);
        ck_assert_msg(fabs(deviation) < QUANTILE, "N %u, lag %u: %g sigma", n, lag, deviation);
}

START_TEST(test_neighbours) {
        static const uint32_t sizes[] = {97, 101, 997, 1000, 1024};
        /* 10, 11, 32: neighbours in the other half */
        static const uint32_t lags[] = {1, 2, 10, 11, 32};

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                for (size_t j = 0; j < sizeof(lags) / sizeof(lags[0]); j++) {
                        check_distances(sizes[i], lags[j], 300000 / sizes[i]);
                        check_correlation(sizes[i], lags[j], 300000 / sizes[i]);
                }
}
END_TEST

/* ---- other seeds and epochs ---- */

static uint32_t agreements(uint64_t n, uint64_t seed, uint32_t epoch, uint64_t other_seed,
                           uint32_t other_epoch) {
        struct order one, other;
        uint32_t same = 0;

        order_init(&one, n, seed, epoch);
        order_init(&other, n, other_seed, other_epoch);
        for (uint64_t i = 0; i < 1000; i++) {
                uint64_t row = multiply_modulo(i, 7919, n);

                same += order_sample(&one, row) == order_sample(&other, row);
        }
        return same;
}

/* Two orders agree at one row on average (Poisson), whichever bit of seed or epoch differs. */
START_TEST(test_keys_differ) {
        double sum = 0, pairs = 0;

        for (int bit = 0; bit < 64; bit++)
                for (uint64_t seed = 0; seed < 10; seed++, pairs++)
                        sum += agreements(1000, seed, 0, seed ^ UINT64_C(1) << bit, 0);
        for (int bit = 0; bit < 32; bit++)
                for (uint64_t seed = 0; seed < 10; seed++, pairs++)
                        sum += agreements(1000, seed, 5, seed, 5 ^ UINT32_C(1) << bit);
        ck_assert_double_lt(fabs(sum - pairs) / sqrt(pairs), QUANTILE);
        ck_assert_uint_lt(agreements(1000000000, 1, 0, 1, 1), 3);
        ck_assert_uint_lt(agreements(1000000000, 1, 0, 2, 0), 3);
        ck_assert_uint_eq(agreements(1000, 9, 9, 9, 9), 1000);
}
END_TEST

/* These are part of the bits: who changes them changes everybody's order. */
START_TEST(test_pinned) {
        static const struct {
                uint64_t n, seed;
                uint32_t epoch;
                uint64_t samples[4]; /* at rows 0, 1, n/2, n-1 */
        } pinned[] = {
                {5, 0, 0, {1, 0, 4, 2}},
                {96, 1, 2, {47, 69, 37, 21}},
                {97, 1, 2, {15, 76, 70, 60}},
                {10000, 0, 0, {2734, 1173, 6845, 2193}},
                {1000000000, UINT64_MAX, 3, {150943390, 663913981, 568530893, 298204144}},
                {UINT64_C(1) << 48,
                 123456789,
                 UINT32_MAX,
                 {220390490007233, 10499400630742, 146951077003017, 1078722142360}},
        };

        for (size_t i = 0; i < sizeof(pinned) / sizeof(pinned[0]); i++) {
                uint64_t rows[] = {0, 1, pinned[i].n / 2, pinned[i].n - 1};
                struct order order;

                order_init(&order, pinned[i].n, pinned[i].seed, pinned[i].epoch);
                for (int j = 0; j < 4; j++)
                        ck_assert_uint_eq(order_sample(&order, rows[j]), pinned[i].samples[j]);
        }
}
END_TEST

int main(void) {
        Suite *suite = suite_create("order");
        TCase *tests = tcase_create("order");

        suite_add_tcase(suite, tests);
        tcase_set_timeout(tests, 120);
        tcase_add_test(tests, test_permutation_small);
        tcase_add_test(tests, test_permutation_primes);
        tcase_add_test(tests, test_permutation_powers);
        tcase_add_test(tests, test_permutation_huge);
        tcase_add_test(tests, test_all_orders);
        tcase_add_test(tests, test_places);
        tcase_add_test(tests, test_neighbours);
        tcase_add_test(tests, test_keys_differ);
        tcase_add_test(tests, test_pinned);
        return run_suite(suite);
}
