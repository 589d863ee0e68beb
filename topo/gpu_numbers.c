/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/gpu_numbers.c - GPUs of a host sorted by PCI address.
 */
#include "topo/gpu_numbers.h"

#include "base/error.h"
#include "topo/number.h"

#include <stdlib.h>
#include <string.h>

typedef struct place {
    const char *vendor;
    uint64_t address; /* all ones: none */
    int gpu;          /* ordinal */
} place;

/* Domain, bus, device and function as one number. */
static uint64_t address_of(const char *bus)
{
    static const char *const before[4] = {"", ":", ":", "."};
    static const int bits[4] = {0, 8, 8, 4};
    uint64_t address = 0, part;
    for (int i = 0; i < 4; i++) {
        if (!wefti_number_skip(&bus, before[i]) ||
            !wefti_number_read(&bus, 16, UINT32_MAX, &part)) {
            return UINT64_MAX;
        }
        address = address << bits[i] | part;
    }
    return address;
}

static int compare_places(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (strcmp(x->vendor, y->vendor) != 0) {
        return strcmp(x->vendor, y->vendor);
    }
    if (x->address != y->address) {
        return x->address < y->address ? -1 : 1;
    }
    return x->gpu - y->gpu;
}

/* All of one maker in one host, in order. */
static void number(const wefti_paths *paths, const place *places, int count,
                   wefti_gpu_numbers *numbers)
{
    const wefti_topo *topo = paths->topo;
    const wefti_device *first = &topo->devices[paths->gpus[places[0].gpu]];
    bool alike = true;
    bool cuda = strcmp(places[0].vendor, "nvidia") == 0;
    for (int i = 0; i < count; i++) {
        const wefti_device *d = &topo->devices[paths->gpus[places[i].gpu]];
        alike = alike && strcmp(d->name, first->name) == 0 &&
                d->gpu.sm == first->gpu.sm;
    }
    for (int i = 0; i < count; i++) {
        const wefti_device *d = &topo->devices[paths->gpus[places[i].gpu]];
        bool known = places[i].address != UINT64_MAX;
        int order = known ? i : -1;
        numbers[places[i].gpu] =
            (wefti_gpu_numbers){.pci = order,
                                .smi = d->gpu.dev >= 0 ? d->gpu.dev : order,
                                .smi_read = d->gpu.dev >= 0,
                                .cuda_pci = cuda ? order : -1,
                                .cuda_fastest = cuda && alike ? order : -1};
    }
}

static void number_host(const wefti_paths *paths, const wefti_host_paths *host,
                        place *places, wefti_gpu_numbers *numbers)
{
    for (int i = 0; i < host->gpu_count; i++) {
        int gpu = host->first_gpu + i;
        const wefti_device *d = &paths->topo->devices[paths->gpus[gpu]];
        places[i] =
            (place){wefti_topo_gpu_vendor(d), address_of(d->pci.bus), gpu};
    }
    qsort(places, (size_t)host->gpu_count, sizeof(*places), compare_places);
    for (int i = 0, end; i < host->gpu_count; i = end) {
        for (end = i + 1; end < host->gpu_count &&
                          strcmp(places[end].vendor, places[i].vendor) == 0;) {
            end++;
        }
        number(paths, places + i, end - i, numbers);
    }
}

weft_status wefti_gpu_numbers_list(const wefti_paths *paths,
                                   wefti_gpu_numbers **out)
{
    size_t room = (size_t)paths->gpu_count + 1;
    place *places = calloc(room, sizeof(*places));
    wefti_gpu_numbers *numbers = calloc(room, sizeof(*numbers));
    if (!places || !numbers) {
        free(places);
        free(numbers);
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d GPUs", paths->gpu_count);
    }
    for (int host = 0; host < paths->host_count; host++) {
        number_host(paths, &paths->hosts[host], places, numbers);
    }
    free(places);
    *out = numbers;
    return WEFT_OK;
}
