/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/topo_open.c - which reader a recorded machine needs.
 */
#include "topo/topo.h"

#include "base/error.h"
#include "base/input.h"
#include "base/printable.h"
#include "topo/markup.h"
#include "topo/rates.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const format_names[] = {"any", "hwloc", "nccl", "synthetic"};

bool wefti_topo_format_find(const char *text, wefti_topo_format *format_out)
{
    for (int i = WEFTI_FORMAT_HWLOC; i <= WEFTI_FORMAT_SYNTHETIC; i++) {
        if (strcmp(text, format_names[i]) == 0) {
            *format_out = (wefti_topo_format)i;
            return true;
        }
    }
    return false;
}

/* A file's format by the name of its outermost element. */
static wefti_topo_format recognise(const char *text, size_t text_bytes)
{
    for (size_t i = 0; i + 1 < text_bytes; i++) {
        if (text[i] != '<') {
            continue;
        }
        if (strncmp(text + i, "<!--", 4) == 0) {
            const char *end = strstr(text + i, "-->");
            i = end ? (size_t)(end - text) : text_bytes;
        } else if (isalpha((unsigned char)text[i + 1])) {
            return strncmp(text + i, "<system", 7) == 0 ? WEFTI_FORMAT_NCCL
                   : strncmp(text + i, "<topology", 9) == 0 ||
                           strncmp(text + i, "<root", 5) == 0
                       ? WEFTI_FORMAT_HWLOC
                       : WEFTI_FORMAT_ANY;
        }
    }
    return WEFTI_FORMAT_ANY;
}

static bool is_utf16(const char *text, size_t text_bytes)
{
    return text_bytes >= 2 &&
           (memcmp(text, "\xff\xfe", 2) == 0 ||
            memcmp(text, "\xfe\xff", 2) == 0 || memcmp(text, "<\0", 2) == 0 ||
            memcmp(text, "\0<", 2) == 0);
}

static weft_status open_file(const char *path, wefti_topo_format format,
                             const char *model, wefti_topo **topo_out)
{
    char *text;
    size_t text_bytes;
    weft_status status =
        wefti_file_read(path, WEFTI_INPUT_FILE_OR_PIPE, WEFTI_MARKUP_BYTES_MOST,
                        &text, &text_bytes);
    if (status != WEFT_OK) {
        return status;
    }
    if (is_utf16(text, text_bytes)) {
        free(text);
        return wefti_error(WEFT_ERR_INVALID,
                           "%s:1:1: encoded as UTF-16: allowed is UTF-8", path);
    }
    if (format == WEFTI_FORMAT_ANY) {
        format = recognise(text, text_bytes);
    }
    if (format == WEFTI_FORMAT_NCCL) {
        status = wefti_topo_read_nccl(path, text, text_bytes, model, topo_out);
    } else if (format == WEFTI_FORMAT_HWLOC) {
        status = wefti_topo_read_hwloc(path, text, text_bytes, topo_out);
    } else {
        wefti_markup *markup;
        status = wefti_markup_create(path, text, text_bytes, &markup);
        if (status == WEFT_OK) {
            status = wefti_error(WEFT_ERR_INVALID,
                                 "%s:%d: the outermost element is <%.40s>: "
                                 "allowed is hwloc's <topology> or NCCL's "
                                 "<system>",
                                 path, markup->root->line, markup->root->name);
            wefti_markup_destroy(markup);
        }
    }
    free(text);
    return status;
}

/* Names of devices stand in columns, which count bytes and cut: in files they
 * may hold anything, in ours ASCII, and \xNN for the rest. */
static void make_ascii(char *text, size_t text_bytes)
{
    char raw[256];
    size_t used = 0;
    snprintf(raw, sizeof(raw), "%s", text);
    for (const unsigned char *c = (const unsigned char *)raw; *c; c++) {
        bool plain = *c >= ' ' && *c < 0x7f;
        if (used + (plain ? 1 : 4) >= text_bytes) {
            break;
        }
        used += (size_t)snprintf(text + used, text_bytes - used,
                                 plain ? "%c" : "\\x%02x", *c);
    }
    text[used] = '\0';
}

/* Texts keep their letters. */
static void make_printable(char *text, size_t text_bytes)
{
    char raw[256];
    snprintf(raw, sizeof(raw), "%s", text);
    wefti_printable(raw, strlen(raw), text, text_bytes);
}

#define MAKE_ASCII(array)     make_ascii(array, sizeof(array))
#define MAKE_PRINTABLE(array) make_printable(array, sizeof(array))

static void make_names_printable(wefti_topo *topo)
{
    MAKE_PRINTABLE(topo->source);
    for (int i = 0; i < topo->device_count; i++) {
        wefti_device *device = &topo->devices[i];
        MAKE_ASCII(device->name);
        MAKE_ASCII(device->pci.bus);
        MAKE_ASCII(device->cpu.arch);
        MAKE_ASCII(device->cpu.vendor);
        MAKE_ASCII(device->cpu.name);
    }
    for (int i = 0; i < topo->warning_count; i++) {
        MAKE_PRINTABLE(topo->warnings[i].device);
        MAKE_PRINTABLE(topo->warnings[i].text);
    }
}

weft_status wefti_topo_open(const char *input, wefti_topo_format format,
                            const char *model, wefti_topo **topo_out)
{
    bool description = isdigit((unsigned char)input[0]) && strchr(input, 'x') &&
                       access(input, F_OK) != 0;
    if (model && !wefti_gpu_model_find(0, 0, model)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "GPU model \"%.40s\" is not known; such as H100, "
                           "A100, V100 are",
                           model);
    }
    if (format == WEFTI_FORMAT_SYNTHETIC ||
        (format == WEFTI_FORMAT_ANY && description)) {
        return wefti_topo_read_synthetic(input, topo_out);
    }
    weft_status status = open_file(input, format, model, topo_out);
    if (status == WEFT_OK) {
        make_names_printable(*topo_out);
    }
    return status;
}
