/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: without a CUDA driver, or with a file in its place that is none, the
 * cuda device is refused in dlopen's words and everything else goes on.
 * Method: this program is not linked with the fake driver, and runs itself with
 * a libcuda.so.1 in a folder that comes first where a child looks: an empty
 * file, one that has no function of the driver, one that has one.
 */
#include "device/cuda.h"
#include "weft/device.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Status of the process: 0 if all is refused as it must be. */
static int try_cuda(const char *said)
{
    weft_device *device;
    int count, version;
    if (weft_device_open("cuda", 0, &device) != WEFT_ERR_UNSUPPORTED ||
        !strstr(weft_error_text(), said) ||
        !strstr(weft_error_text(), "libcuda.so.1")) {
        fprintf(stderr, "open: %s\n", weft_error_text());
        return 1;
    }
    if (wefti_cuda_count(&count, &version) != WEFT_ERR_UNSUPPORTED) {
        fprintf(stderr, "count: %s\n", weft_error_text());
        return 1;
    }
    if (weft_device_open("host", 0, &device) != WEFT_OK) {
        return 1;
    }
    weft_device_close(device);
    return 0;
}

static const char *self;

static int run_self(const char *folder, const char *said)
{
    pid_t child = fork();
    if (child == 0) {
        if (folder) {
            setenv("LD_LIBRARY_PATH", folder, 1);
        } else {
            unsetenv("LD_LIBRARY_PATH");
        }
        execl(self, self, said, (char *)NULL);
        _exit(99);
    }
    int status = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* On a machine with a driver the other case stands for this one. */
static void test_cuda_absent_without_a_driver_is_refused(void **state)
{
    (void)state;
    void *installed = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (installed) {
        dlclose(installed);
    } else {
        assert_int_equal(run_self(NULL, "no CUDA driver: libcuda.so.1: "), 0);
    }
}

/* With this file in its place. */
static void refuse_file(const char *file, const char *said)
{
    char folder[] = "/tmp/weft-no-cuda-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
    assert_int_equal(symlink(file, path), 0);
    int status = run_self(folder, said);
    unlink(path);
    rmdir(folder);
    assert_int_equal(status, 0);
}

static void test_cuda_absent_file_that_is_no_driver_is_refused(void **state)
{
    (void)state;
    char empty[] = "/tmp/weft-no-cuda-XXXXXX";
    int file = mkstemp(empty);
    assert_true(file >= 0);
    close(file);
    refuse_file(empty, "libcuda.so.1: file too short");
    unlink(empty);
    refuse_file(TEST_KERNELS,
                "libcuda.so.1 has no cuDriverGetVersion: it is no "
                "CUDA driver");
}

static void test_cuda_absent_driver_with_too_little_is_refused(void **state)
{
    (void)state;
    setenv("TEST_NO_DRIVER", "0", 1);
    refuse_file(TEST_NO_DRIVER, "libcuda.so.1: the driver, for CUDA 12.2, has "
                                "no cuGetProcAddress_v2");
    setenv("TEST_NO_DRIVER", "34", 1);
    refuse_file(TEST_NO_DRIVER, "error 34, the toolkit's stub");
    setenv("TEST_NO_DRIVER", "803", 1);
    refuse_file(TEST_NO_DRIVER, "does not tell its version (error 803): it is "
                                "no CUDA driver");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return try_cuda(argv[1]);
    }
    self = argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_absent_without_a_driver_is_refused),
        cmocka_unit_test(test_cuda_absent_file_that_is_no_driver_is_refused),
        cmocka_unit_test(test_cuda_absent_driver_with_too_little_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
