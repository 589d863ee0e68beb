/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/device_float.cuh - floats of 8 and 16 bits in CUDA kernels, to
 * the same bits as base/small_float.h.
 *
 * CUDA's own conversions, which are single instructions where the chip has
 * them. They give other NaNs, and keep an f8e4m3's sign when it overflows to
 * NaN; both are put right here. A host without CUDA's headers, which compiles
 * kernels to emulate them, takes base/small_float.h instead.
 *
 * Source: cuda_bf16.h, cuda_fp16.h and cuda_fp8.h of CUDA 13.0.
 */
#ifndef KERNELS_WIRE_DEVICE_FLOAT_CUH
#define KERNELS_WIRE_DEVICE_FLOAT_CUH

#include <stdint.h>

#if __has_include(<cuda_fp8.h>) && !defined(WEFTI_WITHOUT_CUDA_HEADERS)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

static __device__ inline float bf16_widen(uint16_t code)
{
    __nv_bfloat16_raw raw;
    raw.x = code;
    return __bfloat162float(__nv_bfloat16(raw));
}

static __device__ inline uint16_t bf16_narrow(float value)
{
    __nv_bfloat16_raw raw = __float2bfloat16_rn(value);
    return value != value ? 0x7fc0U : raw.x;
}

static __device__ inline float f16_widen(uint16_t code)
{
    __half_raw raw;
    raw.x = code;
    return __half2float(__half(raw));
}

static __device__ inline uint16_t f16_narrow(float value)
{
    __half_raw raw = __float2half_rn(value);
    return value != value ? 0x7e00U : raw.x;
}

static __device__ inline float f8_widen(uint8_t code,
                                        __nv_fp8_interpretation_t format)
{
    return f16_widen(__nv_cvt_fp8_to_halfraw(code, format).x);
}

static __device__ inline float f8e4m3_widen(uint8_t code)
{
    return f8_widen(code, __NV_E4M3);
}

static __device__ inline uint8_t f8e4m3_narrow(float value)
{
    uint8_t code = __nv_cvt_float_to_fp8(value, __NV_NOSAT, __NV_E4M3);
    return (code & 0x7fU) == 0x7fU ? 0x7fU : code;
}

static __device__ inline float f8e5m2_widen(uint8_t code)
{
    return f8_widen(code, __NV_E5M2);
}

static __device__ inline uint8_t f8e5m2_narrow(float value)
{
    uint8_t code = __nv_cvt_float_to_fp8(value, __NV_NOSAT, __NV_E5M2);
    return value != value ? 0x7eU : code;
}

#else

#include "base/small_float.h"

#define DEVICE_FLOAT(type, code_type)                                          \
    static inline float type##_widen(code_type code)                           \
    {                                                                          \
        return wefti_##type##_widen(code);                                     \
    }                                                                          \
    static inline code_type type##_narrow(float value)                         \
    {                                                                          \
        return wefti_##type##_narrow(value);                                   \
    }
DEVICE_FLOAT(bf16, uint16_t)
DEVICE_FLOAT(f16, uint16_t)
DEVICE_FLOAT(f8e4m3, uint8_t)
DEVICE_FLOAT(f8e5m2, uint8_t)
#undef DEVICE_FLOAT

#endif
#endif
