#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_flight.py BIN_DIR

Goal: SIGUSR1 makes weft-perf and weft-train print the flight record of all
ranks, as often as it comes, and ends nothing.
Method: start each under weft-run, wait until its ranks hold the signal back,
send it to weft-run, which forwards it, and wait for the record of every rank's
view.
"""
import signal
import subprocess
import sys
import tempfile
import threading
import time

BIN = sys.argv[1]
DEADLINE_S = 60
CONFIG = """
model: {layers: 1, hidden_size: 32, heads: 2, kv_heads: 1, ffn_size: 48,
        seq_length: 32}
data: {paths: [text.txt], validation_fraction: 0}
train: {steps: 1000000, micro_batch_size: 1, global_batch_size: 4}
checkpoint: {every: 0}
"""


class Job:
    """A job whose output is read as it comes."""

    def __init__(self, *program):
        self.text = ""
        self.process = subprocess.Popen(
            [BIN + "/weft-run", "-n", "2", "--timeout", str(DEADLINE_S),
             *program],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.text += line

    def until(self, right, what):
        end = time.monotonic() + DEADLINE_S
        while not right():
            if time.monotonic() > end or self.process.poll() is not None:
                print("FAILED: waited for %s:\n%s" % (what, self.text))
                sys.exit(1)
            time.sleep(0.01)

    def listens(self):
        """Whether both ranks have the signal blocked, so that it may come; all
        signals are blocked for a moment wherever threads are started."""
        pid = self.process.pid
        path = "/proc/%d/task/%d/children" % (pid, pid)
        ranks = 0
        for child in open(path).read().split():
            status = open("/proc/%s/status" % child).read()
            mask = int(status.split("SigBlk:")[1].split()[0], 16)
            name = status.split("Name:")[1].split()[0]
            usr1, term = (mask >> (number - 1) & 1
                          for number in (signal.SIGUSR1, signal.SIGTERM))
            ranks += name != "weft-run" and usr1 and not term
        return ranks == 2

    def ask(self, times):
        """Sends until the record has come so often."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.05)
        return self.seen_by(0) >= times and self.seen_by(1) >= times

    def seen_by(self, rank):
        return self.text.count('"world", 2 ranks, seen by rank %d, ' % rank)


def check(job):
    try:
        ask_thrice(job)
    finally:
        job.process.terminate()
        job.process.wait(DEADLINE_S)


def ask_thrice(job):
    job.until(job.listens, "the beginning")
    for times in (1, 2, 3):
        job.until(lambda: job.ask(times), "record %d" % times)
        job.until(lambda: job.text.count("rank 1: completed #") >= 2 * times,
                  "what rank 1 has done")
    if " -" in "".join(part for part in job.text.split("(")
                       if part.endswith("s ago)")):
        print("FAILED: a negative age:\n" + job.text)
        sys.exit(1)


def main():
    # As an exception, so that the folder and the job go with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="weft-flight-") as folder:
        with open(folder + "/text.txt", "w") as file:
            file.write("warp and weft " * 400)
        with open(folder + "/job.yaml", "w") as file:
            file.write(CONFIG)
        check(Job(BIN + "/weft-perf", "all_reduce", "-b", "256K", "-e", "256K",
                  "-n", "1000000", "-w", "1"))
        check(Job(BIN + "/weft-train", folder + "/job.yaml"))
    print("both programs answer")


main()
