// SPDX-License-Identifier: BSD-3-Clause
/*
 * What stream memory operations do: how a wait compares, at 32 and 64 bits,
 * with which flags, on which memory, and whether a write comes after the copy
 * before it. A wait that should hold is watched for HOLD_US and then released
 * by a value that ends it whatever it compares.
 */
#include "cu.h"

#include <string.h>

#define HOLD_US  2e4
#define DRAIN_US 2e6

struct word {
    CUdeviceptr at;
    CUstream waiter, writer;
};

static void write64(struct word *w, uint64_t value)
{
    CU(cuStreamWriteValue64(w->writer, w->at, value, 0));
    CU(cuStreamSynchronize(w->writer));
}

/* Whether a wait for WANT ends while the word holds HAS. */
static bool releases(struct word *w, int bits, uint64_t has, uint64_t want,
                     unsigned flags)
{
    write64(w, has);
    if (bits == 64)
        CU(cuStreamWaitValue64(w->waiter, w->at, want, flags));
    else
        CU(cuStreamWaitValue32(w->waiter, w->at, (cuuint32_t)want, flags));
    bool released = gpu_drained(w->waiter, HOLD_US);
    if (!released) {
        write64(w, want); /* ends >= and == */
        if (!gpu_drained(w->waiter, DRAIN_US))
            give_up("a wait for %#llx held after its very value was written",
                    (unsigned long long)want);
    }
    return released;
}

static void ask_wait(struct word *w, const char *name, int bits, uint64_t has,
                     uint64_t want, unsigned flags)
{
    char how[128];
    snprintf(how, sizeof(how), "%d bits, word %#llx, wait for %#llx, flags %#x",
             bits, (unsigned long long)has, (unsigned long long)want, flags);
    fact_text(name, how, "%s",
              releases(w, bits, has, want, flags) ? "released" : "holds");
}

static void ask_flag(struct word *w, const char *name, unsigned flags)
{
    write64(w, 7);
    CUresult result = cu.cuStreamWaitValue32(w->waiter, w->at, 7, flags);
    if (result == CUDA_SUCCESS && !gpu_drained(w->waiter, DRAIN_US))
        give_up("%s: the wait never ended", name);
    fact_text(name, "cuStreamWaitValue32 of the value there", "%s",
              result == CUDA_SUCCESS ? "accepted" : cu_name(result));
}

/* Is the last word of a copy there when the write after it is seen? */
static void ask_order(struct word *w)
{
    enum { ROUNDS = 20, BYTES = 64 << 20 };
    CUdeviceptr from = gpu_alloc(BYTES), to = gpu_alloc(BYTES);
    unsigned *seen = gpu_pinned(4, NULL);
    int right = 0;
    write64(w, 0);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        CU(cuMemcpyHtoD(from + BYTES - 4, &i, 4));
        CU(cuCtxSynchronize()); /* it returns early for such memory */
        CU(cuStreamWaitValue32(w->waiter, w->at, i, 0));
        CU(cuMemcpyDtoHAsync(seen, to + BYTES - 4, 4, w->waiter));
        CU(cuMemcpyDtoDAsync(to, from, BYTES, w->writer));
        CU(cuStreamWriteValue32(w->writer, w->at, i, 0));
        CU(cuStreamSynchronize(w->writer));
        CU(cuStreamSynchronize(w->waiter));
        right += *seen == i;
    }
    fact_text("write_after_copy", "copy of 64 MiB, write; wait, read its end",
              "%d of %d rounds saw the copy", right, ROUNDS);
}

static void ask_batch(struct word *w)
{
    CUstreamBatchMemOpParams ops[2];
    memset(ops, 0, sizeof(ops));
    ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    ops[0].writeValue.address = w->at;
    ops[0].writeValue.value64 = 1ull << 40;
    ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    ops[1].waitValue.address = w->at;
    ops[1].waitValue.value64 = 1ull << 40;
    CUresult result = cu.cuStreamBatchMemOp(w->waiter, 2, ops, 0);
    if (result != CUDA_SUCCESS)
        fact_text("batch_64_bit", "write, then wait for it", "%s",
                  cu_name(result));
    else
        fact_text("batch_64_bit", "write, then wait for it", "%s",
                  gpu_drained(w->waiter, DRAIN_US) ? "works" : "holds");
}

/* A wait on pinned host memory, released by a plain store of the host; and on
 * device memory, released by a kernel's store. */
static void ask_stores(struct word *w)
{
    CUdeviceptr view, out = gpu_alloc(64);
    unsigned *host = gpu_pinned(8, &view), value = 9;
    CU(cuStreamWaitValue32(w->waiter, view, 9, 0));
    bool held = !gpu_drained(w->waiter, HOLD_US);
    __atomic_store_n(host, 9, __ATOMIC_RELEASE);
    bool released = gpu_drained(w->waiter, DRAIN_US);
    fact_text("wait_on_pinned", "released by a plain store of the host",
              "%s before, %s after", held ? "holds" : "released",
              released ? "released" : "holds");
    write64(w, 0);
    gpu_kernel("mark"); /* loading it would wait for the stream */
    LAUNCH(w->writer, "mark", 1, 1, &out, &value, &out);
    CU(cuStreamSynchronize(w->writer));
    CU(cuStreamWaitValue32(w->waiter, w->at, 9, 0));
    LAUNCH(w->writer, "mark", 1, 1, &w->at, &value, &out);
    fact_text("wait_released_by_kernel", "a kernel's store and fence", "%s",
              gpu_drained(w->waiter, DRAIN_US) ? "released" : "holds");
}

void q_memops(int variant)
{
    (void)variant;
    gpu_open();
    struct word w = {gpu_alloc(8), gpu_stream(), gpu_stream()};
    unsigned eq = CU_STREAM_WAIT_VALUE_EQ;
    ask_wait(&w, "equal_value", 32, 5, 5, 0);
    ask_wait(&w, "greater_value", 32, 6, 5, 0);
    ask_wait(&w, "smaller_value", 32, 4, 5, 0);
    ask_wait(&w, "all_ones_for_five", 32, UINT32_MAX, 5, 0);
    ask_wait(&w, "wrapped_around", 32, 1, 0xfffffff0u, 0);
    ask_wait(&w, "equal_value_64", 64, 1ull << 40, 1ull << 40, 0);
    ask_wait(&w, "greater_value_64", 64, (1ull << 40) + 1, 1ull << 40, 0);
    ask_wait(&w, "smaller_high_half_64", 64, 1, 1ull << 32, 0);
    ask_wait(&w, "all_ones_for_five_64", 64, UINT64_MAX, 5, 0);
    ask_wait(&w, "wrapped_around_64", 64, 1, UINT64_MAX - 15, 0);
    ask_wait(&w, "eq_of_greater", 32, 6, 5, eq);
    ask_flag(&w, "flag_flush", CU_STREAM_WAIT_VALUE_FLUSH);
    ask_flag(&w, "flag_nor", CU_STREAM_WAIT_VALUE_NOR);
    ask_batch(&w);
    ask_stores(&w);
    ask_order(&w);
}
