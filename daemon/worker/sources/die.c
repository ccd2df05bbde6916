/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The faults of the mode `die`, as real as they can be had: a page without rights is written to, a mapping is
 * read past the end of its file, memory is taken and touched. Nobody may have caught the signals, since a
 * worker's test may run under a sanitizer that does, and no cores are left behind.
 *
 * How many processes have met such a sample cannot be known in one of them. So each of them appends one byte
 * to a file, once, and where that byte lies is its ordinal; O_APPEND makes the two one step. */

#include "daemon/worker/sources/die.h"

#include "base/cleanup.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
        EXIT_STATUS = 3,
        PAGE = 4096,
        OOM_STEP = 1 << 20,
        OOM_BYTES = 64 << 20,
        UGLY_BYTES = 1 << 20,
};

static int is_met(const struct recipe_source *recipe, uint64_t sample) {
        if (sample < recipe->die_sample)
                return 0;
        if (recipe->die_every == 0)
                return sample == recipe->die_sample;
        return (sample - recipe->die_sample) % recipe->die_every == 0;
}

static int count_in(struct die *die, const char *path, struct fault *fault) {
        _cleanup_(fd_closep) int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        off_t end;

        if (fd < 0 || write(fd, "x", 1) != 1 || (end = lseek(fd, 0, SEEK_CUR)) < 0)
                return fault_set(fault, -ECANCELED, "die_counter: %s: %s", path, strerror(errno));
        die->ordinal = (uint64_t)end;
        return 0;
}

static void default_signals(void) {
        static const int caught[] = {SIGABRT, SIGSEGV, SIGBUS};
        struct rlimit none = {0};

        for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
                signal(caught[i], SIG_DFL);
        setrlimit(RLIMIT_CORE, &none);
}

static void *map(int protection, int flags, int fd) {
        void *mapped = mmap(NULL, PAGE, protection, flags, fd, 0);

        if (mapped == MAP_FAILED)
                _exit(EXIT_STATUS + 1);
        return mapped;
}

static void touch_forbidden_page(void) {
        *(volatile char *)map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1) = 1;
}

static void touch_behind_a_file(void) {
        *(volatile char *)map(PROT_READ | PROT_WRITE, MAP_SHARED, memfd_create("empty", MFD_CLOEXEC)) = 1;
}

static void kill_self(void) {
        kill(getpid(), SIGKILL);
        for (;;)
                pause();
}

static void hang(void) {
        signal(SIGTERM, SIG_IGN);
        for (;;)
                pause();
}

static void take_memory(void) {
        for (size_t taken = 0; taken < OOM_BYTES; taken += OOM_STEP) {
                char *more = mmap(NULL, OOM_STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

                if (more == MAP_FAILED)
                        break;
                memset(more, 1, OOM_STEP);
        }
        kill_self();
}

/* What foreign code could throw: too long, and anything but text. */
static int raise_ugly(uint64_t sample, struct fault *fault) {
        static const char pattern[] = "ugly \0 \xff \xc3( \x1b[31m \r\n %s%n \xe2\x82\xac \xed\xa0\x80 ";
        _cleanup_(freep) char *ugly = malloc(UGLY_BYTES);
        char clean[FAULT_TEXT_MAX + 64];

        if (!ugly)
                return fault_set(fault, -ENOMEM, "no memory for %d bytes of reason", UGLY_BYTES);
        for (size_t i = 0; i < UGLY_BYTES; i++)
                ugly[i] = pattern[i % (sizeof(pattern) - 1)];
        fault_sanitize(clean, sizeof(clean), ugly, UGLY_BYTES);
        return fault_set(fault, -EBADMSG, "sample %llu raises: %s", (unsigned long long)sample, clean);
}

static int die_now(int how, uint64_t sample, struct fault *fault) {
        switch (how) {
        case RECIPE_DIE_RAISE:
                return fault_set(fault, -EBADMSG, "sample %llu raises", (unsigned long long)sample);
        case RECIPE_DIE_RAISE_UGLY:
                return raise_ugly(sample, fault);
        case RECIPE_DIE_READ_ERROR:
                return fault_set(fault, -EIO, "cannot read it: %s", strerror(EIO));
        case RECIPE_DIE_EXIT:
                _exit(EXIT_STATUS);
        case RECIPE_DIE_ABORT:
                abort();
        case RECIPE_DIE_SEGV:
                touch_forbidden_page();
                break;
        case RECIPE_DIE_BUS:
                touch_behind_a_file();
                break;
        case RECIPE_DIE_KILL9:
                kill_self();
                break;
        case RECIPE_DIE_HANG:
                hang();
                break;
        case RECIPE_DIE_OOM:
                take_memory();
                break;
        }
        return fault_set(fault, -ENOSYS, "no way to die has the number %d", how);
}

int die_at(struct die *die, const struct recipe_source *recipe, uint64_t sample, struct fault *fault) {
        int r;

        if (!is_met(recipe, sample))
                return 0;
        if (recipe->die_counter && die->ordinal == 0) {
                r = count_in(die, recipe->die_counter, fault);
                if (r < 0)
                        return r;
        }
        if (recipe->die_times > 0 && die->ordinal > recipe->die_times)
                return 0;
        if (recipe->die_how >= RECIPE_DIE_EXIT)
                default_signals();
        return die_now(recipe->die_how, sample, fault);
}
