/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/print_program.h - weft-train --print-program: the program of each
 * stage of a configuration, without a job, data or training.
 */
#ifndef TRAINER_PRINT_PROGRAM_H
#define TRAINER_PRINT_PROGRAM_H

#include "trainer/options.h"

/*
 * wefti_print_program - all stages of one copy of the model, in order of its
 * layers, each checked (trainer/program/program_check.h).
 *
 * Returns     OK | ERR_INVALID (the configuration, or a program that is wrong)
 *             | ERR_UNSUPPORTED | ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_print_program(const wefti_options *options,
                                               FILE *file);

#endif
