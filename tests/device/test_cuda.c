/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: memory, copies and gates of the cuda device keep what device/device.h
 * promises, and what is opened is given back.
 * Method: the fake driver, with its delays and orders by chance, under several
 * seeds; streams held up at gates so that things happen in a chosen order.
 */
#include "cuda_test.h"

#include "device/cuda_gpu.h"

static const char *const seeds[] = {"1", "2", "3", "4"};

enum { SEEDS = sizeof(seeds) / sizeof(seeds[0]) };

static void check_opened(void *arg)
{
    weft_device *one, *same, *none;
    (void)arg;
    int before = count_descriptors();
    for (int round = 0; round < 3; round++) {
        one = open_cuda(0);
        same = open_cuda(0);
        CHECK(wefti_device_is_same(one, same));
        CHECK(one->own == same->own);
        const uint32_t caps = weft_device_get_caps(one);
        CHECK(wefti_device_can(one, WEFT_CAP_TIMES | WEFT_CAP_IPC |
                                        WEFT_CAP_SM_BUDGET));
        CHECK(!(caps & (WEFT_CAP_NOTIFIES | WEFT_CAP_HOST_READS |
                        WEFT_CAP_HOST_CALLS)));
        CHECK_REFUSED(WEFT_ERR_INVALID, weft_device_open("cuda", 99, &none),
                      "index 99 of a cuda device: allowed is 0 to ");
        CHECK_REFUSED(WEFT_ERR_INVALID, weft_device_open("cuda", -1, &none),
                      "index -1");
        close_cuda(one);
        close_cuda(same);
        if (round == 0) {
            before = count_descriptors(); /* the fake keeps its arenas */
        }
    }
    /* What another driver keeps open is its own. */
    CHECK(is_system_driver() || count_descriptors() == before);
}

static void check_opened_beside(void *arg)
{
    (void)arg;
    if (has_gpus(2)) {
        weft_device *one = open_cuda(0), *other = open_cuda(1);
        CHECK(!wefti_device_is_same(one, other));
        CHECK(one->own != other->own);
        close_cuda(one);
        close_cuda(other);
    }
}

static void test_cuda_opened_twice_is_one_gpu(void **state)
{
    (void)state;
    in_child(check_opened, NULL, NULL);
    in_child(check_opened_beside, NULL, "WEFT_FAKE_GPU_COUNT", "2", NULL);
}

/* Memory of each kind, and of the host's own that is not pinned. */
typedef enum place { HOST, PINNED, DEVICE, EXPORTABLE, PLACES } place;

static void *get_place(weft_device *device, place where, size_t bytes)
{
    static const weft_memory_kind kinds[] = {[PINNED] = WEFT_MEMORY_PINNED,
                                             [DEVICE] = WEFT_MEMORY_DEVICE,
                                             [EXPORTABLE] =
                                                 WEFT_MEMORY_EXPORTABLE};
    return where == HOST ? malloc(bytes)
                         : make_memory(device, kinds[where], bytes);
}

static void put_place(weft_device *device, place where, void *memory)
{
    if (where == HOST) {
        free(memory);
    } else {
        weft_device_free(device, memory);
    }
}

/* Down the places: input -> first -> second -> output. */
static void carry(weft_device *device, place first, place second, size_t bytes,
                  weft_stream *stream)
{
    uint8_t *in = malloc(bytes), *out = malloc(bytes);
    char *one = get_place(device, first, bytes + 3);
    char *two = get_place(device, second, bytes + 3);
    fill(in, bytes, bytes + 10 * (size_t)first + (size_t)second);
    memset(out, 0xee, bytes);
    CHECK_WEFT(weft_device_copy(device, one + 3, in, bytes, stream));
    CHECK_WEFT(weft_device_copy(device, two + 1, one + 3, bytes, stream));
    CHECK_WEFT(weft_device_copy(device, out, two + 1, bytes, stream));
    if (stream) {
        CHECK_WEFT(weft_stream_wait(stream));
    }
    CHECK(memcmp(in, out, bytes) == 0);
    put_place(device, first, one);
    put_place(device, second, two);
    free(in);
    free(out);
}

static void check_carried(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    const size_t sizes[] = {1, 4097, (size_t)5 << 19};
    for (place first = HOST; first < PLACES; first++) {
        for (place second = HOST; second < PLACES; second++) {
            for (size_t s = 0; s < 3; s++) {
                carry(device, first, second, sizes[s], s % 2 ? NULL : stream);
            }
        }
    }
    weft_stream_destroy(stream);
    close_cuda(device);
}

static void test_cuda_copies_between_all_places_arrive(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        in_child(check_carried, NULL, "WEFT_FAKE_GPU_SEED", seeds[i],
                 "WEFT_FAKE_GPU_DELAY", "5", NULL);
    }
}

/* Copies with ordinary memory, posted while the stream stands at a gate that
 * only the poster raises. */
static void check_held(void *arg)
{
    (void)arg;
    enum { BYTES = 3 << 19 };
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    weft_gate *gate = make_gate(device, 1);
    char *in = calloc(1, BYTES), *out = calloc(1, BYTES);
    char *pinned = make_memory(device, WEFT_MEMORY_PINNED, BYTES);
    void *memory = make_memory(device, WEFT_MEMORY_DEVICE, BYTES);
    memset(pinned, 0, BYTES);
    CHECK_WEFT(weft_gate_wait(gate, 0, 1, stream));
    CHECK_WEFT(weft_device_copy(device, memory, in, BYTES, stream));
    CHECK_WEFT(weft_device_copy(device, pinned, memory, BYTES, stream));
    CHECK_WEFT(weft_device_copy(device, out, pinned, BYTES, stream));
    CHECK(!out[0]);
    fill(in, BYTES, 5); /* borrowed until the copy has run */
    CHECK_WEFT(weft_gate_signal(gate, 0, 1, NULL));
    CHECK_WEFT(weft_stream_wait(stream));
    CHECK(memcmp(in, out, BYTES) == 0);
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
    weft_device_free(device, memory);
    weft_device_free(device, pinned);
    free(in);
    free(out);
    close_cuda(device);
}

static void test_cuda_copies_of_ordinary_memory_do_not_block(void **state)
{
    (void)state;
    for (size_t i = 0; i < SEEDS; i++) {
        in_child(check_held, NULL, "WEFT_FAKE_GPU_SEED", seeds[i], NULL);
    }
}

static int (*free_host)(void *pointer);
static int freed;

static int count_free(void *pointer)
{
    freed++;
    return free_host(pointer);
}

/* The driver may wait for all that is queued before it takes pinned memory
 * back, so copies keep their buffers, however many were needed at a time. */
static void check_kept(void *arg)
{
    (void)arg;
    enum { COPIES = 40 };
    static char plain[COPIES][8];
    weft_device *device = open_cuda(0);
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    wefti_cuda_api api = *gpu->api;
    weft_stream *stream = make_stream(device);
    weft_gate *gate = make_gate(device, 1);
    char *memory = make_memory(device, WEFT_MEMORY_DEVICE, sizeof(plain));
    free_host = api.cuMemFreeHost;
    api.cuMemFreeHost = count_free;
    gpu->api = &api;
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        CHECK_WEFT(weft_gate_wait(gate, 0, epoch, stream));
        for (size_t i = 0; i < COPIES; i++) {
            CHECK_WEFT(
                weft_device_copy(device, memory + 8 * i, plain[i], 8, stream));
        }
        CHECK_WEFT(weft_gate_signal(gate, 0, epoch, NULL));
        CHECK_WEFT(weft_stream_wait(stream));
    }
    CHECK(freed == 0);
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
    weft_device_free(device, memory);
    close_cuda(device);
    CHECK(freed >= COPIES);
}

static void test_cuda_copies_keep_their_buffers(void **state)
{
    (void)state;
    in_child(check_kept, NULL, "WEFT_FAKE_GPU_DELAY", "5", NULL);
}

static void check_copies_refused(void *arg)
{
    (void)arg;
    if (!has_gpus(2)) {
        return;
    }
    weft_device *device = open_cuda(0), *other = open_cuda(1);
    char *memory = make_memory(device, WEFT_MEMORY_DEVICE, 100);
    char *theirs = make_memory(other, WEFT_MEMORY_DEVICE, 100);
    char bytes[200] = "peer", back[200] = "";
    weft_stream *stream = make_stream(other);
    CHECK_REFUSED(WEFT_ERR_INVALID,
                  weft_device_copy(device, memory + 1, bytes, 100, NULL),
                  "100 bytes of an allocation that has 99");
    CHECK_REFUSED(WEFT_ERR_INVALID,
                  weft_device_copy(device, memory, bytes, 4, stream),
                  "stream of cuda device 1");
    /* From GPU to GPU, through the host where they have no peer access. */
    CHECK_WEFT(weft_device_copy(device, memory, bytes, 100, NULL));
    CHECK_WEFT(weft_device_copy(other, theirs, memory, 100, stream));
    CHECK_WEFT(weft_device_copy(other, back, theirs, 100, stream));
    CHECK_WEFT(weft_stream_wait(stream));
    CHECK(strcmp(back, "peer") == 0);
    CHECK(!device->table->mem_free(device, theirs));
    CHECK(!device->table->mem_free(device, memory + 1));
    weft_stream_destroy(stream);
    weft_device_free(device, memory);
    weft_device_free(other, theirs);
    close_cuda(device);
    close_cuda(other);
}

static void test_cuda_copies_beyond_an_allocation_are_refused(void **state)
{
    (void)state;
    in_child(check_copies_refused, NULL, "WEFT_FAKE_GPU_COUNT", "2", NULL);
    in_child(check_copies_refused, NULL, "WEFT_FAKE_GPU_COUNT", "2",
             "WEFT_FAKE_GPU_NO_PEER", "1", NULL);
}

/* A chunk signalled behind its copy is there for all that waited for it: on the
 * host, and on another stream. */
static void check_signalled(void *arg)
{
    (void)arg;
    enum { CHUNKS = 24, BYTES = 20000 };
    weft_device *device = open_cuda(0);
    weft_stream *makes = make_stream(device), *takes = make_stream(device);
    weft_gate *ready = make_gate(device, CHUNKS), *begin = make_gate(device, 1);
    char *in = make_memory(device, WEFT_MEMORY_PINNED, CHUNKS * BYTES);
    char *out = make_memory(device, WEFT_MEMORY_PINNED, CHUNKS * BYTES);
    char *seen = make_memory(device, WEFT_MEMORY_PINNED, CHUNKS * BYTES);
    char *memory = make_memory(device, WEFT_MEMORY_DEVICE, CHUNKS * BYTES);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        fill(in, CHUNKS * BYTES, epoch);
        memset(out, 0, CHUNKS * BYTES);
        memset(seen, 0, CHUNKS * BYTES);
        CHECK_WEFT(weft_gate_wait(begin, 0, epoch, makes));
        for (size_t c = 0; c < CHUNKS; c++) {
            const size_t at = c * BYTES;
            CHECK_WEFT(
                weft_device_copy(device, memory + at, in + at, BYTES, makes));
            CHECK_WEFT(
                weft_device_copy(device, seen + at, memory + at, BYTES, makes));
            CHECK_WEFT(weft_gate_signal(ready, c, epoch, makes));
            CHECK_WEFT(weft_gate_wait(ready, c, epoch, takes));
            CHECK_WEFT(
                weft_device_copy(device, out + at, memory + at, BYTES, takes));
        }
        CHECK(weft_gate_test(ready, 0, epoch) == WEFT_INPROGRESS);
        CHECK_WEFT(weft_gate_signal(begin, 0, epoch, NULL));
        for (size_t c = 0; c < CHUNKS; c++) {
            CHECK_WEFT(weft_gate_wait(ready, c, epoch, NULL));
            CHECK(memcmp(seen + c * BYTES, in + c * BYTES, BYTES) == 0);
        }
        CHECK_WEFT(weft_stream_wait(takes));
        CHECK(memcmp(out, in, CHUNKS * BYTES) == 0);
    }
    weft_stream_destroy(makes);
    weft_stream_destroy(takes);
    weft_gate_destroy(ready);
    weft_gate_destroy(begin);
    weft_device_free(device, in);
    weft_device_free(device, out);
    weft_device_free(device, seen);
    weft_device_free(device, memory);
    close_cuda(device);
}

static void test_cuda_signals_come_behind_the_copies_before(void **state)
{
    (void)state;
    for (size_t i = 0; i < SEEDS; i++) {
        in_child(check_signalled, NULL, "WEFT_FAKE_GPU_SEED", seeds[i],
                 "WEFT_FAKE_GPU_DELAY", "20", NULL);
    }
    in_child(check_signalled, NULL, "WEFT_FAKE_GPU_MISSING",
             "cuStreamBatchMemOp", "WEFT_FAKE_GPU_DELAY", "20", NULL);
    in_child(check_signalled, NULL, "WEFT_FAKE_GPU_NO_FLUSH", "1",
             "WEFT_FAKE_GPU_DELAY", "20", NULL);
}

/* Waits are for an epoch or any later one; a wait for a later one stands. */
static void check_epochs(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    weft_gate *gate = make_gate(device, 3);
    wefti_stream_stand stand;
    CHECK_WEFT(weft_gate_signal(gate, 0, WEFT_EPOCH_MAX, NULL));
    CHECK_WEFT(weft_gate_wait(gate, 0, 5, stream)); /* long over */
    CHECK_WEFT(weft_gate_signal(gate, 1, 1, stream));
    CHECK_WEFT(weft_gate_wait(gate, 1, 1, NULL));
    CHECK_WEFT(weft_gate_wait(gate, 1, 7, stream));
    CHECK_WEFT(weft_gate_signal(gate, 2, 9, stream));
    CHECK_WEFT(weft_gate_signal(gate, 1, 6, NULL));
    CHECK(wefti_stream_get_stand(device, stream, &stand));
    CHECK(stand.gate == gate && stand.chunk == 1 && stand.epoch == 7);
    CHECK(weft_gate_test(gate, 2, 9) == WEFT_INPROGRESS);
    CHECK_WEFT(weft_gate_signal(gate, 1, 8, NULL));
    CHECK_WEFT(weft_gate_wait(gate, 2, 9, NULL));
    CHECK_WEFT(weft_stream_wait(stream));
    CHECK(!wefti_stream_get_stand(device, stream, &stand));
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
    close_cuda(device);
}

static void test_cuda_waits_compare_epochs_cyclically(void **state)
{
    (void)state;
    in_child(check_epochs, NULL, NULL);
}

/* What the driver is given, by a function of its table that looks on. */
static struct {
    int (*post)(CUstream stream, unsigned count, wefti_cuda_memop *operations,
                unsigned flags);
    wefti_cuda_memop last[WEFTI_MARKS_MOST + 1];
    unsigned count, batches;
} seen;

static int look_on(CUstream stream, unsigned count,
                   wefti_cuda_memop *operations, unsigned flags)
{
    CHECK(count <= WEFTI_MARKS_MOST + 1 && flags == 0);
    memcpy(seen.last, operations, count * sizeof(*operations));
    seen.count = count;
    seen.batches++;
    return seen.post(stream, count, operations, flags);
}

static void check_operation(unsigned at, CUstreamBatchMemOpType operation,
                            const _Atomic uint64_t *word, uint64_t value,
                            unsigned flags)
{
    CHECK(seen.last[at].value.operation == (int)operation);
    CHECK(seen.last[at].value.address == (uint64_t)(uintptr_t)word);
    CHECK(seen.last[at].value.value64 == value);
    CHECK(seen.last[at].value.flags == flags);
}

static void check_batch(void *arg)
{
    weft_device *device = open_cuda(0);
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    CHECK(is_system_driver() || gpu->flushes == (arg != NULL));
    const unsigned flush = gpu->flushes ? CU_STREAM_WAIT_VALUE_FLUSH : 0;
    wefti_cuda_api api = *gpu->api;
    weft_stream *stream = make_stream(device);
    const _Atomic uint64_t *passed =
        wefti_cuda_stream_of(stream)->holds->passed;
    weft_gate *gate = make_gate(device, 3);
    const wefti_mark marks[] = {
        {gate, 0, 4, false}, {gate, 1, 5, true}, {gate, 2, 6, false}};
    seen.post = api.cuStreamBatchMemOp;
    api.cuStreamBatchMemOp = look_on;
    gpu->api = &api;
    CHECK_WEFT(wefti_stream_mark(stream, marks, 3));
    CHECK(seen.batches == 1 && seen.count == 4);
    check_operation(0, CU_STREAM_MEM_OP_WRITE_VALUE_64, &gate->words[0], 4,
                    CU_STREAM_WRITE_VALUE_DEFAULT);
    check_operation(1, CU_STREAM_MEM_OP_WAIT_VALUE_64, &gate->words[1], 5,
                    CU_STREAM_WAIT_VALUE_GEQ | flush);
    check_operation(2, CU_STREAM_MEM_OP_WRITE_VALUE_64, &gate->words[2], 6,
                    CU_STREAM_WRITE_VALUE_DEFAULT);
    check_operation(3, CU_STREAM_MEM_OP_WRITE_VALUE_64, passed, 1,
                    CU_STREAM_WRITE_VALUE_DEFAULT);
    CHECK_WEFT(weft_gate_wait(gate, 0, 4, NULL));
    CHECK_STATUS(WEFT_INPROGRESS, weft_gate_test(gate, 2, 6));
    CHECK_WEFT(weft_gate_signal(gate, 1, 5, NULL));
    CHECK_WEFT(weft_gate_wait(gate, 2, 6, NULL));
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
    close_cuda(device);
}

/* Whether a wait flushes, and a store keeps its barrier, no emulation may be
 * hostile enough to show. */
static void test_cuda_marks_are_one_batch_with_barriers(void **state)
{
    char flushes[] = "flushes";
    (void)state;
    in_child(check_batch, flushes, NULL);
    in_child(check_batch, NULL, "WEFT_FAKE_GPU_NO_FLUSH", "1", NULL);
}

/* A gate that fails lets streams go, and they keep why. */
static void check_failed_gate(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device), *behind = make_stream(device);
    weft_gate *gate = make_gate(device, 2);
    CHECK_WEFT(weft_gate_wait(gate, 0, 1, behind));
    CHECK_WEFT(weft_gate_signal(gate, 1, 1, behind)); /* overwrites it */
    CHECK_WEFT(weft_gate_wait(gate, 1, 2, stream));
    wefti_gate_fail(gate, WEFT_ERR_ABORTED, "rank 3 has gone");
    CHECK_REFUSED(WEFT_ERR_ABORTED, weft_stream_wait(stream),
                  "rank 3 has gone");
    CHECK_REFUSED(WEFT_ERR_ABORTED, weft_stream_wait(behind),
                  "rank 3 has gone");
    CHECK_REFUSED(WEFT_ERR_ABORTED, weft_gate_wait(gate, 1, 1, NULL),
                  "rank 3 has gone");
    weft_stream_destroy(stream);
    weft_stream_destroy(behind);
    weft_gate_destroy(gate);
    close_cuda(device);
}

static void test_cuda_gate_that_fails_releases_streams(void **state)
{
    (void)state;
    for (size_t i = 0; i < SEEDS; i++) {
        in_child(check_failed_gate, NULL, "WEFT_FAKE_GPU_SEED", seeds[i], NULL);
    }
}

/* Small gates share pages; a large one has its own, which go back. */
static void check_words(void *arg)
{
    (void)arg;
    enum { GATES = 1000, LARGE = 20000 };
    static weft_gate *gates[GATES];
    weft_device *device = open_cuda(0);
    weft_pointer found = {.size_bytes = sizeof(found)};
    void *bases[GATES];
    size_t count = 0;
    for (size_t i = 0; i < GATES; i++) {
        gates[i] = make_gate(device, 1 + i % 3);
        CHECK((uintptr_t)gates[i]->words % 128 == 0);
        CHECK_WEFT(weft_device_query(device, gates[i]->words, &found));
        CHECK(found.kind == WEFT_MEMORY_PINNED);
        size_t b = 0;
        while (b < count && bases[b] != found.base) {
            b++;
        }
        bases[b] = found.base;
        count += b == count;
    }
    CHECK(count == 2); /* 512 gates a slab */
    for (size_t i = 0; i < GATES; i++) {
        weft_gate_destroy(gates[i]);
    }
    for (int round = 0; round < 2; round++) {
        weft_gate *large = make_gate(device, LARGE);
        const void *words = (void *)large->words;
        for (size_t c = 0; c < LARGE; c++) {
            CHECK(wefti_gate_get(large, c) == 0);
        }
        CHECK_WEFT(weft_gate_signal(large, LARGE - 1, 3, NULL));
        weft_gate_destroy(large);
        found = (weft_pointer){.size_bytes = sizeof(found)};
        CHECK_WEFT(weft_device_query(device, words, &found));
        CHECK(found.kind == WEFT_MEMORY_HOST);
    }
    close_cuda(device);
}

static void test_cuda_gates_share_pinned_pages(void **state)
{
    (void)state;
    in_child(check_words, NULL, NULL);
}

static void check_queried(void *arg)
{
    (void)arg;
    static char plain[8192];
    const int far = has_gpus(2) ? 1 : 0;
    weft_device *device = open_cuda(0);
    weft_device *second = open_cuda(far);
    weft_pointer found = {.size_bytes = sizeof(found)};
    CUcontext context;
    CHECK_WEFT(weft_device_query(device, plain, &found));
    CHECK(found.kind == WEFT_MEMORY_HOST && found.index == -1);
    CHECK(!wefti_device_owns(device, plain));
    /* Memory that weft has not made, of another GPU. */
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, far));
    CHECK_OK(cuCtxPushCurrent_v2(context));
    CUdeviceptr foreign = new_memory(1000);
    CHECK_OK(cuCtxPopCurrent_v2(NULL));
    char *pointer = (char *)(uintptr_t)foreign;
    CHECK_WEFT(weft_device_query(device, pointer + 10, &found));
    CHECK(found.kind == WEFT_MEMORY_DEVICE && found.index == far);
    CHECK(found.base == pointer && found.bytes >= 1000 && found.id != 0);
    CHECK(wefti_device_owns(device, pointer));
    CHECK(!second->table->mem_free(second, pointer));
    char *exported = make_memory(device, WEFT_MEMORY_EXPORTABLE, 10);
    CHECK_WEFT(weft_device_query(device, exported, &found));
    CHECK(found.kind == WEFT_MEMORY_EXPORTABLE && found.index == 0);
    CHECK_WEFT(weft_device_register(device, plain, sizeof(plain)));
    CHECK_REFUSED(WEFT_ERR_INVALID,
                  weft_device_register(device, plain, sizeof(plain)),
                  "ALREADY_REGISTERED");
    CHECK_WEFT(weft_device_query(device, plain + 5000, &found));
    CHECK(found.kind == WEFT_MEMORY_PINNED);
    weft_device_unregister(device, plain);
    CHECK_WEFT(weft_device_query(device, plain, &found));
    CHECK(found.kind == WEFT_MEMORY_HOST);
    weft_device_free(device, exported);
    close_cuda(device);
    close_cuda(second);
}

static void test_cuda_query_knows_pointers_of_any_origin(void **state)
{
    (void)state;
    in_child(check_queried, NULL, "WEFT_FAKE_GPU_COUNT", "2", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_opened_twice_is_one_gpu),
        cmocka_unit_test(test_cuda_copies_between_all_places_arrive),
        cmocka_unit_test(test_cuda_copies_of_ordinary_memory_do_not_block),
        cmocka_unit_test(test_cuda_copies_keep_their_buffers),
        cmocka_unit_test(test_cuda_copies_beyond_an_allocation_are_refused),
        cmocka_unit_test(test_cuda_signals_come_behind_the_copies_before),
        cmocka_unit_test(test_cuda_waits_compare_epochs_cyclically),
        cmocka_unit_test(test_cuda_marks_are_one_batch_with_barriers),
        cmocka_unit_test(test_cuda_gate_that_fails_releases_streams),
        cmocka_unit_test(test_cuda_gates_share_pinned_pages),
        cmocka_unit_test(test_cuda_query_knows_pointers_of_any_origin),
    };
    return cmocka_run_group_tests(tests, set_kernels, NULL);
}
