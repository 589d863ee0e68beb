/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the time that control groups grant is found, of both versions, in
 * containers and below limits further up; cores are distinguished. Method:
 * folders that look like /proc and /sys, made here.
 */
#include "tests/topo/machine.h"
#include "topo/cpus.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>

static char root[64];

/* A file below root, with the folders that lead to it. */
static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *c = path + strlen(root) + 1; (c = strchr(c, '/')); c++) {
        *c = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *c = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int erase(const char *path, const struct stat *about, int type,
                 struct FTW *where)
{
    (void)about;
    (void)type;
    (void)where;
    return remove(path);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/weft-cpus-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int erase_root(void **state)
{
    (void)state;
    return nftw(root, erase, 16, FTW_DEPTH | FTW_PHYS);
}

static wefti_allowance read_here(void)
{
    static wefti_allowance allowance;
    char proc[80], sysfs[80];
    snprintf(proc, sizeof(proc), "%s/proc", root);
    snprintf(sysfs, sizeof(sysfs), "%s/sys", root);
    memset(&allowance, 0xa5, sizeof(allowance));
    assert_int_equal(wefti_allowance_read(proc, sysfs, &allowance), WEFT_OK);
    return allowance;
}

static void test_allowance_nothing_to_read_is_no_limit(void **state)
{
    (void)state;
    wefti_allowance all = read_here();
    assert_int_equal(all.quota, 0);
    assert_true(wefti_cpus_count(&all.cpus) > 0);
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(read_here().quota, 0);
    put("proc/self/cgroup", "nonsense\n::\n0:\n");
    put("sys/fs/cgroup/cpu.max", "x y\n");
    assert_int_equal(read_here().quota, 0);
}

static void test_allowance_version_2_takes_the_least_on_the_way_up(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/job/step\n");
    put("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/job/cpu.max", "250000 100000\n");
    assert_int_equal(read_here().quota, 3);
    put("sys/fs/cgroup/job/step/cpu.max", "150000 100000\n");
    assert_int_equal(read_here().quota, 2);
    put("sys/fs/cgroup/cpu.max", "5000 10000\n");
    assert_int_equal(read_here().quota, 1);
}

static void test_allowance_container_sees_only_its_root(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/kube/pod7/container\n");
    put("sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_int_equal(read_here().quota, 4);
}

static void test_allowance_version_1_is_read(void **state)
{
    (void)state;
    put("proc/self/cgroup",
        "5:cpuset:/elsewhere\n4:cpu,cpuacct:/docker/7\n0::/x\n");
    put("sys/fs/cgroup/cpu,cpuacct/docker/7/cpu.cfs_quota_us", "300000\n");
    put("sys/fs/cgroup/cpu,cpuacct/docker/7/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpuset/elsewhere/cpu.cfs_quota_us", "1\n");
    put("sys/fs/cgroup/cpuset/elsewhere/cpu.cfs_period_us", "100000\n");
    assert_int_equal(read_here().quota, 3);
}

static void test_allowance_threads_of_a_core_are_found(void **state)
{
    (void)state;
    wefti_allowance all = read_here();
    int cpu = 0;
    while (!wefti_cpus_has(&all.cpus, cpu)) {
        cpu++;
    }
    char name[96];
    snprintf(name, sizeof(name),
             "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    put(name, "7,71\n");
    assert_int_equal(read_here().core_of[cpu], 8);
    put(name, "no number\n");
    assert_int_equal(read_here().core_of[cpu], 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, erase_root)
    const struct CMUnitTest tests[] = {
        TEST(test_allowance_nothing_to_read_is_no_limit),
        TEST(test_allowance_version_2_takes_the_least_on_the_way_up),
        TEST(test_allowance_container_sees_only_its_root),
        TEST(test_allowance_version_1_is_read),
        TEST(test_allowance_threads_of_a_core_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
