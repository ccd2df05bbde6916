/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the service manager and the journal are sent, read at the other end of a socket; and what becomes of
 * it when they do not read. */

#include "daemon/journal.h"
#include "daemon/log.h"
#include "daemon/service.h"
#include "tests/support/run.h"

#include <check.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char path[64];
static int theirs;
static char text[8192];

static void listen_at_path(void) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        snprintf(path, sizeof(path), "/tmp/pinfeed-test-%d.sock", (int)getpid());
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        theirs = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        ck_assert_int_ge(theirs, 0);
        ck_assert_int_eq(bind(theirs, (struct sockaddr *)&address, sizeof(address)), 0);
}

static void remove_socket(void) {
        close(theirs);
        unlink(path);
}

/* The next datagram, as text; "" when there is none. */
static const char *take(void) {
        ssize_t n = recv(theirs, text, sizeof(text) - 1, 0);

        text[n > 0 ? n : 0] = 0;
        return text;
}

static void take_all(void) {
        while (*take())
                ;
}

static void be_watched(const char *usec, const char *pid) {
        setenv("NOTIFY_SOCKET", path, 1);
        setenv("WATCHDOG_USEC", usec, 1);
        unsetenv("WATCHDOG_PID");
        if (pid)
                setenv("WATCHDOG_PID", pid, 1);
}

START_TEST(a_life_in_words) {
        be_watched("30000000", NULL);
        service_init(true);
        ck_assert_ptr_null(getenv("NOTIFY_SOCKET"));
        ck_assert_ptr_null(getenv("WATCHDOG_USEC"));
        ck_assert(service_is_told());
        ck_assert_uint_eq(service_watchdog_ms(), 15000);
        service_ready();
        ck_assert_str_eq(take(), "READY=1");
        service_beat();
        ck_assert_str_eq(take(), "WATCHDOG=1");
        service_extend(90);
        ck_assert_str_eq(take(), "EXTEND_TIMEOUT_USEC=90000000");
        service_reloading();
        ck_assert_ptr_eq(strstr(take(), "RELOADING=1\nMONOTONIC_USEC="), text);
        service_stopping();
        ck_assert_str_eq(take(), "STOPPING=1");
        service_failed(-12, "no memory");
        ck_assert_str_eq(take(), "STATUS=no memory\nERRNO=12");
        ck_assert_str_eq(take(), "");
}
END_TEST

START_TEST(a_status_is_said_once) {
        be_watched("1", NULL);
        service_init(true);
        service_say("2 jobs");
        ck_assert_str_eq(take(), "STATUS=2 jobs");
        service_say("2 jobs");
        ck_assert_str_eq(take(), "");
        service_say("3 jobs");
        ck_assert_str_eq(take(), "STATUS=3 jobs");
}
END_TEST

/* Nothing waits; and what was owed comes later. */
START_TEST(a_manager_that_does_not_read) {
        be_watched("1", NULL);
        service_init(true);
        for (int i = 0; i < 10000; i++)
                service_beat();
        service_ready();
        service_say("3 jobs");
        take_all();
        service_say("3 jobs");
        ck_assert_str_eq(take(), "READY=1");
        ck_assert_str_eq(take(), "STATUS=3 jobs");
        service_say("3 jobs");
        ck_assert_str_eq(take(), "");
}
END_TEST

START_TEST(a_manager_of_somebody_else) {
        be_watched("30000000", "1");
        service_init(true);
        ck_assert_uint_eq(service_watchdog_ms(), 0);
        service_ready();
        ck_assert_str_eq(take(), "READY=1");
}
END_TEST

START_TEST(who_is_not_the_service_says_nothing) {
        be_watched("30000000", NULL);
        service_init(false);
        ck_assert_ptr_null(getenv("NOTIFY_SOCKET"));
        ck_assert(!service_is_told());
        ck_assert_uint_eq(service_watchdog_ms(), 0);
        service_ready();
        service_beat();
        ck_assert_str_eq(take(), "");
}
END_TEST

START_TEST(names_that_are_no_socket) {
        static const char *const names[] = {"", "/", "relative", "vsock:2:1234"};

        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
                setenv("NOTIFY_SOCKET", names[i], 1);
                service_init(true);
                ck_assert_msg(!service_is_told(), "%s", names[i]);
        }
}
END_TEST

/* ---- the journal ---- */

/* The value of a field of the entry that was taken last, or NULL. */
static const char *field(const char *entry, size_t size, const char *name) {
        static char value[4096];

        for (size_t at = 0; at < size;) {
                const char *end = memchr(entry + at, '\n', size - at);
                size_t length = (size_t)(end - (entry + at));
                uint64_t bytes;

                memcpy(&bytes, end + 1, sizeof(bytes)); /* the machines that this runs on are little-endian */
                if (length == strlen(name) && memcmp(entry + at, name, length) == 0) {
                        ck_assert_uint_lt(bytes, sizeof(value));
                        memcpy(value, end + 1 + sizeof(bytes), bytes);
                        value[bytes] = 0;
                        return value;
                }
                at += length + 1 + sizeof(bytes) + bytes + 1;
                ck_assert_int_eq(entry[at - 1], '\n');
        }
        return NULL;
}

static size_t take_entry(void) {
        ssize_t n = recv(theirs, text, sizeof(text), 0);

        ck_assert_int_gt(n, 0);
        return (size_t)n;
}

START_TEST(an_entry_has_its_fields) {
        const uint32_t worker = 0;
        const uint64_t sample = 812;
        size_t n;

        ck_assert(!journal_send(LOG_ERROR, &(struct log_subject){}, "not open"));
        ck_assert_int_eq(journal_open(path), 0);
        ck_assert(journal_send(
                LOG_WARNING,
                &(struct log_subject){.pipeline = "a", .job = 7, .worker = &worker, .sample = &sample},
                "two\nlines"));
        n = take_entry();
        ck_assert_str_eq(field(text, n, "MESSAGE"), "two\nlines");
        ck_assert_str_eq(field(text, n, "PRIORITY"), "4");
        ck_assert_str_eq(field(text, n, "SYSLOG_IDENTIFIER"), "pinfeedd");
        ck_assert_str_eq(field(text, n, "PINFEED_PIPELINE"), "a");
        ck_assert_str_eq(field(text, n, "PINFEED_JOB"), "7");
        ck_assert_str_eq(field(text, n, "PINFEED_WORKER"), "0");
        ck_assert_str_eq(field(text, n, "PINFEED_SAMPLE"), "812");
        ck_assert(journal_send(LOG_INFO, &(struct log_subject){}, "a line"));
        n = take_entry();
        ck_assert_str_eq(field(text, n, "MESSAGE"), "a line");
        ck_assert_ptr_null(field(text, n, "PINFEED_PIPELINE"));
        ck_assert_ptr_null(field(text, n, "PINFEED_JOB"));
        ck_assert_ptr_null(field(text, n, "PINFEED_WORKER"));
        ck_assert_ptr_null(field(text, n, "PINFEED_SAMPLE"));
}
END_TEST

/* It takes no more at some time, and says so at once. */
START_TEST(a_journal_that_does_not_read) {
        int sent = 0;

        ck_assert_int_eq(journal_open(path), 0);
        while (sent < 10000 && journal_send(LOG_INFO, &(struct log_subject){}, "a line"))
                sent++;
        ck_assert_int_gt(sent, 0);
        ck_assert_int_lt(sent, 10000);
        take_entry();
        ck_assert(journal_send(LOG_INFO, &(struct log_subject){}, "another"));
}
END_TEST

START_TEST(a_stream_is_the_journals_by_its_number) {
        char stream[64];
        struct stat status;
        int fd;

        unlink(path);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_eq(fstat(fd, &status), 0);
        unsetenv("JOURNAL_STREAM");
        ck_assert(!journal_is_behind(fd));
        snprintf(stream, sizeof(stream), "%lu:%lu", (unsigned long)status.st_dev,
                 (unsigned long)status.st_ino);
        setenv("JOURNAL_STREAM", stream, 1);
        ck_assert(journal_is_behind(fd));
        ck_assert(!journal_is_behind(STDIN_FILENO));
        setenv("JOURNAL_STREAM", "nonsense", 1);
        ck_assert(!journal_is_behind(fd));
        close(fd);
}
END_TEST

static Suite *service_suite(void) {
        Suite *suite = suite_create("service");
        TCase *manager = tcase_create("manager"), *journal = tcase_create("journal");

        tcase_set_timeout(manager, 60);
        tcase_add_checked_fixture(manager, listen_at_path, remove_socket);
        tcase_add_test(manager, a_life_in_words);
        tcase_add_test(manager, a_status_is_said_once);
        tcase_add_test(manager, a_manager_that_does_not_read);
        tcase_add_test(manager, a_manager_of_somebody_else);
        tcase_add_test(manager, who_is_not_the_service_says_nothing);
        tcase_add_test(manager, names_that_are_no_socket);
        suite_add_tcase(suite, manager);
        tcase_set_timeout(journal, 60);
        tcase_add_checked_fixture(journal, listen_at_path, remove_socket);
        tcase_add_test(journal, an_entry_has_its_fields);
        tcase_add_test(journal, a_journal_that_does_not_read);
        tcase_add_test(journal, a_stream_is_the_journals_by_its_number);
        suite_add_tcase(suite, journal);
        return suite;
}

int main(void) {
        return run_suite(service_suite());
}
