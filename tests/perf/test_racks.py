#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: hosts whose GPUs are in one NVLink domain are one clique; of unlike hosts
the slowest is shown and what makes it slow is named; very large hosts are
answered for in seconds.

Method: racks as NCCL's XML and as texts, with domains cut in several ways and
one GPU or port made worse; hosts of hundreds of GPUs and NICs in every format,
held against the clock.

Usage: test_racks.py BIN_DIR GPUS, which the large hosts have; a sanitizer's build
is given fewer.
"""
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest

INFO = os.path.join(sys.argv[1], "weft-info")
FOLDER = tempfile.TemporaryDirectory()
GPUS = int(sys.argv[2])
SECONDS_MOST = 10  # of processor time, sanitizers included


def run(machine, *args):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    return subprocess.run([INFO, "--input", machine, *args],
                          capture_output=True, text=True, timeout=60,
                          env=clean)


def show(machine, *args):
    done = run(machine, "--json", "-", *args)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def write(text):
    path = os.path.join(FOLDER.name, "machine.xml")
    with open(path, "w") as file:
        file.write(text)
    return path


def total(rings):
    return rings["channels"] * rings["GBps"]


# ---- NCCL's XML -----------------------------------------------------------

def tray(host, dead=(), arch="arm64", links=18, gpus=4, speed=800000,
         device="0x31c2", sm=103):
    """Each GPU and a port on a processor of its own."""
    text = ""
    for i in range(gpus):
        joined = ("" if i in dead else f'<nvlink target="fffffff:ff:ff.0" '
                  f'count="{links}" tclass="0x068000"/>')
        text += (
            f'<cpu host_hash="0x{host + 16:x}" numaid="{i}" '
            f'affinity="ffffffff" arch="{arch}" vendor="ARM" familyid="6" '
            f'modelid="1"><pci busid="000{i}:06:00.0" class="0x030200" '
            f'vendor="0x10de" device="{device}" link_speed="64.0 GT/s PCIe" '
            f'link_width="16"><gpu dev="{i}" sm="{sm}" '
            f'rank="{gpus * host + i}" gdr="1">{joined}'
            f'<c2c bw="44712" count="5"/></gpu></pci>'
            f'<pci busid="001{i}:06:00.0" class="0x020700" vendor="0x15b3" '
            f'device="0x1023" link_speed="64.0 GT/s PCIe" link_width="16">'
            f'<nic><net name="mlx5_{i}" dev="{i}" speed="{speed}" port="1" '
            f'guid="0x{gpus * host + i + 1:x}" gdr="1"/></nic></pci></cpu>')
    return text


def nccl(*trays):
    return write(f'<system version="1">{"".join(trays)}</system>')


# ---- large hosts ----------------------------------------------------------

def nccl_host(count, numas, dense=False):
    """count GPUs and NICs, two of a kind on each switch."""
    text = ""
    for numa in range(numas):
        text += (f'<cpu numaid="{numa}" affinity="ffffffff" arch="x86_64" '
                 f'vendor="GenuineIntel" familyid="6" modelid="143">')
        for g in range(count * numa // numas, count * (numa + 1) // numas):
            at = [f"{16 * k + g // 200:04x}:{g % 200 + 1:02x}:00.0"
                  for k in range(3)]
            links = ('<nvlink target="fffffff:ff:ff.0" count="18" '
                     'tclass="0x068000"/>')
            if dense:
                links = "".join(
                    f'<nvlink target="{16 + k // 200:04x}:{k % 200 + 1:02x}'
                    f':00.0" count="1" tclass="0x030200"/>'
                    for k in range(count) if k != g)
            text += (
                f'<pci busid="{at[0]}" class="0x060400" '
                f'link_speed="32.0 GT/s PCIe" link_width="16">'
                f'<pci busid="{at[1]}" class="0x030200" vendor="0x10de" '
                f'device="0x2330" link_speed="32.0 GT/s PCIe" '
                f'link_width="16"><gpu dev="{g}" sm="90" rank="{g}" gdr="1">'
                f'{links}</gpu></pci><pci busid="{at[2]}" class="0x020700" '
                f'vendor="0x15b3" device="0x1021" '
                f'link_speed="32.0 GT/s PCIe" link_width="16"><nic>'
                f'<net name="mlx5_{g}" dev="{g}" speed="400000" port="1" '
                f'guid="0x{g + 1:x}" gdr="1"/></nic></pci></pci>')
        text += "</cpu>"
    return f'<system version="1">{text}</system>'


def hwloc_host(count, numas):
    """The same as hwloc has it, with a matrix of all GPUs."""
    packages = ""
    for numa in range(numas):
        inside = ""
        for g in range(count * numa // numas, count * (numa + 1) // numas):
            at = [f"{16 * k + g // 200:04x}:{g % 200 + 1:02x}:00.0"
                  for k in range(3)]
            inside += (
                f'<object type="Bridge" bridge_type="1-1" '
                f'pci_busid="{at[0]}" pci_type="0604 [1022:1483] [0000:0000] '
                f'00" pci_link_speed="63.0">'
                f'<object type="PCIDev" gp_index="{3 * g + 1}" '
                f'pci_busid="{at[1]}" '
                f'pci_type="1200 [1002:74a1] [1002:74a1] 00" '
                f'pci_link_speed="63.0"><object type="OSDev" '
                f'gp_index="{3 * g + 2}" name="rsmi{g}" osdev_type="1"/>'
                f'</object><object type="PCIDev" gp_index="{3 * g + 3}" '
                f'pci_busid="{at[2]}" '
                f'pci_type="0207 [15b3:1021] [15b3:0023] 00" '
                f'pci_link_speed="63.0"><object type="OSDev" '
                f'name="mlx5_{g}" osdev_type="3"/></object></object>')
        cpus = ",".join([f"0x{1 << numa % 32:08x}"] + ["0x0"] * (numa // 32))
        packages += (f'<object type="Package" cpuset="{cpus}"><object '
                     f'type="NUMANode" os_index="{numa}" cpuset="{cpus}"/>'
                     f'<object type="Bridge" bridge_type="0-1">{inside}'
                     f'</object></object>')
    indexes = " ".join(str(3 * g + 2) for g in range(count))
    values = " ".join(["50000"] * count * count)
    return (f'<?xml version="1.0"?><topology version="2.0"><object '
            f'type="Machine" os_index="0" cpuset="0xffffffff">{packages}'
            f'</object><distances2 type="OSDev" nbobjs="{count}" kind="9" '
            f'name="XGMIBandwidth" indexing="gp"><indexes>{indexes}</indexes>'
            f'<u64values>{values}</u64values></distances2></topology>')


class Racks(unittest.TestCase):
    def warned(self, facts, code, *words):
        texts = [f'{w["device"]}: {w["text"]}' for w in facts["warnings"]
                 if w["code"] == code]
        if not any(all(word in text for word in words) for text in texts):
            self.fail(f"no warning {code} with {words}: {facts['warnings']}")

    def types(self, facts):
        return [[p["type"] for p in row] for row in facts["paths"]["gpu_gpu"]]

    def check_clique(self, facts, gpus, hosts):
        for a, row in enumerate(self.types(facts)):
            self.assertEqual(set(row[:a] + row[a + 1:]), {"NVL"})
        for name in ("rings", "trees", "rings_multinode", "trees_multinode"):
            rings = facts[name]
            self.assertEqual(rings["hosts"], [f"host{i}" for i in
                                              range(hosts)])
            self.assertLessEqual(rings["most_use"], 1)
            for order in rings["orders"]:
                self.assertEqual(sorted(order),
                                 sorted(f"gpu{i}" for i in range(gpus)))
        self.assertEqual(total(facts["rings"]), 720)

    # ---- domains ----------------------------------------------------------

    def test_trays_of_a_domain_are_one_clique(self):
        for machine in (nccl(tray(0), tray(1)), "2x(4xGB300,4xCX8)",
                        "1x(4xGB200,4xCX7)+1x(4xGB200,4xCX7)",
                        "2x(4xH100,4xCX7,8xNVL)"):
            with self.subTest(machine=machine):
                facts = show(machine)
                if "H100" not in machine:
                    self.check_clique(facts, 8, 2)
                self.assertEqual(self.types(facts)[0][7], "NVL")
                levels = show(machine, "--place", "tp=8")["placement"]
                self.assertIn("nvlink", json.dumps(levels))
                self.assertNotIn("network", json.dumps(levels))
        text = run("2x(4xGB300,4xCX8)").stdout
        self.assertIn("2 hosts from host0 on, one NVLink domain", text)

    def test_whole_rack_is_one_clique(self):
        trays = 18 if GPUS >= 600 else 3
        facts = show(f"{trays}x(4xGB300,4xCX8)")
        self.check_clique(facts, 4 * trays, trays)

    def test_other_domains_are_reached_by_the_network(self):
        boxes = [tray(h, arch="x86_64", device="0x2901", sm=100)
                 for h in range(2)]
        for machine, near, far in (("19x(4xGB300)", 71, 72),
                                   ("4x(4xGB300,4xCX8,8xNVL)", 7, 8),
                                   ("2x(4xGB300,4xCX8,4xNVL)", 3, 4),
                                   ("2x(8xH100,8xCX7)", 7, 8),
                                   ("2x(8xB200,8xCX7)", 7, 8),
                                   (nccl(*boxes), 3, 4)):
            with self.subTest(machine=machine):
                row = self.types(show(machine))[0]
                self.assertEqual(row[near], "NVL")
                self.assertIn(row[far], ("NET", "DIS"))

    def test_gpu_without_its_links_is_out_of_the_clique(self):
        facts = show(nccl(tray(0), tray(1, dead=[1])))
        self.warned(facts, 4, "gpu5", "0 links", "twins have 18")
        self.assertEqual(self.types(facts)[0][5], "NET")
        self.assertEqual(self.types(facts)[0][6], "NVL")
        self.assertLess(total(facts["rings"]), 100)

    # ---- unlike hosts -----------------------------------------------------

    def test_worst_of_eight_is_shown_and_its_gpu_named(self):
        """Seven at 16 x 45, and the last has a GPU by C2C alone."""
        alone = dict(arch="x86_64", device="0x3182")
        good = [tray(h, **alone) for h in range(7)]
        facts = show(nccl(*good, tray(7, dead=[2], **alone)))
        self.assertEqual(facts["rings"]["host"], "host7")
        self.assertLess(total(facts["rings"]), 100)
        self.warned(facts, 4, "host7", "720", "gpu30")
        self.warned(facts, 4, "gpu30", "0 links", "twins have 18")

    def test_host_of_slower_links_is_compared_with_others(self):
        """Nothing inside that host tells: all its GPUs are alike."""
        facts = show("7x(8xH100,8xCX7)+1x(8xH800,8xCX7)")
        self.assertEqual(facts["rings"]["host"], "host7")
        self.warned(facts, 4, "host7", "its GPUs have")
        alone = dict(arch="x86_64", device="0x3182")
        trays = [tray(h, **alone) for h in range(3)]
        facts = show(nccl(*trays, tray(3, links=9, **alone)))
        self.assertEqual(facts["rings"]["host"], "host3")
        for gpu in range(12, 16):
            self.warned(facts, 4, f"gpu{gpu}", "9 links", "twins have 18")

    def test_host_of_slower_ports_is_shown_for_rings_over_hosts(self):
        facts = show("3x(8xH100,8xCX7)+1x(8xH100,8xCX6)+2x(8xH100,8xCX7)")
        self.assertEqual(facts["rings"]["host"], "host0")
        self.assertEqual(facts["rings_multinode"]["host"], "host3")
        self.warned(facts, 4, "host3", "over hosts", "its ports carry 200")
        text = run("3x(8xH100,8xCX7)+1x(8xH100,8xCX6)").stdout
        self.assertIn("of host0; over hosts, of host3", text)

    def test_like_hosts_are_not_compared(self):
        facts = show("5x(8xH100,8xCX7)")
        self.assertEqual(facts["warnings"], [])
        self.assertEqual(facts["rings"]["host"], "host0")

    # ---- size -------------------------------------------------------------

    def seconds(self):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def quick(self, machine, gpus, nics):
        begun = self.seconds()
        done = run(machine)
        self.assertIn(f"GPUs {gpus}, NICs {nics},", done.stdout, done.stderr)
        self.assertLess(self.seconds() - begun, SECONDS_MOST, machine[:60])

    def test_large_texts_are_quick(self):
        for machine, count in ((f"{GPUS}xL40,{GPUS}xCX7", GPUS),
                               (f"{GPUS}xMI300X,{GPUS}xCX7,60xNUMA", GPUS),
                               (f"{GPUS // 10}x(8xH100,8xCX7)",
                                GPUS // 10 * 8)):
            with self.subTest(machine=machine):
                self.quick(machine, count, count)

    def test_rings_that_are_not_searched_are_told(self):
        for machine in ("257xL40,8xCX7", "257xH100"):
            facts = show(machine)
            self.assertIsNone(facts["rings"])
            self.assertIn("257 GPUs", facts["rings_left_out"])
            self.assertIn("Channels: none planned", run(machine).stdout)
        facts = show("1xH100")
        self.assertIsNone(facts["rings_left_out"])
        self.assertNotIn("none planned", run("1xH100").stdout)

    def test_many_hosts_are_searched_one_at_a_time(self):
        machine = f"{GPUS * 4}x(2xH100,2xCX7)"
        self.quick(machine, GPUS * 8, GPUS * 8)

    def test_large_files_are_quick(self):
        for name, count, text in (
                ("two nodes", GPUS, nccl_host(GPUS, 2)),
                ("all joined", GPUS // 2, nccl_host(GPUS // 2, 2, True)),
                ("hwloc", GPUS, hwloc_host(GPUS, 60))):
            with self.subTest(name=name):
                self.quick(write(text), count, count)


unittest.main(argv=sys.argv[:1])
