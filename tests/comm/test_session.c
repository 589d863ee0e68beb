/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    seals and boxes hold: only the same secret and the same conversation
 *         open them, each once and in order; sets of ranks read as people
 *         write them.
 * Method  two ends of a session are made; every byte of a sealed frame is
 *         changed in turn; frames are repeated, swapped, sent back; rank sets
 *         are compared with texts.
 */
#include "comm/oob/handover.h"
#include "comm/oob/ranks.h"
#include "comm/oob/session.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct pair {
    wefti_secret secret;
    wefti_oob_message_hello hello, challenge;
    wefti_oob_session client, server;
} pair;

static void make_pair(pair *p)
{
    wefti_secret_init(&p->secret, "a secret of the tests", 21);
    p->hello.version = p->challenge.version = wefti_version_own();
    randombytes_buf(p->hello.nonce, WEFTI_NONCE_BYTES);
    randombytes_buf(p->challenge.nonce, WEFTI_NONCE_BYTES);
    wefti_oob_session_init(&p->client, WEFTI_SIDE_CLIENT, &p->secret, &p->hello,
                           &p->challenge);
    wefti_oob_session_init(&p->server, WEFTI_SIDE_SERVER, &p->secret, &p->hello,
                           &p->challenge);
}

static size_t seal_report(wefti_oob_session *session, unsigned char *frame)
{
    const wefti_oob_message report = {.kind = WEFTI_OOB_REPORT};
    size_t bytes = wefti_oob_message_encode(&report, frame);
    wefti_oob_session_seal(session, frame, bytes);
    return bytes;
}

static void test_session_seal_holds_for_every_byte(void **state)
{
    (void)state;
    pair p;
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    make_pair(&p);
    size_t bytes = seal_report(&p.client, frame);
    for (size_t at = 0; at < bytes; at++) {
        frame[at] ^= 0x10;
        assert_false(wefti_oob_session_verify(&p.server, frame, bytes));
        frame[at] ^= 0x10;
    }
    assert_true(wefti_oob_session_verify(&p.server, frame, bytes));
}

static void test_session_seal_counts_and_has_a_direction(void **state)
{
    (void)state;
    pair p;
    unsigned char first[WEFTI_OOB_FRAME_MOST];
    unsigned char second[WEFTI_OOB_FRAME_MOST];
    make_pair(&p);
    size_t bytes = seal_report(&p.client, first);
    (void)seal_report(&p.client, second);
    assert_false(wefti_oob_session_verify(&p.client, first, bytes));
    assert_false(wefti_oob_session_verify(&p.server, second, bytes));
    assert_true(wefti_oob_session_verify(&p.server, first, bytes));
    assert_false(wefti_oob_session_verify(&p.server, first, bytes));
    assert_true(wefti_oob_session_verify(&p.server, second, bytes));
}

static void test_session_other_conversation_shares_nothing(void **state)
{
    (void)state;
    for (int change = 0; change < 3; change++) {
        pair p;
        wefti_oob_session other;
        unsigned char frame[WEFTI_OOB_FRAME_MOST];
        unsigned char box[WEFTI_BOX_BYTES], key[WEFTI_JOB_KEY_BYTES] = {7};
        unsigned char found[WEFTI_JOB_KEY_BYTES];
        make_pair(&p);
        p.secret.key[5] ^= change == 0;
        p.hello.nonce[31] ^= change == 1;
        p.challenge.nonce[0] ^= change == 2;
        wefti_oob_session_init(&other, WEFTI_SIDE_SERVER, &p.secret, &p.hello,
                               &p.challenge);
        size_t bytes = seal_report(&p.client, frame);
        assert_false(wefti_oob_session_verify(&other, frame, bytes));
        wefti_oob_session_box(&other, key, box);
        assert_false(wefti_oob_session_unbox(&p.client, box, found));
        wefti_oob_session_box(&p.server, key, box);
        assert_true(wefti_oob_session_unbox(&p.client, box, found));
        assert_memory_equal(found, key, sizeof(key));
        box[40] ^= 1;
        assert_false(wefti_oob_session_unbox(&p.client, box, found));
    }
}

static void test_tokens_differ_by_job_rank_and_side(void **state)
{
    (void)state;
    unsigned char key[WEFTI_JOB_KEY_BYTES] = {7};
    wefti_tokens one = wefti_handover_tokens(key, 1);
    wefti_tokens same = wefti_handover_tokens(key, 1);
    wefti_tokens two = wefti_handover_tokens(key, 2);
    key[31] ^= 1;
    wefti_tokens foreign = wefti_handover_tokens(key, 1);
    assert_memory_equal(&one, &same, sizeof(one));
    assert_memory_not_equal(one.claim, one.answer, WEFTI_TOKEN_BYTES);
    assert_memory_not_equal(one.claim, two.claim, WEFTI_TOKEN_BYTES);
    assert_memory_not_equal(one.answer, two.claim, WEFTI_TOKEN_BYTES);
    assert_memory_not_equal(one.claim, foreign.claim, WEFTI_TOKEN_BYTES);
    assert_memory_not_equal(one.answer, foreign.answer, WEFTI_TOKEN_BYTES);
}

static void test_ranks_text_reads_as_people_write(void **state)
{
    static const struct {
        const char *set; /* by rank: x is in it */
        const char *text;
    } cases[] = {
        {"....", "no rank"},
        {"...x", "rank 3"},
        {"xxx.", "ranks 0 1 2"},
        {"xxxx", "ranks 0-3"},
        {"xxxxx.x.xx", "ranks 0-4 6 8 9"},
        {".xxxxxx", "ranks 1-6"},
    };
    (void)state;
    char text[WEFTI_RANKS_TEXT_BYTES];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool in[16];
        int nranks = (int)strlen(cases[i].set), expected = 0;
        for (int rank = 0; rank < nranks; rank++) {
            in[rank] = cases[i].set[rank] == 'x';
            expected += in[rank];
        }
        assert_int_equal(wefti_ranks_text(in, nranks, true, text), expected);
        assert_string_equal(text, cases[i].text);
        assert_int_equal(wefti_ranks_text(in, nranks, false, text),
                         nranks - expected);
    }
}

static void test_ranks_text_of_many_gaps_is_cut(void **state)
{
    (void)state;
    static bool in[1024];
    char text[WEFTI_RANKS_TEXT_BYTES];
    for (int rank = 0; rank < 1024; rank += 2) {
        in[rank] = true;
    }
    assert_int_equal(wefti_ranks_text(in, 1024, true, text), 512);
    int told = 0, more;
    for (const char *at = strchr(text, ' '); at; at = strchr(at + 1, ' ')) {
        if (at[1] == 'a') {
            assert_int_equal(sscanf(at, " and %d more", &more), 1);
            break;
        }
        told++;
    }
    assert_int_equal(told + more, 512);
    assert_true(strlen(text) < WEFTI_RANKS_TEXT_BYTES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session_seal_holds_for_every_byte),
        cmocka_unit_test(test_session_seal_counts_and_has_a_direction),
        cmocka_unit_test(test_session_other_conversation_shares_nothing),
        cmocka_unit_test(test_tokens_differ_by_job_rank_and_side),
        cmocka_unit_test(test_ranks_text_reads_as_people_write),
        cmocka_unit_test(test_ranks_text_of_many_gaps_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
