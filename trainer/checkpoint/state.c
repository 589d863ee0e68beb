/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/state.c - which parts of which tensors a rank has.
 */
#include "trainer/checkpoint/state.h"

#include "base/error.h"
#include "trainer/checkpoint/placed_experts.h"
#include "trainer/ema.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGN_BYTES = 64, AVERAGE_PARTS = 2 };

static size_t find_end(const wefti_checkpoint_piece *piece)
{
    size_t end =
        piece->at_bytes + piece->elems * weft_dtype_bytes(piece->dtype);
    return (end + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

void wefti_state_add(wefti_state_list *list,
                     const wefti_checkpoint_piece *piece)
{
    wefti_checkpoint_piece *own = &list->pieces[list->count];
    *own = *piece;
    own->at_bytes = list->count > 0 ? find_end(own - 1) : 0;
    list->count++;
}

size_t wefti_state_count_bytes(const wefti_state_list *list)
{
    return list->count > 0 ? find_end(&list->pieces[list->count - 1]) : 0;
}

/* Of a rank's share what lies together in the whole tensor, from at on. */
static wefti_tensor_stretch next_stretch(const wefti_tensor *tensor,
                                         const wefti_tensor_share *own,
                                         size_t at)
{
    const size_t left = own->offset_elems + own->elems - at;
    wefti_tensor_stretch next = wefti_tensor_find(tensor, at);
    next.elems = next.elems < left ? next.elems : left;
    return next;
}

static wefti_checkpoint_piece make_piece(const wefti_tensor *tensor,
                                         const wefti_tensor_stretch *own)
{
    const wefti_tensor_info *info = &tensor->info;
    return (wefti_checkpoint_piece){
        .dtype = WEFTI_REAL_DTYPE,
        .rows = wefti_tensor_dimensions(info) == 2 ? info->rows : 0,
        .columns = info->columns,
        .offset = own->whole,
        .elems = own->elems};
}

bool wefti_state_cut(const wefti_replica *replica, const wefti_tensor *tensor,
                     wefti_checkpoint_piece *piece_out)
{
    const wefti_parameter_group *group = &replica->groups[tensor->info.group];
    wefti_tensor_share own;
    if (!wefti_tensor_cut(&replica->plan, tensor, group->rank, &own)) {
        return false;
    }
    const wefti_tensor_stretch whole = {own.offset_elems, own.offset_elems,
                                        own.elems};
    *piece_out = make_piece(tensor, &whole);
    piece_out->live = group->gradient.leaf + own.start_elems;
    return true;
}

/* What one stretch of a share adds; past: elements of the share before it. */
static void add_stretch(const wefti_replica *replica,
                        const wefti_tensor *tensor,
                        const wefti_tensor_share *own,
                        const wefti_tensor_stretch *stretch,
                        wefti_state_list *list)
{
    static const char *const ends[WEFTI_STATE_PARTS] = {"", ".first",
                                                        ".second"};
    const wefti_parameters *plan = &replica->plan;
    const wefti_parameter_group *group = &replica->groups[tensor->info.group];
    const size_t past = stretch->here - own->offset_elems;
    wefti_checkpoint_piece piece = make_piece(tensor, stretch);
    const wefti_optimizer *optimizer = &group->optimizer;
    const size_t own_elems = own->own_elems + past;
    void *live[WEFTI_STATE_PARTS] = {
        optimizer->masters
            ? optimizer->masters + own_elems
            : wefti_parameter_group_at(group, own->start_elems + past),
        optimizer->first + own_elems, optimizer->second + own_elems};
    const wefti_tensor *named =
        tensor->copy ? &plan->tensors[wefti_tensor_embedding(plan)] : tensor;
    for (size_t part = 0; part < WEFTI_STATE_PARTS; part++) {
        snprintf(piece.name, sizeof(piece.name), "%s%s", named->info.name,
                 ends[part]);
        piece.live = live[part];
        wefti_state_add(list, &piece);
    }
}

/* This rank's share of a tensor; without copies, if it is to be saved here. */
static bool find_share(const wefti_replica *replica, const wefti_tensor *tensor,
                       bool copies, wefti_tensor_share *own_out)
{
    const wefti_parameter_group *group = &replica->groups[tensor->info.group];
    if ((tensor->copy && !copies) ||
        !wefti_tensor_cut(&replica->plan, tensor, group->rank, own_out)) {
        return false;
    }
    size_t end = own_out->offset_elems + own_out->elems;
    end = copies ? end : wefti_tensor_counted_end(tensor, end);
    own_out->elems =
        end > own_out->offset_elems ? end - own_out->offset_elems : 0;
    return own_out->elems > 0;
}

/* Of replicas of an expert the first is saved, without copies. */
static bool is_saved(const wefti_tensor *tensor, bool copies, size_t at)
{
    size_t end;
    return copies || !wefti_tensor_is_replica(tensor, at, &end);
}

void wefti_state_add_shares(const wefti_replica *replica, bool copies,
                            wefti_state_list *list)
{
    const wefti_parameters *plan = &replica->plan;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        wefti_tensor_share own;
        if (!find_share(replica, tensor, copies, &own)) {
            continue;
        }
        for (size_t at = own.offset_elems; at < own.offset_elems + own.elems;) {
            const wefti_tensor_stretch next = next_stretch(tensor, &own, at);
            if (is_saved(tensor, copies, at)) {
                add_stretch(replica, tensor, &own, &next, list);
            }
            at += next.elems;
        }
    }
}

size_t wefti_state_count_pieces(const wefti_replica *replica, bool copies)
{
    const wefti_parameters *plan = &replica->plan;
    const size_t each = WEFTI_STATE_PARTS + (replica->ema ? AVERAGE_PARTS : 0);
    size_t count = 0;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        wefti_tensor_share own;
        if (!find_share(replica, tensor, copies, &own)) {
            continue;
        }
        for (size_t at = own.offset_elems; at < own.offset_elems + own.elems;
             count += each) {
            at += next_stretch(tensor, &own, at).elems;
        }
    }
    return count;
}

/* own_elems: where the piece is in the rank's shares. */
static void add_average(size_t own_elems, const wefti_ema_words *words,
                        const char *name, wefti_checkpoint_piece *piece,
                        wefti_state_list *list)
{
    const wefti_ema_words at = wefti_ema_words_at(words, own_elems);
    piece->dtype = at.f32  ? WEFT_DTYPE_F32
                   : at.f8 ? WEFT_DTYPE_F8E4M3
                           : WEFT_DTYPE_BF16;
    piece->live = at.f32 ? (void *)at.f32 : at.f8 ? at.f8 : (void *)at.bf16;
    snprintf(piece->name, sizeof(piece->name), "%s.ema", name);
    wefti_state_add(list, piece);
    if (at.f8) {
        piece->dtype = WEFT_DTYPE_BF16;
        piece->live = at.bf16;
        snprintf(piece->name, sizeof(piece->name), "%s.ema_rest", name);
        wefti_state_add(list, piece);
    }
}

static void add_averages(const wefti_replica *replica, bool copies,
                         wefti_state_list *list)
{
    const wefti_parameters *plan = &replica->plan;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        const size_t name = tensor->copy ? wefti_tensor_embedding(plan) : i;
        const wefti_ema_words words =
            wefti_ema_words_of(replica->ema, tensor->info.group);
        wefti_tensor_share own;
        if (!find_share(replica, tensor, copies, &own)) {
            continue;
        }
        for (size_t at = own.offset_elems; at < own.offset_elems + own.elems;) {
            const wefti_tensor_stretch next = next_stretch(tensor, &own, at);
            wefti_checkpoint_piece piece = make_piece(tensor, &next);
            if (is_saved(tensor, copies, at)) {
                add_average(own.own_elems + (at - own.offset_elems), &words,
                            plan->tensors[name].info.name, &piece, list);
            }
            at += next.elems;
        }
    }
}

weft_status wefti_state_list_shares(const wefti_replica *replica, bool copies,
                                    wefti_state_list *list_out)
{
    size_t most = wefti_state_count_pieces(replica, copies);
    *list_out = (wefti_state_list){.pieces = calloc(most + WEFTI_PLACED_PIECES,
                                                    sizeof(*list_out->pieces))};
    if (!list_out->pieces) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a list of %zu",
                           most);
    }
    wefti_state_add_shares(replica, copies, list_out);
    list_out->shares = list_out->count;
    if (replica->ema) {
        add_averages(replica, copies, list_out);
    }
    if (!copies) {
        wefti_placed_experts_list(replica, list_out);
    }
    return WEFT_OK;
}

void wefti_state_list_fini(wefti_state_list *list)
{
    free(list->pieces);
    *list = (wefti_state_list){0};
}
