#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: what perf/peers computes is what it says: pairs of one mode, medians of
their ratios, bounds; the pilot's choice and the order of turns; the picture.
Method: made-up runs with known answers, among them machines whose modes favour
one side; no process is started.

Usage: test_peer_figures.py FOLDER_OF_PEER
"""
import itertools
import random
import re
import statistics
import sys
import unittest
import xml.dom.minidom

sys.path.insert(0, sys.argv.pop(1))
sys.dont_write_bytecode = True
# pylint: disable=wrong-import-position
from peer import catalog, chart, figures, probe, process, report, rounds

FAST, SLOW = probe.Probe(0.2, 8.0), probe.Probe(0.5, 30.0)


def run(number, us, before=FAST, after=None, size=8):
    return figures.Run(number, before, after or before, {size: [us] * 3})


def numbers(pairs):
    return [(weft.number, peer.number) for weft, peer in pairs]


class Matching(unittest.TestCase):
    def test_modes_that_favour_the_peer_do_not_show(self):
        # weft is 1.25 times as fast; the slow mode takes 4 times as long.
        # It meets weft in 8 of 10 runs and the peer in 2.
        weft = [run(2 * i, 40 if i < 8 else 10, SLOW if i < 8 else FAST)
                for i in range(10)]
        peer = [run(2 * i + 1, 50 if i < 2 else 12.5, SLOW if i < 2 else FAST)
                for i in range(10)]
        unpaired = (statistics.median(r.median_us(8) for r in peer) /
                    statistics.median(r.median_us(8) for r in weft))
        self.assertLess(unpaired, 0.4)
        pairs = figures.match(weft, peer)
        self.assertEqual(len(pairs), 4)
        self.assertEqual(figures.point(pairs, 8, "seed"),
                         {"weft_us": 25, "peer_us": 31.25, "ratio": 1.25,
                          "low": 1.25, "high": 1.25})
        self.assertEqual(figures.modes(pairs), [
            {"pairs": 2, "line_us": 0.5, "hand_us": 30.0},
            {"pairs": 2, "line_us": 0.2, "hand_us": 8.0}])

    def test_a_run_whose_mode_changed_is_in_no_pair(self):
        weft = [run(1, 1, FAST, SLOW), run(3, 1)]
        peer = [run(2, 1, SLOW, FAST), run(4, 1, FAST, SLOW), run(5, 1)]
        self.assertEqual(numbers(figures.match(weft, peer)), [(3, 5)])

    def test_one_figure_alone_tells_modes_apart(self):
        slow_line = probe.Probe(FAST.line_us * 1.3, FAST.hand_us)
        slow_hand = probe.Probe(FAST.line_us, FAST.hand_us * 1.3)
        near = probe.Probe(FAST.line_us * 1.2, FAST.hand_us / 1.2)
        for other, count in ((slow_line, 0), (slow_hand, 0), (near, 1)):
            pairs = figures.match([run(1, 1)], [run(2, 1, other)])
            self.assertEqual(len(pairs), count)

    def test_slow_drift_pairs_only_what_is_alike(self):
        steps = [probe.Probe(0.2 * 1.1 ** i, 8 * 1.1 ** i) for i in range(12)]
        runs = [run(i, 1, steps[i]) for i in range(12)]
        pairs = figures.match(runs[:6], runs[6:])
        self.assertEqual(numbers(pairs), [(5, 6)])
        for weft, peer in pairs:
            self.assertLessEqual(weft.before.ratio(peer.before), 1.25)

    def test_each_run_is_in_one_pair_and_the_nearest_in_time_first(self):
        pairs = figures.match([run(1, 1), run(10, 1)],
                              [run(2, 1), run(3, 1), run(11, 1)])
        self.assertEqual(numbers(pairs), [(1, 2), (10, 11)])

    def test_times_have_no_say(self):
        chance = random.Random(5)
        modes = [chance.choice((FAST, SLOW)) for _ in range(40)]
        found = set()
        for seed in range(4):
            chance = random.Random(seed)
            runs = [run(i, chance.lognormvariate(0, 2), mode)
                    for i, mode in enumerate(modes)]
            found.add(tuple(numbers(figures.match(runs[::2], runs[1::2]))))
        self.assertEqual(len(found), 1)

    def test_without_a_second_core_all_are_alike(self):
        nothing = probe.Probe(None, None)
        pairs = figures.match([run(1, 1, nothing)], [run(2, 3, nothing)])
        self.assertEqual(numbers(pairs), [(1, 2)])
        self.assertEqual(figures.modes(pairs), [
            {"pairs": 1, "line_us": None, "hand_us": None}])


class Bounds(unittest.TestCase):
    def test_ratio_is_the_median_of_the_pairs_ratios(self):
        # Not the ratio of the medians, which is 2 / 2.
        pairs = [(run(0, 1), run(1, 2)), (run(2, 2), run(3, 6)),
                 (run(4, 4), run(5, 1))]
        point = figures.point(pairs, 8, "seed")
        self.assertEqual(point["ratio"], 2)
        self.assertEqual((point["weft_us"], point["peer_us"]), (2, 2))

    def test_median_call_counts_not_the_slowest(self):
        pairs = [(figures.Run(0, FAST, FAST, {8: [1, 1, 100]}),
                  figures.Run(1, FAST, FAST, {8: [3, 2, 3]}))]
        self.assertEqual(figures.point(pairs, 8, 1)["ratio"], 3)

    def test_no_pair_gives_no_figure(self):
        self.assertEqual(set(figures.point([], 8, 1).values()), {None})

    def test_bounds_of_few_ratios_are_those_of_all_draws(self):
        # All 5^5 draws of 5 ratios: the exact distribution of the median.
        ratios = [1.0, 1.1, 1.2, 1.5, 4.0]
        exact = sorted(statistics.median(draw) for draw
                       in itertools.product(ratios, repeat=5))
        low, high = figures.bounds(ratios, "a")
        self.assertEqual(low, exact[int(0.025 * len(exact))])
        self.assertEqual(high, exact[int(0.975 * len(exact))])

    def test_bounds_are_the_same_each_time_and_hold_the_median(self):
        chance = random.Random(2)
        ratios = [chance.lognormvariate(0.1, 0.3) for _ in range(15)]
        low, high = figures.bounds(ratios, "all_reduce 2 8")
        self.assertEqual((low, high), figures.bounds(ratios, "all_reduce 2 8"))
        self.assertLess(low, statistics.median(ratios))
        self.assertLess(statistics.median(ratios), high)
        self.assertEqual(figures.bounds([3.0] * 15, 1), (3.0, 3.0))

    def test_few_outliers_move_neither_ratio_nor_bounds_far(self):
        ratios = [1.2 + 0.01 * i for i in range(12)] + [500.0, 900.0, 0.001]
        low, high = figures.bounds(ratios, 1)
        self.assertGreaterEqual(low, 1.2)
        self.assertLessEqual(high, 1.31)

    def test_interval_holds_the_truth_nearly_always(self):
        # 15 pairs of a skewed distribution whose median is 1.3.
        chance, held = random.Random(11), 0
        for number in range(40):
            ratios = [1.3 * chance.lognormvariate(0, 0.2) for _ in range(15)]
            low, high = figures.bounds(ratios, number)
            held += low <= 1.3 <= high
        self.assertGreaterEqual(held, 35)

    def test_geometric_mean_of_inverse_pair_is_one(self):
        self.assertAlmostEqual(figures.geometric_mean([0.25, 4]), 1)

    def test_means_leave_points_without_a_ratio_out(self):
        rows = [{"op": "a", "ratio": 2.0}, {"op": "a", "ratio": 8.0},
                {"op": "b", "ratio": None}]
        means = report.means(rows)
        self.assertEqual(set(means), {"a", ""})
        self.assertAlmostEqual(means["a"], 4)


class Machine:
    """Stands for the processes: who takes how long, in which mode."""

    def __init__(self, times_us, modes=(FAST,), broken=()):
        self.times_us = times_us        # {who: {size: us}}
        self.modes = itertools.cycle(modes)
        self.broken = dict(broken)      # {who: Failure}
        self.turns, self.mode = [], None

    def take(self):
        self.mode = next(self.modes)
        return self.mode

    def rows_of(self, command):
        who, sizes = command
        self.turns.append(who)
        if who in self.broken:
            raise self.broken[who]
        factor = 4 if self.mode == SLOW else 1
        return [(size // 4 * 4, [factor * self.times_us[who][size]])
                for size in sizes]


class Turns(unittest.TestCase):
    SIZES = [8, 64]

    def sides(self, machine, wanted=3, pilot=2):
        peers, limit = [], None
        for name in machine.times_us:
            if name != "weft":
                peer = catalog.Peer(name, "", [])
                peer.command = lambda job, variant: (variant.name, job.sizes)
                pair = peer, catalog.Variant(name, "plain")
                if name == "limit":
                    limit = pair
                else:
                    peers.append(pair)
        rows_of, weft = process.rows_of, catalog.Weft.command
        self.addCleanup(setattr, process, "rows_of", rows_of)
        self.addCleanup(setattr, catalog.Weft, "command", staticmethod(weft))
        process.rows_of = machine.rows_of
        catalog.Weft.command = staticmethod(
            lambda job, variant: ("weft", job.sizes))
        plan = rounds.Plan(wanted, pilot, machine, lambda text: None)
        return rounds.Sides(plan, catalog.Job("", "", "all_reduce", 2, ()),
                            peers, limit)

    def test_pilot_is_not_misled_by_modes(self):
        # b is faster than a, but is always met by the slow mode.
        machine = Machine({"weft": {8: 1}, "a": {8: 2}, "c": {8: 9},
                           "b": {8: 1.5}},
                          [FAST] * 4 + [SLOW] * 3 + [FAST] + [SLOW] * 2 +
                          [FAST] * 200)
        row, = self.sides(machine).rows([8])
        self.assertEqual(machine.turns[:9], ["weft", "weft", "a", "c", "b"] +
                         ["weft", "a", "c", "b"])
        self.assertEqual((row["peer"], row["ratio"]), ("b", 1.5))
        self.assertEqual(row["all"]["a"], 2)

    def test_limit_is_no_opponent_and_its_ratio_is_of_pairs(self):
        machine = Machine({"weft": {8: 3}, "a": {8: 6}, "limit": {8: 2}},
                          (FAST, FAST, FAST, FAST, FAST, FAST, SLOW))
        row, = self.sides(machine).rows([8])
        self.assertEqual((row["peer"], row["ratio"]), ("a", 2))
        self.assertEqual(row["all"], {"a": 6})
        self.assertEqual(row["to_limit"], 1.5)

    def test_a_limit_that_fails_leaves_the_peers(self):
        machine = Machine({"weft": {8: 3}, "a": {8: 6}, "limit": {8: 2}},
                          (FAST,), {"limit": process.Failure("gone")})
        sides = self.sides(machine)
        row, = sides.rows([8])
        self.assertEqual((row["ratio"], row["to_limit"]), (2, None))
        self.assertEqual(sides.failed, {"limit, plain": "gone"})

    def test_pilot_picks_the_opponent_of_each_size(self):
        machine = Machine({"weft": {8: 1, 64: 10}, "a": {8: 2, 64: 30},
                           "b": {8: 3, 64: 5}})
        small, large = self.sides(machine).rows(self.SIZES)
        self.assertEqual((small["peer"], small["ratio"]), ("a", 2))
        self.assertEqual((large["peer"], large["ratio"]), ("b", 0.5))
        self.assertEqual(small["all"], {"a": 2, "b": 3})
        self.assertEqual((small["pairs"], small["rounds"]), (3, 3))

    def test_pilot_gives_up_what_is_far_behind_at_every_size(self):
        machine = Machine({"weft": {8: 1, 64: 1}, "a": {8: 2, 64: 2},
                           "far": {8: 20, 64: 20}, "half": {8: 20, 64: 3}})
        self.sides(machine, pilot=3).rows(self.SIZES)
        self.assertEqual(machine.turns.count("far"), 1)
        self.assertEqual(machine.turns.count("half"), 3)

    def test_sides_take_turns_in_both_orders(self):
        machine = Machine({"weft": {8: 1}, "a": {8: 2}})
        self.sides(machine, wanted=4, pilot=1).rows([8])
        self.assertEqual(machine.turns, ["weft", "weft", "a"] +
                         ["weft", "a", "a", "weft"] * 2)

    def test_rounds_end_when_no_more_pairs_come(self):
        # Each process begins in one mode and ends in the other.
        machine = Machine({"weft": {8: 1}, "a": {8: 2}}, (FAST, SLOW))
        row, = self.sides(machine).rows([8])
        self.assertEqual((row["pairs"], row["rounds"]), (0, 9))
        self.assertIsNone(row["ratio"])
        self.assertIsNone(row["low"])
        self.assertGreater(row["peer_us"], 0)

    def test_rounds_go_on_until_there_are_enough_pairs(self):
        machine = Machine({"weft": {8: 1}, "a": {8: 2}},
                          (FAST, FAST, FAST, FAST, SLOW))
        row, = self.sides(machine, wanted=3).rows([8])
        self.assertEqual((row["pairs"], row["ratio"]), (3, 2))
        self.assertGreater(row["rounds"], 3)

    def test_a_peer_that_fails_is_named_and_the_next_one_comes(self):
        machine = Machine({"weft": {8: 1}, "a": {8: 2}, "b": {8: 3}})
        sides = self.sides(machine)

        def fail_later(command, rows_of=machine.rows_of):
            if machine.turns.count("a") == 3:
                machine.broken["a"] = process.Failure("gone")
            return rows_of(command)
        process.rows_of = fail_later
        row, = sides.rows([8])
        self.assertEqual((row["peer"], row["ratio"]), ("b", 3))
        self.assertEqual(sides.failed, {"a, plain": "gone"})
        self.assertEqual(row["all"], {"b": 3})

    def test_a_peer_whose_data_are_wrong_is_told_apart(self):
        machine = Machine({"weft": {8: 1}, "a": {8: 2}}, (FAST,),
                          {"a": process.Wrong("3 elements are wrong")})
        sides = self.sides(machine)
        row, = sides.rows([8])
        self.assertEqual((row["peer"], row["ratio"]), (None, None))
        self.assertEqual(row["weft_us"], 1)
        self.assertEqual(sides.wrong, {"a, plain": "3 elements are wrong"})

    def test_weft_that_fails_ends_it(self):
        machine = Machine({"weft": {8: 1}}, (FAST,),
                          {"weft": process.Failure("gone")})
        with self.assertRaisesRegex(process.Failure, "weft.*gone"):
            self.sides(machine).rows([8])

    def test_sizes_that_move_the_same_bytes_are_one_row(self):
        machine = Machine({"weft": {8: 1, 9: 1, 64: 2},
                           "a": {8: 2, 9: 2, 64: 4}})
        rows = self.sides(machine).rows([8, 9, 64])
        self.assertEqual([row["bytes"] for row in rows], [8, 64])


class Picture(unittest.TestCase):
    @staticmethod
    def row(op, size, ratio, ranks=2):
        return {"op": op, "ranks": ranks, "bytes": size, "ratio": ratio,
                "low": ratio * 0.9, "high": ratio * 1.2, "variant": "<a> & b"}

    @staticmethod
    def draw(rows):
        text = chart.picture({
            "rows": rows, "peers": {"a": {"library": "<a> & b"}},
            "machine": {"cores": 2, "load": 0.5, "others": 0.01}})
        return text, xml.dom.minidom.parseString(text)

    def test_one_line_and_band_for_each_operation(self):
        rows = [self.row(op, size, ratio, ranks) for ranks in (2, 4)
                for op in ("all_reduce", "barrier", "gather")
                for size, ratio in (((0, 1.0),) if op == "barrier" else
                                    ((8, 0.7), (64, 1.0), (1 << 20, 3.0)))]
        text, found = self.draw(rows)
        self.assertEqual(len(found.getElementsByTagName("polyline")), 4)
        self.assertEqual(len(found.getElementsByTagName("polygon")), 4)
        self.assertEqual(len(found.getElementsByTagName("circle")), 14)
        self.assertIn("prefers-color-scheme: dark", text)
        # Nothing but its own name space is named.
        self.assertEqual(re.findall(r"https?://[^\"]*", text),
                         ["http://www.w3.org/2000/svg"])

    def test_one_is_marked_and_higher_is_faster(self):
        _, found = self.draw([self.row("all_reduce", 8, 0.5),
                              self.row("all_reduce", 64, 1.0),
                              self.row("all_reduce", 4096, 2.0)])
        one, = [line for line in found.getElementsByTagName("line")
                if line.getAttribute("class") == "one"]
        places = [float(circle.getAttribute("cy"))
                  for circle in found.getElementsByTagName("circle")]
        self.assertEqual(float(one.getAttribute("y1")), places[1])
        self.assertGreater(places[0], places[1])
        self.assertGreater(places[1], places[2])

    def test_without_a_ratio_it_says_so(self):
        row = dict(self.row("all_reduce", 8, 1.0), ratio=None, low=None)
        text, _ = self.draw([row])
        self.assertIn("No point has a ratio", text)


if __name__ == "__main__":
    unittest.main()
