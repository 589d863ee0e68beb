/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/nccl_export.c - a graph as the XML that NCCL reads: no declaration,
 * no tabs, every attribute it needs, at most what its parser takes.
 *
 * Source: NCCL 2.28, src/graph/xml.cc.
 */
#include "topo/topo.h"

#include "base/error.h"
#include "topo/markup.h"
#include "topo/rates.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MOST 64
/* Of one file, one element and one attribute. */
#define NCCL_ELEMENTS_MOST 256
#define NCCL_CHILDREN_MOST 128
#define NCCL_TEXT_MOST     254

typedef struct writer {
    const wefti_topo *topo;
    FILE *file;
} writer;

static void indent(const writer *w, int depth)
{
    fprintf(w->file, "%*s", 2 * depth, "");
}

static void write_pci_head(const writer *w, const wefti_device *d, int depth)
{
    uint32_t class_code = d->pci.class_code;
    if (class_code == 0) {
        class_code = d->kind == WEFTI_TOPO_GPU    ? 0x030200
                     : d->kind == WEFTI_TOPO_CARD ? 0x020000
                                                  : 0x060400;
    }
    indent(w, depth);
    fputs("<pci busid=\"", w->file);
    wefti_markup_write_value(d->pci.bus, w->file);
    fprintf(w->file, "\" class=\"0x%06x\"", class_code);
    if (d->pci.vendor) {
        fprintf(w->file,
                " vendor=\"0x%04x\" device=\"0x%04x\" "
                "subsystem_vendor=\"0x%04x\" subsystem_device=\"0x%04x\"",
                d->pci.vendor, d->pci.device, d->pci.sub_vendor,
                d->pci.sub_device);
    }
    fprintf(w->file, " link_speed=\"%s\" link_width=\"%d\"",
            wefti_rate_pci_text(d->pci.gen),
            d->pci.width > 0 ? d->pci.width : 16);
}

/* The links of one GPU, as both of their ends report them. */
static void write_links(const writer *w, int gpu, int depth)
{
    const wefti_topo *topo = w->topo;
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        int other = link->a == gpu ? link->b : link->a;
        const wefti_device *o = &topo->devices[other];
        if ((link->a != gpu && link->b != gpu) || link->count < 1) {
            continue;
        }
        if (link->type == WEFTI_LINK_C2C) {
            indent(w, depth);
            fprintf(w->file, "<c2c bw=\"%.0f\" count=\"%d\"/>\n",
                    1000 * link->GBps / link->count, link->count);
        } else if (link->type == WEFTI_LINK_NVL ||
                   link->type == WEFTI_LINK_XGMI) {
            bool amd = link->type == WEFTI_LINK_XGMI;
            const char *class_text = amd                          ? "0x038000"
                                     : o->kind == WEFTI_TOPO_GPU  ? "0x030200"
                                     : o->kind == WEFTI_TOPO_NUMA ? "0x068001"
                                                                  : "0x068000";
            indent(w, depth);
            fprintf(w->file, "<%s target=\"%s\" count=\"%d\" tclass=\"%s\"/>\n",
                    amd ? "xgmi" : "nvlink",
                    o->kind == WEFTI_TOPO_GPU ? o->pci.bus : "fffe:00:00.0",
                    link->count, class_text);
        }
    }
}

static void write_gpu(const writer *w, int device, int number, int depth)
{
    const wefti_device *d = &w->topo->devices[device];
    write_pci_head(w, d, depth);
    if (d->gpu.template_of) {
        fputs("/>\n", w->file);
        return;
    }
    fputs(">\n", w->file);
    indent(w, depth + 1);
    int dev = d->gpu.dev >= 0 ? d->gpu.dev : number;
    fprintf(w->file, "<gpu dev=\"%d\" sm=\"%d\"", dev, d->gpu.sm);
    if (d->gpu.amd) {
        fprintf(w->file, " gcn=\"%d\"", d->gpu.sm);
    }
    fprintf(w->file, " rank=\"%d\" gdr=\"%d\">\n",
            d->gpu.rank >= 0 ? d->gpu.rank : dev, d->gpu.gdr);
    write_links(w, device, depth + 2);
    indent(w, depth + 1);
    fputs("</gpu>\n", w->file);
    indent(w, depth);
    fputs("</pci>\n", w->file);
}

/* In the GUID's place: says which ports are of one card, and no more. */
static int card_number(const wefti_topo *topo, int nic)
{
    int number = 0;
    for (int i = 0; i <= nic; i++) {
        const wefti_device *d = &topo->devices[i];
        number += d->kind == WEFTI_TOPO_NIC;
        if (d->kind == WEFTI_TOPO_NIC &&
            d->nic.card_guid == topo->devices[nic].nic.card_guid) {
            break;
        }
    }
    return number;
}

/* Ports that are down are left out, as NCCL's own dump does. */
static void write_nic(const writer *w, int card, int depth)
{
    const wefti_topo *topo = w->topo;
    bool pci = topo->devices[card].pci.bus[0] != '\0';
    if (pci) {
        write_pci_head(w, &topo->devices[card], depth);
        fputs(">\n", w->file);
    }
    indent(w, depth + pci);
    fputs("<nic>\n", w->file);
    for (int i = card + 1; i < topo->device_count; i++) {
        const wefti_device *d = &topo->devices[i];
        if (d->parent != card || !wefti_topo_nic_usable(topo, i)) {
            continue;
        }
        indent(w, depth + pci + 1);
        fputs("<net name=\"", w->file);
        wefti_markup_write_value(d->name, w->file);
        fprintf(w->file, "\" dev=\"%d\" speed=\"%.0f\" port=\"%d\"",
                d->nic.dev >= 0 ? d->nic.dev : d->ordinal, 1000 * d->nic.gbps,
                d->nic.port);
        if (d->nic.card_guid) {
            fprintf(w->file, " guid=\"0x%x\"", card_number(topo, i));
        }
        fprintf(w->file, " maxconn=\"262144\" gdr=\"%d\"/>\n", d->nic.gdr);
    }
    indent(w, depth + pci);
    fputs("</nic>\n", w->file);
    if (pci) {
        indent(w, depth);
        fputs("</pci>\n", w->file);
    }
}

static void write_children(const writer *w, int parent, int depth)
{
    const wefti_topo *topo = w->topo;
    int host = topo->devices[parent].host, gpus = 0;
    for (int i = host; i < topo->device_count && depth < DEPTH_MOST; i++) {
        const wefti_device *d = &topo->devices[i];
        if (d->host != host) {
            break;
        }
        int number = gpus;
        gpus += d->kind == WEFTI_TOPO_GPU;
        if (d->parent != parent) {
            continue;
        }
        if (d->kind == WEFTI_TOPO_GPU) {
            write_gpu(w, i, number, depth);
        } else if (d->kind == WEFTI_TOPO_CARD) {
            write_nic(w, i, depth);
        } else if (d->kind == WEFTI_TOPO_BRIDGE) {
            write_pci_head(w, d, depth);
            fputs(">\n", w->file);
            write_children(w, i, depth + 1);
            indent(w, depth);
            fputs("</pci>\n", w->file);
        }
    }
}

static void write_cpu(const writer *w, int numa)
{
    const wefti_topo *topo = w->topo;
    const wefti_device *d = &topo->devices[numa];
    fprintf(w->file, "  <cpu numaid=\"%d\"", d->os_index);
    if (topo->kind_counts[WEFTI_TOPO_HOST] > 1) {
        fprintf(w->file, " host_hash=\"0x%x\"",
                topo->devices[d->host].ordinal + 1);
    }
    const char *const texts[][2] = {{"affinity", d->cpu.affinity},
                                    {"arch", d->cpu.arch},
                                    {"vendor", d->cpu.vendor}};
    for (int i = 0; i < 3; i++) {
        /* What is too long NCCL finds out itself, where it runs. */
        if (texts[i][1][0] && strlen(texts[i][1]) <= NCCL_TEXT_MOST) {
            fprintf(w->file, " %s=\"", texts[i][0]);
            wefti_markup_write_value(texts[i][1], w->file);
            fputc('"', w->file);
        }
    }
    fprintf(w->file, " familyid=\"%d\" modelid=\"%d\">\n", d->cpu.family,
            d->cpu.model);
    write_children(w, numa, 2);
    fputs("  </cpu>\n", w->file);
}

static void write_system(const wefti_topo *topo, FILE *file)
{
    writer w = {topo, file};
    bool amd = false;
    for (int i = 0; i < topo->device_count; i++) {
        amd |= topo->devices[i].gpu.amd;
    }
    fprintf(file, "<system version=\"%d\">\n", amd ? 2 : 1);
    for (int i = 0; i < topo->device_count; i++) {
        if (topo->devices[i].kind == WEFTI_TOPO_NUMA) {
            write_cpu(&w, i);
        }
    }
    fputs("</system>\n", file);
}

/* ---- what NCCL's parser takes ---------------------------------------------
 */

static weft_status check_element(const wefti_element *element, int *elements)
{
    *elements += 1;
    if (element->child_count > NCCL_CHILDREN_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "<%s> with %d elements in it: NCCL reads at most "
                           "%d",
                           element->name, element->child_count,
                           NCCL_CHILDREN_MOST);
    }
    for (int i = 0; i < element->attribute_count; i++) {
        const wefti_attribute *attribute = &element->attributes[i];
        if (strlen(attribute->value) > NCCL_TEXT_MOST) {
            return wefti_error(WEFT_ERR_INVALID,
                               "<%s> %s of %zu letters: NCCL reads at most %d",
                               element->name, attribute->name,
                               strlen(attribute->value), NCCL_TEXT_MOST);
        }
    }
    weft_status status = WEFT_OK;
    for (int i = 0; i < element->child_count && status == WEFT_OK; i++) {
        status = check_element(element->children[i], elements);
    }
    return status;
}

static weft_status check_limits(const char *text, size_t text_bytes)
{
    wefti_markup *markup;
    int elements = 0;
    weft_status status =
        wefti_markup_create("export to NCCL", text, text_bytes, &markup);
    if (status != WEFT_OK) {
        return status;
    }
    status = check_element(markup->root, &elements);
    if (status == WEFT_OK && elements > NCCL_ELEMENTS_MOST) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "export to NCCL: %d elements, of which NCCL reads "
                             "at most %d; several hosts are best written one "
                             "by one",
                             elements, NCCL_ELEMENTS_MOST);
    }
    wefti_markup_destroy(markup);
    return status;
}

/* Parts of a device are GPUs below a bridge that has the device's address, and
 * the links that they share. An element <gpu> lists its own. */
static weft_status check_parts(const wefti_topo *topo)
{
    for (int i = 0; i < topo->device_count; i++) {
        const wefti_device *d = &topo->devices[i];
        if (d->kind == WEFTI_TOPO_GPU && d->pci.bus[0] &&
            topo->devices[d->parent].kind == WEFTI_TOPO_BRIDGE &&
            strcmp(topo->devices[d->parent].pci.bus, d->pci.bus) == 0) {
            return wefti_error(WEFT_ERR_INVALID,
                               "export to NCCL: gpu%d is a part of the device "
                               "%s, whose links its parts share: allowed are "
                               "whole devices, as that format has no others",
                               d->ordinal, d->pci.bus);
        }
    }
    return WEFT_OK;
}

static weft_status write_checked(const wefti_topo *topo, FILE *file)
{
    weft_status parts = check_parts(topo);
    if (parts != WEFT_OK) {
        return parts;
    }
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *memory = open_memstream(&text, &text_bytes);
    if (!memory) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "export to NCCL");
    }
    write_system(topo, memory);
    if (fclose(memory) != 0) {
        free(text);
        return wefti_error(WEFT_ERR_NO_MEMORY, "export to NCCL");
    }
    weft_status status = check_limits(text, text_bytes);
    if (status == WEFT_OK) {
        fputs(text, file);
    }
    free(text);
    return status;
}

weft_status wefti_topo_write_nccl(const wefti_topo *topo, FILE *file)
{
    weft_status status = WEFT_OK;
    if (topo->nccl) {
        wefti_markup_write(topo->nccl, file);
    } else {
        status = write_checked(topo, file);
    }
    if (status != WEFT_OK) {
        return status;
    }
    return fflush(file) == 0 && !ferror(file)
               ? WEFT_OK
               : wefti_error_system("writing NCCL's XML");
}
