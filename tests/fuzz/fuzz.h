#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What fuzz targets share: the entry that libFuzzer and the replay call, and how a broken property is told.
 */

#include <stddef.h>
#include <stdint.h>

struct codec;

/* Every target has one of these; libFuzzer fixes its name. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An input of a codec's target is a choice (which options, which window), then the file. */
enum {
        FUZZ_CHOICE = 9, /* bytes of it: one of flags, then left, top, width, height of 16 bits each */
        FUZZ_ACCEPT_DAMAGED = 1,
        FUZZ_ORIENT = 2,
};

/* Decodes the file by `codec` in several ways that must agree (decode.c), and ends the process where they do
 * not. 0, as libFuzzer wants it. */
int fuzz_codec(const struct codec *codec, const uint8_t *data, size_t size);

/* Ends the process with a finding. */
void fuzz_broken(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
