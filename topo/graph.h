/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/graph.h - one machine, or a cluster of them, as devices and links;
 * the same struct whatever it was read from.
 *
 *     host0 - numa0 - bridge0 - gpu0 --- nvswitch0
 *                            \- card0 - nic0
 *
 * A device's parent is what it hangs on (PCIe), its links are what carries
 * bytes: one PCI link to the parent, NVLinks, links between NUMA nodes. Every
 * figure says where it comes from. Devices of one host lie together, so do
 * links; ordinals count devices of a kind over the whole graph.
 *
 * Invariants  a parent's index is below its child's; both ends of a link are
 *             devices of the same host (the network between hosts is no link:
 *             topo/paths.h reckons with it through the NICs).
 */
#ifndef TOPO_GRAPH_H
#define TOPO_GRAPH_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(NAME, text in ids: "gpu" makes gpu0) */
#define WEFTI_TOPO_KIND_LIST(X)                                                \
    X(HOST, "host")                                                            \
    X(NUMA, "numa")                                                            \
    X(BRIDGE, "bridge")                                                        \
    X(CARD, "card")                                                            \
    X(NIC, "nic")                                                              \
    X(GPU, "gpu")                                                              \
    X(NVSWITCH, "nvswitch")

typedef enum wefti_topo_kind {
#define WEFTI_TOPO_KIND_ENUM(name, text) WEFTI_TOPO_##name,
    WEFTI_TOPO_KIND_LIST(WEFTI_TOPO_KIND_ENUM)
#undef WEFTI_TOPO_KIND_ENUM
        WEFTI_TOPO_KIND_COUNT
} wefti_topo_kind;

typedef enum wefti_link_type {
    WEFTI_LINK_PORT, /* a card and its port: no limit of its own but the port */
    WEFTI_LINK_NVL,
    WEFTI_LINK_XGMI,
    WEFTI_LINK_C2C,
    WEFTI_LINK_PCI,
    WEFTI_LINK_SYS
} wefti_link_type;

/* Where a figure comes from. */
typedef enum wefti_origin {
    WEFTI_ORIGIN_TABLE, /* known of the model, or assumed */
    WEFTI_ORIGIN_READ,
    WEFTI_ORIGIN_MEASURED
} wefti_origin;

typedef enum wefti_nic_kind {
    WEFTI_NIC_INFINIBAND,
    WEFTI_NIC_ROCE,
    WEFTI_NIC_EFA,
    WEFTI_NIC_SLINGSHOT,
    WEFTI_NIC_ETHERNET,
    WEFTI_NIC_WIFI /* shown, and carries nothing between hosts */
} wefti_nic_kind;

typedef enum wefti_nic_state {
    WEFTI_NIC_ACTIVE,
    WEFTI_NIC_DOWN,
    WEFTI_NIC_UNKNOWN /* no source has read it: taken as if it worked */
} wefti_nic_state;

/* What the PCI bus says of a device; zeros where unknown. */
typedef struct wefti_pci {
    char bus[24]; /* "0000:0c:00.0"; "": not a PCI device */
    uint32_t class_code;
    uint16_t vendor, device, sub_vendor, sub_device;
    int gen;   /* 1..6; 0 unknown */
    int width; /* lanes */
    /* As the device reports, 0 unknown: what it could do in a better slot, and
     * what its link does at this moment. */
    int max_gen, max_width, now_gen, now_width;
} wefti_pci;

/* Of a NUMA node: what NCCL asks of its "cpu". */
typedef struct wefti_cpu {
    char arch[12];   /* x86_64, arm64, ppc64 */
    char vendor[20]; /* GenuineIntel, ... */
    int family, model;
    char affinity[300];   /* 32-bit hex words, highest first; "": unknown */
    char name[64];        /* "AMD EPYC 7763 64-Core Processor"; "": unknown */
    int cores;            /* of the node; 0 unknown */
    int64_t memory_bytes; /* of the node; 0 unknown */
} wefti_cpu;

typedef struct wefti_gpu {
    int sm;   /* major * 10 + minor; 0 unknown; of AMD the gcn number */
    int dev;  /* NVML's index; -1 unknown */
    int rank; /* -1 none */
    bool amd;
    bool gdr;         /* NICs may reach its memory */
    bool template_of; /* a PCI address whose GPU is not described */
    /* The NVLink domain over hosts, equal for GPUs whose switches are joined,
     * and otherwise anything; 0: none, or unknown. */
    uint64_t domain;
} wefti_gpu;

typedef struct wefti_nic {
    wefti_nic_kind kind;
    wefti_nic_state state;
    double gbps; /* Gb/s, one direction */
    wefti_origin gbps_origin;
    bool gbps_assumed;
    bool limited;    /* gbps is a limit that was set: by a shaper, by weft */
    bool driverless; /* no driver has taken it: nothing can use it */
    int port;
    int dev;
    bool gdr;
    uint64_t card_guid; /* SysImageGUID; 0 unknown */
    /* The network library's that can use it, such as "tcp,rc_mlx5"; "": none,
     * or it was not asked. */
    char transports[64];
} wefti_nic;

typedef struct wefti_device {
    wefti_topo_kind kind;
    int parent;   /* -1: a host */
    int host;     /* index of its host device */
    int ordinal;  /* the number in its id */
    int os_index; /* of a NUMA node; -1 unknown */
    char name[64];
    wefti_pci pci;
    wefti_cpu cpu;
    wefti_gpu gpu;
    wefti_nic nic;
} wefti_device;

typedef struct wefti_topo_link {
    int a, b; /* devices, a < b or whatever the source says */
    wefti_link_type type;
    int count;        /* parallel links in this one; 0 unknown */
    int down;         /* of them that do not work, not in count */
    double GBps;      /* what the hardware can do, one direction */
    double nccl_GBps; /* what NCCL's table says of it */
    double latency_us;
    wefti_origin origin; /* of GBps */
    wefti_origin latency_origin;
    bool assumed; /* no source said so */
} wefti_topo_link;

/* Something a reader must know; code is the trap's row in docs/topology.md. */
typedef struct wefti_topo_warning {
    int code;
    char device[80]; /* its label, and in a cluster the host before it */
    char text[256];
} wefti_topo_warning;

/* What NCCL's own file states, kept to write it out again (topo/markup.h). */
struct wefti_markup;

typedef struct wefti_topo {
    char source[128]; /* "live", "nccl xml FILE", "synthetic 2x(8xH100)" */
    wefti_device *devices;
    wefti_topo_link *links;
    wefti_topo_warning *warnings;
    int device_count, link_count, warning_count;
    int warnings_left_out; /* beyond what a user reads */
    int device_room, link_room, warning_room;
    int kind_counts[WEFTI_TOPO_KIND_COUNT];
    int switch_chips;   /* NVSwitches counted one by one */
    bool links_unknown; /* NVLinks are likely and no source has shown them */
    bool is_template;
    struct wefti_markup *nccl; /* owned; NULL: from another source */
    bool out_of_memory;        /* set by an add; reported by wefti_topo_check */
} wefti_topo;

/* Empty graph. Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_topo_create(wefti_topo **topo_out);
void wefti_topo_destroy(wefti_topo *topo); /* takes NULL */

/*
 * wefti_topo_add_device, _add_link - appends one; the index, or -1 with
 * out_of_memory set. Pointers to devices and links are invalid afterwards.
 * parent is -1 for a host only.
 */
int wefti_topo_add_device(wefti_topo *topo, wefti_topo_kind kind, int parent,
                          const char *name);
int wefti_topo_add_link(wefti_topo *topo, int a, int b, wefti_link_type type,
                        double GBps, wefti_origin origin);

/* One warning; the same text for the same device is kept once. Beyond a
 * thousand they are counted only. */
void wefti_topo_warn(wefti_topo *topo, int code, const char *device,
                     const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Removes what was added about a device. */
void wefti_topo_unwarn(wefti_topo *topo, int code, const char *device);

/* "gpu3" and the like, into text; a NUMA node is called by its number in the
 * system, with its host in front where there are several. */
#define WEFTI_TOPO_ID_BYTES 24
const char *wefti_topo_id(const wefti_topo *topo, int device,
                          char text[WEFTI_TOPO_ID_BYTES]);

/* The device of that kind and ordinal; -1 if there is none. */
int wefti_topo_find(const wefti_topo *topo, wefti_topo_kind kind, int ordinal);

/* The device with that PCI address on that host; -1 if there is none. */
int wefti_topo_find_bus(const wefti_topo *topo, int host, const char *bus);

/* The NUMA node it hangs on; -1 where unknown. */
int wefti_topo_numa(const wefti_topo *topo, int device);

/* The link between the two, in whatever order; -1 if there is none. */
int wefti_topo_find_link(const wefti_topo *topo, int a, int b,
                         wefti_link_type type);

/* The PCI link to each device's parent, by device, -1 none; free() it. NULL: no
 * memory. */
int *wefti_topo_uplinks(const wefti_topo *topo);

/*
 * wefti_topo_note_transport - device, as a network library names it ("eth0",
 * "mlx5_0:1"), can use that transport. A device that is no port of the graph is
 * none of its business.
 */
void wefti_topo_note_transport(wefti_topo *topo, const char *device,
                               const char *transport);

/* Whether a card or port may carry traffic between hosts. */
bool wefti_topo_nic_usable(const wefti_topo *topo, int device);

/* Of a GPU: "nvidia", "amd", "intel", "other". */
const char *wefti_topo_gpu_vendor(const wefti_device *gpu);
const char *wefti_link_type_text(wefti_link_type type);
const char *wefti_origin_text(wefti_origin origin);
const char *wefti_nic_kind_text(wefti_nic_kind kind);
const char *wefti_nic_state_text(wefti_nic_state state);

/* The invariants above. Returns OK | ERR_NO_MEMORY (an add failed). */
WEFT_NODISCARD weft_status wefti_topo_check(const wefti_topo *topo);

#endif
