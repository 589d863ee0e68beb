/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_print.h - a program as text: one line a node of each
 * pass, in order; then one line a value.
 *
 *   F 3 COMPUTE attention.0.norm by rows: residual -> normed rstd
 *   I 9 AWAIT attention.1.send pp by rows: -> d.residual.sum
 *   W 0 COMPUTE ffn.0.norm again: attention.0.residual -> normed rstd
 *
 *   value ffn.0.gated: slot at 128, 40960 bytes, F 7 to W 1
 *
 * Numbers are those of steps: nodes of one step run chunk of rows by chunk. A
 * value's name begins with that of its block where that is another; lives of
 * what is made again are steps of B.
 */
#ifndef TRAINER_PROGRAM_PROGRAM_PRINT_H
#define TRAINER_PROGRAM_PROGRAM_PRINT_H

#include "trainer/program/program.h"

#include <stdio.h>

/* Of a planned program. */
void wefti_program_print(const wefti_program *program, FILE *file);

#endif
