#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: weft-perf as its users meet it: right results for every operation, the
JSON fields that others read, refusals in one line with exit status 1.
Method: runs the built programs, with ranks as processes (weft-run) and as
threads of one process; every call is bounded by a time limit.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

BIN = sys.argv.pop(1)
PERF = os.path.join(BIN, "weft-perf")
RUN = os.path.join(BIN, "weft-run")
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
       "alltoall", "alltoallv", "gather", "scatter", "sendrecv", "barrier",
       "gatherv", "scatterv", "all_gatherv", "reduce_scatterv",
       "sendrecv_list", "put", "put_round", "ring_exchange",
       "ring_both", "moe_dispatch", "moe_combine"]
PUTS = ["put", "put_round"]
IN_PLACE = OPS[:5] + ["gather", "scatter", "gatherv", "scatterv",
                      "all_gatherv", "reduce_scatterv"]
OVERLAPPED = OPS[:6] + ["sendrecv"]
BUS = {"all_reduce": lambda n: 2 * (n - 1) / n,
       "all_gather": lambda n: (n - 1) / n,
       "reduce_scatter": lambda n: (n - 1) / n,
       "alltoall": lambda n: (n - 1) / n,
       "alltoallv": lambda n: (n - 1) / n,
       "gather": lambda n: (n - 1) / n,
       "scatter": lambda n: (n - 1) / n,
       "gatherv": lambda n: (n - 1) / n,
       "scatterv": lambda n: (n - 1) / n,
       "all_gatherv": lambda n: (n - 1) / n,
       "reduce_scatterv": lambda n: (n - 1) / n,
       "sendrecv_list": lambda n: (n - 1) / n,
       "put_round": lambda n: n,
       "ring_exchange": lambda n: (n - 1) / n,
       "ring_both": lambda n: (n - 1) / n,
       "moe_dispatch": lambda n: (n - 1) / n,
       "moe_combine": lambda n: (n - 1) / n}
FIELDS = {"op", "bytes", "count", "dtype", "redop", "nranks", "time_us",
          "algbw_GBps", "busbw_GBps", "wrong", "algorithm", "fabric"}


def run(command, threads=0, **settings):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("WEFT_")}
    environment.update(settings, WEFT_TIMEOUT_MS="30000")
    if threads:
        environment["WEFT_RANKS_PER_PROCESS"] = str(threads)
    return subprocess.run(command, capture_output=True, text=True, timeout=80,
                          env=environment, check=False)


def rows_of(command, **more):
    done = run(command + ["-J", "-"], **more)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["rows"]


class WeftPerf(unittest.TestCase):
    def check_row(self, row, op, nranks):
        self.assertLessEqual(FIELDS, set(row))
        self.assertEqual((row["op"], row["nranks"]), (op, nranks))
        self.assertEqual(row["wrong"], 0)
        self.assertEqual(row["redop"] is None, "reduce" not in op)
        self.assertTrue(row["algorithm"] and row["fabric"])
        self.assertNotIn("unknown", row["algorithm"])
        self.assertEqual(row["algorithm"] == "message", op == "sendrecv")
        time = row["time_us"]
        self.assertTrue(0 < time["min"] <= time["p10"] <= time["median"] <=
                        time["p90"] <= time["max"])
        if row["bytes"] == 0:
            self.assertIsNone(row["algbw_GBps"])
            return
        algbw = row["bytes"] / time["median"] / 1e3
        self.assertTrue(math.isclose(row["algbw_GBps"], algbw, rel_tol=1e-12))
        factor = BUS.get(op, lambda n: 1)(nranks)
        self.assertTrue(math.isclose(row["busbw_GBps"], algbw * factor,
                                     rel_tol=1e-12, abs_tol=1e-300))

    def test_every_op_threads_is_right(self):
        for op in OPS:
            rows = rows_of([PERF, op, "--sizes", "0,4,5000,300001", "-n", "3",
                            "-c", "2"], threads=3)
            self.assertEqual(len(rows), 1 if op == "barrier" else 4)
            for row in rows:
                self.check_row(row, op, 3)

    def test_plans_are_right(self):
        for op in ("all_reduce", "gatherv", "sendrecv_list", "barrier", *PUTS):
            command = [PERF, op, "--sizes", "4,300001", "-n", "3", "--plan"]
            if op in PUTS:
                self.assertIn(op, run(command, threads=2).stderr)
                continue
            for row in rows_of(command, threads=3):
                self.check_row(row, op, 3)
                self.assertTrue(row["plan"])

    def test_every_op_in_shared_memory_is_right(self):
        for op in OPS:
            if op in PUTS or op == "barrier" or op.startswith("moe_"):
                continue
            for row in rows_of([PERF, op, "--sizes", "4,300001", "-n", "3",
                                "--registered"], threads=3):
                self.check_row(row, op, 3)
                self.assertTrue(row["registered"])

    def test_every_op_in_place_is_right(self):
        for op in IN_PLACE:
            for row in rows_of([PERF, op, "--sizes", "4,70001", "-n", "3",
                                "--inplace"], threads=4):
                self.check_row(row, op, 4)
                self.assertTrue(row["inplace"])

    def test_roots_types_and_reductions_are_right(self):
        for flags in (["broadcast", "-r", "2"], ["reduce", "-r", "1"],
                      ["gather", "-r", "2"], ["scatter", "-r", "1"],
                      ["alltoallv", "-d", "u8", "-z", "0"],
                      ["gatherv", "-r", "1", "--memory", "shadow"],
                      ["scatterv", "-r", "2", "-z", "0"],
                      ["reduce_scatterv", "-d", "f16", "-o", "avg"],
                      ["sendrecv_list", "-z", "0"],
                      ["put", "-z", "0"], ["put_round", "-z", "0"],
                      ["alltoall", "--memory", "shadow"],
                      ["ring_exchange", "-z", "0"],
                      ["ring_both", "-z", "0", "--memory", "shadow"],
                      ["all_reduce", "-d", "u8", "-o", "max"],
                      ["all_reduce", "-d", "bf16", "-o", "avg"],
                      ["reduce_scatter", "-d", "i64"],
                      ["all_gather", "-d", "double", "-z", "0"],
                      ["all_reduce", "--memory", "shadow"]):
            for row in rows_of([PERF, *flags, "--sizes", "64,100000", "-n",
                                "3"], threads=3):
                self.check_row(row, flags[0], 3)

    def test_all_types_and_reductions_are_right(self):
        rows = rows_of([PERF, "all_reduce", "--sizes", "64,70000", "-n", "1",
                        "-w", "0", "-d", "all", "-o", "all"], threads=3)
        pairs = {(row["dtype"], row["redop"]) for row in rows}
        self.assertEqual(len(pairs), 12 * 6 + 6 * 3)
        self.assertEqual(len(rows), 2 * len(pairs))
        for row in rows:
            self.check_row(row, "all_reduce", 3)

    def test_rows_of_experts_are_right(self):
        for op in ("moe_dispatch", "moe_combine"):
            for flags in (["-d", "bf16", "--fp8", "--topk", "4", "-z", "0"],
                          ["--hops", "2", "--hidden", "100", "--experts", "6"],
                          ["-d", "f16", "--memory", "shadow"]):
                row, = rows_of([PERF, op, *flags, "--tokens", "50", "-n", "3"],
                               threads=3)
                self.check_row(row, op, 3)
                self.assertEqual(row["algorithm"], "two_hop" if "2" in flags
                                 else "one_hop")

    def test_rows_of_a_matrix_are_right(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "matrix")
            with open(path, "w") as file: # ranks with nothing to send, to get
                file.write("0 8192 4095 1\n0 0 0 1\n1e4 0 40960 1\n1 1 1 1\n")
            for op in ("moe_dispatch", "moe_combine"):
                row, = rows_of([PERF, op, "--matrix", path, "-n", "3"],
                               threads=3)
                self.check_row(row, op, 3)
                # Rows of 4 KiB, rounded down: 2, 0; none; 2, 10.
                self.assertEqual(row["bytes"], (2 + 2 + 10) * 4096 // 3)
            for text, words in (("1 2\n3 4\n", "2 lines of 2 numbers: "
                                 "allowed is a square of 3 or more"),
                                ("1 2 3\n4 5\n", ":2: 2 numbers"),
                                ("1 2 x\n", ":1: x: allowed are bytes")):
                with open(path, "w") as file:
                    file.write(text)
                done = run([PERF, "moe_dispatch", "--matrix", path], threads=3)
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)

    def test_processes_under_weft_run_are_right(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            done = run([RUN, "-n", "2", PERF, "all_reduce", "-b", "8", "-e",
                        "512K", "-f", "256", "-n", "4", "--samples", "-J",
                        path])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("median_us", done.stdout)
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
        self.assertEqual([row["bytes"] for row in rows],
                         [8, 2048, 524288])
        for row in rows:
            self.check_row(row, "all_reduce", 2)
            self.assertEqual(len(row["samples_us"]), 4)

    def test_overlap_gives_its_four_figures(self):
        for op in OVERLAPPED:
            row, = rows_of([PERF, op, "--sizes", "200000", "--overlap", "-n",
                            "3"], threads=2)
            self.check_row(row, op, 2)
            self.assertLessEqual({"O", "H", "s_C", "s_M"}, set(row))
            self.assertGreater(row["progress_us"], 0)
            self.assertGreaterEqual(row["preemptions"], 0)
            self.assertGreater(row["wakeups"], 0)
            # For each MiB out and in, of 50,000 to 220,000 bytes.
            each_way = row["wakeups"] / row["wakeups_per_MiB"] * 2**20
            self.assertGreater(each_way, 50000)
            self.assertLess(each_way, 220000)

    def test_bare_sockets_move_as_much_as_the_operation(self):
        # Two ranks; each way, of all_reduce half of the buffer twice.
        for op, share in (("all_reduce", 1), ("all_gather", 0.5),
                          ("reduce_scatter", 0.5), ("alltoall", 0.5),
                          ("sendrecv", 1)):
            row, = rows_of([PERF, op, "--sizes", "1048576", "--overlap",
                            "--bare", "-n", "2"], threads=2)
            self.check_row(row, op, 2)
            self.assertEqual(row["bare_bytes"], share * 1048576)
            self.assertGreater(row["bare_cpu_us"], 0)
            self.assertGreater(row["bare_ser_us"], 0)
            self.assertGreater(row["bare_ovl_us"], 0)
            if row["H"] is not None and row["H_bare"]:
                self.assertAlmostEqual(row["H_of_bare"],
                                       row["H"] / row["H_bare"])
            else:
                self.assertIsNone(row["H_of_bare"])

    def test_unchecked_row_does_not_claim_to_be_right(self):
        row, = rows_of([PERF, "all_reduce", "-b", "8", "-e", "8", "-n", "2",
                        "-c", "0"], threads=2)
        self.assertIsNone(row["wrong"])

    def test_table_of_nccl_tests_has_its_columns(self):
        done = run([PERF, "all_reduce", "--nccl-tests", "-b", "8", "-e", "40",
                    "-i", "16", "-n", "3", "-d", "all", "-o", "min", "-N", "2",
                    "-a", "1"], threads=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        rows = [line.split() for line in lines if not line.startswith("#")]
        types = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "half",
                 "bfloat16", "float", "double", "f8e4m3", "f8e5m2"]
        self.assertEqual(len(rows), 3 * len(types) * 2)
        self.assertEqual({row[2] for row in rows}, set(types))
        for row in rows:
            size, count, _, redop, root, *forms = row
            self.assertEqual((redop, root), ("min", "-1"))
            self.assertEqual(int(size) % int(count), 0)
            self.assertEqual(len(forms), 8)
            for time, algbw, busbw, wrong in (forms[:4], forms[4:]):
                self.assertGreater(float(time), 0)
                self.assertEqual(wrong, "0")
                self.assertEqual(algbw, busbw)  # 2 ranks: factor 1
        self.assertEqual(lines[-2], "# Out of bounds values : 0 OK")
        self.assertRegex(lines[-1], r"^# Avg bus bandwidth    : [0-9.e+-]+$")

    def test_table_of_nccl_tests_has_one_form_where_there_is_one(self):
        path = os.path.join(tempfile.mkdtemp(), "rows.json")
        done = run([PERF, "alltoall", "--nccl-tests", "-b", "64", "-e", "64",
                    "-n", "2", "-J", path], threads=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = [line.split() for line in done.stdout.splitlines()
                if not line.startswith("#")]
        self.assertEqual(row[:5], ["64", "8", "float", "none", "-1"])
        self.assertEqual(row[9:], ["N/A"] * 4)
        with open(path, encoding="utf-8") as file:
            one, = json.load(file)["rows"]
        self.assertFalse(one["inplace"])
        time = one["time_us"]
        self.assertLessEqual(time["min"], time["mean"])
        self.assertLessEqual(time["mean"], time["max"])
        done = run([PERF, "broadcast", "--nccl-tests", "-b", "64", "-e", "64",
                    "-r", "1", "-n", "2", "-J", "-"], threads=2)
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([row["inplace"] for row in rows], [False, True])

    def test_groups_of_calls_share_their_time_and_are_right(self):
        for op in ("all_reduce", "alltoallv", "broadcast", "sendrecv_list"):
            for flags in ([], ["--plan"], ["--registered", "-u", "3"]):
                for row in rows_of([PERF, op, "-m", "7", "-n", "3", "-c", "2",
                                    "--sizes", "64,40K", *flags], threads=3):
                    self.check_row(row, op, 3)
        for row in rows_of([PERF, "all_reduce", "-m", "6", "-n", "2", "-b",
                            "1K", "-e", "1K", "--inplace"], threads=2):
            self.assertEqual(row["wrong"], 0)
        one, = rows_of([PERF, "all_reduce", "-z", "0", "-b", "1M", "-e", "1M",
                        "-n", "5"], threads=2)
        many, = rows_of([PERF, "all_reduce", "-m", "32", "-b", "1M", "-e",
                         "1M", "-n", "5"], threads=2)
        self.assertLess(many["time_us"]["min"], 16 * one["time_us"]["max"])

    def test_buffers_begin_where_they_are_told_to(self):
        for op in ("all_reduce", "reduce_scatter", "put", "alltoall"):
            for flags in ([], ["--memory", "shadow"]):
                if op == "put" and flags:
                    continue
                row, = rows_of([PERF, op, "-u", "5", "-b", "96", "-e", "96",
                                "-n", "3", "-d", "half", *flags], threads=3)
                self.check_row(row, op, 3)

    def test_table_says_how_far_times_differ(self):
        done = run([PERF, "all_reduce", "--nccl-tests", "-I", "1", "-b", "64",
                    "-e", "64", "-n", "20"], threads=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("i_cv%"), 2)
        row, = [line.split() for line in done.stdout.splitlines()
                if not line.startswith("#")]
        self.assertEqual(len(row), 5 + 2 * 8)
        for form in (row[5:13], row[13:]):
            mean, least, most, p99, varies = (
                float(form[i]) for i in (0, 4, 5, 6, 7))
            self.assertTrue(least <= mean <= most, form)
            self.assertTrue(least <= p99 <= most, form)
            self.assertGreater(varies, 0)

    def test_least_bandwidth_decides_the_exit_status(self):
        for flags in ([], ["--nccl-tests"], ["-J", os.devnull]):
            for least, verdict in (("0.0000001", "OK"), ("900000", "FAILED")):
                done = run([PERF, "all_reduce", "-b", "1K", "-e", "1K", "-n",
                            "3", *flags], threads=2, NCCL_TESTS_MIN_BW=least)
                self.assertEqual(done.returncode, verdict == "FAILED",
                                 done.stderr)
                self.assertRegex(done.stdout, r"\n# Avg bus bandwidth    : "
                                 rf"[0-9.e+-]+ {verdict}\n")
                self.assertEqual("NCCL_TESTS_MIN_BW" in done.stderr,
                                 verdict == "FAILED")

    def test_least_bandwidth_is_none_of_what_moves_nothing(self):
        done = run([PERF, "barrier", "-n", "3"], threads=2,
                   NCCL_TESTS_MIN_BW="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("FAILED", done.stdout)

    def test_matrix_says_what_goes_where(self):
        path = os.path.join(tempfile.mkdtemp(), "matrix")
        with open(path, "w", encoding="utf-8") as file:
            file.write("0 400 100 7\n12 0 0 7\n49 3 88 7\n1 1 1 1\n")
        known = 400 + 100 + 12 + 48 + 0 + 88  # whole f32 of 3 ranks
        for flags, more, bytes_all in (
                (["--matrix", path], {}, known),
                ([], {"NCCL_TESTS_ALLTOALLV_MATRIX_FILE": path}, known),
                (["-b", "512", "-e", "512"],
                 {"NCCL_TESTS_ALLTOALLV_MATRIX_FILE": path}, known),
                (["--matrix", path, "-m", "3"],
                 {"NCCL_TESTS_ALLTOALLV_MATRIX_SCALE": "2"},
                 800 + 200 + 24 + 96 + 4 + 176)):
            row, = rows_of([PERF, "alltoallv", "-n", "3", *flags], threads=3,
                           **more)
            self.assertEqual(row["bytes"], bytes_all // 4 // 3 * 4)
            self.assertEqual(row["wrong"], 0)
        for flags, said in ((["-b", "96", "-e", "96"], "up to 500 bytes"),
                            (["--sizes", "96"], "--sizes 96: of"),
                            (["-b", "8", "-e", "512"], "says the sizes")):
            done = run([PERF, "alltoallv", "--matrix", path, *flags],
                       threads=3)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
        done = run([PERF, "alltoallv", "--matrix", path + "x"], threads=2)
        self.assertIn("No such file", done.stderr)

    def test_rate_limit_is_said(self):
        done = run([PERF, "all_reduce", "-b", "8", "-e", "8", "-n", "2"],
                   threads=2, WEFT_EMULATE_GBPS="0.5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("WEFT_EMULATE_GBPS", done.stdout)

    def test_algorithms_run_by_name(self):
        sizes = ["--sizes", "8,64K", "-n", "3"]
        for flags, settings, algorithms in (
                (["--algo", "tree"], {}, ["tree", "tree"]),
                (["--algo", "oneshot/exchange"], {}, ["oneshot", "exchange"]),
                ([], {"WEFT_ALGO": "reduce:direct,all_reduce:exchange"},
                 ["exchange", "exchange"]),
                (["--algo", "direct"], {"WEFT_ALGO": "all_reduce:tree"},
                 ["direct", "direct"]),
                (["--algo", "tree", "--overlap"], {}, ["tree", "tree"]),
                (["--algo", "tree", "--plan"], {}, ["tree", "tree"])):
            rows = rows_of([PERF, "all_reduce", *flags, *sizes], threads=3,
                           **settings)
            self.assertEqual([row["algorithm"] for row in rows], algorithms)
            self.assertEqual([row["wrong"] for row in rows], [0, 0])
        # What the program itself exchanges may go any way: 8000 bytes here.
        rows_of([PERF, "all_reduce", "-b", "8", "-e", "8", "-n", "1000"],
                threads=2, WEFT_ALGO="all_reduce:oneshot")

    def test_regret_has_every_algorithm_that_can(self):
        command = [PERF, "all_reduce", "--regret", "--sizes", "0,8,256K", "-n",
                   "5", "-d", "f32"]
        done = run([*command, "-J", "-"], threads=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        some = ["direct", "tree", "exchange"]
        for row, names in zip(facts["rows"],
                              (["oneshot"], ["oneshot", *some], some)):
            times = {way["algorithm"]: way["time_us"]["median"]
                     for way in row["algorithms"]}
            self.assertEqual(list(times), names)
            self.assertEqual(row["wrong"], 0)
            self.assertEqual(row["time_us"]["median"],
                             times[row["algorithm"]])
            self.assertEqual(times[row["best"]], min(times.values()))
            self.assertAlmostEqual(
                row["regret"],
                times[row["algorithm"]] / min(times.values()) - 1)
        regrets = [row["regret"] for row in facts["rows"]]
        self.assertEqual(facts["points"], 3)
        self.assertEqual(facts["cheap_points"],
                         sum(regret <= 0.1 for regret in regrets))
        self.assertEqual(facts["most_regret"], max(regrets))
        few = rows_of([*command, "--algo", "tree/direct"], threads=2)
        self.assertEqual([way["algorithm"] for way in few[2]["algorithms"]],
                         ["direct", "tree"])
        self.assertIn("longer than the best at ",
                      run(command, threads=2).stdout.splitlines()[-1])

    def test_mistakes_are_refused_in_one_line(self):
        for flags, said in ((["everything"], "all_reduce all_gather"),
                            (["moe_dispatch", "-d", "i32"],
                             "allowed is f32, bf16 or f16"),
                            (["moe_combine", "--inplace"], "without --inplace"),
                            (["alltoallv", "--topk", "2"], "not alltoallv"),
                            (["moe_dispatch", "--experts", "7"],
                             "--experts 7 --topk 2: allowed is a multiple of"),
                            (["moe_dispatch", "--matrix", "/nowhere"],
                             "/nowhere: No such file"),
                            (["moe_dispatch", "--matrix", "x", "--tokens", "3"],
                             "it says how many tokens go where"),
                            (["put", "--inplace"], "no form in place"),
                            (["put", "--memory", "shadow"], "is host"),
                            (["gatherv", "--overlap"], "not measured in parts"),
                            (["reduce", "--plan", "--overlap"], "--plan"),
                            (["alltoall", "--inplace"], "no form in place"),
                            (["gather", "--overlap"], "allowed is"),
                            (["all_reduce", "--bare"], "with --overlap"),
                            (["reduce", "--overlap", "--bare"],
                             "--bare reduce: allowed is"),
                            (["all_reduce", "--memory", "cuda"], "cuda"),
                            (["broadcast", "-r", "2"], "0 to 1"),
                            (["all_reduce", "-J", "/nowhere/x"], "/nowhere"),
                            (["all_reduce", "--algo", "magic"],
                             "--algo magic: allowed for all_reduce is "
                             "oneshot|dissemination|hierarchical|direct|tree|"
                             "exchange|nested|nested_sums"),
                            (["all_gather", "--algo", "direct/tree"],
                             "is oneshot|dissemination|hierarchical|direct|"
                             "nested, or several"),
                            (["all_reduce", "--algo", "hierarchical"],
                             "WEFT_ALGO=all_reduce:hierarchical: all_reduce "
                             "of 2 f32 among 2 ranks of one level cannot"),
                            (["put", "--algo", "direct"], "one way only"),
                            (["barrier", "--regret"], "one way only"),
                            (["reduce", "--regret", "--plan"], "without"),
                            ([], "which operation")):
            done = run([PERF, *flags, "-e", "8", "-n", "1"], threads=2)
            self.assertEqual(done.returncode, 1)
            lines = [line for line in done.stderr.splitlines() if said in line]
            self.assertTrue(lines, done.stderr)
            self.assertTrue(lines[0].startswith("weft-perf: "))

    def test_help_and_version_are_there(self):
        done = run([PERF, "--help"])
        self.assertEqual(done.returncode, 0)
        self.assertIn("examples:", done.stdout)
        self.assertIn("weft-perf 0.", run([PERF, "--version"]).stdout)


if __name__ == "__main__":
    unittest.main()
