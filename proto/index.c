/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One worker scans a source and writes the index; all others, and the daemon, read it. A reader trusts
 * neither its offsets nor its length: the file must be sealed, so that what has been checked stays true, and
 * then every offset is checked once. The sum of offset and size is never formed before it is known not to
 * overflow.
 *
 * The daemon maps nothing. It wants single names, for error messages, and gets them with three small reads
 * that check what they use. */

#include "proto/index.h"

#include "base/fault.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* `count` records of `size` bytes from `offset` on lie within `file_bytes`. */
static bool is_inside(uint64_t offset, uint64_t count, uint64_t size, uint64_t file_bytes) {
        return offset <= file_bytes && count <= (file_bytes - offset) / size;
}

static bool is_header(const struct index_header *header, uint64_t file_bytes) {
        return header->magic == INDEX_MAGIC && header->file_bytes == file_bytes &&
               header->entries_offset % 8 == 0 && header->classes_offset % 8 == 0 &&
               is_inside(header->entries_offset, header->samples, sizeof(struct index_entry), file_bytes) &&
               is_inside(header->classes_offset, header->classes, sizeof(struct index_entry), file_bytes) &&
               is_inside(header->names_offset, 0, 1, file_bytes);
}

static bool is_name_inside(const struct index_header *header, const struct index_entry *entry) {
        return entry->name_offset >= header->names_offset &&
               is_inside(entry->name_offset, entry->name_length, 1, header->file_bytes);
}

/* Reads exactly `size` bytes. */
static int read_exactly(int fd, void *to, size_t size, uint64_t offset) {
        ssize_t n = fd_pread_full(fd, to, size, offset);

        return n < 0 ? (int)n : (size_t)n == size ? 0 : -EINVAL;
}

/* The header of a file that may be anything. */
static int read_header(int fd, struct index_header *header) {
        struct stat status;
        int r;

        if (fstat(fd, &status) < 0)
                return -errno;
        r = read_exactly(fd, header, sizeof(*header), 0);
        if (r < 0)
                return r;
        return is_header(header, (uint64_t)status.st_size) ? 0 : -EINVAL;
}

/* The name of the entry at `offset`. */
static int read_entry_name(int fd, const struct index_header *header, uint64_t offset, char *name,
                           size_t size) {
        struct index_entry entry;
        size_t length;
        int r;

        r = read_exactly(fd, &entry, sizeof(entry), offset);
        if (r < 0)
                return r;
        if (!is_name_inside(header, &entry))
                return -EINVAL;
        length = entry.name_length < size ? entry.name_length : size - 1;
        r = read_exactly(fd, name, length, entry.name_offset);
        if (r < 0)
                return r;
        name[length] = 0;
        return 0;
}

int index_read_name(int fd, uint64_t sample, char *name, size_t size) {
        struct index_header header;
        int r = size > 0 ? read_header(fd, &header) : -EINVAL;

        if (r < 0)
                return r;
        if (sample >= header.samples)
                return -EINVAL;
        return read_entry_name(fd, &header, header.entries_offset + sample * sizeof(struct index_entry), name,
                               size);
}

int index_read_class(int fd, uint64_t class, char *name, size_t size) {
        struct index_header header;
        int r = size > 0 ? read_header(fd, &header) : -EINVAL;

        if (r < 0)
                return r;
        if (class >= header.classes)
                return -EINVAL;
        return read_entry_name(fd, &header, header.classes_offset + class * sizeof(struct index_entry), name,
                               size);
}

static int check_entries(const struct index *index, struct fault *fault) {
        const struct index_header *header = index->header;

        for (uint64_t i = 0; i < header->samples; i++)
                if (!is_name_inside(header, &index->entries[i]) || index->entries[i].class >= header->classes)
                        return fault_set(fault, -EINVAL, "the index is damaged at sample %llu",
                                         (unsigned long long)i);
        for (uint64_t i = 0; i < header->classes; i++)
                if (!is_name_inside(header, &index->classes[i]))
                        return fault_set(fault, -EINVAL, "the index is damaged at class %llu",
                                         (unsigned long long)i);
        return 0;
}

static int check_file(int fd, uint64_t *bytes, struct fault *fault) {
        int seals = fcntl(fd, F_GET_SEALS), needed = F_SEAL_SHRINK | F_SEAL_WRITE;
        struct stat status;

        if (seals < 0 || (seals & needed) != needed)
                return fault_set(fault, -EINVAL, "the index is not sealed, its sender could still change it");
        if (fstat(fd, &status) < 0)
                return fault_set(fault, -errno, "the index: %s (%d)", strerror(errno), errno);
        if ((uint64_t)status.st_size < sizeof(struct index_header))
                return fault_set(fault, -EINVAL, "the index has %lld bytes, its header alone has %zu",
                                 (long long)status.st_size, sizeof(struct index_header));
        *bytes = (uint64_t)status.st_size;
        return 0;
}

int index_init_map(struct index *index, int fd, struct fault *fault) {
        uint64_t bytes = 0;
        void *base;
        int r;

        memset(index, 0, sizeof(*index));
        r = check_file(fd, &bytes, fault);
        if (r < 0)
                return r;
        base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED)
                return fault_set(fault, -errno, "mapping the index of %llu bytes: %s (%d)",
                                 (unsigned long long)bytes, strerror(errno), errno);
        index->base = base;
        index->mapped = bytes;
        index->header = base;
        if (!is_header(index->header, bytes)) {
                index_deinit(index);
                return fault_set(fault, -EINVAL, "the index's header is damaged");
        }
        index->entries = (const struct index_entry *)(index->base + index->header->entries_offset);
        index->classes = (const struct index_entry *)(index->base + index->header->classes_offset);
        r = check_entries(index, fault);
        if (r < 0)
                index_deinit(index);
        return r;
}

void index_deinit(struct index *index) {
        if (index->base)
                munmap((void *)index->base, index->mapped);
        memset(index, 0, sizeof(*index));
}
