/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each thread has the text of its own last error, whole or cut, never
 * another's and never garbage.
 *
 * Method: set, read, overflow, nest, and compare across threads.
 */
#include "base/error.h"

#include "base/printable.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_text_before_any_error_is_empty(void **state)
{
    (void)state;
    assert_string_equal(weft_error_text(), "");
}

static void test_error_keeps_text_and_hands_status_through(void **state)
{
    (void)state;
    assert_int_equal(
        wefti_error(WEFT_ERR_INVALID, "root %d: allowed is 0..%d", 9, 3),
        WEFT_ERR_INVALID);
    assert_string_equal(weft_error_text(), "root 9: allowed is 0..3");
}

static void test_error_may_wrap_the_last_text(void **state)
{
    (void)state;
    (void)wefti_error(WEFT_ERR_SYSTEM, "port 80: taken");
    assert_int_equal(
        wefti_error(WEFT_ERR_BOOTSTRAP, "rank 2: %s", weft_error_text()),
        WEFT_ERR_BOOTSTRAP);
    assert_string_equal(weft_error_text(), "rank 2: port 80: taken");
}

static void test_error_too_long_is_cut_and_ends(void **state)
{
    char text[2000];
    (void)state;
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = 0;
    (void)wefti_error(WEFT_ERR_INVALID, "%s", text);
    assert_int_equal(strlen(weft_error_text()), 511);
    assert_memory_equal(weft_error_text(), text, 511);
    errno = EACCES;
    (void)wefti_error_system("%s", text);
    assert_true(strlen(weft_error_text()) <= 511);
    assert_non_null(strstr(weft_error_text(), ": Permission denied"));
}

/* One byte of each class, and the characters at the borders of C0 and C1. */
static void test_error_of_any_bytes_is_printable(void **state)
{
    static const struct {
        const char *given, *kept;
    } texts[] = {
        {"a\x1b[31mb\n\t\x7f", "a\\x1b[31mb\\x0a\\x09\\x7f"},
        {"\xff\xfe \xc3", "\\xff\\xfe \\xc3"},
        {"\xc2\x9b"
         "31m \xc2\xa0 \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
         "\\xc2\\x9b"
         "31m \xc2\xa0 \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xed\xa0\x80 \xc0\xaf", "\\xed\\xa0\\x80 \\xc0\\xaf"},
        {"back\\slash", "back\\slash"},
        /* what turns text round, or ends a line, beside its neighbours */
        {"0\xe2\x80\xae"
         "0B0 \xe2\x81\xa6 \xe2\x80\xa8 \xd8\x9c",
         "0\\xe2\\x80\\xae"
         "0B0 \\xe2\\x81\\xa6 \\xe2\\x80\\xa8 \\xd8\\x9c"},
        {"\xe2\x80\x8d \xe2\x80\x8e \xe2\x80\x8f \xe2\x80\x90 \xe2\x80\xaf",
         "\xe2\x80\x8d \\xe2\\x80\\x8e \\xe2\\x80\\x8f \xe2\x80\x90 "
         "\xe2\x80\xaf"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
        (void)wefti_error(WEFT_ERR_INVALID, "%s", texts[k].given);
        assert_string_equal(weft_error_text(), texts[k].kept);
        (void)wefti_error(WEFT_ERR_INVALID, "%s", weft_error_text());
        assert_string_equal(weft_error_text(), texts[k].kept);
        errno = EACCES;
        (void)wefti_error_system("%s", texts[k].given);
        assert_memory_equal(weft_error_text(), texts[k].kept,
                            strlen(texts[k].kept));
    }
}

static void test_printable_cuts_between_escapes(void **state)
{
    char out[16];
    (void)state;
    for (size_t room = 1; room <= sizeof(out); room++) {
        memset(out, '#', sizeof(out));
        wefti_printable("a\0\x01\xc3\xa9", 5, out, room);
        const char whole[] = "a\\x00\\x01\xc3\xa9";
        size_t kept = room > 11 ? 11 : room > 9 ? 9 : room > 5 ? 5 : room > 1;
        assert_int_equal(strlen(out), kept);
        assert_memory_equal(out, whole, kept);
        assert_true(room == sizeof(out) || out[room] == '#');
    }
}

static void test_error_system_appends_the_reason(void **state)
{
    (void)state;
    errno = ENOENT;
    assert_int_equal(wefti_error_system("open %s", "/x"), WEFT_ERR_SYSTEM);
    assert_string_equal(weft_error_text(),
                        "open /x: No such file or directory");
    errno = ENOMEM;
    assert_int_equal(wefti_error_system("mmap"), WEFT_ERR_NO_MEMORY);
}

static void *other_thread(void *state)
{
    int *failures = state;
    *failures += strcmp(weft_error_text(), "") != 0;
    (void)wefti_error(WEFT_ERR_PEER, "theirs");
    *failures += strcmp(weft_error_text(), "theirs") != 0;
    return NULL;
}

static void test_error_of_other_thread_is_not_seen(void **state)
{
    pthread_t thread;
    int failures = 0;
    (void)state;
    (void)wefti_error(WEFT_ERR_INVALID, "mine");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &failures), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(failures, 0);
    assert_string_equal(weft_error_text(), "mine");
}

static void test_status_text_is_there_for_each_and_for_none(void **state)
{
    (void)state;
#define CHECK_STATUS(name, value, text)                                        \
    assert_int_equal(WEFT_##name, value);                                      \
    assert_string_equal(weft_status_text(WEFT_##name), text);
    WEFT_STATUS_LIST(CHECK_STATUS)
    assert_string_equal(weft_status_text((weft_status)-9999), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_before_any_error_is_empty),
        cmocka_unit_test(test_error_keeps_text_and_hands_status_through),
        cmocka_unit_test(test_error_may_wrap_the_last_text),
        cmocka_unit_test(test_error_too_long_is_cut_and_ends),
        cmocka_unit_test(test_error_of_any_bytes_is_printable),
        cmocka_unit_test(test_printable_cuts_between_escapes),
        cmocka_unit_test(test_error_system_appends_the_reason),
        cmocka_unit_test(test_error_of_other_thread_is_not_seen),
        cmocka_unit_test(test_status_text_is_there_for_each_and_for_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
