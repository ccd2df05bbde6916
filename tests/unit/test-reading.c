/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Reading files, and reading them ahead: what is announced and when, what becomes of what was opened, and
 * that a file which hangs, however it is met, holds up nothing else.
 *
 * The assembly here has a source of its own in the place of the image folder: it is the image folder, and
 * writes down what it is asked for. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/worker/progress.h"
#include "daemon/worker/sources/ahead.h"
#include "tests/support/assembly.h"
#include "tests/support/hang.h"
#include "tests/support/run.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>

enum {
        PHOTOS = 12,
        OPENED_MS = 10000, /* the thread was scheduled by then */
        AT_ONCE_MS = 1000,
};

extern const struct source_ops source_imagefolder;

/* ---- the source that writes down ---- */

static char journal[1024];
static const struct worker_page *looked_at;

static void note(char what, uint64_t sample) {
        snprintf(journal + strlen(journal), sizeof(journal) - strlen(journal), "%c%llu ", what,
                 (unsigned long long)sample);
}

static int spy_image(struct source *source, const struct source_request *request, struct image *image,
                     int64_t *label, struct fault *fault) {
        note('i', request->sample);
        return source_imagefolder.image(source, request, image, label, fault);
}

/* No sample may be named meanwhile, for whatever happened would be its doing. */
static void spy_announce(struct source *source, uint64_t sample) {
        note('a', sample);
        if (looked_at)
                ck_assert_uint_eq(looked_at->sample, WORKER_PAGE_IDLE);
        source_imagefolder.announce(source, sample);
}

static void spy_forget(struct source *source) {
        strcat(journal, "f ");
        source_imagefolder.forget(source);
}

static struct source_ops spy;

const struct source_ops *const source_table[SOURCE_TYPES] = {[RECIPE_IMAGEFOLDER] = &spy};

static void set_up(void) {
        make_folder();
        spy = source_imagefolder;
        spy.image = spy_image;
        spy.announce = spy_announce;
        spy.forget = spy_forget;
        looked_at = NULL;
        *journal = 0;
}

static void photos_init(struct fixture *fixture, int shuffle, uint64_t samples) {
        _cleanup_(fd_closep) int index_fd = -1;
        char recipe[PATH_MAX];

        ck_assert_int_eq(scan_folder(&index_fd, NULL), (int)samples);
        image_recipe(recipe, CROP, "\"output\": {\"dtype\": \"uint8\"}");
        fixture_init(fixture, recipe, samples, (uint32_t)samples, shuffle, index_fd);
        progress_init(&fixture->page);
        looked_at = &fixture->page;
}

static int count_descriptors(void) {
        DIR *directory = opendir("/proc/self/fd");
        int n = 0;

        while (readdir(directory))
                n++;
        closedir(directory);
        return n;
}

static bool opens(int descriptors) {
        for (int ms = 0; ms < OPENED_MS && count_descriptors() != descriptors; ms++)
                usleep(1000);
        return count_descriptors() == descriptors;
}

/* ---- what is announced ---- */

START_TEST(the_next_of_the_chunk_and_no_others_are_announced) {
        struct fixture fixture;
        struct assembly_chunk chunk = {.row = 2, .rows = 6};

        put_photos(PHOTOS);
        photos_init(&fixture, 0, PHOTOS);
        ck_assert_int_eq(fill(&fixture, 0, 0, 2, 0, 7), 0);
        ck_assert_str_eq(journal, "a3 a4 a5 a6 i2 a7 i3 a8 i4 i5 i6 i7 i8 f ");
        *journal = 0;
        ck_assert_int_eq(fill(&fixture, 0, 0, 11, 0, 1), 0); /* a trial of one row */
        ck_assert_str_eq(journal, "i11 f ");
        *journal = 0;
        ck_assert_int_eq(assembly_verify(fixture.assembly, &chunk, fixture.slot, &fixture.page), 0);
        ck_assert_str_eq(journal, "a3 a4 a5 a6 i2 a7 i3 i4 i5 i6 i7 f ");
        fixture_deinit(&fixture);
}
END_TEST

/* In the order in which they come, which is not that of their numbers. */
START_TEST(shuffled_samples_are_announced_as_they_come) {
        char announced[1024] = "", made[1024] = "", *rest, *word;
        struct fixture fixture;

        put_photos(PHOTOS);
        photos_init(&fixture, 1, PHOTOS);
        ck_assert_int_eq(fill(&fixture, 5, 3, 0, 0, PHOTOS), 0);
        for (word = strtok_r(journal, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
                if (*word != 'f')
                        strcat(strcat(*word == 'a' ? announced : made, word + 1), " ");
        ck_assert_str_eq(announced, strchr(made, ' ') + 1);
        fixture_deinit(&fixture);
}
END_TEST

static int tell_nobody(void *context, uint64_t sample, const char *file, int error, const char *text) {
        return 0;
}

START_TEST(the_condemned_are_not_announced) {
        struct fixture fixture;

        put_photos(PHOTOS);
        photos_init(&fixture, 0, PHOTOS);
        assembly_replace_bad(fixture.assembly, tell_nobody, NULL);
        ck_assert_int_eq(assembly_condemn(fixture.assembly, (uint64_t[]){2}, 1), 0);
        ck_assert_int_eq(fill(&fixture, 0, 0, 0, 0, 5), 0);
        ck_assert_uint_eq(fixture.replaced, 1);
        ck_assert_ptr_null(strstr(journal, "a2 "));
        ck_assert_ptr_nonnull(strstr(journal, "a1 a3 a4 i0 i1 "));
        fixture_deinit(&fixture);
}
END_TEST

/* A chunk that ends early leaves nothing open, nor does one that ends as it should. */
START_TEST(no_descriptor_outlives_its_chunk) {
        struct fixture fixture;
        int before;

        put_photos(PHOTOS);
        put_file("a/03.jpg", 100);
        photos_init(&fixture, 0, PHOTOS);
        before = count_descriptors();
        for (int i = 0; i < 20; i++) {
                *journal = 0;
                ck_assert_int_lt(fill(&fixture, 0, 0, 0, 0, PHOTOS), 0);
                ck_assert_uint_eq(fixture.failure.sample, 3);
                ck_assert(opens(before)); /* the thread may close what it was opening a moment later */
                ck_assert_int_eq(fill(&fixture, 0, 0, 4, 0, PHOTOS - 4), 0);
                ck_assert(opens(before));
        }
        fixture_deinit(&fixture);
}
END_TEST

/* ---- links ---- */

/* A folder that is a link, a file that is one, and one that leads nowhere. */
START_TEST(links_are_followed) {
        struct fixture fixture, plain;

        put_directory("elsewhere");
        put_jpeg("elsewhere/0.jpg", 40);
        put_jpeg("elsewhere/1.jpg", 90);
        strcat(folder, "/classes");
        ck_assert_int_eq(mkdir(folder, 0777), 0);
        put_link("a", "../elsewhere");
        put_directory("b");
        put_link("b/0.jpg", "../../elsewhere/0.jpg");
        put_link("b/1.jpg", "../a/1.jpg");
        photos_init(&fixture, 0, 4);
        ck_assert_msg(fill(&fixture, 0, 0, 0, 0, 4) == 0, "%s", fixture.fault.text);
        ck_assert_int_eq(*(int64_t *)cell(&fixture, 1, 0), 0);
        ck_assert_int_eq(*(int64_t *)cell(&fixture, 1, 3), 1);
        for (uint32_t row = 0; row < 4; row++)
                ck_assert_uint_eq(*cell(&fixture, 0, row), row % 2 ? 90 : 40);

        ck_assert_int_eq(remove(in_folder("b/1.jpg")), 0);
        put_link("b/1.jpg", "nowhere");
        photos_init(&plain, 0, 4);
        ck_assert_int_eq(fill(&plain, 0, 0, 0, 0, 4), -ENOENT);
        ck_assert_uint_eq(plain.failure.sample, 3);
        fixture_deinit(&plain);
        fixture_deinit(&fixture);
        *strrchr(folder, '/') = '\0';
}
END_TEST

/* ---- the thread ---- */

struct reading {
        int root;
        struct ahead *ahead;
        int before; /* descriptors */
};

static void reading_init(struct reading *reading) {
        char name[16];

        for (int i = 0; i < PHOTOS; i++) {
                snprintf(name, sizeof(name), "%d", i);
                put_file(name, (size_t)i);
        }
        reading->root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ck_assert_int_ge(reading->root, 0);
        ck_assert_int_eq(ahead_new(&reading->ahead, reading->root), 0);
        reading->before = count_descriptors();
}

static void reading_deinit(struct reading *reading) {
        ahead_free(reading->ahead);
        ck_assert_int_eq(count_descriptors(), reading->before);
        close(reading->root);
}

static void want(struct reading *reading, uint64_t sample) {
        char name[16];

        snprintf(name, sizeof(name), "%d", (int)sample);
        ahead_want(reading->ahead, sample, name, strlen(name));
}

/* That this is the file with so many bytes, and closes it. */
static void assert_is_file(int fd, off_t bytes) {
        struct stat status;

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(fstat(fd, &status), 0);
        ck_assert_int_eq(status.st_size, bytes);
        close(fd);
}

START_TEST(what_is_wanted_is_opened) {
        struct reading reading;

        reading_init(&reading);
        ck_assert_int_eq(ahead_take(reading.ahead, 3), -1);
        for (uint64_t i = 0; i < 2 * SOURCE_AHEAD_MAX; i++)
                want(&reading, i);
        ck_assert(opens(reading.before + SOURCE_AHEAD_MAX + 1)); /* of those there are places for */
        usleep(2000);
        ck_assert_int_eq(count_descriptors(), reading.before + SOURCE_AHEAD_MAX + 1);
        assert_is_file(ahead_take(reading.ahead, 3), 3);
        ck_assert_int_eq(ahead_take(reading.ahead, 3), -1); /* it was taken */
        ck_assert_int_eq(ahead_take(reading.ahead, PHOTOS), -1);
        assert_is_file(ahead_take(reading.ahead, 0), 0);
        want(&reading, 9); /* in the first one's place */
        ck_assert(opens(reading.before + SOURCE_AHEAD_MAX));
        ahead_forget(reading.ahead);
        ck_assert_int_eq(count_descriptors(), reading.before);
        ck_assert_int_eq(ahead_take(reading.ahead, 9), -1);
        want(&reading, 7);
        ck_assert(opens(reading.before + 1));
        reading_deinit(&reading); /* closes it */
}
END_TEST

/* Errors are met when the sample's turn comes, and a file that was replaced is read as it was. */
START_TEST(what_changes_meanwhile) {
        struct reading reading;

        reading_init(&reading);
        want(&reading, PHOTOS + 1); /* not there */
        want(&reading, 5);
        ck_assert(opens(reading.before + 1));
        ck_assert_int_eq(ahead_take(reading.ahead, PHOTOS + 1), -1);
        put_file("new", 50);
        ck_assert_int_eq(rename(in_folder("new"), in_folder("5")), 0);
        assert_is_file(ahead_take(reading.ahead, 5), 5);
        want(&reading, 6);
        ck_assert(opens(reading.before + 1));
        put_file("6", 60); /* written over */
        assert_is_file(ahead_take(reading.ahead, 6), 60);
        reading_deinit(&reading);
}
END_TEST

static void judge(struct reading *reading, int files, uint64_t ns) {
        while (files-- > 0)
                ahead_judge(reading->ahead, 100000, ns);
}

static void assert_not_opened(struct reading *reading) {
        want(reading, 1);
        usleep(2000);
        ck_assert_int_eq(count_descriptors(), reading->before);
}

/* Not for ever where nothing is slow, and again when several files were, soon after each other. */
START_TEST(reading_ahead_ends_where_it_is_of_no_use) {
        const uint64_t quick = 60 * NS_PER_US, slow = 200 * NS_PER_US;
        struct reading reading;

        reading_init(&reading);
        for (int round = 0; round < 2; round++) {
                for (int i = 0; i < 400; i++) {
                        want(&reading, 1);
                        judge(&reading, 1, quick);
                        ahead_forget(reading.ahead);
                }
                assert_not_opened(&reading);
                for (int i = 0; i < 10; i++) {
                        judge(&reading, 1, slow);
                        judge(&reading, 20, quick);
                }
                assert_not_opened(&reading);
                judge(&reading, 40, quick);
                judge(&reading, 2, slow);
                assert_not_opened(&reading);
                judge(&reading, 1, slow);
                want(&reading, 1);
                ck_assert(opens(reading.before + 1));
                ahead_forget(reading.ahead);
        }
        reading_deinit(&reading);
}
END_TEST

static void *let_go_later(void *listener) {
        usleep(50000);
        close(*(int *)listener);
        return NULL;
}

/* Its own sample waits for it, and gets it. */
START_TEST(a_slow_file_is_waited_for_in_its_turn) {
        struct reading reading;
        pthread_t thread;
        int listener;

        reading_init(&reading);
        listener = hang_at(in_folder("2"));
        if (listener >= 0) {
                want(&reading, 2);
                want(&reading, 3);
                hang_wait(listener);
                ck_assert_int_eq(pthread_create(&thread, NULL, let_go_later, &listener), 0);
                ck_assert_int_eq(ahead_take(reading.ahead, 3), -1); /* that would be too late */
                assert_is_file(ahead_take(reading.ahead, 2), 2);
                ck_assert_int_eq(pthread_join(thread, NULL), 0);
        }
        reading_deinit(&reading);
}
END_TEST

/* The thread hangs; nobody waits for it, at the end neither. */
START_TEST(a_file_that_hangs_holds_up_nothing) {
        struct reading reading;
        uint64_t begin;
        int listener;

        reading_init(&reading);
        listener = hang_at(in_folder("2"));
        if (listener >= 0) {
                reading.before++;
                want(&reading, 1);
                ck_assert(opens(reading.before + 1));
                for (uint64_t i = 2; i < PHOTOS; i++)
                        want(&reading, i);
                hang_wait(listener);
                begin = clock_ns();
                assert_is_file(ahead_take(reading.ahead, 1), 1);
                for (uint64_t i = 3; i < PHOTOS; i++)
                        ck_assert_int_eq(ahead_take(reading.ahead, i), -1);
                ahead_forget(reading.ahead);
                want(&reading, 3);
                ahead_free(reading.ahead);
                ck_assert_uint_lt(clock_ns() - begin, AT_ONCE_MS * NS_PER_MS);
                reading.ahead = NULL;
                close(listener);
                reading.before--;
                ck_assert(opens(reading.before)); /* the thread has come back and closed what it opened */
        }
        reading_deinit(&reading);
}
END_TEST

static Suite *reading_suite(void) {
        Suite *suite = suite_create("reading");
        TCase *tcase = tcase_create("reading");

        tcase_add_checked_fixture(tcase, set_up, remove_folder);
        tcase_add_test(tcase, the_next_of_the_chunk_and_no_others_are_announced);
        tcase_add_test(tcase, shuffled_samples_are_announced_as_they_come);
        tcase_add_test(tcase, the_condemned_are_not_announced);
        tcase_add_test(tcase, no_descriptor_outlives_its_chunk);
        tcase_add_test(tcase, links_are_followed);
        tcase_add_test(tcase, what_is_wanted_is_opened);
        tcase_add_test(tcase, what_changes_meanwhile);
        tcase_add_test(tcase, reading_ahead_ends_where_it_is_of_no_use);
        tcase_add_test(tcase, a_slow_file_is_waited_for_in_its_turn);
        tcase_add_test(tcase, a_file_that_hangs_holds_up_nothing);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(reading_suite());
}
