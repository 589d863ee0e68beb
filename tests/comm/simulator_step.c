/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/simulator_step.c - one step of one track, with all the rules of
 * comm/pattern/pattern.h checked on the way.
 */
#include "kernels/wire/fold.h"
#include "tests/comm/simulator_state.h"

#include <stdlib.h>
#include <string.h>

/* The step's end in one of the rank's buffers; must lie inside. */
static unsigned char *place(const sim_state *world, sim_node *node, int track,
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
        sim_require(world, elem == 0, "scratch from element %zu", elem);
        return node->scratch[track];
    }
}

static const unsigned char *source(const sim_state *world, sim_node *node,
                                   int track, const wefti_step *step)
{
    return place(world, node, track, step->src, step->src_elem, step->elems);
}

static unsigned char *target(const sim_state *world, sim_node *node, int track,
                             const wefti_step *step)
{
    sim_require(world, step->dst != WEFTI_BUFFER_SEND, "input written");
    unsigned char *dst =
        place(world, node, track, step->dst, step->dst_elem, step->elems);
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

/* Only one track may use an end of a line. */
static void claim(const sim_state *world, int *track_used, int track)
{
    sim_require(world, *track_used < 0 || *track_used == track,
                "tracks %d and %d use one end", *track_used, track);
    *track_used = track;
}

static bool run_send(sim_state *world, sim_node *node, int track,
                     const wefti_step *step)
{
    sim_channel *channel = &node->channels[step->channel];
    int rank = node->problem.rank;
    bool to_all = step->peer == WEFTI_ALL_PEERS;
    bool wide = step->src == WEFTI_BUFFER_SCRATCH;
    size_t bytes = step->elems * (wide ? world->wide_bytes : world->elem_bytes);

    claim(world, &channel->track, track);
    sim_require(world, channel->slots > 0, "rank %d has no slots", rank);
    sim_require(world,
                to_all ? world->nranks > 1
                       : step->peer != rank && step->peer >= 0 &&
                             step->peer < world->nranks,
                "rank %d sends to %d", rank, step->peer);
    if (channel->staged == channel->slots) {
        return false;
    }
    sim_message *message = malloc(sizeof(*message) + bytes);
    assert_non_null(message);
    *message = (sim_message){.unread = to_all ? (unsigned)world->nranks - 1 : 1,
                             .elems = step->elems,
                             .wide = wide};
    memcpy(message->bytes, source(world, node, track, step), bytes);
    take_slot(channel, message);
    world->messages++;
    for (int p = 0; p < world->nranks; p++) {
        if (p != rank && (to_all || p == step->peer)) {
            sim_line *line = sim_line_of(world, rank, p, step->channel);
            claim(world, &line->send_track, track);
            line_put(line, message);
        }
    }
    return true;
}

/* The next message from peer, or NULL if there is none yet. */
static const sim_message *peek(sim_state *world, const sim_node *node,
                               int track, int peer, const wefti_step *step)
{
    sim_line *line =
        sim_line_of(world, peer, node->problem.rank, step->channel);
    bool wide = step->dst == WEFTI_BUFFER_SCRATCH;

    claim(world, &line->read_track, track);
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

static bool run_receive(sim_state *world, sim_node *node, int track,
                        const wefti_step *step)
{
    sim_require(world,
                step->peer >= 0 && step->peer < world->nranks &&
                    step->peer != node->problem.rank,
                "rank %d receives from %d", node->problem.rank, step->peer);
    const sim_message *message = peek(world, node, track, step->peer, step);
    if (message == NULL) {
        return false;
    }
    unsigned char *dst = target(world, node, track, step);
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

static bool run_fold(sim_state *world, sim_node *node, int track,
                     const wefti_step *step)
{
    const void *sources[SIM_MOST_RANKS];
    int rank = node->problem.rank;

    sim_require(world, step->peer == WEFTI_ALL_PEERS, "fold of some");
    for (int p = 0; p < world->nranks; p++) {
        if (p == rank) {
            sources[p] = source(world, node, track, step);
            continue;
        }
        const sim_message *message = peek(world, node, track, p, step);
        if (message == NULL) {
            return false;
        }
        sources[p] = message->bytes;
    }
    wefti_fold(target(world, node, track, step), sources, (size_t)world->nranks,
               step->elems, world->what->dtype, world->what->redop);
    for (int p = 0; p < world->nranks; p++) {
        if (p != rank) {
            take(world, node, p, step->channel);
        }
    }
    return true;
}

static void run_local(sim_state *world, sim_node *node, int track,
                      const wefti_step *step)
{
    const sim_case *what = world->what;
    const unsigned char *src = source(world, node, track, step);
    unsigned char *dst = target(world, node, track, step);
    bool from_scratch = step->src == WEFTI_BUFFER_SCRATCH;
    bool to_scratch = step->dst == WEFTI_BUFFER_SCRATCH;

    switch (step->kind) {
    case WEFTI_STEP_WIDEN:
        sim_require(world, to_scratch && !from_scratch, "odd widen");
        wefti_widen(dst, src, step->elems, what->dtype);
        break;
    case WEFTI_STEP_NARROW:
        sim_require(world, from_scratch && !to_scratch, "odd narrow");
        wefti_narrow(dst, src, (size_t)world->nranks, step->elems, what->dtype,
                     what->redop);
        break;
    default:
        sim_require(world, step->kind == WEFTI_STEP_COPY, "unknown step");
        sim_require(world, !from_scratch && !to_scratch, "odd copy");
        if (dst != src) {
            memcpy(dst, src, step->elems * world->elem_bytes);
        }
        break;
    }
}

bool sim_advance(sim_state *world, int rank, int track)
{
    sim_node *node = &world->nodes[rank];
    wefti_step step;
    bool done = true;

    if (node->next[track] == node->count[track]) {
        return false;
    }
    world->what->pattern->step_at(&node->problem, track, node->next[track],
                                  &step);
    sim_require(world,
                step.elems > 0 && step.elems <= node->problem.chunk_elems,
                "step of %zu elements", step.elems);
    sim_require(world, step.channel >= 0 && step.channel < WEFTI_CHANNELS,
                "channel %d", step.channel);
    switch (step.kind) {
    case WEFTI_STEP_SEND:
        done = run_send(world, node, track, &step);
        break;
    case WEFTI_STEP_RECV:
    case WEFTI_STEP_COMBINE:
        done = run_receive(world, node, track, &step);
        break;
    case WEFTI_STEP_FOLD:
        done = run_fold(world, node, track, &step);
        break;
    default:
        run_local(world, node, track, &step);
        break;
    }
    node->next[track] += done;
    return done;
}
