# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed over weft, of tensors on a GPU: test_torch_gpu.py FOLDER
FAKE, where torch_package.py has built, and the folder of the fake driver and
runtime (docs/testing.md). Runs torch_gpu_ranks.py's checks on 2 and 3 ranks, on
two devices. Without a torch of CUDA 13 there is nothing to test: exit status
77."""
import os
import subprocess
import sys
import unittest

from torch_job import run_ranks
from torch_package import PYTHON, need_torch, package_of

FAKE = os.path.abspath(sys.argv.pop(2))
FOLDER = package_of(os.path.abspath(sys.argv.pop(1)))
DEVICES = {"LD_PRELOAD": os.path.join(FAKE, "libcudart.so.13"),
           "WEFT_KERNELS": os.path.join(FAKE, "fake_kernels.so"),
           "WEFT_FAKE_GPU_COUNT": "2"}


class TorchGpu(unittest.TestCase):
    def ranks(self, check, size, ends=None, **more):
        return run_ranks(self, FOLDER, "torch_gpu_ranks.py", check, size, ends,
                         dict(DEVICES, **more))

    def test_collectives(self):
        for size in (2, 3):
            with self.subTest(size=size):
                self.ranks("collectives", size)

    def test_messages(self):
        for size in (2, 3):
            with self.subTest(size=size):
                self.ranks("messages", size)

    def test_streams(self):
        self.ranks("streams", 2)

    def test_works(self):
        self.ranks("works", 3)

    def test_works_that_nobody_keeps(self):
        self.ranks("dropped", 3)

    def test_ranks_that_leave(self):
        self.ranks("leaving", 2)

    def test_a_lost_gpu_ends_no_program(self):
        self.ranks("lost", 2, WEFT_FAKE_GPU_ERROR="700@300")

    def test_refusals(self):
        self.ranks("refusals", 2)

    def test_killed_rank_is_named(self):
        self.ranks("killed", 3, [0, 0, -9])

    def test_mismatch_names_both_sides(self):
        self.ranks("mismatch", 2)

    def test_abort_ends_what_waits(self):
        self.ranks("abort", 3)

    def test_limits_of_time(self):
        self.ranks("limit", 2)


def need_cuda_torch():
    """Ends the test as skipped where torch is without CUDA, or of another."""
    done = subprocess.run(
        [PYTHON, "-c", "import torch; print(torch.version.cuda)"],
        capture_output=True, text=True, check=False)
    version = done.stdout.strip()
    if not version.startswith("13."):
        print(f"{PYTHON}: its torch is for CUDA {version or done.stderr}: "
              "nothing to test tensors on a GPU with; a torch of CUDA 13, "
              "named by WEFT_TORCH_PYTHON, could")
        sys.exit(77)


if __name__ == "__main__":
    need_torch()
    need_cuda_torch()
    unittest.main(verbosity=2)
