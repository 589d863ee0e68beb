/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/cost.c - sizes of a problem, and the time that counts come to.
 */
#include "comm/pattern/cost.h"

#include "comm/pattern/shape.h"

#include <stdint.h>

/* That the processors of a node share, taken for this much. */
enum { CACHE_BYTES = 8 << 20 };

/* Ranks of a group of the outermost level inside hosts. */
static double inner_of(const wefti_problem *problem, const wefti_sizes *sizes)
{
    const wefti_nest *nest = problem->nest;
    for (int level = nest ? nest->level_count - 1 : -1; level >= 0; level--) {
        if (nest->levels[level].group_count > sizes->hosts) {
            return sizes->ranks / nest->levels[level].group_count;
        }
    }
    return sizes->locals;
}

/* What the levels of a host's sum are like. */
static void count_sums(const wefti_problem *problem, wefti_sizes *sizes)
{
    const wefti_nest *sums = wefti_problem_sums(problem);
    int inside = 0; /* the outermost level inside hosts */
    if (!sums) {
        return;
    }
    while (inside + 1 < sums->level_count &&
           sums->levels[inside + 1].group_count > sizes->hosts) {
        inside++;
    }
    sizes->adding = sizes->ranks / sums->levels[0].group_count;
    sizes->sums = sums->levels[inside].group_count / sizes->hosts;
}

wefti_total wefti_total_of(const size_t *counts, int nranks)
{
    wefti_total total = {0, 0};
    for (int rank = 0; rank < nranks; rank++) {
        total.elems += counts[rank];
        total.longest =
            counts[rank] > total.longest ? counts[rank] : total.longest;
    }
    return total;
}

wefti_sizes wefti_sizes_of(const wefti_problem *problem, size_t elem_bytes,
                           size_t wide_bytes)
{
    const wefti_grouping *grouping = problem->grouping;
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    bool parts = shape->send_parts || shape->recv_parts;
    const size_t *counts =
        problem->recv_counts ? problem->recv_counts : problem->send_counts;
    wefti_sizes sizes = {.ranks = problem->nranks,
                         .hosts = problem->apart ? problem->nranks : 1};
    if (grouping) {
        sizes.hosts = grouping->host_count;
    }
    sizes.locals = sizes.ranks / sizes.hosts;
    sizes.inner = inner_of(problem, &sizes);
    sizes.wide = (double)wide_bytes / (double)elem_bytes;
    count_sums(problem, &sizes);
    sizes.bytes = (double)problem->count * (parts ? sizes.ranks : 1);
    sizes.longest = sizes.bytes / sizes.ranks;
    if (counts) {
        const wefti_total total = wefti_total_of(counts, problem->nranks);
        sizes.bytes = (double)total.elems;
        sizes.longest = (double)total.longest;
    }
    sizes.bytes *= (double)elem_bytes;
    sizes.longest *= (double)elem_bytes;
    sizes.chunk_bytes = (double)problem->chunk_elems * (double)elem_bytes;
    return sizes;
}

double wefti_sizes_chunks(const wefti_sizes *sizes, double bytes)
{
    double chunks = bytes / sizes->chunk_bytes;
    double whole = (double)(uint64_t)chunks;
    return chunks <= 1 ? 1 : whole + (chunks > whole);
}

double wefti_cost_depth(double nodes)
{
    double depth = 0;
    for (double reached = 1; reached < nodes; reached *= 2) {
        depth++;
    }
    return depth;
}

void wefti_cost_hops(wefti_cost *cost, const wefti_sizes *sizes, double hops)
{
    if (sizes->hosts > 1) {
        cost->network_hops += hops;
    } else {
        cost->local_hops += hops;
    }
}

void wefti_cost_to_each(wefti_cost *cost, const wefti_sizes *sizes,
                        double times)
{
    cost->local_messages += times * (sizes->locals - 1);
    cost->network_messages += times * (sizes->ranks - sizes->locals);
}

void wefti_cost_to_all(wefti_cost *cost, const wefti_sizes *sizes, double times)
{
    cost->local_messages += sizes->locals > 1 ? times : 0;
    cost->network_messages += times * (sizes->ranks - sizes->locals);
}

void wefti_cost_from_each(wefti_cost *cost, const wefti_sizes *sizes,
                          double times)
{
    wefti_cost_to_each(cost, sizes, times);
}

/* Of so many bytes that a rank reads, those of other nodes. */
static double from_outside(const wefti_sizes *sizes, double bytes)
{
    double others = sizes->locals - sizes->inner;
    return others > 0 ? bytes * others / (sizes->locals - 1) : 0;
}

/* How often what all of a node read crosses into it. */
static double times_read(const wefti_sizes *sizes, double bytes)
{
    return bytes > CACHE_BYTES ? sizes->inner : 1;
}

void wefti_cost_reads(wefti_cost *cost, const wefti_sizes *sizes, double bytes)
{
    cost->border_bytes += sizes->inner * from_outside(sizes, bytes);
}

void wefti_cost_reads_alike(wefti_cost *cost, const wefti_sizes *sizes,
                            double bytes)
{
    cost->border_bytes += times_read(sizes, bytes) * from_outside(sizes, bytes);
}

void wefti_cost_reads_one(wefti_cost *cost, const wefti_sizes *sizes,
                          double bytes)
{
    if (sizes->inner < sizes->locals) {
        cost->border_bytes += times_read(sizes, bytes) * bytes;
    }
}

void wefti_cost_root_reads(wefti_cost *cost, const wefti_sizes *sizes,
                           double bytes)
{
    cost->border_bytes += (sizes->locals - sizes->inner) * bytes;
}

/*
 * Work on the link, on the border and on the processor go on side by side once
 * there are chunks enough; the first chunk goes through all.
 */
double wefti_cost_ns(const wefti_cost *cost, const wefti_rates *rates,
                     double chunks)
{
    double latency = cost->local_hops * rates->local_latency_ns +
                     cost->network_hops * rates->network_latency_ns;
    double work = cost->local_messages * rates->local_message_ns +
                  cost->network_messages * rates->network_message_ns +
                  cost->copied_bytes * rates->copy_byte_ns +
                  cost->reduced_bytes * rates->reduce_byte_ns;
    double link = cost->link_bytes * rates->network_byte_ns;
    double border = cost->border_bytes * rates->border_byte_ns;
    double longer = work > link ? work : link;
    double shorter = work > link ? link : work;
    double longest = longer > border ? longer : border;
    double rest = shorter + (longer > border ? border : longer);
    return latency + longest + rest / chunks;
}
