#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_containers.py BIN_DIR CONFINE

Goal: in the places where people run containers, ranks work, or all of them say
the same about which limit to raise: a tiny /dev/shm, no ptrace, user and
process namespaces, one core for all, little address space, small files, few
descriptors, a memory cgroup.
Method: weft-run and weft-perf, which verifies what it measures, under unshare,
prlimit, taskset, a seccomp filter (confine.c) and a cgroup made for the test.
Address space is narrowed step by step from enough to far too little; the
cgroup allows enough, less than a job asks for, and less than one rank takes.
"""
import os
import subprocess
import sys
import time

BIN, CONFINE = sys.argv[1:3]
HELPER = os.path.join(os.path.dirname(CONFINE), "launch_helper")
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
    for nranks in (2, 3): # what docs/faults.md says
        works("address space of 70 MiB a rank and 200 more, %d ranks" % nranks,
              ["prlimit", "--as=%d" % (70 * nranks + 200 << 20)],
              nranks=nranks)
    states = ""
    for megabytes in range(520, 40, -20):
        code, text = run(["prlimit", "--as=%d" % (megabytes << 20)], nranks=2)
        if code == 0:
            states += "w"
        elif text.count("RLIMIT_AS") == 2 and \
                text.count(": raise it by as much, or to unlimited") == 2:
            states += "r"
        else:
            fail("%d MB of address space" % megabytes, text)
    if not states.startswith("w") or not states.endswith("r") or "rw" in states:
        fail("address space: " + states, "")
    print("address space from 520 MB down by 20: " + states)


def cgroup_files():
    """The folder of this process's memory cgroup, and the file of its limit."""
    try:
        with open("/proc/self/cgroup") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None, None
    for _, controllers, path in groups:
        folder = "/sys/fs/cgroup/memory" + path
        if "memory" in controllers.split(",") and os.path.isdir(folder):
            return folder, "memory.limit_in_bytes"
    for number, controllers, path in groups:
        folder = "/sys/fs/cgroup" + path
        if number == "0" and not controllers and \
                os.path.exists(folder + "/cgroup.controllers"):
            return folder, "memory.max"
    return None, None


def in_cgroup(megabytes):
    """What runs a command in a new cgroup of so much memory; and its limit."""
    parent, name = cgroup_files()
    if not parent:
        return None, None
    folder = "%s/weft-test-%d" % (parent, os.getpid())
    try:
        os.mkdir(folder)
        with open("%s/%s" % (folder, name), "w") as file:
            file.write(str(megabytes << 20))
    except OSError as error:
        print("no cgroup: %s" % error)
        return None, folder
    swap = folder + "/memory.swap.max"
    if os.path.exists(swap):
        with open(swap, "w") as file:
            file.write("0")
    return ["sh", "-c", 'echo $$ >%s/cgroup.procs && exec "$@"' % folder,
            "sh"], "%s/%s" % (folder, name)


def leave_cgroup(limit):
    folder = limit and os.path.dirname(limit) if limit and \
        os.path.isfile(limit) else limit
    for _ in range(500):
        try:
            if folder and os.path.isdir(folder):
                os.rmdir(folder)
            return
        except OSError:
            time.sleep(0.01)


def memory_limit(megabytes, size, check):
    before, limit = in_cgroup(megabytes)
    try:
        if not before or not allowed(before + ["true"]):
            print("not tried: no memory cgroup can be made here")
            return
        check(before, limit, size)
    finally:
        leave_cgroup(limit)


def names_what_was_killed(before, limit, size):
    """The kernel ends rank 1: weft-run and both survivors say why."""
    end = subprocess.run(before + [BIN + "/weft-run", "-n", "3", HELPER, "hog"],
                         capture_output=True, text=True, timeout=60)
    text = end.stdout + end.stderr
    if end.returncode != 137 or "weft-run: rank 1: SIGKILL" not in text:
        fail("rank 1 was not ended for want of memory", text)
    if "raise %s, now " % limit not in text:
        fail("weft-run does not name the limit", text)
    said = {line.split(": ", 1)[1] for line in end.stdout.splitlines()}
    if end.stdout.count("rank 1 has died: ") != 2 or len(said) != 1 or \
            "raise " + limit not in end.stdout:
        fail("the survivors do not name the limit", text)
    print("survivors: " + said.pop())


# The leak checker stops what it inspects by ptrace.
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

if not SANITIZED:  # they need memory themselves
    memory_limit(256, "1M", lambda before, _, size: works(
        "a memory cgroup with room", before, size=size))
    memory_limit(20, "64K", lambda before, limit, _: refuses(
        "a memory cgroup of 20 MB", before,
        "the memory limit %s is %d bytes" % (limit, 20 << 20)))
    if os.path.exists(HELPER):
        memory_limit(64, None, names_what_was_killed)
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
