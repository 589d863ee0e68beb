/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/llama_names.h - a model as Hugging Face's Llama has it, or
 * with experts GLM-4.5 (glm4_moe): the files of its folder, what config.json
 * says, and the tensors by their names.
 *
 * That family's layers are the trainer's: Llama's attention without norms of q
 * and k, experts of width ffn chosen by sigmoids and a bias, weights that sum
 * to 1, shared experts as one of as many times the width.
 *
 * Source: LlamaForCausalLM and Glm4MoeForCausalLM of huggingface/transformers.
 */
#ifndef TRAINER_EXCHANGE_LLAMA_NAMES_H
#define TRAINER_EXCHANGE_LLAMA_NAMES_H

#include "trainer/exchange/safetensors.h"
#include "trainer/model/tensor_list.h"

#define WEFTI_LLAMA_CONFIG  "config.json"
#define WEFTI_LLAMA_TENSORS "model.safetensors"

/* Room for the path of a file in a folder. */
enum { WEFTI_LLAMA_PATH_BYTES = 4096, WEFTI_LLAMA_NAME_BYTES = 96 };

/* DIR/name. Returns OK | ERR_INVALID (too long). */
WEFT_NODISCARD weft_status wefti_llama_path(
    const char *dir, const char *name, char path_out[WEFTI_LLAMA_PATH_BYTES]);

/* How many tensors of the file one of the model's is, one after the other. */
size_t wefti_llama_count_items(const wefti_tensor_info *info);

/* The name of one of them. Returns its rows. */
size_t wefti_llama_name(const wefti_tensor_info *info, size_t item,
                        char name_out[WEFTI_LLAMA_NAME_BYTES]);

/*
 * wefti_llama_items - those of a list's tensors, in its order; end with
 * wefti_safetensors_fini.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_llama_items(const wefti_tensor_list *list,
                                             wefti_safetensors *items_out);

/* wefti_llama_config_write - a new DIR/config.json. */
WEFT_NODISCARD weft_status
wefti_llama_config_write(const char *dir, const wefti_model_shape *shape);

/*
 * wefti_llama_check - whether a model's maths are one of the two families'.
 *
 * Returns     OK | ERR_UNSUPPORTED: the text names what is not.
 */
WEFT_NODISCARD weft_status wefti_llama_check(const wefti_model_shape *shape);

/*
 * wefti_llama_config_check - whether DIR/config.json describes a model of this
 * shape, and nothing that the trainer's layers do otherwise.
 *
 * Returns     OK | ERR_INVALID (the text names the file, the key, both values)
 *             | ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status
wefti_llama_config_check(const char *dir, const wefti_model_shape *shape);

#endif
