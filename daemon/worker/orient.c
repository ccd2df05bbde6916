/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Orientation, as PIL.ImageOps.exif_transpose turns pictures.
 *
 * Tag 0x0112 of the first directory of the EXIF data, 1 ... 8, says which corner of the stored picture is
 * the upright one's top left, and whether rows or columns run from there. All eight are made of three moves:
 * exchange rows and columns, then mirror left to right, then top to bottom. The table has them.
 *
 * Reading one tag takes less code than binding a library would, and none that allocates: a directory is a
 * count and entries of 12 bytes, and every offset is checked against the end. Of several entries the last one
 * counts, as in Pillow, and the directory ends, as there, at an entry whose values should lie beyond the
 * data. Whatever else is odd means upright; so it does for Pillow, but that it takes fractions, too, and
 * fails on data that do not begin as they should.
 */

#include "daemon/worker/orient.h"

#include "daemon/worker/codec.h"
#include "daemon/worker/image.h"

#include <string.h>

enum {
        TAG = 0x0112,
        HEADER = 8,
        ENTRY = 12,
        BYTES = 3, /* of a pixel */
};

struct moves {
        unsigned swap : 1, mirror : 1, flip : 1;
};

static const struct moves moves[] = {
        [1] = {0, 0, 0}, [2] = {0, 1, 0}, [3] = {0, 1, 1}, [4] = {0, 0, 1},
        [5] = {1, 0, 0}, [6] = {1, 1, 0}, [7] = {1, 1, 1}, [8] = {1, 0, 1},
};

struct tiff {
        const uint8_t *bytes;
        size_t length;
        int big_endian;
};

static uint32_t number(const struct tiff *tiff, size_t at, unsigned size) {
        uint32_t value = 0;

        for (unsigned i = 0; i < size; i++)
                value = value << 8 | tiff->bytes[at + (tiff->big_endian ? i : size - 1 - i)];
        return value;
}

/* Some cameras have written the 42 in the other order. */
static int tiff_init(struct tiff *tiff, const uint8_t *bytes, size_t length) {
        static const char prefix[6] = "Exif\0";

        if (length >= sizeof(prefix) && memcmp(bytes, prefix, sizeof(prefix)) == 0) {
                bytes += sizeof(prefix);
                length -= sizeof(prefix);
        }
        *tiff = (struct tiff){bytes, length, length >= 2 && memcmp(bytes, "MM", 2) == 0};
        return length >= HEADER && (tiff->big_endian || memcmp(bytes, "II", 2) == 0) &&
               (number(tiff, 2, 2) == 42 || number(tiff, 2, 2) == 42 << 8);
}

/* Bytes of a value, by TIFF's number for its type; 0 for those that there are not. */
static const uint8_t sizes[] = {
        [1] = 1, [2] = 1, [3] = 2,  [4] = 4,  [5] = 8,  [6] = 1,  [7] = 1,
        [8] = 2, [9] = 4, [10] = 8, [11] = 4, [12] = 8, [13] = 4,
};

/* Integers of which Pillow makes numbers; bytes (1) stay a string there. */
static int is_number(uint32_t type) {
        return type == 3 || type == 4 || type == 6 || type == 8 || type == 9 || type == 13;
}

/* Looks at an entry; if it is the orientation, *found becomes its first value. 0 ends the directory: the
 * entry's values should lie elsewhere, where there are none. */
static int read_entry(const struct tiff *tiff, size_t entry, uint32_t *found) {
        uint32_t type = number(tiff, entry + 2, 2), count = number(tiff, entry + 4, 4);
        uint64_t size = type < sizeof(sizes) ? (uint64_t)count * sizes[type] : 0;
        size_t at = entry + 8;

        if (size == 0)
                return 1;
        if (size > 4) {
                at = number(tiff, at, 4);
                if (at + size > tiff->length)
                        return 0;
        }
        if (number(tiff, entry, 2) == TAG)
                *found = is_number(type) ? number(tiff, at, sizes[type]) : ORIENT_UPRIGHT;
        return 1;
}

int orient_of_exif(const uint8_t *bytes, size_t length) {
        uint32_t found = ORIENT_UPRIGHT, entries;
        struct tiff tiff;
        size_t at;

        if (!tiff_init(&tiff, bytes, length))
                return ORIENT_UPRIGHT;
        at = number(&tiff, 4, 4);
        if (at > tiff.length - 2)
                return ORIENT_UPRIGHT;
        entries = number(&tiff, at, 2);
        for (at += 2; entries > 0 && at + ENTRY <= tiff.length; entries--, at += ENTRY)
                if (!read_entry(&tiff, at, &found))
                        break;
        return found >= 1 && found <= ORIENT_LAST ? (int)found : ORIENT_UPRIGHT;
}

void orient_window(int orientation, uint32_t width, uint32_t height, struct codec_window *window) {
        struct moves move = moves[orientation];
        uint32_t upright_width = move.swap ? height : width, upright_height = move.swap ? width : height;
        struct codec_window at = *window;

        if (move.mirror)
                at.left = upright_width - at.left - at.width;
        if (move.flip)
                at.top = upright_height - at.top - at.height;
        *window = at;
        if (move.swap)
                *window = (struct codec_window){at.top, at.left, at.height, at.width};
}

int orient_image(int orientation, const struct image *stored, struct image *upright) {
        struct moves move = moves[orientation];
        uint32_t width = move.swap ? stored->height : stored->width;
        uint32_t height = move.swap ? stored->width : stored->height;
        ptrdiff_t right = move.swap ? (ptrdiff_t)stored->stride : BYTES;
        ptrdiff_t down = move.swap ? BYTES : (ptrdiff_t)stored->stride;
        const uint8_t *corner = stored->pixels;
        int r = image_reset(upright, width, height);

        if (r < 0)
                return r;
        if (move.mirror) {
                corner += right * (ptrdiff_t)(width - 1);
                right = -right;
        }
        if (move.flip) {
                corner += down * (ptrdiff_t)(height - 1);
                down = -down;
        }
        for (uint32_t y = 0; y < height; y++) {
                uint8_t *to = upright->pixels + (size_t)y * upright->stride;
                const uint8_t *from = corner + down * (ptrdiff_t)y;

                for (uint32_t x = 0; x < width; x++, to += BYTES, from += right)
                        memcpy(to, from, BYTES);
        }
        return 0;
}
