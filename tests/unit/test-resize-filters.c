/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The filters that need a sine, of which Pillow takes libm's and we take our own: that the weights come out
 * the same. What whole resizes give is test-kernels.c's matter.
 */

#include "daemon/worker/kernels/kernels.h"
#include "daemon/worker/kernels/resize-filters.h"
#include "tests/support/run.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

/* A small generator of its own, so that this test stands alone. */
static uint32_t next_random(uint64_t *state) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (uint32_t)(*state >> 33);
}

static double sinc(double x) {
        return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x);
}

static double libms_lanczos(double x) {
        return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static double libms_hamming(double x) {
        x = fabs(x);
        return x == 0 ? 1 : x < 1 ? sinc(x) * ((double)0.54f + (double)0.46f * cos(M_PI * x)) : 0;
}

/* The weights of output i as Pillow rounds them, with this machine's own sine. Those above 0 alone stay in 31
 * bits, times 255. */
static void check_weights(const struct resize_axis *axis, uint32_t i, double (*filter)(double)) {
        double scale = (double)axis->inputs / axis->outputs, stretch = scale < 1 ? 1 : scale, sum = 0;
        double center = (i + 0.5) * scale, step = 1.0 / stretch;
        const int32_t *weights = axis->weights + (size_t)i * axis->taps;
        int64_t above = 0;

        for (uint32_t x = 0; x < axis->counts[i]; x++)
                sum += filter((axis->first[i] + x - center + 0.5) * step);
        for (uint32_t x = 0; x < axis->counts[i]; x++) {
                double want = filter((axis->first[i] + x - center + 0.5) * step) / sum * (1 << 22);

                if (weights[x] != (int32_t)(want < 0 ? want - 0.5 : want + 0.5))
                        ck_abort_msg("%u to %u, weight %u of output %u: %d, not %f", axis->inputs,
                                     axis->outputs, x, i, weights[x], want);
                above += weights[x] > 0 ? weights[x] : 0;
        }
        ck_assert_int_lt(255 * above, INT32_MAX);
}

/* Our sine is close enough to libm's for the same weights. */
START_TEST(test_weights_do_not_need_libm) {
        unsigned rounds = getenv("PINFEED_TEST_QUICK") ? 20 : 200;
        static uint8_t from[1000 * 3], to[300 * 3];
        struct resizer resizer = {0};
        uint64_t state = 1;

        for (unsigned round = 0; round < rounds; round++) {
                uint32_t inputs = 301 + next_random(&state) % 700, outputs = 1 + next_random(&state) % 300;
                int lanczos = round % 4 > 0;

                if (round % 5 == 0) /* some grow */
                        inputs = 1 + next_random(&state) % outputs;
                if (inputs == outputs)
                        continue;
                ck_assert_int_eq(resizer_run(&resizer, lanczos ? RESIZE_LANCZOS : RESIZE_HAMMING, to,
                                             sizeof(to), outputs, 1, from, sizeof(from), inputs, 1),
                                 0);
                for (uint32_t i = 0; i < outputs; i++)
                        check_weights(&resizer.horizontal, i, lanczos ? libms_lanczos : libms_hamming);
        }
        resizer_deinit(&resizer);
}
END_TEST

/* Also near the places where it is 0 or 1. */
START_TEST(test_sines) {
        double worst = 0;

        for (int i = -10000; i <= 10000; i++) {
                double x = i * 1e-3, y = i * (M_PI / 4000);

                worst = fmax(worst, fmax(fabs(resize_sine(x) - sin(x)), fabs(resize_cosine(x) - cos(x))));
                worst = fmax(worst, fmax(fabs(resize_sine(y) - sin(y)), fabs(resize_cosine(y) - cos(y))));
        }
        ck_assert_double_le(worst, 0x1p-53);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("resize-filters");
        TCase *tcase = tcase_create("filters");

        tcase_add_test(tcase, test_weights_do_not_need_libm);
        tcase_add_test(tcase, test_sines);
        tcase_set_timeout(tcase, 60);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
