#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: the harness of the peers verifies every operation of every library: right
results pass, a single wrong element or a call that does nothing does not.
Method: it is linked with a stand-in for a library (peer_stand_in.c), which is
right or broken in a known way, and run under weft-run with 3 ranks. So is
peers-limit, the other one that is always there.

Usage: test_peer_stand_in.py STAND_IN PEERS_LIMIT WEFT_RUN
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

STAND_IN, LIMIT, WEFT_RUN = (sys.argv.pop(1) for _ in range(3))
RANKS = 3


def can(program=STAND_IN):
    done = subprocess.run([program, "--can"], capture_output=True, text=True,
                          timeout=60, check=True)
    return json.loads(done.stdout)["can"]


def run(op, sizes, broken="", iterations=1, budget_ms=0, program=STAND_IN):
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [WEFT_RUN, "-n", str(RANKS), "sh", "-c",
             'exec "$0" "$WEFT_RANK/$WEFT_NRANKS" "$@"', program, folder, op,
             sizes, str(iterations), str(budget_ms)],
            capture_output=True, text=True, timeout=100, check=False,
            env=dict(os.environ, PEER_STAND_IN=broken))


class StandIn(unittest.TestCase):
    def test_right_results_pass(self):
        for op in can():
            done = run(op, "4,20000")
            self.assertEqual(done.returncode, 0, op + done.stderr)
            rows = json.loads(done.stdout)["rows"]
            self.assertEqual([row["wrong"] for row in rows], [0, 0], op)
            for row in rows:
                self.assertEqual(row["op"], op)
                self.assertEqual(row["nranks"], RANKS)
                self.assertEqual(len(row["samples_us"]), 1)

    def test_limit_is_right(self):
        for op in can(LIMIT):
            done = run(op, "4,200000", program=LIMIT)
            self.assertEqual(done.returncode, 0, op + done.stderr)
            rows = json.loads(done.stdout)["rows"]
            self.assertEqual([row["wrong"] for row in rows], [0, 0], op)

    def test_one_wrong_element_is_counted(self):
        for op in can():
            if op == "barrier":
                continue  # it has no data
            done = run(op, "4000", "wrong")
            self.assertEqual(done.returncode, 1, op)
            row, = json.loads(done.stdout)["rows"]
            # One in each of the last 4 calls, one in the call after.
            self.assertEqual(row["wrong"], 5, op)

    def test_a_call_that_does_nothing_is_wrong(self):
        for op in ("all_reduce", "alltoallv", "broadcast"):
            done = run(op, "4000", "stale")
            self.assertEqual(done.returncode, 1, op)
            row, = json.loads(done.stdout)["rows"]
            self.assertGreater(row["wrong"], 0, op)

    def test_a_rank_that_fails_ends_the_run_with_its_line(self):
        done = run("all_reduce", "4000", "dies")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("peers: stand-in <1>: it was told to", done.stderr)

    def test_budget_makes_fewer_calls_but_five(self):
        done = run("all_reduce", "400000", iterations=0, budget_ms=1)
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = json.loads(done.stdout)["rows"]
        self.assertEqual(len(row["samples_us"]), 5)

    def test_mistakes_are_refused(self):
        for arguments in (["--can", "more"], ["0/1", "/tmp", "nothing", "8",
                                              "1", "0"],
                          ["2/2", "/tmp", "all_reduce", "8", "1", "0"],
                          ["-", "/tmp", "all_reduce", "8", "1", "0"],
                          ["0/257", "/tmp", "all_reduce", "8", "1", "0"],
                          ["0/1", "/tmp", "all_reduce", "8", "-1", "0"],
                          ["0/1", "/nowhere/at/all", "all_reduce", "8", "1",
                           "0"]):
            done = subprocess.run([STAND_IN, *arguments], capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
