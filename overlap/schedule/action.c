/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/action.c - an action as text and back: [stage][type][mb],
 * decimal, nothing between and nothing behind.
 *
 * Source of the grammar: pytorch/pytorch, torch/distributed/pipelining.
 */
#include "overlap/schedule/schedule.h"

#include "base/error.h"
#include "base/printable.h"

#include <string.h>

typedef struct kind {
    const char *text;
    bool of_microbatch;
} kind;

static const kind kinds[WEFT_ACTION_COUNT] = {
#define WEFT_ACTION_KIND(name, text, microbatch, torch)                        \
    [WEFT_ACTION_##name] = {text, microbatch},
    WEFT_ACTION_LIST(WEFT_ACTION_KIND)
#undef WEFT_ACTION_KIND
};

size_t weft_action_pack(const weft_action *action, char *text)
{
    int length;
    if (action->type == WEFT_ACTION_FB) {
        length =
            snprintf(text, WEFT_ACTION_TEXT_BYTES, "(%dF%d;%dB%d)OVERLAP_F_B",
                     action->stage, action->microbatch, action->pair_stage,
                     action->pair_microbatch);
    } else if (action->microbatch >= 0) {
        length = snprintf(text, WEFT_ACTION_TEXT_BYTES, "%d%s%d", action->stage,
                          kinds[action->type].text, action->microbatch);
    } else {
        length = snprintf(text, WEFT_ACTION_TEXT_BYTES, "%d%s", action->stage,
                          kinds[action->type].text);
    }
    return (size_t)length;
}

/* What has not been read yet. */
typedef struct rest {
    const char *at;
    size_t bytes;
} rest;

/* A decimal number below bound. */
static bool take_number(rest *left, int32_t bound, int32_t *number_out)
{
    int64_t number = 0;
    size_t digits = 0;
    while (digits < left->bytes && left->at[digits] >= '0' &&
           left->at[digits] <= '9' && number < bound) {
        number = 10 * number + (left->at[digits] - '0');
        digits++;
    }
    left->at += digits;
    left->bytes -= digits;
    *number_out = (int32_t)number;
    return digits > 0 && number < bound;
}

static bool take_text(rest *left, const char *text)
{
    size_t bytes = strlen(text);
    if (left->bytes < bytes || memcmp(left->at, text, bytes) != 0) {
        return false;
    }
    left->at += bytes;
    left->bytes -= bytes;
    return true;
}

/* The longest name that fits: W is not WHATEVER, nor I IGNORE. */
static bool take_type(rest *left, weft_action *action)
{
    size_t length = 0;
    while (length < left->bytes &&
           ((left->at[length] >= 'A' && left->at[length] <= 'Z') ||
            left->at[length] == '_')) {
        length++;
    }
    for (int type = 0; type < WEFT_ACTION_COUNT; type++) {
        const char *text = kinds[type].text;
        if (type != WEFT_ACTION_FB && strlen(text) == length &&
            memcmp(text, left->at, length) == 0) {
            action->type = (uint8_t)type;
            left->at += length;
            left->bytes -= length;
            return true;
        }
    }
    return false;
}

/* One action that is not an FB, up to what follows it. */
static const char *take_simple(rest *left, weft_action *action)
{
    int32_t stage, microbatch = -1;
    if (!take_number(left, WEFT_SCHEDULE_STAGES_MOST, &stage)) {
        return "it begins with no stage number below 1048576";
    }
    *action = wefti_action(WEFT_ACTION_F, stage, -1);
    if (!take_type(left, action)) {
        return "no such type of action; allowed are F I W B SEND_F RECV_F "
               "SEND_B RECV_B UNSHARD RESHARD REDUCE_GRAD OPT GATHER_PARAM EMA "
               "OFFLOAD RELOAD RECOMPUTE RELEASE BARRIER and "
               "(xFy;zBw)OVERLAP_F_B";
    }
    if (kinds[action->type].of_microbatch &&
        !take_number(left, WEFT_SCHEDULE_MICROBATCHES_MOST, &microbatch)) {
        return "a micro-batch number below 1048576 must end it";
    }
    action->microbatch = microbatch;
    return NULL;
}

static const char *take_pair(rest *left, weft_action *action)
{
    weft_action f, b;
    const char *wrong = take_simple(left, &f);
    if (!wrong && !take_text(left, ";")) {
        wrong = "in a pair, ; must follow the first";
    }
    if (!wrong) {
        wrong = take_simple(left, &b);
    }
    if (!wrong && !take_text(left, ")OVERLAP_F_B")) {
        wrong = "a pair must end in )OVERLAP_F_B";
    }
    if (!wrong && (f.type != WEFT_ACTION_F || b.type != WEFT_ACTION_B)) {
        wrong = "a pair is one F and one B";
    }
    if (!wrong) {
        *action =
            wefti_action_pair(f.stage, f.microbatch, b.stage, b.microbatch);
    }
    return wrong;
}

weft_status weft_action_unpack(const char *text, size_t text_bytes,
                               weft_action *action_out)
{
    rest left = {text, text_bytes};
    weft_action action;
    const char *wrong = take_text(&left, "(") ? take_pair(&left, &action)
                                              : take_simple(&left, &action);
    if (!wrong && left.bytes > 0) {
        wrong = "something follows its end";
    }
    if (wrong) {
        char shown[4 * 40 + 1];
        wefti_printable(text, text_bytes > 40 ? 40 : text_bytes, shown,
                        sizeof(shown));
        return wefti_error(WEFT_ERR_INVALID, "\"%s\": %s", shown, wrong);
    }
    *action_out = action;
    return WEFT_OK;
}
