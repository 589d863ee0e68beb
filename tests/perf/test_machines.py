#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: boxes as vendors and clouds build them are understood from their files:
how many GPUs and ports, which paths, which rings; each fault in them is told
with the device's name.

Method: small files in the formats of NCCL, RCCL and hwloc 1 and 2, written here
from what is publicly known of each box (its PCI tree, NVLinks a GPU, ports);
faults are put in by changing one thing.

Usage: test_machines.py BIN_DIR
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

INFO = os.path.join(sys.argv[1], "weft-info")
FOLDER = tempfile.TemporaryDirectory()


def show(text, *args):
    """weft-info's JSON of a file that holds text."""
    path = os.path.join(FOLDER.name, "machine.xml")
    with open(path, "w") as file:
        file.write(text)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    done = subprocess.run([INFO, "--input", path, "--json", "-", *args],
                          capture_output=True, text=True, timeout=60,
                          env=clean)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


# ---- NCCL's format --------------------------------------------------------

def tag(name, inside="", /, **attributes):
    words = "".join(f' {k.rstrip("_")}="{v}"' for k, v in attributes.items())
    return f"<{name}{words}>{inside}</{name}>"


def pci(bus, kind, inside="", speed="32.0 GT/s PCIe", width=16, **more):
    return tag("pci", inside, busid=bus, class_=kind, link_speed=speed,
               link_width=width, **more)


def gpu(bus, dev, sm, links="", **more):
    inside = tag("gpu", links, dev=dev, sm=sm, rank=dev, gdr=1)
    return pci(bus, "0x030200", inside, **more)


def nvlink(target, count, kind="0x068000", name="nvlink"):
    return tag(name, target=target, count=count, tclass=kind)


def nic(bus, name, dev, gbps, guid=None, kind="0x020700", **more):
    net = tag("net", name=name, dev=dev, speed=gbps * 1000, port=1,
              guid=guid or hex(dev + 1), gdr=1)
    return pci(bus, kind, tag("nic", net), **more)


def cpu(numa, inside, **more):
    known = dict(numaid=numa, affinity="00000000,ffffffff", arch="x86_64",
                 vendor="GenuineIntel", familyid=6, modelid=143)
    known.update(more)
    return tag("cpu", inside, **known)


def system(inside, version=1):
    return tag("system", inside, version=version)


def hgx(sm, links, switches, gbps, lost=(), device="0x2330", speed=None):
    """Two sockets, eight GPUs on switches, a port beside each."""
    speed = speed or {80: "16.0 GT/s PCIe"}.get(sm, "32.0 GT/s PCIe")
    sockets = []
    for numa in range(2):
        inside = ""
        for i in range(4 * numa, 4 * numa + 4):
            count = links - (i in lost)
            shares = [count // switches + (k < count % switches)
                      for k in range(switches)]
            joined = "".join(nvlink(f"0000:{0xc0 + k:02x}:00.0", n)
                             for k, n in enumerate(shares))
            inside += pci(f"0000:{0x10 + 8 * i:02x}:00.0", "0x060400",
                          gpu(f"0000:{0x11 + 8 * i:02x}:00.0", i, sm, joined,
                              vendor="0x10de", device=device, speed=speed) +
                          nic(f"0000:{0x12 + 8 * i:02x}:00.0", f"mlx5_{i}", i,
                              gbps, vendor="0x15b3",
                              device="0x1021" if gbps > 200 else "0x101b",
                              speed=speed), speed=speed)
        sockets.append(cpu(numa, inside))
    return system("".join(sockets))


def types(facts):
    return [[p["type"] for p in row] for row in facts["paths"]["gpu_gpu"]]


def total(rings):
    return rings["channels"] * rings["GBps"]


class Machines(unittest.TestCase):
    def warned(self, facts, code, *words):
        for warning in facts["warnings"]:
            text = warning["device"] + ": " + warning["text"]
            if warning["code"] == code and all(w in text for w in words):
                return
        self.fail(f"no warning {code} with {words}: {facts['warnings']}")

    def silent(self, facts):
        self.assertEqual(facts["warnings"], [])

    def check_box(self, facts, GBps, nccl_rings, nccl_net):
        self.assertEqual(len(facts["gpus"]), 8)
        self.assertEqual(len(facts["nics"]), 8)
        self.assertEqual([g["numa"] for g in facts["gpus"]],
                         ["numa0"] * 4 + ["numa1"] * 4)
        for a in range(8):
            for b in range(8):
                path = facts["paths"]["gpu_gpu"][a][b]
                self.assertEqual(path["type"], "LOC" if a == b else "NVL")
                if a != b:
                    self.assertEqual(path["GBps"], GBps)
                self.assertEqual(facts["paths"]["gpu_nic"][a][b]["type"],
                                 "PIX" if a == b else "PXN")
        # What NCCL's own search finds, or more with its proof.
        self.assertGreaterEqual(total(facts["rings"]), nccl_rings)
        self.assertGreaterEqual(total(facts["rings_multinode"]), nccl_net)
        self.check_proof(facts)

    def check_proof(self, facts):
        for name in ("rings", "trees", "rings_multinode",
                     "trees_multinode"):
            if facts[name]:
                self.assertLessEqual(facts[name]["most_use"], 1 + 1e-4, name)

    def test_dgx_a100(self):
        facts = show(hgx(80, 12, 6, 200, device="0x20b2"))
        self.silent(facts)
        self.assertEqual(facts["switches"], 6)
        self.check_box(facts, 300, 240, 192)

    def test_dgx_h100(self):
        facts = show(hgx(90, 18, 4, 400))
        self.silent(facts)
        self.assertEqual(facts["switches"], 4)
        self.check_box(facts, 450, 360, 360)

    def test_dgx_b200(self):
        facts = show(hgx(100, 18, 2, 400, device="0x2901"))
        self.silent(facts)
        self.check_box(facts, 900, 720, 384)

    def test_one_dead_link_is_named_and_limits(self):
        facts = show(hgx(90, 18, 4, 400, lost={3}))
        self.warned(facts, 4, "gpu3", "17", "18")
        self.assertEqual(facts["paths"]["gpu_gpu"][0][3]["GBps"], 17 * 25)
        self.assertEqual(facts["paths"]["gpu_gpu"][0][1]["GBps"], 450)
        self.check_proof(facts)

    def test_idle_gpu_is_doubted(self):
        text = hgx(90, 18, 4, 400)
        bus = 'busid="0000:29:00.0"'
        at = text.index(bus)
        end = text.index("link_speed=", at)
        text = text[:end] + text[end:].replace("32.0 GT/s PCIe",
                                               "2.5 GT/s PCIe", 1)
        self.warned(show(text), 12, "gpu3", "idle or degraded")

    def test_aws_p5_without_links_says_so(self):
        inside = ""
        for i in range(8):
            ports = "".join(
                nic(f"0000:{0x50 + 16 * i + j:02x}:00.0",
                    f"rdmap{80 + 16 * i + j}s0", 4 * i + j, 100,
                    kind="0x020000", speed="16.0 GT/s PCIe", width=8)
                for j in range(4))
            inside += pci(f"0000:{i:02x}:00.0", "0x060400",
                          gpu(f"0000:{0x4f + 16 * i:02x}:00.0", i, 90) + ports,
                          speed="16.0 GT/s PCIe")
        text = system(cpu(0, inside, vendor="AuthenticAMD", familyid=25))
        facts = show(text)
        self.assertEqual([n["kind"] for n in facts["nics"]], ["efa"] * 32)
        self.warned(facts, 21, "8 GPUs")
        self.warned(facts, 11, "bridge3 0000:03:00.0")
        facts = show(text, "--model", "H100")
        self.assertEqual(types(facts)[0][7], "NVL")
        self.warned(facts, 19, "as stated")
        self.assertGreaterEqual(total(facts["rings_multinode"]), 350)

    def test_azure_template_is_completed_by_a_model(self):
        sockets = ""
        for numa in range(2):
            sockets += cpu(numa, "".join(
                pci(f"000{1 + 4 * numa + i}:00:00.0", "0x030200") +
                pci(f"010{1 + 4 * numa + i}:00:00.0", "0x020700")
                for i in range(4)))
        facts = show(system(sockets))
        self.assertEqual(len(facts["gpus"]), 8)
        self.assertEqual(len(facts["nics"]), 8)
        self.warned(facts, 19, "template")
        self.warned(facts, 21, "unknown")
        self.warned(facts, 17, "nic5", "assumed 10")
        facts = show(system(sockets), "--model", "H100")
        self.assertEqual(types(facts)[0][7], "NVL")

    def test_guest_knows_no_numa_node(self):
        inside = "".join(gpu(f"0000:0{i}:00.0", i, 90,
                             nvlink("fffffff:ff:ff.0", 18)) for i in range(8))
        facts = show(system(cpu(-1, inside, affinity="")))
        self.assertEqual(types(facts)[2][5], "NVL")
        self.warned(facts, 13, "unknown")
        self.warned(facts, 8, "gpu7", "hidden")
        self.assertEqual([g["numa"] for g in facts["gpus"]], [None] * 8)

    def test_cube_mesh_passes_through_one_gpu(self):
        pairs = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2,
                 (1, 3): 1, (1, 5): 2, (2, 3): 2, (2, 6): 1, (3, 7): 1,
                 (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1,
                 (6, 7): 2}
        sockets = ""
        for numa in range(2):
            inside = ""
            for i in range(4 * numa, 4 * numa + 4):
                links = "".join(
                    nvlink(f"0000:1{b if a == i else a}:00.0", n, "0x030200")
                    for (a, b), n in pairs.items() if i in (a, b))
                inside += gpu(f"0000:1{i}:00.0", i, 70, links,
                              speed="8.0 GT/s PCIe")
            sockets += cpu(numa, inside, modelid=79)
        facts = show(system(sockets))
        self.assertEqual(types(facts)[0][1], "NVL")
        self.assertEqual(types(facts)[0][7], "NVB")
        self.assertGreaterEqual(total(facts["rings"]), 100)
        self.check_proof(facts)

    def test_four_gpus_joined_in_pairs_use_all_links(self):
        """Six rings, each way round once, leave nothing unused."""
        for sm, count, GBps in ((70, 2, 120), (80, 4, 240)):
            speed = {70: "8.0 GT/s PCIe", 80: "16.0 GT/s PCIe"}[sm]
            inside = ""
            for i in range(4):
                links = "".join(nvlink(f"0000:{k}1:00.0", count, "0x030200")
                                for k in range(4) if k != i)
                inside += gpu(f"0000:{i}1:00.0", i, sm, links,
                              speed=speed)
            facts = show(system(cpu(0, inside)))
            self.silent(facts)
            self.assertEqual(facts["paths"]["gpu_gpu"][0][3]["GBps"],
                             25 * count)
            self.assertEqual(total(facts["rings"]), GBps)
            self.check_proof(facts)

    def test_superchip_reaches_its_port_by_the_cpu(self):
        inside = "".join(
            cpu(n, gpu(f"000{n}:01:00.0", n, 90, nvlink("fffffff:ff:ff.0", 18) +
                       tag("c2c", bw=44712, count=10)) +
                nic(f"001{n}:01:00.0", f"mlx5_{n}", n, 400),
                arch="arm64", vendor="ARM") for n in range(4))
        facts = show(system(inside))
        self.assertEqual(types(facts)[0][3], "NVL")
        self.assertIn(facts["paths"]["gpu_nic"][0][0]["type"], ("P2C", "PHB"))
        links = [k for k in facts["links"] if k["type"] == "C2C"]
        self.assertEqual(len(links), 4)
        self.assertAlmostEqual(links[0]["GBps"], 447.12)

    def test_rack_gpu_without_its_nvlinks_is_named(self):
        """As seen on a GB300 rack: one GPU of a tray, by C2C alone."""
        inside = "".join(
            cpu(n, gpu(f"000{n}:06:00.0", n, 103,
                       ("" if n == 1 else nvlink("fffffff:ff:ff.0", 18)) +
                       tag("c2c", bw=44712, count=5), vendor="0x10de",
                       device="0x31c2", speed="64.0 GT/s PCIe"),
                arch="arm64", vendor="ARM") for n in range(4))
        facts = show(system(inside))
        self.assertEqual(facts["gpus"][0]["name"], "GB300")
        self.warned(facts, 4, "gpu1", "0 links", "twins have 18")
        self.assertEqual(types(facts)[0][1], "SYS")
        self.assertEqual(facts["paths"]["gpu_gpu"][0][2]["GBps"], 900)
        self.check_proof(facts)

    def test_two_halves_of_a_gpu_share_its_links(self):
        """Rubin with MLOPart: each half lists all 36 links."""
        inside = "".join(
            cpu(n, pci(f"000{2 * n}:81:00.0", "0x030200", "".join(
                tag("gpu", nvlink("fffffff:ff:ff.0", 36) +
                    tag("c2c", bw=56376, count=7), dev=n, sm=107, mlopart=k,
                    rank=2 * n + k, gdr=1) for k in range(2)),
                vendor="0x10de", device="0x307f", speed="64.0 GT/s PCIe",
                width=2), arch="arm64", vendor="ARM") for n in range(2))
        facts = show(system(inside))
        self.assertEqual(len(facts["gpus"]), 4)
        self.warned(facts, 22, "2 GPUs", "each is given its part")
        self.assertEqual([w for w in facts["warnings"] if w["code"] == 7], [])
        links = [(k["count"], k["GBps"]) for k in facts["links"]
                 if k["type"] == "NVL"]
        self.assertEqual(links, [(18, 900)] * 4)
        c2c = [k["GBps"] for k in facts["links"] if k["type"] == "C2C"]
        self.assertAlmostEqual(sum(c2c), 2 * 7 * 56.376)
        self.check_proof(facts)

    def test_socket_port_below_every_cpu_counts_once(self):
        """As a cloud's guest dumps it: eth0 under both <cpu> elements."""
        port = tag("nic", tag("net", name="eth0", dev=0, speed=10000, port=0,
                              guid="0x0", gdr=0))
        facts = show(system("".join(cpu(n, gpu(
            f"0000:{n + 1}0:00.0", n, 90, nvlink("fffffff:ff:ff.0", 18)) +
            port) for n in range(2))))
        self.assertEqual([n["name"] for n in facts["nics"]], ["eth0"])
        self.warned(facts, 15, "nic0 eth0", "again")
        self.assertLessEqual(total(facts["rings_multinode"]), 1.25)

    # ---- AMD --------------------------------------------------------------

    def amd(self, count, gcn, device, peers, speed=200000):
        inside = ""
        for i in range(count):
            links = "".join(nvlink(f"0000:{0x10 + k:02x}:00.0", n, "0x120000",
                                   "xgmi") for k, n in peers(i).items())
            card = tag("gpu", links, dev=i, sm=1, gcn=gcn, arch=1, rank=i,
                       gdr=1)
            net = tag("net", name=f"cxi{i}", dev=i, speed=speed, port=1,
                      guid=hex(i + 1), gdr=1)
            inside += pci(f"0000:{0x80 + i:02x}:00.0", "0x060400",
                          pci(f"0000:{0x10 + i:02x}:00.0", "0x120000", card,
                              vendor="0x1002", device=device))
            inside += pci(f"0000:{0x40 + i:02x}:00.0", "0x020000",
                          tag("nic", net), vendor="0x17db", device="0x0501",
                          speed="16.0 GT/s PCIe")
        return show(system(cpu(0, inside, vendor="AuthenticAMD",
                               familyid=25), 2))

    def test_mi300x_all_to_all(self):
        facts = self.amd(8, "gfx942", "0x74a1",
                         lambda i: {k: 1 for k in range(8) if k != i})
        self.silent(facts)
        self.assertEqual({t for row in types(facts) for t in row},
                         {"LOC", "XGMI"})
        self.assertEqual({k["type"] for k in facts["links"]},
                         {"XGMI", "PCI", "NET"})
        self.assertEqual([n["kind"] for n in facts["nics"]], ["slingshot"] * 8)
        self.check_proof(facts)

    def test_comments_are_read_as_nccl_reads_them(self):
        """RCCL's own files begin with lines of dashes, which XML forbids."""
        dashes = 40 * "-"
        head = f"<!{dashes}\n - a notice -- with more\n {dashes}>\n"
        text = system(cpu(0, gpu("0000:01:00.0", 0, 90)))
        facts = show(head + text.replace("<gpu", "<!-- <gpu> --><gpu"))
        self.assertEqual(len(facts["gpus"]), 1)
        with self.assertRaisesRegex(AssertionError, "machine.xml:1:"):
            show(head.replace("-->", "--") + text)

    def test_mi250_pairs_have_more_links(self):
        ring = {0: 2, 1: 3, 2: 4, 3: 5, 4: 6, 5: 7, 6: 0, 7: 1}
        back = {b: a for a, b in ring.items()}
        facts = self.amd(8, "gfx90a", "0x7408",
                         lambda i: {i ^ 1: 4, ring[i]: 1, back[i]: 1})
        self.assertEqual(facts["paths"]["gpu_gpu"][0][1]["GBps"], 200)
        self.assertEqual(facts["paths"]["gpu_gpu"][0][2]["GBps"], 50)
        self.assertEqual(types(facts)[0][3], "XGMI")
        self.assertEqual(facts["paths"]["gpu_gpu"][0][3]["hops"], 2)
        self.check_proof(facts)

    def test_speed_beyond_any_port_is_not_believed(self):
        facts = self.amd(4, "942", "0x74a0",
                         lambda i: {k: 2 for k in range(4) if k != i},
                         speed=200000000)
        self.warned(facts, 17, "nic2 cxi2", "beyond any port")
        self.assertEqual([n["gbps"] for n in facts["nics"]], [200] * 4)

    # ---- hwloc ------------------------------------------------------------

    def hwloc(self, inside, version="2.9.1", root='version="2.0"', more=""):
        return (f'<?xml version="1.0"?><topology {root}><object type="Machine" '
                f'os_index="0" cpuset="0x000000ff">'
                f'<info name="hwlocVersion" value="{version}"/>'
                f'{inside}</object>{more}</topology>')

    def node(self, number, cpus, inside=""):
        return (f'<object type="NUMANode" os_index="{number}" '
                f'cpuset="{cpus}">{inside}</object>')

    def bridge(self, bus, inside, speed=31.5, kind="1-1"):
        at = f'pci_busid="{bus}" ' if kind == "1-1" else ""
        return (f'<object type="Bridge" bridge_type="{kind}" {at}'
                f'pci_type="0604 [1000:c010] [1000:a096] b0" '
                f'pci_link_speed="{speed}">{inside}</object>')

    def device(self, bus, kind, name, os_type, gp, infos="", speed=31.5):
        return (f'<object type="PCIDev" gp_index="{gp}" pci_busid="{bus}" '
                f'pci_type="{kind}" pci_link_speed="{speed}">'
                f'<object type="OSDev" gp_index="{gp + 1}" name="{name}" '
                f'osdev_type="{os_type}">{infos}</object></object>')

    def test_bridge_of_a_cloud_is_no_bottleneck(self):
        """As on p6e: ports of Gen 5 x16 below a switch that says 1.97."""
        card = self.device("0000:b2:00.0", "0302 [10de:2941] [10de:2046] a1",
                           "opencl0d3", 5, 100,
                           '<info name="GPUModel" value="NVIDIA GB200"/>', 63.0)
        port = self.device("0000:b0:00.0", "0200 [1d0f:efa3] [1d0f:efa3] 00",
                           "rdmap176s0", 3, 200,
                           '<info name="SysImageGUID" value='
                           '"0000:0000:0000:0000"/>'
                           '<info name="Port1State" value="4"/>'
                           '<info name="Port1LID" value="0x0"/>', 63.0)
        down = (self.bridge("0000:af:00.2", card, 63.0) +
                self.bridge("0000:af:00.0", port, 63.0))
        tree = self.bridge("", self.bridge("0000:ad:00.0", self.bridge(
            "0000:ae:00.0", down, 1.97), 1.97), 0, "0-1")
        facts = show(self.hwloc(self.node(0, "0x000000ff") + tree))
        self.assertEqual(facts["gpus"][0]["name"], "NVIDIA GB200")
        self.assertEqual(facts["gpus"][0]["sm"], 100)
        self.assertEqual(facts["nics"][0]["kind"], "efa")
        self.assertEqual(facts["nics"][0]["state"], "active")
        self.assertEqual(facts["paths"]["gpu_nic"][0][0]["type"], "PIX")
        self.warned(facts, 11, "0000:ae:00.0", "not believed")
        self.assertGreater(facts["paths"]["gpu_nic"][0][0]["GBps"], 20)

    def test_hwloc_1_power9(self):
        """Nodes 0 and 8, GPU memory as nodes without CPUs, two ports down."""
        sockets = ""
        for s, (number, cpus) in enumerate(((0, "0x0000000f"),
                                            (8, "0x000000f0"))):
            cards = "".join(self.bridge(
                f"000{4 + s}:0{i}:00.0",
                self.device(f"000{4 + s}:1{i}:00.0",
                            "0302 [10de:1db1] [10de:1212] a1",
                            f"nvml{2 * s + i}", 5, 100 + 20 * s + 4 * i,
                            '<info name="GPUModel" '
                            'value="Tesla V100-SXM2-16GB"/>', 1.97), 1.97)
                for i in range(2))
            port = self.device(
                f"003{s}:01:00.0", "0207 [15b3:1019] [1014:0617] 00",
                f"mlx5_{s}", 3, 180 + 20 * s,
                '<info name="SysImageGUID" value="506b:4b03:003c:eee8"/>'
                f'<info name="Port1State" value="{1 + 3 * s}"/>'
                f'<info name="Port1LID" value="{"0xffff" if s == 0 else "0x7"}'
                '"/>', 15.75)
            sockets += self.node(number, cpus, self.bridge(
                "", cards, 0, "0-1") + self.bridge("", port, 0, "0-1"))
        memory = "".join(self.node(n, "0x0") for n in (252, 253, 254, 255))
        text = self.hwloc(sockets + memory, "1.11.8", "")
        facts = show(text)
        self.assertEqual([g["numa"] for g in facts["gpus"]],
                         ["numa0", "numa0", "numa8", "numa8"])
        self.assertEqual(sorted(n["state"] for n in facts["nics"]),
                         ["active", "down"])
        self.warned(facts, 14, "252")
        self.warned(facts, 16, "nic0 mlx5_0")
        self.warned(facts, 21, "4 GPUs")
        self.warned(facts, 15, "nic0")

    def matrix(self, name, first, values, kind=9):
        count = len(first)
        indexes = " ".join(str(i) for i in first)
        numbers = " ".join(str(v) for v in values)
        return (f'<distances2hetero nbobjs="{count}" kind="{kind}" '
                f'name="{name}"><indexes length="{2 * len(indexes)}">'
                + " ".join(f"OSDev:{i}" for i in first) + "</indexes>"
                f'<u64values length="{len(numbers)}">{numbers}</u64values>'
                "</distances2hetero>" if kind & 16 else
                f'<distances2 type="OSDev" nbobjs="{count}" kind="{kind}" '
                f'name="{name}" indexing="gp"><indexes '
                f'length="{len(indexes)}">{indexes}</indexes><u64values '
                f'length="{len(numbers)}">{numbers}</u64values></distances2>')

    def boxes(self, vendor, model, prefix, count=4):
        return "".join(self.bridge(
            f"0000:{0x10 * i + 1:02x}:00.0",
            self.device(f"0000:{0x10 * i + 2:02x}:00.0", vendor,
                        f"{prefix}{i}", 1, 100 + 2 * i,
                        f'<info name="GPUModel" value="{model}"/>'))
            for i in range(count))

    def test_hwloc_flat_xgmi_matrix_is_no_graph(self):
        tree = self.bridge("", self.boxes("1200 [1002:740c] [1002:0b0c] 01",
                                          "AMD Instinct MI250X", "rsmi"), 0,
                           "0-1")
        values = [1000000 if i == j else 100000
                  for i in range(4) for j in range(4)]
        more = self.matrix("XGMIBandwidth", [101, 103, 105, 107], values)
        facts = show(self.hwloc(self.node(0, "0x000000ff") + tree, more=more))
        self.assertEqual(len(facts["gpus"]), 4)
        self.warned(facts, 21, "one value for every pair")
        hops = [0 if i == j else 1 + (i ^ j == 3)
                for i in range(4) for j in range(4)]
        more += self.matrix("XGMIHops", [101, 103, 105, 107], hops, 5)
        facts = show(self.hwloc(self.node(0, "0x000000ff") + tree, more=more))
        self.assertEqual(types(facts)[0], ["LOC", "XGMI", "XGMI", "XGMI"])
        self.assertEqual([p["hops"] for p in facts["paths"]["gpu_gpu"][0]],
                         [0, 1, 1, 2])

    def test_hwloc_2_9_0_doubles_and_is_halved(self):
        tree = self.bridge("", self.boxes("0302 [10de:20b0] [10de:144e] a1",
                                          "NVIDIA A100-SXM4-40GB", "nvml"), 0,
                           "0-1")
        for version, each in (("2.9.0", 200000), ("2.9.1", 100000)):
            values = [1000000 if i == j else each
                      for i in range(4) for j in range(4)]
            more = self.matrix("NVLinkBandwidth", [101, 103, 105, 107], values)
            facts = show(self.hwloc(self.node(0, "0x000000ff") + tree, version,
                                    more=more))
            self.assertEqual(facts["paths"]["gpu_gpu"][0][1]["GBps"], 100)
            if version == "2.9.0":
                self.warned(facts, 20, "2.9.0", "halved")
            else:
                self.silent(facts)

    def test_hwloc_1_of_one_node_may_begin_with_it(self):
        text = ('<topology><object type="NUMANode" os_index="0" '
                'cpuset="0x00000003"><info name="hwlocVersion" '
                'value="1.11.0"/></object></topology>')
        self.warned(show(text), 2, "no I/O")


unittest.main(argv=sys.argv[:1])
