# SPDX-License-Identifier: BSD-3-Clause
"""A step's tensors in plain Python, from docs/training.md alone: what any other
program makes of a checkpoint."""
import hashlib
import json
import math
import os
import struct

SIZES = {"F64": 8, "F32": 4, "I64": 8, "U8": 1}


def digest(data):
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def read_file(path):
    """({section: (dtype, shape, bytes)}, metadata), as the format has it."""
    with open(path, "rb") as file:
        data = file.read()
    length, = struct.unpack("<Q", data[:8])
    table, data = json.loads(data[8:8 + length]), data[8 + length:]
    notes, end, sections = table.pop("__metadata__"), 0, {}
    assert length % 8 == 0 and notes["format"] == "pt"
    for name, row in sorted(table.items(),
                            key=lambda item: item[1]["data_offsets"]):
        start, stop = row["data_offsets"]
        assert start == end, name
        assert stop - start == SIZES[row["dtype"]] * math.prod(row["shape"])
        sections[name] = (row["dtype"], row["shape"], data[start:stop])
        end = stop
    assert end == len(data)
    return sections, notes


def join(parts, dtype, shape):
    """Parts by offset in elements; there is no gap and no overlap."""
    data = b""
    for offset in sorted(parts):
        assert offset * SIZES[dtype] == len(data)
        data += parts[offset]
    assert len(data) == SIZES[dtype] * math.prod(shape)
    return dtype, shape, data


def join_all(files):
    """{tensor: (dtype, shape, bytes)} of files as read_file gives them."""
    parts, kinds = {}, {}
    for sections, notes in files:
        for name, (dtype, own, data) in sections.items():
            tensor, _, offset = name.partition("@")
            known, *shape = notes[name].split()
            assert known == digest(data), name
            shape = [int(side) for side in shape if side != "0"]
            assert own == ([len(data) // SIZES[dtype]] if offset else shape)
            assert kinds.setdefault(tensor, (dtype, shape)) == (dtype, shape)
            parts.setdefault(tensor, {})[int(offset or 0)] = data
    return {tensor: join(parts[tensor], *kinds[tensor]) for tensor in parts}


def read_step(step):
    """All tensors; and the facts of the step."""
    with open(os.path.join(step, "index.json"), "rb") as file:
        text = file.read()
    with open(os.path.join(step, "DONE")) as file:
        done = file.read()
    assert done.endswith(", index %s\n" % digest(text)), done
    index = json.loads(text)
    assert sorted(index) == sorted(name for name in os.listdir(step)
                                   if name.endswith(".safetensors"))
    files = [read_file(os.path.join(step, name)) for name in index]
    for header, (sections, notes) in zip(index.values(), files):
        assert header.pop("__metadata__") == notes
        assert set(header) == set(sections)
    facts, = {notes["weft"] for _, notes in files}
    return join_all(files), dict(one.split(" ", 1) for one in facts.split(", "))
