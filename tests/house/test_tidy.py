#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: clang-tidy 14 has nothing to say about the library and the programs.

Method: each source once (those built in several variants in their first), as
the build compiles it but with assertions on: they tell the analyser what
cannot be. .clang-tidy says what is looked for.

Usage: test_tidy.py SOURCE_DIR BUILD_DIR [PATH_PREFIX ...]
"""
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import time


GCC_ONLY = (" -flto=auto", " -ffat-lto-objects")


def first_of_each(build_dir, source_dir, prefixes):
    with open(os.path.join(build_dir, "compile_commands.json")) as file:
        entries = json.load(file)
    kept = {}
    for entry in entries:
        path = os.path.relpath(entry["file"], source_dir)
        wanted = (path.endswith(".c")
                  and not path.startswith(("tests/", "build/", "../")))
        if prefixes:
            wanted = path.startswith(tuple(prefixes))
        if wanted:
            for flag in GCC_ONLY:
                entry["command"] = entry["command"].replace(flag, "")
            kept.setdefault(path, entry)
    return kept


def look_at(tool, path, folder, source_dir):
    run = subprocess.run(
        [tool, "--quiet", "-p", folder, "--extra-arg=-UNDEBUG",
         os.path.join(source_dir, path)], capture_output=True, text=True)
    return path, run.returncode, run.stdout, run.stderr


def main():
    source_dir, build_dir = map(os.path.realpath, sys.argv[1:3])
    tool = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if not tool:
        print("FAILED: clang-tidy 14 is not installed")
        return 1
    begin = time.monotonic()
    kept = first_of_each(build_dir, source_dir, sys.argv[3:])
    folder = os.path.join(build_dir, "tidy")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "compile_commands.json"), "w") as file:
        json.dump(list(kept.values()), file)
    wrong, findings = 0, set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(look_at, tool, path, folder, source_dir)
                for path in sorted(kept)]
        for job in jobs:
            path, status, out, err = job.result()
            if status != 0:
                wrong += 1
                print("FAILED:", path)
                findings.update(line.replace(source_dir + "/", "")
                                for line in (out + err).split("\n")
                                if "error:" in line)
    print("\n".join(sorted(findings)))
    print("%d sources, %d with findings, %.0f s" %
          (len(kept), wrong, time.monotonic() - begin))
    return 1 if wrong or not kept else 0


sys.exit(main())
