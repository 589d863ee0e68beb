/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/topo/fake_nvml.c - a library that answers like libnvidia-ml does on
 * machines that are not at hand; built several times, as MACHINE says:
 *
 *   MACHINE_BOX      eight H100 and four NVSwitches
 *   MACHINE_DEAD     the same, GPU 5 with two links down, GPU 6 with a link to
 *                    itself
 *   MACHINE_GUEST    the same as a guest sees it: switches have no address
 *   MACHINE_BROKEN   nvmlInit works, everything else is refused
 *   MACHINE_OLD      two V100 by a driver that lacks half of the symbols; pairs
 *   MACHINE_DRIVER   nvmlInit fails, as when the driver does not match
 *   MACHINE_MUTE     the box by a driver that refuses what is asked of links
 *   MACHINE_UNNAMED  the box without nvmlDeviceGetCudaComputeCapability and
 *                    nvmlDeviceGetNvLinkRemotePciInfo_v2
 *   MACHINE_SLOW     the box, GPU 2 with links at half their rate
 *   MACHINE_ODD      the box, GPU 3 with its link 7 at half its rate, GPU 4
 *                    with two links that carry nothing between GPUs, GPU 5
 *                    with two links to its processor, one of them down
 *   MACHINE_TRAY     four GB200 of a rack, whose driver knows the fabric
 *   MACHINE_TRAY_OLD the same by the first form of that call
 *   MACHINE_TRAY_TWO a tray of the same rack, and of another clique
 *   MACHINE_TRAY_BAD the same, GPU 1 not yet registered with the fabric
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MACHINE_BOX      1
#define MACHINE_DEAD     2
#define MACHINE_GUEST    3
#define MACHINE_BROKEN   4
#define MACHINE_OLD      5
#define MACHINE_DRIVER   6
#define MACHINE_MUTE     7
#define MACHINE_UNNAMED  8
#define MACHINE_SLOW     9
#define MACHINE_ODD      10
#define MACHINE_TRAY     11
#define MACHINE_TRAY_OLD 12
#define MACHINE_TRAY_TWO 13
#define MACHINE_TRAY_BAD 14
#define IS_TRAY          (MACHINE >= MACHINE_TRAY)

#if MACHINE == MACHINE_OLD
enum { GPUS = 2, LINKS = 6, MAJOR = 7, MINOR = 0 };
#elif IS_TRAY
enum { GPUS = 4, LINKS = 18, MAJOR = 10, MINOR = 0 };
#else
enum { GPUS = 8, LINKS = 18, MAJOR = 9, MINOR = 0 };
#endif
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_DRIVER = 9, UNKNOWN = 999 };

typedef struct pci_info {
    char bus_legacy[16];
    unsigned domain, bus, device, ids, subsystem_ids;
    char bus_id[32];
} pci_info;

typedef struct field_value {
    unsigned field, scope;
    long long time_us, latency_us;
    int type, status;
    union {
        double real;
        unsigned u32;
        unsigned long long u64;
    } value;
} field_value;

static int handles[GPUS];

static int number_of(void *gpu)
{
    return (int)((int *)gpu - handles);
}

int nvmlInit_v2(void);
int nvmlInit(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu);
int nvmlDeviceGetPciInfo_v3(void *gpu, pci_info *out);
int nvmlDeviceGetName(void *gpu, char *name, unsigned bytes);
int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor);
int nvmlDeviceGetCurrPcieLinkGeneration(void *gpu, unsigned *out);
int nvmlDeviceGetMaxPcieLinkGeneration(void *gpu, unsigned *out);
int nvmlDeviceGetCurrPcieLinkWidth(void *gpu, unsigned *out);
int nvmlDeviceGetMaxPcieLinkWidth(void *gpu, unsigned *out);
int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, unsigned *out);
int nvmlDeviceGetNvLinkCapability(void *gpu, unsigned link, unsigned which,
                                  unsigned *out);
int nvmlDeviceGetNvLinkRemoteDeviceType(void *gpu, unsigned link,
                                        unsigned *out);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *gpu, unsigned link,
                                        pci_info *out);
int nvmlDeviceGetFieldValues(void *gpu, int count, field_value *values);

static int answer(void)
{
    return MACHINE == MACHINE_BROKEN ? UNKNOWN : OK;
}

#if MACHINE == MACHINE_OLD
int nvmlInit(void)
{
    return OK;
}
#else
int nvmlInit_v2(void)
{
    return MACHINE == MACHINE_DRIVER ? NO_DRIVER : OK;
}
#endif

int nvmlShutdown(void)
{
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = GPUS;
    return MACHINE == MACHINE_BROKEN ? OK : answer();
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu)
{
    if (index >= GPUS) {
        return INVALID;
    }
    *gpu = &handles[index];
    return OK;
}

static void put_bus(pci_info *out, unsigned bus, unsigned ids)
{
    memset(out, 0, sizeof(*out));
    out->bus = bus;
    out->ids = ids;
    snprintf(out->bus_id, sizeof(out->bus_id), "00000000:%02X:00.0", bus);
}

int nvmlDeviceGetPciInfo_v3(void *gpu, pci_info *out)
{
    put_bus(out, (unsigned)number_of(gpu) + 0x10, 0x233010de);
    return answer();
}

int nvmlDeviceGetName(void *gpu, char *name, unsigned bytes)
{
    (void)gpu;
    snprintf(name, bytes, "%s",
             MACHINE == MACHINE_OLD ? "Tesla V100-SXM2-16GB"
             : IS_TRAY              ? "NVIDIA GB200"
                                    : "NVIDIA H100 80GB HBM3");
    return answer();
}

#if MACHINE != MACHINE_OLD && MACHINE != MACHINE_UNNAMED
int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor)
{
    (void)gpu;
    *major = MAJOR;
    *minor = MINOR;
    return answer();
}
#endif

#if MACHINE != MACHINE_OLD
int nvmlDeviceGetMaxPcieLinkGeneration(void *gpu, unsigned *out)
{
    (void)gpu;
    *out = 5;
    return answer();
}

int nvmlDeviceGetMaxPcieLinkWidth(void *gpu, unsigned *out)
{
    (void)gpu;
    *out = 16;
    return answer();
}

static int is_slow(int gpu, unsigned link)
{
    return (MACHINE == MACHINE_SLOW && gpu == 2) ||
           (MACHINE == MACHINE_ODD && gpu == 3 && link == 7);
}

static int has_c2c(void *gpu)
{
    return MACHINE == MACHINE_ODD && number_of(gpu) == 5;
}

int nvmlDeviceGetFieldValues(void *gpu, int count, field_value *values)
{
    if (MACHINE == MACHINE_MUTE) {
        return NOT_SUPPORTED;
    }
    for (int i = 0; i < count; i++) {
        field_value *f = &values[i];
        f->type = 1;
        f->status = answer();
        switch (f->field) {
        case 91:
            f->value.u32 = LINKS;
            break;
        case 164:
            f->value.u32 = is_slow(number_of(gpu), f->scope) ? 13281 : 26562;
            break;
        case 165:
            f->value.u32 = !(MACHINE == MACHINE_DEAD && number_of(gpu) == 5 &&
                             f->scope < 2);
            break;
        case 170:
            f->value.u32 = has_c2c(gpu) ? 2 : 0;
            break;
        case 171:
            f->value.u32 = f->scope != 1;
            break;
        case 172:
            f->value.u32 = 44712;
            break;
        default:
            f->status = NOT_SUPPORTED;
        }
    }
    return answer();
}
#endif

int nvmlDeviceGetCurrPcieLinkGeneration(void *gpu, unsigned *out)
{
    (void)gpu;
    *out = 1;
    return answer();
}

int nvmlDeviceGetCurrPcieLinkWidth(void *gpu, unsigned *out)
{
    (void)gpu;
    *out = 16;
    return answer();
}

int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, unsigned *out)
{
    (void)gpu;
    *out = 1;
    if (MACHINE == MACHINE_MUTE || MACHINE == MACHINE_UNNAMED) {
        return NOT_SUPPORTED; /* as on Hopper, where a field states it */
    }
    return link < LINKS ? answer() : INVALID;
}

#if MACHINE != MACHINE_OLD
int nvmlDeviceGetNvLinkCapability(void *gpu, unsigned link, unsigned which,
                                  unsigned *out)
{
    *out = which != 0 ||
           !(MACHINE == MACHINE_ODD && number_of(gpu) == 4 && link < 2);
    return answer();
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *gpu, unsigned link, unsigned *out)
{
    *out = MACHINE == MACHINE_DEAD && number_of(gpu) == 6 && link == 0 ? 0 : 2;
    return answer();
}
#endif

#if MACHINE != MACHINE_UNNAMED
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *gpu, unsigned link, pci_info *out)
{
    if (MACHINE == MACHINE_GUEST || MACHINE == MACHINE_BROKEN || IS_TRAY) {
        return NOT_SUPPORTED;
    }
    if (MACHINE == MACHINE_OLD) {
        put_bus(out, number_of(gpu) == 0 ? 0x11 : 0x10, 0x1db110de);
    } else if (MACHINE == MACHINE_DEAD && number_of(gpu) == 6 && link == 0) {
        put_bus(out, 0x16, 0x233010de);
    } else {
        put_bus(out, 0x80 + link % 4, 0x22a310de);
    }
    return OK;
}
#endif

#if IS_TRAY
typedef struct fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
} fabric;

typedef struct fabric_v2 {
    unsigned version;
    fabric info;
    unsigned health;
} fabric_v2;

int nvmlDeviceGetGpuFabricInfo(void *gpu, fabric *out);
int nvmlDeviceGetGpuFabricInfo(void *gpu, fabric *out)
{
    memset(out, 0, sizeof(*out));
    memset(out->cluster, 0xa5, sizeof(out->cluster));
    out->clique = MACHINE == MACHINE_TRAY_TWO ? 2 : 1;
    out->state = MACHINE == MACHINE_TRAY_BAD && number_of(gpu) == 1 ? 2 : 3;
    return OK;
}
#endif

#if IS_TRAY && MACHINE != MACHINE_TRAY_OLD
int nvmlDeviceGetGpuFabricInfoV(void *gpu, fabric_v2 *out);
int nvmlDeviceGetGpuFabricInfoV(void *gpu, fabric_v2 *out)
{
    if (out->version != (sizeof(*out) | 2u << 24)) {
        return INVALID;
    }
    return nvmlDeviceGetGpuFabricInfo(gpu, &out->info);
}
#endif
