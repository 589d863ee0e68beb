# SPDX-License-Identifier: BSD-3-Clause
"""Arithmetic on what was measured; no process, no clock, no chance but with a
fixed seed.

A run is one process: probes before and after it, and for each size the times
of its calls. A pair is a run of weft and one of a peer that the machine was in
one mode for: all four probes are alike. A point's ratio is the median over its
pairs of (median call of the peer) / (median call of weft).
"""
import dataclasses
import math
import random
import statistics

ALIKE = 1.25       # two probes of one mode differ by at most this factor
DRAWS = 2000       # of the bootstrap
CONFIDENCE = 0.95


@dataclasses.dataclass
class Run:
    number: int       # in the order of time
    before: object    # probe.Probe
    after: object
    times_us: dict    # size asked for: [us of each call]

    def median_us(self, size):
        return statistics.median(self.times_us[size])


def alike(*probes):
    return all(a.ratio(b) <= ALIKE
               for i, a in enumerate(probes) for b in probes[i + 1:])


def steady(run):
    return alike(run.before, run.after)


def match(weft_runs, peer_runs):
    """[(weft's run, peer's run)]: each run once at most, all in one mode, those
    nearest in time first. The figures themselves have no say in it."""
    candidates = sorted(
        (abs(weft.number - peer.number), weft.number, peer.number, i, j)
        for i, weft in enumerate(weft_runs) for j, peer in enumerate(peer_runs)
        if alike(weft.before, weft.after, peer.before, peer.after))
    pairs, taken_weft, taken_peer = [], set(), set()
    for *_, i, j in candidates:
        if i not in taken_weft and j not in taken_peer:
            taken_weft.add(i)
            taken_peer.add(j)
            pairs.append((weft_runs[i], peer_runs[j]))
    return sorted(pairs, key=lambda pair: pair[0].number)


def modes(pairs):
    """[{pairs, line_us, hand_us}]: how many pairs were in which mode, those of
    most pairs first; a mode is what its first probe said."""
    found = []
    for weft, _ in pairs:
        probe = weft.before
        known = [mode for mode in found if alike(mode[0], probe)]
        if known:
            known[0][1] += 1
        else:
            found.append([probe, 1])
    return [{"pairs": count, "line_us": probe.line_us,
             "hand_us": probe.hand_us}
            for probe, count in sorted(found, key=lambda mode: -mode[1])]


def bounds(ratios, seed):
    """The percentile bootstrap's interval of the median (Efron, 1979): medians
    of as many ratios drawn anew, with replacement."""
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios)))
                     for _ in range(DRAWS))
    beyond = int((1 - CONFIDENCE) / 2 * DRAWS)
    return medians[beyond], medians[DRAWS - 1 - beyond]


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def point(pairs, size, seed):
    """weft's and the peer's time, ratio, low and high of a point; None each
    where there is no pair."""
    if not pairs:
        return dict.fromkeys(("weft_us", "peer_us", "ratio", "low", "high"))
    weft_us = [weft.median_us(size) for weft, _ in pairs]
    peer_us = [peer.median_us(size) for _, peer in pairs]
    ratios = [peer / weft for weft, peer in zip(weft_us, peer_us)]
    low, high = bounds(ratios, seed)
    return {"weft_us": statistics.median(weft_us),
            "peer_us": statistics.median(peer_us),
            "ratio": statistics.median(ratios), "low": low, "high": high}
