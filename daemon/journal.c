/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The journal's native protocol: an entry is a datagram of fields, each a name, a newline, the length of its
 * value as 64 bits, the value, a newline. It is promised to stay, and spoken here without libsystemd, whose
 * call waits while the journal does not read: a daemon that may not block would hang with the journal. An
 * entry that cannot be sent at once is the caller's to write as a line.
 *
 * The journal itself adds the unit, pid and the rest. */

#include "daemon/journal.h"

#include "base/cleanup.h"
#include "daemon/log.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum {
        ENTRY_MAX = 4096, /* a line of the log, and all fields */
        NUMBER_MAX = 24,
};

static struct {
        int socket; /* -1: not open */
        struct sockaddr_un address;
} journal = {.socket = -1};

struct entry {
        size_t length;
        char bytes[ENTRY_MAX];
};

bool journal_is_behind(int fd) {
        const char *stream = getenv("JOURNAL_STREAM");
        uint64_t device, inode;
        struct stat status;

        return stream && sscanf(stream, "%" SCNu64 ":%" SCNu64, &device, &inode) == 2 &&
               fstat(fd, &status) == 0 && status.st_dev == (dev_t)device && status.st_ino == (ino_t)inode;
}

int journal_open(const char *path) {
        journal_close();
        if (strlen(path) >= sizeof(journal.address.sun_path))
                return -ENAMETOOLONG;
        journal.address.sun_family = AF_UNIX;
        snprintf(journal.address.sun_path, sizeof(journal.address.sun_path), "%s", path);
        journal.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        return journal.socket < 0 ? -errno : 0;
}

void journal_close(void) {
        fd_closep(&journal.socket);
}

/* What does not fit is left out; nothing that the log makes is so long. */
static void add(struct entry *entry, const char *name, const char *value) {
        size_t length = strlen(value), all = strlen(name) + 1 + sizeof(uint64_t) + length + 1;
        uint64_t size = htole64(length);
        char *to = entry->bytes + entry->length;

        if (all > sizeof(entry->bytes) - entry->length)
                return;
        to = mempcpy(to, name, strlen(name));
        *to++ = '\n';
        to = mempcpy(to, &size, sizeof(size));
        to = mempcpy(to, value, length);
        *to = '\n';
        entry->length += all;
}

static void add_number(struct entry *entry, const char *name, uint64_t value) {
        char text[NUMBER_MAX];

        snprintf(text, sizeof(text), "%" PRIu64, value);
        add(entry, name, text);
}

bool journal_send(int level, const struct log_subject *subject, const char *text) {
        struct entry entry = {};

        if (journal.socket < 0)
                return false;
        add(&entry, "MESSAGE", text);
        add_number(&entry, "PRIORITY", (uint64_t)level);
        add(&entry, "SYSLOG_IDENTIFIER", "pinfeedd");
        if (subject->pipeline && *subject->pipeline)
                add(&entry, "PINFEED_PIPELINE", subject->pipeline);
        if (subject->job > 0)
                add_number(&entry, "PINFEED_JOB", subject->job);
        if (subject->worker)
                add_number(&entry, "PINFEED_WORKER", *subject->worker);
        if (subject->sample)
                add_number(&entry, "PINFEED_SAMPLE", *subject->sample);
        return sendto(journal.socket, entry.bytes, entry.length, MSG_DONTWAIT | MSG_NOSIGNAL,
                      (const struct sockaddr *)&journal.address, sizeof(journal.address)) >= 0;
}
