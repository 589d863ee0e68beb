/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/overlap_trial.c - steps in two ways, taking turns.
 */
#include "trainer/overlap_trial.h"

#include "base/clock.h"
#include "trainer/config/config_key.h"
#include "trainer/numbers.h"
#include "trainer/run_plan.h"

#include <math.h>
#include <sodium.h>
#include <string.h>

enum { WARM_STEPS = 1 };
static const double spreads = 3; /* that overlap must lose by */

wefti_train_step_modes wefti_overlap_modes(const wefti_config *config)
{
    return (wefti_train_step_modes){
        .reduce = config->overlap.grad_reduce ? WEFT_BUCKET_OVERLAPPED
                                              : WEFT_BUCKET_BLOCKING,
        .gather = config->overlap.param_gather ? WEFT_BUCKET_OVERLAPPED
                                               : WEFT_BUCKET_BLOCKING};
}

/* ---- what it holds for ----------------------------------------------------
 */

/* What is tried before a run, and what a run does with it, is no layout. */
static bool is_layout(const wefti_config_key *key)
{
    const char *section = key->section, *name = key->name;
    return (strcmp(section, "parallel") == 0 && strcmp(name, "compare") != 0) ||
           (strcmp(section, "overlap") == 0 && strcmp(name, "trial") != 0) ||
           (strcmp(section, "memory") == 0 &&
            (strcmp(name, "recompute") == 0 || strcmp(name, "offload") == 0)) ||
           (strcmp(section, "train") == 0 &&
            (strcmp(name, "device") == 0 ||
             strcmp(name, "micro_batch_size") == 0));
}

uint64_t wefti_overlap_layout(const wefti_config *config, int nranks)
{
    crypto_generichash_state state;
    uint8_t digest[crypto_generichash_BYTES];
    uint64_t layout = 0;
    char line[160], value[64];
    int length = snprintf(line, sizeof(line), "ranks=%d\n", nranks);
    crypto_generichash_init(&state, NULL, 0, sizeof(digest));
    crypto_generichash_update(&state, (unsigned char *)line, (size_t)length);
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        if (is_layout(key)) {
            length = snprintf(
                line, sizeof(line), "%s.%s=%.63s\n", key->section, key->name,
                wefti_config_key_print(config, key, value, sizeof(value)));
            crypto_generichash_update(&state, (unsigned char *)line,
                                      (size_t)length);
        }
    }
    crypto_generichash_final(&state, digest, sizeof(digest));
    for (size_t i = 0; i < sizeof(layout); i++) {
        layout = layout << 8 | digest[i];
    }
    return layout;
}

void wefti_overlap_find(const wefti_config *config, const wefti_mesh *mesh,
                        bool there_out[WEFT_CLASS_COUNT])
{
    const bool beside =
        config->overlap.grad_reduce || config->overlap.param_gather;
    const bool shared =
        wefti_mesh_find(mesh, WEFTI_MESH_REPLICA, 0).size > 1 ||
        (config->model.experts > 0 &&
         wefti_mesh_find(mesh, WEFTI_MESH_EXPERT_REPLICA, 0).size > 1);
    memset(there_out, 0, WEFT_CLASS_COUNT * sizeof(*there_out));
    there_out[WEFT_CLASS_TP] = config->overlap.tensor && mesh->tp > 1;
    there_out[WEFT_CLASS_CP] = mesh->cp > 1;
    there_out[WEFT_CLASS_EP] = config->overlap.expert && mesh->ep > 1;
    there_out[WEFT_CLASS_DP] = beside && shared;
}

/* ---- a trial --------------------------------------------------------------
 */

typedef struct trial {
    const wefti_overlap_job *job;
    wefti_replica replica;
    wefti_train_step_modes modes; /* with what has lost so far */
    FILE *err;
} trial;

/* Steps one after the other, each from the end of the one before, as in
 * training: what is gathered behind one step falls into the next. */
static weft_status visit(trial *all, wefti_train_step_modes modes, double *ms)
{
    static const double no_times[WEFTI_STEP_TIMES];
    wefti_train_step_result result;
    weft_status status = weft_barrier(all->job->comm, NULL);
    for (int i = -WARM_STEPS;
         i < WEFTI_OVERLAP_VISIT_STEPS && status == WEFT_OK; i++) {
        const int64_t begin_ns = wefti_clock_ns();
        status = wefti_train_step_run(&all->replica, modes, no_times, &result);
        if (i >= 0) {
            ms[i] = (double)(wefti_clock_ns() - begin_ns) * 1e-6;
        }
    }
    return status == WEFT_OK ? wefti_replica_settle(&all->replica) : status;
}

static void set_clock(const trial *all, weft_class class_id, bool blocking,
                      double ms[WEFTI_OVERLAP_STEPS])
{
    const wefti_overlap_job *job = all->job;
    for (size_t k = 0; job->clock && k < WEFTI_OVERLAP_STEPS; k++) {
        ms[k] = job->clock(job->clock_context, weft_comm_get_rank(job->comm),
                           class_id, blocking, k);
    }
}

static double find_spread(const double sorted[WEFTI_OVERLAP_STEPS],
                          double median)
{
    double away[WEFTI_OVERLAP_STEPS];
    for (size_t k = 0; k < WEFTI_OVERLAP_STEPS; k++) {
        away[k] = fabs(sorted[k] - median);
    }
    return wefti_numbers_median(away, WEFTI_OVERLAP_STEPS);
}

wefti_overlap_class
wefti_overlap_compare(double overlapped_ms[WEFTI_OVERLAP_STEPS],
                      double blocking_ms[WEFTI_OVERLAP_STEPS])
{
    wefti_overlap_class own = {
        .tried = true,
        .overlapped_ms =
            wefti_numbers_median(overlapped_ms, WEFTI_OVERLAP_STEPS),
        .blocking_ms = wefti_numbers_median(blocking_ms, WEFTI_OVERLAP_STEPS)};
    own.spread_ms = fmax(find_spread(overlapped_ms, own.overlapped_ms),
                         find_spread(blocking_ms, own.blocking_ms));
    own.lost = own.overlapped_ms - own.blocking_ms > spreads * own.spread_ms;
    return own;
}

static void print_class(const trial *all, weft_class class_id,
                        const wefti_overlap_class *own)
{
    const char *name = weft_class_text(class_id);
    if (all->err) {
        fprintf(all->err,
                "weft-train: tried overlap of %s: %.4g ms a step, blocking "
                "%.4g (spread %.3g): %s %s\n",
                name, own->overlapped_ms, own->blocking_ms, own->spread_ms,
                name, own->lost ? "blocks" : "overlaps");
    }
}

static weft_status try_class(trial *all, weft_class class_id,
                             wefti_overlap_class *out)
{
    enum { BLOCKING = WEFTI_OVERLAP_STEPS };
    double ms[2 * WEFTI_OVERLAP_STEPS];
    wefti_train_step_modes blocking = all->modes;
    weft_status status = WEFT_OK;
    wefti_train_step_set(&blocking, class_id, WEFT_BUCKET_BLOCKING);
    for (size_t round = 0; round < WEFTI_OVERLAP_ROUNDS && status == WEFT_OK;
         round++) {
        double *at = ms + round * WEFTI_OVERLAP_VISIT_STEPS;
        status = visit(all, all->modes, at);
        if (status == WEFT_OK) {
            status = visit(all, blocking, at + BLOCKING);
        }
    }
    set_clock(all, class_id, false, ms);
    set_clock(all, class_id, true, ms + BLOCKING);
    if (status == WEFT_OK) {
        status =
            weft_allreduce(ms, ms, sizeof(ms) / sizeof(*ms), WEFT_DTYPE_F64,
                           WEFT_REDOP_MAX, all->job->comm, NULL);
    }
    if (status == WEFT_OK) {
        *out = wefti_overlap_compare(ms, ms + BLOCKING);
        all->modes = out->lost ? blocking : all->modes;
        print_class(all, class_id, out);
    }
    return status;
}

static weft_status try_all(trial *all, const bool there[WEFT_CLASS_COUNT],
                           wefti_overlap_verdict *verdict)
{
    weft_status status = WEFT_OK;
    for (int c = 0; c < WEFT_CLASS_COUNT && status == WEFT_OK; c++) {
        if (there[c]) {
            status = try_class(all, (weft_class)c, &verdict->classes[c]);
        }
    }
    return status;
}

/* Before the replica is gone, or of one that could not be opened. */
static void hand_out_failure(const trial *all)
{
    *all->job->failed = all->replica.failed;
    (void)!wefti_replica_find_fault(&all->replica, all->job->fault);
}

/* On a replica of its own. */
static weft_status try_fresh(trial *all, const wefti_replica_config *wanted,
                             const bool there[WEFT_CLASS_COUNT],
                             wefti_overlap_verdict *verdict)
{
    weft_status status = wefti_replica_init(&all->replica, wanted);
    if (status != WEFT_OK) {
        hand_out_failure(all);
        return status;
    }
    status = try_all(all, there, verdict);
    if (status != WEFT_OK) {
        hand_out_failure(all);
        wefti_replica_abort(&all->replica);
    }
    wefti_replica_fini(&all->replica);
    return status;
}

weft_status wefti_overlap_try(const wefti_overlap_job *job, FILE *err,
                              wefti_overlap_verdict *verdict_out)
{
    const wefti_config *config = job->config;
    const int nranks = weft_comm_get_nranks(job->comm);
    trial all = {.job = job, .modes = wefti_overlap_modes(config), .err = err};
    wefti_replica_config wanted = wefti_run_replica(
        config, job->comm, job->device, job->data, job->schedule);
    wefti_overlap_verdict found = {
        .there = true, .layout = wefti_overlap_layout(config, nranks)};
    bool there[WEFT_CLASS_COUNT], any = false;
    wefti_mesh mesh;
    *verdict_out = (wefti_overlap_verdict){0};
    weft_status status = wefti_replica_mesh(&wanted, nranks, &mesh);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_overlap_find(config, &mesh, there);
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        any = any || there[c];
    }
    if (!any) {
        if (err) {
            fprintf(err, "weft-train: overlap.trial: nothing is tried: ranks "
                         "have no transfers under compute\n");
        }
        return WEFT_OK;
    }
    wanted.encoder_data = job->encoder_data;
    wanted.optimizer.lr = 0; /* the same work in each step */
    wanted.optimizer.weight_decay = 0;
    status = try_fresh(&all, &wanted, there, &found);
    if (status == WEFT_OK) {
        *verdict_out = found;
    }
    return status;
}

/* ---- beside --measure -----------------------------------------------------
 */

void wefti_overlap_mark(const wefti_overlap_verdict *verdict,
                        wefti_measure_result *measured)
{
    static const char why[] = "overlap fell back";
    bool any_left = false, any_lost = false;
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        wefti_measure_class *own = &measured->classes[c];
        if (own->there && verdict->classes[c].lost) {
            wefti_overlap_verdict_text(verdict, (weft_class)c, own->fell_back);
            own->hiding_ratio = own->ceiling.ceiling = (double)NAN;
            own->ceiling.bare_why = why;
            any_lost = true;
        }
        any_left = any_left || (own->there && !verdict->classes[c].lost);
    }
    if (any_lost) {
        measured->ceiling.bare_why = why;
    }
    if (any_lost && !any_left) {
        measured->hiding_ratio = measured->ceiling.ceiling = (double)NAN;
        measured->fell_back = "overlap fell back in all classes";
    }
}

void wefti_overlap_hint(const wefti_overlap_verdict *verdict,
                        const wefti_measure_result *measured,
                        const bool there[WEFT_CLASS_COUNT], FILE *file)
{
    const wefti_measure_times *overlapped =
        &measured->times[WEFTI_MEASURE_OVERLAPPED];
    for (int c = 0; c < WEFT_CLASS_COUNT && !verdict->there; c++) {
        const wefti_measure_class *own = &measured->classes[c];
        const double spread_ms =
            fmax(overlapped->spread_ms, own->serial.spread_ms);
        if (there[c] && own->there &&
            overlapped->median_ms - own->serial.median_ms >
                spreads * spread_ms) {
            fprintf(file,
                    "  %-3s overlap lost %.4g against %.4g ms: overlap.trial: "
                    "true would fall back\n",
                    weft_class_text((weft_class)c), overlapped->median_ms,
                    own->serial.median_ms);
        }
    }
}
