/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/values.c - tables of 13 elements, and reading them.
 */
#include "tests/comm/values.h"

#include "tests/comm/sums.h"
#include "tests/kernels/reduce_reference.h"
#include "tests/repeat.h"

#include <string.h>

enum { PERIOD = 1009 };

static size_t kind_of(size_t i)
{
    return i % PERIOD * 3 % VALUES_KINDS;
}

void values_init(values *made, weft_dtype dtype, weft_redop redop, int rank,
                 int nranks, unsigned salt)
{
    static const int factors = 3;
    unsigned char inputs[VALUES_RANKS][VALUES_KINDS * 8];
    const unsigned char *sources[VALUES_RANKS];
    *made = (values){.dtype = dtype,
                     .redop = redop,
                     .nranks = nranks,
                     .salt = salt,
                     .elem_bytes = weft_dtype_bytes(dtype)};
    for (int kind = 0; kind < VALUES_KINDS; kind++) {
        reference_store(made->held + (size_t)kind * made->elem_bytes, kind,
                        dtype);
    }
    for (int r = 0; r < nranks; r++) {
        unsigned char scale[8];
        sources[r] = inputs[r];
        for (size_t kind = 0; kind < VALUES_KINDS; kind++) {
            size_t from = (salt + (size_t)r * 7 + kind) % VALUES_KINDS;
            memcpy(inputs[r] + kind * made->elem_bytes,
                   made->held + from * made->elem_bytes, made->elem_bytes);
        }
        reference_store(scale, 1 + r % factors, dtype);
        if (redop == WEFT_REDOP_PREMULSUM) {
            reference_scale(inputs[r], inputs[r], scale, VALUES_KINDS, dtype);
        }
        if (r == rank) {
            memcpy(made->scale, scale, made->elem_bytes);
        }
    }
    sums_reference(made->reduced, sources, nranks, VALUES_KINDS, dtype, redop);
}

/* Writes elements, each its place's kind of the table, moved on by turn. */
static void lay(const values *made, const unsigned char *table, size_t turn,
                unsigned char *at, size_t first, size_t elems)
{
    for (size_t i = 0; i < elems && i < PERIOD; i++) {
        size_t kind = (kind_of(first + i) + turn) % VALUES_KINDS;
        memcpy(at + i * made->elem_bytes, table + kind * made->elem_bytes,
               made->elem_bytes);
    }
    repeat(at, PERIOD * made->elem_bytes, elems * made->elem_bytes);
}

void values_fill(const values *made, unsigned char *at, int rank, size_t first,
                 size_t elems)
{
    lay(made, made->held, made->salt + (size_t)rank * 7, at, first, elems);
}

void values_expect(const values *made, unsigned char *at, size_t first,
                   size_t elems)
{
    lay(made, made->reduced, 0, at, first, elems);
}
