#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: no kernel keeps registers in memory ("spills"), on any chip it is built
for.

Method: compile each source as the build does, for each architecture, with
-Xptxas -v, and read what ptxas says of each function.

Usage: test_kernel_spills.py NVCC "FLAGS" SOURCE...
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

# cmake/WeftKernels.cmake: the code, and the PTX that it is made from.
ARCHS = {"sm_80": "compute_80", "sm_90": "compute_90", "sm_100": "compute_90"}
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def compile_verbose(nvcc, flags, source, arch, folder):
    run = subprocess.run(
        [nvcc, *flags, "-gencode", "arch=%s,code=%s" % (ARCHS[arch], arch),
         "-Xptxas", "-v", "-cubin", "-o",
         os.path.join(folder, "kernels.cubin"), source],
        capture_output=True, text=True)
    print(run.stdout + run.stderr if run.returncode else "", end="")
    return run.returncode, run.stdout + run.stderr


def main():
    nvcc, flags, sources = sys.argv[1], shlex.split(sys.argv[2]), sys.argv[3:]
    failures = kernels = 0
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            for arch in ARCHS:
                code, said = compile_verbose(nvcc, flags, source, arch, folder)
                names, spills = ENTRY.findall(said), SPILL.findall(said)
                if code != 0 or not names or len(names) > len(spills):
                    print("FAILED: %s for %s: does not compile, or ptxas says "
                          "nothing of its kernels" % (source, arch))
                    failures += 1
                for name, spill in zip(names, spills):
                    if spill != ("0", "0"):
                        print("FAILED: %s for %s spills %s bytes and loads %s"
                              % ((name, arch) + spill))
                        failures += 1
                kernels += len(names)
    print("%d kernels looked at, %d failures" % (kernels, failures))
    return 1 if failures or kernels == 0 else 0


sys.exit(main())
