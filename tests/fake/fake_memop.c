/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_memop.c - values that a stream writes to memory or waits for
 * there (cuStreamWriteValue32 and its like).
 *
 * Memory is the device's own, a peer's that it may access, or pinned memory of
 * the host; any other address is INVALID_VALUE. A wait is for a cyclic
 * greater-or-equal unless its flags say EQ, AND or NOR.
 *
 * Of remote writes that have arrived before the value, only a wait with FLUSH
 * makes sure that the stream sees them (CU_STREAM_WAIT_VALUE_FLUSH); those of
 * fake_copy.c may then still be under way.
 */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_OPERATIONS = 255 };

static bool is_wide(const fake_value_params *value)
{
    return value->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
           value->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static bool is_wait(const fake_value_params *value)
{
    return value->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
           value->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32;
}

static bool is_met(const void *at, const fake_value_params *value)
{
    bool wide = is_wide(value);
    uint64_t want = wide ? value->value64 : value->value;
    uint64_t have =
        wide ? __atomic_load_n((const uint64_t *)at, __ATOMIC_SEQ_CST)
             : __atomic_load_n((const uint32_t *)at, __ATOMIC_SEQ_CST);
    uint64_t unset = wide ? ~(have | want) : (uint32_t) ~(have | want);
    switch (value->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return wide ? (int64_t)(have - want) >= 0
                    : (int32_t)((uint32_t)have - (uint32_t)want) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return have == want;
    case CU_STREAM_WAIT_VALUE_AND:
        return (have & want) != 0;
    default:
        return unset != 0;
    }
}

static void await(const void *at, const fake_value_params *value)
{
    uint64_t backoff_ns = 0;
    pthread_mutex_lock(&fake.lock);
    while (!is_met(at, value) && fake.dying == CUDA_SUCCESS) {
        fake_wait_locked(&backoff_ns);
    }
    pthread_mutex_unlock(&fake.lock);
}

static void write_value(void *at, const fake_value_params *value)
{
    if (is_wide(value)) {
        __atomic_store_n((uint64_t *)at, value->value64, __ATOMIC_SEQ_CST);
    } else {
        __atomic_store_n((uint32_t *)at, value->value, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_lock(&fake.lock);
    pthread_cond_broadcast(&fake.progress);
    pthread_mutex_unlock(&fake.lock);
}

static CUresult run_values(CUstream stream, fake_work *work)
{
    int here = stream->context->ordinal;
    for (unsigned i = 0; i < work->value_count; i++) {
        const fake_value_params *value = &work->values[i].waitValue;
        fake_range *range = NULL;
        if (value->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES) {
            fake_stream_land_on(here);
            continue;
        }
        void *at = fake_range_use(here, value->address, is_wide(value) ? 8 : 4,
                                  false, "memory operation", &range);
        if (!at) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        if (is_wait(value)) {
            await(at, value);
            if (value->flags & CU_STREAM_WAIT_VALUE_FLUSH) {
                fake_stream_land_on(here);
            }
        } else {
            write_value(at, value);
        }
        fake_range_done(range);
    }
    return CUDA_SUCCESS;
}

static CUresult check_value(const fake_value_params *value, int ordinal)
{
    const fake_settings *settings = fake_get_settings();
    if (value->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES) {
        return settings->no_flush ? CUDA_ERROR_NOT_SUPPORTED
               : value->flags     ? CUDA_ERROR_INVALID_VALUE
                                  : CUDA_SUCCESS;
    }
    unsigned flush = value->flags & CU_STREAM_WAIT_VALUE_FLUSH;
    unsigned most = is_wait(value) ? 3 : 1;
    size_t bytes = is_wide(value) ? 8 : 4;
    if (value->operation < 1 || value->operation > 5 ||
        (flush && !is_wait(value)) || value->flags - flush > most ||
        value->address % bytes != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((flush && settings->no_flush) ||
        (bytes == 8 && settings->no_waits_64)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    pthread_mutex_lock(&fake.lock);
    const fake_range *range = fake_range_find(value->address, bytes);
    bool good = range && fake_range_reachable(range, ordinal);
    pthread_mutex_unlock(&fake.lock);
    if (!good) {
        fake_say("memory operation: device %d cannot reach %#llx", ordinal,
                 value->address);
    }
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult submit(CUstream stream, const CUstreamBatchMemOpParams *params,
                       unsigned count)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&fake.lock);
    int ordinal = fake_stream_is(stream) ? stream->context->ordinal : -1;
    pthread_mutex_unlock(&fake.lock);
    if (ordinal < 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = check_value(&params[i].waitValue, ordinal);
    }
    if (result != CUDA_SUCCESS || count == 0) {
        return result;
    }
    fake_work work = {.run = run_values, .value_count = count};
    work.values = malloc(count * sizeof(*params));
    if (!work.values) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(work.values, params, count * sizeof(*params));
    CUstreamBatchMemOpType first = params[0].operation;
    work.writes_value = first == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                        first == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    return fake_stream_submit(stream, &work);
}

/* cuStreamBatchMemOp: in the order of the array, fewer than 256; flags is
 * reserved. */
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count,
                               CUstreamBatchMemOpParams *params, unsigned flags)
{
    if (count > MOST_OPERATIONS || (count && !params) || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return submit(stream, params, count);
}

static CUresult submit_one(CUstream stream, CUstreamBatchMemOpType operation,
                           CUdeviceptr at, uint64_t value, unsigned flags)
{
    CUstreamBatchMemOpParams params = {
        .waitValue = {.operation = operation, .address = at, .flags = flags}};
    params.waitValue.value64 = value; /* its lower half is the other's */
    return submit(stream, &params, 1);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at,
                                 uint32_t value, unsigned flags)
{
    return submit_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, at, value,
                      flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr at,
                                 uint64_t value, unsigned flags)
{
    return submit_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, at, value,
                      flags);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value,
                                unsigned flags)
{
    return submit_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, at, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr at, uint64_t value,
                                unsigned flags)
{
    return submit_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, at, value, flags);
}
