/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/report_json.c - the same facts for programs.
 */
#include "topo/report.h"

#include "topo/cpus.h"

#include <stdlib.h>
#include <string.h>

/* Beyond this the matrices would be larger than a user reads. */
#define MATRIX_MOST 1024

static void write_id(const wefti_topo *topo, wefti_json *json, const char *name,
                     int device)
{
    char id[WEFTI_TOPO_ID_BYTES];
    if (device < 0) {
        wefti_json_null(json, name);
    } else {
        wefti_json_text(json, name, wefti_topo_id(topo, device, id));
    }
}

/* null below the least. */
static void write_known(wefti_json *json, const char *name, int value,
                        int least)
{
    if (value < least) {
        wefti_json_null(json, name);
    } else {
        wefti_json_int(json, name, value);
    }
}

static void write_place(const wefti_topo *topo, wefti_json *json, int device)
{
    const wefti_device *d = &topo->devices[device];
    wefti_json_text(json, "pci", d->pci.bus[0] ? d->pci.bus : NULL);
    write_id(topo, json, "numa", wefti_topo_numa(topo, device));
    write_id(topo, json, "host", d->host);
}

/* What one device's PCIe link does, could do, and does at this moment. */
static void write_pcie(const wefti_report *report, wefti_json *json, int device)
{
    const wefti_topo *topo = report->topo;
    const wefti_device *d = &topo->devices[device];
    const wefti_pci *pci = &d->pci;
    int at = report->uplinks[device];
    if (at < 0 || !pci->bus[0]) {
        wefti_json_null(json, "pcie");
        return;
    }
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"gen", pci->gen},         {"width", pci->width},
                   {"max_gen", pci->max_gen}, {"max_width", pci->max_width},
                   {"now_gen", pci->now_gen}, {"now_width", pci->now_width}};
    wefti_json_object_open(json, "pcie");
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        write_known(json, numbers[i].name, numbers[i].value, 1);
    }
    wefti_json_real(json, "GBps", topo->links[at].GBps);
    wefti_json_text(json, "from", wefti_origin_text(topo->links[at].origin));
    wefti_json_bool(json, "assumed", topo->links[at].assumed);
    wefti_json_object_close(json);
}

static void write_groups(const wefti_report *report, wefti_json *json)
{
    wefti_json_array_open(json, "warning_groups");
    for (int i = 0; i < report->group_count; i++) {
        const wefti_warning_group *group = &report->groups[i];
        wefti_json_object_open(json, NULL);
        wefti_json_int(json, "code", group->code);
        wefti_json_text(json, "severity", wefti_severity_text(group->severity));
        wefti_json_int(json, "count", group->count);
        wefti_json_text(json, "devices", group->devices);
        wefti_json_text(json, "text", group->text);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

static void write_warnings(const wefti_topo *topo, wefti_json *json)
{
    wefti_json_array_open(json, "warnings");
    for (int i = 0; i < topo->warning_count; i++) {
        wefti_json_object_open(json, NULL);
        wefti_json_int(json, "code", topo->warnings[i].code);
        wefti_json_text(json, "device", topo->warnings[i].device);
        wefti_json_text(json, "text", topo->warnings[i].text);
        wefti_json_text(
            json, "severity",
            wefti_severity_text(wefti_severity_of(topo->warnings[i].code)));
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
    wefti_json_int(json, "warnings_left_out", topo->warnings_left_out);
}

static void write_cpus(const wefti_cpu *cpu, wefti_json *json)
{
    char list[8192];
    wefti_cpus set;
    bool known = cpu->affinity[0] != '\0';
    wefti_cpus_read(cpu->affinity, &set);
    wefti_cpus_text(&set, false, list, sizeof(list));
    wefti_json_text(json, "cpus", known ? cpu->affinity : NULL);
    wefti_json_text(json, "cpu_list", known ? list : NULL);
    write_known(json, "cpu_count", known ? wefti_cpus_count(&set) : -1, 0);
    write_known(json, "cores", cpu->cores, 1);
    wefti_json_text(json, "cpu_model", cpu->name[0] ? cpu->name : NULL);
    wefti_json_text(json, "cpu_vendor", cpu->vendor[0] ? cpu->vendor : NULL);
    wefti_json_text(json, "arch", cpu->arch[0] ? cpu->arch : NULL);
    if (cpu->memory_bytes > 0) {
        wefti_json_int(json, "memory_bytes", cpu->memory_bytes);
    } else {
        wefti_json_null(json, "memory_bytes");
    }
}

/* Hosts that are equal, and how often each kind is there. */
static void write_classes(const wefti_report *report, wefti_json *json)
{
    wefti_json_array_open(json, "host_kinds");
    for (int i = 0; i < report->classes.count; i++) {
        const wefti_host_paths *first =
            &report->paths->hosts[report->classes.first[i]];
        wefti_json_object_open(json, NULL);
        write_id(report->topo, json, "first", first->first_device);
        wefti_json_int(json, "count", report->classes.counts[i]);
        wefti_json_int(json, "gpus", first->gpu_count);
        wefti_json_int(json, "nics", first->nic_count);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

static void write_hosts(const wefti_topo *topo, wefti_json *json)
{
    wefti_json_array_open(json, "hosts");
    for (int i = 0; i < topo->device_count; i++) {
        if (topo->devices[i].kind == WEFTI_TOPO_HOST) {
            write_id(topo, json, NULL, i);
        }
    }
    wefti_json_array_close(json);
    wefti_json_array_open(json, "numas");
    for (int i = 0; i < topo->device_count; i++) {
        const wefti_device *d = &topo->devices[i];
        if (d->kind == WEFTI_TOPO_NUMA && d->os_index >= 0) {
            wefti_json_object_open(json, NULL);
            write_id(topo, json, "id", i);
            write_id(topo, json, "host", d->host);
            wefti_json_int(json, "os_index", d->os_index);
            write_cpus(&d->cpu, json);
            wefti_json_object_close(json);
        }
    }
    wefti_json_array_close(json);
}

/* By which numbers others call it. */
static void write_numbers(const wefti_gpu_numbers *numbers, const char *vendor,
                          wefti_json *json)
{
    write_known(json, "smi_index", numbers->smi, 0);
    wefti_json_text(json, "smi_from", numbers->smi_read ? "read" : "pci order");
    bool nvml = strcmp(vendor, "nvidia") == 0;
    write_known(json, "nvml_index", nvml ? numbers->smi : -1, 0);
    write_known(json, "pci_order", numbers->pci, 0);
    write_known(json, "cuda_index_pci_bus_id", numbers->cuda_pci, 0);
    write_known(json, "cuda_index_fastest_first", numbers->cuda_fastest, 0);
}

static void write_gpus(const wefti_report *report, wefti_json *json)
{
    wefti_json_array_open(json, "gpus");
    for (int i = 0; i < report->paths->gpu_count; i++) {
        int device = report->paths->gpus[i];
        const wefti_device *d = &report->topo->devices[device];
        int near = wefti_paths_nic_of(report->paths, i);
        wefti_json_object_open(json, NULL);
        write_id(report->topo, json, "id", device);
        wefti_json_text(json, "name", d->name);
        write_place(report->topo, json, device);
        if (d->gpu.sm > 0) {
            wefti_json_int(json, "sm", d->gpu.sm);
        } else {
            wefti_json_null(json, "sm");
        }
        wefti_json_text(json, "vendor", wefti_topo_gpu_vendor(d));
        write_numbers(&report->numbers[i], wefti_topo_gpu_vendor(d), json);
        write_pcie(report, json, device);
        wefti_json_bool(json, "template", d->gpu.template_of);
        write_id(report->topo, json, "nic",
                 near >= 0 ? report->paths->nics[near] : -1);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

/* The first card that has the same GUID: what is one card to its maker. */
static int card_of(const wefti_report *report, int nic)
{
    const wefti_topo *topo = report->topo;
    const wefti_device *d = &topo->devices[report->paths->nics[nic]];
    for (int i = 0; i < nic && d->nic.card_guid; i++) {
        const wefti_device *other = &topo->devices[report->paths->nics[i]];
        if (other->host == d->host &&
            other->nic.card_guid == d->nic.card_guid) {
            return other->parent;
        }
    }
    return d->parent;
}

/* "tcp,rc_mlx5" as an array. */
static void write_transports(const char *list, wefti_json *json)
{
    wefti_json_array_open(json, "transports");
    while (*list) {
        char one[64];
        size_t bytes = strcspn(list, ",");
        snprintf(one, sizeof(one), "%.*s", (int)bytes, list);
        wefti_json_text(json, NULL, one);
        list += bytes + (list[bytes] == ',');
    }
    wefti_json_array_close(json);
}

static void write_nics(const wefti_report *report, wefti_json *json)
{
    wefti_json_array_open(json, "nics");
    for (int i = 0; i < report->paths->nic_count; i++) {
        int device = report->paths->nics[i];
        const wefti_device *d = &report->topo->devices[device];
        wefti_json_object_open(json, NULL);
        write_id(report->topo, json, "id", device);
        wefti_json_text(json, "name", d->name[0] ? d->name : NULL);
        wefti_json_text(json, "kind", wefti_nic_kind_text(d->nic.kind));
        if (d->nic.gbps > 0) {
            wefti_json_real(json, "gbps", d->nic.gbps);
        } else { /* a radio of unknown rate */
            wefti_json_null(json, "gbps");
        }
        wefti_json_text(json, "gbps_from",
                        wefti_origin_text(d->nic.gbps_origin));
        wefti_json_bool(json, "gbps_assumed", d->nic.gbps_assumed);
        wefti_json_bool(json, "limited", d->nic.limited);
        wefti_json_text(json, "state", wefti_nic_state_text(d->nic.state));
        write_place(report->topo, json, device);
        write_id(report->topo, json, "card", card_of(report, i));
        wefti_json_int(json, "port", d->nic.port);
        write_pcie(report, json, d->parent);
        write_transports(d->nic.transports, json);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

static void write_links(const wefti_topo *topo, wefti_json *json)
{
    wefti_json_array_open(json, "links");
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        bool port = link->type == WEFTI_LINK_PORT;
        wefti_json_object_open(json, NULL);
        write_id(topo, json, "a", port ? link->b : link->a);
        if (port) {
            wefti_json_text(json, "b", "network");
        } else {
            write_id(topo, json, "b", link->b);
        }
        wefti_json_text(json, "type",
                        port ? "NET" : wefti_link_type_text(link->type));
        wefti_json_int(json, "count", link->count);
        wefti_json_int(json, "down", link->down);
        wefti_json_real(json, "GBps", link->GBps);
        wefti_json_real(json, "nccl_GBps", link->nccl_GBps);
        wefti_json_text(json, "from", wefti_origin_text(link->origin));
        /* A port's link is as fast as its NIC, and as sure. */
        wefti_json_bool(json, "assumed",
                        link->assumed ||
                            (port && topo->devices[link->b].nic.gbps_assumed));
        wefti_json_bool(json, "limited",
                        port && topo->devices[link->b].nic.limited);
        wefti_json_real(json, "latency_us", link->latency_us);
        wefti_json_text(json, "latency_from",
                        wefti_origin_text(link->latency_origin));
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

static void write_path(wefti_json *json, wefti_topo_path path)
{
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "type", wefti_path_type_text(path.type));
    wefti_json_int(json, "hops", path.hops);
    wefti_json_real(json, "GBps", path.GBps);
    wefti_json_real(json, "nccl_GBps", path.nccl_GBps);
    wefti_json_object_close(json);
}

static void write_paths(const wefti_report *report, wefti_json *json)
{
    const wefti_paths *paths = report->paths;
    wefti_json_object_open(json, "paths");
    if (paths->gpu_count > MATRIX_MOST) {
        wefti_json_null(json, "gpu_gpu");
        wefti_json_null(json, "gpu_nic");
        wefti_json_null(json, "gpu_gpu_names");
        wefti_json_object_close(json);
        return;
    }
    for (int nics = 0; nics < 2; nics++) {
        wefti_json_array_open(json, nics ? "gpu_nic" : "gpu_gpu");
        for (int a = 0; a < paths->gpu_count; a++) {
            wefti_json_array_open(json, NULL);
            for (int b = 0; b < (nics ? paths->nic_count : paths->gpu_count);
                 b++) {
                write_path(json, nics ? wefti_path_gpu_nic(paths, a, b)
                                      : wefti_path_gpu_gpu(paths, a, b));
            }
            wefti_json_array_close(json);
        }
        wefti_json_array_close(json);
    }
    wefti_json_array_open(json, "gpu_gpu_names");
    for (int a = 0; a < paths->gpu_count; a++) {
        wefti_json_array_open(json, NULL);
        for (int b = 0; b < paths->gpu_count; b++) {
            char text[WEFTI_PAIR_TEXT_BYTES];
            wefti_json_text(json, NULL,
                            wefti_pair_links_text(report->pairs, a, b, text));
        }
        wefti_json_array_close(json);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}

/* By which NIC each channel enters the host, or leaves it. */
static void write_ring_nics(const wefti_report *report, const char *name,
                            const wefti_rings *rings, const int *nics,
                            wefti_json *json)
{
    wefti_json_array_open(json, name);
    for (int c = 0; c < rings->channels; c++) {
        int nic = nics[c % rings->distinct];
        write_id(report->topo, json, NULL,
                 nic >= 0 ? report->paths->nics[nic] : -1);
    }
    wefti_json_array_close(json);
}

/* The host, and all of its NVLink domain, over which the rings go. */
static void write_ring_hosts(const wefti_report *report, int host,
                             wefti_json *json)
{
    const wefti_paths *paths = report->paths;
    const wefti_clique *c = &paths->cliques[paths->host_cliques[host]];
    write_id(report->topo, json, "host", paths->hosts[host].first_device);
    wefti_json_array_open(json, "hosts");
    for (int i = 0; i < c->host_count; i++) {
        int member = paths->clique_hosts[c->first_host + i];
        write_id(report->topo, json, NULL, paths->hosts[member].first_device);
    }
    wefti_json_array_close(json);
}

static void write_rings(const wefti_report *report, const char *name,
                        const wefti_rings *rings, int host, wefti_json *json)
{
    if (rings->channels == 0) {
        wefti_json_null(json, name);
        return;
    }
    wefti_json_object_open(json, name);
    wefti_json_int(json, "channels", rings->channels);
    wefti_json_real(json, "GBps", rings->GBps);
    wefti_json_text(json, "type", wefti_path_type_text(rings->type));
    write_ring_hosts(report, host, json);
    if (rings->nic_type != WEFTI_PATH_DIS) {
        wefti_json_text(json, "nic_type",
                        wefti_path_type_text(rings->nic_type));
    }
    wefti_json_text(json, "table", "nccl");
    wefti_json_real(json, "most_use", rings->most_use);
    wefti_json_array_open(json, "orders");
    for (int c = 0; c < rings->channels; c++) {
        const int *order =
            rings->orders + c % rings->distinct * rings->gpu_count;
        wefti_json_array_open(json, NULL);
        for (int i = 0; i < rings->gpu_count; i++) {
            write_id(report->topo, json, NULL, report->paths->gpus[order[i]]);
        }
        wefti_json_array_close(json);
    }
    wefti_json_array_close(json);
    write_ring_nics(report, "nics", rings, rings->nics, json);
    write_ring_nics(report, "exits", rings, rings->exits, json);
    wefti_json_object_close(json);
}

void wefti_report_write_json(const wefti_report *report, wefti_json *json)
{
    const wefti_topo *topo = report->topo;
    wefti_json_text(json, "source", topo->source);
    write_warnings(topo, json);
    write_groups(report, json);
    write_hosts(topo, json);
    write_classes(report, json);
    write_gpus(report, json);
    write_nics(report, json);
    wefti_json_int(json, "switches", topo->switch_chips);
    wefti_json_bool(json, "template", topo->is_template);
    wefti_json_bool(json, "links_unknown", topo->links_unknown);
    write_links(topo, json);
    write_paths(report, json);
    bool too_large = wefti_rings_too_large(&report->rings);
    char why[80] = "";
    snprintf(why, sizeof(why), "%d GPUs are joined, searched are %d at most",
             report->rings.gpu_count, WEFTI_RING_GPUS_MOST);
    wefti_json_text(json, "rings_left_out", too_large ? why : NULL);
    write_rings(report, "rings", &report->rings, report->host, json);
    write_rings(report, "trees", &report->chains, report->host, json);
    write_rings(report, "rings_multinode", &report->net, report->net_host,
                json);
    write_rings(report, "trees_multinode", &report->net_chains,
                report->net_host, json);
}
