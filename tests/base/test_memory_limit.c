/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    the memory limit of the process's cgroup is found, whichever version
 *         it is and however much of the hierarchy is visible, and the kernel's
 *         kills are counted.
 * Method  folders in /tmp laid out as the kernel shows them in the cases that
 *         occur; the expected limit stands beside each.
 */
#include "base/memory_limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char root[64];

/* A file and the folders above it. */
static void lay(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void begin(const char *groups, const char *mounts)
{
    snprintf(root, sizeof(root), "/tmp/weft-limit-XXXXXX");
    assert_non_null(mkdtemp(root));
    lay("/proc/self/cgroup", groups);
    lay("/proc/self/mountinfo", mounts);
}

static void end(void)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

static void expect(uint64_t bytes, uint64_t kills, const char *file)
{
    wefti_memory_limit limit;
    memset(&limit, 0xA5, sizeof(limit));
    wefti_memory_limit_read(root, &limit);
    assert_true(limit.bytes == bytes);
    assert_true(limit.kills == kills);
    assert_string_equal(limit.file, file);
}

#define VERSION_2 "40 30 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
#define VERSION_1                                                              \
    "31 30 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"              \
    "35 30 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup " \
    "rw,memory\n"

static void test_limit_of_version_2_is_the_lowest_above(void **state)
{
    (void)state;
    begin("0::/jobs/one\n", "22 21 0:5 / /proc rw - proc proc rw\n" VERSION_2);
    lay("/sys/fs/cgroup/jobs/one/memory.max", "max\n");
    lay("/sys/fs/cgroup/jobs/one/memory.events", "low 0\noom 3\noom_kill 2\n");
    expect(UINT64_MAX, 2, "");
    lay("/sys/fs/cgroup/jobs/memory.max", "67108864\n");
    expect(67108864, 2, "/sys/fs/cgroup/jobs/memory.max");
    lay("/sys/fs/cgroup/jobs/one/memory.max", "134217728\n");
    expect(67108864, 2, "/sys/fs/cgroup/jobs/memory.max");
    lay("/sys/fs/cgroup/jobs/one/memory.max", "4096\n");
    expect(4096, 2, "/sys/fs/cgroup/jobs/one/memory.max");
    end();
}

static void test_limit_of_version_1_is_found_among_others(void **state)
{
    (void)state;
    begin("7:cpu,cpuacct:/x\n4:hugetlb,memory:/batch/7\n0::/\n", VERSION_1);
    lay("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    expect(UINT64_MAX, 0, "");
    lay("/sys/fs/cgroup/memory/batch/7/memory.limit_in_bytes", "33554432\n");
    lay("/sys/fs/cgroup/memory/batch/7/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
    expect(33554432, 5, "/sys/fs/cgroup/memory/batch/7/memory.limit_in_bytes");
    end();
}

/* A container sees its own group as the top, with or without a namespace. */
static void test_limit_in_a_container_is_found_at_the_top(void **state)
{
    (void)state;
    begin("0::/\n", VERSION_2);
    lay("/sys/fs/cgroup/memory.max", "1000000\n");
    expect(1000000, 0, "/sys/fs/cgroup/memory.max");
    end();
    begin("4:memory:/docker/abc/part\n",
          "35 30 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup "
          "rw,memory\n");
    lay("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
    lay("/sys/fs/cgroup/memory/part/memory.limit_in_bytes", "3000000\n");
    expect(2000000, 0, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
    end();
}

static void test_limit_where_nothing_can_be_read_is_none(void **state)
{
    static const char *const odd[] = {"", "0::", "nonsense\n4:\n", "4:memory"};
    (void)state;
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        begin(odd[i], i % 2 ? "35 30 - \n - - -\n" : VERSION_2 VERSION_1);
        lay("/sys/fs/cgroup/elsewhere/memory.max", "1\n");
        expect(UINT64_MAX, 0, "");
        end();
    }
    snprintf(root, sizeof(root), "/tmp/weft-no-such-folder");
    expect(UINT64_MAX, 0, "");
}

static void test_limit_of_this_process_can_be_asked(void **state)
{
    (void)state;
    wefti_memory_limit limit;
    wefti_memory_limit_read("", &limit);
    print_message("limit here: %llu bytes, %s\n",
                  (unsigned long long)limit.bytes, limit.file);
    assert_int_equal(limit.bytes == UINT64_MAX, !limit.file[0]);
}

/* The least of what the system has, the group allows and the process may. */
static void test_available_is_the_least_of_all_limits(void **state)
{
    (void)state;
    begin("0::/jobs\n", "30 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n");
    uint64_t own = wefti_memory_available(root);
    lay("/proc/meminfo", "MemTotal: 9999999 kB\nMemAvailable:    5000 kB\n");
    assert_true(wefti_memory_available(root) == 5000 * 1024);
    assert_true(own > 5000 * 1024);
    lay("/cg/jobs/memory.max", "4000000\n");
    assert_true(wefti_memory_available(root) == 4000000);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* their shadow memory alone is above any limit */
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_DATA, &old), 0);
    small = (struct rlimit){3000000, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &small), 0);
    uint64_t limited = wefti_memory_available(root);
    assert_int_equal(setrlimit(RLIMIT_DATA, &old), 0);
    assert_true(limited == 3000000);
#endif
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit_of_version_2_is_the_lowest_above),
        cmocka_unit_test(test_limit_of_version_1_is_found_among_others),
        cmocka_unit_test(test_limit_in_a_container_is_found_at_the_top),
        cmocka_unit_test(test_limit_where_nothing_can_be_read_is_none),
        cmocka_unit_test(test_limit_of_this_process_can_be_asked),
        cmocka_unit_test(test_available_is_the_least_of_all_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
