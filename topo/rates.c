/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/rates.c - the tables behind topo/rates.h.
 */
#include "topo/rates.h"

#include "base/check.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NVIDIA   0x10de
#define AMD      0x1002
#define MELLANOX 0x15b3

/*
 * Names are searched in this order: longer ones before what they contain.
 *
 * Source: ids of NVIDIA from pci.ids (pci-ids.ucw.cz, read in 2026) and
 * NVIDIA's gpu-admin-tools, those of AMD from pci.ids and the names in AMD's
 * GPU driver for virtual machines (amdgv_marketing_name.h); links from the
 * vendors' data sheets: NVLink 5 of B200, B300 and their Grace kin 18 links of
 * 50 GB/s each way (1.8 TB/s both), of H100, H200 and H20 18 of 25 (900 GB/s).
 * Of Rubin (sm 107) NCCL's own notes on it: 36 links, 38 GB/s by its table.
 * PCIe generations are the data sheets' too; all of these have 16 lanes.
 */
static const wefti_gpu_model models[] = {
    {"GB300", NVIDIA, 0x31c2, 103, 18, true, 6},
    {"GB300", NVIDIA, 0x31c3, 103, 18, true, 6},
    {"GB300", NVIDIA, 0x31a1, 103, 18, true, 6},
    {"GB200", NVIDIA, 0x2941, 100, 18, true, 6},
    {"B300", NVIDIA, 0x3182, 103, 18, true, 6},
    {"B200", NVIDIA, 0x2901, 100, 18, true, 5},
    {"B200", NVIDIA, 0x2909, 100, 18, true, 5},
    {"B100", NVIDIA, 0x29bc, 100, 18, true, 5},
    {"B100", NVIDIA, 0x2920, 100, 18, true, 5},
    {"GH200", NVIDIA, 0x2342, 90, 18, true, 5},
    {"GH200", NVIDIA, 0x2343, 90, 18, true, 5},
    {"GH200", NVIDIA, 0x2345, 90, 18, true, 5},
    {"GH200", NVIDIA, 0x2348, 90, 18, true, 5},
    {"H200 NVL", NVIDIA, 0x233b, 90, 18, false, 5},
    {"H200", NVIDIA, 0x2335, 90, 18, true, 5},
    {"H100 PCIe", NVIDIA, 0x2331, 90, 12, false, 5},
    {"H100 NVL", NVIDIA, 0x2321, 90, 12, false, 5},
    {"H100 CNX", NVIDIA, 0x2313, 90, 12, false, 5},
    {"H100", NVIDIA, 0x2330, 90, 18, true, 5},
    {"H100", NVIDIA, 0x2336, 90, 18, true, 5},
    {"H100", NVIDIA, 0x2337, 90, 18, true, 5},
    {"H100", NVIDIA, 0x2338, 90, 18, true, 5},
    {"H100", NVIDIA, 0x2339, 90, 18, true, 5},
    {"H100", NVIDIA, 0x233d, 90, 18, true, 5},
    {"H800 PCIe", NVIDIA, 0x2322, 90, 8, false, 5},
    {"H800 NVL", NVIDIA, 0x233a, 90, 8, false, 5},
    {"H800", NVIDIA, 0x2324, 90, 8, true, 5},
    {"H20", NVIDIA, 0x2329, 90, 18, true, 5},
    {"H20", NVIDIA, 0x232c, 90, 18, true, 5},
    {"H20", NVIDIA, 0x2328, 90, 18, true, 5},
    {"H20", NVIDIA, 0x230c, 90, 18, true, 5},
    {"H20", NVIDIA, 0x230e, 90, 18, true, 5},
    {"A100-PCIE", NVIDIA, 0x20f1, 80, 12, false, 4},
    {"A100 80GB PCIe", NVIDIA, 0x20b5, 80, 12, false, 4},
    {"A100-PG509", NVIDIA, 0x20b1, 80, 12, false, 4},
    {"A100-SXM4-40GB", NVIDIA, 0x20b0, 80, 12, true, 4},
    {"A100", NVIDIA, 0x20b2, 80, 12, true, 4},
    {"A100", NVIDIA, 0x20b3, 80, 12, true, 4},
    {"A800 80GB PCIe", NVIDIA, 0x20f5, 80, 8, false, 4},
    {"A800 40GB", NVIDIA, 0x20f6, 80, 8, false, 4},
    {"A800", NVIDIA, 0x20f3, 80, 8, true, 4},
    {"A800", NVIDIA, 0x20bd, 80, 8, true, 4},
    {"A30", NVIDIA, 0x20b7, 80, 4, false, 4},
    {"V100-PCIE-16GB", NVIDIA, 0x1db4, 70, 0, false, 3},
    {"V100-PCIE", NVIDIA, 0x1db6, 70, 0, false, 3},
    {"V100S-PCIE", NVIDIA, 0x1df6, 70, 0, false, 3},
    {"V100-SXM2-16GB", NVIDIA, 0x1db1, 70, 6, true, 3},
    {"V100-SXM2-32GB", NVIDIA, 0x1db5, 70, 6, true, 3},
    {"V100-SXM3", NVIDIA, 0x1db8, 70, 6, true, 3},
    {"V100-DGXS", NVIDIA, 0x1db2, 70, 4, true, 3},
    {"V100-DGXS", NVIDIA, 0x1db7, 70, 4, true, 3},
    {"V100-FHHL", NVIDIA, 0x1db3, 70, 0, false, 3},
    {"V100", NVIDIA, 0x1df5, 70, 6, true, 3},
    {"P100-PCIE-12GB", NVIDIA, 0x15f7, 60, 0, false, 3},
    {"P100-PCIE", NVIDIA, 0x15f8, 60, 0, false, 3},
    {"P100", NVIDIA, 0x15f9, 60, 4, true, 3},
    {"L40S", NVIDIA, 0x26b9, 89, 0, false, 4},
    {"L40", NVIDIA, 0x26b5, 89, 0, false, 4},
    {"L4", NVIDIA, 0x27b8, 89, 0, false, 4},
    {"A40", NVIDIA, 0x2235, 86, 4, false, 4},
    {"A10G", NVIDIA, 0x2237, 86, 0, false, 4},
    {"A10", NVIDIA, 0x2236, 86, 0, false, 4},
    {"A6000", NVIDIA, 0x2230, 86, 4, false, 4},
    {"T4", NVIDIA, 0x1eb8, 75, 0, false, 3},
    {"M60", NVIDIA, 0x13f2, 52, 0, false, 3},
    {"M40", NVIDIA, 0x17fd, 52, 0, false, 3},
    {"K80", NVIDIA, 0x102d, 37, 0, false, 3},
    {"MI355X", AMD, 0x75a3, 950, 7, true, 5},
    {"MI355X", AMD, 0x75b3, 950, 7, true, 5},
    {"MI350X", AMD, 0x75a0, 950, 7, true, 5},
    {"MI350X", AMD, 0x75b0, 950, 7, true, 5},
    {"MI325X", AMD, 0x74a5, 942, 7, true, 5},
    {"MI308X", AMD, 0x74a2, 942, 7, true, 5},
    {"MI308X", AMD, 0x74a8, 942, 7, true, 5},
    {"MI308X", AMD, 0x74b6, 942, 7, true, 5},
    {"MI300X", AMD, 0x74a1, 942, 7, true, 5},
    {"MI300X", AMD, 0x74a9, 942, 7, true, 5},
    {"MI300X", AMD, 0x74b5, 942, 7, true, 5},
    {"MI300A", AMD, 0x74a0, 942, 6, true, 5},
    {"MI250X", AMD, 0x7408, 910, 8, true, 4},
    {"MI250", AMD, 0x740c, 910, 8, true, 4},
    {"MI210", AMD, 0x740f, 910, 3, false, 4},
    {"MI200", AMD, 0, 910, 8, true, 4},
    {"MI100", AMD, 0x738c, 908, 3, false, 4},
    {"MI100", AMD, 0x738e, 908, 3, false, 4},
    {"MI60", AMD, 0x66a1, 906, 2, false, 4},
    {"MI50", AMD, 0x66a0, 906, 2, false, 4},
};

const wefti_gpu_model *wefti_gpu_model_find(uint16_t vendor, uint16_t device,
                                            const char *name)
{
    for (size_t i = 0; i < WEFTI_COUNT_OF(models) && device; i++) {
        if (models[i].vendor == vendor && models[i].device == device) {
            return &models[i];
        }
    }
    for (size_t i = 0; i < WEFTI_COUNT_OF(models) && name && name[0]; i++) {
        const char *at = strstr(name, models[i].name);
        if (at && (at == name || !isalnum((unsigned char)at[-1]))) {
            return &models[i];
        }
    }
    return NULL;
}

wefti_rate wefti_rate_nvlink(int sm)
{
    if (sm == 107) {
        return (wefti_rate){50, 38};
    }
    if (sm >= 100) {
        return (wefti_rate){50, 40.1};
    }
    if (sm >= 90) {
        return (wefti_rate){25, 20.6};
    }
    if (sm == 86 || sm == 89) {
        return (wefti_rate){14.0625, 12};
    }
    if (sm >= 80) {
        return (wefti_rate){25, 20};
    }
    if (sm >= 70) {
        return (wefti_rate){25, 20};
    }
    if (sm >= 60) {
        return (wefti_rate){20, 18};
    }
    return (wefti_rate){25, 20}; /* unknown: what most have */
}

int wefti_rate_nvlinks_most(int sm)
{
    if (sm == 107) {
        return 36;
    }
    if (sm >= 90) {
        return 18;
    }
    if (sm == 86) {
        return 4;
    }
    return sm >= 80 ? 12 : sm >= 70 ? 6 : sm >= 60 ? 4 : 18;
}

/* Hardware figures and RCCL's, by generation; neither was measured by us. Of
 * gfx950 RCCL's is not known here: that of gfx94x. */
wefti_rate wefti_rate_xgmi(int gcn)
{
    if (gcn >= 950) {
        return (wefti_rate){76.8, 48};
    }
    if (gcn >= 940) {
        return (wefti_rate){64, 48};
    }
    if (gcn >= 910) {
        return (wefti_rate){50, 36};
    }
    return (wefti_rate){46, 24};
}

/*
 * Source: AMD's CDNA 2 white paper (a GPU of an MI250X: 8 links, 4 of them to
 * its twin in the package), CDNA 3 white paper (MI300X: 7 links for others of a
 * board of 8, as MI350 has; MI300A: 6 for a board of 4), data sheets of MI100
 * (3) and MI50, MI60 (2). MI300A and MI300X have one gcn number; the table of
 * models distinguishes them.
 */
int wefti_rate_xgmi_most(int gcn)
{
    return gcn >= 940   ? 7
           : gcn == 910 ? 8
           : gcn == 908 ? 3
           : gcn == 906 ? 2
                        : 0;
}

bool wefti_rate_xgmi_even(int gcn)
{
    return gcn >= 940 || gcn == 908;
}

/* ---- PCIe -----------------------------------------------------------------
 */

#define GEN_MOST 6
/* GB/s a lane, after 8b/10b (Gen 1, 2) or 128b/130b coding. */
static const double lane_GBps[GEN_MOST + 1] = {
    0, 0.25, 0.5, 128.0 / 130, 256.0 / 130, 512.0 / 130, 1024.0 / 130};
static const double nccl_x16_GBps[GEN_MOST + 1] = {0, 3, 6, 12, 24, 48, 96};

wefti_rate wefti_rate_pci(int gen, int width)
{
    gen = gen < 1 ? 3 : gen > GEN_MOST ? GEN_MOST : gen;
    width = width < 1 ? 16 : width;
    return (wefti_rate){lane_GBps[gen] * width,
                        nccl_x16_GBps[gen] * width / 16};
}

int wefti_rate_pci_gen(int sm)
{
    static const struct {
        int sm, gen;
    } since[] = {{90, 5}, {80, 4}, {35, 3}};
    for (size_t i = 0; i < WEFTI_COUNT_OF(since); i++) {
        if (sm >= since[i].sm) {
            return since[i].gen;
        }
    }
    return 0;
}

int wefti_rate_pci_gen_amd(int gcn)
{
    return gcn >= 940 ? 5 : gcn >= 906 ? 4 : 0;
}

bool wefti_rate_pci_decode(double GBps, int *gen_out, int *width_out)
{
    static const int widths[] = {16, 8, 4, 2, 1, 32, 12};
    for (size_t w = 0; w < WEFTI_COUNT_OF(widths); w++) {
        for (int gen = 1; gen <= GEN_MOST; gen++) {
            double rate = lane_GBps[gen] * widths[w];
            if (fabs(GBps - rate) <= 0.005 * rate) {
                *gen_out = gen;
                *width_out = widths[w];
                return true;
            }
        }
    }
    return false;
}

wefti_speed_text wefti_rate_pci_parse(const char *text, int *gen_out)
{
    static const struct {
        const char *text;
        int gen;
    } known[] = {{"2.5 GT/s", 1},       {"5 GT/s", 2},
                 {"8 GT/s", 3},         {"16 GT/s", 4},
                 {"32 GT/s", 5},        {"5.0 GT/s PCIe", 2},
                 {"8.0 GT/s PCIe", 3},  {"16.0 GT/s PCIe", 4},
                 {"32.0 GT/s PCIe", 5}, {"64.0 GT/s PCIe", 6}};
    static const double rates[GEN_MOST + 1] = {0, 2.5, 5, 8, 16, 32, 64};
    *gen_out = 3;
    if (!text) {
        return WEFTI_SPEED_UNKNOWN;
    }
    for (size_t i = 0; i < WEFTI_COUNT_OF(known); i++) {
        if (strncmp(text, known[i].text, strlen(known[i].text)) == 0) {
            *gen_out = known[i].gen;
            return WEFTI_SPEED_EXACT;
        }
    }
    double number = strtod(text, NULL);
    for (int gen = 1; gen <= GEN_MOST; gen++) {
        if (fabs(number - rates[gen]) < 0.05) {
            *gen_out = gen;
            return WEFTI_SPEED_LOOSE;
        }
    }
    return WEFTI_SPEED_UNKNOWN;
}

const char *wefti_rate_pci_text(int gen)
{
    static const char *const texts[GEN_MOST + 1] = {
        "8.0 GT/s PCIe",  "2.5 GT/s PCIe",  "5.0 GT/s PCIe", "8.0 GT/s PCIe",
        "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"};
    return texts[gen < 0 || gen > GEN_MOST ? 0 : gen];
}

/* ---- the rest -------------------------------------------------------------
 */

double wefti_rate_sys(const wefti_cpu *cpu)
{
    if (strncmp(cpu->arch, "ppc64", 5) == 0) {
        return 32;
    }
    if (strncmp(cpu->arch, "arm64", 5) == 0 ||
        strncmp(cpu->arch, "aarch64", 7) == 0) {
        return 6;
    }
    if (strcmp(cpu->vendor, "AuthenticAMD") == 0) {
        return 16;
    }
    if (strcmp(cpu->vendor, "GenuineIntel") == 0) {
        static const struct {
            int model;
            double GBps;
        } steps[] = {{0xcf, 40}, {0x8f, 22}, {0x55, 10}};
        for (size_t i = 0; i < WEFTI_COUNT_OF(steps); i++) {
            if (cpu->family == 6 && cpu->model >= steps[i].model) {
                return steps[i].GBps;
            }
        }
        return 6;
    }
    if (strcmp(cpu->vendor, "  Shanghai  ") == 0 ||
        strcmp(cpu->vendor, "CentaurHauls") == 0) {
        return cpu->family == 7 ? 9 : 6;
    }
    return 10;
}

/*
 * What a card's fastest port does, and the most its PCIe edge does: smaller
 * versions of a model may have fewer lanes. Of EFA the guest sees no PCIe link
 * that says anything, nor of parts of a chipset.
 *
 * Source: pci.ids of 2023 for the ids; for rates and PCIe the makers' user
 * manuals and product briefs (NVIDIA ConnectX-3 to ConnectX-8 and BlueField,
 * Intel 82599 to E810 and Omni-Path 100, Broadcom P1, P2 and Thor 2, HPE
 * Slingshot). EFA by instance: efa0 p4d, efa1 p5, efa2 p5en, efa3 later ones.
 */
static const wefti_nic_model nic_models[] = {
    {MELLANOX, 0x1003, "ConnectX-3", 56, 3, 8},
    {MELLANOX, 0x1007, "ConnectX-3 Pro", 56, 3, 8},
    {MELLANOX, 0x1011, "Connect-IB", 56, 3, 16},
    {MELLANOX, 0x1013, "ConnectX-4", 100, 3, 16},
    {MELLANOX, 0x1014, "ConnectX-4 function", 100, 3, 16},
    {MELLANOX, 0x1015, "ConnectX-4 Lx", 25, 3, 8},
    {MELLANOX, 0x1016, "ConnectX-4 Lx function", 25, 3, 8},
    {MELLANOX, 0x1017, "ConnectX-5", 100, 3, 16},
    {MELLANOX, 0x1018, "ConnectX-5 function", 100, 3, 16},
    {MELLANOX, 0x1019, "ConnectX-5 Ex", 100, 4, 16},
    {MELLANOX, 0x101a, "ConnectX-5 Ex function", 100, 4, 16},
    {MELLANOX, 0x101b, "ConnectX-6", 200, 4, 16},
    {MELLANOX, 0x101c, "ConnectX-6 function", 200, 4, 16},
    {MELLANOX, 0x101d, "ConnectX-6 Dx", 200, 4, 16},
    {MELLANOX, 0x101e, "ConnectX function", 200, 4, 16},
    {MELLANOX, 0x101f, "ConnectX-6 Lx", 50, 4, 8},
    {MELLANOX, 0x1021, "ConnectX-7", 400, 5, 16},
    {MELLANOX, 0x1023, "ConnectX-8", 800, 6, 16},
    {MELLANOX, 0x1025, "ConnectX-9", 800, 6, 16},
    {MELLANOX, 0xa2d2, "BlueField", 100, 4, 16},
    {MELLANOX, 0xa2d3, "BlueField function", 100, 4, 16},
    {MELLANOX, 0xa2d6, "BlueField-2", 100, 4, 16},
    {MELLANOX, 0xa2dc, "BlueField-3", 400, 5, 16},
    {0x1d0f, 0xefa0, "EFA", 100, 0, 0},
    {0x1d0f, 0xefa1, "EFA", 100, 0, 0},
    {0x1d0f, 0xefa2, "EFA", 200, 0, 0},
    {0x1d0f, 0xefa3, "EFA", 200, 0, 0},
    {0x17db, 0x0501, "Slingshot 200", 200, 4, 16},
    {0x8086, 0x24f0, "Omni-Path 100", 100, 3, 16},
    {0x8086, 0x1592, "E810-C", 100, 4, 16},
    {0x8086, 0x1593, "E810-C", 100, 4, 16},
    {0x14e4, 0x1750, "BCM57508", 200, 4, 16},
    {0x14e4, 0x1760, "BCM57608", 400, 5, 16},
    {0x14e4, 0x1657, "BCM5719", 1, 2, 4},
    {0x14e4, 0x165f, "BCM5720", 1, 2, 1},
    {0x8086, 0x1521, "I350", 1, 2, 4},
    {0x8086, 0x1533, "I210", 1, 1, 1},
    {0x8086, 0x1563, "X550", 10, 3, 4},
    {0x8086, 0x10fb, "82599", 10, 2, 8},
    {0x8086, 0x1528, "X540", 10, 2, 8},
    {0x8086, 0x1572, "X710", 10, 3, 8},
    {0x8086, 0x1583, "XL710", 40, 3, 8},
    {0x8086, 0x158b, "XXV710", 25, 3, 8},
    {0x8086, 0x37d0, "X722", 10, 0, 0},
    {0x8086, 0x37d2, "X722", 10, 0, 0},
};

const wefti_nic_model *wefti_nic_model_find(uint16_t vendor, uint16_t device)
{
    for (size_t i = 0; i < WEFTI_COUNT_OF(nic_models); i++) {
        if (nic_models[i].vendor == vendor && nic_models[i].device == device) {
            return &nic_models[i];
        }
    }
    return NULL;
}

double wefti_rate_nic(uint16_t vendor, uint16_t device)
{
    const wefti_nic_model *model = wefti_nic_model_find(vendor, device);
    return model ? model->gbps : 0;
}

double wefti_rate_latency_us(wefti_link_type type)
{
    switch (type) {
    case WEFTI_LINK_NVL:
    case WEFTI_LINK_XGMI:
    case WEFTI_LINK_C2C:
        return 0.6;
    case WEFTI_LINK_PCI:
    case WEFTI_LINK_SYS:
        return 1.0;
    case WEFTI_LINK_PORT:
        break;
    }
    return 0;
}
