/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_memory.c - loads, stores, atomics: each access is looked up,
 * and must be aligned and inside of one range or segment.
 *
 * Two accesses to a byte of shared memory, one of them a write, by two threads
 * without a barrier between them: a race, which is a fault, unless both write
 * the same value.
 * Atomics and what is volatile or ordered are not looked at. Acquire, release,
 * volatile and fences count as a barrier of the block, so that nothing is named
 * that may be right.
 */
#include "tests/ptx/ptx_machine.h"

#include "base/check.h"

#include <string.h>

static const char *const space_names[] = {"generic", "global", "shared",
                                          "local",   "param",  "const"};

/* Where one access goes. */
typedef struct place {
    ptx_space space;
    unsigned char *at;
    unsigned char *states;
    ptx_touches *touches;
} place;

typedef struct access {
    ptx_space space;
    uint64_t address;
    size_t bytes;
    bool write;
} access;

static const ptx_range *find_range(const ptx_block *block, uint64_t address)
{
    size_t low = 0, high = block->range_count;
    while (low < high) { /* the last one that begins at it or before */
        size_t middle = (low + high) / 2;
        if ((uintptr_t)block->ranges[middle].at <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? NULL : &block->ranges[low - 1];
}

static bool refuse_access(const ptx_warp *warp, const ptx_instruction *now,
                          unsigned lane, const access *wanted, const char *why)
{
    return ptx_stop(warp, now, lane,
                    "%s of %zu bytes at 0x%llx of %s memory, "
                    "%s",
                    wanted->write ? "a write" : "a read", wanted->bytes,
                    (unsigned long long)wanted->address,
                    space_names[wanted->space], why);
}

static bool find_global(const ptx_warp *warp, const ptx_instruction *now,
                        unsigned lane, const access *wanted, place *found)
{
    const ptx_range *range = find_range(warp->block, wanted->address);
    uint64_t within = range ? wanted->address - (uintptr_t)range->at : 0;
    if (!range || within >= range->bytes ||
        wanted->bytes > range->bytes - within) {
        return refuse_access(warp, now, lane, wanted,
                             "outside of what the launch was given");
    }
    if (wanted->write && !range->writable) {
        return refuse_access(warp, now, lane, wanted, "which may only be read");
    }
    *found = (place){.space = PTX_GLOBAL,
                     .at = (unsigned char *)(uintptr_t)wanted->address};
    return true;
}

static ptx_segment private_segment(const ptx_warp *warp, unsigned lane)
{
    size_t bytes = warp->block->program->private_bytes;
    return (ptx_segment){.begin = PTX_PRIVATE_BEGIN,
                         .bytes = bytes,
                         .data = warp->private_data + lane * bytes,
                         .states = warp->private_states + lane * bytes,
                         .writable = true};
}

static ptx_segment find_segment(const ptx_warp *warp, unsigned lane,
                                const access *wanted)
{
    const ptx_block *block = warp->block;
    switch (wanted->space) {
    case PTX_SHARED:
        return wanted->address >= PTX_SHARED_DYNAMIC ? block->dynamic
                                                     : block->shared;
    case PTX_CONST:
        return block->constants;
    case PTX_PARAM:
        if (wanted->address < PTX_PRIVATE_BEGIN) {
            return block->params;
        }
        return private_segment(warp, lane);
    default:
        return private_segment(warp, lane);
    }
}

static bool find_place(const ptx_warp *warp, const ptx_instruction *now,
                       unsigned lane, access *wanted, place *found)
{
    if (wanted->address % wanted->bytes != 0) {
        return refuse_access(warp, now, lane, wanted, "which is not aligned");
    }
    if (wanted->space == PTX_GENERIC) {
        wanted->space = (ptx_space)(wanted->address >> PTX_SPACE_SHIFT);
        wanted->address = ptx_cut(wanted->address, PTX_SPACE_SHIFT);
        if (wanted->space == PTX_GENERIC) {
            wanted->space = PTX_GLOBAL;
        } else if (wanted->space > PTX_CONST) {
            wanted->space = PTX_GENERIC;
            return refuse_access(warp, now, lane, wanted, "which is none");
        }
    }
    if (wanted->space == PTX_GLOBAL) {
        return find_global(warp, now, lane, wanted, found);
    }
    ptx_segment segment = find_segment(warp, lane, wanted);
    uint64_t within = wanted->address - segment.begin;
    if (wanted->address < segment.begin || within >= segment.bytes ||
        wanted->bytes > segment.bytes - within) {
        return refuse_access(warp, now, lane, wanted, "out of bounds");
    }
    if (wanted->write && !segment.writable) {
        return refuse_access(warp, now, lane, wanted, "which may only be read");
    }
    *found = (place){wanted->space, segment.data + within,
                     segment.states ? segment.states + within : NULL,
                     segment.touches ? segment.touches + within : NULL};
    if (found->states && memchr(found->states, PTX_OUTSIDE, wanted->bytes)) {
        return refuse_access(warp, now, lane, wanted, "out of bounds");
    }
    return true;
}

/* Whether an earlier access was by another thread, and not a barrier ago. */
static bool races(const ptx_warp *warp, const ptx_touch *touch, unsigned thread)
{
    if (touch->epoch != warp->block->epoch) {
        return false;
    }
    if (touch->several_warps ||
        touch->thread / PTX_LANES != thread / PTX_LANES) {
        return true;
    }
    return touch->warp_epoch == warp->epoch &&
           (touch->several || touch->thread != thread);
}

static void keep_touch(const ptx_warp *warp, ptx_touch *touch, unsigned thread)
{
    bool same = touch->epoch == warp->block->epoch;
    bool same_warp = touch->thread / PTX_LANES == thread / PTX_LANES;
    *touch = (ptx_touch){
        .epoch = warp->block->epoch,
        .warp_epoch = warp->epoch,
        .thread = (uint16_t)thread,
        .several_warps = same && (touch->several_warps || !same_warp),
        .several = same && same_warp && touch->warp_epoch == warp->epoch &&
                   (touch->several || touch->thread != thread)};
}

/* The earlier access that races with this one, or NULL. Two threads may write
 * the same value. */
static const ptx_touch *rival(const ptx_warp *warp, const ptx_touches *touches,
                              unsigned thread, bool write, bool changes)
{
    if ((!write || changes) && races(warp, &touches->written, thread)) {
        return &touches->written;
    }
    return write && races(warp, &touches->read, thread) ? &touches->read : NULL;
}

static bool check_race(const ptx_warp *warp, const ptx_instruction *now,
                       unsigned lane, const access *wanted, const place *found,
                       const unsigned char *value)
{
    unsigned thread = warp->number * PTX_LANES + lane;
    for (size_t i = 0; found->touches && i < wanted->bytes; i++) {
        ptx_touches *touches = &found->touches[i];
        bool changes = wanted->write && found->at[i] != value[i];
        const ptx_touch *other =
            rival(warp, touches, thread, wanted->write, changes);
        if (other) {
            return ptx_stop(warp, now, lane,
                            "a race: %s shared memory at 0x%llx, which thread "
                            "%u has %s, with no barrier in between",
                            wanted->write ? "writes" : "reads",
                            (unsigned long long)(wanted->address + i),
                            other->thread,
                            other == &touches->read ? "read" : "written");
        }
        keep_touch(warp, wanted->write ? &touches->written : &touches->read,
                   thread);
    }
    return true;
}

/* Whatever this orders it orders for the whole block. */
static void order(ptx_warp *warp, const ptx_instruction *now)
{
    if (now->fields[PTX_FLAGS] & PTX_ORDERS) {
        warp->block->epoch++;
    }
}

static void address_of(const ptx_warp *warp, const ptx_instruction *now,
                       unsigned lane, access *wanted)
{
    wanted->space = (ptx_space)now->fields[PTX_SPACE];
    wanted->address =
        ptx_read(warp, ptx_source(now, 0), lane) + (uint64_t)now->offset;
    wanted->bytes = ptx_type_bits(now->type) / 8 *
                    (now->fields[PTX_VECTOR] ? now->fields[PTX_VECTOR] : 1U);
}

bool ptx_run_load(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    unsigned bits = ptx_type_bits(now->type);
    uint32_t known = 0;
    order(warp, now);
    if (!ptx_need_known(warp, now, ptx_source(now, 0), lanes, "the address")) {
        return false;
    }
    PTX_EACH_LANE(lane, lanes)
    {
        access wanted = {.write = false};
        place found;
        address_of(warp, now, lane, &wanted);
        if (!find_place(warp, now, lane, &wanted, &found) ||
            (now->row->operation != 1 &&
             !check_race(warp, now, lane, &wanted, &found, NULL))) {
            return false;
        }
        if (now->row->operation == 2 && found.space != PTX_GLOBAL) {
            return ptx_stop(warp, now, lane, "not an address of global memory");
        }
        if (!found.states || !memchr(found.states, PTX_UNKNOWN, wanted.bytes)) {
            known |= UINT32_C(1) << lane;
        }
        for (unsigned i = 0; i < now->results; i++) {
            uint64_t value = 0;
            memcpy(&value, found.at + i * bits / 8, bits / 8);
            if (ptx_type_is_signed(now->type)) {
                value = ptx_cut((uint64_t)ptx_signed(value, bits),
                                now->operands[i].bits);
            }
            ptx_write(warp, &now->operands[i], lane, value);
        }
    }
    for (unsigned i = 0; i < now->results; i++) {
        ptx_set_known(warp, &now->operands[i], lanes, known);
    }
    return true;
}

static bool store_one(ptx_warp *warp, const ptx_instruction *now, unsigned lane)
{
    unsigned bytes = ptx_type_bits(now->type) / 8;
    unsigned char value[32], states[32];
    access wanted = {.write = true};
    place found;
    address_of(warp, now, lane, &wanted);
    for (unsigned i = 1; i < now->sources; i++) {
        const ptx_operand *source = ptx_source(now, i);
        uint64_t one = ptx_read(warp, source, lane);
        bool known = ptx_known(warp, source) >> lane & 1;
        memcpy(value + (i - 1) * bytes, &one, bytes);
        memset(states + (i - 1) * bytes, known ? PTX_KNOWN : PTX_UNKNOWN,
               bytes);
    }
    if (!find_place(warp, now, lane, &wanted, &found) ||
        (now->row->operation != 1 &&
         !check_race(warp, now, lane, &wanted, &found, value))) {
        return false;
    }
    if (found.space == PTX_GLOBAL &&
        memchr(states, PTX_UNKNOWN, wanted.bytes)) {
        return ptx_stop(warp, now, lane,
                        "writes to global memory what nothing has set");
    }
    memcpy(found.at, value, wanted.bytes);
    if (found.states) {
        memcpy(found.states, states, wanted.bytes);
    }
    return true;
}

bool ptx_run_store(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    order(warp, now);
    if (!ptx_need_known(warp, now, ptx_source(now, 0), lanes, "the address")) {
        return false;
    }
    PTX_EACH_LANE(lane, lanes)
    {
        if (!store_one(warp, now, lane)) {
            return false;
        }
    }
    return true;
}

bool ptx_run_atomic(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    for (unsigned i = 0; i < now->sources; i++) {
        if (!ptx_need_known(warp, now, ptx_source(now, i), lanes,
                            "an operand")) {
            return false;
        }
    }
    ptx_operation operation = ptx_operation_of(now);
    order(warp, now);
    PTX_EACH_LANE(lane, lanes)
    {
        access wanted = {.write = true};
        place found;
        uint64_t old = 0;
        address_of(warp, now, lane, &wanted);
        if (!find_place(warp, now, lane, &wanted, &found)) {
            return false;
        }
        if (found.space != PTX_GLOBAL && found.space != PTX_SHARED) {
            return ptx_stop(warp, now, lane,
                            "an atomic on neither global nor shared memory");
        }
        if (found.states && memchr(found.states, PTX_UNKNOWN, wanted.bytes)) {
            return ptx_stop(warp, now, lane,
                            "an atomic on what nothing has written");
        }
        memcpy(&old, found.at, wanted.bytes);
        uint64_t value = ptx_read(warp, ptx_source(now, 1), lane);
        uint64_t next =
            operation == PTX_CAS
                ? (old == value ? ptx_read(warp, ptx_source(now, 2), lane)
                                : old)
                : ptx_combine(operation, (ptx_type)now->type, old, value);
        memcpy(found.at, &next, wanted.bytes);
        if (now->results != 0) {
            ptx_write(warp, &now->operands[0], lane, old);
        }
    }
    if (now->results != 0) {
        ptx_set_known(warp, &now->operands[0], lanes, lanes);
    }
    return true;
}

bool ptx_run_fence(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    (void)now, (void)lanes;
    warp->block->epoch++;
    return true;
}

bool ptx_run_cvta(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    ptx_space space = (ptx_space)now->fields[PTX_SPACE];
    uint64_t tag = space == PTX_GLOBAL ? 0 : (uint64_t)space;
    bool to_space = now->row->operation == 1;
    PTX_EACH_LANE(lane, lanes)
    {
        uint64_t from = ptx_read(warp, ptx_source(now, 0), lane);
        bool known = ptx_known(warp, ptx_source(now, 0)) >> lane & 1;
        if (known && from >> PTX_SPACE_SHIFT != (to_space ? tag : 0)) {
            return ptx_stop(warp, now, lane, "0x%llx is not in %s memory",
                            (unsigned long long)from, space_names[space]);
        }
        ptx_write(warp, &now->operands[0], lane,
                  to_space ? ptx_cut(from, PTX_SPACE_SHIFT)
                           : from | tag << PTX_SPACE_SHIFT);
    }
    ptx_set_known(warp, &now->operands[0], lanes,
                  ptx_known(warp, ptx_source(now, 0)));
    return true;
}

bool ptx_run_isspacep(ptx_warp *warp, const ptx_instruction *now,
                      uint32_t lanes)
{
    ptx_space space = (ptx_space)now->fields[PTX_SPACE];
    PTX_EACH_LANE(lane, lanes)
    {
        uint64_t tag =
            ptx_read(warp, ptx_source(now, 0), lane) >> PTX_SPACE_SHIFT;
        ptx_write(warp, &now->operands[0], lane,
                  tag == (space == PTX_GLOBAL ? 0 : (uint64_t)space));
    }
    ptx_set_known(warp, &now->operands[0], lanes,
                  ptx_known(warp, ptx_source(now, 0)));
    return true;
}
