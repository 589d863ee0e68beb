/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/report_devices.c - hosts, processors, GPUs and NICs as tables.
 */
#include "topo/report_text.h"

#include "topo/cpus.h"
#include "topo/rates.h"

#include <string.h>

static const char *numa_text(const wefti_topo *topo, int device, char text[16])
{
    int numa = wefti_topo_numa(topo, device);
    if (numa < 0 || topo->devices[numa].os_index < 0) {
        return "?";
    }
    snprintf(text, 16, "%d", topo->devices[numa].os_index);
    return text;
}

static void print_left_out(const char *what, int count, FILE *file)
{
    if (count > 0) {
        fprintf(file, "  and %d more %s (--json lists all)\n", count, what);
    }
}

/* ---- hosts ----------------------------------------------------------------
 */

int wefti_report_classes_shown(const wefti_report *report)
{
    int count = report->classes.count;
    return count < WEFTI_REPORT_CLASSES_MOST ? count
                                             : WEFTI_REPORT_CLASSES_MOST;
}

const char *wefti_report_class_text(const wefti_report *report, int class_index,
                                    char text[48])
{
    int count = report->classes.counts[class_index];
    snprintf(text, 48, count > 1 ? "host%d (%d equal)" : "host%d",
             report->classes.first[class_index], count);
    return text;
}

/* "host0-3,7": those of a class, at most so many stretches. */
static void list_hosts(const wefti_report *report, int class_index,
                       char text[64])
{
    const wefti_host_classes *classes = &report->classes;
    int used = 0, hosts = report->paths->host_count;
    for (int first = 0, last; first < hosts; first = last + 1) {
        last = first;
        if (classes->of[first] != class_index) {
            continue;
        }
        while (last + 1 < hosts && classes->of[last + 1] == class_index) {
            last++;
        }
        if (used > 40) {
            snprintf(text + used, 64 - (size_t)used, ",..");
            return;
        }
        used += snprintf(text + used, 64 - (size_t)used, "%s%d",
                         used ? "," : "host", first);
        if (last > first) {
            used += snprintf(text + used, 64 - (size_t)used, "-%d", last);
        }
    }
}

/* "8 x H100, 4 x L40": at most three names. */
static void list_models(const wefti_report *report,
                        const wefti_host_paths *host, char text[160])
{
    const wefti_topo *topo = report->topo;
    int used = snprintf(text, 160, host->gpu_count ? "" : "no GPU"), kinds = 0;
    for (int i = 0; i < host->gpu_count; i++) {
        const int *gpus = report->paths->gpus + host->first_gpu;
        const char *name = topo->devices[gpus[i]].name;
        int count = 0;
        bool first = true;
        for (int k = 0; k < host->gpu_count; k++) {
            bool same = strcmp(topo->devices[gpus[k]].name, name) == 0;
            first = first && !(same && k < i);
            count += same;
        }
        if (first && ++kinds <= 3) {
            used += snprintf(text + used, 160 - (size_t)used, "%s%d x %.32s",
                             used ? ", " : "", count, name);
        }
    }
    if (kinds > 3) {
        snprintf(text + used, 160 - (size_t)used, ", ..");
    }
}

/* One line for each kind of host. */
static void print_hosts(const wefti_report *report, FILE *file)
{
    const wefti_host_classes *classes = &report->classes;
    fputs("\nHosts\n", file);
    for (int i = 0; i < wefti_report_classes_shown(report); i++) {
        const wefti_host_paths *host = &report->paths->hosts[classes->first[i]];
        char hosts[64], models[160], line[320];
        list_hosts(report, i, hosts);
        list_models(report, host, models);
        snprintf(line, sizeof(line), "%s, %d%s: %s, %d NICs", hosts,
                 classes->counts[i], classes->counts[i] > 1 ? " equal" : "",
                 models, host->nic_count);
        wefti_report_wrap(line, 4, 0, file);
    }
    print_left_out("kinds of hosts",
                   classes->count - wefti_report_classes_shown(report), file);
}

/* ---- processors -----------------------------------------------------------
 */

static void print_numa(const wefti_report *report, int device, FILE *file)
{
    const wefti_cpu *cpu = &report->topo->devices[device].cpu;
    char id[WEFTI_TOPO_ID_BYTES], cores[16] = "?", cpus[16] = "?",
                                  memory[16] = "?", list[400] = "?";
    wefti_cpus set;
    wefti_cpus_read(cpu->affinity, &set);
    if (cpu->affinity[0]) {
        char text[200];
        size_t used = 0;
        snprintf(cpus, sizeof(cpus), "%d", wefti_cpus_count(&set));
        wefti_cpus_text(&set, true, text, sizeof(text));
        for (const char *c = text; *c; c++) { /* may be broken behind commas */
            list[used++] = *c;
            if (*c == ',') {
                list[used++] = ' ';
            }
        }
        list[used] = '\0';
    }
    if (cpu->cores > 0) {
        snprintf(cores, sizeof(cores), "%d", cpu->cores);
    }
    if (cpu->memory_bytes > 0) {
        snprintf(memory, sizeof(memory), "%.4g",
                 (double)cpu->memory_bytes / 1e9);
    }
    int column =
        fprintf(file, "%-13s%5s%6s%11s ",
                wefti_topo_id(report->topo, device, id), cores, cpus, memory);
    wefti_report_wrap(list[0] ? list : "none", 36, column, file);
}

static void print_model(const wefti_cpu *cpu, FILE *file)
{
    char line[160] = "model unknown";
    if (cpu->name[0]) {
        snprintf(line, sizeof(line), "%s", cpu->name);
    } else if (cpu->vendor[0] || cpu->family > 0) {
        snprintf(line, sizeof(line), "%s family %d model %d", cpu->vendor,
                 cpu->family, cpu->model);
    }
    if (cpu->arch[0]) {
        size_t used = strlen(line);
        snprintf(line + used, sizeof(line) - used, " (%s)", cpu->arch);
    }
    wefti_report_wrap(line, 4, fprintf(file, "  CPU"), file);
}

static bool is_same_model(const wefti_cpu *a, const wefti_cpu *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->vendor, b->vendor) == 0 &&
           a->family == b->family && a->model == b->model;
}

static void print_processors(const wefti_report *report, FILE *file)
{
    const wefti_topo *topo = report->topo;
    fprintf(file, "\n%-13s%5s%6s%11s  %s\n", "NUMA node", "cores", "CPUs",
            "memory GB", "CPU list");
    for (int i = 0; i < wefti_report_classes_shown(report); i++) {
        const wefti_host_paths *host =
            &report->paths->hosts[report->classes.first[i]];
        const wefti_cpu *last = NULL;
        int shown = 0, left_out = 0;
        for (int d = 0; d < host->device_count; d++) {
            const wefti_device *node = &topo->devices[host->first_device + d];
            if (node->kind != WEFTI_TOPO_NUMA || node->os_index < 0) {
                continue;
            }
            if (shown >= WEFTI_REPORT_ROWS_MOST) {
                left_out++;
                continue;
            }
            if (last && !is_same_model(last, &node->cpu)) {
                print_model(last, file);
            }
            print_numa(report, host->first_device + d, file);
            last = &node->cpu;
            shown++;
        }
        print_left_out("NUMA nodes", left_out, file);
        if (last) {
            print_model(last, file);
        }
    }
}

/* ---- GPUs -----------------------------------------------------------------
 */

/* Bandwidth and number of its links to other GPUs and switches. */
static void sum_links(const wefti_topo *topo, int gpu, int *count_out,
                      int *down_out, double *GBps_out)
{
    *count_out = *down_out = 0;
    *GBps_out = 0;
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        if ((link->type == WEFTI_LINK_NVL || link->type == WEFTI_LINK_XGMI) &&
            (link->a == gpu || link->b == gpu)) {
            *count_out += link->count;
            *down_out += link->down;
            *GBps_out += link->GBps;
        }
    }
}

/* GB/s to the parent; "-": it is no PCI device. */
static const char *pcie_text(const wefti_report *report, int device,
                             char text[16])
{
    const wefti_device *d = &report->topo->devices[device];
    int link = report->uplinks[device];
    if (link < 0 || !d->pci.bus[0]) {
        return "-";
    }
    snprintf(text, 16, "%.4g", report->topo->links[link].GBps);
    return text;
}

/* Without whose it is, for narrow columns. */
const char *wefti_report_short_name(const char *name)
{
    static const char *const makers[] = {"NVIDIA ", "Tesla ", "AMD ",
                                         "Instinct "};
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
        size_t bytes = strlen(makers[i]);
        name += strncmp(name, makers[i], bytes) == 0 ? bytes : 0;
    }
    return name;
}

static const char *number_text(int number, char text[16])
{
    snprintf(text, 16, number >= 0 ? "%d" : "-", number);
    return text;
}

static void print_gpu(const wefti_report *report, int gpu, FILE *file)
{
    const wefti_paths *paths = report->paths;
    const wefti_topo *topo = report->topo;
    const wefti_gpu_numbers *number = &report->numbers[gpu];
    char id[WEFTI_TOPO_ID_BYTES], nic[WEFTI_TOPO_ID_BYTES] = "-";
    char numa[16], links[32] = "-", smi[16], cuda[16], pcie[16];
    int device = paths->gpus[gpu], count, down;
    double GBps;
    const wefti_device *d = &topo->devices[device];
    sum_links(topo, device, &count, &down, &GBps);
    if (count + down > 0) {
        snprintf(links, sizeof(links), "%d = %.4g", count, GBps);
    } else if (topo->links_unknown) {
        snprintf(links, sizeof(links), "unknown");
    }
    int near = wefti_paths_nic_of(paths, gpu);
    if (near >= 0) {
        wefti_topo_id(topo, paths->nics[near], nic);
    }
    fprintf(file, "%-7s%3s%5s %-17.17s %-12.12s%5s%12s%6s  %s\n",
            wefti_topo_id(topo, device, id), number_text(number->smi, smi),
            number_text(number->cuda_pci, cuda),
            wefti_report_short_name(d->name), d->pci.bus,
            numa_text(topo, device, numa), links,
            pcie_text(report, device, pcie), nic);
}

static const char *vendor_of(const wefti_report *report, int gpu)
{
    const wefti_paths *paths = report->paths;
    return wefti_topo_gpu_vendor(&paths->topo->devices[paths->gpus[gpu]]);
}

/* What the numbers are, and where they would mislead. */
static void explain_numbers(const wefti_report *report, FILE *file)
{
    bool read = false, derived = false, mixed = false, moved = false;
    bool cuda = false, amd = false;
    for (int i = 0; i < report->paths->gpu_count; i++) {
        const wefti_gpu_numbers *number = &report->numbers[i];
        read |= number->smi_read;
        derived |= !number->smi_read;
        cuda |= strcmp(vendor_of(report, i), "nvidia") == 0;
        amd |= strcmp(vendor_of(report, i), "amd") == 0;
        mixed |= number->cuda_pci >= 0 && number->cuda_fastest < 0;
        moved |= number->smi != number->pci;
    }
    char text[600];
    int used =
        snprintf(text, sizeof(text), "smi: the index of %s%s%s.",
                 cuda && amd ? "nvidia-smi and NVML, or of rocm-smi"
                 : amd       ? "rocm-smi"
                 : cuda      ? "nvidia-smi and NVML"
                             : "the maker's tool",
                 read && !derived ? ", as read"
                 : derived        ? ", by the order of PCI addresses"
                                  : "",
                 moved ? ", which is not the order of PCI addresses here" : "");
    if (cuda) {
        snprintf(text + used, sizeof(text) - (size_t)used,
                 " cuda: CUDA's index with CUDA_DEVICE_ORDER=PCI_BUS_ID (the "
                 "order of PCI addresses)%s",
                 mixed ? "; its default, FASTEST_FIRST, orders unlike GPUs "
                         "otherwise. CUDA_VISIBLE_DEVICES is not regarded."
                       : ", and by default (FASTEST_FIRST), as the GPUs are "
                         "alike; CUDA_VISIBLE_DEVICES is not regarded.");
    }
    wefti_report_wrap(text, 3, fprintf(file, "   "), file);
}

static void print_gpus(const wefti_report *report, FILE *file)
{
    fprintf(file, "\n%-7s%3s%5s %-17s %-12s%5s%12s%6s  %s\n", "GPU", "smi",
            "cuda", "model", "PCI", "NUMA", "links GB/s", "PCIe", "NIC");
    for (int i = 0; i < wefti_report_classes_shown(report); i++) {
        const wefti_host_paths *host =
            &report->paths->hosts[report->classes.first[i]];
        for (int g = 0; g < host->gpu_count && g < WEFTI_REPORT_ROWS_MOST;
             g++) {
            print_gpu(report, host->first_gpu + g, file);
        }
        print_left_out("GPUs", host->gpu_count - WEFTI_REPORT_ROWS_MOST, file);
    }
    explain_numbers(report, file);
}

/* ---- NICs -----------------------------------------------------------------
 */

/* Where the figure of a NIC's rate comes from. */
static const char *rate_text(const wefti_device *nic)
{
    if (nic->nic.limited) {
        return "limited";
    }
    if (nic->nic.gbps <= 0) {
        return "unknown";
    }
    if (!nic->nic.gbps_assumed) {
        return wefti_origin_text(nic->nic.gbps_origin);
    }
    return wefti_rate_nic(nic->pci.vendor, nic->pci.device) > 0 ? "inferred"
                                                                : "assumed";
}

static void print_nic(const wefti_report *report, int device, bool colour,
                      FILE *file)
{
    const wefti_device *d = &report->topo->devices[device];
    char id[WEFTI_TOPO_ID_BYTES], numa[16], pcie[16], gbps[16] = "-";
    bool down = d->nic.state == WEFTI_NIC_DOWN;
    if (d->nic.gbps > 0) {
        snprintf(gbps, sizeof(gbps), "%.4g", d->nic.gbps);
    }
    fprintf(file, "%-7s%-13.13s %-10s%5s %s%-8s%s%-12.12s%5s%6s  %s\n",
            wefti_topo_id(report->topo, device, id), d->name,
            wefti_nic_kind_text(d->nic.kind), gbps,
            colour && down ? "\033[31m" : "",
            wefti_nic_state_text(d->nic.state), colour && down ? "\033[0m" : "",
            d->pci.bus, numa_text(report->topo, device, numa),
            pcie_text(report, d->parent, pcie), rate_text(d));
}

static void print_nics(const wefti_report *report, bool colour, FILE *file)
{
    const wefti_paths *paths = report->paths;
    fprintf(file, "\n%-7s%-13s %-10s%5s %-8s%-12s%5s%6s  %s\n", "NIC", "name",
            "kind", "Gb/s", "state", "PCI", "NUMA", "PCIe", "rate");
    for (int i = 0; i < wefti_report_classes_shown(report); i++) {
        const wefti_host_paths *host = &paths->hosts[report->classes.first[i]];
        for (int n = 0; n < host->nic_count && n < WEFTI_REPORT_ROWS_MOST;
             n++) {
            print_nic(report, paths->nics[host->first_nic + n], colour, file);
        }
        print_left_out("NICs", host->nic_count - WEFTI_REPORT_ROWS_MOST, file);
    }
}

void wefti_report_print_devices(const wefti_report *report, bool colour,
                                FILE *file)
{
    if (report->paths->host_count > 1) {
        print_hosts(report, file);
    }
    print_processors(report, file);
    if (report->paths->gpu_count > 0) {
        print_gpus(report, file);
    }
    if (report->paths->nic_count > 0) {
        print_nics(report, colour, file);
    }
}
