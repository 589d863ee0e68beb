#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_bf16.py BIN_DIR DOCS_DIR [-k PART ... | LAUNCHER ...]

Goal: model.dtype: bf16 trains as fp32 does, within its rounding, with the same
bits on any layout and device and after a resume; masters are what is saved. Where
ranks share layers, sequences or experts sums are rounded in parts, and it is as
near.

Method: a small model, 60 steps on one rank against fp32's losses; then a few
steps by replicas, pipelines, with a tied embedding and on the shadow device,
whose losses and norms have the bits of one rank; a run that goes on from a
checkpoint; the checkpoint's numbers, the memory that is planned, the program. With
LAUNCHER (scripts/with-fake-gpu and its options) on cuda, too, by the fake driver.
-k: only tests whose names have one of these parts. With WEFT_TEST_FEW (a
sanitizer watches) those of each list that differ in what runs, and nothing that
only compares figures of many steps.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from products import WITHOUT_ONEDNN

BIN = sys.argv[1]
DOCS = sys.argv[2]
PARTS = sys.argv[3:] if "-k" in sys.argv[3:4] else []
LAUNCHER = [] if PARTS else sys.argv[3:]
FEW = "WEFT_TEST_FEW" in os.environ
DEADLINE_S = 110
CONFIG = """
model: {layers: 4, hidden_size: 32, heads: 2, kv_heads: 1, ffn_size: 48,
        vocab: bytes, seq_length: 32, dtype: bf16}
data: {paths: [%s], validation_fraction: 0.04}
train: {steps: 4, micro_batch_size: 2, global_batch_size: 8, warmup_steps: 2,
        lr: 0.003, validate_every: 4}
overlap: {bucket_mb: 0.01}
generate: {bytes: 4}
"""
PIPELINE = ("--set", "parallel.pipeline_model_parallel_size=2")
TENSOR = ("--set", "parallel.tensor_model_parallel_size=2")
ROWS = ("--set", "parallel.sequence_parallel=true")
ULYSSES = ("--set", "parallel.context_parallel_size=2",
           "--set", "parallel.context_parallel=ulysses")
RING = ("--set", "parallel.context_parallel_size=2",
        "--set", "parallel.context_layout=zigzag")
RINGS = ("--set", "parallel.context_parallel_size=4")
EXPERTS = ("--set", "parallel.expert_model_parallel_size=2")
BOTH = ("--set", "parallel.context_parallel_size=4",
        "--set", "parallel.context_parallel=ring+ulysses",
        "--set", "parallel.ulysses_size=2")


def read_tensors(folder):
    """name: (type, bytes), of all files of a step."""
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            with open(os.path.join(folder, name), "rb") as file:
                text = file.read(struct.unpack("<Q", file.read(8))[0])
                body = file.read()
            for key, entry in json.loads(text).items():
                if key != "__metadata__":
                    begin, end = entry["data_offsets"]
                    tensors[key] = (entry["dtype"], body[begin:end])
    return tensors


class Bf16(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weft-bf16-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.config = os.path.join(self.folder, "config.yaml")
        with open(self.config, "w") as file:
            file.write(CONFIG % os.path.join(DOCS, "types.md"))

    def run_train(self, nranks, *more, launcher=()):
        got = subprocess.run(
            [*launcher, os.path.join(BIN, "weft-run"), "-n", str(nranks),
             os.path.join(BIN, "weft-train"), self.config, *more],
            capture_output=True, text=True, timeout=DEADLINE_S,
            env={**os.environ, **(WITHOUT_ONEDNN if launcher else {})})
        self.assertEqual(got.returncode, 0, got.stderr)
        return got

    def train(self, nranks, *more, launcher=()):
        steps = os.path.join(self.folder, "steps")
        self.run_train(nranks, "--metrics", steps, *more, launcher=launcher)
        with open(steps) as file:
            lines = [json.loads(line) for line in file]
        return [(line["step"], line["loss"], line["grad_norm"],
                 line["val_loss"]) for line in lines]

    if not FEW:
        def test_losses_are_those_of_fp32(self):
            sixty = ("--set", "train.steps=60")
            narrow = self.train(1, *sixty)
            wide = self.train(1, *sixty, "--set", "model.dtype=fp32")
            self.assertNotEqual(narrow, wide)
            self.assertLess(wide[-1][1], 0.7 * wide[0][1])  # it has learned
            for (_, mine, *_), (_, theirs, *_) in zip(narrow, wide):
                self.assertLess(abs(mine - theirs), 0.01 * theirs)

    def near_fp32(self, nranks, layout, model):
        """Over many steps, the layout's losses and one rank's in fp32."""
        if not FEW:
            many = ("--set", "train.steps=60", "--set",
                    "train.validate_every=60", *model)
            self.near(self.train(nranks, *layout, *many),
                      self.train(1, *many, "--set", "model.dtype=fp32"), 0.01)

    def test_layouts_and_devices_have_the_same_bits(self):
        one = self.train(1)
        zbv = (2, *PIPELINE, "--set", "parallel.schedule=zbv")
        for layout in ((2,), zbv) if FEW else (
                (2,), (4,), (2, *PIPELINE), (4, *PIPELINE), zbv):
            self.assertEqual(one, self.train(*layout))
        for layout in ((2, *PIPELINE),) if FEW else (
                (1,), (2,), (2, *PIPELINE)):
            self.assertEqual(one, self.train(
                *layout, "--set", "train.device=shadow"))

    def test_what_runs_again_has_the_same_bits(self):
        one = self.train(1)
        for what in ("norms", "selective", "full"):
            again = ("--set", "memory.recompute=%s" % what)
            if not FEW:
                self.assertEqual(one, self.train(1, *again))
            self.assertEqual(one, self.train(2, *PIPELINE, *again))

    def near(self, one, other, part):
        self.assertEqual(len(one), len(other))
        # Of a step from the same weights; part of a loss is less than of a norm.
        self.assertLess(abs(one[0][2] - other[0][2]), 3 * part * one[0][2])
        for (_, mine, _, valued), (_, theirs, _, other_valued) in zip(
                one, other):
            self.assertLess(abs(mine - theirs), part * theirs)
            if valued is not None:
                self.assertLess(abs(valued - other_valued), part * valued)

    def test_ranks_that_share_layers_or_exchange_heads_are_near(self):
        heads = ("--set", "model.heads=4", "--set", "model.kv_heads=2")
        one = self.train(1, *heads)
        layouts = ((4, *TENSOR, *ROWS, *PIPELINE), (2, *TENSOR),
                   (4, *TENSOR, *ROWS, *ULYSSES), (2, *TENSOR, *ROWS),
                   (2, *ULYSSES))
        for nranks, *more in layouts[:3] if FEW else layouts:
            self.near(one, self.train(nranks, *heads, *more), 0.001)
        self.near_fp32(2, (*TENSOR, *ROWS), heads)
        self.near(self.train(2, *heads, *TENSOR, *ROWS),
                  self.train(2, *heads, *TENSOR, *ROWS, "--set",
                             "train.device=shadow"), 1e-12)

    def test_ranks_that_share_sequences_by_rings_are_near(self):
        heads = ("--set", "model.heads=4", "--set", "model.kv_heads=2")
        one = self.train(1, *heads)
        layouts = ((4, *BOTH), (4, *RING, *PIPELINE), (4, *RINGS),
                   (4, *TENSOR, *ROWS, *RING), (2, *RING))
        for nranks, *more in layouts[:2] if FEW else layouts:
            self.near(one, self.train(nranks, *heads, *more), 0.001)
        self.near_fp32(2, RING, heads)
        self.near(self.train(2, *heads, *RING),
                  self.train(2, *heads, *RING, "--set",
                             "train.device=shadow"), 1e-12)

    def test_experts_are_near(self):
        model = ("--set", "model.experts=4", "--set", "model.ffn_size=64",
                 "--set", "model.shared_experts=1",
                 "--set", "moe.balance_every=1",
                 "--set", "memory.ema=bf16", "--set", "memory.ema_decay=0.5")
        saved = os.path.join(self.folder, "saved")
        one = self.train(1, *model, "--set", "checkpoint.dir=" + saved)
        bias = read_tensors(os.path.join(saved, "step_00000004"))
        bias = struct.unpack("<4f", bias["layer1.router_bias"][1])
        self.assertTrue(any(bias))
        for moved in bias:  # by steps of balance_rate, as masters
            self.assertAlmostEqual(1000 * moved, round(1000 * moved), 3)
        self.assertEqual(one, self.train(2, *model))
        layouts = ((4, *PIPELINE), (4, *TENSOR, *ROWS),
                   (2, "--set", "moe.dispatch=fp8"), (2, *RING), (2,))
        for nranks, *more in layouts[:3] if FEW else layouts:
            self.near(one, self.train(nranks, *model, *EXPERTS, *more), 0.002)
        for layout in ((1,), (2, *EXPERTS))[FEW:]:
            self.assertEqual(self.train(*layout, *model), self.train(
                *layout, *model, "--set", "train.device=shadow"))
        self.near_fp32(2, EXPERTS, model)

    if LAUNCHER:
        def test_cuda_is_as_near(self):
            few = ("--set", "train.steps=2", "--set", "model.layers=2",
                   "--set", "model.seq_length=16",
                   "--set", "data.validation_fraction=0.02")
            for layout in ((1,), (2, *TENSOR, *ROWS), (2, *RING),
                           (2, *EXPERTS, "--set", "model.experts=4",
                            "--set", "model.ffn_size=64")):
                self.near(self.train(*layout, *few),
                          self.train(*layout, *few, "--set",
                                     "train.device=cuda", launcher=LAUNCHER),
                          0.01)

    def test_tied_embedding_in_a_pipeline(self):
        tied = ("--set", "model.tie_embeddings=true")
        one = self.train(1, *tied)
        self.assertEqual(one, self.train(2, *tied))
        for (_, mine, *_), (_, theirs, *_) in zip(
                one, self.train(2, *tied, *PIPELINE)):
            self.assertLess(abs(mine - theirs), 0.01 * theirs)

    def test_resume_goes_on_with_the_same_bits(self):
        saved = os.path.join(self.folder, "saved")
        for nranks, device in ((1, "host"), (2, "shadow")):
            shutil.rmtree(saved, ignore_errors=True)
            whole = self.train(nranks, "--set", "checkpoint.dir=" + saved,
                               "--set", "checkpoint.every=2",
                               "--set", "train.device=" + device)
            masters = read_tensors(os.path.join(saved, "step_00000002"))
            shutil.rmtree(os.path.join(saved, "step_00000004"))
            again = self.train(2, "--resume", saved)
            self.assertEqual(whole[2:], again[-2:])
        # Masters, of which the lower halves are not rounded away.
        self.assertEqual({kind for kind, _ in masters.values()}, {"F32"})
        halves = b"".join(data[k:k + 2] for _, data in masters.values()
                          for k in range(0, len(data), 4))
        self.assertGreater(sum(map(bool, halves)), len(halves) / 2)

    def test_exported_model_is_what_was_trained(self):
        """What is exported are the rounded weights, which import as they are."""
        model = os.path.join(self.folder, "model")
        trained = self.train(2, "--export-hf", model)
        for nranks in (1, 2):
            begun = self.train(nranks, "--import-hf", model,
                               "--set", "train.lr=1e-9", "--set",
                               "train.steps=1", "--set",
                               "train.validate_every=1")
            self.assertEqual(begun[-1][3], trained[-1][3])
        for _, data in read_tensors(model).values():
            self.assertFalse(any(data[0::4]) or any(data[1::4]))

    def test_memory_and_program_are_narrow(self):
        def plan(nranks, *more):
            text = self.run_train(nranks, *more).stderr
            found = re.search(r"parameters ([\d.]+), gradients ([\d.]+), "
                              r"moments ([\d.]+), activations ([\d.]+)", text)
            return [float(part) for part in found.groups()]
        sizes = ("--set", "model.hidden_size=128", "--set",
                 "model.ffn_size=512", "--set", "train.steps=1")
        wide = plan(1, *sizes, "--set", "model.dtype=fp32")
        narrow = plan(1, *sizes)
        self.assertAlmostEqual(narrow[0], 1.5 * wide[0], delta=0.11)
        self.assertEqual(narrow[1:3], wide[1:3])
        self.assertLess(narrow[3], 0.6 * wide[3])
        text = subprocess.run(
            [os.path.join(BIN, "weft-train"), "--print-program", self.config],
            capture_output=True, text=True, timeout=DEADLINE_S).stdout
        for value, kind in (("ffn.0.gated", "bf16"), ("attention.0.lse", "f32"),
                            ("attention.0.rstd", "f32"),
                            ("head.0.logits", "bf16")):
            self.assertRegex(text, f"value {value}: .* bytes of {kind},")


if __name__ == "__main__":
    unittest.main(argv=[*sys.argv[:1], *PARTS], verbosity=2)
