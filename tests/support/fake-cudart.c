/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The fake CUDA runtime: what all calls have in common, and the small ones. A call of the table becomes an
 * entry point here, which takes the one lock, asks whether it may go on (call_refusal: not in a fork's child,
 * not from a stream's own thread, no planted failure, a driver, a device, a live context), and then runs
 * run_NAME from one of the files. So what a runtime does for every call stands in one place.
 *
 *     -calls.h    the table            -memory.c   registrations, allocations, device memory
 *     -control.c  settings, report     -stream.c   streams and their threads, capture
 *                                      -copy.c     copies and their checks
 *                                      -event.c    events
 *
 * It is strict where the real runtime is vague: a context comes into being at the first call whose
 * description does not exclude it, an event that is not ready leaves its error behind for cudaGetLastError,
 * a copy across the border of two registrations is refused. A client that is right here is right there.
 *
 * One lock for everything is slow, and easy to believe in. The moving of bytes goes on without it. */

#include "tests/support/fake-cudart-internal.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SETTING_DEFAULT(name, value) .name = (value),
struct runtime runtime = {
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
        .settings = {FAKE_SETTINGS(SETTING_DEFAULT)},
        .allowance = UINT64_MAX,
};

_Thread_local struct thread thread;

/* The process that made the first call. */
static atomic_int user;

enum need {
        NOTHING,
        DRIVER,
        CONTEXT,
        UNSAFE,
};

#define CALL_ROW(name, need, parameters, arguments) {#name, need},
static const struct {
        const char *name;
        enum need need;
} calls[N_CALLS] = {FAKE_CUDA_CALLS(CALL_ROW){"execute", NOTHING}};

const char *call_name(enum call call) {
        return calls[call].name;
}

bool call_find(const char *name, enum call *call) {
        for (unsigned i = 0; i < N_CALLS; i++) {
                if (strcmp(calls[i].name, name) != 0)
                        continue;
                *call = i;
                return true;
        }
        return false;
}

/* ---- what is asked before a call ---- */

bool process_is_user(void) {
        int pid = atomic_load(&user);

        return pid == 0 || pid == getpid();
}

static void count_call(enum call call) {
        char name[16] = "";

        if (!thread.caller) {
                prctl(PR_GET_NAME, name);
                for (unsigned i = 0; i < runtime.n_callers && !thread.caller; i++)
                        if (strcmp(runtime.callers[i].name, name) == 0)
                                thread.caller = &runtime.callers[i];
        }
        if (!thread.caller && runtime.n_callers == FAKE_CALLERS_MAX)
                thread.caller = &runtime.callers[FAKE_CALLERS_MAX - 1];
        if (!thread.caller) {
                thread.caller = &runtime.callers[runtime.n_callers++];
                memcpy(thread.caller->name, name, sizeof(name));
        }
        thread.caller->calls[call]++;
}

cuda_error rule_check(enum call call) {
        cuda_error code = CUDA_SUCCESS;

        for (unsigned i = 0; i < runtime.n_rules; i++) {
                struct rule *rule = &runtime.rules[i];

                if (rule->call != call)
                        continue;
                rule->seen++;
                if (code || rule->seen < rule->from || rule->seen - rule->from >= rule->times)
                        continue;
                code = rule->code;
                if (rule->sticky)
                        runtime.settings.sticky = code;
        }
        return code;
}

void context_make(int device, enum call call) {
        if (runtime.devices[device].made_by)
                return;
        runtime.devices[device].made_by = call_name(call);
        runtime.figures.contexts++;
}

static cuda_error check_driver(void) {
        uint64_t driver = runtime.settings.driver;

        if (driver < runtime.settings.version / 1000 * 1000)
                return FAKE_CUDA_INSUFFICIENT_DRIVER;
        return runtime.settings.devices == 0 ? FAKE_CUDA_NO_DEVICE : CUDA_SUCCESS;
}

/* CUDA_SUCCESS: the call may run. */
static cuda_error call_refusal(enum call call) {
        enum need need = calls[call].need;
        cuda_error error;

        if (thread.is_stream) {
                violation("%s was called by a function that cudaLaunchHostFunc had queued", call_name(call));
                return FAKE_CUDA_NOT_PERMITTED;
        }
        error = rule_check(call);
        if (!error && need >= DRIVER)
                error = check_driver();
        if (error || need < CONTEXT)
                return error;
        context_make(thread.device, call);
        if (need == UNSAFE && stream_spoils_capture()) {
                violation("%s was called while a stream was being captured", call_name(call));
                return FAKE_CUDA_CAPTURE_UNSUPPORTED;
        }
        return broken();
}

/* Returns to the caller, without the lock. */
static cuda_error call_end(enum call call, cuda_error error) {
        if (error && call != CALL_cudaGetLastError && call != CALL_cudaPeekAtLastError)
                thread.last = error;
        pthread_mutex_unlock(&runtime.lock);
        return error;
}

/* True: the call may run, and holds the lock. */
static bool call_begin(enum call call, cuda_error *error) {
        int nobody = 0;

        violations_prepare();
        if (!atomic_compare_exchange_strong(&user, &nobody, getpid()) && !process_is_user()) {
                violation("%s was called in a fork's child", call_name(call));
                *error = FAKE_CUDA_NOT_INITIALIZED;
                return false;
        }
        pthread_mutex_lock(&runtime.lock);
        count_call(call);
        *error = call_refusal(call);
        if (*error)
                call_end(call, *error);
        return *error == CUDA_SUCCESS;
}

#define DEFINE_CALL(name, need, parameters, arguments)                                                       \
        cuda_error name parameters {                                                                         \
                cuda_error error;                                                                            \
                if (!call_begin(CALL_##name, &error))                                                        \
                        return error;                                                                        \
                return call_end(CALL_##name, run_##name arguments);                                          \
        }
FAKE_CUDA_CALLS(DEFINE_CALL)

/* ---- versions, devices, errors ---- */

cuda_error run_cudaRuntimeGetVersion(int *version) {
        *version = (int)runtime.settings.version;
        return CUDA_SUCCESS;
}

cuda_error run_cudaDriverGetVersion(int *version) {
        bool as_runtime = runtime.settings.driver == UINT64_MAX;

        *version = (int)(as_runtime ? runtime.settings.version : runtime.settings.driver);
        return CUDA_SUCCESS;
}

cuda_error run_cudaGetLastError(void) {
        cuda_error last = thread.last;

        thread.last = broken();
        return last ? last : thread.last;
}

cuda_error run_cudaPeekAtLastError(void) {
        return thread.last ? thread.last : broken();
}

cuda_error run_cudaGetDeviceCount(int *count) {
        *count = (int)runtime.settings.devices;
        return CUDA_SUCCESS;
}

cuda_error run_cudaGetDevice(int *device) {
        *device = thread.device;
        return CUDA_SUCCESS;
}

static bool is_device(int device) {
        return device >= 0 && (uint64_t)device < runtime.settings.devices;
}

/* From 12 on it makes the context. */
cuda_error run_cudaSetDevice(int device) {
        if (!is_device(device))
                return FAKE_CUDA_INVALID_DEVICE;
        thread.device = device;
        if (runtime.settings.version < 12000)
                return CUDA_SUCCESS;
        context_make(device, CALL_cudaSetDevice);
        return broken();
}

cuda_error run_cudaDeviceGetAttribute(int *value, int attribute, int device) {
        if (!is_device(device))
                return FAKE_CUDA_INVALID_DEVICE;
        if (attribute <= 0)
                return FAKE_CUDA_INVALID_VALUE;
        *value = attribute == CUDA_ATTRIBUTE_REGISTER_READ_ONLY ? (int)runtime.settings.read_only : 0;
        return CUDA_SUCCESS;
}

cuda_error run_cudaDeviceSynchronize(void) {
        stream_drain(thread.device);
        return broken();
}

cuda_error run_cudaThreadExchangeStreamCaptureMode(int *mode) {
        int old = thread.capture_mode;

        if (*mode < FAKE_CUDA_CAPTURE_GLOBAL || *mode > FAKE_CUDA_CAPTURE_RELAXED)
                return FAKE_CUDA_INVALID_VALUE;
        thread.capture_mode = *mode;
        *mode = old;
        return CUDA_SUCCESS;
}

/* ---- words, as the real runtime gives them ---- */

static const struct {
        cuda_error code;
        const char *name, *words;
} errors[] = {
        {CUDA_SUCCESS, "cudaSuccess", "no error"},
        {FAKE_CUDA_INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
        {FAKE_CUDA_OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
        {FAKE_CUDA_NOT_INITIALIZED, "cudaErrorInitializationError", "initialization error"},
        {FAKE_CUDA_INSUFFICIENT_DRIVER, "cudaErrorInsufficientDriver",
         "CUDA driver version is insufficient for CUDA runtime version"},
        {FAKE_CUDA_NO_DEVICE, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
        {FAKE_CUDA_INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
        {FAKE_CUDA_INVALID_HANDLE, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
        {CUDA_ERROR_NOT_READY, "cudaErrorNotReady", "device not ready"},
        {FAKE_CUDA_ILLEGAL_ADDRESS, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
        {FAKE_CUDA_ALREADY_REGISTERED, "cudaErrorHostMemoryAlreadyRegistered",
         "part or all of the requested memory range is already mapped"},
        {FAKE_CUDA_NOT_REGISTERED, "cudaErrorHostMemoryNotRegistered",
         "pointer does not correspond to a registered memory region"},
        {FAKE_CUDA_LAUNCH_FAILURE, "cudaErrorLaunchFailure", "unspecified launch failure"},
        {FAKE_CUDA_NOT_PERMITTED, "cudaErrorNotPermitted", "operation not permitted"},
        {FAKE_CUDA_NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported"},
        {FAKE_CUDA_CAPTURE_UNSUPPORTED, "cudaErrorStreamCaptureUnsupported",
         "operation not permitted when stream is capturing"},
        {FAKE_CUDA_CAPTURE_INVALIDATED, "cudaErrorStreamCaptureInvalidated",
         "operation failed due to a previous error during capture"},
        {FAKE_CUDA_CAPTURE_IMPLICIT, "cudaErrorStreamCaptureImplicit",
         "operation would make the legacy stream depend on a capturing blocking stream"},
};

const char *cudaGetErrorName(cuda_error error) {
        for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
                if (errors[i].code == error)
                        return errors[i].name;
        return "unrecognized error code";
}

const char *cudaGetErrorString(cuda_error error) {
        for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
                if (errors[i].code == error)
                        return errors[i].words;
        return "unrecognized error code";
}
