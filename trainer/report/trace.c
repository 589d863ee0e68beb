/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/trace.c - gathers what ranks recorded, through weft itself.
 *
 * Clocks of hosts differ. Rank 0 asks each rank on another host for its time
 * several times; the quickest answer was read about in the middle of its round
 * trip, wrong by at most half of it.
 */
#include "trainer/report/trace.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/cluster/cluster.h"
#include "trainer/report/trace_event.h"
#include "weft/op.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ASKED = 16 }; /* times for the time */

/* ---- this rank's events ---------------------------------------------------
 */

/* The newest ones, in a ring of room. */
typedef struct keep {
    wefti_packed_event *events;
    size_t room;
    uint64_t count, last_step, oldest_step;
} keep;

static void find_last_step(void *context, const wefti_trace_event *event)
{
    keep *k = context;
    k->last_step = event->step > k->last_step ? event->step : k->last_step;
}

static void keep_event(void *context, const wefti_trace_event *event)
{
    keep *k = context;
    if (event->step < k->oldest_step) {
        return;
    }
    wefti_packed_event *to = &k->events[k->count++ % k->room];
    *to = (wefti_packed_event){.begin_ns = event->begin_ns,
                               .end_ns = event->end_ns,
                               .op_number = event->op_number,
                               .bytes = event->bytes,
                               .step = (uint32_t)event->step,
                               .kind = (uint8_t)event->kind,
                               .class_id = (uint8_t)event->class_id,
                               .collective = (uint8_t)event->collective};
    if (event->label) {
        size_t bytes = strnlen(event->label, WEFTI_TRACE_LABEL_BYTES - 1);
        memcpy(to->label, event->label, bytes);
    }
}

static uint64_t peak_memory_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0
               ? (uint64_t)usage.ru_maxrss * 1024
               : 0;
}

static void count_traffic(const wefti_packed_event *event,
                          wefti_rank_facts *facts)
{
    if (event->kind == WEFTI_TRACE_TRANSFER &&
        event->collective < WEFT_COLLECTIVE_COUNT) {
        facts->calls[event->collective]++;
        facts->bytes[event->collective] += event->bytes;
    }
}

/* The ledger's step 0 is what came before the first one. */
static weft_status keep_own(const weft_ledger *ledger, int nranks,
                            const wefti_rank_sums *sums, keep *k,
                            wefti_rank_facts *facts)
{
    *k = (keep){.room = (size_t)(WEFTI_TRACE_EVENTS_MOST / nranks)};
    k->room = k->room > 1 ? k->room : 1;
    *facts =
        (wefti_rank_facts){.sums = *sums, .memory_bytes = peak_memory_bytes()};
    if (gethostname(facts->host, sizeof(facts->host) - 1) != 0) {
        snprintf(facts->host, sizeof(facts->host), "?");
    }
    k->events = calloc(k->room, sizeof(*k->events));
    if (!k->events) {
        k->room = 0;
        return wefti_error(WEFT_ERR_NO_MEMORY, "events of the trace");
    }
    wefti_ledger_visit(ledger, find_last_step, k);
    k->oldest_step = k->last_step >= WEFTI_TRACE_STEPS_MOST
                         ? k->last_step - WEFTI_TRACE_STEPS_MOST + 1
                         : 1;
    wefti_ledger_visit(ledger, keep_event, k);
    facts->events = k->count < k->room ? k->count : k->room;
    facts->omitted = k->count - facts->events;
    facts->first_step = k->oldest_step;
    facts->begin_ns = INT64_MAX;
    for (size_t e = 0; e < facts->events; e++) {
        const wefti_packed_event *event = &k->events[e];
        count_traffic(event, facts);
        facts->traced_steps += event->kind == WEFTI_TRACE_STEP;
        facts->begin_ns = event->begin_ns < facts->begin_ns ? event->begin_ns
                                                            : facts->begin_ns;
    }
    return WEFT_OK;
}

/* ---- one clock ------------------------------------------------------------
 */

static weft_status ask_time(weft_comm *comm, int rank, wefti_trace *trace)
{
    int64_t best_ns = INT64_MAX, theirs_ns = 0;
    weft_status status = WEFT_OK;
    for (int k = 0; k < ASKED && status == WEFT_OK; k++) {
        int64_t begin_ns = wefti_clock_ns();
        status = weft_send(&begin_ns, 1, WEFT_DTYPE_I64, rank, comm, NULL);
        if (status == WEFT_OK) {
            status = weft_recv(&theirs_ns, 1, WEFT_DTYPE_I64, rank, comm, NULL);
        }
        int64_t round_ns = wefti_clock_ns() - begin_ns;
        if (status == WEFT_OK && round_ns < best_ns) {
            best_ns = round_ns;
            trace->ahead_ns[rank] = theirs_ns - (begin_ns + round_ns / 2);
        }
    }
    if (status == WEFT_OK && best_ns / 2 > trace->clock_error_ns) {
        trace->clock_error_ns = best_ns / 2;
    }
    return status;
}

static weft_status send_time(weft_comm *comm)
{
    weft_status status = WEFT_OK;
    for (int k = 0; k < ASKED && status == WEFT_OK; k++) {
        int64_t asked_ns;
        status = weft_recv(&asked_ns, 1, WEFT_DTYPE_I64, 0, comm, NULL);
        int64_t now_ns = wefti_clock_ns();
        if (status == WEFT_OK) {
            status = weft_send(&now_ns, 1, WEFT_DTYPE_I64, 0, comm, NULL);
        }
    }
    return status;
}

static weft_status compare_clocks(weft_comm *comm, wefti_trace *trace)
{
    int nranks = weft_comm_get_nranks(comm);
    weft_status status = WEFT_OK;
    if (!wefti_cluster_is_wide(comm)) {
        return WEFT_OK;
    }
    if (weft_comm_get_rank(comm) != 0) {
        return send_time(comm);
    }
    for (int rank = 1; rank < nranks && status == WEFT_OK; rank++) {
        status = ask_time(comm, rank, trace);
    }
    return status;
}

/* ---- all together ---------------------------------------------------------
 */

/* Of all ranks' events on rank 0's clock, the first. */
static int64_t find_begin(const wefti_trace *trace, int nranks)
{
    int64_t begin_ns = INT64_MAX;
    for (int rank = 0; rank < nranks; rank++) {
        if (trace->ranks[rank].events > 0) {
            int64_t own_ns =
                trace->ranks[rank].begin_ns - trace->ahead_ns[rank];
            begin_ns = own_ns < begin_ns ? own_ns : begin_ns;
        }
    }
    return begin_ns;
}

/* Rank 0: all ranks' events in turn, its own first, as their memory is used for
 * the others. */
static weft_status collect(weft_comm *comm, keep *own, const char *path,
                           wefti_trace *trace)
{
    int nranks = weft_comm_get_nranks(comm);
    int64_t begin_ns = find_begin(trace, nranks);
    wefti_trace_file out = {0};
    weft_status received = WEFT_OK;
    weft_status status = wefti_trace_file_open(&out, path);
    for (int rank = 0; rank < nranks && received == WEFT_OK; rank++) {
        const wefti_rank_facts *facts = &trace->ranks[rank];
        size_t count = facts->events;
        if (rank > 0 && count > 0) {
            received = weft_recv(own->events, count * sizeof(*own->events),
                                 WEFT_DTYPE_U8, rank, comm, NULL);
        }
        if (received == WEFT_OK && status == WEFT_OK) {
            wefti_trace_file_rank(&out, rank, facts, own->events, count,
                                  begin_ns + trace->ahead_ns[rank]);
        }
    }
    return wefti_trace_file_close(&out, trace,
                                  received != WEFT_OK ? received : status);
}

static weft_status trace_init(wefti_trace *trace, int nranks)
{
    trace->ranks = calloc((size_t)nranks, sizeof(*trace->ranks));
    trace->ahead_ns = calloc((size_t)nranks, sizeof(*trace->ahead_ns));
    return trace->ranks && trace->ahead_ns
               ? WEFT_OK
               : wefti_error(WEFT_ERR_NO_MEMORY, "--report: %d ranks", nranks);
}

/* Facts to rank 0; then, if it has room for them, the events. */
static weft_status exchange(weft_comm *comm, keep *own,
                            const wefti_rank_facts *facts, const char *path,
                            wefti_trace *trace)
{
    int nranks = weft_comm_get_nranks(comm);
    bool first = weft_comm_get_rank(comm) == 0;
    weft_status status = weft_gather(facts, trace->ranks, sizeof(*facts),
                                     WEFT_DTYPE_U8, 0, comm, NULL);
    if (status != WEFT_OK) {
        return status;
    }
    for (int rank = 0; first && rank < nranks; rank++) {
        trace->omitted += trace->ranks[rank].omitted;
    }
    if (first) {
        return collect(comm, own, path, trace);
    }
    return facts->events > 0
               ? weft_send(own->events, facts->events * sizeof(*own->events),
                           WEFT_DTYPE_U8, 0, comm, NULL)
               : WEFT_OK;
}

/* Whether every rank has the memory it needs. */
static weft_status agree(weft_comm *comm, weft_status own)
{
    int32_t bad = own != WEFT_OK, any = 0;
    weft_status status = weft_allreduce(&bad, &any, 1, WEFT_DTYPE_I32,
                                        WEFT_REDOP_MAX, comm, NULL);
    if (status == WEFT_OK && own == WEFT_OK && any) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "--report: another rank has no memory for it");
    }
    return status == WEFT_OK ? own : status;
}

weft_status wefti_trace_gather(weft_comm *comm, const weft_ledger *ledger,
                               const wefti_rank_sums *sums, const char *path,
                               wefti_trace *trace)
{
    int nranks = weft_comm_get_nranks(comm);
    wefti_rank_facts facts;
    keep own;
    *trace = (wefti_trace){0};
    weft_status status = keep_own(ledger, nranks, sums, &own, &facts);
    if (status == WEFT_OK && weft_comm_get_rank(comm) == 0) {
        status = trace_init(trace, nranks);
    }
    status = agree(comm, status);
    if (status == WEFT_OK) {
        status = compare_clocks(comm, trace);
    }
    if (status == WEFT_OK) {
        status = exchange(comm, &own, &facts, path, trace);
    }
    free(own.events);
    return status;
}

void wefti_trace_fini(wefti_trace *trace)
{
    free(trace->ranks);
    free(trace->ahead_ns);
    *trace = (wefti_trace){0};
}
