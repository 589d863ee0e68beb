/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/probe.c - short measurements; the best of several, since whatever
 * disturbs one makes it slower, never faster.
 */
#include "topo/probe.h"

#include "base/clock.h"
#include "base/error.h"
#include "topo/binding.h"
#include "topo/topo.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPY_BYTES       ((size_t)16 << 20)
#define COPY_ROUNDS      5
#define ROUND_TRIPS      500
#define TRIPS_ROUNDS     20
#define HANDOVER_MOST_US 5.0
#define ROUNDS_APART     2.5 /* the middle one to the shortest */

static int compare_rounds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double wefti_probe_settle(double *rounds, int count, bool *steady)
{
    qsort(rounds, (size_t)count, sizeof(*rounds), compare_rounds);
    if (rounds[count / 2] > ROUNDS_APART * rounds[0]) {
        *steady = false;
    }
    return rounds[0];
}

/* ---- copies ---------------------------------------------------------------
 */

static double copy_GBps(char *to, const char *from, bool *steady)
{
    double rounds_ns[COPY_ROUNDS];
    memcpy(to, from, COPY_BYTES); /* pages */
    for (int i = 0; i < COPY_ROUNDS; i++) {
        int64_t begin = wefti_clock_ns();
        memcpy(to, from, COPY_BYTES);
        rounds_ns[i] = fmax(1, (double)(wefti_clock_ns() - begin));
    }
    return (double)COPY_BYTES /
           wefti_probe_settle(rounds_ns, COPY_ROUNDS, steady);
}

/* A thread on one node that fills a buffer, or copies it on another. */
typedef struct place_job {
    const wefti_topo *topo;
    int numa; /* device */
    char *to, *from;
    double GBps;
    bool fill, steady;
} place_job;

static void *run_on_node(void *arg)
{
    place_job *job = arg;
    const wefti_device *d = &job->topo->devices[job->numa];
    wefti_bound bound = {.numa = d->os_index};
    wefti_cpus allowed;
    wefti_cpus_read(d->cpu.affinity, &bound.cpus);
    if (wefti_cpus_allowed(&allowed) != WEFT_OK) {
        return NULL;
    }
    wefti_cpus_intersect(&bound.cpus, &allowed);
    bound.cpu_count = wefti_cpus_count(&bound.cpus);
    if (bound.cpu_count == 0 || wefti_binding_apply(&bound) != WEFT_OK) {
        return NULL;
    }
    if (job->fill) {
        memset(job->from, 1, COPY_BYTES);
        job->GBps = 1;
    } else {
        job->GBps = copy_GBps(job->to, job->from, &job->steady);
    }
    return NULL;
}

/* Runs one job in a thread of its own, so that the caller stays unbound. */
static bool run_job(place_job *job)
{
    pthread_t thread;
    job->GBps = 0;
    if (pthread_create(&thread, NULL, run_on_node, job) != 0) {
        return false;
    }
    pthread_join(thread, NULL);
    return job->GBps > 0;
}

static void measure_pair(const wefti_topo *topo, int a, int b,
                         wefti_probe *probe)
{
    place_job fill = {.topo = topo, .numa = a, .fill = true};
    place_job copy = {.topo = topo, .numa = b, .steady = true};
    fill.from = copy.from = malloc(COPY_BYTES);
    copy.to = malloc(COPY_BYTES);
    if (fill.from && copy.to && run_job(&fill) && run_job(&copy)) {
        int at = probe->pair_count++;
        probe->pairs[at][0] = topo->devices[a].os_index;
        probe->pairs[at][1] = topo->devices[b].os_index;
        probe->pair_GBps[at] = copy.GBps;
        probe->steady &= copy.steady;
    }
    free(fill.from);
    free(copy.to);
}

static void measure_pairs(const wefti_topo *topo, wefti_probe *probe)
{
    for (int i = 0;
         i < topo->link_count && probe->pair_count < WEFTI_PROBE_PAIRS_MOST;
         i++) {
        const wefti_topo_link *link = &topo->links[i];
        if (link->type == WEFTI_LINK_SYS &&
            topo->devices[link->a].os_index >= 0 &&
            topo->devices[link->b].os_index >= 0) {
            measure_pair(topo, link->a, link->b, probe);
        }
    }
}

/* ---- hand-over ------------------------------------------------------------
 */

/* Two threads, one number: odd belongs to the other. Its release store pairs
 * with the acquire load in the loop. */
typedef struct ball {
    _Alignas(64) atomic_uint value;
    atomic_bool stop;
} ball;

static void *return_ball(void *arg)
{
    ball *b = arg;
    for (;;) {
        unsigned value = atomic_load_explicit(&b->value, memory_order_acquire);
        if (value % 2 == 1) {
            atomic_store_explicit(&b->value, value + 1, memory_order_release);
        } else if (atomic_load_explicit(&b->stop, memory_order_relaxed)) {
            return NULL;
        }
    }
}

/* Microseconds a throw, over one round or until it is given up. */
static double throw_ball(ball *b, int64_t deadline_ns)
{
    int64_t begin = wefti_clock_ns();
    int trips = 0;
    do {
        unsigned value = atomic_load_explicit(&b->value, memory_order_relaxed);
        atomic_store_explicit(&b->value, value + 1, memory_order_release);
        while (atomic_load_explicit(&b->value, memory_order_acquire) ==
               value + 1) {
        }
        trips++;
    } while (trips < ROUND_TRIPS && wefti_clock_ns() < deadline_ns);
    return (double)(wefti_clock_ns() - begin) / 1e3 / trips / 2;
}

static weft_status measure_handover(wefti_probe *probe)
{
    ball b;
    pthread_t thread;
    wefti_cpus allowed;
    weft_status status = wefti_cpus_allowed(&allowed);
    if (status != WEFT_OK || wefti_cpus_count(&allowed) < 2) {
        return status;
    }
    atomic_init(&b.value, 0);
    atomic_init(&b.stop, false);
    int error = pthread_create(&thread, NULL, return_ball, &b);
    if (error != 0) {
        return wefti_error(WEFT_ERR_SYSTEM, "a thread to measure with: %s",
                           strerror(error));
    }
    double rounds_us[TRIPS_ROUNDS];
    int rounds = 0;
    int64_t deadline_ns = wefti_clock_ns() + 100000000;
    while (rounds < TRIPS_ROUNDS && wefti_clock_ns() < deadline_ns) {
        rounds_us[rounds++] = throw_ball(&b, deadline_ns);
    }
    atomic_store_explicit(&b.stop, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    double best =
        rounds > 0 ? wefti_probe_settle(rounds_us, rounds, &probe->steady) : 0;
    /* More than that is a queue for cores, not what lies between them. */
    probe->handover_us = best < HANDOVER_MOST_US ? best : 0;
    probe->steady &= rounds == TRIPS_ROUNDS && probe->handover_us > 0;
    return WEFT_OK;
}

/* ---- all of it ------------------------------------------------------------
 */

static weft_status measure(const wefti_topo *topo, wefti_probe *probe)
{
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    weft_status status = WEFT_OK;
    *probe = (wefti_probe){.steady = true};
    if (!from || !to) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "memory to measure with");
    } else {
        memset(from, 1, COPY_BYTES);
        probe->copy_GBps = copy_GBps(to, from, &probe->steady);
        measure_pairs(topo, probe);
        status = measure_handover(probe);
    }
    free(from);
    free(to);
    return status;
}

weft_status wefti_probe_name(const wefti_topo *topo,
                             char name[WEFTI_PROBE_NAME_BYTES])
{
    unsigned char *bytes;
    size_t byte_count;
    weft_status status = wefti_topo_pack(topo, &bytes, &byte_count);
    if (status != WEFT_OK) {
        return status;
    }
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < byte_count; i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    free(bytes);
    snprintf(name, WEFTI_PROBE_NAME_BYTES, "probe-%016llx",
             (unsigned long long)hash);
    return WEFT_OK;
}

/* One that was kept while there was one core lacks the hand-over. */
static bool is_whole(const wefti_probe *probe)
{
    wefti_cpus allowed;
    return probe->handover_us > 0 || wefti_cpus_allowed(&allowed) != WEFT_OK ||
           wefti_cpus_count(&allowed) < 2;
}

weft_status wefti_probe_run(const wefti_topo *topo, const char *folder,
                            wefti_probe *probe_out)
{
    char name[WEFTI_PROBE_NAME_BYTES], path[PATH_MAX];
    weft_status status = wefti_probe_name(topo, name);
    if (status != WEFT_OK) {
        return status;
    }
    if (folder) {
        int bytes = snprintf(path, sizeof(path), "%s/%s", folder, name);
        if (bytes < (int)sizeof(path) &&
            wefti_probe_load(path, name, probe_out) && is_whole(probe_out)) {
            return WEFT_OK;
        }
    }
    status = measure(topo, probe_out);
    if (status == WEFT_OK && folder && probe_out->steady) {
        wefti_probe_store(folder, name, probe_out);
    }
    return status;
}

void wefti_probe_apply(const wefti_probe *probe, wefti_topo *topo)
{
    for (int i = 0; i < topo->link_count; i++) {
        wefti_topo_link *link = &topo->links[i];
        for (int p = 0; p < probe->pair_count; p++) {
            int a = topo->devices[link->a].os_index;
            int b = topo->devices[link->b].os_index;
            if (link->type == WEFTI_LINK_SYS && a == probe->pairs[p][0] &&
                b == probe->pairs[p][1]) {
                link->GBps = probe->pair_GBps[p];
                link->origin = WEFTI_ORIGIN_MEASURED;
                if (probe->handover_us > 0) {
                    link->latency_us = probe->handover_us;
                    link->latency_origin = WEFTI_ORIGIN_MEASURED;
                }
            }
        }
    }
}
