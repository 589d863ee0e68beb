/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a launch that cannot be, and a file of kernels that is missing or
 * damaged, are refused by name, and all else goes on.
 * Method: the fake driver; files made from the one that stands for weft's
 * kernels there.
 */
#include "cuda_test.h"

#include "device/cuda.h"
#include "kernels/math/math_launch.h"
#include "kernels/wire/launch.h"

#include <limits.h>

static void check_misused(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    const wefti_copy_args args = {0};
    wefti_launch launch = {.kernel = "wefti_banana",
                           .blocks = 1,
                           .threads = 32,
                           .args = &args,
                           .args_bytes = sizeof(args)};
    CHECK_REFUSED(WEFT_ERR_INVALID, wefti_stream_launch(stream, &launch),
                  "no kernel wefti_banana");
    launch.kernel = "wefti_copy_bytes";
    launch.threads = 33;
    CHECK_REFUSED(WEFT_ERR_INVALID, wefti_stream_launch(stream, &launch),
                  "1 blocks of 33 threads");
    launch.threads = 32;
    launch.blocks = 0;
    CHECK_REFUSED(WEFT_ERR_INVALID, wefti_stream_launch(stream, &launch),
                  "0 blocks");
    int most;
    char said[64];
    CHECK_OK(cuDeviceGetAttribute(
        &most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
    CHECK(most > 48 << 10);
    launch.blocks = 1;
    launch.shared_bytes = (size_t)most + 1;
    snprintf(said, sizeof(said), "of shared memory: allowed is %d", most);
    CHECK_REFUSED(WEFT_ERR_INVALID, wefti_stream_launch(stream, &launch), said);
    launch.shared_bytes--;
    CHECK_WEFT(wefti_stream_launch(stream, &launch));
    launch.shared_bytes = 48 << 10; /* it may still have more */
    CHECK_WEFT(wefti_stream_launch(stream, &launch));
    CHECK_WEFT(weft_stream_wait(stream));
    weft_stream_destroy(stream);
    close_cuda(device);
}

/* The device is not opened with it; without it all goes on. */
static void refuse_file(const char *set, weft_status status, const char *said)
{
    char path[PATH_MAX];
    weft_device *device;
    setenv("WEFT_KERNELS", set, 1);
    CHECK_REFUSED(status, weft_device_open("cuda", 0, &device), said);
    CHECK_REFUSED(status, wefti_cuda_find_kernels(path), said);
    CHECK_WEFT(weft_device_open("host", 0, &device));
    weft_device_close(device);
    setenv("WEFT_KERNELS", TEST_KERNELS, 1);
    CHECK_WEFT(wefti_cuda_find_kernels(path));
    close_cuda(open_cuda(0)); /* nothing is left of the try before */
}

static void check_missing(void *arg)
{
    (void)arg;
    refuse_file("/nowhere/kernels.so", WEFT_ERR_INVALID,
                "WEFT_KERNELS=/nowhere/kernels.so: No such file or directory; "
                "allowed is a file with the kernels for GPUs");
}

/* Of no elements. */
static const wefti_math_fill no_fill;
static const wefti_launch math_launch = {.kernel = "wefti_math_fill_f32",
                                         .blocks = 1,
                                         .threads = 32,
                                         .args = &no_fill,
                                         .args_bytes = sizeof(no_fill)};

/* Math kernels are looked for at their first launch, and then no more. */
static void check_math_missing(void *arg)
{
    (void)arg;
    setenv("WEFT_MATH_KERNELS", "/nowhere/math.so", 1);
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    for (int i = 0; i < 2; i++) {
        CHECK_REFUSED(
            WEFT_ERR_INVALID, wefti_stream_launch(stream, &math_launch),
            "wefti_math_fill_f32: WEFT_MATH_KERNELS=/nowhere/math.so: "
            "No such file or directory; allowed is a file with the "
            "math kernels for GPUs");
    }
    const wefti_copy_args none = {0};
    wefti_launch copy = math_launch;
    copy.kernel = "wefti_copy_bytes"; /* those of collectives are there */
    copy.args = &none;
    CHECK_WEFT(wefti_stream_launch(stream, &copy));
    CHECK_WEFT(weft_stream_wait(stream));
    weft_stream_destroy(stream);
    close_cuda(device);
}

#ifdef TEST_MATH
/* What this build has made lies where it is looked for. */
static void check_math_found(void *arg)
{
    (void)arg;
    unsetenv("WEFT_MATH_KERNELS");
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    CHECK_WEFT(wefti_stream_launch(stream, &math_launch));
    CHECK_WEFT(weft_stream_wait(stream));
    weft_stream_destroy(stream);
    close_cuda(device);
}

static void test_cuda_module_of_math_of_the_build_is_found(void **state)
{
    (void)state;
    in_child(check_math_found, NULL, NULL);
}
#endif

static void test_cuda_module_of_math_missing_is_refused_by_name(void **state)
{
    (void)state;
    in_child(check_math_missing, NULL, NULL);
}

/* A file in the folder where the program runs, by its name alone. */
static void check_named(void *arg)
{
    (void)arg;
    char folder[] = "/tmp/weft-kernels-XXXXXX", path[PATH_MAX];
    CHECK(mkdtemp(folder) && chdir(folder) == 0);
    CHECK(symlink(TEST_KERNELS, "kernels.so") == 0);
    setenv("WEFT_KERNELS", "kernels.so", 1);
    CHECK_WEFT(wefti_cuda_find_kernels(path));
    CHECK(path[0] == '/');
    CHECK(unlink("kernels.so") == 0 && rmdir(folder) == 0);
}

/* A launch says what is wrong with the image; the rest of the device works. */
static void check_damaged(const char *path, const char *said)
{
    char byte = 0;
    setenv("WEFT_KERNELS", path, 1);
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    const wefti_launch launch = {
        .kernel = "wefti_copy_bytes", .blocks = 1, .threads = 32, .args = ""};
    for (int i = 0; i < 2; i++) {
        CHECK_REFUSED(WEFT_ERR_SYSTEM, wefti_stream_launch(stream, &launch),
                      said);
    }
    void *memory = make_memory(device, WEFT_MEMORY_DEVICE, 1);
    CHECK_WEFT(weft_device_copy(device, memory, "x", 1, stream));
    CHECK_WEFT(weft_device_copy(device, &byte, memory, 1, stream));
    CHECK_WEFT(weft_stream_wait(stream));
    CHECK(byte == 'x');
    weft_device_free(device, memory);
    weft_stream_destroy(stream);
    close_cuda(device);
}

static size_t read_kernels(char *bytes, size_t most)
{
    FILE *file = fopen(TEST_KERNELS, "rb");
    CHECK(file != NULL);
    const size_t count = fread(bytes, 1, most, file);
    CHECK(count > 0 && count < most);
    fclose(file);
    return count;
}

/* Cut in the middle; with another symbol; with an image that is none, which
 * only the driver can tell. */
static void check_damages(void *arg)
{
    (void)arg;
    static char bytes[1 << 20], begin[] = "// SPDX", none[] = "?? SPDX";
    char cut[] = "/tmp/weft-kernels-XXXXXX",
         other[] = "/tmp/weft-kernels-XXXXXX";
    const size_t count = read_kernels(bytes, sizeof(bytes));
    char *image = memmem(bytes, count, begin, sizeof(begin) - 1);
    CHECK(image != NULL);
    memcpy(image, none, sizeof(none) - 1);
    int fd = mkstemp(cut), other_fd = mkstemp(other);
    CHECK(fd >= 0 && write(fd, bytes, count / 2) == (ssize_t)(count / 2));
    CHECK(other_fd >= 0 && write(other_fd, bytes, count) == (ssize_t)count);
    refuse_file(cut, WEFT_ERR_SYSTEM, "damaged: it has");
    refuse_file(TEST_DRIVER, WEFT_ERR_SYSTEM, "weft_kernels_image");
    check_damaged(other, "CUDA_ERROR_INVALID_");
    close(fd);
    close(other_fd);
    CHECK(unlink(cut) == 0 && unlink(other) == 0);
}

static void test_cuda_module_damaged_is_refused_by_name(void **state)
{
    (void)state;
    in_child(check_damages, NULL, NULL);
}

static void test_cuda_module_missing_is_refused_by_name(void **state)
{
    (void)state;
    in_child(check_missing, NULL, NULL);
    in_child(check_named, NULL, NULL);
}

static void test_cuda_module_launched_wrongly_refuses(void **state)
{
    (void)state;
    in_child(check_misused, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_module_launched_wrongly_refuses),
        cmocka_unit_test(test_cuda_module_missing_is_refused_by_name),
        cmocka_unit_test(test_cuda_module_of_math_missing_is_refused_by_name),
#ifdef TEST_MATH
        cmocka_unit_test(test_cuda_module_of_math_of_the_build_is_found),
#endif
        cmocka_unit_test(test_cuda_module_damaged_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, set_kernels, NULL);
}
