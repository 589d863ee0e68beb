/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/expert_move.c - an exchange of bytes for each bucket: who sends what
 * to whom follows from two maps, and is listed in one order on all ranks.
 */
#include "trainer/expert_move.h"

#include "base/error.h"
#include "trainer/ema.h"
#include "trainer/expert_pieces.h"
#include "weft/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = WEFTI_TENSOR_GROUP_EXPERTS };

/* What came, and where it goes. */
typedef struct arrival {
    unsigned char *to;
    size_t at, bytes;
    bool adds;
} arrival;

/* A bucket's exchange. */
typedef struct job {
    weft_event *done;
    unsigned char *out, *in;
    arrival *arrivals;
    size_t arrival_count;
    bool posted;
} job;

struct wefti_expert_move {
    wefti_replica *replica;
    weft_comm *comm;     /* the ranks with the same layers */
    weft_stream *stream; /* exchanges' */
    int nranks, rank;    /* of comm */
    int *ranks;          /* [parts][replicas of a part]: who it is */
    size_t replicas;
    job *jobs; /* [buckets], and one of what is awaited at once */
    size_t job_count;
    /* Of the exchange that is listed: by rank of comm. */
    size_t *counts[2], *displs[2]; /* bytes; sent, received */
};

static const wefti_group_plan *plan_of(const wefti_expert_move *move)
{
    return &move->replica->plan.groups[GROUP];
}

/* ---- what moves -----------------------------------------------------------
 */

static size_t list_state(const wefti_expert_move *move,
                         wefti_moved_array arrays[WEFTI_MOVED_ARRAYS_MOST])
{
    const wefti_parameter_group *group = &move->replica->groups[GROUP];
    const wefti_optimizer *optimizer = &group->optimizer;
    real *const shares[] = {optimizer->first, optimizer->second,
                            optimizer->masters};
    size_t count = 0;
    arrays[count++] =
        (wefti_moved_array){.base = group->values,
                            .elem_bytes = weft_dtype_bytes(group->dtype),
                            .flat = true};
    for (size_t i = 0; i < 3; i++) {
        if (shares[i]) {
            arrays[count++] =
                (wefti_moved_array){.base = (unsigned char *)shares[i],
                                    .elem_bytes = sizeof(real),
                                    .of_share = true};
        }
    }
    return count;
}

static size_t list_averages(const wefti_expert_move *move,
                            wefti_moved_array arrays[WEFTI_MOVED_ARRAYS_MOST])
{
    const wefti_ema_words words = wefti_ema_words_of(move->replica->ema, GROUP);
    void *const all[] = {words.f32, words.bf16, words.f8};
    static const size_t bytes[] = {4, 2, 1};
    size_t count = 0;
    for (size_t i = 0; i < 3; i++) {
        if (all[i]) {
            arrays[count++] = (wefti_moved_array){
                .base = all[i], .elem_bytes = bytes[i], .of_share = true};
        }
    }
    return count;
}

size_t wefti_expert_move_bytes(const wefti_replica *replica)
{
    const wefti_model_shape *shape = &replica->config.shape;
    const size_t state = (shape->narrow ? 3 : 2) * sizeof(real);
    return 3 * shape->ffn * shape->hidden *
           (weft_dtype_bytes(wefti_model_dtype(shape)) + state +
            wefti_ema_elem_bytes(replica->config.ema));
}

/* ---- an exchange ----------------------------------------------------------
 */

static size_t piece_bytes(const wefti_moved_piece *piece)
{
    return piece->elems * piece->array->elem_bytes;
}

/* Who lists what an exchange of its has. */
typedef struct taker {
    wefti_expert_move *move;
    job *own;
} taker;

/* Counts of bytes, and arrivals. It is to be posted if any rank sends. */
static void count_piece(void *context, const wefti_moved_piece *piece)
{
    const wefti_expert_move *move = ((taker *)context)->move;
    job *own = ((taker *)context)->own;
    own->posted = true;
    if (piece->from == move->rank) {
        move->counts[0][piece->to] += piece_bytes(piece);
    }
    if (piece->to == move->rank) {
        move->counts[1][piece->from] += piece_bytes(piece);
        own->arrival_count++;
    }
}

/* displs go forward meanwhile. */
static void take_piece(void *context, const wefti_moved_piece *piece)
{
    const wefti_expert_move *move = ((taker *)context)->move;
    job *own = ((taker *)context)->own;
    const size_t bytes = piece_bytes(piece);
    const size_t elem_bytes = piece->array->elem_bytes;
    if (piece->from == move->rank) {
        size_t *at = &move->displs[0][piece->to];
        memcpy(own->out + *at, piece->array->base + piece->from_at * elem_bytes,
               bytes);
        *at += bytes;
    }
    if (piece->to == move->rank) {
        size_t *at = &move->displs[1][piece->from];
        own->arrivals[own->arrival_count++] =
            (arrival){piece->array->base + piece->to_at * elem_bytes, *at,
                      bytes, piece->adds};
        *at += bytes;
    }
}

/* Where each rank's bytes begin; returns all. */
static size_t find_displs(const wefti_expert_move *move, int way)
{
    size_t sum = 0;
    for (int i = 0; i < move->nranks; i++) {
        move->displs[way][i] = sum;
        sum += move->counts[way][i];
    }
    return sum;
}

static void end_job(job *own)
{
    free(own->out);
    free(own->in);
    free(own->arrivals);
    *own = (job){.done = own->done};
}

static weft_status take_room(wefti_expert_move *move, job *own)
{
    const size_t out_bytes = find_displs(move, 0);
    const size_t in_bytes = find_displs(move, 1);
    own->out = malloc(out_bytes + 1);
    own->in = malloc(in_bytes + 1);
    own->arrivals = calloc(own->arrival_count + 1, sizeof(*own->arrivals));
    own->arrival_count = 0;
    return own->out && own->in && own->arrivals
               ? WEFT_OK
               : wefti_error(WEFT_ERR_NO_MEMORY,
                             "no memory for experts that move: %zu bytes go, "
                             "%zu come",
                             out_bytes, in_bytes);
}

static weft_status send(wefti_expert_move *move, job *own)
{
    (void)find_displs(move, 0);
    (void)find_displs(move, 1);
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLTOALLV,
                        .send = own->out,
                        .recv = own->in,
                        .send_counts = move->counts[0],
                        .send_displs = move->displs[0],
                        .recv_counts = move->counts[1],
                        .recv_displs = move->displs[1],
                        .dtype = WEFT_DTYPE_U8,
                        .class_id = WEFT_CLASS_EP,
                        .label = "experts that move"};
    weft_status status = weft_op_post(&op, 0, move->comm, move->stream);
    return status == WEFT_OK ? weft_event_post(own->done, move->stream)
                             : status;
}

/* What the arrays have now. */
static weft_status post_job(wefti_expert_move *move, job *own,
                            const wefti_moved_list *what)
{
    taker taken = {move, own};
    for (int way = 0; way < 2; way++) {
        memset(move->counts[way], 0,
               (size_t)move->nranks * sizeof(*move->counts[way]));
    }
    wefti_expert_pieces_list(what, count_piece, &taken);
    if (!own->posted) {
        return WEFT_OK;
    }
    weft_status status = take_room(move, own);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_expert_pieces_list(what, take_piece, &taken);
    return send(move, own);
}

/* What came may lie anywhere. */
static void add(unsigned char *to, const unsigned char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += sizeof(real)) {
        real a, b;
        memcpy(&a, to + at, sizeof(a));
        memcpy(&b, from + at, sizeof(b));
        a += b;
        memcpy(to + at, &a, sizeof(a));
    }
}

static weft_status land_job(wefti_expert_move *move, job *own, bool waits)
{
    if (!own->posted) {
        return WEFT_OK;
    }
    weft_status status =
        waits ? weft_event_wait(own->done, NULL) : weft_event_test(own->done);
    if (status == WEFT_OK) {
        status = wefti_expert_move_check(move);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (size_t i = 0; i < own->arrival_count; i++) {
        const arrival *came = &own->arrivals[i];
        if (came->adds) {
            add(came->to, own->in + came->at, came->bytes);
        } else {
            memcpy(came->to, own->in + came->at, came->bytes);
        }
    }
    end_job(own);
    return WEFT_OK;
}

static weft_status land(void *context, size_t bucket, bool waits)
{
    wefti_expert_move *move = context;
    return land_job(move, &move->jobs[bucket], waits);
}

static wefti_moved_list list_of(const wefti_expert_move *move, size_t first,
                                size_t end, const int32_t *next)
{
    return (wefti_moved_list){.plan = &move->replica->plan,
                              .ranks = move->ranks,
                              .first = first,
                              .end = end,
                              .next = next};
}

/* Here and now. */
static weft_status run_job(wefti_expert_move *move,
                           const wefti_moved_list *what)
{
    job *own = &move->jobs[plan_of(move)->bucket_count];
    weft_status status = post_job(move, own, what);
    return status == WEFT_OK ? land_job(move, own, true) : status;
}

weft_status wefti_expert_move_post(wefti_expert_move *move, size_t bucket,
                                   const int32_t *next)
{
    wefti_moved_list what = list_of(move, bucket, bucket + 1, next);
    what.array_count = list_state(move, what.arrays);
    return post_job(move, &move->jobs[bucket], &what);
}

weft_status wefti_expert_move_averages(wefti_expert_move *move,
                                       const int32_t *next)
{
    wefti_moved_list what = list_of(move, 0, plan_of(move)->bucket_count, next);
    what.array_count = list_averages(move, what.arrays);
    return run_job(move, &what);
}

weft_status wefti_expert_move_sum(wefti_expert_move *move, size_t bucket)
{
    const wefti_parameter_group *group = &move->replica->groups[GROUP];
    wefti_moved_list what = list_of(move, bucket, bucket + 1, NULL);
    what.arrays[0] =
        (wefti_moved_array){.base = (unsigned char *)group->gradient.leaf,
                            .elem_bytes = sizeof(real),
                            .of_share = true,
                            .flat = true};
    what.array_count = 1;
    return run_job(move, &what);
}

/* ---- life -----------------------------------------------------------------
 */

/* Ranks with the same layers; of a schedule with two directions, mirrors. */
static weft_status connect(wefti_expert_move *move)
{
    const wefti_replica *replica = move->replica;
    const wefti_mesh *mesh = &replica->mesh.mesh;
    const int mirror = mesh->pp - 1 - replica->mesh.at.pp;
    const int stage = mesh->mirrored && mirror < replica->mesh.at.pp
                          ? mirror
                          : replica->mesh.at.pp;
    char name[32];
    const weft_comm_config config = {.size_bytes = sizeof(config),
                                     .name = name};
    snprintf(name, sizeof(name), "experts that move, pp %d", stage);
    weft_status status = weft_comm_split(
        replica->config.comm, stage, (int)replica->rank, &config, &move->comm);
    if (status == WEFT_OK && replica->config.ledger) {
        status = weft_ledger_attach(replica->config.ledger, move->comm);
    }
    return status;
}

/* Which rank of comm is which replica of which part. */
static weft_status find_ranks(wefti_expert_move *move)
{
    const wefti_replica *replica = move->replica;
    const int32_t own[2] = {replica->mesh.at.ep,
                            (int32_t)replica->groups[GROUP].rank};
    const size_t nranks = (size_t)move->nranks;
    int32_t *all = calloc(2 * nranks, sizeof(*all));
    if (!all) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu ranks",
                           nranks);
    }
    weft_status status =
        weft_allgather(own, all, 2, WEFT_DTYPE_I32, move->comm, NULL);
    for (size_t i = 0; i < nranks && status == WEFT_OK; i++) {
        move->ranks[(size_t)all[2 * i] * move->replicas +
                    (size_t)all[2 * i + 1]] = (int)i;
    }
    free(all);
    return status;
}

static weft_status make(wefti_expert_move *move)
{
    weft_status status = connect(move);
    if (status != WEFT_OK) {
        return status;
    }
    const size_t jobs = plan_of(move)->bucket_count + 1;
    move->nranks = weft_comm_get_nranks(move->comm);
    move->rank = weft_comm_get_rank(move->comm);
    move->replicas = plan_of(move)->nranks;
    const size_t nranks = (size_t)move->nranks;
    move->ranks = calloc(nranks, sizeof(*move->ranks));
    move->jobs = calloc(jobs, sizeof(*move->jobs));
    bool whole = move->ranks && move->jobs;
    for (int way = 0; way < 2; way++) {
        move->counts[way] = calloc(nranks, sizeof(*move->counts[way]));
        move->displs[way] = calloc(nranks, sizeof(*move->displs[way]));
        whole = whole && move->counts[way] && move->displs[way];
    }
    if (!whole) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory to move experts of %zu ranks", nranks);
    }
    status = find_ranks(move);
    if (status == WEFT_OK) {
        status =
            weft_stream_create(move->replica->config.device, 0, &move->stream);
    }
    for (; move->job_count < jobs && status == WEFT_OK; move->job_count++) {
        status = weft_event_create(move->replica->config.device,
                                   &move->jobs[move->job_count].done);
    }
    return status;
}

weft_status wefti_expert_move_create(wefti_replica *replica,
                                     wefti_expert_move **move_out)
{
    wefti_parameter_group *group = &replica->groups[GROUP];
    wefti_expert_move *move = calloc(1, sizeof(*move));
    if (!move) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to move experts");
    }
    move->replica = replica;
    weft_status status = make(move);
    if (status != WEFT_OK) {
        wefti_expert_move_abort(move);
        wefti_expert_move_destroy(move);
        return status;
    }
    group->land = land;
    group->land_context = move;
    *move_out = move;
    return WEFT_OK;
}

void wefti_expert_move_abort(wefti_expert_move *move)
{
    if (move && move->comm) {
        (void)!weft_comm_abort(move->comm);
    }
}

void wefti_expert_move_destroy(wefti_expert_move *move)
{
    if (!move) {
        return;
    }
    if (move->stream) {
        (void)!weft_stream_wait(move->stream);
    }
    for (size_t i = 0; i < move->job_count; i++) {
        end_job(&move->jobs[i]);
        weft_event_destroy(move->jobs[i].done);
    }
    weft_stream_destroy(move->stream);
    if (move->comm && move->replica->config.ledger) {
        weft_ledger_detach(move->replica->config.ledger, move->comm);
    }
    weft_comm_destroy(move->comm);
    for (int way = 0; way < 2; way++) {
        free(move->counts[way]);
        free(move->displs[way]);
    }
    free(move->jobs);
    free(move->ranks);
    free(move);
}

weft_status wefti_expert_move_check(const wefti_expert_move *move)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    if (!move) {
        return WEFT_OK;
    }
    weft_status status = weft_comm_get_fault(move->comm, &fault);
    return status == WEFT_OK && fault.status != WEFT_OK
               ? wefti_error(fault.status, "%s", fault.text)
               : status;
}
