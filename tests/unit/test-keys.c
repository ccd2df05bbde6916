/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Every way to say a value, every way to say it wrong, and the way there and back without losing a bit. */

#include "proto/keys.h"

#include "base/fault.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct thing {
        bool flag;
        uint64_t count, huge, bytes, unset;
        double real;
        char *text, *maybe;
        int name;
        uint32_t size[2];
        double pair[2], triple[3];
        char *json, *texts;
};

static const char *const colours[] = {"red", "green", "blue", NULL};

static const struct key thing_keys[] = {
        {"flag", KEY_BOOL, offsetof(struct thing, flag), .fallback = "true", .help = "h"},
        {"count", KEY_U64, offsetof(struct thing, count), 1, 65536, "7", NULL, "h", false},
        {"huge", KEY_U64, offsetof(struct thing, huge), 0, 18446744073709551615.0, "0", NULL, "h", false},
        {"bytes", KEY_BYTES, offsetof(struct thing, bytes), 4096, 1099511627776.0, "\"64K\"", NULL, "h",
         false},
        {"unset", KEY_U64, offsetof(struct thing, unset), 1, 9, "0", NULL, "h", false},
        {"real", KEY_DOUBLE, offsetof(struct thing, real), -1e300, 1e300, "0.1", NULL, "h", false},
        {"text", KEY_TEXT, offsetof(struct thing, text), 1, 10, NULL, NULL, "h", false},
        {"maybe", KEY_TEXT, offsetof(struct thing, maybe), 1, 10, "null", NULL, "h", false},
        {"name", KEY_NAME, offsetof(struct thing, name), .fallback = "\"blue\"", .names = colours,
         .help = "h"},
        {"size", KEY_SIZE, offsetof(struct thing, size), 1, 100, NULL, NULL, "h", false},
        {"pair", KEY_PAIR, offsetof(struct thing, pair), 0, 10, "[0.5, 1]", NULL, "h", false},
        {"triple", KEY_TRIPLE, offsetof(struct thing, triple), -1, 1, NULL, NULL, "h", false},
        {"json", KEY_JSON, offsetof(struct thing, json), 2, 50, "{}", NULL, "h", false},
        {"texts", KEY_TEXTS, offsetof(struct thing, texts), 2, 20, "[]", NULL, "h", false},
        {0},
};

static json_t *parse(const char *text) {
        json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);

        ck_assert_msg(json != NULL, "%s", text);
        return json;
}

static int set(struct thing *thing, const char *name, const char *text, struct fault *fault) {
        json_t *json = parse(text);
        int r = keys_set(keys_find(thing_keys, name), thing, json, fault);

        json_decref(json);
        return r;
}

START_TEST(test_keys_defaults) {
        struct thing thing;

        memset(&thing, 0xff, sizeof(thing));
        keys_init(thing_keys, &thing);
        ck_assert(thing.flag && thing.count == 7 && thing.huge == 0 && thing.bytes == 65536 &&
                  thing.unset == 0);
        ck_assert(thing.real == 0.1 && !thing.text && !thing.maybe && thing.name == 2);
        ck_assert(thing.size[0] == 0 && thing.size[1] == 0 && thing.pair[0] == 0.5 && thing.pair[1] == 1);
        ck_assert(thing.triple[0] == 0 && thing.triple[1] == 0 && thing.triple[2] == 0);
        ck_assert_str_eq(thing.json, "{}");
        ck_assert_str_eq(thing.texts, "[]");
        ck_assert_ptr_eq(keys_find(thing_keys, "bytes"), &thing_keys[3]);
        ck_assert_ptr_null(keys_find(thing_keys, "byte"));
        keys_deinit(thing_keys, &thing);
}
END_TEST

START_TEST(test_keys_good) {
        struct thing thing;

        keys_init(thing_keys, &thing);
        ck_assert_int_eq(set(&thing, "flag", "false", NULL), 0);
        ck_assert_int_eq(set(&thing, "count", "65536", NULL), 0);
        ck_assert_int_eq(set(&thing, "huge", "\"18446744073709551615\"", NULL), 0);
        ck_assert_int_eq(set(&thing, "bytes", "\"1G\"", NULL), 0);
        ck_assert_int_eq(set(&thing, "real", "-3", NULL), 0);
        ck_assert_int_eq(set(&thing, "text", "\"gr\\u00fcn\"", NULL), 0);
        ck_assert_int_eq(set(&thing, "text", "\"gr\\u00fcner\"", NULL), 0);
        ck_assert_int_eq(set(&thing, "maybe", "\"x\"", NULL), 0);
        ck_assert_int_eq(set(&thing, "maybe", "null", NULL), 0);
        ck_assert_int_eq(set(&thing, "name", "\"green\"", NULL), 0);
        ck_assert_int_eq(set(&thing, "size", "[2, 100]", NULL), 0);
        ck_assert_int_eq(set(&thing, "pair", "[3, 3.0]", NULL), 0);
        ck_assert_int_eq(set(&thing, "triple", "[1, 0, -1]", NULL), 0);
        ck_assert(!thing.flag && thing.count == 65536 && thing.huge == UINT64_MAX && thing.bytes == 1 << 30);
        ck_assert(thing.real == -3 && strcmp(thing.text, "gr\303\274ner") == 0 && !thing.maybe &&
                  thing.name == 1);
        ck_assert(thing.size[0] == 2 && thing.size[1] == 100 && thing.pair[0] == 3 && thing.pair[1] == 3);
        ck_assert(thing.triple[0] == 1 && thing.triple[1] == 0 && thing.triple[2] == -1);
        ck_assert_int_eq(set(&thing, "size", "50", NULL), 0);
        ck_assert(thing.size[0] == 0 && thing.size[1] == 50);
        ck_assert_int_eq(set(&thing, "bytes", "4096", NULL), 0);
        ck_assert_uint_eq(thing.bytes, 4096);
        ck_assert_int_eq(set(&thing, "json", "{\"a\": {\"b\": [0.1, null, true]}, \"c\": 7}", NULL), 0);
        ck_assert_str_eq(thing.json, "{\"a\":{\"b\":[0.10000000000000001,null,true]},\"c\":7}");
        ck_assert_int_eq(set(&thing, "texts", "[\"a\", \"b c\"]", NULL), 0);
        ck_assert_str_eq(thing.texts, "[\"a\",\"b c\"]");
        keys_deinit(thing_keys, &thing);
        ck_assert_ptr_null(thing.text);
        ck_assert_ptr_null(thing.json);
}
END_TEST

START_TEST(test_keys_refused) {
        static const struct {
                const char *name, *json, *text;
        } cases[] = {
                {"flag", "1", "flag: expected true or false, got 1"},
                {"flag", "\"yes\"", "flag: expected true or false, got \"yes\""},
                {"count", "\"abc\"", "count: expected a whole number from 1 to 65536, got \"abc\""},
                {"count", "\"5\"", "count: expected a whole number from 1 to 65536, got \"5\""},
                {"count", "0", "count: expected a whole number from 1 to 65536, got 0"},
                {"count", "65537", "count: expected a whole number from 1 to 65536, got 65537"},
                {"count", "-1", "count: expected a whole number from 1 to 65536, got -1"},
                {"count", "2.0", "count: expected a whole number from 1 to 65536, got 2.0"},
                {"count", "null", "count: expected a whole number from 1 to 65536, got null"},
                {"count", "{\"a\": []}", "count: expected a whole number from 1 to 65536, got {\"a\": []}"},
                {"huge", "-1", "huge: expected a whole number from 0 to 18446744073709551615, got -1"},
                {"huge", "\"18446744073709551616\"",
                 "huge: expected a whole number from 0 to 18446744073709551615, got "
                 "\"18446744073709551616\""},
                {"huge", "\"7\"", "huge: expected a whole number from 0 to 18446744073709551615, got \"7\""},
                {"bytes", "4095",
                 "bytes: expected bytes, as a whole number or like 64M, from 4096 to 1099511627776, got "
                 "4095"},
                {"bytes", "\"64X\"",
                 "bytes: expected bytes, as a whole number or like 64M, from 4096 to 1099511627776, got "
                 "\"64X\""},
                {"unset", "0", "unset: expected a whole number from 1 to 9, got 0"},
                {"real", "\"0.5\"", "real: expected a number from -1e+300 to 1e+300, got \"0.5\""},
                {"real", "1.1e300", "real: expected a number from -1e+300 to 1e+300, got 1.1e300"},
                {"text", "\"\"", "text: expected text of 1 to 10 bytes, got \"\""},
                {"text", "\"12345678901\"", "text: expected text of 1 to 10 bytes, got \"12345678901\""},
                {"text", "null", "text: expected text of 1 to 10 bytes, got null"},
                {"name", "\"pink\"", "name: expected one of red, green, blue, got \"pink\""},
                {"name", "1", "name: expected one of red, green, blue, got 1"},
                {"size", "0", "size: expected a whole number or a list of two, from 1 to 100, got 0"},
                {"size", "[1]", "size: expected a whole number or a list of two, from 1 to 100, got [1]"},
                {"size", "[1, 101]",
                 "size: expected a whole number or a list of two, from 1 to 100, got [1, 101]"},
                {"size", "[0, 1]",
                 "size: expected a whole number or a list of two, from 1 to 100, got [0, 1]"},
                {"size", "[1, 2, 3]",
                 "size: expected a whole number or a list of two, from 1 to 100, got [1, 2, 3]"},
                {"pair", "[2, 1]",
                 "pair: expected a list of two numbers, the lower one first, from 0 to 10, got [2, 1]"},
                {"pair", "3",
                 "pair: expected a list of two numbers, the lower one first, from 0 to 10, got 3"},
                {"triple", "[0, 0, 1.5]",
                 "triple: expected a list of three numbers from -1 to 1, got [0, 0, 1.5]"},
                {"triple", "[0, 0]", "triple: expected a list of three numbers from -1 to 1, got [0, 0]"},
                {"json", "[1]", "json: expected a mapping that takes 50 bytes at most as JSON, got [1]"},
                {"json", "null", "json: expected a mapping that takes 50 bytes at most as JSON, got null"},
                {"json", "{\"a\": \"0123456789012345678901234567890123456789012\"}",
                 "json: expected a mapping that takes 50 bytes at most as JSON, got {\"a\": "
                 "\"0123456789012345678901234567890123456789012\"}"},
                {"texts", "\"a\"", "texts: expected a list of texts that takes 20 bytes at most, got \"a\""},
                {"texts", "[1]", "texts: expected a list of texts that takes 20 bytes at most, got [1]"},
                {"texts", "[\"\"]",
                 "texts: expected a list of texts that takes 20 bytes at most, got [\"\"]"},
                {"texts", "[\"0123456789\", \"0123\"]",
                 "texts: expected a list of texts that takes 20 bytes at most, got [\"0123456789\", "
                 "\"0123\"]"},
        };
        struct thing thing, before;
        struct fault fault;

        memset(&thing, 0, sizeof(thing)); /* padding is compared too */
        keys_init(thing_keys, &thing);
        memcpy(&before, &thing, sizeof(thing));
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                ck_assert_int_eq(set(&thing, cases[i].name, cases[i].json, &fault), -EINVAL);
                ck_assert_str_eq(fault.text, cases[i].text);
                ck_assert_mem_eq(&thing, &before, sizeof(thing));
        }
        keys_deinit(thing_keys, &thing);
}
END_TEST

/* A long value is cut between two characters. */
START_TEST(test_keys_long_value) {
        char text[2 + 2 * 100 + 1] = "\"";
        struct thing thing;
        struct fault fault;

        for (int i = 0; i < 100; i++)
                strcat(text, "\303\274");
        strcat(text, "\"");
        keys_init(thing_keys, &thing);
        ck_assert_int_eq(set(&thing, "text", text, &fault), -EINVAL);
        ck_assert_msg(strstr(fault.text, "got \"\303\274") && strstr(fault.text, "\274..."), "%s",
                      fault.text);
        ck_assert_uint_lt(strlen(fault.text), 140);
        keys_deinit(thing_keys, &thing);
}
END_TEST

/* The same bits come back, also through text. */
static void check_lossless(const struct key *table, const void *object, void *other) {
        for (const struct key *key = table; key->name; key++) {
                json_t *json = keys_get(key, object), *again, *read;
                char *text = json_dumps(json, JSON_ENCODE_ANY);
                struct fault fault;

                ck_assert_ptr_nonnull(text);
                read = parse(text);
                ck_assert_msg(keys_set(key, other, read, &fault) == 0, "%s", fault.text);
                again = keys_get(key, other);
                ck_assert_msg(json_equal(json, again), "%s", text);
                free(text);
                json_decref(again);
                json_decref(read);
                json_decref(json);
        }
}

START_TEST(test_keys_lossless) {
        static const double reals[] = {0.1,  1.0 / 3,  -0.0,   1e-300, 5e-324, 123456789.123456789,
                                       1e21, 4.0 / 3., 2e-308, 1e300,  42};
        struct thing thing, other;

        keys_init(thing_keys, &thing);
        keys_init(thing_keys, &other);
        ck_assert_int_eq(set(&thing, "text", "\"a\\\"b\\n\"", NULL), 0);
        ck_assert_int_eq(set(&thing, "size", "[3, 4]", NULL), 0);
        ck_assert_int_eq(set(&thing, "unset", "4", NULL), 0);
        ck_assert_int_eq(set(&thing, "json", "{\"b\": 0.3, \"a\": [\"\\u00fc\", -7]}", NULL), 0);
        ck_assert_int_eq(set(&thing, "texts", "[\"/x\", \"y\"]", NULL), 0);
        for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++) {
                thing.real = reals[i];
                thing.pair[0] = 1.0 / (double)(i + 3);
                thing.triple[2] = -1.0 / (double)(i + 7);
                thing.huge = UINT64_MAX >> i;
                check_lossless(thing_keys, &thing, &other);
                ck_assert_mem_eq(&thing.real, &other.real, sizeof(double));
                ck_assert_mem_eq(thing.pair, other.pair, sizeof(thing.pair));
                ck_assert_mem_eq(thing.triple, other.triple, sizeof(thing.triple));
                ck_assert_uint_eq(thing.huge, other.huge);
        }
        ck_assert_str_eq(other.text, "a\"b\n");
        keys_deinit(thing_keys, &thing);
        keys_deinit(thing_keys, &other);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("keys");
        TCase *tests = tcase_create("keys");

        suite_add_tcase(suite, tests);
        tcase_add_test(tests, test_keys_defaults);
        tcase_add_test(tests, test_keys_good);
        tcase_add_test(tests, test_keys_refused);
        tcase_add_test(tests, test_keys_long_value);
        tcase_add_test(tests, test_keys_lossless);
        return run_suite(suite);
}
