# SPDX-License-Identifier: BSD-3-Clause
# The kernels for GPUs: kernels/weft_kernels.fatbin and weft_math_kernels.fatbin,
# with code for sm_80, sm_90 and sm_100 and PTX for what comes later, each in a
# module that libweft opens; beside each, as nvcc leaves it on its way,
# kernels/ptx/NAME.compute_80.ptx and NAME.compute_90.ptx: tests interpret that of
# the former. The code for sm_100 comes from compute_90 too, as nothing in
# the kernels would differ, and each PTX takes nvcc ten seconds. Without nvcc
# there are no kernels. Products and sums are not contracted: results have the
# host's bits.
set(wire ${CMAKE_SOURCE_DIR}/kernels/wire)
set(weft_kernel_sources
    ${wire}/wire_cast.cu ${wire}/wire_move.cu ${wire}/wire_reduce.cu
    ${wire}/wire_rows.cu ${wire}/wire_sums.cu)
set(weft_kernel_headers ${wire}/device_float.cuh ${wire}/element.cuh
    ${wire}/run.cuh ${wire}/wire_rows.cuh ${wire}/launch.h ${wire}/pack.h
    ${CMAKE_SOURCE_DIR}/include/weft/types.h)
set(WEFT_NVCC_FLAGS -std=c++17 -O3 -fmad=false -Werror all-warnings
    -I${CMAKE_BINARY_DIR}/roots/kernels/wire)

# Those of kernels/math, which may contract, and use the wire kernels' floats.
set(math ${CMAKE_SOURCE_DIR}/kernels/math)
set(weft_math_kernel_sources
    ${math}/adamw.cu ${math}/attention_backward.cu ${math}/attention_forward.cu
    ${math}/cross_entropy.cu ${math}/elementwise.cu ${math}/embedding.cu
    ${math}/experts.cu ${math}/gemm.cu ${math}/rmsnorm.cu ${math}/rope.cu
    ${math}/route.cu ${math}/sumsq.cu ${math}/swiglu.cu)
set(weft_math_kernel_headers
    ${math}/attention_tiles.cuh ${math}/gemm_tile.cuh ${math}/math_launch.h
    ${math}/math_pack.cuh ${math}/math_real.cuh
    ${wire}/device_float.cuh ${wire}/dynamic_shared.cuh)
weft_include_root(kernels/math_cuda math_cuda_root kernels/math kernels/wire)
set(WEFT_MATH_NVCC_FLAGS -std=c++17 -O3 -Werror all-warnings
    -I${math_cuda_root})

# weft_kernels_module(NAME FLAGS list SOURCES list HEADERS list) - NAME.fatbin,
# one module, so what it may define twice would not compile; and NAME.so, which
# holds that and nothing else.
function(weft_kernels_module name)
    cmake_parse_arguments(arg "" "" "FLAGS;SOURCES;HEADERS" ${ARGN})
    set(base ${CMAKE_BINARY_DIR}/kernels/${name})
    set(all_sources "")
    foreach(source ${arg_SOURCES})
        string(APPEND all_sources "#include \"${source}\"\n")
    endforeach()
    file(CONFIGURE OUTPUT ${base}.cu CONTENT "${all_sources}" @ONLY)
    set(ptx ${CMAKE_BINARY_DIR}/kernels/ptx)
    file(MAKE_DIRECTORY ${ptx})
    add_custom_command(OUTPUT ${base}.fatbin ${ptx}/${name}.compute_80.ptx
            ${ptx}/${name}.compute_90.ptx
        COMMAND ${WEFT_NVCC} ${arg_FLAGS}
            -gencode arch=compute_80,code=[sm_80,compute_80]
            -gencode arch=compute_90,code=[sm_90,sm_100] --threads 0 -fatbin
            --keep --keep-dir ${ptx}
            -o ${base}.fatbin ${base}.cu
        DEPENDS ${arg_SOURCES} ${arg_HEADERS} ${base}.cu VERBATIM
        COMMENT "${name} for sm_80, sm_90, sm_100")
    add_custom_target(${name} ALL DEPENDS ${base}.fatbin)

    # A copy of the source for each: what it depends on is a source's.
    configure_file(${wire}/kernels_image.c ${base}_image.c COPYONLY)
    set_source_files_properties(${base}_image.c PROPERTIES
        OBJECT_DEPENDS ${base}.fatbin)
    add_library(${name}_so MODULE ${base}_image.c)
    target_compile_definitions(${name}_so PRIVATE
        WEFTI_KERNELS_FILE="${base}.fatbin")
    add_dependencies(${name}_so ${name})
    target_link_libraries(${name}_so PRIVATE weft_flags)
    set_target_properties(${name}_so PROPERTIES PREFIX "" OUTPUT_NAME ${name})
    install(TARGETS ${name}_so LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/weft)
endfunction()

set(weft_ptx_archs 80)
if(WEFT_TEST_LONG)
    list(APPEND weft_ptx_archs 90)
endif()

if(WEFT_SANITIZE OR WEFT_FUZZ OR CMAKE_CROSSCOMPILING)
    message(STATUS "kernels for GPUs: not in this kind of build")
elseif(NOT WEFT_NVCC)
    message(STATUS "kernels for GPUs: none, ${weft_kernels_why}")
else()
    message(STATUS "kernels for GPUs: by ${WEFT_NVCC}")
    set(kernels_dir ${CMAKE_BINARY_DIR}/kernels)
    weft_kernels_module(weft_kernels FLAGS ${WEFT_NVCC_FLAGS}
        SOURCES ${weft_kernel_sources} HEADERS ${weft_kernel_headers})
    weft_kernels_module(weft_math_kernels FLAGS ${WEFT_MATH_NVCC_FLAGS}
        SOURCES ${weft_math_kernel_sources} HEADERS ${weft_math_kernel_headers})
endif()
