/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/hwloc_file.h - hwloc's XML (1.x and 2.x) as a list of objects and
 * matrices, for the files that make a graph of them: source_hwloc.c walks,
 * hwloc_gpu.c finds GPUs, hwloc_nic.c makes ports of network devices,
 * hwloc_nvlink.c and hwloc_xgmi.c make links.
 *
 * Read here and not by hwloc itself: files come from strangers, and hwloc 2.9
 * trusts them (an object without its nodeset, and it follows a null pointer).
 * This machine's own topology comes the same way, through hwloc's export.
 */
#ifndef TOPO_HWLOC_FILE_H
#define TOPO_HWLOC_FILE_H

#include "topo/assemble.h"
#include "topo/markup.h"

typedef enum wefti_hwloc_type {
    WEFTI_HWLOC_OTHER, /* caches, cores, groups */
    WEFTI_HWLOC_MACHINE,
    WEFTI_HWLOC_PACKAGE,
    WEFTI_HWLOC_NUMANODE,
    WEFTI_HWLOC_BRIDGE,
    WEFTI_HWLOC_PCIDEV,
    WEFTI_HWLOC_OSDEV,
    WEFTI_HWLOC_MISC
} wefti_hwloc_type;

/* hwloc's numbers for what an OS device is. */
#define WEFTI_OSDEV_NETWORK     2
#define WEFTI_OSDEV_OPENFABRICS 3

#define WEFTI_CPUSET_WORDS 64

/* CPUs by bit, lowest word first. */
typedef struct wefti_cpuset {
    uint32_t words[WEFTI_CPUSET_WORDS];
} wefti_cpuset;

typedef struct wefti_hwloc_object {
    wefti_hwloc_type type;
    const wefti_element *element;
    struct wefti_hwloc_object *parent;
    int device; /* of the graph, made of it; -1 none */
    /* Of a GPU's PCI device its first function, of what names a GPU that PCI
     * device; NULL: it is neither. */
    struct wefti_hwloc_object *card;
} wefti_hwloc_object;

/* A GPU: all of a PCI device, or one of its parts. */
typedef struct wefti_hwloc_part {
    wefti_hwloc_object *card;
    wefti_hwloc_object *os; /* rsmiN; NULL: no such name */
} wefti_hwloc_part;

/* MB/s, or hops, between objects; nan-free. */
typedef struct wefti_hwloc_matrix {
    int count;
    wefti_hwloc_object **objects; /* NULL where the file has none */
    double *values;               /* [count][count] */
} wefti_hwloc_matrix;

typedef struct wefti_hwloc_import {
    wefti_topo *topo;
    const char *path;    /* for messages */
    const char *version; /* the writer's hwlocVersion; "" unknown */
    int host;
    wefti_claims claims;
    const wefti_markup *markup;
    wefti_hwloc_object *objects; /* in the file's order */
    int object_count;
    wefti_hwloc_part *parts; /* of a card one after the other, mostly */
    int part_count, part_room;
} wefti_hwloc_import;

/* Lists the objects of in->markup. Returns OK | ERR_INVALID | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_hwloc_list(wefti_hwloc_import *in);
void wefti_hwloc_fini(wefti_hwloc_import *in);

/* An attribute of the object; "" where absent. */
const char *wefti_hwloc_text(const wefti_hwloc_object *object,
                             const char *name);
/* Its info of that name; "" where absent. */
const char *wefti_hwloc_info(const wefti_hwloc_object *object,
                             const char *name);

/* The OS device number `index` below a PCI device; NULL after the last. */
wefti_hwloc_object *wefti_hwloc_os_device(const wefti_hwloc_import *in,
                                          const wefti_hwloc_object *pci,
                                          int index);

/* The nearest object above that has CPUs. */
wefti_hwloc_object *wefti_hwloc_place(wefti_hwloc_object *object);
void wefti_hwloc_cpuset(const wefti_hwloc_object *object, wefti_cpuset *set);
bool wefti_cpuset_intersects(const wefti_cpuset *a, const wefti_cpuset *b);

bool wefti_hwloc_is_pci_bridge(const wefti_hwloc_object *object);
/* GB/s of its PCI link now; 0 unknown. */
double wefti_hwloc_link_speed(const wefti_hwloc_object *object);
/* Address and ids, without the link. */
void wefti_hwloc_read_ids(const wefti_hwloc_object *object, wefti_pci *out);

/* The matrix of that name; count 0 where there is none that can be read. */
WEFT_NODISCARD weft_status wefti_hwloc_matrix_read(const wefti_hwloc_import *in,
                                                   const char *name,
                                                   wefti_hwloc_matrix *out);
void wefti_hwloc_matrix_fini(wefti_hwloc_matrix *matrix);

/* Ports of a PCI device of class 02xx, below parent. */
void wefti_hwloc_add_nic(wefti_hwloc_import *in, wefti_hwloc_object *pci,
                         int parent);

/* Sets card of everything that is a GPU or names one; fills parts. */
void wefti_hwloc_find_gpus(wefti_hwloc_import *in);
/* The GPU of a card, or its parts below a bridge. */
void wefti_hwloc_add_gpu(wefti_hwloc_import *in, wefti_hwloc_object *pci,
                         int parent);
/* What names a GPU that no PCI device is known of, after all others: whether it
 * is one more; a warning states either. */
bool wefti_hwloc_is_lost_gpu(wefti_hwloc_import *in, wefti_hwloc_object *os);
void wefti_hwloc_add_lost_gpu(wefti_hwloc_import *in, wefti_hwloc_object *os,
                              int parent);

/* Fills what is known of a PCI device, its link included; adds that link. */
void wefti_hwloc_read_pci(wefti_hwloc_import *in, const wefti_hwloc_object *pci,
                          wefti_pci *out);
void wefti_hwloc_link_pci(wefti_hwloc_import *in, const wefti_hwloc_object *pci,
                          int device);

/* Claims from XGMIBandwidth, held against what the GPUs can have. */
WEFT_NODISCARD weft_status
wefti_hwloc_claim_xgmi(wefti_hwloc_import *in, const wefti_hwloc_matrix *xgmi,
                       const wefti_hwloc_matrix *hops);

/* Claims from NVLinkBandwidth and XGMIBandwidth; hwloc's known faults are
 * corrected, with a warning. */
WEFT_NODISCARD weft_status wefti_hwloc_claim_links(wefti_hwloc_import *in);

/* The graph of one XML text, not yet finished (assemble.h). */
WEFT_NODISCARD weft_status wefti_hwloc_import_text(const char *path,
                                                   const char *text,
                                                   size_t text_bytes,
                                                   wefti_topo *topo,
                                                   wefti_claims *claims);

#endif
