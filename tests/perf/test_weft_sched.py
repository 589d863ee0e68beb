#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: weft-sched as its users meet it: right facts for every schedule, the JSON
fields that others read, files that come back in, refusals in one line with
exit status 1.
Method: runs the built program; every call is bounded by a time limit.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

BIN = sys.argv.pop(1)
SANITIZED = any(name in BIN for name in ("asan", "tsan"))
SCHED = os.path.join(BIN, "weft-sched")
NAMES = ["gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zbv", "dualpipe",
         "dualpipev"]
FIELDS = {"schedule", "ranks", "microbatches", "chunks", "makespan", "ideal",
          "bubble", "bubble_per_rank", "bubble_ratio", "bubble_to_ideal",
          "window_bubble", "window_bubble_per_rank", "peak_activation",
          "peak_per_rank", "param_copies", "p2p_messages", "valid", "deadlock"}


def run(*words, status=0):
    done = subprocess.run([SCHED, *map(str, words)], capture_output=True,
                          text=True, timeout=80, check=False)
    if status is not None and done.returncode != status:
        raise AssertionError(f"{words}: {done.returncode}: {done.stderr}")
    return done


def facts(command, *words, status=0):
    return json.loads(run(command, *words, "--json", "-",
                          status=status).stdout)


def shape(name, ranks=4, microbatches=16):
    return ["--schedule", name, "--ranks", ranks, "--microbatches",
            microbatches]


class WeftSched(unittest.TestCase):
    def test_every_schedule_has_all_fields(self):
        for name in NAMES:
            for command in ["show", "check", "simulate"]:
                got = facts(command, *shape(name))
                self.assertLessEqual(FIELDS, set(got))
                self.assertEqual(got["schedule"], name)
                self.assertEqual((got["ranks"], got["microbatches"]), (4, 16))
                self.assertTrue(got["valid"])
                self.assertEqual(got["deadlock"], {"free": True, "cycle": []})
                self.assertEqual(got["param_copies"],
                                 2 if name == "dualpipe" else 1)
                self.assertEqual(len(got["bubble_per_rank"]), 4)
                self.assertEqual(max(got["bubble_per_rank"]), got["bubble"])
                self.assertEqual(max(got["peak_per_rank"]),
                                 got["peak_activation"])
                self.assertTrue(math.isclose(
                    got["bubble_ratio"], got["bubble"] / got["makespan"]))
                self.assertTrue(math.isclose(
                    got["makespan"], got["ideal"] + min(
                        got["bubble_per_rank"])))

    def test_costs_reach_the_figures(self):
        got = facts("simulate", *shape("1f1b", 4, 8), "--cost", "F=2,I=1,W=3")
        self.assertEqual((got["ideal"], got["bubble"]), (48, 18))
        got = facts("simulate", *shape("dualpipe", 8, 32), "--cost", "FB=2")
        self.assertEqual(got["bubble_per_rank"], [1, 2, 3, 3, 3, 3, 2, 1])
        free = facts("simulate", *shape("1f1b", 4, 8))
        slow = facts("simulate", *shape("1f1b", 4, 8), "--cost", "p2p=0.5")
        self.assertGreater(slow["bubble"], free["bubble"])
        shared = facts("simulate", *shape("1f1b", 4, 8), "--nodes", "2:2")
        own = facts("simulate", *shape("1f1b", 4, 8), "--nodes", "4:2")
        self.assertGreater(shared["bubble"], own["bubble"])
        self.assertEqual(own["bubble"], free["bubble"])

    def test_files_come_back(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "list.csv")
            for name in NAMES:
                for more in [[], ["--lowering", "sender"]]:
                    first = facts("simulate", *shape(name), "--csv", path,
                                  *more)
                    again = facts("check", "--schedule", path)
                    for field in ["makespan", "bubble", "peak_per_rank",
                                  "p2p_messages", "chunks", "valid",
                                  "microbatches", "param_copies"]:
                        self.assertEqual(first[field], again[field])

    def test_lowerings_that_deadlock_are_named(self):
        for name in NAMES[1:]:
            got = facts("check", *shape(name), "--lowering", "naive",
                        "--semantics", "rendezvous", status=1)
            self.assertFalse(got["valid"])
            self.assertFalse(got["deadlock"]["free"])
            self.assertGreaterEqual(len(got["deadlock"]["cycle"]), 2)
            for place in got["deadlock"]["cycle"]:
                self.assertRegex(place, r"^rank \d+: \d+(SEND|RECV)_[FB]\d+$")
        for name in ["dualpipe", "dualpipev"]:
            run("check", *shape(name), "--lowering", "dualpipe")
        for semantics in ["grouped", "rendezvous", "eager:1", "eager:4"]:
            for name in NAMES:
                run("check", *shape(name), "--semantics", semantics)

    def test_broken_file_names_rank_and_action(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad.csv")
            for text, said in [
                    ("0F0,0B0\n1B0,1F0\n", "rank 1, action 0, 1B0"),
                    ("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n",
                     "1RECV_F0"),
                    ("0F0,0B0\n1F0,1Z0\n", "row 2, column 2")]:
                with open(path, "w", encoding="ascii") as file:
                    file.write(text)
                done = run("check", "--schedule", path, status=1)
                self.assertIn(said, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_file_of_any_lowering_says_what_the_schedule_says(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "list.csv")
            for name in NAMES:
                ways = ["sender", "gap", "naive"]
                ways += ["dualpipe"] if name.startswith("dualpipe") else []
                for way in ways:
                    direct = [*shape(name, 2, 6), "--lowering", way]
                    run("list", *direct, "--csv", path, status=None)
                    for how in ["grouped", "rendezvous"]:
                        one, two = (subprocess.run(
                            [SCHED, "check", *map(str, words), "--semantics",
                             how, "--json", "-"], capture_output=True,
                            text=True, timeout=80, check=False)
                            for words in (direct, [path]))
                        self.assertEqual(one.returncode, two.returncode)
                        one, two = json.loads(one.stdout), json.loads(
                            two.stdout)
                        for field in ["valid", "deadlock", "peak_per_rank",
                                      "early_per_rank", "p2p_messages",
                                      "finding_count"]:
                            self.assertEqual(one[field], two[field],
                                             (name, way, how, field))
                        for cell in two["cycle_cells"]:
                            self.assertGreater(cell["column"], 0)
            made = facts("simulate", *shape("zbv"), "--lowering", "gap",
                         status=None)
            self.assertFalse(made["valid"])

    def test_schedule_is_named_without_its_flag(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "list.csv")
            run("list", "1f1b", "--ranks", 2, "--microbatches", 4, "--csv",
                path, "--lowering", "gap")
            for command in ["check", "simulate", "show", "list"]:
                self.assertEqual(facts(command, path)["ranks"], 2)

    def test_no_raw_byte_reaches_the_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            odd = os.path.join(folder.encode(), b"a\x1b[2J\xff\n.csv")
            bad = b"0F0,0\x1b]0;\x07\xff\x00B0\n"
            for text, said in [(bad, b"row 1, column 2"),
                               (b"0F0,0F0\n", b"row 1, column 2"),
                               (b"\xef\xbb\xbf0F0,0B0\n", b"byte-order"),
                               ("0F0,0B0\n".encode("utf-16"), b"UTF-16"),
                               (b'"0F0",0B0\n', b"quoted"), (None, b"odd")]:
                if text is not None:
                    with open(odd, "wb") as file:
                        file.write(text)
                done = subprocess.run(
                    [SCHED, b"check", odd if said != b"odd" else
                     b"\x1b[2J\xff"], capture_output=True, timeout=80,
                    check=False)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr.count(b"\n"), 1)
                self.assertIn(b"\\x1b[2J\\xff", done.stderr)
                if text is not None:
                    self.assertIn(said, done.stderr)
                for byte in done.stderr[:-1] + done.stdout.replace(b"\n",
                                                                   b""):
                    self.assertTrue(32 <= byte < 127, done.stderr)

    def test_too_large_is_refused_by_its_size_at_once(self):
        for name, m, said in [
                ("gpipe", 65536, "8589934592 actions"),
                ("dualpipe", 1 << 20, "allowed are up to 1073741824")]:
            done = run("simulate", name, "--ranks", 65536, "--microbatches", m,
                       status=1)
            self.assertIn(said, done.stderr)
        if SANITIZED:  # which takes terabytes of addresses
            return
        done = subprocess.run(
            ["sh", "-c", 'ulimit -v 1000000; exec "$@"', "sh", SCHED,
             "simulate", "1f1b", "--ranks", "4096", "--microbatches", "4096"],
            capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"needs [0-9.]+ GB, and 1\.02 GB")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "long.csv")
            with open(path, "w", encoding="ascii") as file:
                file.write("0F0," * 5000000)
            done = subprocess.run(
                ["sh", "-c", 'ulimit -v 120000; exec "$@"', "sh", SCHED,
                 "check", path], capture_output=True, text=True, timeout=20,
                check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(path + ": its list: needs 0.16 GB, and 0.123 GB can "
                          "be had", done.stderr)

    def test_what_has_no_end_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "fifo.csv")
            os.mkfifo(fifo)
            for path in [fifo, "/dev/zero", folder]:
                done = run("check", path, status=1)
                self.assertIn("allowed is a regular file", done.stderr)

    def test_costs_outside_their_range_are_refused(self):
        for cost in ["F=1e308", "F=nan", "W=inf", "I=-1", "B=1e-310",
                     "F=0x10", "F= 1", "p2p=1e31", "reduce=-0.5", "FB=1e999"]:
            done = run("simulate", *shape("1f1b"), "--cost", cost, status=1)
            self.assertIn("allowed is 0, or a number from 1e-30 to 1e+30",
                          done.stderr)
            self.assertIn(cost.split("=")[0], done.stderr)
        got = facts("simulate", *shape("1f1b", 8, 4096), "--cost",
                    "F=1e30,I=1e30,W=1e30,p2p=1e-30")
        self.assertTrue(math.isclose(got["makespan"], 3 * 4103 * 1e30))

    def test_numbers_are_plain(self):
        for number in ["+4", " 4", "4 ", "0x4", "4.0", ""]:
            done = run("simulate", "1f1b", "--ranks", number,
                       "--microbatches", 4, status=1)
            self.assertIn(f"--ranks {number}: allowed is a whole number",
                          done.stderr)

    def test_refused_outputs_leave_what_was_there(self):
        with tempfile.TemporaryDirectory() as folder:
            old, new = (os.path.join(folder, name) for name in ("old", "new"))
            with open(old, "w", encoding="ascii") as file:
                file.write("old")
            bad = os.path.join(folder, "bad.csv")
            with open(bad, "w", encoding="ascii") as file:
                file.write("0F0,0B0\n1B0,1F0\n")
            for flag in ["--svg", "--trace"]:
                for path in [old, new]:
                    run("show", bad, flag, path, status=1)
                    run("show", "1f1b", "--ranks", 2, "--microbatches", 2,
                        flag, path, "--cost", "F=1e308", status=1)
            run("show", "1f1b", "--ranks", 2, "--microbatches", 2, "--svg",
                os.path.join(folder, "none", "x"), status=1)
            self.assertEqual(sorted(os.listdir(folder)), ["bad.csv", "old"])
            with open(old, encoding="ascii") as file:
                self.assertEqual(file.read(), "old")
            run("show", "1f1b", "--ranks", 2, "--microbatches", 2, "--svg",
                old)
            xml.dom.minidom.parse(old)
            self.assertEqual(sorted(os.listdir(folder)), ["bad.csv", "old"])

    def test_pictures_and_traces_are_well_formed(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = os.path.join(folder, "a.svg")
            trace = os.path.join(folder, "a.json")
            for name in NAMES:
                run("show", *shape(name), "--svg", svg, "--trace", trace)
                xml.dom.minidom.parse(svg)
                with open(trace, encoding="utf-8") as file:
                    events = json.load(file)["traceEvents"]
                self.assertEqual({event["tid"] for event in events},
                                 {0, 1, 2, 3})

    def test_passes_and_limits_are_applied(self):
        done = run("list", *shape("interleaved", 2, 2), "--passes",
                   "shard,reduce,optimize,recompute")
        for name in ["UNSHARD", "REDUCE_GRAD", "OPT", "RECOMPUTE0",
                     "GATHER_PARAM"]:
            self.assertIn(name, done.stdout)
        run("check", *shape("1f1b"), "--max-activations", 4)
        done = run("check", *shape("1f1b"), "--max-activations", 3, status=1)
        self.assertIn("rank 0 holds 4", done.stderr)
        # limits are for what the passes leave
        run("check", *shape("1f1b"), "--passes", "recompute",
            "--max-activations", 2)
        done = run("check", *shape("1f1b"), "--passes", "recompute",
                   "--max-activations", 0.5, status=1)
        self.assertIn("allowed is 0.5", done.stderr)

    def test_wrong_calls_are_refused_in_one_line(self):
        for words, said in [
                ([], "command"), (["show"], "--schedule"),
                (["paint"], "show, check"), (["show", "--rank", "x"], "--rank"),
                (["show", "--schedule", "nope", "--ranks", "2",
                  "--microbatches", "2"], "neither a file"),
                (["show", "--schedule", "1f1b"], "--ranks"),
                (["simulate", *shape("1f1b"), "--cost", "Q=1"], "Q=1"),
                (["simulate", *shape("1f1b"), "--cost", "F=-1"], "-1"),
                (["simulate", *shape("1f1b"), "--cost", "F=1e-1" + 80 * "0"],
                 "up to 63 characters"),
                (["simulate", *shape("1f1b"), "--cost", "F=1,"], "KEY=NUMBER"),
                (["show", "--ranks", 2, "--schedule", "1f1b", "--microbatches",
                  ""], "--microbatches : allowed"),
                (["show", *shape("1f1b"), "--passes", "merge,paint"],
                 "--passes paint: allowed is merge"),
                (["show", *shape("1f1b"), "--lowering", "none"],
                 "--lowering none: allowed is sender"),
                (["check", *shape("1f1b"), "--semantics", "eager:0"], "eager"),
                (["check", *shape("1f1b"), "--lowering", "dualpipe"],
                 "dualpipev"),
                (["compare", "--ranks", 4, "--microbatches", 8], "--layers"),
                (["compare", *shape("1f1b")], "--schedule"),
                (["show", *shape("1f1b"), "--layers", 8], "compare"),
                (["show", *shape("1f1b"), "--encoder", "F=1"],
                 "--encoder F=1: allowed is CHUNKS:LIST"),
                (["show", *shape("1f1b"), "--encoder", "0:F=1"],
                 "--encoder 0: allowed"),
                (["show", *shape("1f1b"), "--encoder", "1:F=1"],
                 "--encoder 1:...: a rank has 1 chunk of this schedule"),
                (["show", *shape("zbv"), "--encoder", "2:F=1"],
                 "--encoder 2:...: a rank has 2 chunks of this schedule; "
                 "allowed is less"),
                (["compare", "--ranks", 4, "--microbatches", 8, "--layers", 4,
                  "--encoder", "1:F=1"], "--encoder is for one schedule"),
                (["compare", "--ranks", 4, "--microbatches", 8, "--layers", 4,
                  "--last", "p2p=1"], "--last p2p=1: allowed is KEY=NUMBER "
                 "with F I W B"),
                (["show", *shape("1f1b"), "--bytes", 8], "--topology"),
                (["show", *shape("1f1b"), "--topology", "1x(4xH100)"],
                 "--bytes"),
                (["show", *shape("1f1b"), "--topology", "1x(2xH100)",
                  "--bytes", 8], "rank 2 has no place"),
                (["show", *shape("1f1b"), "--topology", "2x(2xH100)",
                  "--bytes", 8], "no usable NIC"),
                (["show", *shape("1f1b", 2), "--topology", "1x(2xH100)",
                  "--bytes", 8, "--places", "1,1"], "both at 1"),
                (["show", *shape("1f1b", 2), "--topology", "1x(2xH100)",
                  "--bytes", 8, "--places", "1"], "1 given for 2"),
                (["show", *shape("1f1b", 2), "--topology", "/none.xml",
                  "--bytes", 8], "/none.xml"),
                (["show", *shape("zbv"), "--plan", "best"],
                 "--plan best: allowed is published or cost"),
                (["show", *shape("1f1b"), "--plan", "cost"],
                 "1f1b has other actions than F, I and W"),
                (["show", *shape("zbv"), "--plan", "cost", "--memory-limit",
                  0.5], "--memory-limit 0.5: allowed is 1 or more"),
                (["show", *shape("zbv"), "--memory-limit", 4],
                 "--memory-limit is for --plan cost"),
                (["compare", "--ranks", 2, "--microbatches", 8, "--layers", 8,
                  "--memory-limit", 4, "--plan", "cost"], "--max-memory"),
                (["show", *shape("interleaved", 3, 7)], "works is 6"),
                (["show", *shape("dualpipe", 4, 6)], "works is 8")]:
            done = run(*words, status=1)
            self.assertIn(said, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertEqual(done.stdout, "")

    def test_encoder_s_chunks_leave_less_bubble_than_its_layers_ahead(self):
        quarter = "1:F=0.25,I=0.25,W=0.25"
        ahead = facts("simulate", *shape("1f1b"), "--first", "F=1,I=1,W=1")
        own = facts("simulate", *shape("interleaved"), "--chunks", 2,
                    "--encoder", quarter)
        self.assertEqual((ahead["bubble"], own["bubble"]), (51, 4.5))
        self.assertEqual((own["chunks"], own["encoder_stages"]), (3, 4))
        self.assertEqual(own["ideal"], 60)
        small = facts("simulate", *shape("interleaved"), "--chunks", 2,
                      "--encoder", quarter, "--group", 4)
        self.assertEqual(small["bubble"], 6.75)
        planned = facts("simulate", *shape("zbv"), "--encoder", quarter,
                        "--plan", "cost")
        published = facts("simulate", *shape("zbv"), "--encoder", quarter)
        self.assertLess(planned["bubble"], 0.7 * published["bubble"])
        said = run("show", *shape("interleaved"), "--encoder",
                   "1:B=2", "--columns", 400).stdout
        self.assertIn("2 chunks a rank, of which 1 of an encoder", said)
        self.assertIn("eB", said)

    def test_plan_by_cost_is_shorter_and_comes_back_from_its_file(self):
        words = [*shape("zbv", 8, 32), "--cost", "F=1,I=0.8,W=1.2"]
        published = facts("simulate", *words)
        planned = facts("simulate", *words, "--plan", "cost")
        self.assertEqual((published["planned"], planned["planned"]),
                         (False, True))
        self.assertTrue(math.isclose(published["bubble"], 4.1))
        self.assertTrue(math.isclose(planned["bubble"], 3.5))
        self.assertEqual(planned["peak_activation"], 8)
        less = facts("check", *words, "--plan", "cost", "--memory-limit", 5.5,
                     "--max-activations", 5.5, "--rendezvous")
        self.assertTrue(less["valid"])
        self.assertLess(planned["makespan"], less["makespan"])
        text = run("simulate", *words).stdout
        self.assertIn("--plan cost makes one for these costs", text)
        text = run("simulate", *words, "--plan", "cost").stdout
        self.assertIn("planned by cost", text)
        self.assertNotIn("--plan", text)
        self.assertNotIn("--plan", run("simulate", *shape("zbv")).stdout)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.csv")
            run("list", *words, "--csv", path) # 8 are held in it
            planned_file = facts("check", path, *words[-2:], "--plan", "cost",
                                 "--memory-limit", 5.5, "--max-activations",
                                 5.5)
            self.assertTrue(planned_file["valid"])
            run("list", *words, "--plan", "cost", "--csv", path)
            for more in [], ["--plan", "cost"]:
                again = facts("simulate", "--schedule", path, *words[-2:],
                              *more)
                self.assertEqual(again["makespan"], planned["makespan"])

    def test_compare_agrees_with_simulate(self):
        words = ["--ranks", 4, "--microbatches", "16,32", "--layers", 16,
                 "--cost", "F=1,I=1.25,W=0.75,FB=2.5,p2p=0.125"]
        got = facts("compare", *words, "--max-memory", 8)
        self.assertEqual(got["best"], got["candidates"][0]["schedule"])
        self.assertIn(got["best"], got["reason"])
        names = set()
        for entry in got["candidates"]:
            names.add(entry["schedule"])
            self.assertEqual(entry["possible"], entry["why"] is None)
            if entry["microbatches"] != 16 or entry["makespan"] is None:
                continue
            more = ["--chunks", entry["chunks"]] \
                if entry["schedule"] == "interleaved" else []
            more += ["--overlap"] if entry["overlap"] else []
            one = facts("simulate", *shape(entry["schedule"]), "--cost",
                        words[-1], *more)
            for field in ["makespan", "bubble", "bubble_ratio",
                          "peak_activation", "p2p_messages", "param_copies"]:
                self.assertEqual(one[field], entry[field])
            self.assertEqual(entry["possible"], entry["memory"] <= 8)
        self.assertEqual(names, set(NAMES))
        text = run("compare", *words, "--max-memory", 8).stdout
        self.assertIn(got["reason"], text)
        few = run("compare", "--ranks", 8, "--microbatches", 4, "--layers", 8)
        self.assertIn("warning: even so", few.stdout)

    def test_compare_of_what_is_impossible_fails(self):
        words = ["compare", "--ranks", 4, "--microbatches", 32, "--layers", 32,
                 "--max-memory", 0.1]
        done = run(*words, status=1)
        self.assertIn("refused: needs 4 units of memory", done.stdout)
        self.assertRegex(done.stderr, "^weft-sched: compare: no schedule is "
                         "possible: .*allowed is 0.1\n$")
        got = json.loads(run(*words, "--json", "-", status=1).stdout)
        self.assertIsNone(got["best"])
        self.assertFalse(any(c["possible"] for c in got["candidates"]))

    def test_compare_tries_orders_by_cost(self):
        words = ["--ranks", 8, "--microbatches", 32, "--cost",
                 "F=1,I=0.8,W=1.2,p2p=0.1"]
        plain = facts("compare", "--layers", 16, *words)
        self.assertFalse(any(one["planned"] for one in plain["candidates"]))
        got = facts("compare", "--layers", 16, *words, "--plan", "cost")
        times = {(one["schedule"], one["planned"]): one
                 for one in got["candidates"]}
        one = facts("simulate", "--schedule", "zbv", *words, "--plan", "cost")
        self.assertEqual(times["zbv", True]["makespan"], one["makespan"])
        self.assertLess(times["zbv", True]["makespan"],
                        times["zbv", False]["makespan"])
        # nothing shorter for it: once is enough
        self.assertNotIn(("zb_h2", True), times)
        text = run("compare", "--layers", 16, *words, "--plan", "cost").stdout
        self.assertIn("zbv by cost", text)
        self.assertIn("zbv planned by cost is the fastest", got["reason"])
        for most in 4.5, 12:
            tight = facts("compare", "--layers", 16, *words, "--plan", "cost",
                          "--max-memory", most)
            best = tight["candidates"][0]
            self.assertTrue(best["planned"])
            self.assertLessEqual(best["memory"], most)
            self.assertEqual(best["makespan"] < one["makespan"], most == 12)

    def test_compare_counts_the_ends_of_the_model(self):
        words = ["compare", "--ranks", 4, "--microbatches", "8,4", "--layers",
                 4, "--cost", "F=1,I=1,W=1"]
        plain, ended = facts(*words), facts(
            *words, "--first", "F=0.5,I=0.25,W=0.25", "--last", "F=1,B=2")
        def times(got):
            return {(one["schedule"], one["microbatches"]): one["makespan"]
                    for one in got["candidates"] if one["makespan"]}
        # The last rank is busy throughout, from when the first has gone by.
        for m, scale in (8, 1), (4, 2):
            self.assertEqual(times(plain)["1f1b", m], (m + 3) * 3 * scale)
            self.assertEqual(times(ended)["1f1b", m],
                             (m * 6 + 3 * 3 + 1) * scale)
        self.assertEqual(times(facts(*words, "--first", "F=0")), times(plain))

    def test_compare_tells_imbalance_from_bubble(self):
        """The ends' share stays at every m, and is no reason for more."""
        words = ["compare", "--ranks", 4, "--microbatches",
                 "32,8,16,64,128,256,512", "--layers", 32, "--last", "F=2,B=4"]
        got = facts(*words)
        for one in got["candidates"]:
            if one["schedule"] != "1f1b":
                continue
            self.assertAlmostEqual(one["imbalance"], 32 * 6)
            self.assertAlmostEqual(one["bubble"], 3 * 3 * 32
                                   / one["microbatches"])
            self.assertAlmostEqual(one["idle"],
                                   one["bubble"] + one["imbalance"])
            self.assertAlmostEqual(one["imbalance_ratio"],
                                   one["imbalance"] / one["makespan"])
        self.assertEqual(got["candidates"][0]["microbatches"], 32)
        self.assertEqual(got["candidates"][0]["param_copies"], 2)
        self.assertIn("second copy of the parameters", got["reason"])
        self.assertIn("no number of micro-batches removes", got["warning"])
        self.assertNotIn("more micro-batches", got["warning"])
        text = run(*words).stdout
        self.assertIn("imbal.", text)
        self.assertIn(got["warning"], text)

    def test_compare_keeps_to_given_chunks(self):
        got = facts("compare", "--ranks", 4, "--microbatches", 16, "--layers",
                    32, "--chunks", 4, "--group", 8)
        chunks = [one["chunks"] for one in got["candidates"]
                  if one["schedule"] == "interleaved"]
        self.assertEqual(chunks, [4])

    def test_shared_port_lengthens_the_step(self):
        def on(machine, places):
            return facts("simulate", *shape("1f1b"), "--topology", machine,
                         "--places", places, "--bytes", "16e6", "--cost",
                         "F=300,I=300,W=300")["makespan"]
        shared = on("2x(2xH100,1xCX7)", "0,2,1,3")
        apart = on("2x(2xH100,2xCX7)", "0,2,1,3")
        near = on("1x(4xH100,4xCX7)", "0,1,2,3")
        self.assertGreater(shared, 1.01 * apart)
        self.assertGreater(apart, near)
        # Without a message in its way: 3 hops there and back, ports at 50 GB/s
        # both, GPU to switch to NIC at more.
        alone = facts("simulate", *shape("1f1b", 2, 1), "--topology",
                      "2x(1xH100,1xCX7)", "--bytes", "16e6", "--cost",
                      "F=300,I=300,W=300")
        self.assertTrue(math.isclose(alone["makespan"], 1800 + 640,
                                     rel_tol=0.01))
        # The slower of two ports holds both up, whichever way.
        slow = facts("simulate", *shape("1f1b", 2, 1), "--topology",
                     "1x(1xH100,1xCX7)+1x(1xH100,1xNIC100)", "--bytes", "16e6",
                     "--cost", "F=300,I=300,W=300")
        self.assertTrue(math.isclose(slow["makespan"], 1800 + 2560,
                                     rel_tol=0.01))
        # Hosts without GPUs: ranks of one host meet in memory.
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.json")
            run("compare", "--ranks", 2, "--microbatches", 4, "--layers", 4,
                "--topology", "2x(1xNUMA,1xCX7)", "--bytes", "1e6", "--json",
                path)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(json.load(file)["command"], "compare")

    def test_help_and_names(self):
        self.assertIn("examples:", run("--help").stdout)
        self.assertIn("weft-sched 0", run("--version").stdout)
        listed = [entry["name"] for entry in facts("list")["schedules"]]
        self.assertEqual(listed, NAMES)


unittest.main()
