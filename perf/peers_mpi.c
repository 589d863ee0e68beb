/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peers_mpi.c - an MPI library measured exactly as weft-perf measures
 * weft: the same start line, sizes, buffers, data, number of calls and
 * verification; only the call differs. Started by perf/peers.
 *
 *     mpirun -n N peers-mpi OP SIZE[,SIZE...] [ITERATIONS]
 *
 * Rank 0 prints one JSON line: library, barrier, rows as of weft-perf, with
 * samples_us. Element type f32, reduction sum, root 0; a broadcast is in
 * place, as MPI's is. Exit status 1 if anything is wrong.
 */
#include "base/clock.h"
#include "base/json.h"
#include "perf/perf_case.h"
#include "perf/sample.h"
#include "perf/startline.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5, PAGE_BYTES = 4096, ITERATIONS_MOST = 1000000 };

/* One size: its buffers, and what was found. */
typedef struct point {
    wefti_perf_case subject;
    int copies;
    size_t room_bytes;
    unsigned char *block;
    int iterations;
    double *times_us;
    long long wrong;
} point;

static wefti_startline *line; /* NULL: ranks on several hosts */
static wefti_tile own, scratch;

/* MPI's default error handler ends the job with a text; so does this. */
static void give_up(const char *why)
{
    fprintf(stderr, "peers-mpi: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    exit(EXIT_FAILURE);
}

/* One line for all, if all reach it; else everyone does without. */
static void find_line(int rank, int nranks)
{
    wefti_startline_place place = {0};
    if (rank == 0) {
        line = wefti_startline_create(nranks, &place);
    }
    MPI_Bcast(&place, sizeof(place), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank != 0) {
        line = wefti_startline_open(&place);
    }
    int reached = line != NULL, all = 0;
    MPI_Allreduce(&reached, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!all) {
        wefti_startline_close(line);
        line = NULL;
    }
}

static void meet(void)
{
    if (!line) {
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (!wefti_startline_wait(line, NULL, NULL)) {
        give_up("another rank has not come to the start");
    }
}

static wefti_perf_buffers buffers_at(const point *it, size_t call)
{
    unsigned char *send =
        it->block + 2 * (call % (size_t)it->copies) * it->room_bytes;
    return wefti_perf_case_place(
        &it->subject, (wefti_perf_buffers){send, send + it->room_bytes});
}

static void do_call(const wefti_perf_case *subject, wefti_perf_buffers buffers)
{
    int count = (int)subject->count;
    void *send = buffers.send, *recv = buffers.recv;
    MPI_Comm comm = MPI_COMM_WORLD;
    switch (subject->op->kind) {
    case WEFTI_PERF_ALLREDUCE:
        MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, comm);
        break;
    case WEFTI_PERF_ALLGATHER:
        MPI_Allgather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, comm);
        break;
    case WEFTI_PERF_REDUCESCATTER:
        MPI_Reduce_scatter_block(send, recv, count, MPI_FLOAT, MPI_SUM, comm);
        break;
    case WEFTI_PERF_BROADCAST:
        MPI_Bcast(recv, count, MPI_FLOAT, subject->root, comm);
        break;
    case WEFTI_PERF_REDUCE:
        MPI_Reduce(send, recv, count, MPI_FLOAT, MPI_SUM, subject->root, comm);
        break;
    case WEFTI_PERF_ALLTOALL:
        MPI_Alltoall(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, comm);
        break;
    case WEFTI_PERF_GATHER:
        MPI_Gather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT,
                   subject->root, comm);
        break;
    case WEFTI_PERF_SCATTER:
        MPI_Scatter(send, count, MPI_FLOAT, recv, count, MPI_FLOAT,
                    subject->root, comm);
        break;
    case WEFTI_PERF_SENDRECV:
        MPI_Sendrecv(send, count, MPI_FLOAT, wefti_perf_case_after(subject), 0,
                     recv, count, MPI_FLOAT, wefti_perf_case_before(subject), 0,
                     comm, MPI_STATUS_IGNORE);
        break;
    case WEFTI_PERF_BARRIER:
        MPI_Barrier(comm);
        break;
    default: /* refused by main */
        break;
    }
}

/* One call, with fresh data, from the start line to its return. */
static double call_once(const point *it, size_t call)
{
    const wefti_perf_case *subject = &it->subject;
    wefti_perf_buffers buffers = buffers_at(it, call);
    if (wefti_perf_case_sends(subject)) {
        wefti_tile_fill(&own, buffers.send, 0, subject->send_elems, call);
    }
    meet();
    int64_t begin_ns = wefti_clock_ns();
    do_call(subject, buffers);
    return (double)(wefti_clock_ns() - begin_ns) / 1e3;
}

static void check_once(point *it, size_t call)
{
    const wefti_perf_case *subject = &it->subject;
    unsigned char *recv = buffers_at(it, call).recv;
    memset(recv, POISON,
           subject->recv_elems * weft_dtype_bytes(subject->dtype));
    call_once(it, call);
    long long wrong =
        (long long)wefti_perf_case_count_wrong(subject, recv, call, &scratch);
    MPI_Allreduce(&wrong, &it->wrong, 1, MPI_LONG_LONG, MPI_SUM,
                  MPI_COMM_WORLD);
}

static void measure(point *it)
{
    size_t bytes = it->subject.bytes;
    it->copies = wefti_sample_copies(bytes);
    it->room_bytes = (wefti_perf_case_room(&it->subject) + PAGE_BYTES - 1) /
                     PAGE_BYTES * PAGE_BYTES;
    size_t all_bytes = 2 * (size_t)it->copies * it->room_bytes;
    it->block = aligned_alloc(PAGE_BYTES, all_bytes);
    it->times_us = calloc((size_t)it->iterations, sizeof(*it->times_us));
    if (!it->block || !it->times_us) {
        give_up("out of memory");
    }
    memset(it->block, POISON, all_bytes);
    int warmup = wefti_sample_warmup(it->iterations);
    for (int i = 0; i < warmup + it->iterations; i++) {
        double time_us = call_once(it, (size_t)i);
        if (i >= warmup) {
            it->times_us[i - warmup] = time_us;
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, it->times_us, it->iterations, MPI_DOUBLE,
                  MPI_MAX, MPI_COMM_WORLD);
    check_once(it, (size_t)warmup + (size_t)it->iterations);
}

static void write_row(const point *it, wefti_json *json)
{
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "op", it->subject.op->name);
    wefti_json_uint(json, "bytes", it->subject.bytes);
    wefti_json_int(json, "nranks", it->subject.nranks);
    wefti_json_int(json, "wrong", it->wrong);
    wefti_json_array_open(json, "samples_us");
    for (int i = 0; i < it->iterations; i++) {
        wefti_json_real(json, NULL, it->times_us[i]);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}

/* Measures all sizes; how many elements were wrong. */
static long long run(const wefti_perf_op *op, const char *sizes, int iterations,
                     wefti_json *json)
{
    long long wrong = 0;
    int rank, nranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    wefti_tile_make(&own, WEFT_DTYPE_F32, WEFT_REDOP_SUM, rank, nranks);
    for (const char *at = sizes; at; at = strchr(at, ',')) {
        at += *at == ',';
        point now = {.subject = {.op = op,
                                 .dtype = WEFT_DTYPE_F32,
                                 .redop = WEFT_REDOP_SUM,
                                 .rank = rank,
                                 .nranks = nranks,
                                 .inplace = op->kind == WEFTI_PERF_BROADCAST}};
        wefti_perf_case_size(&now.subject, (size_t)strtoull(at, NULL, 10));
        now.iterations = iterations
                             ? iterations
                             : wefti_sample_iterations(now.subject.bytes);
        measure(&now);
        wrong += now.wrong;
        if (rank == 0) {
            write_row(&now, json);
        }
        free(now.times_us);
        free(now.block);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, nranks, chars;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    MPI_Get_library_version(library, &chars);
    library[strcspn(library, ",\n")] = '\0';
    const wefti_perf_op *op = argc > 2 ? wefti_perf_op_get(argv[1]) : NULL;
    long iterations = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
    bool known = op && !wefti_perf_op_is_uneven(op) &&
                 !wefti_perf_op_puts(op) &&
                 op->kind != WEFTI_PERF_SENDRECV_LIST;
    if (!known || iterations < 0 || iterations > ITERATIONS_MOST) {
        give_up("usage: peers-mpi OP SIZE[,SIZE...] [ITERATIONS]");
    }
    find_line(rank, nranks);
    wefti_json json;
    wefti_json_init(&json, stdout);
    if (rank == 0) {
        wefti_json_object_open(&json, NULL);
        wefti_json_text(&json, "library", library);
        wefti_json_text(&json, "barrier", line ? "shared memory" : "MPI");
        wefti_json_array_open(&json, "rows");
    }
    long long wrong = run(op, argv[2], (int)iterations, &json);
    if (rank == 0) {
        wefti_json_array_close(&json);
        wefti_json_object_close(&json);
        if (wefti_json_fini(&json) != WEFT_OK) {
            give_up("stdout can not be written");
        }
    }
    wefti_startline_close(line);
    MPI_Finalize();
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
