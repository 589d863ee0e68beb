#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: weft-info says the same of a machine as text, JSON, picture and NCCL's
XML, and refuses what it cannot read with one line.

Method: runs the program on texts that describe machines, on the recorded ones
of tests/topo/data and, where WEFT_TOPOLOGIES names a folder of more machine
files, on all of those; parses what comes out.

Usage: test_weft_info.py BIN_DIR DATA_DIR
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

INFO = os.path.join(sys.argv[1], "weft-info")
DATA = sys.argv[2]


USUAL = {"source": "usual", "latency_us": 12, "message_us": 4,
         "host_GBps": 1.25}
CACHE = tempfile.TemporaryDirectory()


def run(*args, **variables):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    return subprocess.run([INFO, *args], capture_output=True, text=True,
                          timeout=60,
                          env={**clean, "XDG_CACHE_HOME": CACHE.name,
                               **variables})


def read(machine, *args):
    done = run("--input", machine, "--json", "-", *args)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


class Info(unittest.TestCase):
    def test_json_holds_what_was_promised(self):
        facts = read("2x(8xH100,8xCX7)")
        for name in ("source", "warnings", "gpus", "nics", "switches", "links",
                     "paths", "rings", "rings_multinode", "fabrics"):
            self.assertIn(name, facts)
        for name in ("id", "name", "pci", "numa", "sm"):
            self.assertIn(name, facts["gpus"][0])
        for name in ("name", "kind", "gbps", "state", "pci", "numa", "card"):
            self.assertIn(name, facts["nics"][0])
        for name in ("a", "b", "type", "count", "GBps", "from"):
            self.assertIn(name, facts["links"][0])
        self.assertEqual(len(facts["gpus"]), 16)
        self.assertEqual(len(facts["paths"]["gpu_gpu"]), 16)
        self.assertEqual(len(facts["paths"]["gpu_nic"][0]), 16)
        self.assertEqual(facts["paths"]["gpu_gpu"][0][1],
                         {"type": "NVL", "hops": 2, "GBps": 450,
                          "nccl_GBps": 18 * 20.6})
        self.assertEqual(facts["paths"]["gpu_gpu"][0][8]["type"], "NET")
        rings = facts["rings"]
        self.assertEqual(rings["host"], "host0")
        self.assertEqual(len(rings["orders"]), rings["channels"])
        self.assertGreaterEqual(rings["channels"] * rings["GBps"], 360)
        for order in rings["orders"]:
            self.assertEqual(sorted(order), ["gpu%d" % i for i in range(8)])

    def test_text_keeps_to_80_columns(self):
        for machine in ("8xH100,8xCX7", "16xV100", "2x(4xA100,4xCX6)",
                        os.path.join(DATA, "hwloc_4gpu.xml"), "64x(8xH100)",
                        "32xH100,32xCX7", "18x(4xGB200,4xCX7)"):
            self.keeps_to_80_columns(run("--input", machine))
        self.keeps_to_80_columns(run("--settings"))
        self.keeps_to_80_columns(run("--settings", WEFT_LOG="debug",
                                     WEFT_SECRET_FILE="/" + "far/" * 40))
        self.keeps_to_80_columns(run(WEFT_PROBE="off"))
        with tempfile.TemporaryDirectory() as folder:  # no network module
            alone = os.path.join(folder, "bin", "weft-info")
            os.mkdir(os.path.dirname(alone))
            shutil.copy(INFO, alone)
            done = subprocess.run([alone], capture_output=True, text=True,
                                  timeout=60, env={**os.environ,
                                                   "WEFT_PROBE": "off"})
            self.keeps_to_80_columns(done)

    def test_paths_to_ports_are_printed_where_one_table_is_too_wide(self):
        rows = {}
        text = run("--input", "1x(8xH100,10xCX7)+1x(8xH100,12xCX7)").stdout
        tables = text[text.index("Paths in"):text.index("between hosts")]
        head = []
        for line in tables.splitlines():
            words = line.split()
            if words and words[0].startswith("gpu"):
                rows.update({(words[0], b): t
                             for b, t in zip(head, words[1:])})
            elif words:
                head = words
        self.assertEqual(rows["gpu15", "g8"], "NV18")
        self.assertEqual(rows["gpu0", "n0"], "PIX")
        self.assertEqual(rows["gpu15", "n21"], "PIX")
        self.assertNotIn(("gpu0", "n21"), rows)  # of the other host
        self.assertIn("between hosts: NET\n", text)
        self.assertIn("Channels of host0", text)
        text = run("--input", "8xH100,32xCX7").stdout
        self.assertIn(" n31", text)

    def keeps_to_80_columns(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in done.stdout.split("\n"):
            self.assertLessEqual(len(line), 80, line)

    def test_every_gpu_of_a_long_ring_is_printed(self):
        text = run("--input", "40xH100,40xCX7").stdout
        ring = text[text.index("rings in a host"):].split("\n", 1)[1]
        words = ring.split()
        self.assertEqual(sorted(map(int, words[:40])), list(range(40)))

    def test_picture_is_well_formed(self):
        for machine in ("8xH100,8xCX7", "2x(8xV100,4xCX5)",
                        os.path.join(DATA, "hwloc_4gpu.xml")):
            done = run("--input", machine, "--svg", "-")
            self.assertEqual(done.returncode, 0, done.stderr)
            root = tree.fromstring(done.stdout)
            self.assertTrue(root.tag.endswith("svg"))
            self.assertIn("gpu0", done.stdout)

    def test_picture_marks_what_is_down(self):
        done = run("--input", os.path.join(DATA, "hwloc_4gpu.xml"), "--svg",
                   "-")
        self.assertIn("stroke-dasharray", done.stdout)

    def test_nccl_export_read_back_is_the_same_machine(self):
        with tempfile.TemporaryDirectory() as folder:
            for machine in ("8xH100,8xCX7", "8xV100,4xCX5", "8xMI300X",
                            "2xL40,1xROCE100"):
                first = os.path.join(folder, "first.xml")
                facts = read(machine, "--export-nccl", first)
                again = read(first)
                for name in ("paths", "rings", "rings_multinode"):
                    self.assertEqual(facts[name], again[name], machine)
                self.assertEqual([g["sm"] for g in facts["gpus"]],
                                 [g["sm"] for g in again["gpus"]])
                self.assertEqual(again["warnings"], [])
                second = os.path.join(folder, "second.xml")
                read(first, "--export-nccl", second)
                self.assertEqual(
                    *[[(e.tag, e.attrib) for e in tree.parse(path).iter()]
                      for path in (first, second)])

    def test_nccl_export_beyond_its_parser_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.xml")
            for machine in ("8x(8xH100,8xCX7)", "32xMI300X"):
                done = run("--input", machine, "--export-nccl", path)
                self.assertEqual(done.returncode, 1)
                self.assertIn("at most 256", done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertFalse(os.path.exists(path))
            read("2x(8xH100,8xCX7)", "--export-nccl", path)
            self.assertLessEqual(len(list(tree.parse(path).iter())), 256)

    def test_what_is_not_known_to_us_comes_out_as_it_went_in(self):
        text = ('<system version="1" name="x"><cpu numaid="0" arch="x86_64" '
                'odd="1"><pci busid="0000:07:00.0" class="0x030200" '
                'link_speed="16 GT/s" link_width="16"><gpu dev="0" sm="80" '
                'rank="0" gdr="1"/><strange a="&lt;"/></pci></cpu></system>')
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.xml")
            with open(path, "w") as file:
                file.write(text)
            done = run("--input", path, "--export-nccl", "-")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn('odd="1"', done.stdout)
            self.assertIn('<strange a="&lt;"/>', done.stdout)

    def test_settings_are_listed(self):
        done = run("--settings")
        self.assertEqual(done.returncode, 0)
        self.assertIn("WEFT_TIMEOUT_MS", done.stdout)

    def test_settings_and_routes_go_together(self):
        done = run("--settings", "--routes", "-n", "2", "--json", "-",
                   WEFT_PROBE="off")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        self.assertTrue(facts["settings"])
        self.assertTrue(facts["routes"])

    def test_a_job_that_cannot_be_is_told_and_left_out(self):
        done = run("--json", "-", WEFT_RANK="5", WEFT_NRANKS="x",
                   WEFT_RENDEZVOUS="127.0.0.1:1", WEFT_PROBE="off")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("WEFT_NRANKS", done.stderr)
        self.assertEqual(json.loads(done.stdout)["source"], "live")

    def test_this_machine_is_shown(self):
        done = run("--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        self.assertEqual(facts["source"], "live")
        self.assertTrue(facts["fabrics"])
        self.assertGreater(facts["probe"]["copy_GBps"], 0)
        again = json.loads(run("--json", "-").stdout)
        if facts["probe"]["steady"]:
            self.assertTrue(again["probe"]["from_cache"])
        else:  # other work disturbed it
            self.assertFalse(facts["probe"]["from_cache"])
        facts = json.loads(run("--json", "-", WEFT_PROBE="off").stdout)
        self.assertIsNone(facts["probe"])
        done = run(WEFT_PROBE="perhaps")
        self.assertIn("allowed is on or off", done.stderr)

    def test_gpus_of_nvml_alone_are_no_contradiction(self):
        fake = os.path.join(os.path.dirname(INFO), "..", "tests",
                            "libfake_nvml_box.so")
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(fake, os.path.join(folder, "libnvidia-ml.so.1"))
            done = run("--json", "-", LD_LIBRARY_PATH=folder, WEFT_PROBE="off")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        self.assertEqual(len(facts["gpus"]), 8)
        self.assertEqual(facts["switches"], 4)
        self.assertFalse([w for w in facts["warnings"]
                          if "no GPU" in w["text"] or w["code"] == 21])

    def test_links_that_nvml_refuses_to_tell_are_unknown(self):
        fake = os.path.join(os.path.dirname(INFO), "..", "tests",
                            "libfake_nvml_mute.so")
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(fake, os.path.join(folder, "libnvidia-ml.so.1"))
            done = run("--json", "-", LD_LIBRARY_PATH=folder, WEFT_PROBE="off")
            text = run(LD_LIBRARY_PATH=folder, WEFT_PROBE="off").stdout
        facts = json.loads(done.stdout)
        self.assertTrue(facts["links_unknown"])
        self.assertTrue([w for w in facts["warnings"] if w["code"] == 24 and
                         "nvmlDeviceGetFieldValues" in w["text"]])
        row = next(line for line in text.splitlines()
                   if line.startswith("gpu0 ") and "H100" in line)
        self.assertIn(" unknown ", row)

    def test_binding_is_shown(self):
        facts = json.loads(run("--bind", "2", "--json", "-",
                               WEFT_PROBE="off").stdout)
        self.assertEqual(len(facts["binding"]), 2)
        self.assertTrue(facts["binding"][0]["cpus"])
        self.assertIn("--bind 0: allowed is a whole number from 1 to",
                      run("--bind", "0").stderr)
        self.assertIn("only of this machine",
                      run("--bind", "2", "--input", "8xH100").stderr)

    def test_routes_are_weft_s_own_choice(self):
        facts = read("2x(4xH100,4xCX7)", "--routes", "-n", "8")
        routes = {(r["collective"], r["size"]): r for r in facts["routes"]}
        self.assertEqual(routes["all_reduce", "tiny"]["algorithm"],
                         "dissemination")
        tiny = read("8xH100", "--routes", "-n", "4")["routes"]
        tiny = next(r for r in tiny if r["collective"] == "all_reduce")
        self.assertEqual(tiny["algorithm"], "oneshot")
        self.assertEqual(tiny["chunk_bytes"], 0)
        large = routes["all_reduce", "large"]
        self.assertEqual(large["algorithm"], "hierarchical")
        self.assertEqual(large["fabric"], "shm+net")
        self.assertGreater(large["chunk_bytes"], 0)
        self.assertEqual([(l["name"], l["ranks"], l["fabric"])
                          for l in large["levels"]],
                         [("nvlink", 4, "shm"), ("network", 8, "net")])
        self.assertEqual(facts["network_rates"]["source"], "topology")
        costs = routes["all_gather", "large"]["expected_us"]
        self.assertEqual(list(costs), ["hierarchical", "direct"])
        self.assertLess(costs["hierarchical"], costs["direct"])
        costs = routes["alltoall", "large"]["expected_us"]
        self.assertEqual(list(costs), ["pairwise", "two_hop"])
        self.assertLess(costs["pairwise"], costs["two_hop"])
        self.assertEqual(routes["alltoallv", "large"]["expected_us"], {})
        for route in facts["routes"]:
            self.assertTrue(route["why"])
            self.assertEqual(route["rails"], 4)
        for collective in ("all_gather", "reduce_scatter", "alltoallv",
                           "broadcast", "gather"):
            for size in ("tiny", "small", "medium", "large"):
                self.assertIn((collective, size), routes)
        self.assertEqual(read("8xH100", "--routes")["routes"][-1]["fabric"],
                         "shm")
        self.assertEqual(routes["all_gather", "large"]["algorithm"],
                         "hierarchical")
        self.assertEqual(routes["alltoall", "large"]["algorithm"], "pairwise")
        for collective in ("all_gatherv", "reduce_scatterv"):
            self.assertEqual(routes[collective, "large"]["algorithm"],
                             "hierarchical")
        # 256 B a part: less to copy twice more than what fewer messages save.
        many = {(r["collective"], r["size"]): r for r in
                read("2x(8xH100,8xCX7)", "--routes", "-n", "16")["routes"]}
        self.assertEqual(many["alltoall", "tiny"]["algorithm"], "two_hop")
        self.assertIn("in one message", many["alltoall", "tiny"]["why"])
        self.assertEqual(many["alltoall", "medium"]["algorithm"], "pairwise")
        one = {(r["collective"], r["size"]): r for r in
               read("8xH100", "--routes", "-n", "8")["routes"]}
        self.assertEqual(one["alltoall", "small"]["algorithm"], "pairwise")
        self.assertEqual(one["all_gatherv", "large"]["algorithm"], "direct")
        flat = run("--input", "2x(4xH100,4xCX7)", "--routes", "-n", "8",
                   "--json", "-", WEFT_SUM_FLAT="on", WEFT_NET_RATES="usual")
        flat = {(r["collective"], r["size"]): r
                for r in json.loads(flat.stdout)["routes"]}
        # One tree crosses between two hosts once up and once down; direct would
        # send each rank's input to each owner there.
        self.assertEqual(flat["all_reduce", "large"]["algorithm"], "tree")
        self.assertIn("WEFT_SUM_FLAT", flat["all_reduce", "large"]["why"])
        self.assertEqual(flat["all_gather", "large"]["algorithm"],
                         "hierarchical")
        apart = read("2x(4xH100,4xCX7)", "--routes", "-n", "1")["routes"]
        self.assertNotIn("hierarchical", [r["algorithm"] for r in apart])
        forced = run("--input", "8xH100", "--routes", "--json", "-",
                     WEFT_ALGO="all_reduce:tree")
        forced = {(r["collective"], r["size"]): r
                  for r in json.loads(forced.stdout)["routes"]}
        self.assertEqual(forced["all_reduce", "large"]["algorithm"], "tree")
        self.assertIn("WEFT_ALGO", forced["all_reduce", "large"]["why"])
        cannot = run("--input", "8xH100", "--routes", "--json", "-",
                     WEFT_ALGO="all_reduce:hierarchical/oneshot")
        cannot = {(r["collective"], r["size"]): r
                  for r in json.loads(cannot.stdout)["routes"]}
        self.assertEqual(cannot["all_reduce", "tiny"]["algorithm"], "oneshot")
        self.assertEqual(cannot["all_reduce", "large"]["algorithm"], "refused")
        self.assertIn("WEFT_ALGO", cannot["all_reduce", "large"]["why"])
        for args, words in ((["--routes", "-n", "9"], "the machine's GPUs"),
                            (["--routes", "-n", "0"],
                             "-n 0: allowed is a whole number from 1 to"),
                            (["--routes", "-n", " 8"], "-n  8: allowed is"),
                            (["-n", "2"], "only with --routes")):
            done = run("--input", "2x(4xH100,4xCX7)", *args)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, "")
        for ranks in ("1", "3", "128"):
            done = run("--input", "16x(8xH100)", "--routes", "-n", ranks)
            self.assertEqual(done.returncode, 0, done.stderr)
            for line in done.stdout.split("\n"):
                self.assertLessEqual(len(line), 80, line)

    def test_ranks_of_a_job_show_their_hosts_as_one_cluster(self):
        launcher = os.path.join(os.path.dirname(INFO), "weft-run")
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith("WEFT_")}

        def job(ranks, *args, **variables):
            done = subprocess.run(
                [launcher, "-n", str(ranks), INFO, "--json", "-", *args],
                capture_output=True, text=True, timeout=60,
                env={**clean, "WEFT_CACHE_DIR": CACHE.name, **variables})
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)  # of one rank: one value

        alone = json.loads(run("--json", "-", WEFT_PROBE="off").stdout)
        near = job(3, "--routes")
        self.assertEqual(near["source"], "live")
        for name in ("gpus", "links", "warnings"):
            self.assertEqual(near[name], alone[name])
        self.assertEqual(near["routes"][0]["fabric"], "shm")
        self.assertEqual(near["routes"][0]["levels"][0]["ranks"], 3)
        if not self.has_network(alone):
            return
        far = job(4, "--routes", WEFT_DOMAIN="a,b,a,c")
        self.assertEqual(far["source"], "live, 3 hosts of 4 ranks")
        self.assertEqual(len(far["hosts"]), 3)
        self.assertEqual(len(far["gpus"]), 3 * len(alone["gpus"]))
        self.assertEqual(len(far["nics"]), 3 * len(alone["nics"]))
        self.assertEqual([(l["name"], l["ranks"], l["fabric"])
                          for l in far["routes"][0]["levels"]],
                         [("host", 2, "shm"), ("network", 4, "net")])
        self.assertEqual(far["routes"][0]["fabric"], "shm+net")
        self.assertIsNone(near["network_rates"])
        rates = far["network_rates"]
        self.assertEqual(rates.pop("source"), "measured")
        self.assertTrue(all(value > 0 for value in rates.values()), rates)
        usual = job(2, "--routes", WEFT_DOMAIN="a,b", WEFT_NET_RATES="usual")
        self.assertEqual(usual["network_rates"], USUAL)

    def test_a_job_without_the_host_module_warns_and_reads_later(self):
        here = os.path.dirname(INFO)
        modules = os.path.join(os.path.dirname(here), "lib")
        names = ["weft_net.so", "weft_net_ucx.so"]
        if not all(os.path.exists(os.path.join(modules, n)) for n in names):
            return
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                shutil.copy(os.path.join(modules, name), folder)
            moved = shutil.copy(INFO, folder)
            clean = {k: v for k, v in os.environ.items()
                     if not k.startswith("WEFT_")}
            done = subprocess.run(
                [os.path.join(here, "weft-run"), "-n", "2", moved, "--json",
                 "-"], capture_output=True, text=True, timeout=60,
                env={**clean, "WEFT_DOMAIN": "a,b"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cannot be described to the others: weft_host.so is "
                      "not installed", done.stderr)
        self.assertEqual(json.loads(done.stdout)["source"],
                         "live, 2 hosts of 2 ranks")

    def test_sending_that_is_limited_limits_the_links(self):
        def ports(facts):
            return [k for k in facts["links"] if k["type"] == "NET"]
        alone = json.loads(run("--json", "-", WEFT_PROBE="off",
                               WEFT_EMULATE_GBPS="0.25").stdout)
        for link in ports(alone):
            self.assertEqual((link["GBps"], link["from"], link["limited"]),
                             (0.25, "read", True))
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith("WEFT_")}
        done = subprocess.run(
            [os.path.join(os.path.dirname(INFO), "weft-run"), "-n", "3", INFO,
             "--json", "-"], capture_output=True, text=True, timeout=60,
            env={**clean, "WEFT_EMULATE_GBPS": "0.25"})
        self.assertEqual(done.returncode, 0, done.stderr)
        for link in ports(json.loads(done.stdout)):
            self.assertEqual((link["GBps"], link["limited"]), (0.75, True))

    @staticmethod
    def has_network(facts):
        return [f for f in facts["fabrics"] if f["name"] == "net"][0]["usable"]

    def test_what_ucx_could_use_is_listed(self):
        facts = json.loads(run("--json", "-", WEFT_PROBE="off").stdout)
        net = [f for f in facts["fabrics"] if f["name"] == "net"][0]
        if not net["usable"]:
            self.assertEqual(net["transports"], [])
            return
        tcp = [t for t in net["transports"] if t["name"] == "tcp"]
        self.assertTrue(tcp)
        self.assertTrue(all(t["network"] for t in tcp))
        devices = {t["device"] for t in tcp}
        for nic in facts["nics"]:
            self.assertEqual("tcp" in nic["transports"],
                             nic["name"] in devices)
        for line in run(WEFT_PROBE="off").stdout.split("\n"):
            self.assertLessEqual(len(line), 80, line)

    def test_placement_is_printed_and_written(self):
        facts = read("4x(8xH100,8xCX7)", "--place", "tp=8,pp=4")
        placement = facts["placement"]
        self.assertEqual(sorted(placement["gpus"]), list(range(32)))
        self.assertEqual(placement["levels"][-1]["name"], "network")
        for level in placement["levels"]:
            self.assertEqual(sum(level["after_by_axis"].values()),
                             level["bytes_after"])
        self.assertGreater(placement["levels"][-1]["after_by_axis"]["pp"], 0)
        done = run("--input", "2x(4xA100,4xCX6)", "--place", "tp=4,dp=2")
        self.assertIn("network", done.stdout)
        for line in done.stdout.split("\n"):
            self.assertLessEqual(len(line), 80, line)

    def test_mistakes_are_one_line(self):
        for args, words in ((["--frob"], "--frob"),
                            (["--format", "dot"], "hwloc, nccl or synthetic"),
                            (["--input"], "value is missing"),
                            (["--input", "8xH100", "--place", "tp=3",
                              "--json", "/dev/null", "--svg", "-"],
                             "places"),
                            (["--input", "8xH100", "--place",
                              "tp=8,tp=4"], "twice"),
                            (["--input", "8xH100", "--place",
                              "tp=8,tp_bytes=1,tp_bytes=2"], "twice"),
                            (["--input", "8xH100", "--place",
                              "tp=1048576,pp=1048576"],
                             "1099511627776 ranks"),
                            (["--input", "8xH100", "--model", "Q100"],
                             "Q100"),
                            (["--model", "H100"], "--input"),
                            (["--input", "8xH100", "--json", "-", "--svg",
                              "-"], "standard output"),
                            (["--input", "/nowhere.xml"], "/nowhere.xml"),
                            (["--input", "8xZ9"], "column 3"),
                            (["--input", os.path.join(
                                DATA, "hwloc_version3.xml")], "3.0")):
            done = run(*args)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_another_encoding_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.xml")
            for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
                with open(path, "w", encoding=encoding) as file:
                    file.write('<system version="1"/>')
                for form in ([], ["--format", "nccl"]):
                    done = run("--input", path, *form)
                    self.assertEqual(done.returncode, 1)
                    self.assertIn("UTF-16: allowed is UTF-8", done.stderr)

    def test_a_rate_that_is_assumed_is_so_everywhere(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.xml")
            with open(path, "w") as file:
                file.write('<system version="1"><cpu numaid="0" arch="x86_64">'
                           '<nic><net name="eth9" dev="0" speed="0"/></nic>'
                           '</cpu></system>')
            facts = read(path)
            self.assertTrue(facts["nics"][0]["gbps_assumed"])
            link, = [l for l in facts["links"] if l["type"] == "NET"]
            self.assertTrue(link["assumed"])
            text = run("--input", path).stdout
            self.assertIn("  assumed\n", text)
            self.assertNotIn("inferred", text)
        for link in read("8xH100,8xCX7")["links"]:
            self.assertFalse(link["assumed"] and link["type"] == "NET")

    def test_exports_hold_no_guid_of_hwloc(self):
        with open(os.path.join(DATA, "hwloc_4gpu.xml")) as file:
            text = file.read()
        done = run("--input", os.path.join(DATA, "hwloc_4gpu.xml"),
                   "--export-nccl", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("SysImageGUID", text)
        for net in tree.fromstring(done.stdout).iter("net"):
            self.assertLess(int(net.get("guid", "0"), 16), 100)

    def test_a_broken_matrix_is_not_called_missing(self):
        with open(os.path.join(DATA, "hwloc_4gpu.xml")) as file:
            text = file.read()
        start = text.index("<distances2")
        at = text.index('nbobjs="', start) + len('nbobjs="')
        line = text.count("\n", 0, start) + 1
        broken = text[:at] + "-" + text[at:]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.xml")
            with open(path, "w") as file:
                file.write(broken)
            told = [w["text"] for w in read(path)["warnings"]
                    if w["code"] == 21]
            self.assertEqual(len(told), 1)
            self.assertIn("line %d is not usable" % line, told[0])

    def test_a_model_in_the_picture_is_cut_between_words(self):
        with open(os.path.join(DATA, "hwloc_4gpu.xml")) as file:
            text = file.read()
        done = run("--input", os.path.join(DATA, "hwloc_4gpu.xml"), "--svg",
                   "-")
        drawn = {t.strip() for t in tree.fromstring(done.stdout).itertext()}
        self.assertTrue([t for t in drawn if "A100" in t or "H100" in t],
                        drawn)
        for name in drawn:
            at = text.find(name) + len(name)
            if "00" in name and at >= len(name):
                self.assertIn(text[at], ' -/"', name)

    def test_a_pipe_in_the_place_of_the_cache_is_no_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = os.path.join(folder, "weft")
            for _ in range(20):  # other work may disturb it
                run(XDG_CACHE_HOME=folder)
                if os.path.isdir(kept) and os.listdir(kept):
                    break
            else:
                print("never undisturbed")
                return
            path = os.path.join(kept, os.listdir(kept)[0])
            os.remove(path)
            os.mkfifo(path)
            done = run("--json", "-", XDG_CACHE_HOME=folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertFalse(json.loads(done.stdout)["probe"]["from_cache"])

    def test_a_job_is_placed_on_the_ranks_it_has(self):
        launch = os.path.join(sys.argv[1], "weft-run")
        done = subprocess.run(
            [launch, "-n", "4", INFO, "--json", "-", "--place", "dp=4"],
            capture_output=True, text=True, timeout=60,
            env={**os.environ, "WEFT_PROBE": "off"})
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        self.assertEqual(len(facts["placement"]["gpus"]), 4)

    def test_a_cluster_of_512_hosts_is_soon_shown(self):
        facts = read("512x(8xH100,8xCX7)")
        self.assertEqual(len(facts["gpus"]), 4096)
        self.assertIsNone(facts["paths"]["gpu_gpu"])

    def test_recorded_machines_of_this_computer(self):
        folder = os.environ.get("WEFT_TOPOLOGIES")
        if not folder or not os.path.isdir(folder):
            print("no folder of more machine files (WEFT_TOPOLOGIES)")
            return
        for name in sorted(os.listdir(folder)):
            if name.endswith(".xml"):
                done = run("--input", os.path.join(folder, name), "--json",
                           "-")
                if done.returncode == 0:
                    json.loads(done.stdout)
                else:
                    self.assertEqual(done.returncode, 1, name)
                    self.assertEqual(done.stderr.count("\n"), 1)


unittest.main(argv=sys.argv[:1])
