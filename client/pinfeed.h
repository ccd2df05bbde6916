#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* libpinfeed: attach a training job to a pinfeed daemon and read its batches.
 *
 * One connection is one job; nothing is shared between two jobs, so two threads may use two jobs freely.
 * Within a job pinfeed_batch_release may be called from any thread, everything else from one thread at a
 * time. A child made by fork() cannot use its parent's jobs (-ECHILD).
 *
 * The library writes nothing to any stream, installs no signal handler and never exits. It starts no thread
 * but one for each job that has a GPU (pinfeed_attach.device), and no process unless pinfeed_attach.daemon
 * names one.
 * Calls that wait go on waiting after a signal handler of yours has run; -EINTR is never returned. All
 * functions return a negative errno on failure; pinfeed_error has the words (except for
 * pinfeed_batch_release, which other threads call). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct pinfeed_job;

/* A batch: rows of one epoch, in the stream's order, lying in shared memory that is mapped read-only.
 * It is valid from pinfeed_next until pinfeed_batch_release or pinfeed_close, whichever comes first.
 * Its bytes never change while you hold it, and are reused for other rows soon after you release it.
 * Holding `max_held_batches` of them means that no further one can come until one is released. */
struct pinfeed_batch;

enum pinfeed_dtype {
        PINFEED_UINT8 = 1,
        PINFEED_INT32 = 2,
        PINFEED_INT64 = 3,
        PINFEED_FLOAT16 = 4,
        PINFEED_BFLOAT16 = 5,
        PINFEED_FLOAT32 = 6,
        PINFEED_FLOAT64 = 7,
};

enum pinfeed_last_batch {
        PINFEED_LAST_BATCH_DEFAULT = 0, /* what the pipeline says */
        PINFEED_LAST_BATCH_SHORT = 1,
        PINFEED_LAST_BATCH_DROP = 2,
        PINFEED_LAST_BATCH_PAD = 3,
};

enum pinfeed_start {
        PINFEED_START_GIVEN = 0, /* at start_epoch and start_row, or where `state` says */
        /* With the leading job of the same seed, at the first whole step of this job from there on: nothing
         * is prepared for it alone. Its first epoch is what is left of that one, batches_first_epoch of
         * pinfeed_info; alone it starts at row 0 of epoch 0. start_epoch, start_row and `state` must be 0.
         * The ranks of a run (world_size over 1) need a `group`: the first one decides for all. */
        PINFEED_START_LIVE = 1,
};

enum pinfeed_pin {
        PINFEED_PIN_AUTO = 0, /* page-lock slots where it can be had; pinfeed_info.map_reason says why not */
        PINFEED_PIN_REQUIRE = 1, /* -ENOTSUP where it cannot, from pinfeed_open or from pinfeed_next */
        PINFEED_PIN_NEVER = 2,
};

enum pinfeed_row_flag {
        PINFEED_ROW_GOOD = 0,
        PINFEED_ROW_REPLACED = 1,
        PINFEED_ROW_PADDING = 2,
};

enum {
        PINFEED_DIMS_MAX = 6,
        PINFEED_STATE_MAX = 256, /* bytes of a state, with its terminating NUL */
};

/* What to attach to and how. Zero everything, set `size` to sizeof(struct pinfeed_attach) and what you need:
 * the struct grows at its end only, and zero always means the default. */
struct pinfeed_attach {
        size_t size;
        const char *pipeline;    /* its name in the daemon's configuration, or in `definition` */
        const char *runtime_dir; /* NULL: $PINFEED_RUNTIME_DIR, $XDG_RUNTIME_DIR/pinfeed, /tmp/pinfeed-UID,
                                    /run/pinfeed. The daemon there has to be this user's, root's, the owner's
                                    of /run/pinfeed, or $PINFEED_SERVER_USER's (a name or number): else
                                    -EPERM */
        const char *name;        /* for people, in `pinfeedctl jobs`; NULL: the program's name */
        uint32_t rank;
        uint32_t world_size;       /* ranks that divide the stream among them; 0 means 1 */
        uint32_t batch_size;       /* rows of a batch, the same on all ranks; 0: the pipeline's */
        uint32_t max_held_batches; /* batches delivered and not yet released, 1 ... 1048576; 0: 4 */
        uint32_t start_epoch;
        uint32_t last_batch; /* enum pinfeed_last_batch */
        uint64_t start_row;  /* row of start_epoch to start at; 0 ... samples-1 */
        uint64_t seed;       /* used if seed_given; jobs with the same seed share one preparation */
        bool seed_given;
        uint32_t timeout_ms; /* for pinfeed_open and each pinfeed_next; 0: 300,000; UINT32_MAX: for ever */
        /* Called while a call waits for a daemon (pinfeed_open; pinfeed_next when it has gone), at most ten
         * times a second; may be NULL. */
        void (*progress)(void *context, const char *text);
        void *progress_context;
        /* Name that the ranks of one run have in common; NULL: none. With one they are let in as a whole: the
         * first is refused if there is no room for all, and pinfeed_next gives nothing before all have come
         * (group_size, group_timeout_ms). A rank that is there already is refused with -EEXIST. */
        const char *group;
        /* What pinfeed_job_state gave: goes on exactly there, in place of start_epoch and start_row. With
         * another world_size or batch_size too: every row of the epoch still comes once. Refused with -ESTALE
         * and what differs if the pipeline (its name, source, recipe or order) or the seed is not the same
         * any more. NULL: none. */
        const char *state;
        bool force; /* take `state` whatever has changed: its epoch and row count, nothing else */
        /* Seconds for which another daemon is looked for on the same socket when the job's has gone. The job
         * goes on with the batch after the last one it was handed; what it holds stays valid. The time runs
         * from the loss until a batch comes. 0: -EPIPE at once. A job that never had a daemon looks for none:
         * pinfeed_open says -ENOENT, and may be called again. */
        uint32_t reconnect_s;
        uint32_t start; /* enum pinfeed_start */
        /* No batch comes before so many jobs of the stream (pipeline and seed) are attached at once, this one
         * among them, so that all begin together; 0: at once. gather_timeout_ms after it has connected it
         * goes on with those that there are; 0: 60,000. pinfeed_next waits meanwhile, up to its own time-out.
         */
        uint32_t gather;
        uint32_t gather_timeout_ms;
        uint32_t group_size; /* ranks of the group on this machine; 0: world_size */
        /* Since it connected, for which it waits for the others of its group; then pinfeed_next says
         * -ETIMEDOUT with the ranks that are missing, for good. 0: 300,000; UINT32_MAX: for ever. */
        uint32_t group_timeout_ms;
        bool duplicate_rank; /* others of its group may have its rank, and read the same rows (tensor
                                parallelism) */
        /* The pipeline itself, for a private daemon of this user: the text of a configuration's `pipelines:`
         * (YAML, of which JSON is a part; at most 49152 bytes), which is sent at each attach. `pipeline` may
         * be NULL where it has one only. Jobs that define the same share one pipeline; another definition of
         * a name that is there becomes a pipeline beside it. NULL: the daemon knows the pipeline. */
        const char *definition;
        /* Where it stands: names it in errors, and relative paths in it start there. NULL: "definition" in
         * the working directory. It is not opened. */
        const char *definition_file;
        /* The pinfeedd to start, privately, when no daemon listens, be it at pinfeed_open or later (with
         * reconnect_s): a path. It outlives this process, leaves its session, keeps none of its descriptors,
         * and ends linger_s (0: 60) seconds after its last job. However many clients do this at once, one
         * daemon comes. Until it has come this process has a child (SIGCHLD). None is started where the
         * machine's service is used. NULL or "": none is started. */
        const char *daemon;
        uint32_t linger_s;
        /* The GPU that batches are copied to: "cuda:1"; "cuda" is the calling thread's current device.
         * Nothing is done on any other device, and nothing on this one before its first batch. Such a job has
         * one thread that ends leases when copies have finished (all signals blocked, named pinfeed-cuda);
         * with PINFEED_NO_THREAD in the environment the calls on the job do that, so a loop of your own has
         * to call pinfeed_dispatch now and then. -ENODEV, and where it was looked for, when there is no such
         * device or no CUDA runtime. NULL, "" or "cpu": none. */
        const char *device;
        uint32_t pin; /* enum pinfeed_pin; counts with a GPU only */
        /* The CUDA runtime to use, a path, where the process has none yet and PINFEED_LIBCUDART does not name
         * one. NULL: it is looked for under its usual names. */
        const char *cuda_runtime;
        /* For a pipeline of a dataset in Python that `definition` defines with `brought: true`: the daemon's
         * end of the pair whose other end the zygote has, a process of this one's that forks workers at the
         * daemon's request (proto/PROTOCOL.md), and its pid. The descriptor stays yours; the library keeps a
         * duplicate, and gives it to the next daemon too. zygote_pid 0: none. */
        int zygote_fd;
        uint32_t zygote_pid;
        /* For a pipeline with `given_order: true`: the order of the epoch that the job begins with, as
         * pinfeed_give_order takes it. Needs seed_given, and a start that is not live. order_entries 0: none.
         */
        int order_fd;
        uint64_t order_entries;
};

/* One tensor of a batch. The first dimension is the rows of the batch and stands in `rows`, not in `shape`.
 */
struct pinfeed_field {
        const char *name; /* lives as long as the job */
        enum pinfeed_dtype dtype;
        bool channels_last; /* shape says C,H,W, the bytes lie H,W,C */
        uint32_t n_dims;
        uint64_t shape[PINFEED_DIMS_MAX];
        size_t row_bytes;
};

struct pinfeed_info {
        uint32_t job; /* the daemon's number for it */
        uint64_t samples;
        uint64_t seed;
        uint64_t batches_per_epoch; /* of a whole epoch */
        uint32_t batch_size;
        uint32_t n_fields;
        uint32_t max_held_batches;
        int daemon_pid;
        const char *map; /* "pinned": slots are being page-locked, and the GPU reads them; or "read-only" */
        const char *sharing; /* one sentence: with whom this job shares, and what would help */
        uint32_t rank;
        uint32_t world_size;
        uint64_t batches_first_epoch; /* of the epoch it was attached in, from there on */
        uint32_t reconnects;          /* daemons it has found again */
        uint32_t last_batch; /* enum pinfeed_last_batch, never the default: what holds for this job */
        uint32_t epoch;      /* where the job is: what pinfeed_job_state says */
        uint64_t row;
        uint64_t batches_left;  /* of that epoch, from that row on */
        const char *device;     /* "cpu" or "cuda:1" */
        const char *map_reason; /* why `map` is what it is, in one sentence; lives until the next call on the
                                   job */
        uint32_t slots;         /* of the ring */
        uint32_t slots_registered; /* that are page-locked so far; each is when its first batch comes */
        uint64_t copies; /* bytes that this process has copied itself for the GPU: 0 in a pinned job */
};

struct pinfeed_cuda {
        uint32_t runtime; /* its version, 13000 for 13.0; 0: there is none */
        uint32_t driver;  /* the newest version that the driver serves; 0: there is no driver */
        uint32_t devices; /* that can be used */
        uint32_t error;   /* the cudaError_t of counting them, or 0 */
        char path[256];   /* of the runtime */
        char text[1024];  /* why there is no runtime, and where it was looked for, or no device; or "" */
};

/* Attaches and waits until batches can flow (the daemon may have to scan a source first). On success *job is
 * yours to close. On failure *job is a job that can only give pinfeed_error and be closed, or NULL for want
 * of memory. 0; -EINVAL bad argument; -ENOENT no daemon listens (or can be started), or no such pipeline;
 * -ENODEV no such GPU; -ENOTSUP it cannot be page-locked; -ETIMEDOUT; -EPROTO another protocol version or a
 * broken message; -EPERM the daemon or its pipeline is not for this user, it belongs to somebody else, or it
 * takes no definitions; -ESTALE `state` is of something else, and what differs; -EEXIST its rank of the group
 * is there; -ENOSPC the ring has no room for another job; -EIO the pipeline failed; -EPIPE the daemon went
 * away meanwhile (and, with reconnect_s, no other came); -ESHUTDOWN it is stopping; -ENOMEM, -EMFILE. */
int pinfeed_open(struct pinfeed_job **job, const struct pinfeed_attach *attach);

/* Detaches, unmaps and frees. Every batch of the job becomes invalid. Copies to a GPU that are queued are
 * waited for. NULL is fine. Returns NULL. */
struct pinfeed_job *pinfeed_close(struct pinfeed_job *job);

/* The next batch of the job's sequence. 1: *batch is set, and yours to release. 0: the epoch has ended, said
 * at once after its last batch; *batch is NULL and the next call goes on with the next epoch. (An epoch of
 * which start_row and PINFEED_LAST_BATCH_DROP leave no whole batch ends before its first.) -EAGAIN:
 * `timeout_ms` was given as 0 to pinfeed_next_timeout and nothing is there. -ETIMEDOUT: nothing came in time;
 * calling again is fine (but for a group whose ranks did not come), and the words then tell the time of all
 * such calls in a row. -EBUSY: you hold max_held_batches; release one. -EIO: the stream failed (bad sample,
 * dead worker; pinfeed_failure knows which); this and every later call say the same, after the batches that
 * had come before it. -EPROTO: the daemon sent something that cannot be, likewise. -EPIPE: the daemon is
 * gone, and with reconnect_s no other was found in time. With reconnect_s also what pinfeed_open can say,
 * when another daemon refuses the job for good (-ESTALE: the pipeline has changed). After pinfeed_job_seek:
 * the daemon's error, once. With a GPU also -EIO, once, when copies that were queued may not have arrived,
 * and which; -ENOTSUP where PINFEED_PIN_REQUIRE cannot be had; -EXDEV with PINFEED_NO_THREAD when another
 * device is current. -ECHILD: this is a fork's child. */
int pinfeed_next(struct pinfeed_job *job, struct pinfeed_batch **batch);

/* The same with a time-out of its own in milliseconds: 0 does not block, UINT32_MAX waits for ever. With a
 * GPU it does not count what the first batch of a slot takes to be page-locked. */
int pinfeed_next_timeout(struct pinfeed_job *job, struct pinfeed_batch **batch, uint32_t timeout_ms);

/* For a loop of your own: poll this descriptor for reading, then call pinfeed_dispatch, which takes in what
 * has come without blocking; afterwards pinfeed_next_timeout(job, &batch, 0) gives what is there. The
 * descriptor stays the job's. With reconnect_s it changes with the daemon, so ask for it before each poll;
 * -EAGAIN: there is none now, so wait a tenth of a second and dispatch. pinfeed_dispatch: 0, or as
 * pinfeed_next. */
int pinfeed_fd(const struct pinfeed_job *job);
int pinfeed_dispatch(struct pinfeed_job *job);

/* What went wrong last on this job, in one line: what, where, number, remedy. "" if nothing did, and for
 * -EAGAIN. NULL is fine. Lives until the next call on the job. */
const char *pinfeed_error(const struct pinfeed_job *job);

/* Whether the job has come to its end: 0, or the error that pinfeed_next says from now on, once the batches
 * are handed over that had come before it. Tells a time-out after which calling again is fine (0) from that
 * of a group whose ranks did not come (-ETIMEDOUT). -EINVAL: NULL. */
int pinfeed_job_failed(const struct pinfeed_job *job);

/* What is known of the sample that a job has ended with. Set `size` to sizeof(struct pinfeed_failure): the
 * struct grows at its end only. Texts are never NULL, and live as long as the job. */
struct pinfeed_failure {
        size_t size;
        bool sample_given; /* false: a worker of a dataset in Python failed before it came to a sample */
        uint64_t sample;   /* its number in the source */
        uint32_t worker;
        uint32_t pid;         /* of the worker; 0: none is to blame */
        uint32_t signal;      /* that killed it; 0: none did */
        uint32_t exit_status; /* of one that ended by itself */
        const char *file;     /* of the sample, relative to the source; "": none is known */
        /* Of a dataset in Python: the type that it raised, as "builtins.ValueError", and the traceback as
         * Python prints it, cut in its middle if it is long. Else "". */
        const char *exception;
        const char *traceback;
};

/* The sample behind what pinfeed_error says. 0; -ENOENT that is not about a sample; -EINVAL: NULL, or `size`
 * is not set. */
int pinfeed_failure(const struct pinfeed_job *job, struct pinfeed_failure *failure);

void pinfeed_job_info(const struct pinfeed_job *job, struct pinfeed_info *info);

/* How the values of a sample of a dataset in Python are nested, and of what types they were, where the
 * daemon's configuration names such a dataset: JSON that the Python package understands. "" for all other
 * pipelines. Lives as long as the job. */
const char *pinfeed_job_layout(const struct pinfeed_job *job);

/* Where the job is, as one line of JSON of at most PINFEED_STATE_MAX - 1 bytes: pipeline, fingerprint of its
 * contents, seed, epoch, row. It says what pinfeed_next has handed over, not what lies ready, and at the same
 * step it is the same on all ranks. After an epoch's last batch it is the beginning of the next epoch. Attach
 * with it (pinfeed_attach.state) to go on after the last batch that you got before. Its length; -ENOSPC when
 * `size` is too small; -EINVAL for a job that was never attached. */
int pinfeed_job_state(const struct pinfeed_job *job, char *text, size_t size);

/* Goes to (epoch, row): the next batch is the first one from there on; an epoch begun in its middle is as
 * short as what is left of it, later ones are whole. Batches that you hold stay yours; release them before
 * you wait for the next if the ring is full. Never blocks. 0; -EINVAL row is not below `samples`; errors of
 * the daemon (-ENOSPC: an unaligned row needs more slots than there are) come from pinfeed_next, which goes
 * on where the job was when it is called again. */
int pinfeed_job_seek(struct pinfeed_job *job, uint32_t epoch, uint64_t row);

/* Waits, as pinfeed_next_timeout does, until the daemon has said whether the job can go there: for those who
 * want to know before they ask for a batch. 0: it is there, or was not sent anywhere. The daemon's error,
 * here in place of pinfeed_next: the job is where it was. -EAGAIN, -ETIMEDOUT: there is no answer yet,
 * perhaps since other jobs hold the slots that it needs; it still counts. Else what ends a job. */
int pinfeed_job_sought(struct pinfeed_job *job, uint32_t timeout_ms);

/* Brings another zygote (pinfeed_attach.zygote_fd) in place of the one before, whose workers are ended. What
 * they have made stays: so who has changed the dataset does it between two epochs, with `lookahead: 0`. Never
 * blocks, and the descriptor stays yours. Between two daemons it is kept for the next one. 0; -EINVAL the job
 * has no definition, or no such pid; -EBADF, -EMFILE; what has ended the job; -ECHILD. */
int pinfeed_bring(struct pinfeed_job *job, int fd, uint32_t pid);

/* Gives the order of an epoch, for a pipeline with `given_order: true`, before the call that asks for the
 * first batch of it: a memfd of `entries` numbers of 64 bits, sealed against every change (what they say is
 * the source's, see ORDER in proto/PROTOCOL.md). Never blocks, and the descriptor stays yours. The orders of
 * the last two epochs given are kept, and told to the next daemon, too. 0, or as pinfeed_bring: -EINVAL no
 * such number of entries. What is wrong with the order itself the daemon says, by pinfeed_next. */
int pinfeed_give_order(struct pinfeed_job *job, uint32_t epoch, int fd, uint64_t entries);

/* Field `index` of the job's batches. 0, or -EINVAL beyond n_fields. */
int pinfeed_job_field(const struct pinfeed_job *job, uint32_t index, struct pinfeed_field *field);

/* All that follow read a batch that you hold. For one that is released, of a closed job, or of a fork's
 * parent they give 0 or NULL. */
uint32_t pinfeed_batch_rows(const struct pinfeed_batch *batch);
uint32_t pinfeed_batch_epoch(const struct pinfeed_batch *batch);
uint64_t pinfeed_batch_row(const struct pinfeed_batch *batch); /* of its first row in the epoch */

/* How many of its rows are padding: rows of the epoch's beginning that come a second time so that all ranks
 * have as many. They are the last ones. */
uint32_t pinfeed_batch_padding(const struct pinfeed_batch *batch);

/* A batch that starts on a multiple of the pipeline's batch size and is as long is one segment and can be
 * read in place; others lie in several (another batch size, a job started at an odd row, padding). Segments
 * are in row order; rows of a segment are all padding or none is. */
uint32_t pinfeed_batch_segments(const struct pinfeed_batch *batch);

/* The bytes of `field` in `segment`, row-major, *rows rows of row_bytes each. `rows` may be NULL. NULL for an
 * index out of range. */
const void *pinfeed_batch_data(const struct pinfeed_batch *batch, uint32_t segment, uint32_t field,
                               uint32_t *rows);

/* Sample numbers (int64) and flags (enum pinfeed_row_flag) of a segment's rows. */
const int64_t *pinfeed_batch_ids(const struct pinfeed_batch *batch, uint32_t segment, uint32_t *rows);
const uint8_t *pinfeed_batch_flags(const struct pinfeed_batch *batch, uint32_t segment, uint32_t *rows);

/* Copies a field of all segments, in order, into `to`. Returns the bytes copied, -EINVAL for a bad field,
 * -ENOSPC when `size` is too small (nothing is copied). */
int64_t pinfeed_batch_copy(const struct pinfeed_batch *batch, uint32_t field, void *to, size_t size);

/* The same for sample numbers and flags, `size` in bytes. */
int64_t pinfeed_batch_copy_ids(const struct pinfeed_batch *batch, int64_t *to, size_t size);
int64_t pinfeed_batch_copy_flags(const struct pinfeed_batch *batch, uint8_t *to, size_t size);

/* Queues the copy of `field`, all segments in order, to `to` on `stream`. It waits for no copy, except in a
 * job that is not pinned: that copies the batch itself before, to one of two buffers, and waits for that one.
 * `to` is device memory of pinfeed_batch_rows times row_bytes bytes; `stream` a cudaStream_t, or NULL for the
 * legacy default stream. The calling thread's current device must be the job's (-EXDEV). The lease lasts
 * until the copy has finished, whenever the batch is released; a batch may be copied several times, on any
 * streams. To wait for the bytes is the stream's business: what is queued on it afterwards sees them. Without
 * a device of the job's this is pinfeed_batch_copy: `to` is host memory, and `stream` NULL. The bytes that
 * were queued; -EINVAL a bad field, or a batch that is not held; -EBUSY the stream is being captured into a
 * graph, which would repeat the copy after the slot has gone; -EIO the CUDA call failed, and which (what was
 * queued before it still runs, and holds the lease); -ECHILD. */
int64_t pinfeed_batch_copy_async(struct pinfeed_batch *batch, uint32_t field, void *to, void *stream);

/* The same for all fields at once: to[i] is for field i, NULL leaves it out; n_fields of them. One event for
 * all, so it is cheaper than one call each. */
int64_t pinfeed_batch_copy_all_async(struct pinfeed_batch *batch, void *const *to, void *stream);

/* CLOCK_MONOTONIC nanoseconds: when the batch's last row was written by a worker, and when its handle reached
 * this process. Their difference is the hand-over, if the job had room for the batch all along. */
uint64_t pinfeed_batch_ready_ns(const struct pinfeed_batch *batch);
uint64_t pinfeed_batch_received_ns(const struct pinfeed_batch *batch);

/* Ends the lease. The batch must not be used afterwards. Safe from any thread. 0; -EALREADY it was released
 * before; -EINVAL not a batch of a living job; -ECHILD in a fork's child; -EPIPE the daemon is gone (the
 * batch is released all the same; not with reconnect_s, where it is no news). Never waits, also while copies
 * of it are queued. */
int pinfeed_batch_release(struct pinfeed_batch *batch);

/* What this process would have of CUDA, for programs that tell people so. Loads the runtime as a job with a
 * GPU would (`runtime` is its pinfeed_attach.cuda_runtime), which then stays in the process and has started
 * the driver; makes no context and touches no device. From any thread. 0; -ENOENT there is no runtime;
 * -ENODEV there is no device: *cuda is filled in as far as it goes, with words. */
int pinfeed_cuda_probe(struct pinfeed_cuda *cuda, const char *runtime);

/* The runtime directory a client would use, see struct pinfeed_attach. 0 or -ENAMETOOLONG. */
int pinfeed_runtime_dir(char *path, size_t size, const char *given);

/* Whether whoever listens at the other end of `socket`, which was connected to one in `directory`, may be
 * believed: this user, root, in /run/pinfeed whom that directory belongs to, elsewhere also whom
 * $PINFEED_SERVER_USER names. pinfeed_open asks the same. 0, or -EPERM or another negative errno with the
 * reason in `text` (may be NULL), of which 500 bytes are enough. */
int pinfeed_check_server(int socket, const char *directory, char *text, size_t size);

/* "0.1.0" */
const char *pinfeed_version(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
