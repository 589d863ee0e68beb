/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/cost.h - what an algorithm does, counted on each level: patterns
 * count, and rates make time of it.
 *
 *      hops       one after another on the longest way of one chunk
 *      messages   that the busiest rank sends or reads
 *      bytes      that it copies, and that it adds up (of each source)
 *      link       bytes through the busiest host's link, the fuller way of two
 *      border     bytes into a host's NUMA node (level of a nest inside hosts)
 *                 from its others, which read them all at once
 *
 * Ranks are taken as spread evenly over the hosts, parts as equal but for the
 * rounds of the longest, and trees as over ranks in the hosts' order. All is
 * arithmetic of doubles that every rank does in the same order, so that all
 * come to the same sum.
 *
 * Source: the model of Hockney 1994 (latency and bandwidth), with a term for
 * each message as in LogP (Culler et al. 1993).
 */
#ifndef COMM_PATTERN_COST_H
#define COMM_PATTERN_COST_H

#include "comm/pattern/pattern.h"

struct wefti_cost {
    double local_hops, network_hops;
    double local_messages, network_messages;
    double copied_bytes, reduced_bytes;
    double link_bytes, border_bytes;
};

/*
 * Nanoseconds: until a message is read, nothing in its way; of a rank, for each
 * message; for a byte. byte_ns of the network is that of a host's link, which
 * its ranks share, and of the border that of a node's, which its ranks share.
 */
typedef struct wefti_rates {
    double local_latency_ns, network_latency_ns;
    double local_message_ns, network_message_ns;
    double copy_byte_ns, reduce_byte_ns, network_byte_ns, border_byte_ns;
} wefti_rates;

/* The problem as costs see it; bytes of the whole buffer of all parts, or of
 * the only one. */
struct wefti_sizes {
    double bytes;
    double longest; /* bytes of the longest part: of as many rounds as chunks */
    double ranks, hosts, locals; /* locals: of one host */
    double inner; /* ranks of one node, where hosts have several; else locals */
    double adding, sums; /* ranks that first add up what they have, and how many
                            sums of a host's meet; 0: sums know no levels */
    double wide;         /* bytes of an unfinished sum for one of its type */
    double chunk_bytes;
};

/* Elements of all parts of a v form, and of the longest. */
typedef struct wefti_total {
    size_t elems, longest;
} wefti_total;

wefti_total wefti_total_of(const size_t *counts, int nranks);

wefti_sizes wefti_sizes_of(const wefti_problem *problem, size_t elem_bytes,
                           size_t wide_bytes);

/* Messages of one stream of so many bytes: at least one. */
double wefti_sizes_chunks(const wefti_sizes *sizes, double bytes);

/* Hops of a binomial tree over so many. */
double wefti_cost_depth(double nodes);

/* So many hops from any rank to any other. */
void wefti_cost_hops(wefti_cost *cost, const wefti_sizes *sizes, double hops);

/* So often: one message to each other rank on its own, or one that all of the
 * host read; one from each. */
void wefti_cost_to_each(wefti_cost *cost, const wefti_sizes *sizes,
                        double times);
void wefti_cost_to_all(wefti_cost *cost, const wefti_sizes *sizes,
                       double times);
void wefti_cost_from_each(wefti_cost *cost, const wefti_sizes *sizes,
                          double times);

/*
 * Each rank reads so many bytes of its host's other ranks, as many of each: all
 * others than the rest of its node; the same as these, which cross once where a
 * node's cache keeps them; or the same, of one rank. Or one rank alone reads so
 * many of each other.
 */
void wefti_cost_reads(wefti_cost *cost, const wefti_sizes *sizes, double bytes);
void wefti_cost_reads_alike(wefti_cost *cost, const wefti_sizes *sizes,
                            double bytes);
void wefti_cost_reads_one(wefti_cost *cost, const wefti_sizes *sizes,
                          double bytes);
void wefti_cost_root_reads(wefti_cost *cost, const wefti_sizes *sizes,
                           double bytes);

/* What it takes; chunks: how many go through one after another. */
double wefti_cost_ns(const wefti_cost *cost, const wefti_rates *rates,
                     double chunks);

/* That of wefti_pattern_hierarchical. */
void wefti_hierarchical_cost(const wefti_problem *problem,
                             const wefti_sizes *sizes, wefti_cost *cost_out);
/* That of wefti_pattern_nested, and of _nested_sums. */
void wefti_nested_cost(const wefti_problem *problem, const wefti_sizes *sizes,
                       wefti_cost *cost_out);

#endif
