/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/hugging_face.h - a replica's parameters to and from a folder
 * that Hugging Face's Llama has, or with experts GLM-4.5 (glm4_moe):
 * config.json and model.safetensors.
 *
 *   export   rank of a tensor --> rank 0 --> DIR.PID.new --> its name, DIR
 *   import   DIR --> rank 0 --> all ranks
 *
 * Rank 0 alone touches the folder, a tensor at a time, and the layout does not
 * matter: the same parameters make the same bytes on any number of ranks and in
 * any pipeline.
 *
 * Source: LlamaForCausalLM, Glm4MoeForCausalLM and their configurations, of
 * huggingface/transformers.
 */
#ifndef TRAINER_EXCHANGE_HUGGING_FACE_H
#define TRAINER_EXCHANGE_HUGGING_FACE_H

#include "trainer/replica.h"

/*
 * wefti_hugging_face_try - by rank 0, before hours of training: whether DIR is
 * not there, and could be made. Leaves nothing behind.
 */
WEFT_NODISCARD weft_status wefti_hugging_face_try(const char *dir);

/*
 * wefti_hugging_face_export - all ranks, the replica settled. DIR appears with
 * both files complete and on disk, or not at all.
 *
 * Returns     OK | this rank's error | ERR_SYSTEM where only rank 0 failed |
 *             the communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_hugging_face_export(wefti_replica *replica,
                                                     const char *dir);

/*
 * wefti_hugging_face_import - all ranks, before the first step: the parameters
 * become those of the folder. Numbers are taken as F32, or as F16 or BF16,
 * which they have room for.
 *
 * Returns     OK | ERR_INVALID (another model's, or damaged: the text names the
 *             file and the tensor or key) | as export. After an error the
 *             parameters are undefined.
 */
WEFT_NODISCARD weft_status wefti_hugging_face_import(wefti_replica *replica,
                                                     const char *dir);

#endif
