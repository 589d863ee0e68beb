/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_fabrics.c - asks each fabric whether it could be used here.
 */
#include "perf/info_fabrics.h"

#include "base/check.h"
#include "base/error.h"
#include "comm/nccl/nccl_api.h"
#include "comm/net/port_library.h"
#include "device/cuda.h"
#include "topo/report.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COLUMNS 80

/* Why it cannot be used; NULL: it can. */
typedef const char *obstacle(void);

typedef struct fabric {
    const char *name;
    const char *use;
    obstacle *find;
} fabric;

static const char *find_none(void)
{
    return NULL;
}

static const char *find_memory_obstacle(void)
{
    int fd = memfd_create("weft-info", MFD_CLOEXEC);
    if (fd < 0) {
        return "the system gives no memory to share (memfd_create)";
    }
    close(fd);
    return NULL;
}

static const char *find_network_obstacle(void)
{
    const wefti_port_table *table;
    return wefti_port_library_open(&table) == WEFT_OK ? NULL
                                                      : weft_error_text();
}

/* With a driver and a GPU, what remains is weft's own lack. */
static const char *find_gpu_obstacle(void)
{
    int count, version;
    return wefti_cuda_count(&count, &version) == WEFT_OK ? NULL
                                                         : weft_error_text();
}

static const char *find_nccl_obstacle(void)
{
    const wefti_nccl_api *api;
    int count, version;
    return wefti_cuda_count(&count, &version) == WEFT_OK &&
                   wefti_nccl_api_open(&api) == WEFT_OK
               ? NULL
               : weft_error_text();
}

static const fabric fabrics[] = {
    {"self", "a rank and itself", find_none},
    {"shm", "ranks of one host, through memory they share",
     find_memory_obstacle},
    {"net", "ranks on several hosts, by tcp or through UCX",
     find_network_obstacle},
    {"cuda",
     "GPUs of one host, by copies and kernels, where WEFT_ROUTE=streams asks "
     "for it",
     find_gpu_obstacle},
    {"nccl",
     "ranks with a GPU each, by NCCL, where WEFT_ROUTE=nccl asks for it",
     find_nccl_obstacle}};

static bool is_usable(const fabric *f, const char **why_out)
{
    const char *found = f->find();
    *why_out = found ? found : f->use;
    return !found;
}

static void write_transports(const wefti_transports *transports,
                             wefti_json *json)
{
    wefti_json_array_open(json, "transports");
    for (int i = 0; transports && i < transports->count; i++) {
        const wefti_transport *one = &transports->list[i];
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "name", one->name);
        wefti_json_text(json, "device", one->device);
        wefti_json_bool(json, "network", one->network);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

void wefti_info_fabrics_write(bool live, const wefti_transports *transports,
                              wefti_json *json)
{
    wefti_json_array_open(json, "fabrics");
    for (size_t i = 0; i < WEFTI_COUNT_OF(fabrics) && live; i++) {
        const char *why;
        bool usable = is_usable(&fabrics[i], &why);
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "name", fabrics[i].name);
        wefti_json_bool(json, "usable", usable);
        wefti_json_text(json, "why", why);
        if (strcmp(fabrics[i].name, "net") == 0) {
            write_transports(transports, json);
        }
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

/* "UCX could use" and its transports with their devices, in 80 columns. */
static void print_transports(const wefti_transports *transports, FILE *file)
{
    int column = fprintf(file, "       %s could use", transports->library);
    for (int i = 0; i < transports->count; i++) {
        const wefti_transport *one = &transports->list[i];
        int bytes = (int)(strlen(one->name) + strlen(one->device)) + 5;
        bool last = i + 1 == transports->count;
        if (column + bytes > COLUMNS) {
            fputs("\n          ", file);
            column = 10;
        }
        column += fprintf(file, " %s on %s%s", one->name, one->device,
                          last ? "" : ",");
    }
    fputs(transports->count ? "\n" : " nothing here\n", file);
}

void wefti_info_fabrics_print(const wefti_transports *transports, FILE *file)
{
    fputs("\nFabrics\n", file);
    for (size_t i = 0; i < WEFTI_COUNT_OF(fabrics); i++) {
        const char *why;
        bool usable = is_usable(&fabrics[i], &why);
        int column =
            fprintf(file, "%-7s%-4s", fabrics[i].name, usable ? "yes" : "no");
        wefti_report_wrap(why, 11, column, file);
        if (transports && strcmp(fabrics[i].name, "net") == 0) {
            print_transports(transports, file);
        }
    }
}
