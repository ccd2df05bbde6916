#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A pipeline's recipe: source, transforms, output. Everything besides order and seed that decides a row's
 * bytes. */

#include "proto/keys.h"
#include "proto/schema.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
        RECIPE_TRANSFORMS_MAX = 16,
        RECIPE_IMAGE_EDGE_MAX = 65535, /* pixels; also what a JPEG can be */
};

enum recipe_source_type {
        RECIPE_SYNTHETIC,
        RECIPE_IMAGEFOLDER,
        RECIPE_PYTHON,
};

/* What becomes of a file that an image library finds damaged. */
enum recipe_damaged {
        RECIPE_DAMAGED_REFUSE, /* as Pillow does */
        RECIPE_DAMAGED_ACCEPT, /* as Pillow does with ImageFile.LOAD_TRUNCATED_IMAGES */
};

/* Whether an image is turned upright. */
enum recipe_orient {
        RECIPE_ORIENT_IGNORE, /* as Image.open */
        RECIPE_ORIENT_EXIF,   /* as ImageOps.exif_transpose */
};

/* What a synthetic source makes. RNG, SLOW, DIE and STAGES exist in test builds only (recipe-modes-test.c).
 */
enum recipe_synthetic_mode {
        RECIPE_FEATURES, /* `features` float32 and a label of 10 classes; a nanosleep of delay_us */
        RECIPE_RAMP,     /* the sample's index and a byte pattern keyed by (index, epoch, offset) */
        RECIPE_RNG,      /* bytes from every random source a worker has */
        RECIPE_SLOW,     /* ramp; sample slow_sample (and each slow_every-th after it) takes slow_us */
        RECIPE_DIE, /* ramp; at sample die_sample (and each die_every-th after it) the worker does die_how */
        RECIPE_STAGES, /* sleeps 1 ms as if it read, 5 ms as if it decoded, 2 ms as if it transformed */
};

struct recipe_source {
        int type; /* enum recipe_source_type */
        /* imagefolder */
        char *path;
        int damaged;             /* enum recipe_damaged */
        int orient;              /* enum recipe_orient */
        uint64_t max_pixels;     /* of an image */
        uint64_t max_scans;      /* of a JPEG */
        uint64_t max_file_bytes; /* of a file */
        /* imagefolder, python */
        char *identity; /* of what the rows come from, beyond the keys here; NULL: nothing is known */
        /* synthetic */
        int mode; /* enum recipe_synthetic_mode */
        uint64_t samples;
        uint64_t features; /* float32 values of a sample */
        uint64_t bytes;    /* ramp, slow: pattern bytes of a sample */
        uint64_t delay_us;
        uint64_t slow_sample;
        uint64_t slow_every; /* 0: only that one */
        uint64_t slow_us;
        uint64_t die_sample;
        uint64_t die_every; /* 0: only that one */
        int die_how;        /* enum recipe_die_how */
        uint64_t die_times; /* only the first so many worker processes that meet such a sample; 0: all */
        char *die_counter;  /* a file that gets a byte from each process that does; needed to count them */
        /* python: a user's own dataset, read by workers that are Python themselves */
        bool brought;     /* the job that defines the pipeline forks its workers (BRING); no `dataset` */
        char *dataset;    /* "package.module:factory", what gives the dataset; NULL: `brought` */
        char *fields;     /* of a row, see recipe_parse_fields; NULL: the dataset's samples show it */
        bool given_order; /* the order of each epoch comes from the job (ORDER); not from seed and shuffle */
        bool deterministic; /* false: the dataset was seen to give another sample the second time */
        char *args;         /* keyword arguments of the factory, a mapping as JSON */
        char *interpreter;  /* that runs the workers: a path, or a name that is looked for on the PATH */
        char *import_path;  /* directories that modules are looked for in first, a list as JSON */
};

/* What befalls a worker at such a sample. */
enum recipe_die_how {
        RECIPE_DIE_RAISE,      /* the sample does not decode */
        RECIPE_DIE_RAISE_UGLY, /* the same, with a reason that is no text: 1 MiB, NULs, invalid UTF-8 */
        RECIPE_DIE_READ_ERROR, /* -EIO, each time */
        RECIPE_DIE_EXIT,       /* exit status 3 */
        RECIPE_DIE_ABORT,
        RECIPE_DIE_SEGV,
        RECIPE_DIE_BUS,
        RECIPE_DIE_KILL9,
        RECIPE_DIE_HANG, /* for ever, deaf to SIGTERM */
        RECIPE_DIE_OOM,  /* takes memory until it is killed; at 64 MiB it kills itself */
};

enum recipe_transform_type {
        RECIPE_RESIZE,
        RECIPE_CENTER_CROP,
        RECIPE_RANDOM_RESIZED_CROP,
        RECIPE_RANDOM_HORIZONTAL_FLIP,
        RECIPE_NORMALIZE,
};

/* torchvision.transforms.InterpolationMode. */
enum recipe_interpolation {
        RECIPE_BILINEAR,
        RECIPE_BICUBIC,
        RECIPE_NEAREST,
        RECIPE_BOX,
        RECIPE_LANCZOS,
        RECIPE_HAMMING,
};

/* Names, defaults and meanings are those of torchvision.transforms. */
struct recipe_transform {
        int type;          /* enum recipe_transform_type */
        uint32_t size[2];  /* height, width; {0, n}: resize: the shorter edge is n; crops: a square of n */
        uint64_t max_size; /* resize: bound of the longer edge, 0: none */
        int interpolation; /* enum recipe_interpolation */
        double scale[2];   /* random_resized_crop: share of the area */
        double ratio[2];   /* random_resized_crop: width / height */
        double p;          /* random_horizontal_flip */
        double mean[3];    /* normalize */
        double std[3];
};

enum recipe_layout {
        RECIPE_CHW,
        RECIPE_HWC,
        RECIPE_CHANNELS_LAST,
};

struct recipe_output {
        int dtype;  /* place in recipe_dtype_names, see recipe_output_dtype */
        int layout; /* enum recipe_layout */
};

struct recipe {
        struct recipe_source source;
        uint32_t n_transforms;
        struct recipe_transform transforms[RECIPE_TRANSFORMS_MAX];
        struct recipe_output output;
};

/* A source or transform as users name it. A table ends with a NULL name. */
struct recipe_kind {
        const char *name;
        const struct key *keys;
        const char *help;
};

extern const struct recipe_kind recipe_sources[];    /* place = enum recipe_source_type */
extern const struct recipe_kind recipe_transforms[]; /* place = enum recipe_transform_type */
extern const struct key recipe_output_keys[];

/* Modes of the synthetic source that this build has; from recipe-modes.c or recipe-modes-test.c. */
extern const char *const recipe_synthetic_modes[];

/* Every struct recipe is in one of these states: zeroed, or filled by keys_init of the tables above. */
void recipe_deinit(struct recipe *recipe);

enum schema_dtype recipe_output_dtype(const struct recipe_output *output);

/* What the keys' own ranges cannot say: images that end without a fixed size, a bound of the longer edge
 * where there is no shorter one, a transform after normalize that is not a flip, normalize with a uint8
 * output, transforms on a synthetic source, a count of deaths without the file to count in. Keys of another
 * mode are fine: they do nothing. 0 or -EINVAL (the text does not name the place); *place is the transform at
 * fault, or -1 for the source, -2 for the output. */
int recipe_check(const struct recipe *recipe, int *place, struct fault *fault);

/* Adds the fields that a text names, such as "image=float32[3,224,224] label=int64[]":
 * NAME=DTYPE[DIMENSIONS], with blanks between. 0, or -EINVAL with what is wrong at which field. */
int recipe_parse_fields(struct schema *schema, const char *text, struct fault *fault);

/* Whether the workers are forked by a job's zygote. */
static inline bool recipe_is_brought(const struct recipe *recipe) {
        return recipe->source.type == RECIPE_PYTHON && recipe->source.brought;
}

/* Whether its workers are interpreters, which have to say first what a row is. */
static inline bool recipe_is_described(const struct recipe *recipe) {
        return recipe->source.type == RECIPE_PYTHON && recipe->source.dataset;
}

/* The fields of a row, not yet laid out; none for a dataset that was not described yet. For a recipe that
 * recipe_check accepts. */
void recipe_schema(const struct recipe *recipe, struct schema *schema);

/* {"source": {"type": ..., ...}, "transforms": [{"resize": {...}}, ...], "output": {...}}, every key written
 * out in table order. A new reference; never NULL except for want of memory. */
json_t *recipe_to_json(const struct recipe *recipe);

/* The same as a text to be freed, exact to the last digit of a number; NULL for want of memory. */
char *recipe_to_text(const struct recipe *recipe);

/* The way back, for the worker. 0 or -EINVAL; on error *recipe is zeroed. */
int recipe_from_json(struct recipe *recipe, const json_t *json, struct fault *fault);
