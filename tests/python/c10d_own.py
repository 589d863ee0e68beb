# SPDX-License-Identifier: BSD-3-Clause
"""c10d's own tests on weft: those that PyTorch's wheel brings along
(torch.testing._internal.distributed.distributed_test), nothing of it changed.

    pip install --no-build-isolation ./python
    python3 tests/python/c10d_own.py --ranks 4

A line a test: passed, failed (the last words), hung, skipped (why), cannot (a
failure that is known, why); then the totals. Exit status 0: none failed, none
hung.

These tests ask for backends by name: what any backend of host memory should
pass says "only gloo" or "only mpi". So the name "weft" equals these two there;
the ranks' backend is weft and nothing else. Tests of a group of ranks 1 and 2
run on 3 ranks or more; c10d asks for 8. Each test has ranks forked for it, a
session of processes of its own, and a limit of time."""
import argparse
import importlib
import os
import re
import signal
import sys
import tempfile
import time
import unittest
import unittest.mock

SUITE = "torch.testing._internal.distributed.distributed_test"
CANNOT = {
    "test_ddp_logging_data_cpu":
        "DDP's log calls each backend that torch does not know 'custom'",
    "test_sparse_all_reduce_sum": "weft refuses sparse tensors",
}


class AlsoKnown(str):
    """A name that c10d's tests take for that of a backend they know."""

    def __eq__(self, other):
        return other in ("weft", "gloo", "mpi")

    def __ne__(self, other):
        return not self == other

    __hash__ = "gloo".__hash__

    def lower(self):
        return "weft"


def load_suite(ranks):
    os.environ.update(BACKEND="weft", WORLD_SIZE=str(ranks),
                      INIT_METHOD="file://", OMP_NUM_THREADS="1")
    os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
    try:
        import expecttest  # noqa: F401 (c10d's tests import it)
        import torch
    except ImportError as lack:
        sys.exit(f"{lack}: c10d's tests need torch, numpy and expecttest")
    import weft_torch  # noqa: F401 (registers the backend)
    from torch.testing._internal import common_distributed
    torch.set_num_threads(1)
    common_distributed.skip_if_small_worldsize = unittest.skipIf(
        ranks < 3, "its group is of ranks 1 and 2")
    common_distributed.DistTestCases.backend_feature["plugin"].add("weft")
    plain = os.environ.decodevalue

    def decode(value):
        text = plain(value)
        return AlsoKnown(text) if text == "weft" else text
    with unittest.mock.patch.object(os.environ, "decodevalue", decode):
        suite = importlib.import_module(SUITE)
    for known in (suite.PROFILING_SUPPORTED_BACKENDS,
                  suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        known.append("weft")
    return suite


def make_case(suite, limit_s):
    import torch.multiprocessing
    from torch.testing._internal import common_distributed
    common_distributed.TIMEOUT_OVERRIDE.clear()
    common_distributed.TIMEOUT_DEFAULT = limit_s
    suite.default_pg_timeout = min(60, limit_s)
    suite.CUSTOM_PG_TIMEOUT.pop("test_ddp_uneven_inputs", None)
    suite.Barrier.sync.__func__.__defaults__ = (None, limit_s)
    forked = torch.multiprocessing.get_context("fork")

    class Own(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        """All that c10d's tests need is loaded once, and forked."""

        def setUp(self):
            super().setUp()
            suite.INIT_METHOD = os.environ["INIT_METHOD"]  # a file of its own
            self._start_processes(forked.Process)
    return Own


class Verdict(unittest.TestResult):
    """What became of one test, in words."""
    word, why = "passed", ""

    def addSkip(self, test, reason):
        self.word, self.why = "skipped", reason

    def addFailure(self, test, err):
        self.word = "failed"
        self.why = "".join(unittest.TestResult._exc_info_to_string(
            self, err, test))

    addError = addFailure


class Running:
    """One test, in a session of its own that ends with it."""

    def __init__(self, case, name, limit_s, logs):
        self.name = name
        self.until = time.monotonic() + limit_s + 15
        self.begun = time.monotonic()
        self.log = os.path.join(logs, name + ".log")
        self.told = os.path.join(logs, name + ".verdict")
        self.pid = os.fork()
        if self.pid == 0:
            self.run(case)

    def run(self, case):
        os.setsid()
        out = os.open(self.log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        verdict = Verdict()
        case(self.name).run(verdict)
        with open(self.told + ".new", "w", encoding="utf-8") as file:
            file.write(verdict.word + "\n" + verdict.why)
        os.rename(self.told + ".new", self.told)
        sys.stdout.flush()
        os._exit(0)

    def ended(self):
        """None while it runs, else its verdict."""
        if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() < self.until:
                return None
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        else:
            try:
                os.killpg(self.pid, signal.SIGKILL)  # what it left behind
            except ProcessLookupError:
                pass
        if not os.path.exists(self.told):
            return "hung", "all its processes were ended"
        with open(self.told, encoding="utf-8") as file:
            word, why = file.read().split("\n", 1)
        if word == "failed" and "or timed out after" in why:
            word = "hung"
        if word == "failed" and self.name in CANNOT:
            return "cannot", CANNOT[self.name]
        return word, why


def last_words(why):
    """The error of the rank that failed first, in a line."""
    lines = [line for line in why.split("\n")
             if re.match(r"\S*(Error|Exception|Failure|Interrupt)\b", line)]
    lines = [line for line in lines if "exited with error code" not in line]
    return (lines or why.strip().split("\n"))[0][:200]


def run_all(case, names, options, logs):
    waiting, running, found = list(names), [], {}
    while waiting or running:
        while waiting and len(running) < options.jobs:
            running.append(Running(case, waiting.pop(0), options.limit_s, logs))
        time.sleep(0.02)
        for one in list(running):
            verdict = one.ended()
            if verdict:
                running.remove(one)
                found[one.name] = verdict
                print(f"{verdict[0]:8}{one.name} "
                      f"({time.monotonic() - one.begun:.1f} s)"
                      + (f": {last_words(verdict[1])}" if verdict[1] else ""),
                      flush=True)
    return found


def tell_totals(found, ranks):
    by_word = {word: [name for name in sorted(found) if found[name][0] == word]
               for word in ("passed", "failed", "hung", "cannot", "skipped")}
    print(f"{len(found)} tests on {ranks} ranks: " + ", ".join(
        f"{len(names)} {word}" for word, names in by_word.items()))
    reasons = {}
    for name in by_word["skipped"]:
        reasons.setdefault(last_words(found[name][1]), []).append(name)
    for reason, names in sorted(reasons.items(), key=lambda it: -len(it[1])):
        print(f"  {len(names):4} skipped: {reason}")
    return len(by_word["failed"]) + len(by_word["hung"])


def read_options():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="2 to 4 (4)")
    parser.add_argument("--jobs", type=int, default=1,
                        help="so many tests at once (1)")
    parser.add_argument("--limit-s", type=int, default=120,
                        help="seconds a test may take (120)")
    parser.add_argument("--only", default="", metavar="REGEX",
                        help="tests whose names have this in them")
    parser.add_argument("--without", metavar="REGEX",
                        help="but not those that have this")
    parser.add_argument("--list", action="store_true", help="names, no runs")
    parser.add_argument("--logs", metavar="FOLDER",
                        help="keep what each test printed there")
    return parser.parse_args()


def main():
    options = read_options()
    if not 2 <= options.ranks <= 4:
        sys.exit(f"--ranks {options.ranks}: allowed are 2 to 4")
    suite = load_suite(options.ranks)
    case = make_case(suite, options.limit_s)
    names = [name for name in unittest.TestLoader().getTestCaseNames(case)
             if re.search(options.only, name)
             and not (options.without and re.search(options.without, name))]
    if not names:
        sys.exit(f"--only {options.only}: no test has that in its name")
    if options.list:
        print("\n".join(names))
        return 0
    with tempfile.TemporaryDirectory() as made:
        logs = options.logs or made
        os.makedirs(logs, exist_ok=True)
        failed = tell_totals(run_all(case, names, options, logs),
                             options.ranks)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
