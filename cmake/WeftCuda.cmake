# SPDX-License-Identifier: BSD-3-Clause
# A C++ compiler, for tests that run CUDA kernels on the host (tests/simt).
# Nothing else needs one, so a build without it goes on.
include(CheckLanguage)
if(NOT CMAKE_CROSSCOMPILING)
    check_language(CXX)
endif()
if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    set(CMAKE_CXX_STANDARD 17)
    set(CMAKE_CXX_STANDARD_REQUIRED ON)
    set(CMAKE_CXX_EXTENSIONS OFF)
endif()
