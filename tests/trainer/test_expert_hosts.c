/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     With moe.node_limit a token's experts are on that many hosts at
 *          most, as a job finds its hosts, also where experts move; without,
 *          some token's are on more. Where hosts do not have equal parts of the
 *          experts, that is refused.
 * Method   Ranks as threads that WEFT_DOMAIN parts into hosts. The linker sends
 *          the trainer's weft_moe_dispatch here, where the hosts of each token
 *          are counted in the table that is dispatched, by the exchange's own
 *          knowledge of who is where; losses are those of one rank.
 */
#include "overlap/moe_core.h"
#include "tests/trainer/job.h"
#include "tests/trainer/wrapped.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static scratch own;
static atomic_int most_hosts, hops;
static atomic_size_t tokens_seen;
static const char *placing[2]; /* settings of jobs on several ranks */

static int count_hosts(const wefti_moe_layout *layout, const int32_t *expert)
{
    int count = 0;
    for (int slot = 0; slot < layout->slots; slot++) {
        const int host = layout->nodes[wefti_moe_owner(layout, expert[slot])];
        bool is_new = true;
        for (int before = 0; before < slot; before++) {
            const int owner = wefti_moe_owner(layout, expert[before]);
            is_new = is_new && layout->nodes[owner] != host;
        }
        count += is_new;
    }
    return count;
}

weft_status __wrap_weft_moe_dispatch(weft_moe *moe, const void *x,
                                     const int32_t *expert, const float *weight,
                                     size_t tokens, weft_stream *stream,
                                     weft_moe_batch *batch_out)
{
    const wefti_moe_layout *layout = &moe->layout;
    for (size_t token = 0; token < tokens; token++) {
        const int count =
            count_hosts(layout, expert + token * (size_t)layout->slots);
        int most = atomic_load(&most_hosts);
        while (count > most &&
               !atomic_compare_exchange_weak(&most_hosts, &most, count)) {
        }
    }
    atomic_fetch_add(&tokens_seen, tokens);
    atomic_store(&hops, layout->hops);
    return __real_weft_moe_dispatch(moe, x, expert, weight, tokens, stream,
                                    batch_out);
}

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, 20260102);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

/* domains: NULL: one rank. */
static job_result run(const char *domains, const char *limit, const char *nodes)
{
    const job what = {
        .nranks = domains ? 4 : 1,
        .settings = {"model.experts=8", "model.experts_per_token=3",
                     "model.ffn_size=64",
                     job_is_sanitized() ? "train.steps=3" : "train.steps=6",
                     "train.global_batch_size=16", limit, nodes,
                     domains ? "parallel.expert_model_parallel_size=4" : NULL,
                     domains ? placing[0] : NULL, placing[1]}};
    atomic_store(&most_hosts, 0);
    atomic_store(&tokens_seen, 0);
    assert_int_equal(domains ? setenv("WEFT_DOMAIN", domains, 1)
                             : unsetenv("WEFT_DOMAIN"),
                     0);
    job_result result = job_run(&own, &what);
    assert_int_equal(unsetenv("WEFT_DOMAIN"), 0);
    return result;
}

static void expect_losses(const job_result *got, const job_result *want)
{
    assert_int_equal(got->status, WEFT_OK);
    assert_int_equal(got->steps, want->steps);
    for (size_t i = 0; i < want->steps; i++) {
        assert_true(fabs(got->loss[i] - want->loss[i]) < 1e-5 * want->loss[i]);
    }
}

/* nodes: the same number, which one rank cannot know. */
static void check_limit(const char *domains, const char *limit,
                        const char *nodes, int most)
{
    job_result alone = run(NULL, limit, nodes);
    job_result apart = run(domains, limit, "moe.nodes=0");
    if (apart.status != WEFT_OK) {
        fail_msg("%s, %s: %s", domains, limit, apart.error);
    }
    expect_losses(&apart, &alone);
    assert_true(atomic_load(&tokens_seen) > 0);
    assert_int_equal(atomic_load(&most_hosts), most);
    job_result_fini(&alone);
    job_result_fini(&apart);
}

static void test_expert_hosts_of_a_token_are_as_few_as_wanted(void **state)
{
    (void)state;
    check_limit("a,a,b,b", "moe.node_limit=0", "moe.nodes=0", 2);
    check_limit("a,a,b,b", "moe.node_limit=1", "moe.nodes=2", 1);
    assert_int_equal(atomic_load(&hops), 2);
    check_limit("a,b,c,d", "moe.node_limit=0", "moe.nodes=0", 3);
    check_limit("a,b,c,d", "moe.node_limit=2", "moe.nodes=4", 2);
    assert_int_equal(atomic_load(&hops), 1);
}

/* With replicas and without; hosts' parts stay together, before too. */
static void test_expert_hosts_stay_as_few_where_experts_move(void **state)
{
    (void)state;
    placing[0] = "moe.place_every=2";
    check_limit("a,a,b,b", "moe.node_limit=1", "moe.nodes=2", 1);
    placing[1] = "moe.redundant=4";
    check_limit("a,a,b,b", "moe.node_limit=1", "moe.nodes=2", 1);
    check_limit("a,b,c,d", "moe.node_limit=2", "moe.nodes=4", 2);
    placing[0] = placing[1] = NULL;
}

/* Parts that are smaller than hosts limit all the more. */
static void test_expert_hosts_may_have_several_parts(void **state)
{
    (void)state;
    job_result alone = run(NULL, "moe.node_limit=2", "moe.nodes=4");
    job_result apart = run("a,a,b,b", "moe.node_limit=2", "moe.nodes=4");
    expect_losses(&apart, &alone);
    job_result_fini(&alone);
    job_result_fini(&apart);
}

static void check_refused(const char *domains, const char *limit,
                          const char *nodes, const char *text)
{
    job_result result = run(domains, limit, nodes);
    assert_int_equal(result.status, WEFT_ERR_INVALID);
    if (!strstr(result.error, text)) {
        fail_msg("%s: no \"%s\"", result.error, text);
    }
    job_result_fini(&result);
}

static void test_expert_hosts_of_unequal_parts_are_refused(void **state)
{
    (void)state;
    check_refused("a,b,b,b", "moe.node_limit=1", "moe.nodes=0",
                  "one is on ranks 0 and 1");
    check_refused("a,a,b,b", "moe.node_limit=1", "moe.nodes=1",
                  "one is on ranks 0 and 2");
    check_refused("a,b,c,d", "moe.node_limit=1", "moe.nodes=0",
                  "hosts with 2 experts each are too few for "
                  "model.experts_per_token 3; allowed is 0, or 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expert_hosts_of_a_token_are_as_few_as_wanted),
        cmocka_unit_test(test_expert_hosts_stay_as_few_where_experts_move),
        cmocka_unit_test(test_expert_hosts_may_have_several_parts),
        cmocka_unit_test(test_expert_hosts_of_unequal_parts_are_refused),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
