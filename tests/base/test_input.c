/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a file is read whole, or not at all.
 * Method   files of lengths around the room that is taken first and around the
 *          limit, of bytes that differ; a pipe; what cannot be read.
 */
#include "base/input.h"

#include "weft/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* In memory: files on a disk that others keep busy are closed late. */
static char path[] = "/dev/shm/weft_input_XXXXXX";

static char byte_at(size_t i)
{
    return (char)(i * 2654435761u >> 13);
}

static void fill_file(size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_not_equal(fputc((unsigned char)byte_at(i), file), EOF);
    }
    assert_int_equal(fclose(file), 0);
}

static void test_file_of_any_length_is_read_whole(void **state)
{
    static const size_t lengths[] = {0,     1,      65535,  65536,
                                     65537, 131072, 131073, 1000000};
    (void)state;
    for (size_t n = 0; n < sizeof(lengths) / sizeof(lengths[0]); n++) {
        char *text = NULL;
        size_t bytes = SIZE_MAX;
        fill_file(lengths[n]);
        assert_int_equal(
            wefti_file_read(path, WEFTI_INPUT_FILE, lengths[n], &text, &bytes),
            WEFT_OK);
        assert_int_equal(bytes, lengths[n]);
        for (size_t i = 0; i < bytes; i++) {
            assert_int_equal(text[i], byte_at(i));
        }
        assert_int_equal(text[bytes], '\0');
        free(text);
    }
}

static void test_file_above_the_limit_is_refused_by_name(void **state)
{
    static const size_t limits[] = {0, 9, 65535, 65536, 100000};
    (void)state;
    for (size_t n = 0; n < sizeof(limits) / sizeof(limits[0]); n++) {
        char *text = NULL, allowed[64];
        size_t bytes;
        fill_file(limits[n] + 1);
        assert_int_equal(
            wefti_file_read(path, WEFTI_INPUT_FILE, limits[n], &text, &bytes),
            WEFT_ERR_INVALID);
        snprintf(allowed, sizeof(allowed), ": larger than the %zu bytes",
                 limits[n]);
        assert_non_null(strstr(weft_error_text(), path));
        assert_non_null(strstr(weft_error_text(), allowed));
    }
}

/* Sparse: 8 TB that take no room on the disk. */
static void test_file_above_the_memory_is_refused_by_its_size(void **state)
{
    char *text = NULL;
    size_t bytes;
    (void)state;
    fill_file(0);
    assert_int_equal(truncate(path, (off_t)1 << 43), 0);
    assert_int_equal(
        wefti_file_read(path, WEFTI_INPUT_FILE, SIZE_MAX, &text, &bytes),
        WEFT_ERR_NO_MEMORY);
    assert_non_null(strstr(weft_error_text(), path));
    assert_non_null(strstr(weft_error_text(), ": needs 8.8e+03 GB, and "));
    assert_null(text);
}

static void test_pipe_is_read_to_its_end(void **state)
{
    int ends[2];
    char name[32], *text = NULL;
    size_t bytes = 0;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "of a pipe", 9), 9);
    close(ends[1]);
    snprintf(name, sizeof(name), "/dev/fd/%d", ends[0]);
    assert_int_equal(
        wefti_file_read(name, WEFTI_INPUT_FILE_OR_PIPE, 9, &text, &bytes),
        WEFT_OK);
    assert_int_equal(bytes, 9);
    assert_string_equal(text, "of a pipe");
    free(text);
    close(ends[0]);
}

static void test_what_cannot_be_read_is_named(void **state)
{
    char *text = NULL;
    size_t bytes;
    (void)state;
    assert_int_equal(
        wefti_file_read("/none/at/all", WEFTI_INPUT_FILE, 9, &text, &bytes),
        WEFT_ERR_SYSTEM);
    assert_string_equal(weft_error_text(),
                        "/none/at/all: No such file or directory");
}

typedef struct refusal {
    const char *path;
    wefti_input_kind allowed;
    const char *text;
} refusal;

static void test_what_is_no_file_is_refused_without_reading(void **state)
{
    char fifo[sizeof(path) + 8], expected[128];
    (void)state;
    snprintf(fifo, sizeof(fifo), "%s.fifo", path);
    assert_int_equal(mkfifo(fifo, 0600), 0); /* it has no writer */
    snprintf(expected, sizeof(expected),
             "%s: is a pipe: allowed is a regular file", fifo);
    const refusal refusals[] = {
        {"/tmp", WEFTI_INPUT_FILE,
         "/tmp: is a folder: allowed is a regular file"},
        {"/dev/zero", WEFTI_INPUT_FILE,
         "/dev/zero: is a device: allowed is a regular file"},
        {"/dev/zero", WEFTI_INPUT_FILE_OR_PIPE,
         "/dev/zero: is a device: allowed is a file or a pipe"},
        {fifo, WEFTI_INPUT_FILE, expected},
    };
    for (size_t n = 0; n < sizeof(refusals) / sizeof(refusals[0]); n++) {
        char *text = NULL;
        size_t bytes;
        assert_int_equal(wefti_file_read(refusals[n].path, refusals[n].allowed,
                                         9, &text, &bytes),
                         WEFT_ERR_INVALID);
        assert_string_equal(weft_error_text(), refusals[n].text);
    }
    assert_int_equal(unlink(fifo), 0);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_of_any_length_is_read_whole),
        cmocka_unit_test(test_file_above_the_limit_is_refused_by_name),
        cmocka_unit_test(test_file_above_the_memory_is_refused_by_its_size),
        cmocka_unit_test(test_pipe_is_read_to_its_end),
        cmocka_unit_test(test_what_cannot_be_read_is_named),
        cmocka_unit_test(test_what_is_no_file_is_refused_without_reading),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
