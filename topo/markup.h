/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/markup.h - an XML file as a tree of elements with their attributes and
 * line numbers (read by libexpat), and written back the way NCCL's narrow
 * parser takes it.
 *
 * Files come from strangers: their size, depth and number of elements are
 * bounded, entities of their own are refused.
 */
#ifndef TOPO_MARKUP_H
#define TOPO_MARKUP_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define WEFTI_MARKUP_BYTES_MOST (64 << 20)

typedef struct wefti_attribute {
    char *name, *value;
} wefti_attribute;

typedef struct wefti_element {
    char *name;
    char *text; /* what stands between its tags; NULL: nothing */
    size_t text_bytes;
    int line, column; /* where its tag begins, from 1 */
    wefti_attribute *attributes;
    int attribute_count;
    struct wefti_element **children; /* in the file's order */
    int child_count, child_room;
    struct wefti_element *parent;
} wefti_element;

typedef struct wefti_markup {
    wefti_element *root;
    char *path; /* as given, for messages */
} wefti_markup;

/*
 * wefti_markup_create - parses text.
 *
 * path        named in messages.
 * Returns     OK | ERR_INVALID (path:line:column and what is wrong) |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_markup_create(const char *path,
                                               const char *text,
                                               size_t text_bytes,
                                               wefti_markup **markup_out);
void wefti_markup_destroy(wefti_markup *markup); /* takes NULL */

/* The attribute's value; NULL where it is absent. */
const char *wefti_element_get(const wefti_element *element, const char *name);
/* The same as text ("" where absent), and as numbers. */
const char *wefti_element_text(const wefti_element *element, const char *name);
double wefti_element_number(const wefti_element *element, const char *name,
                            double fallback);
int wefti_element_int(const wefti_element *element, const char *name,
                      int fallback);
uint32_t wefti_element_hex(const wefti_element *element, const char *name);
/* The first child of that name; NULL where there is none. */
const wefti_element *wefti_element_child(const wefti_element *element,
                                         const char *name);

/* Elements, indented by two blanks a level. */
void wefti_markup_write(const wefti_markup *markup, FILE *file);

/* One attribute's value with &, <, > and quotes written as XML wants them. */
void wefti_markup_write_value(const char *value, FILE *file);

#endif
