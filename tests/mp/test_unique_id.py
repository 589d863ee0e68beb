#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_unique_id.py BIN_DIR LAUNCH_HELPER

Goal: a unique id made with WEFT_HOST brings ranks of several hosts together;
one made without is of no use to the other hosts, and says so in time.
Method: emulated nodes (root and iproute2), a file that all see carries the id.
"""
import os
import subprocess
import sys
import tempfile

BIN, HELPER = sys.argv[1:3]


def run(spec, ranks, folder, before=(), **settings):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("WEFT_")}
    path = os.path.join(folder, "id")
    if os.path.exists(path):
        os.unlink(path)
    end = subprocess.run(
        [BIN + "/weft-run", "-n", str(ranks), "--net-emulate", spec, *before,
         HELPER, "id", path], capture_output=True, text=True, timeout=50,
        env=dict(kept, **settings))
    return end.returncode, end.stdout, end.stderr


def main():
    if os.geteuid() != 0:
        print("SKIPPED: emulated nodes need root")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        for spec, ranks in (("2x1", 2), ("2+1", 3)):
            code, out, error = run(spec, ranks, folder, WEFT_LOG="info")
            if code != 0 or out.count("of %d: ok" % ranks) != ranks:
                print("FAILED: %s: exit %d\n%s%s" % (spec, code, out, error))
                sys.exit(1)
            if "by a unique id: the config has one" not in error:
                print("FAILED: it did not go by the id\n" + error)
                sys.exit(1)
        # The loopback of one host is not that of the other.
        local = ("env", "WEFT_RENDEZVOUS=127.0.0.1:1")
        code, out, error = run("2x1", 2, folder, local, WEFT_TIMEOUT_MS="1000")
        if code == 0 or "rank 1: the rendezvous at 127.0.0.1:" not in error:
            print("FAILED: an id of the loopback: exit %d\n%s" % (code, error))
            sys.exit(1)
    print("ids brought ranks of two hosts together")


main()
