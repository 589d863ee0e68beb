#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_token_text.py BIN_DIR scripts/tokens

Goal: what docs/data.md says of making files of ids, training on them and showing
what comes out works as it stands there.

Method: scripts/tokens on a text of known words, its file read back here; two
ranks of weft-train on it, whose loss falls to what these words allow; the ids
they print as text again.
"""
import array
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

BIN, TOKENS = sys.argv[1:3]
DEADLINE_S = 50
CONFIG = """\
model: {layers: 1, hidden_size: 32, heads: 2, kv_heads: 2, ffn_size: 48,
        vocab: 64, seq_length: 16}
data: {paths: [t.tokens], validation_fraction: 0.1}
train: {steps: 40, micro_batch_size: 2, global_batch_size: 16, warmup_steps: 4,
        lr: 1.0e-2}
generate: {bytes: 30}
checkpoint: {every: 0}
"""
LINES = ["the loom turns warp and weft\n", "a shuttle passes the thread\n"]


class TokenText(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        draw = random.Random(1)
        self.text = "".join(draw.choice(LINES) for _ in range(300))
        self.write("a.txt", self.text)
        self.write("c.yaml", CONFIG)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def run_it(self, *words, **how):
        return subprocess.run(words, capture_output=True, text=True, check=True,
                              timeout=DEADLINE_S, **how).stdout

    def test_words_become_ids_that_are_trained_on_and_words_again(self):
        said = self.run_it(TOKENS, self.path("a.txt"), self.path("t.tokens"))
        with open(self.path("t.tokens"), "rb") as file:
            image = file.read()
        ids = array.array("H", image[64:])
        self.assertEqual(image[:8], b"wefttoks")
        self.assertEqual(int.from_bytes(image[16:24], "little"), len(ids))
        vocab = int.from_bytes(image[24:32], "little")
        self.assertEqual(image[32:64],
                         hashlib.blake2b(image[64:], digest_size=32).digest())
        self.assertIn(f"{len(ids)} ids below {vocab}, 0 unknown", said)
        again = self.run_it(TOKENS, "--text", self.path("t.vocab"),
                            input=" ".join(map(str, ids)))
        self.assertEqual(again, self.text + "\n")

        out = self.run_it(
            os.path.join(BIN, "weft-run"), "-n", "2",
            os.path.join(BIN, "weft-train"), self.path("c.yaml"), "--json",
            self.path("j"), "--generate", " ".join(map(str, ids[:3])))
        with open(self.path("j"), encoding="utf-8") as file:
            summary = json.load(file)
        self.assertEqual(summary["loss_unit"], "nats a token")
        self.assertIsNone(summary["bigram_loss"])
        self.assertLess(summary["val_loss"], 1)  # of about log(vocab), 2.5
        text = self.run_it(TOKENS, "--text", self.path("t.vocab"), input=out)
        self.assertEqual(len(out.split()), 30)
        self.assertTrue(set(text.split()) <= set(self.text.split())
                        | {"<unknown>"})

    def test_rare_words_are_one_id(self):
        said = self.run_it(TOKENS, self.path("a.txt"), self.path("t.tokens"),
                           "--vocab", "4")
        with open(self.path("t.tokens"), "rb") as file:
            ids = array.array("H", file.read()[64:])
        self.assertEqual(max(ids), 3)
        self.assertIn(f"below 4, {ids.count(0)} unknown", said)
        self.assertGreater(ids.count(0), 0)


unittest.main(argv=sys.argv[:1])
