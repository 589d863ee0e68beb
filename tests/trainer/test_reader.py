#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_reader.py BIN_DIR

Goal: a checkpoint is what docs/training.md says, to a program that knows nothing
of weft's: each tensor comes whole, with both moments, from every layout, and the
index has what the files have; the parameters are those that --export-hf writes. Where the usual Python library is installed, it reads the same.

Method: a tiny model saved by layouts that cut tensors, and by pipelines; a
reader in plain Python (checkpoint_reader.py).
"""
import os
import shutil
import subprocess
import sys
import unittest

from checkpoint_reader import read_file, read_step
from exchange_folder import ExchangeFolder
from llama import read_tensors

try:
    from safetensors import safe_open
except ImportError:
    safe_open = None

BIN = sys.argv.pop(1)
DEADLINE_S = 60
CONFIG = """\
model: {layers: 4, hidden_size: 32, heads: 4, kv_heads: 2, ffn_size: 48,
        seq_length: 12}
data: {paths: [text.txt], validation_fraction: 0.02}
train: {steps: 3, micro_batch_size: 1, global_batch_size: 8, warmup_steps: 2}
checkpoint: {dir: ckpt, every: 3}
generate: {bytes: 20}
"""
PIPE = "parallel.pipeline_model_parallel_size=2"
TIED = "model.tie_embeddings=true"
LAYOUTS = [(1, []), (3, ["overlap.bucket_mb=0.01", "train.elastic=true"]),
           (4, [PIPE, "parallel.schedule=dualpipe"]),
           (2, [PIPE, TIED, "parallel.schedule=zbv"])]
PIECES = {"qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
          "attention_out": ["self_attn.o_proj"],
          "gate_up": ["mlp.gate_proj", "mlp.up_proj"],
          "down": ["mlp.down_proj"],
          "attention_norm": ["input_layernorm"],
          "ffn_norm": ["post_attention_layernorm"]}
ENDS = {"embedding": "model.embed_tokens.weight",
        "final_norm": "model.norm.weight", "head": "lm_head.weight"}


class Reader(ExchangeFolder):
    CONFIG, LENGTH, VALIDATED = CONFIG, 12, 0.02

    def train(self, ranks, *arguments):
        got = subprocess.run(
            [BIN + "/weft-run", "-n", str(ranks), BIN + "/weft-train",
             "job.yaml", *arguments], text=True, capture_output=True,
            timeout=DEADLINE_S, cwd=self.folder)
        self.assertEqual(got.returncode, 0, got.stderr)

    def check_export(self, tensors):
        """Each parameter is the exported matrices, one below the other."""
        exported = read_tensors(self.path("out/model.safetensors"))
        for name, (dtype, _, data) in tensors.items():
            if name in ENDS:
                wanted = [ENDS[name]]
            else:
                layer, _, kind = name.partition(".")
                wanted = ["model.layers.%s.%s.weight" % (layer[5:], piece)
                          for piece in PIECES[kind]]
            self.assertEqual(data, b"".join(exported.pop(one)[2]
                                            for one in wanted), name)
            self.assertEqual(dtype, "F32")
        self.assertEqual(exported, {})

    def check_library(self, step):
        for file in sorted(os.listdir(step)):
            if file.endswith(".safetensors"):
                own, notes = read_file(os.path.join(step, file))
                with safe_open(os.path.join(step, file), "numpy") as theirs:
                    self.assertEqual(theirs.metadata(), notes)
                    self.assertEqual(sorted(theirs.keys()), sorted(own))
                    for name, (_, shape, data) in own.items():
                        tensor = theirs.get_tensor(name)
                        self.assertEqual(list(tensor.shape), shape)
                        self.assertEqual(tensor.tobytes(), data)

    def check_layout(self, ranks, sets):
        sets = [word for name in sets for word in ("--set", name)]
        for folder in "ckpt", "out":
            shutil.rmtree(self.path(folder), ignore_errors=True)
        self.train(ranks, *sets)
        step = self.path("ckpt/step_00000003")
        tensors, facts = read_step(step)
        self.assertEqual((facts["step"], facts["ranks"],
                          facts["next_sequence"]), ("3", str(ranks), "24"))
        moments = {name: tensors.pop(name) for name in list(tensors)
                   if name.endswith((".first", ".second"))}
        self.assertEqual({name.rpartition(".")[0] for name in moments},
                         set(tensors))
        for name, (dtype, shape, data) in moments.items():
            of = tensors[name.rpartition(".")[0]]
            self.assertEqual((dtype, shape), of[:2], name)
            self.assertNotEqual(data.count(0), len(data), name)
        # One rank resumes it to export it.
        self.train(1, "--resume", "ckpt", "--export-hf", "out", "--set",
                   "train.steps=0", "--set", "checkpoint.every=0",
                   *(["--set", TIED] if TIED in sets else []))
        self.check_export(tensors)
        if safe_open:
            self.check_library(step)

    def test_every_layout_is_read_without_weft(self):
        for ranks, sets in LAYOUTS:
            with self.subTest(ranks=ranks, sets=sets):
                self.check_layout(ranks, sets)


if __name__ == "__main__":
    unittest.main()
