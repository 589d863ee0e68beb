# SPDX-License-Identifier: BSD-3-Clause
"""A Llama in plain Python, with GLM-4.5's experts where a model has them, and
its files: what other programs make of a model that weft-train has exported.
Written from the formats' and the models' descriptions, with nothing of weft's
in it."""
import json
import math
import struct

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def read_tensors(path):
    """{name: (dtype, shape, bytes)}, of a file that keeps every rule."""
    with open(path, "rb") as file:
        data = file.read()
    length, = struct.unpack("<Q", data[:8])
    header = data[8:8 + length]
    assert header[:1] == b"{" and header.rstrip(b" ")[-1:] == b"}", header
    assert length % 8 == 0, length
    table = json.loads(header)
    assert table.pop("__metadata__") == {"format": "pt"}
    data, end, tensors = data[8 + length:], 0, {}
    for name, row in sorted(table.items(),
                            key=lambda item: item[1]["data_offsets"]):
        start, stop = row["data_offsets"]
        assert start == end, name
        assert stop - start == SIZES[row["dtype"]] * math.prod(row["shape"])
        tensors[name] = (row["dtype"], row["shape"], data[start:stop])
        end = stop
    assert end == len(data)
    return tensors


def write_tensors(path, tensors, metadata=None):
    header, data = {"__metadata__": metadata or {"format": "pt"}}, b""
    for name, (dtype, shape, own) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(own)]}
        data += own
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def floats(tensor):
    dtype, shape, data = tensor
    assert dtype == "F32"
    numbers = struct.unpack("<%df" % (len(data) // 4), data)
    if len(shape) == 1:
        return list(numbers)
    return [numbers[row * shape[1]:(row + 1) * shape[1]]
            for row in range(shape[0])]


def linear(weight, x):
    return [sum(w * v for w, v in zip(row, x)) for row in weight]


def norm(weight, x, epsilon):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + epsilon)
    return [w * v * scale for w, v in zip(weight, x)]


def softmax(values):
    most = max(values)
    weights = [math.exp(v - most) for v in values]
    return [w / sum(weights) for w in weights]


def rotate(x, position, theta):
    """x cos + rotate_half(x) sin, the two halves of a head side by side."""
    half = len(x) // 2
    turns = [position * theta ** (-2 * i / len(x)) for i in range(half)] * 2
    turned = [-v for v in x[half:]] + x[:half]
    return [v * math.cos(a) + t * math.sin(a)
            for v, t, a in zip(x, turned, turns)]


class Llama:
    def __init__(self, folder):
        with open(folder + "/config.json") as file:
            self.config = json.load(file)
        self.tensors = {name: floats(tensor) for name, tensor in
                        read_tensors(folder + "/model.safetensors").items()}

    def attend(self, layer, normed):
        own, size = self.config, self.config["head_dim"]
        shared = own["num_attention_heads"] // own["num_key_value_heads"]
        q, k, v = ([[row[i:i + size] for i in range(0, len(row), size)]
                    for row in (linear(self.weight(
                        layer, "self_attn.%s_proj" % which), x)
                        for x in normed)] for which in "qkv")
        for t in range(len(normed)):
            q[t] = [rotate(head, t, own["rope_theta"]) for head in q[t]]
            k[t] = [rotate(head, t, own["rope_theta"]) for head in k[t]]
        out = []
        for t in range(len(normed)):
            row = []
            for head, query in enumerate(q[t]):
                kv = head // shared
                weights = softmax([sum(a * b for a, b in zip(query, k[s][kv]))
                                   / math.sqrt(size) for s in range(t + 1)])
                row += [sum(w * v[s][kv][i] for s, w in enumerate(weights))
                        for i in range(size)]
            out.append(linear(self.weight(layer, "self_attn.o_proj"), row))
        return out

    def weight(self, layer, name):
        return self.tensors["model.layers.%d.%s.weight" % (layer, name)]

    def network(self, layer, name, x):
        gate = linear(self.weight(layer, name + ".gate_proj"), x)
        up = linear(self.weight(layer, name + ".up_proj"), x)
        return linear(self.weight(layer, name + ".down_proj"),
                      [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)])

    def choose(self, layer, x):
        """Experts of a token, and their weights, which add up to 1."""
        own = self.config
        bias = self.tensors["model.layers.%d.mlp.gate.e_score_correction_bias"
                            % layer]
        affinity = [1 / (1 + math.exp(-v))
                    for v in linear(self.weight(layer, "mlp.gate"), x)]
        score = [a + b for a, b in zip(affinity, bias)]
        each = own["n_routed_experts"] // own["n_group"]
        groups = [range(g * each, (g + 1) * each)
                  for g in range(own["n_group"])]
        groups.sort(key=lambda group: -sum(sorted(
            (score[e] for e in group), reverse=True)[:2]))
        allowed = [e for group in groups[:own["topk_group"]] for e in group]
        chosen = sorted(allowed, key=lambda e: (-score[e], e))
        chosen = chosen[:own["num_experts_per_tok"]]
        total = sum(affinity[e] for e in chosen) if own["norm_topk_prob"] else 1
        return [(e, affinity[e] / total * own["routed_scaling_factor"])
                for e in chosen]

    def feed(self, layer, x):
        if layer >= self.config.get("first_k_dense_replace", layer + 1):
            parts = [[v * weight for v in self.network(
                layer, "mlp.experts.%d" % expert, x)]
                for expert, weight in self.choose(layer, x)]
            if self.config["n_shared_experts"] > 0:
                parts.append(self.network(layer, "mlp.shared_experts", x))
            return [sum(part) for part in zip(*parts)]
        return self.network(layer, "mlp", x)

    def logits(self, tokens):
        epsilon = self.config["rms_norm_eps"]
        embedding = self.tensors["model.embed_tokens.weight"]
        x = [list(embedding[token]) for token in tokens]
        for layer in range(self.config["num_hidden_layers"]):
            first = self.weight(layer, "input_layernorm")
            second = self.weight(layer, "post_attention_layernorm")
            added = self.attend(layer, [norm(first, row, epsilon)
                                        for row in x])
            x = [[a + b for a, b in zip(*rows)] for rows in zip(x, added)]
            added = [self.feed(layer, norm(second, row, epsilon)) for row in x]
            x = [[a + b for a, b in zip(*rows)] for rows in zip(x, added)]
        head = (embedding if self.config["tie_word_embeddings"]
                else self.tensors["lm_head.weight"])
        return [linear(head, norm(self.tensors["model.norm.weight"], row,
                                  epsilon)) for row in x]

    def loss(self, tokens):
        """Each token's, in nats, from those before it."""
        return [-math.log(softmax(row)[target])
                for row, target in zip(self.logits(tokens[:-1]), tokens[1:])]
