# SPDX-License-Identifier: BSD-3-Clause
# What "cmake --install" puts where: headers, libweft.so, the programs, and the
# two descriptions that other builds find it by. Nothing in them names the
# prefix, so an installed tree can be moved.
include(CMakePackageConfigHelpers)

set(weft_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
set(weft_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS weft EXPORT weft_export
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/weft
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS weft-run weft-perf weft-sched weft-train weft-info
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# CMake: find_package(weft), target weft::weft.
install(EXPORT weft_export NAMESPACE weft:: FILE weft-targets.cmake
    DESTINATION ${weft_package_dir})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/weft-config.cmake.in
    ${CMAKE_BINARY_DIR}/weft-config.cmake
    INSTALL_DESTINATION ${weft_package_dir}
    NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/weft-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/weft-config.cmake
    ${CMAKE_BINARY_DIR}/weft-config-version.cmake
    DESTINATION ${weft_package_dir})

# pkg-config: weft.pc, its prefix counted back from where the file lies.
file(RELATIVE_PATH weft_pc_to_prefix
    /prefix/${weft_pc_dir} /prefix)
configure_file(${CMAKE_SOURCE_DIR}/cmake/weft.pc.in
    ${CMAKE_BINARY_DIR}/weft.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/weft.pc DESTINATION ${weft_pc_dir})
