/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Every key of a recipe, once. Parser, error texts, the worker's copy of the recipe and the manual page are
 * made from these tables; their order is the order of the recipe's text, so a key is added at the end of its
 * table.
 *
 * Names, defaults and meanings of the transforms are those of torchvision.transforms; the ranges are ours:
 * they refuse what can only be a mistake. All transforms share one struct, so a table names only the members
 * that it uses. */

#include "proto/recipe.h"

#define SAMPLES_MAX    281474976710656.0 /* 2^48: what the counter of proto/random.h holds */
#define EDGE_MAX       RECIPE_IMAGE_EDGE_MAX
#define DELAY_MAX      60e6   /* us; the minute after which a sample counts as hung */
#define SLOW_MAX       3600e6 /* us; the slow mode is there to exceed that minute */
#define DEATHS_MAX     1e6
#define PATH_BYTES     4095 /* PATH_MAX without its terminator */
#define FIELDS_BYTES   4096 /* 16 fields of the longest name and six dimensions fit */
#define IDENTITY_BYTES 256
#define ARGS_BYTES     4096         /* with all else of a recipe they fit its 16 KiB */
#define PIXELS_MAX     4294836225.0 /* EDGE_MAX squared */
#define PIXELS         "178956970"  /* Pillow's decompression bomb error */
#define SCANS          "100"        /* what the manual of djpeg calls reasonable */
#define RATIO_LEAST    0.01
#define RATIO_MOST     100
#define SCALE_MOST     10    /* over 1 is useless but valid in torchvision: such draws are rejected */
#define STD_LEAST      1e-12 /* zero would divide by zero */
#define COLOUR_MOST    1e6

#define SOURCE(member)    .offset = offsetof(struct recipe_source, member)
#define TRANSFORM(member) .offset = offsetof(struct recipe_transform, member)
#define OUTPUT(member)    .offset = offsetof(struct recipe_output, member)
#define RANGE(low, high)  .least = (low), .most = (high)

/* enum recipe_interpolation */
static const char *const interpolation_names[] = {"bilinear", "bicubic", "nearest", "box",
                                                  "lanczos",  "hamming", NULL};
static const char *const layout_names[] = {"chw", "hwc", "channels_last", NULL}; /* enum recipe_layout */

static const char *const damaged_names[] = {"refuse", "accept", NULL}; /* enum recipe_damaged */
static const char *const orient_names[] = {"ignore", "exif", NULL};    /* enum recipe_orient */

static const char *const dtype_names[] = {"uint8", "float16", "bfloat16", "float32", NULL};
static const enum schema_dtype dtypes[] = {SCHEMA_UINT8, SCHEMA_FLOAT16, SCHEMA_BFLOAT16, SCHEMA_FLOAT32};

/* enum recipe_die_how */
static const char *const die_names[] = {"raise", "raise_ugly", "read_error", "exit", "abort", "segv",
                                        "bus",   "kill9",      "hang",       "oom",  NULL};

static const struct key synthetic_keys[] = {
        {"mode", KEY_NAME, SOURCE(mode), .fallback = "\"features\"", .names = recipe_synthetic_modes,
         .help = "what is made: features (float32 and a label of 10 classes) or ramp (a byte pattern)"},
        {"samples", KEY_U64, SOURCE(samples), RANGE(1, SAMPLES_MAX), .help = "number of samples"},
        {"features", KEY_U64, SOURCE(features), RANGE(1, 1 << 24), .fallback = "512",
         .help = "features: float32 values of a sample"},
        {"bytes", KEY_BYTES, SOURCE(bytes), RANGE(0, 1 << 30), .fallback = "1024",
         .help = "ramp: bytes of a sample; K, M, G for powers of 1024"},
        {"delay_us", KEY_U64, SOURCE(delay_us), RANGE(0, DELAY_MAX), .fallback = "0",
         .help = "microseconds a worker sleeps for each sample"},
        {"slow_sample", KEY_U64, SOURCE(slow_sample), RANGE(0, SAMPLES_MAX), .fallback = "0",
         .help = "test builds, slow: the sample that is slow"},
        {"slow_every", KEY_U64, SOURCE(slow_every), RANGE(0, SAMPLES_MAX), .fallback = "0",
         .help = "test builds, slow: so is each so-many-th sample after it; 0: only that one"},
        {"slow_us", KEY_U64, SOURCE(slow_us), RANGE(0, SLOW_MAX), .fallback = "0",
         .help = "test builds, slow: microseconds that a slow sample takes"},
        {"die_sample", KEY_U64, SOURCE(die_sample), RANGE(0, SAMPLES_MAX), .fallback = "0",
         .help = "test builds, die: the sample at which the worker does die_how"},
        {"die_every", KEY_U64, SOURCE(die_every), RANGE(0, SAMPLES_MAX), .fallback = "0",
         .help = "test builds, die: so it does at each so-many-th sample after it; 0: only at that one"},
        {"die_how", KEY_NAME, SOURCE(die_how), .fallback = "\"raise\"", .names = die_names,
         .help = "test builds, die: what befalls the worker"},
        {"die_times", KEY_U64, SOURCE(die_times), RANGE(0, DEATHS_MAX), .fallback = "0",
         .help = "test builds, die: only the first so many worker processes to meet it; 0: all"},
        {"die_counter", KEY_TEXT, SOURCE(die_counter), RANGE(1, PATH_BYTES), .fallback = "null",
         .help = "test builds, die: a file that gets a byte from each worker process that meets it"},
        {0},
};

static const struct key imagefolder_keys[] = {
        {"path", KEY_TEXT, SOURCE(path), RANGE(1, PATH_BYTES),
         .help = "directory with one directory of images for each class"},
        {"damaged", KEY_NAME, SOURCE(damaged), .fallback = "\"refuse\"", .names = damaged_names,
         .help = "files that are cut off or broken: refuse, or accept what can be decoded (the rest is gray "
                 "or black)"},
        {"orient", KEY_NAME, SOURCE(orient), .fallback = "\"ignore\"", .names = orient_names,
         .help = "exif: turn images as their EXIF orientation says"},
        {"max_pixels", KEY_U64, SOURCE(max_pixels), RANGE(1, PIXELS_MAX), .fallback = PIXELS,
         .help = "width times height above which an image is refused, before memory is taken; also of what a "
                 "transform makes"},
        {"max_scans", KEY_U64, SOURCE(max_scans), RANGE(1, UINT32_MAX), .fallback = SCANS,
         .help = "scans above which a JPEG is refused"},
        {"max_file_bytes", KEY_BYTES, SOURCE(max_file_bytes), RANGE(1, 1 << 30), .fallback = "\"1G\"",
         .help = "size above which a file is refused, unread; K, M, G for powers of 1024"},
        {"identity", KEY_TEXT, SOURCE(identity), RANGE(1, IDENTITY_BYTES), .fallback = "null",
         .help = "names what the folder holds; another one makes another pipeline, and saved states stale"},
        {0},
};

static const struct key python_keys[] = {
        {"dataset", KEY_TEXT, SOURCE(dataset), RANGE(3, PATH_BYTES), .fallback = "null",
         .help = "what gives the dataset: package.module:factory"},
        {"samples", KEY_U64, SOURCE(samples), RANGE(0, SAMPLES_MAX), .fallback = "0",
         .help = "rows of an epoch; 0: what len() says of the dataset"},
        {"fields", KEY_TEXT, SOURCE(fields), RANGE(1, FIELDS_BYTES), .fallback = "null",
         .help = "of a row: NAME=DTYPE[DIMENSIONS], with blanks between; not said: as the first samples have "
                 "them"},
        {"brought", KEY_BOOL, SOURCE(brought), .fallback = "false",
         .help = "workers are forked by the job that defines the pipeline, as pinfeed.DataLoader does"},
        {"identity", KEY_TEXT, SOURCE(identity), RANGE(1, IDENTITY_BYTES), .fallback = "null",
         .help = "names what the rows come from; another one makes another pipeline, and saved states stale"},
        {"given_order", KEY_BOOL, SOURCE(given_order), .fallback = "false",
         .help = "the order of each epoch comes from the job, as with a sampler of PyTorch's"},
        {"deterministic", KEY_BOOL, SOURCE(deterministic), .fallback = "true",
         .help = "false: a sample was seen to differ when it was made twice"},
        {"args", KEY_JSON, SOURCE(args), RANGE(2, ARGS_BYTES), .fallback = "{}",
         .help = "keyword arguments that the factory is called with"},
        {"interpreter", KEY_TEXT, SOURCE(interpreter), RANGE(1, PATH_BYTES), .fallback = "\"python3\"",
         .help = "what runs the dataset: a program on the daemon's PATH, or with a slash its path"},
        {"path", KEY_TEXTS, SOURCE(import_path), RANGE(2, PATH_BYTES), .fallback = "[]",
         .help = "directories that modules are looked for in first"},
        {0},
};

const struct recipe_kind recipe_sources[] = {
        [RECIPE_SYNTHETIC] = {"synthetic", synthetic_keys, "made-up samples, to measure and to test"},
        [RECIPE_IMAGEFOLDER] = {"imagefolder", imagefolder_keys, "images in a directory for each class"},
        [RECIPE_PYTHON] = {"python", python_keys, "a dataset of the user's own, in Python"},
        {0},
};

static const struct key resize_keys[] = {
        {"size", KEY_SIZE, TRANSFORM(size), RANGE(1, EDGE_MAX),
         .help = "pixels: the shorter edge (the other follows the shape), or [height, width]"},
        {"interpolation", KEY_NAME, TRANSFORM(interpolation), .fallback = "\"bilinear\"",
         .names = interpolation_names, .help = "as Pillow: all but nearest are antialiased"},
        {"max_size", KEY_U64, TRANSFORM(max_size), RANGE(0, EDGE_MAX), .fallback = "0",
         .help = "pixels: bound of the longer edge, where size is the shorter edge; 0: none"},
        {0},
};

static const struct key center_crop_keys[] = {
        {"size", KEY_SIZE, TRANSFORM(size), RANGE(1, EDGE_MAX),
         .help = "pixels: a square, or [height, width]; a smaller image gets black edges"},
        {0},
};

static const struct key random_resized_crop_keys[] = {
        {"size", KEY_SIZE, TRANSFORM(size), RANGE(1, EDGE_MAX),
         .help = "pixels: a square, or [height, width]"},
        {"scale", KEY_PAIR, TRANSFORM(scale), RANGE(0, SCALE_MOST), .fallback = "[0.08, 1.0]",
         .help = "share of the image's area that is kept, lowest and highest"},
        {"ratio", KEY_PAIR, TRANSFORM(ratio), RANGE(RATIO_LEAST, RATIO_MOST),
         .fallback = "[0.75, 1.3333333333333333]",
         .help = "width / height of what is kept, lowest and highest"},
        {"interpolation", KEY_NAME, TRANSFORM(interpolation), .fallback = "\"bilinear\"",
         .names = interpolation_names, .help = "as Pillow: all but nearest are antialiased"},
        {0},
};

static const struct key random_horizontal_flip_keys[] = {
        {"p", KEY_DOUBLE, TRANSFORM(p), RANGE(0, 1), .fallback = "0.5", .help = "probability of a flip"},
        {0},
};

static const struct key normalize_keys[] = {
        {"mean", KEY_TRIPLE, TRANSFORM(mean), RANGE(-COLOUR_MOST, COLOUR_MOST),
         .help = "of red, green, blue, where 255 counts as 1"},
        {"std", KEY_TRIPLE, TRANSFORM(std), RANGE(STD_LEAST, COLOUR_MOST),
         .help = "of red, green, blue, where 255 counts as 1"},
        {0},
};

const struct recipe_kind recipe_transforms[] = {
        [RECIPE_RESIZE] = {"resize", resize_keys, "to a size, or to a shorter edge"},
        [RECIPE_CENTER_CROP] = {"center_crop", center_crop_keys, "the middle of the image"},
        [RECIPE_RANDOM_RESIZED_CROP] = {"random_resized_crop", random_resized_crop_keys,
                                        "a random part of the image, to a size"},
        [RECIPE_RANDOM_HORIZONTAL_FLIP] = {"random_horizontal_flip", random_horizontal_flip_keys,
                                           "left and right exchanged, now and then"},
        [RECIPE_NORMALIZE] = {"normalize", normalize_keys, "((x / 255) - mean) / std"},
        {0},
};

const struct key recipe_output_keys[] = {
        {"dtype", KEY_NAME, OUTPUT(dtype), .fallback = "\"float32\"", .names = dtype_names,
         .help = "type of a value; floats without normalize are 0 to 1"},
        {"layout", KEY_NAME, OUTPUT(layout), .fallback = "\"chw\"", .names = layout_names,
         .help = "order of channels, height, width; channels_last: stored hwc, shown as chw"},
        {0},
};

enum schema_dtype recipe_output_dtype(const struct recipe_output *output) {
        return dtypes[output->dtype];
}
