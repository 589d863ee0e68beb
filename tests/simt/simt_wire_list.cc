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

extern "C" {
ALL(REDUCE)
SMALL(WIDEN)
ALL(NARROW)
ALL(SCALE)
void wefti_copy_bytes(const wefti_copy_args args);
void wefti_pack_bytes(const wefti_pack_args args);
void wefti_unpack_bytes(const wefti_pack_args args);
}

#define NAME_REDUCE(type) SIMT_KERNEL(wefti_reduce_##type),
#define NAME_WIDEN(type)  SIMT_KERNEL(wefti_widen_##type),
#define NAME_NARROW(type) SIMT_KERNEL(wefti_narrow_##type),
#define NAME_SCALE(type)  SIMT_KERNEL(wefti_scale_##type),

static const simt_kernel wire_kernels[] = {
    ALL(NAME_REDUCE) SMALL(NAME_WIDEN) ALL(NAME_NARROW) ALL(NAME_SCALE)
        SIMT_KERNEL(wefti_copy_bytes),
    SIMT_KERNEL(wefti_pack_bytes),
    SIMT_KERNEL(wefti_unpack_bytes),
    {nullptr, nullptr},
};

SIMT_ADD(wire_kernels)
