# SPDX-License-Identifier: BSD-3-Clause
# weft_folder(NAME SOURCES ... [SEES folder ...] [LINKS target ...]
#             [DEFINES ...] [INLINED]) - one folder as one object library;
# INLINED: the linker may inline across its files (WeftOptions).
#
# Its include path is a generated root that holds links to the folder itself,
# to the public headers and to the folders after SEES, and nothing else: an
# include of any other folder does not compile.

# Makes the include root of NAME and returns its path.
function(weft_include_root name result)
    set(root ${CMAKE_BINARY_DIR}/roots/${name})
    file(REMOVE_RECURSE ${root})
    file(MAKE_DIRECTORY ${root})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/include/weft ${root}/weft SYMBOLIC)
    foreach(folder ${ARGN})
        get_filename_component(parent ${root}/${folder} DIRECTORY)
        file(MAKE_DIRECTORY ${parent})
        file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${folder} ${root}/${folder}
             SYMBOLIC)
    endforeach()
    set(${result} ${root} PARENT_SCOPE)
endfunction()

function(weft_folder name)
    cmake_parse_arguments(arg "INLINED" "FOLDER" "SOURCES;SEES;LINKS;DEFINES" ${ARGN})
    if(NOT arg_FOLDER)
        set(arg_FOLDER ${name})
    endif()
    string(REPLACE "/" "_" target weft_${name})
    weft_include_root(${name} root ${arg_FOLDER} ${arg_SEES})
    add_library(${target} OBJECT ${arg_SOURCES})
    set_target_properties(${target} PROPERTIES WEFT_INLINED ${arg_INLINED})
    target_include_directories(${target} PRIVATE ${root})
    target_compile_definitions(${target} PRIVATE ${arg_DEFINES})
    target_link_libraries(${target}
        PRIVATE weft_flags Threads::Threads ${arg_LINKS})
endfunction()
