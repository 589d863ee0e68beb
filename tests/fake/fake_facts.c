/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_facts.c - what a program sees of the CUDA driver that its
 * environment gives it: "devices N, first BUS", for test_with_fake_gpu.py.
 */
#include "tests/fake/fake_functions.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int find(void *library, const char *name, void *function_out)
{
    void *found = dlsym(library, name);
    memcpy(function_out, &found, sizeof(found));
    return found != NULL;
}

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*init)(unsigned flags), (*get_count)(int *count);
    CUresult (*get_bus)(char *id, int bytes, CUdevice device);
    int count = 0;
    char bus[16] = "";
    if (!library || !find(library, "cuInit", &init) ||
        !find(library, "cuDeviceGetCount", &get_count) ||
        !find(library, "cuDeviceGetPCIBusId", &get_bus)) {
        fprintf(stderr, "fake_facts: %s\n", dlerror());
        return 3;
    }
    CUresult result = init(0);
    if (result != CUDA_SUCCESS || get_count(&count) != CUDA_SUCCESS ||
        get_bus(bus, sizeof(bus), 0) != CUDA_SUCCESS) {
        fprintf(stderr, "fake_facts: cuInit: %d\n", (int)result);
        return 4;
    }
    printf("devices %d, first %s\n", count, bus);
    return 0;
}
