/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/dynamic_shared.cuh - the shared memory whose size the launch
 * gives, as a pointer: WEFTI_DYNAMIC_SHARED(type, name). All uses in a block
 * are the same memory. An emulation that defines it first gives its own.
 */
#ifndef KERNELS_WIRE_DYNAMIC_SHARED_CUH
#define KERNELS_WIRE_DYNAMIC_SHARED_CUH

#ifndef WEFTI_DYNAMIC_SHARED
#define WEFTI_DYNAMIC_SHARED(type, name)                                       \
    extern __shared__ __align__(16) unsigned char wefti_dynamic_shared[];      \
    type *name = reinterpret_cast<type *>(wefti_dynamic_shared)
#endif

#endif
