/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_hiding.c - the four runs behind O, H, s_C and s_M.
 */
#include "perf/perf_hiding.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/make/explain.h"
#include "overlap/bare.h"
#include "perf/grind.h"
#include "perf/perf_call.h"
#include "perf/perf_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEDGER_ROOM = 1 << 11, ITERATIONS = 20, TRIAL_CALLS = 5 };

/* The last two by bare sockets, if asked for. */
typedef enum mode { COMP, SER, OVL, ALONE, BARE_SER, BARE_OVL, MODES } mode;

/* What one iteration of one mode gave on this rank. */
typedef struct figures {
    int64_t *time_ns, *compute_ns, *xfer_ns; /* [iterations] each */
} figures;

typedef struct bench {
    wefti_perf_rank *rank;
    wefti_perf_pool pool;
    weft_gate *ready;
    weft_ledger *ledger;
    wefti_bare *bare;                             /* NULL: not asked for */
    wefti_bare_part bare_parts[WEFTI_PERF_PARTS]; /* of its round */
    wefti_grind grind;
    wefti_perf_parts parts;
    size_t part_rows; /* of compute to each part */
    size_t call;      /* of the pool; also the gate's epoch, less 1 */
    int iterations;
    figures modes[MODES];
    int64_t *values; /* what modes point into */
    /* Of all ovl runs: */
    int64_t hidden_ns, moved_ns;
    int64_t compute_ns, cpu_ns;
    int64_t bare_cpu_ns, bare_bytes;
    int64_t wakeups, preemptions, progress_ns, moved_bytes;
    int64_t wrong;
} bench;

/* Makes the send buffer part by part, and says so at the gate, and to the bare
 * sockets' sender if they are at work. */
static weft_status compute(bench *it, bool bare)
{
    for (size_t i = 0; i < it->parts.count; i++) {
        const wefti_perf_part *part = &it->parts.list[i];
        weft_span span =
            weft_span_open(it->ledger, WEFT_CLASS_COMPUTE, "part", NULL);
        wefti_grind_run(&it->grind, it->part_rows);
        weft_status status = wefti_perf_pool_fill(&it->pool, it->rank, it->call,
                                                  part->first, part->elems);
        weft_span_close(it->ledger, span, NULL);
        if (status == WEFT_OK) {
            status =
                weft_gate_signal(it->ready, part->chunk, it->call + 1, NULL);
        }
        if (status != WEFT_OK) {
            return status;
        }
        if (bare) {
            wefti_bare_signal(it->bare);
        }
    }
    return WEFT_OK;
}

/* Without compute: all the data, then all the signals. */
static weft_status make_all(bench *it)
{
    weft_status status = wefti_perf_pool_fill(&it->pool, it->rank, it->call, 0,
                                              it->pool.subject.send_elems);
    for (size_t i = 0; status == WEFT_OK && i < it->parts.count; i++) {
        status = weft_gate_signal(it->ready, i, it->call + 1, NULL);
    }
    return status;
}

static weft_status post(bench *it)
{
    const wefti_perf_gate gate = {it->ready, it->parts.part_elems,
                                  it->call + 1};
    return wefti_perf_call_post_gated(&it->pool, it->call, &gate,
                                      it->rank->comm, it->rank->stream);
}

static void begin_bare(bench *it)
{
    const unsigned char *send = wefti_perf_pool_at(&it->pool, it->call).send;
    const size_t elem_bytes = weft_dtype_bytes(it->pool.subject.dtype);
    for (size_t i = 0; i < it->parts.count; i++) {
        const wefti_perf_part *part = &it->parts.list[i];
        it->bare_parts[i] =
            (wefti_bare_part){.begin = send + part->first * elem_bytes,
                              .bytes = part->elems * elem_bytes,
                              .wire_bytes = part->wire_bytes};
    }
    wefti_bare_begin(it->bare,
                     &(wefti_bare_round){.parts = it->bare_parts,
                                         .count = it->parts.count,
                                         .wire_bytes = it->parts.wire_bytes});
}

/* As ser or ovl, the operation being the bare sockets' exchange. */
static weft_status run_bare(bench *it, mode which)
{
    if (which == BARE_OVL) {
        begin_bare(it);
    }
    weft_status status = compute(it, which == BARE_OVL);
    if (which == BARE_SER) {
        begin_bare(it);
        for (size_t i = 0; i < it->parts.count; i++) {
            wefti_bare_signal(it->bare);
        }
    }
    weft_status waited = wefti_bare_wait(it->bare);
    return status == WEFT_OK ? waited : status;
}

/* The timed part of a run. */
static weft_status run_mode(bench *it, mode which)
{
    weft_status status = WEFT_OK;
    if (which == BARE_SER || which == BARE_OVL) {
        return run_bare(it, which);
    }
    if (which == OVL) {
        status = post(it);
    }
    if (status == WEFT_OK && which != ALONE) {
        status = compute(it, false);
    }
    if (status == WEFT_OK && (which == SER || which == ALONE)) {
        status = post(it);
    }
    if (status == WEFT_OK && which != COMP) {
        status = weft_stream_wait(it->rank->stream);
    }
    return status;
}

static weft_status prepare(bench *it, mode which)
{
    weft_status status = WEFT_OK;
    if (it->rank->options->checks > 0) {
        status = wefti_perf_pool_poison(&it->pool, it->rank, it->call);
    }
    if (status == WEFT_OK && which == ALONE) {
        status = make_all(it);
    }
    return status == WEFT_OK ? wefti_perf_rank_meet(it->rank) : status;
}

static weft_status check(bench *it, mode which)
{
    int64_t wrong = 0;
    if (which == COMP || which >= BARE_SER || it->rank->options->checks == 0) {
        return WEFT_OK; /* no output of weft's */
    }
    weft_status status =
        wefti_perf_pool_check(&it->pool, it->rank, it->call, &wrong);
    it->wrong += wrong;
    return status;
}

/* One run; the report tells what the ledger saw of it. */
static weft_status run_once(bench *it, mode which, int64_t *time_ns_out,
                            weft_step_report *report)
{
    report->size_bytes = sizeof(*report);
    weft_status status = prepare(it, which);
    if (status == WEFT_OK) {
        status = weft_ledger_step(it->ledger, report);
    }
    if (status != WEFT_OK) {
        return status;
    }
    int64_t begin_ns = wefti_clock_ns();
    status = run_mode(it, which);
    *time_ns_out = wefti_clock_ns() - begin_ns;
    if (status == WEFT_OK) {
        status = weft_ledger_step(it->ledger, report);
    }
    if (status == WEFT_OK && report->dropped > 0) {
        status = wefti_error(WEFT_ERR_NO_MEMORY,
                             "the ledger had no room for %llu transfers",
                             (unsigned long long)report->dropped);
    }
    if (status == WEFT_OK) {
        status = check(it, which);
    }
    it->call++;
    return status;
}

static void note_overlap(bench *it, const weft_step_report *report)
{
    it->hidden_ns += report->hidden_all_ns;
    it->moved_ns += report->xfer_all_ns;
    it->compute_ns += report->compute_ns;
    it->cpu_ns += (int64_t)(report->cpu_share * (double)report->compute_ns);
    it->wakeups += (int64_t)report->wakeups;
    it->preemptions += (int64_t)report->preemptions;
    it->progress_ns += report->progress_ns;
    it->moved_bytes += (int64_t)report->moved_bytes;
}

/* Compute as long as the slowest rank's operation alone, in equal parts. */
static weft_status calibrate(bench *it)
{
    int64_t times_ns[TRIAL_CALLS];
    weft_step_report report;
    for (int i = 0; i < TRIAL_CALLS; i++) {
        weft_status status = run_once(it, ALONE, &times_ns[i], &report);
        if (status != WEFT_OK) {
            return status;
        }
    }
    int64_t wanted_ns =
        (int64_t)(wefti_sample_get(times_ns, TRIAL_CALLS).median_us * 1e3);
    int64_t row_ps = (int64_t)(wefti_grind_row_ns(&it->grind) * 1e3);
    int64_t agreed[2] = {wanted_ns, row_ps};
    weft_status status =
        wefti_perf_rank_agree(it->rank, agreed, 2, WEFT_REDOP_MAX);
    if (status != WEFT_OK) {
        return status;
    }
    double rows = (double)agreed[0] * 1e3 / (double)agreed[1];
    size_t parts = it->parts.count > 0 ? it->parts.count : 1;
    it->part_rows = (size_t)(rows / (double)parts) + 1;
    return WEFT_OK;
}

static wefti_bare_usage bare_usage(const bench *it)
{
    return it->bare ? wefti_bare_get_usage(it->bare) : (wefti_bare_usage){0};
}

/* The mode that turn i of all rounds runs: each comes after each other. */
static mode mode_at(int i, int modes)
{
    return (mode)((i + i / modes) % modes);
}

static weft_status run_all(bench *it)
{
    const int modes = it->bare ? MODES : BARE_SER;
    weft_step_report report;
    int64_t ignored_ns;
    for (int i = 0; i < modes; i++) { /* warm */
        weft_status status = run_once(it, (mode)i, &ignored_ns, &report);
        if (status != WEFT_OK) {
            return status;
        }
    }
    for (int i = 0; i < it->iterations * modes; i++) {
        const int round = i / modes;
        const mode which = mode_at(i, modes);
        figures *to = &it->modes[which];
        const wefti_bare_usage before = bare_usage(it);
        weft_status status = run_once(it, which, &to->time_ns[round], &report);
        if (status != WEFT_OK) {
            return status;
        }
        to->compute_ns[round] = report.compute_ns;
        to->xfer_ns[round] = report.xfer_all_ns;
        if (which == OVL) {
            note_overlap(it, &report);
        }
        if (which == BARE_OVL) {
            const wefti_bare_usage after = bare_usage(it);
            it->bare_cpu_ns += after.cpu_ns - before.cpu_ns;
            it->bare_bytes +=
                (int64_t)(after.received_bytes - before.received_bytes);
        }
    }
    return WEFT_OK;
}

/* ---- from figures to ratios ------------------------------------------------
 */

static int64_t median_ns(int64_t *values_ns, int count)
{
    return (int64_t)(wefti_sample_get(values_ns, (size_t)count).median_us *
                     1e3);
}

static double ratio(int64_t above, int64_t below)
{
    return below > 0 ? (double)above / (double)below : (double)NAN;
}

static double hiding_ratio(const wefti_sample *times, mode serial,
                           mode overlapped)
{
    const wefti_sample *comp = &times[COMP], *ser = &times[serial];
    double gain_us = ser->median_us - comp->median_us;
    double spread_us =
        fmax(ser->p90_us - ser->p10_us, comp->p90_us - comp->p10_us) / 2.0;
    if (gain_us <= 3.0 * spread_us || gain_us <= 0.0) {
        return (double)NAN;
    }
    return 1.0 - (times[overlapped].median_us - comp->median_us) / gain_us;
}

static weft_status summarise(bench *it, wefti_perf_row *row,
                             wefti_perf_hiding *out)
{
    size_t count = (size_t)it->iterations;
    wefti_sample times[MODES];
    for (int i = 0; i < (it->bare ? MODES : BARE_SER); i++) {
        weft_status status = wefti_perf_rank_agree(
            it->rank, it->modes[i].time_ns, count, WEFT_REDOP_MAX);
        if (status != WEFT_OK) {
            return status;
        }
        times[i] = wefti_sample_get(it->modes[i].time_ns, count);
    }
    int64_t sums[] = {it->hidden_ns,
                      it->moved_ns,
                      median_ns(it->modes[OVL].compute_ns, it->iterations),
                      median_ns(it->modes[COMP].compute_ns, it->iterations),
                      median_ns(it->modes[OVL].xfer_ns, it->iterations),
                      median_ns(it->modes[ALONE].xfer_ns, it->iterations),
                      it->wrong,
                      it->cpu_ns,
                      it->compute_ns,
                      it->wakeups,
                      it->preemptions,
                      it->progress_ns,
                      it->moved_bytes,
                      it->bare_cpu_ns,
                      it->bare_bytes};
    weft_status status = wefti_perf_rank_agree(
        it->rank, sums, WEFTI_COUNT_OF(sums), WEFT_REDOP_SUM);
    if (status != WEFT_OK) {
        return status;
    }
    *out = (wefti_perf_hiding){.overlap_ratio = ratio(sums[0], sums[1]),
                               .hiding_ratio = hiding_ratio(times, SER, OVL),
                               .compute_interference = ratio(sums[2], sums[3]),
                               .transfer_interference = ratio(sums[4], sums[5]),
                               .comp_us = times[COMP].median_us,
                               .ser_us = times[SER].median_us,
                               .ovl_us = times[OVL].median_us,
                               .alone_us = times[ALONE].median_us,
                               .cpu_share = ratio(sums[7], sums[8])};
    const double calls = (double)it->iterations * (double)it->rank->nranks;
    out->wakeups = (double)sums[9] / calls;
    out->preemptions = (double)sums[10] / calls;
    out->progress_us = (double)sums[11] * 1e-3 / calls;
    if (it->bare) {
        out->bare = true;
        out->bare_ratio = hiding_ratio(times, BARE_SER, BARE_OVL);
        out->bare_ser_us = times[BARE_SER].median_us;
        out->bare_ovl_us = times[BARE_OVL].median_us;
        out->bare_cpu_us = (double)sums[13] * 1e-3 / calls;
        out->bare_bytes = (double)sums[14] / calls;
    }
    out->wakeups_per_mib = ratio(sums[9], sums[12]) * 2.0 * (1 << 20);
    row->time = times[ALONE];
    row->wrong = sums[6];
    row->checked = it->rank->options->checks > 0;
    row->hiding = out;
    return WEFT_OK;
}

/* ---- setting up
 * -------------------------------------------------------------- */

static void fini(bench *it)
{
    free(it->values);
    wefti_bare_close(it->bare);
    weft_ledger_destroy(it->ledger);
    weft_gate_destroy(it->ready);
    wefti_perf_pool_fini(&it->pool, it->rank);
}

static weft_status init(bench *it, wefti_perf_rank *rank,
                        const wefti_perf_case *subject, int iterations)
{
    *it = (bench){.rank = rank, .iterations = iterations};
    wefti_grind_init(&it->grind);
    weft_status status = wefti_perf_pool_init(
        &it->pool, rank, subject, wefti_sample_copies(subject->bytes));
    if (status != WEFT_OK) {
        return status;
    }
    size_t count = (size_t)iterations;
    it->values = calloc(count * 3 * MODES, sizeof(*it->values));
    status = it->values
                 ? weft_gate_create(rank->device, WEFTI_PERF_PARTS, &it->ready)
                 : wefti_error(WEFT_ERR_NO_MEMORY, "%zu times", count);
    if (status == WEFT_OK) {
        status = weft_ledger_create(LEDGER_ROOM, &it->ledger);
    }
    if (status == WEFT_OK) {
        status = wefti_perf_parts_plan(
            subject, wefti_perf_pool_at(&it->pool, 0), rank->comm, &it->parts);
    }
    if (status == WEFT_OK && rank->options->bare) {
        status = wefti_bare_open(rank->comm, it->parts.wire_bytes, &it->bare);
    }
    if (status != WEFT_OK) {
        fini(it);
        return status;
    }
    for (size_t i = 0; i < MODES; i++) {
        int64_t *values = it->values + 3 * i * count;
        it->modes[i] = (figures){values, values + count, values + 2 * count};
    }
    return WEFT_OK;
}

static weft_status measure(bench *it, wefti_perf_row *row,
                           wefti_perf_hiding *out)
{
    weft_status status = weft_ledger_attach(it->ledger, it->rank->comm);
    if (status != WEFT_OK) {
        return status;
    }
    weft_op op =
        wefti_perf_call_op(&row->subject, wefti_perf_pool_at(&it->pool, 0));
    row->algorithm = wefti_comm_explain(it->rank->comm, &op, &row->fabric);
    status = calibrate(it);
    if (status == WEFT_OK) {
        status = run_all(it);
    }
    weft_ledger_detach(it->ledger, it->rank->comm);
    return status == WEFT_OK ? summarise(it, row, out) : status;
}

weft_status wefti_perf_hiding_measure(wefti_perf_rank *self, size_t bytes,
                                      wefti_perf_row *row_out,
                                      wefti_perf_hiding *hiding_out)
{
    int iterations =
        self->options->iterations ? self->options->iterations : ITERATIONS;
    wefti_perf_row row = {.subject = wefti_perf_rank_case(self, bytes),
                          .iterations = iterations};
    bench *it = malloc(sizeof(*it));
    if (!it) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "the overlap bench");
    }
    weft_status status = init(it, self, &row.subject, iterations);
    if (status == WEFT_OK) {
        status = measure(it, &row, hiding_out);
        fini(it);
    }
    free(it);
    *row_out = row;
    return status;
}
