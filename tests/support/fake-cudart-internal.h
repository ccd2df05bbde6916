#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the files of the fake CUDA runtime share; see fake-cudart.c. */

#include "tests/support/fake-cudart.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum {
        FAKE_DEVICES_MAX = 8,
        FAKE_RULES_MAX = 16,
        FAKE_CALLERS_MAX = 16,
        FAKE_REPORT_PATH_MAX = 256,
};

#define FAKE_NAME_CALL(name, need, parameters, arguments) CALL_##name,
enum call {
        FAKE_CUDA_CALLS(FAKE_NAME_CALL) /* */
        CALL_execute,                   /* not a call: a copy runs */
        N_CALLS,
};
#undef FAKE_NAME_CALL

/* S(name, default): the settings that are numbers. */
#define FAKE_SETTINGS(S)                                                                                     \
        S(devices, 1)                                                                                        \
        S(version, 13000)                                                                                    \
        S(driver, UINT64_MAX) /* as `version` */                                                             \
        S(read_only, 0)                                                                                      \
        S(delay_us, 0)                                                                                       \
        S(register_us, 0)                                                                                    \
        S(register_max, UINT64_MAX)                                                                          \
        S(registered_max, UINT64_MAX)                                                                        \
        S(registrations_max, UINT64_MAX)                                                                     \
        S(memory, UINT64_C(16) << 30)                                                                        \
        S(across, 0)                                                                                         \
        S(hash, UINT64_C(1) << 20)                                                                           \
        S(sticky, 0)                                                                                         \
        S(abort, 0)

#define FAKE_DECLARE_SETTING(name, value) uint64_t name;
struct settings {
        FAKE_SETTINGS(FAKE_DECLARE_SETTING)
        char report[FAKE_REPORT_PATH_MAX];
};
#undef FAKE_DECLARE_SETTING

/* Fails a call; see fake_cuda_set. */
struct rule {
        enum call call;
        uint64_t from, times; /* of the calls that `seen` counts */
        uint64_t seen;
        cuda_error code;
        bool sticky;
};

struct device {
        const char *made_by; /* the call that made its context; NULL: it has none */
        struct CUstream_st *legacy;
        uint64_t bytes; /* allocated */
};

/* Calls by the name of the thread. The last one takes all further names. */
struct caller {
        char name[16];
        uint64_t calls[N_CALLS];
};

/* Everything is under `lock`, which each call holds while it runs and streams hold but for the moving of
 * bytes. `changed` is broadcast whenever a stream has got on. */
struct runtime {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct settings settings;
        struct fake_cuda_figures figures;
        struct device devices[FAKE_DEVICES_MAX];
        struct rule rules[FAKE_RULES_MAX];
        unsigned n_rules;
        struct caller callers[FAKE_CALLERS_MAX];
        unsigned n_callers;
        uint64_t allowance; /* copies that may still begin; UINT64_MAX: all */
};

extern struct runtime runtime;

struct thread {
        int device;
        cuda_error last;
        int capture_mode;
        bool is_stream;
        struct caller *caller;
};

extern _Thread_local struct thread thread;

/* What each call does, under the lock. */
#define FAKE_DECLARE_RUN(name, need, parameters, arguments) cuda_error run_##name parameters;
FAKE_CUDA_CALLS(FAKE_DECLARE_RUN)
#undef FAKE_DECLARE_RUN

/* fake-cudart.c */
const char *call_name(enum call call);
bool call_find(const char *name, enum call *call);
/* The code with which it must fail, or CUDA_SUCCESS. */
cuda_error rule_check(enum call call);
void context_make(int device, enum call call);
/* No fork's child of the process that made the calls. */
bool process_is_user(void);

/* fake-cudart-control.c. Violations may be noted with the lock or without. */
void violations_prepare(void);
void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* fake-cudart-memory.c: memory that the runtime knows of. */
enum region_kind {
        REGION_DEVICE,
        REGION_HOST,       /* cudaHostAlloc */
        REGION_REGISTERED, /* cudaHostRegister */
};

/* What is mapped at an address, to see later whether it still is. */
struct mapping {
        uint64_t device, inode, offset;
        bool writable;     /* all of it */
        bool private_file; /* a part of it */
};

struct region {
        struct region *next;
        enum region_kind kind;
        int device; /* current when it was made */
        uint8_t *start;
        size_t bytes;
        uint8_t *alias; /* of device memory: where it may be touched */
        struct mapping mapping;
};

enum host_memory {
        HOST_PAGEABLE,
        HOST_LOCKED,
        HOST_MIXED, /* across a border */
};

enum host_memory memory_of_host(const void *start, size_t bytes);
bool memory_is_device(const void *start, size_t bytes);
/* Where [start, start + bytes) may be touched: device memory by its alias, else itself. NULL: no such device
 * memory. */
void *memory_alias(const void *start, size_t bytes, bool device);
/* Copies, and never faults: false when a part of either is not there. */
bool memory_move(void *to, const void *from, size_t bytes);
uint64_t memory_hash(const void *start, size_t bytes);

/* fake-cudart-stream.c */
struct point {
        struct CUstream_st *stream;
        uint64_t number;
};

enum item_kind {
        ITEM_COPY,
        ITEM_SET,
        ITEM_WAIT,
        ITEM_MARK, /* an event, or nothing: something to wait for */
        ITEM_FUNCTION,
};

struct copy {
        void *to;
        const void *from;
        size_t bytes;
        bool to_device, from_device;
        bool waited_for; /* the caller returns when it has run */
        void *staged;    /* the bytes of a pageable source */
        uint64_t hash;   /* of a page-locked one's, when it was queued */
        bool hashed;
        int value; /* of ITEM_SET */
};

struct item {
        struct item *next;
        enum item_kind kind;
        uint64_t number;
        struct copy copy;
        struct point point;
        struct CUevent_st *event;
        cuda_host_function function;
        void *data;
};

enum capture {
        CAPTURE_NONE,
        CAPTURE_ACTIVE,
        CAPTURE_INVALIDATED,
};

struct CUstream_st {
        struct CUstream_st *next;
        int device;
        bool legacy, blocking, gone, started;
        struct item *first, **last;
        uint64_t queued, done;
        enum capture capture;
        int capture_mode;
        pthread_t capturer;
};

struct CUevent_st {
        struct CUevent_st *next;
        int device;
        unsigned flags;
        struct point point; /* no stream: never recorded */
        uint64_t time_ns;
        unsigned users; /* the program, and each item */
};

/* Queued copies that read or write host memory of [start, start + bytes). */
unsigned stream_copies_of(const void *start, size_t bytes);
/* Waits until all that is queued on the device, or on all (-1), has run. */
void stream_drain(int device);
/* While a capture goes on that the calling thread's unsafe calls would spoil: spoils it. */
bool stream_spoils_capture(void);
/* The stream that `call` may queue something in. */
cuda_error stream_for_work(cuda_stream handle, const char *call, struct CUstream_st **stream);
/* Queues something, for the caller to fill in. */
struct item *queue(struct CUstream_st *stream, enum item_kind kind);
void stream_wait(struct CUstream_st *stream);

bool point_reached(const struct point *point);
void point_wait(const struct point *point);
struct point point_of(struct CUstream_st *stream);

/* fake-cudart-copy.c */
void copy_run(struct copy *copy);
void copy_run_set(const struct copy *copy);

/* fake-cudart-event.c */
void event_unref(struct CUevent_st *event);

/* Zeroed memory, or the end. */
static inline void *must_allocate(size_t bytes) {
        void *p = calloc(1, bytes);

        if (!p)
                abort();
        return p;
}

/* The sticky error, or CUDA_SUCCESS. */
static inline cuda_error broken(void) {
        return (cuda_error)runtime.settings.sticky;
}
