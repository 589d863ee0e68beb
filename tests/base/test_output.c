/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a file that a program writes is there whole, or as it was before.
 * Method   a new path, one with a file of its own mode, a link, a device and
 *          places that cannot be written; ended well and with an error. After
 *          each the folder is listed: nothing else is in it.
 */
#include "base/output.h"

#include "base/error.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/weft_output_XXXXXX";

static const char *path_of(const char *name)
{
    static char paths[2][256];
    static int turn;
    turn = !turn;
    snprintf(paths[turn], sizeof(paths[turn]), "%s/%s", folder, name);
    return paths[turn];
}

static void assert_text(const char *path, const char *text)
{
    char got[64] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(got, 1, sizeof(got) - 1, file);
    got[bytes] = '\0';
    fclose(file);
    assert_string_equal(got, text);
}

static int count_files(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count - 2; /* . and .. */
}

static weft_status write_and_end(const char *path, const char *text,
                                 weft_status status)
{
    wefti_output out;
    weft_status opened = wefti_output_open(&out, "--svg", path);
    if (opened != WEFT_OK) {
        return opened;
    }
    assert_true(fputs(text, out.file) >= 0);
    return wefti_output_end(&out, status);
}

static void test_output_new_path_is_there_whole_or_not_at_all(void **state)
{
    const char *path = path_of("new");
    (void)state;
    (void)wefti_error(WEFT_ERR_INVALID, "too wide");
    assert_int_equal(write_and_end(path, "half", WEFT_ERR_INVALID),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "--svg /tmp/"));
    assert_non_null(strstr(weft_error_text(), "new: too wide"));
    assert_int_equal(count_files(), 0);
    assert_int_equal(wefti_output_try("--svg", path), WEFT_OK);
    assert_int_equal(count_files(), 0);
    assert_int_equal(write_and_end(path, "whole", WEFT_OK), WEFT_OK);
    assert_text(path, "whole");
    assert_int_equal(count_files(), 1);
    assert_int_equal(unlink(path), 0);
}

static void test_output_old_file_stays_until_the_end(void **state)
{
    const char *path = path_of("old");
    struct stat what;
    (void)state;
    assert_int_equal(write_and_end(path, "old", WEFT_OK), WEFT_OK);
    assert_int_equal(chmod(path, 0640), 0);
    wefti_output out;
    assert_int_equal(wefti_output_open(&out, "--csv", path), WEFT_OK);
    fputs("new", out.file);
    fflush(out.file);
    assert_text(path, "old");
    (void)wefti_error(WEFT_ERR_SYSTEM, "broken");
    assert_int_equal(wefti_output_end(&out, WEFT_ERR_SYSTEM), WEFT_ERR_SYSTEM);
    assert_text(path, "old");
    assert_int_equal(write_and_end(path, "new", WEFT_OK), WEFT_OK);
    assert_text(path, "new");
    assert_int_equal(stat(path, &what), 0);
    assert_int_equal(what.st_mode & 07777, 0640);
    assert_int_equal(count_files(), 1);
    assert_int_equal(unlink(path), 0);
}

static void test_output_through_a_link_keeps_the_link(void **state)
{
    struct stat what;
    (void)state;
    assert_int_equal(write_and_end(path_of("target"), "old", WEFT_OK), WEFT_OK);
    assert_int_equal(symlink("target", path_of("link")), 0);
    assert_int_equal(write_and_end(path_of("link"), "new", WEFT_OK), WEFT_OK);
    assert_int_equal(lstat(path_of("link"), &what), 0);
    assert_true(S_ISLNK(what.st_mode));
    assert_text(path_of("target"), "new");
    assert_int_equal(unlink(path_of("target")), 0);
    assert_int_equal(write_and_end(path_of("link"), "born", WEFT_OK), WEFT_OK);
    assert_text(path_of("target"), "born");
    assert_int_equal(count_files(), 2);
    assert_int_equal(unlink(path_of("target")), 0);
    assert_int_equal(unlink(path_of("link")), 0);
}

static void test_output_that_cannot_be_written_is_named(void **state)
{
    (void)state;
    assert_int_equal(write_and_end(path_of("none/a"), "", WEFT_OK),
                     WEFT_ERR_SYSTEM);
    assert_non_null(
        strstr(weft_error_text(), "none/a: cannot be written: No such file"));
    assert_int_equal(write_and_end(folder, "", WEFT_OK), WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "Is a directory"));
    assert_int_equal(write_and_end("/dev/full", "text", WEFT_OK),
                     WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "--svg /dev/full: was lost"));
    assert_int_equal(write_and_end("/dev/null", "text", WEFT_OK), WEFT_OK);
    assert_int_equal(count_files(), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_new_path_is_there_whole_or_not_at_all),
        cmocka_unit_test(test_output_old_file_stays_until_the_end),
        cmocka_unit_test(test_output_through_a_link_keeps_the_link),
        cmocka_unit_test(test_output_that_cannot_be_written_is_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
