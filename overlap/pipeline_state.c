/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_state.c - a pipeline that stands in the middle of a step, as
 * bytes: its position, and what is in the buffers that are held there. All else
 * follows from the list: where the bytes are read back, the actions before the
 * position are gone through once more without being run.
 *
 *     head | number, contents of a buffer | number, contents of a buffer | ...
 */
#include "overlap/pipeline_core.h"

#include "base/error.h"

#include <string.h>

/* What must be the same where it is read back comes first. */
typedef struct head {
    uint64_t magic;
    uint64_t rank, actions, buffers, buffer_bytes;
    uint64_t position;
    uint64_t held;
} head;

static const uint64_t magic = UINT64_C(0x3170697074666577);

static head make_head(const weft_pipeline *p)
{
    return (head){.magic = magic,
                  .rank = (uint64_t)weft_comm_get_rank(p->config.comm),
                  .actions = p->plan.count,
                  .buffers = p->transport.buffers,
                  .buffer_bytes = p->usage.buffer_bytes,
                  .position = p->position,
                  .held = (uint64_t)p->usage.now.held};
}

static size_t entry_bytes(const weft_pipeline *p)
{
    return sizeof(uint64_t) + p->usage.buffer_bytes;
}

size_t weft_pipeline_get_state_bytes(const weft_pipeline *p)
{
    return p ? sizeof(head) + (size_t)p->usage.now.held * entry_bytes(p) : 0;
}

size_t weft_pipeline_get_state_bytes_most(const weft_pipeline *p)
{
    return p ? sizeof(head) + (size_t)p->plan.peaks.held * entry_bytes(p) : 0;
}

bool weft_pipeline_is_slot_live(const weft_pipeline *p, int slot)
{
    const int slots = p ? p->plan.peaks.slots : 0;
    return slot >= 0 && slot < slots && p->usage.slots[slot] != 0;
}

static weft_status check_state(const weft_pipeline *p, const void *state)
{
    weft_status status = wefti_pipeline_check_alive(p);
    return status == WEFT_OK && !state
               ? wefti_error(WEFT_ERR_INVALID,
                             "state is NULL: allowed is memory for it")
               : status;
}

weft_status weft_pipeline_pack(weft_pipeline *p, void *state)
{
    weft_status status = check_state(p, state);
    if (status == WEFT_OK) {
        status = weft_pipeline_settle(p);
    }
    if (status != WEFT_OK) {
        return status;
    }
    unsigned char *at = state;
    head own = make_head(p);
    memcpy(at, &own, sizeof(own));
    at += sizeof(own);
    for (uint64_t b = 0; b < own.buffers && status == WEFT_OK; b++) {
        if (!p->usage.held[b]) {
            continue;
        }
        memcpy(at, &b, sizeof(b));
        status = weft_device_copy(
            p->config.device, at + sizeof(b),
            wefti_pipeline_transport_data(&p->transport, (int)b),
            p->usage.buffer_bytes, NULL);
        at += entry_bytes(p);
    }
    return status;
}

/* ---- and back -------------------------------------------------------------
 */

static weft_status check_head(const weft_pipeline *p, const void *state,
                              size_t state_bytes, head *out)
{
    head own = make_head(p);
    if (p->position != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "the pipeline is in the middle of a step, at action "
                           "%zu: allowed is between steps",
                           p->position);
    }
    if (state_bytes < sizeof(*out)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "a pipeline's state of %zu bytes: its head has %zu",
                           state_bytes, sizeof(*out));
    }
    memcpy(out, state, sizeof(*out));
    own.position = out->position;
    own.held = out->held;
    if (memcmp(&own, out, sizeof(own)) != 0 || out->position >= own.actions) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "a pipeline's state of rank %llu, action %llu of %llu, %llu "
            "buffers of %llu bytes: this is rank %llu, with %llu actions, %llu "
            "buffers of %llu bytes",
            (unsigned long long)out->rank, (unsigned long long)out->position,
            (unsigned long long)out->actions, (unsigned long long)out->buffers,
            (unsigned long long)out->buffer_bytes, (unsigned long long)own.rank,
            (unsigned long long)own.actions, (unsigned long long)own.buffers,
            (unsigned long long)own.buffer_bytes);
    }
    return WEFT_OK;
}

/* As if the message had been posted, and was done. */
static void skip_post(weft_pipeline *p, size_t index)
{
    int32_t buffer = p->plan.items[index].buffer;
    if (!wefti_pipeline_is_send(&p->plan.actions[index])) {
        p->transport.epochs[buffer]++;
        wefti_pipeline_usage_take(&p->usage, buffer, true);
    }
}

/* As if the action had been run. */
static weft_status skip_action(weft_pipeline *p, size_t index, size_t end)
{
    const weft_action *action = &p->plan.actions[index];
    const wefti_pipeline_item *item = &p->plan.items[index];
    weft_action parts[2];
    int count = wefti_pipeline_has_parts(action)
                    ? wefti_action_split(action, parts)
                    : 0;
    for (int k = 0; k < count; k++) {
        wefti_pipeline_usage_begin(&p->usage, (weft_action_type)parts[k].type,
                                   &item->parts[k]);
        if (item->parts[k].output >= 0) {
            p->transport.epochs[item->parts[k].output]++;
            wefti_pipeline_usage_take(&p->usage, item->parts[k].output, false);
        }
    }
    for (uint32_t m = item[0].posts; m < item[1].posts; m++) {
        if (p->plan.posts[m] < end) {
            skip_post(p, p->plan.posts[m]);
        }
    }
    for (int k = 0; k < count; k++) {
        wefti_pipeline_usage_end(&p->usage, (weft_action_type)parts[k].type,
                                 &item->parts[k]);
    }
    return wefti_pipeline_release(p, index);
}

/* What was received is there, and what was made may be sent. */
static weft_status fill_buffer(weft_pipeline *p, uint64_t buffer,
                               const unsigned char *contents)
{
    wefti_pipeline_transport *t = &p->transport;
    weft_status status = weft_device_copy(
        p->config.device, wefti_pipeline_transport_data(t, (int)buffer),
        contents, p->usage.buffer_bytes, NULL);
    for (size_t c = 0; c < t->chunks && status == WEFT_OK; c++) {
        size_t chunk = (size_t)buffer * t->chunks + c;
        status = weft_gate_signal(t->arrived, chunk, t->epochs[buffer], NULL);
        if (status == WEFT_OK) {
            status = weft_gate_signal(t->ready, chunk, t->epochs[buffer], NULL);
        }
    }
    return status;
}

weft_status weft_pipeline_unpack(weft_pipeline *p, const void *state,
                                 size_t state_bytes)
{
    head from;
    if (!p || !state) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s is NULL: allowed is what pack was given",
                           p ? "state" : "pipeline");
    }
    weft_status status = check_head(p, state, state_bytes, &from);
    if (status != WEFT_OK) {
        return status;
    }
    if ((state_bytes - sizeof(from)) / entry_bytes(p) != from.held ||
        (state_bytes - sizeof(from)) % entry_bytes(p) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "a pipeline's state of %zu bytes: %llu buffers do "
                           "not have so many",
                           state_bytes, (unsigned long long)from.held);
    }
    for (size_t k = 0; k < from.position && status == WEFT_OK; k++) {
        status = skip_action(p, k, from.position);
    }
    p->position = from.position;
    const unsigned char *at = (const unsigned char *)state + sizeof(from);
    for (uint64_t n = 0; n < from.held && status == WEFT_OK; n++) {
        uint64_t buffer;
        memcpy(&buffer, at, sizeof(buffer));
        if (buffer >= from.buffers || !p->usage.held[buffer]) {
            return wefti_error(WEFT_ERR_INVALID,
                               "a pipeline's state has buffer %llu, which is "
                               "not held at action %llu",
                               (unsigned long long)buffer,
                               (unsigned long long)from.position);
        }
        status = fill_buffer(p, buffer, at + sizeof(buffer));
        at += entry_bytes(p);
    }
    return status;
}
