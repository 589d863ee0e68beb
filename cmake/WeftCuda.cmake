# SPDX-License-Identifier: BSD-3-Clause
# CUDA's compiler and headers, where they are (WEFT_NVCC, WEFT_CUDA_INCLUDE), and
# a C++ compiler, for tests that run CUDA kernels on the host (tests/simt).
# Nothing else needs one, so a build without it goes on.
find_program(WEFT_NVCC nvcc HINTS ENV CUDA_HOME PATH_SUFFIXES bin
    PATHS /usr/local/cuda DOC "CUDA's compiler; empty: no kernels for GPUs")
if(WEFT_NVCC)
    execute_process(COMMAND ${WEFT_NVCC} --list-gpu-arch
        OUTPUT_VARIABLE weft_archs ERROR_QUIET)
    if(NOT weft_archs MATCHES "compute_100")
        message(STATUS "${WEFT_NVCC}: not used, it has no compute_100; "
            "CUDA 12.8 or later is needed")
        set(WEFT_NVCC "")
    endif()
endif()
if(WEFT_NVCC)
    get_filename_component(weft_cuda_bin "${WEFT_NVCC}" REALPATH)
    get_filename_component(weft_cuda_bin "${weft_cuda_bin}" DIRECTORY)
    find_path(WEFT_CUDA_INCLUDE cuda_fp8.h
        HINTS "${weft_cuda_bin}/../include" NO_DEFAULT_PATH)
endif()
if(NOT WEFT_CUDA_INCLUDE)
    message(STATUS "CUDA's headers: none beside nvcc; the kernels' emulation "
        "with CUDA's own small floats and the comparison of the fake driver "
        "with cuda.h are left out")
endif()
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
