/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* N jobs, a thread for each, all attached before the first of them reads. What the daemon and its workers did
 * meanwhile is the difference of two answers of `status`, one from before attaching and one from before
 * detaching, so that starting the workers counts and their going away does not.
 *
 * A batch's hand-over is the time from its last row to its arrival in the job, and means something only if
 * the job was already waiting for it with room to take it: batches that were ready before pinfeed_next was
 * called are left out. */

#include "client/ctl/ctl.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/number.h"
#include "client/ctl/table.h"
#include "client/pinfeed.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        BENCH_JOBS_MAX = 1024,
        BENCH_HANDOVERS_MAX = 1 << 20, /* of one job; later ones are left out */
        BENCH_LIVE_MS = 200,
        BENCH_HELD_TOGETHER = 2, /* batches of a job that is not alone: as many as the least it needs */
};

struct bench {
        const char *pipeline;
        uint64_t jobs;
        uint64_t seconds;
        uint64_t rows; /* of each job; 0: `seconds` count */
        bool touch;
        bool as_json;
        bool live;         /* jobs start where the leading one is */
        uint64_t start_ns; /* of reading */
};

/* One job and its thread, which alone writes everything but the two atomics' readers. */
struct reader {
        const struct bench *bench;
        struct pinfeed_job *job;
        pthread_t thread;
        bool started;
        int error;
        uint64_t attached_ns;
        uint64_t first_ns; /* arrival of the first batch; 0: none */
        uint64_t end_ns;
        atomic_ullong rows;
        atomic_bool over;
        uint64_t batches;
        uint64_t sum; /* of the bytes, so that reading them is not left out */
        uint32_t *handovers;
        uint32_t n_handovers;
        uint32_t room;
};

struct result {
        double seconds;
        uint64_t rows;
        uint64_t batches;
        uint64_t bytes;
        double first_batch_ms;
        json_t *before; /* status; NULL: not to be had */
        json_t *after;
        uint32_t *handovers; /* ns, sorted */
        size_t n_handovers;
};

static int bench_parse_start(const struct ctl *ctl, const char *text, bool *live) {
        *live = strcmp(text, "live") == 0;
        if (*live || strcmp(text, "given") == 0)
                return CTL_OK;
        return ctl_usage(ctl, "--start: expected given or live");
}

static int bench_parse(const struct ctl *ctl, struct bench *bench, int argc, char **argv) {
        static const struct option options[] = {
                {"jobs", required_argument, NULL, 'n'},  {"seconds", required_argument, NULL, 's'},
                {"rows", required_argument, NULL, 'r'},  {"touch", no_argument, NULL, 't'},
                {"start", required_argument, NULL, 'l'}, {"json", no_argument, NULL, 'j'},
                {"help", no_argument, NULL, 'h'},        {0}};
        int c, r = CTL_OK;

        while (r == CTL_OK && (c = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
                switch (c) {
                case 'n':
                        r = ctl_number(ctl, "--jobs", optarg, 1, BENCH_JOBS_MAX, &bench->jobs);
                        break;
                case 's':
                        r = ctl_number(ctl, "--seconds", optarg, 1, 1000000, &bench->seconds);
                        break;
                case 'r':
                        r = ctl_number(ctl, "--rows", optarg, 1, UINT64_MAX, &bench->rows);
                        break;
                case 't':
                        bench->touch = true;
                        break;
                case 'l':
                        r = bench_parse_start(ctl, optarg, &bench->live);
                        break;
                case 'j':
                        bench->as_json = true;
                        break;
                case 'h':
                        ctl_help(ctl);
                        exit(CTL_OK);
                default:
                        r = ctl_usage(ctl, NULL);
                }
        }
        if (r != CTL_OK)
                return r;
        if (argc - optind != 1)
                return ctl_usage(ctl, "expected one pipeline");
        bench->pipeline = argv[optind];
        return CTL_OK;
}

static uint64_t sum_words(const uint8_t *bytes, size_t n) {
        uint64_t sum = 0, word;

        for (; n >= sizeof(word); bytes += sizeof(word), n -= sizeof(word)) {
                memcpy(&word, bytes, sizeof(word));
                sum += word;
        }
        for (; n > 0; n--)
                sum += *bytes++;
        return sum;
}

static void reader_touch(struct reader *reader, const struct pinfeed_batch *batch) {
        struct pinfeed_field field;

        for (uint32_t f = 0; pinfeed_job_field(reader->job, f, &field) == 0; f++)
                for (uint32_t s = 0; s < pinfeed_batch_segments(batch); s++) {
                        uint32_t rows;
                        const uint8_t *data = pinfeed_batch_data(batch, s, f, &rows);

                        reader->sum += sum_words(data, rows * field.row_bytes);
                }
}

static void reader_note_handover(struct reader *reader, uint64_t ns) {
        if (reader->n_handovers == reader->room) {
                uint32_t room = reader->room ? reader->room * 2 : 1024;
                uint32_t *larger;

                if (room > BENCH_HANDOVERS_MAX)
                        return;
                larger = reallocarray(reader->handovers, room, sizeof(*larger));
                if (!larger)
                        return;
                reader->handovers = larger;
                reader->room = room;
        }
        reader->handovers[reader->n_handovers++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

static void reader_take(struct reader *reader, struct pinfeed_batch *batch, uint64_t asked_ns) {
        uint64_t ready = pinfeed_batch_ready_ns(batch), received = pinfeed_batch_received_ns(batch);

        if (!reader->first_ns)
                reader->first_ns = received;
        if (ready > asked_ns && received >= ready)
                reader_note_handover(reader, received - ready);
        if (reader->bench->touch)
                reader_touch(reader, batch);
        reader->batches++;
        atomic_fetch_add_explicit(&reader->rows, pinfeed_batch_rows(batch), memory_order_relaxed);
        pinfeed_batch_release(batch);
}

/* Whether this job has read enough, and if not, how long the next batch may take. */
static bool reader_is_done(const struct reader *reader, uint64_t now, uint32_t *timeout_ms) {
        const struct bench *bench = reader->bench;
        uint64_t end = bench->start_ns + bench->seconds * NS_PER_S;

        *timeout_ms = UINT32_MAX;
        if (bench->rows)
                return atomic_load_explicit(&reader->rows, memory_order_relaxed) >= bench->rows;
        *timeout_ms = (uint32_t)(end > now ? (end - now) / NS_PER_MS + 1 : 0);
        return now >= end;
}

static void *reader_run(void *data) {
        struct reader *reader = data;
        struct pinfeed_batch *batch;
        uint32_t timeout_ms;
        uint64_t now;
        int r = 0;

        while (r >= 0 && !reader_is_done(reader, now = clock_ns(), &timeout_ms)) {
                r = pinfeed_next_timeout(reader->job, &batch, timeout_ms);
                if (r > 0)
                        reader_take(reader, batch, now);
        }
        reader->error = r < 0 && r != -ETIMEDOUT ? r : 0;
        reader->end_ns = clock_ns();
        atomic_store(&reader->over, true);
        return NULL;
}

static int reader_open(struct reader *reader, const struct ctl *ctl, uint64_t index) {
        struct pinfeed_attach attach = {.size = sizeof(attach),
                                        .pipeline = reader->bench->pipeline,
                                        .runtime_dir = ctl->runtime_dir,
                                        .progress = ctl_progress};
        char name[32];
        int r;

        snprintf(name, sizeof(name), "bench %llu", (unsigned long long)index + 1);
        attach.name = name;
        attach.start = reader->bench->live ? PINFEED_START_LIVE : PINFEED_START_GIVEN;
        /* What the first jobs are sent while the others attach takes slots from those. */
        if (reader->bench->jobs > 1)
                attach.max_held_batches = BENCH_HELD_TOGETHER;
        r = pinfeed_open(&reader->job, &attach);
        if (r < 0)
                return ctl_fail_job(reader->job, attach.pipeline);
        reader->attached_ns = clock_ns();
        return CTL_OK;
}

/* Shows the rate until all jobs are over. */
static void bench_watch(const struct bench *bench, struct reader *readers) {
        struct timespec interval = {.tv_nsec = BENCH_LIVE_MS * NS_PER_MS};
        uint64_t rows, running;

        do {
                rows = running = 0;
                for (uint64_t i = 0; i < bench->jobs; i++) {
                        rows += atomic_load_explicit(&readers[i].rows, memory_order_relaxed);
                        running += !atomic_load(&readers[i].over);
                }
                double seconds = (double)(clock_ns() - bench->start_ns) / NS_PER_S;

                ctl_live("%.1f s, %llu rows, %.0f rows/s", seconds, (unsigned long long)rows,
                         (double)rows / seconds);
                if (running > 0)
                        nanosleep(&interval, NULL);
        } while (running > 0);
        ctl_live_end();
}

static int bench_read(struct bench *bench, struct reader *readers) {
        int r = CTL_OK;

        bench->start_ns = clock_ns();
        for (uint64_t i = 0; i < bench->jobs; i++) {
                readers[i].started = pthread_create(&readers[i].thread, NULL, reader_run, &readers[i]) == 0;
                if (!readers[i].started) {
                        readers[i].error = -EAGAIN;
                        atomic_store(&readers[i].over, true);
                }
        }
        bench_watch(bench, readers);
        for (uint64_t i = 0; i < bench->jobs; i++) {
                if (readers[i].started)
                        pthread_join(readers[i].thread, NULL);
                if (!readers[i].started)
                        r = ctl_fail("no thread could be started for job %llu", (unsigned long long)i + 1);
                else if (readers[i].error)
                        r = ctl_fail_job(readers[i].job, bench->pipeline);
        }
        return r;
}

static int compare_u32(const void *a, const void *b) {
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        return x < y ? -1 : x > y;
}

static void bench_sum(const struct bench *bench, struct reader *readers, struct result *result) {
        uint64_t end = bench->start_ns, row_bytes = 0;
        struct pinfeed_field field;
        size_t n = 0;

        for (uint32_t f = 0; pinfeed_job_field(readers[0].job, f, &field) == 0; f++)
                row_bytes += field.row_bytes;
        for (uint64_t i = 0; i < bench->jobs; i++)
                n += readers[i].n_handovers;
        result->handovers = calloc(n + 1, sizeof(*result->handovers));
        for (uint64_t i = 0; i < bench->jobs; i++) {
                const struct reader *r = &readers[i];
                double first_ms = r->first_ns ? (double)(r->first_ns - r->attached_ns) / NS_PER_MS : 0;

                result->rows += r->rows;
                result->batches += r->batches;
                result->first_batch_ms =
                        first_ms > result->first_batch_ms ? first_ms : result->first_batch_ms;
                end = r->end_ns > end ? r->end_ns : end;
                for (uint32_t k = 0; result->handovers && k < r->n_handovers; k++)
                        result->handovers[result->n_handovers++] = r->handovers[k];
        }
        if (result->handovers)
                qsort(result->handovers, result->n_handovers, sizeof(uint32_t), compare_u32);
        result->bytes = result->rows * row_bytes;
        result->seconds = (double)(end - bench->start_ns) / NS_PER_S;
}

static json_t *result_handover(const struct result *result) {
        size_t n = result->n_handovers;

        if (n == 0)
                return json_pack("{s:n, s:n, s:n}", "p50", "p99", "max");
        return json_pack("{s:f, s:f, s:f}", "p50", result->handovers[n / 2] / 1e3, "p99",
                         result->handovers[n * 99 / 100] / 1e3, "max", result->handovers[n - 1] / 1e3);
}

static double status_cpu(const json_t *status, const char *who) {
        return json_number_value(json_object_get(json_object_get(status, "cpu_seconds"), who));
}

/* Of the daemon, and with `workers` of both; null when it is not to be had. */
static json_t *result_cpu(const struct result *result, bool workers) {
        double seconds;

        if (!result->before || !result->after)
                return json_null();
        seconds = status_cpu(result->after, "daemon") - status_cpu(result->before, "daemon");
        if (workers)
                seconds += status_cpu(result->after, "workers") - status_cpu(result->before, "workers");
        return json_real(seconds);
}

static json_int_t prepared_of(const json_t *status, const char *pipeline) {
        size_t index;
        json_t *p;

        json_array_foreach(json_object_get(status, "pipelines"), index, p) {
                const char *name = json_string_value(json_object_get(p, "name"));

                if (name && strcmp(name, pipeline) == 0)
                        return json_integer_value(json_object_get(p, "rows_prepared"));
        }
        return 0;
}

static json_t *result_prepared(const struct result *result, const char *pipeline) {
        if (!result->before || !result->after)
                return json_null();
        return json_integer(prepared_of(result->after, pipeline) - prepared_of(result->before, pipeline));
}

static json_t *result_to_json(const struct result *result, const struct bench *bench) {
        return json_pack("{s:I, s:f, s:I, s:f, s:I, s:I, s:f, s:o, s:o, s:o, s:o}", "jobs",
                         (json_int_t)bench->jobs, "seconds", result->seconds, "rows",
                         (json_int_t)result->rows, "rows_per_second",
                         result->seconds > 0 ? (double)result->rows / result->seconds : 0.0, "batches",
                         (json_int_t)result->batches, "bytes", (json_int_t)result->bytes, "first_batch_ms",
                         result->first_batch_ms, "cpu_seconds", result_cpu(result, true),
                         "cpu_seconds_daemon", result_cpu(result, false), "rows_prepared",
                         result_prepared(result, bench->pipeline), "handover_us", result_handover(result));
}

static double json_real_at(const json_t *json, const char *outer, const char *inner) {
        return json_number_value(json_object_get(json_object_get(json, outer), inner));
}

static void print_for_people(const json_t *json) {
        char rows[NUMBER_TEXT_MAX], prepared[NUMBER_TEXT_MAX], batches[NUMBER_TEXT_MAX],
                rate[NUMBER_TEXT_MAX];
        char bytes[NUMBER_TEXT_MAX];
        json_int_t n = json_integer_value(json_object_get(json, "rows"));
        double cpu = json_number_value(json_object_get(json, "cpu_seconds"));
        double cpu_daemon = json_number_value(json_object_get(json, "cpu_seconds_daemon"));

        printf("jobs         %lld, %.2f s\n", (long long)json_integer_value(json_object_get(json, "jobs")),
               json_number_value(json_object_get(json, "seconds")));
        printf("rows         %s in %s batches, %s\n", number_format_count(rows, (uint64_t)n),
               number_format_count(batches, (uint64_t)json_integer_value(json_object_get(json, "batches"))),
               number_format_bytes(bytes, (uint64_t)json_integer_value(json_object_get(json, "bytes"))));
        printf("rows/s       %s\n",
               number_format_count(
                       rate, (uint64_t)(json_number_value(json_object_get(json, "rows_per_second")) + 0.5)));
        printf("first batch  %.1f ms after attaching\n",
               json_number_value(json_object_get(json, "first_batch_ms")));
        if (!json_is_null(json_object_get(json, "rows_prepared"))) {
                json_int_t made = json_integer_value(json_object_get(json, "rows_prepared"));

                printf("prepared     %s rows", number_format_count(prepared, (uint64_t)made));
                printf(made > 0 ? ", each delivered %.2f times\n" : "\n",
                       made > 0 ? (double)n / (double)made : 0.0);
                printf("CPU          daemon %.2f s, workers %.2f s", cpu_daemon, cpu - cpu_daemon);
                if (made > 0)
                        printf(", %.1f us a prepared row", cpu * 1e6 / (double)made);
                putchar('\n');
        }
        if (!json_is_null(json_object_get(json_object_get(json, "handover_us"), "p50")))
                printf("hand-over    p50 %.1f us, p99 %.1f us\n", json_real_at(json, "handover_us", "p50"),
                       json_real_at(json, "handover_us", "p99"));
}

static int bench_run(const struct ctl *ctl, struct bench *bench, struct reader *readers,
                     struct result *result) {
        struct fault fault;
        json_t *json;
        int r = CTL_OK;

        result->before = control_ask(ctl->runtime_dir, "status", &fault);
        for (uint64_t i = 0; i < bench->jobs && r == CTL_OK; i++) {
                readers[i].bench = bench;
                r = reader_open(&readers[i], ctl, i);
        }
        ctl_live_end();
        if (r == CTL_OK)
                r = bench_read(bench, readers);
        if (r != CTL_OK)
                return r;
        result->after = control_ask(ctl->runtime_dir, "status", &fault);
        bench_sum(bench, readers, result);
        json = result_to_json(result, bench);
        if (bench->as_json)
                ctl_print_json(json);
        else
                print_for_people(json);
        json_decref(json);
        return CTL_OK;
}

int command_bench(const struct ctl *ctl, int argc, char **argv) {
        struct bench bench = {.jobs = 1, .seconds = 5};
        struct result result = {0};
        struct reader *readers;
        int r;

        r = bench_parse(ctl, &bench, argc, argv);
        if (r != CTL_OK)
                return r;
        readers = calloc(bench.jobs, sizeof(*readers));
        if (!readers)
                return ctl_fail("out of memory");
        r = bench_run(ctl, &bench, readers, &result);
        for (uint64_t i = 0; i < bench.jobs; i++) {
                pinfeed_close(readers[i].job);
                free(readers[i].handovers);
        }
        free(readers);
        free(result.handovers);
        json_decref(result.before);
        json_decref(result.after);
        return r;
}
