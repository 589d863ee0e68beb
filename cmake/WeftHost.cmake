# SPDX-License-Identifier: BSD-3-Clause
# weft_host.so: reads this host; opened by libweft when ranks live on several
# (comm/make/host_module.h). It has hwloc, and its own base and topo.
add_library(weft_host MODULE $<TARGET_OBJECTS:weft_comm_host>
    $<TARGET_OBJECTS:weft_topo> $<TARGET_OBJECTS:weft_base>)
set_target_properties(weft_host PROPERTIES PREFIX "")
target_link_libraries(weft_host PRIVATE weft_flags PkgConfig::HWLOC
    PkgConfig::EXPAT Threads::Threads ${CMAKE_DL_LIBS} m)
install(TARGETS weft_host LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/weft)
