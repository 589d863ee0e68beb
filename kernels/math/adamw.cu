/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AdamW on a flat range: parameters that are their own masters, or bf16 ones
 * beside masters in f32, whose rounding they are.
 */
#include "kernels/math/math_real.cuh"

template <class Param, class Grad>
static __device__ inline void adamw(const wefti_math_adamw &args)
{
    typedef typename Param::wide wide;
    const wefti_math_adamw_step &step = args.step;
    wide *master = static_cast<wide *>(args.master);
    wide *all_m = static_cast<wide *>(args.m);
    wide *all_v = static_cast<wide *>(args.v);
    wide scale =
        (wide)(step.grad_scale * (args.grad_factor ? *args.grad_factor : 1.0));
    each_elem(args.elems, [&](size_t i) {
        wide g = scale * load<Grad>(args.grad, i);
        wide m = (wide)step.beta1 * all_m[i] + (wide)step.rest1 * g;
        wide v = (wide)step.beta2 * all_v[i] + (wide)step.rest2 * g * g;
        wide root = real_sqrt(v) * (wide)step.v_factor + (wide)step.eps;
        wide value = master[i];
        value =
            value - (wide)step.decay * value - (wide)step.m_factor * m / root;
        all_m[i] = m;
        all_v[i] = v;
        master[i] = value;
        if (args.param) {
            store<Param>(args.param, i, value);
        }
    });
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
