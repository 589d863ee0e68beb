/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_sync.c - where lanes of a warp meet by a member mask, and
 * threads of a block at a barrier. Whoever comes waits at the instruction; the
 * last one carries it out for all.
 */
#include "tests/ptx/ptx_machine.h"

static const ptx_instruction *at_place(const ptx_warp *warp, unsigned lane)
{
    return &warp->block->program->code.at[warp->pc[lane]];
}

static uint32_t present(const ptx_warp *warp)
{
    return warp->runs | warp->at_members | warp->at_barrier | warp->ended;
}

static void go_on(ptx_warp *warp, uint32_t lanes)
{
    PTX_EACH_LANE(lane, lanes)
    {
        warp->pc[lane]++;
    }
    warp->at_members &= ~lanes;
    warp->at_barrier &= ~lanes;
    warp->runs |= lanes;
}

/* Where lane `by` gets its value from (PTX ISA, shfl.sync). */
static unsigned shuffle_source(ptx_operation how, unsigned by, uint64_t b,
                               uint64_t c, bool *in_range)
{
    unsigned step = b & 31, clamp = c & 31, segment = c >> 8 & 31;
    unsigned most = (by & segment) | (clamp & ~segment);
    unsigned from;
    switch (how) {
    case PTX_LANE_UP:
        from = by - step;
        *in_range = (int)from >= (int)most;
        break;
    case PTX_LANE_DOWN:
        from = by + step;
        *in_range = from <= most;
        break;
    case PTX_BUTTERFLY:
        from = by ^ step;
        *in_range = from <= most;
        break;
    default:
        from = (by & segment) | (step & ~segment);
        *in_range = from <= most;
        break;
    }
    return *in_range ? from : by;
}

/* A lane outside of the members has no value to give. */
static void shuffle(ptx_warp *warp, const ptx_instruction *now, uint32_t group)
{
    uint64_t values[PTX_LANES];
    uint32_t had = ptx_known(warp, ptx_source(now, 0)) & group, known = 0;
    PTX_EACH_LANE(lane, group)
    {
        values[lane] = ptx_read(warp, ptx_source(now, 0), lane);
    }
    PTX_EACH_LANE(lane, group)
    {
        bool in_range;
        unsigned from =
            shuffle_source(ptx_operation_of(now), lane,
                           ptx_read(warp, ptx_source(now, 1), lane),
                           ptx_read(warp, ptx_source(now, 2), lane), &in_range);
        ptx_write(warp, &now->operands[1], lane, in_range);
        if (had >> from & 1) {
            ptx_write(warp, &now->operands[0], lane, values[from]);
            known |= UINT32_C(1) << lane;
        }
    }
    ptx_set_known(warp, &now->operands[0], group, known);
    ptx_set_known(warp, &now->operands[1], group, group);
}

/* One value out of those of all members, for all of them. */
static uint64_t gather(const ptx_warp *warp, const ptx_instruction *now,
                       uint32_t group)
{
    ptx_operation how = ptx_operation_of(now);
    const ptx_operand *source = ptx_source(now, 0);
    uint32_t votes = 0;
    uint64_t all = ptx_read(warp, source, (unsigned)__builtin_ctz(group));
    PTX_EACH_LANE(lane, group & (group - 1))
    {
        if (now->type == PTX_PRED || how == PTX_BALLOT) {
            break;
        }
        all = ptx_combine(how, (ptx_type)now->type, all,
                          ptx_read(warp, source, lane));
    }
    PTX_EACH_LANE(lane, group)
    {
        votes |= (uint32_t)(ptx_read(warp, source, lane) & 1) << lane;
    }
    switch (how) {
    case PTX_ALL:
        return votes == group;
    case PTX_ANY:
        return votes != 0;
    case PTX_UNI:
        return votes == 0 || votes == group;
    case PTX_BALLOT:
        return votes;
    default:
        return all;
    }
}

static bool is_shuffle(const ptx_instruction *now)
{
    ptx_operation how = ptx_operation_of(now);
    return how >= PTX_INDEX && how <= PTX_BUTTERFLY;
}

static void finish_members(ptx_warp *warp, const ptx_instruction *now,
                           uint32_t group)
{
    if (ptx_operation_of(now) == PTX_WAIT) {
        warp->epoch++;
    } else if (is_shuffle(now)) {
        shuffle(warp, now, group);
    } else {
        uint64_t value = gather(warp, now, group);
        PTX_EACH_LANE(lane, group)
        {
            ptx_write(warp, &now->operands[0], lane, value);
        }
        ptx_set_known(warp, &now->operands[0], group, group);
    }
    go_on(warp, group);
}

/* Whether those named that wait too wait for the same. */
static bool check_group(const ptx_warp *warp, const ptx_instruction *now,
                        unsigned lane)
{
    uint32_t mask = warp->members[lane];
    PTX_EACH_LANE(other, mask & present(warp))
    {
        if (warp->ended >> other & 1) {
            return ptx_stop(warp, now, lane,
                            "member mask 0x%08x names lane %u, which has ended",
                            mask, other);
        }
        if (!(warp->at_members >> other & 1)) {
            continue;
        }
        const ptx_instruction *there = at_place(warp, other);
        if (there != now && (ptx_operation_of(now) != PTX_WAIT ||
                             ptx_operation_of(there) != PTX_WAIT)) {
            return ptx_stop(warp, now, lane,
                            "member mask 0x%08x names lane %u, which waits at "
                            "line %d: %.*s",
                            mask, other, there->line, there->text_bytes,
                            there->text);
        }
        if (warp->members[other] != mask) {
            return ptx_stop(warp, now, lane,
                            "member mask 0x%08x names lane %u, which has "
                            "mask 0x%08x",
                            mask, other, warp->members[other]);
        }
    }
    return true;
}

/* All operands of a meeting but a shuffle's value must be known. */
static bool check_operands(const ptx_warp *warp, const ptx_instruction *now,
                           uint32_t lanes)
{
    for (unsigned i = is_shuffle(now); i < now->sources; i++) {
        if (!ptx_need_known(warp, now, ptx_source(now, i), lanes,
                            "an operand")) {
            return false;
        }
    }
    return true;
}

bool ptx_run_members(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    if (!check_operands(warp, now, lanes)) {
        return false;
    }
    warp->runs &= ~lanes;
    warp->at_members |= lanes;
    PTX_EACH_LANE(lane, lanes)
    {
        uint32_t mask =
            (uint32_t)ptx_read(warp, ptx_source(now, now->sources - 1U), lane);
        warp->members[lane] = mask;
        if (!(mask >> lane & 1)) {
            return ptx_stop(warp, now, lane,
                            "member mask 0x%08x does not name its own lane %u",
                            mask, lane);
        }
    }
    PTX_EACH_LANE(lane, lanes)
    {
        if (!(warp->at_members >> lane & 1)) {
            continue; /* went on with one before it */
        }
        uint32_t group = warp->members[lane] & present(warp);
        if (!check_group(warp, now, lane)) {
            return false;
        }
        if ((group & warp->at_members) == group) {
            finish_members(warp, now, group);
        }
    }
    return true;
}

bool ptx_run_activemask(ptx_warp *warp, const ptx_instruction *now,
                        uint32_t lanes)
{
    PTX_EACH_LANE(lane, lanes)
    {
        ptx_write(warp, &now->operands[0], lane, lanes);
    }
    ptx_set_known(warp, &now->operands[0], lanes, lanes);
    return true;
}

static uint32_t waiting_at(const ptx_warp *warp, unsigned barrier)
{
    uint32_t lanes = 0;
    PTX_EACH_LANE(lane, warp->at_barrier)
    {
        lanes |= (uint32_t)(warp->barrier[lane] == barrier) << lane;
    }
    return lanes;
}

/* bar.red: of the predicates of all that wait. */
static uint64_t reduce_predicates(const ptx_block *block, unsigned barrier)
{
    uint64_t count = 0, all = 1, any = 0;
    ptx_operation how = PTX_WAIT;
    for (unsigned w = 0; w < block->warp_count; w++) {
        const ptx_warp *warp = &block->warps[w];
        PTX_EACH_LANE(lane, waiting_at(warp, barrier))
        {
            const ptx_instruction *now = at_place(warp, lane);
            how = ptx_operation_of(now);
            uint64_t value = now->results == 0
                                 ? 0
                                 : ptx_read(warp, ptx_source(now, 2), lane);
            count += value;
            all &= value;
            any |= value;
        }
    }
    return how == PTX_POPC ? count : how == PTX_AND ? all : any;
}

static void release(ptx_block *block, unsigned barrier)
{
    uint64_t value = reduce_predicates(block, barrier);
    for (unsigned w = 0; w < block->warp_count; w++) {
        ptx_warp *warp = &block->warps[w];
        uint32_t lanes = waiting_at(warp, barrier);
        PTX_EACH_LANE(lane, lanes)
        {
            const ptx_instruction *now = at_place(warp, lane);
            uint32_t bit = UINT32_C(1) << lane;
            if (now->results != 0) {
                ptx_write(warp, &now->operands[0], lane, value);
                ptx_set_known(warp, &now->operands[0], bit, bit);
            }
        }
        go_on(warp, lanes);
    }
    block->barriers[barrier] = (ptx_barrier){0};
    block->epoch++;
}

static void release_if_all_came(ptx_block *block, unsigned barrier)
{
    uint32_t came = block->barriers[barrier].arrived, left = 0, waits = 0;
    for (unsigned w = 0; w < block->warp_count; w++) {
        const ptx_warp *warp = &block->warps[w];
        uint32_t lanes = waiting_at(warp, barrier);
        waits |= lanes;
        came += (uint32_t)__builtin_popcount(lanes);
        left += (uint32_t)__builtin_popcount(present(warp) & ~warp->ended);
    }
    uint32_t expected = block->barriers[barrier].expected;
    if ((waits != 0 || expected != 0) && came == (expected ? expected : left)) {
        release(block, barrier);
    }
}

/* Of a warp all lanes wait at one instruction; of a block too, where all of
 * its threads are expected. */
static bool check_divergence(const ptx_warp *warp, const ptx_instruction *now,
                             unsigned lane, unsigned barrier)
{
    const ptx_block *block = warp->block;
    for (unsigned w = 0; w < block->warp_count; w++) {
        const ptx_warp *other = &block->warps[w];
        if (other != warp && block->barriers[barrier].expected != 0) {
            continue;
        }
        PTX_EACH_LANE(there, waiting_at(other, barrier))
        {
            const ptx_instruction *at = at_place(other, there);
            if (at != now) {
                return ptx_stop(warp, now, lane,
                                "barrier divergence: thread %u is at another "
                                "barrier, line %d",
                                w * PTX_LANES + there, at->line);
            }
        }
    }
    return true;
}

static bool come_to_barrier(ptx_warp *warp, const ptx_instruction *now,
                            unsigned lane, unsigned *barrier)
{
    uint64_t number = ptx_read(warp, ptx_source(now, 0), lane);
    const ptx_operand *count = ptx_source(now, 1);
    uint64_t threads =
        count->kind == PTX_SINK ? 0 : ptx_read(warp, count, lane);
    if (number >= PTX_BARRIERS) {
        return ptx_stop(warp, now, lane, "barrier %llu of %d",
                        (unsigned long long)number, PTX_BARRIERS);
    }
    ptx_barrier *at = &warp->block->barriers[number];
    bool begun = at->arrived != 0;
    for (unsigned w = 0; w < warp->block->warp_count && !begun; w++) {
        begun = waiting_at(&warp->block->warps[w], (unsigned)number) != 0;
    }
    if ((count->kind != PTX_SINK &&
         (threads == 0 || threads % PTX_LANES != 0)) ||
        (begun && at->expected != threads)) {
        return ptx_stop(warp, now, lane,
                        "a barrier of %llu threads: not a multiple of %d, or "
                        "not what it has begun with (%u; 0 is all)",
                        (unsigned long long)threads, PTX_LANES, at->expected);
    }
    if (ptx_operation_of(now) == PTX_ARRIVE && threads == 0) {
        return ptx_stop(warp, now, lane, "without a number of threads");
    }
    at->expected = (uint32_t)threads;
    *barrier = (unsigned)number;
    return check_divergence(warp, now, lane, *barrier);
}

bool ptx_run_barrier(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    uint32_t barriers = 0;
    for (unsigned i = 0; i < now->sources; i++) {
        if (!ptx_need_known(warp, now, ptx_source(now, i), lanes,
                            "an operand")) {
            return false;
        }
    }
    PTX_EACH_LANE(lane, lanes)
    {
        unsigned barrier = 0;
        if (!come_to_barrier(warp, now, lane, &barrier)) {
            return false;
        }
        barriers |= UINT32_C(1) << barrier;
        if (ptx_operation_of(now) == PTX_ARRIVE) {
            warp->block->barriers[barrier].arrived++;
            warp->pc[lane]++;
            continue;
        }
        warp->barrier[lane] = (uint8_t)barrier;
        warp->runs &= ~(UINT32_C(1) << lane);
        warp->at_barrier |= UINT32_C(1) << lane;
    }
    PTX_EACH_LANE(barrier, barriers)
    {
        release_if_all_came(warp->block, barrier);
    }
    return true;
}

bool ptx_warp_end(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    (void)now;
    warp->runs &= ~lanes;
    warp->ended |= lanes;
    PTX_EACH_LANE(lane, warp->at_members)
    {
        if (!check_group(warp, at_place(warp, lane), lane)) {
            return false;
        }
    }
    for (unsigned barrier = 0; barrier < PTX_BARRIERS; barrier++) {
        release_if_all_came(warp->block, barrier);
    }
    return true;
}

/* A thread that waits for one that will not come, if there is any. */
static bool name_absent(const ptx_block *block, const ptx_warp *warp,
                        unsigned lane)
{
    const ptx_instruction *now = at_place(warp, lane);
    if (warp->at_members >> lane & 1) {
        uint32_t absent = warp->members[lane] & warp->at_barrier;
        unsigned other = absent ? (unsigned)__builtin_ctz(absent) : lane;
        return ptx_stop(warp, now, lane,
                        "waits for ever: member mask 0x%08x names lane %u, "
                        "which waits at line %d",
                        warp->members[lane], other,
                        at_place(warp, other)->line);
    }
    unsigned barrier = warp->barrier[lane];
    for (unsigned w = 0; w < block->warp_count; w++) {
        const ptx_warp *other = &block->warps[w];
        uint32_t elsewhere = (other->at_members | other->at_barrier) &
                             ~waiting_at(other, barrier);
        if (elsewhere != 0) {
            unsigned there = (unsigned)__builtin_ctz(elsewhere);
            return ptx_stop(warp, now, lane,
                            "waits for ever: barrier divergence, thread %u "
                            "waits at line %d",
                            w * PTX_LANES + there,
                            at_place(other, there)->line);
        }
    }
    return ptx_stop(warp, now, lane,
                    "waits for ever: fewer than %u threads come to barrier %u",
                    block->barriers[barrier].expected, barrier);
}

bool ptx_block_stuck(ptx_block *block)
{
    for (unsigned w = 0; w < block->warp_count; w++) {
        const ptx_warp *warp = &block->warps[w];
        uint32_t waits = warp->at_members ? warp->at_members : warp->at_barrier;
        if (waits != 0) {
            return name_absent(block, warp, (unsigned)__builtin_ctz(waits));
        }
    }
    return true;
}
