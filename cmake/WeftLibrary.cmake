# SPDX-License-Identifier: BSD-3-Clause
# libweft.so for users, and weft_inside: the same objects with their internal
# names, for weft's own programs and tests.
set(weft_folders base device kernels_wire comm_oob comm overlap)
set(weft_objects)
foreach(folder ${weft_folders})
    list(APPEND weft_objects $<TARGET_OBJECTS:weft_${folder}>)
endforeach()

add_library(weft SHARED ${weft_objects})
set_target_properties(weft PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}
    WEFT_INLINED ON
    LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/weft.map)
target_link_options(weft PRIVATE
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/weft.map)
if(NOT WEFT_FUZZ) # clang's sanitizers are defined in programs only
    target_link_options(weft PRIVATE -Wl,--no-undefined)
endif()
target_link_libraries(weft PRIVATE weft_flags Threads::Threads
    PkgConfig::SODIUM m)

add_library(weft_inside STATIC ${weft_objects})
target_link_libraries(weft_inside PUBLIC weft_flags Threads::Threads
    PkgConfig::SODIUM m)

# The machine and a job's machines, for programs: hwloc and expat come along.
add_library(weft_machines STATIC
    $<TARGET_OBJECTS:weft_topo> $<TARGET_OBJECTS:weft_comm_cluster>)
target_link_libraries(weft_machines PUBLIC weft_inside PkgConfig::HWLOC
    PkgConfig::EXPAT ${CMAKE_DL_LIBS} m)
