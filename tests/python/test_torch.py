# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed over weft: test_torch.py FOLDER, where torch_package.py has
built; runs the checks of torch_ranks.py and torch_group_ranks.py on 2 to 4
ranks. Without a torch of 2.1 or later there is nothing to test: exit status
77."""
import os
import subprocess
import sys
import unittest

from torch_job import run_ranks
from torch_package import HERE, PYTHON, need_torch, package_of

FOLDER = package_of(os.path.abspath(sys.argv.pop(1)))


class Torch(unittest.TestCase):
    def ranks(self, check, size, ends=None):
        """Runs a check on all ranks; ends: what they exit with, else 0."""
        return run_ranks(self, FOLDER, "torch_ranks.py", check, size, ends)

    def every(self, check, sizes=(2, 3)):
        for size in sizes:
            with self.subTest(size=size):
                self.ranks(check, size)

    def test_reductions(self):
        self.every("reductions")

    def test_moves(self):
        self.every("moves", (2, 4))

    def test_scattered_sums(self):
        self.every("scattered_sums")

    def test_what_is_not_dense(self):
        self.every("pieces")

    def test_messages(self):
        self.every("messages", (2, 4))

    def test_tags(self):
        self.every("tags")

    def test_any_source(self):
        self.every("any_source", (3,))

    def test_ranks_that_leave(self):
        self.every("leaving", (3,))

    def test_works_that_nobody_keeps(self):
        self.every("dropped", (2,))

    def test_monitored_barrier(self):
        self.every("monitored", (3,))

    def test_limits_of_time(self):
        self.every("limits", (2,))

    def test_works_and_futures(self):
        self.every("work")

    def test_groups(self):
        self.every("groups", (4,))

    def asked(self, checks, size, ends=None):
        run_ranks(self, FOLDER, "torch_group_ranks.py", checks, size, ends)

    def test_what_groups_are_asked(self):
        self.asked("gathers,pending,untold", 3)

    def test_limits_that_are_set(self):
        self.asked("limits", 2)

    def test_splits(self):
        self.asked("splits", 4)

    def test_shrinks(self):
        self.asked("shrinks", 3)

    def test_shrinks_after_a_death(self):
        self.asked("shrinks_after_death", 4, [0, 0, 0, -9])

    def test_refusals(self):
        self.every("refusals", (2,))

    def test_training(self):
        self.every("training", (2,))

    def test_pipelines(self):
        self.every("pipelines")

    def test_tensor_parallel(self):
        self.every("tensor_parallel")

    def test_killed_rank_is_named(self):
        self.ranks("killed", 3, [0, 0, -9])

    def test_mismatch_names_both_sides(self):
        texts = self.ranks("mismatch", 2)
        for rank in (0, 1):  # whoever found it stands first
            self.assertIn(f"rank {rank} posted all_reduce of {10 + rank} f32, "
                          "sum", "".join(texts))

    def test_abort_ends_what_waits(self):
        self.ranks("abort", 3)

    def test_abort_ends_a_shutdown(self):
        self.ranks("abort_of_shutdown", 2)

    def test_ranks_that_end_in_any_way(self):
        done = subprocess.run(
            [PYTHON, os.path.join(HERE, "torch_leavings.py"), "--rounds",
             "24"], env=dict(os.environ, PYTHONPATH=FOLDER, OMP_NUM_THREADS="1"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_shutdown_ends_what_is_pending(self):
        self.ranks("shutdown", 2)


if __name__ == "__main__":
    need_torch()
    unittest.main(verbosity=2)
