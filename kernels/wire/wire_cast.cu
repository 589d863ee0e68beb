/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/wire_cast.cu - wefti_widen_<dtype>, wefti_narrow_<dtype> and
 * wefti_scale_<dtype> (launch.h).
 */
#include "kernels/wire/element.cuh"
#include "kernels/wire/launch.h"
#include "kernels/wire/run.cuh"

/* The wide type's bits in memory. */
template <class Wide> struct wide_memory {
    typedef Wide memory; /* integers lie as they are */
};
template <> struct wide_memory<float> {
    typedef uint32_t memory;
};
template <> struct wide_memory<double> {
    typedef uint64_t memory;
};

/*
 * Single elements from one type to the other, where sizes differ. Reads and
 * writes of neighbouring threads are still of neighbouring elements.
 */
template <class To, class From, class Change>
static __device__ inline void cast(void *dst, const void *src, size_t elems,
                                   const Change &change)
{
    bool to_aligned = (uintptr_t)dst % sizeof(To) == 0;
    bool from_aligned = (uintptr_t)src % sizeof(From) == 0;
    for (size_t i = thread_first(); i < elems; i += thread_count()) {
        From code = load_elem<From>(src, i, from_aligned);
        store_elem<To>(dst, i, change(code), to_aligned);
    }
}

template <class Element>
static __device__ inline void widen(const wefti_cast_args &args)
{
    typedef typename Element::memory memory;
    cast<uint32_t, memory>(args.dst, args.src, args.elems, [](memory code) {
        return bits_as<uint32_t>(Element::widen(code));
    });
}

template <class Element>
static __device__ inline void narrow(const wefti_cast_args &args)
{
    typedef typename Element::memory memory;
    typedef typename Element::wide wide;
    typedef typename wide_memory<wide>::memory code_type;
    cast<memory, code_type>(
        args.dst, args.src, args.elems, [&](code_type code) {
            wide value = bits_as<wide>(code);
            return Element::narrow(
                args.divisor ? average<Element>(value, args.divisor) : value);
        });
}

/* The product of two elements, rounded to the type; integers wrap. */
template <class Element>
static __device__ inline typename Element::memory
product(typename Element::memory a, typename Element::memory b)
{
    typedef typename Element::wide wide;
    typedef typename Element::bits bits;
    wide x = Element::widen(a), y = Element::widen(b);
    return Element::narrow(Element::is_float ? x * y
                                             : (wide)((bits)x * (bits)y));
}

template <class Element> struct scale_work {
    typedef typename Element::memory memory;
    const wefti_scale_args &args;
    memory factor;

    __device__ inline void one(size_t i, bool aligned) const
    {
        memory code = load_elem<memory>(args.src, i, aligned);
        store_elem<memory>(args.dst, i, product<Element>(code, factor),
                           aligned);
    }

    __device__ inline void many(size_t i) const
    {
        unit<memory> now = load_unit<memory>(args.src, i);
#pragma unroll
        for (unsigned e = 0; e < unit<memory>::ELEMS; e++) {
            now.at[e] = product<Element>(now.at[e], factor);
        }
        store_unit<memory>(args.dst, i, now);
    }
};

template <class Element>
static __device__ inline void scale(const wefti_scale_args &args)
{
    typedef typename Element::memory memory;
    alignment all = {(uintptr_t)args.dst, 0};
    align_with(&all, args.src);
    bool aligned = (uintptr_t)args.scalar % sizeof(memory) == 0;
    scale_work<Element> work = {args,
                                load_elem<memory>(args.scalar, 0, aligned)};
    run_over<memory>(work, &all, args.elems);
}

#define CAST_KERNEL(verb, type, args_type)                                     \
    extern "C" __global__ void __launch_bounds__(WEFTI_LAUNCH_THREADS, 1)      \
        wefti_##verb##_##type(const __grid_constant__ args_type args)          \
    {                                                                          \
        verb<element_##type>(args);                                            \
    }
#define WIDEN_KERNEL(type)  CAST_KERNEL(widen, type, wefti_cast_args)
#define NARROW_KERNEL(type) CAST_KERNEL(narrow, type, wefti_cast_args)
#define SCALE_KERNEL(type)  CAST_KERNEL(scale, type, wefti_scale_args)
ELEMENT_SMALL_LIST(WIDEN_KERNEL)
ELEMENT_LIST(NARROW_KERNEL)
ELEMENT_LIST(SCALE_KERNEL)
