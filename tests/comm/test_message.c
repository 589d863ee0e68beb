/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    a bootstrap message survives the way to bytes and back, and nothing
 *         but a message is taken for one.
 * Method  a sample of every kind is encoded, decoded and encoded again; then
 *         it is cut and stretched by every number of bytes, and every field is
 *         set out of its range. Random changes to the kept corpus for 2 s must
 *         give either no message, or one that encodes to the same bytes.
 *
 * "test_message --write FOLDER" writes the corpus anew.
 */
#include "base/clock.h"
#include "tests/comm/message_samples.h"
#include "tests/seed.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { HEADER = WEFTI_OOB_HEADER_BYTES, MAC = WEFTI_OOB_MAC_BYTES };

typedef struct input {
    unsigned char bytes[2 * WEFTI_OOB_FRAME_MOST];
    size_t used;
} input;

/* A fresh copy of exactly the right size, so that sanitizers see overruns. */
static bool decode(const unsigned char *frame, size_t frame_bytes,
                   wefti_oob_message *message_out)
{
    unsigned char *exact = malloc(frame_bytes ? frame_bytes : 1);
    assert_non_null(exact);
    memcpy(exact, frame, frame_bytes);
    memset(message_out, 0xa5, sizeof(*message_out));
    bool good = wefti_oob_message_decode(exact, frame_bytes, message_out);
    free(exact);
    return good;
}

static bool is_foreign_hello(const wefti_oob_message *message)
{
    return (message->kind == WEFTI_OOB_HELLO ||
            message->kind == WEFTI_OOB_CHALLENGE) &&
           !wefti_version_is_own(message->as.hello.version);
}

/* Where decode succeeds, encode gives the same bytes, but for the MAC. */
static bool check_inverse(const unsigned char *frame, size_t frame_bytes)
{
    unsigned char again[WEFTI_OOB_FRAME_MOST];
    wefti_oob_message message;
    if (!decode(frame, frame_bytes, &message)) {
        return false;
    }
    if (!is_foreign_hello(&message)) {
        size_t again_bytes = wefti_oob_message_encode(&message, again);
        assert_int_equal(again_bytes, frame_bytes);
        size_t compared =
            frame_bytes > HEADER + MAC ? frame_bytes - MAC : HEADER;
        assert_memory_equal(again, frame, compared);
    }
    return true;
}

static void test_message_every_kind_survives(void **state)
{
    (void)state;
    bool seen[WEFTI_OOB_KIND_END] = {false};
    for (int i = 0; i < MESSAGE_SAMPLE_COUNT; i++) {
        unsigned char frame[WEFTI_OOB_FRAME_MOST];
        wefti_oob_message message;
        message_sample(i, &message);
        size_t bytes = wefti_oob_message_encode(&message, frame);
        assert_true(check_inverse(frame, bytes));
        assert_int_equal(wefti_oob_message_measure(frame, HEADER, ~0u), bytes);
        assert_int_equal(wefti_oob_message_measure(
                             frame, bytes, ~WEFTI_KIND_BIT(message.kind)),
                         -1);
        seen[message.kind] = true;
    }
    for (int kind = 1; kind < WEFTI_OOB_KIND_END; kind++) {
        assert_true(seen[kind]);
    }
}

static void test_message_cut_or_stretched_is_none(void **state)
{
    (void)state;
    for (int i = 0; i < MESSAGE_SAMPLE_COUNT; i++) {
        unsigned char frame[2 * WEFTI_OOB_FRAME_MOST] = {0};
        wefti_oob_message message, found;
        message_sample(i, &message);
        size_t bytes = wefti_oob_message_encode(&message, frame);
        for (size_t cut = 0; cut < bytes; cut++) {
            assert_false(decode(frame, cut, &found));
        }
        assert_false(decode(frame, bytes + 1, &found));
        /* The same with a length that agrees. */
        for (size_t cut = 0; cut <= bytes - HEADER + 8; cut++) {
            unsigned char other[2 * WEFTI_OOB_FRAME_MOST] = {0};
            memcpy(other, frame, bytes);
            for (int b = 0; b < 4; b++) {
                other[b] = (unsigned char)(cut >> (8 * b));
            }
            bool good = decode(other, HEADER + cut, &found);
            if (cut == bytes - HEADER) {
                assert_true(good);
            } else if (good) {
                assert_true(is_foreign_hello(&found));
            }
        }
    }
}

static void test_message_length_beyond_kind_is_refused_early(void **state)
{
    (void)state;
    for (int kind = 0; kind <= 255; kind++) {
        unsigned char header[HEADER] = {0xff, 0xff, 0xff, 0x7f,
                                        (unsigned char)kind};
        assert_int_equal(wefti_oob_message_measure(header, HEADER, ~0u), -1);
        assert_int_equal(wefti_oob_message_measure(header, HEADER - 1, ~0u), 0);
    }
}

/* Encodes sample, writes value at the body's offset, and decodes. */
static bool decode_patched(int sample, size_t offset, uint32_t value,
                           int value_bytes)
{
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    wefti_oob_message message;
    message_sample(sample, &message);
    size_t bytes = wefti_oob_message_encode(&message, frame);
    for (int b = 0; b < value_bytes; b++) {
        frame[HEADER + offset + (size_t)b] = (unsigned char)(value >> (8 * b));
    }
    return decode(frame, bytes, &message);
}

static void test_message_field_out_of_range_is_none(void **state)
{
    static const struct {
        int sample;
        size_t offset;
        int bytes;
        uint32_t good, bad;
    } cases[] = {
        {0, 0, 1, 'w', 'W'},   /* hello: magic */
        {3, 0, 4, 0, 1 << 20}, /* join: rank */
        {3, 4, 4, 1, 0},       /* nranks */
        {3, 4, 4, 1 << 20, (1 << 20) + 1},
        {3, 8, 4, 1, 0}, /* pid */
        {3, 8, 4, 1, 0x80000000},
        {3, 12, 4, 1, 0}, /* warn_ms */
        {3, 12, 4, 1, 0x80000000},
        {3, 16, 4, 0, 0x80000000}, /* timeout_ms */
        {6, 0, 4, 1, 0},           /* welcome: nranks */
        {6, 0, 4, 1, 2},
        {7, 0, 4, 4096, 4097},
        {7, 4, 4, 1024, 1023}, /* the first rank that it lists */
        {7, 4, 4, 2048, 4096},
        {7, 8, 4, 1, 0}, /* a pid */
        {7, 8 + 12 * 1023, 4, 7, 0x80000000},
        {7, 8 + 4, 2, 0, 1},      /* whose memory: its own, */
        {7, 8 + 12 + 4, 2, 0, 2}, /* and not a later one's */
        {7, 8 + 12 + 6, 2, 1, 2}, /* the same for the host, */
        {7, 8 + 12 + 8, 2, 1, 2}, /* and for levels inside it */
        {7, 8 + 12 + 10, 2, 0, 2},
        {8, 0, 4, 4095, 4096}, /* claim: rank */
        {9, 0, 4, 0, 0xffffffff},
        {10, 0, 1, 4, 5},       /* report: outcome */
        {10, 1, 4, 4095, 4096}, /* subject */
        {10, 5, 2, 4095, 4096}, /* error_number */
        {16, 0, 1, 7, 8},       /* verdict: status */
        {16, 1, 2, 400, 401},   /* its text's length */
        {16, 1, 2, 400, 399},
        {16, 3, 1, ' ', 0x1f}, /* its text */
        {16, 402, 1, '~', 0x7f},
        {21, 0, 1, 1, 2},       /* card: round */
        {21, 1, 4, 4095, 4096}, /* rank */
        {22, 5, 2, 640, 641},   /* its bytes */
        {22, 5, 2, 640, 639},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(decode_patched(cases[i].sample, cases[i].offset,
                                   cases[i].good, cases[i].bytes));
        assert_false(decode_patched(cases[i].sample, cases[i].offset,
                                    cases[i].bad, cases[i].bytes));
    }
}

static void test_message_text_is_made_printable_and_cut(void **state)
{
    (void)state;
    wefti_oob_message message = {.kind = WEFTI_OOB_VERDICT}, found;
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    strcpy(message.as.verdict.text, "a\nb\xc3\xa4");
    assert_true(
        decode(frame, wefti_oob_message_encode(&message, frame), &found));
    assert_string_equal(found.as.verdict.text, "a?b??");
    memset(message.as.verdict.text, 'x', sizeof(message.as.verdict.text));
    assert_true(
        decode(frame, wefti_oob_message_encode(&message, frame), &found));
    assert_int_equal(strlen(found.as.verdict.text), WEFTI_OOB_TEXT_MOST);
}

/* Every file of the corpus, up to most. */
static int load_corpus(input *inputs, int most)
{
    char path[4096];
    int count = 0;
    DIR *folder = opendir(CORPUS);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry && count < most;
         entry = readdir(folder)) {
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", CORPUS, entry->d_name);
            FILE *file = fopen(path, "rb");
            assert_non_null(file);
            inputs[count].used =
                fread(inputs[count].bytes, 1, WEFTI_OOB_FRAME_MOST, file);
            fclose(file);
            count++;
        }
    }
    closedir(folder);
    return count;
}

static void mutate(input *data, uint64_t *seed)
{
    uint64_t changes = 1 + random_next(seed) % 4;
    for (uint64_t i = 0; i < changes && data->used > 0; i++) {
        size_t at = random_next(seed) % data->used;
        /* The header decides most: half of the changes are there. */
        if (random_next(seed) % 2 && data->used >= HEADER) {
            at = random_next(seed) % HEADER;
        }
        switch (random_next(seed) % 4) {
        case 0:
            data->bytes[at] ^= (unsigned char)(1u << random_next(seed) % 8);
            break;
        case 1:
            data->bytes[at] = (unsigned char)random_next(seed);
            break;
        case 2:
            data->used = at;
            break;
        default:
            data->used += random_next(seed) % 64;
            if (data->used > WEFTI_OOB_FRAME_MOST) {
                data->used = WEFTI_OOB_FRAME_MOST;
            }
        }
    }
}

static void test_message_changed_corpus_stays_harmless(void **state)
{
    static input inputs[64];
    (void)state;
    const int count = load_corpus(inputs, 64);
    assert_true(count >= MESSAGE_SAMPLE_COUNT);
    uint64_t seed = random_seed(), tried = 0, taken = 0;
    const int64_t until_ns = wefti_clock_ns() + INT64_C(2000000000);
    while (wefti_clock_ns() < until_ns) {
        for (int i = 0; i < 256; i++) {
            input data = inputs[random_next(&seed) % (uint64_t)count];
            mutate(&data, &seed);
            taken += check_inverse(data.bytes, data.used);
            tried++;
        }
    }
    printf("%llu changed messages, %llu still valid\n",
           (unsigned long long)tried, (unsigned long long)taken);
    assert_true(tried > 1000 && taken > 0);
}

static int write_corpus(const char *folder)
{
    for (int i = 0; i < MESSAGE_SAMPLE_COUNT; i++) {
        unsigned char frame[WEFTI_OOB_FRAME_MOST];
        char path[4096];
        wefti_oob_message message;
        message_sample(i, &message);
        size_t bytes = wefti_oob_message_encode(&message, frame);
        snprintf(path, sizeof(path), "%s/sample_%02d", folder, i);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(frame, 1, bytes, file) != bytes || fclose(file)) {
            perror(path);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_every_kind_survives),
        cmocka_unit_test(test_message_cut_or_stretched_is_none),
        cmocka_unit_test(test_message_length_beyond_kind_is_refused_early),
        cmocka_unit_test(test_message_field_out_of_range_is_none),
        cmocka_unit_test(test_message_text_is_made_printable_and_cut),
        cmocka_unit_test(test_message_changed_corpus_stays_harmless),
    };
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        return write_corpus(argv[2]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
