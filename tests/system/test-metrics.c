/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Case N5 and what else is said of metrics: they are what `status` says, totals only grow whatever becomes of
 * workers and jobs, and whoever asks for them, well or badly, costs nobody anything. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/raw.h"
#include "tests/system/reader.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        SOON_MS = 20000,
        TEXT_MAX = 1 << 20,
        PEERS_MAX = 16, /* of daemon/metrics-http.c, and */
        LIMIT_MS = 10000,
        LATE = 200, /* connections beyond */
        SCRAPES = 300,
        DESCRIPTORS = 48,
        CONNECTIONS = 10 * DESCRIPTORS,
        KEPT = 8, /* LISTENER_RESERVE */
};

static struct harness *start(const char *listen) {
        struct harness *h = harness_new();

        harness_write_config(h,
                             "%s"
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 65536, "
                             "delay_us: 300}\n"
                             "    batch_size: 16\n"
                             "    slots: 8\n"
                             "    workers: 3\n"
                             "  q:\n"
                             "    source: {type: synthetic, samples: 10}\n"
                             "    batch_size: 2\n",
                             listen);
        harness_start(h);
        return h;
}

static struct harness *start_serving(void) {
        return start("metrics_listen: \"127.0.0.1:0\"\n");
}

static void finish(struct harness *h) {
        harness_wait(h, "all jobs have left", harness_no_job_is_there, NULL, SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

/* ---- the text ---- */

static char *ask(struct harness *h) {
        json_t *answer = harness_control(h, "metrics");
        const char *text = json_string_value(json_object_get(answer, "text"));
        char *copy;

        ck_assert_ptr_nonnull(text);
        copy = strdup(text);
        json_decref(answer);
        return copy;
}

/* The value behind a name with its labels. */
static double value_of(const char *text, const char *name) {
        size_t length = strlen(name);

        for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL)
                if (strncmp(line, name, length) == 0 && line[length] == ' ')
                        return strtod(line + length, NULL);
        ck_abort_msg("no %s in:\n%s", name, text);
}

/* Whether the sample that begins here is of a family whose samples must not fall: the last TYPE said so. */
static bool is_total(const char *text, const char *line) {
        const char *type = NULL, *next = text;

        while ((next = strstr(next, "# TYPE ")) && next < line)
                type = next++;
        type = type ? strchr(type + 7, ' ') : NULL;
        return type && (strncmp(type, " counter", 8) == 0 || strncmp(type, " histogram", 10) == 0);
}

/* Asserts that no total has fallen from one text to the next; how many there were. */
static unsigned compare(const char *before, const char *after) {
        unsigned n = 0;

        for (const char *line = before; *line; line = strchr(line, '\n') + 1) {
                size_t length = strcspn(line, "\n");
                const char *space = memrchr(line, ' ', length);
                char name[256];

                if (*line == '#' || !is_total(before, line))
                        continue;
                snprintf(name, sizeof(name), "%.*s", (int)(space - line), line);
                reader_must(value_of(after, name) >= strtod(space, NULL), "%s has fallen from %.*s to %f",
                            name, (int)(length - (size_t)(space - line)), space, value_of(after, name));
                n++;
        }
        return n;
}

static const struct {
        const char *metric, *path;
} twins[] = {
        {"pinfeed_rows_prepared_total{pipeline=\"p\"}", "pipelines/p/rows_prepared"},
        {"pinfeed_rows_delivered_total{pipeline=\"p\"}", "pipelines/p/rows_delivered"},
        {"pinfeed_batches_delivered_total{pipeline=\"p\"}", "pipelines/p/batches_delivered"},
        {"pinfeed_slots_filled_total{pipeline=\"p\"}", "pipelines/p/slots_filled"},
        {"pinfeed_worker_deaths_total{pipeline=\"p\",kind=\"killed\"}", "pipelines/p/deaths/killed"},
        {"pinfeed_workers_busy_seconds_total{pipeline=\"p\"}", "pipelines/p/busy_seconds"},
        {"pinfeed_workers{pipeline=\"p\"}", "pipelines/p/workers_alive"},
        {"pinfeed_workers{pipeline=\"q\"}", "pipelines/q/workers_alive"},
        {"pinfeed_workers_wanted{pipeline=\"p\"}", "pipelines/p/workers"},
        {"pinfeed_ring_bytes{pipeline=\"p\"}", "pipelines/p/ring_bytes"},
        {"pinfeed_ring_bytes{pipeline=\"q\"}", "pipelines/q/ring_bytes"},
        {"pinfeed_ring_reserved_bytes{pipeline=\"q\"}", "pipelines/q/reserved_bytes"},
        {"pinfeed_slots{pipeline=\"p\",state=\"ready\"}", "pipelines/p/slots_ready"},
        {"pinfeed_slots_leased{pipeline=\"p\"}", "pipelines/p/slots_leased"},
        {"pinfeed_cpus", "cpus"},
        {"pinfeed_stage_seconds_count{pipeline=\"p\",stage=\"make\"}", "pipelines/p/stages/make/rows"},
        {"pinfeed_stage_seconds_bucket{pipeline=\"p\",stage=\"make\",le=\"+Inf\"}",
         "pipelines/p/stages/make/rows"},
        {"pinfeed_jobs_waited_for_jobs_seconds_total{pipeline=\"p\"}", "jobs/0/waited_for_jobs_s"},
        {"pinfeed_data_waited_for_jobs_seconds_total{pipeline=\"q\"}", "pipelines/q/bad_samples"},
};

static bool is_calm(struct harness *h, void *context) {
        return harness_status_number(h, "workers_busy") == 0;
}

START_TEST(text_says_what_status_says) {
        struct harness *h = start("");
        struct reader reader;
        json_t *status;
        char *text;

        reader_open(&reader, h, "p", 2);
        reader_read(&reader, 20);
        harness_wait(h, "the ring is full", is_calm, NULL, SOON_MS);
        status = harness_status(h);
        text = ask(h);
        ck_assert(json_is_null(json_object_get(status, "metrics_listen")));
        for (size_t i = 0; i < sizeof(twins) / sizeof(twins[0]); i++)
                ck_assert_msg(value_of(text, twins[i].metric) == harness_number(status, twins[i].path),
                              "%s: %.17g, %s: %.17g", twins[i].metric, value_of(text, twins[i].metric),
                              twins[i].path, harness_number(status, twins[i].path));
        ck_assert_double_eq(value_of(text, "pinfeed_jobs{pipeline=\"p\"}"), 1);
        ck_assert_double_eq(value_of(text, "pinfeed_jobs_attached_total{pipeline=\"p\"}"), 1);
        ck_assert_double_eq(value_of(text, "pinfeed_pipeline_state{pipeline=\"p\",state=\"ready\"}"), 1);
        ck_assert_double_eq(value_of(text, "pinfeed_pipeline_state{pipeline=\"q\",state=\"idle\"}"), 1);
        ck_assert_double_eq(value_of(text, "pinfeed_refusals_total{of=\"job\"}"), 0);
        free(text);
        json_decref(status);
        reader_expect_refusal(&(struct pinfeed_attach){.size = sizeof(struct pinfeed_attach),
                                                       .pipeline = "nobody",
                                                       .runtime_dir = harness_runtime_directory(h)},
                              -ENOENT, (char[1024]){}, 1024);
        text = ask(h);
        ck_assert_double_eq(value_of(text, "pinfeed_refusals_total{of=\"job\"}"), 1);
        free(text);
        reader_close(&reader);
        finish(h);
}
END_TEST

struct life {
        struct pinfeed_attach attach;
        atomic_bool stop;
};

/* Jobs that come, read a while, and go. Check's asserts are for one thread. */
static void *come_and_go(void *context) {
        struct life *life = context;
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;

        while (!atomic_load(&life->stop)) {
                reader_must(pinfeed_open(&job, &life->attach) == 0, "attach: %s", pinfeed_error(job));
                for (int i = 0; i < 8; i++) {
                        reader_must(pinfeed_next(job, &batch) == 1, "next: %s", pinfeed_error(job));
                        reader_must(pinfeed_batch_release(batch) == 0, "release");
                }
                pinfeed_close(job);
        }
        return NULL;
}

/* Each of these has made a total fall at some time: a worker's end, for the kernel's clock of it is ahead of
 * what it says itself; a job's; the ring's. */
START_TEST(N5_totals_only_grow) {
        struct harness *h = start("idle: 0\n");
        struct life life = {.attach = reader_attach(h, "p", 2)};
        uint64_t next = clock_ns() + 250 * NS_PER_MS, end = next + 1250 * NS_PER_MS;
        char *before = ask(h), *after;
        pthread_t thread;
        unsigned n = 0;
        pid_t pids[8];

        ck_assert_int_eq(pthread_create(&thread, NULL, come_and_go, &life), 0);
        while (clock_ns() < end) {
                bool is_time = clock_ns() > next;

                for (size_t i = 0, all = is_time ? harness_worker_pids(h, pids, 8) : 0; i < all; i++)
                        kill(pids[i], SIGKILL);
                next += is_time ? 250 * NS_PER_MS : 0;
                after = ask(h);
                n = compare(before, after);
                free(before);
                before = after;
        }
        atomic_store(&life.stop, true);
        pthread_join(thread, NULL);
        ck_assert_uint_gt(n, 80);
        ck_assert_double_gt(value_of(before, "pinfeed_jobs_attached_total{pipeline=\"p\"}"), 1);
        ck_assert_double_gt(value_of(before, "pinfeed_worker_deaths_total{pipeline=\"p\",kind=\"killed\"}"),
                            0);
        ck_assert_double_gt(value_of(before, "pinfeed_cpu_seconds_total{process=\"workers\"}"), 0);
        ck_assert_double_gt(value_of(before, "pinfeed_jobs_waited_for_data_seconds_total{pipeline=\"p\"}"),
                            0);
        free(before);
        finish(h);
}
END_TEST

/* ---- over HTTP ---- */

static struct sockaddr_in address_of(struct harness *h) {
        struct sockaddr_in address = {.sin_family = AF_INET};
        json_t *status = harness_status(h);
        const char *text = json_string_value(json_object_get(status, "metrics_listen"));
        unsigned port;

        ck_assert_ptr_nonnull(text);
        ck_assert_int_eq(sscanf(text, "127.0.0.1:%u", &port), 1);
        ck_assert_uint_gt(port, 0);
        address.sin_port = htons((uint16_t)port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        json_decref(status);
        return address;
}

static int connect_to(const struct sockaddr_in *address) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        ck_assert_int_ge(fd, 0);
        ck_assert_msg(connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0, "%s",
                      strerror(errno));
        return fd;
}

/* Sends a request and reads until the end; what came, which has to be freed. */
static char *request(const struct sockaddr_in *address, const char *text, size_t length) {
        char *answer = calloc(1, TEXT_MAX);
        int fd = connect_to(address);
        size_t n = 0;
        ssize_t r;

        ck_assert_int_eq(send(fd, text, length, MSG_NOSIGNAL), (ssize_t)length);
        while (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, SOON_MS) == 1 &&
               (r = read(fd, answer + n, TEXT_MAX - 1 - n)) > 0)
                n += (size_t)r;
        close(fd);
        return answer;
}

static char *get(const struct sockaddr_in *address, const char *head) {
        char text[256];
        int n = snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: localhost\r\n\r\n", head);

        return request(address, text, (size_t)n);
}

static const struct {
        const char *head, *status, *words;
        bool has_body;
} requests[] = {
        {"GET /metrics", "HTTP/1.1 200 ", "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n", true},
        {"GET /metrics?name=x", "HTTP/1.1 200 ", "pinfeed_rows_prepared_total", true},
        {"HEAD /metrics", "HTTP/1.1 200 ", "Content-Length: ", false},
        {"GET /", "HTTP/1.1 200 ", "/metrics", true},
        {"GET /../../etc/passwd", "HTTP/1.1 404 ", "/metrics", true},
        {"GET /metrics/", "HTTP/1.1 404 ", "/metrics", true},
        {"POST /metrics", "HTTP/1.1 405 ", "Allow: GET, HEAD\r\n", true},
        {"DELETE /", "HTTP/1.1 405 ", "Allow: GET, HEAD\r\n", true},
};

START_TEST(answers_over_http) {
        struct harness *h = start_serving();
        struct sockaddr_in address = address_of(h);
        char *answer, *text;

        for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
                const char *body;

                answer = get(&address, requests[i].head);
                body = strstr(answer, "\r\n\r\n");
                ck_assert_msg(strncmp(answer, requests[i].status, strlen(requests[i].status)) == 0 &&
                                      strstr(answer, requests[i].words) && body,
                              "%s: %.400s", requests[i].head, answer);
                ck_assert_int_eq(body[4] != 0, requests[i].has_body);
                free(answer);
        }
        answer = get(&address, "GET /metrics");
        text = ask(h);
        ck_assert_uint_gt(compare(strstr(answer, "\r\n\r\n") + 4, text), 30);
        ck_assert_double_eq(value_of(text, "pinfeed_scrapes_total"), 4);
        ck_assert_double_gt(value_of(text, "pinfeed_scrape_seconds_total"), 0);
        free(text);
        free(answer);
        finish(h);
}
END_TEST

/* Bytes that are no request, heads without an end, and nothing grows by any of it. */
START_TEST(nothing_grows) {
        struct harness *h = start_serving();
        struct sockaddr_in address = address_of(h);
        static char rubbish[4096];
        uint64_t resident = 0;
        size_t descriptors = 0;

        for (unsigned i = 0; i < 2 * SCRAPES; i++) {
                char *answer;

                if (i == SCRAPES) {
                        resident = harness_resident_bytes(harness_daemon_pid(h));
                        descriptors = harness_descriptors(harness_daemon_pid(h));
                }
                memset(rubbish, i % 3 == 0 ? 'A' : i % 3 == 1 ? 0xff : ' ', sizeof(rubbish));
                memcpy(rubbish + sizeof(rubbish) - 4, "\r\n\r\n", 4); /* or it would be waited for more */
                answer = i % 8 == 7 ? request(&address, rubbish, sizeof(rubbish))
                                    : get(&address, "GET /metrics");
                ck_assert_msg(i % 8 == 7 || strstr(answer, "pinfeed_cpus"), "%.400s", answer);
                free(answer);
                if (i % 8 == 6)
                        free(ask(h));
        }
        ck_assert_uint_le(harness_descriptors(harness_daemon_pid(h)), descriptors + 1);
        if (!READER_SANITIZED)
                ck_assert_uint_le(harness_resident_bytes(harness_daemon_pid(h)),
                                  resident + (UINT64_C(256) << 10));
        finish(h);
}
END_TEST

static double own_cpu(struct harness *h) {
        return harness_status_number(h, "cpu_seconds/daemon");
}

/* All places are taken by clients that send a byte every now and then, and many more wait. The daemon feels
 * nothing of it, and who asks properly meanwhile is answered as soon as the places' time is over. */
START_TEST(slow_clients_are_cut_off) {
        struct harness *h = start_serving();
        struct sockaddr_in address = address_of(h);
        int slow[PEERS_MAX + LATE], proper;
        size_t descriptors = harness_descriptors(harness_daemon_pid(h));
        uint64_t began = clock_ns(), took_ms = 0;
        struct reader reader;
        double cpu;
        char byte;

        for (int i = 0; i < PEERS_MAX; i++) {
                slow[i] = connect_to(&address);
                ck_assert_int_eq(send(slow[i], "GET /metr", 9, MSG_NOSIGNAL), 9);
        }
        proper = connect_to(&address);
        ck_assert_int_gt(dprintf(proper, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), 0);
        for (int i = PEERS_MAX; i < PEERS_MAX + LATE; i++) { /* into the kernel's queue, or beyond */
                slow[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                connect(slow[i], (struct sockaddr *)&address, sizeof(address));
        }
        reader_open(&reader, h, "p", 2);
        cpu = own_cpu(h);
        while (took_ms < 2 * LIMIT_MS) {
                for (int i = 0; i < PEERS_MAX; i++)
                        send(slow[i], "i", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
                ck_assert_uint_le(harness_descriptors(harness_daemon_pid(h)), descriptors + PEERS_MAX + 32);
                reader_read(&reader, 2);
                took_ms = (clock_ns() - began) / NS_PER_MS;
                if (poll(&(struct pollfd){.fd = proper, .events = POLLIN}, 1, 300) == 1)
                        break;
        }
        ck_assert_int_eq(recv(proper, &byte, 1, MSG_DONTWAIT), 1);
        ck_assert_int_eq(byte, 'H');
        ck_assert_uint_ge(took_ms, LIMIT_MS - 1000);
        ck_assert_uint_le(took_ms, LIMIT_MS + 2000 * (uint64_t)harness_slowdown());
        cpu = own_cpu(h) - cpu;
        printf("# %d slow clients for %d s cost the daemon %.3f s of processor time\n", PEERS_MAX + LATE,
               (int)(took_ms / 1000), cpu);
        ck_assert_double_le(cpu, 0.5 * harness_slowdown());
        close(proper);
        for (int i = 0; i < PEERS_MAX + LATE; i++)
                close(slow[i]);
        free(get(&address, "GET /metrics"));
        reader_close(&reader);
        finish(h);
}
END_TEST

/* From the lowest up to those that are kept back, or to the last one before them. */
static bool are_all_taken(struct harness *h) {
        char path[64];
        int fd = 0;

        do
                snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)harness_daemon_pid(h), fd++);
        while (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
        return fd >= DESCRIPTORS - KEPT;
}

static bool have_left(struct harness *h, void *context) {
        return harness_descriptors(harness_daemon_pid(h)) < DESCRIPTORS / 2 + 4;
}

/* Those descriptors that jobs may not have are not for them either. */
START_TEST(descriptors_are_kept_for_workers) {
        struct harness *h = harness_new();
        struct sockaddr_in address;
        int jobs[CONNECTIONS], first;
        unsigned n = 0;
        char *answer;

        harness_limit_descriptors(h, DESCRIPTORS);
        harness_write_config(h, "metrics_listen: \"127.0.0.1:0\"\n"
                                "pipelines: {p: {source: {type: synthetic, samples: 10}, batch_size: 2}}\n");
        harness_start(h);
        address = address_of(h);
        while (!are_all_taken(h)) {
                ck_assert_uint_lt(n, CONNECTIONS);
                jobs[n++] = raw_connect(h);
                usleep(2000);
        }
        first = connect_to(&address); /* a job takes two: one may be left */
        answer = get(&address, "GET /metrics");
        ck_assert_int_eq(*answer, 0);
        close(first);
        free(answer);
        while (n > 0)
                close(jobs[--n]);
        harness_wait(h, "all have left", have_left, NULL, SOON_MS);
        answer = get(&address, "GET /metrics");
        ck_assert_ptr_nonnull(strstr(answer, "pinfeed_refusals_total{of=\"connection\"} "));
        free(answer);
        finish(h);
}
END_TEST

START_TEST(a_port_that_is_taken) {
        struct harness *first = start_serving(), *second = harness_new();
        struct sockaddr_in address = address_of(first);
        char *log, words[64];
        int code;

        harness_write_config(second,
                             "metrics_listen: \"127.0.0.1:%u\"\n"
                             "pipelines: {p: {source: {type: synthetic, samples: 10}, batch_size: 2}}\n",
                             ntohs(address.sin_port));
        log = harness_start_expect_failure(second, &code);
        snprintf(words, sizeof(words), "cannot listen on 127.0.0.1:%u: Address already in use; stop",
                 ntohs(address.sin_port));
        harness_expect_words(log, words);
        ck_assert_int_eq(code, 1);
        free(log);
        harness_free(second);
        finish(first);
}
END_TEST

/* ---- into a file ---- */

static int run_metrics(struct harness *h, const char *path, char **output) {
        return harness_run(h, SOON_MS, output,
                           (const char *[]){"pinfeedctl", "metrics", path ? "--out" : NULL, path, NULL});
}

START_TEST(command_writes_a_file) {
        struct harness *h = start("");
        char path[HARNESS_PATH_MAX], *output;
        struct stat there, again;

        snprintf(path, sizeof(path), "%s/pinfeed.prom", harness_directory(h));
        ck_assert_int_eq(run_metrics(h, path, &output), 0);
        ck_assert_str_eq(output, "");
        free(output);
        ck_assert_int_eq(stat(path, &there), 0);
        ck_assert_int_eq(there.st_mode & 07777, 0644);
        ck_assert_int_gt(there.st_size, 1000);
        ck_assert_int_eq(run_metrics(h, path, NULL), 0);
        ck_assert_int_eq(stat(path, &again), 0);
        ck_assert_msg(there.st_ino != again.st_ino, "it was not replaced as a whole");
        ck_assert_int_eq(run_metrics(h, "/proc/no/such", &output), 1);
        harness_expect_words(output, "nothing was written");
        free(output);
        ck_assert_int_eq(run_metrics(h, NULL, &output), 0);
        ck_assert_double_gt(value_of(output, "pinfeed_open_fds"), 5);
        free(output);
        harness_stop(h, SIGTERM, 0);
        ck_assert_int_eq(run_metrics(h, path, &output), 1);
        harness_expect_words(output, "no pinfeedd listens on");
        free(output);
        ck_assert_int_eq(stat(path, &there), 0);
        ck_assert_uint_eq(there.st_ino, again.st_ino);
        harness_free(h);
}
END_TEST

static Suite *make_suite(void) {
        Suite *suite = suite_create("metrics");
        TCase *tcase = tcase_create("metrics");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, text_says_what_status_says);
        tcase_add_test(tcase, N5_totals_only_grow);
        tcase_add_test(tcase, answers_over_http);
        tcase_add_test(tcase, nothing_grows);
        tcase_add_test(tcase, slow_clients_are_cut_off);
        tcase_add_test(tcase, descriptors_are_kept_for_workers);
        tcase_add_test(tcase, a_port_that_is_taken);
        tcase_add_test(tcase, command_writes_a_file);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(make_suite());
}
