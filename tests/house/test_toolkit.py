#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: a build finds CUDA's toolkit or says why it goes on without; one that was
asked for and will not do is an error.

Method: a project of no language that includes cmake/WeftCuda.cmake; scripts in
place of nvcc.

Usage: test_toolkit.py SOURCE_DIR
"""
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = sys.argv[1]
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(toolkit LANGUAGES NONE)
include({SOURCE}/cmake/WeftCuda.cmake)
message(STATUS "nvcc <${{WEFT_NVCC}}> why <${{weft_kernels_why}}>")
"""
OLD = "echo compute_80\necho compute_90\n"
NEW = "echo compute_80\necho compute_100\n"
ANCIENT = "echo 'nvcc fatal   : Unknown option' >&2\nexit 1\n"
# Knows its chips, and not the compiler that it finds.
BROKEN = """case $1 in
--list-gpu-arch) echo compute_100 ;;
*) echo 'unsupported GNU version' >&2; exit 1 ;;
esac
"""


class Toolkit(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        with open(os.path.join(self.place.name, "CMakeLists.txt"), "w",
                  encoding="utf-8") as file:
            file.write(PROJECT)

    def nvcc(self, script):
        folder = os.path.join(self.place.name, "cuda", "bin")
        os.makedirs(folder)
        path = os.path.join(folder, "nvcc")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(path, 0o755)
        return path

    def configure(self, *options, **variables):
        build = os.path.join(self.place.name, "build")
        return subprocess.run(
            ["cmake", "-S", self.place.name, "-B", build, *options],
            env={**os.environ, **variables}, text=True, capture_output=True,
            timeout=60)

    def found(self, said, *options):
        """By search: it is not used, and the build goes on."""
        cuda = os.path.join(self.place.name, "cuda")
        for _ in range(2):  # the second time it is in the cache
            done = self.configure(*options, CUDA_HOME=cuda)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"nvcc <> why <{cuda}/bin/nvcc is not used: ",
                          done.stdout)
            self.assertIn(said, done.stdout)

    def asked(self, path, said, *options):
        """By name: the build ends."""
        for _ in range(2):
            done = self.configure(f"-DWEFT_NVCC={path}", *options)
            self.assertNotEqual(done.returncode, 0)
            text = " ".join(done.stderr.split())
            self.assertIn(f"WEFT_NVCC={path}: ", text)
            self.assertIn(said, text)

    def test_none_is_said(self):
        done = self.configure("-DWEFT_NVCC=", "-DCMAKE_CXX_COMPILER=")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nvcc <> why <there is no nvcc", done.stdout)

    def test_one_that_is_too_old_is_said(self):
        self.nvcc(OLD)
        self.found("no compute_100; CUDA 12.8 or later is needed",
                   "-DCMAKE_CXX_COMPILER=")

    def test_one_that_fails_is_said_in_its_words(self):
        self.nvcc(ANCIENT)
        self.found("Unknown option: nvcc --list-gpu-arch fails (1); CUDA 12.8",
                   "-DCMAKE_CXX_COMPILER=")

    def test_one_without_a_cxx_compiler_is_said(self):
        self.nvcc(NEW)
        self.found("it needs a C++ compiler, and there is none",
                   "-DCMAKE_CXX_COMPILER=")

    def test_one_that_was_asked_for_must_do(self):
        self.asked("/nonexistent/nvcc", "No such file or directory",
                   "-DCMAKE_CXX_COMPILER=")
        self.asked(self.nvcc(OLD), "it has no compute_100",
                   "-DCMAKE_CXX_COMPILER=")

    def test_one_that_compiles_nothing_is_said(self):
        self.nvcc(BROKEN)
        done = self.configure("-DWEFT_NVCC=")
        cxx = "Looking for a CXX compiler - NOTFOUND" not in done.stdout
        self.found("unsupported GNU version: nvcc -ptx fails (1)" if cxx else
                   "it needs a C++ compiler, and there is none", "-UWEFT_NVCC")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
