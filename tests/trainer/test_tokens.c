/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: ids come out as they were written, across files and for both widths;
 * no file that is cut off, damaged in any bit, of another byte order or beyond
 * the model's vocabulary is taken, and the refusal names file and byte.
 * Method: files written here; every truncation and every flipped bit of one.
 */
#include "scratch.h"
#include "tests/seed.h"
#include "token_files.h"
#include "trainer/data/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

enum { VOCAB = 70000, IDS = 40, IMAGE_BYTES = 4096 };

static uint64_t seed;

static void draw_ids(uint32_t *ids, size_t count, uint32_t below)
{
    for (size_t i = 0; i < count; i++) {
        ids[i] = (uint32_t)(random_next(&seed) % below);
    }
}

static void write_ids(scratch *own, const char *name, const uint32_t *ids,
                      size_t count, size_t id_bytes, uint64_t vocab)
{
    uint8_t image[IMAGE_BYTES];
    scratch_write(own, name, image,
                  make_tokens(image, ids, count, id_bytes, vocab));
}

static void keep_note(void *context, const char *line)
{
    char *notes = context;
    strcat(strcat(notes, line), "\n");
}

static weft_status open_path(scratch *own, const char *name, char *notes,
                             wefti_token_set *tokens_out)
{
    char path[600];
    const char *paths = path;
    snprintf(path, sizeof(path), "%s", scratch_path(own, name));
    memset(tokens_out, 0xA5, sizeof(*tokens_out));
    notes[0] = '\0';
    return wefti_token_set_open(tokens_out, &paths, 1, VOCAB, keep_note, notes);
}

static void assert_text(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}

static void test_tokens_of_a_folder_are_one_run_of_ids(void **state)
{
    scratch *own = *state;
    uint32_t ids[3 * IDS];
    int32_t got[3 * IDS];
    char notes[4096];
    wefti_token_set tokens;
    draw_ids(ids, IDS, 65536);
    draw_ids(ids + IDS, 1, VOCAB);
    draw_ids(ids + IDS + 1, 2 * IDS - 1, 300);
    write_ids(own, "a.tokens", ids, IDS, 2, 65536);
    write_ids(own, "b.tokens", ids + IDS, 1, 4, VOCAB);
    write_ids(own, "c.tokens", ids + IDS + 1, 2 * IDS - 1, 2, 300);
    write_ids(own, "d.tokens", ids, IDS, 2, 65536);
    scratch_text(own, "words.vocab", "no ids");
    assert_int_equal(open_path(own, "", notes, &tokens), WEFT_OK);
    assert_int_equal(tokens.count, 3 * IDS);
    assert_int_equal(tokens.file_count, 3);
    assert_int_equal(tokens.files_skipped, 2);
    assert_text(notes, "d.tokens: the same ids as another\n");
    assert_text(notes, "words.vocab: its name does not end in .tokens\n");
    for (size_t first = 0; first < 3 * IDS; first++) {
        for (size_t count = 0; count <= 3 * IDS - first; count++) {
            memset(got, 0xA5, sizeof(got));
            wefti_token_set_read(&tokens, first, count, got);
            assert_memory_equal(got, ids + first, count * sizeof(*got));
            assert_true(count == 3 * IDS || got[count] == (int32_t)0xA5A5A5A5);
        }
    }
    wefti_token_set_fini(&tokens);
    /* Given as a path a file may have any name. */
    write_ids(own, "plain", ids, IDS, 4, VOCAB);
    assert_int_equal(open_path(own, "plain", notes, &tokens), WEFT_OK);
    assert_int_equal(tokens.count, IDS);
    wefti_token_set_fini(&tokens);
}

static weft_status check(const uint8_t *image, size_t bytes)
{
    wefti_tokens_header header;
    return wefti_tokens_check("dir/x", image, bytes, VOCAB, &header);
}

/* The image in memory of its very length, so that a byte more is found. */
static void assert_refused(const uint8_t *image, size_t bytes, const char *part)
{
    uint8_t *exact = malloc(bytes + (bytes == 0));
    assert_non_null(exact);
    memcpy(exact, image, bytes);
    if (check(exact, bytes) != WEFT_ERR_INVALID ||
        strncmp(weft_error_text(), "dir/x: byte ", 12) != 0 ||
        strstr(weft_error_text(), part) == NULL) {
        fail_msg("%zu bytes: \"%s\" instead of \"%s\"", bytes,
                 weft_error_text(), part);
    }
    free(exact);
}

static void test_tokens_cut_off_anywhere_are_refused(void **state)
{
    uint8_t image[IMAGE_BYTES];
    uint32_t ids[IDS];
    (void)state;
    for (size_t id_bytes = 2; id_bytes <= 4; id_bytes += 2) {
        draw_ids(ids, IDS, 300);
        size_t bytes = make_tokens(image, ids, IDS, id_bytes, 300);
        assert_int_equal(check(image, bytes), WEFT_OK);
        for (size_t cut = 0; cut < bytes; cut++) {
            assert_refused(image, cut,
                           cut < 8                    ? "begins with wefttoks"
                           : cut < TOKEN_HEADER_BYTES ? "inside its header"
                                                      : "cut off");
        }
        image[bytes] = 0;
        assert_refused(image, bytes + 1, "more follows");
    }
}

static void test_tokens_with_any_bit_flipped_are_refused(void **state)
{
    uint8_t image[IMAGE_BYTES];
    uint32_t ids[IDS];
    (void)state;
    draw_ids(ids, IDS, 300);
    size_t bytes = make_tokens(image, ids, IDS, 2, 300);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        size_t at = bit / 8;
        image[at] ^= (uint8_t)(1 << bit % 8);
        bool larger_vocab = at >= 24 && at < 32 && check(image, bytes) == 0;
        if (!larger_vocab) { /* which is another true statement */
            assert_refused(image, bytes, "");
        }
        image[at] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(check(image, bytes), WEFT_OK);
}

static void test_tokens_header_that_lies_is_refused_by_byte(void **state)
{
    static const struct {
        size_t at, bytes;
        uint64_t value;
        const char *part;
    } lies[] = {
        {0, 1, 'W', "byte 0: not a file of token ids"},
        {8, 4, 1 << 24, "byte 8: version 16777216, written big-endian"},
        {8, 4, 2, "byte 8: version 2; allowed is 1"},
        {12, 4, 3, "byte 12: ids of 3 bytes"},
        {12, 4, 0, "byte 12: ids of 0 bytes"},
        {12, 4, 4, "byte 16: 40 ids of 4 bytes, but 80 bytes"},
        {16, 8, 0, "byte 16: no ids"},
        {16, 8, 41, "byte 16: 41 ids"},
        {16, 8, UINT64_C(1) << 63, "byte 16: 9223372036854775808 ids"},
        {24, 8, 0, "byte 24: a vocabulary of 0; allowed is 1..70000"},
        {24, 8, VOCAB + 1, "byte 24: a vocabulary of 70001"},
        {24, 8, 7, "byte 68: token 2 is 7; allowed is below 7"},
        {32, 1, 0, "byte 32: the BLAKE2b-256"},
    };
    uint8_t image[IMAGE_BYTES];
    uint32_t ids[IDS] = {1, 2, 7, 3};
    (void)state;
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        size_t bytes = make_tokens(image, ids, IDS, 2, 300);
        uint64_t value = lies[i].value;
        value += lies[i].at == 32 && image[32] == value; /* not the truth */
        put_little(image + lies[i].at, value, lies[i].bytes);
        assert_refused(image, bytes, lies[i].part);
    }
    ids[1] = 0x80000001; /* is no small number when its sign is read */
    size_t bytes = make_tokens(image, ids, IDS, 4, 300);
    assert_refused(image, bytes, "byte 68: token 1 is 2147483649");
}

static void test_tokens_that_cannot_be_taken_stop_the_walk(void **state)
{
    scratch *own = *state;
    uint32_t ids[IDS];
    char notes[4096];
    wefti_token_set tokens;
    draw_ids(ids, IDS, 300);
    write_ids(own, "a.tokens", ids, IDS, 2, 300);
    scratch_text(own, "empty.tokens", "");
    assert_int_equal(open_path(own, "", notes, &tokens), WEFT_ERR_INVALID);
    assert_text(weft_error_text(), "empty.tokens: byte 0: ");
    assert_int_equal(tokens.file_count, 0);
    scratch_text(own, "text", "no ids at all");
    assert_int_equal(open_path(own, "text", notes, &tokens), WEFT_ERR_INVALID);
    assert_text(weft_error_text(), "text: byte 0: not a file of token ids");
    assert_int_equal(open_path(own, "none", notes, &tokens), WEFT_ERR_SYSTEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_tokens_of_a_folder_are_one_run_of_ids, scratch_set_up,
            scratch_tear_down),
        cmocka_unit_test(test_tokens_cut_off_anywhere_are_refused),
        cmocka_unit_test(test_tokens_with_any_bit_flipped_are_refused),
        cmocka_unit_test(test_tokens_header_that_lies_is_refused_by_byte),
        cmocka_unit_test_setup_teardown(
            test_tokens_that_cannot_be_taken_stop_the_walk, scratch_set_up,
            scratch_tear_down),
    };
    seed = random_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
