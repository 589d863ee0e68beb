# SPDX-License-Identifier: BSD-3-Clause
"""A part of c10d's own tests on weft: test_torch_own.py FOLDER, where
torch_package.py has built. c10d_own.py runs all of them.

Goal: messages with tags and of any source, collectives of each kind, groups,
objects, works, DDP do what c10d's tests say. Method: those tests, on 3 ranks.
All that are named here must pass; one that this torch does not have, or skips,
is told by name. Without torch, or what its tests import: exit status 77."""
import os
import re
import subprocess
import sys

from torch_package import HERE, PYTHON, need_torch, package_of

TESTS = """
    accumulate_gradients_no_sync all_gather all_gather_coalesced_with_empty
    all_gather_complex all_gather_object_subgroup
    all_reduce_coalesced_group_sum all_reduce_complex_unsupported_ops
    all_reduce_group_product all_reduce_sum_async all_to_all_group
    all_to_all_single_unequal_split_complex barrier_group
    batch_isend_irecv_gloo_tags broadcast_group destroy_group gather_group
    get_future grads_same_across_ranks_with_no_sync irecv
    isend_torch_profiler monitored_barrier_wait_all_ranks reduce_group_max
    scatter_full_group scatter_object_list send_recv_any_source
    send_recv_with_tag_torch_profiler
""".split()


def main():
    need_torch("expecttest", "numpy")
    done = subprocess.run(
        [PYTHON, os.path.join(HERE, "c10d_own.py"), "--ranks", "3", "--only",
         "^test_(" + "|".join(TESTS) + ")$"],
        env=dict(os.environ,
                 PYTHONPATH=package_of(os.path.abspath(sys.argv[1]))),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False)
    print(done.stdout)
    passed = re.findall(r"^passed\s+test_(\w+)", done.stdout, re.M)
    lost = sorted(set(TESTS) - set(passed))
    if lost:
        sys.exit("not passed: " + " ".join(lost))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
