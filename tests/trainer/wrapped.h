/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/wrapped.h - functions whose calls the linker gives to a test
 * (-Wl,--wrap in tests/trainer/CMakeLists.txt): it defines __wrap_NAME, and
 * finds the function itself as __real_NAME.
 */
#ifndef TESTS_TRAINER_WRAPPED_H
#define TESTS_TRAINER_WRAPPED_H

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/train_step.h"
#include "weft/moe.h"

weft_status __real_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out);
weft_status __wrap_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out);

weft_status __real_wefti_checkpoint_commit(const wefti_checkpoint_owner *owner,
                                           const char *dir, uint64_t step,
                                           size_t keep_count);
weft_status __wrap_wefti_checkpoint_commit(const wefti_checkpoint_owner *owner,
                                           const char *dir, uint64_t step,
                                           size_t keep_count);

weft_status __real_weft_moe_dispatch(weft_moe *moe, const void *x,
                                     const int32_t *expert, const float *weight,
                                     size_t tokens, weft_stream *stream,
                                     weft_moe_batch *batch_out);
weft_status __wrap_weft_moe_dispatch(weft_moe *moe, const void *x,
                                     const int32_t *expert, const float *weight,
                                     size_t tokens, weft_stream *stream,
                                     weft_moe_batch *batch_out);

#endif
