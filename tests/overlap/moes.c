/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/overlap/moes.c - the scene as functions, and the text of weft/moe.h as
 * loops over all ranks, tokens and slots.
 */
#include "tests/overlap/moes.h"

#include "kernels/wire/reduce.h"
#include "overlap/moe_row.h"
#include "tests/comm/spread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int moes_check(bool right, const char *what)
{
    if (!right) {
        fprintf(stderr, "%s (%s)\n", what, weft_error_text());
    }
    return !right;
}

/* ---- the scene ------------------------------------------------------------
 */

static unsigned mix(unsigned a, unsigned b, unsigned c, unsigned d)
{
    unsigned mixed = a * 2654435761u + b * 40503u + c * 97u + d * 1000003u + 17;
    mixed = (mixed ^ mixed >> 15) * 2246822519u;
    mixed = (mixed ^ mixed >> 13) * 3266489917u;
    return mixed ^ mixed >> 16;
}

static size_t tokens_of(const moes_side *self, int rank)
{
    const moes_scene *of = self->of;
    if (of->pattern == MOES_LONELY && rank == 1) {
        return 0;
    }
    return of->pattern == MOES_ONE
               ? of->tokens
               : of->tokens - mix((unsigned)rank, (unsigned)self->round, 0, 1) %
                                  (of->tokens / 2 + 1);
}

static int expert_of(const moes_side *self, int rank, size_t token, int slot)
{
    const moes_scene *of = self->of;
    const unsigned drawn = mix((unsigned)rank, (unsigned)token, (unsigned)slot,
                               (unsigned)self->round);
    const int any = (int)(drawn % (unsigned)(self->experts + 1)) - 1;
    switch (of->pattern) {
    case MOES_ONE:
        return slot == 0 ? self->experts - 1 : -1;
    case MOES_LONELY:
        return any < of->experts_here ? self->experts - 1 : any;
    default:
        return any;
    }
}

static float weight_of(const moes_side *self, int rank, size_t token, int slot)
{
    return (float)(1 + mix((unsigned)token, (unsigned)rank, (unsigned)slot,
                           (unsigned)self->round + 5) %
                           1000) /
           999.0f;
}

/* Eighths of -8 .. 8: products of two, and their sums, are exact. */
static float value_of(const moes_side *self, int rank, size_t token, size_t i)
{
    const unsigned drawn = mix((unsigned)rank * 31u + (unsigned)self->round,
                               (unsigned)token, (unsigned)i, 3);
    return (float)((int)(drawn % 129) - 64) / 8.0f;
}

static float *floats(size_t count)
{
    float *made = calloc(count + 1, sizeof(*made));
    if (!made) {
        abort();
    }
    return made;
}

/* A token's elements as its experts get them. */
static void row_of(const moes_side *self, int rank, size_t token, float *row)
{
    const moes_scene *of = self->of;
    const size_t hidden = of->hidden;
    float *scratch = floats(hidden);
    void *elements = floats(hidden), *wire = floats(4 * hidden);
    for (size_t i = 0; i < hidden; i++) {
        row[i] = value_of(self, rank, token, i);
    }
    wefti_narrow(elements, row, 1, hidden, of->dtype, WEFT_REDOP_SUM);
    wefti_moe_payload_pack(wire, elements, hidden, of->dtype, of->dispatch,
                           scratch);
    wefti_moe_payload_unpack(elements, wire, hidden, of->dtype, of->dispatch,
                             scratch);
    wefti_widen(row, elements, hidden, of->dtype);
    free(scratch);
    free(elements);
    free(wire);
}

static void round_to(float *x, size_t elems, weft_dtype dtype)
{
    if (dtype != WEFT_DTYPE_F32) {
        wefti_round(x, 1, elems, dtype, WEFT_REDOP_SUM);
    }
}

/* What an expert makes of a row, in place. */
static void apply(const moes_side *self, int expert, float *row)
{
    for (size_t i = 0; i < self->of->hidden; i++) {
        row[i] *= 1 + (float)(expert % 7) * 0.25f;
    }
    round_to(row, self->of->hidden, self->of->dtype);
}

static int node_of(const moes_side *self, int rank)
{
    const char *spread = spread_get();
    return self->of->node_ranks ? rank / self->of->node_ranks
           : spread             ? spread_domain(spread, rank)
                                : 0;
}

/* ---- one rank -------------------------------------------------------------
 */

static int to_device(moes_side *self, void *device, const void *host,
                     size_t bytes)
{
    int wrong = CHECK(weft_device_copy(self->device, device, host, bytes,
                                       self->stream) == WEFT_OK);
    return wrong +
           CHECK(!self->stream || weft_stream_wait(self->stream) == WEFT_OK);
}

static int make(moes_side *self, size_t bytes, void **out)
{
    void *poison = malloc(bytes + 1);
    memset(poison, 0xa5, bytes + 1);
    int wrong =
        CHECK(weft_device_alloc(self->device, bytes + 1, out) == WEFT_OK);
    wrong += wrong ? 0 : to_device(self, *out, poison, bytes + 1);
    free(poison);
    return wrong;
}

int moes_set_up(moes_side *self, weft_comm *comm, const moes_scene *of)
{
    *self = (moes_side){.of = of,
                        .comm = comm,
                        .rank = weft_comm_get_rank(comm),
                        .nranks = weft_comm_get_nranks(comm)};
    self->device = of->devices[self->rank];
    self->experts = self->nranks * of->experts_here;
    const size_t enough = of->tokens * (size_t)self->nranks * (size_t)of->slots;
    self->capacity =
        of->capacity && of->overflows_at == self->rank ? of->capacity : enough;
    self->row_bytes = of->hidden * weft_dtype_bytes(of->dtype);
    const weft_moe_config config = {.size_bytes = sizeof(config),
                                    .comm = comm,
                                    .device = self->device,
                                    .hidden = of->hidden,
                                    .experts = self->experts,
                                    .slots = of->slots,
                                    .tokens = of->tokens,
                                    .capacity = self->capacity,
                                    .dtype = of->dtype,
                                    .dispatch_dtype = of->dispatch,
                                    .combine_dtype = of->combine,
                                    .hops = of->hops,
                                    .node_ranks = of->node_ranks,
                                    .batches = 2,
                                    .label = "experts"};
    const size_t slot_bytes = of->tokens * (size_t)of->slots * sizeof(float);
    return CHECK(!of->streams || weft_stream_create(self->device, 0,
                                                    &self->stream) == WEFT_OK) +
           make(self, of->tokens * self->row_bytes, &self->x) +
           make(self, of->tokens * self->row_bytes, &self->out) +
           make(self, self->capacity * self->row_bytes, &self->y) +
           make(self, self->capacity * self->row_bytes, &self->dy) +
           make(self, slot_bytes, &self->expert) +
           make(self, slot_bytes, &self->weight) +
           make(self, slot_bytes, &self->dweight) +
           CHECK(weft_moe_create(&config, &self->moe) == WEFT_OK);
}

void moes_tear_down(moes_side *self)
{
    void *const all[] = {self->x,      self->out,    self->y,      self->dy,
                         self->expert, self->weight, self->dweight};
    weft_moe_destroy(self->moe);
    weft_stream_destroy(self->stream);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        weft_device_free(self->device, all[i]);
    }
}

int moes_fill(moes_side *self, int round)
{
    const moes_scene *of = self->of;
    const size_t hidden = of->hidden, slots = (size_t)of->slots;
    self->round = round;
    self->tokens = tokens_of(self, self->rank);
    float *x = floats(of->tokens * hidden),
          *weight = floats(of->tokens * slots);
    void *elements = floats(of->tokens * hidden);
    int32_t *expert = (int32_t *)floats(of->tokens * slots);
    for (size_t token = 0; token < self->tokens; token++) {
        for (size_t i = 0; i < hidden; i++) {
            x[token * hidden + i] = value_of(self, self->rank, token, i);
        }
        for (size_t slot = 0; slot < slots; slot++) {
            expert[token * slots + slot] =
                expert_of(self, self->rank, token, (int)slot);
            weight[token * slots + slot] =
                weight_of(self, self->rank, token, (int)slot);
        }
    }
    wefti_narrow(elements, x, 1, of->tokens * hidden, of->dtype,
                 WEFT_REDOP_SUM);
    int wrong =
        to_device(self, self->x, elements, of->tokens * self->row_bytes);
    wrong += to_device(self, self->expert, expert,
                       of->tokens * slots * sizeof(*expert));
    wrong += to_device(self, self->weight, weight,
                       of->tokens * slots * sizeof(*weight));
    free(x);
    free(weight);
    free(elements);
    free(expert);
    return wrong;
}

/* The device's rows as floats; freed by the caller. */
static float *fetch(moes_side *self, const void *rows, size_t count, int *wrong)
{
    const size_t elems = count * self->of->hidden;
    void *host = floats(elems);
    float *wide = floats(elems);
    *wrong += to_device(self, host, rows, count * self->row_bytes);
    wefti_widen(wide, host, elems, self->of->dtype);
    free(host);
    return wide;
}

/* ---- what must come of it -------------------------------------------------
 */

/* Whom the rows of this rank's experts are of, in the batch's order. */
typedef struct origin {
    int expert, rank, slot;
    size_t token;
} origin;

static size_t list_rows(const moes_side *self, origin *rows, int32_t *counts)
{
    const moes_scene *of = self->of;
    size_t count = 0;
    for (int here = 0; here < of->experts_here; here++) {
        const int expert = self->rank * of->experts_here + here;
        const size_t first = count;
        for (int rank = 0; rank < self->nranks; rank++) {
            for (size_t token = 0; token < tokens_of(self, rank); token++) {
                for (int slot = 0; slot < of->slots; slot++) {
                    if (expert_of(self, rank, token, slot) == expert) {
                        rows[count++] = (origin){expert, rank, slot, token};
                    }
                }
            }
        }
        counts[here] = (int32_t)(count - first);
    }
    return count;
}

static origin *make_list(const moes_side *self, size_t *count_out,
                         int32_t *counts)
{
    const moes_scene *of = self->of;
    origin *rows = calloc((size_t)self->nranks * of->tokens *
                              (size_t)of->slots * (size_t)of->experts_here,
                          sizeof(*rows));
    *count_out = list_rows(self, rows, counts);
    return rows;
}

static int differ(const float *got, const float *wanted, size_t elems)
{
    return memcmp(got, wanted, elems * sizeof(*got)) != 0;
}

int moes_check_rows(moes_side *self, const weft_moe_batch *batch)
{
    const size_t hidden = self->of->hidden;
    int32_t counts[64];
    size_t count;
    int wrong = CHECK(weft_gate_wait(batch->counted, batch->counted_chunk,
                                     batch->counted_epoch, NULL) == WEFT_OK);
    origin *rows = make_list(self, &count, counts);
    float *got = fetch(self, batch->rows, count, &wrong);
    float *wanted = floats(hidden);
    for (int here = 0; here < self->of->experts_here; here++) {
        wrong += CHECK(batch->expert_rows[here] == counts[here]);
    }
    for (size_t row = 0; row < count && wrong == 0; row++) {
        row_of(self, rows[row].rank, rows[row].token, wanted);
        wrong += CHECK(!differ(got + row * hidden, wanted, hidden));
    }
    free(rows);
    free(got);
    free(wanted);
    return wrong;
}

int moes_compute(moes_side *self, const weft_moe_batch *batch)
{
    const size_t hidden = self->of->hidden;
    int32_t counts[64];
    size_t count;
    int wrong = 0;
    origin *rows = make_list(self, &count, counts);
    float *y = fetch(self, batch->rows, count, &wrong);
    void *narrow = floats(count * hidden);
    for (size_t row = 0; row < count; row++) {
        apply(self, rows[row].expert, y + row * hidden);
    }
    wefti_narrow(narrow, y, 1, count * hidden, self->of->dtype, WEFT_REDOP_SUM);
    wrong += to_device(self, self->y, narrow, count * self->row_bytes);
    free(rows);
    free(y);
    free(narrow);
    return wrong;
}

/* dst = x, or dst + x. */
static void add(float *dst, const float *x, size_t elems, bool first)
{
    for (size_t i = 0; i < elems; i++) {
        dst[i] = first ? x[i] : dst[i] + x[i];
    }
}

/* One rank's part of a token's sum; false: it has none. */
static bool sum_rank(const moes_side *self, size_t token, int rank,
                     bool weighted, float *part)
{
    const moes_scene *of = self->of;
    float *row = floats(of->hidden);
    bool any = false;
    for (int slot = 0; slot < of->slots; slot++) {
        const int expert = expert_of(self, self->rank, token, slot);
        if (expert < 0 || expert / of->experts_here != rank) {
            continue;
        }
        row_of(self, self->rank, token, row);
        apply(self, expert, row);
        for (size_t i = 0; i < of->hidden && weighted; i++) {
            row[i] *= weight_of(self, self->rank, token, slot);
        }
        add(part, row, of->hidden, !any);
        any = true;
    }
    round_to(part, of->hidden, of->combine);
    free(row);
    return any;
}

static void sum_token(const moes_side *self, size_t token, bool weighted,
                      float *sum)
{
    const size_t hidden = self->of->hidden;
    float *node_sum = floats(hidden), *part = floats(hidden);
    bool any_node = false;
    memset(sum, 0, hidden * sizeof(*sum));
    for (int node = 0; node < self->nranks; node++) {
        bool any = false;
        for (int rank = 0; rank < self->nranks; rank++) {
            if (node_of(self, rank) == node &&
                sum_rank(self, token, rank, weighted, part)) {
                add(node_sum, part, hidden, !any);
                any = true;
            }
        }
        if (any) {
            round_to(node_sum, hidden, self->of->combine);
            add(sum, node_sum, hidden, !any_node);
            any_node = true;
        }
    }
    round_to(sum, hidden, self->of->dtype);
    free(node_sum);
    free(part);
}

int moes_check_sums(moes_side *self, bool weighted)
{
    const size_t hidden = self->of->hidden;
    int wrong = 0;
    float *got = fetch(self, self->out, self->tokens, &wrong);
    float *wanted = floats(hidden);
    for (size_t token = 0; token < self->tokens && wrong == 0; token++) {
        sum_token(self, token, weighted, wanted);
        wrong += CHECK(!differ(got + token * hidden, wanted, hidden));
    }
    free(got);
    free(wanted);
    return wrong;
}

static int check_dy(moes_side *self)
{
    const moes_scene *of = self->of;
    const size_t hidden = of->hidden;
    int32_t counts[64];
    size_t count;
    int wrong = 0;
    origin *rows = make_list(self, &count, counts);
    float *got = fetch(self, self->dy, count, &wrong), *wanted = floats(hidden);
    for (size_t row = 0; row < count && wrong == 0; row++) {
        const origin *whose = &rows[row];
        for (size_t i = 0; i < hidden; i++) {
            wanted[i] = value_of(self, whose->rank, whose->token, i) *
                        weight_of(self, whose->rank, whose->token, whose->slot);
        }
        round_to(wanted, hidden, of->dtype);
        wrong += CHECK(!differ(got + row * hidden, wanted, hidden));
    }
    free(rows);
    free(got);
    free(wanted);
    return wrong;
}

int moes_check_gradients(moes_side *self, const weft_moe_batch *batch)
{
    const moes_scene *of = self->of;
    const size_t slots = (size_t)of->slots;
    float *got = floats(self->tokens * slots), *row = floats(of->hidden);
    int wrong = check_dy(self) + CHECK(batch->tokens == self->tokens);
    wrong += to_device(self, got, self->dweight,
                       self->tokens * slots * sizeof(*got));
    for (size_t at = 0; at < self->tokens * slots && wrong == 0; at++) {
        const size_t token = at / slots;
        const int expert =
            expert_of(self, self->rank, token, (int)(at % slots));
        double product = 0;
        row_of(self, self->rank, token, row);
        apply(self, expert, row);
        for (size_t i = 0; i < of->hidden && expert >= 0; i++) {
            product +=
                (double)row[i] * (double)value_of(self, self->rank, token, i);
        }
        wrong += CHECK(fabs((double)got[at] - product) <=
                       1e-5 * (double)of->hidden * 64);
    }
    free(got);
    free(row);
    return wrong;
}

/* ---- worlds ---------------------------------------------------------------
 */

weft_device *moes_open(const moes_scene *of)
{
    weft_device *device;
    if (weft_device_open(of->device, 0, &device) != WEFT_OK) {
        abort();
    }
    return device;
}

static void open_device(int rank, void *context)
{
    moes_scene *of = context;
    of->devices[rank] = moes_open(of);
}

static void set_device(int rank, weft_comm_config *config, void *context)
{
    moes_scene *of = context;
    config->device = of->devices[rank];
}

void moes_run_world(moes_scene of, int nranks, world_rank_call call)
{
    struct world world = {
        .nranks = nranks,
        .config = {.size_bytes = sizeof(world.config), .timeout_ms = 60000},
        .call = call,
        .context = &of,
        .deadline_s = 100,
        .before = open_device,
        .configure = set_device};
    if (world_run_threads(&world) != 0) {
        fprintf(stderr,
                "%d ranks of %d on %s: hops %d, pattern %d, dtypes %d %d %d\n",
                nranks, of.node_ranks, of.device, of.hops, (int)of.pattern,
                (int)of.dtype, (int)of.dispatch, (int)of.combine);
        abort();
    }
    for (int rank = 0; rank < nranks; rank++) {
        weft_device_close(of.devices[rank]);
    }
}
