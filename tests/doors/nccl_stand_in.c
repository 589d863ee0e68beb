/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/doors/nccl_stand_in.c - a libnccl.so.2 that is not weft's, and says so.
 */
__attribute__((visibility("default"))) int ncclGetVersion(int *version_out);

int ncclGetVersion(int *version_out)
{
    *version_out = 1;
    return 0;
}
