/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/llama_config.c - config.json, written and checked. A key
 * that is missing has the value that Hugging Face's Llama, or Glm4Moe, takes
 * then.
 */
#include "trainer/exchange/llama_names.h"

#include "base/error.h"
#include "base/input.h"
#include "base/json.h"
#include "kernels/math/real.h"
#include "trainer/config/config.h"
#include "trainer/exchange/json_number.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CONFIG_BYTES_MOST = 1 << 20,
    SEPARATOR = 0 /* the byte between two texts (trainer/data/corpus.h) */
};

/* WEFTI_NORM_EPSILON of trainer/program/node_math.h, before it is rounded. */
static const double norm_epsilon = 1e-6;

/* GLM scores a group of experts by so many of its best. */
enum { GROUP_BEST = 2 };

static bool limits_groups(const wefti_model_shape *shape)
{
    return shape->group_limit < shape->expert_groups;
}

weft_status wefti_llama_check(const wefti_model_shape *shape)
{
    const size_t limit = limits_groups(shape) ? shape->group_limit : 1;
    const size_t best = (shape->experts_per_token + limit - 1) / limit;
    return shape->experts > 0 && limits_groups(shape) && best != GROUP_BEST
               ? wefti_error(WEFT_ERR_UNSUPPORTED,
                             "moe.node_limit %zu of %zu experts a token: here "
                             "hosts are chosen by their best %zu, and in "
                             "GLM-4.5, whose names models with experts have, "
                             "by %d: allowed is 0, or what makes it %d",
                             limit, shape->experts_per_token, best, GROUP_BEST,
                             GROUP_BEST)
               : WEFT_OK;
}

/* Groups that are not limited do not matter. */
static size_t count_groups(const wefti_model_shape *shape)
{
    return limits_groups(shape) ? shape->expert_groups : 1;
}

static void write_experts(wefti_json *json, const wefti_model_shape *shape)
{
    const size_t groups = count_groups(shape);
    wefti_json_uint(json, "moe_intermediate_size", shape->ffn);
    wefti_json_uint(json, "n_routed_experts", shape->experts);
    wefti_json_uint(json, "num_experts_per_tok", shape->experts_per_token);
    wefti_json_uint(json, "n_shared_experts", shape->shared_experts);
    wefti_json_uint(json, "n_group", groups);
    wefti_json_uint(json, "topk_group", groups > 1 ? shape->group_limit : 1);
    wefti_json_uint(json, "first_k_dense_replace", 0);
    wefti_json_bool(json, "norm_topk_prob", true);
    wefti_json_real(json, "routed_scaling_factor", 1.0);
    wefti_json_real(json, "partial_rotary_factor", 1.0);
    wefti_json_bool(json, "use_qk_norm", false);
}

static void write_keys(wefti_json *json, const wefti_model_shape *shape)
{
    const char *dtype = sizeof(real) == sizeof(double) ? "float64" : "float32";
    const bool experts = shape->experts > 0;
    wefti_json_array_open(json, "architectures");
    wefti_json_text(json, NULL,
                    experts ? "Glm4MoeForCausalLM" : "LlamaForCausalLM");
    wefti_json_array_close(json);
    wefti_json_text(json, "model_type", experts ? "glm4_moe" : "llama");
    if (experts) {
        write_experts(json, shape);
    }
    wefti_json_uint(json, "vocab_size", shape->vocab);
    wefti_json_uint(json, "hidden_size", shape->hidden);
    wefti_json_uint(json, "intermediate_size", shape->ffn);
    wefti_json_uint(json, "num_hidden_layers", shape->layers);
    wefti_json_uint(json, "num_attention_heads", shape->heads);
    wefti_json_uint(json, "num_key_value_heads", shape->kv_heads);
    wefti_json_uint(json, "head_dim", shape->head_dim);
    wefti_json_uint(json, "max_position_embeddings", shape->seq);
    wefti_json_text(json, "hidden_act", "silu");
    wefti_json_real(json, "rms_norm_eps", norm_epsilon);
    wefti_json_real(json, "rope_theta", shape->rope_theta);
    wefti_json_null(json, "rope_scaling");
    wefti_json_bool(json, "attention_bias", false);
    wefti_json_bool(json, "mlp_bias", false);
    wefti_json_bool(json, "tie_word_embeddings", shape->tied);
    wefti_json_null(json, "bos_token_id");
    if (shape->vocab == WEFTI_VOCAB_BYTES) {
        wefti_json_uint(json, "eos_token_id", SEPARATOR);
    } else { /* ids, which their tokenizer knows */
        wefti_json_null(json, "eos_token_id");
    }
    wefti_json_text(json, "torch_dtype", dtype);
}

weft_status wefti_llama_config_write(const char *dir,
                                     const wefti_model_shape *shape)
{
    char path[WEFTI_LLAMA_PATH_BYTES];
    weft_status status = wefti_llama_path(dir, WEFTI_LLAMA_CONFIG, path);
    if (status != WEFT_OK) {
        return status;
    }
    FILE *file = fopen(path, "wxe");
    if (!file) {
        return wefti_error_system("%.200s: cannot be made", path);
    }
    wefti_json json;
    wefti_json_init(&json, file);
    wefti_json_object_open(&json, NULL);
    write_keys(&json, shape);
    wefti_json_object_close(&json);
    bool good = wefti_json_fini(&json) == WEFT_OK && fsync(fileno(file)) == 0;
    good = fclose(file) == 0 && good;
    return good ? WEFT_OK
                : wefti_error_system("%.200s: cannot be written", path);
}

/* A file being checked; the first finding stays. */
typedef struct check {
    const char *path;
    const cJSON *root;
    weft_status status;
} check;

static const cJSON *find(const check *own, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(own->root, key);
    return cJSON_IsNull(item) ? NULL : item;
}

/* The same number as the configuration's key; missing: it is fallback. */
static void check_whole(check *own, const char *key, uint64_t fallback,
                        const char *model_key, uint64_t expected)
{
    const cJSON *item = find(own, key);
    uint64_t value = fallback;
    if (own->status != WEFT_OK) {
        return;
    }
    if (item && !wefti_json_number_whole(item, &value)) {
        own->status = wefti_error(WEFT_ERR_INVALID,
                                  "%.200s: %s: allowed is a whole number",
                                  own->path, key);
    } else if (!item && fallback == 0) {
        own->status =
            wefti_error(WEFT_ERR_INVALID, "%.200s: has no %s", own->path, key);
    } else if (value != expected) {
        own->status = wefti_error(WEFT_ERR_INVALID,
                                  "%.200s: %s is %" PRIu64 ", but %s %" PRIu64,
                                  own->path, key, value, model_key, expected);
    }
}

static void check_real(check *own, const char *key, const cJSON *item,
                       double fallback, const char *what, double expected)
{
    double value = item ? cJSON_GetNumberValue(item) : fallback;
    if (own->status == WEFT_OK &&
        !(fabs(value - expected) <= 1e-12 * expected)) {
        own->status = wefti_error(WEFT_ERR_INVALID, "%.200s: %s is %.9g, %s %g",
                                  own->path, key, value, what, expected);
    }
}

static void check_bool(check *own, const char *key, bool fallback,
                       const char *what, bool expected)
{
    const cJSON *item = find(own, key);
    const bool value = item ? cJSON_IsTrue(item) : fallback;
    if (own->status == WEFT_OK && value != expected) {
        own->status = wefti_error(WEFT_ERR_INVALID, "%.200s: %s is %s, %s %s",
                                  own->path, key, expected ? "false" : "true",
                                  what, expected ? "true" : "false");
    }
}

static void check_word(check *own, const char *key, const cJSON *item,
                       const char *expected)
{
    const char *value = item ? cJSON_GetStringValue(item) : expected;
    if (own->status == WEFT_OK && (!value || strcmp(value, expected) != 0)) {
        own->status = wefti_error(
            WEFT_ERR_INVALID, "%.200s: %s is \"%.40s\": allowed is \"%s\"",
            own->path, key, value ? value : "no text", expected);
    }
}

/* In one object since transformers 5, before that beside the other keys. */
static const cJSON *find_rotation(const check *own, const char *key)
{
    const cJSON *item =
        cJSON_GetObjectItemCaseSensitive(find(own, "rope_parameters"), key);
    return item ? item : find(own, key);
}

static void check_rotation(check *own, const wefti_model_shape *shape)
{
    const cJSON *both = find(own, "rope_parameters");
    check_word(own, "rope_type",
               cJSON_GetObjectItemCaseSensitive(both, "rope_type"), "default");
    if (own->status == WEFT_OK &&
        (find(own, "rope_scaling") || (both && !cJSON_IsObject(both)))) {
        own->status = wefti_error(
            WEFT_ERR_INVALID, "%.200s: %s: allowed is %s", own->path,
            find(own, "rope_scaling") ? "rope_scaling" : "rope_parameters",
            find(own, "rope_scaling") ? "null" : "an object");
    }
    check_real(own, "partial_rotary_factor",
               find_rotation(own, "partial_rotary_factor"),
               shape->experts > 0 ? 0.5 : 1.0, "allowed is", 1.0);
    check_real(own, "rope_theta", find_rotation(own, "rope_theta"), 10000.0,
               "but model.rope_theta", shape->rope_theta);
}

static void check_experts(check *own, const wefti_model_shape *shape)
{
    const size_t groups = count_groups(shape);
    check_whole(own, "moe_intermediate_size", 1408, "model.ffn_size",
                shape->ffn);
    check_whole(own, "n_routed_experts", 128, "model.experts", shape->experts);
    check_whole(own, "num_experts_per_tok", 8, "model.experts_per_token",
                shape->experts_per_token);
    check_whole(own, "n_shared_experts", 1, "model.shared_experts",
                shape->shared_experts);
    check_whole(own, "n_group", 1, "by moe.node_limit and moe.nodes", groups);
    if (groups > 1) {
        check_whole(own, "topk_group", 1, "moe.node_limit", shape->group_limit);
    }
    check_whole(own, "first_k_dense_replace", 1, "here always", 0);
    check_bool(own, "norm_topk_prob", true, "but here always", true);
    check_real(own, "routed_scaling_factor", find(own, "routed_scaling_factor"),
               1.0, "but here always", 1.0);
    check_bool(own, "use_qk_norm", false, "but here always", false);
}

static void check_keys(check *own, const wefti_model_shape *shape)
{
    uint64_t positions;
    const cJSON *most = find(own, "max_position_embeddings");
    check_word(own, "model_type", find(own, "model_type"),
               shape->experts > 0 ? "glm4_moe" : "llama");
    if (shape->experts > 0) {
        check_experts(own, shape);
    }
    check_whole(own, "num_hidden_layers", 0, "model.layers", shape->layers);
    check_whole(own, "hidden_size", 0, "model.hidden_size", shape->hidden);
    check_whole(own, "num_attention_heads", 0, "model.heads", shape->heads);
    check_whole(own, "num_key_value_heads",
                shape->experts > 0 ? 8 : shape->heads, "model.kv_heads",
                shape->kv_heads);
    check_whole(own, "head_dim", shape->hidden / shape->heads,
                "model.hidden_size / heads", shape->head_dim);
    if (shape->experts == 0) { /* else of layers that there are none of */
        check_whole(own, "intermediate_size", 0, "model.ffn_size", shape->ffn);
    }
    check_whole(own, "vocab_size", 0, "model.vocab", shape->vocab);
    if (most && own->status == WEFT_OK &&
        (!wefti_json_number_whole(most, &positions) ||
         positions < shape->seq)) {
        own->status = wefti_error(WEFT_ERR_INVALID,
                                  "%.200s: max_position_embeddings: "
                                  "model.seq_length is %zu, and may not be "
                                  "above it",
                                  own->path, shape->seq);
    }
    check_word(own, "hidden_act", find(own, "hidden_act"), "silu");
    check_real(own, "rms_norm_eps", find(own, "rms_norm_eps"),
               shape->experts > 0 ? 1e-5 : norm_epsilon, "but here always",
               norm_epsilon);
    check_rotation(own, shape);
    check_bool(own, "attention_bias", false, "but here always", false);
    check_bool(own, "mlp_bias", false, "but here always", false);
    check_bool(own, "tie_word_embeddings", false, "but model.tie_embeddings",
               shape->tied);
}

weft_status wefti_llama_config_check(const char *dir,
                                     const wefti_model_shape *shape)
{
    char path[WEFTI_LLAMA_PATH_BYTES];
    char *text = NULL;
    size_t bytes;
    weft_status status = wefti_llama_path(dir, WEFTI_LLAMA_CONFIG, path);
    if (status == WEFT_OK) {
        status = wefti_file_read(path, WEFTI_INPUT_FILE, CONFIG_BYTES_MOST,
                                 &text, &bytes);
    }
    if (status != WEFT_OK) {
        return status;
    }
    cJSON *root = cJSON_ParseWithLength(text, bytes);
    check own = {.path = path, .root = root};
    if (cJSON_IsObject(root)) {
        check_keys(&own, shape);
    } else {
        own.status =
            wefti_error(WEFT_ERR_INVALID, "%.200s: is no JSON object", path);
    }
    cJSON_Delete(root);
    free(text);
    return own.status;
}
