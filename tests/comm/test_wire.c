/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a message between hosts changes what it says and nothing else, and one
 * that cannot be right is refused: releases in the spare words of all kinds,
 * whether a release is awaited, paths and numbers at their limits.
 * Method: messages made by hand are held against a view, and applied to it.
 */
#include "comm/net/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { RANKS = 2, OWN = 0, PEER = 1, POSTED = 9, COMPLETED = 20 };
enum { CELLS = WEFTI_ALL_SLOTS * WEFTI_CHANNELS };

typedef struct scene {
    wefti_shared shared;
    wefti_shared_header header;
    unsigned char *regions[RANKS];
    int places[RANKS];
    wefti_inbound *inbound;
    uint64_t posted[CELLS], taken[CELLS], awaited[CELLS];
    wefti_wire_view view;
} scene;

static int open_scene(void **state)
{
    static scene all;
    memset(&all, 0, sizeof(all));
    all.shared.layout = wefti_layout_plan(RANKS, 1);
    all.shared.header = &all.header;
    all.shared.regions = all.regions;
    all.shared.places = all.places;
    all.places[PEER] = -1; /* a mirror */
    all.inbound = wefti_inbound_create(RANKS);
    assert_non_null(all.inbound);
    for (int rank = 0; rank < RANKS; rank++) {
        all.regions[rank] =
            mmap(NULL, all.shared.layout.region_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(all.regions[rank] != MAP_FAILED);
    }
    for (int i = 0; i < CELLS; i++) {
        all.posted[i] = POSTED;
    }
    all.view = (wefti_wire_view){.shared = &all.shared,
                                 .inbound = all.inbound,
                                 .rank = OWN,
                                 .completed = COMPLETED,
                                 .posted = all.posted,
                                 .taken = all.taken,
                                 .awaited = all.awaited};
    *state = &all;
    return 0;
}

static int close_scene(void **state)
{
    scene *all = *state;
    wefti_inbound_destroy(all->inbound);
    for (int rank = 0; rank < RANKS; rank++) {
        munmap(all->regions[rank], all->shared.layout.region_bytes);
    }
    return 0;
}

/* One that is right, of each kind but BYE, which is of no communicator. */
static wefti_wire make(wefti_wire_kind kind)
{
    wefti_wire wire = {.version = WEFTI_WIRE_VERSION,
                       .kind = (uint16_t)kind,
                       .from = PEER,
                       .completed = COMPLETED};
    if (kind == WEFTI_WIRE_ENTRY || kind == WEFTI_WIRE_ENTERED) {
        wire.words[0] = COMPLETED + 1;
    } else if (kind == WEFTI_WIRE_MESSAGE) {
        wire.words[0] = wefti_wire_pack_path(3, 1, false);
        wire.words[1] = 1;
    } else if (kind == WEFTI_WIRE_LEFT) {
        wire.words[0] = WEFTI_LEAVE_WELL;
    }
    return wire;
}

static bool is_right(const scene *all, const wefti_wire *wire)
{
    return wefti_wire_check(wire, 0, &all->view);
}

static void apply(const scene *all, const wefti_wire *wire)
{
    assert_true(is_right(all, wire));
    assert_true(wefti_wire_apply(wire, NULL, 0, &all->view, 0, 1));
}

static uint64_t consumed(const scene *all, int op_slot, int channel)
{
    return atomic_load(
        wefti_shared_get_consumed(&all->shared, PEER, OWN, op_slot, channel));
}

static uint64_t sum_of_consumed(const scene *all)
{
    uint64_t sum = 0;
    for (int op_slot = 0; op_slot < WEFTI_ALL_SLOTS; op_slot++) {
        for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
            sum += consumed(all, op_slot, channel);
        }
    }
    return sum;
}

static void test_spare_words_of_all_kinds_release(void **state)
{
    scene *all = *state;
    uint64_t value = 0;
    for (int kind = WEFTI_WIRE_ENTRY; kind < WEFTI_WIRE_BYE; kind++) {
        wefti_wire wire = make((wefti_wire_kind)kind);
        const int first = wefti_wire_first_release((wefti_wire_kind)kind);
        apply(all, &wire);
        const uint64_t before = sum_of_consumed(all);
        assert_true(before == value);
        for (int word = first; word < WEFTI_WIRE_WORDS; word++) {
            wire = make((wefti_wire_kind)kind);
            wire.words[word] = wefti_wire_pack_release(
                WEFTI_ALL_SLOTS - 1, WEFTI_CHANNELS - 1, ++value);
            assert_true(value <= POSTED * CELLS);
            all->posted[CELLS - 1] = value;
            apply(all, &wire);
            assert_true(consumed(all, WEFTI_ALL_SLOTS - 1,
                                 WEFTI_CHANNELS - 1) == value);
            assert_true(sum_of_consumed(all) == value);
        }
    }
    /* Entries, messages, what is completed, entered and observed, and
     * farewells. */
    assert_true(value == 3 + 3 + 9 + 4 + 9 + 8);
}

static void test_several_releases_in_one_message(void **state)
{
    scene *all = *state;
    wefti_wire wire = make(WEFTI_WIRE_COMPLETED);
    for (int i = 0; i < WEFTI_WIRE_WORDS; i++) {
        wire.words[i] =
            wefti_wire_pack_release(i, i % WEFTI_CHANNELS, (uint64_t)i + 1);
    }
    apply(all, &wire);
    for (int i = 0; i < WEFTI_WIRE_WORDS; i++) {
        assert_true(consumed(all, i, i % WEFTI_CHANNELS) == (uint64_t)i + 1);
    }
    /* One that was overtaken, by few or many, lowers nothing. */
    for (int i = 0; i < 2; i++) {
        wire = make(WEFTI_WIRE_COMPLETED);
        wire.words[0] = wefti_wire_pack_release(8, 0, 2);
        apply(all, &wire);
        assert_true(consumed(all, 8, 0) == 9);
        all->posted[8 * WEFTI_CHANNELS] = 9 + 64 * WEFTI_DEPTH;
    }
}

static void test_wrong_releases_are_refused_in_all_kinds(void **state)
{
    scene *all = *state;
    const uint64_t wrong[] = {
        wefti_wire_pack_release(0, 0, POSTED + 1),
        wefti_wire_pack_release(WEFTI_ALL_SLOTS, 0, 1),
        wefti_wire_pack_release(0, WEFTI_CHANNELS, 1),
        wefti_wire_pack_release(255, 255, 0),
        UINT64_MAX,
    };
    for (int kind = WEFTI_WIRE_ENTRY; kind < WEFTI_WIRE_BYE; kind++) {
        const int first = wefti_wire_first_release((wefti_wire_kind)kind);
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
            for (int word = first; word < WEFTI_WIRE_WORDS; word++) {
                wefti_wire wire = make((wefti_wire_kind)kind);
                assert_true(is_right(all, &wire));
                wire.words[word] = wrong[i];
                assert_false(is_right(all, &wire));
            }
        }
    }
}

static void test_waiting_has_no_spare_words(void **state)
{
    scene *all = *state;
    wefti_wire wire = make(WEFTI_WIRE_WAITING);
    for (int i = 0; i < WEFTI_WIRE_WORDS; i++) {
        wire.words[i] = wefti_wire_pack_release(1, 1, 5);
    }
    apply(all, &wire);
    assert_true(sum_of_consumed(all) == 0);
}

static void test_awaited_releases_are_remembered(void **state)
{
    scene *all = *state;
    const size_t cell = 3 * WEFTI_CHANNELS + 1;
    static const struct {
        uint64_t sequence, last;
        bool awaited;
    } cases[] = {{1, 0, false},
                 {2, 2, true},
                 {3, 2, false},
                 {5, 5, true},
                 {4, 5, true}}; /* this one was overtaken */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        wefti_wire wire = make(WEFTI_WIRE_MESSAGE);
        wire.words[0] = wefti_wire_pack_path(3, 1, cases[i].awaited);
        wire.words[1] = cases[i].sequence;
        apply(all, &wire);
        assert_true(all->awaited[cell] == cases[i].last);
    }
}

static void test_wrong_paths_are_refused(void **state)
{
    scene *all = *state;
    const uint64_t wrong[] = {wefti_wire_pack_path(WEFTI_ALL_SLOTS, 0, false),
                              wefti_wire_pack_path(0, WEFTI_CHANNELS, true),
                              wefti_wire_pack_path(3, 1, false) | 2 << 16,
                              UINT64_MAX};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        wefti_wire wire = make(WEFTI_WIRE_MESSAGE);
        wire.words[0] = wrong[i];
        assert_false(is_right(all, &wire));
    }
}

/* Queue 0 has two channels, the second for one-sided memory; others one. */
static void test_message_of_a_queue_needs_its_channel(void **state)
{
    const scene *all = *state;
    for (int queue = 0; queue <= WEFT_P2P_QUEUES; queue++) {
        for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
            wefti_wire wire = make(WEFTI_WIRE_MESSAGE);
            const bool right = queue < WEFT_P2P_QUEUES &&
                               (channel == 0 || (queue == 0 && channel == 1));
            wire.words[0] =
                wefti_wire_pack_path(WEFTI_OP_SLOT_P2P + queue, channel, false);
            assert_int_equal(is_right(all, &wire), right);
            assert_false(wefti_wire_check(&wire, WEFTI_P2P_REMOTE_BYTES + 1,
                                          &all->view));
        }
    }
}

/* The message that make(MESSAGE) announces. */
static wefti_arrival *get_arrival(const scene *all)
{
    return wefti_shared_get_arrival(&all->shared, PEER, 3, 1, 1);
}

static void test_message_goes_where_it_is_wanted_if_it_fits(void **state)
{
    const scene *all = *state;
    const wefti_wire wire = make(WEFTI_WIRE_MESSAGE);
    unsigned char memory[64], *other;
    wefti_inbound_offer(get_arrival(all), 1, memory, sizeof(memory));
    assert_ptr_equal(wefti_wire_place(&wire, sizeof(memory), &all->view),
                     memory);
    assert_true(wefti_wire_check(&wire, sizeof(memory), &all->view));
    assert_false(wefti_wire_check(&wire, sizeof(memory) - 1, &all->view));
    wefti_inbound_let_go(all->inbound, PEER, get_arrival(all));
    assert_int_equal(wefti_inbound_count_bytes(all->inbound), 0);

    wefti_inbound_offer(get_arrival(all), 1, memory, sizeof(memory));
    assert_true(wefti_wire_check(&wire, sizeof(memory) + 1, &all->view));
    other = wefti_wire_place(&wire, sizeof(memory) + 1, &all->view);
    assert_ptr_not_equal(other, memory);
    wefti_inbound_offer(get_arrival(all), 1, memory, sizeof(memory) + 1);
    assert_ptr_equal(wefti_wire_place(&wire, sizeof(memory) + 1, &all->view),
                     other); /* it has begun */
}

static void test_message_leaves_memory_that_is_withdrawn(void **state)
{
    const scene *all = *state;
    const wefti_wire wire = make(WEFTI_WIRE_MESSAGE);
    unsigned char memory[64];
    for (int begun = 0; begun < 2; begun++) {
        wefti_inbound_offer(get_arrival(all), 1, memory, sizeof(memory));
        if (begun) {
            assert_ptr_equal(
                wefti_wire_place(&wire, sizeof(memory), &all->view), memory);
        }
        wefti_inbound_withdraw(all->inbound, PEER, get_arrival(all));
        assert_ptr_not_equal(
            wefti_wire_place(&wire, sizeof(memory), &all->view), memory);
        wefti_inbound_withdraw(all->inbound, PEER, get_arrival(all));
        assert_true(get_arrival(all)->begun); /* not of an offer: it stays */
        wefti_inbound_let_go(all->inbound, PEER, get_arrival(all));
    }
}

#define WIRE_TEST(name)                                                        \
    cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WIRE_TEST(test_spare_words_of_all_kinds_release),
        WIRE_TEST(test_several_releases_in_one_message),
        WIRE_TEST(test_wrong_releases_are_refused_in_all_kinds),
        WIRE_TEST(test_waiting_has_no_spare_words),
        WIRE_TEST(test_awaited_releases_are_remembered),
        WIRE_TEST(test_wrong_paths_are_refused),
        WIRE_TEST(test_message_of_a_queue_needs_its_channel),
        WIRE_TEST(test_message_goes_where_it_is_wanted_if_it_fits),
        WIRE_TEST(test_message_leaves_memory_that_is_withdrawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
