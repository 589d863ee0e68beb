/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure.c - the runs behind --measure, and their ratios.
 */
#include "trainer/measure.h"

#include "base/error.h"
#include "trainer/checkpoint/pause.h"
#include "trainer/checkpoint/snapshot.h"
#include "trainer/measure_bare.h"
#include "trainer/model/expert_exchange.h"
#include "trainer/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 3,
    WARM_STEPS = 2, /* of each kind in each round, not counted */
    ROUND_STEPS = 8,
    STEPS = ROUNDS * ROUND_STEPS
};

/* What the ledger counts, of ovl alone: totals over steps and ranks. */
typedef enum count {
    WAKEUPS,
    PREEMPTIONS,
    PROGRESS_NS,
    MOVED_BYTES,
    CPU_NS,
    STEP_NS,
    COMPUTE_NS,
    BUBBLE_NS,
    SKEW_NS,
    IDLE_NS,
    XFER_NS,
    HIDDEN_NS,
    CLASSES_NS, /* of each class four: */
    COUNTS = CLASSES_NS + 4 * WEFT_CLASS_COUNT
} count;

enum { CLASS_XFER, CLASS_HIDDEN, CLASS_EXPOSED, CLASS_BYTES };

/* One kind's measured steps. */
typedef struct series {
    wefti_train_step_modes modes;
    bool alone;            /* transfers without compute */
    unsigned sockets;      /* classes whose plain sockets run beside it */
    double step_ns[STEPS]; /* the slowest rank's */
    double compute_ns[STEPS];
    double xfer_ns[STEPS];
    double counted[COUNTS];
} series;

/* The four kinds; then, of each class if there are several, it alone OFF, and
 * BLOCKING; then each class' plain sockets, and of several all of them. */
typedef struct measurement {
    series *series;
    size_t count;
    bool there[WEFT_CLASS_COUNT];
    size_t of_class[WEFT_CLASS_COUNT]; /* the first of its two */
    size_t of_sockets[WEFT_CLASS_COUNT];
    size_t of_all_sockets; /* of one class its */
    wefti_measure_bare bare;
    wefti_rest_log log; /* of the two kinds that all is compared with */
} measurement;

enum { SERIES_MOST = WEFTI_MEASURE_KINDS + 3 * WEFT_CLASS_COUNT + 1 };

/* ---- what is measured -----------------------------------------------------
 */

static bool has_others(const weft_comm *comm)
{
    return comm && weft_comm_get_nranks(comm) > 1;
}

static void find_classes(const wefti_replica *replica, bool *there)
{
    for (int link = 0; link < WEFTI_MESH_LINKS; link++) {
        const weft_class of = wefti_mesh_class((wefti_mesh_link)link);
        there[of] = there[of] || has_others(replica->mesh.comms[link]);
    }
}

/* Beside the steps that the class' H takes for compute alone. */
static void plan_sockets(measurement *all, size_t several)
{
    unsigned classes = 0;
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        if (all->there[c]) {
            series *own = &all->series[all->count];
            all->of_sockets[c] = all->of_all_sockets = all->count++;
            own->modes = all->series[all->of_class[c]].modes;
            own->sockets = 1u << c;
            classes |= own->sockets;
        }
    }
    if (several > 1) {
        all->of_all_sockets = all->count++;
        all->series[all->of_all_sockets] =
            (series){.modes = all->series[WEFTI_MEASURE_COMPUTE].modes,
                     .sockets = classes};
    }
}

static weft_status plan(measurement *all, const wefti_replica *replica)
{
    *all = (measurement){.series = calloc(SERIES_MOST, sizeof(*all->series)),
                         .count = WEFTI_MEASURE_KINDS};
    if (!all->series) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to measure in");
    }
    size_t several = 0;
    wefti_rest_init(&all->log, replica, STEPS);
    find_classes(replica, all->there);
    /* Copies of a tied tensor are summed where the model has no other copy. */
    wefti_train_step_set(&all->series[WEFTI_MEASURE_COMPUTE].modes,
                         WEFT_CLASS_DP, WEFT_BUCKET_OFF);
    wefti_train_step_set(&all->series[WEFTI_MEASURE_SERIAL].modes,
                         WEFT_CLASS_DP, WEFT_BUCKET_BLOCKING);
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        several += all->there[c];
        if (all->there[c]) {
            wefti_train_step_set(&all->series[WEFTI_MEASURE_COMPUTE].modes,
                                 (weft_class)c, WEFT_BUCKET_OFF);
            wefti_train_step_set(&all->series[WEFTI_MEASURE_SERIAL].modes,
                                 (weft_class)c, WEFT_BUCKET_BLOCKING);
        }
    }
    all->series[WEFTI_MEASURE_ALONE].alone = true;
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        all->of_class[c] = WEFTI_MEASURE_COMPUTE;
        if (all->there[c] && several > 1) {
            all->of_class[c] = all->count;
            wefti_train_step_set(&all->series[all->count++].modes,
                                 (weft_class)c, WEFT_BUCKET_OFF);
            wefti_train_step_set(&all->series[all->count++].modes,
                                 (weft_class)c, WEFT_BUCKET_BLOCKING);
        }
    }
    plan_sockets(all, several);
    return WEFT_OK;
}

/* ---- the steps ------------------------------------------------------------
 */

static weft_status run_step(wefti_replica *replica, const series *all,
                            wefti_measure_bare *bare)
{
    static const double no_times[WEFTI_STEP_TIMES];
    wefti_train_step_result result;
    if (all->alone) {
        return wefti_train_step_transfer(replica);
    }
    wefti_measure_bare_begin(bare, all->sockets);
    weft_status status =
        wefti_train_step_run(replica, all->modes, no_times, &result);
    wefti_measure_bare_wait(bare, all->sockets);
    return status;
}

static void keep(series *all, size_t index, const weft_step_report *report)
{
    double *counted = all->counted;
    all->step_ns[index] = (double)report->step_ns;
    all->compute_ns[index] = (double)report->compute_ns;
    all->xfer_ns[index] = (double)report->xfer_all_ns;
    counted[WAKEUPS] += (double)report->wakeups;
    counted[PREEMPTIONS] += (double)report->preemptions;
    counted[PROGRESS_NS] += (double)report->progress_ns;
    counted[MOVED_BYTES] += (double)report->moved_bytes;
    counted[CPU_NS] += report->cpu_share * (double)report->compute_ns;
    counted[STEP_NS] += (double)report->step_ns;
    counted[COMPUTE_NS] += (double)report->compute_ns;
    counted[BUBBLE_NS] += (double)report->bubble_ns;
    counted[SKEW_NS] += (double)report->skew_ns;
    counted[IDLE_NS] += (double)report->idle_ns;
    counted[XFER_NS] += (double)report->xfer_all_ns;
    counted[HIDDEN_NS] += (double)report->hidden_all_ns;
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        double *own = &counted[CLASSES_NS + 4 * c];
        own[CLASS_XFER] += (double)report->xfer_ns[c];
        own[CLASS_HIDDEN] += (double)report->hidden_ns[c];
        own[CLASS_EXPOSED] += (double)report->exposed_ns[c];
        own[CLASS_BYTES] += (double)report->class_bytes[c];
    }
}

/* One kind's part of a round, from the state as it is. */
static weft_status run_steps(wefti_replica *replica, size_t first, series *all,
                             wefti_measure_bare *bare)
{
    weft_comm *comm = replica->config.comm;
    weft_status status = weft_barrier(comm, NULL);
    wefti_score_step(replica->score);
    for (size_t i = 0; i < WARM_STEPS + ROUND_STEPS && status == WEFT_OK; i++) {
        weft_step_report report = {.size_bytes = sizeof(report)};
        status = run_step(replica, all, bare);
        if (status == WEFT_OK) {
            status = weft_ledger_step(replica->config.ledger, &report);
        }
        wefti_score_step(replica->score);
        if (status == WEFT_OK && i >= WARM_STEPS) {
            keep(all, first + i - WARM_STEPS, &report);
        }
    }
    if (status == WEFT_OK) {
        status = wefti_replica_settle(replica);
    }
    if (status == WEFT_OK) {
        status = weft_allreduce(all->step_ns + first, all->step_ns + first,
                                ROUND_STEPS, WEFT_DTYPE_F64, WEFT_REDOP_MAX,
                                comm, NULL);
    }
    return status;
}

/* The barrier's end counts as a step's, of nothing. */
static weft_status run_kind(wefti_replica *replica, size_t first,
                            measurement *all, size_t kind)
{
    const bool serial = kind == WEFTI_MEASURE_SERIAL;
    const bool noted = serial || kind == WEFTI_MEASURE_COMPUTE;
    if (noted) {
        wefti_rest_listen(&all->log, replica);
    }
    weft_status status =
        run_steps(replica, first, &all->series[kind], &all->bare);
    if (noted) {
        wefti_rest_take(&all->log, replica,
                        serial ? WEFTI_REST_SERIAL : WEFTI_REST_COMPUTE,
                        1 + WARM_STEPS);
    }
    return status;
}

/* As many bytes as overlapped steps, which have just run, have sent. */
static weft_status open_sockets(const wefti_replica *replica, measurement *all)
{
    const double *counted = all->series[WEFTI_MEASURE_OVERLAPPED].counted;
    double bytes[WEFT_CLASS_COUNT];
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        bytes[c] = counted[CLASSES_NS + 4 * c + CLASS_BYTES] / ROUND_STEPS / 2;
    }
    return wefti_measure_bare_open(replica, bytes, &all->bare);
}

/* Sockets that there are not all of say nothing. */
static bool runs(const measurement *all, size_t kind)
{
    const unsigned sockets = all->series[kind].sockets;
    return (all->bare.classes & sockets) == sockets;
}

static weft_status run_rounds(wefti_replica *replica,
                              const wefti_snapshot *snapshot, measurement *all)
{
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t kind = 0; kind < all->count; kind++) {
            weft_status status = WEFT_OK;
            if (round == 0 && kind == WEFTI_MEASURE_KINDS) {
                status = open_sockets(replica, all);
            }
            if (status == WEFT_OK && !runs(all, kind)) {
                continue;
            }
            if (status == WEFT_OK) {
                status = run_kind(replica, round * ROUND_STEPS, all, kind);
            }
            if (status == WEFT_OK) {
                status = wefti_snapshot_restore(snapshot, replica);
            }
            if (status != WEFT_OK) {
                return status;
            }
        }
    }
    return WEFT_OK;
}

/* ---- what they say --------------------------------------------------------
 */

static wefti_measure_times sum_up(const double *step_ns)
{
    double sorted[STEPS], away[STEPS];
    memcpy(sorted, step_ns, sizeof(sorted));
    double median = wefti_numbers_median(sorted, STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        away[i] = fabs(step_ns[i] - median);
    }
    return (wefti_measure_times){
        .median_ms = median * 1e-6,
        .min_ms = sorted[0] * 1e-6, /* the median has sorted them */
        .max_ms = sorted[STEPS - 1] * 1e-6,
        .spread_ms = wefti_numbers_median(away, STEPS) * 1e-6};
}

/* a / b; NAN where there is nothing to compare with. */
static double ratio(double a, double b)
{
    return b > 0 ? a / b : (double)NAN;
}

static double hiding_ratio(const wefti_measure_times *ovl,
                           const wefti_measure_times *comp,
                           const wefti_measure_times *ser)
{
    double gain = ser->median_ms - comp->median_ms;
    if (gain <= 3 * fmax(ser->spread_ms, comp->spread_ms)) {
        return (double)NAN;
    }
    return 1 - (ovl->median_ms - comp->median_ms) / gain;
}

/* counted: of all ranks. */
static void say_counts(const double counted[COUNTS], double steps,
                       wefti_measure_result *result)
{
    const double ms = 1e-6 / steps;
    wefti_measure_terms *terms = &result->terms;
    result->wakeups = counted[WAKEUPS] / steps;
    result->preemptions = counted[PREEMPTIONS] / steps;
    result->progress_ms = counted[PROGRESS_NS] * ms;
    result->wakeups_per_mib =
        ratio(counted[WAKEUPS], counted[MOVED_BYTES]) * 2 * (1 << 20);
    result->overlap_ratio = ratio(counted[HIDDEN_NS], counted[XFER_NS]);
    result->cpu_share = ratio(counted[CPU_NS], counted[COMPUTE_NS]);
    *terms = (wefti_measure_terms){.step_ms = counted[STEP_NS] * ms,
                                   .compute_ms = counted[COMPUTE_NS] * ms,
                                   .bubble_ms = counted[BUBBLE_NS] * ms,
                                   .skew_ms = counted[SKEW_NS] * ms,
                                   .idle_ms = counted[IDLE_NS] * ms};
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        const double *own = &counted[CLASSES_NS + 4 * c];
        wefti_measure_class *of = &result->classes[c];
        terms->exposed_ms += own[CLASS_EXPOSED] * ms;
        of->transfer_ms = own[CLASS_XFER] * ms;
        of->hidden_ms = own[CLASS_HIDDEN] * ms;
        of->exposed_ms = own[CLASS_EXPOSED] * ms;
        of->sent_bytes = own[CLASS_BYTES] / steps / 2;
        of->overlap_ratio = ratio(own[CLASS_HIDDEN], own[CLASS_XFER]);
    }
}

static void compare_classes(const measurement *all,
                            wefti_measure_result *result)
{
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        wefti_measure_class *own = &result->classes[c];
        const series *two = &all->series[all->of_class[c]];
        own->there = all->there[c];
        if (own->there) {
            own->without = sum_up(two[0].step_ns);
            own->serial = sum_up(two[1].step_ns);
            own->hiding_ratio =
                hiding_ratio(&result->times[WEFTI_MEASURE_OVERLAPPED],
                             &own->without, &own->serial);
        }
    }
}

static void compare(const measurement *all, wefti_measure_result *result)
{
    series *ovl = &all->series[WEFTI_MEASURE_OVERLAPPED];
    const bool any = ovl->counted[XFER_NS] > 0;
    result->steps = STEPS;
    for (int kind = 0; kind < WEFTI_MEASURE_KINDS; kind++) {
        result->times[kind] = sum_up(all->series[kind].step_ns);
    }
    result->s_C =
        ratio(wefti_numbers_median(ovl->compute_ns, STEPS),
              wefti_numbers_median(
                  all->series[WEFTI_MEASURE_COMPUTE].compute_ns, STEPS));
    result->s_M = ratio(
        wefti_numbers_median(ovl->xfer_ns, STEPS),
        wefti_numbers_median(all->series[WEFTI_MEASURE_ALONE].xfer_ns, STEPS));
    result->hiding_ratio =
        hiding_ratio(&result->times[WEFTI_MEASURE_OVERLAPPED],
                     &result->times[WEFTI_MEASURE_COMPUTE],
                     &result->times[WEFTI_MEASURE_SERIAL]);
    if (!any) {
        result->s_M = result->hiding_ratio = (double)NAN;
    }
}

static weft_status sum_counts(const measurement *all, weft_comm *comm,
                              wefti_measure_result *result)
{
    double *counted = all->series[WEFTI_MEASURE_OVERLAPPED].counted;
    weft_status status = weft_allreduce(
        counted, counted, COUNTS, WEFT_DTYPE_F64, WEFT_REDOP_SUM, comm, NULL);
    say_counts(counted, (double)STEPS * weft_comm_get_nranks(comm), result);
    return status;
}

/* ---- plain sockets ----------------------------------------------------------
 */

/* Of the steps of one kind, beside those without the same classes. */
static weft_status find_bare(const wefti_replica *replica, measurement *all,
                             size_t kind, const wefti_measure_times *comp,
                             wefti_measure_ceiling *out)
{
    weft_comm *comm = replica->config.comm;
    const series *own = &all->series[kind];
    const wefti_measure_times with = sum_up(own->step_ns);
    const double spread_ms = fmax(with.spread_ms, comp->spread_ms);
    out->hiding_bare = out->bare_alone_ms = (double)NAN;
    weft_status status = wefti_measure_bare_why(&all->bare, own->sockets, comm,
                                                &out->hiding_why);
    if (status != WEFT_OK || out->hiding_why) {
        return status;
    }
    status = wefti_measure_bare_alone(&all->bare, own->sockets, comm,
                                      &out->bare_alone_ms);
    if (status == WEFT_OK && out->bare_alone_ms > 3 * spread_ms) {
        out->hiding_bare =
            1 - (with.median_ms - comp->median_ms) / out->bare_alone_ms;
    }
    return status;
}

/* Of each class, and of all; without any class all are none. */
static weft_status find_bares(const wefti_replica *replica, measurement *all,
                              wefti_measure_result *result)
{
    weft_status status = WEFT_OK;
    result->ceiling.hiding_bare = (double)NAN;
    result->ceiling.bare_alone_ms = (double)NAN;
    result->ceiling.hiding_why = "nothing is sent";
    for (int c = 0; c < WEFT_CLASS_COUNT && status == WEFT_OK; c++) {
        wefti_measure_class *own = &result->classes[c];
        if (own->there) {
            status = find_bare(replica, all, all->of_sockets[c], &own->without,
                               &own->ceiling);
        }
    }
    return status == WEFT_OK && all->of_all_sockets > 0
               ? find_bare(replica, all, all->of_all_sockets,
                           &result->times[WEFTI_MEASURE_COMPUTE],
                           &result->ceiling)
               : status;
}

/* As training begins, so that what is missing slows no arithmetic. */
static weft_status run_all(wefti_replica *replica,
                           const wefti_snapshot *snapshot, measurement *all)
{
    uint32_t before = wefti_numbers_flush_denormals();
    size_t cuts = wefti_pause_set_cuts(replica->pause, 0);
    weft_status status = wefti_experts_record(replica->pipe.experts);
    if (status == WEFT_OK) {
        status = run_rounds(replica, snapshot, all);
    }
    (void)wefti_pause_set_cuts(replica->pause, cuts);
    wefti_numbers_restore(before);
    return status;
}

weft_status wefti_measure_run(wefti_replica *replica,
                              wefti_measure_result *result_out)
{
    if (!replica->config.ledger) {
        return wefti_error(WEFT_ERR_INVALID, "measuring needs a ledger");
    }
    *result_out = (wefti_measure_result){0};
    weft_status status = wefti_replica_settle(replica);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_snapshot snapshot;
    measurement all;
    status = wefti_snapshot_init(&snapshot, replica);
    if (status != WEFT_OK) {
        return status;
    }
    status = plan(&all, replica);
    if (status == WEFT_OK) {
        status = run_all(replica, &snapshot, &all);
    }
    if (status == WEFT_OK) {
        compare(&all, result_out);
        compare_classes(&all, result_out);
        status = sum_counts(&all, replica->config.comm, result_out);
    }
    if (status == WEFT_OK) {
        status =
            wefti_rest_find(&all.log, replica->config.comm, &result_out->rest);
    }
    if (status == WEFT_OK) {
        status = wefti_measure_find_ceilings(replica, result_out);
    }
    if (status == WEFT_OK) {
        status = find_bares(replica, &all, result_out);
    }
    wefti_measure_bare_close(&all.bare);
    wefti_rest_fini(&all.log);
    free(all.series);
    wefti_snapshot_fini(&snapshot);
    return status;
}
