#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_pipe_processes.py BIN_DIR EXAMPLE.yaml [SPEC]

Goal: a pipeline of processes trains as one process does, prints a breakdown of
its steps that adds up, and ends at once, with the rank's name, when one of its
ranks is killed; when all of it is killed, it goes on from inside a step; what
cannot be is refused once.

Method: the example under weft-run, cut short, beside a single process of the
same settings: losses of the metrics are compared bit by bit. A rank of a long
run is killed when the first steps are printed, and all of one that saves inside
its steps as soon as it has done so in its third. With SPEC ("2x2,1gbit") only
this last one, over emulated hosts: that needs root and iproute2.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from products import WITHOUT_ONEDNN

SPEC = sys.argv.pop(3) if len(sys.argv) > 3 else None
EXAMPLE = sys.argv.pop(2)
BIN = sys.argv.pop(1)
RUN = os.path.join(BIN, "weft-run")
TRAIN = os.path.join(BIN, "weft-train")
DEADLINE_S = 90
SHORT = ["--set", "train.steps=3", "--set", "model.seq_length=36",
         "--set", "data.validation_fraction=0.005",
         "--set", "generate.bytes=20",
         "--set", "model.hidden_size=32", "--set", "model.ffn_size=48"]


class PipeProcesses(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weft-pipe-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("WEFT_")}
        self.environment.update(WITHOUT_ONEDNN)

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, nranks, *more):
        launcher = [RUN, "-n", str(nranks)] if nranks > 1 else []
        if launcher and SPEC:
            launcher += ["--net-emulate", SPEC]
        return [*launcher, TRAIN, EXAMPLE, *SHORT, "--metrics",
                self.path("steps"), *more]

    def train(self, nranks, *more):
        got = subprocess.run(self.command(nranks, *more), text=True,
                             env=self.environment, capture_output=True,
                             timeout=DEADLINE_S)
        lines = []
        if got.returncode == 0:
            with open(self.path("steps")) as file:
                lines = [json.loads(line) for line in file]
        return got, lines

    def test_four_processes_have_the_losses_of_one(self):
        got, alone = self.train(
            1, "--set", "parallel.pipeline_model_parallel_size=1")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(len(alone), 3)
        few = "WEFT_TEST_FEW" in os.environ  # a sanitizer watches
        for schedule in ("dualpipev",) if few else ("1f1b", "dualpipev"):
            got, piped = self.train(4, "--set",
                                    "parallel.schedule=" + schedule)
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertIn("%s on 4 ranks" % schedule, got.stderr)
            for name in "loss", "grad_norm", "val_loss":
                self.assertEqual([line[name] for line in alone],
                                 [line[name] for line in piped], name)
            for line in piped:
                parts = (line["compute_ms"] + sum(line["exposed_ms"].values())
                         + line["bubble_ms"] + line["skew_ms"]
                         + line["idle_ms"])
                self.assertAlmostEqual(parts, line["step_ms"], delta=1e-3)
                self.assertEqual(line["dropped"], 0)
            self.assertGreater(sum(line["bubble_ms"] for line in piped), 0)

    def children(self, parent):
        with open("/proc/%d/task/%d/children" % (parent, parent)) as file:
            return [int(pid) for pid in file.read().split()]

    def test_killed_rank_ends_all_others_and_is_named(self):
        run = subprocess.Popen(
            self.command(4, "--set", "train.steps=1000000"), text=True,
            env=self.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE)
        self.addCleanup(run.stderr.close)
        try:
            limit = time.monotonic() + DEADLINE_S
            while time.monotonic() < limit:
                if (os.path.exists(self.path("steps"))
                        and os.path.getsize(self.path("steps"))):
                    break
                time.sleep(0.01)
            ranks = self.children(run.pid)
            self.assertEqual(len(ranks), 4)
            os.kill(ranks[2], signal.SIGKILL)
            _, errors = run.communicate(timeout=DEADLINE_S)
        finally:
            run.kill()
            run.wait()
        self.assertEqual(run.returncode, 128 + signal.SIGKILL, errors)
        self.assertIn("rank 2: SIGKILL", errors)

    def kill_all_inside(self, step, *more):
        """A run of 4, killed with a snapshot inside a step after step."""
        run = subprocess.Popen(
            self.command(4, *more), env=self.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        inside = self.path("ckpt/inside")
        saved = []
        try:
            limit = time.monotonic() + DEADLINE_S
            while time.monotonic() < limit and not saved:
                self.assertIsNone(run.poll())
                names = os.listdir(inside) if os.path.isdir(inside) else []
                saved = [name for name in names
                         if name >= "step_%08d" % step]
                time.sleep(0.001)
            ranks = self.children(run.pid)
            run.kill()
            for rank in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGKILL)
        finally:
            run.kill()
            run.wait()

    def test_killed_inside_a_step_goes_on_with_the_same_losses(self):
        settings = ["--set", "train.steps=12", "--set",
                    "train.validate_every=4"]
        saving = [*settings, "--set", "checkpoint.dir=" + self.path("ckpt"),
                  "--set", "checkpoint.every=1000",
                  "--set", "checkpoint.inside=2",
                  "--set", "parallel.schedule=zb_h1"]
        got, alone = self.train(
            1, *settings, "--set", "parallel.pipeline_model_parallel_size=1")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.kill_all_inside(2, *saving)
        got, resumed = self.train(4, *saving, "--resume", self.path("ckpt"))
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("goes on inside step ", got.stderr)
        wanted = {line["step"]: line for line in alone}
        self.assertEqual(resumed[-1]["step"], 12)
        for line in resumed:
            for name in "loss", "grad_norm", "val_loss":
                self.assertEqual(line[name], wanted[line["step"]][name], name)

    def test_measured_steps_leave_no_snapshot(self):
        got, _ = self.train(
            2, "--measure", "--set", "train.steps=4",
            "--set", "parallel.pipeline_model_parallel_size=1",
            "--set", "checkpoint.dir=" + self.path("ckpt"), "--set",
            "checkpoint.every=2", "--set", "checkpoint.inside=2")
        self.assertEqual(got.returncode, 0, got.stderr)
        saved = {name for _, folders, _ in os.walk(self.path("ckpt"))
                 for name in folders if name.startswith("step_")}
        self.assertEqual(max(saved), "step_00000004")
        got, lines = self.train(
            2, "--resume", self.path("ckpt"), "--set", "train.steps=5",
            "--set", "parallel.pipeline_model_parallel_size=1")
        self.assertIn("goes on after step 4", got.stderr)
        self.assertEqual(lines[-1]["step"], 5)

    def check_verdict(self, measured, text):
        """The summary says H once it is known, not O; nothing is hidden that
        slows compute by more than a tenth."""
        shown = [line for line in text.splitlines()
                 if re.match(r"[HO] {10}", line)]
        self.assertEqual(len(shown), 1, text)
        known = measured["hiding_ratio"] is not None
        self.assertEqual(shown[0][0], "H" if known else "O")
        if known:
            self.assertIn(measured["verdict"], shown[0])
        if measured["s_C"] is not None and measured["s_C"] > 1.1:
            for own in [measured, *measured["classes"].values()]:
                self.assertNotIn("hidden", own["verdict"])

    def test_measured_terms_add_up_and_each_class_has_its_row(self):
        got, lines = self.train(
            4, "--measure", "--json", self.path("json"),
            "--set", "parallel.pipeline_model_parallel_size=2",
            "--set", "parallel.tensor_model_parallel_size=2",
            "--set", "model.seq_length=8", "--set", "train.steps=1",
            "--set", "train.global_batch_size=8")
        self.assertEqual(got.returncode, 0, got.stderr)
        with open(self.path("json")) as file:
            measured = json.load(file)["measured"]
        terms = measured["terms"]
        self.assertAlmostEqual(
            sum(ms for name, ms in terms.items() if name != "step_ms"),
            terms["step_ms"], delta=1e-3)
        # What rank 0 must wait for in any case, if nothing else delays it.
        self.assertGreater(lines[-1]["bubble_planned_ms"], 0)
        self.assertLess(lines[-1]["bubble_planned_ms"],
                        lines[-1]["step_ms_max"])
        self.check_verdict(measured, got.stdout)
        self.assertEqual(sorted(measured["classes"]), ["pp", "tp"])
        for name, own in measured["classes"].items():
            self.assertGreater(own["transfer_ms"], 0, name)
            self.assertAlmostEqual(
                own["hidden_ms"], own["overlap_ratio"] * own["transfer_ms"],
                delta=1e-6)
            self.assertLessEqual(own["hidden_ms"], own["transfer_ms"])
            self.assertLessEqual(own["exposed_ms"],
                                 own["transfer_ms"] - own["hidden_ms"] + 1e-6)
            ovl, off, serial = (measured["overlapped_ms"]["median"],
                                own["without_ms"]["median"],
                                own["serial_ms"]["median"])
            if own["hiding_ratio"] is not None:
                self.assertAlmostEqual(own["hiding_ratio"],
                                       1 - (ovl - off) / (serial - off),
                                       delta=1e-6)
            self.assertIn("  %s " % name, got.stdout)
            self.assertIn(own["verdict"], got.stdout)
        for own in [measured, *measured["classes"].values()]:
            self.assertIsNone(own["bare_cpu_ms"])
            self.assertEqual(own["bare_why"], "there is no rest")
            self.assertIsNone(own["hiding_ceiling"])
            self.assertFalse(own["exceeds"])
            self.assertIsNone(own["bare_hiding_ratio"])
            self.assertIn("share memory", own["bare_hiding_why"])
        self.assertIn("H_bare:  tp n/a: its ranks share memory", got.stdout)
        self.assertIsNone(measured["rest"]["rest_ms"])
        self.assertIn("pipeline", measured["rest"]["why"])
        self.assertIn("rest n/a: stages of a pipeline", got.stdout)

    def test_measure_says_what_cannot_be_hidden(self):
        got, _ = self.train(
            4, "--measure", "--json", self.path("json"),
            "--set", "parallel.pipeline_model_parallel_size=1",
            "--set", "parallel.tensor_model_parallel_size=2",
            "--set", "parallel.sequence_parallel=true",
            "--set", "model.seq_length=8", "--set", "train.steps=1",
            "--set", "train.global_batch_size=8")
        self.assertEqual(got.returncode, 0, got.stderr)
        with open(self.path("json")) as file:
            measured = json.load(file)["measured"]
        rest = measured["rest"]
        self.assertIsNone(rest["why"])
        self.assertGreaterEqual(rest["rest_ms"], rest["any_order_ms"] - 1e-3)
        self.assertGreaterEqual(rest["any_order_ms"], 0)
        self.assertLessEqual(rest["rest_ms"], rest["alone_ms"] + 1e-3)
        self.assertEqual(sorted(measured["classes"]), ["dp", "tp"])
        labels = {(node["class"], node["label"]) for node in rest["nodes"]}
        self.assertTrue(labels)
        self.assertLessEqual({kind for kind, _ in labels}, {"dp", "tp"})
        for own in measured["classes"].values():
            self.assertIn("share memory", own["bare_why"])
            self.assertIsNone(own["bare_cpu_ms"])
            self.assertFalse(own["exceeds"])
            if own["hiding_ratio"] is not None:
                self.assertAlmostEqual(
                    own["hiding_ceiling"],
                    1 - own["rest_ms"] / own["serial_more_ms"], delta=1e-6)
            self.assertLessEqual(own["rest_ms"], rest["rest_ms"] + 1e-3)
            self.assertAlmostEqual(
                own["not_hidden_ms"], measured["overlapped_ms"]["median"] -
                own["without_ms"]["median"], delta=1e-6)
        self.assertIsNone(measured["bare_cpu_ms"])
        self.assertIn("share memory", measured["bare_why"])
        self.assertFalse(measured["exceeds"])
        self.assertIn("in any order", got.stdout)

    def test_measure_of_one_rank_has_nothing_to_hide(self):
        got, _ = self.train(
            1, "--measure", "--json", self.path("json"),
            "--set", "parallel.pipeline_model_parallel_size=1",
            "--set", "model.seq_length=8", "--set", "train.steps=1",
            "--set", "train.global_batch_size=8")
        self.assertEqual(got.returncode, 0, got.stderr)
        with open(self.path("json")) as file:
            measured = json.load(file)["measured"]
        self.assertEqual(measured["classes"], {})
        self.assertEqual(measured["bare_why"], "nothing is sent")
        self.assertEqual(measured["bare_hiding_why"], "nothing is sent")
        for name in ("hiding_ratio", "hiding_ceiling", "bare_cpu_ms",
                     "bare_hiding_ratio", "not_hidden_ratio"):
            self.assertIsNone(measured[name], name)
        self.assertFalse(measured["exceeds"])

    def test_impossible_layouts_are_refused_once(self):
        for setting, message in (
                ("parallel.pipeline_model_parallel_size=3",
                 "3 does not divide 4 ranks; nearest that work: 2"),
                ("model.layers=3", "3 is too few for 4 stages")):
            got, _ = self.train(4, "--set", setting)
            self.assertNotEqual(got.returncode, 0)
            self.assertEqual(got.stderr.count(message), 1, got.stderr)


if __name__ == "__main__":
    if SPEC and (os.geteuid() != 0 or not shutil.which("ip")):
        print("skipped: emulated hosts need root and iproute2")
        sys.exit(77)
    unittest.main(defaultTest="PipeProcesses.test_killed_inside_a_step_goes_on"
                  "_with_the_same_losses" if SPEC else None)
