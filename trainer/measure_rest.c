/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure_rest.c - from notes to a replay.
 */
#include "trainer/measure_rest.h"

#include "base/error.h"
#include "comm/core/core.h"
#include "trainer/numbers.h"
#include "trainer/step_replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    COPIES = 6,     /* of the step, one after the other */
    FIRST_COPY = 2, /* between the end of this one, */
    LAST_COPY = 5,  /* and of this one, a step's length is taken */
    THE_LINK = 1,   /* out and in as one: an operation takes both */
    /* The search for the least goes with the square of the copies' chunks. */
    LEAST_CHUNKS = 5000
};

/* ---- taking notes ---------------------------------------------------------
 */

void wefti_rest_init(wefti_rest_log *log, const wefti_replica *replica,
                     size_t samples)
{
    *log = (wefti_rest_log){.samples = samples};
    if (replica->compute) {
        log->why = "compute is a device's stream, which the host does not "
                   "follow";
    } else if (replica->pipe.info.stages > 1) {
        log->why = "stages of a pipeline wait for each other";
    }
}

void wefti_rest_fini(wefti_rest_log *log)
{
    wefti_score_fini(&log->score);
    wefti_score_fini(&log->step);
    free(log->samples_ns[0]);
    free(log->samples_ns[1]);
}

static void set_score(wefti_replica *replica, wefti_score *score)
{
    replica->score = score;
    for (size_t i = 0; i < WEFTI_LINKS; i++) {
        replica->pipe.links[i].score =
            replica->pipe.links[i].comm ? score : NULL;
    }
}

void wefti_rest_listen(wefti_rest_log *log, wefti_replica *replica)
{
    if (!log->why) {
        wefti_score_reset(&log->score);
        set_score(replica, &log->score);
    }
}

/* Calls [first, end) of the score are a step; its notes begin there. */
typedef struct one_step {
    size_t first, end, first_note;
} one_step;

/* The first step is the pattern of all others. */
static bool keep_pattern(wefti_rest_log *log, one_step step)
{
    const wefti_score *score = &log->score;
    const size_t calls = step.end - step.first;
    for (size_t i = 0; i < calls; i++) {
        const wefti_score_call *call = &score->calls[step.first + i];
        const size_t first = i > 0 ? call[-1].notes_end : step.first_note;
        wefti_score_begin(&log->step);
        for (size_t k = first; k < call->notes_end; k++) {
            wefti_score_note_down(&log->step, &score->notes[k]);
        }
        wefti_score_end(&log->step);
    }
    for (int kind = 0; kind < 2; kind++) {
        log->samples_ns[kind] =
            calloc(calls * log->samples, sizeof(*log->samples_ns[kind]));
    }
    return !log->step.full && log->samples_ns[0] && log->samples_ns[1];
}

static bool fits_pattern(const wefti_rest_log *log, one_step step)
{
    const wefti_score *score = &log->score, *pattern = &log->step;
    if (step.end - step.first != pattern->call_count) {
        return false;
    }
    for (size_t i = 0; i < pattern->call_count; i++) {
        if (score->calls[step.first + i].notes_end - step.first_note !=
            pattern->calls[i].notes_end) {
            return false;
        }
    }
    for (size_t i = 0; i < pattern->note_count; i++) {
        const wefti_score_note *a = &pattern->notes[i];
        const wefti_score_note *b = &score->notes[step.first_note + i];
        if (a->kind != b->kind || a->number != b->number ||
            a->chunk != b->chunk) {
            return false;
        }
    }
    return true;
}

static const char *take_step(wefti_rest_log *log, wefti_rest_kind kind,
                             one_step step)
{
    const wefti_score_call *calls = &log->score.calls[step.first];
    if (log->step.call_count == 0 && !keep_pattern(log, step)) {
        return "no memory for a step's notes";
    }
    if (!fits_pattern(log, step)) {
        return "steps post and await in different orders";
    }
    if (log->taken[kind] == log->samples) {
        return NULL;
    }
    for (size_t i = 0; i < log->step.call_count; i++) {
        const int64_t ns =
            kind == WEFTI_REST_SERIAL
                ? calls[i].end_ns - calls[i].begin_ns
                : calls[i].begin_ns - calls[(ptrdiff_t)i - 1].end_ns;
        log->samples_ns[kind][i * log->samples + log->taken[kind]] = (double)ns;
    }
    log->taken[kind]++;
    return NULL;
}

/* Whether a call is the end of a step. */
static bool ends_step(const wefti_score *score, size_t call)
{
    const size_t end = score->calls[call].notes_end;
    return end > 0 && score->notes[end - 1].kind == WEFTI_SCORE_STEP;
}

void wefti_rest_take(wefti_rest_log *log, wefti_replica *replica,
                     wefti_rest_kind kind, size_t skipped_steps)
{
    const wefti_score *score = &log->score;
    one_step step = {0, 0, 0};
    set_score(replica, NULL);
    if (!log->why && score->full) {
        log->why = "no memory for a step's notes";
    }
    for (size_t i = 0; i < score->call_count && !log->why; i++) {
        if (!ends_step(score, i)) {
            continue;
        }
        step.end = i + 1;
        if (skipped_steps > 0) {
            skipped_steps--;
        } else if (step.first > 0) {
            log->why = take_step(log, kind, step);
        }
        step = (one_step){i + 1, 0, score->calls[i].notes_end};
    }
}

/* ---- what ranks have in common --------------------------------------------
 */

/* Whether all ranks have a step of the same calls. */
static weft_status agree(wefti_rest_log *log, weft_comm *comm)
{
    if (!log->why &&
        (log->step.call_count == 0 || log->taken[0] < log->samples ||
         log->taken[1] < log->samples)) {
        log->why = "steps are missing";
    }
    double own[6] = {(double)log->step.call_count, (double)log->step.note_count,
                     log->why ? 1 : 0};
    for (size_t i = 0; i < 3; i++) {
        own[3 + i] = -own[i];
    }
    weft_status status =
        weft_allreduce(own, own, 6, WEFT_DTYPE_F64, WEFT_REDOP_MAX, comm, NULL);
    if (status != WEFT_OK || log->why) {
        return status;
    }
    if (own[2] > 0) {
        log->why = "another rank has none";
    } else if (own[0] > -own[3] || own[1] > -own[4]) {
        log->why = "ranks post and await in different orders";
    }
    return status;
}

/* Of each call the median stretch before it, the ranks' mean; and the median
 * of what the last rank to come to it took, in serial steps. */
static weft_status share(wefti_rest_log *log, weft_comm *comm, double *stretch,
                         double *serial)
{
    const size_t calls = log->step.call_count, samples = log->samples;
    weft_status status = weft_allreduce(
        log->samples_ns[WEFTI_REST_SERIAL], log->samples_ns[WEFTI_REST_SERIAL],
        calls * samples, WEFT_DTYPE_F64, WEFT_REDOP_MIN, comm, NULL);
    for (size_t i = 0; i < calls; i++) {
        stretch[i] = wefti_numbers_median(
            &log->samples_ns[WEFTI_REST_COMPUTE][i * samples], samples);
        serial[i] = wefti_numbers_median(
            &log->samples_ns[WEFTI_REST_SERIAL][i * samples], samples);
    }
    return status == WEFT_OK
               ? weft_allreduce(stretch, stretch, calls, WEFT_DTYPE_F64,
                                WEFT_REDOP_AVG, comm, NULL)
               : status;
}

/* ---- the replay -----------------------------------------------------------
 */

/* An operation of the replay, and its notes. */
typedef struct played_op {
    const wefti_score_note *note;
    double length;
} played_op;

typedef struct player {
    const wefti_rest_log *log;
    const double *stretch, *serial; /* [calls] */
    wefti_replay_event *events;
    size_t event_count;
    size_t copy_end[COPIES]; /* its events end there */
    wefti_replay_op *ops;
    played_op *played; /* [op_count] */
    size_t op_count;
    double marks[COPIES];
} player;

static void close_player(player *own)
{
    free(own->events);
    free(own->ops);
    free(own->played);
}

static weft_status open_player(player *own)
{
    const size_t notes = own->log->step.note_count;
    const size_t calls = own->log->step.call_count;
    own->events = calloc(COPIES * (notes + calls), sizeof(*own->events));
    own->ops = calloc(COPIES * notes, sizeof(*own->ops));
    own->played = calloc(COPIES * notes, sizeof(*own->played));
    if (own->events && own->ops && own->played) {
        return WEFT_OK;
    }
    close_player(own);
    return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to replay %zu notes",
                       COPIES * notes);
}

/* The last one that was posted so; SIZE_MAX: none was. */
static size_t find_op(const player *own, const wefti_score_note *note)
{
    for (size_t i = own->op_count; i-- > 0;) {
        const wefti_score_note *other = own->played[i].note;
        if (other->of == note->of && other->number == note->number) {
            return i;
        }
    }
    return SIZE_MAX;
}

static void put(player *own, wefti_replay_event event)
{
    own->events[own->event_count++] = event;
}

/* What is urgent overtakes what moves in bulk, message by message: docs/
 * network.md, "What goes first". */
static void play_note(player *own, const wefti_score_note *note, double each)
{
    const bool posts =
        note->kind == WEFTI_SCORE_POST || note->kind == WEFTI_SCORE_OPEN;
    if (posts) {
        own->ops[own->op_count] = (wefti_replay_op){
            .links = THE_LINK,
            .priority = !wefti_class_is_urgent(note->class_id),
            .yields = true,
            .chunks = note->chunk};
        own->played[own->op_count++].note = note;
    }
    const size_t op = find_op(own, note);
    if (note->kind == WEFTI_SCORE_STEP) {
        put(own, (wefti_replay_event){.kind = WEFTI_REPLAY_MARK});
    } else if (op == SIZE_MAX || note->kind == WEFTI_SCORE_OPEN) {
        return; /* posted before the first step; none is ready yet */
    } else if (note->kind == WEFTI_SCORE_SERIAL) {
        own->ops[op].length = each;
    } else {
        put(own, (wefti_replay_event){.kind = note->kind == WEFTI_SCORE_AWAIT
                                                  ? WEFTI_REPLAY_AWAIT
                                                  : WEFTI_REPLAY_READY,
                                      .op = op,
                                      .chunk = posts ? WEFTI_REPLAY_ALL
                                                     : note->chunk});
    }
}

/* Operations that one call carries out share its time. */
static void play_call(player *own, size_t call)
{
    const wefti_score *step = &own->log->step;
    const size_t first = call > 0 ? step->calls[call - 1].notes_end : 0;
    const size_t end = step->calls[call].notes_end;
    size_t carried = 0;
    for (size_t i = first; i < end; i++) {
        carried += step->notes[i].kind == WEFTI_SCORE_SERIAL;
    }
    put(own, (wefti_replay_event){.kind = WEFTI_REPLAY_COMPUTE,
                                  .length = own->stretch[call]});
    for (size_t i = first; i < end; i++) {
        play_note(own, &step->notes[i],
                  own->serial[call] / (double)(carried > 0 ? carried : 1));
    }
}

/* A step's length, with operations of a class of no length; of none: all. */
static weft_status play(player *own, weft_class without, double *length_out)
{
    const wefti_replay_rank rank = {own->events, own->event_count};
    wefti_replay replay = {.ranks = &rank,
                           .rank_count = 1,
                           .ops = own->ops,
                           .op_count = own->op_count,
                           .marks = own->marks,
                           .mark_room = COPIES};
    for (size_t i = 0; i < own->op_count; i++) {
        const bool out = own->played[i].note->class_id == without;
        own->ops[i].length = out ? 0 : own->played[i].length;
    }
    weft_status status = wefti_replay_run(&replay);
    *length_out = (own->marks[LAST_COPY] - own->marks[FIRST_COPY]) /
                  (LAST_COPY - FIRST_COPY);
    return status;
}

/* Between the same two ends, too. */
static weft_status find_least(const player *own, double *least_out)
{
    double least[2] = {0, 0};
    weft_status status = WEFT_OK;
    size_t chunks = 0;
    for (size_t i = 0; i < own->op_count; i++) {
        chunks += own->ops[i].chunks;
    }
    for (int i = 0; i < 2 && status == WEFT_OK && chunks <= LEAST_CHUNKS; i++) {
        const size_t copies = (i > 0 ? LAST_COPY : FIRST_COPY) + 1;
        const wefti_replay_rank rank = {own->events, own->copy_end[copies - 1]};
        const wefti_replay replay = {.ranks = &rank,
                                     .rank_count = 1,
                                     .ops = own->ops,
                                     .op_count = own->op_count};
        status = wefti_replay_least(&replay, &least[i]);
    }
    *least_out = chunks <= LEAST_CHUNKS
                     ? (least[1] - least[0]) / (LAST_COPY - FIRST_COPY)
                     : (double)NAN;
    return status;
}

/* Adds what ranks stood still for an operation, in the mean of a step. */
static void add_node(const wefti_score_note *note, double ms,
                     wefti_rest_node *all, size_t *count)
{
    size_t i = 0;
    while (i < *count && (all[i].class_id != note->class_id ||
                          strcmp(all[i].label, note->label) != 0)) {
        i++;
    }
    if (i == *count) {
        all[(*count)++] = (wefti_rest_node){note->label, note->class_id, 0};
    }
    all[i].ms += ms;
}

static int by_ms(const void *a, const void *b)
{
    const wefti_rest_node *left = a, *right = b;
    return (left->ms < right->ms) - (left->ms > right->ms);
}

static weft_status name_nodes(const player *own, wefti_measure_rest *rest)
{
    wefti_rest_node *all = calloc(own->op_count + 1, sizeof(*all));
    size_t count = 0;
    if (!all) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu operations",
                           own->op_count);
    }
    /* What the last copy posts, no step may be left to await. */
    for (size_t i = 0; i < own->op_count / COPIES * (COPIES - 1); i++) {
        add_node(own->played[i].note, own->ops[i].waited * 1e-6 / (COPIES - 1),
                 all, &count);
    }
    qsort(all, count, sizeof(*all), by_ms);
    for (size_t i = 0; i < WEFTI_REST_NODES && i < count && all[i].ms > 0;
         i++) {
        rest->nodes[i] = all[i];
    }
    free(all);
    return WEFT_OK;
}

/* Of a difference of long times: whole ns, what is below none is rounding, or
 * a class without which others come later. */
static double to_ms(double ns)
{
    return fmax(round(ns), 0) * 1e-6;
}

static weft_status compare(player *own, wefti_measure_rest *rest)
{
    double compute = 0, whole = 0;
    for (size_t i = 0; i < own->log->step.call_count; i++) {
        compute += own->stretch[i];
    }
    rest->alone_ms = 0;
    for (size_t i = 0; i < own->op_count; i++) {
        rest->ops[own->played[i].note->class_id] += i < own->op_count / COPIES;
        rest->alone_ms += own->played[i].length * 1e-6 / COPIES;
    }
    weft_status status = WEFT_OK;
    for (int c = 0; c < WEFT_CLASS_COUNT && status == WEFT_OK; c++) {
        status = play(own, (weft_class)c, &rest->class_ms[c]);
    }
    if (status == WEFT_OK) {
        status = play(own, WEFT_CLASS_COUNT, &whole);
    }
    if (status == WEFT_OK) {
        status = name_nodes(own, rest);
    }
    if (status == WEFT_OK) {
        status = find_least(own, &rest->least_ms);
    }
    rest->rest_ms = to_ms(whole - compute);
    if (!isnan(rest->least_ms)) { /* this order is one of them */
        rest->least_ms = fmin(to_ms(rest->least_ms), rest->rest_ms);
    }
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        rest->class_ms[c] = to_ms(whole - rest->class_ms[c]);
    }
    return status;
}

static weft_status replay(const wefti_rest_log *log, const double *stretch,
                          const double *serial, wefti_measure_rest *rest)
{
    player own = {.log = log, .stretch = stretch, .serial = serial};
    weft_status status = open_player(&own);
    if (status != WEFT_OK) {
        return status;
    }
    for (size_t copy = 0; copy < COPIES; copy++) {
        for (size_t call = 0; call < log->step.call_count; call++) {
            play_call(&own, call);
        }
        own.copy_end[copy] = own.event_count;
    }
    for (size_t i = 0; i < own.op_count; i++) {
        own.played[i].length = own.ops[i].length;
    }
    status = compare(&own, rest);
    close_player(&own);
    return status;
}

weft_status wefti_rest_find(wefti_rest_log *log, weft_comm *comm,
                            wefti_measure_rest *rest_out)
{
    *rest_out = (wefti_measure_rest){.rest_ms = (double)NAN,
                                     .least_ms = (double)NAN,
                                     .alone_ms = (double)NAN};
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        rest_out->class_ms[c] = (double)NAN;
    }
    double *times = calloc(2 * log->step.call_count + 1, sizeof(*times));
    if (!times && !log->why) {
        log->why = "no memory for a step's calls";
    }
    weft_status status = agree(log, comm);
    rest_out->why = log->why;
    if (status == WEFT_OK && !log->why) {
        double *serial = times + log->step.call_count;
        status = share(log, comm, times, serial);
        if (status == WEFT_OK) {
            status = replay(log, times, serial, rest_out);
        }
    }
    free(times);
    return status;
}
