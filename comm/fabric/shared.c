/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/shared.c - where each cell of the shared memory lies.
 */
#include "comm/fabric/shared.h"

enum {
    PAGE_BYTES = 4096,
    QUEUES = WEFTI_ALL_SLOTS * WEFTI_CHANNELS, /* of messages, of a pair */
    CELLS = QUEUES * WEFTI_DEPTH
};

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* A writer polls one reader's counters: these begin on a line of their own. */
static void plan_pair(wefti_layout *plan)
{
    plan->counts = round_up(QUEUES * sizeof(uint64_t), 64);
    plan->messages =
        round_up(plan->counts + WEFTI_OP_SLOTS * sizeof(uint64_t), 64);
    plan->marks = plan->messages + CELLS * sizeof(wefti_posted_message);
    plan->pair_bytes =
        round_up(plan->marks + WEFTI_WORK_WORDS * sizeof(uint64_t), 128);
}

wefti_layout wefti_layout_plan(int nranks, int local_ranks)
{
    size_t peers = (size_t)nranks, local = (size_t)local_ranks;
    wefti_layout plan = {.nranks = nranks, .local_ranks = local_ranks};
    plan_pair(&plan);
    plan.cells = round_up(sizeof(wefti_shared_header), 64);
    plan.cell_bytes = sizeof(wefti_ballot_cell) +
                      (size_t)wefti_vote_count_words(nranks) * sizeof(uint64_t);
    plan.header_bytes = round_up(
        plan.cells + (size_t)WEFTI_SHRINK_ROUNDS * WEFTI_BALLOT_QUESTIONS *
                         WEFTI_BALLOT_TURNS * peers * plan.cell_bytes,
        PAGE_BYTES);
    plan.entries = round_up(sizeof(wefti_rank_page), 128);
    size_t end = plan.entries + (size_t)WEFTI_OP_SLOTS * WEFTI_ENTRY_BYTES;
    plan.pairs = round_up(end, 128);
    plan.entered = plan.pairs + plan.pair_bytes;
    plan.arrivals = plan.entered + (size_t)WEFTI_OP_SLOTS * sizeof(wefti_entry);
    plan.mirror_bytes =
        round_up(plan.arrivals + CELLS * sizeof(wefti_arrival), PAGE_BYTES);
    plan.staging = round_up(plan.pairs + local * plan.pair_bytes, PAGE_BYTES);
    plan.areas = plan.staging + (size_t)WEFTI_OP_SLOTS * WEFTI_STAGING_BYTES;
    plan.p2p_staging = plan.areas + (size_t)WEFTI_AREAS * WEFTI_AREA_BYTES;
    end = plan.p2p_staging + local * WEFTI_P2P_STAGING_BYTES;
    plan.region_bytes = round_up(end, PAGE_BYTES);
    plan.total_bytes = plan.header_bytes + local * plan.region_bytes;
    return plan;
}

size_t wefti_layout_count_bytes(const wefti_layout *layout)
{
    const size_t remote = (size_t)(layout->nranks - layout->local_ranks);
    return layout->total_bytes + remote * layout->mirror_bytes;
}

unsigned char *wefti_layout_get_region(const wefti_layout *layout, void *base,
                                       int place)
{
    return (unsigned char *)base + layout->header_bytes +
           (size_t)place * layout->region_bytes;
}

wefti_rank_page *wefti_shared_get_page(const wefti_shared *shared, int rank)
{
    return (void *)shared->regions[rank];
}

wefti_entry *wefti_shared_get_entry(const wefti_shared *shared, int rank,
                                    uint64_t number)
{
    return (void *)(shared->regions[rank] + shared->layout.entries +
                    (size_t)(number % WEFTI_OP_SLOTS) * WEFTI_ENTRY_BYTES);
}

wefti_entry *wefti_shared_get_entered(const wefti_shared *shared, int rank,
                                      uint64_t number)
{
    wefti_entry *entered =
        (void *)(shared->regions[rank] + shared->layout.entered);
    return entered + number % WEFTI_OP_SLOTS;
}

wefti_entry *wefti_shared_find_entry(const wefti_shared *shared, int rank,
                                     uint64_t number)
{
    wefti_entry *entry = wefti_shared_get_entry(shared, rank, number);
    if (atomic_load(&entry->number) != number && shared->places[rank] < 0) {
        entry = wefti_shared_get_entered(shared, rank, number);
    }
    return atomic_load(&entry->number) == number ? entry : NULL;
}

/* What owner has written for other. */
static unsigned char *get_pair(const wefti_shared *shared, int owner, int other)
{
    const bool mirrored = shared->places[owner] < 0;
    const size_t place = mirrored ? 0 : (size_t)shared->places[other];
    return shared->regions[owner] + shared->layout.pairs +
           place * shared->layout.pair_bytes;
}

static size_t find_queue(int op_slot, int channel)
{
    return (size_t)op_slot * WEFTI_CHANNELS + (size_t)channel;
}

static size_t find_cell(int op_slot, int channel, uint64_t sequence)
{
    return find_queue(op_slot, channel) * WEFTI_DEPTH +
           (size_t)(sequence % WEFTI_DEPTH);
}

uint64_t *wefti_shared_get_count(const wefti_shared *shared, int writer,
                                 int reader, uint64_t number)
{
    uint64_t *counts =
        (void *)(get_pair(shared, writer, reader) + shared->layout.counts);
    return counts + number % WEFTI_OP_SLOTS;
}

_Atomic uint64_t *wefti_shared_get_consumed(const wefti_shared *shared,
                                            int reader, int writer, int op_slot,
                                            int channel)
{
    _Atomic uint64_t *consumed = (void *)get_pair(shared, reader, writer);
    return consumed + find_queue(op_slot, channel);
}

wefti_posted_message *wefti_shared_get_message(const wefti_shared *shared,
                                               int writer, int reader,
                                               int op_slot, int channel,
                                               uint64_t sequence)
{
    wefti_posted_message *messages =
        (void *)(get_pair(shared, writer, reader) + shared->layout.messages);
    return messages + find_cell(op_slot, channel, sequence);
}

_Atomic uint64_t *wefti_shared_get_marks(const wefti_shared *shared,
                                         int signaller, int waiter)
{
    return (void *)(get_pair(shared, signaller, waiter) + shared->layout.marks);
}

size_t wefti_shared_find_p2p_slot(const wefti_shared *shared, int peer,
                                  int op_slot, int channel, size_t slot)
{
    return shared->layout.p2p_staging +
           (size_t)shared->places[peer] * WEFTI_P2P_STAGING_BYTES +
           ((size_t)wefti_p2p_area(op_slot, channel) * WEFTI_P2P_SLOTS + slot) *
               WEFTI_P2P_SLOT_BYTES;
}

wefti_arrival *wefti_shared_get_arrival(const wefti_shared *shared, int writer,
                                        int op_slot, int channel,
                                        uint64_t sequence)
{
    wefti_arrival *arrivals =
        (void *)(shared->regions[writer] + shared->layout.arrivals);
    return arrivals + find_cell(op_slot, channel, sequence);
}
