/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/device/no_driver.c - a libcuda.so.1 that is no driver: all it has is
 * the version, or the error in its place that TEST_NO_DRIVER says.
 */
#include <stdlib.h>

__attribute__((visibility("default"))) int cuDriverGetVersion(int *version);

int cuDriverGetVersion(int *version)
{
    *version = 12020;
    return atoi(getenv("TEST_NO_DRIVER"));
}
