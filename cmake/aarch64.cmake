# SPDX-License-Identifier: BSD-3-Clause
# The toolchain of the preset aarch64: Debian's cross compiler, the libraries
# that scripts/sysroot has laid out, and qemu to run what was built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
get_filename_component(sysroot
    "${CMAKE_CURRENT_LIST_DIR}/../build/sysroot/aarch64" ABSOLUTE)
set(WEFT_SYSROOT "${sysroot}"
    CACHE PATH "root of an AArch64 Debian, as scripts/sysroot makes it")
if(NOT EXISTS "${WEFT_SYSROOT}/usr/include/aarch64-linux-gnu")
    message(FATAL_ERROR "${WEFT_SYSROOT} holds no AArch64 libraries: "
        "run scripts/sysroot")
endif()
set(CMAKE_SYSROOT "${WEFT_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# OpenBLAS lies where Debian's alternatives would link to.
set(libraries "${WEFT_SYSROOT}/usr/lib/aarch64-linux-gnu")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${WEFT_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR}
    "${libraries}/pkgconfig:${libraries}/openblas-serial/pkgconfig")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${libraries}/openblas-serial")

# The host's MPI is not for this architecture.
foreach(mpi openmpi mpich)
    set(WEFT_MPICC_${mpi} "" CACHE FILEPATH "none")
endforeach()

# qemu takes the loader and the libraries from the root as well.
find_program(WEFT_QEMU qemu-aarch64-static)
if(WEFT_QEMU)
    set(CMAKE_CROSSCOMPILING_EMULATOR "${WEFT_QEMU};-L;${WEFT_SYSROOT};-E"
        "LD_LIBRARY_PATH=/usr/lib/aarch64-linux-gnu/openblas-serial")
endif()
