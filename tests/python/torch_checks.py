# SPDX-License-Identifier: BSD-3-Clause
"""What the checks of a rank have in common, whichever memory they are of."""
import os

import torch

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
RANKS = range(SIZE)


def values(rank, count, dtype=torch.float32):
    """Small whole numbers: their sums are exact in every type."""
    return ((torch.arange(count) * 7 + rank * 3) % 5).to(dtype)


def refuses(error, text, call, *args, **options):
    try:
        call(*args, **options)
    except error as failure:
        assert text in str(failure), str(failure)
    else:
        raise AssertionError(f"{call} was not refused: {text}")


def same(found, expected):
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    assert torch.equal(found, expected), (found, expected)
