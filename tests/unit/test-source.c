/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The scan of an image folder: its order, its index, its complaints.
 *
 * The order is compared with torchvision's rules written down a second time, in the plainest way (paths,
 * recursion, one sort), over a tree that has every trap we know of. */

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/worker/sources/index-build.h"
#include "tests/support/folder.h"
#include "tests/support/run.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <strings.h>
#include <time.h>

/* ---- torchvision's rules once more ---- */

enum {
        LIST_MAX = 200,
};

struct list_of_paths {
        char *paths[LIST_MAX];
        int n;
};

static void list_add(struct list_of_paths *list, const char *format, const char *a, const char *b) {
        ck_assert_int_lt(list->n, LIST_MAX);
        ck_assert_int_ge(asprintf(&list->paths[list->n++], format, a, b), 0);
}

static void list_clear(struct list_of_paths *list) {
        while (list->n > 0)
                free(list->paths[--list->n]);
}

static int compare_paths(const void *a, const void *b) {
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_sort(struct list_of_paths *list) {
        qsort(list->paths, (size_t)list->n, sizeof(list->paths[0]), compare_paths);
}

static int is_directory(const char *path) {
        struct stat status;

        return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Names in `path`: directories, or all else. */
static void list_names(const char *path, int directories, struct list_of_paths *names) {
        DIR *directory = opendir(path);
        struct dirent *entry;

        ck_assert_ptr_nonnull(directory);
        while ((entry = readdir(directory))) {
                char full[PATH_MAX];

                snprintf(full, sizeof(full), "%s/%s", path, entry->d_name);
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                    is_directory(full) == directories)
                        list_add(names, "%s%s", entry->d_name, "");
        }
        closedir(directory);
        list_sort(names);
}

static void walk(const char *path, struct list_of_paths *directories) {
        struct list_of_paths names = {0};

        list_add(directories, "%s%s", path, "");
        list_names(path, 1, &names);
        for (int i = 0; i < names.n; i++) {
                char below[PATH_MAX];

                snprintf(below, sizeof(below), "%s/%s", path, names.paths[i]);
                walk(below, directories);
        }
        list_clear(&names);
}

static int has_image_ending(const char *name) {
        const char *dot = strrchr(name, '.');

        return dot && (!strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".png") ||
                       !strcasecmp(dot, ".ppm") || !strcasecmp(dot, ".bmp") || !strcasecmp(dot, ".pgm") ||
                       !strcasecmp(dot, ".tif") || !strcasecmp(dot, ".tiff") || !strcasecmp(dot, ".webp"));
}

/* ImageFolder(folder).samples, with paths relative to the folder. */
static void torchvision_samples(struct list_of_paths *samples) {
        struct list_of_paths classes = {0}, directories = {0}, files = {0};

        list_names(folder, 1, &classes);
        for (int c = 0; c < classes.n; c++) {
                walk(in_folder(classes.paths[c]), &directories);
                list_sort(&directories);
                for (int d = 0; d < directories.n; d++) {
                        list_names(directories.paths[d], 0, &files);
                        for (int f = 0; f < files.n; f++)
                                if (has_image_ending(files.paths[f]))
                                        list_add(samples, "%s/%s", directories.paths[d] + strlen(folder) + 1,
                                                 files.paths[f]);
                        list_clear(&files);
                }
                list_clear(&directories);
        }
        list_clear(&classes);
}

static void put_tree_of_traps(void) {
        put_directory("classes");
        strcat(folder, "/classes");
        put_directory("b");
        put_directory("B");
        put_directory("a-b");
        put_directory("../elsewhere");
        put_file("../elsewhere/z.TIFF", 3);
        put_link("../elsewhere/link.jpg", "z.TIFF");
        put_link("../elsewhere/dangling.bmp", "nowhere");
        put_link("a", "../elsewhere");
        put_file("not-in-a-class.jpg", 1);
        put_file("a-b/1.pgm", 1);
        put_file("B/1.Jpeg", 1);
        put_file("b/x.jpg", 10);
        put_file("b/Y.JPG", 20);
        put_file("b/.jpg", 1);
        put_file("b/notes.txt", 1);
        put_file("b/jpg", 1);
        put_file("b/x.jpg.gz", 1);
        put_directory("b/a");
        put_directory("b/a/b");
        put_directory("b/a-b");
        put_directory("b/a.jpg");
        put_directory("b/\xc3\xa9");
        put_file("b/a/1.webp", 1);
        put_file("b/a/b/1.ppm", 1);
        put_file("b/a-b/1.png", 1);
        put_file("b/a.jpg/1.tif", 1);
        put_file("b/\xc3\xa9/1.jpg", 1);
        put_link("b/z", "../a-b");
}

static void leave_tree_of_traps(void) {
        *strrchr(folder, '/') = '\0';
}

static void assert_name(const struct index *index, const struct index_entry *entry, const char *name) {
        ck_assert_uint_eq(entry->name_length, strlen(name));
        ck_assert_int_eq(memcmp(index->base + entry->name_offset, name, strlen(name)), 0);
}

START_TEST(scan_keeps_the_order_of_torchvision) {
        static const char *const expected[] = {
                "B/1.Jpeg",      "a/dangling.bmp", "a/link.jpg", "a/z.TIFF",         "a-b/1.pgm",
                "b/.jpg",        "b/Y.JPG",        "b/x.jpg",    "b/a/1.webp",       "b/a-b/1.png",
                "b/a.jpg/1.tif", "b/a/b/1.ppm",    "b/z/1.pgm",  "b/\xc3\xa9/1.jpg",
        };
        static const uint32_t labels[] = {0, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3};
        const int n = (int)(sizeof(expected) / sizeof(expected[0]));
        _cleanup_(fd_closep) int index_fd = -1;
        struct list_of_paths rules = {0};
        struct fault fault = {0};
        struct index index;

        put_tree_of_traps();
        ck_assert_int_eq(scan_folder(&index_fd, &fault), n);
        torchvision_samples(&rules);
        ck_assert_int_eq(rules.n, n);
        ck_assert_int_eq(index_init_map(&index, index_fd, &fault), 0);
        ck_assert_uint_eq(index.header->classes, 4);
        assert_name(&index, &index.classes[0], "B");
        assert_name(&index, &index.classes[3], "b");
        for (int i = 0; i < n; i++) {
                ck_assert_str_eq(rules.paths[i], expected[i]);
                assert_name(&index, &index.entries[i], expected[i]);
                ck_assert_uint_eq(index.entries[i].class, labels[i]);
        }
        ck_assert_uint_eq(index.entries[1].size, 0);
        ck_assert_uint_eq(index.entries[2].size, 3);
        ck_assert_uint_eq(index.entries[6].size, 20);
        index_deinit(&index);
        list_clear(&rules);
        leave_tree_of_traps();
}
END_TEST

START_TEST(scan_gives_a_sealed_index_with_a_sum) {
        _cleanup_(fd_closep) int first_fd = -1, second_fd = -1, third_fd = -1;
        uint8_t first[SOURCE_SHA256_BYTES], second[SOURCE_SHA256_BYTES], third[SOURCE_SHA256_BYTES];
        struct index index;
        char name[16];

        put_directory("a");
        put_file("a/1.jpg", 5);
        ck_assert_int_eq(scan_folder(&first_fd, NULL), 1);
        ck_assert_int_eq(scan_folder(&second_fd, NULL), 1);
        put_file("a/1.jpg", 6);
        ck_assert_int_eq(scan_folder(&third_fd, NULL), 1);

        ck_assert_int_eq(pwrite(first_fd, "x", 1, 0), -1);
        ck_assert_int_eq(errno, EPERM);
        ck_assert_int_eq(index_read_name(first_fd, 0, name, sizeof(name)), 0);
        ck_assert_str_eq(name, "a/1.jpg");

        ck_assert_int_eq(index_init_map(&index, first_fd, NULL), 0);
        source_index_sha256(&index, first);
        index_deinit(&index);
        ck_assert_int_eq(index_init_map(&index, second_fd, NULL), 0);
        source_index_sha256(&index, second);
        index_deinit(&index);
        ck_assert_int_eq(index_init_map(&index, third_fd, NULL), 0);
        source_index_sha256(&index, third);
        index_deinit(&index);
        ck_assert_int_eq(memcmp(first, second, sizeof(first)), 0);
        ck_assert_int_ne(memcmp(first, third, sizeof(first)), 0);
}
END_TEST

START_TEST(scan_names_what_is_wrong) {
        struct fault fault = {0};
        int index_fd = -1;

        put_file("1.jpg", 1);
        ck_assert_int_eq(scan_folder(&index_fd, &fault), -ENOENT);
        ck_assert_ptr_nonnull(strstr(fault.text, "no class folders in "));

        put_directory("a");
        put_directory("b");
        put_file("a/1.jpg", 1);
        put_file("b/1.txt", 1);
        ck_assert_int_eq(scan_folder(&index_fd, &fault), -ENOENT);
        ck_assert_ptr_nonnull(strstr(fault.text, "/b: "));

        put_file("b/1.jpg", 1);
        put_directory("b/c");
        put_link("b/c/loop", "..");
        ck_assert_int_eq(scan_folder(&index_fd, &fault), -ELOOP);
        ck_assert_ptr_nonnull(strstr(fault.text, "b/c/loop leads back to b,"));

        ck_assert_int_eq(remove(in_folder("b/c/loop")), 0);
        put_link("b/c/loop", "../..");
        ck_assert_int_eq(scan_folder(&index_fd, &fault), -ELOOP);
        ck_assert_int_eq(index_fd, -1);
}
END_TEST

/* ---- case I10: a very large dataset ---- */

#define SECONDS_PER_GB 2
#define BESIDE_INDEX   (UINT64_C(64) << 20)

enum {
        LARGE = 1000000,
        LARGE_LONG = 100000000, /* the case's own number, and 13 GB of memory while it is made */
        LARGE_CLASSES = 1000,
};

static double slowdown(void) {
        const char *text = getenv("PINFEED_TEST_SLOWDOWN");

        return text ? atof(text) : 1;
}

static uint64_t resident_bytes(void) {
        unsigned long long total, resident = 0;
        FILE *file = fopen("/proc/self/statm", "re");

        ck_assert_ptr_nonnull(file);
        ck_assert_int_eq(fscanf(file, "%llu %llu", &total, &resident), 2);
        fclose(file);
        return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void make_large_index(uint64_t samples, int *index_fd) {
        struct index_build build = {0};
        char class[16], name[16];

        for (unsigned i = 0; i < LARGE_CLASSES; i++) {
                snprintf(class, sizeof(class), "n%08u", i);
                ck_assert_int_eq(index_build_add_class(&build, class), 0);
                for (uint64_t k = 0; k < samples / LARGE_CLASSES; k++) {
                        snprintf(name, sizeof(name), "%06u.jpg", (unsigned)k);
                        if (index_build_add_sample(&build, class, name, i, 100000) < 0)
                                ck_abort_msg("no memory for the index");
                }
        }
        ck_assert_int_eq(index_build_finish(&build, index_fd, NULL), 0);
        index_build_deinit(&build);
}

/* What a worker does with it: the whole index is checked, and nothing is copied. Processor time, since others
 * may be at work. */
START_TEST(test_I10_a_very_large_dataset) {
        uint64_t samples = getenv("PINFEED_TEST_LONG") ? LARGE_LONG : LARGE, before, grown;
        _cleanup_(fd_closep) int index_fd = -1;
        struct index index;
        double seconds;
        clock_t begin;

        make_large_index(samples, &index_fd);
        malloc_trim(0);
        before = resident_bytes();
        begin = clock();
        ck_assert_int_eq(index_init_map(&index, index_fd, NULL), 0);
        seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        grown = resident_bytes() - before;
        ck_assert_uint_eq(index.header->samples, samples);
        assert_name(&index, &index.entries[0], "n00000000/000000.jpg");
        ck_assert_msg(seconds < SECONDS_PER_GB * (double)index.mapped / 1e9 * slowdown(),
                      "%.3f s for %.3f GB", seconds, (double)index.mapped / 1e9);
        ck_assert_uint_lt(grown, index.mapped + BESIDE_INDEX);
        index_deinit(&index);
}
END_TEST

static Suite *source_suite(void) {
        Suite *suite = suite_create("source");
        TCase *scan = tcase_create("scan");

        tcase_add_checked_fixture(scan, make_folder, remove_folder);
        tcase_add_test(scan, scan_keeps_the_order_of_torchvision);
        tcase_add_test(scan, scan_gives_a_sealed_index_with_a_sum);
        tcase_add_test(scan, scan_names_what_is_wrong);
        tcase_add_test(scan, test_I10_a_very_large_dataset);
        if (getenv("PINFEED_TEST_LONG"))
                tcase_set_timeout(scan, 300);
        suite_add_tcase(suite, scan);
        return suite;
}

int main(void) {
        return run_suite(source_suite());
}
