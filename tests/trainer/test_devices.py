#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_devices.py BIN_DIR DOCS_DIR [-k PART ... | LAUNCHER ...]

Goal: training computes on a device by its stream as it does on the host.

Method: a small model for a few steps, by one rank, by two that share the batch,
by two with a part of the model each, by two that share its layers, by two that
share each sequence and with experts of one rank and of two, from the start and from a checkpoint; on the host, and on the
shadow device, which runs what is queued late and faults where the host touches
its memory: losses and norms have the host's bits there. Windows of validation are
odd in number, so the last is less than a micro-batch, and generated text begins
with few tokens: shapes that no step has had, whose first products wait on a GPU for
all that is queued. With LAUNCHER
(scripts/with-fake-gpu and its options) on cuda by the fake driver instead, whose
kernels round as they like. With WEFT_TEST_FEW (a sanitizer watches), and on cuda
without WEFT_TEST_LONG, only those of a list that differ in what runs, there with
sequences half as long. -k: only
tests whose names have one of these parts.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from products import WITHOUT_ONEDNN

PARTS = sys.argv[3:] if "-k" in sys.argv[3:4] else []
LAUNCHER = [] if PARTS else sys.argv[3:]
DOCS = sys.argv[2]
BIN = sys.argv[1]
KIND = "cuda" if LAUNCHER else "shadow"
SANITIZED = "WEFT_TEST_FEW" in os.environ
FEW = SANITIZED or (KIND == "cuda" and "WEFT_TEST_LONG" not in os.environ)
DEADLINE_S = 140
OFFLOAD = ("--set", "memory.offload=optimizer")
CONFIG = """
model: {layers: 2, hidden_size: 32, heads: 2, kv_heads: 1, ffn_size: 48,
        vocab: bytes, seq_length: %s}
data: {paths: [%s], validation_fraction: %s}
train: {steps: 3, micro_batch_size: 2, global_batch_size: 8, warmup_steps: 2,
        validate_every: 3}
overlap: {bucket_mb: 0.01}
generate: {bytes: 4}
memory: {ema: bf16, ema_decay: 0.5}
"""


class Devices(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weft-devices-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.config = os.path.join(self.folder, "config.yaml")
        with open(self.config, "w") as file:
            # Seven windows of either length. An emulated kernel takes long.
            length, part = (16, 0.025) if KIND == "shadow" or not FEW else (
                8, 0.0127)
            file.write(CONFIG % (length, os.path.join(DOCS, "types.md"),
                                 part))

    def start(self, nranks, kind, *more):
        return subprocess.run(
            [*(LAUNCHER if kind == "cuda" else []),
             os.path.join(BIN, "weft-run"), "-n", str(nranks),
             os.path.join(BIN, "weft-train"), self.config,
             "--set", "train.device=" + kind, *more],
            capture_output=True, text=True, timeout=DEADLINE_S,
            env={**os.environ, **(WITHOUT_ONEDNN if FEW else {})})

    def train(self, nranks, kind, *more):
        steps = os.path.join(self.folder, "steps")
        got = self.start(nranks, kind, "--metrics", steps, *more)
        self.assertEqual(got.returncode, 0, got.stderr)
        with open(steps) as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual(lines[-1]["step"], 3)
        return [(line[name], name, line["step"]) for line in lines
                for name in ("loss", "grad_norm", "val_loss",
                             "val_loss_ema")]

    def compare(self, nranks, *more):
        self.same(self.train(nranks, "host", *more),
                  self.train(nranks, KIND, *more))

    def same(self, host, device):
        if KIND == "shadow":
            self.assertEqual(host, device)
            return
        for (wanted, *where), (got, *_) in zip(host, device):
            if wanted is None:
                self.assertIsNone(got, where)
            else:
                self.assertAlmostEqual(wanted, got, delta=2e-4, msg=where)

    def test_one_rank(self):
        self.compare(1)

    def test_two_replicas(self):
        """Also with the optimizer's state in the host's memory, and with
        communication on a part of a GPU."""
        host = self.train(2, "host")
        self.same(host, self.train(2, KIND))
        part = ("--set", "overlap.comm_sms=16") if KIND == "cuda" else ()
        self.same(host, self.train(2, KIND, *OFFLOAD, *part))

    @unittest.skipUnless(KIND == "cuda", "a part of a GPU")
    def test_a_part_that_no_gpu_has_is_refused(self):
        got = self.start(2, KIND, "--set", "overlap.comm_sms=5")
        self.assertNotEqual(got.returncode, 0)
        self.assertIn("sm_budget 5: the least that cuda", got.stderr)

    def test_offloaded_masters(self):
        """Which are what the average is of, too."""
        narrow = ("--set", "model.dtype=bf16")
        self.assertEqual(self.train(2, KIND, *narrow),
                         self.train(2, KIND, *narrow, *OFFLOAD))

    def test_two_stages(self):
        self.compare(2, "--set", "parallel.pipeline_model_parallel_size=2",
                     "--set", "memory.recompute=full")

    def test_ranks_that_share_layers_or_sequences(self):
        tensor = ("--set", "parallel.tensor_model_parallel_size=2",
                  "--set", "parallel.sequence_parallel=true")
        context = ("--set", "parallel.context_parallel_size=2")
        self.compare(4, *tensor, *context)
        if not SANITIZED:
            self.compare(2, *tensor[:2])
        if not FEW:
            self.compare(2, *tensor)
            self.compare(2, *context, "--set",
                         "parallel.context_layout=zigzag")
        self.compare(2, *context, "--set", "parallel.context_parallel=ulysses")

    def test_documents(self):
        """Words, alone and where ranks share sequences."""
        words = ("--set", "data.document_end=32")
        if not FEW:
            self.compare(1, *words)
        self.compare(2, *words, "--set", "parallel.context_parallel_size=2",
                     "--set", "parallel.context_layout=zigzag")

    def test_experts(self):
        """Those of one rank, of two, and of two in each stage of a pipeline."""
        model = ("--set", "model.experts=4", "--set", "model.ffn_size=64",
                 "--set", "model.shared_experts=1",
                 "--set", "model.seq_length=16")
        spread = (*model, "--set", "parallel.expert_model_parallel_size=2")
        if not FEW:
            self.compare(1, *model, "--set", "model.layers=1")
        self.compare(2, *spread, "--set", "model.layers=1",
                     "--set", "moe.balance_every=1")
        self.compare(4, *spread, "--set",
                     "parallel.pipeline_model_parallel_size=2")

    def test_saves_and_goes_on(self):
        """What a device has saved, it and the host go on from."""
        saved = os.path.join(self.folder, "saved")
        whole = self.train(2, KIND, *OFFLOAD,
                           "--set", "checkpoint.dir=" + saved,
                           "--set", "checkpoint.every=2")
        third = [fact for fact in whole if fact[2] == 3]
        shutil.rmtree(os.path.join(saved, "step_00000003"), ignore_errors=True)
        self.assertEqual([name for name in os.listdir(saved)
                          if name.startswith("step_")], ["step_00000002"])
        for kind, *more in ((KIND, *OFFLOAD), (KIND,), ("host",)):
            copy = tempfile.mkdtemp(dir=self.folder)
            shutil.copytree(saved, copy, dirs_exist_ok=True)
            again = self.train(2, kind, "--resume", copy, *more)
            self.same(third, [fact for fact in again if fact[2] == 3])


if __name__ == "__main__":
    unittest.main(argv=[*sys.argv[:1], *PARTS], verbosity=2)
