/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A worker's session, run at the other end of a real socket: by a thread, or, where it shall die, by a child.
 * The test plays the daemon. */

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
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

struct conversation {
        pthread_t thread;
        pid_t child; /* 0: it is the thread */
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
static int hear_any(struct conversation *talk) {
        int fds[SEQPACKET_FDS_MAX], r;
        size_t n_fds;

        do
                r = message_receive(talk->ours, &talk->message, fds, &n_fds, MESSAGE_BY_WORKER, &talk->fault);
        while (r == 0 && talk->message.type == MESSAGE_SCANNING);
        ck_assert_msg(r == 0, "%d: %s", r, talk->fault.text);
        return n_fds > 0 ? fds[0] : -1;
}

static int hear(struct conversation *talk, enum message_type type) {
        int fd = hear_any(talk);

        ck_assert_msg(talk->message.type == type, "got %s: %s", message_name(talk->message.type),
                      talk->message.type == MESSAGE_BROKEN ? talk->message.broken.text : "");
        return fd;
}

enum {
        IN_CHILD = 1,
        REPLACING = 2,
        VERIFYING = 4,
};

static void start_worker(struct conversation *talk, int how) {
        if (!(how & IN_CHILD)) {
                ck_assert_int_eq(pthread_create(&talk->thread, NULL, play_worker, talk), 0);
                return;
        }
        talk->child = fork();
        ck_assert_int_ge(talk->child, 0);
        if (talk->child == 0) {
                close(talk->ours);
                _exit(session_run(talk->theirs, &talk->fault) == 0 ? 0 : 1);
        }
        close(talk->theirs);
}

static void begin_talk_so(struct conversation *talk, const char *recipe, uint32_t slots, uint32_t slot_rows,
                          int how) {
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
        talk->page = mmap(NULL, WORKER_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
        ck_assert(talk->ring != MAP_FAILED && talk->page != MAP_FAILED);

        start_worker(talk, how);
        talk->message.type = MESSAGE_SETUP;
        talk->message.setup = (struct message_setup){.worker = 1,
                                                     .on_error = how & REPLACING ? 1 : 0,
                                                     .verify = how & VERIFYING ? 1 : 0,
                                                     .slots = slots,
                                                     .slot_rows = slot_rows};
        strcpy(talk->message.setup.recipe, recipe);
        say(talk, fds, 2);
        close(fds[0]);
        close(fds[1]);
}

static void begin_talk(struct conversation *talk, const char *recipe, uint32_t slots, uint32_t slot_rows) {
        begin_talk_so(talk, recipe, slots, slot_rows, 0);
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
        ck_assert_uint_eq(talk.page->chunk_slot, WORKER_PAGE_IDLE);
        ck_assert_int_eq(fd_count(), fds + 2); /* both ends of the socket */
        ck_assert_int_eq(end_talk(&talk), 0);
        ck_assert_int_eq(fd_count(), fds);
}
END_TEST

/* The second and third chunk were taken back before they were begun. */
START_TEST(session_returns_what_is_recalled) {
        static const struct message_chunk behind[] = {
                {.row = 8, .seed = 3, .epoch = 1, .slot = 1, .first = 8, .rows = 8},
                {.row = 16, .seed = 3, .epoch = 1, .slot = 2, .first = 0, .rows = 1}};
        struct conversation talk;

        begin_talk(&talk, RAMP, 3, 16);
        scan_and_return(&talk, 100);
        atomic_store(&talk.page->recalled, 2);
        assign(&talk, 0, 0, 0, 8);
        talk.message.assign.n_chunk = 3;
        memcpy(&talk.message.assign.chunk[1], behind, sizeof(behind));
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_DONE);
        for (uint32_t slot = 1; slot < 3; slot++) {
                const struct message_returned *returned = &talk.message.returned;

                hear(&talk, MESSAGE_RETURNED);
                ck_assert_uint_eq(returned->slot, slot);
                ck_assert_uint_eq(returned->first, behind[slot - 1].first);
                ck_assert_uint_eq(returned->rows, behind[slot - 1].rows);
                for (uint64_t i = 0; i < talk.schema.slot_bytes; i++)
                        if (talk.ring[slot * talk.schema.slot_stride + i] != 0)
                                ck_abort_msg("byte %llu of slot %u is written", (unsigned long long)i, slot);
        }
        ck_assert_uint_eq(talk.page->begun, 3);
        ck_assert_uint_eq(talk.page->rows_done, 8);

        atomic_store(&talk.page->recalled, 0);
        assign(&talk, 8, 1, 8, 8);
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_DONE);
        ck_assert_uint_eq(talk.page->begun, 4);
        ck_assert_int_eq(end_talk(&talk), 0);
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

START_TEST(session_has_no_interpreter) {
        struct conversation talk;

        begin_talk(&talk,
                   "{\"source\": {\"type\": \"python\", \"brought\": true, \"fields\": \"a=int64[]\"}, "
                   "\"transforms\": [], \"output\": {}}",
                   2, 6);
        talk.message.type = MESSAGE_SCAN;
        talk.message.scan = (struct message_scan){0};
        message_send(talk.ours, &talk.message, NULL, 0); /* it may have ended by now */
        hear(&talk, MESSAGE_BROKEN);
        ck_assert_uint_eq(talk.message.broken.error, EOPNOTSUPP);
        ck_assert_ptr_nonnull(strstr(talk.message.broken.text, "needs a worker in Python"));
        ck_assert_str_eq(talk.message.broken.exception, "");
        pthread_join(talk.thread, NULL);
        ck_assert_int_eq(talk.result, 0);
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

/* ---- bad samples ---- */

static int has_die(void) {
        for (int i = 0; recipe_synthetic_modes[i]; i++)
                if (strcmp(recipe_synthetic_modes[i], "die") == 0)
                        return 1;
        return 0;
}

static void condemn(struct conversation *talk, uint64_t sample) {
        talk->message.type = MESSAGE_CONDEMNED;
        talk->message.condemned = (struct message_condemned){.n_sample = 1, .sample = {sample}};
        say(talk, NULL, 0);
}

static void hear_replaced(struct conversation *talk, uint64_t sample, const char *file) {
        hear(talk, MESSAGE_REPLACED);
        ck_assert_uint_eq(talk->message.replaced.sample, sample);
        ck_assert_uint_eq(talk->message.replaced.error, EBADMSG);
        ck_assert_str_eq(talk->message.replaced.file, file);
        ck_assert_ptr_nonnull(strstr(talk->message.replaced.text, "bytes end in"));
}

START_TEST(session_tells_of_a_replaced_sample_once) {
        struct conversation talk;
        char recipe[PATH_MAX];
        uint8_t *flags;

        put_photos(6);
        ck_assert_int_eq(truncate(in_folder("a/01.jpg"), 250), 0);
        image_recipe(recipe, CROP, "\"output\": {\"dtype\": \"uint8\", \"layout\": \"chw\"}");
        begin_talk_so(&talk, recipe, 2, 6, REPLACING);
        scan_and_return(&talk, 6);
        flags = talk.ring + talk.schema.flags_offset;
        for (int again = 0; again < 2; again++) {
                assign(&talk, 0, 0, 0, 3);
                say(&talk, NULL, 0);
                if (!again)
                        hear_replaced(&talk, 1, "a/01.jpg");
                hear(&talk, MESSAGE_DONE);
                ck_assert_uint_eq(talk.message.done.part[0].flags, MESSAGE_PART_REPLACED);
                ck_assert_int_eq(memcmp(flags, "\0\1\0", 3), 0);
        }
        assign(&talk, 3, 0, 3, 3);
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_DONE);
        ck_assert_uint_eq(talk.message.done.part[0].flags, 0);

        /* judged by the daemon: nothing to tell, but replaced */
        condemn(&talk, 4);
        assign(&talk, 3, 0, 3, 3);
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_DONE);
        ck_assert_uint_eq(talk.message.done.part[0].flags, MESSAGE_PART_REPLACED);
        ck_assert_int_eq(memcmp(flags, "\0\1\0\0\1\0", 6), 0);

        ck_assert_int_eq(remove(in_folder("b/05.jpg")), 0);
        assign(&talk, 0, 0, 0, 6);
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_BROKEN);
        ck_assert_uint_eq(talk.message.broken.error, ENOENT);
        ck_assert_str_eq(talk.message.broken.file, "b/05.jpg");
        ck_assert_int_eq(end_talk(&talk), 0);
}
END_TEST

START_TEST(session_refuses_the_condemned_where_it_may_not_replace) {
        struct conversation talk;

        begin_talk(&talk, RAMP, 3, 16);
        scan_and_return(&talk, 100);
        condemn(&talk, 50);
        condemn(&talk, 3);
        assign(&talk, 0, 2, 0, 16);
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_BROKEN);
        ck_assert_uint_eq(talk.message.broken.sample, 3);
        ck_assert_uint_eq(talk.message.broken.slot, 2);
        ck_assert_uint_eq(talk.message.broken.first, 3);
        ck_assert_uint_eq(talk.message.broken.error, EIO);
        ck_assert_str_eq(talk.message.broken.text, "sample 3 is condemned: workers died or hung at it");
        condemn(&talk, 100);
        pthread_join(talk.thread, NULL);
        ck_assert_int_eq(talk.result, -EBADMSG);
        ck_assert_str_eq(talk.fault.text, "CONDEMNED: sample 100 of 100");
        close(talk.ours);
}
END_TEST

START_TEST(session_wants_the_index_before_the_condemned) {
        struct conversation talk;

        begin_talk(&talk, RAMP, 3, 16);
        condemn(&talk, 0);
        pthread_join(talk.thread, NULL);
        ck_assert_str_eq(talk.fault.text, "CONDEMNED out of turn");
        close(talk.ours);
}
END_TEST

/* More bad samples than are remembered: some are told of again, but not all. */
START_TEST(session_remembers_some_thousand) {
        struct conversation talk;
        int told[2] = {0};

        if (!has_die())
                return;
        begin_talk_so(
                &talk,
                "{\"source\": {\"type\": \"synthetic\", \"mode\": \"die\", \"bytes\": 1, \"samples\": 20000, "
                "\"die_every\": 2}, \"transforms\": [], \"output\": {}}",
                1, 20000, REPLACING);
        scan_and_return(&talk, 20000);
        for (int again = 0; again < 2; again++) {
                assign(&talk, 0, 0, 0, 20000);
                say(&talk, NULL, 0);
                while (hear_any(&talk), talk.message.type == MESSAGE_REPLACED)
                        told[again]++;
                ck_assert_int_eq(talk.message.type, MESSAGE_DONE);
        }
        ck_assert(told[0] >= 10000);
        ck_assert(told[1] > 0);
        ck_assert_int_eq(end_talk(&talk), 0);
}
END_TEST

/* ---- verifying ---- */

#define BYTE "\"output\": {\"dtype\": \"uint8\", \"layout\": \"chw\"}"

static void expect_untouched(const struct conversation *talk) {
        for (uint64_t i = 0; i < talk->schema.slot_bytes; i++)
                if (talk->ring[i] != 0)
                        ck_abort_msg("byte %llu of the ring was written", (unsigned long long)i);
}

/* A crop of 2 x 2 pixels in the middle does not need the last rows; the file as a whole has to be good. Slot
 * and place are names only, beyond every ring. */
START_TEST(verifying_looks_at_whole_files) {
        struct conversation talk;
        char recipe[PATH_MAX];
        struct stat status;

        put_photos(6);
        put_jpeg_of("b/04.jpg", 40, 320);
        ck_assert_int_eq(stat(in_folder("b/04.jpg"), &status), 0);
        ck_assert_int_eq(truncate(in_folder("b/04.jpg"), status.st_size - 6), 0);
        image_recipe(recipe, "[{\"center_crop\": {\"size\": 2}}]", BYTE);
        begin_talk_so(&talk, recipe, 1, 1, VERIFYING);
        scan_and_return(&talk, 6);
        ck_assert_int_eq(remove(in_folder("a/00.jpg")), 0);
        assign(&talk, 0, 7, 99, 6);
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_REPLACED);
        ck_assert_uint_eq(talk.message.replaced.sample, 0);
        ck_assert_uint_eq(talk.message.replaced.error, ENOENT);
        hear_replaced(&talk, 4, "b/04.jpg");
        hear(&talk, MESSAGE_DONE);
        ck_assert_uint_eq(talk.message.done.part[0].slot, 7);
        ck_assert_uint_eq(talk.message.done.part[0].first, 99);
        ck_assert_uint_eq(talk.message.done.part[0].rows, 6);
        ck_assert_uint_eq(talk.message.done.part[0].flags, 0);
        ck_assert_uint_eq(talk.page->rows_done, 6);
        expect_untouched(&talk);
        ck_assert_int_eq(end_talk(&talk), 0);
}
END_TEST

/* All three: bad, unreadable ones are tried again before, and nothing is put in their places. */
START_TEST(verifying_makes_samples_without_files) {
        struct conversation talk;

        if (!has_die())
                return;
        begin_talk_so(&talk,
                      SYNTHETIC("\"mode\": \"die\", \"bytes\": 37, \"die_sample\": 40, \"die_every\": 30, "
                                "\"die_how\": \"read_error\""),
                      1, 1, VERIFYING);
        scan_and_return(&talk, 100);
        assign(&talk, 0, 0, 0, 100);
        say(&talk, NULL, 0);
        for (uint64_t sample = 40; sample < 100; sample += 30) {
                hear(&talk, MESSAGE_REPLACED);
                ck_assert_uint_eq(talk.message.replaced.sample, sample);
                ck_assert_uint_eq(talk.message.replaced.error, EIO);
                ck_assert_ptr_nonnull(strstr(talk.message.replaced.text, "at the last of 4 tries"));
        }
        hear(&talk, MESSAGE_DONE);
        expect_untouched(&talk);
        ck_assert_int_eq(end_talk(&talk), 0);
}
END_TEST

START_TEST(verifying_wants_no_ring_and_samples_there_are) {
        struct conversation talk;

        begin_talk_so(&talk, RAMP, 2, 1, VERIFYING);
        hear(&talk, MESSAGE_BROKEN);
        ck_assert_uint_eq(talk.message.broken.sample_given, 0);
        pthread_join(talk.thread, NULL);
        close(talk.ours);

        begin_talk_so(&talk, RAMP, 1, 1, VERIFYING);
        scan_and_return(&talk, 100);
        assign(&talk, 99, 0, 0, 2);
        say(&talk, NULL, 0);
        pthread_join(talk.thread, NULL);
        ck_assert_int_eq(talk.result, -EBADMSG);
        close(talk.ours);
}
END_TEST

/* ---- deaths ---- */

static const struct {
        const char *how;
        int signal, status;
} deaths[] = {
        {"exit", 0, 3},        {"abort", SIGABRT, 0}, {"segv", SIGSEGV, 0}, {"bus", SIGBUS, 0},
        {"kill9", SIGKILL, 0}, {"oom", SIGKILL, 0},   {"hang", SIGKILL, 0},
};

static void die_recipe(char recipe[PATH_MAX], const char *how, int times) {
        snprintf(recipe, PATH_MAX,
                 SYNTHETIC("\"mode\": \"die\", \"bytes\": 37, \"die_sample\": 23, \"die_how\": \"%s\", "
                           "\"die_times\": %d, \"die_counter\": \"%s/met\""),
                 how, times, folder);
}

/* It has arrived at the sample, and minds no SIGTERM. */
static void end_a_hang(struct conversation *talk) {
        struct timespec moment = {.tv_nsec = 1000000};
        int status;

        while (atomic_load_explicit(&talk->page->sample, memory_order_acquire) != 23)
                nanosleep(&moment, NULL);
        for (int i = 0; i < 50; i++) {
                nanosleep(&moment, NULL);
                if (i >= 20) /* until then it may not have come to ignoring it */
                        kill(talk->child, SIGTERM);
        }
        ck_assert_int_eq(waitpid(talk->child, &status, WNOHANG), 0);
        kill(talk->child, SIGKILL);
}

static int wait_for_end(struct conversation *talk) {
        int status, fds[SEQPACKET_FDS_MAX];
        size_t n_fds;

        ck_assert_int_eq(waitpid(talk->child, &status, 0), talk->child);
        ck_assert_int_eq(
                message_receive(talk->ours, &talk->message, fds, &n_fds, MESSAGE_BY_WORKER, &talk->fault),
                MESSAGE_E_CLOSED);
        close(talk->ours);
        return status;
}

/* Rows 20, 21, 22 of the chunk are whole, and the page says so; sample 23 is to blame, on the fourth row. */
START_TEST(a_death_leaves_its_place_on_the_page) {
        struct conversation talk;
        char recipe[PATH_MAX];
        uint8_t *slot;
        int status;

        if (!has_die())
                return;
        die_recipe(recipe, deaths[_i].how, 0);
        begin_talk_so(&talk, recipe, 3, 16, IN_CHILD);
        scan_and_return(&talk, 100);
        assign(&talk, 8, 0, 4, 12);
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_DONE);
        assign(&talk, 20, 2, 5, 8);
        say(&talk, NULL, 0);
        if (strcmp(deaths[_i].how, "hang") == 0)
                end_a_hang(&talk);
        status = wait_for_end(&talk);
        if (deaths[_i].signal)
                ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == deaths[_i].signal);
        else
                ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == deaths[_i].status);

        ck_assert_uint_eq(talk.page->sample, 23);
        ck_assert_uint_eq(talk.page->row, 23);
        ck_assert_uint_eq(talk.page->epoch, 1);
        ck_assert_uint_eq(talk.page->rows_done, 12);
        ck_assert_uint_eq(talk.page->chunk_slot, 2);
        ck_assert_uint_eq(talk.page->chunk_first, 5);
        ck_assert_uint_eq(talk.page->chunk_done, 3);
        slot = talk.ring + 2 * talk.schema.slot_stride;
        for (uint32_t i = 0; i < 3; i++) {
                ck_assert_int_eq(((int64_t *)(slot + talk.schema.ids_offset))[5 + i], 20 + i);
                ck_assert(
                        ramp_check(slot + talk.schema.fields[1].offset + (5 + i) * 37, 37, 20 + i, 1, NULL));
        }
}
END_TEST

START_TEST(a_death_at_the_first_row_leaves_no_rows) {
        struct conversation talk;
        char recipe[PATH_MAX];

        if (!has_die())
                return;
        die_recipe(recipe, "kill9", 0);
        begin_talk_so(&talk, recipe, 3, 16, IN_CHILD);
        scan_and_return(&talk, 100);
        assign(&talk, 8, 0, 4, 12);
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_DONE);
        assign(&talk, 23, 0, 4, 12);
        say(&talk, NULL, 0);
        wait_for_end(&talk);
        ck_assert_uint_eq(talk.page->sample, 23);
        ck_assert_uint_eq(talk.page->chunk_slot, 0);
        ck_assert_uint_eq(talk.page->chunk_done, 0);
}
END_TEST

/* The first two processes that meet the sample die of it, the third one does not. */
START_TEST(deaths_are_counted_across_processes) {
        struct conversation talk;
        char recipe[PATH_MAX];
        struct stat status;

        if (!has_die())
                return;
        die_recipe(recipe, "exit", 2);
        for (int i = 0; i < 4; i++) {
                begin_talk_so(&talk, recipe, 3, 16, IN_CHILD);
                scan_and_return(&talk, 100);
                for (int again = 0; again < 1 + (i == 2); again++) {
                        assign(&talk, 20, 2, 5, 8);
                        say(&talk, NULL, 0);
                        if (i < 2) {
                                ck_assert_int_eq(WEXITSTATUS(wait_for_end(&talk)), 3);
                                break;
                        }
                        hear(&talk, MESSAGE_DONE);
                        ck_assert_uint_eq(talk.page->chunk_slot, WORKER_PAGE_IDLE);
                        ck_assert(ramp_check(talk.ring + 2 * talk.schema.slot_stride +
                                                     talk.schema.fields[1].offset + 8 * 37,
                                             37, 23, 1, NULL));
                }
                if (i >= 2) {
                        close(talk.ours);
                        waitpid(talk.child, NULL, 0);
                }
                ck_assert_int_eq(stat(in_folder("met"), &status), 0);
                ck_assert_int_eq(status.st_size, i + 1);
        }
}
END_TEST

/* What is condemned does not even get counted. */
START_TEST(the_condemned_kill_nobody) {
        struct conversation talk;
        char recipe[PATH_MAX];

        if (!has_die())
                return;
        die_recipe(recipe, "kill9", 0);
        begin_talk_so(&talk, recipe, 3, 16, IN_CHILD | REPLACING);
        scan_and_return(&talk, 100);
        condemn(&talk, 23);
        assign(&talk, 20, 2, 5, 8);
        say(&talk, NULL, 0);
        hear(&talk, MESSAGE_DONE);
        ck_assert_uint_eq(talk.message.done.part[0].flags, MESSAGE_PART_REPLACED);
        ck_assert_int_eq(access(in_folder("met"), F_OK), -1);
        close(talk.ours);
        waitpid(talk.child, NULL, 0);
}
END_TEST

static Suite *session_suite(void) {
        Suite *suite = suite_create("session");
        TCase *session = tcase_create("session"), *bad = tcase_create("bad samples and deaths");

        tcase_add_checked_fixture(session, make_folder, remove_folder);
        tcase_add_test(session, session_fills_slots_and_says_so);
        tcase_add_test(session, session_returns_what_is_recalled);
        tcase_add_test(session, session_reports_the_bad_sample_and_goes_on);
        tcase_add_test(session, session_reports_a_failed_scan);
        tcase_add_loop_test(session, session_ends_at_nonsense, 0, sizeof(nonsense) / sizeof(nonsense[0]));
        tcase_add_test(session, session_has_no_interpreter);
        tcase_add_test(session, session_wants_its_turn_kept);
        suite_add_tcase(suite, session);

        tcase_add_checked_fixture(bad, make_folder, remove_folder);
        tcase_add_test(bad, session_tells_of_a_replaced_sample_once);
        tcase_add_test(bad, session_refuses_the_condemned_where_it_may_not_replace);
        tcase_add_test(bad, session_wants_the_index_before_the_condemned);
        tcase_add_test(bad, verifying_looks_at_whole_files);
        tcase_add_test(bad, verifying_makes_samples_without_files);
        tcase_add_test(bad, verifying_wants_no_ring_and_samples_there_are);
        tcase_add_loop_test(bad, a_death_leaves_its_place_on_the_page, 0, sizeof(deaths) / sizeof(deaths[0]));
        tcase_add_test(bad, session_remembers_some_thousand);
        tcase_add_test(bad, a_death_at_the_first_row_leaves_no_rows);
        tcase_add_test(bad, deaths_are_counted_across_processes);
        tcase_add_test(bad, the_condemned_kill_nobody);
        tcase_set_timeout(bad, 30);
        suite_add_tcase(suite, bad);
        return suite;
}

int main(void) {
        return run_suite(session_suite());
}
