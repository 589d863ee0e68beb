#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_exchange.py BIN_DIR

Goal: what weft-train --export-hf writes is the model, with experts too, to a
program that knows nothing of weft's; the same bytes from every layout; --import-hf takes it back
on any; a folder that is another model's, or damaged, is refused by name, and a
place that cannot be written is, before the first step.

Method: a tiny model, trained on one rank, on several and in pipelines; its
validation loss beside that of a Llama in plain Python (llama.py) on the same
windows; folders changed in one place each.
"""
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import unittest

from exchange_folder import ExchangeFolder
from llama import Llama, read_tensors, write_tensors

BIN = sys.argv.pop(1)
DEADLINE_S = 60
SEQ = 12
CONFIG = """\
model: {layers: 4, hidden_size: 16, heads: 4, kv_heads: 2, ffn_size: 24,
        seq_length: %d, rope_theta: 500.0}
data: {paths: [text.txt], validation_fraction: 0.02}
train: {steps: 6, micro_batch_size: 1, global_batch_size: 4, warmup_steps: 2,
        lr: 3.0e-2}
overlap: {bucket_mb: 0.005}
checkpoint: {dir: ckpt, every: 0}
generate: {bytes: 20}
""" % SEQ
PIPE = "parallel.pipeline_model_parallel_size=2"
TIED = "model.tie_embeddings=true"
EXPERTS = ("model.experts=8", "model.experts_per_token=2",
           "model.shared_experts=1", "model.ffn_size=64", "model.layers=2",
           "moe.balance_every=1", "moe.balance_rate=0.05")
EP = ("parallel.expert_model_parallel_size=2",)
LIMIT = ("moe.nodes=2", "moe.node_limit=1")
Q = "model.layers.1.self_attn.q_proj.weight"


class Exchange(ExchangeFolder):
    CONFIG, LENGTH, VALIDATED = CONFIG, SEQ, 0.02

    def train(self, *arguments, ranks=1, sets=(), **more):
        for name in sets:
            arguments += ("--set", name)
        return subprocess.run(
            [BIN + "/weft-run", "-n", str(ranks), BIN + "/weft-train",
             "job.yaml", "--metrics", "metrics", *arguments], text=True,
            capture_output=True, timeout=DEADLINE_S, cwd=self.folder, **more)

    def succeed(self, *arguments, **more):
        got = self.train(*arguments, **more)
        self.assertEqual(got.returncode, 0, got.stderr)
        return got

    def losses(self):
        with open(self.path("metrics")) as file:
            return [json.loads(line) for line in file]

    def summary(self, *arguments, **more):
        self.succeed("--json", "summary", *arguments, **more)
        with open(self.path("summary")) as file:
            return json.load(file)

    def bytes(self, folder):
        with open(self.path(folder + "/model.safetensors"), "rb") as file:
            return file.read()

    def test_export_is_the_model_to_another_program(self):
        for sets in (), (TIED,):
            with self.subTest(sets=sets):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                got = self.summary("--export-hf", "out", sets=sets)
                self.assertAlmostEqual(got["val_loss"],
                                       self.validation_loss(
                                           Llama(self.path("out")).loss), delta=1e-5)
                self.assertEqual(sorted(os.listdir(self.path("out"))),
                                 ["config.json", "model.safetensors"])

    def test_export_with_experts_is_the_model_to_another_program(self):
        none = ("model.shared_experts=0",)
        moves = EP + ("moe.place_every=2", "moe.redundant=2")
        for ranks, sets, shared in ((1, (), 1), (1, none + (TIED,), 0),
                                    (1, LIMIT, 1), (2, moves, 1)):
            with self.subTest(sets=sets):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                got = self.summary("--export-hf", "out", ranks=ranks,
                                   sets=EXPERTS + sets)
                model = Llama(self.path("out"))
                self.assertEqual(model.config["n_shared_experts"], shared)
                bias = [model.tensors[name] for name in model.tensors
                        if name.endswith("e_score_correction_bias")]
                self.assertEqual(len(bias), 2)
                self.assertTrue(all(any(own) for own in bias))
                self.assertAlmostEqual(got["val_loss"], self.validation_loss(
                    model.loss), delta=1e-5)

    def test_experts_of_an_import_are_the_same_bytes_on_any_layout(self):
        loss = self.summary("--export-hf", "first", sets=EXPERTS)["val_loss"]
        rows = ("parallel.tensor_model_parallel_size=2",
                "parallel.sequence_parallel=true")
        for name, ranks, sets in (
                ("one", 1, ()), ("ep", 2, EP), ("copies", 4, EP),
                ("pipe", 4, EP + (PIPE,)), ("rows", 2, EP + rows),
                ("moves", 2, EP + ("moe.place_every=2", "moe.redundant=2"))):
            with self.subTest(name=name):
                got = self.summary("--import-hf", "first", "--export-hf", name,
                                   ranks=ranks, sets=EXPERTS + sets +
                                   ("train.steps=0",))
                self.assertEqual(self.bytes(name), self.bytes("first"))
                self.assertAlmostEqual(got["val_loss"], loss, delta=1e-6)

    def test_other_experts_are_refused_by_key(self):
        self.succeed("--export-hf", "first", sets=EXPERTS + ("train.steps=0",))
        with open(self.path("first/config.json")) as file:
            good = json.load(file)
        self.assertEqual(good["architectures"], ["Glm4MoeForCausalLM"])
        for key, value, part in (
                ("model_type", "llama", 'model_type is "llama"'),
                ("n_routed_experts", 16, "n_routed_experts is 16, but "
                 "model.experts 8"),
                ("num_experts_per_tok", None, "num_experts_per_tok is 8, but "
                 "model.experts_per_token 2"),
                ("n_shared_experts", 0, "n_shared_experts is 0, but "
                 "model.shared_experts 1"),
                ("moe_intermediate_size", 32, "but model.ffn_size 64"),
                ("n_group", 2, "n_group is 2, but by moe.node_limit"),
                ("first_k_dense_replace", None, "first_k_dense_replace is 1"),
                ("norm_topk_prob", False, "norm_topk_prob is false"),
                ("routed_scaling_factor", 2.5, "routed_scaling_factor is 2.5"),
                ("partial_rotary_factor", None, "partial_rotary_factor is 0.5"),
                ("num_key_value_heads", None, "num_key_value_heads is 8, but"),
                ("rms_norm_eps", None, "rms_norm_eps is 1e-05, but"),
                ("use_qk_norm", True, "use_qk_norm is true")):
            with self.subTest(key=key):
                with open(self.path("first/config.json"), "w") as file:
                    json.dump(dict(good, **{key: value}), file)
                self.refuse(part, "--import-hf", "first", sets=EXPERTS)
        got = self.refuse(
            "--export-hf: moe.node_limit 2 of 2 experts a token",
            "--export-hf", "out", sets=EXPERTS + ("moe.nodes=4",
                                                  "moe.node_limit=2"))
        self.assertNotIn("step", got.stderr)
        self.refuse("--export-hf: is for models without an encoder",
                    "--export-hf", "out", sets=(
                        "model.encoder_layers=2", "model.encoder_seq_length=8",
                        "data.encoder_path=text.txt"))

    def test_every_layout_exports_the_same_bytes(self):
        for tied in (), (TIED,):
            self.succeed("--export-hf", "one" + str(len(tied)), sets=tied)
        for name, ranks, sets, like in (
                ("two", 2, (), "one0"), ("pipe", 2, (PIPE,), "one0"),
                ("copies", 4, (PIPE,), "one0"),
                ("other", 1, ("overlap.bucket_mb=1",), "one0"),
                ("zbv", 2, (PIPE, "parallel.schedule=zbv"), "one0"),
                ("tied", 2, (TIED,), "one1")):
            with self.subTest(name=name):
                self.succeed("--export-hf", name, ranks=ranks, sets=sets)
                self.assertEqual(self.bytes(name), self.bytes(like))

    def test_import_is_what_was_exported_on_any_layout(self):
        for tied in (), (TIED,):
            first = "first%d" % len(tied)
            loss = self.summary("--export-hf", first, sets=tied)["val_loss"]
            for name, ranks, sets in (("one", 1, ()), ("three", 3, ()),
                                      ("pipe", 2, (PIPE,))):
                with self.subTest(name=name, tied=tied):
                    name += first
                    sets += tied + ("train.steps=0",
                                    "train.global_batch_size=12")
                    got = self.summary("--import-hf", first, "--export-hf",
                                       name, ranks=ranks, sets=sets)
                    self.assertEqual(self.bytes(name), self.bytes(first))
                    self.assertEqual(got["val_loss"], loss)

    def test_training_goes_on_alike_from_an_import(self):
        self.succeed("--export-hf", "first")
        lines = []
        for ranks, sets in (1, ()), (2, (PIPE,)):
            self.succeed("--import-hf", "first", ranks=ranks, sets=sets)
            lines.append([(line["step"], line["loss"], line["grad_norm"])
                          for line in self.losses()])
        self.assertEqual(len(lines[0]), 6)
        self.assertEqual(lines[0], lines[1])

    def test_short_floats_are_taken_exactly(self):
        self.succeed("--export-hf", "first")
        tensors = read_tensors(self.path("first/model.safetensors"))
        for dtype in "BF16", "F16":
            short, want = {}, {}
            for name, (_, shape, data) in tensors.items():
                count = len(data) // 4
                if dtype == "BF16":
                    own = b"".join(data[i + 2:i + 4]
                                   for i in range(0, len(data), 4))
                    wide = b"".join(b"\0\0" + own[i:i + 2]
                                    for i in range(0, len(own), 2))
                else:
                    own = struct.pack("<%de" % count,
                                      *struct.unpack("<%df" % count, data))
                    wide = struct.pack("<%df" % count,
                                       *struct.unpack("<%de" % count, own))
                short[name] = (dtype, shape, own)
                want[name] = ("F32", shape, wide)
            shutil.copytree(self.path("first"), self.path(dtype))
            write_tensors(self.path(dtype + "/model.safetensors"), short)
            self.succeed("--import-hf", dtype, "--export-hf", dtype + "back",
                         sets=("train.steps=0",))
            self.assertEqual(
                read_tensors(self.path(dtype + "back/model.safetensors")), want)

    def refuse(self, part, *arguments, **more):
        got = self.train(*arguments, **more)
        self.assertEqual(got.returncode, 1, got.stderr)
        self.assertIn(part, got.stderr)
        return got

    def test_another_model_is_refused_by_key(self):
        self.succeed("--export-hf", "first", sets=("train.steps=0",))
        with open(self.path("first/config.json")) as file:
            good = json.load(file)
        for key, value, part in (
                ("hidden_size", 32, "hidden_size is 32, but model.hidden_size "
                 "16"),
                ("num_hidden_layers", 5, "num_hidden_layers is 5, but"),
                ("num_hidden_layers", None, "has no num_hidden_layers"),
                ("num_attention_heads", 2.5, "allowed is a whole number"),
                ("num_key_value_heads", None, "num_key_value_heads is 4, but "
                 "model.kv_heads 2"),
                ("head_dim", 8, "head_dim is 8"),
                ("vocab_size", 32000, "vocab_size is 32000, but model.vocab "
                 "256"),
                ("max_position_embeddings", 4, "model.seq_length is 12"),
                ("rms_norm_eps", 1e-5, "rms_norm_eps is 1e-05"),
                ("rope_theta", None, "rope_theta is 10000, but"),
                ("rope_scaling", {"type": "linear"}, "rope_scaling: allowed"),
                ("rope_parameters", {"rope_type": "llama3", "rope_theta": 500},
                 'rope_type is "llama3"'),
                ("rope_parameters", {"rope_theta": 600.0},
                 "rope_theta is 600, but model.rope_theta 500"),
                ("rope_parameters", 5, "rope_parameters: allowed is an object"),
                ("partial_rotary_factor", 0.5,
                 "partial_rotary_factor is 0.5, allowed is 1"),
                ("tie_word_embeddings", True, "tie_word_embeddings is true"),
                ("attention_bias", True, "attention_bias is true"),
                ("hidden_act", "gelu", 'hidden_act is "gelu"'),
                ("model_type", "mistral", 'model_type is "mistral"')):
            with self.subTest(key=key):
                with open(self.path("first/config.json"), "w") as file:
                    json.dump(dict(good, **{key: value}), file)
                self.refuse(part, "--import-hf", "first")
        good.pop("rope_theta")
        good["rope_parameters"] = {"rope_type": "default", "rope_theta": 500.0}
        with open(self.path("first/config.json"), "w") as file:
            json.dump(good, file)
        self.succeed("--import-hf", "first", sets=("train.steps=0",))
        with open(self.path("first/config.json"), "w") as file:
            file.write("{]")
        self.refuse("is no JSON object", "--import-hf", "first")

    def test_other_tensors_are_refused_by_name(self):
        self.succeed("--export-hf", "first", sets=("train.steps=0",))
        path = self.path("first/model.safetensors")
        good = read_tensors(path)
        dtype, shape, data = good[Q]
        nan = struct.pack("<f", float("nan"))
        for part, changed in (
                ('has no "%s"' % Q, {Q: None}),
                ('"%s": its shape is [8, 32], the configuration\'s [16, 16]'
                 % Q, {Q: (dtype, [8, 32], data)}),
                ('"%s": its shape is [256], ' % Q, {Q: (dtype, [256], data)}),
                ('"%s": its dtype is I32' % Q, {Q: ("I32", shape, data)}),
                ('"%s": its dtype is F64' % Q, {Q: ("F64", shape, 2 * data)}),
                ('"%s": number 3 is not finite' % Q,
                 {Q: (dtype, shape, data[:12] + nan + data[16:])}),
                ('"q_proj.bias": the configuration\'s model has no such',
                 {"q_proj.bias": ("F32", [1], b"0000")})):
            with self.subTest(part=part):
                tensors = {**good, **changed}
                write_tensors(path, {name: own for name, own in tensors.items()
                                     if own})
                for ranks, sets in (1, ()), (2, (PIPE,)):
                    got = self.refuse(part, "--import-hf", "first",
                                      "--export-hf", "out", ranks=ranks,
                                      sets=sets)
                    self.assertEqual(got.stderr.count(part), 1, got.stderr)
                self.assertFalse(os.path.exists(self.path("out")))

    def test_damaged_files_are_refused(self):
        self.succeed("--export-hf", "first", sets=("train.steps=0",))
        path = self.path("first/model.safetensors")
        with open(path, "rb") as file:
            good = file.read()
        for part, data in (("not a safetensors file", good[:100]),
                           ("ends 8 bytes too early", b""),
                           ("data_offsets: lie outside", good[:-4]),
                           ("4 bytes follow the last tensor", good + b"1234"),
                           ("is not JSON", good[:9] + b"[" + good[10:])):
            with self.subTest(part=part):
                with open(path, "wb") as file:
                    file.write(data)
                self.refuse(part, "--import-hf", "first")
        os.remove(path)
        self.refuse("first/model.safetensors: No such file", "--import-hf",
                    "first")
        self.refuse("none/config.json: No such file", "--import-hf", "none")

    def test_a_place_that_cannot_be_is_refused_at_the_start(self):
        os.mkdir(self.path("taken"))
        for name, part in (("taken", "taken: is there already"),
                           ("taken/", "taken: is there already"),
                           ("text.txt", "text.txt: is there already"),
                           ("", "allowed is the name of a new folder"),
                           ("none/out", "none/out: cannot be made")):
            with self.subTest(name=name):
                got = self.refuse(part, "--export-hf", name)
                self.assertNotIn("step", got.stderr)
        self.assertEqual(os.listdir(self.path("taken")), [])
        got = self.train("--import-hf", "a", "--resume", "b")
        self.assertEqual(got.returncode, 2)
        self.assertIn("--import-hf: is not possible with --resume", got.stderr)

    def test_a_limit_on_files_is_an_error_and_leaves_nothing(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        got = subprocess.run(
            [BIN + "/weft-train", "job.yaml", "--set", "train.steps=1",
             "--export-hf", "out"], text=True, capture_output=True,
            timeout=DEADLINE_S, cwd=self.folder, preexec_fn=limit)
        self.assertEqual(got.returncode, 1, got.stderr)
        self.assertIn("model.safetensors", got.stderr)
        self.assertIn("File too large", got.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["job.yaml", "text.txt"])


if __name__ == "__main__":
    unittest.main()
