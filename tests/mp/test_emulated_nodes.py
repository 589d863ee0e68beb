#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: ranks on several hosts, emulated: right results whatever the nodes and
the order of ranks; faults that name rank and operation in bounded time; nothing
left behind, however weft-run ends.
Method: weft-run --net-emulate runs weft-perf, which verifies every result;
processes and links are killed and cut from outside; network namespaces and the
host's links are counted before and after. Needs root and iproute2.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = sys.argv.pop(1)
PERF = os.path.join(BIN, "weft-perf")
RUN = os.path.join(BIN, "weft-run")
LONG = "WEFT_TEST_LONG" in os.environ
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
       "sendrecv", "barrier"]
LIMIT_S = 60
ATTEMPTS = 8  # where other jobs can make two rails measure no faster than one
RAILS = "120mbit+60mbit"  # so slow that their links limit them, not processors


def environment(**settings):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("WEFT_")}
    # Reading machines takes time, and tests/perf/test_weft_info.py does it.
    return dict(kept, **dict({"WEFT_MACHINES": "off"}, **settings))


def emulated(spec, ranks, *command, order="block"):
    return [RUN, "-n", str(ranks), "--net-emulate", spec, "--rank-order",
            order, *command]


def run(command, **settings):
    return subprocess.run(command, capture_output=True, text=True,
                          timeout=LIMIT_S, check=False,
                          env=environment(**settings))


def namespaces():
    """All network namespaces that some process is in."""
    found = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.add(os.readlink(f"/proc/{process}/ns/net"))
        except OSError:
            pass
    return found


def host_links():
    """What stands before each link's state: its number and name."""
    shown = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True,
                           check=True).stdout
    return {line.split(": <")[0] for line in shown.splitlines()}


def rank_pids(parent, ranks):
    """Process ids of weft-run's ranks, once all have become the program."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = {}
        with open(f"/proc/{parent}/task/{parent}/children") as children:
            for pid in children.read().split():
                try:
                    with open(f"/proc/{pid}/environ") as settings:
                        for entry in settings.read().split("\0"):
                            if entry.startswith("WEFT_RANK="):
                                found[int(entry[10:])] = int(pid)
                except OSError:
                    pass
        if len(found) == ranks:
            return found
        time.sleep(0.01)
    raise AssertionError("the ranks do not start")


class Emulated(unittest.TestCase):
    def setUp(self):
        self.links = host_links()
        self.namespaces = namespaces()

    def tearDown(self):
        until = time.monotonic() + 20
        links = host_links() - self.links
        spaces = namespaces() - self.namespaces
        # Other jobs' come and go; what this one leaves stays.
        while (links or spaces) and time.monotonic() < until:
            time.sleep(0.02)
            links &= host_links()
            spaces &= namespaces()
        self.assertEqual((links, spaces), (set(), set()))

    def verify(self, spec, ranks, ops, fabric, order="block", **settings):
        for op in ops:
            with self.subTest(spec=spec, order=order, op=op):
                done = run(emulated(spec, ranks, PERF, op, "--sizes",
                                    "8,5000,300K", "-n", "2", "-w", "1", "-c",
                                    "2", "-J", "-", order=order), **settings)
                self.assertEqual(done.returncode, 0, done.stderr)
                rows = json.loads(done.stdout)["rows"]
                self.assertTrue(rows)
                for row in rows:
                    self.assertEqual(row["wrong"], 0)
                    self.assertEqual(row["fabric"], fabric)

    def test_network_only(self):
        self.verify("4x1,1gbit", 4, OPS, "net")

    def test_mixed(self):
        few = OPS if LONG else ["all_reduce", "all_gather"]
        self.verify("2x2,1gbit", 4, few, "shm+net")
        self.verify("3+1,200mbit", 4, few, "shm+net", order="cyclic")
        self.verify("2+1+2", 5, few, "shm+net", order="2,0,1,2,0")

    def test_two_rails(self):
        few = OPS if LONG else ["all_reduce", "sendrecv"]
        self.verify("2x1,1gbit+400mbit", 2, few, "net")
        self.verify("4x1,1gbit+400mbit", 4, ["all_reduce"], "net",
                    WEFT_NET_INTERFACE="eth1,eth0")
        self.verify("3+1,400mbit+200mbit", 4, ["all_gather"], "shm+net",
                    order="cyclic")
        self.verify("2x1,1gbit+400mbit", 2, ["all_reduce"], "net",
                    WEFT_NET_INTERFACE="eth0,eth1",
                    WEFT_NET_TRANSPORT="ucx:tcp")

    def sent_to_experts(self, hops):
        """Bytes that rank 0's host has sent, each token going to all ranks."""
        sent = "/sys/class/net/eth0/statistics/tx_bytes"
        done = run(emulated("2x2,1gbit", 4, "sh", "-c",
                            f"{PERF} moe_dispatch --tokens 256 --experts 8 "
                            f"--topk 8 --hops {hops} -n 2 -w 0 -c 1 && "
                            f"{{ [ $WEFT_RANK != 0 ] || cat {sent}; }}"))
        self.assertEqual(done.returncode, 0, done.stderr)
        return int(re.search(r"^\d+$", done.stdout, re.M).group())

    def test_rows_of_experts_cross_once_for_each_host(self):
        rows = 256 * 1024 * 4 * 2 * 3  # of both ranks, in three calls
        self.assertGreater(self.sent_to_experts(1), 2 * rows)
        self.assertLess(self.sent_to_experts(2), 1.5 * rows)
        for spec, order in (("2x2,1gbit", "block"), ("3+1,200mbit", "cyclic")):
            for op in ("moe_dispatch", "moe_combine"):
                done = run(emulated(spec, 4, PERF, op, "-d", "bf16", "--tokens",
                                    "100", "--topk", "4", "-n", "2", "-J", "-",
                                    order=order))
                self.assertEqual(done.returncode, 0, done.stderr)
                row, = json.loads(done.stdout)["rows"]
                self.assertEqual((row["wrong"], row["algorithm"]),
                                 (0, "two_hop"))

    def with_rails(self, shell="true", nodes=2, **settings):
        """What is logged of two rails, rank's shell having been run before, and
        how many bytes each of rank 0's interfaces has sent."""
        count = "cat /sys/class/net/eth[01]/statistics/tx_bytes"
        done = run(emulated(f"{nodes}x1,{RAILS}", nodes, "sh", "-c",
                            f"{shell}; {PERF} all_reduce --sizes 4M -n 3 -w 1 "
                            f"&& {{ [ $WEFT_RANK != 0 ] || {count}; }}"),
                   WEFT_LOG="info", **settings)
        self.assertEqual(done.returncode, 0, done.stderr)
        sent = [int(line) for line in done.stdout.split("\n")
                if re.fullmatch(r"\d+", line)]
        self.assertEqual(len(sent), 2, done.stdout)
        return done.stderr, sent

    def test_rails_carry_in_proportion_to_their_speed(self):
        for _ in range(ATTEMPTS):
            err, sent = self.with_rails()
            if ("used in proportion" in err
                    and 1.2 * sent[1] < sent[0] < 4 * sent[1]):
                break
        self.assertRegex(err, r"rails: eth0 [0-9.]+ Gbit/s, eth1 [0-9.]+ "
                         r"Gbit/s; together [0-9.]+ Gbit/s: used in proportion")
        self.assertRegex(err, "network of eth0,eth1: ")
        # Of 2 to 1; beside other jobs what is measured may be another.
        self.assertGreater(sent[0], 1.2 * sent[1])
        self.assertLess(sent[0], 4 * sent[1])
        # Named, and not measured: what waits says which is slower.
        err, sent = self.with_rails(WEFT_NET_RATES="usual",
                                    WEFT_NET_INTERFACE="eth0,eth1")
        self.assertNotIn("rails: ", err)
        self.assertGreater(sent[0], 1.2 * sent[1])
        self.assertGreater(sent[1], 4 << 20)

    def test_one_rail_where_rails_are_not_wanted_or_not_measured(self):
        for settings in ({"WEFT_NET_RAILS": "1"}, {"WEFT_NET_RATES": "usual"},
                         {"WEFT_NET_INTERFACE": "eth0"}):
            with self.subTest(**settings):
                err, sent = self.with_rails(**settings)
                self.assertNotIn("rails: ", err)
                self.assertLess(sent[1], 1 << 20)

    def test_rail_that_a_host_lacks_is_named_and_not_used(self):
        for shell, named, nodes, text in (
                ("[ $WEFT_RANK != 2 ] || ip link set eth1 down", "", 3,
                 r"rank 0: net: eth1 10\.87\.1\.1: not used, as it does not "
                 "lead to all hosts"),
                ("[ $WEFT_RANK != 1 ] || { ip addr flush dev eth1; ip addr add "
                 "10.99.0.5/24 dev eth1; }", "eth0,eth1", 2,
                 "rank 0: net: eth1 does not lead to rank 1, and is not used to "
                 "it: .*\n(.*\n)*.*no rail of eth1: rank 0 gets through to "
                 "nobody by it"),
                ("[ $WEFT_RANK != 2 ] || export WEFT_NET_INTERFACE=eth0",
                 "eth0,eth1", 3,
                 "rank 0: net: no rail of eth1: rank 2 has none in that "
                 "network")):
            with self.subTest(shell=shell):
                settings = {"WEFT_NET_INTERFACE": named} if named else {}
                err, sent = self.with_rails(shell, nodes, **settings)
                self.assertRegex(err, text)
                self.assertLess(sent[1], 1 << 20)

    def test_rails_that_cannot_be_are_refused(self):
        for settings, shell, text in (
                ({"WEFT_NET_INTERFACE": "eth0,eth1"},
                 "[ $WEFT_RANK != 1 ] || ip link set eth1 down;",
                 "rank 1: WEFT_NET_INTERFACE=eth0,eth1: allowed are interfaces "
                 "that are up"),
                ({"WEFT_NET_INTERFACE": "eth0,eth1", "WEFT_NET_RAILS": "1"}, "",
                 "WEFT_NET_INTERFACE=eth0,eth1: allowed is to name up to 1, as "
                 "WEFT_NET_RAILS says"),
                ({"WEFT_NET_RAILS": "5"}, "", "WEFT_NET_RAILS=5: allowed")):
            with self.subTest(**settings):
                done = run(emulated("2x1,1gbit+400mbit", 2, "sh", "-c",
                                    f"{shell} exec {PERF} barrier -n 1"),
                           **settings)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(text, done.stderr)

    def test_routes_say_the_rails(self):
        info = os.path.join(BIN, "weft-info")
        spec = f"2x1,{RAILS}"
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "facts.json")
            for _ in range(ATTEMPTS):
                done = run(emulated(spec, 2, info, "--routes", "--json", path))
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(path, encoding="utf-8") as file:
                    facts = json.load(file)
                counts = {route["rails"] for route in facts["routes"]}
                if counts == {2}:
                    break
                time.sleep(1)  # other jobs come and go
        self.assertEqual(counts, {2})
        rails = facts["routes"][-1]["levels"][-1]["rail_rates"]
        self.assertEqual([rail["name"] for rail in rails], ["eth0", "eth1"])
        for rail in rails:  # beside other jobs, by how much is chance
            self.assertGreater(facts["network_rates"]["host_GBps"],
                               rail["GBps"])
        # Of the same job, as another's rails may measure otherwise.
        self.assertRegex(done.stdout, r"by net over eth0 \(0\.\d+ GB/s\) and "
                                      r"eth1 \(0\.\d+ GB/s\)")

    def test_reasons_for_the_interface_are_logged(self):
        done = run(emulated("2x1,1gbit", 2, PERF, "barrier", "-n", "1"),
                   WEFT_LOG="info")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("net: eth0 10.87.0.1: used, rank 1 answered in",
                      done.stderr)
        self.assertIn("net: lo 127.0.0.1: not used, nobody answered over it",
                      done.stderr)

    def test_the_graph_has_the_links_with_their_rates(self):
        info = os.path.join(BIN, "weft-info")
        done = run(emulated("2x1,1gbit+400mbit", 2, info, "--json", "-"),
                   WEFT_MACHINES="on")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        ports = {n["id"]: n for n in facts["nics"]
                 if n["name"] in ("eth0", "eth1")}
        self.assertEqual(sorted((n["host"], n["name"], n["gbps"])
                                for n in ports.values()),
                         [("host0", "eth0", 1.0), ("host0", "eth1", 0.4),
                          ("host1", "eth0", 1.0), ("host1", "eth1", 0.4)])
        links = [k for k in facts["links"]
                 if k["type"] == "NET" and k["a"] in ports]
        self.assertEqual(len(links), 4)
        for link in links:
            self.assertAlmostEqual(link["GBps"], ports[link["a"]]["gbps"] / 8)
            self.assertEqual((link["from"], link["limited"],
                              link["assumed"]), ("read", True, False))

    def start(self, spec, ranks, **settings):
        return subprocess.Popen(
            emulated(spec, ranks, PERF, "all_reduce", "--sizes", "64K", "-n",
                     "1000000", "-c", "0"), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment(**settings))

    def finish(self, job, limit_s):
        begun = time.monotonic()
        try:
            out, err = job.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            job.kill()
            job.communicate()
            raise
        self.assertLess(time.monotonic() - begun, limit_s)
        self.assertNotEqual(job.returncode, 0, out)
        return err

    def test_packets_fit_the_bucket(self):
        for rate, packet, burst in (("1gbit", 61440, 65536),
                                    ("100mbit", 61440, 65536),
                                    ("50mbit", 8192, 16384)):
            done = run(emulated(f"2x1,{rate}", 2, "sh", "-c",
                                "ip -d link show eth0; tc qdisc show dev eth0"))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count(f"gso_max_size {packet} "), 2)
            shown = re.findall(r"burst (\d+)(Kb|b)", done.stdout)
            self.assertEqual(len(shown), 2, done.stdout)
            for number, unit in shown:  # tc counts it in ticks of a clock
                self.assertAlmostEqual(
                    int(number) * (1024 if unit == "Kb" else 1), burst,
                    delta=burst // 100)
                self.assertGreater(burst, packet)

    def test_killed_rank_is_named(self):
        job = self.start("2x2,1gbit", 4)
        pids = rank_pids(job.pid, 4)
        time.sleep(1)
        os.kill(pids[3], signal.SIGKILL)
        err = self.finish(job, 15)
        self.assertIn("rank 3 has died", err)
        self.assertRegex(err, r'rank 3: SIGKILL after \w+ #\d+ on "world"')

    def test_cut_link_is_named(self):
        job = self.start("3x1,1gbit", 3, WEFT_TIMEOUT_MS="2000",
                         WEFT_WARN_MS="500")
        pids = rank_pids(job.pid, 3)
        time.sleep(1)
        subprocess.run(["nsenter", "-t", str(pids[2]), "-n", "ip", "link",
                        "set", "eth0", "down"], check=True)
        err = self.finish(job, 20)
        self.assertRegex(err, r'rank [012]: \w+ #\d+ on "world": rank \d')

    def test_nothing_left_when_weft_run_is_killed(self):
        job = self.start("2x2,1gbit", 4)
        pids = rank_pids(job.pid, 4)
        job.kill()
        job.communicate()
        until = time.monotonic() + 10
        while time.monotonic() < until and any(
                os.path.exists(f"/proc/{pid}") for pid in pids.values()):
            time.sleep(0.02)
        self.assertFalse([pid for pid in pids.values()
                          if os.path.exists(f"/proc/{pid}")])

    def test_refusals(self):
        for options, text in ((["--net-emulate", "2y2"], "allowed is NODESx"),
                              (["--net-emulate", "3x2"], "has 6 ranks"),
                              (["--rank-order", "block"],
                               "allowed only with --net-emulate"),
                              (["--net-emulate", "2x2", "--rank-order",
                                "0,1"], "allowed is block, cyclic")):
            done = run([RUN, "-n", "4", *options, PERF, "barrier"])
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)
        if shutil.which("setpriv"):
            done = run(["setpriv", "--reuid=65534", "--clear-groups",
                        *emulated("2x1", 2, PERF, "barrier")])
            self.assertEqual(done.returncode, 1)
            self.assertIn("needs root", done.stderr)


if __name__ == "__main__":
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        print("skipped: emulated nodes need root and iproute2")
        sys.exit(77)
    unittest.main(verbosity=2)
