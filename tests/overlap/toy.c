/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/overlap/toy.c - the model of whole numbers, in a pipeline and without.
 */
#include "tests/overlap/toy.h"

#include "device/device.h"
#include "device/shadow.h"
#include "overlap/schedule/schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t poison = UINT64_C(0xdeadbeefdeadbeef);

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ z >> 29;
}

/* ---- the arithmetic -------------------------------------------------------
 */

static uint64_t token(uint64_t step, int direction, int microbatch, int cell)
{
    return mix(step * 1000 + (uint64_t)direction,
               (uint64_t)(microbatch * 1000 + cell));
}

static uint64_t forward_of(uint64_t x, int stage)
{
    return mix(x, (uint64_t)stage + 1);
}

/* The gradient of the last stage's output. */
static uint64_t loss_of(uint64_t y)
{
    return y ^ UINT64_C(0x5555);
}

static uint64_t backward_of(uint64_t dy, uint64_t x)
{
    return mix(dy, x);
}

/* Whether a row goes from a stage to the next. */
static bool goes_on(const toy *it, int stage, size_t row)
{
    const int length = wefti_stages_of_direction(it->schedule);
    return stage >= 0 && stage < length - 1 &&
           (!it->rows || row < it->rows[stage]);
}

/* The gradient of each stage of a direction, without a pipeline. */
static void find_gradients(const toy *it, int direction, uint64_t *gradients)
{
    const weft_schedule *schedule = it->schedule;
    int length = wefti_stages_of_direction(schedule);
    uint64_t *x = calloc((size_t)length + 1, sizeof(*x));
    memset(gradients, 0, (size_t)length * sizeof(*gradients));
    for (int i = 0; x && i < schedule->per_stage; i++) {
        for (int cell = 0; cell < TOY_CELLS; cell++) {
            const size_t row = (size_t)cell / TOY_ELEMS;
            for (int s = 0; s < length; s++) {
                x[s] = goes_on(it, s - 1, row)
                           ? forward_of(x[s - 1], s - 1)
                           : token(it->step, direction, i, cell);
            }
            uint64_t dy = 0;
            for (int s = length - 1; s >= 0; s--) {
                dy = goes_on(it, s, row) ? dy : loss_of(forward_of(x[s], s));
                gradients[s] += x[s] * dy;
                dy = backward_of(dy, x[s]);
            }
        }
    }
    free(x);
}

/* ---- the calls ------------------------------------------------------------
 */

static void complain(toy *it, const weft_pipeline_work *work, const char *what)
{
    if (it->wrong++ < 4) {
        fprintf(stderr, "rank %d, step %" PRIu64 ", stage %d, %d: %s\n",
                it->rank, it->step, work->stage, work->microbatch, what);
    }
}

/* What one kernel moves. */
typedef struct cells {
    uint64_t *dst;
    const uint64_t *src;
    size_t count;
} cells;

static void move_cells(void *arg)
{
    const cells *mine = arg;
    memcpy(mine->dst, mine->src, mine->count * sizeof(*mine->dst));
}

/* Where the device reaches memory that host code does not, its kernel does. */
static void run_cells(toy *it, cells *moved)
{
    if (!it->stream) {
        move_cells(moved);
        return;
    }
    moved->dst = wefti_shadow_translate(it->device, moved->dst);
    moved->src = wefti_shadow_translate(it->device, (void *)moved->src);
    if (wefti_shadow_launch(it->stream, move_cells, moved) != WEFT_OK ||
        weft_stream_wait(it->stream) != WEFT_OK) {
        it->wrong++;
    }
}

static void read_cells(toy *it, const weft_rows *rows, size_t at, size_t count,
                       uint64_t *out)
{
    run_cells(it, &(cells){out, (uint64_t *)rows->data + at, count});
}

static void write_cells(toy *it, const weft_rows *rows, size_t at, size_t count,
                        const uint64_t *values)
{
    run_cells(it, &(cells){(uint64_t *)rows->data + at, values, count});
}

static toy_slot *slot_of(toy *it, const weft_pipeline_work *work)
{
    static toy_slot nowhere;
    if (work->slot < 0 || (size_t)work->slot >= it->slots) {
        complain(it, work, "no such slot");
        return &nowhere;
    }
    return &it->slot[work->slot];
}

static toy_slot *own_slot(toy *it, const weft_pipeline_work *work)
{
    toy_slot *slot = slot_of(it, work);
    if (slot->stage != work->stage || slot->microbatch != work->microbatch) {
        complain(it, work, "another one is in its slot");
    }
    return slot;
}

static toy_slot *free_slot(toy *it, const weft_pipeline_work *work)
{
    toy_slot *slot = slot_of(it, work);
    if (slot->stage != -1) {
        complain(it, work, "its slot is not free");
    }
    slot->stage = work->stage;
    slot->microbatch = work->microbatch;
    return slot;
}

/* A row that comes from another stage. */
static weft_status read_row(toy *it, const weft_pipeline_work *work, size_t row,
                            uint64_t *out)
{
    weft_status status =
        it->hurried ? WEFT_OK : weft_rows_wait(work->input, row + 1);
    read_cells(it, work->input, row * TOY_ELEMS, TOY_ELEMS, out);
    return status;
}

/* Of F: from before, or from the tokens. */
static weft_status read_input(toy *it, const weft_pipeline_work *work,
                              size_t row, uint64_t *out)
{
    if (goes_on(it, work->model_stage - 1, row)) {
        return read_row(it, work, row, out);
    }
    for (size_t e = 0; e < TOY_ELEMS; e++) {
        out[e] = token(it->step, work->direction, work->microbatch,
                       (int)(row * TOY_ELEMS + e));
    }
    return WEFT_OK;
}

static void spoil(toy *it, const weft_rows *rows)
{
    uint64_t spoilt[TOY_CELLS];
    for (size_t c = 0; c < TOY_CELLS; c++) {
        spoilt[c] = poison;
    }
    if (rows) {
        write_cells(it, rows, 0, TOY_CELLS, spoilt);
    }
}

static weft_status forward(void *context, const weft_pipeline_work *work)
{
    toy *it = context;
    toy_slot *slot = free_slot(it, work);
    weft_status status = WEFT_OK;
    spoil(it, work->output);
    for (size_t row = 0; row < TOY_ROWS && status == WEFT_OK; row++) {
        size_t at = row * TOY_ELEMS;
        status = read_input(it, work, row, slot->x + at);
        for (size_t e = 0; e < TOY_ELEMS; e++) {
            slot->y[at + e] = forward_of(slot->x[at + e], work->model_stage);
        }
        if (goes_on(it, work->model_stage, row)) {
            write_cells(it, work->output, at, TOY_ELEMS, slot->y + at);
        }
        if (status == WEFT_OK && row % 3 == 0) { /* the rest: the executor */
            status = weft_rows_signal(work->output, row + 1);
        }
    }
    if (work->last != !work->output || work->first != !work->input) {
        complain(it, work, "the model's ends are not where rows are missing");
    }
    if (status == WEFT_OK && !it->hurried) {
        spoil(it, work->input);
    }
    if (work->kept >= 0) { /* to be computed again */
        it->kept_slot[work->kept] = *slot;
        slot->stage = -1;
    }
    return status;
}

static weft_status backward_input(void *context, const weft_pipeline_work *work)
{
    toy *it = context;
    toy_slot *slot = own_slot(it, work);
    weft_status status = WEFT_OK;
    spoil(it, work->output);
    for (size_t row = 0; row < TOY_ROWS && status == WEFT_OK; row++) {
        size_t at = row * TOY_ELEMS;
        const bool returns = goes_on(it, work->model_stage, row);
        if (returns) {
            status = read_row(it, work, row, slot->dy + at);
        }
        uint64_t dx[TOY_ELEMS];
        for (size_t e = 0; e < TOY_ELEMS; e++) {
            const size_t c = at + e;
            slot->dy[c] = returns ? slot->dy[c] : loss_of(slot->y[c]);
            dx[e] = backward_of(slot->dy[c], slot->x[c]);
        }
        if (goes_on(it, work->model_stage - 1, row)) {
            write_cells(it, work->output, at, TOY_ELEMS, dx);
        }
        if (status == WEFT_OK && row % 4 == 0) {
            status = weft_rows_signal(work->output, row + 1);
        }
    }
    if (status == WEFT_OK && !it->hurried) {
        spoil(it, work->input);
    }
    return status;
}

static weft_status backward_weight(void *context,
                                   const weft_pipeline_work *work)
{
    toy *it = context;
    toy_slot *slot = own_slot(it, work);
    for (size_t c = 0; c < TOY_CELLS; c++) {
        it->gradient[work->stage] += slot->x[c] * slot->dy[c];
    }
    if (work->input || work->output) {
        complain(it, work, "a W has rows");
    }
    it->gradients[work->stage]++;
    slot->stage = -1;
    return WEFT_OK;
}

static weft_status backward(void *context, const weft_pipeline_work *work)
{
    weft_status status = backward_input(context, work);
    weft_pipeline_work w = *work;
    w.input = w.output = NULL;
    return status == WEFT_OK ? backward_weight(context, &w) : status;
}

static weft_status pair(void *context, const weft_pipeline_work *f,
                        const weft_pipeline_work *b)
{
    weft_status status = backward(context, b); /* any order is legal */
    return status == WEFT_OK ? forward(context, f) : status;
}

/* Back from where it was kept: computed again, or from the host. */
static weft_status bring_back(void *context, const weft_pipeline_work *work)
{
    toy *it = context;
    toy_slot *slot = free_slot(it, work);
    const toy_slot *kept = &it->kept_slot[work->kept];
    if (kept->stage != work->stage || kept->microbatch != work->microbatch) {
        complain(it, work, "another one has been kept in its place");
    }
    *slot = *kept;
    return WEFT_OK;
}

static weft_status offload(void *context, const weft_pipeline_work *work)
{
    toy *it = context;
    toy_slot *slot = own_slot(it, work);
    it->kept_slot[work->kept] = *slot;
    slot->stage = -1;
    return WEFT_OK;
}

static weft_status release(void *context, const weft_pipeline_work *work)
{
    toy *it = context;
    (void)work;
    it->released++;
    return WEFT_OK;
}

static weft_status whole(void *context, weft_action_type type, int stage)
{
    toy *it = context;
    bool complete = it->gradients[stage] == it->schedule->per_stage;
    if (type == WEFT_ACTION_REDUCE_GRAD) {
        it->reduced[stage]++;
        it->wrong += !complete;
    } else if (type == WEFT_ACTION_OPT) {
        it->stepped[stage]++;
        it->wrong += !complete;
    } else if (type == WEFT_ACTION_GATHER_PARAM) {
        it->gathered[stage]++;
    }
    return WEFT_OK;
}

const weft_pipeline_calls toy_calls = {.size_bytes = sizeof(toy_calls),
                                       .forward = forward,
                                       .backward_input = backward_input,
                                       .backward_weight = backward_weight,
                                       .recompute = bring_back,
                                       .offload = offload,
                                       .reload = bring_back,
                                       .release = release,
                                       .whole = whole};

const weft_pipeline_calls toy_calls_whole = {.size_bytes =
                                                 sizeof(toy_calls_whole),
                                             .forward = forward,
                                             .backward_input = backward_input,
                                             .backward_weight = backward_weight,
                                             .backward = backward,
                                             .pair = pair,
                                             .recompute = bring_back,
                                             .offload = offload,
                                             .reload = bring_back,
                                             .release = release,
                                             .whole = whole};

/* ---- steps ----------------------------------------------------------------
 */

void toy_init(toy *it, const weft_schedule *schedule, weft_device *device,
              int rank, const weft_pipeline_peaks *peaks)
{
    size_t stages = (size_t)schedule->stages;
    *it = (toy){.schedule = schedule,
                .device = device,
                .rank = rank,
                .slots = (size_t)peaks->slots,
                .kept = (size_t)peaks->kept};
    if (!wefti_device_can(device, WEFT_CAP_HOST_READS) &&
        weft_stream_create(device, 0, &it->stream) != WEFT_OK) {
        abort();
    }
    it->slot = calloc(it->slots + 1, sizeof(*it->slot));
    it->kept_slot = calloc(it->kept + 1, sizeof(*it->kept_slot));
    it->gradient = calloc(stages, sizeof(*it->gradient));
    it->reduced = calloc(stages, sizeof(int));
    it->stepped = calloc(stages, sizeof(int));
    it->gathered = calloc(stages, sizeof(int));
    it->gradients = calloc(stages, sizeof(int));
    if (!it->slot || !it->kept_slot || !it->gradient || !it->reduced ||
        !it->stepped || !it->gathered || !it->gradients) {
        abort();
    }
    for (size_t k = 0; k < it->slots; k++) {
        it->slot[k].stage = -1;
    }
}

void toy_fini(toy *it)
{
    weft_stream_destroy(it->stream);
    free(it->slot);
    free(it->kept_slot);
    free(it->gradient);
    free(it->reduced);
    free(it->stepped);
    free(it->gathered);
    free(it->gradients);
}

void toy_begin(toy *it, uint64_t step)
{
    size_t stages = (size_t)it->schedule->stages;
    it->step = step;
    it->released = 0;
    memset(it->gradient, 0, stages * sizeof(*it->gradient));
    memset(it->reduced, 0, stages * sizeof(int));
    memset(it->stepped, 0, stages * sizeof(int));
    memset(it->gathered, 0, stages * sizeof(int));
    memset(it->gradients, 0, stages * sizeof(int));
}

void toy_end(toy *it)
{
    int length = wefti_stages_of_direction(it->schedule);
    uint64_t *right = calloc((size_t)length, sizeof(*right));
    for (int d = 0; right && d < it->schedule->directions; d++) {
        find_gradients(it, d, right);
        for (int s = 0; s < length; s++) {
            int stage = d * length + s;
            if (it->schedule->rank_of[stage] == it->rank &&
                it->gradient[stage] != right[s]) {
                fprintf(stderr,
                        "rank %d, step %" PRIu64
                        ", stage %d: its gradient is wrong\n",
                        it->rank, it->step, stage);
                it->wrong++;
            }
        }
    }
    free(right);
    for (size_t k = 0; k < it->slots; k++) {
        it->wrong += it->slot[k].stage != -1;
    }
}
