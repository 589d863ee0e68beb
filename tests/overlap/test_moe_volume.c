/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     The payload that an exchange of experts sends over each fabric is,
 *          to the byte and on each rank, what the routing table says:
 *
 *            one hop    a row for each token and other rank with an expert
 *            two hops   a row for each token and other node, to the relay
 *                       there; in a node one for each other rank that has any
 *
 *          towards experts, and the same back. A row on its way is its
 *          elements; listed besides are the scales of f8e4m3, an f32 for each
 *          128 of them, and of dispatch the source, the token, and an expert
 *          and a weight for each slot.
 * Method   Worlds of threads of which pairs, or uneven groups, share memory,
 *          and the others do not. Each rank knows the tables of all, and walks
 *          them with arithmetic of its own; around each call it looks at the
 *          counters of both fabrics.
 */
#include "comm/core/core.h"
#include "comm/engine/engine.h"
#include "comm/net/net.h"
#include "tests/comm/spread.h"
#include "tests/overlap/moes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 40, SLOTS = 4, HERE = 3, NONE = -1 };

/* Of one rank: what it sends by memory, and by the network. */
typedef struct sent {
    uint64_t shared, net;
} sent;

static sent look(weft_comm *comm)
{
    pthread_mutex_lock(&comm->engine->lock);
    const sent now = {comm->fabric.payload_bytes,
                      comm->fabric.net ? comm->fabric.net->sent_bytes : 0};
    wefti_engine_unlock(comm->engine);
    return now;
}

/* ---- what the tables say --------------------------------------------------
 */

/* What all ranks dispatch, and where ranks are. */
typedef struct tables {
    int nranks, node_ranks, hops;
    int32_t experts[MOES_MOST][TOKENS * SLOTS];
} tables;

static int domain_of(int rank)
{
    return spread_get() ? spread_domain(spread_get(), rank) : 0;
}

static int node_of(const tables *all, int rank)
{
    return all->node_ranks ? rank / all->node_ranks : domain_of(rank);
}

/* The rank of a node that source's rows go to first. */
static int relay_of(const tables *all, int source, int node)
{
    int members[MOES_MOST], count = 0, index = 0;
    for (int rank = 0; rank < all->nranks; rank++) {
        index += rank < source && node_of(all, rank) == node_of(all, source);
        if (node_of(all, rank) == node) {
            members[count++] = rank;
        }
    }
    return node == node_of(all, source) ? source : members[index % count];
}

/* Rows from rank to rank towards experts; back it is the other way round. */
typedef struct flows {
    size_t rows[MOES_MOST][MOES_MOST];
} flows;

static void add_token(const tables *all, int source, const int32_t *experts,
                      flows *sum)
{
    bool goes[MOES_MOST] = {false}, entered[MOES_MOST] = {false};
    for (int slot = 0; slot < SLOTS; slot++) {
        if (experts[slot] >= 0) {
            goes[experts[slot] / HERE] = true;
        }
    }
    for (int rank = 0; rank < all->nranks; rank++) {
        if (!goes[rank]) {
            continue;
        }
        const int node = node_of(all, rank);
        const int relay = all->hops == 2 ? relay_of(all, source, node) : source;
        sum->rows[source][relay] += !entered[node] && relay != source;
        sum->rows[relay][rank] += rank != relay;
        entered[node] = true;
    }
}

static flows walk(const tables *all)
{
    flows sum = {{{0}}};
    for (int rank = 0; rank < all->nranks; rank++) {
        for (size_t token = 0; token < TOKENS; token++) {
            add_token(all, rank, all->experts[rank] + token * SLOTS, &sum);
        }
    }
    return sum;
}

static sent of_rank(const tables *all, int rank, bool back, size_t row_bytes)
{
    const flows sum = walk(all);
    sent bytes = {0, 0};
    for (int other = 0; other < all->nranks; other++) {
        const size_t rows =
            back ? sum.rows[other][rank] : sum.rows[rank][other];
        *(domain_of(other) == domain_of(rank) ? &bytes.shared : &bytes.net) +=
            rows * row_bytes;
    }
    return bytes;
}

/* ---- what is sent ---------------------------------------------------------
 */

static int gather(moes_side *self, tables *all)
{
    int32_t own[TOKENS * SLOTS];
    all->nranks = self->nranks;
    all->node_ranks = self->of->node_ranks;
    all->hops = self->of->hops;
    for (size_t i = 0; i < TOKENS * SLOTS; i++) {
        own[i] = i < self->tokens * SLOTS ? ((int32_t *)self->expert)[i] : NONE;
    }
    return CHECK(weft_allgather(own, all->experts, TOKENS * SLOTS,
                                WEFT_DTYPE_I32, self->comm, NULL) == WEFT_OK);
}

static int compare(const moes_side *self, const char *call, sent before,
                   sent wanted)
{
    const sent after = look(self->comm);
    const sent got = {after.shared - before.shared, after.net - before.net};
    const bool same = got.shared == wanted.shared && got.net == wanted.net;
    if (!same) {
        fprintf(stderr,
                "%s of rank %d: %llu and %llu bytes, wanted %llu and %llu\n",
                call, self->rank, (unsigned long long)got.shared,
                (unsigned long long)got.net, (unsigned long long)wanted.shared,
                (unsigned long long)wanted.net);
    }
    return CHECK(same);
}

/* Rows of each kind, in bytes; one ends at a word. */
typedef struct kinds {
    size_t token, plain, sum, slots;
} kinds;

static size_t to_word(size_t bytes)
{
    return (bytes + 3) / 4 * 4;
}

static kinds kinds_of(const moes_scene *of)
{
    const size_t elem = weft_dtype_bytes(of->dtype);
    const size_t routing = 4 + 4 + SLOTS * (4 + 4);
    const size_t scales = (of->hidden + 127) / 128 * 4;
    const size_t payload =
        of->dispatch == of->dtype ? of->hidden * elem : scales + of->hidden;
    return (kinds){to_word(routing + payload), to_word(of->hidden * elem),
                   to_word(of->hidden * weft_dtype_bytes(of->combine)),
                   SLOTS * 4};
}

static sent plus(sent a, sent b)
{
    return (sent){a.shared + b.shared, a.net + b.net};
}

static int run_forward(moes_side *self, const tables *all, kinds bytes,
                       weft_moe_batch *batch)
{
    sent before = look(self->comm);
    int wrong =
        CHECK(weft_moe_dispatch(self->moe, self->x, self->expert, self->weight,
                                self->tokens, NULL, batch) == WEFT_OK);
    wrong += compare(self, "dispatch", before,
                     of_rank(all, self->rank, false, bytes.token));
    before = look(self->comm);
    wrong += CHECK(weft_moe_combine(self->moe, batch, batch->rows, self->out,
                                    NULL) == WEFT_OK);
    return wrong + compare(self, "combine", before,
                           of_rank(all, self->rank, true, bytes.sum));
}

static int run_backward(moes_side *self, const tables *all, kinds bytes,
                        weft_moe_batch *batch)
{
    sent before = look(self->comm);
    int wrong = CHECK(
        weft_moe_combine_gradient(self->moe, batch, self->x, batch->rows,
                                  self->dy, self->dweight, NULL) == WEFT_OK);
    wrong += compare(self, "combine_gradient", before,
                     plus(of_rank(all, self->rank, false, bytes.plain),
                          of_rank(all, self->rank, true, bytes.slots)));
    before = look(self->comm);
    wrong += CHECK(weft_moe_dispatch_gradient(self->moe, batch, self->dy,
                                              self->out, NULL) == WEFT_OK);
    return wrong + compare(self, "dispatch_gradient", before,
                           of_rank(all, self->rank, true, bytes.sum));
}

static int run_rank(weft_comm *comm, void *context)
{
    moes_side self;
    tables all;
    const moes_scene *of = context;
    weft_moe_batch batch = {.size_bytes = sizeof(batch)};
    int wrong = moes_set_up(&self, comm, of);
    for (int round = 0; round < of->rounds && wrong == 0; round++) {
        wrong += moes_fill(&self, round) + gather(&self, &all);
        wrong += wrong ? 0 : run_forward(&self, &all, kinds_of(of), &batch);
        wrong += wrong ? 0 : run_backward(&self, &all, kinds_of(of), &batch);
        weft_moe_batch_fini(self.moe, &batch);
    }
    wrong += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    moes_tear_down(&self);
    return wrong;
}

/* ---- worlds ---------------------------------------------------------------
 */

static const weft_dtype types[][3] = {
    {WEFT_DTYPE_F32, WEFT_DTYPE_F32, WEFT_DTYPE_F32},
    {WEFT_DTYPE_BF16, WEFT_DTYPE_BF16, WEFT_DTYPE_BF16},
    {WEFT_DTYPE_BF16, WEFT_DTYPE_F8E4M3, WEFT_DTYPE_BF16},
    {WEFT_DTYPE_F32, WEFT_DTYPE_F8E4M3, WEFT_DTYPE_F32}};

/* hidden: more than one scale's elements, and none that ends at a word. */
static void run_types(int nranks, int hops, int node_ranks)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        const moes_scene of = {.device = "host",
                               .dtype = types[i][0],
                               .dispatch = types[i][1],
                               .combine = types[i][2],
                               .hops = hops,
                               .node_ranks = node_ranks,
                               .hidden = 301,
                               .tokens = TOKENS,
                               .slots = SLOTS,
                               .experts_here = HERE,
                               .rounds = 1,
                               .overflows_at = -1};
        moes_run_world(of, nranks, run_rank);
    }
}

static void run_spread(const char *spread, int nranks)
{
    (void)setenv("WEFT_TEST_DOMAINS", spread, 1);
    for (int hops = 1; hops <= 2; hops++) {
        run_types(nranks, hops, 0);
    }
}

static void test_volume_of_ranks_that_share_memory(void **state)
{
    (void)state;
    (void)unsetenv("WEFT_TEST_DOMAINS");
    run_types(4, 1, 0);
    run_types(5, 2, 2);
}

static void test_volume_of_pairs_one_copy_for_each_host(void **state)
{
    (void)state;
    run_spread("pairs", 4);
    run_spread("pairs", 6);
}

/* A relay stands in for several ranks of a larger host. */
static void test_volume_of_hosts_that_differ_in_size(void **state)
{
    (void)state;
    run_spread("uneven", 4);
    run_spread("uneven", 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_volume_of_ranks_that_share_memory),
        cmocka_unit_test(test_volume_of_pairs_one_copy_for_each_host),
        cmocka_unit_test(test_volume_of_hosts_that_differ_in_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
