/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/wire_reduce.cu - wefti_reduce_<dtype> (launch.h): many arrays
 * to one.
 *
 * The tree of wefti_reduce, without recursion: sources come in groups of four,
 * whose loads are under way together. As when counting in binary, a finished
 * group of 2^k joins the waiting one of the same size; at the end what waits
 * is joined from the smallest up. The waiting ones are kept in registers, as
 * every index into them is known when the loops are unrolled.
 */
#include "kernels/wire/element.cuh"
#include "kernels/wire/launch.h"
#include "kernels/wire/run.cuh"

static const unsigned GROUP = 4;
static const unsigned LEVELS = 5; /* waiting: groups of 4, 8 .. 64 sources */
static_assert(GROUP << (LEVELS - 1) == WEFTI_LAUNCH_SOURCES, "tree's height");

/* Reductions of two wide elements. */
struct join_sum {
    template <class Element>
    static __device__ inline typename Element::wide of(typename Element::wide a,
                                                       typename Element::wide b)
    {
        typedef typename Element::bits bits;
        return Element::is_float ? a + b
                                 : (typename Element::wide)((bits)a + (bits)b);
    }
};

struct join_prod {
    template <class Element>
    static __device__ inline typename Element::wide of(typename Element::wide a,
                                                       typename Element::wide b)
    {
        typedef typename Element::bits bits;
        return Element::is_float ? a * b
                                 : (typename Element::wide)((bits)a * (bits)b);
    }
};

/* NaN if either is; of zeros, a sign that both have (max) or either (min). */
struct join_max {
    template <class Element>
    static __device__ inline typename Element::wide of(typename Element::wide a,
                                                       typename Element::wide b)
    {
        typedef typename Element::wide wide;
        typedef typename Element::bits bits;
        wide larger = a > b ? a : b;
        if (!Element::is_float) {
            return larger;
        }
        wide same = bits_as<wide>((bits)(bits_as<bits>(a) & bits_as<bits>(b)));
        return a != a ? a : a == b ? same : larger;
    }
};

struct join_min {
    template <class Element>
    static __device__ inline typename Element::wide of(typename Element::wide a,
                                                       typename Element::wide b)
    {
        typedef typename Element::wide wide;
        typedef typename Element::bits bits;
        wide smaller = a < b ? a : b;
        if (!Element::is_float) {
            return smaller;
        }
        wide same = bits_as<wide>((bits)(bits_as<bits>(a) | bits_as<bits>(b)));
        return a != a ? a : a == b ? same : smaller;
    }
};

#define JOIN_BITS(name, operation)                                             \
    struct name {                                                              \
        template <class Element>                                               \
        static __device__ inline typename Element::wide                        \
        of(typename Element::wide a, typename Element::wide b)                 \
        {                                                                      \
            typedef typename Element::bits bits;                               \
            return (typename Element::wide)((bits)a operation(bits) b);        \
        }                                                                      \
    };
JOIN_BITS(join_band, &)
JOIN_BITS(join_bor, |)
JOIN_BITS(join_bxor, ^)

/* The tree over the sources, element by element of COUNT at once. */
template <class Element, class Join, unsigned COUNT, class Load>
static __device__ inline void reduce_tree(typename Element::wide *out,
                                          unsigned source_count,
                                          const Load &load)
{
    typedef typename Element::wide wide;
    wide waiting[LEVELS][COUNT];
    for (unsigned k = 0; k < source_count; k += GROUP) {
        typename Element::memory raw[GROUP][COUNT];
#pragma unroll
        for (unsigned j = 0; j < GROUP; j++) {
            if (k + j < source_count) {
                load(raw[j], k + j);
            }
        }
        unsigned here = source_count - k < GROUP ? source_count - k : GROUP;
        unsigned number = k / GROUP;
#pragma unroll
        for (unsigned e = 0; e < COUNT; e++) {
            wide low = Element::widen(raw[0][e]), high = low;
            if (here > 1) {
                low =
                    Join::template of<Element>(low, Element::widen(raw[1][e]));
            }
            if (here > 2) {
                high = Element::widen(raw[2][e]);
            }
            if (here > 3) {
                high =
                    Join::template of<Element>(high, Element::widen(raw[3][e]));
            }
            out[e] = here > 2 ? Join::template of<Element>(low, high) : low;
        }
        bool whole = here == GROUP;
#pragma unroll
        for (unsigned level = 0; level < LEVELS && whole; level++) {
            whole = number >> level & 1;
#pragma unroll
            for (unsigned e = 0; e < COUNT; e++) {
                if (whole) {
                    out[e] =
                        Join::template of<Element>(waiting[level][e], out[e]);
                } else {
                    waiting[level][e] = out[e];
                }
            }
        }
    }
    bool rest = source_count % GROUP != 0;
    unsigned groups = source_count / GROUP;
#pragma unroll
    for (unsigned level = 0; level < LEVELS; level++) {
        if (groups >> level & 1) {
#pragma unroll
            for (unsigned e = 0; e < COUNT; e++) {
                out[e] =
                    rest ? Join::template of<Element>(waiting[level][e], out[e])
                         : waiting[level][e];
            }
            rest = true;
        }
    }
}

template <class Element, class Join> struct reduce_work {
    typedef typename Element::wide wide;
    typedef typename Element::memory memory;
    const wefti_reduce_args &args;
    unsigned divisor; /* of an average, else 0 */

    __device__ inline memory done(wide value) const
    {
        return Element::narrow(divisor ? average<Element>(value, divisor)
                                       : value);
    }

    __device__ inline void one(size_t i, bool aligned) const
    {
        wide out[1];
        reduce_tree<Element, Join, 1>(
            out, args.source_count, [&](memory *raw, unsigned k) {
                raw[0] = load_elem<memory>(args.sources[k], i, aligned);
            });
        store_elem<memory>(args.dst, i, done(out[0]), aligned);
    }

    __device__ inline void many(size_t i) const
    {
        const unsigned ELEMS = unit<memory>::ELEMS;
        wide out[ELEMS];
        reduce_tree<Element, Join, ELEMS>(
            out, args.source_count, [&](memory *raw, unsigned k) {
                unit<memory> now = load_unit<memory>(args.sources[k], i);
#pragma unroll
                for (unsigned e = 0; e < ELEMS; e++) {
                    raw[e] = now.at[e];
                }
            });
        unit<memory> result;
#pragma unroll
        for (unsigned e = 0; e < ELEMS; e++) {
            result.at[e] = done(out[e]);
        }
        store_unit<memory>(args.dst, i, result);
    }
};

/* divisor: a constant 0 where it can be, as most reductions then have no code
 * of a division. */
template <class Element, class Join>
static __device__ inline void reduce_by(const wefti_reduce_args &args,
                                        unsigned divisor = 0)
{
    alignment all = {(uintptr_t)args.dst, 0};
    for (unsigned k = 0; k < args.source_count; k++) {
        align_with(&all, args.sources[k]);
    }
    reduce_work<Element, Join> work = {args, divisor};
    run_over<typename Element::memory>(work, &all, args.elems);
}

/* Only integers have reductions of bits. */
template <class Element, bool integer> struct reduce_bits {
    static __device__ inline void by(const wefti_reduce_args &)
    {
    }
};

template <class Element> struct reduce_bits<Element, true> {
    static __device__ inline void by(const wefti_reduce_args &args)
    {
        switch (args.redop) {
        case WEFT_REDOP_BAND:
            reduce_by<Element, join_band>(args);
            break;
        case WEFT_REDOP_BOR:
            reduce_by<Element, join_bor>(args);
            break;
        default:
            reduce_by<Element, join_bxor>(args);
            break;
        }
    }
};

template <class Element>
static __device__ inline void reduce(const wefti_reduce_args &args)
{
    switch (args.redop) {
    case WEFT_REDOP_SUM:
    case WEFT_REDOP_AVG:
    case WEFT_REDOP_PREMULSUM:
        reduce_by<Element, join_sum>(
            args, args.redop == WEFT_REDOP_AVG ? args.source_count : 0);
        break;
    case WEFT_REDOP_PROD:
        reduce_by<Element, join_prod>(args);
        break;
    case WEFT_REDOP_MAX:
        reduce_by<Element, join_max>(args);
        break;
    case WEFT_REDOP_MIN:
        reduce_by<Element, join_min>(args);
        break;
    default:
        reduce_bits<Element, !Element::is_float>::by(args);
        break;
    }
}

#define REDUCE_KERNEL(type)                                                    \
    extern "C" __global__ void __launch_bounds__(WEFTI_LAUNCH_THREADS, 1)      \
        wefti_reduce_##type(const __grid_constant__ wefti_reduce_args args)    \
    {                                                                          \
        reduce<element_##type>(args);                                          \
    }
ELEMENT_LIST(REDUCE_KERNEL)
