# SPDX-License-Identifier: BSD-3-Clause
# Build options, and the flags that every target of weft compiles with.
set(WEFT_SANITIZE "" CACHE STRING
    "sanitizers: empty, address (with undefined), or thread")
set_property(CACHE WEFT_SANITIZE PROPERTY STRINGS "" address thread)
option(WEFT_WERROR "treat warnings as errors" ON)
option(WEFT_TEST_LONG "tests run their full matrices" OFF)
option(WEFT_FUZZ "build libFuzzer targets instead of tests (clang only)" OFF)

add_library(weft_flags INTERFACE)
target_compile_definitions(weft_flags INTERFACE _GNU_SOURCE)
target_compile_options(weft_flags INTERFACE
    -Wall -Wextra -Wshadow -Wpointer-arith -Wcast-align -Wwrite-strings
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>
    -Wvla -Wundef -Wdouble-promotion
    -Wformat=2 -Wimplicit-fallthrough -fno-math-errno -ffp-contract=off
    -fno-semantic-interposition)
if(WEFT_WERROR)
    target_compile_options(weft_flags INTERFACE -Werror)
endif()

# Hundreds of programs are linked for tests only: of the time that bfd takes over
# each, gold takes 40%, lld 30%.
set(WEFT_TEST_LINKER)
if(NOT (WEFT_FUZZ OR CMAKE_CROSSCOMPILING))
    include(CheckLinkerFlag)
    foreach(name lld gold)
        check_linker_flag(C -fuse-ld=${name} WEFT_LINKER_${name})
        if(WEFT_LINKER_${name})
            set(WEFT_TEST_LINKER -fuse-ld=${name})
            break()
        endif()
    endforeach()
    if(WEFT_TEST_LINKER)
        message(STATUS "linker of tests: ${WEFT_TEST_LINKER}")
    else()
        message(STATUS
            "linker of tests: the compiler's own, there are neither lld nor gold")
    endif()
endif()

if(WEFT_SANITIZE STREQUAL "address")
    set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(WEFT_SANITIZE STREQUAL "thread")
    set(sanitizers -fsanitize=thread)
elseif(NOT WEFT_SANITIZE STREQUAL "")
    message(FATAL_ERROR "WEFT_SANITIZE=${WEFT_SANITIZE}: "
        "allowed is empty, address or thread")
endif()
if(WEFT_SANITIZE)
    target_compile_options(weft_flags INTERFACE
        ${sanitizers} -fno-omit-frame-pointer)
    target_link_options(weft_flags INTERFACE ${sanitizers})
    if(WEFT_TEST_LINKER)
        target_link_options(weft_flags INTERFACE
            $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:${WEFT_TEST_LINKER}>)
    endif()
    # Tests start thousands of processes: what the address sanitizer writes down of
    # each variable need not be relocated where a program has its own address.
    if(WEFT_SANITIZE STREQUAL "address")
        target_link_options(weft_flags INTERFACE
            $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
    endif()
    add_library(weft_sanitizer_options OBJECT
        ${CMAKE_SOURCE_DIR}/base/sanitizer_options.c)
    target_compile_options(weft_sanitizer_options PRIVATE ${sanitizers})
    target_sources(weft_flags INTERFACE
        $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:weft_sanitizer_options>>)
endif()

# A small operation passes through a dozen files of the lower layers: inlined
# across them it costs a fifth less. Targets with the property WEFT_INLINED take
# part; their objects keep plain code too, so that the tests, a hundred of
# programs, link without a second compilation.
#
# Each such link optimises the same files anew, for 15 to 20 s of CPU time: in
# libraries of doors it may be left out, of whose code libweft's is most. The
# preset release sets it again.
option(WEFT_LTO "inline across files, in what a release installs" ON)
option(WEFT_LTO_DOORS "also in the libraries of doors/" ON)
if(WEFT_LTO AND CMAKE_C_COMPILER_ID STREQUAL "GNU" AND NOT WEFT_SANITIZE)
    set(inlined $<BOOL:$<TARGET_PROPERTY:WEFT_INLINED>>)
    target_compile_options(weft_flags INTERFACE
        $<$<AND:$<CONFIG:Release>,${inlined}>:-flto=auto;-ffat-lto-objects>)
    target_link_options(weft_flags INTERFACE
        $<$<CONFIG:Release>:$<IF:${inlined},-flto=auto,-fno-lto>>)
endif()

# Fuzzing counts the lines it reaches, and every stray access ends it.
if(WEFT_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "WEFT_FUZZ: only clang has libFuzzer, "
            "not ${CMAKE_C_COMPILER_ID}")
    endif()
    target_compile_options(weft_flags INTERFACE
        -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
        -fno-omit-frame-pointer -fprofile-instr-generate -fcoverage-mapping
        -Wno-pass-failed) # counted loops need not become vector code
    target_link_options(weft_flags INTERFACE
        -fsanitize=address,undefined -fprofile-instr-generate)
endif()
