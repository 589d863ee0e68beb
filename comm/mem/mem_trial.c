/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/mem/mem_trial.c - whether ranks of a host really share what they have
 * mapped: each adds words to counters that nobody else raises, and looks at
 * those of the others. It is before any use, and the memory is zero again
 * after.
 */
#include "comm/mem/mem.h"

#include "base/error.h"

enum { TRIED_SLOTS = 4 };

static uint64_t word_of(const weft_mem *mem, int rank, int slot)
{
    const uint64_t which = (uint64_t)rank * TRIED_SLOTS + (uint64_t)slot + 1;
    return (which + mem->offset) * UINT64_C(0x9e3779b97f4a7c15);
}

void wefti_mem_trial_begin(const weft_mem *mem)
{
    const int rank = mem->comm->rank;
    for (int slot = 0; slot < TRIED_SLOTS; slot++) {
        atomic_fetch_add(wefti_mem_get_cell(mem, rank, rank, slot),
                         word_of(mem, rank, slot));
    }
}

weft_status wefti_mem_trial_look(const weft_mem *mem)
{
    const weft_comm *comm = mem->comm;
    weft_status status = WEFT_OK;
    for (int i = 0; i < comm->nranks * TRIED_SLOTS && status == WEFT_OK; i++) {
        const int peer = i / TRIED_SLOTS, slot = i % TRIED_SLOTS;
        if (!wefti_mem_is_local(mem, peer)) {
            continue;
        }
        const uint64_t found =
            atomic_load(wefti_mem_get_cell(mem, peer, peer, slot));
        if (found != word_of(mem, peer, slot)) {
            status = wefti_error(WEFT_ERR_SYSTEM,
                                 "it is %#llx in what rank %d shares with it, "
                                 "which wrote %#llx",
                                 (unsigned long long)found, peer,
                                 (unsigned long long)word_of(mem, peer, slot));
        }
    }
    return status;
}

void wefti_mem_trial_end(const weft_mem *mem)
{
    const int rank = mem->comm->rank;
    for (int slot = 0; slot < TRIED_SLOTS; slot++) {
        atomic_fetch_sub(wefti_mem_get_cell(mem, rank, rank, slot),
                         word_of(mem, rank, slot));
    }
}
