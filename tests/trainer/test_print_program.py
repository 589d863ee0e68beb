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
NODE = re.compile(r"([FIW]) (\d+) (COMPUTE|POST|AWAIT|EXCHANGE) ([a-z]+)\.(\d+)\.(\w+)"
                  r"( [a-z]{2})?( again)?( by rows)?:((?: [\w.]+)*) ->((?: [\w.]+)*)$")
VALUE = re.compile(r"value ([a-z]+)\.(\d+)\.([\w.]+)( again)?: (\w+) at (\d+), "
                   r"(\d+) bytes of f32, ([FIWB]) (\d+) to ([FIWB]) (\d+)$")
LAYERS, HIDDEN, TOKENS, FFN = 8, 64, 4 * 64, 176
ATTENTION = ["norm", "qkv", "rope", "attend", "out"]
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
                groups = value.groups()
                name = ".".join(groups[:3]) + (groups[3] or "")
                self.values[name] = groups[:3] + groups[4:]
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
        for _, _, _, block, layer, label, _, _, _, reads, writes in stage.nodes:
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

    def test_shared_layers_exchange_rows(self):
        done = run("--set", "parallel.tensor_model_parallel_size=2",
                   "--set", "parallel.sequence_parallel=true",
                   "--set", "parallel.pipeline_model_parallel_size=1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for line in (r"F \d+ COMPUTE attention_in.1.norm of part by rows: ",
                     r"F \d+ POST attention_in.1.enter tp: ",
                     r"F (\d+) AWAIT attention.1.enter tp by parts: .*\n"
                     r"F \1 COMPUTE attention.1.qkv by parts: ",
                     r"F (\d+) COMPUTE ffn.1.down by parts: .*\n"
                     r"F \1 POST ffn.1.leave tp by parts: ",
                     r"I (\d+) COMPUTE ffn.1.gate_up by parts: .*\n"
                     r"I \1 POST ffn.1.enter tp by parts: "):
            self.assertRegex(done.stdout, line)
        size = TOKENS * FFN // 2 * 4
        self.assertRegex(done.stdout, rf"value ffn_in.0.gated: .*, {size} bytes")
    def test_nodes_that_run_again_stand_before_their_block(self):
        """What is not kept is no value of the slot; with zb_h1 what W needs is
        made once more there."""
        blocks = {"norms": {"norm"}, "selective": {"norm", "attend", "swiglu"},
                  "full": {"norm", "qkv", "rope", "attend", "out", "gate_up",
                           "swiglu"}}
        none = self.print_stages()[1][1].bytes["slot"]
        before = none
        for level, labels in blocks.items():
            recompute = ("--set", f"memory.recompute={level}")
            stage = self.print_stages(*recompute)[1][1]
            again = [node for node in stage.nodes if node[7]]
            self.assertEqual({node[5] for node in again}, labels)
            self.assertEqual(sum(node[5] == "norm" for node in again), 4)
            self.assertLess(stage.bytes["slot"], before)
            before = stage.bytes["slot"]
            split = self.print_stages(
                *recompute, "--set", "parallel.schedule=zb_h1")[1][1]
            self.assertTrue([node for node in split.nodes
                             if node[7] and node[0] == "W"])
            self.assertLess(split.bytes["slot"], none)

    def test_without_release_values_lie_apart(self):
        stage = self.print_stages(
            "--set", "memory.release_activations=false")[1][1]
        ends = {}
        for value in sorted(stage.values.values(), key=lambda v: int(v[4])):
            if value[3] == "slot" and not value[2].startswith("d."):
                self.assertGreaterEqual(int(value[4]), ends.get("slot", 0))
                ends["slot"] = int(value[4]) + int(value[5])
        self.assertGreater(stage.bytes["slot"],
                           self.print_stages()[1][1].bytes["slot"])

    def test_sequences_are_shared_by_exchanges(self):
        stages = self.print_stages(
            "--set", "parallel.pipeline_model_parallel_size=1",
            "--set", "parallel.context_parallel_size=4",
            "--set", "parallel.context_parallel=ring+ulysses",
            "--set", "parallel.ulysses_size=2")
        (_, _, _, _, tokens), stage = stages[0]
        self.assertEqual(tokens, TOKENS // 4)
        for call, order in (("F", ["heads", "attend", "tokens"]),
                            ("I", ["tokens", "attend", "heads"])):
            found = [label for label in stage.labels(call)
                     if label.startswith("EXCHANGE attention.0.")]
            self.assertEqual(found, [f"EXCHANGE attention.0.{label}"
                                     for label in order])
        self.check_reads(stage)

    def test_encoder_has_stages_of_its_own(self):
        done = run("--set", "parallel.pipeline_model_parallel_size=2",
                   "--set", "parallel.schedule=interleaved",
                   "--set", "model.encoder_layers=4",
                   "--set", "model.encoder_seq_length=24",
                   "--set", "data.encoder_path=x")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        heads = re.findall(r"^stage \d of 4: (.*)\n", done.stdout, re.M)
        self.assertEqual(heads, [
            "encoder layers 0 to 1, 96 tokens",
            "encoder layers 2 to 3, 96 tokens",
            "decoder layers 0 to 3, 352 tokens",
            "decoder layers 4 to 7, 352 tokens"])
        plain = re.sub(r"(?<=: )(en|de)coder ", "", done.stdout)
        stages = [stage for _, stage in stages_of(plain)]
        for stage in stages:
            self.check_reads(stage)
        for number, ends in enumerate([
                ("COMPUTE embedding.0.embed", "POST ffn.1.send"),
                ("AWAIT attention.2.receive", "POST bridge.0.send"),
                ("COMPUTE join.0.embed", "POST ffn.3.send"),
                ("AWAIT attention.4.receive", "COMPUTE head.0.head")]):
            found = stages[number].labels("F")
            self.assertEqual((found[0], found[-1]), ends)
        self.assertEqual(stages[1].labels("F")[-3:-1], [
            "COMPUTE bridge.0.norm", "COMPUTE bridge.0.bridge"])
        self.assertEqual(stages[2].labels("F")[1], "AWAIT join.0.join")
        self.assertEqual(stages[2].labels("I")[-1], "POST join.0.join")
        self.assertEqual(stages[2].labels("W")[-1], "COMPUTE join.0.embed")

    def test_auto_is_refused(self):
        done = run("--set", "parallel.schedule=auto")
        self.assertEqual(done.returncode, 1)
        self.assertIn("name one", done.stderr)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
