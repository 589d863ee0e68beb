/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/level.h - names inside one level's build of the kernels.
 *
 * The build compiles every kernel once per level and defines
 * WEFTI_LEVEL_SUFFIX; WEFTI_LEVEL(scale) is then wefti_scale_v3, say. Only
 * this folder's <op>_host.c and math_table.c include this header.
 */
#ifndef KERNELS_MATH_LEVEL_H
#define KERNELS_MATH_LEVEL_H

#include "kernels/math/math_table.h"

#define WEFTI_PASTE_NOW(name, suffix) wefti_##name##_##suffix
#define WEFTI_PASTE(name, suffix)     WEFTI_PASTE_NOW(name, suffix)
#define WEFTI_LEVEL(name)             WEFTI_PASTE(name, WEFTI_LEVEL_SUFFIX)

#define WEFTI_MATH_DECLARE(name) wefti_##name##_fn WEFTI_LEVEL(name);
WEFTI_MATH_LIST(WEFTI_MATH_DECLARE)
#undef WEFTI_MATH_DECLARE

extern const wefti_math WEFTI_LEVEL(math);

#endif
