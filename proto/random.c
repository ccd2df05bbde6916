/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Random numbers without state: every number is a function of what it is for (sample, epoch, domain, step)
 * and of the seed, so it makes no difference which worker draws it, when, or what was drawn before. `struct
 * random` is only a place in such a stream. Numbers in one stream are words 0 ... 3 of block 0, of block 1,
 * and so on.
 *
 * Philox4x32-10 and its constants: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3"
 * (SC11), table 2 and section 4.3; the test holds the vectors that the authors published.
 *
 * exp and log decide how large a random crop is, so they must not differ between machines, and libm's do (it
 * picks an FMA variant at run time). Ours are a textbook range reduction and Taylor series in plain double
 * operations, each exactly rounded by IEEE 754; nothing may contract them (-ffp-contract=off) and the
 * rounding mode is the default. ln 2 (OEIS A002162) is split in two: the upper part has 32 significant bits,
 * so k times it is exact for every exponent k; the lower part is the rest, rounded. */

#include "proto/random.h"

#include <float.h>
#include <string.h>

/* 2 would be the x87; 0, 1 and 16 differ in smaller types only */
_Static_assert(FLT_EVAL_METHOD >= 0 && FLT_EVAL_METHOD != 2 && DBL_MANT_DIG == 53, "doubles are IEEE 754");

enum {
        ROUNDS = 10,
        BLOCK_WORDS = 4,
};

#define BLOCK_MASK UINT32_C(0xffffff) /* 24 bits of counter[0] count blocks */

#define LN2_HIGH  0x1.62e42feep-1
#define LN2_LOW   0x1.a39ef35793c76p-33
#define LOG2_E    0x1.71547652b82fep+0
#define SQRT_2    0x1.6a09e667f3bcdp+0
#define EXP_BOUND 700.0 /* beyond it 2^k would leave the normal numbers */

void random_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]) {
        uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
        uint32_t key_0 = key[0], key_1 = key[1];

        for (int i = 0; i < ROUNDS; i++) {
                uint64_t product_a = UINT64_C(0xd2511f53) * a;
                uint64_t product_c = UINT64_C(0xcd9e8d57) * c;

                a = (uint32_t)(product_c >> 32) ^ b ^ key_0;
                b = (uint32_t)product_c;
                c = (uint32_t)(product_a >> 32) ^ d ^ key_1;
                d = (uint32_t)product_a;
                key_0 += UINT32_C(0x9e3779b9); /* the golden ratio */
                key_1 += UINT32_C(0xbb67ae85); /* sqrt(3) - 1 */
        }
        out[0] = a;
        out[1] = b;
        out[2] = c;
        out[3] = d;
}

void random_init(struct random *random, uint64_t seed, uint64_t sample, uint32_t epoch,
                 enum random_domain domain, uint16_t step) {
        *random = (struct random){
                .counter = {(uint32_t)step << 24, epoch << 16 | ((uint32_t)domain & 0xff) << 8 | step >> 8,
                            (uint32_t)(sample << 16) | epoch >> 16, (uint32_t)(sample >> 16)},
                .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                .used = BLOCK_WORDS,
        };
}

uint32_t random_u32(struct random *random) {
        uint32_t *low = &random->counter[0];

        if (random->used == BLOCK_WORDS) {
                random_philox4x32(random->block, random->counter, random->key);
                *low = (*low & ~BLOCK_MASK) | ((*low + 1) & BLOCK_MASK);
                random->used = 0;
        }
        return random->block[random->used++];
}

double random_unit(struct random *random) {
        uint64_t high = random_u32(random);
        uint64_t bits = high << 32 | random_u32(random);

        return (double)(bits >> 11) * 0x1p-53;
}

/* Multiplication instead of division: Lemire, "Fast Random Integer Generation in an Interval" (2019). The
 * products whose lower half is below 2^32 mod bound are the surplus that would favour some numbers. */
uint32_t random_below(struct random *random, uint32_t bound) {
        uint32_t surplus = -bound % bound;
        uint64_t product;

        do
                product = (uint64_t)random_u32(random) * bound;
        while ((uint32_t)product < surplus);
        return (uint32_t)(product >> 32);
}

uint64_t random_below_u64(struct random *random, uint64_t bound) {
        uint64_t mask = bound > 1 ? UINT64_MAX >> __builtin_clzll(bound - 1) : 0, number;

        do {
                number = (uint64_t)random_u32(random) << 32;
                number |= random_u32(random);
                number &= mask;
        } while (number >= bound);
        return number;
}

static double double_of_bits(uint64_t bits) {
        double value;

        memcpy(&value, &bits, sizeof(value));
        return value;
}

static uint64_t bits_of_double(double value) {
        uint64_t bits;

        memcpy(&bits, &value, sizeof(bits));
        return bits;
}

static double polynomial(double x, const double *coefficients, int n) {
        double sum = coefficients[n - 1];

        for (int i = n - 2; i >= 0; i--)
                sum = sum * x + coefficients[i];
        return sum;
}

/* exp(x) = 2^k exp(r) with |r| <= ln(2) / 2. The first term left out is below 2^-62. */
double random_exp(double x) {
        static const double terms[] = {/* 1 / n! from n = 2 */
                                       1.0 / 2,          1.0 / 6,        1.0 / 24,        1.0 / 120,
                                       1.0 / 720,        1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                                       1.0 / 3628800,    1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800,
                                       1.0 / 87178291200};
        double r, sum;
        int k;

        if (!(x > -EXP_BOUND))
                x = -EXP_BOUND;
        if (x > EXP_BOUND)
                x = EXP_BOUND;
        k = (int)(x * LOG2_E + (x < 0 ? -0.5 : 0.5));
        r = (x - k * LN2_HIGH) - k * LN2_LOW;
        sum = r * r * polynomial(r, terms, sizeof(terms) / sizeof(terms[0]));
        return (1 + (r + sum)) * double_of_bits((uint64_t)(k + 1023) << 52);
}

/* log(x) = k ln(2) + log(1 + f) with sqrt(1/2) <= 1 + f <= sqrt(2), and, with s = f / (2 + f),
 *
 *     log(1 + f) = log(1 + s) - log(1 - s) = 2 s + s R,   R = 2/3 s^2 + 2/5 s^4 + ...   (Abramowitz,
 * Stegun 4.1.27)
 *
 * which is summed as f - (f^2/2 - s (f^2/2 + R)), because f is exact and the rest is small beside it. The
 * first term left out is below 2^-59 of the sum. */
double random_log(double x) {
        static const double terms[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                       2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
        uint64_t bits = bits_of_double(x);
        int k = (int)(bits >> 52) - 1023;
        double m = double_of_bits((bits & UINT64_C(0xfffffffffffff)) | UINT64_C(1023) << 52);
        double f, s, half, rest;

        if (m > SQRT_2) {
                m *= 0.5;
                k++;
        }
        f = m - 1;
        s = f / (2 + f);
        half = 0.5 * f * f;
        rest = s * s * polynomial(s * s, terms, sizeof(terms) / sizeof(terms[0]));
        return k * LN2_HIGH - ((half - (s * (half + rest) + k * LN2_LOW)) - f);
}
