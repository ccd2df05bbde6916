/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A worker's session, run by a thread at the other end of a real socket; the test plays the daemon. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/seqpacket.h"
#include "base/shm.h"
#include "daemon/worker/session.h"
#include "proto/message.h"
#include "proto/worker-page.h"
#include "tests/support/photos.h"
#include "tests/support/ramp.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

struct conversation {
        pthread_t thread;
        int ours, theirs;
        int result;
        struct fault fault;
        struct schema schema;
        uint8_t *ring;
        struct worker_page *page;
        struct message message;
};

static void *play_worker(void *argument) {
        struct conversation *talk = argument;

        talk->result = session_run(talk->theirs, &talk->fault);
        close(talk->theirs);
        return NULL;
}

static void say(struct conversation *talk, const int *fds, size_t n_fds) {
        ck_assert_int_eq(message_send(talk->ours, &talk->message, fds, n_fds), 0);
}

/* Waits for the worker's next message that is no SCANNING; one descriptor at most, -1 for none. */
static int hear(struct conversation *talk, enum message_type type) {
        int fds[SEQPACKET_FDS_MAX];
        size_t n_fds;

        int r;

        do
                r = message_receive(talk->ours, &talk->message, fds, &n_fds, MESSAGE_BY_WORKER, &talk->fault);
        while (r == 0 && talk->message.type == MESSAGE_SCANNING);
        ck_assert_msg(r == 0, "%d: %s", r, talk->fault.text);
        ck_assert_msg(talk->message.type == type, "got %s: %s", message_name(talk->message.type),
                      talk->message.type == MESSAGE_BROKEN ? talk->message.broken.text : "");
        return n_fds > 0 ? fds[0] : -1;
}

static void begin_talk(struct conversation *talk, const char *recipe, uint32_t slots, uint32_t slot_rows) {
        struct recipe parsed;
        json_t *json = json_loads(recipe, 0, NULL);
        uint64_t bytes;
        int pair[2], fds[2];

        *talk = (struct conversation){0};
        ck_assert_int_eq(recipe_from_json(&parsed, json, NULL), 0);
        json_decref(json);
        recipe_schema(&parsed, &talk->schema);
        recipe_deinit(&parsed);
        ck_assert_int_eq(schema_lay_out(&talk->schema, slot_rows, NULL), 0);
        ck_assert_int_eq(schema_ring_bytes(&talk->schema, slots, &bytes), 0);

        ck_assert_int_eq(seqpacket_pair(pair), 0);
        talk->ours = pair[0];
        talk->theirs = pair[1];
        fd_set_nonblocking(talk->ours, 0);
        fds[0] = shm_create_memfd("ring");
        fds[1] = shm_create_memfd("page");
        ck_assert_int_eq(ftruncate(fds[0], (off_t)bytes), 0);
        ck_assert_int_eq(ftruncate(fds[1], WORKER_PAGE_BYTES), 0);
        talk->ring = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fds[0], 0);
        talk->page = mmap(NULL, WORKER_PAGE_BYTES, PROT_READ, MAP_SHARED, fds[1], 0);
        ck_assert(talk->ring != MAP_FAILED && talk->page != MAP_FAILED);

        ck_assert_int_eq(pthread_create(&talk->thread, NULL, play_worker, talk), 0);
        talk->message.type = MESSAGE_SETUP;
        talk->message.setup =
                (struct message_setup){.worker = 1, .shuffle = 0, .slots = slots, .slot_rows = slot_rows};
        strcpy(talk->message.setup.recipe, recipe);
        say(talk, fds, 2);
        close(fds[0]);
        close(fds[1]);
}

/* Scan, and the answer back to the worker as it came. */
static void scan_and_return(struct conversation *talk, uint64_t samples) {
        _cleanup_(fd_closep) int index_fd = -1;

        talk->message.type = MESSAGE_SCAN;
        talk->message.scan = (struct message_scan){0};
        say(talk, NULL, 0);
        index_fd = hear(talk, MESSAGE_INDEX);
        ck_assert_uint_eq(talk->message.index.samples, samples);
        say(talk, &index_fd, index_fd >= 0 ? 1 : 0);
}

static void assign(struct conversation *talk, uint64_t row, uint32_t slot, uint32_t first, uint32_t rows) {
        talk->message.type = MESSAGE_ASSIGN;
        talk->message.assign.n_chunk = 1;
        talk->message.assign.chunk[0] = (struct message_chunk){
                .row = row, .seed = 3, .epoch = 1, .slot = slot, .first = first, .rows = rows};
}

static int end_talk(struct conversation *talk) {
        close(talk->ours);
        pthread_join(talk->thread, NULL);
        return talk->result;
}

START_TEST(session_fills_slots_and_says_so) {
        struct conversation talk;
        uint64_t begin = clock_ns();
        int fds = fd_count();

        begin_talk(&talk, RAMP, 3, 16);
        scan_and_return(&talk, 100);
        for (uint32_t i = 0; i < 6; i++) {
                const struct message_part *part = &talk.message.done.part[0];

                assign(&talk, 8 * i, i % 3, 8 * (i % 2), 8);
                say(&talk, NULL, 0);
                hear(&talk, MESSAGE_DONE);
                ck_assert_uint_eq(talk.message.done.n_part, 1);
                ck_assert_uint_eq(part->slot, i % 3);
                ck_assert_uint_eq(part->first, 8 * (i % 2));
                ck_assert_uint_eq(part->rows, 8);
                ck_assert(part->done_ns > begin && part->done_ns <= clock_ns());
                ck_assert(part->busy_ns > 0 && part->busy_ns < clock_ns() - begin);
                ck_assert(ramp_check(talk.ring + i % 3 * talk.schema.slot_stride +
                                             talk.schema.fields[1].offset + 8 * (i % 2) * 37,
                                     37, 8 * i, 1, NULL));
        }
        ck_assert_uint_eq(talk.page->sample, WORKER_PAGE_IDLE);
        ck_assert_uint_eq(talk.page->rows_done, 48);
        ck_assert_int_eq(fd_count(), fds + 2); /* both ends of the socket */
        ck_assert_int_eq(end_talk(&talk), 0);
        ck_assert_int_eq(fd_count(), fds);
}
END_TEST

START_TEST(session_reports_the_bad_sample_and_goes_on) {
        struct conversation talk;
        char recipe[PATH_MAX];

        put_photos(6);
        put_file("b/04.jpg", 9);
        image_recipe(recipe, CROP, "\"output\": {\"dtype\": \"uint8\", \"layout\": \"chw\"}");
        begin_talk(&talk, recipe, 2, 6);
        scan_and_return(&talk, 6);
        assign(&talk, 0, 1, 0, 6);
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_BROKEN);
        ck_assert_uint_eq(talk.message.broken.sample_given, 1);
        ck_assert_uint_eq(talk.message.broken.sample, 4);
        ck_assert_uint_eq(talk.message.broken.slot, 1);
        ck_assert_uint_eq(talk.message.broken.first, 4);
        ck_assert_str_eq(talk.message.broken.file, "b/04.jpg");
        assign(&talk, 0, 0, 0, 4);
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_DONE);
        ck_assert_int_eq(end_talk(&talk), 0);
}
END_TEST

START_TEST(session_reports_a_failed_scan) {
        struct conversation talk;
        char recipe[PATH_MAX];

        image_recipe(recipe, CROP, "\"output\": {\"dtype\": \"uint8\", \"layout\": \"chw\"}");
        begin_talk(&talk, recipe, 2, 6);
        talk.message.type = MESSAGE_SCAN;
        talk.message.scan = (struct message_scan){0};
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_BROKEN);
        ck_assert_uint_eq(talk.message.broken.sample_given, 0);
        ck_assert_uint_eq(talk.message.broken.error, ENOENT);
        ck_assert_ptr_nonnull(strstr(talk.message.broken.text, "no class folders in"));
        pthread_join(talk.thread, NULL); /* it goes by itself */
        ck_assert_int_eq(talk.result, 0);
        close(talk.ours);
}
END_TEST

/* slot, first, rows, row: each of them wrong in turn. */
static const struct {
        uint32_t slot, first, rows;
        uint64_t row;
} nonsense[] = {
        {3, 0, 1, 0},  {0, 16, 1, 0},  {0, 0, 17, 0}, {0, 15, 2, 0}, {0, INT32_MAX, INT32_MAX, 0},
        {0, 0, 2, 99}, {0, 0, 1, 100},
};

START_TEST(session_ends_at_nonsense) {
        struct conversation talk;

        begin_talk(&talk, RAMP, 3, 16);
        scan_and_return(&talk, 100);
        assign(&talk, nonsense[_i].row, nonsense[_i].slot, nonsense[_i].first, nonsense[_i].rows);
        say(&talk, NULL, 0);
        pthread_join(talk.thread, NULL);
        ck_assert_int_eq(talk.result, -EBADMSG);
        ck_assert_int_eq(strncmp(talk.fault.text, "ASSIGN: ", 8), 0);
        close(talk.ours);
}
END_TEST

START_TEST(session_wants_its_turn_kept) {
        struct conversation talk;

        begin_talk(&talk, RAMP, 3, 16);
        assign(&talk, 0, 0, 0, 1);
        say(&talk, NULL, 0);
        pthread_join(talk.thread, NULL);
        ck_assert_int_eq(talk.result, -EBADMSG);
        ck_assert_str_eq(talk.fault.text, "ASSIGN out of turn");
        close(talk.ours);
}
END_TEST

static Suite *session_suite(void) {
        Suite *suite = suite_create("session");
        TCase *session = tcase_create("session");

        tcase_add_checked_fixture(session, make_folder, remove_folder);
        tcase_add_test(session, session_fills_slots_and_says_so);
        tcase_add_test(session, session_reports_the_bad_sample_and_goes_on);
        tcase_add_test(session, session_reports_a_failed_scan);
        tcase_add_loop_test(session, session_ends_at_nonsense, 0, sizeof(nonsense) / sizeof(nonsense[0]));
        tcase_add_test(session, session_wants_its_turn_kept);
        suite_add_tcase(suite, session);
        return suite;
}

int main(void) {
        SRunner *runner = srunner_create(session_suite());
        int failed;

        srunner_set_tap(runner, "-");
        srunner_run_all(runner, CK_SILENT);
        failed = srunner_ntests_failed(runner);
        srunner_free(runner);
        return failed > 0;
}
