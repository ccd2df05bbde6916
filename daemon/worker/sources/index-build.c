/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Three growing arrays, samples, classes and names, that become one file at the end.
 *
 * A million files are some 24 MB of entries and 30 to 60 MB of names here. They are written to the memfd
 * once, in three calls, and freed; from then on every worker reads the same pages. Growing the memfd itself
 * while scanning would save the copy, but the order of the parts in the file is fixed and their sizes are
 * known last. */

#include "daemon/worker/sources/index-build.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/shm.h"
#include "daemon/worker/array.h"

#include <errno.h>
#include <string.h>

void index_build_deinit(struct index_build *build) {
        free(build->samples);
        free(build->classes);
        free(build->names);
        *build = (struct index_build){0};
}

static void add_name(struct index_build *build, const char *part, size_t length) {
        memcpy(build->names + build->n_names, part, length);
        build->n_names += length;
}

int index_build_add_class(struct index_build *build, const char *name) {
        size_t length = strlen(name);

        if (array_grow(&build->classes, sizeof(*build->classes), build->n_classes, 1, &build->room_classes) <
                    0 ||
            array_grow(&build->names, 1, build->n_names, length, &build->room_names) < 0)
                return -ENOMEM;
        build->classes[build->n_classes++] =
                (struct index_entry){.name_offset = build->n_names, .name_length = (uint32_t)length};
        add_name(build, name, length);
        return 0;
}

int index_build_add_sample(struct index_build *build, const char *prefix, const char *name, uint32_t class,
                           uint64_t size) {
        size_t n_prefix = strlen(prefix), n_name = strlen(name);
        size_t length = n_prefix + (n_prefix > 0) + n_name;

        if (array_grow(&build->samples, sizeof(*build->samples), build->n_samples, 1, &build->room_samples) <
                    0 ||
            array_grow(&build->names, 1, build->n_names, length, &build->room_names) < 0)
                return -ENOMEM;
        build->samples[build->n_samples++] = (struct index_entry){
                .name_offset = build->n_names, .size = size, .class = class, .name_length = (uint32_t)length};
        add_name(build, prefix, n_prefix);
        add_name(build, "/", n_prefix > 0);
        add_name(build, name, n_name);
        return 0;
}

static void shift_names(struct index_entry *entries, uint64_t n, uint64_t by) {
        for (uint64_t i = 0; i < n; i++)
                entries[i].name_offset += by;
}

static int write_parts(struct index_build *build, int fd) {
        struct index_header header = {
                .magic = INDEX_MAGIC,
                .samples = build->n_samples,
                .classes = build->n_classes,
                .entries_offset = sizeof(header),
        };
        uint64_t samples_bytes = build->n_samples * sizeof(*build->samples);
        uint64_t classes_bytes = build->n_classes * sizeof(*build->classes);
        int r;

        header.classes_offset = header.entries_offset + samples_bytes;
        header.names_offset = header.classes_offset + classes_bytes;
        header.file_bytes = header.names_offset + build->n_names;
        shift_names(build->samples, build->n_samples, header.names_offset);
        shift_names(build->classes, build->n_classes, header.names_offset);

        r = fd_pwrite_full(fd, &header, sizeof(header), 0);
        if (r >= 0)
                r = fd_pwrite_full(fd, build->samples, samples_bytes, header.entries_offset);
        if (r >= 0)
                r = fd_pwrite_full(fd, build->classes, classes_bytes, header.classes_offset);
        if (r >= 0)
                r = fd_pwrite_full(fd, build->names, build->n_names, header.names_offset);
        return r;
}

int index_build_finish(struct index_build *build, int *index_fd, struct fault *fault) {
        _cleanup_(fd_closep) int fd = -1;
        int r;

        fd = shm_create_memfd("pinfeed-index");
        if (fd < 0)
                return fault_set(fault, fd, "no memfd for the index: %s", strerror(-fd));
        r = write_parts(build, fd);
        if (r < 0)
                return fault_set(fault, r, "writing the index of %llu samples: %s",
                                 (unsigned long long)build->n_samples, strerror(-r));
        r = shm_seal_all(fd);
        if (r < 0)
                return fault_set(fault, r, "sealing the index: %s", strerror(-r));
        *index_fd = fd_take(&fd);
        return 0;
}
