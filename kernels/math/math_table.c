/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of one level; compiled once per level, like the kernels in it.
 */
#include "kernels/math/math_table.h"

#include "kernels/math/level.h"

#define LEVEL_TEXT_NOW(suffix) #suffix
#define LEVEL_TEXT(suffix)     LEVEL_TEXT_NOW(suffix)

const wefti_math WEFTI_LEVEL(math) = {.level = LEVEL_TEXT(WEFTI_LEVEL_SUFFIX),
#define MEMBER(name) .name = WEFTI_LEVEL(name),
                                      WEFTI_MATH_LIST(MEMBER)
#undef MEMBER
};
