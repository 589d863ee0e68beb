/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/kernels/device_pair.h - two devices side by side: arrays that both
 * have, work on a stream of each, and a comparison of what comes of it.
 */
#ifndef TESTS_KERNELS_DEVICE_PAIR_H
#define TESTS_KERNELS_DEVICE_PAIR_H

#include "kernels/math/math_stream.h"
#include "tests/kernels/math_check.h"

/* One array, in the memory of both; bytes is what it began as. */
typedef struct pair_array {
    weft_dtype dtype;
    size_t elems;
    void *bytes;
    void *on[2];
} pair_array;

enum { PAIR_ARRAYS = 24 };

typedef struct device_pair {
    weft_device *device[2];
    weft_stream *stream[2];
    int side; /* of EACH_SIDE */
    check_random random;
    pair_array arrays[PAIR_ARRAYS]; /* freed by pair_clear */
    size_t array_count;
} device_pair;

/* The host is side 0. Returns whether the other kind could be opened, having
 * said why not. */
bool pair_open(device_pair *pair, const char *kind);
void pair_close(device_pair *pair);

/* Everything a case has made is given back. */
void pair_clear(device_pair *pair);

#define EACH_SIDE(pair) for ((pair)->side = 0; (pair)->side < 2; (pair)->side++)

/* The stream of the side at hand. */
static inline weft_stream *pair_stream(const device_pair *pair)
{
    return pair->stream[pair->side];
}

/* Of values in [low, high), rounded to the type, or ids below a count; or
 * poisoned, all bits ones. Until pair_clear. */
pair_array *pair_random(device_pair *pair, weft_dtype dtype, size_t elems,
                        double low, double high);
pair_array *pair_ids(device_pair *pair, size_t elems, size_t below);
pair_array *pair_poison(device_pair *pair, weft_dtype dtype, size_t elems);

/* The side's tensor in an array. */
wefti_math_tensor pair_part(const device_pair *pair, const pair_array *array,
                            size_t first, size_t rows, size_t width,
                            size_t stride);
wefti_math_tensor pair_rows(const device_pair *pair, const pair_array *array,
                            size_t rows, size_t width);
wefti_math_tensor pair_flat(const device_pair *pair, const pair_array *array);

/*
 * pair_near - what both sides have now is the same within absolute + relative
 * |host's|, and of bf16 a rounding more; pair_same: to the bit. NaN is like
 * NaN: gaps stay poisoned on both, but there is more than gaps.
 */
void pair_near(device_pair *pair, const pair_array *array, double absolute,
               double relative, const char *what);
void pair_same(device_pair *pair, const pair_array *array, const char *what);

/* What a side has, freed by the caller. */
void *pair_read(device_pair *pair, const pair_array *array, int side);

#define pair_ok(call)                                                          \
    do {                                                                       \
        if ((call) != WEFT_OK)                                                 \
            fail_msg("%s: %s", #call, weft_error_text());                      \
    } while (0)

#endif
