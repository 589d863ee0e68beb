#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: weft-info and weft-perf use the CUDA driver that is there: every operation
on the memory of GPUs gives the right bits, on one GPU or one for each rank, and
what is missing is said.

Method: the fake driver (docs/testing.md), and none.

Usage: test_perf_cuda.py SOURCE_DIR BUILD_DIR
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = sys.argv[1:3]
FAKE = [os.path.join(SOURCE, "scripts", "with-fake-gpu")]
PRESET = ["--preset", os.path.basename(BUILD)]
BIN = os.path.join(BUILD, "bin")
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("WEFT_", "CUDA_"))}
# What one call does in a second with a GPU takes minutes with these.
SLOW = os.environ.get("WEFT_SANITIZED") == "1"


def run(words, **variables):
    return subprocess.run(words, env={**CLEAN, **variables}, text=True,
                          capture_output=True, timeout=100)


def info(devices, *options, **variables):
    words = [os.path.join(BIN, "weft-info"), *options]
    if devices:
        words = FAKE + [str(devices)] + PRESET + words
    return run(words, **variables)


def perf(devices, ranks, *options, **variables):
    words = [os.path.join(BIN, "weft-run"), "-n", str(ranks),
             os.path.join(BIN, "weft-perf"), *options]
    if devices:
        words = FAKE + [str(devices)] + PRESET + words
    return run(words, **variables)


class Info(unittest.TestCase):
    def test_without_a_driver_it_says_so(self):
        done = info(0, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        cuda = json.loads(done.stdout)["cuda"]
        if cuda["driver"]:
            self.skipTest("a machine with a GPU")
        self.assertIn("libcuda.so.1", cuda["why"])
        self.assertEqual(cuda["devices"], [])
        self.assertIn("libcuda.so.1", info(0).stdout)

    def test_devices_of_the_driver_are_listed(self):
        done = info(2, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        cuda = json.loads(done.stdout)["cuda"]
        self.assertRegex(cuda["driver"], r"^\d+\.\d$")
        self.assertIsNone(cuda["why"])
        self.assertEqual([d["index"] for d in cuda["devices"]], [0, 1])
        for index, device in enumerate(cuda["devices"]):
            self.assertGreater(device["multiprocessors"], 0)
            self.assertGreater(device["memory_bytes"], 0)
            self.assertEqual(device["peers"], [1 - index])
            self.assertTrue(device["can"]["gates"])
        self.assertNotEqual(cuda["devices"][0]["pci"],
                            cuda["devices"][1]["pci"])
        text = info(2).stdout
        self.assertIn("\ncuda1", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_kernels_are_named_or_why_there_are_none(self):
        kernels = os.path.join(BUILD, "tests", "fake", "fake_kernels.so")
        with tempfile.NamedTemporaryFile(suffix=".so") as cut:
            with open(kernels, "rb") as whole:
                cut.write(whole.read(5000))
            cut.flush()
            for set_to, said in ((kernels, None),
                                 ("/nonexistent", "No such file"),
                                 (cut.name, "damaged")):
                done = info(0, "--json", "-", WEFT_KERNELS=set_to)
                self.assertEqual(done.returncode, 0, done.stderr)
                found = json.loads(done.stdout)["cuda"]["kernels"]
                text = info(0, WEFT_KERNELS=set_to).stdout
                self.assertIn("\nkernels  ", text)
                if said:
                    self.assertIsNone(found["file"])
                    self.assertIn(set_to, found["why"])
                    self.assertIn(said, found["why"])
                    self.assertIn(set_to, text)
                else:
                    self.assertEqual(found, {
                        "file": os.path.realpath(kernels), "why": None})

    def test_libraries_are_named_or_why_not(self):
        for what, name, set_to, said in (
                ("products", "cuBLASLt 13.1.0", {}, None),
                ("products", None, {"WEFT_CUBLASLT": "off"},
                 "WEFT_CUBLASLT=off"),
                ("products", None, {"WEFT_FAKE_CUBLASLT_VERSION": "11602"},
                 "11.6.2: needed is 12.0"),
                ("attention", "cuDNN 9.19.0", {}, None),
                ("attention", None, {"WEFT_FAKE_CUDNN_VERSION": "90100"},
                 "9.1.0: needed is 9.10")):
            done = info(1, "--json", "-", **set_to)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)["cuda"][what]
            text = " ".join(info(1, **set_to).stdout.split())
            if said:
                self.assertIsNone(found["library"])
                self.assertIn(said, found["why"])
                self.assertIn(what + " by weft's own kernel: ", text)
                self.assertIn(said, text)
            else:
                self.assertEqual(found, {"library": name, "why": None})
                self.assertIn("%s by %s" % (what, name), text)
        cuda = json.loads(info(0, "--json", "-").stdout)["cuda"]
        if not cuda["driver"]:
            self.assertEqual(cuda["products"],
                             {"library": None, "why": "no driver"})

    def test_a_recorded_machine_has_no_driver(self):
        done = info(2, "--input", "2x(8xH100,8xCX7)", "--json", "-")
        self.assertEqual(json.loads(done.stdout)["cuda"]["devices"], [])


NCCL = {"WEFT_ROUTE": "nccl",
        "WEFT_NCCL": os.path.join(BUILD, "tests", "fake", "libnccl.so.2")}


class Nccl(unittest.TestCase):
    """The route nccl, by the stand-in (docs/testing.md)."""

    def routes(self, devices, **variables):
        words = [os.path.join(BIN, "weft-run"), "-n", "2",
                 os.path.join(BIN, "weft-info"), "--routes", "--json", "-"]
        done = run(FAKE + [str(devices)] + PRESET + words,
                   **{**NCCL, **variables})
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout[done.stdout.index("{"):])

    def test_perf_measures_it_where_each_rank_has_a_gpu(self):
        for op in ("all_reduce", "alltoallv", "sendrecv"):
            done = perf(2, 2, op, "--sizes", "8,40000", "--memory", "cuda",
                        "-n", "2", "-w", "1", "-z", "0", "-J", "-", **NCCL)
            self.assertEqual(done.returncode, 0, done.stderr)
            for row in json.loads(done.stdout)["rows"]:
                self.assertEqual((row["wrong"], row["algorithm"],
                                  row["fabric"]), (0, "nccl", "nccl"), row)

    def test_perf_with_one_gpu_for_two_takes_steps_and_says_why(self):
        done = perf(1, 2, "all_reduce", "--sizes", "8", "--memory", "cuda",
                    "-n", "2", "-w", "1", "-J", "-", **NCCL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("ranks 0 and 1 have one GPU"), 1,
                         done.stderr)
        for row in json.loads(done.stdout)["rows"]:
            self.assertEqual((row["wrong"], row["algorithm"]), (0, "oneshot"))

    def test_one_gpu_for_two_is_for_nccl_to_refuse_where_asked(self):
        words = ["sh", "-c", 'NCCL_HOSTID=${ONE_HOST-host$WEFT_RANK} exec "$@"',
                 "sh", os.path.join(BIN, "weft-perf"), "all_reduce", "--sizes",
                 "40000", "--memory", "cuda", "-n", "2", "-w", "1", "-z", "0",
                 "-J", "-"]
        words = [os.path.join(BIN, "weft-run"), "-n", "2", *words]
        for one_host in (None, "host"):
            more = {"ONE_HOST": one_host} if one_host else {}
            done = run(FAKE + ["1"] + PRESET + words, **NCCL, **more,
                       WEFT_NCCL_SHARED_GPU="on")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count("could not join NCCL: "),
                             1 if one_host else 0, done.stderr)
            for row in json.loads(done.stdout)["rows"]:
                self.assertEqual((row["wrong"], row["algorithm"] == "nccl"),
                                 (0, one_host is None))

    def test_info_says_whether_ranks_take_it(self):
        told = self.routes(2)
        self.assertTrue(told["route"]["taken"], told["route"])
        by_name = {(r["collective"], r["size"]): r["algorithm"]
                   for r in told["routes"]}
        self.assertEqual(by_name["all_reduce", "large"], "nccl")
        self.assertEqual(by_name["barrier", "tiny"], "oneshot")
        told = self.routes(2, WEFT_NCCL="/nowhere/libnccl.so.2")
        self.assertFalse(told["route"]["taken"])
        self.assertIn("rank 0: no NCCL: /nowhere/libnccl.so.2",
                      told["route"]["why"])
        self.assertNotIn("nccl", {r["algorithm"] for r in told["routes"]})

    def test_info_tells_the_fabric(self):
        def fabric(**variables):
            told = json.loads(info(2, "--json", "-", **variables).stdout)
            return next(f for f in told["fabrics"] if f["name"] == "nccl")
        self.assertTrue(fabric(**NCCL)["usable"])
        missing = fabric(WEFT_NCCL="/nowhere/libnccl.so.2")
        self.assertFalse(missing["usable"])
        self.assertIn("/nowhere/libnccl.so.2", missing["why"])


class Perf(unittest.TestCase):
    def measure(self, devices, ranks, *options):
        done = perf(devices, ranks, *options, "--memory", "cuda", "-n", "2",
                    "-w", "1", "-J", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        self.assertTrue(rows)
        for row in rows:
            self.assertEqual(row["wrong"], 0, row)

    def test_collectives_of_two_gpus(self):
        for op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast",
                   "reduce", "alltoall", "alltoallv", "gather", "scatter",
                   "sendrecv", "barrier"):
            with self.subTest(op=op):
                self.measure(2, 2, op, "--sizes", "8,40000")

    def test_three_ranks_of_one_gpu_through_a_stream(self):
        self.measure(1, 3, "all_reduce", "--sizes", "8,300000", "-z", "0")
        self.measure(1, 3, "alltoall", "--sizes", "30000", "-z", "0",
                     "--plan")

    def test_graphs_where_streams_carry_out(self):
        graph = ("--memory", "cuda", "--graph", "-n", "2", "-w", "1",
                 "-J", "-")
        done = perf(2, 2, "all_gather", "--sizes", "8,40000", *graph,
                    WEFT_ROUTE="streams")
        self.assertEqual(done.returncode, 0, done.stderr)
        for row in json.loads(done.stdout)["rows"]:
            self.assertEqual((row["wrong"], row["algorithm"], row["graph"]),
                             (0, "streams", True), row)
        for op, route, said in (
                ("all_reduce", "steps", "rank 0 has another WEFT_ROUTE"),
                ("alltoallv", "streams", "no barriers and no v forms"),
                ("sendrecv", "streams", "allowed are collectives")):
            done = perf(2, 2, op, "--sizes", "40", *graph, WEFT_ROUTE=route)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
        done = perf(0, 2, "all_reduce", "--graph")
        self.assertIn("--graph with --memory host", done.stderr)

    def test_programs_of_the_build_are_found_by_name(self):
        done = run(FAKE + ["2"] + PRESET +
                   ["weft-run", "-n", "2", "weft-perf", "all_reduce",
                    "--memory", "cuda", "-e", "64"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("memory cuda", done.stdout)

    def test_two_ranks_as_threads(self):
        done = run(FAKE + ["2"] + PRESET +
                   [os.path.join(BIN, "weft-perf"), "all_gather", "--memory",
                    "cuda", "--sizes", "50000", "-n", "2", "-J", "-"],
                   WEFT_RANKS_PER_PROCESS="2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["rows"][0]["wrong"], 0)

    @unittest.skipIf(SLOW, "the same program, run slowly, tells no more")
    def test_large_ones(self):
        self.measure(2, 2, "all_reduce", "--sizes", "4M", "-d", "bf16")

    def test_what_is_not_there_is_refused(self):
        cuda = ("--memory", "cuda")
        none = os.path.join(SOURCE, "README.md")
        for devices, options, said, variables in (
                (0, cuda, "libcuda.so.1", {}),
                (2, (*cuda, "--device", "2"), "allowed is 0 to 1", {}),
                (0, ("--memory", "gpu"), "allowed is host, cuda or shadow", {}),
                (0, ("--device", "0"), "--device 0", {}),
                (1, cuda, "WEFT_KERNELS=/nonexistent: No such file",
                 {"WEFT_KERNELS": "/nonexistent"}),
                (1, cuda, f"kernels for GPUs: {none}: ",
                 {"WEFT_KERNELS": none}),
                (1, cuda, "for CUDA 11.8, needed is 12.0",
                 {"WEFT_FAKE_GPU_DRIVER_VERSION": "11080"}),
                (1, cuda, "has no cuMemcpyAsync",
                 {"WEFT_FAKE_GPU_MISSING": "cuMemcpyAsync"})):
            done = perf(devices, 1, "all_reduce", *options, **variables)
            if devices == 0 and done.returncode == 0:
                continue  # a machine with a GPU
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)


class Check(unittest.TestCase):
    """What scripts/gpu-check does before the first GPU."""

    def check(self, *options, **variables):
        script = os.path.join(os.path.abspath(SOURCE), "scripts", "gpu-check")
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "out"))
            done = subprocess.run([script, *options], cwd=folder, text=True,
                                  env={**CLEAN, **variables}, timeout=100,
                                  capture_output=True)
            return done, os.listdir(os.path.join(folder, "out"))

    def test_options_that_are_none_are_refused(self):
        for options, said in ((("--out", "nowhere"), "nowhere: not a folder"),
                              (("--fast",), "--fast: allowed is --out DIR")):
            done, _ = self.check(*options)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)

    @unittest.skipIf(SLOW, "builds without sanitizers are what it checks")
    def test_a_folder_is_the_callers_and_no_gpu_is_said(self):
        done, left = self.check("--out", "out", PRESET[0], PRESET[1],
                                CUDA_VISIBLE_DEVICES="")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertRegex(done.stderr, "libcuda.so.1")
        self.assertEqual(left, ["weft-info.json"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
