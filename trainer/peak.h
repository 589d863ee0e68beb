/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/peak.h - what share of the matrix products that the processors could
 * do a step has done (MFU): the model's operations against the rate of one
 * large product, measured with the library that training multiplies with.
 *
 *     mfu = tokens per second * operations per token / rate of all ranks
 *
 * Operations of a token, forward and backward: 6 for each parameter of a matrix
 * that it is multiplied with (the head too, no embedding, no norm; of experts
 * those of a token), and per
 * layer 12 * keys * heads * head_dim for attention: of s keys each, or causal,
 * of the (s + 1) / 2 that a token sees on average. Where a sequence has more
 * positions than tokens, an encoder's, theirs count to the tokens.
 */
#ifndef TRAINER_PEAK_H
#define TRAINER_PEAK_H

#include "trainer/model/parameters.h"
#include "weft/comm.h"
#include "weft/device.h"

double wefti_peak_operations(const wefti_parameters *plan, bool causal);

/*
 * wefti_peak_measure - the rate at which all ranks together multiply matrices
 * of dtype where they compute, each for about a tenth of a second, at the same
 * time, as they do in training; all ranks together.
 *
 * compute     NULL: the host.
 * rate_out    operations a second.
 *
 * Returns     OK | ERR_NO_MEMORY | as math_stream.h | the communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_peak_measure(weft_comm *comm,
                                              weft_device *device,
                                              weft_stream *compute,
                                              weft_dtype dtype,
                                              double *rate_out);

#endif
