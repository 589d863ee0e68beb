#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_containers.py BIN_DIR CONFINE

Goal: in the places where people run containers, ranks work, or all of them say
the same about which limit to raise: a tiny /dev/shm, no ptrace, user and
process namespaces, one core for all, little address space, small files, few
descriptors.
Method: weft-run and weft-perf, which verifies what it measures, under unshare,
prlimit, taskset and a seccomp filter (confine.c). Address space is narrowed
step by step from enough to far too little.
"""
import os
import subprocess
import sys

BIN, CONFINE = sys.argv[1:3]
SANITIZED = os.environ.get("WEFT_SANITIZED") == "1"
PERF = [BIN + "/weft-perf", "all_reduce", "-n", "3", "-w", "1"]


def run(before, nranks=3, size="64K", limit_s=60):
    """Exit status, and what went to stderr."""
    command = before + [BIN + "/weft-run", "-n", str(nranks)] + PERF + [
        "-b", size, "-e", size]
    end = subprocess.run(command, capture_output=True, text=True,
                         timeout=limit_s)
    return end.returncode, end.stderr


def fail(what, text):
    print("FAILED: %s\n%s" % (what, text))
    sys.exit(1)


def works(what, before, **more):
    code, text = run(before, **more)
    if code != 0:
        fail(what, text)
    print("works: " + what)


def refuses(what, before, part, nranks=3):
    """Every rank fails with one text, soon, and it holds part."""
    code, text = run(before, nranks=nranks, limit_s=30)
    said = {line.split(": ", 2)[2] for line in text.splitlines()
            if line.startswith("weft-perf: rank ")}
    count = text.count("weft-perf: rank ")
    if code == 0 or len(said) != 1 or count != nranks or part not in text:
        fail("%s: %d texts from %d ranks" % (what, len(said), count), text)
    print("refuses: %s: %s" % (what, said.pop()))


def allowed(command):
    return subprocess.run(command, capture_output=True).returncode == 0


def narrow_address_space():
    """Down from enough: works, then refused by name, and nothing else."""
    states = ""
    for megabytes in range(520, 40, -20):
        code, text = run(["prlimit", "--as=%d" % (megabytes << 20)], nranks=2)
        if code == 0:
            states += "w"
        elif text.count("RLIMIT_AS") == 2:
            states += "r"
        else:
            fail("%d MB of address space" % megabytes, text)
    if not states.startswith("w") or not states.endswith("r") or "rw" in states:
        fail("address space: " + states, "")
    print("address space from 520 MB down by 20: " + states)


# The leak checker stops what it looks at by ptrace.
works("no ptrace", ["env", "ASAN_OPTIONS=detect_leaks=0", CONFINE, "ptrace"])
works("one core for 8 ranks", ["taskset", "-c", "0"], nranks=8)
refuses("no pidfd_open", [CONFINE, "pidfd"], "pidfd_open")
refuses("small files", ["prlimit", "--fsize=1000000"],
        "(RLIMIT_FSIZE, ulimit -f) is 1000000")
refuses("few descriptors", ["prlimit", "--nofile=24"],
        "(RLIMIT_NOFILE, ulimit -n) is 24; a job of 3 ranks needs 86")
works("just enough descriptors", ["prlimit", "--nofile=86"])
if not SANITIZED:  # their shadow memory needs all of the address space
    narrow_address_space()

if allowed(["unshare", "-U", "true"]):
    works("user namespace", ["unshare", "-U"])
    works("user and process namespace",
          ["unshare", "-U", "-r", "-p", "-f", "--mount-proc"])
else:
    print("not tried: user namespaces are not allowed here")
tiny = ["unshare", "-m", "sh", "-c",
        'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"', "sh"]
if allowed(tiny + ["true"]):
    works("/dev/shm of 64 kB, 16 MB reduced", tiny, nranks=4, size="16M")
else:
    print("not tried: mounting is not allowed here")
