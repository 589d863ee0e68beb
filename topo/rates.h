/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/rates.h - what is known of links and devices by their model, for what
 * no source says: GB/s of one direction, twice: what the hardware can do, and
 * what NCCL's own table says of it (src/graph/topo.h of NCCL 2.28).
 */
#ifndef TOPO_RATES_H
#define TOPO_RATES_H

#include "topo/graph.h"

typedef struct wefti_rate {
    double GBps, nccl_GBps;
} wefti_rate;

/* One model of GPU. */
typedef struct wefti_gpu_model {
    const char *name;
    uint16_t vendor, device; /* PCI; 0: known by name only */
    int sm;                  /* of AMD the gcn number */
    int links;               /* NVLinks, or XGMI links; 0: none */
    bool sxm;                /* its links are always connected */
    int pci_gen;
} wefti_gpu_model;

/* One model of NIC; all zeros where not known. */
typedef struct wefti_nic_model {
    uint16_t vendor, device; /* PCI */
    const char *name;
    double gbps;            /* of its fastest port */
    int pci_gen, pci_width; /* the most there is; 0: does not say anything */
} wefti_nic_model;

/* By PCI id; NULL: not known. */
const wefti_nic_model *wefti_nic_model_find(uint16_t vendor, uint16_t device);

/* The model with that PCI id, or else the one that name mentions; NULL. */
const wefti_gpu_model *wefti_gpu_model_find(uint16_t vendor, uint16_t device,
                                            const char *name);

/* One NVLink of a GPU with that compute capability (60, 90 ..). */
wefti_rate wefti_rate_nvlink(int sm);
/* Most NVLinks such a GPU has. */
int wefti_rate_nvlinks_most(int sm);
/* One XGMI link by gcn number (906, 910, 942). */
wefti_rate wefti_rate_xgmi(int gcn);
/* Most XGMI links of such a GPU that lead to others; 0 unknown. */
int wefti_rate_xgmi_most(int gcn);
/* Whether its boards join every two of their GPUs alike. */
bool wefti_rate_xgmi_even(int gcn);

wefti_rate wefti_rate_pci(int gen, int width);
/* The generation of PCIe that the data centre's GPUs of a compute capability
 * have, and AMD's of a gcn number; 0 unknown. */
int wefti_rate_pci_gen(int sm);
int wefti_rate_pci_gen_amd(int gcn);

/* Generation and lanes of which GBps is the rate; false where none fits. */
bool wefti_rate_pci_decode(double GBps, int *gen_out, int *width_out);

/* How well a link_speed text was understood. */
typedef enum wefti_speed_text {
    WEFTI_SPEED_EXACT,  /* NCCL reads the same */
    WEFTI_SPEED_LOOSE,  /* a number we understand, NCCL takes Gen 3 */
    WEFTI_SPEED_UNKNOWN /* Gen 3 by both */
} wefti_speed_text;

/*
 * wefti_rate_pci_parse - the generation that a link_speed attribute names,
 * such as "16 GT/s" or "32.0 GT/s PCIe".
 */
wefti_speed_text wefti_rate_pci_parse(const char *text, int *gen_out);

/* Text for an export that every NCCL reads as that generation. */
const char *wefti_rate_pci_text(int gen);

/* Between two NUMA nodes of that processor. */
double wefti_rate_sys(const wefti_cpu *cpu);

/* Gb/s of a NIC's one port, by PCI id; 0 unknown. */
double wefti_rate_nic(uint16_t vendor, uint16_t device);

/* Latency of one hop, us: the LL column of NCCL's time model. */
double wefti_rate_latency_us(wefti_link_type type);
#define WEFTI_RATE_NET_US 2.7

#endif
