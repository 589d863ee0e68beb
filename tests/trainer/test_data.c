/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the text is what the files say, each once and in order; windows lie
 * inside their part, each epoch takes each once, validation counts each byte
 * once; what cannot work is refused with a text that says why.
 * Method: folders made here, with all the kinds of file that must be left out;
 * arithmetic over many sizes, exhaustively.
 */
#include "scratch.h"
#include "trainer/data/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct fixture {
    scratch own;
    char notes[4096];
    wefti_data data;
} fixture;

static void keep_note(void *context, const char *line)
{
    fixture *f = context;
    size_t used = strlen(f->notes);
    snprintf(f->notes + used, sizeof(f->notes) - used, "%s\n", line);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    scratch_require(f != NULL, "memory");
    scratch_open(&f->own);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    wefti_data_fini(&f->data);
    scratch_close(&f->own);
    free(f);
    return 0;
}

static weft_status read_paths(fixture *f, const char *const *paths,
                              size_t count, double fraction, size_t seq_length)
{
    wefti_data_fini(&f->data);
    f->notes[0] = '\0';
    wefti_data_config config = {.paths = paths,
                                .path_count = count,
                                .validation_fraction = fraction,
                                .seed = 7,
                                .seq_length = seq_length,
                                .note = keep_note,
                                .note_context = f};
    return wefti_data_init(&f->data, &config);
}

static weft_status read_one(fixture *f, const char *path, double fraction,
                            size_t seq_length)
{
    return read_paths(f, &path, 1, fraction, seq_length);
}

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}

static void test_data_folder_is_walked_in_byte_order(void **state)
{
    fixture *f = *state;
    scratch_folder(&f->own, "b");
    scratch_text(&f->own, "b/2", "two");
    scratch_text(&f->own, "b/10", "ten");
    scratch_folder(&f->own, "b/1");
    scratch_text(&f->own, "b/1/x", "deep");
    scratch_text(&f->own, "a", "first");
    scratch_text(&f->own, "Z", "capital");
    scratch_text(&f->own, "\xC3\xA9", "accent \xC3\xA9");
    assert_int_equal(read_one(f, f->own.dir, 0, 4), WEFT_OK);
    static const char expected[] =
        "capital\0first\0deep\0ten\0two\0accent \xC3\xA9";
    assert_int_equal(f->data.token_count, sizeof(expected) - 1);
    assert_memory_equal(f->data.text, expected, sizeof(expected) - 1);
    assert_int_equal(f->data.files_taken, 6);
    assert_string_equal(f->notes, "");
}

static void test_data_what_is_no_text_is_left_out_with_a_line(void **state)
{
    fixture *f = *state;
    char fifo[600];
    scratch_text(&f->own, "a", "text of a");
    scratch_text(&f->own, "b", "text of b");
    /* The index beside a fortune file: plain ASCII but for its zeros. */
    scratch_write(&f->own, "a.dat", "\0\0\0\2\0\0\0\1\0\0\0\11%\0\0\0", 16);
    scratch_write(&f->own, "latin1", "caf\xE9", 4);
    scratch_text(&f->own, "nothing", "");
    scratch_text(&f->own, "copy.txt", "text of a");
    char original[600];
    snprintf(original, sizeof(original), "%s", scratch_path(&f->own, "b"));
    scratch_require(link(original, scratch_path(&f->own, "hard")) == 0, "link");
    scratch_require(symlink("a", scratch_path(&f->own, "a.u8")) == 0,
                    "symlink");
    scratch_require(symlink("..", scratch_path(&f->own, "loop")) == 0, "loop");
    snprintf(fifo, sizeof(fifo), "%s", scratch_path(&f->own, "fifo"));
    scratch_require(mkfifo(fifo, 0600) == 0, "fifo");

    assert_int_equal(read_one(f, f->own.dir, 0, 4), WEFT_OK);
    assert_int_equal(f->data.token_count, 19);
    assert_memory_equal(f->data.text, "text of a\0text of b", 19);
    assert_int_equal(f->data.files_skipped, 5);
    assert_contains(f->notes, "a.dat: not UTF-8 text (byte 0 is 0x00)\n");
    assert_contains(f->notes, "latin1: not UTF-8 text (byte 3 is 0xe9)\n");
    assert_contains(f->notes, "nothing: empty\n");
    assert_contains(f->notes, "copy.txt: the same text as ");
    assert_contains(f->notes, "hard: the same text as ");
    assert_contains(f->notes, "skipped 2 links in ");

    assert_int_equal(read_one(f, fifo, 0, 4), WEFT_ERR_INVALID);
    assert_contains(weft_error_text(), "neither a file nor a folder");
}

/* Names of files are arbitrary: an archive's, a download's. */
static void test_data_names_of_skipped_files_are_printable(void **state)
{
    fixture *f = *state;
    char link[512];
    scratch_text(&f->own, "good.txt", "enough text to train on");
    scratch_write(&f->own, "a\x1b[31m\n.bin", "\xFF", 1);
    snprintf(link, sizeof(link), "%s/\x1b]0;t\a", f->own.dir);
    assert_int_equal(mkfifo(link, 0600), 0);
    assert_int_equal(read_one(f, f->own.dir, 0, 4), WEFT_OK);
    assert_contains(f->notes, "/a\\x1b[31m\\x0a.bin: not UTF-8 text");
    assert_contains(f->notes, "/\\x1b]0;t\\x07: neither a file nor a folder");
    assert_null(strchr(f->notes, '\x1b'));
}

/* As on the first screen of a run: no line for every file. */
static void test_data_files_skipped_alike_are_reported_in_one_line(void **state)
{
    fixture *f = *state;
    char name[32];
    for (int i = 0; i < 43; i++) {
        snprintf(name, sizeof(name), "%02d.dat", i);
        scratch_write(&f->own, name, "\0\0\0\2", 4);
        snprintf(name, sizeof(name), "%02d", i);
        scratch_text(&f->own, name, i < 3 ? "" : "the same again");
    }
    scratch_write(&f->own, "one.bin", "\xFF", 1);
    assert_int_equal(read_one(f, f->own.dir, 0, 4), WEFT_OK);
    assert_int_equal(f->data.files_skipped, 43 + 3 + 39 + 1);
    assert_contains(f->notes, "43 .dat files skipped: not text\n");
    assert_contains(f->notes, "3 files skipped: empty\n");
    assert_contains(f->notes, "39 files skipped: the same text as another\n");
    assert_contains(f->notes, "one.bin: not UTF-8 text (byte 0 is 0xff)\n");
    size_t lines = 0;
    for (const char *at = f->notes; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    assert_int_equal(lines, 4);
}

/* More endings than are distinguished. */
static void test_data_of_many_endings_every_file_is_counted(void **state)
{
    fixture *f = *state;
    char name[32];
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "x.e%d", i);
        scratch_write(&f->own, name, "\xFF", 1);
    }
    scratch_text(&f->own, "text", "it is long enough");
    assert_int_equal(read_one(f, f->own.dir, 0, 4), WEFT_OK);
    assert_int_equal(f->data.files_skipped, 200);
    assert_contains(f->notes, "184 files skipped: not text\n");
}

static void test_data_many_files_are_each_taken_once(void **state)
{
    fixture *f = *state;
    char name[32];
    char text[32];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "%03d", i);
        snprintf(text, sizeof(text), "%03d", i % 150);
        scratch_text(&f->own, name, text);
    }
    const char *paths[] = {f->own.dir, f->own.dir};
    assert_int_equal(read_paths(f, paths, 2, 0, 4), WEFT_OK);
    assert_int_equal(f->data.files_taken, 150);
    assert_int_equal(f->data.files_skipped, 450);
    assert_int_equal(f->data.token_count, 150 * 4 - 1);
}

static void test_data_link_given_as_path_is_followed(void **state)
{
    fixture *f = *state;
    scratch_text(&f->own, "a", "some text");
    scratch_require(symlink("a", scratch_path(&f->own, "l")) == 0, "symlink");
    char path[600];
    snprintf(path, sizeof(path), "%s", scratch_path(&f->own, "l"));
    assert_int_equal(read_one(f, path, 0, 4), WEFT_OK);
    assert_int_equal(f->data.token_count, 9);
}

static void test_data_impossible_is_refused_with_reason(void **state)
{
    fixture *f = *state;
    char path[600];
    snprintf(path, sizeof(path), "%s", scratch_path(&f->own, "missing"));
    assert_int_equal(read_one(f, path, 0, 4), WEFT_ERR_SYSTEM);
    assert_contains(weft_error_text(), "missing: No such file");
    assert_int_equal(read_one(f, f->own.dir, 0, 4), WEFT_ERR_INVALID);
    assert_contains(weft_error_text(), "no text in ");

    scratch_text(&f->own, "a", "0123456789");
    assert_int_equal(read_one(f, f->own.dir, 0, 10), WEFT_ERR_INVALID);
    assert_contains(weft_error_text(), "has 10 bytes, one sequence needs 11");
    assert_int_equal(read_one(f, f->own.dir, 0, 9), WEFT_OK);
    assert_int_equal(read_one(f, f->own.dir, 0.2, 4), WEFT_ERR_INVALID);
    assert_contains(weft_error_text(), "validation part has 2 of 10 bytes");
    assert_int_equal(read_one(f, f->own.dir, 0.5, 4), WEFT_OK);
    assert_int_equal(f->data.train_count, 5);
    assert_int_equal(read_one(f, f->own.dir, 1, 4), WEFT_ERR_INVALID);
    assert_int_equal(read_one(f, f->own.dir, 0.5, 0), WEFT_ERR_INVALID);
}

static void test_data_hash_differs_by_text_and_by_split(void **state)
{
    fixture *f = *state;
    uint8_t first[WEFTI_DATA_HASH_BYTES];
    scratch_text(&f->own, "a", "0123456789");
    assert_int_equal(read_one(f, f->own.dir, 0.5, 2), WEFT_OK);
    memcpy(first, f->data.hash, sizeof(first));
    assert_int_equal(read_one(f, f->own.dir, 0.5, 3), WEFT_OK);
    assert_memory_equal(first, f->data.hash, sizeof(first));
    assert_int_equal(read_one(f, f->own.dir, 0.4, 3), WEFT_OK);
    assert_memory_not_equal(first, f->data.hash, sizeof(first));
    scratch_text(&f->own, "a", "0123456799");
    assert_int_equal(read_one(f, f->own.dir, 0.5, 2), WEFT_OK);
    assert_memory_not_equal(first, f->data.hash, sizeof(first));
}

/* Each epoch takes disjoint windows, each inside the training part. */
static void check_epochs(const wefti_data *data, uint64_t epochs, char *taken)
{
    size_t count = wefti_data_epoch_windows(data);
    for (uint64_t g = 0; g < epochs * count; g++) {
        size_t at = wefti_data_sequence(data, g);
        assert_true(at + data->seq_length < data->train_count);
        if (g % count == 0) {
            memset(taken, 0, data->train_count);
        }
        for (size_t i = 0; i < data->seq_length; i++) {
            assert_int_equal(taken[at + i], 0);
            taken[at + i] = 1;
        }
    }
}

static void test_data_epoch_takes_each_window_once(void **state)
{
    (void)state;
    uint8_t text[700] = {0};
    char taken[700];
    for (size_t seq = 1; seq <= 40; seq += 3) {
        for (size_t bytes = seq + 1; bytes <= sizeof(text); bytes += 7) {
            wefti_data data = {.text = text,
                               .token_count = bytes,
                               .train_count = bytes,
                               .seq_length = seq,
                               .seed = bytes};
            size_t count = wefti_data_epoch_windows(&data);
            assert_true(count >= 1 && count * seq < bytes);
            assert_true(bytes - 1 - count * seq < 2 * seq);
            check_epochs(&data, 3, taken);
        }
    }
}

static void test_data_order_depends_on_seed_and_epoch_alone(void **state)
{
    (void)state;
    static uint8_t text[100000];
    wefti_data data = {.text = text,
                       .token_count = sizeof(text),
                       .train_count = sizeof(text),
                       .seq_length = 10,
                       .seed = 1};
    wefti_data other = data;
    other.seed = 2;
    size_t count = wefti_data_epoch_windows(&data);
    size_t same_seed = 0;
    size_t same_epoch = 0;
    size_t rising = 0;
    for (uint64_t g = 0; g < count; g++) {
        size_t window = wefti_data_sequence(&data, g);
        assert_int_equal(window, wefti_data_sequence(&data, g));
        same_seed += window == wefti_data_sequence(&other, g);
        same_epoch += window == wefti_data_sequence(&data, g + count);
        rising += g > 0 && window > wefti_data_sequence(&data, g - 1);
    }
    assert_true(same_seed < 10 && same_epoch < 10);
    assert_true(rising > count * 9 / 20 && rising < count * 11 / 20);
    /* Far epochs neither overflow nor leave the text. */
    assert_true(wefti_data_sequence(&data, UINT64_MAX) + 10 < sizeof(text));
}

static void test_data_validation_counts_each_byte_once(void **state)
{
    (void)state;
    uint8_t text[400] = {0};
    for (size_t seq = 1; seq <= 30; seq++) {
        for (size_t bytes = seq + 1; bytes <= 100; bytes++) {
            int counted[400] = {0};
            wefti_data data = {.text = text,
                               .token_count = 300 + bytes,
                               .train_count = 300,
                               .seq_length = seq};
            size_t windows = wefti_data_validation_windows(&data);
            for (size_t v = 0; v < windows; v++) {
                size_t first;
                size_t at = wefti_data_validation(&data, v, &first);
                assert_true(at >= 300 && at + seq < 300 + bytes);
                for (size_t t = first; t < seq; t++) {
                    counted[at + 1 + t]++;
                }
            }
            for (size_t i = 0; i < 300 + bytes; i++) {
                assert_int_equal(counted[i], i > 300 ? 1 : 0);
            }
        }
    }
    wefti_data none = {
        .text = text, .token_count = 300, .train_count = 300, .seq_length = 8};
    assert_int_equal(wefti_data_validation_windows(&none), 0);
}

int main(void)
{
#define DATA_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_data_folder_is_walked_in_byte_order),
        DATA_TEST(test_data_what_is_no_text_is_left_out_with_a_line),
        DATA_TEST(test_data_names_of_skipped_files_are_printable),
        DATA_TEST(test_data_files_skipped_alike_are_reported_in_one_line),
        DATA_TEST(test_data_of_many_endings_every_file_is_counted),
        DATA_TEST(test_data_many_files_are_each_taken_once),
        DATA_TEST(test_data_link_given_as_path_is_followed),
        DATA_TEST(test_data_impossible_is_refused_with_reason),
        DATA_TEST(test_data_hash_differs_by_text_and_by_split),
        cmocka_unit_test(test_data_epoch_takes_each_window_once),
        cmocka_unit_test(test_data_order_depends_on_seed_and_epoch_alone),
        cmocka_unit_test(test_data_validation_counts_each_byte_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
