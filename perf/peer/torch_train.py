# SPDX-License-Identifier: BSD-3-Clause
"""torch_train.py JOB.json - one rank of PyTorch at weft-train's work: the model
that JOB's folder holds (weft-train --export-hf), the same sequences in the same
order, AdamW with the same constants and rates. Rank 0 writes the losses and the
times of the steps to JOB's "out". RANK and WORLD_SIZE as torchrun sets them."""
import contextlib
import json
import os
import struct
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

ALL_BITS = (1 << 64) - 1
STREAM_SHIFT, STREAM_ORDER = 1, 2


def mix(value):
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & ALL_BITS
    value = (value ^ value >> 27) * 0x94D049BB133111EB & ALL_BITS
    return value ^ value >> 31


def mix_at(key, counter):
    return mix(mix(key) + (counter + 1) * 0x9E3779B97F4A7C15 & ALL_BITS)


def permute(key, count, value):
    """trainer/data/data.c has it, and where it is from."""
    half = 1
    while half < 32 and (count - 1) >> 2 * half:
        half += 1
    while True:
        left, right = value >> half, value & (1 << half) - 1
        for turn in range(4):
            noise = mix_at(mix_at(key, turn), right)
            left, right = right, left ^ noise & (1 << half) - 1
        value = left << half | right
        if value < count:
            return value


def window_start(job, number):
    seq = job["seq"]
    count = max((job["train_count"] - seq) // seq, 1)
    epoch = number // count
    slack = job["train_count"] - 1 - count * seq
    shifts = slack + 1 if slack < seq else seq
    shift = mix_at(mix_at(job["seed"], STREAM_SHIFT), epoch) % shifts
    order = mix_at(mix_at(job["seed"], STREAM_ORDER), epoch)
    return shift + permute(order, count, number % count) * seq


def read_tensors(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    length, = struct.unpack("<Q", data[:8])
    table = json.loads(data[8:8 + length])
    table.pop("__metadata__", None)
    body = memoryview(data)[8 + length:]
    return {name: torch.frombuffer(body[slice(*row["data_offsets"])],
                                   dtype=torch.float32).view(row["shape"])
            for name, row in table.items()}


def linear(*weights):
    weight = torch.cat(weights)
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    made.weight.data.copy_(weight)
    return made


class Layer(nn.Module):
    def __init__(self, job, tensors, at):
        super().__init__()
        self.heads, self.kv_heads = job["heads"], job["kv_heads"]
        name = f"model.layers.{at}."
        self.norms = nn.ParameterList(
            tensors[name + norm + ".weight"].clone()
            for norm in ("input_layernorm", "post_attention_layernorm"))
        self.qkv = linear(*(tensors[f"{name}self_attn.{part}_proj.weight"]
                            for part in "qkv"))
        self.out = linear(tensors[name + "self_attn.o_proj.weight"])
        self.gate_up = linear(tensors[name + "mlp.gate_proj.weight"],
                              tensors[name + "mlp.up_proj.weight"])
        self.down = linear(tensors[name + "mlp.down_proj.weight"])

    def forward(self, x, cos, sin):
        batch, seq, width = x.shape
        both = self.heads + self.kv_heads
        row = self.qkv(F.rms_norm(x, (width,), self.norms[0], 1e-6))
        row = row.view(batch, seq, both + self.kv_heads, -1).transpose(1, 2)
        turned = row[:, :both]
        half = turned.shape[-1] // 2
        one, two = turned[..., :half], turned[..., half:]
        turned = torch.cat((one * cos - two * sin, two * cos + one * sin), -1)
        seen = F.scaled_dot_product_attention(
            turned[:, :self.heads], turned[:, self.heads:], row[:, both:],
            is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, seq, width))
        gate, up = self.gate_up(
            F.rms_norm(x, (width,), self.norms[1], 1e-6)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, job, tensors):
        super().__init__()
        size = job["hidden"] // job["heads"]
        angle = torch.outer(
            torch.arange(job["seq"], dtype=torch.float64),
            10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size))
        self.register_buffer("cos", angle.cos().float())
        self.register_buffer("sin", angle.sin().float())
        self.embedding = nn.Embedding.from_pretrained(
            tensors["model.embed_tokens.weight"].clone(), freeze=False)
        self.layers = nn.ModuleList(Layer(job, tensors, at)
                                    for at in range(job["layers"]))
        self.norm = nn.Parameter(tensors["model.norm.weight"].clone())
        self.head = linear(tensors["lm_head.weight"])

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        x = self.head(F.rms_norm(x, x.shape[-1:], self.norm, 1e-6))
        return F.cross_entropy(x.flatten(0, 1), targets.flatten())


def make_optimizer(job, model):
    bare = [p for name, p in model.named_parameters()
            if "norm" in name or "embedding" in name]
    named = {id(p) for p in bare}
    rest = [p for p in model.parameters() if id(p) not in named]
    return torch.optim.AdamW(
        [{"params": rest, "weight_decay": job["weight_decay"]},
         {"params": bare, "weight_decay": 0.0}],
        betas=job["betas"], eps=job["eps"], fused=True)


class Run:
    def __init__(self, job, rank, nranks):
        self.job, self.rank, self.nranks = job, rank, nranks
        with open(job["text"], "rb") as file:
            self.text = torch.frombuffer(bytearray(file.read()),
                                         dtype=torch.uint8).long()
        self.device = torch.device(
            "cuda:0" if job["device"] == "cuda" else "cpu")
        model = Model(job, read_tensors(job["model"])).to(self.device)
        self.model, self.calls = model, model
        if nranks > 1:
            self.calls = nn.parallel.DistributedDataParallel(model)
        if job["compiled"]:
            self.calls = torch.compile(self.calls)
        self.optimizer = make_optimizer(job, model)

    def batch(self, first):
        rows = [self.text[start:start + self.job["seq"] + 1]
                for start in (window_start(self.job, first + i)
                              for i in range(self.job["micro"]))]
        block = torch.stack(rows).to(self.device)
        return block[:, :-1], block[:, 1:]

    def step(self, number):
        job, total = self.job, torch.zeros((), device=self.device)
        micros = job["global"] // job["micro"] // self.nranks
        for at in range(micros):
            first = job["micro"] * (self.rank * micros + at)
            hold = (self.calls.no_sync() if self.nranks > 1 and at + 1 < micros
                    else contextlib.nullcontext())
            with hold:
                with torch.autocast(self.device.type, torch.bfloat16,
                                    enabled=job["dtype"] == "bf16"):
                    loss = self.calls(
                        *self.batch(number * job["global"] + first))
                (loss / micros).backward()
            total += loss.detach() / micros
        nn.utils.clip_grad_norm_(self.model.parameters(), job["clip"])
        for group in self.optimizer.param_groups:
            group["lr"] = job["rates"][number]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return total.item()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    rank = int(os.environ.get("RANK", "0"))
    nranks = int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(1)
    if nranks > 1:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
        dist.init_process_group("gloo")
    run = Run(job, rank, nranks)
    losses, times = [], []
    for number in range(job["steps"]):
        start = time.perf_counter()
        losses.append(run.step(number))
        times.append(1e3 * (time.perf_counter() - start))
    if nranks > 1:
        mean = torch.tensor(losses, dtype=torch.float64) / nranks
        dist.all_reduce(mean)
        losses = mean.tolist()
    if rank == 0:
        with open(job["out"], "w", encoding="utf-8") as file:
            json.dump({"loss": losses, "step_ms": times,
                       "parameters": sum(p.numel()
                                         for p in run.model.parameters()),
                       "torch": torch.__version__,
                       "on": torch.cuda.get_device_name()
                       if job["device"] == "cuda"
                       else torch.backends.cpu.get_cpu_capability()}, file)
    if nranks > 1:
        dist.destroy_process_group()


main()
