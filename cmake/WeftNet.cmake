# SPDX-License-Identifier: BSD-3-Clause
# weft_net.so: the network module, opened by libweft when ranks share no memory
# (comm/net/port_library.c says where it is looked for), and weft_net_ucx.so,
# which it opens. Without UCX there is neither, and such jobs are refused by
# name.
pkg_check_modules(UCX ucx)
if(UCX_FOUND)
    message(STATUS "network module: on UCX ${UCX_VERSION}")
    add_library(weft_net MODULE ${CMAKE_SOURCE_DIR}/comm/net/port_guard.c)
    add_library(weft_net_ucx MODULE ${CMAKE_SOURCE_DIR}/comm/net/port_ucx.c
        ${CMAKE_SOURCE_DIR}/comm/net/port_ucx_admission.c
        ${CMAKE_SOURCE_DIR}/comm/net/port_ucx_list.c)
    add_dependencies(weft_net weft_net_ucx)
    foreach(module weft_net weft_net_ucx)
        set_target_properties(${module} PROPERTIES PREFIX "")
        target_include_directories(${module}
            PRIVATE ${CMAKE_BINARY_DIR}/roots/comm)
        target_link_libraries(${module} PRIVATE weft_flags)
        install(TARGETS ${module}
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/weft)
    endforeach()
    target_include_directories(weft_net_ucx SYSTEM PRIVATE ${UCX_INCLUDE_DIRS})
    target_link_libraries(weft_net_ucx PRIVATE ${UCX_LINK_LIBRARIES})
else()
    message(STATUS "network module: none, libucx-dev is not installed; "
        "jobs on several hosts will be refused")
endif()
