/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pillow's filters, operation by operation: order and type of each are part of the bits.
 *
 * Two of them need sines, which libm rounds differently with and without FMA, so they are made here from
 * additions and multiplications, each exactly rounded by IEEE 754 (as exp and log are in proto/random.c).
 * x is reduced to r = x - k pi/2 with |r| <= pi/4; pi/2 is split in two, the upper part with 33 significant
 * bits, so that k times it is exact, and what the second subtraction rounds off is kept in `rest`. Then comes
 * the Taylor series of the sine or the cosine. The first term left out is below 2^-60 of the result.
 *
 * Pillow's own weights come from the libm of whoever built it, to be exact from one of its variants, and may
 * differ from ours in the last bits of a double. They are rounded to fractions of 2^22 before anybody uses
 * them, so that shows in one weight of 2^28 or so, by one unit: no such weight is among the sizes that the
 * tests compare, nor would it move more than one byte in some thousands by one level.
 */

#include "daemon/worker/kernels/resize-filters.h"

#include <math.h>
#include <stddef.h>

#define PI          0x1.921fb54442d18p+1 /* OEIS A000796, as M_PI */
#define TWO_OVER_PI 0x1.45f306dc9c883p-1
#define PI_2_HIGH   0x1.921fb544p+0
#define PI_2_LOW    0x1.0b4611a626331p-34

/* x = quadrant pi/2 + r + rest */
struct angle {
        int quadrant;
        double r, rest;
};

static struct angle angle_of(double x) {
        int k = (int)(x * TWO_OVER_PI + (x < 0 ? -0.5 : 0.5));
        double high = x - k * PI_2_HIGH, low = k * PI_2_LOW, r = high - low;

        return (struct angle){k, r, (high - r) - low};
}

static double polynomial(double x, const double *coefficients, size_t n) {
        double sum = coefficients[n - 1];

        for (size_t i = n - 1; i-- > 0;)
                sum = sum * x + coefficients[i];
        return sum;
}

/* sin(r + rest) = r - r^3 / 3! + ... + rest cos(r) */
static double sine_near_zero(const struct angle *angle) {
        static const double terms[] = {
                /* (-1)^n / (2 n + 1)! from n = 1 */
                -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
                -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
        double r = angle->r, square = r * r;

        return r + (r * square * polynomial(square, terms, sizeof(terms) / sizeof(terms[0])) +
                    angle->rest * (1 - 0.5 * square));
}

/* cos(r + rest) = 1 - r^2 / 2 + r^4 / 4! - ... - rest sin(r). What 1 - r^2 / 2 rounds off is added again. */
static double cosine_near_zero(const struct angle *angle) {
        static const double terms[] = {
                /* (-1)^n / (2 n)! from n = 2 */
                1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
                1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
        double r = angle->r, square = r * r, half = 0.5 * square, most = 1 - half;

        return most + (((1 - most) - half) +
                       (square * square * polynomial(square, terms, sizeof(terms) / sizeof(terms[0])) -
                        r * angle->rest));
}

static double turned(const struct angle *angle, int quadrant) {
        double value = quadrant & 1 ? cosine_near_zero(angle) : sine_near_zero(angle);

        return quadrant & 2 ? -value : value;
}

double resize_sine(double x) {
        struct angle angle = angle_of(x);

        return turned(&angle, angle.quadrant);
}

double resize_cosine(double x) {
        struct angle angle = angle_of(x);

        return turned(&angle, angle.quadrant + 1);
}

/* Half open, so that each input counts once where an axis shrinks by a whole number. */
static double filter_box(double x) {
        return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

static double filter_bilinear(double x) {
        x = fabs(x);
        return x < 1.0 ? 1.0 - x : 0.0;
}

static double filter_hamming(double x) {
        x = fabs(x);
        if (x == 0.0)
                return 1.0;
        if (x >= 1.0)
                return 0.0;
        x = x * PI;
        return resize_sine(x) / x * ((double)0.54f + (double)0.46f * resize_cosine(x));
}

static double filter_bicubic(double x) {
        const double a = -0.5;

        x = fabs(x);
        if (x < 1.0)
                return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
        if (x < 2.0)
                return (((x - 5) * x + 8) * x - 4) * a;
        return 0.0;
}

static double sinc(double x) {
        if (x == 0.0)
                return 1.0;
        x = x * PI;
        return resize_sine(x) / x;
}

static double filter_lanczos(double x) {
        return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

static const struct resize_filter_ops filters[] = {
        [RESIZE_BILINEAR] = {filter_bilinear, 1.0}, [RESIZE_BICUBIC] = {filter_bicubic, 2.0},
        [RESIZE_BOX] = {filter_box, 0.5},           [RESIZE_LANCZOS] = {filter_lanczos, 3.0},
        [RESIZE_HAMMING] = {filter_hamming, 1.0},
};

const struct resize_filter_ops *resize_filter_find(enum resize_filter filter) {
        return filter == RESIZE_NEAREST ? NULL : &filters[filter];
}
