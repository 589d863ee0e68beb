/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/part_values.c - a table of elements, and reading it.
 */
#include "tests/comm/part_values.h"

#include "tests/comm/sums.h"
#include "tests/kernels/reduce_reference.h"
#include "tests/repeat.h"

#include <string.h>

enum { PERIOD = 1009 };

static size_t first_kind(const part_values *made, int from, int to)
{
    return made->salt * 31u + (unsigned)from * 7u + (unsigned)to * 17u;
}

static void store(const part_values *made, unsigned char *at, size_t i,
                  const unsigned char *table, size_t kind)
{
    memcpy(at + i * made->elem_bytes, table + kind * made->elem_bytes,
           made->elem_bytes);
}

void part_values_init(part_values *made, weft_dtype dtype, int nranks)
{
    *made = (part_values){.dtype = dtype,
                          .nranks = nranks,
                          .kinds = PART_VALUES_KINDS,
                          .elem_bytes = weft_dtype_bytes(dtype)};
    for (size_t kind = 0; kind < PART_VALUES_KINDS; kind++) {
        reference_store(made->held + kind * made->elem_bytes, (double)kind,
                        dtype);
    }
}

void part_values_fill(const part_values *made, unsigned char *at, int from,
                      int to, size_t elems)
{
    size_t first = first_kind(made, from, to);
    for (size_t i = 0; i < elems && i < PERIOD; i++) {
        store(made, at, i, made->held, (first + i * 3) % made->kinds);
    }
    repeat(at, PERIOD * made->elem_bytes, elems * made->elem_bytes);
}

void part_values_reduce(const part_values *made, unsigned char *at, int to,
                        size_t elems)
{
    unsigned char inputs[PART_VALUES_RANKS][PART_VALUES_FEW * 8];
    unsigned char reduced[PART_VALUES_FEW * 8];
    const unsigned char *sources[PART_VALUES_RANKS];
    for (int from = 0; from < made->nranks; from++) {
        size_t first = first_kind(made, from, to);
        unsigned char scale[8];
        sources[from] = inputs[from];
        for (size_t kind = 0; kind < PART_VALUES_FEW; kind++) {
            store(made, inputs[from], kind, made->held,
                  (first + kind) % PART_VALUES_FEW);
        }
        if (made->redop == WEFT_REDOP_PREMULSUM) {
            part_values_scale(made, scale, from);
            reference_scale(inputs[from], inputs[from], scale, PART_VALUES_FEW,
                            made->dtype);
        }
    }
    sums_reference(reduced, sources, made->nranks, PART_VALUES_FEW, made->dtype,
                   made->redop);
    for (size_t i = 0; i < elems && i < PERIOD; i++) {
        store(made, at, i, reduced, i * 3 % PART_VALUES_FEW);
    }
    repeat(at, PERIOD * made->elem_bytes, elems * made->elem_bytes);
}

void part_values_scale(const part_values *made, unsigned char *at, int rank)
{
    reference_store(at, 1 + rank % 3, made->dtype);
}
