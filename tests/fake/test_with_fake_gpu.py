#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: scripts/with-fake-gpu gives a command the fake driver with the devices
asked for, per rank or not, and refuses bad input in one line.

Method: run it with fake_facts, which prints what it sees, alone and as ranks of
weft-run, and with every kind of wrong argument.

Usage: test_with_fake_gpu.py SOURCE_DIR BUILD_DIR
"""
import os
import re
import subprocess
import sys

SOURCE, BUILD = sys.argv[1:3]
SCRIPT = os.path.join(SOURCE, "scripts", "with-fake-gpu")
PRESET = os.path.basename(BUILD)
FACTS = os.path.join(BUILD, "tests", "fake", "fake_facts")
failures = []


def run(*words, **variables):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("WEFT_", "CUDA_"))}
    environment.update(variables)
    return subprocess.run([SCRIPT, *words], env=environment, text=True,
                          capture_output=True, timeout=50)


def expect(what, good, got):
    if not good:
        failures.append("%s: exit %d\n%s%s" % (what, got.returncode,
                                               got.stdout, got.stderr))


def check_devices():
    got = run("3", "--preset", PRESET, FACTS)
    expect("three devices", got.stdout == "devices 3, first 0000:10:00.0\n"
           and got.returncode == 0
           and re.fullmatch(r"scripts/with-fake-gpu: WEFT_FAKE_GPU_SEED=\d+\n",
                            got.stderr), got)
    got = run("16", "--preset", PRESET, FACTS, WEFT_FAKE_GPU_SEED="9")
    expect("a seed of one's own", "devices 16" in got.stdout
           and got.stderr == "" and got.returncode == 0, got)
    got = run("2", "--preset", PRESET, "sh", "-c", "exit 7")
    expect("the command's status", got.returncode == 7, got)
    got = run("2", "--preset", PRESET, FACTS, WEFT_FAKE_GPU_SEED="x")
    expect("a bad seed", got.returncode == 4
           and "WEFT_FAKE_GPU_SEED=x: allowed is" in got.stderr, got)


def check_ranks():
    ranks = [os.path.join(BUILD, "bin", "weft-run"), "-n", "4", FACTS]
    for option, first in (("all", ["10"] * 4),
                          ("1", ["10", "10", "12", "12"])):
        got = run("2", "--preset", PRESET, "--ordinals-per-rank", option,
                  *ranks, WEFT_FAKE_GPU_SEED="1")
        seen = sorted(re.findall(r"first 0000:(\d\d):", got.stdout))
        count = "devices %d," % (2 if option == "all" else 1)
        expect("ranks, %s" % option, seen == first
               and got.stdout.count(count) == 4, got)
    got = run("2", "--preset", PRESET, "--ordinals-per-rank", "1", FACTS)
    expect("one for each rank, and no rank", got.returncode == 4
           and "WEFT_FAKE_GPU_PER_RANK=1" in got.stderr, got)


def check_refusals():
    for words, text in (
            ([], "N is missing"), (["0", "true"], "N is 0"),
            (["17", "true"], "N is 17"), (["two", "true"], "N is two"),
            (["2"], "no command"), (["2", "--preset"], "(nothing)"),
            (["2", "--preset", "../x", "true"], "--preset ../x"),
            (["2", "--preset", "absent", "true"], "build the preset absent"),
            (["2", "--ordinals-per-rank", "3", "true"], "allowed is 1 or all"),
            (["2", "--what", "true"], "no such option")):
        got = run(*words)
        expect(" ".join(words), got.returncode == 2 and text in got.stderr
               and got.stderr.count("\n") == 1 and got.stdout == "", got)
    got = run("--help")
    expect("--help", got.returncode == 0 and "--ordinals-per-rank" in got.stdout
           and got.stderr == "" and "set -eu" not in got.stdout, got)


check_devices()
check_ranks()
check_refusals()
for failure in failures:
    print("FAILED:", failure)
sys.exit(1 if failures else 0)
