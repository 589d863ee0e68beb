#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_volumes.py BIN_DIR [net]

Goal: the bytes that a step of training moves in each class are the formulas', to
the byte, with what else travels as terms of their own:

    tp   with shared rows (t - 1) / t of them, in each layer 4 times forwards and
         4 times backwards, and twice each for embedding and head together;
         without, 2 (t - 1) / t of all rows, half as often. Terms: three numbers
         a row for the loss; gradients of norms, of shared rows only
    cp   rings (P - 1) of keys and values forwards; backwards the same again, and
         as much of their gradients. Ulysses (P - 1) / P of queries, keys, values
         and results, and the same of their gradients
    ep   a row for each token and other rank that has any of its experts, both
         ways, forwards and backwards; in fp8 towards them. Terms: what leads
         each row, scales, and weights' gradients

Where the model is bf16, rows, keys and heads are; what sums up losses and
gradients of norms is not, nor are weights of experts and their gradients.

Method: jobs under weft-run on a tiny model, rank 0's moved_bytes of --metrics in
a step; it has sent half and received half, as what ranks do is the same. All
tokens go to all experts where bytes of experts are counted. One job has ranks
that share no memory.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from products import WITHOUT_ONEDNN

BIN = sys.argv.pop(1)
NET = "net" in sys.argv[1:]
if NET:
    sys.argv.remove("net")
RUN = os.path.join(BIN, "weft-run")
TRAIN = os.path.join(BIN, "weft-train")
DEADLINE_S = 120
STEPS = 3
REAL, NARROW = 4, 2
BF16 = "model.dtype=bf16"
LAYERS, HIDDEN, HEADS, WIDE, SEQ, BATCH, GLOBAL = 3, 32, 4, 8, 24, 2, 8
CONFIG = """\
model: {layers: %d, hidden_size: %d, heads: %d, kv_heads: 2, ffn_size: 64,
        seq_length: %d}
data: {paths: [text], validation_fraction: 0.1}
train: {steps: %d, micro_batch_size: %d, global_batch_size: %d,
        warmup_steps: 1, validate_every: 100}
checkpoint: {dir: ckpt, every: 0}
generate: {bytes: 1}
""" % (LAYERS, HIDDEN, HEADS, SEQ, STEPS, BATCH, GLOBAL)


def micro_batches(copies):
    return GLOBAL // BATCH // copies


def tensor(ranks, shared, elem=REAL):
    rows = BATCH * SEQ * HIDDEN * elem
    times = LAYERS * 8 + 4 if shared else LAYERS * 4 + 2
    share = (ranks - 1) / ranks * (1 if shared else 2)
    loss = (ranks - 1) * BATCH * SEQ * 3 * REAL
    norms = (2 * LAYERS + 1) * HIDDEN * REAL * (ranks - 1) if shared else 0
    return micro_batches(1) * (times * share * rows + loss) + norms


def ring(ranks, tokens, kv_heads, elem=REAL):
    held = 2 * BATCH * tokens * kv_heads * WIDE * elem
    return micro_batches(1) * LAYERS * held * 3 * (ranks - 1)


def ulysses(ranks, tokens, kv_heads, elem=REAL):
    """Of keys, as many as there are ranks at least: several have the same."""
    kv_heads = max(kv_heads, ranks)
    moved = BATCH * tokens * (2 * HEADS + 2 * kv_heads) * WIDE * elem
    return micro_batches(1) * LAYERS * 2 * moved * (ranks - 1) / ranks


def experts(ranks, slots, narrow=False, elem=REAL):
    routing = 4 + 4 + slots * (4 + 4)
    row = HIDDEN * elem
    towards = routing + (HIDDEN + 4 * ((HIDDEN + 127) // 128) if narrow
                         else row)
    turn = towards + row + (row + slots * 4) + row
    rows = BATCH * SEQ * (ranks - 1)
    return micro_batches(ranks) * LAYERS * rows * turn


class Volumes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weft-volumes-")
        self.addCleanup(shutil.rmtree, self.folder)
        os.mkdir(self.path("text"))
        self.write("text/a.txt", "warp and weft and a shuttle\n" * 400)
        self.write("job.yaml", CONFIG)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def train(self, ranks, settings, **variables):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("WEFT_")}
        environment.update(WITHOUT_ONEDNN, **variables)
        command = [RUN, "-n", str(ranks), TRAIN, self.path("job.yaml"),
                   "--metrics", self.path("metrics")]
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run(command, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stdout)
        with open(self.path("metrics")) as file:
            steps = [json.loads(line) for line in file]
        self.assertEqual(len(steps), STEPS)
        return steps

    def check(self, ranks, settings, sent, **variables):
        """sent: by class, in a step; classes that are not there move nothing.
        A transfer is of the step in which its end is seen, so a busy machine
        may count one in the step behind its own."""
        steps = self.train(ranks, settings, **variables)
        self.assertEqual([step["dropped"] for step in steps], [0] * STEPS)
        for name in ("tp", "cp", "ep"):
            moved = [step["moved_bytes"][name] for step in steps]
            wanted = 2 * sent.get(name, 0)
            self.assertIn(wanted, moved, (settings, name))
            for count in range(1, STEPS + 1):
                self.assertLessEqual(sum(moved[:count]), count * wanted,
                                     (settings, name, moved))

    def test_tensor(self):
        size = "parallel.tensor_model_parallel_size=%d"
        shared = "parallel.sequence_parallel=true"
        keys = "model.kv_heads=4"
        self.check(2, [size % 2], {"tp": tensor(2, False)})
        self.check(2, [size % 2, shared], {"tp": tensor(2, True)})
        self.check(2, [size % 2, shared, "overlap.tensor=false"],
                   {"tp": tensor(2, True)})
        self.check(4, [size % 4, shared, keys], {"tp": tensor(4, True)})
        self.check(2, [size % 2, shared, BF16],
                   {"tp": tensor(2, True, NARROW)})
        self.check(4, [size % 4, keys], {"tp": tensor(4, False)},
                   WEFT_ALGO="all_reduce:direct")

    def test_rings(self):
        size = "parallel.context_parallel_size=%d"
        layout = "parallel.context_layout=%s"
        for ranks, name in ((2, "contiguous"), (2, "zigzag"), (2, "stripe"),
                            (4, "contiguous"), (4, "zigzag")):
            self.check(ranks, [size % ranks, layout % name],
                       {"cp": ring(ranks, SEQ // ranks, 2)})
        self.check(4, [size % 4, BF16], {"cp": ring(4, SEQ // 4, 2, NARROW)})

    def test_ulysses(self):
        how = ["parallel.context_parallel=ulysses",
               "parallel.context_parallel_size=%d"]
        for ranks, kv_heads in ((2, 2), (4, 4), (4, 2)):
            self.check(ranks, [how[0], how[1] % ranks,
                               "model.kv_heads=%d" % kv_heads],
                       {"cp": ulysses(ranks, SEQ // ranks, kv_heads)})

        self.check(2, [how[0], how[1] % 2, BF16],
                   {"cp": ulysses(2, SEQ // 2, 2, NARROW)})

    def test_ulysses_in_rings(self):
        self.check(4, ["parallel.context_parallel=ring+ulysses",
                       "parallel.context_parallel_size=4",
                       "parallel.ulysses_size=2"],
                   {"cp": ulysses(2, SEQ // 4, 2) + ring(2, SEQ // 2, 1)})

    def experts(self, ranks, more=()):
        return ["parallel.expert_model_parallel_size=%d" % ranks,
                "model.experts=4", "model.experts_per_token=4", *more]

    def test_experts(self):
        for ranks in (2, 4):
            self.check(ranks, self.experts(ranks), {"ep": experts(ranks, 4)})
            self.check(ranks, self.experts(ranks, ["moe.dispatch=fp8"]),
                       {"ep": experts(ranks, 4, True)})
        self.check(2, self.experts(2, ["overlap.expert=false",
                                       "model.shared_experts=1"]),
                   {"ep": experts(2, 4)})
        self.check(2, self.experts(2, [BF16]),
                   {"ep": experts(2, 4, elem=NARROW)})
        self.check(2, self.experts(2, [BF16, "moe.dispatch=fp8"]),
                   {"ep": experts(2, 4, True, NARROW)})

    if NET:
        def test_experts_of_two_hosts(self):
            """To the other host once, and there on from the relay."""
            self.check(4, self.experts(4), {"ep": experts(4, 4)},
                       WEFT_DOMAIN="a,a,b,b")
            self.check(4, self.experts(4, ["moe.dispatch=fp8"]),
                       {"ep": experts(4, 4, True)}, WEFT_DOMAIN="a,a,b,b")


if __name__ == "__main__":
    unittest.main()
