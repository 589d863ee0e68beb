/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: ranks that together need more than their host or their memory cgroup
 * can ever have are found, the first of them, with both figures; ranks that
 * could still run, with all of the swap, are not refused; other hosts and other
 * groups do not count. Method: needs made by hand; files of /proc and of a
 * cgroup in a folder.
 */
#include "base/check.h"
#include "scratch.h"
#include "trainer/memory_need.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static wefti_memory_need make(double bytes, uint64_t host, uint64_t group)
{
    return (wefti_memory_need){.bytes = bytes,
                               .host = host,
                               .group = group,
                               .host_bytes = 100,
                               .swap_bytes = 20,
                               .group_bytes = group ? 50 : 0};
}

static void test_memory_need_of_a_host_is_the_sum_of_its_ranks(void **state)
{
    (void)state;
    wefti_memory_lack lack;
    wefti_memory_need needs[] = {make(120, 1, 0), make(60, 2, 0),
                                 make(60, 2, 0)};
    assert_false(wefti_memory_need_check(needs, 3, &lack));
    needs[2].bytes = 61;
    assert_true(wefti_memory_need_check(needs, 3, &lack));
    assert_int_equal(lack.first, 1);
    assert_int_equal(lack.count, 2);
    assert_true(lack.need_bytes == 121 && lack.have_bytes == 100);
    assert_false(lack.of_group);
    needs[0].bytes = 121;
    assert_true(wefti_memory_need_check(needs, 3, &lack));
    assert_int_equal(lack.first, 0);
    assert_int_equal(lack.count, 1);
    needs[0].host_bytes = needs[1].host_bytes = needs[2].host_bytes = 0;
    assert_false(wefti_memory_need_check(needs, 3, &lack)); /* unknown */
}

static void test_memory_need_of_a_cgroup_is_of_its_ranks_alone(void **state)
{
    (void)state;
    wefti_memory_lack lack;
    wefti_memory_need needs[] = {make(30, 1, 0), make(35, 1, 7), make(35, 1, 8),
                                 make(35, 2, 9)};
    assert_false(wefti_memory_need_check(needs, 3, &lack));
    assert_false(wefti_memory_need_check(needs, 4, &lack));
    needs[2].group = 7; /* 70 of 50 and 20 of swap */
    assert_false(wefti_memory_need_check(needs, 4, &lack));
    needs[2].bytes = 36;
    assert_true(wefti_memory_need_check(needs, 4, &lack));
    assert_true(lack.of_group && lack.first == 1 && lack.count == 2);
    assert_true(lack.need_bytes == 71 && lack.have_bytes == 50);
}

static void make_proc(scratch *own, const char *limit)
{
    static const char *const folders[] = {"proc",
                                          "proc/self",
                                          "proc/sys",
                                          "proc/sys/kernel",
                                          "proc/sys/kernel/random",
                                          "cg",
                                          "cg/job"};
    for (size_t i = 0; i < WEFTI_COUNT_OF(folders); i++) {
        scratch_folder(own, folders[i]);
    }
    scratch_text(
        own, "proc/meminfo",
        "MemTotal:       1000 kB\nMemFree: 1 kB\nSwapTotal:  200 kB\n");
    scratch_text(own, "proc/sys/kernel/random/boot_id", "0-1-2\n");
    scratch_text(own, "proc/self/cgroup", "0::/job\n");
    scratch_text(own, "proc/self/mountinfo",
                 "1 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n");
    scratch_text(own, "cg/job/memory.max", limit);
}

static void test_memory_need_is_located_by_proc_and_cgroup(void **state)
{
    (void)state;
    scratch own, other;
    wefti_memory_need here, there;
    scratch_open(&own);
    scratch_open(&other);
    make_proc(&own, "524288\n");
    make_proc(&other, "524288\n");
    wefti_memory_need_locate(own.dir, &here);
    assert_true(here.host_bytes == 1024000 && here.swap_bytes == 204800);
    assert_true(here.group != 0 && here.group_bytes == 524288);
    assert_true(here.bytes == 0);
    /* The same name of a group in another container of the same machine. */
    wefti_memory_need_locate(other.dir, &there);
    assert_true(there.host == here.host && there.group != here.group);
    scratch_text(&other, "proc/sys/kernel/random/boot_id", "0-1-3\n");
    scratch_text(&other, "cg/job/memory.max", "max\n");
    wefti_memory_need_locate(other.dir, &there);
    assert_true(there.host != here.host && there.group == 0);
    scratch_close(&own);
    scratch_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_need_of_a_host_is_the_sum_of_its_ranks),
        cmocka_unit_test(test_memory_need_of_a_cgroup_is_of_its_ranks_alone),
        cmocka_unit_test(test_memory_need_is_located_by_proc_and_cgroup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
