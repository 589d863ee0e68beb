/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/llama_names.h - a model as Hugging Face's Llama has it: the
 * files of its folder, what config.json says, and the tensors by their names.
 */
#ifndef TRAINER_EXCHANGE_LLAMA_NAMES_H
#define TRAINER_EXCHANGE_LLAMA_NAMES_H

#include "trainer/exchange/safetensors.h"
#include "trainer/model/tensor_list.h"

#define WEFTI_LLAMA_CONFIG  "config.json"
#define WEFTI_LLAMA_TENSORS "model.safetensors"

/* Room for the path of a file in a folder. */
enum { WEFTI_LLAMA_PATH_BYTES = 4096 };

/* DIR/name. Returns OK | ERR_INVALID (too long). */
WEFT_NODISCARD weft_status wefti_llama_path(
    const char *dir, const char *name, char path_out[WEFTI_LLAMA_PATH_BYTES]);

/*
 * wefti_llama_items - the pieces of a list's tensors, in its order; end with
 * wefti_safetensors_fini, before the list, whose names they borrow.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_llama_items(const wefti_tensor_list *list,
                                             wefti_safetensors *items_out);

/* wefti_llama_config_write - a new DIR/config.json. */
WEFT_NODISCARD weft_status
wefti_llama_config_write(const char *dir, const wefti_model_shape *shape);

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
