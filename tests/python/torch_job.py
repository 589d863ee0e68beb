# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of a program for tests of weft_torch: processes that meet on the
loopback."""
import os
import socket
import subprocess
import time

from torch_package import HERE, PYTHON

LIMIT_S = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(test, folder, program, check, size, ends=None, more=None):
    """Runs a check of program on all ranks; ends: what they exit with, else 0;
    more: of their environment."""
    common = dict(os.environ, WORLD_SIZE=str(size),
                  LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(free_port()), OMP_NUM_THREADS="1",
                  PYTHONPATH=folder, **(more or {}))
    started = [subprocess.Popen(
        [PYTHON, os.path.join(HERE, program), check],
        env=dict(common, RANK=str(rank)), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True) for rank in range(size)]
    until = time.monotonic() + LIMIT_S
    texts = []
    try:
        for one in started:
            texts.append(one.communicate(
                timeout=max(1, until - time.monotonic()))[0])
    finally:
        for one in started:
            one.kill()
            one.wait()
    test.assertEqual([one.returncode for one in started],
                     ends or [0] * size, "\n".join(texts))
    return texts
