/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The control socket. Commands that change something are for root and the daemon's own user; the others are
 * for whoever may use a pipeline, and tell of those. Who asks is the kernel's word of the moment of connect.
 *
 * A client sends a line, a bare word or {"command": "word", ...}; it gets one or more
 * JSON lines, the last of which says "done": true, and may send the next line. Writing is asynchronous: a
 * client that does not read holds one line and is not read from until its answer has ended, so its cost is
 * bounded.
 *
 * Most commands are answered at once. One that takes its time has the client as its own until its last line,
 * and asks whether a line was taken before it gives the next. Since nothing is read meanwhile, a client that
 * has gone is found by the next line that is written; an end of its sending alone means nothing (socat). */

#include "daemon/control.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/list.h"
#include "daemon/access.h"
#include "daemon/guard.h"
#include "daemon/legend.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/reception.h"
#include "daemon/status.h"
#include "daemon/verify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        CONTROL_CLIENTS_MAX = 64,
        CONTROL_CLIENTS_OTHERS_MAX = 48, /* of users who are not trusted: an operator always gets in */
        CONTROL_CLIENTS_EACH_MAX = 16,   /* of one of them */
        CONTROL_LINE_MAX = 4096,
        CONTROL_BACKLOG =
                128, /* operators who come while a daemon is restarted on a socket that was passed */
        CONTROL_DRAIN_MAX = 86400, /* as `drain` in the configuration */
};

struct control {
        struct daemon *daemon;
        uv_pipe_t pipe;
        struct list clients;
        uint32_t n_clients;
        char path[RUNTIME_PATH_MAX + 32];
};

struct client {
        struct list link;
        struct control *control;
        uv_pipe_t pipe;
        uv_write_t write;
        char *reply;            /* being written */
        enum control_wait wait; /* whose lines are still to come */
        uint64_t turn;          /* of the reload that it waits for */
        json_t *last;           /* the last line, until the one before is taken */
        struct peer peer;
        bool leaving; /* its last line is on its way */
        size_t length;
        char line[CONTROL_LINE_MAX];
};

static void read_on(struct client *client);

static void on_client_closed(uv_handle_t *handle) {
        struct client *client = handle->data;

        free(client->reply);
        peer_deinit(&client->peer);
        json_decref(client->last);
        free(client);
}

static void client_close(struct client *client) {
        if (uv_is_closing((uv_handle_t *)&client->pipe))
                return;
        list_unlink(&client->link);
        client->control->n_clients--;
        if (client->wait == CONTROL_VERIFY)
                verify_cancel(&client->control->daemon->verify);
        client->wait = CONTROL_NOTHING;
        uv_close((uv_handle_t *)&client->pipe, on_client_closed);
}

static void send_last(struct client *client);

static void on_written(uv_write_t *write, int status) {
        struct client *client = write->data;

        free(client->reply);
        client->reply = NULL;
        if (status < 0 || client->leaving)
                client_close(client);
        else if (client->wait == CONTROL_VERIFY)
                verify_on_taken(&client->control->daemon->verify);
        else if (client->last)
                send_last(client);
        else if (client->wait == CONTROL_NOTHING)
                read_on(client);
}

/* Sends `object` (consumed) as a line. */
static void send_line(struct client *client, json_t *object) {
        uv_buf_t buffer;
        size_t length;

        client->reply = object ? json_dumps(object, JSON_COMPACT) : NULL;
        json_decref(object);
        if (!client->reply) {
                client_close(client);
                return;
        }
        length = strlen(client->reply);
        client->reply[length] = '\n'; /* in place of the terminator, which nobody needs any more */
        buffer = uv_buf_init(client->reply, (unsigned)length + 1);
        client->write.data = client;
        if (uv_write(&client->write, (uv_stream_t *)&client->pipe, &buffer, 1, on_written) < 0)
                client_close(client);
}

/* The last line of an answer. */
static void reply(struct client *client, json_t *object) {
        if (object)
                json_object_set_new(object, "done", json_true());
        send_line(client, object);
}

static void send_last(struct client *client) {
        json_t *last = client->last;

        client->last = NULL;
        reply(client, last);
}

static json_t *make_error(const char *format, const char *text) {
        struct fault fault; /* makes it text, whatever came: JSON takes nothing else */

        fault_set(&fault, 0, format, text);
        return json_pack("{s:s}", "error", fault.text);
}

/* ---- commands that are answered at once ---- */

static void run_ping(struct client *client, const json_t *arguments) {
        reply(client, json_pack("{s:i}", "pid", (int)getpid()));
}

static void run_status(struct client *client, const json_t *arguments) {
        reply(client, status_make(client->control->daemon, &client->peer));
}

static void run_metrics(struct client *client, const json_t *arguments) {
        struct daemon *daemon = client->control->daemon;
        uint64_t began = clock_ns();
        size_t length;
        char *text = metrics_make(daemon, &client->peer, &length);

        reply(client, text ? json_pack("{s:s#}", "text", text, (int)length)
                           : make_error("%s", "pinfeedd has no memory for this answer; ask again later"));
        free(text);
        meter_count_scrapes(&daemon->meter, 1, began);
}

/* "auto", which is 0, or a number. False: neither. */
static bool read_workers(const json_t *value, uint32_t *workers) {
        const char *word = json_string_value(value);
        json_int_t number = json_integer_value(value);

        if (word ? strcmp(word, "auto") != 0 : number < 1 || number > CONFIG_WORKERS_MAX)
                return false;
        *workers = (uint32_t)number;
        return true;
}

static void run_set(struct client *client, const json_t *arguments) {
        const char *name = json_string_value(json_object_get(arguments, "pipeline"));
        struct pipeline *pipeline = name ? daemon_find_pipeline(client->control->daemon, name) : NULL;
        uint32_t workers;

        if (!name)
                reply(client, make_error("%s", "set wants a \"pipeline\" and \"workers\" beside its "
                                               "\"command\""));
        else if (!pipeline)
                reply(client, make_error("no pipeline \"%.100s\"; status lists those there are", name));
        else if (!read_workers(json_object_get(arguments, "workers"), &workers))
                reply(client,
                      make_error("pipeline %.100s: workers: expected auto or a whole number from 1 to "
                                 "1024",
                                 name));
        else {
                pipeline_set_workers(pipeline, workers);
                reply(client, json_pack("{s:s, s:i, s:b}", "pipeline", name, "workers",
                                        (int)pipeline_workers(pipeline), "workers_auto", workers == 0));
        }
}

static void run_legend(struct client *client, const json_t *arguments) {
        const char *name = json_string_value(json_object_get(arguments, "pipeline"));
        const struct daemon *daemon = client->control->daemon;
        const struct pipeline *pipeline = name ? daemon_find_pipeline(daemon, name) : NULL;
        struct fault fault = {0};
        json_t *legend;

        if (!name) {
                reply(client, make_error("%s", "legend wants a \"pipeline\" and \"labels\" beside its "
                                               "\"command\""));
        } else if (!pipeline) {
                reply(client, make_error("no pipeline \"%.100s\"; status lists those there are", name));
        } else if (guard_check_use(daemon, pipeline, &client->peer, &fault) < 0) {
                reply(client, make_error("%s", fault.text));
        } else {
                legend = legend_make(pipeline, json_object_get(arguments, "labels"), &fault);
                reply(client, legend ? legend : make_error("%s", fault.text));
        }
}

/* ---- verify ---- */

static bool can_tell(void *context) {
        const struct client *client = context;

        return client->reply == NULL;
}

static void tell(void *context, json_t *line) {
        send_line(context, line);
}

static void end(void *context, json_t *line) {
        struct client *client = context;

        client->wait = CONTROL_NOTHING;
        reply(client, line);
}

static void run_verify(struct client *client, const json_t *arguments) {
        static const struct verify_events events = {.can_tell = can_tell, .tell = tell, .end = end};
        const char *name = json_string_value(json_object_get(arguments, "pipeline"));
        struct daemon *daemon = client->control->daemon;
        struct pipeline *pipeline = name ? daemon_find_pipeline(daemon, name) : NULL;
        struct fault fault;

        if (!name)
                reply(client, make_error("%s", "verify wants a \"pipeline\" beside its \"command\""));
        else if (!pipeline)
                reply(client, make_error("no pipeline \"%.100s\"; status lists those there are", name));
        else if (verify_start(&daemon->verify, pipeline, &events, client, &fault) < 0)
                reply(client, make_error("%s", fault.text));
        else
                client->wait = CONTROL_VERIFY;
}

/* ---- reload, drain ---- */

void control_tell(struct control *control, enum control_wait wait, json_t *line) {
        list_for_each_safe (link, &control->clients) {
                struct client *client = container_of(link, struct client, link);

                if (client->wait == wait && !client->reply)
                        send_line(client, json_incref(line));
        }
        json_decref(line);
}

void control_end(struct control *control, enum control_wait wait, uint64_t turn, json_t *line) {
        list_for_each_safe (link, &control->clients) {
                struct client *client = container_of(link, struct client, link);

                if (client->wait != wait || client->turn > turn)
                        continue;
                client->wait = CONTROL_NOTHING;
                client->last = json_incref(line);
                if (!client->reply)
                        send_last(client);
        }
        json_decref(line);
}

static void run_reload(struct client *client, const json_t *arguments) {
        struct fault fault;

        client->wait = CONTROL_RELOAD;
        if (reload_ask(&client->control->daemon->reload, &client->turn, &fault) == 0)
                return;
        client->wait = CONTROL_NOTHING;
        reply(client, make_error("%s", fault.text));
}

/* Without "seconds": the configuration's, or however long it takes. */
static void run_drain(struct client *client, const json_t *arguments) {
        const json_t *given = json_object_get(arguments, "seconds");
        struct daemon *daemon = client->control->daemon;
        double seconds = given ? json_number_value(given) : daemon->config->drain;

        if (given && (!json_is_number(given) || seconds <= 0 || seconds > CONTROL_DRAIN_MAX)) {
                reply(client, make_error("%s", "drain: seconds: expected a number above 0, at most 86400"));
                return;
        }
        client->wait = CONTROL_DRAIN;
        drain_begin(&daemon->drain, seconds, "drain");
}

static const struct command {
        const char *word;
        /* Answers, now or later. `arguments` is the line's object, or NULL if it was a bare word. */
        void (*run)(struct client *client, const json_t *arguments);
        bool changes; /* something for all: for root and the daemon's own user only */
} commands[] = {
        {"status", run_status, false}, {"ping", run_ping, false},     {"set", run_set, true},
        {"verify", run_verify, true},  {"legend", run_legend, false}, {"metrics", run_metrics, false},
        {"reload", run_reload, true},  {"drain", run_drain, true},
};

/* The word of a line: itself, or the member "command" of an object. NULL: neither. */
static const char *word_of(const char *line, json_t **object) {
        *object = NULL;
        if (*line != '{')
                return line;
        *object = json_loads(line, 0, NULL);
        return json_string_value(json_object_get(*object, "command"));
}

static const struct command *find_command(const char *word) {
        for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
                if (strcmp(commands[i].word, word) == 0)
                        return &commands[i];
        }
        return NULL;
}

static void run(struct client *client, const struct command *command, const json_t *arguments) {
        struct fault fault;

        if (command->changes &&
            guard_check_change(client->control->daemon, command->word, &client->peer, &fault) < 0)
                reply(client, make_error("%s", fault.text));
        else
                command->run(client, arguments);
}

/* Whoever may use no pipeline has no business here. True: it is told so and sent away. */
static bool turn_away(struct client *client) {
        struct daemon *daemon = client->control->daemon;
        struct fault fault;

        if (guard_welcome(daemon, &client->peer, &fault) == 0)
                return false;
        reception_log_refusal(daemon, fault.text);
        client->leaving = true;
        reply(client, make_error("%s", fault.text));
        return true;
}

static void answer(struct client *client, const char *line) {
        json_t *object;
        const char *word = word_of(line, &object);
        const struct command *command = word ? find_command(word) : NULL;

        if (command)
                run(client, command, object);
        else if (word)
                reply(client, make_error("unknown command \"%.100s\"; there are status, ping, set, verify, "
                                         "legend, metrics, reload and drain",
                                         word));
        else
                reply(client,
                      make_error("expected a word, or an object with a \"command\", got: %.100s", line));
        json_decref(object);
}

static void on_line(struct client *client, const char *line) {
        uv_read_stop((uv_stream_t *)&client->pipe); /* until it is answered */
        if (!turn_away(client))
                answer(client, line);
}

/* Answers the first whole line in the buffer, if there is one. */
static void take_line(struct client *client) {
        char *end = memchr(client->line, '\n', client->length);
        char line[CONTROL_LINE_MAX];
        size_t n;

        if (!end) {
                if (client->length == sizeof(client->line))
                        client_close(client);
                return;
        }
        n = (size_t)(end - client->line);
        memcpy(line, client->line, n);
        line[n] = 0;
        if (n > 0 && line[n - 1] == '\r')
                line[n - 1] = 0;
        client->length -= n + 1;
        memmove(client->line, end + 1, client->length);
        on_line(client, line);
}

static void on_allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
        struct client *client = handle->data;

        *buffer =
                uv_buf_init(client->line + client->length, (unsigned)(sizeof(client->line) - client->length));
}

/* A last line that nobody ended: as good as any. */
static ssize_t end_line(struct client *client) {
        client->line[client->length] = '\n';
        return 1;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer) {
        struct client *client = stream->data;

        if (n == UV_EOF && client->length > 0 && client->length < sizeof(client->line))
                n = end_line(client);
        if (n < 0) {
                client_close(client);
                return;
        }
        client->length += (size_t)n;
        take_line(client);
}

/* It is the last one then who would have to go for another: see make_room. */
static void read_on(struct client *client) {
        if (uv_is_closing((uv_handle_t *)&client->pipe)) /* it is in no list any more */
                return;
        list_unlink(&client->link);
        list_append(&client->control->clients, &client->link);
        uv_read_start((uv_stream_t *)&client->pipe, on_allocate, on_read);
        take_line(client);
}

/* Whether there is room for it: for others than those who run the daemon there is less. */
static bool has_room(const struct client *client) {
        const struct control *control = client->control;
        uint32_t n = 0;

        if (peer_is_trusted(&client->peer))
                return control->n_clients <= CONTROL_CLIENTS_MAX;
        list_for_each (link, &control->clients)
                n += container_of(link, struct client, link)->peer.uid == client->peer.uid;
        return n <= CONTROL_CLIENTS_EACH_MAX && control->n_clients <= CONTROL_CLIENTS_OTHERS_MAX;
}

/* Who has asked nothing for the longest time goes for somebody new: of anybody for those who run the daemon,
 * of the same user for others. So connections that are forgotten, or say a byte a second, keep nobody out. */
static bool make_room(struct client *client) {
        bool trusted = peer_is_trusted(&client->peer);

        list_for_each_safe (link, &client->control->clients) {
                struct client *other = container_of(link, struct client, link);

                if (has_room(client))
                        break;
                if (other != client && other->wait == CONTROL_NOTHING && !other->reply &&
                    (trusted || other->peer.uid == client->peer.uid))
                        client_close(other);
        }
        return has_room(client);
}

/* Whether it is listened to. That it may not have what it wants it hears when it has said so: a client that
 * still writes when it is closed would miss the reason. */
static bool is_welcome(struct client *client) {
        struct fault fault;
        uv_os_fd_t fd;

        return uv_fileno((const uv_handle_t *)&client->pipe, &fd) == 0 &&
               peer_init(&client->peer, fd, &fault) == 0 && make_room(client);
}

static void on_connection(uv_stream_t *server, int status) {
        struct control *control = server->data;
        struct client *client;

        if (status < 0)
                return;
        client = calloc(1, sizeof(*client));
        if (!client)
                return;
        client->control = control;
        uv_pipe_init(server->loop, &client->pipe, 0);
        client->pipe.data = client;
        list_append(&control->clients, &client->link);
        control->n_clients++;
        if (uv_accept(server, (uv_stream_t *)&client->pipe) < 0 || !is_welcome(client))
                client_close(client);
        else
                read_on(client);
}

static void on_control_closed(uv_handle_t *handle) {
        free(handle->data);
}

/* The socket must never be open to others, not for an instant: the mask holds while bind makes the file. */
static int bind_private(uv_pipe_t *pipe, const char *path) {
        mode_t mask = umask(0177);
        int r = uv_pipe_bind(pipe, path);

        umask(mask);
        return r;
}

static int bind_own(struct control *control, const struct daemon *daemon, struct fault *fault) {
        int r = listener_prepare(control->path, daemon->directory, RUNTIME_CONTROL_SOCKET, fault);

        if (r < 0)
                return r;
        r = bind_private(&control->pipe, control->path);
        return r < 0 ? fault_set(fault, r, "cannot bind %s: %s", control->path, uv_strerror(r)) : 0;
}

static int take_passed(struct control *control, const struct daemon *daemon, int *passed,
                       struct fault *fault) {
        int r = uv_pipe_open(&control->pipe, *passed);

        snprintf(control->path, sizeof(control->path), "%s/%s", daemon->directory, RUNTIME_CONTROL_SOCKET);
        if (r < 0)
                return fault_set(fault, r, "cannot take %s over: %s", control->path, uv_strerror(r));
        *passed = -1;
        return 0;
}

int control_new(struct control **controlp, struct daemon *daemon, int *passed, struct fault *fault) {
        struct control *control = calloc(1, sizeof(*control));
        int r;

        if (!control)
                return fault_set(fault, -ENOMEM, "no memory for the control socket");
        control->daemon = daemon;
        list_init(&control->clients);
        uv_pipe_init(&daemon->loop, &control->pipe, 0);
        control->pipe.data = control;
        r = *passed >= 0 ? take_passed(control, daemon, passed, fault) : bind_own(control, daemon, fault);
        if (r >= 0) {
                r = uv_listen((uv_stream_t *)&control->pipe, CONTROL_BACKLOG, on_connection);
                if (r < 0)
                        fault_set(fault, r, "cannot listen on %s: %s", control->path, uv_strerror(r));
        }
        if (r < 0) {
                uv_close((uv_handle_t *)&control->pipe, on_control_closed);
                return r;
        }
        *controlp = control;
        return 0;
}

struct control *control_free(struct control *control) {
        if (!control)
                return NULL;
        list_for_each_safe (link, &control->clients)
                client_close(container_of(link, struct client, link));
        uv_close((uv_handle_t *)&control->pipe, on_control_closed); /* libuv removes a file that it made */
        return NULL;
}
