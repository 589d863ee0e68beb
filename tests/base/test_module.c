/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a shared object is opened, or refused with a reason, whatever has
 *          become of its file.
 * Method   a module of the build, whole and cut to lengths over all of it; a
 *          bus error would end this process. Files that are none.
 */
#include "base/module.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char symbol[] = "weft_kernels_image";

static char path[] = "/tmp/weft_module_XXXXXX";
static char bytes[1 << 20];
static size_t byte_count;

static int read_module(void **state)
{
    (void)state;
    FILE *file = fopen(MODULE_FILE, "rb");
    int fd = mkstemp(path);
    if (!file || fd < 0) {
        return 1;
    }
    close(fd);
    byte_count = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    return byte_count == 0 || byte_count == sizeof(bytes);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

/* A new file, as one that is open may be mapped. */
static void write_file(const void *from, size_t count)
{
    assert_int_equal(unlink(path), 0);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(from, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* Whether it can be opened; if not, why has this much in it. */
static bool opens(const char *file, const char *name, const char *expected)
{
    char why[512] = "";
    void *handle = NULL;
    void *found = wefti_module_open(file, RTLD_NOW | RTLD_LOCAL, name, &handle,
                                    why, sizeof(why));
    if (found) {
        assert_ptr_equal(found, dlsym(handle, name));
        assert_int_equal(dlclose(handle), 0);
        return true;
    }
    assert_non_null(strstr(why, expected));
    return false;
}

static void test_module_that_is_whole_is_opened(void **state)
{
    (void)state;
    assert_true(opens(MODULE_FILE, symbol, ""));
    write_file(bytes, byte_count);
    assert_true(opens(path, symbol, ""));
}

static void test_module_cut_short_is_refused(void **state)
{
    enum { CUTS = 64 };
    (void)state;
    bool before = false;
    for (size_t cut = 0; cut <= CUTS; cut++) {
        write_file(bytes, byte_count * cut / CUTS);
        const bool now = opens(path, symbol, path);
        assert_true(now || !before); /* what follows is not needed any more */
        before = now;
    }
    assert_true(before);
    write_file(bytes, byte_count / 2);
    assert_false(opens(path, symbol, "damaged: it has "));
}

static void test_module_that_is_none_is_refused_in_the_linkers_words(void **s)
{
    (void)s;
    assert_false(opens("/nonexistent.so", symbol, "/nonexistent.so"));
    assert_false(opens("/tmp", symbol, "/tmp"));
    memset(bytes + sizeof(bytes) / 2, '#', sizeof(bytes) / 2);
    write_file(bytes + sizeof(bytes) / 2, sizeof(bytes) / 2);
    assert_false(opens(path, symbol, "invalid ELF header"));
    assert_false(opens(MODULE_FILE, "banana", "banana"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_module_that_is_whole_is_opened),
        cmocka_unit_test(test_module_cut_short_is_refused),
        cmocka_unit_test(
            test_module_that_is_none_is_refused_in_the_linkers_words),
    };
    return cmocka_run_group_tests(tests, read_module, remove_file);
}
