#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_print_program.py BIN_DIR EXAMPLE.yaml

Goal: weft-train --print-program writes the nodes of every stage, in the order in
which they run, with what they read and write, and where every value lies; it
trains nothing, and refuses what it cannot know.

Method: the example's pipeline and the same model whole; each node of the
decoder is expected where it must be, each read is looked for among the writes
before it, sizes are added up by hand.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

BIN, EXAMPLE = sys.argv.pop(1), sys.argv.pop(1)
DEADLINE_S = 60
NODE = re.compile(r"([FIW]) (\d+) (COMPUTE|POST|AWAIT) ([a-z]+)\.(\d+)\.(\w+)"
                  r"( pp)?( by rows)?:((?: [\w.]+)*) ->((?: [\w.]+)*)$")
VALUE = re.compile(r"value ([a-z]+)\.(\d+)\.([\w.]+): (\w+) at (\d+), (\d+) "
                   r"bytes of f32, ([FIW]) (\d+) to ([FIW]) (\d+)$")
LAYERS, HIDDEN, TOKENS, FFN = 8, 64, 4 * 64, 176
ATTENTION = ["norm", "qkv", "attend", "out"]
FEED_FORWARD = ["norm", "gate_up", "swiglu", "down"]


def run(*options):
    return subprocess.run(
        [os.path.join(BIN, "weft-train"), "--print-program", EXAMPLE, *options],
        text=True, capture_output=True, timeout=DEADLINE_S,
        cwd=tempfile.gettempdir())


def whole_name(block, layer, name):
    """As of another block, or with the block's own in front."""
    return name if re.match(r"[a-z]+\.\d+\.", name) else \
        f"{block}.{layer}.{name}"


class Stage:
    def __init__(self, text):
        self.nodes, self.values, self.bytes = [], {}, {}
        for line in text.splitlines():
            node, value = NODE.match(line), VALUE.match(line)
            if line.startswith("bytes:"):
                words = line.split()[1:]
                self.bytes = dict(zip(words[::2], map(int, words[1::2])))
            elif node:
                self.nodes.append(node.groups())
            elif value:
                self.values[".".join(value.group(1, 2, 3))] = value.groups()
            else:
                raise AssertionError(f"not a node, nor a value: {line}")

    def labels(self, call):
        return [f"{kind} {block}.{layer}.{label}"
                for one, _, kind, block, layer, label, *_ in self.nodes
                if one == call]


def stages_of(text):
    parts = re.split(r"^\n?stage (\d+) of (\d+): layers (\d+) to (\d+), "
                     r"(\d+) tokens\n", text, flags=re.M)
    assert parts[0] == ""
    return [(tuple(map(int, parts[i:i + 5])), Stage(parts[i + 5].strip()))
            for i in range(1, len(parts), 6)]


class PrintProgram(unittest.TestCase):
    def print_stages(self, *options):
        done = run(*options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return stages_of(done.stdout)

    def check_reads(self, stage):
        written = set()
        for _, _, _, block, layer, label, _, _, reads, writes in stage.nodes:
            for name in reads.split():
                self.assertIn(whole_name(block, layer, name), written, label)
            written |= {whole_name(block, layer, name)
                        for name in writes.split()}
        self.assertEqual(written, set(stage.values))

    def check_values(self, stage):
        for name, value in stage.values.items():
            region, start, size = value[3], int(value[4]), int(value[5])
            self.assertLessEqual(start + size, stage.bytes[region], name)
        gated = next(value for name, value in stage.values.items()
                     if name.endswith(".gated"))
        self.assertEqual((gated[3], int(gated[5])), ("slot", TOKENS * FFN * 4))
        self.assertEqual((gated[6], gated[8]), ("F", "W"))

    def test_pipeline_has_all_stages_with_their_edges(self):
        stages = self.print_stages()
        self.assertEqual([numbers for numbers, _ in stages],
                         [(i, 4, 2 * i, 2 * i + 1, TOKENS) for i in range(4)])
        for (number, *_), stage in stages:
            layers = [f"COMPUTE {block}.{layer}.{label}"
                      for layer in (2 * number, 2 * number + 1)
                      for block, labels in (("attention", ATTENTION),
                                            ("ffn", FEED_FORWARD))
                      for label in labels]
            first = ["COMPUTE embedding.0.embed"] if number == 0 else \
                [f"AWAIT attention.{2 * number}.receive"]
            last = ["COMPUTE head.0.norm", "COMPUTE head.0.head"] \
                if number == 3 else [f"POST ffn.{2 * number + 1}.send"]
            self.assertEqual(stage.labels("F"), first + layers + last)
            back = stage.labels("I")
            if number < 3:  # the other way round in I
                self.assertEqual(back[0], f"AWAIT ffn.{2 * number + 1}.send")
            if number > 0:
                self.assertEqual(back[-1], f"POST attention.{2 * number}.receive")
            self.check_reads(stage)
            self.check_values(stage)

    def test_whole_model_is_one_stage(self):
        stages = self.print_stages(
            "--set", "parallel.pipeline_model_parallel_size=1")
        self.assertEqual(stages[0][0], (0, 1, 0, LAYERS - 1, TOKENS))
        self.assertEqual(len(stages), 1)
        self.assertFalse([node for node in stages[0][1].nodes
                          if node[2] != "COMPUTE"])
        self.check_reads(stages[0][1])

    def test_auto_is_refused(self):
        done = run("--set", "parallel.schedule=auto")
        self.assertEqual(done.returncode, 1)
        self.assertIn("name one", done.stderr)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
