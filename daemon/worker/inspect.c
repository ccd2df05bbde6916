/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * `pinfeed-worker --inspect`: what the codecs say about a file.
 *
 * The caller opens the files (with its own permissions) and passes descriptors, one with each record; the
 * record's text is the name to call it by. The answer is one record of compact JSON:
 *   {"file": ..., "ok": true, "format": "JPEG", "width": 301, "height": 203, "rgb_sha256": ...}
 *   {"file": ..., "ok": false, "format": ..., "error": ...}      (format: where it is known)
 * The digest is over the RGB bytes, rows top to bottom, without padding: what the files under the tests' data
 * are listed by. One file is in work at a time, and nothing is kept from one to the next but buffers. A file
 * that cannot be read or decoded is an answer; only a broken socket ends the loop with an error.
 */

#include "daemon/worker/inspect.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/seqpacket.h"
#include "base/utf8.h"
#include "daemon/worker/codec.h"
#include "daemon/worker/image.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

enum {
        NAME_MAX_BYTES = 4096, /* of the caller's name for a file; longer ones end the loop */
};

#define FILE_BYTES_MAX UINT64_C(0x7fffffff) /* what one pread gives at most; no photograph comes near */

static void decoder_freep(struct decoder **decoder) {
        decoder_free(*decoder);
}

static void image_deinitp(struct image *image) {
        image_deinit(image);
}

/* Waits until the socket can do `events`; it may be a blocking one or not. */
static void wait_for(int socket, short events) {
        struct pollfd ready = {.fd = socket, .events = events};

        poll(&ready, 1, -1);
}

static int read_file(int fd, uint8_t **bytes, size_t *length, struct fault *fault) {
        struct stat status;
        ssize_t n;

        if (fstat(fd, &status) < 0)
                return fault_set(fault, -errno, "cannot look at it: %s", strerror(errno));
        if (!S_ISREG(status.st_mode))
                return fault_set(fault, -EINVAL, "not a regular file");
        if ((uint64_t)status.st_size > FILE_BYTES_MAX)
                return fault_set(fault, -EFBIG, "the file has %" PRIu64 " bytes, the limit is %" PRIu64,
                                 (uint64_t)status.st_size, FILE_BYTES_MAX);

        *bytes = malloc((size_t)status.st_size + 1); /* never of 0 bytes */
        if (!*bytes)
                return fault_set(fault, -ENOMEM, "no memory for %" PRIu64 " bytes", (uint64_t)status.st_size);
        n = fd_pread_full(fd, *bytes, (size_t)status.st_size, 0);
        if (n < 0)
                return fault_set(fault, (int)n, "cannot read it: %s", strerror((int)-n));
        *length = (size_t)n;
        return 0;
}

static void digest_rgb(const struct image *image, char hex[2 * SHA256_DIGEST_SIZE + 1]) {
        uint8_t digest[SHA256_DIGEST_SIZE];
        struct sha256_ctx context;

        sha256_init(&context);
        for (uint32_t y = 0; y < image->height; y++)
                sha256_update(&context, (size_t)image->width * 3, image->pixels + (size_t)y * image->stride);
        sha256_digest(&context, sizeof(digest), digest);
        for (unsigned i = 0; i < SHA256_DIGEST_SIZE; i++) {
                hex[2 * i] = "0123456789abcdef"[digest[i] >> 4];
                hex[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
        }
        hex[2 * SHA256_DIGEST_SIZE] = 0;
}

/* The answer for one file; NULL for want of memory. `fd` is -1 when none came with the record. */
static json_t *inspect_file(struct decoder *decoder, const char *name, int fd) {
        _cleanup_(freep) uint8_t *bytes = NULL;
        _cleanup_(image_deinitp) struct image image = {0};
        char hex[2 * SHA256_DIGEST_SIZE + 1];
        const char *format = NULL;
        struct fault fault = {0};
        size_t length = 0;
        int r;

        if (fd < 0)
                r = fault_set(&fault, -EBADF, "no descriptor came with the name");
        else
                r = read_file(fd, &bytes, &length, &fault);
        if (r == 0)
                r = decoder_decode(decoder, bytes, length, &image, &format, &fault);
        if (r < 0)
                return json_pack("{s:s, s:b, s:s*, s:s}", "file", name, "ok", 0, "format", format, "error",
                                 fault.text);

        digest_rgb(&image, hex);
        return json_pack("{s:s, s:b, s:s, s:I, s:I, s:s}", "file", name, "ok", 1, "format", format, "width",
                         (json_int_t)image.width, "height", (json_int_t)image.height, "rgb_sha256", hex);
}

static int send_answer(int socket, const json_t *answer) {
        _cleanup_(freep) char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
        int r;

        if (!text)
                return -ENOMEM;
        while ((r = seqpacket_send(socket, text, strlen(text), NULL, 0)) == -EAGAIN)
                wait_for(socket, POLLOUT);
        return r;
}

/* As it came, where JSON can have it: whoever asked looks for the file by it. */
static void take_name(char name[NAME_MAX_BYTES + 1], const char *record, size_t length) {
        if (!utf8_is_text(record, length)) {
                fault_sanitize(name, NAME_MAX_BYTES + 1, record, length);
                return;
        }
        memcpy(name, record, length);
        name[length] = '\0';
}

static int answer_record(struct decoder *decoder, int socket, const char *record, size_t length, int fd) {
        _cleanup_(json_decrefp) json_t *answer = NULL;
        char name[NAME_MAX_BYTES + 1];

        take_name(name, record, length);
        answer = inspect_file(decoder, name, fd);
        return send_answer(socket, answer);
}

/* One record and its answer. 1 to go on, 0 when the peer has closed, or a negative errno. */
static int turn(struct decoder *decoder, int socket, struct fault *fault) {
        int fds[SEQPACKET_FDS_MAX], r;
        char record[NAME_MAX_BYTES];
        size_t length, n_fds;

        r = seqpacket_receive(socket, record, sizeof(record), &length, fds, &n_fds);
        switch (r) {
        case 0:
                break;
        case SEQPACKET_E_AGAIN:
                wait_for(socket, POLLIN);
                return 1;
        case SEQPACKET_E_CLOSED:
                return 0;
        case SEQPACKET_E_TOO_LONG:
                return fault_set(fault, -EMSGSIZE, "a record for inspection is over %d bytes",
                                 NAME_MAX_BYTES);
        case SEQPACKET_E_NO_FDS:
                return fault_set(fault, -EMFILE, "out of descriptors while receiving a file to inspect");
        default:
                return fault_set(fault, r, "cannot receive a file to inspect: %s", strerror(-r));
        }

        r = answer_record(decoder, socket, record, length, n_fds > 0 ? fds[0] : -1);
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]);
        if (r == -EPIPE || r == -ECONNRESET)
                return 0;
        return r < 0 ? fault_set(fault, r, "cannot answer: %s", strerror(-r)) : 1;
}

int inspect_run(int socket, struct fault *fault) {
        _cleanup_(decoder_freep) struct decoder *decoder = NULL;
        int r;

        r = decoder_new(&decoder, &codec_options_default);
        if (r < 0)
                return fault_set(fault, r, "no memory for a decoder");
        do
                r = turn(decoder, socket, fault);
        while (r > 0);
        return r;
}
