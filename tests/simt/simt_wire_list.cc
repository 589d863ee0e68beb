/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/simt_wire_list.cc - the kernels of kernels/wire by name.
 */
#include "kernels/wire/launch.h"
#include "tests/simt/simt_launch.h"

/* X(type) for each element type; SMALL: those whose wide type is another. */
#define SMALL(X) X(f16) X(bf16) X(f8e4m3) X(f8e5m2)
#define ALL(X)   X(i8) X(u8) X(i32) X(u32) X(i64) X(u64) X(f32) X(f64) SMALL(X)

#define REDUCE(type) void wefti_reduce_##type(const wefti_reduce_args args);
#define WIDEN(type)  void wefti_widen_##type(const wefti_cast_args args);
#define NARROW(type) void wefti_narrow_##type(const wefti_cast_args args);
#define SCALE(type)  void wefti_scale_##type(const wefti_scale_args args);

/* X(verb, type) for each type of rows. */
#define ROWS_TYPES(X, verb) X(verb, f32) X(verb, bf16) X(verb, f16)
#define ROWS_VERBS(X)                                                          \
    ROWS_TYPES(X, pack)                                                        \
    ROWS_TYPES(X, expand)                                                      \
    ROWS_TYPES(X, part)                                                        \
    ROWS_TYPES(X, reduce)                                                      \
    ROWS_TYPES(X, finish)
#define ROWS(verb, type)                                                       \
    void wefti_rows_##verb##_##type(const wefti_rows_args args);

extern "C" {
ALL(REDUCE)
SMALL(WIDEN)
ALL(NARROW)
ALL(SCALE)
void wefti_copy_bytes(const wefti_copy_args args);
void wefti_pack_bytes(const wefti_pack_args args);
void wefti_unpack_bytes(const wefti_pack_args args);
void wefti_rows_route(const wefti_rows_args args);
void wefti_rows_arrive(const wefti_rows_args args);
void wefti_rows_unpack(const wefti_rows_args args);
void wefti_rows_order(const wefti_rows_args args);
ROWS_VERBS(ROWS)
}

#define NAME_REDUCE(type)     SIMT_KERNEL(wefti_reduce_##type),
#define NAME_WIDEN(type)      SIMT_KERNEL(wefti_widen_##type),
#define NAME_NARROW(type)     SIMT_KERNEL(wefti_narrow_##type),
#define NAME_SCALE(type)      SIMT_KERNEL(wefti_scale_##type),
#define NAME_ROWS(verb, type) SIMT_KERNEL(wefti_rows_##verb##_##type),

static const simt_kernel wire_kernels[] = {
    ALL(NAME_REDUCE) SMALL(NAME_WIDEN) ALL(NAME_NARROW) ALL(NAME_SCALE)
        ROWS_VERBS(NAME_ROWS) SIMT_KERNEL(wefti_copy_bytes),
    SIMT_KERNEL(wefti_pack_bytes),
    SIMT_KERNEL(wefti_unpack_bytes),
    SIMT_KERNEL(wefti_rows_route),
    SIMT_KERNEL(wefti_rows_arrive),
    SIMT_KERNEL(wefti_rows_unpack),
    SIMT_KERNEL(wefti_rows_order),
    {nullptr, nullptr},
};

SIMT_ADD(wire_kernels)
