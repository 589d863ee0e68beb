#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: levels of a machine that does not run say what joins their ranks: NVLink,
ports, or the host's memory.

Method: weft-info on machines that are written down. What is expected is
computed here from the models' figures.

Usage: test_info_routes.py BIN_DIR
"""
import json
import os
import subprocess
import sys
import unittest

INFO = os.path.join(sys.argv[1], "weft-info")
NVLINK_H100 = 450  # GB/s each way: 18 links of 25


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


def routes_of(facts):
    return {(r["collective"], r["size"]): r for r in facts["routes"]}


class Network(unittest.TestCase):
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
        self.assertIn("network  16 ranks meet, 50 GB/s between two, by net",
                      text)
        # The host's memory: nobody has read its speed.
        level = read("2x(8xL40,1xCX7)")["routes"][-1]["levels"]
        self.assertEqual([l["GBps"] for l in level if l["fabric"] == "shm"],
                         [None] * (len(level) - 1))

    def test_hosts_of_one_nvlink_domain_meet_by_the_network(self):
        facts = read("4x(4xGB200,4xCX7)")
        route = routes_of(facts)["all_reduce", "large"]
        self.assertEqual([(l["name"], l["fabric"], l["GBps"], l["port_GBps"])
                          for l in route["levels"]],
                         [("nvlink", "net", 900, 50)])
        # Four ranks of each host share memory all the same.
        self.assertEqual(route["fabric"], "shm+net")
        self.assertEqual(route["algorithm"], "hierarchical")
        alone = routes_of(read("4x(1xGB200,1xCX7)"))["all_reduce", "large"]
        self.assertEqual(alone["fabric"], "net")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
