/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/nccl_import.h - what the three files that read NCCL's XML share:
 * source_nccl.c walks the tree, nccl_device.c makes devices of its leaves,
 * nccl_link.c then collects the links between GPUs.
 */
#ifndef TOPO_NCCL_IMPORT_H
#define TOPO_NCCL_IMPORT_H

#include "topo/assemble.h"
#include "topo/markup.h"
#include "topo/rates.h"

/* One host's reading. */
typedef struct wefti_nccl_import {
    wefti_topo *topo;
    const char *path;
    const wefti_gpu_model *model; /* of a template's GPUs; NULL: unknown */
    wefti_claims claims;
    int *gpus_by_bus; /* of the host, sorted, while links are collected */
    int gpu_count;
    int described; /* gpu and net elements */
    int template_gpus, template_nics;
    int bare_leaves; /* pci elements of unknown kind */
    int no_class, no_link, no_arch;
    int hidden_links; /* of the GPU that is read */
    bool too_many;    /* links */
} wefti_nccl_import;

/*
 * wefti_nccl_int - a whole number of at least 0 (-1 too where least says so),
 * which the file says of that device; what else stands there gets a warning,
 * and the fallback is taken.
 */
int wefti_nccl_int(wefti_nccl_import *in, int device,
                   const wefti_element *element, const char *name, int least,
                   int fallback);

void wefti_nccl_read_pci(const wefti_element *element, wefti_pci *pci);

/* The link above a pci element, with what had to be assumed of it. */
void wefti_nccl_link_pci(wefti_nccl_import *in, const wefti_element *element,
                         int device);

/*
 * wefti_nccl_add_gpu - element NULL: a template's. own_link: the PCI link is
 * this GPU's alone. Returns the device or -1.
 */
int wefti_nccl_add_gpu(wefti_nccl_import *in, const wefti_element *pci_element,
                       const wefti_element *element, int parent, bool own_link);

/* Whether GPUs of that model always lead to NVSwitches. NULL: no model. */
bool wefti_nccl_is_switched(const wefti_gpu_model *model);

/* A GPU of the stated model that lists no links: they go to one switch, where
 * such GPUs always have one; how others are joined does not follow from the
 * model. */
void wefti_nccl_claim_model(wefti_nccl_import *in, int gpu);

/*
 * wefti_nccl_complete_links - where no GPU of the host lists a link: those of
 * the stated model, or a warning that they are unknown where they are likely.
 */
void wefti_nccl_complete_links(wefti_nccl_import *in);

/* A card with its ports; nic NULL: a template's. */
void wefti_nccl_add_nic(wefti_nccl_import *in, const wefti_element *pci_element,
                        const wefti_element *nic, int parent);

/* Whether the element is a <cpu> of that host_hash ("": none given). */
bool wefti_nccl_is_of_host(const wefti_element *cpu, const char *host);

/* Claims of all GPUs of a host, and how many switches they name. */
void wefti_nccl_claim_links(wefti_nccl_import *in, const wefti_element *system,
                            const char *host);

#endif
