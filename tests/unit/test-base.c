/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The small parts of base/. What needs files gets them in a directory of the test's own, and what must not
 * leak is counted: descriptors before and after. */

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/number.h"
#include "base/program.h"
#include "base/shm.h"
#include "base/utf8.h"
#include "tests/support/run.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static char directory[64];

static void make_directory(void) {
        snprintf(directory, sizeof(directory), "/tmp/pinfeed-test-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void remove_directory(void) {
        char command[128];

        snprintf(command, sizeof(command), "rm -rf %s", directory);
        ck_assert_int_eq(system(command), 0);
}

static const char *in_directory(const char *name) {
        static char path[512];

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        return path;
}

START_TEST(fault_texts) {
        struct fault fault;

        ck_assert_int_eq(fault_set(&fault, -ENOENT, "no %s, %d", "such", 7), -ENOENT);
        ck_assert_str_eq(fault.text, "no such, 7");
        ck_assert_int_eq(fault_prefix(&fault, -EIO, "line %d", 3), -EIO);
        ck_assert_str_eq(fault.text, "line 3: no such, 7");
        ck_assert_int_eq(fault_set(&fault, -EIO, "again: %s", fault.text), -EIO);
        ck_assert_str_eq(fault.text, "again: line 3: no such, 7");
        ck_assert_int_eq(fault_set(NULL, -EINVAL, "x"), -EINVAL);
        ck_assert_int_eq(fault_prefix(NULL, -EINVAL, "x"), -EINVAL);
}
END_TEST

START_TEST(fault_is_one_clean_line) {
        struct fault fault;

        fault_set(&fault, -EIO, "%s", "a\nb\tc\x7f\x1b[2J \xff\xc0\x80 \xc2\x9b \xc3\xa4");
        ck_assert_str_eq(fault.text, "a?b?c??[2J ??? ? \xc3\xa4");
}
END_TEST

START_TEST(fault_cuts_on_a_border) {
        static char text[FAULT_TEXT_MAX * 3];
        struct fault fault;

        memset(text, 'x', FAULT_TEXT_MAX);
        text[FAULT_TEXT_MAX] = 0;
        fault_set(&fault, -EIO, "%s", text);
        ck_assert_str_eq(fault.text, text);

        for (size_t shift = 0; shift < 4; shift++) {
                memset(text, 'x', shift);
                for (size_t i = shift; i + 4 < sizeof(text); i += 4)
                        memcpy(text + i, "\xf0\x9f\x98\x80", 5);
                fault_set(&fault, -EIO, "%s", text);
                ck_assert_uint_le(strlen(fault.text), FAULT_TEXT_MAX);
                ck_assert_uint_ge(strlen(fault.text), FAULT_TEXT_MAX - 6);
                ck_assert(utf8_is_text(fault.text, strlen(fault.text)));
                ck_assert_str_eq(fault.text + strlen(fault.text) - 3, "...");
                ck_assert_int_eq((unsigned char)fault.text[strlen(fault.text) - 4], 0x80);
        }
        fault_prefix(&fault, -EIO, "%s", text);
        ck_assert(utf8_is_text(fault.text, strlen(fault.text)));
}
END_TEST

START_TEST(sanitize_sizes) {
        char to[8];

        memset(to, 'z', sizeof(to));
        fault_sanitize(to, 0, "abc", 3);
        ck_assert_int_eq(to[0], 'z');
        fault_sanitize(to, 1, "abc", 3);
        ck_assert_str_eq(to, "");
        fault_sanitize(to, 4, "ab\xc3\xa4", 4);
        ck_assert_str_eq(to, "ab");
        fault_sanitize(to, 5, "ab\xc3\xa4", 4);
        ck_assert_str_eq(to, "ab\xc3\xa4");
        fault_sanitize(to, sizeof(to), "a\0b", 3);
        ck_assert_str_eq(to, "a?b");
        fault_sanitize(to, sizeof(to), "ab\xc3\xa4", 3);
        ck_assert_str_eq(to, "ab?");
}
END_TEST

START_TEST(utf8) {
        static const char *const good[] = {"",
                                           "ascii",
                                           "\xc2\x80",
                                           "\xdf\xbf",
                                           "\xe0\xa0\x80",
                                           "\xed\x9f\xbf",
                                           "\xee\x80\x80",
                                           "\xf0\x90\x80\x80",
                                           "\xf4\x8f\xbf\xbf"};
        static const char *const bad[] = {"\x80",
                                          "\xbf",
                                          "\xc0\x80",
                                          "\xc1\xbf",
                                          "\xc2",
                                          "\xc2\x41",
                                          "\xe0\x9f\xbf",
                                          "\xe2\x82",
                                          "\xed\xa0\x80",
                                          "\xed\xbf\xbf",
                                          "\xf0\x8f\xbf\xbf",
                                          "\xf0\x90\x80",
                                          "\xf4\x90\x80\x80",
                                          "\xf5\x80\x80\x80",
                                          "\xff",
                                          "\xe2\x28\xa1"};

        for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
                ck_assert_msg(utf8_is_text(good[i], strlen(good[i])), "good %zu", i);
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
                ck_assert_msg(!utf8_is_text(bad[i], strlen(bad[i])), "bad %zu", i);
        ck_assert(!utf8_is_text("a\0b", 3));
}
END_TEST

START_TEST(whole_numbers) {
        static const char *const bad[] = {"",    " 1",  "1 ", "+1", "-1",      "0x10",
                                          "1e3", "1.0", "1K", "x",  "\xd9\xa1"};
        uint64_t value = 77;

        ck_assert_int_eq(number_parse_u64("0", &value), 0);
        ck_assert_uint_eq(value, 0);
        ck_assert_int_eq(number_parse_u64("007", &value), 0);
        ck_assert_uint_eq(value, 7);
        ck_assert_int_eq(number_parse_u64("18446744073709551615", &value), 0);
        ck_assert_uint_eq(value, UINT64_MAX);
        value = 77;
        ck_assert_int_eq(number_parse_u64("18446744073709551616", &value), -ERANGE);
        ck_assert_int_eq(number_parse_u64("99999999999999999999999999", &value), -ERANGE);
        ck_assert_int_eq(number_parse_u64("99999999999999999999999999x", &value), -EINVAL);
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
                ck_assert_msg(number_parse_u64(bad[i], &value) == -EINVAL, "\"%s\"", bad[i]);
        ck_assert_uint_eq(value, 77);
}
END_TEST

START_TEST(bytes_of_text) {
        static const struct {
                const char *text;
                uint64_t bytes;
        } good[] = {{"0", 0},
                    {"4096", 4096},
                    {"1K", 1024},
                    {"1KB", 1024},
                    {"1KiB", 1024},
                    {"64M", 64 << 20},
                    {"3GiB", UINT64_C(3) << 30},
                    {"2T", UINT64_C(2) << 40},
                    {"16777215T", UINT64_C(16777215) << 40},
                    {"18446744073709551615", UINT64_MAX}};
        static const char *const bad[] = {"",      "K",  "1k", "1 K",  "1B", "1Ki",
                                          "1KiBs", "1P", "-1", "1.5G", "1KK"};
        uint64_t bytes = 77;

        for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
                ck_assert_int_eq(number_parse_bytes(good[i].text, &bytes), 0);
                ck_assert_uint_eq(bytes, good[i].bytes);
        }
        bytes = 77;
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
                ck_assert_msg(number_parse_bytes(bad[i], &bytes) == -EINVAL, "\"%s\"", bad[i]);
        ck_assert_int_eq(number_parse_bytes("16777216T", &bytes), -ERANGE);
        ck_assert_int_eq(number_parse_bytes("18446744073709551616", &bytes), -ERANGE);
        ck_assert_uint_eq(bytes, 77);
}
END_TEST

START_TEST(floating_numbers) {
        static const char *const bad[] = {"",    " 1",  "1 ",  ".",   "-",    "e5",  "1e",   "1e+",
                                          "0x1", "inf", "nan", "1,5", "1.5f", "--1", "1e5.", "1_0"};
        static const struct {
                const char *text;
                double value;
        } good[] = {{"0", 0},       {"-0.5", -0.5},
                    {"+1.5", 1.5},  {".5", 0.5},
                    {"5.", 5},      {"1e3", 1000},
                    {"1E-2", 0.01}, {"0.485", 0.485},
                    {"1e-400", 0},  {"123456789012345678", 123456789012345678.0}};
        double value = 77;

        setlocale(LC_ALL, "de_DE.UTF-8"); /* where there is one, its decimal comma must not matter */
        for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
                ck_assert_msg(number_parse_double(good[i].text, &value) == 0, "\"%s\"", good[i].text);
                ck_assert_msg(value == good[i].value, "\"%s\" gives %a", good[i].text, value);
        }
        value = 77;
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
                ck_assert_msg(number_parse_double(bad[i], &value) == -EINVAL, "\"%s\"", bad[i]);
        ck_assert_int_eq(number_parse_double("1e400", &value), -ERANGE);
        ck_assert_int_eq(number_parse_double("-1e400", &value), -ERANGE);
        ck_assert(value == 77);
}
END_TEST

START_TEST(sizes_for_people) {
        static const struct {
                uint64_t bytes;
                const char *text;
        } sizes[] = {{0, "0 B"},
                     {512, "512 B"},
                     {1000, "1000 B"},
                     {1023, "1023 B"},
                     {1024, "1 KiB"},
                     {1034, "1.01 KiB"},
                     {1536, "1.5 KiB"},
                     {10 * 1024 + 512, "10.5 KiB"},
                     {1048575, "1 MiB"},
                     {64 << 20, "64 MiB"},
                     {1023 << 20, "1023 MiB"},
                     {1610612736, "1.5 GiB"},
                     {1234567890, "1.15 GiB"},
                     {UINT64_C(1) << 60, "1 EiB"},
                     {UINT64_MAX, "16 EiB"}};
        char text[NUMBER_TEXT_MAX];

        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
                ck_assert_str_eq(number_format_bytes(text, sizes[i].bytes), sizes[i].text);
}
END_TEST

START_TEST(overflow_is_noticed) {
        uint64_t value = 77;

        ck_assert(!number_add_u64(UINT64_MAX, 1, &value));
        ck_assert(!number_multiply_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &value));
        ck_assert(!number_align_u64(UINT64_MAX - 4094, 4096, &value));
        ck_assert_uint_eq(value, 77);
        ck_assert(number_add_u64(UINT64_MAX - 1, 1, &value));
        ck_assert_uint_eq(value, UINT64_MAX);
        ck_assert(number_align_u64(UINT64_MAX - 4095, 4096, &value));
        ck_assert_uint_eq(value, UINT64_MAX - 4095);
        ck_assert(number_align_u64(1, 4096, &value));
        ck_assert_uint_eq(value, 4096);
}
END_TEST

START_TEST(lists) {
        struct list head = LIST_INIT(head), a, b, c;
        int n = 0;

        ck_assert(list_is_empty(&head));
        list_append(&head, &a);
        list_append(&head, &b);
        list_append(&head, &c);
        list_unlink(&b);
        list_unlink(&b);
        ck_assert_ptr_eq(head.next, &a);
        ck_assert_ptr_eq(a.next, &c);
        list_for_each_safe (entry, &head) {
                list_unlink(entry);
                n++;
        }
        ck_assert_int_eq(n, 2);
        ck_assert(list_is_empty(&head));
}
END_TEST

START_TEST(descriptors) {
        _cleanup_(fd_closep) int fd = open(in_directory("file"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        _cleanup_(fd_closep) int reader = -1;
        char text[16];
        int before = fd_count();

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(fd_pwrite_full(fd, "hello", 5, 3), 0);
        ck_assert_int_eq(fd_pread_full(fd, text, sizeof(text), 3), 5);
        ck_assert_int_eq(memcmp(text, "hello", 5), 0);
        ck_assert_int_eq(fd_pread_full(fd, text, 2, 4), 2);
        ck_assert_int_eq(fd_pread_full(fd, text, sizeof(text), 100), 0);
        ck_assert_int_eq(fd_pread_full(-1, text, 1, 0), -EBADF);
        ck_assert_int_eq(fd_pwrite_full(-1, text, 1, 0), -EBADF);

        ck_assert_int_eq(fd_set_nonblocking(fd, 1), 0);
        ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
        ck_assert_int_eq(fd_set_nonblocking(fd, 0), 0);
        ck_assert(!(fcntl(fd, F_GETFL) & O_NONBLOCK));
        ck_assert_int_eq(fd_set_nonblocking(-1, 0), -EBADF);

        reader = fd_reopen_readonly(fd);
        ck_assert_int_ge(reader, 0);
        ck_assert_int_eq(fd_count(), before + 1);
        ck_assert(fcntl(reader, F_GETFD) & FD_CLOEXEC);
        ck_assert_int_eq(fd_pwrite_full(reader, "x", 1, 0), -EBADF);
        ck_assert_int_eq(fd_reopen_readonly(-1), -ENOENT);
}
END_TEST

START_TEST(shared_memory_is_nameless) {
        _cleanup_(fd_closep) int fd = shm_create("pinfeed-test-base");
        _cleanup_(fd_closep) int reader = -1;
        DIR *all = opendir("/dev/shm");
        struct stat status;

        ck_assert_int_ge(fd, 0);
        ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        ck_assert_int_eq(fstat(fd, &status), 0);
        ck_assert_int_eq(status.st_size, 0);
        ck_assert_int_eq(status.st_mode & 07777, 0600);
        ck_assert_uint_eq(status.st_nlink, 0);
        for (struct dirent *entry; all && (entry = readdir(all));)
                ck_assert_ptr_null(strstr(entry->d_name, "pinfeed-test-base"));
        if (all)
                closedir(all);

        ck_assert_int_eq(shm_reserve(fd, 0, 1 << 20), 0);
        reader = fd_reopen_readonly(fd);
        ck_assert_int_ge(reader, 0);
        ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0), MAP_FAILED);
        ck_assert_ptr_ne(mmap(NULL, 4096, PROT_READ, MAP_SHARED, reader, 0), MAP_FAILED);
}
END_TEST

START_TEST(reserving_takes_the_pages) {
        _cleanup_(fd_closep) int fd = shm_create("pinfeed-test-base");
        struct statvfs vfs;
        struct stat status;
        uint64_t free_bytes = 0;

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(shm_reserve(fd, 0, 0), 0);
        ck_assert_int_eq(shm_reserve(fd, 2 << 20, 1 << 20), 0);
        ck_assert_int_eq(fstat(fd, &status), 0);
        ck_assert_int_eq(status.st_size, 3 << 20);
        ck_assert_int_ge(status.st_blocks * 512, 1 << 20);
        ck_assert_int_lt(status.st_blocks * 512, 3 << 20);
        ck_assert_int_eq(shm_reserve(fd, INT64_MAX, 1), -EFBIG);
        ck_assert_int_eq(shm_reserve(fd, 1, UINT64_MAX), -EFBIG);
        ck_assert_int_eq(shm_reserve(-1, 0, 1), -EBADF);

        ck_assert_int_eq(shm_free_bytes(fd, &free_bytes), 0);
        ck_assert_int_eq(fstatvfs(fd, &vfs), 0);
        if (vfs.f_blocks >
            0) { /* one page more than the whole file system: refused before anything is taken */
                ck_assert_uint_le(free_bytes, (uint64_t)vfs.f_blocks * vfs.f_frsize);
                ck_assert_int_eq(shm_reserve(fd, 0, ((uint64_t)vfs.f_blocks + 1) * vfs.f_frsize), -ENOSPC);
                ck_assert_int_eq(fstat(fd, &status), 0);
                ck_assert_int_eq(status.st_size, 3 << 20);
        }
        ck_assert_int_eq(shm_free_bytes(-1, &free_bytes), -EBADF);
}
END_TEST

START_TEST(memfds_can_be_sealed) {
        _cleanup_(fd_closep) int fd = shm_create_memfd("pinfeed-test-base");
        uint64_t free_bytes = 0;

        ck_assert_int_ge(fd, 0);
        ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        ck_assert_int_eq(shm_free_bytes(fd, &free_bytes), 0);
        ck_assert_uint_eq(free_bytes, UINT64_MAX);
        ck_assert_int_eq(shm_reserve(fd, 0, 8192), 0);
        ck_assert_int_eq(shm_seal_size(fd), 0);
        ck_assert_int_eq(ftruncate(fd, 4096), -1);
        ck_assert_int_eq(ftruncate(fd, 16384), -1);
        ck_assert_int_eq(fd_pwrite_full(fd, "x", 1, 0), 0);
        ck_assert_int_eq(shm_seal_all(fd), -EPERM);
        ck_assert_int_eq(fd_pwrite_full(fd, "x", 1, 0), 0);

        fd_closep(&fd);
        fd = shm_create_memfd("pinfeed-test-base");
        ck_assert_int_eq(shm_reserve(fd, 0, 8192), 0);
        ck_assert_int_eq(shm_seal_all(fd), 0);
        ck_assert_int_eq(fd_pwrite_full(fd, "x", 1, 0), -EPERM);
        ck_assert_int_eq(shm_seal_size(fd), -EPERM);
}
END_TEST

START_TEST(program_is_found) {
        char path[PATH_MAX];

        ck_assert_int_eq(program_find(path, (const char *const[]){"none", ".", "../none/test-base", NULL}),
                         -ENOENT);
        ck_assert_int_eq(
                program_find(path, (const char *const[]){"none", "../unit/test-base", "test-base", NULL}), 0);
        ck_assert_int_eq(path[0], '/');
        ck_assert_str_eq(strrchr(path, '/'), "/test-base");
        ck_assert_ptr_null(strstr(path, ".."));
}
END_TEST

static Suite *base_suite(void) {
        Suite *suite = suite_create("base");
        TCase *pure = tcase_create("pure"), *files = tcase_create("files");

        tcase_set_timeout(pure, 60);
        tcase_set_timeout(files, 60);
        tcase_add_test(pure, fault_texts);
        tcase_add_test(pure, fault_is_one_clean_line);
        tcase_add_test(pure, fault_cuts_on_a_border);
        tcase_add_test(pure, sanitize_sizes);
        tcase_add_test(pure, utf8);
        tcase_add_test(pure, whole_numbers);
        tcase_add_test(pure, bytes_of_text);
        tcase_add_test(pure, floating_numbers);
        tcase_add_test(pure, sizes_for_people);
        tcase_add_test(pure, overflow_is_noticed);
        tcase_add_test(pure, lists);
        tcase_add_test(pure, shared_memory_is_nameless);
        tcase_add_test(pure, reserving_takes_the_pages);
        tcase_add_test(pure, memfds_can_be_sealed);
        tcase_add_test(pure, program_is_found);
        suite_add_tcase(suite, pure);

        tcase_add_checked_fixture(files, make_directory, remove_directory);
        tcase_add_test(files, descriptors);
        suite_add_tcase(suite, files);
        return suite;
}

int main(void) {
        return run_suite(base_suite());
}
