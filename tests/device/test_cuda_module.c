/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a launch that cannot be, and a file of kernels that is missing or
 * damaged, are refused by name, and all else goes on.
 * Method: the fake driver; files made from the one that stands for weft's
 * kernels there.
 */
#include "cuda_test.h"

#include "device/cuda.h"
#include "kernels/wire/launch.h"

#include <fcntl.h>
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
    weft_stream_destroy(stream);
    close_cuda(device);
}

/* What was asked for by name has to be there when the device is opened. */
static void check_missing(void *arg)
{
    (void)arg;
    static const char said[] =
        "WEFT_KERNELS=/nowhere/kernels.so: No such file or directory; allowed "
        "is a file with the kernels for GPUs";
    char path[PATH_MAX];
    weft_device *device;
    CHECK_REFUSED(WEFT_ERR_INVALID, weft_device_open("cuda", 0, &device), said);
    CHECK_REFUSED(WEFT_ERR_INVALID, wefti_cuda_find_kernels(path), said);
    CHECK_WEFT(weft_device_open("host", 0, &device));
    weft_device_close(device);
    setenv("WEFT_KERNELS", TEST_KERNELS, 1);
    CHECK_WEFT(wefti_cuda_find_kernels(path));
    CHECK(strcmp(path, TEST_KERNELS) == 0);
    close_cuda(open_cuda(0)); /* and nothing is left of the try before */
}

/* A launch says what is wrong with the file; the rest of the device works. */
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

/* Cut in the middle; with another symbol; with an image that is none. */
static void check_damages(void *arg)
{
    (void)arg;
    static char bytes[1 << 20], begin[] = "// SPDX", none[] = "?? SPDX";
    char path[] = "/tmp/weft-kernels-XXXXXX";
    FILE *file = fopen(TEST_KERNELS, "rb");
    CHECK(file != NULL);
    const size_t count = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, bytes, count / 2) == (ssize_t)(count / 2));
    check_damaged(path, "damaged: it has");
    char *image = memmem(bytes, count, begin, sizeof(begin) - 1);
    CHECK(image != NULL);
    memcpy(image, none, sizeof(none) - 1);
    CHECK(unlink(path) == 0); /* what has been mapped stays as it is */
    close(fd);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, count) == (ssize_t)count);
    close(fd);
    check_damaged(path, "CUDA_ERROR_INVALID_");
    unlink(path);
    check_damaged(TEST_DRIVER, "weft_kernels_image");
}

static void test_cuda_module_damaged_is_refused_by_the_launch(void **state)
{
    (void)state;
    in_child(check_damages, NULL, NULL);
}

static void test_cuda_module_misused_or_missing_is_refused(void **state)
{
    (void)state;
    in_child(check_misused, NULL, NULL);
    in_child(check_missing, NULL, "WEFT_KERNELS", "/nowhere/kernels.so", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_module_misused_or_missing_is_refused),
        cmocka_unit_test(test_cuda_module_damaged_is_refused_by_the_launch),
    };
    return cmocka_run_group_tests(tests, set_kernels, NULL);
}
