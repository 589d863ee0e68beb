/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/element.cuh - the element types of weft/types.h in CUDA kernels:
 * for each a structure that says how an element lies in memory, its wide type,
 * and the way from one to the other and back.
 */
#ifndef KERNELS_WIRE_ELEMENT_CUH
#define KERNELS_WIRE_ELEMENT_CUH

#include "kernels/wire/device_float.cuh"
#include "weft/types.h"

#include <string.h>

/* The bits of one value as another type of that size. */
template <class To, class From> static __device__ inline To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

/*
 * memory   unsigned integer that holds the element
 * wide     type of partial results
 * widen    memory to wide
 * narrow   wide to memory: rounds once, NaN to the canonical one
 * bits     unsigned integer in which integers add and multiply, and wrap
 */
#define ELEMENT_INTEGER(name, type, bits_type)                                 \
    struct name {                                                              \
        typedef bits_type memory;                                              \
        typedef type wide;                                                     \
        typedef bits_type bits;                                                \
        static const bool is_float = false;                                    \
        static __device__ inline wide widen(memory code)                       \
        {                                                                      \
            return (wide)code;                                                 \
        }                                                                      \
        static __device__ inline memory narrow(wide value)                     \
        {                                                                      \
            return (memory)value;                                              \
        }                                                                      \
    };

ELEMENT_INTEGER(element_i8, int8_t, uint8_t)
ELEMENT_INTEGER(element_u8, uint8_t, uint8_t)
ELEMENT_INTEGER(element_i32, int32_t, uint32_t)
ELEMENT_INTEGER(element_u32, uint32_t, uint32_t)
ELEMENT_INTEGER(element_i64, int64_t, uint64_t)
ELEMENT_INTEGER(element_u64, uint64_t, uint64_t)

#define ELEMENT_REAL(name, type, memory_type, nan_bits)                        \
    struct name {                                                              \
        typedef memory_type memory;                                            \
        typedef type wide;                                                     \
        typedef memory_type bits;                                              \
        static const bool is_float = true;                                     \
        static __device__ inline wide widen(memory code)                       \
        {                                                                      \
            return bits_as<wide>(code);                                        \
        }                                                                      \
        static __device__ inline memory narrow(wide value)                     \
        {                                                                      \
            return value != value ? nan_bits : bits_as<memory>(value);         \
        }                                                                      \
    };

ELEMENT_REAL(element_f32, float, uint32_t, UINT32_C(0x7fc00000))
ELEMENT_REAL(element_f64, double, uint64_t, UINT64_C(0x7ff8000000000000))

#define ELEMENT_SMALL(type, memory_type)                                       \
    struct element_##type {                                                    \
        typedef memory_type memory;                                            \
        typedef float wide;                                                    \
        typedef uint32_t bits;                                                 \
        static const bool is_float = true;                                     \
        static __device__ inline wide widen(memory code)                       \
        {                                                                      \
            return type##_widen(code);                                         \
        }                                                                      \
        static __device__ inline memory narrow(wide value)                     \
        {                                                                      \
            return type##_narrow(value);                                       \
        }                                                                      \
    };

ELEMENT_SMALL(f16, uint16_t)
ELEMENT_SMALL(bf16, uint16_t)
ELEMENT_SMALL(f8e4m3, uint8_t)
ELEMENT_SMALL(f8e5m2, uint8_t)

/* X(type) for each of them, as its kernels are called. */
#define ELEMENT_SMALL_LIST(X) X(f16) X(bf16) X(f8e4m3) X(f8e5m2)
#define ELEMENT_LIST(X)                                                        \
    X(i8)                                                                      \
    X(u8)                                                                      \
    X(i32)                                                                     \
    X(u32) X(i64) X(u64) X(f32) X(f64) ELEMENT_SMALL_LIST(X)

/* value / count, in the wide type; integers towards zero. */
template <class Element>
static __device__ inline typename Element::wide
average(typename Element::wide value, unsigned count)
{
    return (typename Element::wide)(value / (typename Element::wide)count);
}

template <>
__device__ inline int8_t average<element_i8>(int8_t value, unsigned count)
{
    return (int8_t)(value / (int)count);
}

template <>
__device__ inline uint8_t average<element_u8>(uint8_t value, unsigned count)
{
    return (uint8_t)(value / count);
}

#endif
