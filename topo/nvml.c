/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/nvml.c - calls into libnvidia-ml.
 *
 * Source: the interface of NVML API 13, declared anew here. The struct of PCI
 * addresses has two layouts; only calls that fill the new one are used.
 */
#include "topo/nvml.h"

#include "base/error.h"
#include "topo/rates.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS_MOST 256

typedef void *handle;
typedef int result; /* nvmlReturn_t */
#define CAPABILITY_P2P 0
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };
enum {
    FIELD_COMMON_RATE = 90,
    FIELD_LINK_COUNT = 91,
    FIELD_LINK_RATE = 164,
    FIELD_LINK_STATE = 165,
    FIELD_C2C_COUNT = 170,
    FIELD_C2C_STATUS = 171,
    FIELD_C2C_RATE = 172
};

/* nvmlPciInfo_t of the versioned calls, 68 bytes. */
typedef struct pci_info {
    char bus_legacy[16];
    unsigned domain, bus, device, ids, subsystem_ids;
    char bus_id[32];
} pci_info;
_Static_assert(sizeof(pci_info) == 68, "nvmlPciInfo_t");

/* nvmlFieldValue_t, 40 bytes. */
typedef struct field_value {
    unsigned field, scope;
    long long time_us, latency_us;
    int type;
    result status;
    union {
        double real;
        unsigned u32;
        unsigned long long u64;
        long long s64;
    } value;
} field_value;
_Static_assert(sizeof(field_value) == 40, "nvmlFieldValue_t");

/* nvmlGpuFabricInfo_t, 28 bytes, and version 2 of it, 36. */
typedef struct fabric_info {
    unsigned char cluster[16]; /* zeros: no domain over hosts */
    result status;
    unsigned clique;
    unsigned char state;
} fabric_info;
_Static_assert(sizeof(fabric_info) == 28, "nvmlGpuFabricInfo_t");

typedef struct fabric_info_v2 {
    unsigned version;
    unsigned char cluster[16];
    result status;
    unsigned clique;
    unsigned char state;
    unsigned health;
} fabric_info_v2;
_Static_assert(sizeof(fabric_info_v2) == 36, "nvmlGpuFabricInfo_v2_t");

#define FABRIC_INFO_V2 (sizeof(fabric_info_v2) | 2u << 24)
enum { FABRIC_IN_PROGRESS = 2, FABRIC_COMPLETED = 3 };

/* X(name in the library, name here, arguments) */
#define CALLS(X)                                                               \
    X("nvmlInit_v2", init_v2, (void))                                          \
    X("nvmlInit", init_v1, (void))                                             \
    X("nvmlShutdown", shutdown, (void))                                        \
    X("nvmlDeviceGetCount_v2", get_count, (unsigned *))                        \
    X("nvmlDeviceGetHandleByIndex_v2", get_handle, (unsigned, handle *))       \
    X("nvmlDeviceGetPciInfo_v3", get_pci, (handle, pci_info *))                \
    X("nvmlDeviceGetName", get_name, (handle, char *, unsigned))               \
    X("nvmlDeviceGetCudaComputeCapability", get_sm, (handle, int *, int *))    \
    X("nvmlDeviceGetCurrPcieLinkGeneration", get_gen, (handle, unsigned *))    \
    X("nvmlDeviceGetMaxPcieLinkGeneration", get_max_gen, (handle, unsigned *)) \
    X("nvmlDeviceGetCurrPcieLinkWidth", get_width, (handle, unsigned *))       \
    X("nvmlDeviceGetMaxPcieLinkWidth", get_max_width, (handle, unsigned *))    \
    X("nvmlDeviceGetNvLinkState", link_state, (handle, unsigned, unsigned *))  \
    X("nvmlDeviceGetNvLinkCapability", link_capability,                        \
      (handle, unsigned, unsigned, unsigned *))                                \
    X("nvmlDeviceGetNvLinkRemoteDeviceType", link_remote,                      \
      (handle, unsigned, unsigned *))                                          \
    X("nvmlDeviceGetNvLinkRemotePciInfo_v2", link_pci,                         \
      (handle, unsigned, pci_info *))                                          \
    X("nvmlDeviceGetFieldValues", get_fields, (handle, int, field_value *))    \
    X("nvmlDeviceGetGpuFabricInfoV", get_fabric_v, (handle, fabric_info_v2 *)) \
    X("nvmlDeviceGetGpuFabricInfo", get_fabric, (handle, fabric_info *))

typedef struct library {
    void *module;
    wefti_topo *topo; /* for warnings */
#define CALL_MEMBER(text, name, arguments) result(*name) arguments;
    CALLS(CALL_MEMBER)
#undef CALL_MEMBER
} library;

/* The library keeps one state for the process, however often it is opened. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void warn_call(const library *l, const char *call, int gpu,
                      result status)
{
    char device[32];
    snprintf(device, sizeof(device), gpu < 0 ? "NVML" : "NVML GPU %d", gpu);
    if (status < 0) { /* once, whichever GPU it was wanted for */
        wefti_topo_warn(l->topo, 24, "NVML", "%s is missing in this library",
                        call);
    } else {
        wefti_topo_warn(l->topo, 24, device, "%s returned %d", call, status);
    }
}

/* A call that must work; -1 stands for a symbol that is missing. */
#define ASK(l, gpu, name, call, ...)                                           \
    ask_done(l, gpu, call, (l)->name ? (l)->name(__VA_ARGS__) : -1)

static bool ask_done(const library *l, int gpu, const char *call, result status)
{
    if (status != SUCCESS) {
        warn_call(l, call, gpu, status);
    }
    return status == SUCCESS;
}

static bool open_library(const char *path, wefti_topo *topo, library *l)
{
    memset(l, 0, sizeof(*l));
    l->topo = topo;
    l->module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->module) {
        return false;
    }
#define CALL_LOAD(text, name, arguments)                                       \
    {                                                                          \
        void *symbol = dlsym(l->module, text);                                 \
        memcpy(&l->name, &symbol, sizeof(symbol));                             \
    }
    CALLS(CALL_LOAD)
#undef CALL_LOAD
    result status = l->init_v2 ? l->init_v2() : l->init_v1 ? l->init_v1() : -1;
    if (status != SUCCESS) {
        warn_call(l, l->init_v2 ? "nvmlInit_v2" : "nvmlInit", -1, status);
        dlclose(l->module);
        return false;
    }
    return true;
}

static bool get_field(const library *l, handle gpu, unsigned field,
                      unsigned scope, field_value *out)
{
    *out = (field_value){.field = field, .scope = scope};
    return l->get_fields && l->get_fields(gpu, 1, out) == SUCCESS &&
           out->status == SUCCESS;
}

/* nvmlValueType_t: 0 double, 1 unsigned, 2 and 3 64 bits, 4 signed. */
static double number(const field_value *f)
{
    switch (f->type) {
    case 0:
        return f->value.real;
    case 2:
    case 3:
        return (double)f->value.u64;
    case 4:
        return (double)f->value.s64;
    default:
        return f->value.u32;
    }
}

/* ---- one link -------------------------------------------------------------
 */

/* Whether there is such a link, and whether it is up. From Hopper on the field
 * states it; before, the call does. Both are read for a GPU of unknown kind. */
static bool read_state(const library *l, handle gpu, int sm, unsigned number_of,
                       wefti_nvml_link *link, bool *past_end)
{
    field_value f;
    unsigned state = 0;
    if (sm >= 90 && get_field(l, gpu, FIELD_LINK_STATE, number_of, &f)) {
        link->up = number(&f) > 0;
        return true;
    }
    result status = l->link_state ? l->link_state(gpu, number_of, &state) : -1;
    if (status != SUCCESS && status != INVALID_ARGUMENT && sm < 90 &&
        get_field(l, gpu, FIELD_LINK_STATE, number_of, &f)) {
        link->up = number(&f) > 0;
        return true;
    }
    *past_end = status == INVALID_ARGUMENT || status < 0;
    link->up = state != 0;
    return status == SUCCESS;
}

static void read_link(const library *l, int index, handle gpu, unsigned at,
                      wefti_nvml_link *link)
{
    unsigned remote = WEFTI_NVML_REMOTE_UNKNOWN;
    pci_info pci = {{0}, 0, 0, 0, 0, 0, {0}};
    field_value f;
    unsigned peers = 1;
    if (l->link_capability &&
        l->link_capability(gpu, at, CAPABILITY_P2P, &peers) == SUCCESS) {
        link->no_peers = peers == 0;
    }
    if (l->link_remote && l->link_remote(gpu, at, &remote) == SUCCESS) {
        link->remote = (wefti_nvml_remote)remote;
    } else {
        link->remote = WEFTI_NVML_REMOTE_UNKNOWN;
        if (link->up) {
            warn_call(l, "nvmlDeviceGetNvLinkRemoteDeviceType", index,
                      l->link_remote ? 999 : -1);
        }
    }
    result status = l->link_pci ? l->link_pci(gpu, at, &pci) : -1;
    if (status == SUCCESS) {
        pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
        wefti_bus_normalise(pci.bus_id, link->bus);
        if (link->remote == WEFTI_NVML_REMOTE_UNKNOWN) {
            link->remote = (pci.ids & 0xffff) == 0x1014
                               ? WEFTI_NVML_REMOTE_IBM
                               : WEFTI_NVML_REMOTE_UNKNOWN;
        }
    } else if (link->up &&
               (link->remote != WEFTI_NVML_REMOTE_SWITCH || status < 0)) {
        warn_call(l, "nvmlDeviceGetNvLinkRemotePciInfo_v2", index, status);
    }
    if (get_field(l, gpu, FIELD_LINK_RATE, at, &f) ||
        get_field(l, gpu, FIELD_COMMON_RATE, 0, &f)) {
        double MBps = number(&f);
        link->GBps = MBps > 1000 && MBps < 1e6 ? MBps / 1000 : 0;
    }
}

/* No link was found: none is there only where the calls that list them were
 * answered, be it by "not supported" for the one field or link. */
static void doubt_links(const library *l, int index, handle gpu, bool counted,
                        wefti_nvml_gpu *out)
{
    unsigned state = 0;
    field_value f = {.field = FIELD_LINK_COUNT};
    result fields = l->get_fields ? l->get_fields(gpu, 1, &f) : -1;
    result link = l->link_state ? l->link_state(gpu, 0, &state) : -1;
    bool by_field = out->sm == 0 || out->sm >= 90;
    bool refused = link != NOT_SUPPORTED && link != INVALID_ARGUMENT;
    if (by_field && fields != SUCCESS) {
        warn_call(l, "nvmlDeviceGetFieldValues", index, fields);
        out->links_unknown = true;
    } else if (counted || (out->sm < 90 && refused)) {
        warn_call(l, "nvmlDeviceGetNvLinkState", index, link);
        out->links_unknown = true;
    }
}

static void read_links(const library *l, int index, handle gpu,
                       wefti_nvml_gpu *out)
{
    field_value f;
    int most = WEFTI_NVML_LINKS_MOST, found = 0;
    bool counted = get_field(l, gpu, FIELD_LINK_COUNT, 0, &f);
    if (counted) {
        most = (int)number(&f);
        most = most < 0                       ? 0
               : most > WEFTI_NVML_LINKS_MOST ? WEFTI_NVML_LINKS_MOST
                                              : most;
    }
    for (int at = 0; at < most; at++) {
        wefti_nvml_link *link = &out->links[at];
        bool past_end = false;
        link->exists =
            read_state(l, gpu, out->sm, (unsigned)at, link, &past_end);
        if (past_end) {
            break;
        }
        out->link_count = at + 1;
        if (link->exists) {
            found++;
            read_link(l, index, gpu, (unsigned)at, link);
        }
    }
    if (found == 0 && !(counted && most == 0)) {
        doubt_links(l, index, gpu, counted, out);
    }
}

/* ---- one GPU --------------------------------------------------------------
 */

static int get_unsigned(result (*call)(handle, unsigned *), handle gpu)
{
    unsigned value = 0;
    return call && call(gpu, &value) == SUCCESS && value < 1000 ? (int)value
                                                                : 0;
}

/* Links to the processor beside it; one that does not say is up. */
static void read_c2c(const library *l, handle gpu, wefti_nvml_gpu *out)
{
    field_value f;
    bool counted = get_field(l, gpu, FIELD_C2C_COUNT, 0, &f);
    double count = counted ? number(&f) : 0;
    for (unsigned at = 0; at < WEFTI_NVML_LINKS_MOST && at < count; at++) {
        if (get_field(l, gpu, FIELD_C2C_STATUS, at, &f) && number(&f) < 1) {
            out->c2c_down++;
        } else if (get_field(l, gpu, FIELD_C2C_RATE, at, &f) &&
                   number(&f) > 0) {
            out->c2c_count++;
            out->c2c_GBps += number(&f) / 1000;
        }
    }
}

/* Of a cluster and a clique of it one number, which cannot be undone: GUIDs
 * leave no host. FNV-1a. */
static uint64_t domain_of(const fabric_info *info)
{
    uint64_t hash = 1469598103934665603u;
    unsigned any = 0;
    for (int i = 0; i < 16; i++) {
        any |= info->cluster[i];
        hash = (hash ^ info->cluster[i]) * 1099511628211u;
    }
    for (int i = 0; i < 4; i++) {
        hash = (hash ^ (info->clique >> 8 * i & 0xff)) * 1099511628211u;
    }
    return any == 0 ? 0 : hash ? hash : 1;
}

/* Drivers before 545 have neither call: then there is no such domain. */
static void read_fabric(const library *l, int index, handle gpu,
                        wefti_nvml_gpu *out)
{
    fabric_info_v2 new = {.version = FABRIC_INFO_V2};
    fabric_info info = {.state = 0};
    if (l->get_fabric_v && l->get_fabric_v(gpu, &new) == SUCCESS) {
        memcpy(info.cluster, new.cluster, sizeof(info.cluster));
        info.status = new.status;
        info.clique = new.clique;
        info.state = new.state;
    } else if (!l->get_fabric || l->get_fabric(gpu, &info) != SUCCESS) {
        return;
    }
    if (info.state == FABRIC_COMPLETED && info.status == SUCCESS) {
        out->domain = domain_of(&info);
    } else if (info.state >= FABRIC_IN_PROGRESS) {
        char device[32];
        snprintf(device, sizeof(device), "NVML GPU %d", index);
        wefti_topo_warn(l->topo, 21, device,
                        "its NVLink domain over hosts is unknown: state %d, "
                        "status %d of the fabric's registration",
                        info.state, info.status);
    }
}

static bool read_gpu(const library *l, int index, wefti_nvml_gpu *out)
{
    handle gpu;
    pci_info pci = {{0}, 0, 0, 0, 0, 0, {0}};
    int major = 0, minor = 0;
    memset(out, 0, sizeof(*out));
    if (!ASK(l, index, get_handle, "nvmlDeviceGetHandleByIndex_v2",
             (unsigned)index, &gpu) ||
        !ASK(l, index, get_pci, "nvmlDeviceGetPciInfo_v3", gpu, &pci)) {
        return false;
    }
    pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
    wefti_bus_normalise(pci.bus_id, out->bus);
    if (!ASK(l, index, get_name, "nvmlDeviceGetName", gpu, out->name,
             sizeof(out->name))) {
        out->name[0] = '\0';
    }
    out->name[sizeof(out->name) - 1] = '\0';
    if (ASK(l, index, get_sm, "nvmlDeviceGetCudaComputeCapability", gpu, &major,
            &minor)) {
        out->sm = 10 * major + minor;
    } else {
        const wefti_gpu_model *model = wefti_gpu_model_find(0, 0, out->name);
        out->sm = model ? model->sm : 0;
    }
    out->gen = get_unsigned(l->get_gen, gpu);
    out->width = get_unsigned(l->get_width, gpu);
    out->max_gen = get_unsigned(l->get_max_gen, gpu);
    out->max_width = get_unsigned(l->get_max_width, gpu);
    read_links(l, index, gpu, out);
    read_c2c(l, gpu, out);
    read_fabric(l, index, gpu, out);
    return true;
}

static weft_status read_all(const library *l, wefti_nvml_gpu **gpus_out,
                            int *count_out)
{
    unsigned count = 0;
    if (!ASK(l, -1, get_count, "nvmlDeviceGetCount_v2", &count) || count == 0) {
        return WEFT_OK;
    }
    count = count > GPUS_MOST ? GPUS_MOST : count;
    wefti_nvml_gpu *gpus = calloc(count, sizeof(*gpus));
    if (!gpus) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%u GPUs of NVML", count);
    }
    int kept = 0;
    for (unsigned i = 0; i < count; i++) {
        kept += read_gpu(l, (int)i, &gpus[kept]);
    }
    *gpus_out = gpus;
    *count_out = kept;
    return WEFT_OK;
}

weft_status wefti_nvml_read(const char *path, wefti_topo *topo,
                            wefti_nvml_gpu **gpus_out, int *count_out)
{
    library l;
    weft_status status = WEFT_OK;
    *gpus_out = NULL;
    *count_out = 0;
    pthread_mutex_lock(&one_at_a_time);
    if (open_library(path, topo, &l)) {
        status = read_all(&l, gpus_out, count_out);
        if (l.shutdown) {
            l.shutdown();
        }
        dlclose(l.module);
    }
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}
