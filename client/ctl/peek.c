/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One batch as a picture. peek attaches like any job, at the row that was asked for, takes the batch that
 * comes, and leaves when it is drawn: what is seen is what a job gets, bytes of the ring and not of files. So
 * it needs to be told what the bytes mean: the schema says which field is an image and which a label, and the
 * daemon how values came from pixels and what classes are called (`legend` on the control socket).
 *
 * A dataset in Python has no recipe that could be undone. A field of it that looks like an image is drawn,
 * its smallest value black and its largest white, and the sheet says so.
 *
 * What is drawn of a batch is counted before it is drawn: its first rows, as many as a sheet has room for. */

#include "client/ctl/ctl.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/number.h"
#include "client/ctl/picture.h"
#include "client/ctl/png.h"
#include "client/ctl/sheet.h"
#include "client/pinfeed.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        NO_FIELD = UINT32_MAX,
        TEXT_MAX = 256,
};

struct peek_row {
        const uint8_t *values;
        int64_t label;
        int64_t sample;
        uint8_t flag; /* enum pinfeed_row_flag */
};

struct peek {
        const struct ctl *ctl;
        const char *pipeline;
        const char *out;
        uint64_t epoch;
        uint64_t row;
        uint64_t seed;
        bool seed_given;

        struct pinfeed_field field; /* the image */
        struct picture picture;
        uint32_t images, labels; /* fields; labels may be NO_FIELD */
        struct picture_levels levels;
        char range[TEXT_MAX]; /* of values, for the heading; "": levels are known without */
        json_t *legend;
        struct peek_row rows[SHEET_PICTURES_MAX];
        uint32_t n_rows;
        uint32_t batch_rows;
        uint32_t n_replaced, n_padding; /* of those drawn */
        uint64_t first;                 /* row of the epoch */
};

/* ---- the command line ---- */

static int peek_check_out(const struct peek *peek) {
        bool is_stdout = peek->out && strcmp(peek->out, "-") == 0;
        struct fault fault;

        if (!peek->out)
                return ctl_usage(peek->ctl, "expected --out FILE.png, where the picture is to go");
        if (is_stdout && isatty(STDOUT_FILENO))
                return ctl_usage(peek->ctl,
                                 "--out -: standard output is a terminal, which shows no pictures; "
                                 "name a file");
        if (!is_stdout && png_check_path(peek->out, &fault) < 0)
                return ctl_fail("--out: %s", fault.text);
        return CTL_OK;
}

static int peek_parse(struct peek *peek, int argc, char **argv) {
        static const struct option options[] = {
                {"epoch", required_argument, NULL, 'e'}, {"row", required_argument, NULL, 'r'},
                {"seed", required_argument, NULL, 's'},  {"out", required_argument, NULL, 'o'},
                {"help", no_argument, NULL, 'h'},        {0}};
        int c, r = CTL_OK;

        while (r == CTL_OK && (c = getopt_long(argc, argv, "ho:", options, NULL)) >= 0) {
                switch (c) {
                case 'h':
                        ctl_help(peek->ctl);
                        exit(CTL_OK);
                case 'e':
                        r = ctl_number(peek->ctl, "--epoch", optarg, 0, UINT32_MAX, &peek->epoch);
                        break;
                case 'r':
                        r = ctl_number(peek->ctl, "--row", optarg, 0, UINT64_MAX, &peek->row);
                        break;
                case 's':
                        peek->seed_given = true;
                        r = ctl_number(peek->ctl, "--seed", optarg, 0, UINT64_MAX, &peek->seed);
                        break;
                case 'o':
                        peek->out = optarg;
                        break;
                default:
                        r = ctl_usage(peek->ctl, NULL);
                }
        }
        if (r != CTL_OK)
                return r;
        if (argc - optind != 1)
                return ctl_usage(peek->ctl, "expected one pipeline");
        peek->pipeline = argv[optind];
        return peek_check_out(peek);
}

/* ---- which fields ---- */

static const char *dtype_name(enum pinfeed_dtype dtype) {
        static const char *const names[] = {
                [PINFEED_UINT8] = "uint8",     [PINFEED_INT32] = "int32",       [PINFEED_INT64] = "int64",
                [PINFEED_FLOAT16] = "float16", [PINFEED_BFLOAT16] = "bfloat16", [PINFEED_FLOAT32] = "float32",
                [PINFEED_FLOAT64] = "float64"};

        return names[dtype];
}

/* "image float32[3,224,224], label int64[]", cut where it does not fit. */
static void name_fields(const struct pinfeed_job *job, char *text, size_t size) {
        struct pinfeed_field field;
        FILE *stream = fmemopen(text, size - 1, "w"); /* which ends the text only where there is room */

        memset(text, 0, size);
        for (uint32_t i = 0; stream && pinfeed_job_field(job, i, &field) == 0; i++) {
                fprintf(stream, "%s%s %s[", i ? ", " : "", field.name, dtype_name(field.dtype));
                for (uint32_t k = 0; k < field.n_dims; k++)
                        fprintf(stream, "%s%llu", k ? "," : "", (unsigned long long)field.shape[k]);
                fputc(']', stream);
        }
        if (stream)
                fclose(stream);
}

/* The first image, and the first whole number that a row has one of. */
static int peek_find_fields(struct peek *peek, const struct pinfeed_job *job) {
        struct pinfeed_field field;
        char text[4 * TEXT_MAX];

        peek->images = peek->labels = NO_FIELD;
        for (uint32_t i = 0; pinfeed_job_field(job, i, &field) == 0; i++) {
                bool is_label =
                        field.n_dims == 0 && (field.dtype == PINFEED_INT64 || field.dtype == PINFEED_INT32);

                if (is_label && peek->labels == NO_FIELD)
                        peek->labels = i;
                if (peek->images == NO_FIELD && picture_init(&peek->picture, &field)) {
                        peek->images = i;
                        peek->field = field;
                }
        }
        if (peek->images != NO_FIELD)
                return CTL_OK;
        name_fields(job, text, sizeof(text));
        return ctl_fail(
                "pipeline %s has no images: no field is uint8 or a float, of three dimensions with 1 or 3 "
                "channels; its fields are %s",
                peek->pipeline, text);
}

/* ---- the batch ---- */

static int64_t label_at(enum pinfeed_dtype dtype, const void *labels, uint32_t row) {
        return dtype == PINFEED_INT32 ? ((const int32_t *)labels)[row] : ((const int64_t *)labels)[row];
}

static void peek_take_segment(struct peek *peek, const struct pinfeed_job *job,
                              const struct pinfeed_batch *batch, uint32_t segment) {
        uint32_t n;
        const int64_t *samples = pinfeed_batch_ids(batch, segment, &n);
        const uint8_t *flags = pinfeed_batch_flags(batch, segment, NULL);
        const uint8_t *values = pinfeed_batch_data(batch, segment, peek->images, NULL);
        const void *labels = pinfeed_batch_data(batch, segment, peek->labels, NULL);
        struct pinfeed_field field = {};

        (void)pinfeed_job_field(job, peek->labels, &field);
        for (uint32_t i = 0; i < n && peek->n_rows < SHEET_PICTURES_MAX; i++) {
                peek->rows[peek->n_rows++] =
                        (struct peek_row){.values = values + i * peek->field.row_bytes,
                                          .label = labels ? label_at(field.dtype, labels, i) : 0,
                                          .sample = samples[i],
                                          .flag = flags[i]};
                peek->n_replaced += flags[i] == PINFEED_ROW_REPLACED;
                peek->n_padding += flags[i] == PINFEED_ROW_PADDING;
        }
}

static void peek_take(struct peek *peek, const struct pinfeed_job *job, const struct pinfeed_batch *batch) {
        peek->first = pinfeed_batch_row(batch);
        peek->batch_rows = pinfeed_batch_rows(batch);
        for (uint32_t i = 0; i < pinfeed_batch_segments(batch); i++)
                peek_take_segment(peek, job, batch, i);
}

/* ---- what it means ---- */

static int peek_ask_legend(struct peek *peek) {
        json_t *labels = json_array(), *request;
        _cleanup_(freep) char *text = NULL;
        struct fault fault;

        for (uint32_t i = 0; i < peek->n_rows && peek->labels != NO_FIELD; i++)
                json_array_append_new(labels, json_integer(peek->rows[i].label));
        request = json_pack("{s:s, s:s, s:o}", "command", "legend", "pipeline", peek->pipeline, "labels",
                            labels);
        text = request ? json_dumps(request, JSON_COMPACT) : NULL;
        json_decref(request);
        if (!text)
                return ctl_fail("out of memory");
        peek->legend = control_ask(peek->ctl->runtime_dir, text, &fault);
        return peek->legend ? CTL_OK : ctl_fail("%s", fault.text);
}

/* False: there are no such three numbers. */
static bool read_triple(const json_t *object, const char *name, double triple[PICTURE_CHANNELS]) {
        const json_t *array = json_object_get(object, name);

        for (size_t i = 0; i < PICTURE_CHANNELS; i++)
                triple[i] = json_number_value(json_array_get(array, i));
        return json_array_size(array) == PICTURE_CHANNELS;
}

/* Over all that will be drawn, so that pictures can be compared. */
static void peek_spread_levels(struct peek *peek) {
        double least = (double)INFINITY, most = -(double)INFINITY;

        for (uint32_t i = 0; i < peek->n_rows; i++)
                picture_find_range(&peek->picture, peek->rows[i].values, &least, &most);
        picture_levels_between(&peek->levels, least, most);
        if (most >= least)
                snprintf(peek->range, sizeof(peek->range), ", black is %.3g, white %.3g", least, most);
}

static void peek_choose_levels(struct peek *peek) {
        const json_t *pixels = json_object_get(peek->legend, "pixels");
        double mean[PICTURE_CHANNELS], std[PICTURE_CHANNELS];

        if (peek->field.dtype == PINFEED_UINT8)
                picture_levels_plain(&peek->levels);
        else if (read_triple(pixels, "mean", mean) && read_triple(pixels, "std", std))
                picture_levels_normalized(&peek->levels, mean, std);
        else
                peek_spread_levels(peek);
}

/* ---- drawing ---- */

/* ", 1 replaced, 3 of padding" */
static const char *peek_count_marked(const struct peek *peek, char text[TEXT_MAX]) {
        size_t n = 0;

        *text = 0;
        if (peek->n_replaced)
                n = (size_t)snprintf(text, TEXT_MAX, ", %u replaced", peek->n_replaced);
        if (peek->n_padding)
                snprintf(text + n, TEXT_MAX - n, ", %u of padding", peek->n_padding);
        return text;
}

static void peek_make_headings(const struct peek *peek, char lines[SHEET_HEADINGS][TEXT_MAX]) {
        const struct picture *picture = &peek->picture;
        uint32_t n = peek->n_rows - peek->n_padding; /* what pads are rows of the epoch's beginning */
        char marked[TEXT_MAX];

        snprintf(lines[0], TEXT_MAX, "%s, epoch %llu, row%s %llu", peek->pipeline,
                 (unsigned long long)peek->epoch, ctl_plural(n), (unsigned long long)peek->first);
        if (n > 1)
                snprintf(lines[0] + strlen(lines[0]), TEXT_MAX - strlen(lines[0]), " to %llu",
                         (unsigned long long)peek->first + n - 1);
        snprintf(lines[1], TEXT_MAX, "%u of %u row%s, %u x %u %s%s%s", peek->n_rows, peek->batch_rows,
                 ctl_plural(peek->batch_rows), picture->width, picture->height, dtype_name(picture->dtype),
                 peek->range, peek_count_marked(peek, marked));
}

static void peek_draw_row(const struct peek *peek, struct sheet *sheet, uint32_t place, uint8_t *pixels) {
        const struct peek_row *row = &peek->rows[place];
        const char *class =
                json_string_value(json_array_get(json_object_get(peek->legend, "classes"), place));
        char label[NUMBER_TEXT_MAX], number[NUMBER_TEXT_MAX];

        snprintf(label, sizeof(label), "%lld", (long long)row->label);
        snprintf(number, sizeof(number), "%lld", (long long)row->sample);
        picture_draw(&peek->picture, &peek->levels, row->values, pixels);
        sheet_draw(sheet, place, pixels,
                   &(struct sheet_caption){.name = peek->labels == NO_FIELD ? NULL
                                                   : class                  ? class
                                                                            : label,
                                           .number = number,
                                           .mark = row->flag == PINFEED_ROW_REPLACED  ? SHEET_REPLACED
                                                   : row->flag == PINFEED_ROW_PADDING ? SHEET_PADDING
                                                                                      : SHEET_PLAIN});
}

/* 0 or -ENOMEM. */
static int peek_draw(const struct peek *peek, struct sheet *sheet) {
        const struct picture *picture = &peek->picture;
        _cleanup_(freep) uint8_t *pixels = NULL;
        char lines[SHEET_HEADINGS][TEXT_MAX];
        size_t letters = 0;

        peek_make_headings(peek, lines);
        for (uint32_t i = 0; i < SHEET_HEADINGS; i++)
                letters = strlen(lines[i]) > letters ? strlen(lines[i]) : letters;
        pixels = malloc((size_t)picture->width * picture->height * PICTURE_CHANNELS);
        if (!pixels ||
            sheet_init(sheet, peek->n_rows, picture->width, picture->height, (uint32_t)letters) < 0)
                return -ENOMEM;
        for (uint32_t i = 0; i < SHEET_HEADINGS; i++)
                sheet_write_heading(sheet, i, lines[i]);
        for (uint32_t i = 0; i < peek->n_rows; i++)
                peek_draw_row(peek, sheet, i, pixels);
        return 0;
}

/* ---- the file ---- */

static int peek_write(const struct peek *peek, const struct sheet *sheet) {
        bool is_stdout = strcmp(peek->out, "-") == 0;
        _cleanup_(freep) void *bytes = NULL;
        char marked[TEXT_MAX];
        struct fault fault;
        size_t n;

        if (png_encode(sheet->pixels, sheet->width, sheet->height, &bytes, &n, &fault) < 0)
                return ctl_fail("%s", fault.text);
        if (is_stdout && (fwrite(bytes, 1, n, stdout) != n || fflush(stdout) != 0))
                return CTL_FAILED; /* main says so */
        if (!is_stdout && png_write_file(peek->out, bytes, n, &fault) < 0)
                return ctl_fail("--out: %s", fault.text);
        fprintf(is_stdout ? stderr : stdout, "wrote %s: %u of %u row%s of epoch %llu%s\n",
                is_stdout ? "standard output" : peek->out, peek->n_rows, peek->batch_rows,
                ctl_plural(peek->batch_rows), (unsigned long long)peek->epoch,
                peek_count_marked(peek, marked));
        return CTL_OK;
}

static int peek_show(struct peek *peek) {
        struct sheet sheet = {};
        int r = peek_ask_legend(peek);

        if (r != CTL_OK)
                return r;
        peek_choose_levels(peek);
        r = peek_draw(peek, &sheet) < 0 ? ctl_fail("no memory to draw the pictures")
                                        : peek_write(peek, &sheet);
        sheet_deinit(&sheet);
        return r;
}

/* ---- the job ---- */

/* An epoch of which `drop` leaves nothing from that row on. */
static int fail_dropped(const struct peek *peek, const struct pinfeed_job *job) {
        struct pinfeed_info info;

        pinfeed_job_info(job, &info);
        return ctl_fail(
                "--row: from row %llu on an epoch of %s has no whole batch of %u rows, and last_batch: drop "
                "leaves out what is less; the last one begins at row %llu",
                (unsigned long long)peek->row, peek->pipeline, info.batch_size,
                (unsigned long long)info.samples - info.batch_size);
}

static int peek_job(struct peek *peek, struct pinfeed_job *job) {
        struct pinfeed_batch *batch;
        int r = peek_find_fields(peek, job);

        if (r != CTL_OK)
                return r;
        r = pinfeed_next(job, &batch);
        if (r < 0)
                return ctl_fail_job(job, peek->pipeline);
        if (r == 0)
                return fail_dropped(peek, job);
        peek_take(peek, job, batch);
        r = peek_show(peek);
        pinfeed_batch_release(batch);
        return r;
}

/* What the daemon calls start_row was asked for as --row. */
static int peek_refused(const struct peek *peek, const struct pinfeed_job *job) {
        static const char own[] = "start_row: ";
        const char *reason = job ? strstr(pinfeed_error(job), own) : NULL;

        return reason ? ctl_fail("--row: %s", reason + strlen(own)) : ctl_fail_job(job, peek->pipeline);
}

int command_peek(const struct ctl *ctl, int argc, char **argv) {
        struct peek peek = {.ctl = ctl};
        struct pinfeed_attach attach = {.size = sizeof(attach)};
        struct pinfeed_job *job;
        int r;

        r = peek_parse(&peek, argc, argv);
        if (r != CTL_OK)
                return r;
        attach.pipeline = peek.pipeline;
        attach.runtime_dir = ctl->runtime_dir;
        attach.name = "pinfeedctl peek";
        attach.max_held_batches = 1;
        attach.start_epoch = (uint32_t)peek.epoch;
        attach.start_row = peek.row;
        attach.seed = peek.seed;
        attach.seed_given = peek.seed_given;
        attach.progress = ctl_progress;

        r = pinfeed_open(&job, &attach);
        ctl_live_end();
        r = r == 0 ? peek_job(&peek, job) : peek_refused(&peek, job);
        pinfeed_close(job);
        json_decref(peek.legend);
        return r;
}
