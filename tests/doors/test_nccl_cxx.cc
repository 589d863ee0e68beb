// SPDX-License-Identifier: BSD-3-Clause
//
// Goal: a program in C++ that knows only nccl.h runs on the library in its
// place.
//
// Method: that of test_nccl_header.c, door_program.h, compiled as C++.
#include "tests/doors/door_program.h"

#include <cstdlib>

int main()
{
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return door_program();
}
