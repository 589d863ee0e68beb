/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/weave.c - two programs by turns.
 */
#include "trainer/program/weave.h"

#include <sched.h>
#include <string.h>

const wefti_weave_row wefti_weave_template[] = {
    {false, WEFTI_CALL_FORWARD, "attention"},
    {true, WEFTI_CALL_INPUTS, "ffn"},
    {true, WEFTI_CALL_WEIGHTS, "ffn"},
    {false, WEFTI_CALL_FORWARD, "ffn"},
    {true, WEFTI_CALL_INPUTS, "attention"},
    {true, WEFTI_CALL_WEIGHTS, "attention"},
};
const size_t wefti_weave_template_rows =
    sizeof(wefti_weave_template) / sizeof(*wefti_weave_template);

/* ---- the order ------------------------------------------------------------
 */

typedef struct thread {
    const wefti_program *program;
    const wefti_order *order;
    size_t next;
} thread;

static bool matches(const thread *own, size_t step, const wefti_weave_row *row)
{
    const wefti_program_step *at = &own->order->steps[step];
    return at->call == row->call &&
           strcmp(own->program->blocks[at->block].name, row->block) == 0;
}

/* Where the steps end that row takes next; where there are none, at once. */
static size_t find_end(const thread *own, const wefti_weave_row *row)
{
    size_t end = own->next;
    while (end < own->order->count && !matches(own, end, row)) {
        end++;
    }
    if (end == own->order->count) {
        return own->next;
    }
    size_t block = own->order->steps[end].block;
    while (end < own->order->count && matches(own, end, row) &&
           own->order->steps[end].block == block) {
        end++;
    }
    return end;
}

static size_t take(thread *own, bool backward, size_t end,
                   wefti_weave_step *woven_out)
{
    size_t count = 0;
    while (own->next < end) {
        woven_out[count++] = (wefti_weave_step){backward, own->next++};
    }
    return count;
}

void wefti_weave_plan(const wefti_program *forward,
                      const wefti_program *backward,
                      const wefti_weave_row *rows, size_t row_count,
                      wefti_weave_step *woven_out)
{
    thread both[] = {{forward, &forward->orders[WEFTI_CALL_FORWARD], 0},
                     {backward, &backward->orders[WEFTI_ORDER_BACKWARD], 0}};
    size_t count = 0, before;
    do {
        before = count;
        for (size_t i = 0; i < row_count; i++) {
            thread *own = &both[rows[i].backward];
            count += take(own, rows[i].backward, find_end(own, &rows[i]),
                          woven_out + count);
        }
    } while (count > before);
    count += take(&both[0], false, both[0].order->count, woven_out + count);
    (void)take(&both[1], true, both[1].order->count, woven_out + count);
}

/* ---- the run --------------------------------------------------------------
 */

/* Two passes on their way through a woven order. */
typedef struct weave {
    const wefti_program_pass *passes[2];
    const wefti_order *orders[2];
    const wefti_weave_step *woven;
    size_t count;
    size_t at[2]; /* in woven: the next step of each; count: ended */
    wefti_program_mark marks[2];
} weave;

static size_t find_next(const weave *own, bool backward, size_t from)
{
    while (from < own->count && own->woven[from].backward != backward) {
        from++;
    }
    return from;
}

static const wefti_program_step *step_at(const weave *own, size_t at)
{
    const wefti_weave_step *step = &own->woven[at];
    return &own->orders[step->backward]->steps[step->step];
}

/* Whether a step posts to a class. */
static bool posts(const weave *own, size_t at, weft_class class_id)
{
    const wefti_program_step *step = step_at(own, at);
    const wefti_program *program =
        own->passes[own->woven[at].backward]->program;
    for (size_t i = 0; i < step->end - step->first; i++) {
        const wefti_node *node = wefti_program_step_node(program, step, i);
        if (wefti_node_posts(node, step->call, class_id)) {
            return true;
        }
    }
    return false;
}

/* Whether one program may run its next step while the other is behind it. */
static bool may_pass(const weave *own, bool backward)
{
    for (size_t class_id = 0; class_id < WEFT_CLASS_COUNT; class_id++) {
        if (!posts(own, own->at[backward], (weft_class)class_id)) {
            continue;
        }
        for (size_t i = own->at[!backward]; i < own->at[backward]; i++) {
            if (own->woven[i].backward != backward &&
                posts(own, i, (weft_class)class_id)) {
                return false;
            }
        }
    }
    return true;
}

static weft_status advance(weave *own, bool backward)
{
    bool alone = own->at[!backward] == own->count;
    weft_status status = wefti_program_step_run(own->passes[backward],
                                                step_at(own, own->at[backward]),
                                                alone, &own->marks[backward]);
    if (status == WEFT_OK) {
        own->marks[backward] = (wefti_program_mark){0};
        own->at[backward] = find_next(own, backward, own->at[backward] + 1);
    }
    return status;
}

/* The program whose turn it is; where that has to wait, the other. */
static weft_status take_turn(weave *own)
{
    bool turn = own->at[1] < own->at[0];
    weft_status status = advance(own, turn);
    if (status == WEFT_INPROGRESS && own->at[!turn] < own->count &&
        may_pass(own, !turn)) {
        status = advance(own, !turn);
    }
    if (status == WEFT_INPROGRESS) {
        (void)sched_yield(); /* both wait: for other ranks */
    }
    return status;
}

weft_status wefti_weave_run(const wefti_program_pass *forward,
                            const wefti_program_pass *backward,
                            const wefti_weave_step *woven)
{
    weave own = {.passes = {forward, backward},
                 .orders = {&forward->program->orders[WEFTI_CALL_FORWARD],
                            &backward->program->orders[WEFTI_ORDER_BACKWARD]},
                 .woven = woven};
    weft_status status = WEFT_OK;
    own.count = own.orders[0]->count + own.orders[1]->count;
    for (int i = 0; i < 2; i++) {
        own.at[i] = find_next(&own, i, 0);
    }
    while ((own.at[0] < own.count || own.at[1] < own.count) &&
           (status == WEFT_OK || status == WEFT_INPROGRESS)) {
        status = take_turn(&own);
    }
    return status;
}
