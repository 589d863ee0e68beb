/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/relax.h - what a thread does between two loads of a flag.
 */
#ifndef BASE_RELAX_H
#define BASE_RELAX_H

/* Leaves the core's resources to its twin for a moment. */
static inline void wefti_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
