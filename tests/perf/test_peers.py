#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: perf/peers measures every peer that is installed, names those that are
not, and tells a peer whose results are wrong from one that is slow.
Method: short real runs of the whole program: with all installed peers, on
emulated hosts, with no peer, and with a stand-in that is right or broken
(peer_stand_in.c).

Usage: test_peers.py FOLDER_OF_PEERS BUILD_DIR STAND_IN
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

FOLDER, BUILD, STAND_IN = (os.path.abspath(sys.argv.pop(1))
                           for _ in range(3))
PEERS = os.path.join(FOLDER, "peers")
FIELDS = {"op", "ranks", "bytes", "weft_us", "peer", "peer_us", "ratio", "low",
          "high", "all", "pairs", "modes", "limit_us", "to_limit"}
QUICK = ("--rounds", "1", "--pilot", "1", "--iterations", "5")


def load():
    loader = importlib.machinery.SourceFileLoader("peers", PEERS)
    spec = importlib.util.spec_from_loader("peers", loader)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def run(*flags, build=BUILD):
    return subprocess.run([sys.executable, PEERS, "--build", build, *flags],
                          capture_output=True, text=True, timeout=200,
                          check=False)


def inside(*flags, peers=None):
    """The same without a process of its own: (exit status, stdout, stderr)."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = (peers or load()).main(list(flags))
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), errors.getvalue()


class Run(unittest.TestCase):
    def test_every_installed_peer_is_measured(self):
        listed = run("--list")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        here = [line.split(":")[1].strip()
                for line in listed.stdout.splitlines()
                if line.startswith("peer: ")]
        with tempfile.TemporaryDirectory() as folder:
            picture = os.path.join(folder, "p.svg")
            done = run("--sizes", "8,2K", *QUICK, "--json", "-", "--svg",
                       picture)
            self.assertEqual(done.returncode, 0, done.stderr)
            xml.dom.minidom.parse(picture)
        document = json.loads(done.stdout)
        self.assertEqual([(row["op"], row["bytes"])
                          for row in document["rows"]],
                         [("all_reduce", 8), ("all_reduce", 2048)])
        self.assertEqual(document["wrong"], {})
        self.assertEqual(document["failed"], {})
        self.assertEqual(list(document["peers"]), here)
        for row in document["rows"]:
            self.assertLessEqual(FIELDS, set(row))
            self.assertGreater(row["weft_us"], 0)
            for name in here:
                self.assertGreater(row["all"][name], 0)
            self.assertEqual(row["peer"] is None, not here)
            self.assertEqual(row["ratio"] is None, row["pairs"] == 0)
            if row["to_limit"] is not None:
                self.assertGreater(row["to_limit"], 0)
            if row["pairs"] == 1:
                self.assertAlmostEqual(row["ratio"],
                                       row["peer_us"] / row["weft_us"])

    def test_emulated_hosts(self):
        if os.geteuid() != 0:
            return  # nobody else may make them
        done = run("--net-emulate", "2+1,1gbit+400mbit", "--sizes", "2K",
                   *QUICK, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(document["failed"], {})
        row, = document["rows"]
        self.assertEqual((row["ranks"], row["bytes"]), (3, 2048))
        can = {"openmpi": {"openmpi", "openmpi-han"}, "gloo": {"gloo"},
               "mpich": {"mpich"}}
        self.assertEqual(set(row["all"]), set().union(
            *(can.get(name, set()) for name in document["peers"])))

    def test_an_mpi_with_weft_behind_it(self):
        listed = run("--list").stdout
        for name in ("openmpi", "mpich"):
            if f"peer: {name}:" not in listed:
                continue
            jobs = [((), ["--ranks", "2"])]
            if os.geteuid() == 0:
                jobs.append((("hosts",), ["--net-emulate", "2x1"]))
            for hosts, flags in jobs:
                with self.subTest(name, hosts=hosts):
                    done = run("--door", name, "--sizes", "2K", *QUICK,
                               "--json", "-", *flags)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    row, = json.loads(done.stdout)["rows"]
                    self.assertEqual((row["peer"], row["bytes"]), (name, 2048))
                    self.assertEqual(list(row["all"]), [name])

    def test_a_door_through_which_nothing_goes_is_no_figure(self):
        listed = run("--list").stdout
        for name in ("openmpi", "mpich"):
            if f"peer: {name}:" not in listed:
                continue
            peers = load()
            catalog = peers.catalog

            class Shut(catalog.Door):
                @staticmethod
                def library(build, name):
                    return os.path.join(build, "lib", "weft_host.so")

            self.addCleanup(setattr, catalog, "Door", catalog.Door)
            catalog.Door = Shut
            status, _, errors = inside("--build", BUILD, "--door", name,
                                       "--sizes", "8", *QUICK, peers=peers)
            self.assertEqual(status, 1)
            self.assertIn("all_reduce was left to MPI: no report", errors)

    def test_without_peers_they_are_named_with_how_to_get_them(self):
        with tempfile.TemporaryDirectory() as build:
            os.mkdir(os.path.join(build, "bin"))
            for name in os.listdir(os.path.join(BUILD, "bin")):
                if name.startswith("weft-") or name in (
                        "peers-mode", "peers-limit"):
                    os.symlink(os.path.join(BUILD, "bin", name),
                               os.path.join(build, "bin", name))
            done = run("--sizes", "8", *QUICK, build=build)
            self.assertEqual(done.returncode, 0, done.stderr)
            for name, packages in (
                    ("openmpi", "apt-get install openmpi-bin libopenmpi-dev"),
                    ("mpich", "apt-get install mpich libmpich-dev"),
                    ("gloo", "apt-get install g[+][+] libgloo-dev"),
                    ("oneccl", "pip install oneccl-cpu-devel")):
                self.assertRegex(done.stdout, f"absent: {name}: .*{packages}")
            self.assertIn("no peer", done.stdout)
            done = run("--peers", "mpich", *QUICK, build=build)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, "--peers mpich: .*libmpich-dev")

    def test_mistakes_are_refused_in_one_line(self):
        for flags in (["--sizes", "8x"], ["--sizes", "0"], ["--sizes", "2G"],
                      ["--sizes", ""], ["--sizes", "8,,9"],
                      ["--sizes", "\u0668"], ["--ops", "alltoallw"],
                      ["--ranks", "1"], ["--ranks", "257"], ["--rounds", "0"],
                      ["--rounds", "-1"], ["--pilot", "0"],
                      ["--iterations", "x"], ["--peers", "nccl"],
                      ["--peers", "openmpi-han"],
                      ["--door", "gloo"],
                      ["--door", "openmpi", "--ops", "sendrecv"],
                      ["--door", "openmpi", "--weft=--plan"],
                      ["--door", "openmpi", "--peers", "openmpi,mpich"],
                      ["--net-emulate", "2y1"], ["--net-emulate", "1x1"],
                      ["--net-emulate", "1+"], ["--net-emulate", "2+0"],
                      ["--net-emulate", "2x1,"], ["--net-emulate", "200+200"],
                      ["--net-emulate", "2x1,1gbit+"],
                      ["--build", "/nowhere"], ["--svg", "/nowhere/p.svg"],
                      ["--frob"]):
            with self.subTest(flags):
                status, _, errors = inside("--build", BUILD, *flags)
                self.assertIn(status, (1, 2))
                self.assertIn(flags[0], errors)
                self.assertEqual(len(errors.splitlines()), 1, errors)


class Process(unittest.TestCase):
    def test_what_does_not_end_is_ended_with_all_that_it_started(self):
        process = load().process
        with self.assertRaisesRegex(process.Failure, "sh has not ended"):
            # The pipe stays open until the sleeper in the background is gone.
            process.run(["sh", "-c", "sleep 100 & sleep 100"], 0.2)

    def test_a_signal_ends_the_peers_too(self):
        with tempfile.TemporaryDirectory() as build:
            os.mkdir(os.path.join(build, "bin"))
            pid_path = os.path.join(build, "pid")
            for name in ("weft-run", "weft-perf", "peers-mode",
                         "peers-limit"):
                path = os.path.join(build, "bin", name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\necho $$ >{pid_path}.part\n"
                               f"mv {pid_path}.part {pid_path}\n"
                               "exec sleep 100\n")
                os.chmod(path, 0o755)
            with subprocess.Popen([sys.executable, PEERS, "--build", build],
                                  stdout=subprocess.DEVNULL) as peers:
                while not os.path.exists(pid_path):
                    self.assertIsNone(peers.poll())
                with open(pid_path, encoding="utf-8") as file:
                    started = int(file.read())
                peers.terminate()
                self.assertEqual(peers.wait(60), 130)
            with self.assertRaises(ProcessLookupError):
                os.kill(started, 0)


class StandIn(unittest.TestCase):
    """perf/peers with one more peer in its table, and no other."""

    def run_beside(self, broken):
        peers = load()
        catalog = peers.catalog

        class Stand(catalog.UnderWeftRun):
            def program(self, build):
                return STAND_IN

        self.addCleanup(setattr, catalog, "PEERS", catalog.PEERS)
        catalog.PEERS = [Stand("stand-in", "none", [
            catalog.Variant("stand-in", "right"),
            catalog.Variant("stand-in", "broken",
                            environment=(("PEER_STAND_IN", broken),))])]
        status, out, errors = inside("--build", BUILD, "--sizes", "64", *QUICK,
                                     "--json", "-", peers=peers)
        return status, json.loads(out), errors

    def test_wrong_results_are_reported_and_count_for_nothing(self):
        status, document, errors = self.run_beside("wrong")
        self.assertEqual(status, 1)
        name = "all_reduce, 2 ranks, stand-in, broken"
        self.assertEqual(document["wrong"], {
            name: "all_reduce of 64 bytes: 5 elements are wrong"})
        self.assertEqual(document["failed"], {})
        self.assertIn("5 elements are wrong", errors)
        row, = document["rows"]
        self.assertEqual(row["variant"], "stand-in, right")

    def test_a_peer_that_dies_is_left_out_by_name(self):
        status, document, errors = self.run_beside("dies")
        self.assertEqual(status, 0)
        self.assertEqual(document["wrong"], {})
        why, = document["failed"].values()
        self.assertIn("it was told to", why)
        self.assertIn("stand-in, broken", errors)
        row, = document["rows"]
        self.assertEqual(row["variant"], "stand-in, right")


if __name__ == "__main__":
    unittest.main()
