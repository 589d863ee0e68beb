/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what was measured of a network comes back as it was written; a file
 * with anything else in it is named in the log and not used; one that cannot be
 * written is named too, and nothing else happens.
 *
 * Method: a cache folder in /tmp; the file cut at every byte, with every byte
 * changed, for another key; a folder, a pipe and a file where none should be.
 * Standard error is kept in a file while the log is looked at.
 */
#include "comm/make/net_rates_file.h"

#include "base/cache_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY   "00112233445566778899aabbccddeeff"
#define OTHER "00112233445566778899aabbccddeefe"

static const wefti_net_figures given = {12000, 4100, 8200};
static char folder[64], path[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weft-rates.XXXXXX");
    if (!mkdtemp(folder)) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/deep/er/net-%s", folder, KEY);
    char deeper[sizeof(folder) + 16];
    snprintf(deeper, sizeof(deeper), "%s/deep/er", folder);
    return setenv("WEFT_CACHE_DIR", deeper, 1);
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    unsetenv("WEFT_CACHE_DIR");
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static size_t read_all(const char *from, char *text, size_t room)
{
    FILE *file = fopen(from, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, room - 1, file);
    text[bytes] = '\0';
    fclose(file);
    return bytes;
}

static void write_all(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Keeps what goes to standard error meanwhile. */
static int log_begin(const char *to)
{
    int kept = dup(2);
    assert_non_null(freopen(to, "w", stderr));
    return kept;
}

static void log_end(int kept, const char *from, char *text, size_t room)
{
    fflush(stderr);
    assert_true(dup2(kept, 2) == 2);
    close(kept);
    read_all(from, text, room);
}

static void test_rates_come_back_as_written(void **state)
{
    wefti_net_figures found = {0};
    char text[256];
    (void)state;
    assert_false(wefti_net_rates_file_read(KEY, &found));
    wefti_net_rates_file_write(KEY, &given);
    assert_true(wefti_net_rates_file_read(KEY, &found));
    assert_memory_equal(&found, &given, sizeof(given));
    assert_false(wefti_net_rates_file_read(OTHER, &found));
    read_all(path, text, sizeof(text));
    assert_string_equal(text, "weft-net-rates 1 " KEY "\nlatency_ns 12000\n"
                              "message_ns 4100\nbyte_ps 8200\n");
    const wefti_net_figures newer = {31000, 1, 1000000000};
    wefti_net_rates_file_write(KEY, &newer);
    assert_true(wefti_net_rates_file_read(KEY, &found));
    assert_memory_equal(&found, &newer, sizeof(newer));
}

static void test_rates_cut_or_changed_are_not_used(void **state)
{
    wefti_net_figures found;
    char text[256], broken[256], said[4096], errors[128];
    (void)state;
    snprintf(errors, sizeof(errors), "%s/errors", folder);
    wefti_net_rates_file_write(KEY, &given);
    const size_t bytes = read_all(path, text, sizeof(text));
    for (size_t cut = 0; cut < bytes; cut++) {
        write_all(text, cut);
        int kept = log_begin(errors);
        bool used = wefti_net_rates_file_read(KEY, &found);
        log_end(kept, errors, said, sizeof(said));
        assert_false(used);
        assert_non_null(strstr(said, path));
    }
    setenv("WEFT_LOG", "error", 1);
    for (size_t at = 0; at < bytes; at++) {
        for (int byte = 0; byte < 256; byte += 5) {
            memcpy(broken, text, bytes);
            broken[at] = (char)byte;
            write_all(broken, bytes);
            if (wefti_net_rates_file_read(KEY, &found)) {
                /* A digit for a digit, where there are figures. */
                assert_true(byte == (unsigned char)text[at] ||
                            (byte >= '0' && byte <= '9' && at > 50));
                assert_true(wefti_net_figures_check(&found));
            }
        }
    }
    text[bytes] = '\n';
    write_all(text, bytes + 1);
    assert_false(wefti_net_rates_file_read(KEY, &found));
    unsetenv("WEFT_LOG");
}

static void expect_refused(const char *what)
{
    wefti_net_figures found;
    char said[4096], errors[128];
    snprintf(errors, sizeof(errors), "%s/errors", folder);
    int kept = log_begin(errors);
    wefti_net_rates_file_write(KEY, &given);
    bool used = wefti_net_rates_file_read(KEY, &found);
    log_end(kept, errors, said, sizeof(said));
    if (used || !strstr(said, what) ||
        !strstr(said, "is not kept for the next job")) {
        fail_msg("%d: %s", used, said);
    }
}

static void test_rates_where_no_file_can_be_are_named(void **state)
{
    char deeper[sizeof(folder) + 16];
    (void)state;
    snprintf(deeper, sizeof(deeper), "%s/deep/er", folder);
    wefti_cache_folder_make(deeper);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refused(path);
    setenv("WEFT_CACHE_DIR", "/dev/null/weft", 1);
    expect_refused("/dev/null/weft/net-" KEY);
}

static void test_folder_is_the_settings_or_the_users(void **state)
{
    char found[PATH_MAX];
    static char long_name[2 * PATH_MAX];
    (void)state;
    setenv("WEFT_CACHE_DIR", "/a/b", 1);
    setenv("XDG_CACHE_HOME", "/x", 1);
    setenv("HOME", "/h", 1);
    assert_true(wefti_cache_folder_find(found));
    assert_string_equal(found, "/a/b");
    unsetenv("WEFT_CACHE_DIR");
    assert_true(wefti_cache_folder_find(found));
    assert_string_equal(found, "/x/weft");
    setenv("XDG_CACHE_HOME", "relative", 1);
    assert_true(wefti_cache_folder_find(found));
    assert_string_equal(found, "/h/.cache/weft");
    unsetenv("HOME");
    assert_false(wefti_cache_folder_find(found));
    memset(long_name, 'x', sizeof(long_name) - 1);
    setenv("WEFT_CACHE_DIR", long_name, 1);
    assert_false(wefti_cache_folder_find(found));
    wefti_net_rates_file_write(KEY, &given); /* nowhere */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rates_come_back_as_written,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_rates_cut_or_changed_are_not_used,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(
            test_rates_where_no_file_can_be_are_named, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(
            test_folder_is_the_settings_or_the_users, make_folder,
            remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
