# SPDX-License-Identifier: BSD-3-Clause
"""In which mode the machine is: what bin/peers-mode measures.

A virtual machine's cores move between physical ones every few seconds, and the
way from one to the other is then several times as long. A process may spend all
its life in one mode, so figures of two processes say something of two libraries
only where the machine was in one mode for both.
"""
import dataclasses
import json
import os

from peer import process

LIMIT_S = 30


@dataclasses.dataclass(frozen=True)
class Probe:
    """Round trip of a cache line, hand-over of 64 KiB; None: one core only."""
    line_us: float
    hand_us: float

    def ratio(self, other):
        """How far apart two are: 1 is alike; the worse of the two figures."""
        if None in (self.line_us, self.hand_us, other.line_us, other.hand_us):
            return 1.0
        pairs = ((self.line_us, other.line_us), (self.hand_us, other.hand_us))
        return max(max(a, b) / min(a, b) for a, b in pairs)


class Prober:
    def __init__(self, build):
        self.program = os.path.join(build, "bin", "peers-mode")

    def take(self):
        status, out, errors = process.run([self.program], LIMIT_S)
        if status != 0:
            raise process.Failure(f"{self.program}: exit status {status}: "
                                  f"{errors.strip()}")
        info = json.loads(out)
        return Probe(info["line_us"], info["hand_us"])
