/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/pattern.c - which patterns there are, and how elements are
 * dealt out.
 */
#include "comm/pattern/pattern.h"

#include "base/check.h"

const wefti_pattern *const wefti_patterns[] = {
    &wefti_pattern_direct,   &wefti_pattern_tree,   &wefti_pattern_exchange,
    &wefti_pattern_pairwise, &wefti_pattern_uneven, NULL};

size_t wefti_share(size_t count, int nranks, int rank, size_t *begin_out)
{
    WEFTI_ASSERT(nranks > 0 && rank >= 0 && rank < nranks);
    size_t owners = (size_t)nranks;
    size_t owner = (size_t)rank;
    /* A run of 16 elements more or less must not matter. */
    size_t unit = count / 64 >= owners ? 16 : 1;
    size_t units = unit == 1 ? count : count / 16 + (count % 16 != 0);
    size_t least = units / owners;
    /* The first so many own one unit more. */
    size_t larger = units - least * owners;

    size_t begin = owner * least + (owner < larger ? owner : larger);
    size_t end = begin + least + (owner < larger);
    *begin_out = begin * unit;
    return (owner + 1 == owners ? count : end * unit) - begin * unit;
}
