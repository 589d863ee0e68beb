/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/overlap/pipelines.c - jobs that execute a schedule.
 */
#include "tests/overlap/pipelines.h"

#include "overlap/schedule/schedule.h"
#include "tests/seed.h"

static void open_device(int rank, void *context)
{
    job *it = context;
    if (weft_device_open(it->kind ? it->kind : "host", 0, &it->devices[rank]) !=
        WEFT_OK) {
        abort();
    }
}

static void set_device(int rank, weft_comm_config *config, void *context)
{
    job *it = context;
    config->device = it->devices[rank];
}

void job_world(job *it, world_rank_call call, int timeout_ms,
               struct world *world_out)
{
    *world_out =
        (struct world){.nranks = it->schedule->ranks,
                       .config = {.size_bytes = sizeof(world_out->config),
                                  .timeout_ms = timeout_ms},
                       .call = call,
                       .context = it,
                       .before = open_device,
                       .configure = set_device};
}

int job_run(job *it, world_rank_call call, int timeout_ms)
{
    struct world world;
    job_world(it, call, timeout_ms, &world);
    int failures = world_run_threads(&world);
    for (int r = 0; r < it->schedule->ranks; r++) {
        weft_device_close(it->devices[r]);
    }
    return failures;
}

weft_pipeline_config job_config(job *it, weft_comm *comm, toy *model)
{
    return (weft_pipeline_config){.size_bytes = sizeof(weft_pipeline_config),
                                  .schedule = it->schedule,
                                  .comm = comm,
                                  .device =
                                      it->devices[weft_comm_get_rank(comm)],
                                  .rows = TOY_ROWS,
                                  .row_elems = TOY_ELEMS,
                                  .dtype = WEFT_DTYPE_U64,
                                  .chunk_rows = it->chunk_rows,
                                  .receive_ahead = it->receive_ahead,
                                  .spare_buffers = it->spare_buffers,
                                  .calls = &it->calls,
                                  .context = model,
                                  .stage_rows = it->rows};
}

/* The pipeline is packed and destroyed, and another one goes on. */
static weft_status make_anew(const weft_pipeline_config *config,
                             weft_pipeline **pipeline)
{
    size_t bytes = weft_pipeline_get_state_bytes(*pipeline);
    void *state = malloc(bytes);
    if (!state) {
        abort();
    }
    weft_status status = weft_pipeline_pack(*pipeline, state);
    weft_pipeline_destroy(*pipeline);
    *pipeline = NULL;
    if (status == WEFT_OK) {
        status = weft_pipeline_create(config, pipeline);
    }
    if (status == WEFT_OK) {
        status = weft_pipeline_unpack(*pipeline, state, bytes);
    }
    free(state);
    return status;
}

/* One step, stopping at two random prefixes of the checker's order. */
static weft_status run_with_cuts(const job *it, uint64_t step,
                                 const weft_pipeline_config *config,
                                 weft_pipeline **pipeline)
{
    int rank = weft_comm_get_rank(config->comm);
    uint64_t seed = it->seed + step; /* the same on all ranks */
    size_t first = random_next(&seed) % it->order_count;
    size_t second = first + random_next(&seed) % (it->order_count - first);
    size_t cuts[2] = {first, second};
    weft_status status = WEFT_OK;
    for (int c = 0; c < 2 && status == WEFT_OK; c++) {
        size_t own = 0;
        for (size_t k = 0; k < cuts[c]; k++) {
            own += it->order[k] == rank;
        }
        const weft_action *actions;
        if (own == weft_schedule_get_actions(it->schedule, rank, &actions)) {
            break; /* this rank's step is over */
        }
        status = weft_pipeline_run(*pipeline, own);
        if (status == WEFT_OK) {
            status = it->anew ? make_anew(config, pipeline)
                              : weft_pipeline_settle(*pipeline);
        }
        if (status == WEFT_OK && weft_pipeline_get_position(*pipeline) != own) {
            fprintf(stderr, "rank %d has not stopped at %zu\n", rank, own);
            return WEFT_ERR_INVALID;
        }
    }
    return status == WEFT_OK ? weft_pipeline_run(*pipeline, SIZE_MAX) : status;
}

static int compare_peaks(const weft_pipeline_peaks *planned,
                         const weft_pipeline_peaks *measured, int rank)
{
    bool same = planned->slots == measured->slots &&
                planned->kept == measured->kept &&
                planned->received == measured->received &&
                planned->held == measured->held &&
                planned->buffers == measured->buffers &&
                planned->bytes == measured->bytes;
    if (!same) {
        fprintf(stderr,
                "rank %d: planned and measured: slots %d %d, kept %d %d, "
                "received %d %d, held %d %d, buffers %d %d\n",
                rank, planned->slots, measured->slots, planned->kept,
                measured->kept, planned->received, measured->received,
                planned->held, measured->held, planned->buffers,
                measured->buffers);
    }
    return !same;
}

int job_rank(weft_comm *comm, void *context)
{
    job *it = context;
    int rank = weft_comm_get_rank(comm);
    toy model;
    weft_pipeline *pipeline = NULL;
    weft_pipeline_peaks planned = {.size_bytes = sizeof(planned)};
    weft_pipeline_config config = job_config(it, comm, &model);
    weft_status status = weft_pipeline_predict(&config, rank, &planned);
    if (status != WEFT_OK) {
        fprintf(stderr, "predict: %s\n", weft_error_text());
        return 1;
    }
    toy_init(&model, it->schedule, config.device, rank, &planned);
    model.rows = it->rows;
    config.compute = it->streams ? model.stream : NULL;
    status = weft_pipeline_create(&config, &pipeline);
    for (uint64_t step = 1; status == WEFT_OK && step <= (uint64_t)it->steps;
         step++) {
        toy_begin(&model, step);
        /* peaks come in steps that are not cut, the first and the last */
        bool cut = it->order && step > 1 && step < (uint64_t)it->steps;
        status = cut ? run_with_cuts(it, step, &config, &pipeline)
                     : weft_pipeline_run(pipeline, SIZE_MAX);
        toy_end(&model);
    }
    int wrong = model.wrong + (status != WEFT_OK);
    if (status != WEFT_OK) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, weft_status_text(status),
                weft_error_text());
    } else {
        it->peaks[rank].size_bytes = sizeof(it->peaks[rank]);
        wrong += weft_pipeline_get_peaks(pipeline, &it->peaks[rank]) != WEFT_OK;
        wrong += compare_peaks(&planned, &it->peaks[rank], rank);
    }
    wrong += model.stream && weft_stream_wait(model.stream) != WEFT_OK;
    weft_pipeline_destroy(pipeline);
    toy_fini(&model);
    return wrong;
}
