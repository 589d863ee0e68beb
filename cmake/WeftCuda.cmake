# SPDX-License-Identifier: BSD-3-Clause
# A C++ compiler, for tests that run CUDA kernels on the host (tests/simt); CUDA's
# compiler (WEFT_NVCC), which needs it too, and its headers (WEFT_CUDA_INCLUDE).
# Nothing else needs one of them, so a build without goes on, and
# weft_kernels_why says why there will be no kernels for GPUs. A WEFT_NVCC that
# somebody has asked for must work.
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

# Runs nvcc for what its first argument asks; why_out: why that failed, or empty.
function(weft_run_nvcc output_out why_out what)
    execute_process(COMMAND ${WEFT_NVCC} ${what} ${ARGN} RESULT_VARIABLE result
        OUTPUT_VARIABLE output ERROR_VARIABLE said)
    set(why)
    if(NOT result STREQUAL "0")
        string(STRIP "${said}" said)
        string(REGEX REPLACE "(.)$" "\\1: " said "${said}")
        set(why "${said}nvcc ${what} fails (${result})")
    endif()
    set(${output_out} "${output}" PARENT_SCOPE)
    set(${why_out} "${why}" PARENT_SCOPE)
endfunction()

# Whether the toolkit is one that weft knows.
function(weft_check_toolkit why_out)
    weft_run_nvcc(archs why --list-gpu-arch)
    if(why OR NOT archs MATCHES "compute_100")
        if(NOT why)
            set(why "it has no compute_100")
        endif()
        string(APPEND why "; CUDA 12.8 or later is needed")
    endif()
    set(${why_out} "${why}" PARENT_SCOPE)
endfunction()

# Whether nvcc gets on with the C++ compiler: asked once of each nvcc.
function(weft_check_nvcc why_out)
    set(why)
    if(NOT CMAKE_CXX_COMPILER)
        set(why "it needs a C++ compiler, and there is none")
    elseif(NOT WEFT_NVCC_WORKS STREQUAL WEFT_NVCC)
        set(probe ${CMAKE_BINARY_DIR}/CMakeFiles/weft_nvcc.cu)
        file(WRITE ${probe}
            "#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n__global__ void f() {}\n")
        weft_run_nvcc(output why -ptx -std=c++17 -arch=compute_80
            -o ${probe}.ptx ${probe})
    endif()
    if(NOT why)
        set(WEFT_NVCC_WORKS "${WEFT_NVCC}" CACHE INTERNAL "")
    endif()
    set(${why_out} "${why}" PARENT_SCOPE)
endfunction()

if(NOT DEFINED WEFT_NVCC OR WEFT_NVCC STREQUAL "WEFT_NVCC-NOTFOUND")
    find_program(WEFT_NVCC nvcc HINTS ENV CUDA_HOME PATH_SUFFIXES bin
        PATHS /usr/local/cuda DOC "CUDA's compiler; empty: no kernels for GPUs")
    set(WEFT_NVCC_FOUND "${WEFT_NVCC}" CACHE INTERNAL "what was not asked for")
endif()
set(weft_kernels_why "there is no nvcc to compile them (WEFT_NVCC)")
if(WEFT_NVCC)
    weft_check_toolkit(weft_kernels_why)
    if(NOT weft_kernels_why)
        get_filename_component(weft_cuda_bin "${WEFT_NVCC}" REALPATH)
        get_filename_component(weft_cuda_bin "${weft_cuda_bin}" DIRECTORY)
        find_path(WEFT_CUDA_INCLUDE cuda_fp8.h
            HINTS "${weft_cuda_bin}/../include" NO_DEFAULT_PATH)
        if(NOT CMAKE_CROSSCOMPILING) # then it compiles nothing
            weft_check_nvcc(weft_kernels_why)
        endif()
    endif()
    if(weft_kernels_why)
        if(NOT WEFT_NVCC STREQUAL WEFT_NVCC_FOUND)
            message(FATAL_ERROR "WEFT_NVCC=${WEFT_NVCC}: ${weft_kernels_why}")
        endif()
        set(weft_kernels_why "${WEFT_NVCC} is not used: ${weft_kernels_why}")
        set(WEFT_NVCC "")
    endif()
endif()
if(NOT WEFT_CUDA_INCLUDE)
    message(STATUS "CUDA's headers: none beside nvcc; the kernels' emulation "
        "with CUDA's own small floats and the comparison of the fake driver "
        "with cuda.h are left out")
endif()
