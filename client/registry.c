/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A batch pointer comes from the caller and may be stale: released, or of a job that is closed. Looking into
 * the struct to find that out would be the very damage it should prevent, so the address is compared with the
 * arrays of the living jobs' attachments first. There are few of both in a process and the lists are walked
 * under a read lock, which release may take from any thread. What takes something away from releases that may
 * be under way, closing a job or retiring an attachment, does so under the write lock, and so waits for them.
 *
 * A fork's child inherits jobs, list and lock. pthread_atfork keeps the lock whole and counts the generation
 * of the process, so that calls in the child notice without asking the kernel for their pid each time. The
 * child keeps the parent's jobs in the list: that is how it knows their batches to be -ECHILD. Their sockets
 * are closed in it, or the daemon would believe in a job for as long as any of its children lives; so a
 * socket is made and closed under the write lock, too, and there is none that fork does not know of: a job
 * that is being closed is hidden first, and leaves the list with its descriptors. The same goes for what a
 * job has open while it starts a daemon, and for what it brings (brought.c). The child has no device
 * threads, and whatever their locks were doing it touches none of them. */

#include "client/registry.h"

#include "base/cleanup.h"
#include "client/attachment.h"
#include "client/job.h"

#include <pthread.h>

static pthread_rwlock_t registry_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
static int registry_error;
static struct pinfeed_job *registry_first;
static _Atomic uint64_t registry_process = 1;

static void registry_before_fork(void) {
        pthread_rwlock_wrlock(&registry_lock);
}

static void registry_in_parent(void) {
        pthread_rwlock_unlock(&registry_lock);
}

/* All that a fork's child must not have. */
static void registry_close_descriptors(struct pinfeed_job *job) {
        if (job->current)
                fd_closep(&job->current->socket);
        starter_close(&job->starter);
        brought_deinit(&job->brought);
}

static void registry_in_child(void) {
        registry_lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
        registry_process++;
        for (struct pinfeed_job *job = registry_first; job; job = job->next_living) {
                registry_close_descriptors(job);
                starter_forget(&job->starter);
        }
}

static void registry_prepare(void) {
        registry_error = -pthread_atfork(registry_before_fork, registry_in_parent, registry_in_child);
}

int registry_add(struct pinfeed_job *job) {
        pthread_once(&registry_once, registry_prepare);
        if (registry_error)
                return registry_error;

        pthread_rwlock_wrlock(&registry_lock);
        job->process = registry_process;
        job->next_living = registry_first;
        registry_first = job;
        pthread_rwlock_unlock(&registry_lock);
        return 0;
}

void registry_hide(struct pinfeed_job *job) {
        pthread_rwlock_wrlock(&registry_lock);
        job->is_hidden = true;
        pthread_rwlock_unlock(&registry_lock);
}

void registry_remove(struct pinfeed_job *job) {
        pthread_rwlock_wrlock(&registry_lock);
        registry_close_descriptors(job);
        for (struct pinfeed_job **link = &registry_first; *link; link = &(*link)->next_living) {
                if (*link != job)
                        continue;
                *link = job->next_living;
                break;
        }
        pthread_rwlock_unlock(&registry_lock);
}

bool registry_is_ours(const struct pinfeed_job *job) {
        return job->process == registry_process;
}

static bool registry_owns(const struct attachment *attachment, uintptr_t address) {
        uint32_t n = atomic_load_explicit(&attachment->n_batches, memory_order_acquire);
        uintptr_t start, end;

        if (n == 0) /* the array may be in the making: attachment_prepare */
                return false;
        start = (uintptr_t)attachment->batches;
        end = start + (uintptr_t)n * sizeof(struct pinfeed_batch);
        return address >= start && address < end && (address - start) % sizeof(struct pinfeed_batch) == 0;
}

/* The attachment of the job whose batch it is, or NULL. */
static struct attachment *registry_search(const struct pinfeed_job *job, uintptr_t address) {
        struct attachment *attachment = job->current;

        if (job->is_hidden)
                return NULL;
        if (attachment && registry_owns(attachment, address))
                return attachment;
        for (attachment = job->retired; attachment; attachment = attachment->next)
                if (registry_owns(attachment, address))
                        return attachment;
        return NULL;
}

struct attachment *registry_get(const struct pinfeed_batch *batch) {
        struct attachment *attachment = NULL;

        pthread_rwlock_rdlock(&registry_lock);
        for (struct pinfeed_job *job = registry_first; job && !attachment; job = job->next_living)
                attachment = registry_search(job, (uintptr_t)batch);
        return attachment;
}

void registry_read(void) {
        pthread_rwlock_rdlock(&registry_lock);
}

void registry_change(void) {
        pthread_rwlock_wrlock(&registry_lock);
}

void registry_put(void) {
        pthread_rwlock_unlock(&registry_lock);
}
