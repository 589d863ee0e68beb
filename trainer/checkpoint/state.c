/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/state.c - which parts of which tensors a rank has.
 */
#include "trainer/checkpoint/state.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGN_BYTES = 64 };

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

static wefti_checkpoint_piece make_piece(const wefti_tensor *tensor,
                                         const wefti_tensor_share *own)
{
    const wefti_tensor_info *info = &tensor->info;
    return (wefti_checkpoint_piece){
        .dtype = WEFTI_REAL_DTYPE,
        .rows = wefti_tensor_dimensions(info) == 2 ? info->rows : 0,
        .columns = info->columns,
        .offset = own->offset_elems,
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
    *piece_out = make_piece(tensor, &own);
    piece_out->live = group->gradient.leaf + own.start_elems;
    return true;
}

void wefti_state_add_shares(const wefti_replica *replica, bool copies,
                            wefti_state_list *list)
{
    static const char *const ends[WEFTI_STATE_PARTS] = {"", ".first",
                                                        ".second"};
    const wefti_parameters *plan = &replica->plan;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        const wefti_parameter_group *group =
            &replica->groups[tensor->info.group];
        wefti_tensor_share own;
        if ((tensor->copy && !copies) ||
            !wefti_tensor_cut(plan, tensor, group->rank, &own)) {
            continue;
        }
        wefti_checkpoint_piece piece = make_piece(tensor, &own);
        const wefti_optimizer *optimizer = &group->optimizer;
        void *live[WEFTI_STATE_PARTS] = {
            optimizer->masters
                ? optimizer->masters + own.own_elems
                : wefti_parameter_group_at(group, own.start_elems),
            optimizer->first + own.own_elems,
            optimizer->second + own.own_elems};
        size_t name = tensor->copy ? wefti_tensor_embedding() : i;
        for (size_t part = 0; part < WEFTI_STATE_PARTS; part++) {
            snprintf(piece.name, sizeof(piece.name), "%s%s",
                     plan->tensors[name].info.name, ends[part]);
            piece.live = live[part];
            wefti_state_add(list, &piece);
        }
    }
}

weft_status wefti_state_list_shares(const wefti_replica *replica, bool copies,
                                    wefti_state_list *list_out)
{
    size_t most = WEFTI_STATE_PARTS * replica->plan.tensor_count;
    *list_out =
        (wefti_state_list){.pieces = calloc(most, sizeof(*list_out->pieces))};
    if (!list_out->pieces) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a list of %zu",
                           most);
    }
    wefti_state_add_shares(replica, copies, list_out);
    return WEFT_OK;
}

void wefti_state_list_fini(wefti_state_list *list)
{
    free(list->pieces);
    *list = (wefti_state_list){0};
}
