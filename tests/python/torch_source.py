# SPDX-License-Identifier: BSD-3-Clause
"""The tests of test/distributed in PyTorch's repository on weft, nothing of
them changed.

    pip install --no-build-isolation ./python
    python3 tests/python/torch_source.py --torch-source FOLDER

FOLDER is a checkout of the release of the torch that is installed. torch_shim.py
puts weft where these tests ask for gloo. A line a test that has not passed:
failed (its last words), hung, cannot (a failure that is known, why); then the
totals of each file, and why tests were skipped. Exit status 0: none failed, none
hung."""
import argparse
import collections
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))

# Those that need no GPU, and whose ranks talk by a backend.
FILES = """
    test_c10d_gloo test_c10d_common test_c10d_pypg test_c10d_spawn_gloo
    test_c10d_object_collectives test_c10d_functional_native
    test_functional_api test_inductor_collectives test_device_mesh
    algorithms/test_join optim/test_zero_redundancy_optimizer
    _composable/test_replicate _composable/fsdp/test_fully_shard_init
    _composable/fsdp/test_fully_shard_training
    checkpoint/test_file_system_checkpoint_cpu checkpoint/test_state_dict
    checkpoint/test_dtensor_checkpoint checkpoint/test_dtensor_resharding
    tensor/test_api tensor/test_dtensor tensor/test_init
    tensor/test_redistribute tensor/test_matrix_ops tensor/test_tensor_ops
    tensor/test_pointwise_ops tensor/test_embedding_ops tensor/test_utils
    tensor/test_common_rules tensor/test_math_ops tensor/test_view_ops
    tensor/parallel/test_parallelize_api tensor/parallel/test_tp_style
    tensor/parallel/test_tp_examples
""".split()
OLD = {"tensor/test_": "_tensor/test_"}  # folders of older releases

# A part of a test's name, and why it cannot pass.
CANNOT = {
    "sparse": "weft refuses sparse tensors",
    "_checks": "compares the words of gloo's own errors",
    "ProcessGroupGlooTest.test_allgather_basics": "ranks with several tensors",
    "test_allgather_inference_mode": "ranks with several tensors",
    "test_allgather_noncontiguous_input": "ranks with several tensors",
    "ProcessGroupGlooTest.test_allreduce_basics": "ranks with several tensors",
    "ProcessGroupGlooTest.test_broadcast_basics": "ranks with several tensors",
    "test_set_gloo_pg_timeout": "reads gloo's own options",
    "test_init_process_group_for_all_backends":
        "torch calls each backend that it does not know 'custom'",
    "DispatchedCollectivesTests.test_all_to_all_single":
        "wants what is not contiguous to be refused, and weft takes it",
}


def find_file(folder, name):
    for path in (name, *(name.replace(now, old)
                         for now, old in OLD.items() if now in name)):
        path = os.path.join(folder, "test", "distributed", path + ".py")
        if os.path.exists(path):
            return path
    return None


def run_file(path, options, scratch):
    """{test: (word, why)}; what it printed stays in the logs."""
    name = os.path.basename(path)[:-3]
    verdicts = os.path.join(scratch, name + ".verdicts")
    log = os.path.join(options.logs or scratch, name + ".log")
    environment = dict(
        os.environ, WEFT_TORCH_VERDICTS=verdicts, OMP_NUM_THREADS="1",
        WEFT_TORCH_BACKEND="gloo" if options.gloo else "weft",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(options.limit_s),
        PYTHONPATH=os.pathsep.join(
            [scratch, HERE, os.environ.get("PYTHONPATH", "")]))
    chosen = ["-k", options.tests] if options.tests else []
    with open(log, "w", encoding="utf-8") as out, subprocess.Popen(
            [sys.executable, path, *chosen], cwd=os.path.dirname(path),
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            env=environment, start_new_session=True) as ran:
        try:
            status = ran.wait(options.file_limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                os.killpg(ran.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    found = {}
    if os.path.exists(verdicts):
        with open(verdicts, encoding="utf-8") as file:
            for line in file:
                test, word, why = json.loads(line)
                found[test] = (word, why)
    for test, (word, why) in found.items():
        if word == "began":
            found[test] = ("hung", "")
        if word == "failed" and "timed out after" in why:
            found[test] = ("hung", "")
        why_not = next((text for part, text in CANNOT.items()
                        if part in test), None)
        if found[test][0] in ("failed", "hung") and why_not:
            found[test] = ("cannot", why_not)
    if not found and status != 0:
        with open(log, encoding="utf-8", errors="replace") as file:
            found[name] = ("failed", file.read())
    return found


def last_words(why):
    """The error of the rank that failed first, in a line."""
    lines = [line for line in why.split("\n")
             if re.match(r"[\w.]*(Error|Exception|Failure|Interrupt)\b", line)
             and "exited with error code" not in line]
    return (lines or why.strip().split("\n"))[-1 if lines else 0][:200]


def tell_reasons(reasons):
    for reason, count in reasons.most_common(20):
        print(f"  {count:4} skipped: {reason}")


def read_options():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-source", required=True, metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="REGEX",
                        help="files whose names have this in them")
    parser.add_argument("--tests", metavar="WORD",
                        help="tests that have this in their names")
    parser.add_argument("--limit-s", type=int, default=60,
                        help="seconds a test may take (60)")
    parser.add_argument("--file-limit-s", type=int, default=1800,
                        help="seconds a file may take (1800)")
    parser.add_argument("--logs", metavar="FOLDER",
                        help="keep what each file printed there")
    parser.add_argument("--gloo", action="store_true",
                        help="leave them on gloo: what fails then is not "
                        "weft's")
    return parser.parse_args()


def main():
    options = read_options()
    folder = os.path.join(options.torch_source, "test", "distributed")
    if not os.path.isdir(folder):
        sys.exit(f"--torch-source {options.torch_source}: no test/distributed "
                 "there: it is to be a checkout of PyTorch")
    if options.logs:
        os.makedirs(options.logs, exist_ok=True)
    totals, reasons = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        with open(os.path.join(scratch, "sitecustomize.py"), "w",
                  encoding="utf-8") as file:
            file.write("import torch_shim\n")
        for name in FILES:
            path = find_file(options.torch_source, name)
            if not re.search(options.only, name):
                continue
            if not path:
                print(f"{name}: not in this checkout", flush=True)
                continue
            begun = time.monotonic()
            found = run_file(path, options, scratch)
            words = collections.Counter(word for word, _ in found.values())
            for test, (word, why) in found.items():
                if word == "skipped":
                    reasons[last_words(why)] += 1
                elif word != "passed":
                    print(f"{word:8}{name} {test.split('.', 1)[-1]}"
                          + (f": {last_words(why)}" if why else ""))
            totals += words
            print(f"{name}: " + (", ".join(
                f"{words[word]} {word}" for word in sorted(words))
                or "no tests") + f" ({time.monotonic() - begun:.0f} s)",
                flush=True)
    print(f"{sum(totals.values())} tests: " + ", ".join(
        f"{totals[word]} {word}" for word in sorted(totals)))
    tell_reasons(reasons)
    return 1 if totals["failed"] + totals["hung"] else 0


if __name__ == "__main__":
    sys.exit(main())
