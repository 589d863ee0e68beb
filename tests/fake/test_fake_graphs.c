/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: graphs that were captured do in every launch what was captured, in the
 * documented order: dependencies hold, launches of one do not overlap, and
 * memory operations with constant values let two graphs take turns.
 *
 * Method: one case a process; each launch has other input, and what it gives is
 * looked at before the next. Runs on a real driver too (fake_test.h).
 */
#include "tests/fake/fake_test.h"

#include <sched.h>
#include <stdatomic.h>

enum { BYTES = 4096, ROUNDS = 25, SEEDS = 6, LOOKS = 20000 };

static CUgraphExec end_capture(CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK_OK(cuStreamEndCapture(stream, &graph));
    CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_OK(cuGraphDestroy(graph)); /* before any launch */
    return exec;
}

static void begin_capture(CUstream stream)
{
    CHECK_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static bool is_filled(const unsigned char *bytes, int with)
{
    bool filled = true;
    for (int i = 0; filled && i < BYTES; i++) {
        filled = bytes[i] == (unsigned char)with;
    }
    return filled;
}

/*
 * in -> first -> (b: second)  -> out
 *            \-> (a: third) -/-> other
 */
static void check_branches(void *arg)
{
    (void)arg;
    open_device(0);
    CUstream a = new_stream(), b = new_stream();
    CUdeviceptr first = new_memory(BYTES), second = new_memory(BYTES);
    CUdeviceptr third = new_memory(BYTES);
    unsigned char *in = new_pinned(BYTES), *out = new_pinned(BYTES);
    unsigned char *other = new_pinned(BYTES);
    CUevent event;
    CHECK_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    begin_capture(a);
    CHECK_OK(cuMemcpyHtoDAsync_v2(first, in, BYTES, a));
    CHECK_OK(cuEventRecord(event, a));
    CHECK_OK(cuStreamWaitEvent(b, event, 0));
    CHECK_OK(cuMemcpyDtoDAsync_v2(second, first, BYTES, b));
    CHECK_OK(cuMemcpyDtoDAsync_v2(third, first, BYTES, a));
    CHECK_OK(cuEventRecord(event, b));
    CHECK_OK(cuStreamWaitEvent(a, event, 0));
    CHECK_OK(cuMemcpyDtoHAsync_v2(out, second, BYTES, a));
    CHECK_OK(cuMemcpyDtoHAsync_v2(other, third, BYTES, a));
    CUgraphExec exec = end_capture(a);
    for (int round = 1; round <= ROUNDS; round++) {
        memset(in, round, BYTES);
        CHECK_OK(cuGraphLaunch(exec, round % 2 ? a : b));
        CHECK_OK(cuStreamSynchronize(round % 2 ? a : b));
        CHECK(is_filled(out, round) && is_filled(other, round));
    }
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(NULL));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuGraphInstantiateWithFlags(&exec, NULL, 0));
}

static CUstreamBatchMemOpParams value_op(CUstreamBatchMemOpType operation,
                                         const void *at, uint64_t value)
{
    CUstreamBatchMemOpParams made = {
        .waitValue = {.operation = operation, .address = address_of(at)}};
    made.waitValue.value64 = value;
    return made;
}

/* A wait of 64 bits for 1, and stores of the lower 32. */
static CUstreamBatchMemOpParams wait_for(const void *at)
{
    return value_op(CU_STREAM_MEM_OP_WAIT_VALUE_64, at, 1);
}

static CUstreamBatchMemOpParams store(const void *at, uint32_t value)
{
    return value_op(CU_STREAM_MEM_OP_WRITE_VALUE_32, at, value);
}

/* Two graphs and what passes between them. */
typedef struct pair {
    CUstream makes, uses;
    CUgraphExec made, used;
    _Atomic uint64_t *words; /* full, empty */
    unsigned char *in, *out;
} pair;

/* One waits until the place is empty, and fills it; one until it is full. */
static void capture_pair(pair *own)
{
    *own = (pair){.makes = new_stream(),
                  .uses = new_stream(),
                  .words = new_pinned(2 * sizeof(uint64_t)),
                  .in = new_pinned(BYTES),
                  .out = new_pinned(BYTES)};
    CUdeviceptr place = new_memory(BYTES);
    CUstreamBatchMemOpParams claim[] = {wait_for(&own->words[1]),
                                        store(&own->words[1], 0)};
    CUstreamBatchMemOpParams fill = store(&own->words[0], 1);
    CUstreamBatchMemOpParams take[] = {wait_for(&own->words[0]),
                                       store(&own->words[0], 0)};
    CUstreamBatchMemOpParams free_again = store(&own->words[1], 1);
    atomic_store(&own->words[0], 0);
    atomic_store(&own->words[1], 1);
    begin_capture(own->makes);
    CHECK_OK(cuStreamBatchMemOp_v2(own->makes, 2, claim, 0));
    CHECK_OK(cuMemcpyHtoDAsync_v2(place, own->in, BYTES, own->makes));
    CHECK_OK(cuStreamBatchMemOp_v2(own->makes, 1, &fill, 0));
    own->made = end_capture(own->makes);
    begin_capture(own->uses);
    CHECK_OK(cuStreamBatchMemOp_v2(own->uses, 2, take, 0));
    CHECK_OK(cuMemcpyDtoHAsync_v2(own->out, place, BYTES, own->uses));
    CHECK_OK(cuStreamBatchMemOp_v2(own->uses, 1, &free_again, 0));
    own->used = end_capture(own->uses);
}

static void check_turns(void *arg)
{
    (void)arg;
    pair own;
    open_device(0);
    capture_pair(&own);
    for (int round = 1; round <= ROUNDS; round++) {
        memset(own.in, round, BYTES);
        CHECK_OK(cuGraphLaunch(own.used, own.uses));
        CHECK_OK(cuGraphLaunch(own.made, own.makes));
        CHECK_OK(cuStreamSynchronize(own.uses));
        CHECK(is_filled(own.out, round));
        CHECK_OK(cuStreamSynchronize(own.makes));
    }
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_OK(cuGraphLaunch(own.made, own.makes));
    }
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_OK(cuGraphLaunch(own.used, own.uses));
    }
    CHECK_OK(cuStreamSynchronize(own.uses));
    CHECK_OK(cuStreamSynchronize(own.makes));
    CHECK(atomic_load(&own.words[0]) == 0 && atomic_load(&own.words[1]) == 1);
}

/* The upper half of a word, which only the host writes, ends all waits,
 * whatever launches store below. */
static void check_let_go(void *arg)
{
    (void)arg;
    pair own;
    open_device(0);
    capture_pair(&own);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_OK(cuGraphLaunch(own.used, own.uses));
    }
    CHECK_OK(cuGraphExecDestroy(own.used)); /* while it runs */
    CHECK_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(own.uses));
    atomic_store(&own.words[0], (uint64_t)1 << 62);
    CHECK_OK(cuStreamSynchronize(own.uses));
    CHECK(atomic_load(&own.words[0]) == (uint64_t)1 << 62);
}

/* While a launch is inside, one on another stream has not begun. */
static void check_no_overlap(void *arg)
{
    (void)arg;
    open_device(0);
    CUstream a = new_stream(), b = new_stream();
    _Atomic uint64_t *words = new_pinned(2 * sizeof(*words));
    _Atomic uint64_t *begun = &words[0], *released = &words[1];
    CUstreamBatchMemOpParams enter = store(begun, 1);
    CUstreamBatchMemOpParams leave[] = {wait_for(released), store(released, 0)};
    atomic_store(begun, 0);
    atomic_store(released, 0);
    begin_capture(a);
    CHECK_OK(cuStreamBatchMemOp_v2(a, 1, &enter, 0));
    CHECK_OK(cuStreamBatchMemOp_v2(a, 2, leave, 0));
    CUgraphExec exec = end_capture(a);
    CHECK_OK(cuGraphLaunch(exec, a));
    while (atomic_load(begun) != 1) {
    }
    atomic_store(begun, 2);
    CHECK_OK(cuGraphLaunch(exec, b));
    for (int look = 0; look < LOOKS; look++) {
        CHECK(atomic_load(begun) == 2);
        sched_yield();
    }
    atomic_store(released, 1);
    while (atomic_load(begun) != 1) {
    }
    CHECK_OK(cuStreamSynchronize(a));
    atomic_store(released, 1);
    CHECK_OK(cuStreamSynchronize(b));
    CHECK_OK(cuGraphExecDestroy(exec));
}

static void run_seeds(void (*check)(void *arg))
{
    for (int seed = 1; seed <= SEEDS; seed++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", seed);
        in_child(check, NULL, "WEFT_FAKE_GPU_SEED", text, NULL);
    }
}

static void test_graph_branches_keep_their_order(void **state)
{
    (void)state;
    run_seeds(check_branches);
}

static void test_graphs_take_turns_by_constant_values(void **state)
{
    (void)state;
    run_seeds(check_turns);
}

static void test_graph_waits_are_let_go_for_good(void **state)
{
    (void)state;
    run_seeds(check_let_go);
}

static void test_graph_launches_do_not_overlap(void **state)
{
    (void)state;
    run_seeds(check_no_overlap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graph_branches_keep_their_order),
        cmocka_unit_test(test_graphs_take_turns_by_constant_values),
        cmocka_unit_test(test_graph_waits_are_let_go_for_good),
        cmocka_unit_test(test_graph_launches_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
