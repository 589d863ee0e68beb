#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_trials.py BIN_DIR EXAMPLES [Trials|Emulated]

Goal: schedules that are compared are planned with 1f1b's costs, run, and shown
side by side; schedule auto runs one that was quicker by more than chance, else
1f1b, which then trains as if it had been named, and goes on with the one that
saved when it is resumed; it and the page have the same advice;
where ranks have no core of their own, compute is waits, and the steps are as
long as planned.

Method: weft-train with a small model; what it says on stderr and the figures in
the report's data are read back and compared with each other and with runs of
the schedule by its name. How long emulated steps may be beside the plan: by a
third here, a tenth with WEFT_TEST_LONG and longer waits, the best of three
runs, with nothing beside them; nothing is said of it under a sanitizer, which
makes messages slow.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from page_reader import read_page
from products import WITHOUT_ONEDNN

EXAMPLES = sys.argv.pop(2)
BIN = sys.argv.pop(1)
RUN = os.path.join(BIN, "weft-run")
TRAIN = os.path.join(BIN, "weft-train")
LONG = "WEFT_TEST_LONG" in os.environ
FEW = "WEFT_TEST_FEW" in os.environ  # a sanitizer watches
SANITIZED = os.environ.get("WEFT_SANITIZED") == "1"
DEADLINE_S = 80
QUICK = ["--set", "data.validation_fraction=0.005",
         "--set", "generate.bytes=20",
         "--set", "train.micro_batch_size=1"]
SMALL = [*QUICK, "--set", "train.steps=3", "--set", "model.seq_length=8",
         "--set", "model.hidden_size=16", "--set", "model.ffn_size=16",
         "--set", "train.global_batch_size=8"]


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weft-trials-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("WEFT_")}
        self.environment.update(WITHOUT_ONEDNN)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_train(self, nranks, *settings, example="pipeline.yaml",
                  small=SMALL, resume=()):
        command = [RUN, "-n", str(nranks), TRAIN,
                   os.path.join(EXAMPLES, example), *small,
                   "--metrics", self.path("steps"),
                   "--report", self.path("page.html"), *resume]
        for setting in settings:
            command += ["--set", setting]
        return subprocess.run(command, text=True, env=self.environment,
                              capture_output=True, timeout=DEADLINE_S)

    def train(self, *args, **more):
        got = self.run_train(*args, **more)
        self.assertEqual(got.returncode, 0, got.stderr)
        with open(self.path("steps")) as file:
            losses = [json.loads(line)["loss"] for line in file]
        data, page = read_page(self.path("page.html"))
        return got.stderr, losses, page, data

    def check_page(self, page, trials, names):
        self.assertEqual([trial["schedule"] for trial in trials], names)
        for number, trial in enumerate(trials):
            if page:
                self.check_row(page, trial, number)
            self.assertGreaterEqual(trial["step_ms"],
                                    0.5 * trial["measured"]["makespan_ms"])
            if trial["schedule"] == "zbv":
                self.assertGreater(sum(trial["deferred"]), 0)
            elif trial["schedule"] in ("gpipe", "1f1b", "interleaved"):
                self.assertEqual(sum(trial["deferred"]), 0)
            self.assertAlmostEqual(trial["planned"]["peak_activation"],
                                   trial["measured"]["peak_activation"],
                                   delta=1e-9)

    def check_row(self, page, trial, number):
        cells = page.cells["trials"][number + 1]
        self.assertIn("Schedules side by side", page.text)
        self.assertTrue(cells[0].startswith(trial["schedule"]), cells)
        self.assertEqual(int(cells[1]), trial["chunks"])
        for cell, way in (cells[2], "planned"), (cells[3], "measured"):
            self.assertAlmostEqual(float(cell), trial[way]["makespan_ms"],
                                   delta=1e-3 * float(cell))
        self.assertEqual("emulated" in cells[-1].split("; ")[0],
                         trial["emulated"])
        self.assertEqual(re.match(r"\d+", cells[10]).group(),
                         str(sum(trial["deferred"])))
        self.assertEqual(len(page.cells["trial%d" % number]) - 1, sum(
            len(rank) for rank in trial["timeline"]))

    def check_choice(self, said, page, data, chosen):
        """1f1b, unless what was chosen was quicker by more than chance."""
        trials = data["trials"]
        for trial in trials:
            self.assertLessEqual(trial["step_ms_min"], trial["step_ms"])
            self.assertLessEqual(trial["step_ms"], trial["step_ms_max"])
            self.assertIn("(%.4g to %.4g)" % (trial["step_ms_min"],
                                              trial["step_ms_max"]), said)
        quicker = [trial for trial in trials if not trial["emulated"] and
                   trial["step_ms_max"] < trials[0]["step_ms_min"]]
        self.assertIn(chosen, quicker or trials[:1])
        best = min(quicker or trials[:1], key=lambda one: one["step_ms"])
        self.assertLessEqual(chosen["step_ms_min"], best["step_ms_max"])
        self.check_reason(data, chosen)
        reason = data["auto"]["reason"]
        self.assertIn("schedule auto chooses %s\n" % reason, said)
        if page:
            self.assertIn("and chose %s." % reason, page.text)
        self.check_agreement(said, page, data)

    def check_reason(self, data, chosen):
        """What 1f1b was not left for: each that really ran, and no other."""
        made = data["auto"]
        self.assertEqual((made["schedule"], made["chunks"]),
                         (chosen["schedule"], chosen["chunks"]))
        others = [trial for trial in data["trials"][1:]
                  if not trial["emulated"]]
        if chosen["schedule"] == "1f1b" and others:
            self.assertTrue(made["reason"].endswith(" chance: " + ", ".join(
                self.describe(trial) for trial in others)), made["reason"])

    @staticmethod
    def describe(trial):
        chunks = (" with V = %d" % trial["chunks"]
                  if trial["schedule"] == "interleaved" else "")
        return "%s%s: %.4g ms a step (%.4g to %.4g)" % (
            trial["schedule"], chunks, trial["step_ms"], trial["step_ms_min"],
            trial["step_ms_max"])

    def check_agreement(self, said, page, data):
        """What auto asked is what the page says, and what can be asked."""
        found = data["schedule"]
        self.assertEqual(data["auto"]["advice"], found["advice"])
        self.assertIn("weft-train: on paper, %s\n" % found["advice"], said)
        if page:
            self.assertIn("On paper, %s." % found["advice"], page.text)
        words = found["command"].split()
        asked = subprocess.run([os.path.join(BIN, words[0]), *words[1:],
                                "--json", "-"], capture_output=True, text=True,
                               timeout=DEADLINE_S)
        self.assertEqual(asked.returncode, 0, asked.stderr)
        given = json.loads(asked.stdout)
        self.assertEqual(given["best"], found["best"]["schedule"])
        # The three best at the m that the job has, if they are better by 1%.
        own = [one for one in given["candidates"] if one["possible"]
               and one["microbatches"] == given["microbatches"]
               and not one["overlap"]]
        usual = [one["makespan"] for one in own if one["schedule"] == "1f1b"]
        better = [one["schedule"] for one in own
                  if one["makespan"] < 0.989 * usual[0]]
        tried = [trial["schedule"] for trial in data["trials"]
                 if not trial["emulated"]]
        for name in better[:3]:
            self.assertIn(name, tried)


class Trials(Runs):
    def test_auto_runs_what_took_least_and_trains_as_named(self):
        said, losses, page, data = self.train(
            2, "parallel.pipeline_model_parallel_size=2",
            "parallel.schedule=auto", "parallel.virtual_group_size=4")
        trials = data["trials"]
        self.assertIn(" --group 4 ", data["schedule"]["command"])
        self.check_page(page, trials, [t["schedule"] for t in trials])
        self.assertEqual(trials[0]["schedule"], "1f1b")
        self.assertLessEqual(len(trials), 4)
        chosen = [trial for trial in trials if trial["chosen"]]
        self.assertEqual(len(chosen), 1)
        self.check_choice(said, page, data, chosen[0])
        name = chosen[0]["schedule"]
        self.assertIn("schedule auto chooses %s" % name, said)
        self.assertIn("weft-train: %s on 2 ranks" % name, said)
        self.assertEqual(said.count("weft-train: tried"), len(trials))
        settings = ["parallel.schedule=" + name,
                    "parallel.pipeline_model_parallel_size=2"]
        if name == "interleaved":
            settings.append("parallel.virtual_pipeline_model_parallel_size=%d"
                            % chosen[0]["chunks"])
            settings.append("parallel.virtual_group_size=4")
        _, named, page, data = self.train(2, *settings)
        self.assertEqual(losses, named)
        self.assertEqual(data["trials"], [])
        self.assertIsNone(data["trial_costs"])

    def test_auto_takes_what_is_fixed_as_fixed(self):
        """V of the demo, which also compares; on 2 ranks and on 4."""
        for nranks in (2,) if FEW else (2, 4):
            said, _, page, data = self.train(
                nranks, "parallel.schedule=auto",
                "parallel.pipeline_model_parallel_size=%d" % nranks,
                "parallel.compare=[zbv]", example="pipeline-demo.yaml")
            trials = data["trials"]
            self.check_page(page, trials, [t["schedule"] for t in trials])
            chosen = [trial for trial in trials if trial["chosen"]]
            self.check_choice(said, page, data, chosen[0])
            self.assertIn("zbv", [trial["schedule"] for trial in trials])
            self.assertIn(" --chunks 2 ", data["schedule"]["command"])
            self.assertNotIn("with V = 4", said)
            self.assertEqual({trial["chunks"] for trial in trials
                              if trial["schedule"] == "interleaved"} - {2},
                             set())
            self.assertNotEqual(data["schedule"]["step"], 0)

    def test_auto_refuses_what_is_fixed_and_impossible(self):
        for setting, said in [
                ("virtual_pipeline_model_parallel_size=5",
                 "leaves schedule auto no interleaved to choose"),
                ("virtual_group_size=3",
                 "leaves schedule auto no interleaved to choose")]:
            got = self.run_train(
                4, "parallel.schedule=auto", "parallel." + setting)
            self.assertEqual(got.returncode, 1)
            self.assertIn("parallel." + setting.split("=")[0], got.stderr)
            self.assertIn(said, got.stderr)
            self.assertIn("allowed is", got.stderr)

    def test_auto_resumed_goes_on_with_the_schedule_that_saved(self):
        piped = ["parallel.pipeline_model_parallel_size=2", "train.steps=4",
                 "checkpoint.every=2", "checkpoint.dir=" + self.path("saved")]
        resume = ["--resume", self.path("saved")]
        _, whole, _, _ = self.train(
            2, *piped, "parallel.schedule=interleaved",
            "parallel.virtual_pipeline_model_parallel_size=2")
        with open(self.path("saved/step_00000004/rank_00000.safetensors"), "w"):
            pass
        got = self.run_train(2, *piped, "parallel.schedule=auto",
                             resume=resume)
        self.assertEqual(got.returncode, 1)
        self.assertIn("step 2 there is complete: remove the folder "
                      "step_00000004 to go on from it", got.stderr)
        shutil.rmtree(self.path("saved/step_00000004"))
        said, losses, _, _ = self.train(
            2, *piped, "parallel.schedule=auto", resume=resume)
        self.assertIn("schedule auto goes on with interleaved with V = 2, "
                      "which the checkpoint after step 2 in ", said)
        self.assertIn("weft-train: interleaved on 2 ranks, 4 stages", said)
        self.assertNotIn("weft-train: tried", said)
        self.assertEqual(losses, whole)
        got = self.run_train(
            2, *piped, "parallel.schedule=auto",
            "parallel.virtual_pipeline_model_parallel_size=4", resume=resume)
        self.assertEqual(got.returncode, 1)
        self.assertIn("made with interleaved with V = 2; parallel.virtual_"
                      "pipeline_model_parallel_size is 4, allowed is 2",
                      got.stderr)
        shutil.rmtree(self.path("saved"))
        self.train(2, "parallel.pipeline_model_parallel_size=1", *piped[1:])
        shutil.rmtree(self.path("saved/step_00000004"))
        # What has no schedule leaves auto its choice.
        said, losses, _, _ = self.train(
            2, *piped, "parallel.schedule=auto", resume=resume)
        self.assertIn("weft-train: tried", said)
        self.assertEqual(losses, whole)

    def test_auto_resumed_takes_fixed_chunks_for_what_it_compares(self):
        """V and N are interleaved's, which is compared, not 1f1b's."""
        piped = ["parallel.pipeline_model_parallel_size=2", "train.steps=2",
                 "checkpoint.every=1", "checkpoint.dir=" + self.path("saved")]
        self.train(2, *piped, "train.steps=1")
        fixed = ["parallel.schedule=auto", "parallel.virtual_group_size=4",
                 "parallel.virtual_pipeline_model_parallel_size=4"]
        resume = ["--resume", self.path("saved")]
        said, _, _, data = self.train(
            2, *piped, *fixed, "parallel.compare=[interleaved]", resume=resume)
        self.assertIn("auto goes on with 1f1b", said)
        self.assertEqual([(trial["schedule"], trial["chunks"])
                          for trial in data["trials"]],
                         [("1f1b", 1), ("interleaved", 4)])
        self.assertIsNone(data["auto"])
        shutil.rmtree(self.path("saved"))
        self.train(2, *piped, "train.steps=1")
        said, _, _, data = self.train(2, *piped, *fixed, resume=resume)
        self.assertIn("auto goes on with 1f1b", said)
        self.assertEqual(data["trials"], [])

    def test_compared_are_those_that_were_asked_for(self):
        said, _, page, data = self.train(
            2, "parallel.pipeline_model_parallel_size=2",
            "parallel.compare=[zbv, 1f1b, interleaved]")
        self.check_page(page, data["trials"], ["1f1b", "zbv", "interleaved"])
        self.assertNotIn("chooses", said)
        self.assertIn("weft-train: 1f1b on 2 ranks", said)

    def test_nothing_is_tried_for_a_report_that_cannot_be_written(self):
        got = subprocess.run(
            [RUN, "-n", "2", TRAIN, os.path.join(EXAMPLES, "pipeline.yaml"),
             *SMALL, "--set", "parallel.pipeline_model_parallel_size=2",
             "--set", "parallel.compare=all", "--report",
             self.path("none/page.html")], text=True, env=self.environment,
            capture_output=True, timeout=DEADLINE_S)
        self.assertEqual(got.returncode, 1)
        self.assertIn("page.html: cannot be written", got.stderr)
        self.assertNotIn("tried", got.stderr)

    def test_all_lists_which_do_not_suit(self):
        said, _, _, data = self.train(
            2, "parallel.pipeline_model_parallel_size=2",
            "parallel.compare=all", "model.layers=2")
        names = [trial["schedule"] for trial in data["trials"]]
        for name in "interleaved", "zbv", "dualpipev":
            self.assertIn("weft-train: not compared: %s: " % name, said)
            self.assertNotIn(name, names)
        for name in "gpipe", "zb_h1", "zb_h2", "dualpipe":
            self.assertIn(name, names)


class Emulated(Runs):
    """Beside the clock, and so alone."""
    def emulate(self):
        """More ranks than cores: planned with the waits' lengths."""
        names = ["zbv", "dualpipev"]
        if LONG:
            names += ["gpipe", "interleaved", "zb_h1", "zb_h2", "dualpipe"]
        nranks = 2 * (os.cpu_count() or 1)
        _, _, page, data = self.train(
            nranks, "parallel.pipeline_model_parallel_size=%d" % nranks,
            "model.layers=%d" % (2 * nranks),
            "parallel.compare=[%s]" % ", ".join(names),
            "train.global_batch_size=%d" % (4 * nranks if LONG else 2 * nranks),
            "train.steps=1",
            "parallel.virtual_pipeline_model_parallel_size=1",
            example="pipeline-demo.yaml",
            small=SMALL if SANITIZED else [] if LONG else QUICK)
        trials = data["trials"]
        self.check_page(page, trials, ["1f1b", "1f1b", *names])
        self.assertTrue(data["trial_costs"]["emulated"])
        self.assertTrue(all(trial["emulated"] for trial in trials[1:]))
        self.assertFalse(trials[0]["emulated"])
        return {trial["schedule"]: trial["measured"]["makespan_ms"]
                / trial["planned"]["makespan_ms"] - 1 for trial in trials[1:]}

    @unittest.skipIf((os.cpu_count() or 1) > 4, "ranks would be too many")
    def test_emulated_steps_take_as_long_as_planned(self):
        best = None
        for _ in range(8):  # a plan that is wrong is so each time
            errors = self.emulate()
            print(", ".join("%s %+.1f%%" % (name, 100 * error)
                            for name, error in errors.items()))
            worst = max(abs(error) for error in errors.values())
            best = worst if best is None else min(best, worst)
            if SANITIZED or best < (0.1 if LONG else 1 / 3):
                return
        self.fail("planned and emulated differ by %.0f%%" % (100 * best))


if __name__ == "__main__":
    unittest.main()
