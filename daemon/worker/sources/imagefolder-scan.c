/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The scan of an image folder: which files are samples, and in which order.
 *
 * Labels and sample numbers must be those that torchvision.datasets.ImageFolder (0.14) gives, so its rules
 * are kept to the letter: classes are the directories in the root, links to directories included, sorted; for
 * each class the tree below it is walked with links followed, its directories are visited in the order of
 * their full paths as strings
 * ("a-b" comes before "a/b", since '-' sorts before '/'), the files of each sorted by name; a file counts by
 * the end of its name, in upper or lower case, and by nothing else. So a dangling link named x.jpg is a
 * sample here as it is there: whoever reads it gets the error. Strings are compared as bytes, which for UTF-8
 * is the order of code points.
 *
 * Three things differ, where torchvision's behaviour is an accident. A directory that cannot be read is an
 * error here and silently left out there. A link back to a directory above it is an error here; there its
 * files count forty times, until the kernel gives up. And nothing recurses: a class is walked by a list of
 * directories that grows while it is worked off, so depth costs neither stack nor descriptors.
 *
 * A class is collected, sorted, and moved to the index as a whole before the next one is read; all strings of
 * a class lie in one array and are named by offsets, because the array moves when it grows. */

#include "daemon/worker/sources/imagefolder-scan.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/worker/array.h"
#include "daemon/worker/sources/index-build.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum {
        PROGRESS_FILES = 256, /* files between two calls of the progress function, at least */
        NO_PARENT = UINT32_MAX,
};

struct directory {
        uint64_t path; /* relative to the root */
        uint32_t parent;
        uint32_t rank; /* in the order of paths */
        dev_t device;
        ino_t inode;
};

struct file {
        uint64_t name;
        uint64_t size;
        uint32_t directory;
};

struct walk {
        int root;
        const char *root_path;
        char *strings;
        struct directory *directories;
        struct file *files;
        uint64_t n_strings, room_strings;
        uint64_t n_directories, room_directories;
        uint64_t n_files, room_files;
        uint64_t n_files_before; /* of the classes that are done */
        uint32_t n_classes;
        source_progress_fn progress;
        void *progress_context;
};

static void walk_clear(struct walk *walk) {
        walk->n_strings = walk->n_directories = walk->n_files = 0;
}

static void walk_deinit(struct walk *walk) {
        free(walk->strings);
        free(walk->directories);
        free(walk->files);
}

static void closedirp(DIR **directory) {
        if (*directory)
                closedir(*directory);
}

static int no_memory(struct walk *walk, struct fault *fault) {
        return fault_set(fault, -ENOMEM, "no memory to scan %s", walk->root_path);
}

static int system_fault(struct walk *walk, const char *doing, const char *path, struct fault *fault) {
        int error = errno;

        return fault_set(fault, -error, "%s %s%s%s: %s", doing, walk->root_path, path[0] ? "/" : "", path,
                         strerror(error));
}

/* Keeps "PREFIX/NAME" (or NAME, with an empty prefix) at *offset. `prefix` may lie in walk->strings. */
static int keep_string(struct walk *walk, const char *prefix, const char *name, uint64_t *offset) {
        size_t n_prefix = strlen(prefix), n_name = strlen(name);
        uint64_t inside = prefix >= walk->strings && prefix < walk->strings + walk->n_strings
                                  ? (uint64_t)(prefix - walk->strings)
                                  : UINT64_MAX;
        char *to;

        if (array_grow(&walk->strings, 1, walk->n_strings, n_prefix + n_name + 2, &walk->room_strings) < 0)
                return -ENOMEM;
        if (inside != UINT64_MAX)
                prefix = walk->strings + inside;
        *offset = walk->n_strings;
        to = walk->strings + walk->n_strings;
        if (n_prefix > 0) {
                memcpy(to, prefix, n_prefix);
                to += n_prefix;
                *to++ = '/';
        }
        memcpy(to, name, n_name + 1);
        walk->n_strings = (uint64_t)(to - walk->strings) + n_name + 1;
        return 0;
}

/* Whether a file of this name is an image, by torchvision's IMG_EXTENSIONS. */
static int is_image_name(const char *name) {
        static const char *const endings[] = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                              ".pgm", ".tif",  ".tiff", ".webp"};
        size_t length = strlen(name);

        for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
                size_t n = strlen(endings[i]);

                if (length >= n && strcasecmp(name + length - n, endings[i]) == 0)
                        return 1;
        }
        return 0;
}

static int add_directory(struct walk *walk, uint32_t parent, const char *name) {
        const char *prefix = parent == NO_PARENT ? "" : walk->strings + walk->directories[parent].path;
        uint64_t path;

        if (walk->n_directories >= NO_PARENT || keep_string(walk, prefix, name, &path) < 0 ||
            array_grow(&walk->directories, sizeof(*walk->directories), walk->n_directories, 1,
                       &walk->room_directories) < 0)
                return -ENOMEM;
        walk->directories[walk->n_directories++] = (struct directory){.path = path, .parent = parent};
        return 0;
}

static int add_file(struct walk *walk, uint32_t directory, const char *name, uint64_t size) {
        uint64_t kept;

        if (keep_string(walk, "", name, &kept) < 0 ||
            array_grow(&walk->files, sizeof(*walk->files), walk->n_files, 1, &walk->room_files) < 0)
                return -ENOMEM;
        walk->files[walk->n_files++] = (struct file){.name = kept, .size = size, .directory = directory};
        if (walk->progress && walk->n_files % PROGRESS_FILES == 0)
                walk->progress(walk->progress_context, walk->n_files_before + walk->n_files, walk->n_classes);
        return 0;
}

/* What an entry is, links followed. S_IFDIR, or another type; a link to nowhere counts as S_IFLNK of size 0.
 */
static mode_t entry_type(int directory, const struct dirent *entry, uint64_t *size) {
        struct stat status;

        *size = 0;
        if (entry->d_type == DT_DIR)
                return S_IFDIR;
        if (entry->d_type == DT_REG && !is_image_name(entry->d_name))
                return S_IFREG; /* spares a system call: nobody will ask for its size */
        if (fstatat(directory, entry->d_name, &status, 0) < 0)
                return S_IFLNK;
        if (S_ISREG(status.st_mode))
                *size = (uint64_t)status.st_size;
        return status.st_mode & S_IFMT;
}

static int is_dot(const char *name) {
        return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* An open stream of the directory at `path`, relative to the root ("": the root itself). */
static int open_directory(struct walk *walk, const char *path, DIR **directoryp, struct fault *fault) {
        _cleanup_(fd_closep) int fd = -1;

        fd = openat(walk->root, path[0] ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return system_fault(walk, "opening directory", path, fault);
        *directoryp = fdopendir(fd);
        if (!*directoryp)
                return system_fault(walk, "opening directory", path, fault);
        fd = -1; /* owned by the stream */
        return 0;
}

/* Notes which directory this is, and refuses it where it is also one of those above it. */
static int check_loop(struct walk *walk, uint32_t number, int fd, struct fault *fault) {
        struct directory *self = &walk->directories[number];
        struct stat status;

        if (fstat(fd, &status) < 0)
                return system_fault(walk, "looking at", walk->strings + self->path, fault);
        self->device = status.st_dev;
        self->inode = status.st_ino;
        for (uint32_t i = self->parent; i != NO_PARENT; i = walk->directories[i].parent) {
                const struct directory *above = &walk->directories[i];

                if (above->device == self->device && above->inode == self->inode)
                        return fault_set(
                                fault, -ELOOP, "%s/%s leads back to %s, which contains it: remove that link",
                                walk->root_path, walk->strings + self->path, walk->strings + above->path);
        }
        return 0;
}

static int read_entries(struct walk *walk, uint32_t number, DIR *directory, struct fault *fault) {
        struct dirent *entry;

        for (errno = 0; (entry = readdir(directory)); errno = 0) {
                uint64_t size;
                int r = 0;

                if (is_dot(entry->d_name))
                        continue;
                if (entry_type(dirfd(directory), entry, &size) == S_IFDIR)
                        r = add_directory(walk, number, entry->d_name);
                else if (is_image_name(entry->d_name))
                        r = add_file(walk, number, entry->d_name, size);
                if (r < 0)
                        return no_memory(walk, fault);
        }
        if (errno != 0)
                return system_fault(walk, "reading directory", walk->strings + walk->directories[number].path,
                                    fault);
        return 0;
}

static int walk_directory(struct walk *walk, uint32_t number, struct fault *fault) {
        _cleanup_(closedirp) DIR *directory = NULL;
        int r;

        r = open_directory(walk, walk->strings + walk->directories[number].path, &directory, fault);
        if (r < 0)
                return r;
        r = check_loop(walk, number, dirfd(directory), fault);
        if (r < 0)
                return r;
        return read_entries(walk, number, directory, fault);
}

static int compare_directories(const void *a, const void *b, void *context) {
        const struct walk *walk = context;

        return strcmp(walk->strings + walk->directories[*(const uint32_t *)a].path,
                      walk->strings + walk->directories[*(const uint32_t *)b].path);
}

static int compare_files(const void *a, const void *b, void *context) {
        const struct walk *walk = context;
        const struct file *x = a, *y = b;
        uint32_t rank_x = walk->directories[x->directory].rank, rank_y = walk->directories[y->directory].rank;

        if (rank_x != rank_y)
                return rank_x < rank_y ? -1 : 1;
        return strcmp(walk->strings + x->name, walk->strings + y->name);
}

static int sort_class(struct walk *walk) {
        _cleanup_(freep) uint32_t *order = NULL;

        order = reallocarray(NULL, walk->n_directories, sizeof(*order));
        if (!order)
                return -ENOMEM;
        for (uint32_t i = 0; i < walk->n_directories; i++)
                order[i] = i;
        qsort_r(order, walk->n_directories, sizeof(*order), compare_directories, walk);
        for (uint32_t i = 0; i < walk->n_directories; i++)
                walk->directories[order[i]].rank = i;
        if (walk->n_files > 0)
                qsort_r(walk->files, walk->n_files, sizeof(*walk->files), compare_files, walk);
        return 0;
}

/* Moves the sorted class to the index. */
static int store_class(struct walk *walk, const char *class, struct index_build *build) {
        if (index_build_add_class(build, class) < 0)
                return -ENOMEM;
        for (uint64_t i = 0; i < walk->n_files; i++) {
                const struct file *file = &walk->files[i];

                if (index_build_add_sample(build, walk->strings + walk->directories[file->directory].path,
                                           walk->strings + file->name, walk->n_classes, file->size) < 0)
                        return -ENOMEM;
        }
        return 0;
}

static int scan_class(struct walk *walk, const char *class, struct index_build *build, struct fault *fault) {
        int r;

        walk_clear(walk);
        if (add_directory(walk, NO_PARENT, class) < 0)
                return no_memory(walk, fault);
        for (uint32_t i = 0; i < walk->n_directories; i++) {
                r = walk_directory(walk, i, fault);
                if (r < 0)
                        return r;
        }
        if (walk->n_files == 0)
                return fault_set(
                        fault, -ENOENT,
                        "no image in class folder %s/%s: expected files that end in .jpg, .jpeg, .png, .ppm, "
                        ".bmp, .pgm, .tif, .tiff or .webp",
                        walk->root_path, class);
        if (sort_class(walk) < 0 || store_class(walk, class, build) < 0)
                return no_memory(walk, fault);
        walk->n_files_before += walk->n_files;
        walk->n_files = 0;
        walk->n_classes++;
        if (walk->progress)
                walk->progress(walk->progress_context, walk->n_files_before, walk->n_classes);
        return 0;
}

static int compare_names(const void *a, const void *b) {
        return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
        char **names;
        uint64_t n, room;
};

static void names_deinit(struct names *names) {
        for (uint64_t i = 0; i < names->n; i++)
                free(names->names[i]);
        free(names->names);
}

/* The class folders, sorted. */
static int find_classes(struct walk *walk, struct names *classes, struct fault *fault) {
        _cleanup_(closedirp) DIR *directory = NULL;
        struct dirent *entry;
        uint64_t size;
        int r;

        r = open_directory(walk, "", &directory, fault);
        if (r < 0)
                return r;
        for (errno = 0; (entry = readdir(directory)); errno = 0) {
                if (is_dot(entry->d_name) || entry_type(dirfd(directory), entry, &size) != S_IFDIR)
                        continue;
                if (array_grow(&classes->names, sizeof(*classes->names), classes->n, 1, &classes->room) < 0)
                        return no_memory(walk, fault);
                classes->names[classes->n] = strdup(entry->d_name);
                if (!classes->names[classes->n])
                        return no_memory(walk, fault);
                classes->n++;
        }
        if (errno != 0)
                return system_fault(walk, "reading directory", "", fault);
        if (classes->n == 0)
                return fault_set(fault, -ENOENT, "no class folders in %s: expected %s/CLASS/IMAGE.jpg",
                                 walk->root_path, walk->root_path);
        qsort(classes->names, classes->n, sizeof(*classes->names), compare_names);
        return 0;
}

int imagefolder_open_root(const char *path, struct fault *fault) {
        int fd, error;

        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
                return fd;
        error = errno;
        return fault_set(fault, -error, "opening image folder %s: %s", path, strerror(error));
}

int imagefolder_scan(const struct recipe_source *recipe, source_progress_fn progress, void *context,
                     uint64_t *samples, uint32_t *classes, int *index_fd, struct fault *fault) {
        _cleanup_(index_build_deinit) struct index_build build = {0};
        _cleanup_(names_deinit) struct names names = {0};
        _cleanup_(fd_closep) int root = -1;
        _cleanup_(walk_deinit) struct walk walk = {
                .root_path = recipe->path, .progress = progress, .progress_context = context};
        int r;

        root = imagefolder_open_root(recipe->path, fault);
        if (root < 0)
                return root;
        walk.root = root;
        r = find_classes(&walk, &names, fault);
        for (uint64_t i = 0; r >= 0 && i < names.n; i++)
                r = scan_class(&walk, names.names[i], &build, fault);
        if (r < 0)
                return r;
        r = index_build_finish(&build, index_fd, fault);
        if (r < 0)
                return r;
        *samples = build.n_samples;
        *classes = walk.n_classes;
        return 0;
}
