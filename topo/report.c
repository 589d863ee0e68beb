/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/report.c - what a report is made of, and its text for people.
 */
#include "topo/report.h"

#include "topo/rates.h"
#include "topo/twins.h"
#include "topo/worst.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS     80
#define MATRIX_MOST 16 /* GPUs whose paths fit into the columns */

weft_status wefti_report_init(wefti_report *report, wefti_topo *topo)
{
    wefti_worst worst;
    *report = (wefti_report){.topo = topo, .host = -1, .net_host = -1};
    if (topo->kind_counts[WEFTI_TOPO_HOST] > 1) {
        wefti_twins_compare(topo, true);
    }
    weft_status status = wefti_paths_create(topo, &report->paths);
    if (status != WEFT_OK) {
        return status;
    }
    const wefti_paths *paths = report->paths;
    status = wefti_worst_find(paths, topo, &worst);
    if (status != WEFT_OK || worst.host < 0) {
        if (status != WEFT_OK) {
            wefti_report_fini(report);
        }
        return status;
    }
    report->host = worst.host;
    report->net_host = worst.net_host;
    bool nic = false;
    for (int i = 0; i < paths->hosts[report->net_host].nic_count; i++) {
        nic |= wefti_topo_nic_usable(
            topo, paths->nics[paths->hosts[report->net_host].first_nic + i]);
    }
    status = wefti_rings_plan(paths, report->host, &report->rings);
    if (status == WEFT_OK) {
        status = wefti_chains_plan(paths, report->host, &report->chains);
    }
    if (status == WEFT_OK && nic) {
        status = wefti_rings_plan_net(paths, report->net_host, &report->net);
    }
    if (status == WEFT_OK && nic) {
        status =
            wefti_chains_plan_net(paths, report->net_host, &report->net_chains);
    }
    if (status != WEFT_OK) {
        wefti_report_fini(report);
    } else {
        wefti_worst_tell_fallback(paths, topo, report->host, &report->rings);
    }
    return status;
}

void wefti_report_fini(wefti_report *report)
{
    wefti_rings_fini(&report->rings);
    wefti_rings_fini(&report->chains);
    wefti_rings_fini(&report->net);
    wefti_rings_fini(&report->net_chains);
    wefti_paths_destroy(report->paths);
    report->paths = NULL;
}

/* ---- text -----------------------------------------------------------------
 */

void wefti_report_wrap(const char *text, int indent, int column, FILE *file)
{
    while (*text) {
        int word = (int)strcspn(text, " "), room = COLUMNS - indent - 1;
        if (column + word + 1 > COLUMNS && column > indent) {
            fprintf(file, "\n%*s", indent, "");
            column = indent;
        }
        word = word > room ? room : word; /* too long for any line */
        fprintf(file, " %.*s", word, text);
        column += word + 1;
        text += word + (text[word] == ' ');
    }
    fputc('\n', file);
}

/* Bandwidth and number of its links to other GPUs and switches. */
static void sum_links(const wefti_topo *topo, int gpu, int *count_out,
                      int *down_out, double *GBps_out)
{
    *count_out = *down_out = 0;
    *GBps_out = 0;
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_link *link = &topo->links[i];
        if ((link->type == WEFTI_LINK_NVL || link->type == WEFTI_LINK_XGMI) &&
            (link->a == gpu || link->b == gpu)) {
            *count_out += link->count;
            *down_out += link->down;
            *GBps_out += link->GBps;
        }
    }
}

static double uplink_GBps(const wefti_topo *topo, int device)
{
    int link = wefti_topo_find_link(topo, topo->devices[device].parent, device,
                                    WEFTI_LINK_PCI);
    return link >= 0 ? topo->links[link].GBps : 0;
}

static const char *numa_text(const wefti_topo *topo, int device, char text[16])
{
    int numa = wefti_topo_numa(topo, device);
    if (numa < 0) {
        return "?";
    }
    snprintf(text, 16, "%d", topo->devices[numa].os_index);
    return text;
}

static void print_gpus(const wefti_report *report, FILE *file)
{
    const wefti_paths *paths = report->paths;
    fprintf(file, "\n%-7s%-25s%-14s%4s%13s%7s  %s\n", "GPU", "model", "PCI",
            "NUMA", "links GB/s", "PCIe", "NIC");
    for (int i = 0; i < paths->gpu_count; i++) {
        char id[WEFTI_TOPO_ID_BYTES], nic[WEFTI_TOPO_ID_BYTES] = "-";
        char numa[16], links[32] = "-";
        int device = paths->gpus[i], count, down;
        double GBps;
        const wefti_device *d = &report->topo->devices[device];
        sum_links(report->topo, device, &count, &down, &GBps);
        if (count + down > 0) {
            snprintf(links, sizeof(links), "%d = %.4g", count, GBps);
        } else if (report->topo->links_unknown) {
            snprintf(links, sizeof(links), "unknown");
        }
        int near = wefti_paths_nic_of(paths, i);
        if (near >= 0) {
            wefti_topo_id(report->topo, paths->nics[near], nic);
        }
        fprintf(file, "%-7s%-24.24s %-13.13s %4s%13s%7.4g  %s\n",
                wefti_topo_id(report->topo, device, id), d->name, d->pci.bus,
                numa_text(report->topo, device, numa), links,
                uplink_GBps(report->topo, device), nic);
    }
}

/* By its PCI id a rate is inferred; where that tells nothing, assumed. */
static const char *rate_text(const wefti_device *nic)
{
    if (nic->nic.limited) {
        return "limited";
    }
    if (!nic->nic.gbps_assumed) {
        return wefti_origin_text(nic->nic.gbps_origin);
    }
    return wefti_rate_nic(nic->pci.vendor, nic->pci.device) > 0 ? "inferred"
                                                                : "assumed";
}

static void print_nics(const wefti_report *report, bool colour, FILE *file)
{
    const wefti_paths *paths = report->paths;
    if (paths->nic_count == 0) {
        return;
    }
    fprintf(file, "\n%-7s%-16s%-11s%7s %-9s%-14s%4s  %s\n", "NIC", "name",
            "kind", "Gb/s", "state", "PCI", "NUMA", "rate");
    for (int i = 0; i < paths->nic_count; i++) {
        char id[WEFTI_TOPO_ID_BYTES], numa[16];
        const wefti_device *d = &report->topo->devices[paths->nics[i]];
        bool down = d->nic.state == WEFTI_NIC_DOWN;
        fprintf(file, "%-7s%-15.15s %-11s%7.4g %s%-9s%s%-13.13s %4s  %s\n",
                wefti_topo_id(report->topo, paths->nics[i], id), d->name,
                wefti_nic_kind_text(d->nic.kind), d->nic.gbps,
                colour && down ? "\033[31m" : "",
                wefti_nic_state_text(d->nic.state),
                colour && down ? "\033[0m" : "", d->pci.bus,
                numa_text(report->topo, paths->nics[i], numa), rate_text(d));
    }
}

/* Rows of GPUs from first_gpu on, columns of GPUs and of NICs. */
typedef struct table {
    int first_gpu, gpu_count;   /* rows */
    int first_peer, peer_count; /* GPUs */
    int first_nic, nic_count;
    int width; /* of a column */
} table;

/* "XGMI" takes one more than others. */
static int column_width(const wefti_paths *paths)
{
    bool xgmi = false;
    for (int i = 0; i < paths->topo->link_count; i++) {
        xgmi |= paths->topo->links[i].type == WEFTI_LINK_XGMI;
    }
    return xgmi ? 5 : 4;
}

static void print_table(const wefti_paths *paths, const table *t, FILE *file)
{
    fprintf(file, "%6s", "");
    for (int b = 0; b < t->peer_count; b++) {
        fprintf(file, "g%-*d", t->width - 1, t->first_peer + b);
    }
    for (int b = 0; b < t->nic_count; b++) {
        fprintf(file, "n%-*d", t->width - 1, t->first_nic + b);
    }
    for (int a = t->first_gpu; a < t->first_gpu + t->gpu_count; a++) {
        fprintf(file, "\ngpu%-3d", a);
        for (int b = 0; b < t->peer_count; b++) {
            int peer = t->first_peer + b;
            wefti_path path = wefti_path_gpu_gpu(paths, a, peer);
            fprintf(file, "%-*s", t->width,
                    a == peer ? "-" : wefti_path_type_text(path.type));
        }
        for (int b = 0; b < t->nic_count; b++) {
            wefti_path path = wefti_path_gpu_nic(paths, a, t->first_nic + b);
            fprintf(file, "%-*s", t->width, wefti_path_type_text(path.type));
        }
    }
    fputc('\n', file);
}

/* To the ports of its own host, as many at a time as the columns hold. */
static void print_ports(const wefti_paths *paths, int host, int gpu_count,
                        FILE *file)
{
    const wefti_host_paths *h = &paths->hosts[host];
    int width = column_width(paths), most = (COLUMNS - 6) / width;
    for (int nic = 0; nic < h->nic_count && gpu_count > 0; nic += most) {
        int left = h->nic_count - nic;
        const table ports = {.first_gpu = h->first_gpu,
                             .gpu_count = gpu_count,
                             .first_nic = h->first_nic + nic,
                             .nic_count = left < most ? left : most,
                             .width = width};
        fputc('\n', file);
        print_table(paths, &ports, file);
    }
}

static void print_matrix(const wefti_report *report, FILE *file)
{
    const wefti_paths *paths = report->paths;
    int gpus = paths->gpu_count, nics = paths->nic_count;
    int width = column_width(paths), most = (COLUMNS - 6) / width;
    most = most < MATRIX_MOST ? most : MATRIX_MOST;
    if (gpus == 0) {
        return;
    }
    bool all = gpus <= most;
    if (!all) {
        gpus = paths->hosts[report->host].gpu_count;
        gpus = gpus > most ? most : gpus;
    }
    bool fits = all && width * (gpus + nics) + 6 <= COLUMNS;
    table t = {.gpu_count = gpus,
               .peer_count = gpus,
               .nic_count = fits ? nics : 0,
               .width = width};
    fputs(all ? "\nPaths\n" : "\nPaths of the first GPUs\n", file);
    print_table(paths, &t, file);
    for (int host = 0; host < paths->host_count && !fits; host++) {
        int own = paths->hosts[host].gpu_count;
        if (all || host == report->host) {
            print_ports(paths, host, own < gpus ? own : gpus, file);
        }
    }
}

/* One ring, over as many lines as it takes. */
static void print_order(const wefti_rings *rings, int ring, int width,
                        FILE *file)
{
    const int *order = rings->orders + ring * rings->gpu_count;
    char nic[48] = "";
    if (rings->nics[ring] != rings->exits[ring]) {
        snprintf(nic, sizeof(nic), "  nic%d to nic%d", rings->nics[ring],
                 rings->exits[ring]);
    } else if (rings->nics[ring] >= 0) {
        snprintf(nic, sizeof(nic), "  by nic%d", rings->nics[ring]);
    }
    int column = fprintf(file, "%4s", "");
    for (int i = 0; i < rings->gpu_count; i++) {
        if (column + width > COLUMNS) {
            column = fprintf(file, "\n%6s", "") - 1;
        }
        column += fprintf(file, "%*d", width, order[i]);
    }
    if (column + (int)strlen(nic) > COLUMNS) {
        fprintf(file, "\n%4s", "");
    }
    fprintf(file, "%s\n", nic);
}

/* Of several hosts: which one's they are, or which NVLink domain's. */
static void print_ring_hosts(const wefti_report *report, int host,
                             const char *before, FILE *file)
{
    const wefti_paths *paths = report->paths;
    const wefti_clique *c = &paths->cliques[paths->host_cliques[host]];
    if (c->host_count > 1) {
        fprintf(file, "%s%d hosts from host%d on, one NVLink domain", before,
                c->host_count, host);
    } else if (paths->host_count > 1) { /* they may differ */
        fprintf(file, "%shost%d", before, host);
    }
}

static void print_rings(const char *what, const wefti_rings *rings, FILE *file)
{
    if (rings->channels == 0) {
        return;
    }
    fprintf(file, "%-22s%2d x %-5.4g GB/s = %-6.4g type %s", what,
            rings->channels, rings->GBps, rings->channels * rings->GBps,
            wefti_path_type_text(rings->type));
    if (rings->nic_type != WEFTI_PATH_DIS) {
        fprintf(file, ", to NICs %s", wefti_path_type_text(rings->nic_type));
    }
    fprintf(file, ", %.0f%% used\n", 100 * rings->most_use);
    int width = rings->gpu_count > 100 ? 4 : rings->gpu_count > 10 ? 3 : 2;
    for (int r = 0; r < rings->distinct && rings->gpu_count > 1 && r < 4; r++) {
        print_order(rings, r, width, file);
    }
    if (rings->distinct > 4) {
        fprintf(file, "    and %d more orders\n", rings->distinct - 4);
    }
}

static void print_warnings(const wefti_topo *topo, bool colour, FILE *file)
{
    if (topo->warning_count == 0) {
        return;
    }
    fprintf(file, "\n%sWarnings%s\n", colour ? "\033[33m" : "",
            colour ? "\033[0m" : "");
    for (int i = 0; i < topo->warning_count; i++) {
        const wefti_topo_warning *w = &topo->warnings[i];
        int column = fprintf(file, "%3d", w->code);
        char text[512];
        snprintf(text, sizeof(text), "%s: %s", w->device, w->text);
        wefti_report_wrap(text, 4, column, file);
    }
    if (topo->warnings_left_out > 0) {
        fprintf(file, "    and %d more\n", topo->warnings_left_out);
    }
}

void wefti_report_print(const wefti_report *report, bool colour, FILE *file)
{
    const wefti_topo *topo = report->topo;
    const int *counts = topo->kind_counts;
    wefti_report_wrap(topo->source, 4, 0, file);
    fprintf(file, " hosts %d, NUMA nodes %d, GPUs %d, NICs %d, NVSwitches %d\n",
            counts[WEFTI_TOPO_HOST], counts[WEFTI_TOPO_NUMA],
            counts[WEFTI_TOPO_GPU], counts[WEFTI_TOPO_NIC], topo->switch_chips);
    if (counts[WEFTI_TOPO_GPU] > 0) {
        print_gpus(report, file);
    }
    print_nics(report, colour, file);
    print_matrix(report, file);
    if (report->rings.channels > 0 || report->net.channels > 0) {
        fprintf(file, "\nChannels");
        print_ring_hosts(report, report->host, " of ", file);
        if (report->net_host != report->host && report->net.channels > 0) {
            print_ring_hosts(report, report->net_host, "; over hosts, of ",
                             file);
        }
        fprintf(file, ", by NCCL's table of link rates\n");
        print_rings("rings in a host", &report->rings, file);
        print_rings("chains for trees", &report->chains, file);
        print_rings("rings over hosts", &report->net, file);
        print_rings("trees over hosts", &report->net_chains, file);
    }
    print_warnings(topo, colour, file);
}
