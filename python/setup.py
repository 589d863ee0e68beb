# SPDX-License-Identifier: BSD-3-Clause
"""Builds weft-torch against the installed torch and a build of weft.

    WEFT_LIB   folder of libweft.so; without it build/release/lib of the
               checkout
"""
import glob
import os

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
LIB = os.path.abspath(os.environ.get("WEFT_LIB",
                                     os.path.join(ROOT, "build/release/lib")))
if not os.path.exists(os.path.join(LIB, "libweft.so")):
    raise SystemExit(f"{LIB}: no libweft.so there: build weft first "
                     "(scripts/build), or name its folder by WEFT_LIB")

setup(
    name="weft-torch",
    version="0.1.0",
    description="torch.distributed's backend of weft",
    license="BSD-3-Clause",
    packages=["weft_torch"],
    ext_modules=[CppExtension(
        "weft_torch._backend", ["weft_torch/backend.cpp"],
        depends=glob.glob("weft_torch/*.hpp") +
        glob.glob(os.path.join(ROOT, "include/weft/*.h")),
        include_dirs=[os.path.join(ROOT, "include")],
        library_dirs=[LIB], libraries=["weft"],
        runtime_library_dirs=[LIB],
        extra_compile_args=["-std=c++20", "-O2", "-Wall", "-Wextra",
                            "-Wno-unused-parameter"])],
    cmdclass={"build_ext": BuildExtension},
)
