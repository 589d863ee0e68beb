/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/shared.c - where each cell of the shared memory lies.
 */
#include "comm/fabric/shared.h"

enum { PAGE_BYTES = 4096 };

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

wefti_layout wefti_layout_plan(int nranks)
{
    size_t peers = (size_t)nranks;
    wefti_layout plan = {.nranks = nranks};
    plan.cells = round_up(sizeof(wefti_shared_header), 64);
    plan.header_bytes = round_up(
        plan.cells + (size_t)WEFTI_SHRINK_ROUNDS * WEFTI_BALLOT_QUESTIONS *
                         WEFTI_BALLOT_TURNS * peers * sizeof(wefti_ballot_cell),
        PAGE_BYTES);
    plan.entries = round_up(sizeof(wefti_rank_page), 128);
    size_t end = plan.entries + (size_t)WEFTI_LANES * WEFTI_ENTRY_BYTES;
    /* A writer polls one reader's counters: lines of their own per pair. */
    plan.consumed = round_up(end, 128);
    plan.consumed_stride =
        round_up((size_t)WEFTI_RINGS * WEFTI_CHANNELS * sizeof(uint64_t), 64);
    end = plan.consumed + peers * plan.consumed_stride;
    plan.messages = round_up(end, 128);
    end = plan.messages + peers * WEFTI_RINGS * WEFTI_CHANNELS * WEFTI_DEPTH *
                              sizeof(wefti_posted_message);
    plan.windows = round_up(end, PAGE_BYTES);
    end = plan.windows + (size_t)WEFTI_LANES * WEFTI_WINDOW_BYTES;
    plan.letters = end;
    end +=
        peers * WEFTI_LETTER_CHANNELS * WEFTI_LETTER_SLOTS * WEFTI_LETTER_BYTES;
    plan.region_bytes = round_up(end, PAGE_BYTES);
    plan.total_bytes = plan.header_bytes + peers * plan.region_bytes;
    return plan;
}

unsigned char *wefti_layout_get_region(const wefti_layout *layout, void *base,
                                       int rank)
{
    return (unsigned char *)base + layout->header_bytes +
           (size_t)rank * layout->region_bytes;
}

wefti_rank_page *wefti_shared_get_page(const wefti_shared *shared, int rank)
{
    return (void *)shared->regions[rank];
}

wefti_entry *wefti_shared_get_entry(const wefti_shared *shared, int rank,
                                    uint64_t number)
{
    return (void *)(shared->regions[rank] + shared->layout.entries +
                    (size_t)(number % WEFTI_LANES) * WEFTI_ENTRY_BYTES);
}

_Atomic uint64_t *wefti_shared_get_consumed(const wefti_shared *shared,
                                            int reader, int writer, int ring,
                                            int channel)
{
    size_t cell = (size_t)ring * WEFTI_CHANNELS + (size_t)channel;
    return (void *)(shared->regions[reader] + shared->layout.consumed +
                    (size_t)writer * shared->layout.consumed_stride +
                    cell * sizeof(uint64_t));
}

wefti_posted_message *wefti_shared_get_message(const wefti_shared *shared,
                                               int writer, int reader, int ring,
                                               int channel, uint64_t sequence)
{
    size_t cell =
        ((size_t)reader * WEFTI_RINGS + (size_t)ring) * WEFTI_CHANNELS +
        (size_t)channel;
    cell = cell * WEFTI_DEPTH + (size_t)(sequence % WEFTI_DEPTH);
    return (void *)(shared->regions[writer] + shared->layout.messages +
                    cell * sizeof(wefti_posted_message));
}
