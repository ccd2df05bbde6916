/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The table of counters keeps the rules that its readers go by, the text is as Prometheus reads it, and the
 * documents and the Grafana board know no other names. What the numbers are is a matter of system tests. */

#include "daemon/counters.h"
#include "daemon/exposition.h"
#include "daemon/metrics-address.h"
#include "daemon/pipeline.h"
#include "tests/support/run.h"

#include <check.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
        const struct counter *counters;
        size_t n;
} tables[] = {
        {counters_of_daemon, COUNTERS_OF_DAEMON}, {counters_of_pipeline, COUNTERS_OF_PIPELINE},
        {counters_of_worker, COUNTERS_OF_WORKER}, {counters_of_job, COUNTERS_OF_JOB},
        {counters_special, COUNTERS_SPECIAL},
};

enum {
        TABLES = sizeof(tables) / sizeof(tables[0]),
};

static bool ends_in(const char *text, const char *end) {
        size_t n = strlen(text), m = strlen(end);

        return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_same(const char *a, const char *b) {
        return a && b && strcmp(a, b) == 0;
}

/* ---- the table ---- */

static void check_name(const struct counter *counter) {
        const char *name = counter->metric;
        bool is_total = counter->type == COUNTER_TOTAL;
        const char *unit = counter->unit == COUNTER_NS      ? (is_total ? "_seconds_total" : "_seconds")
                           : counter->unit == COUNTER_BYTES ? "_bytes"
                                                            : "";

        ck_assert_msg(strncmp(name, "pinfeed_", 8) == 0, "%s", name);
        for (const char *c = name; *c; c++)
                ck_assert_msg(islower(*c) || *c == '_', "%s", name);
        ck_assert_msg(ends_in(name, "_total") == is_total, "%s: is it a total?", name);
        ck_assert_msg(ends_in(name, unit), "%s: ends in its unit", name);
}

static void check_help(const char *help, const char *name) {
        ck_assert_msg(help && isupper(*help) | isdigit(*help) && ends_in(help, "."), "%s: a sentence", name);
        ck_assert_msg(!strpbrk(help, "\\\n|"), "%s: what would have to be escaped", name);
}

START_TEST(test_names) {
        for (size_t t = 0; t < TABLES; t++) {
                for (size_t i = 0; i < tables[t].n; i++) {
                        const struct counter *counter = &tables[t].counters[i];

                        ck_assert(counter->metric || counter->member);
                        if (counter->metric && tables[t].counters != counters_special)
                                check_name(counter);
                        if (counter->help)
                                check_help(counter->help,
                                           counter->metric ? counter->metric : counter->member);
                        if (tables[t].counters != counters_special)
                                ck_assert(!counter->label == !counter->value);
                }
        }
}
END_TEST

/* A line without a help goes on with the family before it, and no family begins twice. */
START_TEST(test_families_stay_together) {
        for (size_t t = 0; t < TABLES; t++) {
                for (size_t i = 0; i < tables[t].n; i++) {
                        const struct counter *counter = &tables[t].counters[i], *before = counter - 1;

                        ck_assert(counter->help || i > 0);
                        if (!counter->help) {
                                ck_assert(is_same(counter->metric, before->metric));
                                ck_assert(is_same(counter->label, before->label));
                                ck_assert(counter->type == before->type && counter->unit == before->unit);
                                continue;
                        }
                        for (size_t u = 0; u <= t; u++)
                                for (size_t k = 0; k < (u < t ? tables[u].n : i); k++)
                                        ck_assert_msg(!is_same(counter->metric, tables[u].counters[k].metric),
                                                      "%s begins twice", counter->metric);
                }
        }
}
END_TEST

static bool has_line(const char *metric, const char *value) {
        for (size_t i = 0; i < COUNTERS_OF_PIPELINE; i++)
                if (is_same(counters_of_pipeline[i].metric, metric) &&
                    is_same(counters_of_pipeline[i].value, value))
                        return true;
        return false;
}

START_TEST(test_every_kind_has_a_line) {
        for (int i = 0; i < POOL_DEATH_KINDS; i++)
                ck_assert(has_line("pinfeed_worker_deaths_total", pool_death_name((enum pool_death)i)));
        for (int i = 0; i <= PIPELINE_STOPPING; i++)
                ck_assert(has_line("pinfeed_pipeline_state", pipeline_state_name((enum pipeline_state)i)));
}
END_TEST

START_TEST(test_json) {
        static const struct counter counters[] = {
                {.member = "rows", .unit = COUNTER_PLAIN},
                {.member = "deaths", .label = "kind", .value = "oom"},
                {.member = "deaths", .label = "kind", .value = "killed"},
                {.metric = "pinfeed_only_there"},
                {.member = "slots_ready", .label = "state", .value = "ready"},
                {.member = "busy_seconds", .unit = COUNTER_NS},
        };
        static const uint64_t values[] = {UINT64_MAX, 1, 2, 3, 4, 1500000000};
        json_t *object = json_object(), *wanted;

        counters_to_json(object, counters, values, 6);
        wanted = json_pack("{s:s, s:{s:i, s:i}, s:i, s:f}", "rows", "18446744073709551615", "deaths", "oom",
                           1, "killed", 2, "slots_ready", 4, "busy_seconds", 1.5);
        ck_assert(json_equal(object, wanted));
        json_decref(object);
        json_decref(wanted);
}
END_TEST

/* ---- the text ---- */

START_TEST(test_exposition) {
        const struct exposition_label labels[EXPOSITION_LABELS_MAX] = {
                {"pipeline", "a\"b\\c\nd"}, {"other", "gr\xc3\xbc\xc3\x9f \xff\xc3"}};
        const struct exposition_label none[EXPOSITION_LABELS_MAX] = {};
        char *text = NULL;
        size_t length;
        FILE *out = open_memstream(&text, &length);

        exposition_family(out, "pinfeed_x_total", "counter", "What it is.");
        exposition_name(out, "pinfeed_x_total", "", labels);
        exposition_number(out, UINT64_MAX);
        exposition_name(out, "pinfeed_y", "_sum", none);
        exposition_seconds(out, 12000000345);
        fclose(out);
        ck_assert_str_eq(text,
                         "# HELP pinfeed_x_total What it is.\n"
                         "# TYPE pinfeed_x_total counter\n"
                         "pinfeed_x_total{pipeline=\"a\\\"b\\\\c\\nd\",other=\"gr\xc3\xbc\xc3\x9f ??\"} "
                         "18446744073709551615\n"
                         "pinfeed_y_sum 12.000000345\n");
        free(text);
}
END_TEST

/* ---- where it is served ---- */

static const struct {
        const char *text;
        const char *formatted; /* NULL: refused */
        const char *why;
} addresses[] = {
        {"127.0.0.1:9187", "127.0.0.1:9187", NULL},
        {"127.255.0.9:1", "127.255.0.9:1", NULL},
        {"127.0.0.1:0", "127.0.0.1:0", NULL},
        {"[::1]:65535", "[::1]:65535", NULL},
        {"0.0.0.0:9187", NULL, "no password"},
        {"192.168.1.1:9187", NULL, "no password"},
        {"128.0.0.1:9187", NULL, "no password"},
        {"[::]:9187", NULL, "no password"},
        {"[fe80::1]:9187", NULL, "no password"},
        {"[::ffff:127.0.0.1]:9187", NULL, "no password"},
        {"localhost:9187", NULL, "and a port"},
        {"127.1:9187", NULL, "and a port"},
        {"::1:9187", NULL, "and a port"},
        {"[127.0.0.1]:9187", NULL, "and a port"},
        {"127.0.0.1", NULL, "and a port"},
        {"127.0.0.1:", NULL, "and a port"},
        {"127.0.0.1:65536", NULL, "and a port"},
        {"127.0.0.1:-1", NULL, "and a port"},
        {"127.0.0.1:80 ", NULL, "and a port"},
        {":9187", NULL, "and a port"},
        {"[]:9187", NULL, "and a port"},
        {"[:9187", NULL, "and a port"},
        {"", NULL, "and a port"},
        {"9187", NULL, "and a port"},
};

START_TEST(test_addresses) {
        struct sockaddr_storage address;
        char text[METRICS_ADDRESS_MAX];
        const char *why;
        socklen_t length;
        int r = metrics_address_parse(addresses[_i].text, &address, &length, &why);

        if (addresses[_i].formatted) {
                ck_assert_msg(r == 0, "%s: %s", addresses[_i].text, why);
                metrics_address_format(text, &address);
                ck_assert_str_eq(text, addresses[_i].formatted);
                return;
        }
        ck_assert_msg(r < 0, "%s was taken", addresses[_i].text);
        ck_assert_msg(strstr(why, addresses[_i].why), "%s: %s", addresses[_i].text, why);
}
END_TEST

/* ---- documents ---- */

static char *read_document(const char *name) {
        const char *directory = getenv("PINFEED_TEST_DOCS");
        char path[4096], *text;
        long length;
        FILE *file;

        ck_assert_ptr_nonnull(directory);
        snprintf(path, sizeof(path), "%s/%s", directory, name);
        file = fopen(path, "re");
        ck_assert_msg(file != NULL, "%s", path);
        fseek(file, 0, SEEK_END);
        length = ftell(file);
        rewind(file);
        text = calloc(1, (size_t)length + 1);
        ck_assert_uint_eq(fread(text, 1, (size_t)length, file), (size_t)length);
        fclose(file);
        return text;
}

START_TEST(test_docs_have_the_table) {
        char *document = read_document("metrics.md"), *table = NULL;
        size_t length;
        FILE *out = open_memstream(&table, &length);

        counters_print(out);
        fclose(out);
        ck_assert_msg(strstr(document, table) != NULL,
                      "docs/metrics.md differs from pinfeedd --help-metrics; run script/config-docs");
        free(document);
        free(table);
}
END_TEST

/* Whether it is one of ours, or a part of a histogram of ours. */
static bool is_known(const char *name, size_t length) {
        for (size_t t = 0; t < TABLES; t++) {
                for (size_t i = 0; i < tables[t].n; i++) {
                        const char *metric = tables[t].counters[i].metric, *rest;
                        size_t n = metric ? strlen(metric) : 0;

                        if (n == 0 || n > length || strncmp(name, metric, n) != 0)
                                continue;
                        rest = name + n;
                        if (n == length || (tables[t].counters[i].type == COUNTER_HISTOGRAM &&
                                            (strncmp(rest, "_bucket", length - n) == 0 ||
                                             strncmp(rest, "_sum", length - n) == 0 ||
                                             strncmp(rest, "_count", length - n) == 0)))
                                return true;
                }
        }
        return false;
}

/* Looks at each expression below `value`; how many there are. */
static unsigned check_expressions(const json_t *value) {
        const char *key, *expression = json_string_value(json_object_get(value, "expr"));
        json_t *member;
        unsigned n = 0;
        size_t i;

        json_object_foreach((json_t *)value, key, member) n += check_expressions(member);
        json_array_foreach(value, i, member) n += check_expressions(member);
        if (!expression)
                return n;
        ck_assert_msg(strstr(expression, "pinfeed_") != NULL, "%s", expression);
        for (const char *name = expression; (name = strstr(name, "pinfeed_"));) {
                size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz_");

                ck_assert_msg(is_known(name, length), "%.*s, of: %s", (int)length, name, expression);
                name += length;
        }
        return n + 1;
}

START_TEST(test_grafana_asks_for_what_there_is) {
        char *document = read_document("grafana.json");
        json_error_t error;
        json_t *board = json_loads(document, 0, &error);

        ck_assert_msg(board != NULL, "%d: %s", error.line, error.text);
        ck_assert_uint_ge(check_expressions(board), 10);
        json_decref(board);
        free(document);
}
END_TEST

static Suite *make_suite(void) {
        Suite *suite = suite_create("counters");
        TCase *tcase = tcase_create("counters");

        tcase_add_test(tcase, test_names);
        tcase_add_test(tcase, test_families_stay_together);
        tcase_add_test(tcase, test_every_kind_has_a_line);
        tcase_add_test(tcase, test_json);
        tcase_add_test(tcase, test_exposition);
        tcase_add_loop_test(tcase, test_addresses, 0, sizeof(addresses) / sizeof(addresses[0]));
        tcase_add_test(tcase, test_docs_have_the_table);
        tcase_add_test(tcase, test_grafana_asks_for_what_there_is);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(make_suite());
}
