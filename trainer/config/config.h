/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config.h - everything a YAML file can say to the trainer.
 *
 * One table (config_key.c) has a row per key: type, limits, allowed words,
 * default, and which of its values this version can do. One strict reader
 * fills the struct from it: an unknown key, a key given twice, a wrong type, a
 * value out of range or not yet possible is refused with file:line:column, the
 * key, and what is allowed.
 *
 * Relative paths (data.paths, checkpoint.dir, parallel.schedule's file), also
 * those given by --set, are relative to the folder of the file; the struct
 * holds them joined.
 */
#ifndef TRAINER_CONFIG_CONFIG_H
#define TRAINER_CONFIG_CONFIG_H

#include "trainer/mesh/mesh.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFTI_CONFIG_FILE_BYTES_MOST (1024 * 1024)
#define WEFTI_CONFIG_DIGEST_BYTES    32
/* Rows of the table; config_key.c asserts that they fit. */
#define WEFTI_CONFIG_KEYS_MOST 96

/* model.vocab: bytes */
#define WEFTI_VOCAB_BYTES 256

/* Where a value came from: line 0 = default, line -1 = --set. */
typedef struct wefti_config_place {
    int line;
    int column;
} wefti_config_place;

enum { WEFTI_CONFIG_WORDS_MOST = 8 };

/* Some of the words that a key allows, each once, in the order given. */
typedef struct wefti_config_words {
    const char *items[WEFTI_CONFIG_WORDS_MOST];
    size_t count;
} wefti_config_words;

/* Strings and lists belong to the struct. */
typedef struct wefti_config {
    char *path;   /* the file, as given */
    char *folder; /* its folder, "." where path names none */

    struct {
        int64_t layers;
        int64_t hidden_size;
        int64_t heads;
        int64_t kv_heads;
        int64_t ffn_size;
        int64_t vocab; /* "bytes" is 256 */
        bool ids;      /* vocab was a number: data are token ids */
        int64_t seq_length;
        int64_t experts;
        int64_t experts_per_token;
        int64_t shared_experts;
        double rope_theta;
        const char *dtype;
        double init_scale, head_init_std, embedding_init_std;
        bool tie_embeddings;
        int64_t encoder_layers;     /* 0: no encoder */
        int64_t encoder_seq_length; /* positions */
    } model;

    struct {
        char **paths; /* joined with folder */
        size_t path_count;
        double validation_fraction;
        int64_t seed;
        int64_t document_end; /* a token; -1: sequences are not packed */
        char *encoder_path;   /* joined with folder; NULL: none */
    } data;

    struct {
        int64_t tensor_model_parallel_size;
        bool sequence_parallel;
        int64_t pipeline_model_parallel_size;
        int64_t virtual_pipeline_model_parallel_size;
        int64_t virtual_group_size;
        int64_t encoder_virtual_stages;
        int64_t context_parallel_size;
        const char *context_parallel;
        const char *context_layout;
        int64_t ulysses_size;
        int64_t expert_model_parallel_size;
        const char *schedule;       /* "FILE.csv": */
        char *schedule_file;        /* joined with folder; else NULL */
        wefti_config_words compare; /* schedules; or "all", or "none" */
    } parallel;

    struct {
        int64_t steps;
        int64_t micro_batch_size;  /* sequences of one forward on one rank */
        int64_t global_batch_size; /* sequences of one step on all ranks */
        double lr;
        int64_t warmup_steps;
        const char *lr_decay_style;
        double min_lr_ratio, adam_beta1, adam_beta2, adam_eps;
        double weight_decay;
        double clip; /* of the global gradient norm; 0 = none */
        int64_t seed;
        int64_t validate_every;
        int64_t gradient_stats_every; /* 0: never */
        const char *device;           /* a kind of weft_device_open */
        bool measure_peak;
        bool deterministic;
        bool elastic;
    } train;

    struct {
        bool grad_reduce;
        bool param_gather;
        bool tensor;
        bool pipeline;
        bool expert;
        bool trial;       /* before a run; what loses falls back */
        double bucket_mb; /* 1e6 bytes */
        int64_t comm_sms;
    } overlap;

    struct {
        const char *recompute;
        const char *ema;
        double ema_decay;
        bool ema_export;
        const char *offload;
        bool release_activations;
        int64_t zero;
    } memory;

    struct {
        char *dir;     /* joined with folder */
        int64_t every; /* steps; 0 = never */
        int64_t keep;
        int64_t inside; /* snapshots in each step */
        bool async;     /* written beside the steps that follow */
    } checkpoint;

    struct {
        int64_t node_limit;
        int64_t nodes; /* 0: hosts of the ranks with all experts */
        const char *dispatch;
        int64_t balance_every;
        double balance_rate;
        int64_t room;        /* rows for each token; 0: all that can come */
        int64_t place_every; /* steps; 0: experts stay */
        int64_t redundant;   /* slots beyond the experts */
    } moe;

    struct {
        int64_t bytes;
        double temperature; /* 0: only the likeliest byte */
        int64_t top_k;      /* 0: all */
        double top_p;
        int64_t seed; /* -1: train.seed */
    } generate;

    wefti_config_place places[WEFTI_CONFIG_KEYS_MOST]; /* by row of the table */
} wefti_config;

/*
 * wefti_config_init - all defaults, then the file, then the settings in order.
 *
 * path         the YAML file, a regular one of up to
 *              WEFTI_CONFIG_FILE_BYTES_MOST.
 * settings     setting_count texts "section.key=value", as after --set; the
 *              value is YAML ("4", "true", "[a.txt, b]").
 *
 * Returns      OK | ERR_SYSTEM (cannot be read) | ERR_INVALID (not such a file:
 *              the text begins with its path; else with file:line:column or
 *              --set section.key=value) | ERR_UNSUPPORTED (legal, but this
 *              version cannot do it yet; same text form) | ERR_NO_MEMORY. After
 *              an error config is empty: fini is legal, and not needed.
 * Threads      any.  Allocates: yes.
 */
WEFT_NODISCARD weft_status wefti_config_init(wefti_config *config,
                                             const char *path,
                                             const char *const *settings,
                                             size_t setting_count);

/*
 * wefti_config_init_text - the same from memory: what path holds is text. Path
 * is only named and states the folder. For tests and fuzzing.
 */
WEFT_NODISCARD weft_status wefti_config_init_text(
    wefti_config *config, const char *path, const char *text, size_t text_bytes,
    const char *const *settings, size_t setting_count);

void wefti_config_fini(wefti_config *config);

/*
 * wefti_config_where - where the value of section.name came from, and the key:
 * "job.yaml:3:9: data.paths", "--set data.paths", "--set train.steps=4:
 * train.steps", "job.yaml (default): data.paths". Returns text.
 */
char *wefti_config_where(const wefti_config *config, const char *section,
                         const char *name, char *text, size_t text_bytes);

/* model.vocab where data are token ids; 0: they are text. */
size_t wefti_config_ids(const wefti_config *config);

/* Of the ranks that share a sequence, those that exchange heads. */
int64_t wefti_config_ulysses(const wefti_config *config);

/* The mesh that the sizes make of nranks ranks; dp 0: none, they do not divide
 * them. */
wefti_mesh wefti_config_mesh(const wefti_config *config, int nranks);

/*
 * wefti_config_fit - with how many of nranks ranks the layout is possible: as
 * many whole groups that share layers, sequences and experts as there are
 * micro-batches for.
 *
 * Returns      OK | ERR_INVALID: not even one group.
 */
WEFT_NODISCARD weft_status wefti_config_fit(const wefti_config *config,
                                            int nranks, int *fits_out);

/*
 * wefti_config_check - whether the layout is possible on nranks ranks: the
 * divisibilities of heads and batch, and with train.deterministic that ranks
 * have whole subtrees of micro-batches; the text has the values nearest to
 * those given that work; of a pipeline that ranks, layers and micro-batches
 * suit its schedule.
 *
 * Returns      OK | ERR_INVALID | ERR_UNSUPPORTED | ERR_SYSTEM (the schedule's
 *              file) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_config_check(const wefti_config *config,
                                              int nranks);

/* Slots that experts have, of all ranks: with those for replicas. */
int64_t wefti_config_expert_slots(const wefti_config *config);

/*
 * wefti_config_check_nodes - whether moe.nodes part the experts, and so many of
 * them as moe.node_limit says have enough. Of a config whose moe.nodes are 0,
 * once they are known.
 */
WEFT_NODISCARD weft_status wefti_config_check_nodes(const wefti_config *config);

/*
 * wefti_config_digest - BLAKE2b-256 over the values that a checkpoint must
 * share with the run that resumes from it: the model's shape, the sampling and
 * the split of the data. Steps, batch, rates and paths may differ.
 */
void wefti_config_digest(const wefti_config *config,
                         uint8_t digest_out[WEFTI_CONFIG_DIGEST_BYTES]);

#endif
