/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Case M2: one daemon and several users. The daemon is root's; alice is named by her number, bob by a group
 * of his, carol may connect and nothing else, and dave is not of the sockets' group. */

#include "proto/runtime.h"
#include "tests/support/run.h"
#include "tests/system/people.h"
#include "tests/system/raw.h"
#include "tests/system/reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
        SOCKET_GROUP = 60003,
        VISION = 60004,
        EACH_MAX = 16, /* connections to the control socket of one user */
        TEXT = 1200,
};

static const struct person alice = {60001, SOCKET_GROUP, 0, {0}}, bob = {60002, SOCKET_GROUP, 1, {VISION}},
                           carol = {60005, SOCKET_GROUP, 0, {0}}, dave = {60006, 60006, 0, {0}};

#define RAMP                                                                                                 \
        "    source: {type: synthetic, samples: 1000, mode: ramp, bytes: 1024}\n"                            \
        "    batch_size: 8\n"                                                                                \
        "    slots: 16\n"                                                                                    \
        "    lookahead: 1\n"                                                                                 \
        "    workers: 1\n"

static struct harness *start(void) {
        struct harness *h = harness_new();

        harness_write_config(h, "%s",
                             "socket_group: 60003\n"
                             "pipelines:\n"
                             "  hers:\n" RAMP "    backing: memfd\n"
                             "    allow: {users: [60001]}\n"
                             "  vision:\n" RAMP "    backing: shm\n"
                             "    allow: {groups: [60004]}\n"
                             "  roots:\n" RAMP "  all:\n" RAMP
                             "    allow: {users: [60001], groups: [60004]}\n"
                             "    allow_pinned: {users: [60001]}\n");
        harness_start(h);
        people_let_in(h);
        return h;
}

/* ---- as it was before anybody was named ---- */

struct attempt {
        const char *pipeline;
        int expected;
        const char *words[3];
};

/* By libpinfeed. Who is let in gets the right bytes. */
static void attach(struct harness *h, void *context) {
        const struct attempt *attempt = context;
        struct pinfeed_attach attach = reader_attach(h, attempt->pipeline, 2);
        struct reader reader;
        char text[TEXT];

        if (attempt->expected == 0) {
                reader_open_with(&reader, &attach);
                reader_read(&reader, 20);
                reader_close(&reader);
                return;
        }
        reader_expect_refusal(&attach, attempt->expected, text, sizeof(text));
        for (size_t i = 0; i < 3 && attempt->words[i]; i++)
                harness_expect_words(text, attempt->words[i]);
}

/* What an attacker would look for: names, and the descriptors of the daemon and its workers. */
static void guess_names(struct harness *h, void *context) {
        char path[64];
        pid_t *pids = context;

        ck_assert_uint_eq(harness_shm_objects(), 0);
        for (; *pids; pids++)
                for (int fd = 0; fd < 64; fd++) {
                        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)*pids, fd);
                        ck_assert_int_lt(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK), 0);
                        ck_assert_int_eq(errno, EACCES);
                }
}

static bool is_in_log(struct harness *h, void *text) {
        return harness_log_contains(h, text);
}

START_TEST(test_M2_somebody_elses_daemon) {
        struct attempt by_mode = {"ramp", -EPERM, {"is not open to this user (uid 60001)"}},
                       by_daemon = {"ramp",
                                    -EPERM,
                                    {"uid 60001 (pid ", "turned away: this daemon is for", "root"}};
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX];
        pid_t pids[3] = {0};
        struct reader reader;

        if (!people_exist()) {
                harness_free(h);
                return;
        }
        harness_write_config(h, "pipelines:\n  ramp:\n" RAMP);
        harness_start(h);
        people_let_in(h);
        person_does(&alice, h, attach, &by_mode);
        ck_assert_int_eq(chmod(harness_runtime_directory(h), 0755), 0);
        snprintf(path, sizeof(path), "%s/%s", harness_runtime_directory(h), RUNTIME_JOB_SOCKET);
        ck_assert_int_eq(chmod(path, 0666), 0);
        person_does(&alice, h, attach, &by_daemon);
        harness_wait(h, "a line in the log", is_in_log, "uid 60001", PEOPLE_SOON_MS);

        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, 4);
        reader_wait_workers(h, 1);
        pids[0] = harness_daemon_pid(h);
        ck_assert_uint_eq(harness_worker_pids(h, pids + 1, 1), 1);
        person_does(&alice, h, guess_names, pids);
        reader_close(&reader);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- who is named ---- */

static const struct {
        const struct person *who;
        struct attempt attempt;
} attempts[] = {
        {&alice, {"hers", 0, {NULL}}},
        {&alice, {"all", 0, {NULL}}},
        {&bob, {"vision", 0, {NULL}}},
        {&bob, {"all", 0, {NULL}}},
        {&alice,
         {"vision",
          -EPERM,
          {"pipeline vision is not for uid 60001", "pinfeed.yaml:18", "names groups 60004"}}},
        {&bob,
         {"hers", -EPERM, {"pipeline hers is not for uid 60002", "pinfeed.yaml:10", "names users 60001"}}},
        {&bob, {"roots", -EPERM, {"has no `allow`", "pinfeed.yaml:19", "allow: {users: [60002]}"}}},
        {&alice, {"nothing", -ENOENT, {"there are: hers, all ("}}},
        {&bob, {"nothing", -ENOENT, {"there are: vision, all ("}}},
        {&carol, {"all", -EPERM, {"uid 60005 (pid ", "no `allow` in", "names this user or a group of it"}}},
        {&dave, {"all", -EPERM, {"is not open to this user (uid 60006)", "group of its sockets"}}},
};

static void expect_mode(const struct harness *h, const char *name, mode_t mode) {
        char path[HARNESS_PATH_MAX];
        struct stat facts;

        snprintf(path, sizeof(path), "%s/%s", harness_runtime_directory(h), name);
        ck_assert_int_eq(stat(path, &facts), 0);
        ck_assert_uint_eq(facts.st_mode & 07777, mode);
        ck_assert_uint_eq(facts.st_gid, SOCKET_GROUP);
}

START_TEST(test_M2_who_is_named) {
        struct harness *h;

        if (!people_exist())
                return;
        h = start();
        expect_mode(h, ".", 0750);
        expect_mode(h, RUNTIME_JOB_SOCKET, 0660);
        expect_mode(h, RUNTIME_CONTROL_SOCKET, 0660);
        for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++)
                person_does(attempts[i].who, h, attach, (void *)&attempts[i].attempt);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

static void define(struct harness *h, void *context) {
        struct pinfeed_attach attach = reader_attach(h, "own", 2);
        char text[TEXT];

        attach.definition = "pipelines: {own: {source: {type: synthetic, samples: 9}, batch_size: 2}}";
        attach.definition_file = "/tmp/train.py";
        reader_expect_refusal(&attach, -EPERM, text, sizeof(text));
        harness_expect_words(text, "taken by a private daemon only");
}

/* A process that would fork the workers of a pipeline which it may use. */
static void bring(struct harness *h, void *context) {
        struct message message = {.type = MESSAGE_BRING, .bring = {(uint32_t)getpid()}};
        int fd = raw_greeted(h), pair[2];
        char text[TEXT];

        ck_assert_int_eq(seqpacket_pair(pair), 0);
        ck_assert_int_eq(message_send(fd, &message, &pair[0], 1), 0);
        ck_assert_int_eq(raw_expect_refused(fd, text, sizeof(text)), EPERM);
        harness_expect_words(text, "taken from uid 0 only");
        harness_expect_words(text, "this job is of uid 60001");

        fd = raw_attached(h, "all", &message, NULL);
        message = (struct message){.type = MESSAGE_BRING, .bring = {(uint32_t)getpid()}};
        ck_assert_int_eq(message_send(fd, &message, &pair[0], 1), 0);
        raw_expect_closed(fd, "after BRING");
}

START_TEST(test_M2_nothing_is_brought) {
        struct harness *h;

        if (!people_exist())
                return;
        h = start();
        person_does(&alice, h, define, NULL);
        person_does(&alice, h, bring, NULL);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- what can be done with the ring ---- */

static int attach_asking(struct harness *h, const char *pipeline, struct message *answer, int *ring) {
        struct message attach = raw_attach(pipeline);

        attach.attach.map = MESSAGE_MAP_PINNED;
        return raw_attached_by(h, &attach, answer, ring);
}

/* Nothing makes a better descriptor of one that was opened for reading. */
static void read_only(struct harness *h, void *context) {
        struct message message;
        int ring = -1, fd = attach_asking(h, context, &message, &ring);
        char path[64], number[32];
        void *map;

        ck_assert_int_eq(message.attached.map, MESSAGE_MAP_READ_ONLY);
        snprintf(number, sizeof(number), "of uid %u", (unsigned)geteuid());
        harness_expect_words(message.attached.map_reason, number);
        harness_expect_words(message.attached.map_reason, "`allow_pinned`");
        harness_expect_words(message.attached.map_reason, "pinfeed.yaml:");
        ck_assert_int_eq(fcntl(ring, F_GETFL) & O_ACCMODE, O_RDONLY);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", ring);
        ck_assert_int_lt(open(path, O_RDWR | O_CLOEXEC), 0);
        ck_assert_int_eq(errno, EACCES);
        ck_assert_int_lt(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC), 0);
        ck_assert_int_lt(truncate(path, 0), 0);
        ck_assert_int_lt(fchmod(ring, 0666), 0);
        ck_assert_int_lt(ftruncate(ring, 0), 0);
        ck_assert_int_lt(fallocate(ring, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
        ck_assert_int_lt(fcntl(ring, F_ADD_SEALS, F_SEAL_WRITE), 0);
        map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, ring, 0);
        ck_assert(map != MAP_FAILED);
        ck_assert_int_lt(mprotect(map, 4096, PROT_READ | PROT_WRITE), 0);
        ck_assert_int_lt(madvise(map, 4096, MADV_REMOVE), 0);
        close(fd);
}

/* Who may page-lock may write, and no more than that. */
static void writable(struct harness *h, void *context) {
        struct message message;
        int ring = -1, fd = attach_asking(h, context, &message, &ring);
        struct stat facts;

        ck_assert_int_eq(message.attached.map, MESSAGE_MAP_PINNED);
        ck_assert_str_eq(message.attached.map_reason, "");
        ck_assert_int_eq(fcntl(ring, F_GETFL) & O_ACCMODE, O_RDWR);
        ck_assert_int_eq(fstat(ring, &facts), 0);
        ck_assert_int_lt(ftruncate(ring, 0), 0);
        ck_assert_int_eq(errno, EPERM);
        ck_assert_int_lt(ftruncate(ring, 2 * facts.st_size), 0);
        ck_assert_int_lt(fcntl(ring, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
        ck_assert_int_lt(fchmod(ring, 0666), 0);
        close(fd);
}

START_TEST(test_M2_who_may_write) {
        json_t *status;
        struct harness *h;

        if (!people_exist())
                return;
        h = start();
        person_does(&alice, h, read_only, "hers"); /* a memfd */
        person_does(&bob, h, read_only, "vision"); /* of /dev/shm */
        person_does(&bob, h, read_only, "all");
        person_does(&alice, h, writable, "all");
        status = harness_status(h);
        ck_assert_str_eq(json_string_value(harness_member(status, "pipelines/all/backing")), "memfd");
        ck_assert_str_eq(json_string_value(harness_member(status, "pipelines/all/allow_pinned")),
                         "users 60001");
        json_decref(status);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- the control socket ---- */

static void expect_answer(struct harness *h, const char *line, const char *error) {
        json_t *answer = harness_control(h, line), *text = json_object_get(answer, "error");

        if (!error)
                ck_assert_msg(!text, "%s: %s", line, json_string_value(text));
        else
                ck_assert_msg(text && strstr(json_string_value(text), error), "%s: %s", line,
                              text ? json_string_value(text) : "was answered");
        json_decref(answer);
}

#define SET    "{\"command\": \"set\", \"pipeline\": \"all\", \"workers\": 2}"
#define VERIFY "{\"command\": \"verify\", \"pipeline\": \"all\"}"
#define LEGEND "{\"command\": \"legend\", \"pipeline\": \"%s\", \"labels\": []}"

static void ask_as_member(struct harness *h, void *context) {
        char line[128];

        expect_answer(h, "ping", NULL);
        expect_answer(h, "status", NULL);
        expect_answer(h, SET, "set is for root and ");
        expect_answer(h, SET, "this is uid 60002");
        expect_answer(h, SET, "use sudo");
        expect_answer(h, VERIFY, "verify is for root and ");
        snprintf(line, sizeof(line), LEGEND, "roots");
        expect_answer(h, line, "pipeline roots is not for uid 60002");
}

static void ask_as_stranger(struct harness *h, void *context) {
        expect_answer(h, "ping", "uid 60005 (pid ");
        expect_answer(h, "status", "no `allow`");
        expect_answer(h, SET, "turned away");
}

START_TEST(test_M2_commands) {
        struct harness *h;

        if (!people_exist())
                return;
        h = start();
        person_does(&bob, h, ask_as_member, NULL);
        person_does(&carol, h, ask_as_stranger, NULL);
        ck_assert(harness_status_number(h, "pipelines/all/workers") == 1);
        expect_answer(h, SET, NULL);
        ck_assert(harness_status_number(h, "pipelines/all/workers") == 2);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* What a status tells of, by its names. */
static void expect_names(json_t *status, const char *list, const char *member, const char *expected) {
        char names[TEXT] = "";
        size_t i;
        json_t *entry;

        json_array_foreach(json_object_get(status, list), i, entry) {
                size_t n = strlen(names);

                snprintf(names + n, sizeof(names) - n, "%s%s", n ? " " : "",
                         json_string_value(json_object_get(entry, member)));
        }
        ck_assert_str_eq(names, expected);
}

static void look_as_member(struct harness *h, void *context) {
        json_t *status = harness_status(h);

        expect_names(status, "pipelines", "name", "vision all");
        expect_names(status, "jobs", "pipeline", "all");
        expect_names(status, "workers", "pipeline", "all");
        json_decref(status);
}

static bool is_named(struct harness *h, void *context) {
        json_t *status = harness_status(h), *user = harness_member(status, "jobs/0/user");
        bool named = json_is_string(user) && strcmp(json_string_value(user), "root") == 0;

        json_decref(status);
        return named;
}

START_TEST(test_M2_status_tells_of_ones_own) {
        struct reader shared, roots;
        struct harness *h;
        json_t *status;

        if (!people_exist())
                return;
        h = start();
        reader_open(&roots, h, "roots", 2);
        reader_open(&shared, h, "all", 2);
        reader_wait_workers(h, 2);
        person_does(&bob, h, look_as_member, NULL);
        harness_wait(h, "the user's name", is_named, NULL, PEOPLE_SOON_MS);
        status = harness_status(h);
        expect_names(status, "pipelines", "name", "hers vision roots all");
        expect_names(status, "jobs", "pipeline", "roots all");
        ck_assert_int_eq(json_integer_value(harness_member(status, "jobs/0/uid")), 0);
        ck_assert_str_eq(json_string_value(harness_member(status, "pipelines/all/allow")),
                         "users 60001; groups 60004");
        harness_expect_words(json_string_value(harness_member(status, "pipelines/roots/allow")),
                             "nobody but root");
        json_decref(status);
        reader_close(&shared);
        reader_close(&roots);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

static int connect_control(const struct harness *h) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", harness_runtime_directory(h),
                 RUNTIME_CONTROL_SOCKET);
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

/* Says whether there was an answer. */
static bool is_answered(int fd) {
        char byte;

        return send(fd, "ping\n", 5, MSG_NOSIGNAL) == 5 && recv(fd, &byte, 1, 0) == 1;
}

static void ping(struct harness *h, void *context) {
        expect_answer(h, "ping", NULL);
}

/* The first one goes for the last one. */
static void hold_connections(struct harness *h, void *context) {
        int first = connect_control(h);
        const int *ends = context;
        char byte;

        ck_assert(is_answered(first));
        for (int i = 0; i < EACH_MAX; i++)
                ck_assert(is_answered(connect_control(h)));
        ck_assert(!is_answered(first));
        ck_assert_int_eq(write(ends[1], "x", 1), 1);
        ck_assert_int_eq(read(ends[2], &byte, 1), 1);
}

/* One user's connections leave room for the next one's, and for the operator. */
START_TEST(test_M2_control_connections_of_each) {
        int there[2], go[2], ends[3];
        struct harness *h;
        pid_t pid;
        char byte;

        if (!people_exist())
                return;
        h = start();
        ck_assert_int_eq(pipe(there) | pipe(go), 0);
        ends[1] = there[1];
        ends[2] = go[0];
        pid = fork();
        if (pid == 0) {
                ck_assert(person_become(&bob));
                hold_connections(h, ends);
                _exit(0);
        }
        ck_assert_int_eq(read(there[0], &byte, 1), 1);
        person_does(&alice, h, ping, NULL);
        expect_answer(h, "ping", NULL);
        ck_assert_int_eq(write(go[1], "x", 1), 1);
        ck_assert_int_eq(harness_join(h, pid, PEOPLE_SOON_MS), 0);
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(close(there[i]) | close(go[i]), 0);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- configurations ---- */

START_TEST(test_M2_nothing_to_serve_yet) {
        struct attempt nothing = {"ramp", -ENOENT, {"there is none yet in", "pinfeed.yaml"}};
        struct harness *h = harness_new();

        harness_write_config(h, "pipelines: {}\n");
        harness_start(h);
        attach(h, &nothing);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

START_TEST(test_M2_a_private_daemon_has_no_others) {
        struct harness *h = harness_new();
        char *text;

        harness_write_config(h, "allow: {users: [60001]}\npipelines: {}\n");
        harness_add_argument(h, "--private");
        text = harness_start_expect_failure(h, NULL);
        harness_expect_words(text, "a daemon with --private is for its own user only");
        free(text);
        harness_free(h);
}
END_TEST

/* They are named, and the sockets are closed to them: somebody should know. */
START_TEST(test_M2_users_who_cannot_connect) {
        struct harness *h = harness_new();

        harness_write_config(h, "allow: {users: [60001]}\npipelines: {}\n");
        harness_start(h);
        ck_assert(harness_log_contains(h, "say `socket_group`"));
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("M-users");
        TCase *tcase = tcase_create("M2");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_M2_somebody_elses_daemon);
        tcase_add_test(tcase, test_M2_who_is_named);
        tcase_add_test(tcase, test_M2_nothing_is_brought);
        tcase_add_test(tcase, test_M2_who_may_write);
        tcase_add_test(tcase, test_M2_commands);
        tcase_add_test(tcase, test_M2_status_tells_of_ones_own);
        tcase_add_test(tcase, test_M2_control_connections_of_each);
        tcase_add_test(tcase, test_M2_nothing_to_serve_yet);
        tcase_add_test(tcase, test_M2_a_private_daemon_has_no_others);
        tcase_add_test(tcase, test_M2_users_who_cannot_connect);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
