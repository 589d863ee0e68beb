/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/house/struct_plain.h - structs that test_struct_sizes.c gives to calls
 * of plain arithmetic, and those calls.
 */
#ifndef TESTS_HOUSE_STRUCT_PLAIN_H
#define TESTS_HOUSE_STRUCT_PLAIN_H

#include "weft/weft.h"

static inline void fill_route_config(void *room)
{
    *(weft_moe_route_config *)room = (weft_moe_route_config){
        .size_bytes = sizeof(weft_moe_route_config), .experts = 2, .slots = 1};
}

static inline weft_status take_route_config(const void *given)
{
    return weft_moe_route(given, NULL, NULL, 0, NULL, NULL);
}

static inline void fill_place_config(void *room)
{
    *(weft_moe_place_config *)room =
        (weft_moe_place_config){.size_bytes = sizeof(weft_moe_place_config),
                                .experts = 1,
                                .replicas = 1,
                                .ranks = 1};
}

static inline weft_status take_place_config(const void *given)
{
    const double load = 1;
    int32_t expert;
    return weft_moe_place(given, &load, &expert, NULL, NULL);
}

#endif
