/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_key.c - every key of the config, once: type, limits,
 * default, and which value this version is bound to.
 */
#include "trainer/config/config_key.h"

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtypes[] = {"fp32", "bf16", NULL};
static const char *const context_kinds[] = {"ring", "ulysses", "ring+ulysses",
                                            NULL};
static const char *const context_layouts[] = {"contiguous", "zigzag", "stripe",
                                              NULL};
static const char *const schedules[] = {
    "gpipe",    "1f1b",      "interleaved", "zb_h1",    "zb_h2", "zbv",
    "dualpipe", "dualpipev", "auto",        "FILE.csv", NULL};
static const char *const compared[] = {
    "gpipe",    "1f1b",      "interleaved", "zb_h1", "zb_h2", "zbv",
    "dualpipe", "dualpipev", "all",         "none",  NULL};
static const char *const recomputes[] = {"none", "norms", "selective", "full",
                                         NULL};
static const char *const decays[] = {"cosine", "linear", "constant", NULL};
static const char *const devices[] = {"host", "cuda", "shadow", NULL};
static const char *const emas[] = {"none", "fp32", "bf16", "fp8", NULL};
static const char *const offloads[] = {"none", "optimizer", NULL};
static const char *const dispatches[] = {"bf16", "fp8", NULL};

#define INT(section_, name_, least_, most_, fallback_)                         \
    .section = #section_, .name = #name_, .kind = WEFTI_CONFIG_INT,            \
    .offset = offsetof(wefti_config, section_.name_), .least = (least_),       \
    .most = (most_), .fallback = (fallback_)
#define REAL(section_, name_, least_, most_, fallback_)                        \
    .section = #section_, .name = #name_, .kind = WEFTI_CONFIG_REAL,           \
    .offset = offsetof(wefti_config, section_.name_), .least = (least_),       \
    .most = (most_), .fallback = (fallback_)
#define BOOL(section_, name_, fallback_)                                       \
    .section = #section_, .name = #name_, .kind = WEFTI_CONFIG_BOOL,           \
    .offset = offsetof(wefti_config, section_.name_), .fallback = (fallback_)
#define WORD(section_, name_, words_, fallback_)                               \
    .section = #section_, .name = #name_, .kind = WEFTI_CONFIG_WORD,           \
    .offset = offsetof(wefti_config, section_.name_), .words = (words_),       \
    .fallback = (fallback_)

/* Seeds and counters: exact in a double, and in JSON everywhere. */
#define SEED_MOST  9007199254740992.0
#define STEPS_MOST 1e9
#define RANKS_MOST 65536
#define VOCAB_MOST 1048576

/* clang-format off */
const wefti_config_key wefti_config_keys[] = {
    {INT(model, layers, 1, 1024, "4"), .lasting = true,
     .about = "decoder layers"},
    {INT(model, hidden_size, 2, 65536, "256"), .lasting = true,
     .about = "width of the model; a multiple of heads"},
    {INT(model, heads, 1, 1024, "8"), .lasting = true,
     .about = "query heads"},
    {INT(model, kv_heads, 1, 1024, "4"), .lasting = true,
     .about = "heads of keys and values, each shared by heads / kv_heads "
              "queries"},
    {INT(model, ffn_size, 1, 262144, "704"), .lasting = true,
     .about = "width inside the feed-forward network (SwiGLU)"},
    {.section = "model", .name = "vocab", .kind = WEFTI_CONFIG_VOCAB,
     .offset = offsetof(wefti_config, model.vocab),
     .least = 2, .most = VOCAB_MOST, .fallback = "bytes",
     .lasting = true,
     .about = "bytes: the data is text; a number: it is token ids below that "
              "(docs/data.md)"},
    {INT(model, seq_length, 1, 1048576, "512"), .lasting = true,
     .about = "tokens of one sequence"},
    {INT(model, experts, 0, 4096, "0"), .lasting = true,
     .about = "experts of a layer, each of ffn_size; 0: a dense model"},
    {INT(model, experts_per_token, 1, 32, "2"), .lasting = true,
     .about = "experts that a token goes to"},
    {INT(model, shared_experts, 0, 64, "0"), .lasting = true,
     .about = "experts that every token goes to"},
    {REAL(model, rope_theta, 1, 1e12, "10000.0"), .lasting = true,
     .about = "base of the rotary positions"},
    {WORD(model, dtype, dtypes, "fp32"), .lasting = true,
     .about = "of weights and activations; bf16: sums, gradients, master "
              "weights and moments are fp32"},
    {REAL(model, init_scale, 1e-6, 1e6, "1.0"),
     .about = "first weights: factor on 1 / sqrt(inputs), their standard "
              "deviation"},
    {REAL(model, head_init_std, 1e-6, 1e6, "0.02"),
     .about = "that of the head, also where it is the embedding"},
    {REAL(model, embedding_init_std, 1e-6, 1e6, "1.0"),
     .about = "that of an embedding that is not"},
    {BOOL(model, tie_embeddings, "false"), .lasting = true,
     .about = "the output head is the embedding"},
    {INT(model, encoder_layers, 0, 1024, "0"), .lasting_if_set = true,
     .about = "layers of an encoder over bytes of its own, whose positions "
              "stand before a sequence's tokens; 0: none"},
    {INT(model, encoder_seq_length, 1, 1048576, "64"), .lasting_if_set = true,
     .about = "positions of a sequence in the encoder, a byte each"},

    {.section = "data", .name = "paths", .kind = WEFTI_CONFIG_PATHS,
     .offset = offsetof(wefti_config, data.paths), .by_content = true,
     .about = "files and folders of text, or of token ids"},
    {REAL(data, validation_fraction, 0, 0.9, "0.05"), .lasting = true,
     .about = "of each file, its end, that is not trained on"},
    {INT(data, seed, 0, SEED_MOST, "1"), .lasting = true,
     .about = "of the order in which sequences come"},
    {INT(data, document_end, -1, 1048575, "-1"), .lasting_if_set = true,
     .about = "token that ends a document, of which attention sees no other; "
              "-1: none"},
    {.section = "data", .name = "encoder_path", .kind = WEFTI_CONFIG_PATH,
     .offset = offsetof(wefti_config, data.encoder_path), .by_content = true,
     .fallback = "none",
     .about = "a file or folder of any bytes, which the encoder reads"},

    {INT(parallel, tensor_model_parallel_size, 1, RANKS_MOST, "1"),
     .about = "ranks that share each layer"},
    {BOOL(parallel, sequence_parallel, "false"),
     .about = "these share the rows of the norms too"},
    {INT(parallel, pipeline_model_parallel_size, 1, RANKS_MOST, "1"),
     .about = "ranks that share one copy of the model, by layers; 1: no "
              "pipeline"},
    {INT(parallel, virtual_pipeline_model_parallel_size, 1, 1024, "1"),
     .about = "stages of a rank"},
    {INT(parallel, virtual_group_size, 0, RANKS_MOST, "0"),
     .about = "interleaved: micro-batches that a stage runs in a row; 0: "
              "as many as ranks"},
    {INT(parallel, encoder_virtual_stages, 1, 1024, "1"),
     .about = "stages of a rank that are the encoder's, beside those of the "
              "decoder"},
    {INT(parallel, context_parallel_size, 1, RANKS_MOST, "1"),
     .about = "ranks that share each sequence"},
    {WORD(parallel, context_parallel, context_kinds, "ring"),
     .about = "how these attend: keys and values go round, or heads are "
              "exchanged for tokens, or both (docs/parallelism.md)"},
    {WORD(parallel, context_layout, context_layouts, "contiguous"),
     .about = "which of its tokens each of a ring has"},
    {INT(parallel, ulysses_size, 1, RANKS_MOST, "1"),
     .about = "with ring+ulysses: of these, ranks that exchange heads"},
    {INT(parallel, expert_model_parallel_size, 1, RANKS_MOST, "1"),
     .about = "ranks that share the experts"},
    {WORD(parallel, schedule, schedules, "1f1b"), .by_content = true,
     .about = "of the pipeline; FILE.csv is a list of your own, auto the "
              "best of a trial"},
    {.section = "parallel", .name = "compare", .kind = WEFTI_CONFIG_WORDS,
     .offset = offsetof(wefti_config, parallel.compare), .words = compared,
     .fallback = "none",
     .about = "schedules that are tried before the run"},

    {INT(train, steps, 0, STEPS_MOST, "200"),
     .about = "of the whole run, those before a resumption included"},
    {INT(train, micro_batch_size, 1, 65536, "1"),
     .about = "sequences of one pass on one rank"},
    {INT(train, global_batch_size, 1, 16777216, "32"),
     .about = "sequences of one step on all ranks"},
    {REAL(train, lr, 0, 100, "3.0e-3"),
     .about = "highest learning rate"},
    {INT(train, warmup_steps, 0, STEPS_MOST, "20"),
     .about = "steps in which the rate rises to that; no more than steps, "
              "unless --set makes a file's run shorter"},
    {WORD(train, lr_decay_style, decays, "cosine"),
     .about = "how the rate falls after that, to the last step"},
    {REAL(train, min_lr_ratio, 0, 1, "0.1"),
     .about = "the rate at the last step, of lr"},
    {REAL(train, adam_beta1, 0, 0.999999, "0.9"),
     .about = "of AdamW: how much of the mean gradient stays a step"},
    {REAL(train, adam_beta2, 0, 0.999999, "0.98"),
     .about = "of AdamW: how much of the mean square stays a step"},
    {REAL(train, adam_eps, 1e-20, 1, "1e-8"),
     .about = "of AdamW: added to the root of the mean square"},
    {REAL(train, weight_decay, 0, 100, "0.1"),
     .about = "of AdamW; not of norms and the embedding"},
    {REAL(train, clip, 0, 1e9, "1.0"),
     .about = "most that the norm of all gradients may be; 0: any"},
    {INT(train, seed, 0, SEED_MOST, "1"),
     .about = "of the first weights"},
    {INT(train, validate_every, 1, STEPS_MOST, "50"),
     .about = "steps between two validations"},
    {INT(train, gradient_stats_every, 0, STEPS_MOST, "0"),
     .about = "steps between two lines of --metrics with the norm, the "
              "largest value and the zeros of each tensor's gradient; 0: "
              "none"},
    {WORD(train, device, devices, "host"),
     .about = "what computes: host, cuda (each rank its share of the GPUs), "
              "or shadow (the host's code behind a device that is as hostile "
              "as a GPU: for tests)"},
    {BOOL(train, measure_peak, "false"),
     .about = "time a matrix product at the start, as --measure does, so that "
              "mfu is known"},
    {BOOL(train, deterministic, "false"),
     .about = "refuse a layout that would add up in another order"},
    {BOOL(train, elastic, "false"),
     .about = "go on with the ranks that are left when some are lost"},

    {BOOL(overlap, grad_reduce, "true"),
     .about = "gradients are reduced while the backward pass runs"},
    {BOOL(overlap, param_gather, "true"),
     .about = "parameters are gathered while the next forward pass runs"},
    {BOOL(overlap, tensor, "true"),
     .about = "exchanges of tensor parallelism run under compute"},
    {BOOL(overlap, pipeline, "true"),
     .about = "stages pass on chunks of rows instead of whole micro-batches"},
    {BOOL(overlap, expert, "true"),
     .about = "dispatch and combine of experts run under compute"},
    {BOOL(overlap, trial, "false"),
     .about = "steps with and without overlap are timed before a run; classes "
              "of transfers whose overlap loses block in it"},
    {REAL(overlap, bucket_mb, 0.001, 65536, "16"),
     .about = "size of a bucket of gradients, 1e6 bytes"},
    {INT(overlap, comm_sms, 0, 1024, "0"),
     .about = "multiprocessors of a GPU that communication may keep; 0: all"},

    {WORD(memory, recompute, recomputes, "none"),
     .about = "what is computed again instead of kept"},
    {WORD(memory, ema, emas, "none"),
     .about = "moving average of the weights, in host memory"},
    {REAL(memory, ema_decay, 0, 1, "0.999"),
     .about = "what a step leaves of that average"},
    {BOOL(memory, ema_export, "false"),
     .about = "--export-hf writes that average"},
    {WORD(memory, offload, offloads, "none"),
     .about = "what lies in the host's memory though a device computes"},
    {BOOL(memory, release_activations, "true"),
     .about = "others get their memory as soon as their last reader is done"},
    {INT(memory, zero, 0, 1, "1"), .now = "1",
     .about = "1: each rank keeps its share of the optimizer's state"},

    {.section = "checkpoint", .name = "dir", .kind = WEFTI_CONFIG_PATH,
     .offset = offsetof(wefti_config, checkpoint.dir), .fallback = "ckpt",
     .about = "folder of the checkpoints"},
    {INT(checkpoint, every, 0, STEPS_MOST, "50"),
     .about = "steps between two; 0: none"},
    {INT(checkpoint, keep, 1, 100000, "2"),
     .about = "how many stay"},
    {INT(checkpoint, inside, 0, 1000, "0"),
     .about = "snapshots inside each step"},
    {BOOL(checkpoint, async, "true"),
     .about = "written beside the steps that follow, from a copy"},

    {INT(moe, node_limit, 0, 4096, "0"),
     .about = "hosts that a token's experts may be on; 0: all"},
    {INT(moe, nodes, 0, 4096, "0"),
     .about = "equal parts of the experts that node_limit counts as hosts; 0: "
              "as many as hosts have them"},
    {WORD(moe, dispatch, dispatches, "bf16"),
     .about = "tokens on their way to experts of other ranks: fp8, or else "
              "the model's own type"},
    {INT(moe, balance_every, 0, STEPS_MOST, "0"),
     .about = "steps between two balancings of experts; 0: none"},
    {REAL(moe, balance_rate, 0, 1, "1e-3"),
     .about = "by which a bias of an expert moves then"},
    {INT(moe, room, 0, 4096, "0"),
     .about = "rows of a rank's experts for each of its own tokens that there "
              "is room for; 0: for all that can come"},
    {INT(moe, place_every, 0, STEPS_MOST, "0"),
     .about = "steps between two placements of experts on their ranks, by the "
              "loads since; 0: they stay"},
    {INT(moe, redundant, 0, 4096, "0"),
     .about = "slots for experts beyond model.experts, of all ranks: replicas "
              "of those with the largest loads"},

    {INT(generate, bytes, 1, 1e6, "200"),
     .about = "that --generate prints, or token ids"},
    {REAL(generate, temperature, 0, 100, "0.7"),
     .about = "below 1 likely ones become likelier; 0: only the likeliest"},
    {INT(generate, top_k, 0, VOCAB_MOST, "0"),
     .about = "so many of the likeliest are drawn from; 0: all"},
    {REAL(generate, top_p, 1e-6, 1, "1.0"),
     .about = "as few of the likeliest as have this share together"},
    {INT(generate, seed, -1, SEED_MOST, "-1"),
     .about = "of the draws; -1: train.seed"},
};
/* clang-format on */

const size_t wefti_config_key_count = WEFTI_COUNT_OF(wefti_config_keys);
_Static_assert(WEFTI_COUNT_OF(wefti_config_keys) <= WEFTI_CONFIG_KEYS_MOST,
               "raise WEFTI_CONFIG_KEYS_MOST");

const wefti_config_key *wefti_config_key_find(const char *section,
                                              const char *name)
{
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        if (strcmp(key->section, section) == 0 &&
            strcmp(key->name, name) == 0) {
            return key;
        }
    }
    return NULL;
}

wefti_config_place *wefti_config_key_place(wefti_config *config,
                                           const wefti_config_key *key)
{
    return &config->places[key - wefti_config_keys];
}

/* "a, b or c" */
static void list_words(const char *const *words, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; words[i] != NULL && used < text_bytes; i++) {
        const char *between = i == 0                 ? ""
                              : words[i + 1] == NULL ? " or "
                                                     : ", ";
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
                                 between, words[i]);
    }
}

char *wefti_config_key_describe(const wefti_config_key *key, char *text,
                                size_t text_bytes)
{
    char words[128];
    switch (key->kind) {
    case WEFTI_CONFIG_INT:
        snprintf(text, text_bytes, "a whole number %.0f..%.0f", key->least,
                 key->most);
        break;
    case WEFTI_CONFIG_REAL:
        snprintf(text, text_bytes, "a number %g..%g", key->least, key->most);
        break;
    case WEFTI_CONFIG_BOOL:
        snprintf(text, text_bytes, "true or false");
        break;
    case WEFTI_CONFIG_WORD:
        list_words(key->words, text, text_bytes);
        break;
    case WEFTI_CONFIG_WORDS:
        list_words(key->words, words, sizeof(words));
        snprintf(text, text_bytes,
                 "a list of %s, each once, all and none alone", words);
        break;
    case WEFTI_CONFIG_VOCAB:
        snprintf(text, text_bytes, "bytes, or a whole number %.0f..%.0f",
                 key->least, key->most);
        break;
    case WEFTI_CONFIG_PATH:
        snprintf(text, text_bytes, "%sa path",
                 strcmp(key->fallback, "none") == 0 ? "none, or " : "");
        break;
    case WEFTI_CONFIG_PATHS:
        snprintf(text, text_bytes, "a list of paths, such as [some/folder]");
        break;
    }
    return text;
}

/*
 * Edits (insert, delete, replace one character) from a to b; both are cut at
 * 63. Source: Wagner and Fischer, J. ACM 21(1), 1974.
 */
static size_t distance(const char *a, const char *b)
{
    size_t row[64];
    size_t a_length = strnlen(a, 63);
    size_t b_length = strnlen(b, 63);
    for (size_t j = 0; j <= b_length; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b_length];
}

/* How far off a key is; a key of another section must have the very name. */
static size_t key_distance(const wefti_config_key *key, const char *section,
                           const char *name)
{
    if (strcmp(key->section, section) == 0) {
        return distance(name, key->name);
    }
    return strcmp(key->name, name) == 0 ? 0 : SIZE_MAX;
}

char *wefti_config_key_suggest(const char *section, const char *name,
                               char *text, size_t text_bytes)
{
    const wefti_config_key *best = NULL;
    size_t least = strlen(name) / 3 + 2; /* farther is not near */
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        size_t off = section != NULL ? key_distance(key, section, name)
                                     : distance(name, key->section);
        if (off < least) {
            least = off;
            best = key;
        }
    }
    text[0] = '\0';
    if (best != NULL) {
        snprintf(text, text_bytes, ": did you mean %s%s%s?", best->section,
                 section != NULL ? "." : "", section != NULL ? best->name : "");
    }
    return text;
}

char *wefti_config_key_list(const char *section, char *text, size_t text_bytes)
{
    size_t used = 0;
    const char *before = ""; /* rows of a section lie together */
    text[0] = '\0';
    for (size_t i = 0; i < wefti_config_key_count && used < text_bytes; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        bool listed = strcmp(key->section, section ? section : before) == 0;
        if (listed != (section != NULL)) {
            continue;
        }
        before = key->section;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
                                 used > 0 ? ", " : "",
                                 section ? key->name : key->section);
    }
    return text;
}
