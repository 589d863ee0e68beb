/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: structs of older and newer callers are read as far as both know them,
 * and a size that no version has is refused before anything is read.
 *
 * Method: one struct, given at each size, at the end of a page that nothing
 * follows.
 */
#include "base/sized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct own {
    size_t size_bytes;
    uint64_t first, second;
};

enum { LEAST_BYTES = offsetof(struct own, second) };

static unsigned char *page_end; /* nothing can be read from here on */

static weft_status read_sized(size_t size_bytes, size_t there_bytes,
                              unsigned char last, struct own *own_out)
{
    unsigned char *given = page_end - there_bytes;
    memset(given, 0, there_bytes);
    memset(given + sizeof(size_t), 7, sizeof(uint64_t));
    memcpy(given, &size_bytes, sizeof(size_bytes));
    given[there_bytes - 1] = last;
    memset(own_out, 0xee, sizeof(*own_out));
    return wefti_sized_read("thing", given, LEAST_BYTES, own_out,
                            sizeof(*own_out));
}

static void test_sized_older_caller_rest_is_zero(void **state)
{
    (void)state;
    struct own own;
    assert_int_equal(read_sized(LEAST_BYTES, LEAST_BYTES, 7, &own), WEFT_OK);
    assert_int_equal(own.size_bytes, sizeof(own));
    assert_true(own.first == UINT64_C(0x0707070707070707));
    assert_true(own.second == 0);
}

static void test_sized_newer_caller_zero_tail_accepted(void **state)
{
    (void)state;
    struct own own;
    for (size_t more = 1; more <= WEFTI_SIZED_MOST_BYTES - sizeof(own);
         more += 97) {
        size_t bytes = sizeof(own) + more;
        assert_int_equal(read_sized(bytes, bytes, 0, &own), WEFT_OK);
        assert_true(own.first == UINT64_C(0x0707070707070707));
        assert_int_equal(own.size_bytes, sizeof(own));
        assert_int_equal(read_sized(bytes, bytes, 1, &own), WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), "thing asks for"));
        assert_int_equal(((unsigned char *)&own)[0], 0xee);
    }
}

static void test_sized_no_versions_size_is_refused(void **state)
{
    (void)state;
    static const size_t wrong[] = {
        0,       1, LEAST_BYTES - 1, WEFTI_SIZED_MOST_BYTES + 1, SIZE_MAX / 2,
        SIZE_MAX};
    struct own own;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(read_sized(wrong[i], sizeof(own), 0, &own),
                         WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), "thing->size_bytes"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sized_older_caller_rest_is_zero),
        cmocka_unit_test(test_sized_newer_caller_zero_tail_accepted),
        cmocka_unit_test(test_sized_no_versions_size_is_refused),
    };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *pages = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED ||
        mprotect(pages + 2 * page, page, PROT_NONE) != 0) {
        return 1;
    }
    page_end = pages + 2 * page;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
