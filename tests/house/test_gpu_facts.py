#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: scripts/gpu-facts can be relied on before the first GPU is seen: it
builds without a warning, refuses by name what it can not do, and a question
that hangs or crashes costs only itself.

Method: its own self-test, whose JSON is read here; runs on drivers made up of
a few lines of C (none, no device, one that crashes, one with nothing in it, so
that every question gives up), with an MPS daemon that never quits. Without a
toolkit the script's refusal to build is all there is to test.

Usage: test_gpu_facts.py SOURCE_DIR
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

failures = 0


def expect(true, what):
    global failures
    print("%s: %s" % ("ok" if true else "FAILED", what))
    failures += not true


def run(script, *args, **variables):
    env = dict(os.environ, **variables)
    return subprocess.run([script, *args], env=env, capture_output=True,
                          text=True, timeout=100, errors="replace")


def refuses(done, text):
    expect(done.returncode == 2 and done.stdout == "" and text in done.stderr
           and done.stderr.count("\n") == 1,
           "refuses with %r: rc %d, %r" % (text, done.returncode, done.stderr))


def check_arguments(script, folder):
    refuses(run(script, "--fast"), "--fast: allowed is --out DIR")
    refuses(run(script, "--out", folder + "/none"), "none: not a folder")
    refuses(run(script, "--out"), "--out (nothing): not a folder")
    done = run(script, "--help")
    expect(done.returncode == 0 and "--self-test" in done.stdout
           and "set -eu" not in done.stdout, "--help is the script's head")


def check_no_compiler(script, folder):
    """A copy, which has nothing built, on a path without gcc."""
    copy, tools = folder + "/copy", folder + "/tools"
    os.makedirs(copy + "/scripts")
    os.makedirs(tools)
    shutil.copy(script, copy + "/scripts")
    for name in ("bash", "dirname", "find", "head", "sed", "sort", "wc"):
        os.symlink(shutil.which(name), tools + "/" + name)
    refuses(run(copy + "/scripts/gpu-facts", PATH=tools), "nothing built")


def driver(folder, name, body):
    """A libcuda.so.1 that has cuInit alone; returns where it is."""
    where = os.path.join(folder, name)
    os.makedirs(where)
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o",
                    where + "/libcuda.so.1"], check=True, text=True,
                   input="int cuInit(unsigned f) { (void)f; %s }" % body)
    return where


def check_self_test(script):
    done = run(script, "--self-test")
    print(done.stdout, done.stderr)
    expect(done.returncode == 0 and "FAILED" not in done.stdout,
           "the self-test passes")
    lines = [x for x in done.stdout.split("\n") if x.startswith("json: ")]
    facts = {fact["name"]: fact for fact in json.loads(lines[0][6:])}
    expect(facts["number"]["value"] == 1.5
           and facts["text"]["value"] == 'quote " back \\ slash'
           and facts["not_a_number"]["value"] == "nan"
           and facts["none"]["value"] is None
           and facts["none"]["why_not"] == "why\nnot", "its JSON reads back")


def check_list(script):
    lines = run(script, "--list").stdout.strip().split("\n")
    names = [line.split()[0] for line in lines[:-1]]
    expect(len(names) == len(set(names)) >= 20, "each question has its name")
    return names


def check_refusals(script, folder):
    if not shutil.which("ldconfig") or "libcuda.so.1" not in subprocess.run(
            ["ldconfig", "-p"], capture_output=True, text=True).stdout:
        refuses(run(script, "--out", folder),
                "no libcuda.so.1: nothing asked")
    where = driver(folder, "no_device", "return 100;")
    refuses(run(script, "--out", folder, LD_LIBRARY_PATH=where),
            "libcuda.so.1: cuInit answers 100: nothing asked")
    where = driver(folder, "crashes", "__builtin_trap();")
    refuses(run(script, "--out", folder, LD_LIBRARY_PATH=where),
            "cuInit ended by signal")
    expect(not os.path.exists(folder + "/gpu-facts.json"),
           "a refusal leaves no file")


MPS = """#!/bin/sh
case $1 in
-f) echo $CUDA_MPS_PIPE_DIRECTORY $$ >%s; exec tail -f /dev/null ;;
esac
read command
case $command in get*) echo 100.0 ;; esac
"""


def check_whole_run(script, folder, names):
    """Every question gives up, and all of it is in the file; the daemon, which
    does not quit when asked, and its folder are gone."""
    where = driver(folder, "empty", "return 0;")
    control = where + "/nvidia-cuda-mps-control"
    with open(control, "w") as file:
        file.write(MPS % (where + "/daemon"))
    os.chmod(control, 0o755)
    start = time.monotonic()
    done = run(script, "--out", folder, LD_LIBRARY_PATH=where,
               PATH=where + ":" + os.environ["PATH"])
    print(done.stdout, done.stderr)
    with open(folder + "/gpu-facts.json") as file:
        found = json.load(file)
    expect(done.returncode == 0 and done.stderr == "",
           "a run without answers is a run, %.1f s"
           % (time.monotonic() - start))
    expect([q["name"] for q in found["questions"]] == names
           and all(q["outcome"] == "gave up" for q in found["questions"]),
           "every question was asked and gave up")
    only = run(script, "--out", folder, "--only", "queue",
               LD_LIBRARY_PATH=where)
    with open(folder + "/gpu-facts.json") as file:
        outcomes = {q["name"]: q["outcome"]
                    for q in json.load(file)["questions"]}
    expect(only.returncode == 0 and outcomes.pop("queue") == "gave up" and
           set(outcomes.values()) == {"left out"}, "--only asks one")
    none = run(script, "--only", "nothing", LD_LIBRARY_PATH=where)
    expect(none.returncode == 2 and "no such question" in none.stderr,
           "--only of no question is refused")
    unanswered = {f["question"] for f in found["facts"] if not f["value"]}
    expect(unanswered == set(names), "and says what it has no answer to")
    expect(any("has no cuDriverGetVersion" in f.get("why_not", "")
               for f in found["facts"]), "and why")
    with open(where + "/daemon") as file:
        pipes, pid = file.read().split()
    expect(not os.path.exists(pipes) and pipes.startswith("/tmp/gpu-facts-"),
           "the daemon's private folder is gone")
    expect(not os.path.exists("/proc/" + pid), "the daemon is gone")


def main():
    script = os.path.join(os.path.realpath(sys.argv[1]), "scripts/gpu-facts")
    with tempfile.TemporaryDirectory() as folder:
        check_arguments(script, folder)
        check_no_compiler(script, folder)
        built = run(script, "--build-only")
        if built.returncode != 0:
            refuses(built, "nothing built")
            return 1 if failures else 0
        expect(built.stderr == "", "builds without a warning")
        check_self_test(script)
        check_refusals(script, folder)
        check_whole_run(script, folder, check_list(script))
    print("%d failures" % failures)
    return 1 if failures else 0


sys.exit(main())
