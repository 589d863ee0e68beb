/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     in the backward of ring attention a rank computes a piece of its own
 *          keys before others' keys come, and one behind each sum that it
 *          passes on, before it asks for what comes next: that is on its way
 *          meanwhile.
 * Method   a job of three ranks as threads. Each writes a letter where a step
 *          asks a ring for the next block (n), computes a backward (a; of a
 *          block once, however many sequences) and passes a sum on (p). A layer
 *          has own, two blocks of others and two more pieces of own.
 */
#include "job.h"
#include "kernels/math/math_stream.h"
#include "overlap/ring.h"
#include "tests/seed.h"
#include "trainer/train_step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LETTERS_MOST = 4096, RANKS = 3 };

static scratch own;
static _Thread_local char letters[LETTERS_MOST];
static _Thread_local size_t letter_count;
static _Thread_local bool in_step;
static char of_rank[RANKS][LETTERS_MOST]; /* of the last step */

static void write_down(char letter)
{
    const bool again = letter == 'a' && letter_count > 0 &&
                       letters[letter_count - 1] == letter;
    if (in_step && !again && letter_count + 1 < LETTERS_MOST) {
        letters[letter_count++] = letter;
        letters[letter_count] = '\0';
    }
}

/* The linker sends all calls here (-Wl,--wrap). */
#define WRAP(name, letter, arguments, ...)                                     \
    weft_status __real_##name(__VA_ARGS__);                                    \
    weft_status __wrap_##name(__VA_ARGS__);                                    \
    weft_status __wrap_##name(__VA_ARGS__)                                     \
    {                                                                          \
        write_down(letter);                                                    \
        return __real_##name arguments;                                        \
    }

WRAP(weft_ring_next, 'n', (ring, compute, block_out, owner_out),
     weft_ring *ring, weft_stream *compute, void **block_out, int *owner_out)
WRAP(wefti_ring_pass_on, 'p', (ring, compute), weft_ring *ring,
     weft_stream *compute)
WRAP(wefti_stream_attention_backward, 'a',
     (stream, dq, dk, dv, dout, q, k, v, o, lse, delta, heads, accumulate),
     weft_stream *stream, const wefti_math_tensor *dq,
     const wefti_math_tensor *dk, const wefti_math_tensor *dv,
     const wefti_math_tensor *dout, const wefti_math_tensor *q,
     const wefti_math_tensor *k, const wefti_math_tensor *v,
     const wefti_math_tensor *o, const wefti_math_tensor *lse,
     const wefti_math_tensor *delta, const wefti_math_heads *heads,
     bool accumulate)

weft_status __real_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out);
weft_status __wrap_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out);
weft_status __wrap_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out)
{
    letter_count = 0;
    in_step = true;
    weft_status status =
        __real_wefti_train_step_run(replica, modes, times, result_out);
    in_step = false;
    memcpy(of_rank[weft_comm_get_rank(replica->config.comm)], letters,
           sizeof(letters));
    return status;
}

static size_t count(const char *in, const char *what)
{
    size_t found = 0;
    for (const char *at = in; (at = strstr(at, what)); at += strlen(what)) {
        found++;
    }
    return found;
}

static void check(const char *layout)
{
    const job what = {.nranks = RANKS,
                      .settings = {"train.steps=1", "model.seq_length=288",
                                   "data.validation_fraction=0.2",
                                   "parallel.context_parallel_size=3", layout}};
    memset(of_rank, 0, sizeof(of_rank));
    job_result result = job_run_well(&own, &what);
    job_result_fini(&result);
    for (int rank = 0; rank < RANKS; rank++) {
        const char *seen = of_rank[rank];
        const size_t layers = count(seen, "nannapannapann");
        printf("%s, rank %d: %s\n", layout, rank, seen);
        assert_true(layers > 0);
        assert_int_equal(count(seen, "p"), 2 * layers);
        assert_int_equal(count(seen, "a"), 5 * layers);
    }
}

static void test_own_keys_are_computed_while_sums_travel(void **state)
{
    (void)state;
    check("parallel.context_layout=zigzag");
    check("parallel.context_layout=stripe");
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
        cmocka_unit_test(test_own_keys_are_computed_while_sums_travel),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
