#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_pytorch.py PERF_DIR BIN_DIR

Goal: perf/pytorch reports ratios of runs whose losses are the same, refuses to
report others, and says what is missing; with torch, PyTorch's losses are
weft-train's.

Method: a stand-in for the Python that has torch, which answers with the losses
that weft-train has just written, or others; where Python has torch, that too.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

PERF, BIN = sys.argv[1:3]
DEADLINE_S = 200
STAND_IN = """\
import json, os, sys
if sys.argv[1] == "-c":
    sys.exit(0)
job = json.load(open(sys.argv[2]))
folder = os.path.dirname(job["out"])
steps = [json.loads(line) for line in open(os.path.join(folder, "metrics"))]
losses = [step["loss"] for step in steps]
losses[-1] += float(os.environ["APART"])
if os.environ["RANK"] == "0":
    json.dump({"loss": losses, "step_ms": [1e3] * 4 + [2e6] * (len(losses) - 4),
               "parameters": json.load(open(os.path.join(folder, "summary")))
               ["parameters"], "torch": "none", "on": "none"},
              open(job["out"], "w"))
"""


class PyTorch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.rows = os.path.join(folder.name, "rows")
        self.stand_in = os.path.join(folder.name, "python")
        with open(self.stand_in, "w", encoding="utf-8") as file:
            file.write(f"#!{sys.executable}\n{STAND_IN}")
        os.chmod(self.stand_in, 0o755)

    def compare(self, *words, python=None, apart="0"):
        return subprocess.run(
            [sys.executable, os.path.join(PERF, "pytorch"), "--bin", BIN,
             "--python", python or self.stand_in, "--rounds", "1", "--steps",
             "6", "--models", "tiny", *words],
            capture_output=True, text=True, check=False, timeout=DEADLINE_S,
            env=dict(os.environ, APART=apart))

    def test_same_losses_are_a_ratio_of_medians(self):
        done = self.compare("--ranks", "2", "--json", self.rows)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.rows, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        self.assertEqual([row["peer"] for row in rows],
                         ["ddp-eager", "ddp-compiled"])
        for row in rows:
            self.assertEqual(row["peer_ms"], 2e6)
            self.assertAlmostEqual(row["ratio"], 2e6 / row["weft_ms"])
            self.assertIn("%.3f" % row["ratio"], done.stdout)
        self.assertIn("products: " + rows[0]["blas_kernel"],
                      done.stdout)

    def test_other_losses_are_no_result(self):
        done = self.compare("--ranks", "1", apart="0.02")
        self.assertEqual(done.returncode, 1)
        self.assertIn("perf/pytorch: tiny, 1, eager: losses differ by 0.02",
                      done.stderr)
        self.assertEqual(done.stdout, "")

    def test_one_peer_of_bf16(self):
        done = self.compare("--ranks", "1", "--dtype", "bf16", "--peers",
                            "eager", "--json", self.rows, apart="0.02")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.rows, encoding="utf-8") as file:
            row, = json.load(file)["rows"]
        self.assertEqual([row["peer"], row["dtype"], row["device"]],
                         ["eager", "bf16", "host"])
        self.assertGreater(row["mfu"], 0)

    def test_what_is_missing_or_wrong_is_named(self):
        done = self.compare(python="/bin/false")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/bin/false has no torch", done.stderr)
        done = self.compare("--ranks", "3")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--ranks: allowed are 1, 2 and 4", done.stderr)
        done = self.compare("--device", "cuda")
        self.assertIn("--ranks: allowed is 1 with --device cuda", done.stderr)
        done = self.compare("--peers", "jitted")
        self.assertIn("--peers: allowed are eager, compiled", done.stderr)

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "no torch here")
    def test_torch_has_the_losses_of_weft(self):
        done = self.compare("--ranks", "1", python=sys.executable)
        self.assertEqual(done.returncode, 0, done.stderr)


unittest.main(argv=sys.argv[:1])
