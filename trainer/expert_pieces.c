/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/expert_pieces.c - slots, cut where shares of either end.
 */
#include "trainer/expert_pieces.h"

static const wefti_group_plan *group_of(const wefti_moved_list *what)
{
    return &what->plan->groups[WEFTI_TENSOR_GROUP_EXPERTS];
}

/* A slot's elements, from one of them on: whose share has them, and where. */
typedef struct slot_at {
    size_t flat;  /* in the group's array */
    size_t owner; /* of the replicas */
    size_t own;   /* in the owner's shares */
    size_t left;  /* in its share of the bucket */
} slot_at;

static slot_at find_in_slot(const wefti_moved_list *what,
                            const wefti_tensor *tensor, size_t slot, size_t at)
{
    const wefti_expert_map *map = &what->plan->expert_map;
    const weft_bucket_extent *bucket = &group_of(what)->buckets[tensor->bucket];
    const size_t here = slot % wefti_expert_map_each(map);
    const size_t flat = tensor->start_elems + here * tensor->slot_elems + at;
    const size_t in_bucket = flat - bucket->start_elems;
    const size_t owner = in_bucket / bucket->share_elems;
    const size_t in_share = in_bucket - owner * bucket->share_elems;
    return (slot_at){.flat = flat,
                     .owner = owner,
                     .own = bucket->start_elems / group_of(what)->nranks +
                            in_share,
                     .left = bucket->share_elems - in_share};
}

static int rank_of(const wefti_moved_list *what, size_t slot, size_t replica)
{
    const wefti_expert_map *map = &what->plan->expert_map;
    const size_t part = slot / wefti_expert_map_each(map);
    return what->ranks[part * group_of(what)->nranks + replica];
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* A tensor's slots, of which one has what the other is to have. */
typedef struct slot_pair {
    const wefti_tensor *tensor;
    size_t from, to;
    bool adds;
} slot_pair;

/* Of one array what goes from a slot to another. */
static void list_array(const wefti_moved_list *what, const slot_pair *pair,
                       const wefti_moved_array *array, wefti_on_piece *on,
                       void *context)
{
    const wefti_tensor *tensor = pair->tensor;
    size_t elems;
    for (size_t at = 0; at < tensor->slot_elems; at += elems) {
        const slot_at from = find_in_slot(what, tensor, pair->from, at);
        const slot_at to = find_in_slot(what, tensor, pair->to, at);
        elems = least(tensor->slot_elems - at, from.left);
        elems = array->of_share ? least(elems, to.left) : elems;
        wefti_moved_piece piece = {
            .array = array,
            .from = rank_of(what, pair->from, from.owner),
            .from_at = array->flat ? from.flat : from.own,
            .to_at = array->flat ? to.flat : to.own,
            .elems = elems,
            .adds = pair->adds};
        for (size_t i = 0; i < group_of(what)->nranks; i++) {
            if (!array->of_share || i == to.owner) {
                piece.to = rank_of(what, pair->to, i);
                on(context, &piece);
            }
        }
    }
}

/* Of the slots that have an expert now one of the same part, else any. */
static size_t find_source(const wefti_expert_map *map, size_t layer,
                          size_t expert, size_t to)
{
    const size_t part = to / wefti_expert_map_each(map);
    size_t count;
    const int32_t *slots = wefti_expert_map_slots(map, layer, expert, &count);
    for (size_t i = 0; i < count; i++) {
        if ((size_t)slots[i] / wefti_expert_map_each(map) == part) {
            return (size_t)slots[i];
        }
    }
    return (size_t)slots[to % count];
}

/* Of a layer what moves, slot by slot of those that get it. */
static void list_layer(const wefti_moved_list *what, const wefti_tensor *tensor,
                       wefti_on_piece *on, void *context)
{
    const wefti_expert_map *map = &what->plan->expert_map;
    const size_t layer = wefti_tensor_decoder_layer(what->plan, tensor);
    const int32_t *now = wefti_expert_map_experts(map, layer);
    for (size_t to = 0; to < map->slots; to++) {
        const size_t expert =
            (size_t)(what->next ? what->next[layer * map->slots + to]
                                : now[to]);
        slot_pair pair = {.tensor = tensor, .to = to};
        if (what->next && (size_t)now[to] != expert) {
            pair.from = find_source(map, layer, expert, to);
            for (size_t k = 0; k < what->array_count; k++) {
                list_array(what, &pair, &what->arrays[k], on, context);
            }
        }
        size_t count;
        const int32_t *slots =
            wefti_expert_map_slots(map, layer, expert, &count);
        for (size_t i = 0; !what->next && count > 1 && i < count; i++) {
            pair.from = (size_t)slots[i];
            pair.adds = i > 0;
            list_array(what, &pair, &what->arrays[0], on, context);
        }
    }
}

/* Of all tensors in its buckets; in the same order on all ranks. */
void wefti_expert_pieces_list(const wefti_moved_list *what, wefti_on_piece *on,
                              void *context)
{
    const wefti_parameters *plan = what->plan;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        if (tensor->here && tensor->experts && tensor->bucket >= what->first &&
            tensor->bucket < what->end) {
            list_layer(what, tensor, on, context);
        }
    }
}
