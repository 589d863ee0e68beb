/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/run_open.c - what a rank opens, in order:
 *
 *   config -> device, communicator -> data -> schedule -> ledger, replica ->
 *   files
 *
 * Nothing is made before the configuration has been found possible, and the
 * same on all ranks; nor a model before the text has been.
 */
#include "trainer/run_state.h"

#include "base/error.h"
#include "comm/make/comm_bytes.h"
#include "comm/oob/source.h"
#include "device/cuda.h"
#include "kernels/math/gemm_kernel.h"
#include "trainer/agreement.h"
#include "trainer/checkpoint/pause.h"
#include "trainer/ema.h"
#include "trainer/exchange/hugging_face.h"
#include "trainer/exchange/llama_names.h"
#include "trainer/expert_hosts.h"
#include "trainer/expert_place.h"
#include "trainer/footprint.h"
#include "trainer/generate.h"
#include "trainer/pipe/pipe_schedule.h"
#include "trainer/run_plan.h"
#include "trainer/seats.h"

#include <stdlib.h>
#include <string.h>

/* How many ranks there will be, before they are connected. */
static weft_status count_ranks(const wefti_run_config *how, int *nranks_out)
{
    int rank;
    if (how->nranks == 0) {
        return wefti_launch_source_find_rank(&rank, nranks_out);
    }
    *nranks_out = how->nranks;
    return WEFT_OK;
}

/* What an encoder does not have. */
static weft_status check_options(const wefti_run_state *state)
{
    const wefti_options *options = state->how.options;
    return state->config.model.encoder_layers > 0 &&
                   (options->export_hf || options->import_hf)
               ? wefti_error(WEFT_ERR_UNSUPPORTED,
                             "%s: is for models without an encoder "
                             "(model.encoder_layers: 0): Llama's names have "
                             "none",
                             options->export_hf ? "--export-hf" : "--import-hf")
               : WEFT_OK;
}

/* When the hosts that have experts are known. */
static weft_status check_exchange(const wefti_run_state *state)
{
    const wefti_options *options = state->how.options;
    const wefti_model_shape shape = wefti_run_shape(&state->config);
    weft_status status = options->export_hf || options->import_hf
                             ? wefti_llama_check(&shape)
                             : WEFT_OK;
    return status == WEFT_OK
               ? status
               : wefti_error(status, "%s: %s",
                             options->export_hf ? "--export-hf" : "--import-hf",
                             weft_error_text());
}

static weft_status open_config(wefti_run_state *state)
{
    const wefti_options *options = state->how.options;
    int nranks;
    weft_status status = count_ranks(&state->how, &nranks);
    if (status == WEFT_OK && options->report) {
        status = wefti_page_init(&state->page, options->report);
    }
    if (status == WEFT_OK) {
        status = wefti_config_init(&state->config, options->config,
                                   options->settings, options->setting_count);
        state->has_config = status == WEFT_OK;
    }
    if (status == WEFT_OK) {
        status = wefti_config_check(&state->config, nranks);
    }
    return status == WEFT_OK ? check_options(state) : status;
}

void wefti_run_replace_comm(wefti_run_state *state, weft_comm *comm)
{
    wefti_flight_unwatch(state->how.flight, state->comm);
    weft_comm_destroy(state->comm);
    state->comm = comm;
    wefti_flight_watch(state->how.flight, state->comm);
}

/* The ranks in the order that suits the machines they run on. */
static weft_status take_seats(wefti_run_state *state)
{
    const wefti_config *config = &state->config;
    const wefti_model_shape shape = wefti_run_shape(config);
    int nranks = weft_comm_get_nranks(state->comm);
    wefti_parameters plan;
    wefti_place_job job;
    weft_comm *seated;
    weft_status status =
        wefti_parameters_plan(&shape, (size_t)(config->overlap.bucket_mb * 1e6),
                              (size_t)nranks, &plan);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_seats_job(config, plan.parameter_count, nranks, &job);
    wefti_parameters_fini(&plan);
    status = wefti_seats_take(state->comm, &job,
                              wefti_run_prints(state) ? state->how.err : NULL,
                              &seated);
    if (status == WEFT_OK && seated) {
        wefti_run_replace_comm(state, seated);
    }
    return status;
}

/* This rank's share of the GPUs; the first of another kind. */
static weft_status open_device(wefti_run_state *state)
{
    const char *kind = state->config.train.device;
    int count = 0, version;
    weft_status status = WEFT_OK;
    if (kind && strcmp(kind, "cuda") == 0) {
        status = wefti_cuda_count(&count, &version);
    }
    return status == WEFT_OK
               ? weft_device_open(kind ? kind : "host",
                                  count > 0 ? state->how.rank % count : 0,
                                  &state->device)
               : status;
}

/* Of a GPU, where the configuration could be read; another device, and what no
 * GPU can part, is refused. */
static int count_sms(const wefti_run_state *state)
{
    const char *kind = state->config.train.device;
    return kind && strcmp(kind, "cuda") == 0
               ? (int)state->config.overlap.comm_sms
               : 0;
}

static weft_status create_comm(wefti_run_state *state)
{
    weft_status status = open_device(state);
    if (status != WEFT_OK) {
        return status;
    }
    weft_comm_config config = {.size_bytes = sizeof(config),
                               .id = state->how.id,
                               .rank = state->how.rank,
                               .nranks = state->how.nranks,
                               .device = state->device,
                               .sm_budget = count_sms(state)};
    status = weft_comm_create(&config, &state->comm);
    wefti_flight_watch(state->how.flight, state->comm);
    return status;
}

/*
 * The ranks connect also where one cannot read its configuration: the others
 * are notified, and all compare what they have. own: what reading it returned.
 */
static weft_status open_comm(wefti_run_state *state, weft_status own,
                             bool *everywhere)
{
    char why[WEFTI_RUN_ERROR_BYTES];
    snprintf(why, sizeof(why), "%s", weft_error_text());
    weft_status status = create_comm(state);
    if (status != WEFT_OK) {
        *everywhere = own != WEFT_OK;
        return own == WEFT_OK ? status : wefti_error(own, "%s", why);
    }
    if (own != WEFT_OK) {
        (void)wefti_error(own, "%s", why);
    }
    status = wefti_agreement_config(state->comm, own, &state->config,
                                    state->how.options, &state->replica.failed,
                                    everywhere);
    if (status == WEFT_OK) {
        status = take_seats(state);
    }
    if (status != WEFT_OK) {
        return status;
    }
    status = wefti_expert_hosts_settle(&state->config, state->comm);
    if (status == WEFT_OK) {
        status = check_exchange(state);
    }
    *everywhere = *everywhere || status == WEFT_ERR_INVALID ||
                  status == WEFT_ERR_UNSUPPORTED;
    return status;
}

static void note_skipped(void *context, const char *line)
{
    wefti_run_state *state = context;
    if (wefti_run_prints(state)) {
        fprintf(state->how.err, "weft-train: %s\n", line);
    }
}

/* Before the model is made, not when it has been trained. */
static weft_status check_prompt(const char *prompt, size_t vocab)
{
    int32_t *ids;
    size_t count;
    weft_status status = wefti_generate_parse(prompt, vocab, &ids, &count);
    if (status == WEFT_OK) {
        free(ids);
    }
    return status;
}

/* The current error, at a key of data; the place says the section. */
static weft_status place_error(const wefti_run_state *state, const char *key,
                               weft_status status)
{
    char where[352];
    const char *why = weft_error_text();
    why += strncmp(why, "data: ", 6) == 0 ? 6 : 0;
    wefti_config_where(&state->config, "data", key, where, sizeof(where));
    return wefti_error(status, "%s: %s", where, why);
}

static weft_status open_data(wefti_run_state *state)
{
    wefti_data_config config = {
        .paths = (const char *const *)state->config.data.paths,
        .path_count = state->config.data.path_count,
        .validation_fraction = state->config.data.validation_fraction,
        .seed = (uint64_t)state->config.data.seed,
        .seq_length = (size_t)state->config.model.seq_length,
        .vocab = wefti_config_ids(&state->config),
        .note = note_skipped,
        .note_context = state};
    weft_status status = wefti_data_init(&state->data, &config);
    state->has_data = status == WEFT_OK;
    if (status == WEFT_OK && config.vocab && state->how.options->generate) {
        return check_prompt(state->how.options->generate, config.vocab);
    }
    return status == WEFT_OK ? WEFT_OK : place_error(state, "paths", status);
}

/* What the encoder reads, if there is one. */
static weft_status open_encoder_data(wefti_run_state *state)
{
    const char *path = state->config.data.encoder_path;
    const wefti_data_config config = {
        .paths = &path,
        .path_count = 1,
        .validation_fraction = state->config.data.validation_fraction,
        .seed = (uint64_t)state->config.data.seed,
        .seq_length = (size_t)state->config.model.encoder_seq_length,
        .any = true,
        .note = note_skipped,
        .note_context = state};
    weft_status status = wefti_data_init(&state->encoder_data, &config);
    return status == WEFT_OK ? WEFT_OK
                             : place_error(state, "encoder_path", status);
}

static weft_status agree_data(wefti_run_state *state, bool *everywhere)
{
    const wefti_options *options = state->how.options;
    int *failed = &state->replica.failed;
    weft_status status =
        wefti_agreement_data(state->comm, open_data(state), "data.paths",
                             &state->data, options, failed, everywhere);
    if (status != WEFT_OK || state->config.model.encoder_layers == 0) {
        return status;
    }
    status = wefti_agreement_data(state->comm, open_encoder_data(state),
                                  "data.encoder_path", &state->encoder_data,
                                  options, failed, everywhere);
    if (status == WEFT_OK) {
        wefti_data_add_hash(&state->data, &state->encoder_data);
    }
    return status;
}

/*
 * Rank 0's files, for all ranks and before any computes. What is there stays as
 * it is, and what is not there is not left behind: --metrics is opened when the
 * step to go on from is known.
 */
static weft_status try_files(wefti_run_state *state)
{
    const wefti_options *options = state->how.options;
    bool prints = wefti_run_prints(state);
    weft_status status =
        prints && options->json ? wefti_summary_try(options->json) : WEFT_OK;
    if (status == WEFT_OK && prints && options->report) {
        status = wefti_page_try(&state->page);
    }
    if (status == WEFT_OK && prints && options->metrics) {
        status = wefti_metrics_try(options->metrics);
    }
    if (status == WEFT_OK && prints && options->export_hf) {
        status = wefti_hugging_face_try(options->export_hf);
    }
    return wefti_savepoint_agree(state->comm, &state->replica.failed, status,
                                 "what it was to write");
}

/* Experts that move between ranks. */
static weft_status open_placing(wefti_run_state *state)
{
    weft_moe_place_config how;
    weft_status status =
        wefti_expert_hosts_place(&state->config, state->comm, &how);
    return status == WEFT_OK ? wefti_expert_place_create(
                                   &state->replica, &how,
                                   (uint64_t)state->config.moe.place_every)
                             : status;
}

weft_status wefti_run_open_replica(wefti_run_state *state)
{
    const wefti_config *config = &state->config;
    wefti_gemm_prepare(); /* its library's memory is not the model's */
    const wefti_replica_before before = {
        .held_bytes = wefti_footprint_held_bytes(state->comm),
        .comms_bytes = wefti_comm_count_made(state->comm)};
    size_t spans = wefti_run_spans(config, weft_comm_get_nranks(state->comm),
                                   wefti_data_validation_windows(&state->data));
    weft_status status = weft_ledger_create(spans, &state->ledger);
    if (status == WEFT_OK) {
        status = weft_ledger_attach(state->ledger, state->comm);
    }
    if (status == WEFT_OK) { /* after a loss ranks have other micro-batches */
        weft_schedule_destroy(state->schedule);
        state->schedule = NULL;
        status = wefti_pipe_schedule_open(
            config, weft_comm_get_rank(state->comm),
            weft_comm_get_nranks(state->comm), &state->schedule);
    }
    if (status != WEFT_OK) {
        return status;
    }
    wefti_replica_config replica = wefti_run_replica(
        config, state->comm, state->device, &state->data, state->schedule);
    replica.encoder_data =
        config->model.encoder_layers > 0 ? &state->encoder_data : NULL;
    replica.ledger = state->ledger;
    replica.before = before;
    replica.overlap = state->overlap;
    replica.copies = config->checkpoint.every > 0 && config->checkpoint.async;
    status = wefti_replica_init(&state->replica, &replica);
    state->has_replica = status == WEFT_OK;
    if (status == WEFT_OK) {
        wefti_train_step_rest(&state->replica);
        status = wefti_ema_create(&state->replica);
    }
    if (status == WEFT_OK && config->moe.place_every > 0) {
        status = open_placing(state);
    }
    if (status == WEFT_OK) {
        status = wefti_saver_create(&state->replica, replica.copies);
    }
    return status == WEFT_OK
               ? wefti_pause_create(&state->replica, &state->savepoint,
                                    (size_t)config->checkpoint.inside)
               : status;
}

static weft_status init_savepoint(wefti_run_state *state)
{
    const char *resume = state->how.options->resume;
    state->savepoint =
        (wefti_savepoint){.dir = state->resumed,
                          .owner = &state->owner,
                          .keep = (size_t)state->config.checkpoint.keep};
    wefti_config_digest(&state->config, state->savepoint.digest);
    return resume ? wefti_savepoint_locate(state->comm, resume, state->resumed,
                                           &state->replica.failed)
                  : WEFT_OK;
}

/* Before training, so that a run does not fail after hours. */
static weft_status claim_folder(wefti_run_state *state)
{
    const char *dir = state->config.checkpoint.dir;
    const char *resumed = state->resumed[0] ? state->resumed : NULL;
    char where[352];
    weft_status status =
        wefti_savepoint_claim(&state->savepoint, &state->replica, dir, resumed);
    if (status != WEFT_OK &&
        state->replica.failed == 1 + (int)state->replica.rank) {
        status = wefti_error(status, "%s: %s",
                             wefti_config_where(&state->config, "checkpoint",
                                                "dir", where, sizeof(where)),
                             weft_error_text());
    }
    if (status == WEFT_OK && state->savepoint.number > 1 &&
        wefti_run_prints(state)) {
        fprintf(state->how.err,
                "weft-train: saves in %s: what other runs have saved in %s "
                "stays\n",
                state->savepoint.dir, dir);
    }
    return status;
}

static weft_status open_files(wefti_run_state *state)
{
    const wefti_options *options = state->how.options;
    weft_status status = WEFT_OK;
    if (options->resume) {
        status = wefti_savepoint_read(&state->savepoint, &state->replica);
    }
    if (status == WEFT_OK && options->import_hf) {
        status = wefti_hugging_face_import(&state->replica, options->import_hf);
        if (status == WEFT_OK && state->replica.ema) {
            status = wefti_ema_begin(state->replica.ema);
        }
    }
    if (status == WEFT_OK && state->config.checkpoint.every > 0) {
        status = claim_folder(state);
    }
    if (status == WEFT_OK && wefti_run_prints(state) && options->metrics) {
        status = wefti_metrics_open(&state->metrics, options->metrics,
                                    options->resume ? state->replica.step : 0);
        state->has_metrics = status == WEFT_OK;
    }
    return status;
}

/* Where experts could be, with what came to them. */
static weft_status open_expert_loads(wefti_run_state *state)
{
    const wefti_config *config = &state->config;
    weft_moe_place_config place;
    const int64_t ranks = config->parallel.expert_model_parallel_size;
    /* Experts that fill ranks only with their replicas have moved already. */
    if (!wefti_run_prints(state) || ranks == 1 ||
        config->model.experts % ranks != 0) {
        return WEFT_OK;
    }
    weft_status status = wefti_expert_hosts_place(config, state->comm, &place);
    if (status != WEFT_OK) {
        return status;
    }
    return wefti_expert_loads_init(&state->expert_loads,
                                   (size_t)config->model.layers, &place);
}

weft_status wefti_run_open(wefti_run_state *state, bool *everywhere)
{
    weft_status status = open_config(state);
    status = open_comm(state, status, everywhere);
    if (status == WEFT_OK) {
        status = try_files(state);
    }
    if (status == WEFT_OK) {
        status = agree_data(state, everywhere);
    }
    if (status == WEFT_OK) {
        status = init_savepoint(state);
    }
    if (status == WEFT_OK) {
        status = wefti_run_choose_schedule(state);
    }
    if (status == WEFT_OK) {
        status = wefti_run_try_overlap(state, false);
    }
    if (status == WEFT_OK) {
        status = wefti_run_open_replica(state);
    }
    if (status == WEFT_OK) {
        status = open_expert_loads(state);
    }
    return status == WEFT_OK ? open_files(state) : status;
}
