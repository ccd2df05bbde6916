/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Copies of the fake CUDA runtime. What is queued keeps what it was told, as a GPU does: addresses. Whether
 * the memory behind them is what it was, is asked when the copy runs: page-locked before and after it, and
 * the same bytes as when it was queued. Only a pageable source is copied at once, as the real runtime does.
 *
 * The bytes that arrived are what is compared with those that were queued, so that nothing is read twice. */

#include "tests/support/fake-cudart-internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- running ---- */

/* The host's side of an asynchronous copy, which must be page-locked while the copy runs. */
static bool check_locked(const struct copy *copy, const char *when) {
        const void *host = copy->from_device ? copy->to : copy->from;

        if (copy->staged || copy->waited_for || copy->from_device == copy->to_device ||
            memory_of_host(host, copy->bytes) == HOST_LOCKED)
                return true;
        violation("%zu bytes at %p were not page-locked %s", copy->bytes, host, when);
        return false;
}

static void copy_bytes(struct copy *copy) {
        void *to = memory_alias(copy->to, copy->bytes, copy->to_device);
        const void *from =
                copy->staged ? copy->staged : memory_alias(copy->from, copy->bytes, copy->from_device);
        bool locked = check_locked(copy, "when the copy ran"), there;
        useconds_t delay_us = (useconds_t)runtime.settings.delay_us;
        uint64_t hash = 0;

        pthread_mutex_unlock(&runtime.lock);
        if (delay_us > 0)
                usleep(delay_us);
        there = memory_move(to, from, copy->bytes);
        if (there && copy->hashed)
                hash = memory_hash(to, copy->bytes);
        pthread_mutex_lock(&runtime.lock);

        if (locked)
                check_locked(copy, "until the copy had run");
        if (!there)
                violation("%zu bytes from %p to %p were not mapped when the copy ran", copy->bytes,
                          copy->from, copy->to);
        else if (copy->hashed && hash != copy->hash)
                violation("%zu bytes at %p changed before the copy of them had run", copy->bytes, copy->from);
}

void copy_run(struct copy *copy) {
        cuda_error error;

        while (runtime.allowance == 0)
                pthread_cond_wait(&runtime.changed, &runtime.lock);
        if (runtime.allowance != UINT64_MAX)
                runtime.allowance--;
        if (broken())
                return;
        runtime.figures.copies_begun++;
        error = rule_check(CALL_execute);
        if (error) {
                runtime.settings.sticky = error;
                return;
        }
        copy_bytes(copy);
        runtime.figures.copies_done++;
        runtime.figures.bytes_done += copy->bytes;
}

void copy_run_set(const struct copy *copy) {
        void *to = memory_alias(copy->to, copy->bytes, true);

        if (to)
                memset(to, copy->value, copy->bytes);
        else
                violation("%zu bytes at %p were freed before cudaMemsetAsync had run", copy->bytes, copy->to);
}

/* ---- queueing ---- */

static cuda_error copy_check(const struct copy *copy, int kind) {
        static const char *const names[] = {"host memory", "device memory"};
        bool to = kind == CUDA_MEMCPY_HOST_TO_DEVICE || kind == FAKE_CUDA_DEVICE_TO_DEVICE;
        bool from = kind == FAKE_CUDA_DEVICE_TO_HOST || kind == FAKE_CUDA_DEVICE_TO_DEVICE;

        if (kind != FAKE_CUDA_BY_ADDRESS && (to != copy->to_device || from != copy->from_device)) {
                violation("a copy of the kind %d from %p, %s, to %p, %s", kind, copy->from,
                          names[copy->from_device], copy->to, names[copy->to_device]);
                return FAKE_CUDA_INVALID_VALUE;
        }
        if (!memory_alias(copy->to, copy->bytes, copy->to_device) ||
            !memory_alias(copy->from, copy->bytes, copy->from_device)) {
                violation("a copy of %zu bytes from %p to %p goes beyond the end of device memory",
                          copy->bytes, copy->from, copy->to);
                return FAKE_CUDA_INVALID_VALUE;
        }
        return CUDA_SUCCESS;
}

/* A source that may change, or go, as soon as the caller has returned. */
static cuda_error copy_stage(struct copy *copy) {
        copy->staged = must_allocate(copy->bytes);
        if (!memory_move(copy->staged, copy->from, copy->bytes)) {
                violation("a copy of %zu bytes from %p, which are not all mapped", copy->bytes, copy->from);
                free(copy->staged);
                return FAKE_CUDA_INVALID_VALUE;
        }
        runtime.figures.pageable++;
        runtime.figures.pageable_bytes += copy->bytes;
        return CUDA_SUCCESS;
}

static cuda_error copy_prepare(struct copy *copy) {
        const void *host = copy->from_device ? copy->to : copy->from;

        if (copy->from_device == copy->to_device)
                return CUDA_SUCCESS;
        switch (memory_of_host(host, copy->bytes)) {
        case HOST_MIXED:
                violation("a copy of %zu bytes at %p goes across the border of page-locked memory",
                          copy->bytes, host);
                return FAKE_CUDA_INVALID_VALUE;
        case HOST_PAGEABLE:
                if (copy->to_device && !copy->waited_for)
                        return copy_stage(copy);
                copy->waited_for = true;
                break;
        case HOST_LOCKED:
                copy->hashed = copy->to_device && !copy->waited_for;
                if (copy->hashed)
                        copy->hash = memory_hash(copy->from, copy->bytes);
                break;
        }
        return CUDA_SUCCESS;
}

static cuda_error copy_queue(struct copy copy, int kind, struct CUstream_st *stream) {
        cuda_error error;

        if (copy.bytes == 0)
                return CUDA_SUCCESS;
        copy.to_device = memory_is_device(copy.to, copy.bytes);
        copy.from_device = memory_is_device(copy.from, copy.bytes);
        error = copy_check(&copy, kind);
        if (!error)
                error = copy_prepare(&copy);
        if (error)
                return error;
        queue(stream, ITEM_COPY)->copy = copy;
        runtime.figures.copies_queued++;
        if (copy.waited_for)
                stream_wait(stream);
        return copy.waited_for ? broken() : CUDA_SUCCESS;
}

cuda_error run_cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, cuda_stream handle) {
        struct CUstream_st *stream;
        cuda_error error = stream_for_work(handle, "cudaMemcpyAsync", &stream);

        return error ? error
                     : copy_queue((struct copy){.to = to, .from = from, .bytes = bytes}, kind, stream);
}

cuda_error run_cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
        struct copy copy = {.to = to, .from = from, .bytes = bytes, .waited_for = true};
        struct CUstream_st *stream;
        cuda_error error = stream_for_work(NULL, "cudaMemcpy", &stream);

        return error ? error : copy_queue(copy, kind, stream);
}

cuda_error run_cudaMemsetAsync(void *start, int value, size_t bytes, cuda_stream handle) {
        struct copy copy = {.to = start, .bytes = bytes, .value = value, .to_device = true};
        struct CUstream_st *stream;
        cuda_error error = stream_for_work(handle, "cudaMemsetAsync", &stream);

        if (error || bytes == 0)
                return error;
        if (!memory_alias(start, bytes, true)) {
                violation("cudaMemsetAsync of %zu bytes at %p, which are no device memory", bytes, start);
                return FAKE_CUDA_INVALID_VALUE;
        }
        queue(stream, ITEM_SET)->copy = copy;
        return CUDA_SUCCESS;
}
