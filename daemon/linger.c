/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs come and go far more often than the timer ends, so their coming does not touch it: it looks when it
 * ends, and if somebody was there meanwhile it sleeps for what is left. So it may sleep into the time of a
 * job, but never past `linger` after the last one.
 *
 * The last look is `is_needed`, which takes in whoever has connected and was not seen yet. Who connects after
 * that finds a socket that closes before it has answered ATTACH, which tells a client that nothing of it was
 * begun: it starts a daemon of its own and asks that. */

#include "daemon/linger.h"

#include "base/clock.h"

static void on_timer(uv_timer_t *timer);

static void sleep_for(struct lingering *linger, uint64_t ns) {
        uv_timer_start(&linger->timer, on_timer, ns / NS_PER_MS + 1, 0);
}

static void on_timer(uv_timer_t *timer) {
        struct lingering *linger = timer->data;
        uint64_t now = clock_ns();

        if (linger->is_needed(linger->data))
                linger->needed_ns = now;
        if (now >= linger->needed_ns + linger->linger_ns)
                linger->over(linger->data);
        else
                sleep_for(linger, linger->needed_ns + linger->linger_ns - now);
}

void linger_start(struct lingering *linger, uv_loop_t *loop, uint64_t linger_s, bool (*is_needed)(void *data),
                  void (*over)(void *data), void *data) {
        *linger = (struct lingering){.linger_ns = linger_s * NS_PER_S,
                                     .needed_ns = clock_ns(),
                                     .is_needed = is_needed,
                                     .over = over,
                                     .data = data};
        uv_timer_init(loop, &linger->timer);
        linger->timer.data = linger;
        uv_unref((uv_handle_t *)&linger->timer);
        sleep_for(linger, linger->linger_ns);
}

void linger_note(struct lingering *linger) {
        linger->needed_ns = clock_ns();
}

void linger_stop(struct lingering *linger) {
        if (linger->over)
                uv_close((uv_handle_t *)&linger->timer, NULL);
}
