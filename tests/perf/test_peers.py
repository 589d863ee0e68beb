#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: perf/peers gives the rows that others read, its figures are what it says
they are, and without any peer it still measures weft.
Method: its arithmetic on made-up samples with known answers; then two short
real runs, one with the installed peers and one with none.
"""
import importlib.machinery
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

PEERS, BUILD = sys.argv.pop(1), sys.argv.pop(1)
FIELDS = {"op", "ranks", "bytes", "weft_us", "peer", "peer_us", "ratio", "low",
          "all"}


def load():
    loader = importlib.machinery.SourceFileLoader("peers", PEERS)
    spec = importlib.util.spec_from_loader("peers", loader)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def run(*flags, path=None):
    environment = dict(os.environ)
    if path is not None:
        environment["PATH"] = path
    return subprocess.run([sys.executable, PEERS, "--build", BUILD, *flags],
                          capture_output=True, text=True, timeout=100,
                          env=environment, check=False)


class Arithmetic(unittest.TestCase):
    def setUp(self):
        self.peers = load()

    def test_row_takes_the_better_variant_and_the_best_peer(self):
        sides = [("weft", "weft", None), ("a", "a, one", None),
                 ("a", "a, two", None), ("b", "b, one", None)]
        taken = {"weft": {8: [[1, 2, 9], [2, 2, 2], [4, 5, 6]]},
                 "a, one": {8: [[30], [30], [30]]},
                 "a, two": {8: [[3], [3], [3]]},
                 "b, one": {8: [[7], [7], [7]]}}
        row = self.peers.make_row("all_reduce", 2, 8, sides, taken,
                                  random.Random(1))
        self.assertEqual(row["weft_us"], 2)
        self.assertEqual((row["peer"], row["peer_us"]), ("a", 3))
        self.assertEqual(row["ratio"], 1.5)
        self.assertEqual(row["all"], {"a": 3, "b": 7})
        self.assertTrue(3 / 9 <= row["low"] <= 1.5)

    def test_low_of_steady_samples_is_the_ratio(self):
        low = self.peers.low_ratio([[6, 6]] * 3, [[2, 2]] * 3,
                                   random.Random(1))
        self.assertEqual(low, 3)

    def test_sizes_are_whole_elements_a_rank_and_once(self):
        sizes = self.peers.real_sizes
        self.assertEqual(sizes("all_gather", 4, [8, 16, 100]), [16, 96])
        self.assertEqual(sizes("scatter", 4, [8, 16, 100]), [16, 96])
        self.assertEqual(sizes("all_reduce", 4, [3, 64]), [4, 64])
        self.assertEqual(sizes("barrier", 4, [3, 64]), [0])

    def test_geometric_mean_of_inverse_pair_is_one(self):
        self.assertAlmostEqual(self.peers.geometric_mean([0.25, 4]), 1)


class Run(unittest.TestCase):
    def test_short_run_gives_rows_and_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = os.path.join(folder, "p.svg")
            done = run("--ops", "all_reduce,barrier", "--sizes", "8,2K",
                       "--rounds", "1", "--iterations", "10", "--json", "-",
                       "--svg", picture)
            self.assertEqual(done.returncode, 0, done.stderr)
            xml.dom.minidom.parse(picture)
        document = json.loads(done.stdout)
        self.assertEqual([(row["op"], row["bytes"])
                          for row in document["rows"]],
                         [("all_reduce", 8), ("all_reduce", 2048),
                          ("barrier", 0)])
        for row in document["rows"]:
            self.assertLessEqual(FIELDS, set(row))
            self.assertGreater(row["weft_us"], 0)
            if row["all"]:
                self.assertEqual(row["peer_us"], min(row["all"].values()))
                self.assertEqual(row["ratio"],
                                 row["peer_us"] / row["weft_us"])

    def test_emulated_hosts(self):
        if os.geteuid() != 0:
            return  # nobody else may make them
        done = run("--net-emulate", "2x1", "--sizes", "2K", "--rounds", "1",
                   "--iterations", "5", "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(document["failed"], {})
        row, = document["rows"]
        self.assertEqual((row["ranks"], row["bytes"]), (2, 2048))
        self.assertEqual(set(row["all"]),
                         {"openmpi"} - set(document["absent"]))

    def test_without_peers_they_are_named_absent(self):
        # A place with python3 and the like, but no mpirun.
        done = run("--sizes", "8", "--rounds", "1", "--iterations", "5",
                   path="/nowhere")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("absent: openmpi mpich", done.stdout)

    def test_mistakes_are_refused(self):
        for flags in (["--sizes", "8x"], ["--ops", "alltoallv"],
                      ["--ranks", "0"], ["--rounds", "0"],
                      ["--net-emulate", "2y1"]):
            done = run(*flags)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(flags[0], done.stderr)


if __name__ == "__main__":
    unittest.main()
