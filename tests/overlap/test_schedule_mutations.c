/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: no broken schedule passes the checker.
 *
 * Method: random schedules with messages, and one mutation each: messages
 * swapped, dropped, sent before they are made, received after their use,
 * actions doubled, dropped, renamed, put before what they need. Each must be
 * refused, by the rule that the mutation breaks.
 */
#include "tests/overlap/schedules.h"

/* A random action of one of two types; its rank and index. */
static bool pick(weft_schedule *schedule, uint64_t *seed, weft_action_type one,
                 weft_action_type two, int *rank, size_t *index)
{
    for (int attempt = 0; attempt < 2000; attempt++) {
        *rank = (int)below(seed, (size_t)schedule->ranks);
        const wefti_actions *list = &schedule->lists[*rank];
        *index = below(seed, list->count);
        uint8_t type = list->items[*index].type;
        if (type == one || type == two) {
            return true;
        }
    }
    return false;
}

/* Two messages of one ordered pair of ranks change places on one side. */
static bool swap_messages(weft_schedule *schedule, uint64_t *seed)
{
    int rank;
    size_t a;
    if (!pick(schedule, seed, WEFT_ACTION_SEND_F, WEFT_ACTION_RECV_B, &rank,
              &a)) {
        return false;
    }
    wefti_actions *list = &schedule->lists[rank];
    wefti_edge first = wefti_edge_of_message(schedule, &list->items[a]);
    for (size_t b = a + 1; b < list->count; b++) {
        wefti_edge second = wefti_edge_of_message(schedule, &list->items[b]);
        if (second.exists && second.from_rank == first.from_rank &&
            second.to_rank == first.to_rank) {
            weft_action kept = list->items[a];
            list->items[a] = list->items[b];
            list->items[b] = kept;
            return true;
        }
    }
    return false;
}

static bool drop_message(weft_schedule *schedule, uint64_t *seed)
{
    int rank;
    size_t k;
    bool recv = below(seed, 2) == 0;
    if (!pick(schedule, seed, recv ? WEFT_ACTION_RECV_F : WEFT_ACTION_SEND_F,
              recv ? WEFT_ACTION_RECV_B : WEFT_ACTION_SEND_B, &rank, &k)) {
        return false;
    }
    drop_action(&schedule->lists[rank], k);
    return true;
}

static bool double_action(weft_schedule *schedule, uint64_t *seed)
{
    int rank = (int)below(seed, (size_t)schedule->ranks);
    wefti_actions *list = &schedule->lists[rank];
    wefti_actions_add(list, list->items[below(seed, list->count)]);
    return true;
}

static bool drop_compute(weft_schedule *schedule, uint64_t *seed)
{
    int rank;
    size_t k;
    if (!pick(schedule, seed, WEFT_ACTION_F, WEFT_ACTION_W, &rank, &k)) {
        return false;
    }
    drop_action(&schedule->lists[rank], k);
    return true;
}

/* A receive behind its use. */
static bool receive_late(weft_schedule *schedule, uint64_t *seed)
{
    int rank;
    size_t k;
    if (!pick(schedule, seed, WEFT_ACTION_RECV_F, WEFT_ACTION_RECV_F, &rank,
              &k)) {
        return false;
    }
    wefti_actions *list = &schedule->lists[rank];
    move_action(list, k, list->count - 1);
    return true;
}

/* A send before what it sends. */
static bool send_early(weft_schedule *schedule, uint64_t *seed)
{
    int rank;
    size_t k;
    if (!pick(schedule, seed, WEFT_ACTION_SEND_F, WEFT_ACTION_SEND_B, &rank,
              &k)) {
        return false;
    }
    move_action(&schedule->lists[rank], k, 0);
    return true;
}

/* W before its I, or a backward before its F. */
static bool compute_early(weft_schedule *schedule, uint64_t *seed)
{
    int rank;
    size_t k;
    if (!pick(schedule, seed, WEFT_ACTION_W, WEFT_ACTION_B, &rank, &k)) {
        return false;
    }
    wefti_actions *list = &schedule->lists[rank];
    weft_action late = list->items[k];
    bool full = late.type == WEFT_ACTION_B;
    for (size_t f = 0; f < list->count && full; f++) {
        if (list->items[f].type == WEFT_ACTION_FB) {
            return false; /* its F may be in a pair */
        }
    }
    size_t to = find_action(list, full ? WEFT_ACTION_F : WEFT_ACTION_I,
                            late.stage, late.microbatch);
    move_action(list, k, to);
    return true;
}

/* An action that names the wrong micro-batch. */
static bool rename_action(weft_schedule *schedule, uint64_t *seed)
{
    int rank = (int)below(seed, (size_t)schedule->ranks);
    wefti_actions *list = &schedule->lists[rank];
    weft_action *action = &list->items[below(seed, list->count)];
    action->microbatch = (action->microbatch + 1) % schedule->per_stage;
    return schedule->per_stage > 1;
}

typedef struct mutation {
    const char *name;
    bool (*mutate)(weft_schedule *schedule, uint64_t *seed);
    int rules[3]; /* any of them */
} mutation;

static const mutation mutations[] = {
    {"swap messages", swap_messages, {WEFT_RULE_FIFO}},
    {"drop a message", drop_message, {WEFT_RULE_COMPLETE}},
    {"an action twice", double_action, {WEFT_RULE_COMPLETE}},
    {"drop a compute action", drop_compute, {WEFT_RULE_COMPLETE}},
    {"receive late", receive_late, {WEFT_RULE_ORDER}},
    {"send early", send_early, {WEFT_RULE_ORDER}},
    {"compute early", compute_early, {WEFT_RULE_ORDER}},
    {"wrong micro-batch", rename_action, {WEFT_RULE_COMPLETE}},
};
enum { MUTATIONS = 8 };

static weft_schedule *make_random(uint64_t *seed)
{
    int n = (int)below(seed, NAMES);
    int ranks = 2 + (int)below(seed, 5);
    ranks += n == DUALPIPE ? ranks % 2 : 0;
    int microbatches = 2 * ranks + 2 * (int)below(seed, 6);
    microbatches -= n == INTERLEAVED ? microbatches % ranks : 0;
    return make_lowered(names[n], ranks, microbatches, WEFT_LOWERING_SENDER);
}

static void try_mutation(const mutation *m, uint64_t *seed)
{
    weft_schedule *schedule = make_random(seed);
    if (m->mutate(schedule, seed)) {
        weft_verdict verdict =
            check_schedule(schedule, WEFT_SEMANTICS_RENDEZVOUS, 0);
        bool named = false;
        for (int k = 0; k < 3; k++) {
            named = named || (m->rules[k] != 0 &&
                              has_rule(&verdict, (weft_rule)m->rules[k]));
        }
        if (verdict.valid || !named) {
            fail_msg("%s in %s, P=%d, m=%d: %s", m->name, schedule->name,
                     schedule->ranks, schedule->per_stage,
                     verdict.valid ? "not seen" : verdict.findings[0].text);
        }
        weft_verdict_fini(&verdict);
    }
    weft_schedule_destroy(schedule);
}

static void test_check_mutated_schedules_are_refused(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    int rounds = getenv("WEFT_TEST_LONG") ? 5000 : 150;
    for (int round = 0; round < rounds; round++) {
        for (int m = 0; m < MUTATIONS; m++) {
            try_mutation(&mutations[m], &seed);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_mutated_schedules_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
