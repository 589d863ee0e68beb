/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     in the backward of ring attention a rank computes a piece of its own
 *          keys before others' keys come, and one behind each sum that it
 *          passes on, before it asks for what comes next: that is on its way
 *          meanwhile. A step without exchange, as --measure takes for compute
 *          alone, computes as much: others' keys each once, own once.
 * Method   a job of three ranks as threads. Each writes a letter where a step
 *          asks a ring for the next block (n), computes a backward (a; of a
 *          block once, however many sequences) and passes a sum on (p). A layer
 *          has own, two blocks of others and two more pieces of own. Beside it
 *          backwards are counted, and queries times keys of them.
 */
#include "job.h"
#include "kernels/math/math_stream.h"
#include "overlap/ring.h"
#include "tests/seed.h"
#include "wrapped.h"

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

/* Backwards of a step. */
typedef struct backwards {
    size_t calls, pairs; /* pairs: queries times keys */
} backwards;
static _Thread_local backwards computed;
static backwards exchanging[RANKS], alone[RANKS]; /* of the last such step */

static void write_down(char letter)
{
    const bool again = letter == 'a' && letter_count > 0 &&
                       letters[letter_count - 1] == letter;
    if (in_step && !again && letter_count + 1 < LETTERS_MOST) {
        letters[letter_count++] = letter;
        letters[letter_count] = '\0';
    }
}

static void count_pairs(size_t pairs)
{
    write_down('a');
    computed.calls++;
    computed.pairs += pairs;
}

/* The linker sends all calls here (-Wl,--wrap). */
#define WRAP(name, seen, arguments, ...)                                       \
    weft_status __real_##name(__VA_ARGS__);                                    \
    weft_status __wrap_##name(__VA_ARGS__);                                    \
    weft_status __wrap_##name(__VA_ARGS__)                                     \
    {                                                                          \
        seen;                                                                  \
        return __real_##name arguments;                                        \
    }

WRAP(weft_ring_next, write_down('n'), (ring, compute, block_out, owner_out),
     weft_ring *ring, weft_stream *compute, void **block_out, int *owner_out)
WRAP(wefti_ring_pass_on, write_down('p'), (ring, compute), weft_ring *ring,
     weft_stream *compute)
WRAP(wefti_stream_attention_backward, count_pairs(q->rows * k->rows),
     (stream, dq, dk, dv, dout, q, k, v, o, lse, delta, heads, accumulate),
     weft_stream *stream, const wefti_math_tensor *dq,
     const wefti_math_tensor *dk, const wefti_math_tensor *dv,
     const wefti_math_tensor *dout, const wefti_math_tensor *q,
     const wefti_math_tensor *k, const wefti_math_tensor *v,
     const wefti_math_tensor *o, const wefti_math_tensor *lse,
     const wefti_math_tensor *delta, const wefti_math_heads *heads,
     bool accumulate)

weft_status __wrap_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out)
{
    const weft_bucket_mode mode = modes.pipe.links[WEFTI_LINK_CONTEXT];
    letter_count = 0;
    computed = (backwards){0};
    in_step = true;
    weft_status status =
        __real_wefti_train_step_run(replica, modes, times, result_out);
    in_step = false;
    const int rank = weft_comm_get_rank(replica->config.comm);
    memcpy(of_rank[rank], letters, sizeof(letters));
    if (computed.calls > 0) { /* not of transfers alone */
        *(mode == WEFT_BUCKET_OFF ? &alone[rank] : &exchanging[rank]) =
            computed;
    }
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
                      .settings = {"train.steps=1", "model.seq_length=144",
                                   "model.layers=1",
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

static void check_alone(const char *layout)
{
    const job what = {.nranks = RANKS,
                      .settings = {"train.steps=1", JOB_TOKENS(96, 48),
                                   "model.layers=1",
                                   "data.validation_fraction=0.2",
                                   "parallel.context_parallel_size=3", layout},
                      .measure = true};
    memset(exchanging, 0, sizeof(exchanging));
    memset(alone, 0, sizeof(alone));
    job_result result = job_run_well(&own, &what);
    job_result_fini(&result);
    for (int rank = 0; rank < RANKS; rank++) {
        printf("%s, rank %d: %zu and %zu backwards, %zu and %zu pairs\n",
               layout, rank, exchanging[rank].calls, alone[rank].calls,
               exchanging[rank].pairs, alone[rank].pairs);
        assert_true(exchanging[rank].calls > 0);
        assert_int_equal(alone[rank].calls, exchanging[rank].calls);
        assert_int_equal(alone[rank].pairs, exchanging[rank].pairs);
    }
}

static void test_without_exchange_as_much_is_computed(void **state)
{
    (void)state;
    check_alone("parallel.context_layout=contiguous");
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
        cmocka_unit_test(test_without_exchange_as_much_is_computed),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
