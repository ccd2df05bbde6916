/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Where a daemon is looked for, and what lies there. A client takes the first place that has a socket, also
 * when nobody listens on it any more: so a socket that a dead daemon has left can hide the machine's service,
 * and that needs attention; by itself it does not, for the next daemon there replaces it.
 *
 * Each control socket is connected to, and nothing is said: that tells a daemon from a left-over, and whether
 * this user may. The jobs' socket has the same owner and mode; it is only looked at. */

#include "client/ctl/doctor.h"

#include "base/cleanup.h"
#include "client/ctl/ctl.h"
#include "client/pinfeed.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum {
        PLACES_MAX = 4,
        PLACE_TIMEOUT_S = 2,
};

enum place_state {
        PLACE_EMPTY,   /* no directory, or no socket in it */
        PLACE_FOREIGN, /* in /tmp, and somebody else's */
        PLACE_STALE,
        PLACE_REFUSED,
        PLACE_SERVED,
};

struct place {
        char directory[PATH_MAX];
        bool must_be_ours;
        enum place_state state;
        struct stat status; /* of the socket, of the directory where there is none, or where it is refused */
        pid_t pid;          /* of who listens; 0: cannot be seen */
        int error;
};

/* ---- one place ---- */

static int try_connect(struct place *place) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct timeval timeout = {.tv_sec = PLACE_TIMEOUT_S};
        socklen_t size = sizeof(struct ucred);
        _cleanup_(fd_closep) int fd = -1;
        struct ucred peer;

        if ((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s/control.sock",
                             place->directory) >= sizeof(address.sun_path))
                return ENAMETOOLONG;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return errno;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
                place->pid = peer.pid;
        return 0;
}

static void examine(struct place *place) {
        char path[PATH_MAX + 16];

        if (lstat(place->directory, &place->status) < 0)
                return;
        if (place->must_be_ours && place->status.st_uid != geteuid()) {
                place->state = PLACE_FOREIGN;
                return;
        }
        snprintf(path, sizeof(path), "%s/control.sock", place->directory);
        if (lstat(path, &place->status) < 0 && errno != EACCES)
                return;
        place->error = try_connect(place);
        place->state = place->error == 0              ? PLACE_SERVED
                       : place->error == ECONNREFUSED ? PLACE_STALE
                                                      : PLACE_REFUSED;
}

/* ---- all of them ---- */

static void add(struct place places[PLACES_MAX], size_t *n, bool must_be_ours, const char *directory,
                const char *leaf) {
        struct place *place = &places[*n];

        if (!directory || !*directory)
                return;
        *place = (struct place){.must_be_ours = must_be_ours};
        snprintf(place->directory, sizeof(place->directory), "%s%s", directory, leaf);
        for (size_t i = 0; i < *n; i++) {
                if (strcmp(places[i].directory, place->directory) == 0)
                        return;
        }
        examine(place);
        (*n)++;
}

/* One that is final; NULL: none was named. */
static const char *named_directory(const struct doctor *doctor) {
        const char *named = getenv("PINFEED_RUNTIME_DIR");

        return doctor->ctl->runtime_dir ? doctor->ctl->runtime_dir : named && *named ? named : NULL;
}

/* In the order in which a client looks through them. A directory that was named is the only one; the others
 * are there to tell of daemons that one may have meant. */
static size_t collect(const struct doctor *doctor, struct place places[PLACES_MAX]) {
        char own[NUMBER_TEXT_MAX];
        size_t n = 0;

        snprintf(own, sizeof(own), "-%lu", (unsigned long)geteuid());
        add(places, &n, false, named_directory(doctor), "");
        add(places, &n, true, getenv("XDG_RUNTIME_DIR"), "/pinfeed");
        add(places, &n, true, "/tmp/pinfeed", own);
        add(places, &n, false, "/run/pinfeed", "");
        return n;
}

static const struct place *find_served(const struct place places[], size_t n) {
        for (size_t i = 0; i < n; i++) {
                if (places[i].state == PLACE_SERVED)
                        return &places[i];
        }
        return NULL;
}

/* ---- what is said of one ---- */

static void tell_refused(struct doctor *doctor, const struct place *place, bool chosen) {
        char remedy[256];

        if (place->error == EACCES)
                snprintf(remedy, sizeof(remedy),
                         "make the user a member of the group %u (usermod -aG), and log in again",
                         (unsigned)place->status.st_gid);
        else
                snprintf(remedy, sizeof(remedy), "restart the daemon there");
        doctor_find(doctor, chosen ? DOCTOR_ERROR : DOCTOR_NOTE, "socket", chosen ? remedy : NULL,
                    "user %u may not connect to %s/control.sock: %s (mode %04o, owner %u, group %u)",
                    (unsigned)geteuid(), place->directory, strerror(place->error),
                    (unsigned)place->status.st_mode & 07777, (unsigned)place->status.st_uid,
                    (unsigned)place->status.st_gid);
}

static void tell_stale(struct doctor *doctor, const struct place *place, bool chosen,
                       const struct place *hidden) {
        bool hides = chosen && hidden;
        char remedy[PATH_MAX + 64];

        snprintf(remedy, sizeof(remedy), "remove it with 'rm %s/*.sock'", place->directory);
        doctor_find(doctor, hides ? DOCTOR_WARNING : DOCTOR_NOTE, "socket", hides ? remedy : NULL,
                    "nobody listens any more in %s%s%s", place->directory,
                    hides ? ", which hides the daemon in " : ": the next daemon there replaces the sockets",
                    hides ? hidden->directory : "");
}

static void tell(struct doctor *doctor, const struct place *place, bool chosen, const struct place *hidden) {
        if (place->state == PLACE_REFUSED)
                tell_refused(doctor, place, chosen);
        else if (place->state == PLACE_STALE)
                tell_stale(doctor, place, chosen, hidden);
        else if (place->state == PLACE_FOREIGN)
                doctor_find(doctor, DOCTOR_NOTE, "socket", NULL, "%s belongs to user %u and is passed over",
                            place->directory, (unsigned)place->status.st_uid);
        else if (place->state == PLACE_SERVED && chosen)
                doctor_find(doctor, DOCTOR_OK, "socket", NULL,
                            "%s/control.sock, mode %04o, owner %u, group %u", place->directory,
                            (unsigned)place->status.st_mode & 07777, (unsigned)place->status.st_uid,
                            (unsigned)place->status.st_gid);
        else if (place->state == PLACE_SERVED)
                doctor_find(doctor, DOCTOR_NOTE, "another daemon", NULL,
                            "in %s, pid %d; jobs from here do not use it", place->directory, (int)place->pid);
}

/* Where a daemon would have been found. */
static void tell_places(struct doctor *doctor, const struct place places[], size_t n) {
        char list[PLACES_MAX * 128] = "";

        for (size_t i = 0; i < n; i++) {
                size_t length = strlen(list);

                snprintf(list + length, sizeof(list) - length, "%s%s", *list ? ", " : "",
                         places[i].directory);
        }
        doctor_find(doctor, DOCTOR_NOTE, "looked in", NULL, "%s", list);
}

void doctor_look_at_places(struct doctor *doctor) {
        struct place places[PLACES_MAX];
        size_t n = collect(doctor, places);
        const struct place *served = find_served(places, n);
        const struct place *hidden = named_directory(doctor) ? NULL : served; /* if the chosen one is dead */
        char chosen[PATH_MAX] = "";

        pinfeed_runtime_dir(chosen, sizeof(chosen), doctor->ctl->runtime_dir);
        for (size_t i = 0; i < n; i++) {
                bool is_chosen = strcmp(places[i].directory, chosen) == 0;

                if (is_chosen && doctor->daemon == 0)
                        doctor->daemon = places[i].pid;
                tell(doctor, &places[i], is_chosen, hidden);
        }
        if (!served && !named_directory(doctor))
                tell_places(doctor, places, n);
}
