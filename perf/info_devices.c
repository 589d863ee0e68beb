/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_devices.c - asks the CUDA driver for its GPUs.
 */
#include "perf/info_devices.h"

#include "base/error.h"
#include "device/cuda.h"
#include "topo/report.h"

/* What a gate, a staged copy and a neighbour process need of one. */
static void write_abilities(const wefti_cuda_info *info, wefti_json *json)
{
    wefti_json_object_open(json, "can");
    wefti_json_bool(json, "gates", info->memory_operations);
    wefti_json_bool(json, "flush", info->flushes);
    wefti_json_bool(json, "register", info->registers);
    wefti_json_bool(json, "export", info->exportable);
    wefti_json_object_close(json);
}

/* The others whose memory it reaches by itself. */
static void write_peers(int index, int count, wefti_json *json)
{
    wefti_json_array_open(json, "peers");
    for (int peer = 0; peer < count; peer++) {
        bool can = false;
        if (peer != index &&
            wefti_cuda_can_access(index, peer, &can) == WEFT_OK && can) {
            wefti_json_int(json, NULL, peer);
        }
    }
    wefti_json_array_close(json);
}

static void write_device(int index, int count, wefti_json *json)
{
    wefti_cuda_info info;
    wefti_json_object_open(json, NULL);
    wefti_json_int(json, "index", index);
    if (wefti_cuda_describe(index, &info) != WEFT_OK) {
        wefti_json_text(json, "error", weft_error_text());
        wefti_json_object_close(json);
        return;
    }
    char capability[24];
    snprintf(capability, sizeof(capability), "%d.%d", info.major, info.minor);
    wefti_json_text(json, "name", info.name);
    wefti_json_text(json, "pci", info.pci);
    wefti_json_text(json, "uuid", info.uuid);
    wefti_json_uint(json, "memory_bytes", info.memory_bytes);
    wefti_json_text(json, "compute_capability", capability);
    wefti_json_int(json, "multiprocessors", info.multiprocessors);
    wefti_json_int(json, "copy_engines", info.copy_engines);
    write_abilities(&info, json);
    write_peers(index, count, json);
    wefti_json_object_close(json);
}

/* weft's own kernels; those lie beside it, with or without a GPU. */
static void write_kernels(wefti_json *json)
{
    char path[PATH_MAX];
    const bool found = wefti_cuda_find_kernels(path) == WEFT_OK;
    wefti_json_object_open(json, "kernels");
    if (found) {
        wefti_json_text(json, "file", path);
        wefti_json_null(json, "why");
    } else {
        wefti_json_null(json, "file");
        wefti_json_text(json, "why", weft_error_text());
    }
    wefti_json_object_close(json);
}

/* What finds a library that does what weft's own kernels can, or why not. */
typedef weft_status find_library(char text_out[64]);

/* Without a driver it is not opened. */
static void write_library(const char *name, find_library *find, bool has_driver,
                          wefti_json *json)
{
    char library[64];
    const bool found = has_driver && find(library) == WEFT_OK;
    wefti_json_object_open(json, name);
    if (found) {
        wefti_json_text(json, "library", library);
        wefti_json_null(json, "why");
    } else {
        wefti_json_null(json, "library");
        wefti_json_text(json, "why",
                        has_driver ? weft_error_text() : "no driver");
    }
    wefti_json_object_close(json);
}

void wefti_info_devices_write(bool live, wefti_json *json)
{
    int count = 0, version = 0;
    wefti_json_object_open(json, "cuda");
    const bool found = live && wefti_cuda_count(&count, &version) == WEFT_OK;
    if (found) {
        char text[32];
        snprintf(text, sizeof(text), "%d.%d", version / 1000,
                 version % 1000 / 10);
        wefti_json_text(json, "driver", text);
        wefti_json_null(json, "why");
    } else {
        wefti_json_null(json, "driver");
        wefti_json_text(json, "why",
                        live ? weft_error_text() : "a recorded machine");
    }
    write_kernels(json);
    write_library("products", wefti_cuda_find_products, found, json);
    write_library("attention", wefti_cuda_find_attention, found, json);
    wefti_json_array_open(json, "devices");
    for (int index = 0; index < count; index++) {
        write_device(index, count, json);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}

/* What it lacks, in words; "" nothing. */
static const char *find_lack(const wefti_cuda_info *info)
{
    return !info->memory_operations
               ? "; no 64-bit memory operations: weft can not use it"
           : !info->registers ? "; copies to shared memory are not pinned"
                              : "";
}

static void print_device(int index, int count, FILE *file)
{
    wefti_cuda_info info;
    int column = fprintf(file, "cuda%-5d", index), peers = 0;
    if (wefti_cuda_describe(index, &info) != WEFT_OK) {
        wefti_report_wrap(weft_error_text(), 9, column, file);
        return;
    }
    for (int peer = 0; peer < count; peer++) {
        bool can = false;
        peers += peer != index &&
                 wefti_cuda_can_access(index, peer, &can) == WEFT_OK && can;
    }
    char text[512];
    snprintf(text, sizeof(text),
             "%s at %s, %.0f GB, %d.%d, %d multiprocessors, %d copy engines, "
             "%d peer%s%s",
             info.name, info.pci, (double)info.memory_bytes * 1e-9, info.major,
             info.minor, info.multiprocessors, info.copy_engines, peers,
             peers == 1 ? "" : "s", find_lack(&info));
    wefti_report_wrap(text, 9, column, file);
}

static void print_library(const char *name, find_library *find, FILE *file)
{
    char text[700] = "", library[64];
    int column = fprintf(file, "%-9s", name);
    if (find(library) == WEFT_OK) {
        snprintf(text, sizeof(text), "by %s", library);
    } else {
        snprintf(text, sizeof(text), "by weft's own kernel: %s",
                 weft_error_text());
    }
    wefti_report_wrap(text, 9, column, file);
}

void wefti_info_devices_print(FILE *file)
{
    int count = 0, version = 0;
    weft_status status = wefti_cuda_count(&count, &version);
    const bool found = status == WEFT_OK;
    fputs("\nCUDA\n", file);
    int column = fprintf(file, "driver   ");
    char text[600];
    if (status != WEFT_OK) {
        snprintf(text, sizeof(text), "%s", weft_error_text());
    } else {
        snprintf(text, sizeof(text), "for CUDA %d.%d, %d GPU%s", version / 1000,
                 version % 1000 / 10, count, count == 1 ? "" : "s");
    }
    wefti_report_wrap(text, 9, column, file);
    for (int index = 0; index < count; index++) {
        print_device(index, count, file);
    }
    char path[PATH_MAX];
    status = wefti_cuda_find_kernels(path);
    column = fprintf(file, "kernels  ");
    wefti_report_wrap(status == WEFT_OK ? path : weft_error_text(), 9, column,
                      file);
    if (found) {
        print_library("products", wefti_cuda_find_products, file);
        print_library("attention", wefti_cuda_find_attention, file);
    }
}
