/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/report_paths.c - what lies between GPUs, and between GPUs and NICs, as a
 * matrix like that of nvidia-smi topo -m, and what its words mean.
 */
#include "topo/report_text.h"

#include <ctype.h>
#include <string.h>

#define GPUS_MOST 16 /* of a host whose paths are shown */
#define ROW_HEAD  7

/* The words used in the cells, for the legend. */
static const struct {
    const char *word, *meaning;
} meanings[] = {{"X", "itself"},
                {"NV#", "# NVLinks, direct or by NVSwitches"},
                {"NVL", "NVLinks"},
                {"XGMI", "xGMI (Infinity Fabric) links"},
                {"NVB", "two links through one GPU"},
                {"C2C", "chip to chip"},
                {"PIX", "one PCIe switch"},
                {"PXB", "several PCIe switches"},
                {"P2C", "C2C, then PCIe"},
                {"PXN", "by another GPU's NVLinks"},
                {"PHB", "the host bridge of a CPU"},
                {"SYS", "between NUMA nodes"},
                {"NET", "the network"},
                {"DIS", "no path"}};
enum { MEANING_COUNT = sizeof(meanings) / sizeof(meanings[0]) };

typedef struct matrix {
    const wefti_report *report;
    FILE *file;
    int gpu_width, nic_width; /* of a column */
    bool used[MEANING_COUNT];
} matrix;

static void note(matrix *m, const char *word)
{
    bool counted =
        strncmp(word, "NV", 2) == 0 && isdigit((unsigned char)word[2]);
    for (int i = 0; i < MEANING_COUNT; i++) {
        m->used[i] |= strcmp(meanings[i].word, counted ? "NV#" : word) == 0;
    }
}

static const char *gpu_cell(const matrix *m, int a, int b,
                            char text[WEFTI_PAIR_TEXT_BYTES])
{
    return wefti_pair_links_text(m->report->pairs, a, b, text);
}

static const char *nic_cell(const matrix *m, int gpu, int nic)
{
    return wefti_path_type_text(
        wefti_path_gpu_nic(m->report->paths, gpu, nic).type);
}

/* Rows of GPUs, columns of GPUs and of NICs, all of one host. */
typedef struct table {
    int first_gpu, gpu_count; /* rows */
    int first_peer, peer_count;
    int first_nic, nic_count;
} table;

static void print_table(matrix *m, const table *t)
{
    fprintf(m->file, "\n%*s", ROW_HEAD, "");
    for (int i = 0; i < t->peer_count; i++) {
        fprintf(m->file, "g%-*d", m->gpu_width - 1, t->first_peer + i);
    }
    for (int i = 0; i < t->nic_count; i++) {
        fprintf(m->file, "n%-*d", m->nic_width - 1, t->first_nic + i);
    }
    for (int row = 0; row < t->gpu_count; row++) {
        int a = t->first_gpu + row;
        fprintf(m->file, "\ngpu%-*d", ROW_HEAD - 3, a);
        for (int i = 0; i < t->peer_count; i++) {
            char text[WEFTI_PAIR_TEXT_BYTES];
            const char *cell = gpu_cell(m, a, t->first_peer + i, text);
            note(m, cell);
            fprintf(m->file, "%-*s", m->gpu_width, cell);
        }
        for (int i = 0; i < t->nic_count; i++) {
            const char *cell = nic_cell(m, a, t->first_nic + i);
            note(m, cell);
            fprintf(m->file, "%-*s", m->nic_width, cell);
        }
    }
    fputc('\n', m->file);
}

static int digits(int number)
{
    int count = 1;
    for (; number > 9; number /= 10) {
        count++;
    }
    return count;
}

/* What the longest word of that host needs, and a blank. */
static void find_widths(matrix *m, const wefti_host_paths *host, int gpus)
{
    m->gpu_width = m->nic_width = 4;
    for (int a = 0; a < gpus; a++) {
        for (int b = 0; b < gpus; b++) {
            char text[WEFTI_PAIR_TEXT_BYTES];
            int bytes = (int)strlen(
                gpu_cell(m, host->first_gpu + a, host->first_gpu + b, text));
            m->gpu_width = bytes + 1 > m->gpu_width ? bytes + 1 : m->gpu_width;
        }
    }
    int widest = digits(host->first_gpu + gpus) + 2;
    m->gpu_width = widest > m->gpu_width ? widest : m->gpu_width;
    widest = digits(host->first_nic + host->nic_count) + 2;
    m->nic_width = widest > m->nic_width ? widest : m->nic_width;
}

/* One host: one table, or as many as the columns make of it. */
static void print_host(matrix *m, const wefti_host_paths *host)
{
    int gpus = host->gpu_count < GPUS_MOST ? host->gpu_count : GPUS_MOST;
    int nics = host->nic_count < WEFTI_REPORT_ROWS_MOST
                   ? host->nic_count
                   : WEFTI_REPORT_ROWS_MOST;
    int room = WEFTI_REPORT_COLUMNS - ROW_HEAD;
    table t = {.first_gpu = host->first_gpu,
               .gpu_count = gpus,
               .first_peer = host->first_gpu,
               .first_nic = host->first_nic};
    find_widths(m, host, gpus);
    if (gpus * m->gpu_width + nics * m->nic_width <= room) {
        t.peer_count = gpus;
        t.nic_count = nics;
        print_table(m, &t);
        return;
    }
    for (int at = 0, most = room / m->gpu_width; at < gpus; at += most) {
        t.first_peer = host->first_gpu + at;
        t.peer_count = gpus - at < most ? gpus - at : most;
        print_table(m, &t);
    }
    t.peer_count = 0;
    for (int at = 0, most = room / m->nic_width; at < nics; at += most) {
        t.first_nic = host->first_nic + at;
        t.nic_count = nics - at < most ? nics - at : most;
        print_table(m, &t);
    }
}

static void print_legend(matrix *m)
{
    char text[800];
    int used = 0;
    for (int i = 0; i < MEANING_COUNT; i++) {
        if (m->used[i]) {
            used += snprintf(text + used, sizeof(text) - (size_t)used,
                             "%s%s: %s", used ? "; " : "", meanings[i].word,
                             meanings[i].meaning);
        }
    }
    fputc('\n', m->file);
    wefti_report_wrap(text, 3, fprintf(m->file, "   "), m->file);
}

/* What the first GPUs of hosts have between them, each word once. */
static void print_between(matrix *m)
{
    const wefti_paths *paths = m->report->paths;
    char seen[8][WEFTI_PAIR_TEXT_BYTES];
    int count = 0, from = -1;
    for (int host = 0; host < paths->host_count; host++) {
        const wefti_host_paths *h = &paths->hosts[host];
        char text[WEFTI_PAIR_TEXT_BYTES];
        if (h->gpu_count == 0) {
            continue;
        }
        if (from < 0) {
            from = h->first_gpu;
            continue;
        }
        const char *cell = gpu_cell(m, from, h->first_gpu, text);
        int at = 0;
        while (at < count && strcmp(seen[at], cell) != 0) {
            at++;
        }
        if (at == count && count < 8) {
            snprintf(seen[count++], sizeof(seen[0]), "%s", cell);
        }
        note(m, cell);
    }
    for (int i = 0; i < count; i++) {
        fprintf(m->file, i ? ", %s" : "\nbetween hosts: %s", seen[i]);
    }
    fputs(count ? "\n" : "", m->file);
}

void wefti_report_print_paths(const wefti_report *report, FILE *file)
{
    const wefti_paths *paths = report->paths;
    matrix m = {.report = report, .file = file};
    if (paths->gpu_count == 0) {
        return;
    }
    for (int i = 0; i < wefti_report_classes_shown(report); i++) {
        const wefti_host_paths *host = &paths->hosts[report->classes.first[i]];
        char name[48];
        if (host->gpu_count == 0) {
            continue;
        }
        fputs("\nPaths", file);
        if (paths->host_count > 1) {
            fprintf(file, " in %s", wefti_report_class_text(report, i, name));
        }
        if (host->gpu_count > GPUS_MOST) {
            fprintf(file, ", of the first %d GPUs", GPUS_MOST);
        }
        print_host(&m, host);
    }
    if (paths->host_count > 1) {
        print_between(&m);
    }
    print_legend(&m);
}
