/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/source_live.c - this host: hwloc, then sysfs and the kernel's limits on
 * interfaces, then NVML.
 *
 * hwloc's view comes through its own export, so that one reader serves both.
 */
#include "topo/topo.h"

#include "base/check.h"
#include "base/error.h"
#include "topo/hwloc_file.h"
#include "topo/interfaces.h"
#include "topo/nvml.h"
#include "topo/sysfs.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Plugins are not asked: OpenCL's and X's take long and hang where they are
 * ill, and PCI devices Linux itself shows. So it does CPUs; "x86" would move
 * the calling thread from one to the next. */
static weft_status discover(hwloc_topology_t *out)
{
    static const char *const unasked[] = {"opencl", "gl", "pci", "x86"};
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) {
        return wefti_error_system("hwloc_topology_init");
    }
    /* hwloc's writer of XML may be on libxml2, which keeps something for each
     * thread until that ends: it must not be gone by then. */
    (void)dlopen("libxml2.so.2", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    for (size_t i = 0; i < WEFTI_COUNT_OF(unasked); i++) {
        (void)hwloc_topology_set_components(
            topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unasked[i]);
    }
    if (hwloc_topology_set_io_types_filter(
            topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
        hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return wefti_error_system("hwloc_topology_load");
    }
    *out = topology;
    return WEFT_OK;
}

/* What hwloc loads for it is not made for several threads. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* The caller holds the lock. */
static weft_status import_locked(wefti_topo *topo, wefti_claims *claims)
{
    hwloc_topology_t topology;
    char *text;
    int bytes;
    weft_status status = discover(&topology);
    if (status != WEFT_OK) {
        return status;
    }
    if (hwloc_topology_export_xmlbuffer(topology, &text, &bytes, 0) != 0) {
        status = wefti_error_system("hwloc_topology_export_xmlbuffer");
    } else {
        size_t length = bytes > 0 ? (size_t)bytes - 1 : 0; /* without NUL */
        status =
            wefti_hwloc_import_text("this machine", text, length, topo, claims);
        hwloc_free_xmlbuffer(topology, text);
    }
    hwloc_topology_destroy(topology);
    return status;
}

static weft_status import_hwloc(wefti_topo *topo, wefti_claims *claims)
{
    pthread_mutex_lock(&one_at_a_time);
    weft_status status = import_locked(topo, claims);
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

/* What hwloc alone could not know of GPUs and their links is left to NVML,
 * which has been read and is about to be applied. */
static void forget_unknown(wefti_topo *topo, const wefti_nvml_gpu *gpus,
                           int count)
{
    bool links = false;
    int kept = 0;
    for (int i = 0; i < count; i++) {
        links = links || gpus[i].c2c_GBps > 0;
        for (int at = 0; at < gpus[i].link_count; at++) {
            links = links || gpus[i].links[at].exists;
        }
    }
    bool any = count > 0 || topo->kind_counts[WEFTI_TOPO_GPU] > 0;
    for (int i = 0; i < topo->warning_count; i++) { /* one it cannot read */
        any |= topo->warnings[i].code == 24 &&
               strncmp(topo->warnings[i].device, "NVML GPU", 8) == 0;
    }
    for (int i = 0; i < topo->warning_count; i++) {
        int code = topo->warnings[i].code;
        if (!(code == 21 && links) && !(code == 2 && any)) {
            topo->warnings[kept++] = topo->warnings[i];
        }
    }
    topo->warning_count = kept;
    topo->links_unknown = topo->links_unknown && !links;
}

weft_status wefti_topo_open_live(const wefti_live_config *config,
                                 wefti_topo **topo_out)
{
    static const wefti_live_config usual = {"/sys", "libnvidia-ml.so.1", true};
    wefti_nvml_gpu *gpus = NULL;
    wefti_claims claims = {0};
    wefti_topo *topo;
    int count = 0;
    config = config ? config : &usual;
    weft_status status = wefti_topo_create(&topo);
    if (status != WEFT_OK) {
        return status;
    }
    snprintf(topo->source, sizeof(topo->source), "live");
    status = import_hwloc(topo, &claims);
    if (status == WEFT_OK) {
        wefti_sysfs_apply(topo, config->sysfs);
        wefti_interfaces_add(topo, config->sysfs);
        if (config->limits) {
            wefti_interfaces_limit(topo);
        }
        status = wefti_nvml_read(config->nvml_library, topo, &gpus, &count);
    }
    if (status == WEFT_OK) {
        forget_unknown(topo, gpus, count);
        wefti_nvml_apply(topo, gpus, count, &claims);
        status = wefti_topo_finish(topo, &claims);
    }
    free(gpus);
    wefti_claims_fini(&claims);
    if (status != WEFT_OK) {
        wefti_topo_destroy(topo);
        topo = NULL;
    }
    *topo_out = topo;
    return status;
}
