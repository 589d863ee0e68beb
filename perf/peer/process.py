# SPDX-License-Identifier: BSD-3-Clause
"""One program at a time: bounded, its last line of JSON read, and what else
used the machine meanwhile."""
import json
import os
import resource
import signal
import subprocess

LIMIT_S = 300


class Failure(Exception):
    """What ends a run, or a peer's part in it, with one line."""


class Wrong(Failure):
    """The library's results were not what they must be."""


class Signals:
    """SIGINT and SIGTERM as KeyboardInterrupt, but never while a program is
    being started: nobody could end it yet."""
    starting = False
    came = False

    @classmethod
    def take(cls):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, cls.handle)

    @classmethod
    def handle(cls, _number, _frame):
        cls.came = True
        if not cls.starting:
            raise KeyboardInterrupt

    @classmethod
    def started(cls):
        cls.starting = False
        if cls.came:
            raise KeyboardInterrupt


def run(command, limit_s=LIMIT_S):
    """(exit status, stdout, stderr); its whole process group ends with it."""
    Signals.starting = True
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True,
                              errors="replace",
                              start_new_session=True) as process:
            try:
                Signals.started()
                out, errors = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                end(process)
                raise Failure(f"{os.path.basename(command[0])} has not ended "
                              f"after {limit_s} s") from None
            except KeyboardInterrupt:
                end(process)
                raise
    finally:
        Signals.starting = False
    return process.returncode, out, errors


def end(process):
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def document(out):
    """The last line of JSON, or None."""
    lines = [line for line in out.splitlines() if line.startswith("{")]
    try:
        return json.loads(lines[-1]) if lines else None
    except json.JSONDecodeError:
        return None


def rows_of(command, limit_s=LIMIT_S):
    """[(bytes, [us, ...]), ...] in the order of the sizes asked for."""
    status, out, errors = run(command, limit_s)
    rows = (document(out) or {}).get("rows", [])
    for row in rows:
        if row["wrong"] != 0:
            raise Wrong(f"{row['op']} of {row['bytes']} bytes: {row['wrong']} "
                        "elements are wrong")
    if status != 0 or not rows:
        lines = [line for line in errors.splitlines() if line.strip(" -=")]
        # A peer's own line says more than its launcher's epilogue.
        info = [line for line in lines
                if line.startswith(("peers: ", "weft-perf: "))] or lines
        raise Failure(f"exit status {status}: "
                      f"{(info or ['no message'])[-1].strip()}")
    return [(row["bytes"], row["samples_us"]) for row in rows]


class Load:
    """How much of the machine other programs had since it was made."""

    def __init__(self):
        self.average = os.getloadavg()[0]
        self.begin = self.now()

    @staticmethod
    def now():
        """(CPU seconds in all, those spent, this program's and its own)."""
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        seconds = [tick / os.sysconf("SC_CLK_TCK") for tick in ticks]
        idle = seconds[3] + seconds[4]
        mine = sum(getattr(resource.getrusage(who), field)
                   for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
                   for field in ("ru_utime", "ru_stime"))
        return sum(seconds), sum(seconds) - idle, mine

    def others(self):
        """0 to 1: the share of all cores' time that others have spent."""
        total, busy, mine = (now - then for now, then
                             in zip(self.now(), self.begin))
        return max(0.0, (busy - mine) / total) if total > 0 else 0.0
