/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: kernels of kernels/wire launched on a stream give the host's bits, in
 * the stream's order.
 * Method: the fake driver, which runs the very sources; random values, poisoned
 * results, the host's function beside each.
 */
#include "cuda_test.h"

#include "kernels/wire/launch.h"
#include "kernels/wire/pack.h"
#include "kernels/wire/reduce.h"

enum { ELEMS = 700, WIDE = 8, SOURCES = 5, PIECES = 3, ARRAYS = SOURCES + 2 };

typedef struct bench {
    weft_device *device;
    weft_stream *stream;
    char *memory[ARRAYS]; /* of the device, ELEMS * WIDE each */
    char *host[ARRAYS];   /* the same there, before */
} bench;

static bench open_bench(void)
{
    bench made = {.device = open_cuda(0)};
    CHECK(wefti_device_can(made.device, WEFT_CAP_LAUNCHES));
    made.stream = make_stream(made.device);
    for (size_t i = 0; i < ARRAYS; i++) {
        made.memory[i] =
            make_memory(made.device, WEFT_MEMORY_DEVICE, ELEMS * WIDE);
        made.host[i] = malloc(ELEMS * WIDE);
        fill(made.host[i], ELEMS * WIDE, 100 + i);
        for (size_t at = 0; at < ELEMS * WIDE; at++) {
            made.host[i][at] &= 0x3b; /* no NaN, no infinity, of no type */
        }
        CHECK_WEFT(weft_device_copy(made.device, made.memory[i], made.host[i],
                                    ELEMS * WIDE, made.stream));
    }
    return made;
}

static void close_bench(bench *closed)
{
    for (size_t i = 0; i < ARRAYS; i++) {
        weft_device_free(closed->device, closed->memory[i]);
        free(closed->host[i]);
    }
    weft_stream_destroy(closed->stream);
    close_cuda(closed->device);
}

static void run(bench *on, const char *kernel, const char *type,
                const void *args, size_t args_bytes)
{
    char name[64];
    snprintf(name, sizeof(name), "wefti_%s_%s", kernel, type);
    const wefti_launch launch = {.kernel = name,
                                 .blocks = 3,
                                 .threads = 64,
                                 .args = args,
                                 .args_bytes = args_bytes};
    CHECK_WEFT(wefti_stream_launch(on->stream, &launch));
}

static void compare(bench *on, const char *memory, const void *want,
                    size_t bytes)
{
    char *seen = malloc(bytes);
    CHECK_WEFT(weft_device_copy(on->device, seen, memory, bytes, on->stream));
    CHECK_WEFT(weft_stream_wait(on->stream));
    CHECK(memcmp(seen, want, bytes) == 0);
    free(seen);
}

static void check_type(bench *on, weft_dtype type)
{
    char *want = calloc(ELEMS, WIDE);
    const char *name = weft_dtype_text(type);
    const size_t bytes = ELEMS * weft_dtype_bytes(type);
    const void *sources[SOURCES];
    wefti_reduce_args reduce = {.dst = on->memory[SOURCES],
                                .elems = ELEMS,
                                .redop = WEFT_REDOP_SUM,
                                .source_count = SOURCES};
    for (size_t i = 0; i < SOURCES; i++) {
        sources[i] = on->host[i];
        reduce.sources[i] = on->memory[i];
    }
    run(on, "reduce", name, &reduce, sizeof(reduce));
    memset(&reduce, 0, sizeof(reduce)); /* it was copied */
    wefti_reduce(want, sources, SOURCES, ELEMS, type, WEFT_REDOP_SUM);
    compare(on, on->memory[SOURCES], want, bytes);
    const wefti_scale_args scale = {on->memory[SOURCES + 1], on->memory[0],
                                    on->memory[1], ELEMS};
    run(on, "scale", name, &scale, sizeof(scale));
    wefti_scale(want, on->host[0], on->host[1], ELEMS, type);
    compare(on, on->memory[SOURCES + 1], want, bytes);
    free(want);
}

static void check_types(void *arg)
{
    (void)arg;
    static const weft_dtype types[] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16,
                                       WEFT_DTYPE_F16, WEFT_DTYPE_I8,
                                       WEFT_DTYPE_U64, WEFT_DTYPE_F64};
    bench on = open_bench();
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        check_type(&on, types[i]);
    }
    close_bench(&on);
}

static void test_cuda_kernels_reduce_and_scale_as_the_host(void **state)
{
    (void)state;
    in_child(check_types, NULL, "WEFT_FAKE_GPU_DELAY", "10", NULL);
}

static void check_casts(void *arg)
{
    (void)arg;
    bench on = open_bench();
    float *want = calloc(ELEMS, sizeof(*want));
    const wefti_cast_args widen = {on.memory[SOURCES], on.memory[0], ELEMS, 0};
    const wefti_cast_args narrow = {on.memory[SOURCES + 1], on.memory[SOURCES],
                                    ELEMS, 0};
    run(&on, "widen", "bf16", &widen, sizeof(widen));
    run(&on, "narrow", "bf16", &narrow, sizeof(narrow));
    wefti_widen(want, on.host[0], ELEMS, WEFT_DTYPE_BF16);
    compare(&on, on.memory[SOURCES], want, 4 * ELEMS);
    compare(&on, on.memory[SOURCES + 1], on.host[0], 2 * ELEMS);
    free(want);
    close_bench(&on);
}

static void test_cuda_kernels_cast_as_the_host(void **state)
{
    (void)state;
    in_child(check_casts, NULL, NULL);
}

static void check_moves(void *arg)
{
    (void)arg;
    bench on = open_bench();
    char *want = calloc(1, ELEMS * WIDE);
    wefti_piece host[PIECES];
    wefti_piece *list =
        make_memory(on.device, WEFT_MEMORY_PINNED, sizeof(host));
    size_t offset = 0;
    for (size_t i = 0; i < PIECES; i++) {
        const size_t bytes = 300 + 7 * i;
        host[i] = (wefti_piece){on.host[i], offset, bytes};
        list[i] = (wefti_piece){on.memory[i], offset, bytes};
        offset += bytes;
    }
    const wefti_pack_args pack = {on.memory[SOURCES], list, PIECES};
    const wefti_copy_args copy = {on.memory[SOURCES + 1] + 1,
                                  on.memory[SOURCES], offset};
    run(&on, "pack", "bytes", &pack, sizeof(pack));
    run(&on, "copy", "bytes", &copy, sizeof(copy));
    wefti_pack(want, host, PIECES);
    compare(&on, on.memory[SOURCES + 1] + 1, want, offset);
    weft_device_free(on.device, list);
    free(want);
    close_bench(&on);
}

static void test_cuda_kernels_pack_and_copy_as_the_host(void **state)
{
    (void)state;
    in_child(check_moves, NULL, NULL);
}

/* Also on a stream with a part of the multiprocessors, a context of its own. */
static void check_part(void *arg)
{
    (void)arg;
    bench on = open_bench();
    weft_stream *all = on.stream;
    const weft_stream_config config = {.size_bytes = sizeof(config),
                                       .sm_budget = 16};
    const size_t bytes = 555;
    const wefti_copy_args copy = {on.memory[SOURCES], on.memory[0], bytes};
    CHECK_WEFT(weft_stream_wait(all));
    CHECK_WEFT(weft_stream_create_as(on.device, &config, &on.stream));
    CHECK(weft_stream_get_sms(on.stream) <= 16);
    run(&on, "copy", "bytes", &copy, sizeof(copy));
    compare(&on, on.memory[SOURCES], on.host[0], bytes);
    weft_stream_destroy(on.stream);
    on.stream = all;
    close_bench(&on);
}

static void test_cuda_kernels_run_on_a_part_of_the_gpu(void **state)
{
    (void)state;
    in_child(check_part, NULL, NULL);
}

/* Beside a stream that stands at a gate, which is raised only after. */
static void check_beside(void *arg)
{
    (void)arg;
    bench on = open_bench();
    const size_t bytes = 777;
    const wefti_copy_args copy = {on.memory[SOURCES], on.memory[0], bytes};
    weft_stream *stands = make_stream(on.device);
    weft_gate *gate = make_gate(on.device, 1);
    CHECK_WEFT(weft_stream_wait(on.stream));
    CHECK_WEFT(weft_gate_wait(gate, 0, 1, stands));
    run(&on, "copy", "bytes", &copy, sizeof(copy));
    compare(&on, on.memory[SOURCES], on.host[0], bytes);
    CHECK_WEFT(weft_gate_signal(gate, 0, 1, NULL));
    CHECK_WEFT(weft_stream_wait(stands));
    weft_stream_destroy(stands);
    weft_gate_destroy(gate);
    close_bench(&on);
}

static void test_cuda_kernels_first_launch_waits_for_no_stream(void **state)
{
    (void)state;
    in_child(check_beside, NULL, NULL);
}

/* Memory of another GPU of this process, which is asked for once or often. */
static void check_other(void *arg)
{
    (void)arg;
    if (!has_gpus(2)) {
        return;
    }
    bench on = open_bench();
    weft_device *other = open_cuda(1);
    weft_stream *its = make_stream(other);
    char *far = make_memory(other, WEFT_MEMORY_DEVICE, ELEMS);
    CHECK_WEFT(weft_device_copy(other, far, on.host[1], ELEMS, its));
    CHECK_WEFT(weft_stream_wait(its));
    CHECK_WEFT(wefti_device_reach(on.device, 0));
    CHECK_WEFT(wefti_device_reach(on.device, 1));
    CHECK_WEFT(wefti_device_reach(on.device, 1));
    const wefti_copy_args args = {on.memory[0], far, ELEMS};
    run(&on, "copy", "bytes", &args, sizeof(args));
    compare(&on, on.memory[0], on.host[1], ELEMS);
    weft_stream_destroy(its);
    weft_device_free(other, far);
    close_cuda(other);
    close_bench(&on);
}

static void check_no_other(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0), *other = open_cuda(1);
    CHECK(wefti_device_reach(device, 1) == WEFT_ERR_UNSUPPORTED);
    CHECK(strstr(weft_error_text(), "cuCtxEnablePeerAccess") != NULL);
    close_cuda(other);
    close_cuda(device);
}

static void test_cuda_kernels_reach_another_gpu(void **state)
{
    (void)state;
    in_child(check_other, NULL, "WEFT_FAKE_GPU_COUNT", "2", NULL);
    in_child(check_no_other, NULL, "WEFT_FAKE_GPU_COUNT", "2",
             "WEFT_FAKE_GPU_NO_PEER", "1", NULL);
}

#ifdef TEST_BUILT
/* The file that this build has made lies where it is looked for. */
static void check_built(void *arg)
{
    (void)arg;
    unsetenv("WEFT_KERNELS");
    check_moves(NULL);
}

static void test_cuda_kernels_of_the_build_are_found(void **state)
{
    (void)state;
    in_child(check_built, NULL, NULL);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_kernels_reduce_and_scale_as_the_host),
        cmocka_unit_test(test_cuda_kernels_cast_as_the_host),
        cmocka_unit_test(test_cuda_kernels_pack_and_copy_as_the_host),
        cmocka_unit_test(test_cuda_kernels_run_on_a_part_of_the_gpu),
        cmocka_unit_test(test_cuda_kernels_first_launch_waits_for_no_stream),
        cmocka_unit_test(test_cuda_kernels_reach_another_gpu),
#ifdef TEST_BUILT
        cmocka_unit_test(test_cuda_kernels_of_the_build_are_found),
#endif
    };
    return cmocka_run_group_tests(tests, set_kernels, NULL);
}
