/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_nccl_work.c - one group, carried out by a worker: what this
 * rank gives goes to its area, what others give is read from theirs.
 *
 * Sends are put out first, so that no order of sends and receives in a group
 * makes it wait for itself. Ranks whose calls do not go together wait for ever.
 */
#include "tests/fake/fake_nccl.h"
#include "tests/kernels/reduce_reference.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const weft_dtype types[] = {[WEFTI_NCCL_INT8] = WEFT_DTYPE_I8,
                                   [WEFTI_NCCL_UINT8] = WEFT_DTYPE_U8,
                                   [WEFTI_NCCL_INT32] = WEFT_DTYPE_I32,
                                   [WEFTI_NCCL_UINT32] = WEFT_DTYPE_U32,
                                   [WEFTI_NCCL_INT64] = WEFT_DTYPE_I64,
                                   [WEFTI_NCCL_UINT64] = WEFT_DTYPE_U64,
                                   [WEFTI_NCCL_FLOAT16] = WEFT_DTYPE_F16,
                                   [WEFTI_NCCL_FLOAT32] = WEFT_DTYPE_F32,
                                   [WEFTI_NCCL_FLOAT64] = WEFT_DTYPE_F64,
                                   [WEFTI_NCCL_BFLOAT16] = WEFT_DTYPE_BF16,
                                   [WEFTI_NCCL_FLOAT8E4M3] = WEFT_DTYPE_F8E4M3,
                                   [WEFTI_NCCL_FLOAT8E5M2] = WEFT_DTYPE_F8E5M2};

size_t nccl_elem_bytes(int dtype)
{
    return weft_dtype_bytes(types[dtype]);
}

bool nccl_work_await(struct ncclComm *comm, _Atomic uint64_t *at,
                     uint64_t value)
{
    struct timespec pause = {.tv_nsec = 20000}; /* to half a millisecond */
    while (atomic_load(at) < value) {
        if (atomic_load(&comm->aborting)) {
            return false;
        }
        (void)nanosleep(&pause, NULL);
        pause.tv_nsec += pause.tv_nsec < 500000 ? pause.tv_nsec / 8 : 0;
    }
    return !atomic_load(&comm->aborting);
}

static bool hang(struct ncclComm *comm)
{
    _Atomic uint64_t never = 0;
    return nccl_work_await(comm, &never, 1);
}

static bool copy(struct ncclComm *comm, void *dst, const void *src,
                 size_t bytes)
{
    return bytes == 0 || (cuMemcpyAsync((CUdeviceptr)(uintptr_t)dst,
                                        (CUdeviceptr)(uintptr_t)src, bytes,
                                        comm->copies) == CUDA_SUCCESS &&
                          cuStreamSynchronize(comm->copies) == CUDA_SUCCESS);
}

/* ---- arithmetic -----------------------------------------------------------
 */

static bool is_float(weft_dtype dtype)
{
    return weft_dtype_kind(dtype) == WEFT_KIND_FLOAT;
}

static bool is_signed(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_I8 || dtype == WEFT_DTYPE_I32 ||
           dtype == WEFT_DTYPE_I64;
}

/* An integer, its sign in all bits. */
static uint64_t load(const unsigned char *at, weft_dtype dtype)
{
    const size_t bytes = weft_dtype_bytes(dtype);
    uint64_t value = 0;
    memcpy(&value, at, bytes);
    const uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    return is_signed(dtype) ? (value ^ sign) - sign : value;
}

static bool is_less(uint64_t a, uint64_t b, weft_dtype dtype)
{
    return is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t combine(uint64_t a, uint64_t b, int op, weft_dtype dtype)
{
    switch (op) {
    case WEFTI_NCCL_PROD:
        return a * b;
    case WEFTI_NCCL_MAX:
        return is_less(a, b, dtype) ? b : a;
    case WEFTI_NCCL_MIN:
        return is_less(b, a, dtype) ? b : a;
    default:
        return a + b;
    }
}

static double combine_real(double a, double b, int op)
{
    switch (op) {
    case WEFTI_NCCL_PROD:
        return a * b;
    case WEFTI_NCCL_MAX:
        return a < b ? b : a;
    case WEFTI_NCCL_MIN:
        return b < a ? b : a;
    default:
        return a + b;
    }
}

/* Each rank's element at the same place of its area. */
typedef struct column {
    const struct ncclComm *comm;
    const nccl_call *call;
    size_t at;
} column;

static const unsigned char *element(const column *own, int rank)
{
    const struct ncclComm *comm = own->comm;
    return nccl_job_area(comm, rank) + comm->job->shares[rank].offset + own->at;
}

static void reduce_real(const column *own, weft_dtype dtype, unsigned char *out)
{
    const struct ncclComm *comm = own->comm;
    const int op = own->call->op, n = comm->nranks;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const int rank = (i + (int)(comm->collectives % (uint64_t)n)) % n;
        double value = reference_value(element(own, rank), dtype);
        if (op == WEFTI_NCCL_AVG || comm->job->shares[rank].call.scales) {
            unsigned char scaled[8]; /* before the sum, in the type */
            const double by =
                op == WEFTI_NCCL_AVG
                    ? 1.0 / n
                    : reference_value(comm->job->shares[rank].call.scale,
                                      dtype);
            reference_store(scaled, value * by, dtype);
            value = reference_value(scaled, dtype);
        }
        sum = i ? combine_real(sum, value, op) : value;
    }
    reference_store(out, sum, dtype);
}

static void reduce_integer(const column *own, weft_dtype dtype,
                           unsigned char *out)
{
    const struct ncclComm *comm = own->comm;
    const int op = own->call->op;
    uint64_t sum = 0;
    for (int rank = 0; rank < comm->nranks; rank++) {
        const nccl_share *share = &comm->job->shares[rank];
        uint64_t value = load(element(own, rank), dtype);
        if (share->call.scales) {
            value *= load(share->call.scale, dtype);
        }
        sum = rank ? combine(sum, value, op, dtype) : value;
    }
    memcpy(out, &sum, weft_dtype_bytes(dtype));
    if (op == WEFTI_NCCL_AVG) {
        sum = load(out, dtype);
        sum = is_signed(dtype) ? (uint64_t)((int64_t)sum / comm->nranks)
                               : sum / (uint64_t)comm->nranks;
        memcpy(out, &sum, weft_dtype_bytes(dtype));
    }
}

/* count elements from first of what all ranks gave. */
static void reduce(const struct ncclComm *comm, const nccl_call *call,
                   size_t first, unsigned char *out)
{
    const weft_dtype dtype = types[call->dtype];
    const size_t bytes = weft_dtype_bytes(dtype);
    for (size_t i = 0; i < call->count; i++) {
        const column own = {comm, call, (first + i) * bytes};
        if (is_float(dtype)) {
            reduce_real(&own, dtype, out + i * bytes);
        } else {
            reduce_integer(&own, dtype, out + i * bytes);
        }
    }
}

/* ---- collectives ----------------------------------------------------------
 */

static size_t given_bytes(const struct ncclComm *comm, const nccl_call *call)
{
    const size_t bytes = call->count * nccl_elem_bytes(call->dtype);
    return call->kind == NCCL_REDUCE_SCATTER ? bytes * (size_t)comm->nranks
           : call->kind == NCCL_BROADCAST && comm->rank != call->peer ? 0
                                                                      : bytes;
}

static bool goes_with(const nccl_call *one, const nccl_call *other)
{
    return one->kind == other->kind && one->count == other->count &&
           one->dtype == other->dtype && one->op == other->op &&
           one->peer == other->peer;
}

/* What this rank gets, from the areas; into memory that is freed. */
static unsigned char *produce(const struct ncclComm *comm,
                              const nccl_call *call, size_t *bytes_out)
{
    const size_t part = call->count * nccl_elem_bytes(call->dtype);
    const size_t ranks = (size_t)comm->nranks, own = (size_t)comm->rank;
    const bool root = comm->rank == call->peer;
    *bytes_out = call->kind == NCCL_ALL_GATHER        ? ranks * part
                 : call->kind == NCCL_REDUCE && !root ? 0
                                                      : part;
    unsigned char *made = malloc(*bytes_out + 1);
    if (call->kind == NCCL_BROADCAST) {
        memcpy(made,
               nccl_job_area(comm, call->peer) +
                   comm->job->shares[call->peer].offset,
               part);
    } else if (call->kind == NCCL_ALL_GATHER) {
        for (int rank = 0; rank < comm->nranks; rank++) {
            memcpy(made + (size_t)rank * part,
                   nccl_job_area(comm, rank) + comm->job->shares[rank].offset,
                   part);
        }
    } else if (*bytes_out) {
        reduce(comm, call,
               call->kind == NCCL_REDUCE_SCATTER ? own * call->count : 0, made);
    }
    return made;
}

static bool run_collective(struct ncclComm *comm, const nccl_call *call,
                           size_t *used, bool wrong)
{
    nccl_share *own = &comm->job->shares[comm->rank];
    const uint64_t number = ++comm->collectives;
    const size_t bytes = given_bytes(comm, call);
    if (*used + bytes > NCCL_AREA_BYTES ||
        !copy(comm, nccl_job_area(comm, comm->rank) + *used, call->send,
              bytes)) {
        return hang(comm);
    }
    own->call = *call;
    own->offset = *used;
    *used += (bytes + 63) / 64 * 64;
    atomic_store(&own->posted, number);
    for (int rank = 0; rank < comm->nranks; rank++) {
        nccl_share *theirs = &comm->job->shares[rank];
        if (!nccl_work_await(comm, &theirs->posted, number) ||
            (!goes_with(call, &theirs->call) && !hang(comm))) {
            return false;
        }
    }
    size_t made_bytes;
    unsigned char *made = produce(comm, call, &made_bytes);
    if (wrong && made_bytes) {
        made[0] ^= 1;
    }
    const bool copied = copy(comm, call->recv, made, made_bytes);
    free(made);
    atomic_store(&own->left, number);
    for (int rank = 0; rank < comm->nranks && copied; rank++) {
        if (!nccl_work_await(comm, &comm->job->shares[rank].left, number)) {
            return false;
        }
    }
    return copied || hang(comm);
}

/* ---- sends and receives ---------------------------------------------------
 */

static bool post_send(struct ncclComm *comm, const nccl_call *call,
                      size_t *used)
{
    nccl_box *box = &comm->job->boxes[comm->rank][call->peer];
    const size_t bytes = call->count * nccl_elem_bytes(call->dtype);
    const uint64_t number = atomic_load(&box->posted);
    if (*used + bytes > NCCL_AREA_BYTES ||
        number - atomic_load(&box->taken) == NCCL_SENDS ||
        !copy(comm, nccl_job_area(comm, comm->rank) + *used, call->send,
              bytes)) {
        return hang(comm);
    }
    box->offset[number % NCCL_SENDS] = *used;
    box->bytes[number % NCCL_SENDS] = bytes;
    *used += (bytes + 63) / 64 * 64;
    atomic_fetch_add(&box->posted, 1);
    return true;
}

/* A byte that is wrong is the first of the message. */
static bool take(struct ncclComm *comm, const nccl_call *call, bool wrong)
{
    nccl_box *box = &comm->job->boxes[call->peer][comm->rank];
    const size_t bytes = call->count * nccl_elem_bytes(call->dtype);
    const uint64_t number = atomic_load(&box->taken);
    if (!nccl_work_await(comm, &box->posted, number + 1)) {
        return false;
    }
    unsigned char *from =
        nccl_job_area(comm, call->peer) + box->offset[number % NCCL_SENDS];
    from[0] ^= wrong;
    if (box->bytes[number % NCCL_SENDS] != bytes ||
        !copy(comm, call->recv, from, bytes)) {
        return hang(comm);
    }
    atomic_fetch_add(&box->taken, 1);
    return true;
}

static bool await_taken(struct ncclComm *comm, const nccl_call *call)
{
    nccl_box *box = &comm->job->boxes[comm->rank][call->peer];
    return nccl_work_await(comm, &box->taken, atomic_load(&box->posted));
}

static bool is_fault(const struct ncclComm *comm, const nccl_group *group,
                     const char *kind)
{
    const nccl_fault *fault = &comm->fault;
    return strcmp(fault->kind, kind) == 0 && fault->at == group->number &&
           (fault->rank < 0 || fault->rank == comm->rank);
}

bool nccl_work_run(struct ncclComm *comm, const nccl_group *group)
{
    size_t used = 0;
    bool well = true;
    if (is_fault(comm, group, "error")) {
        atomic_store(&comm->error, WEFTI_NCCL_REMOTE_ERROR);
        return hang(comm);
    }
    if (is_fault(comm, group, "hang")) {
        return hang(comm);
    }
    const bool wrong = is_fault(comm, group, "wrong");
    for (size_t i = 0; i < group->count && well; i++) {
        if (group->calls[i].kind == NCCL_SEND) {
            well = post_send(comm, &group->calls[i], &used);
        }
    }
    for (size_t i = 0; i < group->count && well; i++) {
        if (group->calls[i].kind == NCCL_RECV) {
            well = take(comm, &group->calls[i], wrong);
        } else if (group->calls[i].kind != NCCL_SEND) {
            well = run_collective(comm, &group->calls[i], &used, wrong);
        }
    }
    for (size_t i = 0; i < group->count && well; i++) {
        if (group->calls[i].kind == NCCL_SEND) {
            well = await_taken(comm, &group->calls[i]);
        }
    }
    return well;
}
