/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/assemble.h - what every source does alike when it puts a graph
 * together: PCI addresses, PCI links, NVLinks as both ends report them, and the
 * last pass that completes the graph and finds its traps.
 */
#ifndef TOPO_ASSEMBLE_H
#define TOPO_ASSEMBLE_H

#include "topo/graph.h"

/* No host has more devices; a file that claims to is refused. */
#define WEFTI_HOST_DEVICES_MOST 8192

/*
 * One end's claim of NVLinks (XGMI, C2C, pcilink) to one remote device. A link
 * exists as far as both ends report it.
 */
typedef struct wefti_claim {
    int from; /* a GPU, or a bridge: for PCI, or XGMI that its GPUs share */
    int to;   /* device; -1: a switch */
    wefti_link_type type;
    int count;
    int down;
    double GBps; /* all of them together; 0: by table */
    wefti_origin origin;
    bool assumed; /* no source said so */
} wefti_claim;

typedef struct wefti_claims {
    wefti_claim *list;
    int count, room;
    int *slots, slot_count; /* claims by their ends; -1: free */
    bool one_sided_ok;      /* the source lists each pair once */
} wefti_claims;

/* False, with the graph's out_of_memory set, when memory is out. */
bool wefti_claims_add(wefti_topo *topo, wefti_claims *claims,
                      wefti_claim claim);
void wefti_claims_fini(wefti_claims *claims);

/* Canonical form: lower case, domain of at least four digits. */
void wefti_bus_normalise(const char *text, char bus[24]);
/* A switch that a hypervisor or a rack hides: all digits f. */
bool wefti_bus_is_hidden(const char *bus);

/* Adds the link to the parent by pci.gen and pci.width (0: Gen 3 x16). */
int wefti_pci_link_add(wefti_topo *topo, int device, wefti_origin origin);

/* Kind of a port by what is known of it; name may be "". */
wefti_nic_kind wefti_nic_kind_guess(const wefti_pci *pci, const char *name);

/* A NIC's rate by its PCI id and its PCI link, or 10 Gb/s; warns (17). */
void wefti_nic_rate_infer(wefti_topo *topo, int nic);

/* "gpu3 0000:0c:00.0", "nic1 mlx5_1 0000:..", for warnings. */
const char *wefti_topo_label(const wefti_topo *topo, int device, char text[64]);

/*
 * wefti_topo_finish - completes one host's or file's graph: settles claims,
 * joins two-level Broadcom switches, links NUMA nodes, corrects and reports
 * what cannot be (docs/topology.md lists the traps).
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_topo_finish(wefti_topo *topo,
                                             const wefti_claims *claims);

/* The parts of it, each in its own file. */
void wefti_claims_settle(wefti_topo *topo, const wefti_claims *claims);
void wefti_traps_find(wefti_topo *topo);
void wefti_pcie_doubt(wefti_topo *topo);

/* Whether the port above a device is a hypervisor's, whose rate is not to be
 * believed: warning 11 names the port's bus. */
bool wefti_port_doubt(wefti_topo *topo, const char *port, double GBps,
                      double child_GBps);

#endif
