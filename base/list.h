#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Intrusive doubly linked list: the head and every member are a `struct list`; empty means "linked to
 * itself". */

#include <stdbool.h>
#include <stddef.h>

struct list {
        struct list *next;
        struct list *prev;
};

#define LIST_INIT(name)                                                                                      \
        { &(name), &(name) }

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#define list_for_each(entry, head)                                                                           \
        for (struct list *entry = (head)->next; entry != (head); entry = entry->next)

/* The current entry may be unlinked or freed in the body; its successor may not. */
#define list_for_each_safe(entry, head)                                                                      \
        for (struct list *entry = (head)->next, *entry##_next = entry->next; entry != (head);                \
             entry = entry##_next, entry##_next = entry->next)

static inline void list_init(struct list *list) {
        list->next = list->prev = list;
}

static inline bool list_is_empty(const struct list *head) {
        return head->next == head;
}

/* Links `entry` as the last of `head`. */
static inline void list_append(struct list *head, struct list *entry) {
        entry->prev = head->prev;
        entry->next = head;
        head->prev->next = entry;
        head->prev = entry;
}

/* Takes `entry` out of whatever list it is in; harmless when it is in none. */
static inline void list_unlink(struct list *entry) {
        entry->prev->next = entry->next;
        entry->next->prev = entry->prev;
        list_init(entry);
}
