#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Every message, once: structs, encoder, decoder, names and limits are made from this table. Prose:
 * PROTOCOL.md. */

#include "proto/schema.h"

/* Fields are F(kind, name, least, most):
 *   U8 U16 U32 U64   a whole number in [least, most]
 *   TEXT             UTF-8 without NUL, least to most bytes; a terminated char array
 *   BLOB             exactly `most` bytes
 *   U64S             a list of least to most numbers: n_NAME and NAME[]
 *   LIST             a list of least to most entries of `struct message_NAME`: n_NAME and NAME[] */

#define MESSAGE_U8_MAX  UINT8_MAX
#define MESSAGE_U16_MAX UINT16_MAX
#define MESSAGE_U32_MAX UINT32_MAX
#define MESSAGE_U64_MAX UINT64_MAX

enum {
        MESSAGE_NAME_MAX = 64,
        MESSAGE_TEXT_MAX = 1000, /* = FAULT_TEXT_MAX */
        MESSAGE_FILE_MAX = 512,
        MESSAGE_RECIPE_MAX = 16384,
        MESSAGE_BATCHES_MAX = 256,
        MESSAGE_SEGMENTS_MAX = 512,
        MESSAGE_RELEASES_MAX = 512,
        MESSAGE_CHUNKS_MAX = 64,
        MESSAGE_CONDEMNED_MAX = 512,
        MESSAGE_SLOTS_MAX = 1 << 20,
        MESSAGE_FINGERPRINT_MAX = 96,
        MESSAGE_DEFINITION_MAX = 49152, /* of all DEFINEs of a job */
        MESSAGE_DEFINE_MAX = 16384,     /* of one: a text for each makes struct message no larger */
        MESSAGE_TYPE_MAX = 128,
        MESSAGE_TRACEBACK_MAX = 16384,
        MESSAGE_FIELDS_MAX = 4096,
        MESSAGE_LAYOUT_MAX = 16384,
};

#define MESSAGE_ROWS_MAX    INT32_MAX           /* rows of a batch or slot */
#define MESSAGE_SAMPLES_MAX (UINT64_C(1) << 48) /* what random.h's counter holds */
#define MESSAGE_PADDED_MAX  (UINT64_C(1) << 52) /* rows of padded batches: POSITION_ROW_MAX */

/* Entries of lists: E(name, FIELDS). */
#define MESSAGE_ENTRIES(E)                                                                                   \
        E(field, MESSAGE_FIELD_ENTRY)                                                                        \
        E(batch, MESSAGE_BATCH_ENTRY)                                                                        \
        E(segment, MESSAGE_SEGMENT_ENTRY)                                                                    \
        E(chunk, MESSAGE_CHUNK_ENTRY)                                                                        \
        E(part, MESSAGE_PART_ENTRY)

#define MESSAGE_FIELD_ENTRY(F)                                                                               \
        F(TEXT, name, 1, SCHEMA_NAME_MAX)                                                                    \
        F(U8, dtype, 1, 7)                                                                                   \
        F(U8, order, 0, 1)                                                                                   \
        F(U8, kind, 0, 0)                                                                                    \
        F(U64S, shape, 0, SCHEMA_DIMS_MAX)                                                                   \
        F(U64, offset, 0, MESSAGE_U64_MAX)                                                                   \
        F(U64, capacity, 0, MESSAGE_U64_MAX)

#define MESSAGE_BATCH_ENTRY(F)                                                                               \
        F(U64, number, 0, MESSAGE_U64_MAX)                                                                   \
        F(U64, row, 0, MESSAGE_PADDED_MAX)                                                                   \
        F(U32, epoch, 0, MESSAGE_U32_MAX)                                                                    \
        F(U32, rows, 1, MESSAGE_ROWS_MAX)                                                                    \
        F(U16, segments, 1, MESSAGE_SEGMENTS_MAX)                                                            \
        F(U16, flags, 0, 0)                                                                                  \
        F(U64, ready_ns, 0, MESSAGE_U64_MAX)

#define MESSAGE_SEGMENT_ENTRY(F)                                                                             \
        F(U32, slot, 0, MESSAGE_SLOTS_MAX - 1)                                                               \
        F(U32, first, 0, MESSAGE_ROWS_MAX)                                                                   \
        F(U32, rows, 1, MESSAGE_ROWS_MAX)                                                                    \
        F(U32, flags, 0, 1)

#define MESSAGE_CHUNK_ENTRY(F)                                                                               \
        F(U64, row, 0, MESSAGE_SAMPLES_MAX)                                                                  \
        F(U64, seed, 0, MESSAGE_U64_MAX)                                                                     \
        F(U32, epoch, 0, MESSAGE_U32_MAX)                                                                    \
        F(U32, slot, 0, MESSAGE_SLOTS_MAX - 1)                                                               \
        F(U32, first, 0, MESSAGE_ROWS_MAX)                                                                   \
        F(U32, rows, 1, MESSAGE_ROWS_MAX)

#define MESSAGE_PART_ENTRY(F)                                                                                \
        F(U32, slot, 0, MESSAGE_SLOTS_MAX - 1)                                                               \
        F(U32, first, 0, MESSAGE_ROWS_MAX)                                                                   \
        F(U32, rows, 1, MESSAGE_ROWS_MAX)                                                                    \
        F(U32, flags, 0, 1)                                                                                  \
        F(U64, busy_ns, 0, MESSAGE_U64_MAX)                                                                  \
        F(U64, done_ns, 0, MESSAGE_U64_MAX)

#define MESSAGE_HELLO_FIELDS(F)                                                                              \
        F(U16, major, 0, MESSAGE_U16_MAX)                                                                    \
        F(U16, minor, 0, MESSAGE_U16_MAX)                                                                    \
        F(TEXT, program, 0, MESSAGE_NAME_MAX)

#define MESSAGE_REFUSED_FIELDS(F)                                                                            \
        F(U16, error, 1, 4095)                                                                               \
        F(TEXT, text, 1, MESSAGE_TEXT_MAX)

#define MESSAGE_ATTACH_FIELDS(F)                                                                             \
        F(TEXT, pipeline, 0, MESSAGE_NAME_MAX)                                                               \
        F(TEXT, name, 0, MESSAGE_NAME_MAX)                                                                   \
        F(TEXT, group, 0, MESSAGE_NAME_MAX)                                                                  \
        F(U8, seed_given, 0, 1)                                                                              \
        F(U64, seed, 0, MESSAGE_U64_MAX)                                                                     \
        F(U32, start_epoch, 0, MESSAGE_U32_MAX)                                                              \
        F(U64, start_row, 0, MESSAGE_SAMPLES_MAX)                                                            \
        F(U32, batch_size, 0, MESSAGE_ROWS_MAX)                                                              \
        F(U32, rank, 0, MESSAGE_U32_MAX)                                                                     \
        F(U32, world_size, 1, MESSAGE_U32_MAX)                                                               \
        F(U8, last_batch, 0, 3)                                                                              \
        F(U32, max_held, 1, MESSAGE_SLOTS_MAX)                                                               \
        F(U32, flags, 0, 0)                                                                                  \
        F(U8, state_given, 0, 1)                                                                             \
        F(U8, force, 0, 1)                                                                                   \
        F(U64, state_seed, 0, MESSAGE_U64_MAX)                                                               \
        F(TEXT, fingerprint, 0, MESSAGE_FINGERPRINT_MAX)                                                     \
        F(U8, start, 0, 1)                                                                                   \
        F(U32, gather, 0, MESSAGE_SLOTS_MAX)                                                                 \
        F(U32, gather_ms, 0, MESSAGE_U32_MAX)                                                                \
        F(U32, group_size, 0, MESSAGE_U32_MAX)                                                               \
        F(U32, group_ms, 0, MESSAGE_U32_MAX)                                                                 \
        F(U8, duplicate_rank, 0, 1)                                                                          \
        F(U8, begun, 0, 1)                                                                                   \
        F(U8, map, 0, 2)

#define MESSAGE_PROGRESS_FIELDS(F)                                                                           \
        F(U8, stage, 1, 5)                                                                                   \
        F(U64, done, 0, MESSAGE_U64_MAX)                                                                     \
        F(U64, total, 0, MESSAGE_U64_MAX)

#define MESSAGE_ATTACHED_FIELDS(F)                                                                           \
        F(U32, job, 1, MESSAGE_U32_MAX)                                                                      \
        F(U64, samples, 1, MESSAGE_SAMPLES_MAX)                                                              \
        F(U64, seed, 0, MESSAGE_U64_MAX)                                                                     \
        F(U32, start_epoch, 0, MESSAGE_U32_MAX)                                                              \
        F(U64, start_row, 0, MESSAGE_SAMPLES_MAX)                                                            \
        F(U32, batch_size, 1, MESSAGE_ROWS_MAX)                                                              \
        F(U8, last_batch, 1, 3)                                                                              \
        F(U32, max_held, 1, MESSAGE_SLOTS_MAX)                                                               \
        F(U32, minimum, 1, MESSAGE_SLOTS_MAX)                                                                \
        F(U8, map, 1, 2)                                                                                     \
        F(U32, slots, 1, MESSAGE_SLOTS_MAX)                                                                  \
        F(U32, slot_rows, 1, MESSAGE_ROWS_MAX)                                                               \
        F(U64, slot_stride, 1, MESSAGE_U64_MAX)                                                              \
        F(U64, slot_bytes, 1, MESSAGE_U64_MAX)                                                               \
        F(U64, ids_offset, 0, MESSAGE_U64_MAX)                                                               \
        F(U64, flags_offset, 0, MESSAGE_U64_MAX)                                                             \
        F(LIST, field, 1, SCHEMA_FIELDS_MAX)                                                                 \
        F(TEXT, sharing, 0, MESSAGE_TEXT_MAX)                                                                \
        F(U32, lookahead, 0, MESSAGE_U32_MAX)                                                                \
        F(TEXT, fingerprint, 1, MESSAGE_FINGERPRINT_MAX)                                                     \
        F(TEXT, pipeline, 1, MESSAGE_NAME_MAX)                                                               \
        F(TEXT, map_reason, 0, MESSAGE_TEXT_MAX)                                                             \
        F(TEXT, layout, 0, MESSAGE_LAYOUT_MAX)                                                               \
        F(U32, pid, 0, MESSAGE_U32_MAX)

#define MESSAGE_BATCHES_FIELDS(F)                                                                            \
        F(LIST, batch, 1, MESSAGE_BATCHES_MAX)                                                               \
        F(LIST, segment, 1, MESSAGE_SEGMENTS_MAX)

#define MESSAGE_RELEASE_FIELDS(F) F(U64S, number, 1, MESSAGE_RELEASES_MAX)

#define MESSAGE_FAILED_FIELDS(F)                                                                             \
        F(U16, error, 1, 4095)                                                                               \
        F(U8, sample_given, 0, 1)                                                                            \
        F(U64, sample, 0, MESSAGE_U64_MAX)                                                                   \
        F(U32, worker, 0, MESSAGE_U32_MAX)                                                                   \
        F(U32, pid, 0, MESSAGE_U32_MAX)                                                                      \
        F(U8, signal, 0, 64)                                                                                 \
        F(U8, exit_status, 0, MESSAGE_U8_MAX)                                                                \
        F(TEXT, file, 0, MESSAGE_FILE_MAX)                                                                   \
        F(TEXT, text, 1, MESSAGE_TEXT_MAX)                                                                   \
        F(TEXT, exception, 0, MESSAGE_TYPE_MAX)                                                              \
        F(TEXT, traceback, 0, MESSAGE_TRACEBACK_MAX)

#define MESSAGE_SEEK_FIELDS(F)                                                                               \
        F(U32, epoch, 0, MESSAGE_U32_MAX)                                                                    \
        F(U64, row, 0, MESSAGE_SAMPLES_MAX)

#define MESSAGE_SOUGHT_FIELDS(F)                                                                             \
        F(U64, number, 0, MESSAGE_U64_MAX)                                                                   \
        F(U16, error, 0, 4095)                                                                               \
        F(TEXT, text, 0, MESSAGE_TEXT_MAX)

#define MESSAGE_DEFINE_FIELDS(F)                                                                             \
        F(TEXT, file, 0, MESSAGE_FILE_MAX)                                                                   \
        F(TEXT, text, 1, MESSAGE_DEFINE_MAX)

#define MESSAGE_MAPPED_FIELDS(F)                                                                             \
        F(U8, map, 1, 2)                                                                                     \
        F(U32, registered, 0, MESSAGE_SLOTS_MAX)                                                             \
        F(TEXT, reason, 0, MESSAGE_TEXT_MAX)

#define MESSAGE_READ_FIELDS(F) F(U8, flags, 0, 0)

#define MESSAGE_BRING_FIELDS(F) F(U32, pid, 1, INT32_MAX)

#define MESSAGE_ORDER_FIELDS(F)                                                                              \
        F(U64, seed, 0, MESSAGE_U64_MAX)                                                                     \
        F(U32, epoch, 0, MESSAGE_U32_MAX)                                                                    \
        F(U64, entries, 1, MESSAGE_SAMPLES_MAX)

#define MESSAGE_SETUP_FIELDS(F)                                                                              \
        F(U32, worker, 0, MESSAGE_U32_MAX)                                                                   \
        F(U8, shuffle, 0, 1)                                                                                 \
        F(U8, on_error, 0, 1)                                                                                \
        F(U8, verify, 0, 1)                                                                                  \
        F(U32, slots, 1, MESSAGE_SLOTS_MAX)                                                                  \
        F(U32, slot_rows, 1, MESSAGE_ROWS_MAX)                                                               \
        F(TEXT, recipe, 2, MESSAGE_RECIPE_MAX)                                                               \
        F(TEXT, layout, 0, MESSAGE_LAYOUT_MAX)

#define MESSAGE_SCAN_FIELDS(F) F(U8, flags, 0, 0)

#define MESSAGE_SCANNING_FIELDS(F)                                                                           \
        F(U64, files, 0, MESSAGE_U64_MAX)                                                                    \
        F(U32, classes, 0, MESSAGE_U32_MAX)

#define MESSAGE_INDEX_FIELDS(F)                                                                              \
        F(U64, samples, 0, MESSAGE_SAMPLES_MAX)                                                              \
        F(U32, classes, 0, MESSAGE_U32_MAX)                                                                  \
        F(BLOB, sha256, 0, 32)

#define MESSAGE_ASSIGN_FIELDS(F) F(LIST, chunk, 1, MESSAGE_CHUNKS_MAX)

#define MESSAGE_DONE_FIELDS(F) F(LIST, part, 1, MESSAGE_CHUNKS_MAX)

#define MESSAGE_BROKEN_FIELDS(F)                                                                             \
        F(U16, error, 1, 4095)                                                                               \
        F(U8, sample_given, 0, 1)                                                                            \
        F(U64, sample, 0, MESSAGE_U64_MAX)                                                                   \
        F(U32, slot, 0, MESSAGE_SLOTS_MAX - 1)                                                               \
        F(U32, first, 0, MESSAGE_ROWS_MAX)                                                                   \
        F(TEXT, file, 0, MESSAGE_FILE_MAX)                                                                   \
        F(TEXT, text, 1, MESSAGE_TEXT_MAX)                                                                   \
        F(TEXT, exception, 0, MESSAGE_TYPE_MAX)                                                              \
        F(TEXT, traceback, 0, MESSAGE_TRACEBACK_MAX)

#define MESSAGE_CONDEMNED_FIELDS(F) F(U64S, sample, 1, MESSAGE_CONDEMNED_MAX)

#define MESSAGE_REPLACED_FIELDS(F)                                                                           \
        F(U64, sample, 0, MESSAGE_SAMPLES_MAX)                                                               \
        F(U16, error, 1, 4095)                                                                               \
        F(TEXT, file, 0, MESSAGE_FILE_MAX)                                                                   \
        F(TEXT, text, 1, MESSAGE_TEXT_MAX)

#define MESSAGE_RETURNED_FIELDS(F)                                                                           \
        F(U32, slot, 0, MESSAGE_SLOTS_MAX - 1)                                                               \
        F(U32, first, 0, MESSAGE_ROWS_MAX)                                                                   \
        F(U32, rows, 1, MESSAGE_ROWS_MAX)

#define MESSAGE_DESCRIBE_FIELDS(F) F(TEXT, recipe, 2, MESSAGE_RECIPE_MAX)

#define MESSAGE_DESCRIBED_FIELDS(F)                                                                          \
        F(U64, samples, 1, MESSAGE_SAMPLES_MAX)                                                              \
        F(U8, deterministic, 0, 1)                                                                           \
        F(TEXT, name, 1, MESSAGE_TYPE_MAX)                                                                   \
        F(TEXT, fields, 1, MESSAGE_FIELDS_MAX)                                                               \
        F(TEXT, layout, 1, MESSAGE_LAYOUT_MAX)

#define MESSAGE_FORK_FIELDS(F)                                                                               \
        F(U64, daemon, 1, MESSAGE_U64_MAX)                                                                   \
        F(U32, worker, 0, MESSAGE_U32_MAX)                                                                   \
        F(U8, nice, 0, 19)

#define MESSAGE_FORKED_FIELDS(F)                                                                             \
        F(U64, daemon, 1, MESSAGE_U64_MAX)                                                                   \
        F(U32, worker, 0, MESSAGE_U32_MAX)                                                                   \
        F(U16, error, 0, 4095)                                                                               \
        F(U32, pid, 0, INT32_MAX)

#define MESSAGE_EXITED_FIELDS(F)                                                                             \
        F(U64, daemon, 1, MESSAGE_U64_MAX)                                                                   \
        F(U32, worker, 0, MESSAGE_U32_MAX)                                                                   \
        F(U8, signal, 0, 64)                                                                                 \
        F(U8, exit_status, 0, MESSAGE_U8_MAX)

/* M(number, NAME, name, senders, least descriptors, most descriptors). Numbers are never reused. */
#define MESSAGE_TABLE(M)                                                                                     \
        M(1, HELLO, hello, MESSAGE_BY_JOB | MESSAGE_BY_DAEMON_TO_JOB, 0, 0)                                  \
        M(2, REFUSED, refused, MESSAGE_BY_DAEMON_TO_JOB, 0, 0)                                               \
        M(3, ATTACH, attach, MESSAGE_BY_JOB, 0, 0)                                                           \
        M(4, PROGRESS, progress, MESSAGE_BY_DAEMON_TO_JOB, 0, 0)                                             \
        M(5, ATTACHED, attached, MESSAGE_BY_DAEMON_TO_JOB, 1, 1)                                             \
        M(6, BATCHES, batches, MESSAGE_BY_DAEMON_TO_JOB, 0, 0)                                               \
        M(7, RELEASE, release, MESSAGE_BY_JOB, 0, 0)                                                         \
        M(8, FAILED, failed, MESSAGE_BY_DAEMON_TO_JOB, 0, 0)                                                 \
        M(9, SEEK, seek, MESSAGE_BY_JOB, 0, 0)                                                               \
        M(10, SOUGHT, sought, MESSAGE_BY_DAEMON_TO_JOB, 0, 0)                                                \
        M(11, DEFINE, define, MESSAGE_BY_JOB, 0, 0)                                                          \
        M(12, MAPPED, mapped, MESSAGE_BY_JOB, 0, 0)                                                          \
        M(13, READ, read, MESSAGE_BY_JOB, 0, 0)                                                              \
        M(14, BRING, bring, MESSAGE_BY_JOB, 1, 1)                                                            \
        M(15, ORDER, order, MESSAGE_BY_JOB | MESSAGE_BY_DAEMON_TO_WORKER, 1, 1)                              \
        M(32, SETUP, setup, MESSAGE_BY_DAEMON_TO_WORKER, 2, 2)                                               \
        M(33, SCAN, scan, MESSAGE_BY_DAEMON_TO_WORKER, 0, 0)                                                 \
        M(34, SCANNING, scanning, MESSAGE_BY_WORKER, 0, 0)                                                   \
        M(35, INDEX, index, MESSAGE_BY_WORKER | MESSAGE_BY_DAEMON_TO_WORKER, 0, 1)                           \
        M(36, ASSIGN, assign, MESSAGE_BY_DAEMON_TO_WORKER, 0, 0)                                             \
        M(37, DONE, done, MESSAGE_BY_WORKER, 0, 0)                                                           \
        M(38, BROKEN, broken, MESSAGE_BY_WORKER, 0, 0)                                                       \
        M(39, CONDEMNED, condemned, MESSAGE_BY_DAEMON_TO_WORKER, 0, 0)                                       \
        M(40, REPLACED, replaced, MESSAGE_BY_WORKER, 0, 0)                                                   \
        M(41, RETURNED, returned, MESSAGE_BY_WORKER, 0, 0)                                                   \
        M(43, DESCRIBE, describe, MESSAGE_BY_DAEMON_TO_WORKER, 0, 0)                                         \
        M(44, DESCRIBED, described, MESSAGE_BY_WORKER, 0, 0)                                                 \
        M(48, FORK, fork, MESSAGE_BY_DAEMON_TO_ZYGOTE, 2, 2)                                                 \
        M(49, FORKED, forked, MESSAGE_BY_ZYGOTE, 0, 1)                                                       \
        M(50, EXITED, exited, MESSAGE_BY_ZYGOTE, 0, 0)
