/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a line goes out whole, in one piece, at its level, and a broken stderr
 * is no error.
 *
 * Method: stderr becomes a pipe; what comes out is compared. A line longer
 * than the limit is cut; threads that log at once never mix lines.
 */
#include "base/log.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { THREADS = 4, LINES = 50 };

typedef struct capture {
    int saved, reader;
    char text[65536];
} capture;

static void capture_begin(capture *c)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(stderr);
    c->saved = dup(STDERR_FILENO);
    assert_true(c->saved >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    c->reader = ends[0];
}

/* What was written, at most what a pipe holds. */
static const char *capture_end(capture *c)
{
    dup2(c->saved, STDERR_FILENO);
    close(c->saved);
    size_t used = 0;
    ssize_t got;
    while ((got = read(c->reader, c->text + used, sizeof(c->text) - 1 - used)) >
           0) {
        used += (size_t)got;
    }
    c->text[used] = 0;
    close(c->reader);
    return c->text;
}

static int use_default(void **state)
{
    (void)state;
    return unsetenv("WEFT_LOG");
}

static void test_log_default_prints_errors_and_warnings(void **state)
{
    static capture c;
    (void)state;
    capture_begin(&c);
    wefti_log(WEFTI_LOG_ERROR, 2, "one %d", 1);
    wefti_log(WEFTI_LOG_WARN, -1, "two");
    wefti_log(WEFTI_LOG_INFO, 0, "three");
    assert_string_equal(capture_end(&c), "weft: rank 2: one 1\nweft: two\n");
}

static void test_log_each_level_enables_those_above(void **state)
{
    static const char *const names[] = {"error", "warn", "info", "debug",
                                        "trace"};
    (void)state;
    for (int wanted = 0; wanted < 5; wanted++) {
        setenv("WEFT_LOG", names[wanted], 1);
        assert_int_equal(wefti_log_check(), WEFT_OK);
        for (int level = 0; level < 5; level++) {
            assert_int_equal(wefti_log_enabled((wefti_log_level)level),
                             level <= wanted);
        }
    }
}

static void test_log_unknown_level_is_warn_and_named(void **state)
{
    (void)state;
    setenv("WEFT_LOG", "verbose", 1);
    assert_true(wefti_log_enabled(WEFTI_LOG_WARN));
    assert_false(wefti_log_enabled(WEFTI_LOG_INFO));
    assert_int_equal(wefti_log_check(), WEFT_ERR_INVALID);
    assert_string_equal(weft_error_text(),
                        "WEFT_LOG=verbose: allowed is error, warn, info, "
                        "debug or trace");
}

static void test_log_long_line_is_cut_and_ended(void **state)
{
    static capture c;
    char text[3000];
    (void)state;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = 0;
    capture_begin(&c);
    wefti_log(WEFTI_LOG_ERROR, 0, "%s", text);
    const char *out = capture_end(&c);
    assert_int_equal(strlen(out), 1023);
    assert_int_equal(out[1022], '\n');
    assert_int_equal(out[1021], 'x');
}

static void test_log_of_any_bytes_is_one_printable_line(void **state)
{
    static capture c;
    (void)state;
    capture_begin(&c);
    wefti_log(WEFTI_LOG_ERROR, 0, "%s", "a\nb\x1b[2J\xff");
    assert_string_equal(capture_end(&c),
                        "weft: rank 0: a\\x0ab\\x1b[2J\\xff\n");
}

static void *log_lines(void *letter)
{
    char text[101];
    memset(text, *(char *)letter, 100);
    text[100] = 0;
    for (int i = 0; i < LINES; i++) {
        wefti_log(WEFTI_LOG_ERROR, 0, "%s", text);
    }
    return NULL;
}

static void test_log_from_threads_never_mixes_lines(void **state)
{
    static capture c;
    pthread_t threads[THREADS];
    char letters[THREADS];
    (void)state;
    capture_begin(&c);
    for (int t = 0; t < THREADS; t++) {
        letters[t] = (char)('a' + t);
        pthread_create(&threads[t], NULL, log_lines, &letters[t]);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
    }
    char *rest = NULL;
    int lines = 0;
    capture_end(&c);
    for (char *line = strtok_r(c.text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *body = line + strlen("weft: rank 0: ");
        assert_int_equal(strlen(body), 100);
        assert_int_equal(strspn(body, (char[]){body[0], 0}), 100);
        lines++;
    }
    assert_int_equal(lines, THREADS * LINES);
}

static void test_log_to_closed_or_full_stderr_returns(void **state)
{
    int saved = dup(STDERR_FILENO), ends[2];
    (void)state;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    close(STDERR_FILENO);
    errno = EINTR;
    wefti_log(WEFTI_LOG_ERROR, 0, "nobody reads this");
    int errno_after = errno;
    dup2(ends[1], STDERR_FILENO);
    for (int i = 0; i < 2000; i++) {
        wefti_log(WEFTI_LOG_ERROR, 0, "%0100d", i);
    }
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(errno_after, EINTR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_log_default_prints_errors_and_warnings,
                               use_default),
        cmocka_unit_test_setup(test_log_each_level_enables_those_above,
                               use_default),
        cmocka_unit_test_setup(test_log_unknown_level_is_warn_and_named,
                               use_default),
        cmocka_unit_test_setup(test_log_of_any_bytes_is_one_printable_line,
                               use_default),
        cmocka_unit_test_setup(test_log_long_line_is_cut_and_ended,
                               use_default),
        cmocka_unit_test_setup(test_log_from_threads_never_mixes_lines,
                               use_default),
        cmocka_unit_test_setup(test_log_to_closed_or_full_stderr_returns,
                               use_default),
    };
    return cmocka_run_group_tests(tests, NULL, use_default);
}
