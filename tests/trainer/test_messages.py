#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_messages.py BIN_DIR

Goal: whatever makes training impossible is reported once, by the rank that found
it, with its place and what is allowed; the others and weft-run name that rank,
and no rank trains first. What is printed of a step adds up.

Method: weft-train alone and under weft-run, on a tiny model, with one mistake
each; stderr, exit status and JSON are compared with what is due. Failures that
several ranks race to report are repeated, less often with WEFT_TEST_FEW.
"""
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
import unittest

from products import WITHOUT_ONEDNN

BIN = sys.argv.pop(1)
RUN = os.path.join(BIN, "weft-run")
TRAIN = os.path.join(BIN, "weft-train")
DEADLINE_S = 60
REPEATS = 2 if "WEFT_TEST_FEW" in os.environ else 6  # a sanitizer watches
CONFIG = """\
model: {layers: 1, hidden_size: 16, heads: 2, kv_heads: 1, ffn_size: 24,
        seq_length: 16}
data: {paths: [text], validation_fraction: 0.1}
train: {steps: 6, micro_batch_size: 1, global_batch_size: 8, warmup_steps: 2}
checkpoint: {dir: ckpt, every: 2, keep: 9}
generate: {bytes: 20}
"""


class Messages(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weft-messages-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.config = self.path("job.yaml")
        os.mkdir(self.path("text"))
        self.write("text/a.txt", "warp and weft and a shuttle\n" * 100)
        self.write("job.yaml", CONFIG)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def run_program(self, command, **variables):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("WEFT_")}
        environment.update(WITHOUT_ONEDNN)
        environment.update(variables)
        return subprocess.run(command, env=environment, text=True,
                              capture_output=True, timeout=DEADLINE_S)

    def train(self, nranks, *more, **variables):
        launcher = [RUN, "-n", str(nranks)] if nranks > 1 else []
        return self.run_program([*launcher, TRAIN, self.config, *more],
                                **variables)

    def refuse(self, said, nranks, *more, **variables):
        """Fails, and says so once. Returns stderr."""
        got = self.train(nranks, *more, **variables)
        self.assertEqual(got.returncode, 1, got.stderr)
        self.assertEqual(got.stderr.count(said), 1,
                         "%r in\n%s" % (said, got.stderr))
        return got.stderr

    def check_culprit(self, text, nranks, rank):
        """The others and weft-run name the rank that failed."""
        blaming = re.findall(r"rank (\d+) has failed, see its message", text)
        self.assertEqual(blaming, [str(rank)] * (nranks - 1), text)
        self.assertNotIn("aborted", text)
        last = text.strip().split("\n")[-1]
        self.assertTrue(last.startswith("weft-run: rank %d: exit 1" % rank),
                        text)

    # ---- the rank that has the error says it -------------------------------

    def test_bad_folder_is_reported_by_its_rank_before_training(self):
        self.write("afile", "")
        for _ in range(REPEATS):
            text = self.refuse("afile: cannot be opened: Not a directory", 4,
                               "--set", "checkpoint.dir=afile", "--metrics",
                               self.path("metrics"))
            self.assertIn("--set checkpoint.dir: ", text)
            self.check_culprit(text, 4, 0)
            self.assertFalse(os.path.exists(self.path("metrics")))

    def test_folder_that_cannot_be_made_is_reported_with_its_place(self):
        self.write("job.yaml", CONFIG.replace("ckpt", "/proc/weft/x"))
        text = self.refuse("job.yaml:5:19: checkpoint.dir: /proc/weft", 1)
        self.assertNotIn("parameters in", text)

    def test_files_that_cannot_be_written_are_reported_by_their_rank(self):
        for option in "--json", "--metrics", "--report":
            for sets in [], ["--set", "model.layers=2", "--set",
                             "parallel.pipeline_model_parallel_size=2"]:
                text = self.refuse("%s %s: cannot be written: No such file" %
                                   (option, self.path("none/x.html")), 4,
                                   *sets, option, self.path("none/x.html"))
                self.check_culprit(text, 4, 0)
                self.assertNotIn("destroyed", text)
                self.assertNotIn("parameters in", text)

    def test_refused_run_leaves_older_lines(self):
        self.write("steps", "older")
        self.refuse("cannot be written", 1, "--metrics", self.path("steps"),
                    "--report", self.path("none/x.html"))
        with open(self.path("steps")) as file:
            self.assertEqual(file.read(), "older")

    def test_failed_save_is_reported_by_its_rank(self):
        os.mkdir(self.path("ckpt"))
        for _ in range(REPEATS):
            # In the way of step 4 alone: training has begun by then.
            self.write("ckpt/step_00000004", "")
            text = self.refuse("ckpt/step_00000004: what is no folder of its "
                               "own is in the way, and stays", 4)
            self.check_culprit(text, 4, 0)
            self.assertTrue(os.path.isdir(self.path("ckpt/step_00000002")))
            shutil.rmtree(self.path("ckpt/step_00000002"))

    def test_failed_saves_do_not_fill_the_disk(self):
        os.mkdir(self.path("ckpt"))
        self.write("ckpt/step_00000002", "")
        for _ in range(2):
            self.refuse("is in the way, and stays", 1)
            left = [name for name in os.listdir(self.path("ckpt"))
                    if name.endswith(".new")]
            self.assertEqual(len(left), 1, left)

    def test_step_that_cannot_be_read_is_not_to_be_removed(self):
        self.assertEqual(self.train(1).returncode, 0)
        done = self.path("ckpt/step_00000006/DONE")
        os.remove(done)
        os.symlink("DONE", done)
        text = self.refuse(done + ": cannot be read: ", 1, "--resume",
                           self.path("ckpt"))
        self.assertNotIn("remove", text)

    def test_damaged_file_is_reported_by_its_rank(self):
        self.assertEqual(self.train(4).returncode, 0)
        damaged = self.path("ckpt/step_00000006/rank_00002.safetensors")
        os.truncate(damaged, os.path.getsize(damaged) - 1)
        for _ in range(REPEATS):
            text = self.refuse("rank_00002.safetensors", 4, "--resume",
                               self.path("ckpt"))
            self.check_culprit(text, 4, 2)

    # ---- folders of checkpoints --------------------------------------------

    def steps(self, folder="ckpt"):
        """Complete steps in a folder, as (number, bytes of rank 0's file)."""
        found = {}
        for name in sorted(os.listdir(self.path(folder))):
            step = os.path.join(self.path(folder), name)
            if name.startswith("step_") and os.path.exists(step + "/DONE"):
                with open(step + "/rank_00000.safetensors", "rb") as file:
                    found[int(name[5:])] = file.read()
        return found

    def test_run_begun_anew_leaves_the_steps_of_another(self):
        self.assertEqual(self.train(2).returncode, 0)
        before = self.steps()
        self.assertEqual(sorted(before), [2, 4, 6])
        got = self.train(2, "--set", "train.steps=4")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("weft-train: saves in %s/run_00002: what other runs have "
                      "saved in %s stays\n"
                      % (self.path("ckpt"), self.path("ckpt")), got.stderr)
        self.assertEqual(self.steps(), before)
        self.assertEqual(sorted(self.steps("ckpt/run_00002")), [2, 4])
        # --resume goes on with the run that began last, where it is.
        got = self.train(2, "--resume", self.path("ckpt"))
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("goes on after step 4\n", got.stderr)
        self.assertEqual(self.steps(), before)
        self.assertEqual(sorted(self.steps("ckpt/run_00002")), [2, 4, 6])
        self.assertEqual(sorted(os.listdir(self.path("ckpt"))),
                         ["run_00002", "step_00000002", "step_00000004",
                          "step_00000006"])
        # One that was killed before its first step is not passed over.
        os.mkdir(self.path("ckpt/run_00003"))
        self.refuse("the run that began last there holds no complete "
                    "checkpoint: remove %s to go on from the one before"
                    % self.path("ckpt/run_00003"), 2, "--resume",
                    self.path("ckpt"))

    def read_owner(self):
        try:
            with open(self.path("ckpt/.owner")) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def test_two_runs_at_once_do_not_share_a_folder(self):
        os.mkfifo(self.path("lines"))
        first = subprocess.Popen([RUN, "-n", "2", TRAIN, self.config,
                                  "--metrics", self.path("lines")],
                                 stderr=subprocess.PIPE, text=True)
        try:
            # It has its folder, and waits until its lines are read.
            end = time.monotonic() + DEADLINE_S
            while not self.read_owner().endswith("\n"):
                self.assertIsNone(first.poll())
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            owner = self.read_owner().strip()
            self.assertRegex(owner, r"^run [0-9a-f]{16}, session [0-9a-f]{16}, "
                                    r"host \S+, process \d+$")
            said = self.refuse("%s: another run saves there (%s)"
                               % (self.path("ckpt"), owner), 2)
            self.check_culprit(said, 2, 0)
            self.assertIn("job.yaml:5:19: checkpoint.dir: ", said)
        finally:
            with open(self.path("lines")) as lines:
                lines.read()
            err = first.communicate(timeout=DEADLINE_S)[1]
        self.assertEqual(first.returncode, 0, err)
        self.assertEqual(sorted(os.listdir(self.path("ckpt"))),
                         ["step_00000002", "step_00000004", "step_00000006"])

    def test_damaged_done_is_reported_with_the_older_step(self):
        self.assertEqual(self.train(2).returncode, 0)
        for text in "", "step 6, ranks 2\n", "\0" * 80:
            self.write("ckpt/step_00000006/DONE", text)
            said = self.refuse("step_00000006/DONE: does not say that its step "
                               "is complete", 2, "--resume", self.path("ckpt"))
            self.assertIn("; step 4 there is complete: remove the folder "
                          "step_00000006 to go on from it", said)
        # An older one that is damaged, in whatever rank's file, is not named.
        damaged = self.path("ckpt/step_00000004/rank_00001.safetensors")
        os.truncate(damaged, os.path.getsize(damaged) - 1)
        said = self.refuse("step_00000006/DONE: does not say", 2, "--resume",
                           self.path("ckpt"))
        self.assertIn("; step 2 there is complete", said)
        os.remove(self.path("ckpt/step_00000002/rank_00001.safetensors"))
        said = self.refuse("step_00000006/DONE: does not say", 2, "--resume",
                           self.path("ckpt"))
        self.assertNotIn("there is complete", said)

    def test_step_mixed_of_two_runs_is_refused_naming_both(self):
        for elastic in "false", "true":
            self.assertEqual(self.train(2).returncode, 0)
            self.assertEqual(self.train(2, "--set",
                                        "checkpoint.dir=other").returncode, 0)
            name = "step_00000006/rank_00001.safetensors"
            os.replace(self.path("other/" + name), self.path("ckpt/" + name))
            for ranks in 2, 1:
                said = self.refuse(
                    name + ": was written by run", ranks,
                    "--resume", self.path("ckpt"), "--set",
                    "train.elastic=" + elastic)
                self.assertEqual(len(set(re.findall(r"run ([0-9a-f]{16})",
                                                    said))), 2, said)
                self.assertIn("; step 4 there is complete", said)
            shutil.rmtree(self.path("ckpt"))
            shutil.rmtree(self.path("other"))

    def test_folder_may_be_a_link(self):
        os.mkdir(self.path("disk"))
        os.symlink("disk", self.path("ckpt"))
        self.assertEqual(self.train(2, "--set", "train.steps=4").returncode, 0)
        got = self.train(2, "--resume", self.path("ckpt"))
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(sorted(self.steps("disk")), [2, 4, 6])

    # ---- configurations ----------------------------------------------------

    def test_many_micro_batches_are_no_mistake(self):
        got = self.train(1, "--set", "model.layers=24", "--set",
                         "train.global_batch_size=2048", "--set",
                         "train.steps=0", "--set", "data.seed=2")
        self.assertEqual(got.returncode, 0, got.stderr)

    def test_model_larger_than_memory_is_refused_before_it_is_taken(self):
        large = ["--set", "model.hidden_size=65536", "--set", "model.heads=64",
                 "--set", "model.ffn_size=262144", "--set", "model.layers=100"]
        for more in [], ["--set", "train.micro_batch_size=65536", "--set",
                         "train.global_batch_size=131072"], \
                ["--set", "parallel.pipeline_model_parallel_size=2"]:
            text = self.refuse("the model does not fit: 2 ranks of this host "
                               "need ", 2, *large, *more)
            self.assertRegex(text, r"need \d+\.\d GB \(one \d+\.\d: parameters "
                                   r"\d+\.\d, gradients \d+\.\d, moments ")
            self.assertRegex(text, r"GB.*, and (it|their memory cgroup).*\d+\.\d "
                                   r"GB.* with \d+\.\d GB of swap")
            self.check_culprit(text, 2, 0)
        self.refuse("the model does not fit: 1 rank of this host needs ", 1,
                    *large)

    def test_missing_text_is_reported_with_its_place(self):
        self.write("job.yaml", CONFIG.replace("[text]", "[nowhere.txt]"))
        self.refuse("job.yaml:3:15: data.paths: %s: No such file"
                    % self.path("nowhere.txt"), 1)
        self.refuse("--set data.paths: %s: No such file" % self.path("gone"),
                    1, "--set", "data.paths=[gone]")
        self.write("text/a.txt", "short")
        self.refuse("--set data.paths: the training part has 5 bytes, one "
                    "sequence needs 17", 1, "--set", "data.paths=[text]")

    def test_what_is_neither_file_nor_folder_has_a_line(self):
        os.mkfifo(self.path("text/pipe"))
        got = self.train(1)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("skipped %s: neither a file nor a folder"
                      % self.path("text/pipe"), got.stderr)

    def test_resume_from_nowhere_says_so(self):
        text = self.refuse("there is no such folder", 1, "--resume",
                           self.path("gone"))
        self.assertIn(self.path("gone"), text)
        os.mkdir(self.path("empty"))
        self.refuse("holds no complete checkpoint", 1, "--resume",
                    self.path("empty"))

    def generate_on_terminal(self, *more):
        """What a terminal gets, its \\r\\n made \\n again."""
        ours, theirs = pty.openpty()
        with open(ours, "rb", buffering=0) as terminal:
            with open(theirs, "wb", buffering=0) as stdout:
                done = subprocess.run([TRAIN, self.config, *more],
                                      stdout=stdout, stderr=subprocess.PIPE,
                                      timeout=DEADLINE_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            got = b""
            while True:
                try:
                    got += terminal.read(4096)
                except OSError:  # EIO: all of it has been read
                    return got.replace(b"\r\n", b"\n")

    def test_old_kernels_of_blas_are_told(self):
        with open("/proc/cpuinfo") as file:
            vectors = " avx2 " in file.read()
        told = "OpenBLAS runs its kernels for Prescott, without AVX"
        for kernel, count in (("Prescott", int(vectors)), ("Haswell", 0)):
            if kernel == "Haswell" and not vectors:
                continue
            got = self.train(2, OPENBLAS_CORETYPE=kernel, WEFT_ONEDNN="off")
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertEqual(got.stderr.count(told), count, got.stderr)

    def test_generated_bytes_do_not_drive_a_terminal(self):
        """A model that has learnt nothing writes all bytes alike."""
        for seed in range(1, 20):
            more = ["--generate", "a", "--set", "train.steps=0", "--set",
                    "train.warmup_steps=0", "--set", "train.seed=%d" % seed,
                    "--set", "generate.bytes=200"]
            done = subprocess.run([TRAIN, self.config, *more],
                                  capture_output=True, timeout=DEADLINE_S)
            raw = done.stdout
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(raw), 200)
            if {0x1b, 0x9b, ord("\n")} <= set(raw):
                break
        else:
            self.fail("no seed gave an escape, a C1 control and a newline")
        shown = self.generate_on_terminal(*more)
        text = raw.decode("utf-8", "backslashreplace")
        text = "".join("".join("\\x%02x" % byte for byte in c.encode())
                       if c != "\n" and unicodedata.category(c) == "Cc" else c
                       for c in text)
        self.assertEqual(shown.decode().rstrip("\n"), text.rstrip("\n"))
        self.assertTrue(shown.endswith(b"\n"))

    def test_empty_setting_says_what_is_allowed(self):
        self.refuse("--set train.steps=: train.steps: is an empty value; "
                    "allowed is a whole number 0..1000000000", 1, "--set",
                    "train.steps=")

    def test_deterministic_is_refused_where_it_cannot_hold(self):
        self.refuse("train.deterministic: true does not hold where 4 ranks "
                    "share 48 micro-batches: each must have a power of two of "
                    "them; nearest that work: global_batch_size 32 or 64, or "
                    "3 ranks", 4, "--set", "train.deterministic=true", "--set",
                    "train.global_batch_size=48")

    def test_deterministic_is_refused_where_sums_have_levels(self):
        self.refuse("train.deterministic: true does not hold where several "
                    "ranks share one of several hosts", 3, "--set",
                    "train.deterministic=true", "--set",
                    "train.global_batch_size=48", WEFT_DOMAIN="a,b,a")

    def test_deterministic_by_nccl_is_refused(self):
        self.refuse("train.deterministic: true does not hold with "
                    "WEFT_ROUTE=nccl", 3, "--set", "train.deterministic=true",
                    "--set", "train.global_batch_size=48", WEFT_ROUTE="nccl")

    def losses(self, nranks, **variables):
        metrics = self.path("metrics")
        got = self.train(nranks, "--metrics", metrics, "--set",
                         "train.deterministic=true", "--set",
                         "train.global_batch_size=48", "--set",
                         "train.steps=3", "--set", "checkpoint.every=0",
                         **variables)
        self.assertEqual(got.returncode, 0, got.stderr)
        with open(metrics) as file:
            return [json.loads(line)["loss"] for line in file]

    def test_deterministic_holds_where_it_is_accepted(self):
        alone = self.losses(1)
        self.assertEqual(len(alone), 3)
        self.assertEqual(alone, self.losses(3))
        self.assertEqual(alone, self.losses(6))
        self.assertEqual(alone, self.losses(3, WEFT_DOMAIN="a,b,a",
                                            WEFT_SUM_FLAT="on"))

    # ---- ranks from the environment ----------------------------------------

    def test_ranks_per_process_alone_are_the_whole_job(self):
        got = self.train(1, WEFT_RANKS_PER_PROCESS="2")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn(" on 2 ranks", got.stdout)
        for count in ("0", "x", "1025"):
            self.refuse("WEFT_RANKS_PER_PROCESS=%s: allowed is" % count, 1,
                        WEFT_RANKS_PER_PROCESS=count)

    def test_meeting_point_without_ranks_is_refused(self):
        for where in ("127.0.0.1:1", "file:", "file:/tmp/nobody"):
            self.refuse("WEFT_NRANKS=(not set): where WEFT_RENDEZVOUS is set",
                        1, WEFT_RENDEZVOUS=where)
        self.refuse("WEFT_RENDEZVOUS=file:: allowed is file: and an absolute",
                    1, WEFT_RENDEZVOUS="file:", WEFT_NRANKS="1",
                    WEFT_RANK="0")

    # ---- what is printed ---------------------------------------------------

    def check_sum(self, whole, parts, within):
        self.assertLess(abs(whole - sum(parts)), within, (whole, parts))

    def test_steps_add_up_in_text_and_json(self):
        for nranks in (1, 3):
            path = self.path("summary")
            got = self.train(nranks, "--json", path, "--set",
                             "train.steps=24", "--set",
                             "train.global_batch_size=6")
            self.assertEqual(got.returncode, 0, got.stderr)
            with open(path) as file:
                said = json.load(file)
            self.check_sum(said["step_ms"],
                           [said[term + "_ms"] for term in
                            ("compute", "exposed", "bubble", "skew", "idle")],
                           1e-3)
            self.assertLessEqual(said["fastest_step_ms"], said["step_ms"])
            self.assertLessEqual(said["step_ms"], said["slowest_step_ms"])
            line = re.search(r"^step +([0-9.]+) ms = (.*?) +\(the median one "
                             r"of the last 24,", got.stdout, re.M)
            self.assertTrue(line, got.stdout)
            self.check_sum(float(line[1]),
                           [float(part.split()[-1])
                            for part in line[2].split(" + ")], 0.031)
            hidden = re.search(r"^O +(\S+)", got.stdout, re.M)
            self.assertEqual(hidden[1] == "n/a", nranks == 1, got.stdout)
            self.assertEqual(said["overlap_ratio"] is None, nranks == 1)
            moved = re.search(r"^comm/compute +dp ([0-9.]+)%( \(above 30%\))?$",
                              got.stdout, re.M)
            self.assertEqual(moved is None, nranks == 1, got.stdout)
            if moved:
                share = said["transfer_ms"]["dp"] / said["compute_ms"]
                self.assertAlmostEqual(float(moved[1]), 100 * share, delta=0.06)
                self.assertEqual(moved[2] is not None, share > 0.3)
            os.remove(path)
            shutil.rmtree(self.path("ckpt"))

    def test_waits_where_experts_post_are_exposed(self):
        """Not hidden: nothing computes while the rank waits."""
        path = self.path("steps")
        got = self.train(
            2, "--metrics", path, "--set", "model.experts=4", "--set",
            "model.hidden_size=32", "--set", "model.ffn_size=32", "--set",
            "parallel.expert_model_parallel_size=2", "--set",
            "overlap.expert=false")
        self.assertEqual(got.returncode, 0, got.stderr)
        with open(path) as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual(len(lines), 6)
        self.assertGreater(sum(line["exposed_ms"]["ep"] for line in lines), 0)

    def test_full_disk_is_reported_with_the_file(self):
        self.refuse("--json /dev/full: writing JSON: No space left", 1,
                    "--json", "/dev/full")
        for _ in range(REPEATS):
            text = self.refuse("weft-train: --metrics /dev/full: cannot be "
                               "written: No space left", 3, "--metrics",
                               "/dev/full", "--set",
                               "train.global_batch_size=6")
            self.assertEqual(text.count("weft-train: rank 0 aborted"), 2, text)
            self.assertIn("\nweft-run: rank 0: exit 1 ", text)


if __name__ == "__main__":
    unittest.main()
