#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: routes of a machine that does not run are weighed by what its hosts' NICs
carry, over as many rails as a job would have, and say so; levels joined by
NVLink have its bandwidth; WEFT_SUM_FLAT says what it costs.

Method: weft-info on machines that differ in nothing but their NICs. What is
expected is computed here from the models' figures.

Usage: test_info_routes.py BIN_DIR
"""
import json
import os
import subprocess
import sys
import unittest

INFO = os.path.join(sys.argv[1], "weft-info")
USUAL_US = {"latency_us": 12, "message_us": 4}
NVLINK_H100 = 450  # GB/s each way: 18 links of 25
SUMS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatterv")


def run(*args, **variables):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    return subprocess.run([INFO, *args], capture_output=True, text=True,
                          timeout=60, env={**clean, **variables})


def read(machine, *args, **variables):
    done = run("--input", machine, "--routes", "--json", "-", *args,
               **variables)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def chosen(facts):
    return {(r["collective"], r["size"]): r["algorithm"]
            for r in facts["routes"]}


def routes_of(facts):
    return {(r["collective"], r["size"]): r for r in facts["routes"]}


class Network(unittest.TestCase):
    def expect(self, facts, source, host_GBps, rails, nics):
        rates = dict(facts["network_rates"])
        self.assertEqual(rates.pop("source"), source)
        self.assertAlmostEqual(rates.pop("host_GBps"), host_GBps, 9)
        self.assertEqual(rates, USUAL_US)
        for route in facts["routes"]:
            self.assertEqual(route["rails"], rails)
            self.assertEqual(route["levels"][-1]["rails"], rails)
            self.assertEqual(route["levels"][-1]["nics"], nics)

    def test_rates_are_those_of_the_machine_s_nics(self):
        for nics, host_GBps, rails, count in (
                ("8xCX7", 200, 4, 8), ("2xCX7", 100, 2, 2),
                ("1xNIC1", 0.125, 1, 1), ("1xETH10", 1.25, 1, 1)):
            with self.subTest(nics=nics):
                self.expect(read(f"2x(8xH100,{nics})"), "topology", host_GBps,
                            rails, count)

    def test_routes_follow_the_network(self):
        fast, slow = (routes_of(read(f"2x(8xH100,{nics})"))
                      for nics in ("8xCX7", "1xNIC1"))
        for key, route in fast.items():
            for name, us in route["expected_us"].items():
                if name in slow[key]["expected_us"]:
                    self.assertLess(us, slow[key]["expected_us"][name])
        # 64 MiB, all of it through a link of 0.125 GB/s each way.
        crossed_us = (64 << 20) / 0.125e3
        costs = slow["all_reduce", "large"]["expected_us"]
        self.assertGreater(costs["hierarchical"], crossed_us)
        self.assertLess(costs["hierarchical"], 1.5 * crossed_us)
        self.assertNotEqual({k: r["algorithm"] for k, r in fast.items()},
                            {k: r["algorithm"] for k, r in slow.items()})

    def test_the_slowest_host_counts(self):
        for machine in ("2x(8xH100,8xCX7)+1x(8xH100,2xNIC100)",
                        "1x(8xH100,2xNIC100)+2x(8xH100,8xCX7)"):
            self.expect(read(machine), "topology", 25, 2, 2)

    def test_ranks_on_hosts_of_their_own_meet_by_the_network_alone(self):
        route = routes_of(read("2x(1xH100,1xNIC1)"))["all_reduce", "large"]
        self.assertEqual(route["fabric"], "net")
        # Half of 64 MiB each way, there and back, at 0.125 GB/s.
        for name, us in route["expected_us"].items():
            self.assertGreater(us, (64 << 20) / 0.125e3 - 1, name)

    def test_ranks_have_the_nics_of_their_places(self):
        # One rank a host, each with the NIC next to its GPU.
        self.expect(read("2x(1xH100,2xCX7)"), "topology", 50, 1, 1)
        # Without GPUs a rank may use any.
        self.expect(read("2x(4xCX6)"), "topology", 100, 4, 4)
        # What is 16 times slower is no rail.
        self.expect(read("2x(2xCX6,1xETH10)"), "topology", 50, 2, 2)
        self.expect(read("2x(2xNIC100,1xETH10)"), "topology", 26.25, 3, 3)

    def test_settings_say_how_many_rails(self):
        machine = "2x(8xH100,8xCX7)"
        self.expect(read(machine, WEFT_NET_RAILS="2"), "topology", 100, 2, 8)
        self.expect(read(machine, WEFT_NET_INTERFACE="ib0,ib1,ib2"),
                    "topology", 150, 3, 8)
        done = run("--input", machine, "--routes",
                   WEFT_NET_INTERFACE="ib0,ib1,ib2", WEFT_NET_RAILS="2")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("WEFT_NET_INTERFACE=ib0,ib1,ib2: allowed is to name up "
                      "to 2, as WEFT_NET_RAILS says", done.stderr)
        self.expect(read(machine, WEFT_NET_INTERFACE="ib0"), "topology", 50, 1,
                    8)
        # The network library's transports are spread over what is named only.
        self.expect(read(machine, WEFT_NET_TRANSPORT="rc,ud"), "topology", 50,
                    1, 8)
        self.expect(read(machine, WEFT_NET_TRANSPORT="rc,ud",
                         WEFT_NET_RAILS="1", WEFT_NET_INTERFACE="ib0,ib1"),
                    "topology", 100, 2, 8)

    def test_usual_stays_what_it_says(self):
        machine = "2x(8xH100,8xCX7)"
        self.expect(read(machine, WEFT_NET_RATES="usual"), "usual", 1.25, 1, 8)
        self.expect(read(machine, WEFT_NET_RATES="usual",
                         WEFT_NET_INTERFACE="ib0,ib1"), "usual", 1.25, 2, 8)
        self.expect(read("2x(8xH100)"), "usual", 1.25, 1, 0)

    def test_levels_say_what_joins(self):
        level = read("2x(8xH100,8xCX7)")["routes"][-1]["levels"]
        self.assertEqual([(l["name"], l["fabric"], l["GBps"]) for l in level],
                         [("nvlink", "shm", NVLINK_H100),
                          ("network", "net", 50)])
        self.assertEqual(level[1]["port_GBps"], 50)
        self.assertNotIn("port_GBps", level[0])
        text = run("--input", "2x(8xH100,8xCX7)", "--routes").stdout
        self.assertIn("nvlink   8 ranks meet, 450 GB/s of NVLink or XGMI, by "
                      "shared memory", text)
        self.assertIn("network  16 ranks meet, 50 GB/s between two, by net "
                      "over 4 rails of 8 NICs", text)
        self.assertIn("1600 Gbit/s a host: topology", text)
        # The host's memory: nobody has read its speed.
        level = read("2x(8xL40,1xCX7)")["routes"][-1]["levels"]
        self.assertEqual([l["GBps"] for l in level if l["fabric"] == "shm"],
                         [None] * (len(level) - 1))

    def test_hosts_of_one_nvlink_domain_meet_by_the_network(self):
        facts = read("4x(4xGB200,4xCX7)")
        self.expect(facts, "topology", 200, 4, 4)
        route = routes_of(facts)["all_reduce", "large"]
        self.assertEqual([(l["name"], l["fabric"], l["GBps"], l["port_GBps"])
                          for l in route["levels"]],
                         [("nvlink", "net", 900, 50)])
        # Four ranks of each host share memory all the same.
        self.assertEqual(route["fabric"], "shm+net")
        self.assertEqual(route["algorithm"], "hierarchical")
        alone = routes_of(read("4x(1xGB200,1xCX7)"))["all_reduce", "large"]
        self.assertEqual(alone["fabric"], "net")


class Flat(unittest.TestCase):
    def test_sums_along_one_tree_say_what_they_cost(self):
        machine = "2x(8xH100,1xCX7)"
        flat = routes_of(read(machine, WEFT_SUM_FLAT="on"))
        levels = routes_of(read(machine))
        seen = 0
        for key, route in flat.items():
            if key[0] not in SUMS:
                self.assertIsNone(route["sum_flat"])
                continue
            cost = route["sum_flat"]
            self.assertEqual(cost["levels_algorithm"],
                             levels[key]["algorithm"])
            for us, of in ((cost["expected_us"], route),
                           (cost["levels_us"], levels[key])):
                expected = of["expected_us"].get(of["algorithm"])
                self.assertEqual(us, expected, key)
                seen += us is not None
        self.assertGreater(seen, 2 * len(SUMS))
        large = flat["all_reduce", "large"]["sum_flat"]
        self.assertGreater(large["expected_us"], 1.1 * large["levels_us"])
        self.assertTrue(all(r["sum_flat"] is None for r in levels.values()))

    def test_text_says_it_below_the_reasons(self):
        machine = "2x(8xH100,1xCX7)"
        done = run("--input", machine, "--routes", WEFT_SUM_FLAT="on")
        self.assertEqual(done.returncode, 0, done.stderr)
        cost = routes_of(read(machine, WEFT_SUM_FLAT="on"))
        cost = cost["all_reduce", "large"]["sum_flat"]
        ratio = cost["expected_us"] / cost["levels_us"]
        self.assertRegex(done.stdout, r"\nWEFT_SUM_FLAT costs +us expected ")
        self.assertRegex(done.stdout, r"\nall_reduce +large +\w+ +[0-9]+  \w+ "
                         rf"+[0-9]+ +{ratio:.2f}\n")
        for line in done.stdout.split("\n"):
            self.assertLessEqual(len(line), 80, line)
        for machine, setting in (("2x(8xH100,1xCX7)", "off"),
                                 ("8xH100", "on"), ("2x(1xH100,1xCX7)", "on")):
            done = run("--input", machine, "--routes", WEFT_SUM_FLAT=setting)
            self.assertNotIn("WEFT_SUM_FLAT costs", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
