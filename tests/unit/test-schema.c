/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What processes agree on besides messages: where a row lies in a slot, how an index looks, where daemon and
 * clients meet. Sizes are computed again here, with 128 bits; damaged indexes must be refused or be harmless.
 */

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/seqpacket.h"
#include "base/shm.h"
#include "proto/index.h"
#include "proto/runtime.h"
#include "proto/schema.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t state = 1;

/* splitmix64 */
static uint64_t random_u64(void) {
        uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

static uint64_t random_below(uint64_t bound) {
        return random_u64() % bound;
}

static struct schema_field field(const char *name, enum schema_dtype dtype, uint32_t n_dims, uint64_t a,
                                 uint64_t b, uint64_t c) {
        struct schema_field result = {.dtype = dtype, .n_dims = n_dims, .shape = {a, b, c}};

        snprintf(result.name, sizeof(result.name), "%s", name);
        return result;
}

START_TEST(schema_of_photographs) {
        struct schema schema = {.n_fields = 2};
        uint64_t bytes;

        schema.fields[0] = field("image", SCHEMA_FLOAT32, 3, 3, 224, 224);
        schema.fields[1] = field("label", SCHEMA_INT64, 0, 0, 0, 0);
        ck_assert_int_eq(schema_lay_out(&schema, 64, NULL), 0);
        ck_assert_uint_eq(schema.slot_rows, 64);
        ck_assert_uint_eq(schema.fields[0].row_bytes, 602112);
        ck_assert_uint_eq(schema.fields[0].offset, 0);
        ck_assert_uint_eq(schema.fields[0].capacity, 64 * 602112);
        ck_assert_uint_eq(schema.fields[1].row_bytes, 8);
        ck_assert_uint_eq(schema.fields[1].offset, 64 * 602112); /* 9408 pages */
        ck_assert_uint_eq(schema.ids_offset, 64 * 602112 + 4096);
        ck_assert_uint_eq(schema.flags_offset, schema.ids_offset + 512);
        ck_assert_uint_eq(schema.slot_bytes, schema.ids_offset + 4096); /* the page of the flags, whole */
        ck_assert_uint_eq(schema.slot_stride % SCHEMA_SLOT_ALIGN, 0);
        ck_assert_uint_ge(schema.slot_stride, schema.slot_bytes);
        ck_assert_uint_lt(schema.slot_stride - schema.slot_bytes, SCHEMA_SLOT_ALIGN);
        ck_assert_int_eq(schema_ring_bytes(&schema, 8, &bytes), 0);
        ck_assert_uint_eq(bytes, 7 * schema.slot_stride + schema.slot_bytes);
        ck_assert_int_eq(schema_ring_bytes(&schema, 1, &bytes), 0);
        ck_assert_uint_eq(bytes, schema.slot_bytes);
        ck_assert_int_eq(schema_ring_bytes(&schema, 0, &bytes), 0);
        ck_assert_uint_eq(bytes, 0);
}
END_TEST

/* Whatever is accepted must hold together; computed here with 128 bits. */
START_TEST(schema_sizes) {
        int laid_out = 0;

        state = 21;
        for (int i = 0; i < 20000; i++) {
                struct schema schema = {.n_fields = 1 + (uint32_t)random_below(3)};
                uint32_t rows = (uint32_t)(random_u64() >> (32 + random_below(32)));
                unsigned __int128 end = 0;
                int r;

                for (uint32_t f = 0; f < schema.n_fields; f++) {
                        char name[8] = {(char)('a' + f)};

                        schema.fields[f] =
                                field(name, (enum schema_dtype)(1 + random_below(7)), 3,
                                      random_u64() >> random_below(64),
                                      random_u64() >> (32 + random_below(32)), 1 + random_below(3));
                }
                r = schema_lay_out(&schema, rows, NULL);
                if (r < 0)
                        continue;
                laid_out++;
                for (uint32_t f = 0; f < schema.n_fields; f++) {
                        const struct schema_field *at = &schema.fields[f];

                        ck_assert(at->offset >= end && at->offset % SCHEMA_FIELD_ALIGN == 0);
                        ck_assert(at->capacity == (unsigned __int128)schema_dtype_size(at->dtype) *
                                                          at->shape[0] * at->shape[1] * at->shape[2] * rows);
                        end = (unsigned __int128)at->offset + at->capacity;
                }
                ck_assert(schema.ids_offset >= end && schema.ids_offset % 8 == 0);
                ck_assert_uint_eq(schema.flags_offset, schema.ids_offset + UINT64_C(8) * rows);
                ck_assert(schema.slot_bytes >= schema.flags_offset + rows &&
                          schema.slot_bytes - schema.flags_offset - rows < SCHEMA_FIELD_ALIGN &&
                          schema.slot_bytes % SCHEMA_FIELD_ALIGN == 0);
                ck_assert(schema.slot_stride >= schema.slot_bytes && schema.slot_stride <= INT64_MAX);
        }
        ck_assert_int_gt(laid_out, 1000);
}
END_TEST

START_TEST(schema_overflow) {
        struct schema schema = {.n_fields = 1};
        struct fault fault;
        uint64_t bytes;

        schema.fields[0] = field("x", SCHEMA_UINT8, 1, UINT64_C(1) << 63, 0, 0);
        ck_assert_int_eq(schema_lay_out(&schema, 1, &fault), -EOVERFLOW);
        ck_assert_ptr_nonnull(strstr(fault.text, "field x"));
        schema.fields[0] = field("x", SCHEMA_UINT8, 1, UINT64_MAX, 0, 0);
        ck_assert_int_eq(schema_lay_out(&schema, 1, &fault), -EOVERFLOW);
        schema.fields[0] = field("big", SCHEMA_INT64, 3, UINT64_C(1) << 31, UINT64_C(1) << 31, 1);
        ck_assert_int_eq(schema_lay_out(&schema, 1, &fault), -EOVERFLOW);
        ck_assert_ptr_nonnull(strstr(fault.text, "big"));
        schema.fields[0] = field("x", SCHEMA_UINT8, 1, UINT64_C(1) << 40, 0, 0);
        ck_assert_int_eq(schema_lay_out(&schema, 1 << 30, &fault), -EOVERFLOW);
        schema.fields[0] = field("x", SCHEMA_UINT8, 1, UINT64_C(1) << 61, 0, 0);
        ck_assert_int_eq(schema_lay_out(&schema, 1, &fault), 0);
        ck_assert_int_eq(schema_ring_bytes(&schema, 3, &bytes), 0);
        ck_assert_int_eq(schema_ring_bytes(&schema, 4, &bytes), -EOVERFLOW);
        ck_assert_int_eq(schema_ring_bytes(&schema, UINT32_MAX, &bytes), -EOVERFLOW);
}
END_TEST

static void refuse_schema(struct schema schema, uint32_t rows) {
        struct fault fault = {{0}};

        ck_assert_int_eq(schema_lay_out(&schema, rows, &fault), -EINVAL);
        ck_assert_str_ne(fault.text, "");
}

START_TEST(schemas_that_cannot_be) {
        struct schema good = {.n_fields = 2}, bad;

        good.fields[0] = field("image", SCHEMA_UINT8, 3, 3, 4, 5);
        good.fields[0].order = SCHEMA_CHANNELS_LAST;
        good.fields[1] = field("label", SCHEMA_INT64, 0, 0, 0, 0);
        bad = good;
        ck_assert_int_eq(schema_lay_out(&bad, 1, NULL), 0);
        refuse_schema(good, 0);
        refuse_schema(good, UINT32_C(1) << 31);
        bad = good, bad.n_fields = 0;
        refuse_schema(bad, 1);
        bad = good, bad.n_fields = SCHEMA_FIELDS_MAX + 1;
        refuse_schema(bad, 1);
        bad = good, bad.fields[1].name[0] = 0;
        refuse_schema(bad, 1);
        bad = good, strcpy(bad.fields[1].name, "image");
        refuse_schema(bad, 1);
        bad = good, strcpy(bad.fields[1].name, "a b");
        refuse_schema(bad, 1);
        bad = good, memset(bad.fields[1].name, 'x', sizeof(bad.fields[1].name));
        refuse_schema(bad, 1);
        bad = good, bad.fields[1].dtype = (enum schema_dtype)8;
        refuse_schema(bad, 1);
        bad = good, bad.fields[1].kind = (enum schema_kind)1;
        refuse_schema(bad, 1);
        bad = good, bad.fields[1].order = SCHEMA_CHANNELS_LAST;
        refuse_schema(bad, 1);
        bad = good, bad.fields[0].n_dims = SCHEMA_DIMS_MAX + 1;
        refuse_schema(bad, 1);
}
END_TEST

START_TEST(dtypes) {
        enum schema_dtype dtype;

        for (int i = 1; i <= 7; i++) {
                const char *name = schema_dtype_name((enum schema_dtype)i);

                ck_assert_ptr_nonnull(name);
                ck_assert_int_eq(schema_dtype_parse(name, &dtype), 0);
                ck_assert_int_eq(dtype, i);
        }
        ck_assert_uint_eq(schema_dtype_size(SCHEMA_BFLOAT16), 2);
        ck_assert_uint_eq(schema_dtype_size(SCHEMA_FLOAT64), 8);
        ck_assert_str_eq(schema_dtype_name(SCHEMA_FLOAT32), "float32");
        ck_assert_uint_eq(schema_dtype_size((enum schema_dtype)0), 0);
        ck_assert_ptr_null(schema_dtype_name((enum schema_dtype)8));
        ck_assert_int_eq(schema_dtype_parse("float", &dtype), -EINVAL);
        ck_assert_int_eq(schema_dtype_parse("Float32", &dtype), -EINVAL);
}
END_TEST

enum {
        INDEX_SAMPLES = 3,
        INDEX_CLASSES = 2,
        INDEX_NAMES = sizeof(struct index_header) + 5 * sizeof(struct index_entry),
        INDEX_BYTES = INDEX_NAMES + 22,
};

/* Three samples of two classes. */
static void make_index(uint8_t bytes[INDEX_BYTES]) {
        struct index_header header = {.magic = INDEX_MAGIC,
                                      .samples = INDEX_SAMPLES,
                                      .classes = INDEX_CLASSES,
                                      .entries_offset = sizeof(header),
                                      .classes_offset = sizeof(header) + 3 * sizeof(struct index_entry),
                                      .names_offset = INDEX_NAMES,
                                      .file_bytes = INDEX_BYTES};
        struct index_entry entries[] = {{INDEX_NAMES, 100, 0, 5},
                                        {INDEX_NAMES + 5, 200, 0, 6},
                                        {INDEX_NAMES + 11, 300, 1, 5},
                                        {INDEX_NAMES + 16, 0, 0, 3},
                                        {INDEX_NAMES + 19, 0, 0, 3}};

        memcpy(bytes, &header, sizeof(header));
        memcpy(bytes + sizeof(header), entries, sizeof(entries));
        memcpy(bytes + INDEX_NAMES, "a.jpgbb.jpgc.jpgcatdog", 22);
}

static int make_file(const uint8_t *bytes, size_t length, bool sealed) {
        int fd = shm_create_memfd("pinfeed-test-index");

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(fd_pwrite_full(fd, bytes, length, 0), 0);
        if (sealed)
                ck_assert_int_eq(shm_seal_all(fd), 0);
        return fd;
}

START_TEST(index_is_read) {
        uint8_t bytes[INDEX_BYTES];
        _cleanup_(fd_closep) int fd = -1, loose = -1;
        struct index index;
        struct fault fault;
        char name[16];

        make_index(bytes);
        fd = make_file(bytes, sizeof(bytes), true);
        ck_assert_int_eq(index_read_name(fd, 0, name, sizeof(name)), 0);
        ck_assert_str_eq(name, "a.jpg");
        ck_assert_int_eq(index_read_name(fd, 1, name, sizeof(name)), 0);
        ck_assert_str_eq(name, "bb.jpg");
        ck_assert_int_eq(index_read_name(fd, 2, name, 4), 0);
        ck_assert_str_eq(name, "c.j");
        ck_assert_int_eq(index_read_name(fd, 2, name, 0), -EINVAL);
        ck_assert_int_eq(index_read_name(fd, 3, name, sizeof(name)), -EINVAL);
        ck_assert_int_eq(index_read_name(fd, UINT64_MAX, name, sizeof(name)), -EINVAL);
        ck_assert_int_eq(index_read_name(-1, 0, name, sizeof(name)), -EBADF);
        ck_assert_int_eq(index_read_class(fd, 0, name, sizeof(name)), 0);
        ck_assert_str_eq(name, "cat");
        ck_assert_int_eq(index_read_class(fd, 1, name, 3), 0);
        ck_assert_str_eq(name, "do");
        ck_assert_int_eq(index_read_class(fd, INDEX_CLASSES, name, sizeof(name)), -EINVAL);
        ck_assert_int_eq(index_read_class(fd, UINT64_MAX, name, sizeof(name)), -EINVAL);

        ck_assert_int_eq(index_init_map(&index, fd, &fault), 0);
        ck_assert_uint_eq(index.header->samples, 3);
        ck_assert_uint_eq(index.entries[2].class, 1);
        ck_assert_uint_eq(index.entries[1].size, 200);
        ck_assert_int_eq(memcmp(index.base + index.classes[1].name_offset, "dog", 3), 0);
        index_deinit(&index);
        index_deinit(&index);

        loose = make_file(bytes, sizeof(bytes), false);
        ck_assert_int_eq(index_init_map(&index, loose, &fault), -EINVAL);
        ck_assert_ptr_nonnull(strstr(fault.text, "sealed"));
        ck_assert_int_eq(index_init_map(&index, STDERR_FILENO, &fault), -EINVAL);
}
END_TEST

/* Refused, or every name can be read without leaving the file. */
static bool try_index(const uint8_t *bytes, size_t length) {
        _cleanup_(fd_closep) int fd = make_file(bytes, length, true);
        struct index index;
        volatile char sum = 0;
        char name[16];
        int r;

        for (uint64_t i = 0; i < INDEX_SAMPLES; i++)
                index_read_name(fd, i, name, sizeof(name));
        for (uint64_t i = 0; i < INDEX_CLASSES; i++)
                index_read_class(fd, i, name, sizeof(name));
        r = index_init_map(&index, fd, NULL);
        if (r < 0) {
                ck_assert_int_eq(r, -EINVAL);
                return false;
        }
        for (uint64_t i = 0; i < index.header->samples; i++) {
                const struct index_entry *entry = &index.entries[i];

                ck_assert_uint_le(entry->name_offset, length);
                ck_assert_uint_le(entry->name_length, length - entry->name_offset);
                ck_assert_uint_lt(entry->class, index.header->classes);
                for (uint32_t at = 0; at < entry->name_length; at++)
                        sum = (char)(sum + index.base[entry->name_offset + at]);
        }
        index_deinit(&index);
        return true;
}

START_TEST(damaged_indexes) {
        static const uint64_t words[] = {0,
                                         1,
                                         7,
                                         8,
                                         INDEX_BYTES,
                                         INDEX_BYTES + 1,
                                         UINT64_C(1) << 32,
                                         INT64_MAX,
                                         UINT64_MAX,
                                         UINT64_MAX - 55,
                                         UINT64_MAX / 24 + 1};
        uint8_t good[INDEX_BYTES], bytes[INDEX_BYTES];
        _cleanup_(fd_closep) int fd = -1;
        struct index index;
        struct fault fault;
        int accepted = 0;

        make_index(good);
        ck_assert(try_index(good, sizeof(good)));
        for (size_t cut = 0; cut < sizeof(good); cut++)
                ck_assert(!try_index(good, cut));
        for (size_t at = 0; at < INDEX_NAMES; at += 8)
                for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
                        memcpy(bytes, good, sizeof(bytes));
                        memcpy(bytes + at, &words[i], 8);
                        accepted += try_index(bytes, sizeof(bytes));
                }
        /* A number of samples whose bytes would come out small, were they not counted carefully. */
        memcpy(bytes, good, sizeof(bytes));
        memcpy(bytes + 8, &words[10], 8);
        fd = make_file(bytes, sizeof(bytes), true);
        ck_assert_int_eq(index_init_map(&index, fd, &fault), -EINVAL);
        ck_assert_ptr_nonnull(strstr(fault.text, "header"));

        state = 22;
        for (int i = 0; i < 3000; i++) {
                memcpy(bytes, good, sizeof(bytes));
                for (uint64_t n = 1 + random_below(3); n > 0; n--)
                        bytes[random_below(INDEX_NAMES)] = (uint8_t)random_u64();
                accepted += try_index(bytes, sizeof(bytes));
        }
        ck_assert_int_gt(accepted, 10);
}
END_TEST

static char home[64];

static void touch_socket(const char *parent) {
        char path[256];
        int fd;

        snprintf(path, sizeof(path), "%s/%s", parent, RUNTIME_JOB_SOCKET);
        fd = seqpacket_listen(path, 1);
        ck_assert_int_ge(fd, 0);
        close(fd);
}

/* A uid that nobody uses, so that /tmp/pinfeed-UID is this test's alone. */
static void set_up_home(void) {
        if (geteuid() == 0) {
                ck_assert_int_eq(seteuid((uid_t)(1000000 + getpid())), 0);
                prctl(PR_SET_DUMPABLE, 1); /* a change of uid clears it, and the leak sanitizer needs it */
        }
        snprintf(home, sizeof(home), "/tmp/pinfeed-test-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(home));
        unsetenv("PINFEED_RUNTIME_DIR");
        unsetenv("XDG_RUNTIME_DIR");
}

static void tear_down_home(void) {
        char command[256];

        if (getuid() == 0)
                ck_assert_int_eq(seteuid(0), 0);
        snprintf(command, sizeof(command), "rm -rf %s", home);
        ck_assert_int_eq(system(command), 0);
}

static char *find(const char *given, enum runtime_seeker seeker) {
        static char path[RUNTIME_PATH_MAX + 1];

        ck_assert_int_eq(runtime_find_directory(path, given, seeker, NULL), 0);
        return path;
}

START_TEST(runtime_rules) {
        char tmp[64], xdg[128], name[256];
        uid_t uid = geteuid();

        snprintf(tmp, sizeof(tmp), "/tmp/pinfeed-%lu", (unsigned long)geteuid());
        snprintf(xdg, sizeof(xdg), "%s/pinfeed", home);
        ck_assert_str_eq(find(NULL, 0), tmp);
        setenv("XDG_RUNTIME_DIR", "", 1);
        ck_assert_str_eq(find(NULL, 0), tmp);
        setenv("XDG_RUNTIME_DIR", home, 1);
        ck_assert_str_eq(find(NULL, 0), xdg);
        ck_assert_str_eq(find("/given", 0), "/given");

        setenv("PINFEED_RUNTIME_DIR", "/from/environment", 1);
        ck_assert_str_eq(find(NULL, 0), "/from/environment");
        ck_assert_str_eq(find(NULL, 1), "/from/environment");
        ck_assert_str_eq(find("/given", 1), "/given");
        unsetenv("PINFEED_RUNTIME_DIR");
        if (geteuid() < 1000000 || access("/run/pinfeed", F_OK) == 0)
                return; /* a real daemon of this user's, or the machine's, would answer what follows */

        ck_assert_str_eq(find(NULL, 1), xdg);
        ck_assert_int_eq(mkdir(tmp, 0700), 0);
        touch_socket(tmp);
        ck_assert_str_eq(find(NULL, 1), tmp);
        ck_assert_str_eq(find(NULL, RUNTIME_DEFINER), tmp);
        ck_assert_str_eq(find(NULL, 0), xdg);
        ck_assert_int_eq(mkdir(xdg, 0700), 0);
        ck_assert_str_eq(find(NULL, 1), tmp);
        touch_socket(xdg);
        ck_assert_str_eq(find(NULL, 1), xdg);

        /* In /tmp, what belongs to somebody else does not count. */
        ck_assert_int_eq(unlink(strcat(strcpy(name, xdg), "/" RUNTIME_JOB_SOCKET)), 0);
        ck_assert_str_eq(find(NULL, 1), tmp);
        ck_assert_int_eq(seteuid(0) | chown(tmp, 0, 0) | chmod(tmp, 0755) | seteuid(uid), 0);
        ck_assert_str_eq(find(NULL, 1), xdg);
        ck_assert_int_eq(seteuid(0), 0);
        snprintf(xdg, sizeof(xdg), "rm -rf %s", tmp);
        ck_assert_int_eq(system(xdg), 0);
}
END_TEST

START_TEST(runtime_lengths) {
        char path[RUNTIME_PATH_MAX + 1], given[128];
        struct fault fault;

        memset(given, 'x', sizeof(given));
        given[0] = '/';
        given[RUNTIME_PATH_MAX] = 0;
        ck_assert_int_eq(runtime_find_directory(path, given, 0, &fault), 0);
        ck_assert_str_eq(path, given);
        given[RUNTIME_PATH_MAX] = 'x';
        given[RUNTIME_PATH_MAX + 1] = 0;
        ck_assert_int_eq(runtime_find_directory(path, given, 0, &fault), -ENAMETOOLONG);
        ck_assert_ptr_nonnull(strstr(fault.text, "95 bytes, at most 94"));
        given[RUNTIME_PATH_MAX - 7] = 0;
        setenv("XDG_RUNTIME_DIR", given, 1);
        ck_assert_int_eq(runtime_find_directory(path, NULL, 1, &fault), -ENAMETOOLONG);

        /* The longest directory leaves room for the socket. */
        memset(given, 'x', sizeof(given));
        memcpy(given, home, strlen(home));
        given[strlen(home)] = '/';
        given[RUNTIME_PATH_MAX] = 0;
        ck_assert_int_eq(runtime_make_directory(given, &fault), 0);
        touch_socket(given);
}
END_TEST

START_TEST(runtime_directories) {
        char path[128], link[128];
        struct fault fault;
        struct stat status;

        snprintf(path, sizeof(path), "%s/run", home);
        ck_assert_int_eq(runtime_make_directory(path, &fault), 0);
        ck_assert_int_eq(stat(path, &status), 0);
        ck_assert_int_eq(status.st_mode, S_IFDIR | 0700);
        ck_assert_int_eq(runtime_make_directory(path, &fault), 0);
        ck_assert_int_eq(chmod(path, 0755), 0);
        ck_assert_int_eq(runtime_make_directory(path, &fault), 0);
        ck_assert_int_eq(chmod(path, 0770), 0);
        ck_assert_int_eq(runtime_make_directory(path, &fault), -EPERM);
        ck_assert_ptr_nonnull(strstr(fault.text, "0770"));
        ck_assert_int_eq(chmod(path, 0702), 0);
        ck_assert_int_eq(runtime_make_directory(path, &fault), -EPERM);
        ck_assert_int_eq(chmod(path, 0700), 0);

        snprintf(link, sizeof(link), "%s/link", home);
        ck_assert_int_eq(symlink(path, link), 0);
        ck_assert_int_eq(runtime_make_directory(link, &fault), -ENOTDIR);
        snprintf(path, sizeof(path), "%s/none/run", home);
        ck_assert_int_eq(runtime_make_directory(path, &fault), -ENOENT);
        snprintf(path, sizeof(path), "%s/run/" RUNTIME_JOB_SOCKET, home);
        snprintf(link, sizeof(link), "%s/run", home);
        touch_socket(link);
        ck_assert_int_eq(runtime_make_directory(path, &fault), -ENOTDIR);
        if (geteuid() != 0) {
                ck_assert_int_eq(runtime_make_directory("/", &fault), -EPERM);
                ck_assert_ptr_nonnull(strstr(fault.text, "uid 0"));
        }
}
END_TEST

static Suite *schema_suite(void) {
        Suite *suite = suite_create("schema");
        TCase *schema = tcase_create("schema"), *indexes = tcase_create("index"),
              *runtime = tcase_create("runtime");

        tcase_set_timeout(schema, 60);
        tcase_set_timeout(indexes, 60);
        tcase_set_timeout(runtime, 60);
        tcase_add_test(schema, schema_of_photographs);
        tcase_add_test(schema, schema_sizes);
        tcase_add_test(schema, schema_overflow);
        tcase_add_test(schema, schemas_that_cannot_be);
        tcase_add_test(schema, dtypes);
        suite_add_tcase(suite, schema);

        tcase_add_test(indexes, index_is_read);
        tcase_add_test(indexes, damaged_indexes);
        suite_add_tcase(suite, indexes);

        tcase_add_checked_fixture(runtime, set_up_home, tear_down_home);
        tcase_add_test(runtime, runtime_rules);
        tcase_add_test(runtime, runtime_lengths);
        tcase_add_test(runtime, runtime_directories);
        suite_add_tcase(suite, runtime);
        return suite;
}

int main(void) {
        return run_suite(schema_suite());
}
