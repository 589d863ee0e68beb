/* SPDX-License-Identifier: BSD-3-Clause */
typedef int wefti_kernels_math_unused;
