#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_exchange_peer.py BIN_DIR

Goal: Hugging Face's own programs take what weft-train --export-hf writes, and
compute the same with it; what they write, weft-train takes.

Method: transformers' Llama, and for experts its Glm4Moe, on torch, where Python
has them (they are no part of Debian, and the test says which it lacks; before
4.54 transformers has no Glm4Moe): their loss on the validation text beside the
trainer's, and models that they have drawn, imported and exported again.
"""
import importlib.util
import shutil
import subprocess
import sys
import unittest

SKIPPED = 77
MISSING = [name for name in ("safetensors", "torch", "transformers")
           if importlib.util.find_spec(name) is None]
if MISSING:
    print("skipped: Python has no module " + ", ".join(MISSING))
    sys.exit(SKIPPED)

import json

import torch
import transformers
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from exchange_folder import ExchangeFolder

BIN = sys.argv.pop(1)
SEQ = 24
CONFIG = """\
model: {layers: 3, hidden_size: 48, heads: 6, kv_heads: 2, ffn_size: 80,
        seq_length: %d, rope_theta: 700.0}
data: {paths: [text.txt], validation_fraction: 0.1}
train: {steps: 8, micro_batch_size: 2, global_batch_size: 8, warmup_steps: 2,
        lr: 1.0e-2}
checkpoint: {every: 0}
""" % SEQ


EXPERTS = ["model.experts=6", "model.experts_per_token=2",
           "model.shared_experts=1", "moe.balance_every=1"]
SETS = [word for one in EXPERTS for word in ("--set", one)]
HAS_EXPERTS = hasattr(transformers, "Glm4MoeForCausalLM")


class Peer(ExchangeFolder):
    CONFIG, LENGTH, VALIDATED = CONFIG, SEQ, 0.1

    def summary(self, *arguments):
        got = subprocess.run(
            [BIN + "/weft-run", "-n", "1", BIN + "/weft-train", "job.yaml",
             "--json", "summary", *arguments], text=True, capture_output=True,
            timeout=60, cwd=self.folder)
        self.assertEqual(got.returncode, 0, got.stderr)
        with open(self.path("summary")) as file:
            return json.load(file)

    def loss(self, model):
        def losses_of(window):
            own = torch.tensor([list(window)])
            with torch.no_grad():
                logits = model(own[:, :-1]).logits[0].double()
            return torch.nn.functional.cross_entropy(
                logits, own[0, 1:], reduction="none").tolist()
        return self.validation_loss(losses_of)

    def test_transformers_computes_the_same(self):
        for tied in "false", "true":
            with self.subTest(tied=tied):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                loss = self.summary("--export-hf", "out", "--set",
                                    "model.tie_embeddings=" + tied)["val_loss"]
                model, info = LlamaForCausalLM.from_pretrained(
                    self.path("out"), output_loading_info=True)
                self.assertEqual(info["unexpected_keys"], [])
                self.assertEqual(info["missing_keys"], [])
                self.assertAlmostEqual(loss, self.loss(model), delta=1e-5)

    def test_a_model_of_transformers_is_taken(self):
        torch.manual_seed(1)
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=256, hidden_size=48, intermediate_size=80,
            num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
            max_position_embeddings=64, rope_theta=700.0,
            initializer_range=0.3, rms_norm_eps=1e-6))
        model.save_pretrained(self.path("theirs"), safe_serialization=True)
        loss = self.summary("--import-hf", "theirs", "--export-hf", "ours",
                            "--set", "train.steps=0")["val_loss"]
        self.assertAlmostEqual(loss, self.loss(model), delta=1e-4)
        self.check_same("ours", "theirs")

    def check_same(self, *folders):
        ours, theirs = (load_file(self.path(name + "/model.safetensors"))
                        for name in folders)
        self.assertEqual(sorted(ours), sorted(theirs))
        for name in ours:
            self.assertTrue(torch.equal(ours[name], theirs[name]), name)

    @unittest.skipUnless(HAS_EXPERTS, "transformers has no Glm4Moe")
    def test_transformers_computes_the_same_with_experts(self):
        for groups in [], ["--set", "moe.nodes=3", "--set",
                           "moe.node_limit=1"]:
            with self.subTest(groups=groups):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                loss = self.summary("--export-hf", "out", *SETS,
                                    *groups)["val_loss"]
                model, info = \
                    transformers.Glm4MoeForCausalLM.from_pretrained(
                        self.path("out"), output_loading_info=True)
                self.assertEqual(list(info["unexpected_keys"]), [])
                self.assertEqual(list(info["missing_keys"]), [])
                self.assertAlmostEqual(loss, self.loss(model), delta=1e-5)

    @unittest.skipUnless(HAS_EXPERTS, "transformers has no Glm4Moe")
    def test_a_model_with_experts_of_transformers_is_taken(self):
        torch.manual_seed(1)
        model = transformers.Glm4MoeForCausalLM(transformers.Glm4MoeConfig(
            vocab_size=256, hidden_size=48, intermediate_size=80,
            moe_intermediate_size=80, n_routed_experts=6,
            num_experts_per_tok=2, n_shared_experts=1, num_hidden_layers=3,
            num_attention_heads=6, num_key_value_heads=2, head_dim=8,
            first_k_dense_replace=0, partial_rotary_factor=1.0,
            max_position_embeddings=64, rope_theta=700.0,
            initializer_range=0.3, rms_norm_eps=1e-6))
        model.save_pretrained(self.path("theirs"), safe_serialization=True)
        loss = self.summary("--import-hf", "theirs", "--export-hf", "ours",
                            "--set", "train.steps=0", *SETS)["val_loss"]
        self.assertAlmostEqual(loss, self.loss(model), delta=1e-4)
        self.check_same("ours", "theirs")


if __name__ == "__main__":
    unittest.main()
