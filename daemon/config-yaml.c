/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A configuration file is foreign input, though its owner is not our enemy. libyaml takes time that grows
 * with the square of the nesting and of the number of anchors (a megabyte of "[" keeps it busy for a minute),
 * so a file goes through three gates before a document is made of it: its size; NUL bytes, which no text has;
 * and one pass over its events, which is linear as long as it stops at the first level, anchor or document
 * too many.
 */

#include "daemon/config-yaml.h"

#include "base/cleanup.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

enum {
        YAML_BYTES_MAX = 1 << 20, /* a file of the largest configuration has some ten KiB */
        YAML_DEPTH_MAX = 32,      /* the configuration has seven levels */
        YAML_ANCHORS_MAX = 1000,  /* libyaml compares each with all before it */
};

/* The file as it was read, or what is said to stand in it. */
struct input {
        const char *file;
        const char *text;
        size_t size;
};

static ssize_t read_full(int fd, char *to, size_t size) {
        size_t done = 0;

        while (done < size) {
                ssize_t r = read(fd, to + done, size - done);

                if (r < 0 && errno == EINTR)
                        continue;
                if (r < 0)
                        return -errno;
                if (r == 0)
                        break;
                done += (size_t)r;
        }
        return (ssize_t)done;
}

/* The contents of `file`, bounded; also from a pipe, which has no size to ask for. */
static int read_file(const char *file, char **text, size_t *size, struct fault *fault) {
        _cleanup_(freep) char *buffer = NULL;
        _cleanup_(fd_closep) int fd = -1;
        ssize_t r;

        fd = open(file, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
                r = -errno;
                return fault_set(fault, (int)r, "%s: cannot be opened: %s", file, strerror((int)-r));
        }
        buffer = malloc(YAML_BYTES_MAX + 1);
        if (!buffer)
                return fault_set(fault, -ENOMEM, "%s: out of memory", file);
        r = read_full(fd, buffer, YAML_BYTES_MAX + 1);
        if (r < 0)
                return fault_set(fault, (int)r, "%s: cannot be read: %s", file, strerror((int)-r));
        if (r > YAML_BYTES_MAX)
                return fault_set(fault, -EFBIG, "%s: expected a file of at most %d bytes, got more", file,
                                 YAML_BYTES_MAX);
        *size = (size_t)r;
        *text = buffer;
        buffer = NULL; /* handed over */
        return 0;
}

/* Line and column, from 1, of the byte at `offset`; columns count characters of UTF-8. */
static void locate(const char *text, size_t offset, unsigned *line, unsigned *column) {
        *line = *column = 1;
        for (size_t i = 0; i < offset; i++) {
                if (text[i] == '\n') {
                        ++*line;
                        *column = 1;
                } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
                        ++*column;
                }
        }
}

static int refuse_nul(const struct input *input, struct fault *fault) {
        const char *nul = memchr(input->text, 0, input->size);
        unsigned line, column;

        if (!nul)
                return 0;
        locate(input->text, (size_t)(nul - input->text), &line, &column);
        return fault_set(fault, -EINVAL, "%s:%u:%u: expected text, got a NUL byte", input->file, line,
                         column);
}

/* Whether a tab stands where libyaml stopped: the most common mistake, and its least helpful text. */
static bool stopped_at_tab(const yaml_parser_t *parser, const struct input *input) {
        size_t line = 0, column = 0, i;

        for (i = 0; i < input->size && line < parser->problem_mark.line; i++)
                line += input->text[i] == '\n';
        for (; i < input->size && column < parser->problem_mark.column; i++)
                column += i + 1 == input->size || ((unsigned char)input->text[i + 1] & 0xc0) != 0x80;
        return parser->error == YAML_SCANNER_ERROR && i < input->size && input->text[i] == '\t';
}

/* What libyaml found wrong. The reader, which checks bytes, knows an offset only; the others know a mark. */
static int parser_fault(const yaml_parser_t *parser, const struct input *input, struct fault *fault) {
        unsigned line = (unsigned)parser->problem_mark.line + 1,
                 column = (unsigned)parser->problem_mark.column + 1;
        const char *problem = parser->problem ? parser->problem : "not YAML";

        if (parser->error == YAML_MEMORY_ERROR)
                return fault_set(fault, -ENOMEM, "%s: out of memory", input->file);
        if (parser->error == YAML_READER_ERROR) {
                locate(input->text,
                       parser->problem_offset < input->size ? parser->problem_offset : input->size, &line,
                       &column);
                return fault_set(fault, -EINVAL, "%s:%u:%u: %s", input->file, line, column, problem);
        }
        if (stopped_at_tab(parser, input))
                return fault_set(fault, -EINVAL, "%s:%u:%u: expected spaces, got a tab", input->file, line,
                                 column);
        if (parser->context)
                return fault_set(fault, -EINVAL, "%s:%u:%u: %s, %s (line %u)", input->file, line, column,
                                 problem, parser->context, (unsigned)parser->context_mark.line + 1);
        return fault_set(fault, -EINVAL, "%s:%u:%u: %s", input->file, line, column, problem);
}

/* What one event adds to the nesting: 1, 0 or -1. */
static int nesting(const yaml_event_t *event) {
        if (event->type == YAML_SEQUENCE_START_EVENT || event->type == YAML_MAPPING_START_EVENT)
                return 1;
        return event->type == YAML_SEQUENCE_END_EVENT || event->type == YAML_MAPPING_END_EVENT ? -1 : 0;
}

/* Nodes carry their anchors in events of three types. */
static bool is_anchored(const yaml_event_t *event) {
        if (event->type == YAML_SCALAR_EVENT)
                return event->data.scalar.anchor;
        if (event->type == YAML_SEQUENCE_START_EVENT)
                return event->data.sequence_start.anchor;
        return event->type == YAML_MAPPING_START_EVENT && event->data.mapping_start.anchor;
}

/* Goes through the file's events, and no further than to the first one that is too much. */
static int bound_events(yaml_parser_t *parser, const struct input *input, struct fault *fault) {
        bool more = true;
        int depth = 0, anchors = 0, documents = 0;

        while (more) {
                yaml_event_t event;
                unsigned line, column;

                if (!yaml_parser_parse(parser, &event))
                        return parser_fault(parser, input, fault);
                depth += nesting(&event);
                anchors += is_anchored(&event);
                documents += event.type == YAML_DOCUMENT_START_EVENT;
                line = (unsigned)event.start_mark.line + 1;
                column = (unsigned)event.start_mark.column + 1;
                more = event.type != YAML_STREAM_END_EVENT;
                yaml_event_delete(&event);
                if (documents > 1)
                        return fault_set(fault, -EINVAL, "%s:%u:%u: expected one document, got a second one",
                                         input->file, line, column);
                if (depth > YAML_DEPTH_MAX)
                        return fault_set(fault, -EINVAL,
                                         "%s:%u:%u: expected at most %d levels of nesting, got more",
                                         input->file, line, column, YAML_DEPTH_MAX);
                if (anchors > YAML_ANCHORS_MAX)
                        return fault_set(fault, -EINVAL, "%s:%u:%u: expected at most %d anchors, got more",
                                         input->file, line, column, YAML_ANCHORS_MAX);
        }
        return 0;
}

/* libyaml takes time that grows with the square of nesting and anchors: a file is bounded before it is
 * composed. */
static int bound(const struct input *input, struct fault *fault) {
        yaml_parser_t parser;
        int r;

        if (!yaml_parser_initialize(&parser))
                return fault_set(fault, -ENOMEM, "%s: out of memory", input->file);
        yaml_parser_set_input_string(&parser, (const unsigned char *)input->text, input->size);
        r = bound_events(&parser, input, fault);
        yaml_parser_delete(&parser);
        return r;
}

static int compose(yaml_document_t *yaml, const struct input *input, struct fault *fault) {
        yaml_parser_t parser;
        int r = 0;

        if (!yaml_parser_initialize(&parser))
                return fault_set(fault, -ENOMEM, "%s: out of memory", input->file);
        yaml_parser_set_input_string(&parser, (const unsigned char *)input->text, input->size);
        if (!yaml_parser_load(&parser, yaml)) {
                r = parser_fault(&parser, input, fault);
        } else if (!yaml_document_get_root_node(yaml)) {
                yaml_document_delete(yaml);
                r = fault_set(fault, -EINVAL,
                              "%s:1:1: expected a mapping with the key pipelines, got an empty file",
                              input->file);
        }
        yaml_parser_delete(&parser);
        return r;
}

int yaml_compose(yaml_document_t *yaml, const char *file, const char *text, struct fault *fault) {
        _cleanup_(freep) char *contents = NULL;
        struct input input = {.file = file, .text = text, .size = text ? strlen(text) : 0};
        int r;

        r = text ? 0 : read_file(file, &contents, &input.size, fault);
        if (r < 0)
                return r;
        if (!text)
                input.text = contents;
        r = refuse_nul(&input, fault);
        if (!r)
                r = bound(&input, fault);
        if (!r)
                r = compose(yaml, &input, fault);
        return r;
}
