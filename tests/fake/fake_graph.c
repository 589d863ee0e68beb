/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_graph.c - graphs that were captured, and their launches
 * (programming guide, "CUDA graphs").
 *
 * - A launch is work of its stream. Its nodes run one after another in any
 *   order that their dependencies allow, each as late as work of a stream:
 *   "a node is scheduled at any time once the nodes on which it depends are
 *   complete", and no two need run at once.
 * - Launches of one executable graph do not overlap, whatever their streams
 *   (cuGraphLaunch).
 * - A graph may be destroyed once it has been instantiated, an executable one
 *   while it runs (cuGraphExecDestroy).
 *
 * Not here: nested graphs, launches on another device's streams, updates.
 */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <string.h>

typedef struct node {
    fake_work work;
    fake_tail after;
} node;

/* users: its handle, and executable ones. */
struct CUgraph_st {
    uint64_t id;
    int ordinal;
    unsigned users;
    unsigned count, capacity;
    node *nodes;
};

/* users: its handle, and launches; these are numbered from 1. */
struct CUgraphExec_st {
    CUgraph graph;
    unsigned users;
    uint64_t launched, done;
};

CUgraph fake_graph_create(uint64_t id, int ordinal)
{
    CUgraph graph = calloc(1, sizeof(*graph));
    if (graph) {
        graph->id = id;
        graph->ordinal = ordinal;
        graph->users = 1;
    }
    return graph;
}

void fake_graph_drop(CUgraph graph)
{
    if (!graph || --graph->users > 0) {
        return;
    }
    for (unsigned i = 0; i < graph->count; i++) {
        fake_stream_drop(&graph->nodes[i].work);
    }
    free(graph->nodes);
    free(graph);
}

void fake_exec_drop(CUgraphExec exec)
{
    if (--exec->users == 0) {
        fake_graph_drop(exec->graph);
        free(exec);
    }
}

CUresult fake_tail_join(fake_tail *tail, const fake_tail *other)
{
    for (unsigned i = 0; i < other->count; i++) {
        unsigned at = 0;
        while (at < tail->count && tail->nodes[at] != other->nodes[i]) {
            at++;
        }
        if (at == FAKE_TAIL_NODES) {
            fake_say("a captured stream waits for more than %d others",
                     FAKE_TAIL_NODES);
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        tail->nodes[at] = other->nodes[i];
        tail->count += at == tail->count;
    }
    return CUDA_SUCCESS;
}

CUresult fake_graph_add(CUgraph graph, const fake_work *work, fake_tail *tail)
{
    if (graph->count == graph->capacity) {
        const unsigned capacity = graph->capacity ? 2 * graph->capacity : 16;
        node *nodes = realloc(graph->nodes, capacity * sizeof(*nodes));
        if (!nodes) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        graph->nodes = nodes;
        graph->capacity = capacity;
    }
    graph->nodes[graph->count] = (node){*work, *tail};
    *tail = (fake_tail){1, {graph->count++}};
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    CUresult result = fake_enter();
    if (result == CUDA_SUCCESS && !graph) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&fake.lock);
        fake_graph_drop(graph);
        pthread_mutex_unlock(&fake.lock);
    }
    return result;
}

/* How many; the nodes themselves have no handles here. */
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    CUresult result = fake_enter();
    if (result == CUDA_SUCCESS && (!graph || nodes || !count)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *count = graph->count;
    }
    return result;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                     unsigned long long flags)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !exec || !graph || flags) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphExec made = calloc(1, sizeof(*made));
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->graph = graph;
    made->users = 1;
    pthread_mutex_lock(&fake.lock);
    result = fake_capture_unsafe();
    graph->users += result == CUDA_SUCCESS;
    pthread_mutex_unlock(&fake.lock);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    *exec = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    CUresult result = fake_enter();
    if (result == CUDA_SUCCESS && !exec) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&fake.lock);
        fake_exec_drop(exec);
        pthread_mutex_unlock(&fake.lock);
    }
    return result;
}

static bool may_run(const node *nodes, const bool *taken, unsigned number)
{
    const fake_tail *after = &nodes[number].after;
    bool may = !taken[number];
    for (unsigned i = 0; may && i < after->count; i++) {
        may = taken[after->nodes[i]];
    }
    return may;
}

/* The nodes as they will run, each followed by the next; NULL: no memory. */
static fake_work *draw_order(CUstream stream, CUgraph graph)
{
    const unsigned count = graph->count;
    fake_work *order = calloc(count + 1, sizeof(*order));
    bool *taken = calloc(count + 1, sizeof(*taken));
    for (unsigned i = 0; order && taken && i < count; i++) {
        unsigned number = (unsigned)fake_draw(&stream->seed, count);
        while (!may_run(graph->nodes, taken, number)) {
            number = (number + 1) % count;
        }
        taken[number] = true;
        order[i] = graph->nodes[number].work;
        order[i].next = i + 1 < count ? &order[i + 1] : NULL;
    }
    if (!taken) {
        free(order);
        order = NULL;
    }
    free(taken);
    return order;
}

static void await_turn(CUgraphExec exec, uint64_t number)
{
    uint64_t backoff_ns = 0;
    pthread_mutex_lock(&fake.lock);
    while (exec->done + 1 < number && fake.dying == CUDA_SUCCESS) {
        fake_wait_locked(&backoff_ns);
    }
    pthread_mutex_unlock(&fake.lock);
}

static CUresult run_launch(CUstream stream, fake_work *work)
{
    CUgraphExec exec = work->exec;
    await_turn(exec, work->mark);
    fake_work *order = draw_order(stream, exec->graph);
    for (unsigned i = 0; order && i < exec->graph->count; i++) {
        fake_stream_run(stream, &order[i]);
    }
    pthread_mutex_lock(&fake.lock);
    exec->done++;
    pthread_cond_broadcast(&fake.progress);
    pthread_mutex_unlock(&fake.lock);
    CUresult result = order ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    free(order);
    return result;
}

/* Whether the stream is one that this fake launches the graph on. Locked. */
static CUresult check_stream(CUstream stream, CUgraphExec exec)
{
    if (!fake_stream_is(stream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (stream->capture || stream->context->ordinal != exec->graph->ordinal) {
        fake_say("cuGraphLaunch: the fake launches no graph in a capture, nor "
                 "on another device than it was captured on");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !exec) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    fake_work work = {.run = run_launch, .exec = exec};
    pthread_mutex_lock(&fake.lock);
    result = check_stream(stream, exec);
    if (result == CUDA_SUCCESS) {
        exec->users++;
        work.mark = ++exec->launched;
    }
    pthread_mutex_unlock(&fake.lock);
    return result == CUDA_SUCCESS ? fake_stream_submit(stream, &work) : result;
}
