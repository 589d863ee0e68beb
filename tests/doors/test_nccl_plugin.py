#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_nccl_plugin.py PROGRAM LIBNCCL PLUGIN

Goal: NCCL's own code, on a machine without a GPU, loads libnccl-profiler-weft.so
in its newest version, and events that it turns into those of each older version
are read as what they were.
Method: nccl_adaptors.c calls functions of NCCL's that its symbols name but that
it does not show, as they are in NCCL 2.28, whose newest version is 5. With
another NCCL, or one that has been stripped of symbols, nothing is looked at.
"""
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile

MASKS = {1: "6", 2: "6", 3: "46", 4: "46", 5: "646"}
INIT = "_Z22ncclProfilerPluginInitP8ncclComm"
FINALIZE = "_Z26ncclProfilerPluginFinalizeP8ncclComm"


def offsets(library):
    """Where its functions are, those that it does not show included."""
    output = subprocess.run(["nm", library], capture_output=True, text=True)
    found = re.findall(r"^([0-9a-f]+) [tTwW] (\S+)$", output.stdout, flags=re.M)
    return {name: offset for offset, name in found}


def version(library):
    number = ctypes.c_int()
    ctypes.CDLL(library).ncclGetVersion(ctypes.byref(number))
    return number.value


def main():
    program, library, plugin = sys.argv[1:4]
    where = offsets(library)
    failures = []

    def expect(good, text):
        if not good:
            failures.append(text)
            print("FAILED:", text)

    def run(report, *names):
        done = subprocess.run(
            [program, library, plugin, where["ncclGetVersion"],
             *(where[name] for name in names)],
            capture_output=True, text=True, timeout=100,
            env=dict(os.environ, NCCL_PROFILER_PLUGIN=plugin,
                     NCCL_DEBUG="INFO", WEFT_NCCL_REPORT=report))
        expect(done.returncode == 0, "%s: %d: %s" % (
            names, done.returncode, done.stdout + done.stderr))
        return done.stdout + done.stderr

    def look(number):
        with tempfile.NamedTemporaryFile() as file:
            said = run(file.name, "_Z18getNcclProfiler_v%dPv" % number)
            lines = [json.loads(line) for line in file]
        expect("mask %s\n" % MASKS[number] in said, said)
        expect(len(lines) == 1, "%s" % lines)
        line = lines[0]
        rows = {row["op"]: row for row in line["rows"]}
        expect(sorted(rows) == ["all_reduce", "send"], "%s" % rows)
        expect((rows["all_reduce"]["calls"], rows["all_reduce"]["bytes"],
                rows["send"]["bytes"]) == (1, 8000, 6), "%s" % rows)
        expect(("on_gpu" in rows["all_reduce"]) == (number >= 3), "%s" % rows)
        if number >= 4:
            expect(rows["all_reduce"]["gpu_ms"] == 4, "%s" % rows)
            expect((line["communicator"], line["rank"], line["nranks"]) ==
                   ("real", 5, 8), "%s" % line)

    if version(library) // 100 != 228 or not where:
        print("left out: %s is NCCL %d with %d symbols" % (
            library, version(library), len(where)))
        return 0
    said = run("1", INIT, FINALIZE)
    expect("Successfully loaded external profiler plugin" in said and
           "Closing profiler plugin weft" in said, said)
    for number in MASKS:
        look(number)
    print("%d failures" % len(failures))
    return 1 if failures else 0


sys.exit(main())
