/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/simt_sample_list.cc - the kernels of simt_sample.cu by name.
 */
#include "tests/simt/simt_launch.h"

extern "C" {
void sample_turn(const unsigned *in, unsigned *out);
void sample_sum(const unsigned *in, unsigned *out);
void sample_warp(const unsigned *in, unsigned *out);
void sample_where(unsigned *out);
void wrong_turn_without_barrier(const unsigned *in, unsigned *out);
void wrong_bounds(unsigned *out, int where);
void wrong_ended_lane(unsigned *out);
void wrong_absent_lanes(unsigned *out);
void wrong_mask(unsigned *out);
void wrong_masks(unsigned *out);
void wrong_meeting(unsigned *out);
void wrong_own_lane(unsigned *out);
void wrong_two_barriers(unsigned *out);
void wrong_unwritten(unsigned *out);
void wrong_plain_add(unsigned *out);
}

static const simt_kernel sample_kernels[] = {
    SIMT_KERNEL(sample_turn),
    SIMT_KERNEL(sample_sum),
    SIMT_KERNEL(sample_warp),
    SIMT_KERNEL(sample_where),
    SIMT_KERNEL(wrong_turn_without_barrier),
    SIMT_KERNEL(wrong_bounds),
    SIMT_KERNEL(wrong_ended_lane),
    SIMT_KERNEL(wrong_absent_lanes),
    SIMT_KERNEL(wrong_mask),
    SIMT_KERNEL(wrong_masks),
    SIMT_KERNEL(wrong_meeting),
    SIMT_KERNEL(wrong_own_lane),
    SIMT_KERNEL(wrong_two_barriers),
    SIMT_KERNEL(wrong_unwritten),
    SIMT_KERNEL(wrong_plain_add),
    {nullptr, nullptr},
};

SIMT_ADD(sample_kernels)
