/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The fingerprint of what a job receives: SHA-256 over rows in order, each row its fields' bytes in schema
 * order and then its sample number. Flags are left out, and rows that pad an epoch with rows seen before;
 * what was replaced and what was left out is counted beside.
 *
 * The job attaches like any other, with a short last batch whatever the pipeline says unless another is asked
 * for, so that every row of the epoch comes to one of the ranks. It ends with the epoch, or as soon as no
 * batch that is still to come has a row that was asked for. */

#include "client/ctl/ctl.h"

#include "base/number.h"
#include "client/pinfeed.h"

#include <endian.h>
#include <getopt.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        DIGEST_FIELDS_MAX = 16,
};

struct digest {
        const char *pipeline;
        uint64_t seed;
        bool seed_given;
        uint64_t epoch;
        uint64_t first;
        uint64_t end; /* UINT64_MAX: the epoch's end */
        uint64_t rank;
        uint64_t world_size;
        uint64_t batch_size; /* 0: the pipeline's */
        uint32_t last_batch; /* enum pinfeed_last_batch */

        uint64_t row; /* the next one */
        uint64_t rows;
        uint64_t replaced;
        uint64_t padding;
        struct sha256_ctx sha256;
};

/* A:B, A:, :B */
static int digest_parse_rows(const struct ctl *ctl, struct digest *digest, const char *text) {
        const char *colon = strchr(text, ':');
        char first[32] = "0";

        if (!colon || (size_t)(colon - text) >= sizeof(first))
                return ctl_usage(ctl, "--rows: expected A:B, got \"%s\"", text);
        if (colon > text)
                snprintf(first, sizeof(first), "%.*s", (int)(colon - text), text);
        if (number_parse_u64(first, &digest->first) < 0 ||
            (colon[1] && number_parse_u64(colon + 1, &digest->end) < 0) || digest->first >= digest->end)
                return ctl_usage(ctl, "--rows: expected A:B with A less than B, got \"%s\"", text);
        return CTL_OK;
}

static int digest_parse_last_batch(const struct ctl *ctl, struct digest *digest, const char *text) {
        static const char *const names[] = {[PINFEED_LAST_BATCH_SHORT] = "short",
                                            [PINFEED_LAST_BATCH_DROP] = "drop",
                                            [PINFEED_LAST_BATCH_PAD] = "pad"};

        for (uint32_t i = PINFEED_LAST_BATCH_SHORT; i <= PINFEED_LAST_BATCH_PAD; i++) {
                if (strcmp(text, names[i]) != 0)
                        continue;
                digest->last_batch = i;
                return CTL_OK;
        }
        return ctl_usage(ctl, "--last-batch: expected short, drop or pad, got \"%s\"", text);
}

static int digest_parse(const struct ctl *ctl, struct digest *digest, int argc, char **argv) {
        static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                                {"epoch", required_argument, NULL, 'e'},
                                                {"rows", required_argument, NULL, 'r'},
                                                {"rank", required_argument, NULL, 'R'},
                                                {"world-size", required_argument, NULL, 'W'},
                                                {"batch-size", required_argument, NULL, 'b'},
                                                {"last-batch", required_argument, NULL, 'l'},
                                                {"help", no_argument, NULL, 'h'},
                                                {0}};
        int c, r = CTL_OK;

        while (r == CTL_OK && (c = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
                switch (c) {
                case 'h':
                        ctl_help(ctl);
                        exit(CTL_OK);
                case 's':
                        digest->seed_given = true;
                        r = ctl_number(ctl, "--seed", optarg, 0, UINT64_MAX, &digest->seed);
                        break;
                case 'e':
                        r = ctl_number(ctl, "--epoch", optarg, 0, UINT32_MAX, &digest->epoch);
                        break;
                case 'r':
                        r = digest_parse_rows(ctl, digest, optarg);
                        break;
                case 'R':
                        r = ctl_number(ctl, "--rank", optarg, 0, UINT32_MAX, &digest->rank);
                        break;
                case 'W':
                        r = ctl_number(ctl, "--world-size", optarg, 1, UINT32_MAX, &digest->world_size);
                        break;
                case 'b':
                        r = ctl_number(ctl, "--batch-size", optarg, 1, INT32_MAX, &digest->batch_size);
                        break;
                case 'l':
                        r = digest_parse_last_batch(ctl, digest, optarg);
                        break;
                default:
                        r = ctl_usage(ctl, NULL);
                }
        }
        if (r != CTL_OK)
                return r;
        if (argc - optind != 1)
                return ctl_usage(ctl, "expected one pipeline");
        if (digest->rank >= digest->world_size)
                return ctl_usage(ctl, "--rank: expected from 0 to %llu (--world-size is %llu), got %llu",
                                 (unsigned long long)digest->world_size - 1,
                                 (unsigned long long)digest->world_size, (unsigned long long)digest->rank);
        digest->pipeline = argv[optind];
        return CTL_OK;
}

static void digest_segment(struct digest *digest, const struct pinfeed_job *job,
                           const struct pinfeed_batch *batch, uint32_t segment) {
        const uint8_t *data[DIGEST_FIELDS_MAX];
        struct pinfeed_field fields[DIGEST_FIELDS_MAX];
        uint32_t n_fields = 0, rows;
        const int64_t *ids = pinfeed_batch_ids(batch, segment, &rows);
        const uint8_t *flags = pinfeed_batch_flags(batch, segment, NULL);

        while (n_fields < DIGEST_FIELDS_MAX && pinfeed_job_field(job, n_fields, &fields[n_fields]) == 0) {
                data[n_fields] = pinfeed_batch_data(batch, segment, n_fields, NULL);
                n_fields++;
        }
        for (uint32_t i = 0; i < rows; i++, digest->row++) {
                uint64_t id = htole64((uint64_t)ids[i]);

                digest->padding += flags[i] == PINFEED_ROW_PADDING;
                if (flags[i] == PINFEED_ROW_PADDING || digest->row >= digest->end)
                        continue;
                for (uint32_t f = 0; f < n_fields; f++)
                        sha256_update(&digest->sha256, fields[f].row_bytes,
                                      data[f] + i * fields[f].row_bytes);
                sha256_update(&digest->sha256, sizeof(id), (const uint8_t *)&id);
                digest->rows++;
                digest->replaced += flags[i] == PINFEED_ROW_REPLACED;
        }
}

/* 0, or what pinfeed_next said. */
static int digest_read(struct digest *digest, struct pinfeed_job *job) {
        struct pinfeed_batch *batch;
        int r = 1;

        while (digest->row < digest->end && (r = pinfeed_next(job, &batch)) > 0) {
                digest->row = pinfeed_batch_row(batch);
                for (uint32_t i = 0; i < pinfeed_batch_segments(batch); i++)
                        digest_segment(digest, job, batch, i);
                pinfeed_batch_release(batch);
                ctl_live("%llu of %llu rows", (unsigned long long)(digest->row - digest->first),
                         (unsigned long long)(digest->end - digest->first));
        }
        ctl_live_end();
        return r < 0 ? r : 0;
}

/* SHA-256 and whether it is clean, then what it is of. */
static void digest_print(struct digest *digest, const struct pinfeed_info *info) {
        uint8_t sum[SHA256_DIGEST_SIZE];

        sha256_digest(&digest->sha256, sizeof(sum), sum);
        for (size_t i = 0; i < sizeof(sum); i++)
                printf("%02x", sum[i]);
        if (digest->replaced)
                printf("  %llu replaced\n", (unsigned long long)digest->replaced);
        else
                printf("  clean\n");
        printf("%llu rows, %llu:%llu of %llu, epoch %llu, seed %llu", (unsigned long long)digest->rows,
               (unsigned long long)digest->first, (unsigned long long)digest->end,
               (unsigned long long)info->samples, (unsigned long long)digest->epoch,
               (unsigned long long)info->seed);
        if (info->world_size > 1)
                printf(", rank %u of %u", info->rank, info->world_size);
        if (digest->padding)
                printf(", %llu row%s of padding left out", (unsigned long long)digest->padding,
                       digest->padding == 1 ? "" : "s");
        putchar('\n');
}

/* Reads what was asked for from an attached job. An exit code. */
static int digest_job(struct digest *digest, struct pinfeed_job *job) {
        struct pinfeed_info info;

        pinfeed_job_info(job, &info);
        if (digest->end == UINT64_MAX)
                digest->end = info.samples;
        if (digest->end > info.samples)
                return ctl_fail("--rows: an epoch of %s has %llu rows, up to %llu were asked for",
                                digest->pipeline, (unsigned long long)info.samples,
                                (unsigned long long)digest->end);
        digest->row = digest->first;
        sha256_init(&digest->sha256);
        if (digest_read(digest, job) < 0)
                return ctl_fail_job(job, digest->pipeline);
        digest_print(digest, &info);
        return CTL_OK;
}

int command_digest(const struct ctl *ctl, int argc, char **argv) {
        struct digest digest = {.end = UINT64_MAX, .world_size = 1, .last_batch = PINFEED_LAST_BATCH_SHORT};
        struct pinfeed_attach attach = {.size = sizeof(attach)};
        struct pinfeed_job *job;
        int r;

        r = digest_parse(ctl, &digest, argc, argv);
        if (r != CTL_OK)
                return r;
        attach.pipeline = digest.pipeline;
        attach.runtime_dir = ctl->runtime_dir;
        attach.name = "pinfeedctl digest";
        attach.start_epoch = (uint32_t)digest.epoch;
        attach.start_row = digest.first;
        attach.rank = (uint32_t)digest.rank;
        attach.world_size = (uint32_t)digest.world_size;
        attach.batch_size = (uint32_t)digest.batch_size;
        attach.last_batch = digest.last_batch;
        attach.seed = digest.seed;
        attach.seed_given = digest.seed_given;
        attach.progress = ctl_progress;

        r = pinfeed_open(&job, &attach);
        ctl_live_end();
        r = r == 0 ? digest_job(&digest, job) : ctl_fail_job(job, digest.pipeline);
        pinfeed_close(job);
        return r;
}
