/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/twins.c - links of each GPU against those of its model.
 */
#include "topo/twins.h"

#include "topo/assemble.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MODELS_MOST 64 /* of GPUs; further ones are not compared */
#define COUNTS_MOST 1024

/* One model: a GPU of it, and how many have each number of links. */
typedef struct model {
    int gpu;
    int votes[COUNTS_MOST];
    int usual;
    double GBps; /* most that all links of one carry */
} model;

typedef struct twins {
    int count;
    model *models;
    int *of;     /* of each device; -1: no GPU */
    int *counts; /* links to other GPUs or switches */
    double *GBps;
} twins;

bool wefti_twins_are(const wefti_device *a, const wefti_device *b)
{
    return a->kind == WEFTI_TOPO_GPU && b->kind == WEFTI_TOPO_GPU &&
           a->gpu.sm == b->gpu.sm && a->gpu.amd == b->gpu.amd &&
           strcmp(a->name, b->name) == 0;
}

static void add_link(twins *t, int device, const wefti_topo_link *link)
{
    t->counts[device] += link->count;
    t->GBps[device] += link->count > 0 ? link->GBps : 0;
}

static int model_of(const wefti_topo *topo, twins *t, int gpu)
{
    int at = 0;
    while (at < t->count && !wefti_twins_are(&topo->devices[t->models[at].gpu],
                                             &topo->devices[gpu])) {
        at++;
    }
    if (at == t->count && at < MODELS_MOST) {
        t->models[t->count++].gpu = gpu;
    }
    return at < t->count ? at : -1;
}

/* What most have; the higher of two numbers that are as frequent. */
static void vote(const wefti_topo *topo, twins *t)
{
    for (int i = 0; i < topo->device_count; i++) {
        t->of[i] =
            topo->devices[i].kind == WEFTI_TOPO_GPU ? model_of(topo, t, i) : -1;
        if (t->of[i] >= 0) {
            model *m = &t->models[t->of[i]];
            m->GBps = fmax(m->GBps, t->GBps[i]);
            m->votes[t->counts[i] < COUNTS_MOST ? t->counts[i] : 0]++;
        }
    }
    for (int i = 0; i < t->count; i++) {
        model *m = &t->models[i];
        for (int count = 0; count < COUNTS_MOST; count++) {
            bool more =
                m->votes[count] > 0 && m->votes[count] >= m->votes[m->usual];
            m->usual = more ? count : m->usual;
        }
    }
}

/* AMD's boards join their GPUs unevenly, in two kinds of places; of one that is
 * broken there are fewer than of the others. */
static bool is_by_design(const wefti_topo *topo, const model *m, int gpu,
                         int count)
{
    int own = count < COUNTS_MOST ? m->votes[count] : 0;
    return topo->devices[gpu].gpu.amd && count > 0 && own >= 2 &&
           own == m->votes[m->usual];
}

static bool has_warning(const wefti_topo *topo, int code, const char *label)
{
    for (int i = 0; i < topo->warning_count; i++) {
        if (topo->warnings[i].code == code &&
            strcmp(topo->warnings[i].device, label) == 0) {
            return true;
        }
    }
    return false;
}

static void compare(wefti_topo *topo, const twins *t, int gpu, bool rates)
{
    const model *m = &t->models[t->of[gpu]];
    int count = t->counts[gpu];
    char label[64];
    if (count != m->usual && !is_by_design(topo, m, gpu, count)) {
        wefti_topo_warn(topo, 4, wefti_topo_label(topo, gpu, label),
                        "%d links to other GPUs or switches, its twins "
                        "have %d",
                        count, m->usual);
    } else if (rates && count == m->usual && t->GBps[gpu] < 0.95 * m->GBps &&
               !topo->devices[gpu].gpu.amd &&
               !has_warning(topo, 5, wefti_topo_label(topo, gpu, label))) {
        wefti_topo_warn(topo, 5, label,
                        "its %d links carry %.4g GB/s together, its twins' "
                        "%.4g",
                        count, t->GBps[gpu], m->GBps);
    }
}

void wefti_twins_compare(wefti_topo *topo, bool rates)
{
    size_t devices = (size_t)topo->device_count + 1;
    twins t = {.models = calloc(MODELS_MOST, sizeof(*t.models)),
               .of = calloc(devices, sizeof(*t.of)),
               .counts = calloc(devices, sizeof(*t.counts)),
               .GBps = calloc(devices, sizeof(*t.GBps))};
    if (!t.models || !t.of || !t.counts || !t.GBps) {
        topo->out_of_memory = true;
    } else {
        for (int i = 0; i < topo->link_count; i++) {
            const wefti_topo_link *link = &topo->links[i];
            if (link->type == WEFTI_LINK_NVL || link->type == WEFTI_LINK_XGMI) {
                add_link(&t, link->a, link);
                add_link(&t, link->b, link);
            }
        }
        vote(topo, &t);
        for (int i = 0; i < topo->device_count; i++) {
            if (t.of[i] >= 0) {
                compare(topo, &t, i, rates);
            }
        }
    }
    free(t.models);
    free(t.of);
    free(t.counts);
    free(t.GBps);
}
