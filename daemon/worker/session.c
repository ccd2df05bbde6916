/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One loop around a blocking socket:
 *
 *     SETUP  -->  [SCAN]  -->  INDEX  -->  ASSIGN, ASSIGN, ...
 *
 * SETUP brings the recipe, the ring and the page, and comes first and once. SCAN is for one worker of a
 * pipeline; its result goes to the daemon and comes back as INDEX, as it does to all others. Each chunk of an
 * ASSIGN is answered, in its order, by a part of a DONE or by a BROKEN, as soon as it is finished: the daemon
 * wants to hand rows on, not to save messages. One that the daemon has recalled meanwhile is answered by a
 * RETURNED and otherwise left alone: others may be writing its rows. A sample that cannot be made is no
 * reason to end; a message that makes no sense is: whoever sent it has another idea of the ring than we have,
 * and a wrong write would go into another job's batch. CONDEMNED may come at any time after INDEX; so may
 * ORDER, where the order of an epoch is a job's to give, and has to before the first chunk of that epoch.
 *
 * A bad sample that was replaced is told about before the DONE of its chunk, and once: it comes back in every
 * epoch, and as a substitute in between. What is remembered for that is bounded, lest a source without one
 * good file fills our memory; what it forgets the daemon hears again.
 *
 * SETUP may ask for verifying instead. Then there is no ring, only a row of our own memory for samples that
 * are written somewhere; chunks are samples by number, and their slot and first row are no more than a name.
 *
 * After SETUP and INDEX nothing is mapped or unmapped, and nothing is allocated except where a buffer meets
 * the largest sample so far. The pages of a slot exist already (the daemon reserved them), but each process
 * has to enter them into its own tables; that is done for a whole slot when it is first written to, in one
 * call instead of thousands of faults. */

#include "daemon/worker/session.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/seqpacket.h"
#include "daemon/worker/assembly.h"
#include "daemon/worker/orders.h"
#include "daemon/worker/progress.h"
#include "daemon/worker/sample-set.h"
#include "daemon/worker/source.h"
#include "proto/message.h"
#include "proto/worker-page.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define SCANNING_INTERVAL_NS (200 * NS_PER_MS)

enum {
        KEEP_FREE_BYTES = 64 << 20, /* at the heap's end; a decoder's largest buffers are of this order */
        TOLD_MAX = 8192,            /* bad samples that are remembered as told about */
};

enum {
        SESSION_E_CLOSED = 1, /* the daemon is gone */
        SESSION_E_USELESS,    /* nothing that this worker could do any more, and the daemon was told so */
};

struct session {
        int socket;
        struct recipe recipe;
        struct schema schema;
        int shuffle;
        int replace;
        int verify;
        uint32_t slots; /* 0: not set up yet */
        uint8_t *ring;  /* verifying: a slot of one row that nobody else sees */
        uint64_t ring_bytes;
        struct worker_page *page;
        uint8_t *populated; /* a bit for each slot that is in our page tables */
        uint64_t samples;
        struct assembly *assembly; /* NULL before INDEX */
        uint64_t chunks;           /* looked at so far: the ordinal of the last one */
        struct sample_set told;    /* bad samples, each with a REPLACED behind it */
        struct orders orders;      /* those that a job has given */
        uint64_t scanning_ns;      /* when the last SCANNING was sent */
        struct message in, out;
};

static struct session *session_free(struct session *session) {
        if (!session)
                return NULL;
        assembly_free(session->assembly);
        sample_set_deinit(&session->told);
        orders_deinit(&session->orders);
        if (session->ring)
                munmap(session->ring, session->ring_bytes);
        if (session->page)
                munmap(session->page, WORKER_PAGE_BYTES);
        free(session->populated);
        recipe_deinit(&session->recipe);
        free(session);
        return NULL;
}

static void session_freep(struct session **session) {
        session_free(*session);
}

/* Sends session->out. 0, SESSION_E_CLOSED, or a negative errno. */
static int reply(struct session *session, int fd, struct fault *fault) {
        int r;

        r = message_send(session->socket, &session->out, &fd, fd >= 0 ? 1 : 0);
        if (r == -EPIPE || r == -ECONNRESET)
                return SESSION_E_CLOSED;
        if (r < 0)
                return fault_set(fault, r, "sending %s: %s", message_name(session->out.type), strerror(-r));
        return 0;
}

static int out_of_turn(struct session *session, struct fault *fault) {
        return fault_set(fault, -EBADMSG, "%s out of turn", message_name(session->in.type));
}

/* The text may not be empty on the wire. `exception` may be NULL. */
static void set_broken(struct session *session, int error, const struct fault *why,
                       const struct source_exception *exception) {
        struct message_broken *broken = &session->out.broken;

        session->out.type = MESSAGE_BROKEN;
        *broken = (struct message_broken){.error = (uint16_t)-error};
        snprintf(broken->text, sizeof(broken->text), "%s", why->text[0] ? why->text : strerror(-error));
        if (!exception)
                return;
        memcpy(broken->exception, exception->type, sizeof(broken->exception));
        memcpy(broken->traceback, exception->traceback, sizeof(broken->traceback));
}

/* Something that no other sample would make good: the worker says why, and ends. */
static int send_useless_raised(struct session *session, int error, const struct fault *why,
                               const struct source_exception *exception, struct fault *fault) {
        int r;

        set_broken(session, error, why, exception);
        r = reply(session, -1, fault);
        return r < 0 ? r : SESSION_E_USELESS;
}

static int send_useless(struct session *session, int error, const struct fault *why, struct fault *fault) {
        return send_useless_raised(session, error, why, NULL, fault);
}

/* ---- SETUP ---- */

static int read_recipe(struct session *session, const struct message_setup *setup, struct fault *fault) {
        json_error_t error;
        json_t *json;
        int place, r;

        json = json_loads(setup->recipe, 0, &error);
        if (!json)
                return fault_set(fault, -EBADMSG, "recipe: %s", error.text);
        r = recipe_from_json(&session->recipe, json, fault);
        json_decref(json);
        if (r >= 0)
                r = recipe_check(&session->recipe, &place, fault);
        if (r < 0)
                return fault_prefix(fault, r, "recipe");
        if (!source_find(session->recipe.source.type))
                return fault_set(fault, -EOPNOTSUPP, "this worker has no source of type %s",
                                 recipe_sources[session->recipe.source.type].name);
        recipe_schema(&session->recipe, &session->schema);
        return schema_lay_out(&session->schema, setup->slot_rows, fault);
}

/* A file, or (`fd` -1) memory of our own. */
static int map(void *mappedp, int fd, uint64_t size, const char *what, struct fault *fault) {
        int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
        void *mapped;
        int error;

        mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
        if (mapped == MAP_FAILED) {
                error = errno;
                return fault_set(fault, -error, "mapping the %s of %llu bytes: %s", what,
                                 (unsigned long long)size, strerror(error));
        }
        *(void **)mappedp = mapped;
        return 0;
}

static int set_up(struct session *session, const struct message_setup *setup, const int *fds,
                  struct fault *fault) {
        const struct source_ops *ops;
        int r;

        if (setup->verify && (setup->slots != 1 || setup->slot_rows != 1))
                return fault_set(fault, -EBADMSG, "%u slots of %u rows to verify with, not one of one",
                                 setup->slots, setup->slot_rows);
        r = read_recipe(session, setup, fault);
        if (r < 0)
                return r;
        r = schema_ring_bytes(&session->schema, setup->slots, &session->ring_bytes);
        if (r < 0)
                return fault_set(fault, r, "a ring of %u slots does not fit into 64 bits", setup->slots);
        r = map(&session->ring, setup->verify ? -1 : fds[0], session->ring_bytes, "ring", fault);
        if (r < 0)
                return r;
        r = map(&session->page, fds[1], WORKER_PAGE_BYTES, "worker page", fault);
        if (r < 0)
                return r;
        session->populated = calloc((setup->slots + 7) / 8, 1);
        if (!session->populated)
                return fault_set(fault, -ENOMEM, "no memory for %u slots", setup->slots);
        ops = source_find(session->recipe.source.type);
        if (ops->set_worker)
                ops->set_worker(setup->worker);
        r = ops->set_up ? ops->set_up(setup->recipe, setup->layout, fault) : 0;
        if (r < 0)
                return r;
        progress_init(session->page);
        session->shuffle = setup->shuffle;
        session->replace = setup->on_error == MESSAGE_ON_ERROR_REPLACE;
        session->verify = setup->verify;
        session->slots = setup->slots;
        return 0;
}

/* Of the source's last call. */
static const struct source_exception *last_exception(const struct session *session) {
        const struct source_ops *ops = source_find(session->recipe.source.type);

        return ops && ops->exception ? ops->exception() : NULL;
}

static int on_setup(struct session *session, const int *fds, struct fault *fault) {
        struct fault why = {0};
        int r;

        if (session->slots > 0)
                return out_of_turn(session, fault);
        r = set_up(session, &session->in.setup, fds, &why);
        return r < 0 ? send_useless_raised(session, r, &why, last_exception(session), fault) : 0;
}

/* ---- SCAN ---- */

/* Now and then, not for each file: the daemon shows it to people. That it may be gone is seen by the next
 * receive. */
static void on_progress(void *context, uint64_t files, uint32_t classes) {
        struct session *session = context;
        uint64_t now = clock_ns();

        if (now - session->scanning_ns < SCANNING_INTERVAL_NS)
                return;
        session->scanning_ns = now;
        session->out.type = MESSAGE_SCANNING;
        session->out.scanning = (struct message_scanning){.files = files, .classes = classes};
        reply(session, -1, NULL);
}

static int sum_index(int index_fd, uint8_t sha256[SOURCE_SHA256_BYTES], struct fault *fault) {
        struct index index;
        int r;

        memset(sha256, 0, SOURCE_SHA256_BYTES);
        if (index_fd < 0)
                return 0;
        r = index_init_map(&index, index_fd, fault);
        if (r < 0)
                return r;
        source_index_sha256(&index, sha256);
        index_deinit(&index);
        return 0;
}

static int on_scan(struct session *session, struct fault *fault) {
        _cleanup_(fd_closep) int index_fd = -1;
        struct message_index found = {0};
        struct fault why = {0};
        int r;

        if (session->slots == 0 || session->assembly)
                return out_of_turn(session, fault);
        r = source_find(session->recipe.source.type)
                    ->scan(&session->recipe.source, on_progress, session, &found.samples, &found.classes,
                           &index_fd, &why);
        if (r >= 0)
                r = sum_index(index_fd, found.sha256, &why);
        malloc_trim(0); /* what the scan took is not needed again, and the worker may live for weeks */
        if (r < 0)
                return send_useless(session, r, &why, fault);
        session->out.type = MESSAGE_INDEX;
        session->out.index = found;
        return reply(session, index_fd, fault);
}

/* ---- bad samples ---- */

/* As assembly_bad_fn. That the socket is closed by now is found again by whoever answers the chunk. */
static int on_bad(void *context, uint64_t sample, const char *file, int error, const char *text) {
        struct session *session = context;
        struct message_replaced *replaced = &session->out.replaced;
        int r;

        if (session->told.count >= TOLD_MAX)
                sample_set_clear(&session->told);
        r = sample_set_add(&session->told, sample);
        if (r == SAMPLE_SET_E_KNOWN)
                return 0;
        if (r < 0)
                return r;
        session->out.type = MESSAGE_REPLACED;
        *replaced = (struct message_replaced){.sample = sample, .error = (uint16_t)-error};
        snprintf(replaced->file, sizeof(replaced->file), "%s", file);
        snprintf(replaced->text, sizeof(replaced->text), "%s", text[0] ? text : strerror(-error));
        r = reply(session, -1, NULL);
        return r < 0 ? r : 0;
}

static int on_condemned(struct session *session, struct fault *fault) {
        const struct message_condemned *condemned = &session->in.condemned;
        uint64_t bound = session->samples;
        struct fault why = {0};
        int r;

        if (!session->assembly)
                return out_of_turn(session, fault);
        if (session->recipe.source.given_order)
                bound = MESSAGE_SAMPLES_MAX; /* an epoch's rows may be fewer than the dataset has samples */
        for (uint32_t i = 0; i < condemned->n_sample; i++)
                if (condemned->sample[i] >= bound)
                        return fault_set(fault, -EBADMSG, "CONDEMNED: sample %llu of %llu",
                                         (unsigned long long)condemned->sample[i], (unsigned long long)bound);
        r = assembly_condemn(session->assembly, condemned->sample, condemned->n_sample);
        if (r == 0)
                return 0;
        fault_set(&why, r, "no memory for the condemned samples");
        return send_useless(session, r, &why, fault);
}

/* ---- INDEX ---- */

/* From here on the same buffers come and go for each sample, some inside of the codecs. What malloc would
 * fetch by mmap and give back at once is kept in the heap: a mapping costs a system call and a fault for each
 * page, every time. */
static void keep_memory(void) {
        mallopt(M_MMAP_MAX, 0);
        mallopt(M_TRIM_THRESHOLD, KEEP_FREE_BYTES);
}

static int on_index(struct session *session, int index_fd, struct fault *fault) {
        struct fault why = {0};
        int r;

        if (session->slots == 0 || session->assembly)
                return out_of_turn(session, fault);
        keep_memory();
        session->samples = session->in.index.samples;
        r = assembly_new(&session->assembly, &session->recipe, &session->schema, session->samples,
                         session->shuffle, index_fd, &why);
        if (r < 0)
                return send_useless_raised(session, r, &why, last_exception(session), fault);
        if (session->replace || session->verify)
                assembly_replace_bad(session->assembly, on_bad, session);
        return 0;
}

/* ---- ORDER ---- */

static int on_order(struct session *session, int fd, struct fault *fault) {
        const struct message_order *order = &session->in.order;
        struct fault why = {0};
        int r;

        if (session->slots == 0 || !session->recipe.source.given_order)
                return out_of_turn(session, fault);
        r = orders_add(&session->orders, order->seed, order->epoch, order->entries, fd, &why);
        return r < 0 ? send_useless(session, r, &why, fault) : 0;
}

/* ---- ASSIGN ---- */

/* Verifying goes by the samples' own numbers. */
static int check_order(const struct session *session, const struct message_chunk *chunk,
                       struct fault *fault) {
        const struct given_order *order;

        if (!session->recipe.source.given_order || session->verify)
                return 0;
        order = orders_find(&session->orders, chunk->seed, chunk->epoch);
        if (!order)
                return fault_set(fault, -EBADMSG, "ASSIGN: no ORDER has come for epoch %u of seed %llu",
                                 chunk->epoch, (unsigned long long)chunk->seed);
        if (order->entries < session->samples)
                return fault_set(fault, -EBADMSG, "ASSIGN: an order of %llu entries for %llu rows",
                                 (unsigned long long)order->entries, (unsigned long long)session->samples);
        return 0;
}

static int check_chunk(const struct session *session, const struct message_chunk *chunk,
                       struct fault *fault) {
        if (!session->verify && chunk->slot >= session->slots)
                return fault_set(fault, -EBADMSG, "ASSIGN: slot %u of %u", chunk->slot, session->slots);
        if (!session->verify && (uint64_t)chunk->first + chunk->rows > session->schema.slot_rows)
                return fault_set(fault, -EBADMSG, "ASSIGN: rows %u to %llu of a slot of %u", chunk->first,
                                 (unsigned long long)chunk->first + chunk->rows, session->schema.slot_rows);
        if (chunk->row + chunk->rows > session->samples)
                return fault_set(fault, -EBADMSG, "ASSIGN: rows %llu to %llu of an epoch of %llu",
                                 (unsigned long long)chunk->row, (unsigned long long)chunk->row + chunk->rows,
                                 (unsigned long long)session->samples);
        return check_order(session, chunk, fault);
}

/* Enters the slot's memory into our page tables as a whole, the first time. */
static int populate_slot(struct session *session, uint32_t number, uint8_t *slot, struct fault *fault) {
        uint8_t bit = (uint8_t)(1 << number % 8);

        if (session->populated[number / 8] & bit)
                return 0;
        if (madvise(slot, session->schema.slot_bytes, MADV_POPULATE_WRITE) < 0 && errno != EINVAL)
                return fault_set(fault, -errno, "slot %u of the ring cannot be populated: %s", number,
                                 strerror(errno));
        session->populated[number / 8] |= bit;
        return 0;
}

static int send_done(struct session *session, const struct message_chunk *chunk, uint32_t flags,
                     uint64_t begin, uint64_t end, struct fault *fault) {
        session->out.type = MESSAGE_DONE;
        session->out.done.n_part = 1;
        session->out.done.part[0] = (struct message_part){
                .slot = chunk->slot,
                .first = chunk->first,
                .rows = chunk->rows,
                .flags = flags,
                .busy_ns = end - begin,
                .done_ns = end,
        };
        return reply(session, -1, fault);
}

static int send_sample_broken(struct session *session, const struct message_chunk *chunk, int error,
                              const struct assembly_failure *failure, const struct fault *why,
                              struct fault *fault) {
        struct message_broken *broken = &session->out.broken;

        set_broken(session, error, why, failure->exception);
        broken->sample_given = 1;
        broken->sample = failure->sample;
        broken->slot = chunk->slot;
        broken->first = failure->first;
        memcpy(broken->file, failure->file, sizeof(failure->file));
        return reply(session, -1, fault);
}

static struct assembly_chunk as_assembly_chunk(const struct session *session,
                                               const struct message_chunk *chunk) {
        return (struct assembly_chunk){.slot = chunk->slot,
                                       .seed = chunk->seed,
                                       .epoch = chunk->epoch,
                                       .row = chunk->row,
                                       .first = chunk->first,
                                       .rows = chunk->rows,
                                       .order = orders_find(&session->orders, chunk->seed, chunk->epoch)};
}

static int verify_chunk(struct session *session, const struct message_chunk *chunk, struct fault *fault) {
        struct assembly_chunk samples = as_assembly_chunk(session, chunk);
        uint64_t begin = clock_ns();
        int r;

        r = assembly_verify(session->assembly, &samples, session->ring, session->page);
        if (r < 0)
                return fault_set(fault, r, "cannot tell of a bad sample: %s", strerror(-r));
        return send_done(session, chunk, 0, begin, clock_ns(), fault);
}

static int fill_chunk(struct session *session, const struct message_chunk *chunk, struct fault *fault) {
        struct assembly_chunk rows = as_assembly_chunk(session, chunk);
        struct assembly_failure failure;
        struct fault why = {0};
        uint64_t begin = clock_ns();
        uint8_t *slot = session->ring + chunk->slot * session->schema.slot_stride;
        uint32_t replaced;
        int r;

        r = populate_slot(session, chunk->slot, slot, fault);
        if (r < 0)
                return r;
        r = assembly_fill(session->assembly, &rows, slot, session->page, &replaced, &failure, &why);
        if (r < 0)
                return send_sample_broken(session, chunk, r, &failure, &why, fault);
        return send_done(session, chunk, replaced > 0 ? MESSAGE_PART_REPLACED : 0, begin, clock_ns(), fault);
}

static int send_returned(struct session *session, const struct message_chunk *chunk, struct fault *fault) {
        session->out.type = MESSAGE_RETURNED;
        session->out.returned =
                (struct message_returned){.slot = chunk->slot, .first = chunk->first, .rows = chunk->rows};
        return reply(session, -1, fault);
}

static int do_chunk(struct session *session, const struct message_chunk *chunk, struct fault *fault) {
        if (!progress_may_begin(session->page, ++session->chunks))
                return send_returned(session, chunk, fault);
        return session->verify ? verify_chunk(session, chunk, fault) : fill_chunk(session, chunk, fault);
}

/* Nothing is written before all of the message was looked at. */
static int on_assign(struct session *session, struct fault *fault) {
        const struct message_assign *assign = &session->in.assign;
        int r;

        if (!session->assembly)
                return out_of_turn(session, fault);
        for (uint32_t i = 0; i < assign->n_chunk; i++) {
                r = check_chunk(session, &assign->chunk[i], fault);
                if (r < 0)
                        return r;
        }
        for (uint32_t i = 0; i < assign->n_chunk; i++) {
                r = do_chunk(session, &assign->chunk[i], fault);
                if (r != 0)
                        return r;
        }
        return 0;
}

/* ---- the loop ---- */

static int dispatch(struct session *session, const int *fds, size_t n_fds, struct fault *fault) {
        switch (session->in.type) {
        case MESSAGE_SETUP:
                return on_setup(session, fds, fault);
        case MESSAGE_SCAN:
                return on_scan(session, fault);
        case MESSAGE_INDEX:
                return on_index(session, n_fds > 0 ? fds[0] : -1, fault);
        case MESSAGE_CONDEMNED:
                return on_condemned(session, fault);
        case MESSAGE_ORDER:
                return on_order(session, fds[0], fault);
        case MESSAGE_ASSIGN:
                return on_assign(session, fault);
        default:
                return out_of_turn(session, fault);
        }
}

static int serve_one(struct session *session, struct fault *fault) {
        int fds[SEQPACKET_FDS_MAX], r;
        size_t n_fds;

        r = message_receive(session->socket, &session->in, fds, &n_fds, MESSAGE_BY_DAEMON_TO_WORKER, fault);
        if (r == MESSAGE_E_CLOSED || r == -ECONNRESET)
                return SESSION_E_CLOSED;
        if (r == MESSAGE_E_AGAIN) /* a blocking socket says so only when a receive time-out was set on it */
                return 0;
        if (r < 0)
                return r;
        r = dispatch(session, fds, n_fds, fault);
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]); /* mapped by now, or not wanted */
        return r;
}

int session_run(int socket, struct fault *fault) {
        _cleanup_(session_freep) struct session *session = NULL;
        int r;

        session = calloc(1, sizeof(*session));
        if (!session)
                return fault_set(fault, -ENOMEM, "no memory for the session");
        session->socket = socket;
        r = fd_set_nonblocking(socket, 0);
        if (r < 0)
                return fault_set(fault, r, "descriptor %d: %s", socket, strerror(-r));
        do
                r = serve_one(session, fault);
        while (r == 0);
        return r < 0 ? r : 0;
}
