/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Lists of users and groups: what a configuration makes of them, who is let in by one, and what users are
 * called. Only root can be several users; elsewhere the tests that need that say so. */

#include "daemon/access.h"

#include "base/seqpacket.h"
#include "daemon/users.h"
#include "tests/support/run.h"
#include "tests/unit/config-file.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/wait.h>

enum {
        STRANGER = 60001, /* of no account on any machine that we know */
        OTHER = 60002,
        GROUP = 60003,
        MANY_GROUPS = 200,
};

static void accessp(struct access *access) {
        access_deinit(access);
}

/* ---- lists ---- */

START_TEST(test_names_and_numbers) {
        _cleanup_(accessp) struct access access = {};
        struct fault fault;

        ck_assert_str_eq(access_text(&access), "nobody but root and the daemon's own user");
        ck_assert(!access_has_others(&access));
        ck_assert_int_eq(access_add_user(&access, "root", &fault), 0);
        ck_assert(!access_has_others(&access));
        ck_assert_int_eq(access_add_user(&access, "60001", &fault), 0);
        ck_assert(access_has_others(&access));
        ck_assert_int_eq(access_add_group(&access, "root", &fault), 0);
        ck_assert_int_eq(access_add_group(&access, "60003", &fault), 0);
        ck_assert_str_eq(access_text(&access), "users root, 60001; groups root, 60003");
        ck_assert_uint_eq(access.uids[0], 0);
        ck_assert_uint_eq(access.uids[1], STRANGER);
        ck_assert_uint_eq(access.gids[1], GROUP);
}
END_TEST

START_TEST(test_long_lists) {
        _cleanup_(accessp) struct access access = {};
        struct fault fault;
        char number[16];

        for (unsigned i = 0; i < ACCESS_ENTRIES_MAX; i++) {
                snprintf(number, sizeof(number), "%u", 100000 + i);
                ck_assert_int_eq(access_add_group(&access, number, &fault), 0);
        }
        ck_assert_int_eq(access_add_group(&access, "5", &fault), -E2BIG);
        ck_assert_uint_eq(strlen(access_text(&access)), ACCESS_TEXT_MAX);
        ck_assert_str_eq(access_text(&access) + ACCESS_TEXT_MAX - 3, "...");
        ck_assert(access_allows(&access, &(struct peer){.uid = STRANGER, .gid = 100999}));
        ck_assert(!access_allows(&access, &(struct peer){.uid = STRANGER, .gid = 101000}));
}
END_TEST

START_TEST(test_who_is_allowed) {
        gid_t groups[] = {5, GROUP};
        struct peer stranger = {.uid = STRANGER, .gid = 7}, of_group = {.uid = STRANGER, .gid = GROUP},
                    of_another = {.uid = STRANGER, .gid = 7, .groups = groups, .n_groups = 2};
        _cleanup_(accessp) struct access nobody = {}, users = {}, some = {};
        struct fault fault;

        access_add_user(&users, "60001", &fault);
        access_add_group(&some, "60003", &fault);
        ck_assert(access_allows(&nobody, &(struct peer){.uid = 0, .gid = 7}));
        ck_assert(access_allows(&nobody, &(struct peer){.uid = geteuid(), .gid = 7}));
        ck_assert(!access_allows(&nobody, &stranger));
        ck_assert(access_allows(&users, &stranger));
        ck_assert(!access_allows(&users, &(struct peer){.uid = OTHER, .gid = STRANGER}));
        ck_assert(!access_allows(&some, &stranger));
        ck_assert(access_allows(&some, &of_group));
        ck_assert(access_allows(&some, &of_another));
        of_another.n_groups = 1;
        ck_assert(!access_allows(&some, &of_another));
}
END_TEST

/* ---- the configuration ---- */

#define LIST   "allow: {users: [root, 60001]}\n"
#define OWN    "    allow: {groups: [60003]}\n"
#define PINNED "    allow_pinned: {users: [60001]}\n"

START_TEST(test_whose_list_counts) {
        _cleanup_(config_unrefp) struct config *without = load(HEAD SOURCE BATCH),
                                               *all = load(LIST HEAD SOURCE BATCH),
                                               *own = load(LIST HEAD SOURCE BATCH OWN),
                                               *nobody = load(LIST HEAD SOURCE BATCH "    allow: {}\n");
        struct peer stranger = {.uid = STRANGER, .gid = 7}, of_group = {.uid = OTHER, .gid = GROUP};

        ck_assert(!access_allows(config_allow(without, &without->pipelines[0]), &stranger));
        ck_assert_uint_eq(config_allow(without, &without->pipelines[0])->line, 0);
        ck_assert(access_allows(config_allow(all, &all->pipelines[0]), &stranger));
        ck_assert(!access_allows(config_allow(own, &own->pipelines[0]), &stranger));
        ck_assert(access_allows(config_allow(own, &own->pipelines[0]), &of_group));
        ck_assert_uint_eq(config_allow(own, &own->pipelines[0])->line, 6);
        ck_assert(!access_allows(config_allow(nobody, &nobody->pipelines[0]), &stranger));
        ck_assert_uint_eq(all->socket_group_line, 0);
}
END_TEST

START_TEST(test_whose_group_has_the_sockets) {
        _cleanup_(config_unrefp) struct config *config = load("socket_group: 60003\n" HEAD SOURCE BATCH);

        ck_assert_uint_eq(config->socket_gid, GROUP);
        ck_assert_uint_eq(config->socket_group_line, 1);
}
END_TEST

/* Where somebody else may write, nobody may truncate. */
START_TEST(test_whose_ring_is_a_memfd) {
        _cleanup_(config_unrefp) struct config *plain = load(HEAD SOURCE BATCH),
                                               *pinned = load(HEAD SOURCE BATCH PINNED),
                                               *trusted = load(
                                                       "allow_pinned: {users: [root]}\n" HEAD SOURCE BATCH
                                                       "    backing: shm\n");

        ck_assert_int_eq(plain->pipelines[0].backing, CONFIG_BACKING_AUTO);
        ck_assert_int_eq(pinned->pipelines[0].backing, CONFIG_BACKING_MEMFD);
        ck_assert_int_eq(trusted->pipelines[0].backing, CONFIG_BACKING_SHM);
        ck_assert(!config_is_same(&plain->pipelines[0], &pinned->pipelines[0]));
}
END_TEST

START_TEST(test_no_pipelines) {
        _cleanup_(config_unrefp) struct config *config = load("pipelines: {}\n" LIST);
        struct config *definition = NULL;
        struct fault fault;

        ck_assert_uint_eq(config->n_pipelines, 0);
        ck_assert_uint_eq(config->allow.line, 2);
        ck_assert_int_eq(config_define(&definition, "/x", "pipelines: {}", config, &fault), -EINVAL);
        ck_assert_str_eq(fault.text, "/x:1:12: pipelines: expected 1 to 64 pipelines, got 0");
}
END_TEST

static const struct {
        const char *text, *place;
} definitions[] = {
        {"allow: {}\n" HEAD SOURCE BATCH, "/x:1:8: allow: says who may use"},
        {"allow_pinned: {users: [no-such-user]}\n" HEAD SOURCE BATCH, "/x:1:15: allow_pinned: says"},
        {"socket_group: root\n" HEAD SOURCE BATCH, "/x:1:15: socket_group: says"},
        {HEAD SOURCE BATCH "    allow: {users: [no-such-user]}\n", "/x:5:12: pipelines.a.allow: says"},
        {HEAD SOURCE BATCH "    allow_pinned: {}\n", "/x:5:19: pipelines.a.allow_pinned: says"},
};

/* Also before anybody is asked who that is. */
START_TEST(test_definitions_say_nothing_of_it) {
        _cleanup_(config_unrefp) struct config *daemon = load(HEAD SOURCE BATCH);
        struct config *definition = NULL;
        struct fault fault;

        ck_assert_int_eq(config_define(&definition, "/x", definitions[_i].text, daemon, &fault), -EINVAL);
        ck_assert_msg(strncmp(fault.text, definitions[_i].place, strlen(definitions[_i].place)) == 0, "%s",
                      fault.text);
}
END_TEST

/* ---- peers ---- */

START_TEST(test_peer_is_ourselves) {
        struct fault fault;
        struct peer peer;
        int pair[2];

        ck_assert_int_eq(seqpacket_pair(pair), 0);
        ck_assert_int_eq(peer_init(&peer, pair[0], &fault), 0);
        ck_assert_int_eq(peer.pid, getpid());
        ck_assert_uint_eq(peer.uid, geteuid());
        ck_assert_uint_eq(peer.gid, getegid());
        ck_assert(peer_is_trusted(&peer));
        peer_deinit(&peer);
        close(pair[0]);
        ck_assert_int_eq(peer_init(&peer, pair[0], &fault), -EBADF);
        close(pair[1]);
}
END_TEST

/* Connects as a stranger with so many groups, GROUP the last of them. */
static pid_t connect_with(const char *path, size_t n) {
        pid_t pid = fork();
        gid_t groups[MANY_GROUPS];

        if (pid > 0)
                return pid;
        for (size_t i = 0; i < n; i++)
                groups[i] = GROUP - (gid_t)(n - 1 - i);
        if (setgroups(n, groups) < 0 || setgid(STRANGER) < 0 || setuid(STRANGER) < 0)
                _exit(1);
        _exit(seqpacket_connect(path) < 0);
}

static void expect_groups(int listening, const char *path, size_t n) {
        pid_t pid = connect_with(path, n);
        _cleanup_(accessp) struct access access = {};
        struct fault fault;
        struct peer peer;
        int status, fd;

        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(peer_init(&peer, fd, &fault), 0);
        ck_assert_uint_eq(peer.uid, STRANGER);
        ck_assert_uint_eq(peer.n_groups, n);
        access_add_group(&access, "60003", &fault);
        ck_assert_int_eq(access_allows(&access, &peer), n > 0);
        peer_deinit(&peer);
        close(fd);
}

/* The kernel has kept them, though the process is gone; also more than the first look has room for. */
START_TEST(test_groups_of_a_stranger) {
        char directory[] = "/tmp/test-access-XXXXXX", path[64];
        int listening;

        if (geteuid() != 0) {
                puts("# skipped: only root can be somebody else");
                return;
        }
        ck_assert_ptr_nonnull(mkdtemp(directory));
        snprintf(path, sizeof(path), "%s/x.sock", directory);
        listening = seqpacket_listen(path, 4);
        ck_assert_int_ge(listening, 0);
        ck_assert_int_eq(chmod(path, 0666) | chmod(directory, 0755), 0);
        expect_groups(listening, path, 0);
        expect_groups(listening, path, 2);
        expect_groups(listening, path, MANY_GROUPS);
        close(listening);
        unlink(path);
        rmdir(directory);
}
END_TEST

/* ---- what users are called ---- */

static void run_until_known(uv_loop_t *loop, const struct users *users, uid_t uid) {
        for (int i = 0; i < 5000 && !users_name(users, uid); i++) {
                uv_run(loop, UV_RUN_NOWAIT);
                usleep(1000);
        }
}

static void stay_awake(uv_idle_t *idle) {
}

START_TEST(test_users_have_names) {
        static struct users users;
        char text[USERS_TEXT_MAX];
        uv_idle_t awake; /* a loop without anything else does not turn */
        uv_loop_t loop;

        ck_assert_int_eq(uv_loop_init(&loop), 0);
        uv_idle_init(&loop, &awake);
        uv_idle_start(&awake, stay_awake);
        ck_assert_int_eq(users_init(&users, &loop), 0);
        ck_assert_str_eq(users_describe(&users, 0, text), "uid 0");
        for (uid_t uid = STRANGER; uid < STRANGER + 3; uid++)
                users_learn(&users, uid);
        users_learn(&users, 0); /* after those that are nobody */
        users_learn(&users, 0);
        ck_assert_uint_eq(users.n, 4);
        run_until_known(&loop, &users, 0);
        ck_assert_str_eq(users_describe(&users, 0, text), "root (uid 0)");
        ck_assert_ptr_null(users_name(&users, STRANGER));
        for (uid_t uid = 100000; uid < 100000 + 2 * USERS_MAX; uid++)
                users_learn(&users, uid);
        ck_assert_uint_eq(users.n, USERS_MAX);
        uv_close((uv_handle_t *)&awake, NULL);
        users_stop(&users); /* with one under way: nobody waits for it */
        uv_run(&loop, UV_RUN_DEFAULT);
        ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("access");
        TCase *test_case = tcase_create("access");

        tcase_add_test(test_case, test_names_and_numbers);
        tcase_add_test(test_case, test_long_lists);
        tcase_add_test(test_case, test_who_is_allowed);
        tcase_add_test(test_case, test_whose_list_counts);
        tcase_add_test(test_case, test_whose_group_has_the_sockets);
        tcase_add_test(test_case, test_whose_ring_is_a_memfd);
        tcase_add_test(test_case, test_no_pipelines);
        tcase_add_loop_test(test_case, test_definitions_say_nothing_of_it, 0,
                            (int)(sizeof(definitions) / sizeof(definitions[0])));
        tcase_add_test(test_case, test_peer_is_ourselves);
        tcase_add_test(test_case, test_groups_of_a_stranger);
        tcase_add_test(test_case, test_users_have_names);
        suite_add_tcase(suite, test_case);
        return run_suite(suite);
}
