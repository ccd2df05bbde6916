#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The index of a scanned source: names, classes and sizes in one sealed memfd that all workers share. */

#include <stdint.h>
#include <stddef.h>
#include <sys/types.h>

struct fault;

#define INDEX_MAGIC UINT64_C(0x3178656466656e70) /* "pnefdex1" in memory, little-endian */

/* The file: header, samples x struct index_entry, classes x struct index_entry (size and class are 0), names
 * (no NUL between them). Offsets count from the start of the file. Written by one worker, sealed, then only
 * read. */
struct index_header {
        uint64_t magic;
        uint64_t samples;
        uint64_t classes;
        uint64_t entries_offset;
        uint64_t classes_offset;
        uint64_t names_offset;
        uint64_t file_bytes;
};

struct index_entry {
        uint64_t name_offset;
        uint64_t size; /* bytes of the file when it was scanned */
        uint32_t class;
        uint32_t name_length;
};

_Static_assert(sizeof(struct index_header) == 56, "part of the file");
_Static_assert(sizeof(struct index_entry) == 24, "part of the file");

/* One sample's name relative to the source, read with pread (the daemon maps nothing). Cut to `size`,
 * terminated. 0 or a negative errno. */
int index_read_name(int fd, uint64_t sample, char *name, size_t size);

/* The same of a class. */
int index_read_class(int fd, uint64_t class, char *name, size_t size);

/* A mapped, checked index (every offset lies inside the file). */
struct index {
        const struct index_header *header;
        const struct index_entry *entries;
        const struct index_entry *classes;
        const char *base;
        uint64_t mapped;
};

/* Maps the whole file read-only. 0 or a negative errno (-EINVAL: not a whole index, or not sealed against
 * shrinking and writing). */
int index_init_map(struct index *index, int fd, struct fault *fault);
void index_deinit(struct index *index);
