/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Orders that jobs give: which files are taken, which epochs stay. */

#include "daemon/orders.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/shm.h"
#include "proto/message.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static struct orders orders;
static struct fault fault;

static void init(void) {
        orders_init(&orders);
}

static void deinit(void) {
        orders_deinit(&orders);
        ck_assert_uint_eq(orders.count, 0);
}

static int make_file(off_t bytes, int seals) {
        int fd = shm_create_memfd("order");

        ck_assert_int_eq(ftruncate(fd, bytes), 0);
        if (seals)
                ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
        return fd;
}

static int add(uint64_t seed, uint32_t epoch) {
        struct message_order message = {seed, epoch, 4};
        _cleanup_(fd_closep) int fd = make_file(32, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
        struct order *order = NULL;
        int r = orders_add(&orders, &message, &fd, &order, &fault);

        ck_assert_int_eq(fd < 0, r == 0); /* it is taken, or the caller's still */
        ck_assert_int_eq(order != NULL, r == 0);
        return r;
}

static const struct {
        off_t bytes;
        int seals, result;
} files[] = {
        {32, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, 0},
        {40, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL, 0},
        {31, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, -EINVAL},
        {0, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, -EINVAL},
        {32, F_SEAL_GROW | F_SEAL_WRITE, -EINVAL},
        {32, F_SEAL_SHRINK | F_SEAL_GROW, -EINVAL},
        {32, 0, -EINVAL},
};

START_TEST(what_is_an_order) {
        struct message_order message = {1, 2, 4};
        _cleanup_(fd_closep) int fd = make_file(files[_i].bytes, files[_i].seals);
        struct order *order;

        ck_assert_int_eq(orders_add(&orders, &message, &fd, &order, &fault), files[_i].result);
}
END_TEST

START_TEST(a_pipe_is_none) {
        struct message_order message = {1, 2, 4};
        struct order *order;
        int ends[2];

        ck_assert_int_eq(pipe(ends), 0);
        ck_assert_int_eq(orders_add(&orders, &message, &ends[0], &order, &fault), -EINVAL);
        close(ends[0]);
        close(ends[1]);
}
END_TEST

START_TEST(the_first_one_holds) {
        int first;

        ck_assert_int_eq(add(7, 0), 0);
        first = orders_find(&orders, 7, 0)->fd;
        ck_assert_int_eq(add(7, 0), ORDERS_E_THERE);
        ck_assert_int_eq(add(8, 0), 0);
        ck_assert_int_eq(orders_find(&orders, 7, 0)->fd, first);
        ck_assert_uint_eq(orders.count, 2);
}
END_TEST

/* Of each seed, and of no other. */
START_TEST(the_last_epochs_stay) {
        ck_assert_int_eq(add(8, 0), 0);
        for (uint32_t epoch = 0; epoch < 6; epoch++)
                ck_assert_int_eq(add(7, epoch), 0);
        for (uint32_t epoch = 0; epoch < 6; epoch++)
                ck_assert_int_eq(orders_find(&orders, 7, epoch) != NULL, epoch >= 6 - ORDERS_EPOCHS_MAX);
        ck_assert_ptr_nonnull(orders_find(&orders, 8, 0));
        ck_assert_int_eq(add(7, 0), 0); /* whoever goes back gives it again */
        ck_assert_ptr_null(orders_find(&orders, 7, 2));
}
END_TEST

START_TEST(there_is_an_end) {
        for (uint64_t seed = 0; seed < ORDERS_MAX; seed++)
                ck_assert_int_eq(add(seed, 0), 0);
        ck_assert_int_eq(add(ORDERS_MAX, 0), -ENOSPC);
        ck_assert_int_eq(add(0, 1), -ENOSPC);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("orders");
        TCase *tests = tcase_create("orders");

        tcase_add_checked_fixture(tests, init, deinit);
        tcase_add_loop_test(tests, what_is_an_order, 0, sizeof(files) / sizeof(*files));
        tcase_add_test(tests, a_pipe_is_none);
        tcase_add_test(tests, the_first_one_holds);
        tcase_add_test(tests, the_last_epochs_stay);
        tcase_add_test(tests, there_is_an_end);
        suite_add_tcase(suite, tests);
        return run_suite(suite);
}
