/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/simulator_step.c - one step of one list, with all the rules of
 * comm/pattern/pattern.h checked on the way.
 */
#include "comm/pattern/shape.h"
#include "kernels/wire/reduce.h"
#include "tests/comm/simulator_state.h"

#include <stdlib.h>
#include <string.h>

/* Sums have wide elements in scratch. */
static bool is_wide(const sim_state *world, wefti_buffer buffer)
{
    return buffer == WEFTI_BUFFER_SCRATCH &&
           wefti_shape_get(world->what->problem.collective)->reduces;
}

static size_t width_of(const sim_state *world, wefti_buffer buffer)
{
    return is_wide(world, buffer) ? world->wide_bytes : world->elem_bytes;
}

/* The step's end in one of the rank's buffers; must lie inside. */
static unsigned char *place(const sim_state *world, sim_node *node, int list,
                            wefti_buffer buffer, size_t elem, size_t elems)
{
    size_t room = buffer == WEFTI_BUFFER_SEND   ? node->send_elems
                  : buffer == WEFTI_BUFFER_RECV ? node->recv_elems
                                                : node->problem.chunk_elems;
    sim_require(world, buffer != WEFTI_BUFFER_NONE, "step lacks a buffer");
    sim_require(world, elem <= room && elems <= room - elem,
                "rank %d: elements %zu + %zu of buffer %d, which has %zu",
                node->problem.rank, elem, elems, buffer, room);
    switch (buffer) {
    case WEFTI_BUFFER_SEND:
        return node->send + elem * world->elem_bytes;
    case WEFTI_BUFFER_RECV:
        return node->recv + elem * world->elem_bytes;
    default:
        sim_require(world, elem == 0 || !is_wide(world, buffer),
                    "scratch from element %zu", elem);
        return node->scratch[list] + elem * width_of(world, buffer);
    }
}

static const unsigned char *source(const sim_state *world, sim_node *node,
                                   int list, const wefti_step *step)
{
    return place(world, node, list, step->src, step->src_elem, step->elems);
}

static unsigned char *target(const sim_state *world, sim_node *node, int list,
                             const wefti_step *step)
{
    sim_require(world, step->dst != WEFTI_BUFFER_SEND, "input written");
    unsigned char *dst =
        place(world, node, list, step->dst, step->dst_elem, step->elems);
    for (size_t i = 0; step->dst == WEFTI_BUFFER_RECV && i < step->elems; i++) {
        node->written[step->dst_elem + i]++;
    }
    return dst;
}

/* As a ring frees them: none before those staged earlier. */
static void free_slots(sim_channel *channel)
{
    while (channel->oldest != NULL && channel->oldest->unread == 0) {
        sim_message *done = channel->oldest;
        channel->oldest = done->newer;
        channel->staged--;
        free(done);
    }
    if (channel->oldest == NULL) {
        channel->newest = NULL;
    }
}

static void take_slot(sim_channel *channel, sim_message *message)
{
    if (channel->newest != NULL) {
        channel->newest->newer = message;
    } else {
        channel->oldest = message;
    }
    channel->newest = message;
    channel->staged++;
}

static void line_put(sim_line *line, sim_message *message)
{
    if (line->last == line->room) {
        line->room = line->room * 2 + 4;
        line->sent = realloc(line->sent, line->room * sizeof(*line->sent));
        assert_non_null(line->sent);
    }
    line->sent[line->last++] = message;
}

/* Only one list may use an end of a line. */
static void claim(const sim_state *world, int *list_used, int list)
{
    sim_require(world, *list_used < 0 || *list_used == list,
                "lists %d and %d use one end", *list_used, list);
    *list_used = list;
}

/* A free slot of the channel with so many bytes; NULL: there is none. */
static sim_message *stage(sim_state *world, sim_node *node, int list,
                          int number, size_t elems, bool wide)
{
    sim_channel *channel = &node->channels[number];
    size_t width = wide ? world->wide_bytes : world->elem_bytes;
    claim(world, &channel->list, list);
    sim_require(world, channel->slots > 0, "rank %d has no slots",
                node->problem.rank);
    if (channel->staged == channel->slots) {
        return NULL;
    }
    sim_message *message = malloc(sizeof(*message) + elems * width);
    assert_non_null(message);
    *message = (sim_message){.elems = elems, .wide = wide};
    return message;
}

static void put_one(sim_state *world, int from, int to, int list, int channel,
                    sim_message *message)
{
    sim_line *line = sim_line_of(world, from, to, channel);
    claim(world, &line->send_list, list);
    line_put(line, message);
    message->unread++;
    if (world->border[from] != world->border[to]) {
        world->traffic.messages++;
        world->traffic.elems += message->elems;
    }
}

/* Puts a staged message on its way to all that the step addresses. */
static void post(sim_state *world, sim_node *node, int list,
                 const wefti_step *step, int channel, sim_message *message)
{
    const wefti_problem *problem = &node->problem;
    bool relays = step->kind == WEFTI_STEP_RELAY;
    int places =
        wefti_peer_count(problem, step->peer, step->owner, step->round);
    take_slot(&node->channels[channel], message);
    for (int place = 0; place < places; place++) {
        int to =
            wefti_peer_at(problem, step->peer, step->owner, step->round, place);
        sim_require(world, to >= 0 && to < world->nranks, "rank %d sends to %d",
                    problem->rank, to);
        sim_require(world,
                    wefti_peer_includes(problem, step->peer, step->owner,
                                        step->round, to),
                    "rank %d: %d does not include %d", problem->rank,
                    step->peer, to);
        if (to != problem->rank || relays) {
            put_one(world, problem->rank, to, list, channel, message);
        }
    }
    sim_require(world, message->unread > 0, "rank %d sends to nobody",
                problem->rank);
}

static bool run_send(sim_state *world, sim_node *node, int list,
                     const wefti_step *step)
{
    bool wide = is_wide(world, step->src);
    sim_message *message =
        stage(world, node, list, step->channel, step->elems, wide);
    if (message == NULL) {
        return false;
    }
    memcpy(message->bytes, source(world, node, list, step),
           step->elems * width_of(world, step->src));
    post(world, node, list, step, step->channel, message);
    return true;
}

/* The next message from peer, or NULL if there is none yet. */
static const sim_message *peek(sim_state *world, const sim_node *node, int list,
                               const wefti_source *from, const wefti_step *step)
{
    const int peer = from->rank;
    sim_line *line =
        sim_line_of(world, peer, node->problem.rank, from->channel);
    bool wide = is_wide(world, step->dst) || from->ranks > 1;

    claim(world, &line->read_list, list);
    if (line->first == line->last) {
        return NULL;
    }
    const sim_message *message = line->sent[line->first];
    sim_require(world, message->elems == step->elems && message->wide == wide,
                "rank %d wants %zu elements (wide %d) of rank %d, which sent "
                "%zu (wide %d)",
                node->problem.rank, step->elems, wide, peer, message->elems,
                message->wide);
    return message;
}

static void take(sim_state *world, const sim_node *node, int peer, int channel)
{
    sim_line *line = sim_line_of(world, peer, node->problem.rank, channel);
    line->sent[line->first++]->unread--;
    free_slots(&world->nodes[peer].channels[channel]);
}

static bool run_receive(sim_state *world, sim_node *node, int list,
                        const wefti_step *step)
{
    sim_require(world,
                step->peer >= 0 && step->peer < world->nranks &&
                    (step->peer != node->problem.rank ||
                     wefti_problem_sums(&node->problem)),
                "rank %d receives from %d", node->problem.rank, step->peer);
    const wefti_source from = {step->peer, 1, step->channel};
    const sim_message *message = peek(world, node, list, &from, step);
    if (message == NULL) {
        return false;
    }
    unsigned char *dst = target(world, node, list, step);
    if (step->kind == WEFTI_STEP_COMBINE) {
        sim_require(world, message->wide, "combine outside scratch");
        wefti_combine(dst, message->bytes, step->elems, world->what->dtype,
                      world->what->redop);
    } else {
        size_t width = message->wide ? world->wide_bytes : world->elem_bytes;
        memcpy(dst, message->bytes, step->elems * width);
    }
    take(world, node, step->peer, step->channel);
    return true;
}

static int count_sources(const wefti_problem *problem, const wefti_step *step)
{
    return wefti_peer_count(problem, wefti_step_sources(problem, step),
                            step->owner, step->round);
}

static bool is_own(const wefti_problem *problem, const wefti_step *step,
                   const wefti_source *from)
{
    return from->rank == problem->rank && step->src != WEFTI_BUFFER_NONE;
}

/* What a REDUCE or RELAY adds up; false: some of it has not come. */
static bool find_sources(sim_state *world, sim_node *node, int list,
                         const wefti_step *step, const void **sources,
                         int *begins)
{
    const wefti_problem *problem = &node->problem;
    begins[0] = 0;
    for (int place = 0; place < count_sources(problem, step); place++) {
        const wefti_source from = wefti_source_at(problem, step, place);
        begins[place + 1] = begins[place] + from.ranks;
        if (is_own(problem, step, &from)) {
            sources[place] = source(world, node, list, step);
            continue;
        }
        const sim_message *message = peek(world, node, list, &from, step);
        if (message == NULL) {
            return false;
        }
        sources[place] = message->bytes;
    }
    return true;
}

static void take_sources(sim_state *world, const sim_node *node,
                         const wefti_step *step)
{
    const wefti_problem *problem = &node->problem;
    for (int place = 0; place < count_sources(problem, step); place++) {
        const wefti_source from = wefti_source_at(problem, step, place);
        if (!is_own(problem, step, &from)) {
            take(world, node, from.rank, from.channel);
        }
    }
}

/* dst = the sum of all levels, or of one, by kernels/wire. */
static void add_up(const sim_state *world, const sim_node *node,
                   const wefti_step *step, const void *const *sources,
                   const int *begins, void *dst)
{
    const wefti_problem *problem = &node->problem;
    const sim_case *what = world->what;
    bool all = step->kind == WEFTI_STEP_REDUCE && step->peer == WEFTI_ALL_PEERS;
    size_t nranks = (size_t)world->nranks;
    size_t count = (size_t)count_sources(problem, step);
    if (wefti_step_sources(problem, step) == WEFTI_GIVER_PEERS) {
        wefti_reduce_nodes(dst, sources, begins, count, step->wide ? 0 : nranks,
                           step->elems, what->dtype,
                           wefti_problem_has_levels(problem)
                               ? wefti_redop_inner(what->dtype, what->redop)
                               : what->redop);
    } else if (all && wefti_problem_has_levels(problem)) {
        wefti_reduce_groups(dst, sources, problem->grouping->begins,
                            (size_t)problem->grouping->host_count, step->elems,
                            what->dtype, what->redop);
    } else if (all) {
        wefti_reduce(dst, sources, nranks, step->elems, what->dtype,
                     what->redop);
    } else {
        bool inner = step->kind == WEFTI_STEP_RELAY;
        wefti_reduce_part(dst, sources, count, nranks, step->elems, what->dtype,
                          inner ? wefti_redop_inner(what->dtype, what->redop)
                                : wefti_redop_outer(what->dtype, what->redop));
    }
}

static bool run_reduce(sim_state *world, sim_node *node, int list,
                       const wefti_step *step)
{
    const void *sources[SIM_MOST_RANKS];
    int begins[SIM_MOST_RANKS + 1];
    sim_require(
        world, step->peer == WEFTI_ALL_PEERS || step->peer == WEFTI_AGENT_PEERS,
        "reduce of some");
    if (!find_sources(world, node, list, step, sources, begins)) {
        return false;
    }
    add_up(world, node, step, sources, begins, target(world, node, list, step));
    take_sources(world, node, step);
    return true;
}

static bool run_relay(sim_state *world, sim_node *node, int list,
                      const wefti_step *step)
{
    const void *sources[SIM_MOST_RANKS];
    int begins[SIM_MOST_RANKS + 1];
    if (!find_sources(world, node, list, step, sources, begins)) {
        return false;
    }
    sim_message *message =
        stage(world, node, list, step->to_channel, step->elems, step->wide);
    if (message == NULL) {
        return false;
    }
    add_up(world, node, step, sources, begins, message->bytes);
    take_sources(world, node, step);
    post(world, node, list, step, step->to_channel, message);
    return true;
}

static void run_local(sim_state *world, sim_node *node, int list,
                      const wefti_step *step)
{
    const sim_case *what = world->what;
    const unsigned char *src = source(world, node, list, step);
    unsigned char *dst = target(world, node, list, step);
    bool from_scratch = step->src == WEFTI_BUFFER_SCRATCH;
    bool to_scratch = step->dst == WEFTI_BUFFER_SCRATCH;

    switch (step->kind) {
    case WEFTI_STEP_WIDEN:
        sim_require(world, to_scratch && !from_scratch, "odd widen");
        wefti_widen(dst, src, step->elems, what->dtype);
        break;
    case WEFTI_STEP_ROUND:
        sim_require(world, from_scratch && to_scratch, "odd round");
        wefti_round(dst, (size_t)world->nranks, step->elems, what->dtype,
                    what->redop);
        break;
    case WEFTI_STEP_NARROW:
        sim_require(world, from_scratch && !to_scratch, "odd narrow");
        wefti_narrow(dst, src, (size_t)world->nranks, step->elems, what->dtype,
                     wefti_problem_has_levels(&node->problem)
                         ? wefti_redop_outer(what->dtype, what->redop)
                         : what->redop);
        break;
    default:
        sim_require(world, step->kind == WEFTI_STEP_COPY, "unknown step");
        sim_require(world,
                    (!from_scratch && !to_scratch) ||
                        (from_scratch != to_scratch &&
                         !is_wide(world, WEFTI_BUFFER_SCRATCH)),
                    "odd copy");
        if (dst != src) {
            memcpy(dst, src, step->elems * world->elem_bytes);
        }
        break;
    }
}

bool sim_advance(sim_state *world, int rank, int list)
{
    sim_node *node = &world->nodes[rank];
    wefti_step step;
    bool done = true;

    if (node->next[list] == node->count[list]) {
        return false;
    }
    world->what->pattern->step_at(&node->problem, list, node->next[list],
                                  &step);
    sim_require(world,
                step.elems > 0 && step.elems <= node->problem.chunk_elems,
                "step of %zu elements", step.elems);
    sim_require(world, step.channel >= 0 && step.channel < WEFTI_CHANNELS,
                "channel %d", step.channel);
    sim_require(world,
                world->grouping || world->nest || list < WEFTI_FLAT_STEP_LISTS,
                "list %d of one level", list);
    switch (step.kind) {
    case WEFTI_STEP_SEND:
        done = run_send(world, node, list, &step);
        break;
    case WEFTI_STEP_RECV:
    case WEFTI_STEP_COMBINE:
        done = run_receive(world, node, list, &step);
        break;
    case WEFTI_STEP_REDUCE:
        done = run_reduce(world, node, list, &step);
        break;
    case WEFTI_STEP_RELAY:
        done = run_relay(world, node, list, &step);
        break;
    default:
        run_local(world, node, list, &step);
        break;
    }
    node->next[list] += done;
    return done;
}
