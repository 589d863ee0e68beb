/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/hwloc_file.c - objects, CPU sets and matrices of hwloc's XML.
 */
#include "topo/hwloc_file.h"

#include "base/check.h"
#include "base/error.h"
#include "topo/number.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECTS_MOST 200000
#define MATRIX_MOST  1024

static wefti_hwloc_type type_of(const wefti_element *element)
{
    static const struct {
        const char *name;
        wefti_hwloc_type type;
    } types[] = {
        {"Machine", WEFTI_HWLOC_MACHINE},   {"System", WEFTI_HWLOC_MACHINE},
        {"Package", WEFTI_HWLOC_PACKAGE},   {"Socket", WEFTI_HWLOC_PACKAGE},
        {"NUMANode", WEFTI_HWLOC_NUMANODE}, {"Node", WEFTI_HWLOC_NUMANODE},
        {"Bridge", WEFTI_HWLOC_BRIDGE},     {"PCIDev", WEFTI_HWLOC_PCIDEV},
        {"OSDev", WEFTI_HWLOC_OSDEV},       {"Misc", WEFTI_HWLOC_MISC}};
    const char *name = wefti_element_text(element, "type");
    for (size_t i = 0; i < WEFTI_COUNT_OF(types); i++) {
        if (strcmp(name, types[i].name) == 0) {
            return types[i].type;
        }
    }
    return WEFTI_HWLOC_OTHER;
}

static bool is_object(const wefti_element *element)
{
    return strcmp(element->name, "object") == 0;
}

static int count_objects(const wefti_element *element)
{
    int count = is_object(element);
    for (int i = 0; i < element->child_count; i++) {
        count += count_objects(element->children[i]);
    }
    return count;
}

static void list_objects(wefti_hwloc_import *in, const wefti_element *element,
                         wefti_hwloc_object *parent)
{
    if (is_object(element)) {
        wefti_hwloc_object *object = &in->objects[in->object_count++];
        *object = (wefti_hwloc_object){.type = type_of(element),
                                       .element = element,
                                       .parent = parent,
                                       .device = -1};
        parent = object;
    }
    for (int i = 0; i < element->child_count; i++) {
        list_objects(in, element->children[i], parent);
    }
}

weft_status wefti_hwloc_list(wefti_hwloc_import *in)
{
    const wefti_element *root = in->markup->root;
    int count = count_objects(root);
    if (count > OBJECTS_MOST) {
        return wefti_error(WEFT_ERR_INVALID, "%s: %d objects: allowed is %d",
                           in->path, count, OBJECTS_MOST);
    }
    in->objects = calloc((size_t)count + 1, sizeof(*in->objects));
    if (!in->objects) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d objects", count);
    }
    list_objects(in, root, NULL);
    for (int i = 0; i < count; i++) {
        const wefti_hwloc_object *o = &in->objects[i];
        if (o->type == WEFTI_HWLOC_PCIDEV &&
            !wefti_element_get(o->element, "pci_busid")) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s:%d: <object type=\"PCIDev\"> has no "
                               "attribute \"pci_busid\"",
                               in->path, o->element->line);
        }
    }
    /* hwloc 1.x leaves a Machine out that has but one node. */
    if (count == 0 || (in->objects[0].type != WEFTI_HWLOC_MACHINE &&
                       in->objects[0].type != WEFTI_HWLOC_NUMANODE)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s:%d: <topology> does not begin with <object "
                           "type=\"Machine\"> or \"NUMANode\"",
                           in->path, root->line);
    }
    in->version = wefti_hwloc_info(&in->objects[0], "hwlocVersion");
    return WEFT_OK;
}

void wefti_hwloc_fini(wefti_hwloc_import *in)
{
    free(in->objects);
    free(in->parts);
    in->objects = NULL;
    in->parts = NULL;
}

/* ---- of one object --------------------------------------------------------
 */

const char *wefti_hwloc_text(const wefti_hwloc_object *object, const char *name)
{
    return wefti_element_text(object->element, name);
}

const char *wefti_hwloc_info(const wefti_hwloc_object *object, const char *name)
{
    for (int i = 0; i < object->element->child_count; i++) {
        const wefti_element *child = object->element->children[i];
        if (strcmp(child->name, "info") == 0 &&
            strcmp(wefti_element_text(child, "name"), name) == 0) {
            return wefti_element_text(child, "value");
        }
    }
    return "";
}

wefti_hwloc_object *wefti_hwloc_os_device(const wefti_hwloc_import *in,
                                          const wefti_hwloc_object *pci,
                                          int index)
{
    int at = (int)(pci - in->objects);
    for (int i = at + 1; i < in->object_count; i++) {
        wefti_hwloc_object *object = &in->objects[i];
        wefti_hwloc_object *up = object->parent;
        while (up && up != pci && up->type == WEFTI_HWLOC_OSDEV) {
            up = up->parent;
        }
        if (up != pci) {
            break; /* past what is below it */
        }
        if (object->type == WEFTI_HWLOC_OSDEV && index-- == 0) {
            return object;
        }
    }
    return NULL;
}

wefti_hwloc_object *wefti_hwloc_place(wefti_hwloc_object *object)
{
    while (object && (object->type >= WEFTI_HWLOC_BRIDGE ||
                      !wefti_element_get(object->element, "cpuset"))) {
        object = object->parent;
    }
    return object;
}

/* "0x000000ff,,0x1": words of 32 bits, highest first; empty is zero. */
void wefti_hwloc_cpuset(const wefti_hwloc_object *object, wefti_cpuset *set)
{
    const char *text = wefti_hwloc_text(object, "cpuset");
    memset(set, 0, sizeof(*set));
    if (strncmp(text, "0xf...f", 7) == 0) {
        memset(set, 0xff, sizeof(*set));
        text += 7;
        text += *text == ',';
    }
    int words = 1;
    for (const char *c = text; *c; c++) {
        words += *c == ',';
    }
    while (words-- > 0) {
        if (words < WEFTI_CPUSET_WORDS) {
            bool empty = *text == ',' || *text == '\0';
            set->words[words] = empty ? 0 : (uint32_t)strtoul(text, NULL, 16);
        }
        const char *comma = strchr(text, ',');
        text = comma ? comma + 1 : text + strlen(text);
    }
}

bool wefti_cpuset_intersects(const wefti_cpuset *a, const wefti_cpuset *b)
{
    for (int i = 0; i < WEFTI_CPUSET_WORDS; i++) {
        if (a->words[i] & b->words[i]) {
            return true;
        }
    }
    return false;
}

/* ---- PCI ------------------------------------------------------------------
 */

bool wefti_hwloc_is_pci_bridge(const wefti_hwloc_object *object)
{
    return object && object->type == WEFTI_HWLOC_BRIDGE &&
           wefti_hwloc_text(object, "bridge_type")[0] == '1';
}

double wefti_hwloc_link_speed(const wefti_hwloc_object *object)
{
    double speed = wefti_element_number(object->element, "pci_link_speed", 0);
    return speed > 0 && speed < 1000 ? speed : 0;
}

/* pci_type is "0302 [10de:2330] [10de:16c1] a1"; what it lacks is 0. */
void wefti_hwloc_read_ids(const wefti_hwloc_object *object, wefti_pci *out)
{
    static const char *const before[5] = {"", " [", ":", "] [", ":"};
    uint64_t ids[5] = {0}; /* class, vendor, device, and the subsystem's */
    const char *at = wefti_hwloc_text(object, "pci_type");
    wefti_bus_normalise(wefti_hwloc_text(object, "pci_busid"), out->bus);
    int count = 0;
    while (count < 5 && wefti_number_skip(&at, before[count]) &&
           wefti_number_read(&at, 16, UINT16_MAX, &ids[count])) {
        count++;
    }
    out->class_code = (uint32_t)ids[0] << 8;
    out->vendor = (uint16_t)ids[1];
    out->device = (uint16_t)ids[2];
    out->sub_vendor = (uint16_t)ids[3];
    out->sub_device = (uint16_t)ids[4];
}

/* ---- matrices -------------------------------------------------------------
 */

static wefti_hwloc_object *find_object(const wefti_hwloc_import *in,
                                       const char *gp_index, size_t bytes)
{
    for (int i = 0; i < in->object_count; i++) {
        const char *own = wefti_hwloc_text(&in->objects[i], "gp_index");
        if (strlen(own) == bytes && strncmp(own, gp_index, bytes) == 0) {
            return &in->objects[i];
        }
    }
    return NULL;
}

/* The next word of the texts of all children of that name; false at the end. */
typedef struct words {
    const wefti_element *element;
    const char *name, *at;
    int child;
} words;

static bool next_word(words *w, const char **word_out, size_t *bytes_out)
{
    for (;;) {
        while (w->at && isspace((unsigned char)*w->at)) {
            w->at++;
        }
        if (w->at && *w->at) {
            *word_out = w->at;
            while (*w->at && !isspace((unsigned char)*w->at)) {
                w->at++;
            }
            *bytes_out = (size_t)(w->at - *word_out);
            return true;
        }
        if (w->child == w->element->child_count) {
            return false;
        }
        const wefti_element *child = w->element->children[w->child++];
        w->at = strcmp(child->name, w->name) == 0 ? child->text : NULL;
    }
}

/* What a matrix should hold, in numbers, and what is there. */
static void doubt_matrix(const wefti_hwloc_import *in,
                         const wefti_element *element, const char *what,
                         int there, int due)
{
    if (there != due) {
        char name[64];
        snprintf(name, sizeof(name), "%.40s matrix",
                 wefti_element_text(element, "name"));
        wefti_topo_warn(in->topo, 21, name,
                        "%.60s:%d: %d %s, and nbobjs asks for %d: links that "
                        "it lacks are unknown",
                        in->path, element->line, there, what, due);
    }
}

static int read_objects(const wefti_hwloc_import *in,
                        const wefti_element *element, wefti_hwloc_matrix *out)
{
    words indexes = {element, "indexes", NULL, 0};
    const char *word;
    size_t bytes;
    int found = 0;
    for (int i = 0; i < out->count && next_word(&indexes, &word, &bytes); i++) {
        const char *colon = memchr(word, ':', bytes); /* "OSDev:802" */
        size_t skip = colon ? (size_t)(colon - word) + 1 : 0;
        out->objects[i] = find_object(in, word + skip, bytes - skip);
        found += out->objects[i] != NULL;
    }
    return found;
}

static void read_matrix(const wefti_hwloc_import *in,
                        const wefti_element *element, wefti_hwloc_matrix *out)
{
    words values = {element, "u64values", NULL, 0};
    const char *word;
    size_t bytes;
    int count = 0, most = out->count * out->count;
    while (next_word(&values, &word, &bytes)) {
        double value;
        const char *at = word;
        bool number = wefti_number_read_real(&at, &value) && at == word + bytes;
        if (number && count < most) {
            out->values[count] = value < 1e9 ? value : 0;
        }
        count += number;
    }
    doubt_matrix(in, element, "numbers", count, most);
    doubt_matrix(in, element, "objects of this file",
                 read_objects(in, element, out), out->count);
}

weft_status wefti_hwloc_matrix_read(const wefti_hwloc_import *in,
                                    const char *name, wefti_hwloc_matrix *out)
{
    const wefti_element *root = in->markup->root;
    *out = (wefti_hwloc_matrix){0};
    for (int i = 0; i < root->child_count; i++) {
        const wefti_element *child = root->children[i];
        int count = wefti_element_int(child, "nbobjs", 0);
        if (strncmp(child->name, "distances2", 10) != 0 || count < 1 ||
            count > MATRIX_MOST ||
            strcmp(wefti_element_text(child, "name"), name) != 0) {
            continue;
        }
        size_t n = (size_t)count;
        out->objects = calloc(n, sizeof(*out->objects));
        out->values = calloc(n * n, sizeof(*out->values));
        if (!out->objects || !out->values) {
            wefti_hwloc_matrix_fini(out);
            return wefti_error(WEFT_ERR_NO_MEMORY, "a matrix of %d", count);
        }
        out->count = count;
        read_matrix(in, child, out);
        break;
    }
    return WEFT_OK;
}

void wefti_hwloc_matrix_fini(wefti_hwloc_matrix *matrix)
{
    free(matrix->objects);
    free(matrix->values);
    *matrix = (wefti_hwloc_matrix){0};
}
