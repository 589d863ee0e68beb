/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a rank that computes on a device waits for it, or for the other
 *          ranks, at most once a step, whatever the layout; what it has come to
 *          is the host's, to the bit, and a step that diverges ends all ranks.
 * Method   whole jobs on the shadow device, their ranks as threads: every call
 *          of the public interface that can hold up the host is counted while
 *          a step runs. Parameters, losses and norms against a job on the host.
 */
#include "job.h"
#include "tests/seed.h"
#include "tests/trainer/wrapped.h"
#include "trainer/train_step.h"
#include "weft/op.h"
#include "weft/p2p.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static scratch own;

/* ---- what is counted ------------------------------------------------------
 */

static _Thread_local bool in_step;
static _Thread_local int waits;
static atomic_int steps, waits_most;

static void count(bool blocks)
{
    waits += in_step && blocks;
}

/* The linker sends all calls here (-Wl,--wrap). */
#define WRAP(name, blocks, arguments, ...)                                     \
    weft_status __real_##name(__VA_ARGS__);                                    \
    weft_status __wrap_##name(__VA_ARGS__);                                    \
    weft_status __wrap_##name(__VA_ARGS__)                                     \
    {                                                                          \
        count(blocks);                                                         \
        return __real_##name arguments;                                        \
    }

WRAP(weft_stream_wait, true, (stream), weft_stream *stream)
WRAP(weft_event_wait, !stream, (event, stream), weft_event *event,
     weft_stream *stream)
WRAP(weft_gate_wait, !stream, (gate, chunk, epoch, stream), weft_gate *gate,
     size_t chunk, uint64_t epoch, weft_stream *stream)
WRAP(weft_device_copy, !stream, (device, dst, src, bytes, stream),
     weft_device *device, void *dst, const void *src, size_t bytes,
     weft_stream *stream)
WRAP(weft_op_post, !stream, (op, epoch, comm, stream), const weft_op *op,
     uint64_t epoch, weft_comm *comm, weft_stream *stream)
WRAP(weft_p2p_post, !stream, (list, length, comm, stream), const weft_p2p *list,
     size_t length, weft_comm *comm, weft_stream *stream)

weft_status __wrap_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out)
{
    waits = 0;
    in_step = true;
    weft_status status =
        __real_wefti_train_step_run(replica, modes, times, result_out);
    in_step = false;
    atomic_fetch_add(&steps, 1);
    int most = atomic_load(&waits_most);
    while (waits > most &&
           !atomic_compare_exchange_weak(&waits_most, &most, waits)) {
    }
    return status;
}

/* ---- jobs -----------------------------------------------------------------
 */

static job_result run(int nranks, const char *device,
                      const char *const settings[4])
{
    job what = {.nranks = nranks, .settings = {"train.steps=4", device}};
    memcpy(what.settings + 2, settings, 4 * sizeof(*settings));
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%d ranks, %s: %s", nranks, device, result.error);
    }
    return result;
}

static void check(int nranks, const char *const settings[4])
{
    job_result wanted = run(nranks, "train.device=host", settings);
    atomic_store(&steps, 0);
    atomic_store(&waits_most, 0);
    job_result got = run(nranks, "train.device=shadow", settings);
    assert_int_equal(atomic_load(&steps), 4 * nranks);
    assert_int_equal(atomic_load(&waits_most), 1);
    assert_int_equal(got.steps, 4);
    assert_memory_equal(got.loss, wanted.loss, sizeof(got.loss));
    assert_memory_equal(got.grad_norm, wanted.grad_norm, sizeof(got.grad_norm));
    assert_int_equal(got.parameter_count, wanted.parameter_count);
    assert_memory_equal(got.parameters, wanted.parameters,
                        got.parameter_count * sizeof(real));
    job_result_fini(&got);
    job_result_fini(&wanted);
}

static void test_step_one_rank_waits_once(void **state)
{
    (void)state;
    check(1, (const char *const[4]){NULL});
}

static void test_step_copies_wait_once(void **state)
{
    (void)state;
    check(2, (const char *const[4]){NULL});
    check(2, (const char *const[4]){"overlap.grad_reduce=false",
                                    "overlap.param_gather=false"});
}

static void test_step_pipelines_wait_once(void **state)
{
    (void)state;
    check(2, (const char *const[4]){"parallel.pipeline_model_parallel_size=2",
                                    "parallel.schedule=1f1b"});
    if (!job_is_slow()) {
        check(4,
              (const char *const[4]){"parallel.pipeline_model_parallel_size=2",
                                     "parallel.schedule=1f1b"});
    }
}

/* The update, and what gathers it, are under way by then. */
static void test_step_diverged_ends_all_ranks(void **state)
{
    (void)state;
    job what = {
        .nranks = 2,
        .settings = {"train.steps=40", "train.lr=100", "train.device=shadow"}};
    job_result result = job_run(&own, &what);
    assert_int_equal(result.status, WEFT_ERR_INVALID);
    assert_non_null(strstr(result.error, "has diverged"));
    job_result_fini(&result);
}

static int prepare(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, random_seed());
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_one_rank_waits_once),
        cmocka_unit_test(test_step_copies_wait_once),
        cmocka_unit_test(test_step_pipelines_wait_once),
        cmocka_unit_test(test_step_diverged_ends_all_ranks),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
