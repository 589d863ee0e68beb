#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_differ.py BIN_DIR

Goal: ranks with different arguments, files or steps to resume from do not train
with each other: all end, soon, with one message that names the key, both
values and both ranks.

Method: weft-train under weft-run through a shell that starts one rank with
other arguments, on a tiny model; every key of the table by a value it may have,
the text, the command line and the folder to resume from. What may differ does.
"""
import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = sys.argv.pop(1)
RUN = os.path.join(BIN, "weft-run")
TRAIN = os.path.join(BIN, "weft-train")
DEADLINE_S = 30
CONFIG = """\
model: {layers: 2, hidden_size: 16, heads: 2, kv_heads: 1, ffn_size: 24,
        seq_length: 16}
data: {paths: [text], validation_fraction: 0.1}
train: {steps: 4, micro_batch_size: 1, global_batch_size: 12, warmup_steps: 2}
checkpoint: {dir: ckpt, every: 2}
generate: {bytes: 20}
"""
# Another value for each key of which this version can do several.
OTHERS = {
    "model.layers": "3", "model.hidden_size": "32", "model.heads": "1",
    "model.kv_heads": "2", "model.ffn_size": "32", "model.vocab": "300",
    "model.seq_length": "8", "model.rope_theta": "5000",
    "model.tie_embeddings": "true", "data.validation_fraction": "0.2",
    "data.seed": "7", "train.steps": "5", "train.micro_batch_size": "2",
    "train.global_batch_size": "24", "train.lr": "0.001",
    "train.warmup_steps": "3", "train.weight_decay": "0.2",
    "train.clip": "0.5", "train.seed": "9", "train.validate_every": "2",
    "train.elastic": "true", "overlap.grad_reduce": "false",
    "overlap.param_gather": "false", "overlap.bucket_mb": "1",
    "checkpoint.dir": "other", "checkpoint.every": "3",
    "checkpoint.keep": "5", "checkpoint.async": "false",
}


def kernels_of_blas():
    """What OpenBLAS takes by itself: Prescott's where it knows no processor."""
    blas = ctypes.CDLL("libopenblas.so.0")
    blas.openblas_get_corename.restype = ctypes.c_char_p
    return blas.openblas_get_corename().decode()


class Differ(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weft-differ-")
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("text", "copy", "other"):
            os.mkdir(self.path(name))
            self.write(name + "/a.txt", "warp and weft and a shuttle\n" * 100)
        self.write("other/a.txt", "warp and weft and a shuttla\n" * 100)
        self.write("job.yaml", CONFIG)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def train(self, own, odd=1, nranks=3, everyone="", variable=""):
        """own: the arguments of rank odd, if any, in place of everyone's."""
        script = ('if [ "$WEFT_RANK" = %d ]; then %s exec "$0" "$@" %s; fi; '
                  'exec "$0" "$@" %s'
                  % (odd, variable, own or everyone, everyone))
        return subprocess.run(
            [RUN, "-n", str(nranks), "sh", "-c", script, TRAIN,
             self.path("job.yaml")], text=True, capture_output=True,
            timeout=DEADLINE_S, cwd=self.folder,
            env={name: value for name, value in os.environ.items()
                 if not name.startswith("WEFT_")})

    def refuse(self, parts, *arguments, **more):
        got = self.train(*arguments, **more)
        self.assertEqual(got.returncode, 1, got.stderr)
        for part in parts:
            self.assertEqual(got.stderr.count(part), 1,
                             "%r in\n%s" % (part, got.stderr))
        self.assertFalse(os.path.exists(self.path("ckpt")))
        return got.stderr

    def test_each_key_is_named_with_both_values(self):
        for turn, (key, value) in enumerate(OTHERS.items()):
            with self.subTest(key=key):
                odd = 1 + turn % 2
                shown = (self.path("other") if key == "checkpoint.dir"
                         else "%.17g" % float(value)
                         if value.replace(".", "").isdigit() else value)
                text = self.refuse(
                    [key + ": ranks differ: it is ",
                     " on rank 0 and %s on rank %d;" % (shown, odd)],
                    "--set %s=%s" % (key, value), odd=odd)
                self.assertEqual(text.count("weft-train: "), 1, text)

    @unittest.skipUnless(platform.machine() == "x86_64",
                         "no other kernels that any such processor has")
    def test_other_kernels_are_named_where_bits_count(self):
        batch = "--set train.global_batch_size=16"
        other = "Nehalem" if kernels_of_blas() == "Prescott" else "Prescott"
        variable = "WEFT_ONEDNN=off OPENBLAS_CORETYPE=" + other
        self.refuse(["the processor's kernels (train.deterministic): ranks "
                     "differ: it is ", "OpenBLAS %s on rank 1" % other], "",
                    nranks=2, variable=variable,
                    everyone=batch + " --set train.deterministic=true")
        got = self.train("", nranks=2, variable=variable, everyone=batch)
        self.assertEqual(got.returncode, 0, got.stderr)

    def test_rank_0_may_be_the_odd_one(self):
        self.refuse(["train.lr: ranks differ: it is 0.5 on rank 0 and "
                     "0.0030000000000000001 on rank 1;"],
                    "--set train.lr=0.5", odd=0, nranks=2)

    def test_command_lines_that_differ_are_named(self):
        self.refuse(["--measure: ranks differ: it is not given on rank 0 and "
                     "given on rank 2;"], "--measure", odd=2)
        self.refuse(["--resume: ranks differ: "], "--resume ckpt", odd=2)
        for flag in "--import-hf", "--export-hf":
            self.refuse([flag + ": ranks differ: it is not given on rank 0 and "
                         "given on rank 1;"], flag + " llama")
        self.refuse(["--generate: ranks differ: it is not given on rank 0 and "
                     "warp on rank 1;"], "--generate warp")

    def test_text_that_differs_is_named(self):
        self.refuse(["the text of data.paths: ranks differ: it is 2800 bytes "
                     "in 1 file, digest "], "--set data.paths=[other]")

    def test_equal_text_in_another_file_is_the_same(self):
        got = self.train("--set data.paths=[copy]")
        self.assertEqual(got.returncode, 0, got.stderr)

    def test_one_rank_refused_names_it(self):
        text = self.refuse(["does not give 3 heads"], "--set model.heads=3")
        self.assertIn("the configuration: rank 1 has failed", text)
        text = self.refuse(["none/a: "], "--set data.paths=[none/a]")
        self.assertIn("data.paths: rank 1 has failed", text)

    def test_resume_from_other_checkpoints_is_named(self):
        got = self.train("")
        self.assertEqual(got.returncode, 0, got.stderr)
        os.rename(self.path("ckpt"), self.path("first"))
        shutil.copytree(self.path("first"), self.path("same"))
        got = self.train("", everyone="--set train.seed=5")
        self.assertEqual(got.returncode, 0, got.stderr)
        os.rename(self.path("ckpt"), self.path("second"))
        more = "--set train.steps=6"
        self.refuse(["--resume: ranks differ: it is a checkpoint of step 4, "
                     "digest "], "--resume second " + more, odd=2,
                    everyone="--resume first " + more)
        got = self.train("--resume same " + more, odd=2,
                         everyone="--resume first " + more)
        self.assertEqual(got.returncode, 0, got.stderr)

    def test_resume_of_the_last_runs_that_differ_is_named(self):
        first = self.path("first")
        for seed in 1, 2:
            got = self.train("", everyone="--set train.seed=%d --set "
                             "checkpoint.dir=%s" % (seed, first))
            self.assertEqual(got.returncode, 0, got.stderr)
        shutil.copytree(first, self.path("second"))
        shutil.rmtree(self.path("second/run_00002"))
        more = "--set train.steps=6"
        for odd in range(3):
            self.refuse(["--resume: ranks differ: it is a checkpoint of step "
                         "4", "in run_00002, digest "],
                        "--resume second " + more, odd=odd,
                        everyone="--resume first " + more)
        got = self.train("", everyone="--set train.seed=3 --set "
                         "checkpoint.dir=" + self.path("second"))
        self.assertEqual(got.returncode, 0, got.stderr)
        self.refuse(["--resume: ranks differ: it is a checkpoint of step 4 in "
                     "run_00002, digest "], "--resume second " + more,
                    everyone="--resume first " + more)


if __name__ == "__main__":
    unittest.main()
