/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AdamW on a flat range: parameters that are their own masters, or bf16 ones
 * beside masters in f32, whose rounding they are.
 */
#include "kernels/math/math_pack.cuh"

/* The step's constants in the type of arithmetic. */
template <class Wide> struct adamw_step {
    Wide scale, beta1, rest1, beta2, rest2, eps, decay, m_factor, v_factor;

    __device__ inline adamw_step(const wefti_math_adamw_step &step,
                                 double factor)
        : scale((Wide)(step.grad_scale * factor)), beta1((Wide)step.beta1),
          rest1((Wide)step.rest1), beta2((Wide)step.beta2),
          rest2((Wide)step.rest2), eps((Wide)step.eps), decay((Wide)step.decay),
          m_factor((Wide)step.m_factor), v_factor((Wide)step.v_factor)
    {
    }

    /* The parameter's new value. */
    __device__ inline Wide take(Wide value, Wide &m, Wide &v, Wide grad) const
    {
        Wide g = scale * grad;
        m = beta1 * m + rest1 * g;
        v = beta2 * v + rest2 * g * g;
        Wide root = real_sqrt(v) * v_factor + eps;
        return value - decay * value - m_factor * m / root;
    }
};

/* ELEMS from i on. */
template <class Param, class Grad, unsigned ELEMS>
static __device__ inline void
adamw_pack(const wefti_math_adamw &args,
           const adamw_step<typename Param::wide> &step, size_t i)
{
    typedef typename Param::wide wide;
    real_pack<typename real_of<wide>::type, ELEMS> master, all_m, all_v;
    real_pack<Grad, ELEMS> grad;
    real_pack<Param, ELEMS> param;
    grad.template load<true>(args.grad, i, ELEMS);
    all_m.template load<true>(args.m, i, ELEMS);
    all_v.template load<true>(args.v, i, ELEMS);
    master.template load<true>(args.master, i, ELEMS);
#pragma unroll
    for (unsigned k = 0; k < ELEMS; k++) {
        wide m = all_m.get(k), v = all_v.get(k);
        wide value = step.take(master.get(k), m, v, grad.get(k));
        all_m.set(k, m);
        all_v.set(k, v);
        master.set(k, value);
        param.set(k, value);
    }
    all_m.template store<true>(args.m, i, ELEMS);
    all_v.template store<true>(args.v, i, ELEMS);
    master.template store<true>(args.master, i, ELEMS);
    if (args.param) {
        param.template store<true>(args.param, i, ELEMS);
    }
}

template <class Param, class Grad>
static __device__ inline void adamw(const wefti_math_adamw &args)
{
    typedef typename Param::wide wide;
    const unsigned elems = PACK_BYTES / sizeof(wide);
    const adamw_step<wide> step(args.step,
                                args.grad_factor ? *args.grad_factor : 1.0);
    bool packed = is_packed(args.param) && is_packed(args.master) &&
                  is_packed(args.m) && is_packed(args.v) &&
                  is_packed(args.grad);
    each_pack<elems>(
        args.elems, packed,
        [&](size_t i) { adamw_pack<Param, Grad, elems>(args, step, i); },
        [&](size_t i) { adamw_pack<Param, Grad, 1>(args, step, i); });
}

#define ADAMW_KERNEL(name, param, grad)                                        \
    extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS, 1)        \
        wefti_math_adamw_##name(const __grid_constant__ wefti_math_adamw args) \
    {                                                                          \
        adamw<real_##param, real_##grad>(args);                                \
    }
ADAMW_KERNEL(f32, f32, f32)
ADAMW_KERNEL(f64, f64, f64)
ADAMW_KERNEL(bf16, bf16, bf16)
ADAMW_KERNEL(bf16_f32, bf16, f32)
