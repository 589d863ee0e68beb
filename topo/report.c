/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/report.c - what a report is made of, and its text for people.
 */
#include "topo/report.h"

#include "base/error.h"
#include "topo/report_text.h"
#include "topo/twins.h"
#include "topo/worst.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS WEFTI_REPORT_COLUMNS

/* What follows from the paths alone. */
static weft_status derive(wefti_report *report)
{
    weft_status status =
        wefti_host_classes_init(&report->classes, report->paths);
    if (status == WEFT_OK) {
        status = wefti_gpu_numbers_list(report->paths, &report->numbers);
    }
    if (status == WEFT_OK) {
        status = wefti_pair_links_create(report->paths, &report->pairs);
    }
    if (status == WEFT_OK) {
        report->uplinks = wefti_topo_uplinks(report->topo);
        status = report->uplinks ? WEFT_OK
                                 : wefti_error(WEFT_ERR_NO_MEMORY, "links");
    }
    if (status == WEFT_OK) {
        status = wefti_warning_groups_list(report->topo, &report->groups,
                                           &report->group_count);
    }
    return status;
}

/* Of the hosts whose rings carry least. */
static weft_status plan_rings(wefti_report *report, wefti_topo *topo)
{
    wefti_worst worst;
    const wefti_paths *paths = report->paths;
    weft_status status = wefti_worst_find(paths, topo, &worst);
    if (status != WEFT_OK || worst.host < 0) {
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
    if (status == WEFT_OK) {
        wefti_worst_warn_fallback(paths, topo, report->host, &report->rings);
    }
    return status;
}

weft_status wefti_report_init(wefti_report *report, wefti_topo *topo)
{
    *report = (wefti_report){.topo = topo, .host = -1, .net_host = -1};
    if (topo->kind_counts[WEFTI_TOPO_HOST] > 1) {
        wefti_twins_compare(topo, true);
    }
    weft_status status = wefti_paths_create(topo, &report->paths);
    if (status == WEFT_OK) {
        status = plan_rings(report, topo);
    }
    if (status == WEFT_OK) {
        status = derive(report); /* all has been warned of by now */
    }
    if (status != WEFT_OK) {
        wefti_report_fini(report);
    }
    return status;
}

void wefti_report_fini(wefti_report *report)
{
    wefti_rings_fini(&report->rings);
    wefti_rings_fini(&report->chains);
    wefti_rings_fini(&report->net);
    wefti_rings_fini(&report->net_chains);
    wefti_host_classes_fini(&report->classes);
    wefti_pair_links_destroy(report->pairs);
    free(report->uplinks);
    free(report->numbers);
    free(report->groups);
    wefti_paths_destroy(report->paths);
    *report = (wefti_report){.host = -1, .net_host = -1};
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
        while (word > 1 && ((unsigned char)text[word] & 0xc0) == 0x80) {
            word--; /* not inside a character */
        }
        fprintf(file, " %.*s", word, text);
        column += word + 1;
        text += word + (text[word] == ' ');
    }
    fputc('\n', file);
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
static void name_ring_hosts(const wefti_report *report, int host, char text[64])
{
    const wefti_paths *paths = report->paths;
    const wefti_clique *c = &paths->cliques[paths->host_cliques[host]];
    text[0] = '\0';
    if (c->host_count > 1) {
        snprintf(text, 64, "of %d hosts from host%d on, one NVLink domain",
                 c->host_count, host);
    } else if (paths->host_count > 1) { /* they may differ */
        snprintf(text, 64, "of host%d", host);
    }
}

static void print_ring_head(const wefti_report *report, FILE *file)
{
    char text[200], inside[64], over[64] = "";
    name_ring_hosts(report, report->host, inside);
    if (report->net_host != report->host && report->net.channels > 0) {
        name_ring_hosts(report, report->net_host, over);
    }
    snprintf(text, sizeof(text), "%s%s%s, by NCCL's table of link rates",
             inside, over[0] ? "; over hosts, " : "", over);
    fputs("\nChannels", file);
    if (inside[0]) {
        wefti_report_wrap(text, 3, 8, file);
    } else {
        fprintf(file, "%s\n", text);
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

static void print_warnings(const wefti_report *report, bool colour, FILE *file)
{
    static const char *const colours[] = {"\033[31m", "\033[33m", ""};
    if (report->topo->warning_count == 0) {
        return;
    }
    fprintf(file, "\n%sWarnings%s\n", colour ? "\033[33m" : "",
            colour ? "\033[0m" : "");
    for (int i = 0; i < report->group_count; i++) {
        const wefti_warning_group *group = &report->groups[i];
        const char *mark = colours[group->severity];
        char text[512], count[24] = "";
        if (group->count > 1) {
            snprintf(count, sizeof(count), " (%d times)", group->count);
        }
        snprintf(text, sizeof(text), "%s%s: %s", group->devices, count,
                 group->text);
        int column = fprintf(file, "%s%3d%s", colour ? mark : "", group->code,
                             colour && mark[0] ? "\033[0m" : "");
        column = column > 3 ? 3 : column;
        wefti_report_wrap(text, 4, column, file);
    }
    if (report->topo->warnings_left_out > 0) {
        fprintf(file, "    and %d more\n", report->topo->warnings_left_out);
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
    wefti_report_print_devices(report, colour, file);
    wefti_report_print_paths(report, file);
    if (report->rings.channels > 0 || report->net.channels > 0) {
        print_ring_head(report, file);
        print_rings("rings in a host", &report->rings, file);
        print_rings("chains for trees", &report->chains, file);
        print_rings("rings over hosts", &report->net, file);
        print_rings("trees over hosts", &report->net_chains, file);
    } else if (wefti_rings_too_large(&report->rings)) {
        fprintf(file,
                "\nChannels: none planned, NVLink or a host joins %d GPUs and "
                "rings\nare searched over at most %d\n",
                report->rings.gpu_count, WEFTI_RING_GPUS_MOST);
    }
    print_warnings(report, colour, file);
}
