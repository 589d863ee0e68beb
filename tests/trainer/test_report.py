#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_report.py BIN_DIR [net]

Goal: weft-train --report shows the same as --metrics does, for all ranks, in
one page that needs nothing else, with a trace that a viewer can nest; its
script asks for no fact that is not there and draws no text of a run as markup;
what cannot be written is refused before any rank trains, and an older report
stays until the new one is whole.

Method: tiny runs alone, on two processes, on two threads and, with net, on two
ranks that share no memory; facts and trace are read back and compared with the
metrics' lines, number by number, and where node is installed so is what the
page's script draws of them.
"""
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from page_reader import FEW, read_page
from products import WITHOUT_ONEDNN

NET = sys.argv.pop(2) == "net" if len(sys.argv) > 2 else False
BIN = sys.argv.pop(1)
RUN = os.path.join(BIN, "weft-run")
TRAIN = os.path.join(BIN, "weft-train")
DEADLINE_S = 60
STEPS = 12
TERMS = ["compute_ms", "exposed_ms", "bubble_ms", "skew_ms", "idle_ms"]
CONFIG = """\
model: {layers: 2, hidden_size: 16, heads: 2, kv_heads: 1, ffn_size: 24,
        seq_length: 16}
data: {paths: [text], validation_fraction: 0.1}
train: {steps: 12, micro_batch_size: 1, global_batch_size: 8, warmup_steps: 2,
        validate_every: 5}
checkpoint: {dir: ckpt, every: 0}
generate: {bytes: 20}
"""


class Report(unittest.TestCase):
    with_onednn = False

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weft-report-")
        self.addCleanup(shutil.rmtree, self.folder)
        os.mkdir(self.path("text"))
        self.write("text/a.txt", "warp and weft and a shuttle\n" * 100)
        self.write("job.yaml", CONFIG)
        self.job = self.path("job.yaml")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def train(self, nranks, *more, status=0, **variables):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("WEFT_")}
        if not self.with_onednn:
            environment.update(WITHOUT_ONEDNN)
        environment.update(variables)
        launcher = [RUN, "-n", str(nranks)] if nranks > 1 else []
        done = subprocess.run(
            [*launcher, TRAIN, self.job, *more], text=True,
            env=environment, capture_output=True, timeout=DEADLINE_S,
            check=False)
        self.assertEqual(done.returncode == 0, status == 0, done.stderr)
        return done

    def report(self, nranks, *more, draws=not FEW, **variables):
        """Trains; the page's parts, the metrics, and the trace."""
        self.train(nranks, "--report", self.path("r.html"), "--metrics",
                   self.path("m.jsonl"), *more, **variables)
        data, drawn = read_page(self.path("r.html"), draws)
        for name in os.listdir(self.folder):
            self.assertFalse(name.endswith(".new"), name)
        lines = [json.loads(line) for line in
                 self.read("m.jsonl").splitlines()]
        return drawn, data, lines, json.loads(self.read("r.trace.json"))

    def test_memory_is_what_was_planned(self):
        """In every layout: what a rank holds is what its plan says, whichever
        ranks have touched it. A model large beside what is not planned;
        sanitizers take more, and have fewer layouts."""
        self.with_onednn = True
        with open(TRAIN, "rb") as file:
            program = file.read()
        plain = b"__asan_init" not in program and b"__tsan_init" not in program
        large = ["model.layers=8", "model.hidden_size=192",
                 "model.ffn_size=384", "train.steps=2"]
        heads = ["model.kv_heads=2"]
        cut = ["parallel.pipeline_model_parallel_size=2"]
        zb_h1 = ["parallel.schedule=zb_h1"]
        both = ["parallel.schedule=interleaved"]
        two = ["model.encoder_layers=4", "model.encoder_seq_length=8",
               "data.encoder_path=text"]
        tensor = ["parallel.tensor_model_parallel_size=2"]
        rows = ["parallel.sequence_parallel=true"]
        context = ["parallel.context_parallel_size=2"]
        ulysses = ["parallel.context_parallel=ulysses"]
        experts = ["model.experts=4",
                   "parallel.expert_model_parallel_size=2"]
        again = ["memory.recompute=full"]
        layouts = [(1, again), (2, []), (2, cut + zb_h1), (2, tensor + heads),
                   (2, context)]
        if plain:
            layouts += [(1, []), (1, two), (2, cut + two + both),
                        (2, tensor + heads + rows),
                        (2, context + heads + ulysses), (2, experts),
                        (4, tensor + heads + cut)]
        for nranks, more in layouts:
            sets = [word for one in large + more for word in ("--set", one)]
            data = self.report(nranks, *sets, draws=False)[1]
            self.assertEqual(data["median_step"]["recompute_ms"] is None,
                             more != again)
            for rank in data["ranks"]:
                share = rank["grown_bytes"] / rank["planned_bytes"]
                self.assertGreater(share, 0.98, more)
                if plain:
                    self.assertLess(share, 1.02, more)

    def check_steps(self, data, lines):
        history = data["history"]
        self.assertEqual(history["stride"], 1)
        self.assertEqual(history["first_step"],
                         [line["step"] for line in lines])
        for name in ["loss", "val_loss", "tokens_per_s", "step_ms",
                     "compute_ms", "bubble_ms", "skew_ms", "idle_ms"]:
            self.assertEqual(history[name], [line[name] for line in lines])
        for name in ["tp", "cp", "ep", "pp", "dp", "mem"]:
            self.assertEqual(history[name + "_ms"],
                             [line["exposed_ms"][name] for line in lines])
        for k, line in enumerate(lines):
            parts = sum(history[name][k] for name in history
                        if name.endswith("_ms") and name != "step_ms")
            self.assertTrue(math.isclose(parts, line["step_ms"],
                                         rel_tol=1e-9, abs_tol=1e-6))

    def check_median(self, tags, data, lines):
        median = data["median_step"]
        line = lines[median["step"] - 1]
        ordered = sorted(one["step_ms"] for one in lines)
        self.assertEqual(median["step_ms"], ordered[(len(ordered) - 1) // 2])
        for name, value in median.items():
            self.assertEqual(value, line[name], name)
        if tags is None:
            return
        rows = {row[0]: row for row in tags.cells["median"]}
        self.assertEqual(rows["compute"][1], "%.3f" % line["compute_ms"])
        self.assertEqual(rows["idle"][1], "%.3f" % line["idle_ms"])
        listed = sum(float(row[1]) for row in tags.cells["median"][1:-2])
        self.assertLess(abs(listed - line["step_ms"]), 0.011)
        self.assertEqual(rows["together"][1],
                         rows["the step, by its own clock"][1])

    def check_curves(self, tags, lines):
        """What the pictures show is below them as text."""
        self.assertGreaterEqual(tags.names.count("svg"), 3)
        for table, column, name, digits in [
                ("losses", "training", "loss", 4),
                ("terms", "step", "step_ms", 3),
                ("terms", "compute", "compute_ms", 3),
                ("throughput", "tokens/s", "tokens_per_s", 0)]:
            head, *rows = tags.cells[table]
            at = head.index(column)
            self.assertEqual([row[0] for row in rows],
                             [str(line["step"]) for line in lines])
            for row, line in zip(rows, lines):
                self.assertLessEqual(abs(float(row[at]) - line[name]),
                                     0.5001 * 10 ** -digits)

    def check_ranks(self, tags, data, lines, nranks):
        self.assertEqual(data["nranks"], nranks)
        self.assertEqual(len(data["ranks"]), nranks)
        for rank in data["ranks"]:
            self.assertEqual(rank["steps"], STEPS)
            self.assertGreater(rank["memory_bytes"], 1e6)
            self.assertGreater(rank["trace_events"], STEPS)
            self.assertTrue(math.isclose(sum(rank[name] for name in TERMS),
                                         rank["step_ms"], rel_tol=1e-9))
        own = data["ranks"][0]
        for name in ["step_ms", "compute_ms", "idle_ms"]:
            mean = sum(line[name] for line in lines) / STEPS
            self.assertTrue(math.isclose(own[name], mean, rel_tol=1e-9))
            if tags is None:
                continue
            self.assertEqual(len(tags.cells["ranks"]), nranks + 1)
            column = tags.cells["ranks"][0].index(
                {"step_ms": "step, ms"}.get(name, name[:-3]))
            self.assertEqual(tags.cells["ranks"][1][column], "%.3f" % mean)
        slowest = max(rank["step_ms"] for rank in data["ranks"])
        self.assertGreaterEqual(
            1.000001 * sum(line["step_ms_max"] for line in lines),
            STEPS * slowest)

    def check_nesting(self, events):
        """As a viewer of threads wants it."""
        tracks = {}
        for event in events:
            self.assertGreaterEqual(event["ts"], 0)
            self.assertGreaterEqual(event["dur"], 0)
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
        for track in tracks.values():
            stack, before = [], 0
            for event in track:
                begin, end = event["ts"], event["ts"] + event["dur"]
                self.assertGreaterEqual(begin, before)
                before = begin
                while stack and stack[-1] <= begin + 1e-6:
                    stack.pop()
                if stack:
                    self.assertLessEqual(end, stack[-1] + 1e-6)
                stack.append(end)

    def check_trace(self, trace, lines, nranks):
        events = [event for event in trace["traceEvents"]
                  if event["ph"] == "X"]
        names = [event for event in trace["traceEvents"]
                 if event["ph"] == "M"]
        self.assertEqual(len(events) + len(names), len(trace["traceEvents"]))
        self.assertEqual({event["pid"] for event in events},
                         set(range(nranks)))
        named = {(event["pid"], event["tid"]) for event in names
                 if event["name"] == "thread_name"}
        self.assertEqual(named, {(event["pid"], event["tid"])
                                 for event in events})
        self.check_nesting(events)
        steps = {event["args"]["step"]: event for event in events
                 if event["pid"] == 0 and event["name"].startswith("step ")}
        self.assertEqual(sorted(steps), list(range(STEPS - 7, STEPS + 1)))
        for number, event in steps.items():
            self.assertTrue(math.isclose(event["dur"] / 1000,
                                         lines[number - 1]["step_ms"],
                                         rel_tol=1e-9))
        moved = [event for event in events if "bytes" in event["args"]]
        self.assertEqual(sum(event["args"]["bytes"] for event in moved) > 0,
                         nranks > 1)

    def check_all(self, nranks, *more, **variables):
        tags, data, lines, trace = self.report(nranks, *more, **variables)
        self.assertEqual(len(lines), STEPS)
        self.check_steps(data, lines)
        self.check_median(tags, data, lines)
        self.check_ranks(tags, data, lines, nranks)
        self.check_trace(trace, lines, nranks)
        self.assertEqual(data["val_loss"], lines[-1]["val_loss"])
        self.assertEqual(data["name"], "job.yaml")
        self.assertIn("Routes of %d rank" % nranks, data["machine"])
        if tags:
            self.assertIn("job.yaml", tags.text)
            self.assertIn(data["machine"], tags.text)
            self.check_curves(tags, lines)
        return tags, data, trace

    def test_one_rank(self):
        tags, data, _ = self.check_all(1)
        self.assertIsNone(data["summary"]["overlap_ratio"])
        self.assertEqual(sum(one["bytes"] for one in data["traffic"]), 0)
        if tags:
            self.assertIn("there are none", tags.text)

    def test_json_and_page_have_the_same_summary(self):
        tags, data, _, _ = self.report(1, "--json", self.path("s.json"))
        self.assertEqual(json.loads(self.read("s.json")), data["summary"])
        given = {"%s.%s" % (one["section"], one["key"]): one
                 for one in data["settings"]}
        self.assertEqual(given["train.steps"]["value"], "12")
        self.assertGreater(given["train.steps"]["line"], 0)
        self.assertEqual(given["train.lr"]["line"], 0)
        if tags:
            self.assertIn(["train.steps", "12", "line 4"], tags.cells["given"])
            self.assertIn(["train.lr", "0.003", "default"],
                          tags.cells["defaults"])

    def test_mfu_is_the_share_of_the_measured_rate(self):
        """Operations of CONFIG's model, counted here: 2 layers, 16 wide."""
        self.with_onednn = True
        matrices = 2 * (16 * (16 + 2 * 8) + 16 * 16 + 3 * 16 * 24) + 256 * 16
        attention = 12 * 2 * 16  # per key, which is 8.5 of 16 on average
        for nranks in [1, 2]:
            tags, data, lines, _ = self.report(
                nranks, "--set", "train.measure_peak=true")
            rate = 1e9 * data["summary"]["peak_gflops"]
            for line in lines:
                done = line["tokens_per_s"] * (6 * matrices + 8.5 * attention)
                self.assertTrue(math.isclose(line["mfu"], done / rate,
                                             rel_tol=1e-9))
            summary = data["summary"]
            self.assertEqual(summary["mfu"], data["median_step"]["mfu"])
            self.assertTrue(math.isclose(
                summary["mfu_non_causal"] / summary["mfu"],
                (6 * matrices + 16 * attention) /
                (6 * matrices + 8.5 * attention), rel_tol=1e-9))
            self.assertTrue(summary["blas_kernel"])
            if tags:
                self.assertIn(summary["blas_kernel"], tags.text)
        _, data, lines, _ = self.report(1)
        self.assertEqual({line["mfu"] for line in lines}, {None})
        self.assertIsNone(data["summary"]["blas_kernel"])

    def test_trial_of_overlap_is_told_whoever_wins(self):
        tags, data, _, _ = self.report(2, "--set", "overlap.trial=true")
        found = data["summary"]["overlap_trial"]
        self.assertFalse(found["resumed"])
        self.assertEqual(list(found["classes"]), ["dp"])
        own = found["classes"]["dp"]
        self.assertEqual(own["lost"], own["overlapped_ms"] -
                         own["blocking_ms"] > 3 * own["spread_ms"])
        self.assertEqual(own["lost"], "fell back" in own["verdict"])
        if tags:
            row = tags.cells["overlap"][1]
            self.assertEqual((row[0], row[-1]), ("dp", own["verdict"]))
            self.assertEqual(row[1], "n/a" if own["lost"] else "")
        _, data, _, _ = self.report(2)
        self.assertIsNone(data["summary"]["overlap_trial"])

    def test_no_text_of_a_run_is_markup(self):
        names = ["</script><script>alert(1)</script>.txt", "]]><b>.txt",
                 "<!--<script>.txt", "\"'&amp;<img src=x onerror=y>.txt"]
        for name in names:
            folder = self.path("text/" + os.path.dirname(name))
            os.makedirs(folder, exist_ok=True)
            self.write("text/" + name, "warp and weft\n" * 20)
        odd = self.path("<&\"job's>.yaml")
        os.rename(self.path("job.yaml"), odd)
        self.write(os.path.basename(odd), CONFIG.replace(
            "[text]", json.dumps(["text/" + name for name in names])))
        self.job = odd
        tags, data, _, _ = self.report(
            1, WEFT_EMULATE_GBPS="2.5")
        self.assertEqual(data["name"], os.path.basename(odd))
        paths = [one for one in data["settings"] if one["key"] == "paths"][0]
        self.assertEqual([os.path.relpath(path, self.path("text"))
                          for path in paths["value"]], names)
        if tags:
            for name in names:
                self.assertIn(name, tags.text)
            self.assertIn("Emulated: links are limited to 2.5", tags.text)
            self.assertNotIn("b", tags.names[tags.names.index("pre"):])

    def test_two_processes_and_what_overlap_is_worth(self):
        tags, data, trace = self.check_all(2, "--measure")
        moved = {one["collective"]: one for one in data["traffic"]}
        self.assertEqual(moved["reduce_scatter"]["fabric"], "shm")
        self.assertEqual(data["summary"]["measured"]["steps"], 24)
        if tags:
            self.assertEqual(len(tags.cells["measured"]), 5)
            self.assertEqual([row[0] for row in tags.cells["ceilings"][1:]],
                             ["dp", "all"])
            names = {row[0]: row for row in tags.cells["traffic"]}
            self.assertEqual(names["reduce_scatter"][1], "shm")
        self.assertEqual(trace["otherData"],
                         {"program": "weft-train", "events_left_out": 0,
                          "clock_error_us": 0})

    def test_two_threads_of_a_process(self):
        self.check_all(2, WEFT_RANKS_PER_PROCESS="2")

    if NET:
        def test_two_ranks_that_share_no_memory(self):
            tags, data, trace = self.check_all(2, "--measure",
                                               WEFT_DOMAIN="a,b")
            measured = data["summary"]["measured"]
            for own in [measured, measured["classes"]["dp"]]:
                self.assertIsNone(own["bare_hiding_why"])
                self.assertGreater(own["bare_alone_ms"], 0)
                if own["bare_hiding_ratio"] is not None:
                    self.assertLess(own["bare_hiding_ratio"], 2)
            error = trace["otherData"]["clock_error_us"]
            self.assertGreater(error, 0)
            self.assertEqual(data["trace"]["clock_error_us"], error)
            self.assertIn("net", data["traffic"][0]["fabric"])
            if tags:
                self.assertIn("clocks were compared", tags.text)
                self.assertIn("net", tags.cells["traffic"][1][1])
                self.assertEqual(tags.cells["ceilings"][0][3], "H_bare")

    def check_names(self, trace, schedule):
        """Compute is named as in the list: by stage and micro-batch."""
        names = [event["name"] for event in trace["traceEvents"]
                 if event["ph"] == "X" and event["pid"] == 0]
        stages = [0] if schedule == "1f1b" else [0, 3]
        wanted = {"%dF%d" % (stage, m) for stage in stages for m in range(8)}
        self.assertEqual({name for name in names
                          if re.fullmatch(r"\d+F\d+", name)}, wanted)
        self.assertNotIn("F", names)

    def check_plan_ranks(self, tags, found):
        for row, rank, deferred in zip(tags.cells["stages"][1:] if tags else [],
                                       found["ranks"], found["deferred"]):
            ways = [rank["planned"], rank["measured"]]
            self.assertEqual([float(cell) for cell in row[1:7]], [
                float("%.4g" % way[name]) for name in
                ("busy_ms", "bubble_ms", "peak_activation") for way in ways])
            self.assertEqual(row[7], str(deferred))
        for way in "planned", "measured":
            worst = max(rank[way]["bubble_ms"] for rank in found["ranks"])
            self.assertEqual(worst, found[way]["bubble_ms"])

    def check_drawn_plan(self, tags, found):
        rows = {row[0]: row for row in tags.cells["schedule"]}
        for kind in ["planned", "measured"]:
            self.assertEqual(float(rows[kind][1]),
                             float("%.4g" % found[kind]["makespan_ms"]))
        self.assertEqual(rows["planned"][6], "%.1f%%" % (
            100 * found["imbalance_ms"] / found["planned"]["makespan_ms"]))
        self.assertIn("Step %d, the median one" % found["step"], tags.text)
        self.assertIn("On paper, %s." % found["advice"], tags.text)
        # Each action is a box in both runs, and a row below them.
        actions = [(str(rank), one["action"])
                   for rank, own in enumerate(found["timeline"])
                   for one in own]
        self.assertEqual([tuple(row[:2]) for row in tags.cells["actions"][1:]],
                         actions)
        for action in {action for _, action in actions}:
            self.assertGreaterEqual(tags.text.count(action + ": "), 2)

    def check_advice_by_hand(self, tags, found):
        """The command on the page gives the page's own answer."""
        words = found["command"].split()
        done = subprocess.run([os.path.join(BIN, words[0]), *words[1:],
                               "--json", "-"], capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        given = json.loads(done.stdout)
        rows = found["candidates"]
        self.assertEqual(len(given["candidates"]), len(rows))
        times = {(one["schedule"], one["chunks"], one["microbatches"],
                  one["overlap"]): one["makespan"]
                 for one in given["candidates"]}
        for row in rows:
            if row["makespan_ms"] is not None:
                key = (row["schedule"], row["chunks"], row["microbatches"],
                       row["overlap"])
                self.assertTrue(math.isclose(row["makespan_ms"], times[key],
                                             rel_tol=2e-3), key)
        if tags:
            self.assertEqual(tags.cells["advice"][1][0].partition(",")[0],
                             found["best"]["schedule"])
            self.assertIn(found["command"], tags.text)
        best = found["best"]
        self.assertTrue(math.isclose(best["makespan_ms"],
                                     given["candidates"][0]["makespan"],
                                     rel_tol=1e-4))
        self.assertEqual(rows[0], best)
        self.assertEqual(found["warning"] is None, given["warning"] is None)
        if found["warning"] and tags:
            self.assertIn(found["warning"], tags.text)
        self.assertEqual(found["warning"] is None,
                         best["idle_ratio"] <= 0.15)

    def test_pipeline_is_planned_above_measured(self):
        for name in ["1f1b", "zbv"]:
            tags, data, lines, trace = self.report(
                2, "--set", "parallel.pipeline_model_parallel_size=2", "--set",
                "parallel.schedule=" + name, "--set", "model.layers=4")
            self.check_steps(data, lines)
            self.check_ranks(tags, data, lines, 2)
            self.check_trace(trace, lines, 2)
            found = data["schedule"]
            for kind in ["planned", "measured"]:
                self.assertGreater(found[kind]["makespan_ms"], 0)
                self.assertGreater(found[kind]["bubble_ms"], 0)
            # What memory the list takes is no matter of chance.
            self.assertEqual(found["planned"]["peak_activation"],
                             found["measured"]["peak_activation"])
            # The step shown is the median one, and its pipeline lies in it.
            self.assertEqual(found["step"], data["median_step"]["step"])
            self.assertLess(found["measured"]["makespan_ms"],
                            lines[found["step"] - 1]["step_ms_max"])
            self.assertLessEqual(found["imbalance_ms"],
                                 found["planned"]["bubble_ms"] + 1e-9)
            self.assertIsNone(data["auto"])
            self.assertGreater(found["F_ms"], 0)
            self.assertEqual(len(found["ranks"]), 2)
            self.assertGreater(len(found["candidates"]), 8)
            if tags:
                self.check_drawn_plan(tags, found)
            self.check_plan_ranks(tags, found)
            self.check_names(trace, name)
            self.check_advice_by_hand(tags, found)
            self.assertEqual(sum(found["deferred"]) > 0, name == "zbv")

    def test_experts_that_moved_have_a_row_for_each_placement(self):
        settings = ["model.experts=4", "model.ffn_size=64",
                    "parallel.expert_model_parallel_size=2",
                    "moe.place_every=5", "moe.redundant=2"]
        tags, data, lines, _ = self.report(
            2, *(word for one in settings for word in ("--set", one)))
        moves = data["summary"]["expert_moves"]
        self.assertEqual([one["step"] for one in moves], [5, 10])
        for one, after in zip(moves, [5, 2]):
            steps = lines[one["step"] - 5:one["step"]]
            self.assertEqual(one["before"]["steps"], 5)
            self.assertEqual(one["after"]["steps"], after)
            self.assertAlmostEqual(
                one["before"]["step_ms"],
                sum(line["step_ms"] for line in steps) / 5)
            self.assertEqual(steps[-1]["expert_moved_bytes"], one["bytes"])
            self.assertLessEqual(one["ratio_planned"], one["before"]["ratio"])
            self.assertGreaterEqual(
                max(line["expert_rank_ratio"] for line in steps),
                one["before"]["ratio"])
        self.assertEqual(moves[0]["after"], moves[1]["before"])
        if tags:
            rows = tags.cells["experts"]
            self.assertEqual([row[0] for row in rows[1:]], ["5", "10"])
            self.assertEqual([row[1] for row in rows[1:]],
                             [str(one["experts"]) for one in moves])

    def test_experts_that_fill_ranks_with_their_replicas(self):
        """What each expert's place would be once is not said of them."""
        settings = ["model.experts=3", "model.ffn_size=64",
                    "parallel.expert_model_parallel_size=2",
                    "moe.place_every=5", "moe.redundant=1"]
        _, data, _, _ = self.report(
            2, *(word for one in settings for word in ("--set", one)))
        self.assertEqual(
            [one["step"] for one in data["summary"]["expert_moves"]], [5, 10])
        self.assertIsNone(data["summary"]["expert_placement"])

    def test_encoder_is_drawn_apart_and_nothing_is_advised(self):
        """8 micro-batches, one stage of each branch on each of two ranks."""
        tags, data, lines, trace = self.report(
            2, "--set", "parallel.pipeline_model_parallel_size=2", "--set",
            "parallel.schedule=interleaved", "--set", "model.encoder_layers=2",
            "--set", "model.encoder_seq_length=6", "--set",
            "data.encoder_path=text")
        self.check_steps(data, lines)
        self.check_ranks(tags, data, lines, 2)
        self.check_trace(trace, lines, 2)
        found = data["schedule"]
        self.assertEqual((found["stages"], found["encoder_stages"]), (4, 2))
        for name in ["best", "candidates", "advice", "warning", "command"]:
            self.assertIsNone(found[name])
        self.check_plan_ranks(tags, found)
        if tags:
            self.assertNotIn("Which schedule", tags.text)
            for kind in ["kF", "kB", "kFe", "kBe"]:
                # Planned and measured, maybe larger again; one in the key.
                self.assertGreater(tags.boxes.count(kind), 2 * 2 * 8)

    def test_what_cannot_be_written_is_refused_before_training(self):
        os.mkdir(self.path("dir.html"))
        os.mkdir(self.path("b.trace.json"))
        for path, message in [("none/r.html", "cannot be written"),
                           ("dir.html", "no regular file"),
                           ("b.html", "b.trace.json")]:
            for nranks in [1, 2]:
                done = self.train(nranks, "--report", self.path(path),
                                  "--metrics", self.path("m.jsonl"), status=1)
                self.assertIn(message, done.stderr)
                self.assertFalse(os.path.exists(self.path("m.jsonl")))
        done = self.train(1, "--report", "-", status=1)
        self.assertIn("allowed is a file", done.stderr)

    def test_run_that_fails_leaves_the_older_report(self):
        self.write("r.html", "old")
        self.write("r.trace.json", "older")
        self.train(1, "--report", self.path("r.html"), "--set",
                   "train.lr=1e30", "--set", "train.clip=0", "--set",
                   "train.warmup_steps=0", status=1)
        self.assertEqual(self.read("r.html"), "old")
        self.assertEqual(self.read("r.trace.json"), "older")

    def test_resumed_run_reports_its_own_steps(self):
        self.train(1, "--set", "checkpoint.every=6", "--set", "train.steps=6")
        _, data, lines, _ = self.report(1, "--resume", self.path("ckpt"))
        self.assertEqual(data["history"]["first_step"],
                         list(range(7, STEPS + 1)))
        self.assertEqual([line["step"] for line in lines][-6:],
                         list(range(7, STEPS + 1)))
        self.assertIsNotNone(data["first_val_loss"])


unittest.main()
