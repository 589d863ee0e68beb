/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/run_plan.c - shapes, settings and sizes from the configuration.
 */
#include "trainer/run_plan.h"

#include "trainer/model/stage.h"
#include "trainer/pipe/pipe_schedule.h"

#include <string.h>

enum {
    SPANS_MOST = 1 << 20, /* of a ledger */
    /* Of experts: operations of five ways over two hops, and compute that goes
     * on behind each of four. */
    EXCHANGES_OF_LAYER = 14
};

static wefti_context context_of(const wefti_config *config)
{
    const char *layout = config->parallel.context_layout;
    return (wefti_context){
        .parts = (size_t)config->parallel.context_parallel_size,
        .ulysses = (size_t)wefti_config_ulysses(config),
        .layout = strcmp(layout, "zigzag") == 0   ? WEFTI_CONTEXT_ZIGZAG
                  : strcmp(layout, "stripe") == 0 ? WEFTI_CONTEXT_STRIPE
                                                  : WEFTI_CONTEXT_CONTIGUOUS};
}

/* Whether there are hosts that a token must not go to. */
static bool limits_nodes(const wefti_config *config)
{
    return config->moe.node_limit > 0 &&
           config->moe.node_limit < config->moe.nodes;
}

wefti_model_shape wefti_run_shape(const wefti_config *config)
{
    return (wefti_model_shape){
        .layers = (size_t)config->model.layers,
        .hidden = (size_t)config->model.hidden_size,
        .heads = (size_t)config->model.heads,
        .kv_heads = (size_t)config->model.kv_heads,
        .head_dim = (size_t)(config->model.hidden_size / config->model.heads),
        .ffn = (size_t)config->model.ffn_size,
        .vocab = (size_t)config->model.vocab,
        .seq = (size_t)config->model.seq_length,
        .encoder_layers = (size_t)config->model.encoder_layers,
        .encoder_seq = config->model.encoder_layers > 0
                           ? (size_t)config->model.encoder_seq_length
                           : 0,
        .rope_theta = config->model.rope_theta,
        .tied = config->model.tie_embeddings,
        .narrow = strcmp(config->model.dtype, "bf16") == 0,
        .context = context_of(config),
        .experts = (size_t)config->model.experts,
        .experts_per_token = (size_t)config->model.experts_per_token,
        .shared_experts = (size_t)config->model.shared_experts,
        .expert_groups = limits_nodes(config) ? (size_t)config->moe.nodes : 1,
        .group_limit =
            limits_nodes(config) ? (size_t)config->moe.node_limit : 1,
        .expert_narrow = strcmp(config->moe.dispatch, "fp8") == 0,
        .expert_room = (size_t)config->moe.room};
}

static wefti_decay decay_of(const char *style)
{
    return strcmp(style, "linear") == 0     ? WEFTI_DECAY_LINEAR
           : strcmp(style, "constant") == 0 ? WEFTI_DECAY_NONE
                                            : WEFTI_DECAY_COSINE;
}

static wefti_optimizer_config optimizer_of(const wefti_config *config)
{
    return (wefti_optimizer_config){
        .lr = config->train.lr,
        .decay = decay_of(config->train.lr_decay_style),
        .min_ratio = config->train.min_lr_ratio,
        .warmup_steps = (uint64_t)config->train.warmup_steps,
        .steps = (uint64_t)config->train.steps,
        .weight_decay = config->train.weight_decay,
        .clip = config->train.clip,
        .beta1 = config->train.adam_beta1,
        .beta2 = config->train.adam_beta2,
        .epsilon = config->train.adam_eps};
}

wefti_recompute wefti_run_recompute(const wefti_config *config)
{
    static const char *const words[] = {"none", "norms", "selective", "full"};
    size_t at = WEFTI_RECOMPUTE_NONE;
    while (strcmp(config->memory.recompute, words[at]) != 0) {
        at++;
    }
    return (wefti_recompute)at;
}

static wefti_ema_format find_ema(const wefti_config *config)
{
    static const char *const words[] = {"none", "fp32", "bf16", "fp8"};
    size_t at = WEFTI_EMA_NONE;
    while (strcmp(config->memory.ema, words[at]) != 0) {
        at++;
    }
    return (wefti_ema_format)at;
}

size_t wefti_run_expert_slots(const wefti_config *config)
{
    return config->moe.place_every > 0
               ? (size_t)wefti_config_expert_slots(config)
               : 0;
}

wefti_replica_config wefti_run_replica(const wefti_config *config,
                                       weft_comm *comm, weft_device *device,
                                       const wefti_data *data,
                                       const weft_schedule *schedule)
{
    return (wefti_replica_config){
        .comm = comm,
        .device = device,
        .data = data,
        .mesh = wefti_config_mesh(config, weft_comm_get_nranks(comm)),
        .shape = wefti_run_shape(config),
        .optimizer = optimizer_of(config),
        .micro_batch = (size_t)config->train.micro_batch_size,
        .global_batch = (size_t)config->train.global_batch_size,
        .bucket_bytes = (size_t)(config->overlap.bucket_mb * 1e6),
        .seed = (uint64_t)config->train.seed,
        .balance_every = (size_t)config->moe.balance_every,
        .balance_rate = config->moe.balance_rate,
        .expert_overlap = config->overlap.expert,
        .expert_slots = wefti_run_expert_slots(config),
        .packs = config->data.document_end >= 0,
        .document_end = (int32_t)config->data.document_end,
        .start = {config->model.init_scale, config->model.head_init_std,
                  config->model.embedding_init_std},
        .sequence_parallel = config->parallel.sequence_parallel &&
                             config->parallel.tensor_model_parallel_size > 1,
        .offload = strcmp(config->memory.offload, "optimizer") == 0,
        .ema = find_ema(config),
        .ema_decay = config->memory.ema_decay,
        .pipe = {.schedule = schedule,
                 .encoder_stages = wefti_pipe_schedule_encoder(config),
                 .chunk_rows =
                     config->overlap.pipeline &&
                             config->parallel.pipeline_model_parallel_size > 1
                         ? wefti_stage_chunk_rows(device)
                         : 0,
                 .beside = {[WEFTI_LINK_TENSOR] = config->overlap.tensor},
                 .recompute = wefti_run_recompute(config),
                 .keeps_places = !config->memory.release_activations}};
}

static size_t divide_up(size_t all, size_t by)
{
    return (all + by - 1) / by;
}

/*
 * An action has a span, and a further one for each bucket that it waits for or
 * sends off; buckets are no more than tensors. Of a pass a rank has two actions
 * without a pipeline, and with one three a stage: fewer than 2 a layer of all
 * ranks. A step has as many again for norm, update and both transfers. Where
 * ranks share sequences a layer's pass has some for each block that comes.
 */
size_t wefti_run_spans(const wefti_config *config, int nranks,
                       size_t validation_windows)
{
    const size_t to_spare = 4096;
    const wefti_model_shape shape = wefti_run_shape(config);
    size_t layers = wefti_model_layers(&shape);
    size_t tensors = wefti_tensor_list_count(&shape) + 1; /* a copied head */
    size_t micro = (size_t)config->train.micro_batch_size;
    size_t copies = (size_t)wefti_config_mesh(config, nranks).dp;
    size_t passes =
        divide_up((size_t)config->train.global_batch_size / micro, copies);
    size_t evaluations =
        divide_up(divide_up(validation_windows, micro), copies);
    /* Of a layer that ranks share, what they exchange, and compute between. */
    const wefti_context *context = &shape.context;
    size_t exchanges =
        config->parallel.tensor_model_parallel_size > 1 ? 16 * (layers + 1) : 0;
    if (config->parallel.expert_model_parallel_size > 1) {
        exchanges += EXCHANGES_OF_LAYER * layers;
    }
    /* Gradients of replicas, and experts that move, of each bucket. */
    const size_t moves = config->moe.place_every > 0 ? 4 * tensors : 0;
    if (wefti_context_parts(context) > 1) {
        exchanges += layers * (16 + 16 * wefti_context_ring(context));
    }
    size_t spans = (2 * layers + 8 + tensors + exchanges) * passes +
                   (layers + 4 + exchanges) * evaluations + 6 * tensors +
                   moves + to_spare;
    return spans < SPANS_MOST ? spans : SPANS_MOST;
}
