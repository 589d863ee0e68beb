/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/markup.c - libexpat's events to a tree of elements, and back to text.
 */
#include "topo/markup.h"

#include "base/error.h"

#include <errno.h>
#include <expat.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MOST      128
#define ELEMENTS_MOST   1000000
#define ATTRIBUTES_MOST 64

typedef struct reader {
    XML_Parser parser;
    wefti_markup *markup;
    wefti_element *open; /* innermost */
    int depth, element_count;
    const char *refused; /* what stopped us; NULL: nothing */
    bool out_of_memory;
} reader;

static void stop(reader *r, const char *reason)
{
    if (reason) {
        r->refused = reason;
    } else {
        r->out_of_memory = true;
    }
    XML_StopParser(r->parser, XML_FALSE);
}

static void destroy_element(wefti_element *element)
{
    for (int i = 0; i < element->child_count; i++) {
        destroy_element(element->children[i]); /* DEPTH_MOST levels */
    }
    for (int i = 0; i < element->attribute_count; i++) {
        free(element->attributes[i].name);
        free(element->attributes[i].value);
    }
    free(element->attributes);
    free(element->children);
    free(element->name);
    free(element->text);
    free(element);
}

static bool add_attributes(wefti_element *element, const char **pairs)
{
    int count = 0;
    while (pairs[2 * count]) {
        count++;
    }
    if (count == 0) {
        return true;
    }
    element->attributes = calloc((size_t)count, sizeof(wefti_attribute));
    if (!element->attributes) {
        return false;
    }
    element->attribute_count = count;
    for (int i = 0; i < count; i++) {
        wefti_attribute *attribute = &element->attributes[i];
        attribute->name = strdup(pairs[2 * i]);
        attribute->value = strdup(pairs[2 * i + 1]);
        if (!attribute->name || !attribute->value) {
            return false;
        }
    }
    return true;
}

static bool add_child(wefti_element *parent, wefti_element *child)
{
    if (parent->child_count == parent->child_room) {
        int room = parent->child_room ? 2 * parent->child_room : 4;
        void *grown =
            realloc(parent->children, (size_t)room * sizeof(wefti_element *));
        if (!grown) {
            return false;
        }
        parent->children = grown;
        parent->child_room = room;
    }
    parent->children[parent->child_count++] = child;
    child->parent = parent;
    return true;
}

static void on_start(void *user, const char *name, const char **pairs)
{
    reader *r = user;
    if (r->refused || r->out_of_memory) {
        return; /* expat may still deliver what it had begun */
    }
    if (r->depth == DEPTH_MOST || r->element_count == ELEMENTS_MOST) {
        stop(r, r->depth == DEPTH_MOST ? "elements nest deeper than 128"
                                       : "more than 1000000 elements");
        return;
    }
    wefti_element *element = calloc(1, sizeof(*element));
    if (!element) {
        stop(r, NULL);
        return;
    }
    element->line = (int)XML_GetCurrentLineNumber(r->parser);
    element->column = (int)XML_GetCurrentColumnNumber(r->parser) + 1;
    element->name = strdup(name);
    if (r->open ? !add_child(r->open, element) : false) {
        free(element->name);
        free(element);
        stop(r, NULL);
        return;
    }
    if (!r->open) {
        r->markup->root = element;
    }
    r->open = element;
    r->depth++;
    r->element_count++;
    if (!element->name || !add_attributes(element, pairs)) {
        stop(r, NULL);
    } else if (element->attribute_count > ATTRIBUTES_MOST) {
        stop(r, "an element has more than 64 attributes");
    }
}

static void on_end(void *user, const char *name)
{
    reader *r = user;
    (void)name;
    if (r->open) {
        r->open = r->open->parent;
        r->depth--;
    }
}

/* Blanks between elements are not kept. */
static void on_text(void *user, const char *text, int byte_count)
{
    reader *r = user;
    wefti_element *element = r->open;
    size_t bytes = (size_t)byte_count, blank = 0;
    while (blank < bytes && strchr(" \t\r\n", text[blank])) {
        blank++;
    }
    if (!element || r->refused || r->out_of_memory ||
        (!element->text && blank == bytes)) {
        return;
    }
    char *grown = realloc(element->text, element->text_bytes + bytes + 1);
    if (!grown) {
        stop(r, NULL);
        return;
    }
    memcpy(grown + element->text_bytes, text, bytes);
    element->text = grown;
    element->text_bytes += bytes;
    grown[element->text_bytes] = '\0';
}

static void on_entity(void *user, const char *name, int is_parameter,
                      const char *value, int value_bytes, const char *base,
                      const char *system, const char *public,
                      const char *notation)
{
    (void)name, (void)is_parameter, (void)value, (void)value_bytes;
    (void)base, (void)system, (void)public, (void)notation;
    stop(user, "entities of a file's own are not read");
}

static weft_status set_error(const reader *r, const char *path)
{
    if (r->out_of_memory ||
        XML_GetErrorCode(r->parser) == XML_ERROR_NO_MEMORY) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "reading %s", path);
    }
    return wefti_error(
        WEFT_ERR_INVALID, "%s:%lu:%lu: not readable as XML: %s", path,
        XML_GetCurrentLineNumber(r->parser),
        XML_GetCurrentColumnNumber(r->parser) + 1,
        r->refused ? r->refused : XML_ErrorString(XML_GetErrorCode(r->parser)));
}

/* Where the next "-->" ends; NULL: nowhere. */
static char *end_of_comment(char *at, const char *end)
{
    for (; end - at >= 3; at++) {
        if (memcmp(at, "-->", 3) == 0) {
            return at + 3;
        }
    }
    return NULL;
}

/* Comments as NCCL's parser takes them: up to the next "-->", whatever is in
 * between. RCCL's own files begin with lines of dashes, which XML forbids. They
 * become blanks, so that lines and columns stay. */
static void blank_comments(char *text, size_t text_bytes)
{
    char *end = text + text_bytes;
    for (char *at = text; end - at >= 4; at++) {
        char *after =
            memcmp(at, "<!--", 4) == 0 ? end_of_comment(at + 4, end) : NULL;
        for (; after && at < after; at++) {
            *at = *at == '\n' ? '\n' : ' ';
        }
        if (after) {
            at--;
        }
    }
}

weft_status wefti_markup_create(const char *path, const char *text,
                                size_t text_bytes, wefti_markup **markup_out)
{
    weft_status status = WEFT_OK;
    if (text_bytes > WEFTI_MARKUP_BYTES_MOST) {
        return wefti_error(WEFT_ERR_INVALID, "%s: %zu bytes: allowed is %d",
                           path, text_bytes, WEFTI_MARKUP_BYTES_MOST);
    }
    reader r = {.markup = calloc(1, sizeof(wefti_markup)),
                .parser = XML_ParserCreate(NULL)};
    char *plain = malloc(text_bytes + 1);
    if (!r.markup || !r.parser || !plain || !(r.markup->path = strdup(path))) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "reading %s", path);
        goto err_parser;
    }
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_start, on_end);
    XML_SetCharacterDataHandler(r.parser, on_text);
    XML_SetEntityDeclHandler(r.parser, on_entity);
    memcpy(plain, text, text_bytes);
    blank_comments(plain, text_bytes);
    if (XML_Parse(r.parser, plain, (int)text_bytes, XML_TRUE) !=
        XML_STATUS_OK) {
        status = set_error(&r, path);
    }
err_parser:
    free(plain);
    if (r.parser) {
        XML_ParserFree(r.parser);
    }
    if (status != WEFT_OK) {
        wefti_markup_destroy(r.markup);
        r.markup = NULL;
    }
    *markup_out = r.markup;
    return status;
}

void wefti_markup_destroy(wefti_markup *markup)
{
    if (!markup) {
        return;
    }
    if (markup->root) {
        destroy_element(markup->root);
    }
    free(markup->path);
    free(markup);
}

const char *wefti_element_get(const wefti_element *element, const char *name)
{
    for (int i = 0; i < element->attribute_count; i++) {
        if (strcmp(element->attributes[i].name, name) == 0) {
            return element->attributes[i].value;
        }
    }
    return NULL;
}

const char *wefti_element_text(const wefti_element *element, const char *name)
{
    const char *value = wefti_element_get(element, name);
    return value ? value : "";
}

double wefti_element_number(const wefti_element *element, const char *name,
                            double fallback)
{
    const char *text = wefti_element_get(element, name);
    char *end;
    double value = text ? strtod(text, &end) : fallback;
    return text && (end == text || !(value > -1e15 && value < 1e15)) ? fallback
                                                                     : value;
}

int wefti_element_int(const wefti_element *element, const char *name,
                      int fallback)
{
    double value = wefti_element_number(element, name, fallback);
    return value >= -1e9 && value <= 1e9 ? (int)value : fallback;
}

uint32_t wefti_element_hex(const wefti_element *element, const char *name)
{
    return (uint32_t)strtoul(wefti_element_text(element, name), NULL, 16);
}

const wefti_element *wefti_element_child(const wefti_element *element,
                                         const char *name)
{
    for (int i = 0; i < element->child_count; i++) {
        if (strcmp(element->children[i]->name, name) == 0) {
            return element->children[i];
        }
    }
    return NULL;
}

void wefti_markup_write_value(const char *value, FILE *file)
{
    for (; *value; value++) {
        switch (*value) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        case '\t':
        case '\n':
        case '\r':
            fprintf(file, "&#%d;", *value);
            break;
        default:
            fputc(*value, file);
        }
    }
}

static void write_element(const wefti_element *element, int depth, FILE *file)
{
    fprintf(file, "%*s<%s", 2 * depth, "", element->name);
    for (int i = 0; i < element->attribute_count; i++) {
        fprintf(file, " %s=\"", element->attributes[i].name);
        wefti_markup_write_value(element->attributes[i].value, file);
        fputc('"', file);
    }
    if (element->child_count == 0) {
        fputs("/>\n", file);
        return;
    }
    fputs(">\n", file);
    for (int i = 0; i < element->child_count; i++) {
        write_element(element->children[i], depth + 1, file);
    }
    fprintf(file, "%*s</%s>\n", 2 * depth, "", element->name);
}

void wefti_markup_write(const wefti_markup *markup, FILE *file)
{
    write_element(markup->root, 0, file);
}
