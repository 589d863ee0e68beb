#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: of hwloc's files of AMD machines every GPU is counted, once, whoever names
it; parts of devices are GPUs that share what their device has; XGMI bandwidths
are no more than the GPUs' links carry.

Method: small files as hwloc 2 writes them, with one thing varied at a time: who
names the GPUs, how a device is split, what the matrices hold.

Usage: test_amd.py BIN_DIR
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

INFO = os.path.join(sys.argv[1], "weft-info")
FOLDER = tempfile.TemporaryDirectory()
MI250X = "1200 [1002:7408] [1002:0b0c] 01"
MI300A = "1200 [1002:74a0] [1002:74a0] 00"
MI300X = "1200 [1002:74a1] [1002:74a1] 00"
VEGA = "0300 [1002:687f] [1002:0b36] c0"


def show(text):
    path = os.path.join(FOLDER.name, "machine.xml")
    with open(path, "w") as file:
        file.write(text)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    done = subprocess.run([INFO, "--input", path, "--json", "-"],
                          capture_output=True, text=True, timeout=60,
                          env=clean)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


# ---- hwloc's format -------------------------------------------------------

def info(**infos):
    return "".join(f'<info name="{k}" value="{v}"/>' for k, v in infos.items())


def rsmi(number, model="", uuid=""):
    infos = {"Backend": "RSMI", "GPUVendor": "AMD"}
    if model:
        infos["GPUModel"] = model
    if uuid:
        infos["AMDUUID"] = uuid
    return (f'<object type="OSDev" gp_index="{900 + number}" '
            f'name="rsmi{number}" subtype="RSMI" osdev_type="1">'
            f'{info(**infos)}</object>')


def opencl(platform, number, kind="GPU"):
    return (f'<object type="OSDev" name="opencl{platform}d{number}" '
            f'subtype="OpenCL" osdev_type="5">'
            f'{info(Backend="OpenCL", OpenCLDeviceType=kind)}</object>')


def os_gpu(name):
    return f'<object type="OSDev" name="{name}" osdev_type="1"/>'


def pci(bus, kind, inside="", speed=31.5):
    return (f'<object type="PCIDev" pci_busid="{bus}" pci_type="{kind}" '
            f'pci_link_speed="{speed}">{inside}</object>')


def bridge(inside, bus=None):
    if bus is None:
        return (f'<object type="Bridge" bridge_type="0-1" '
                f'bridge_pci="0000:[00-ff]">{inside}</object>')
    return (f'<object type="Bridge" bridge_type="1-1" pci_busid="{bus}" '
            f'pci_type="0604 [1022:1483] [0000:0000] 00" '
            f'pci_link_speed="31.5">{inside}</object>')


def package(number, inside):
    cpus = hex(0xff << 8 * number)
    return (f'<object type="Package" os_index="{number}" cpuset="{cpus}">'
            f'<object type="NUMANode" os_index="{number}" cpuset="{cpus}"/>'
            f'{bridge(inside)}</object>')


def matrix(name, numbers, value, kind):
    """Between rsmiN of these numbers; value(i, j) by their places."""
    count = len(numbers)
    indexes = " ".join(str(900 + n) for n in numbers)
    values = " ".join(str(value(i, j)) for i in range(count)
                      for j in range(count))
    return (f'<distances2 type="OSDev" nbobjs="{count}" kind="{kind}" '
            f'name="{name}" indexing="gp"><indexes>{indexes}</indexes>'
            f'<u64values>{values}</u64values></distances2>')


def bandwidths(numbers, value):
    return matrix("XGMIBandwidth", numbers,
                  lambda i, j: 1000000 if i == j else value(i, j), 9)


def hops(numbers, value):
    return matrix("XGMIHops", numbers,
                  lambda i, j: 0 if i == j else value(i, j), 5)


def machine(inside, more="", version="2.9.1"):
    return (f'<?xml version="1.0"?><topology version="2.0"><object '
            f'type="Machine" os_index="0" cpuset="0xffffffff">'
            f'{info(hwlocVersion=version)}{inside}</object>{more}</topology>')


# ---- what is checked of all -----------------------------------------------

class Amd(unittest.TestCase):
    def warned(self, facts, code, *words):
        texts = [f'{w["device"]}: {w["text"]}' for w in facts["warnings"]
                 if w["code"] == code]
        if not any(all(word in text for word in words) for text in texts):
            self.fail(f"no warning {code} with {words}: {facts['warnings']}")

    def silent(self, facts, *codes):
        self.assertEqual([w for w in facts["warnings"]
                          if w["code"] in (codes or (2, 20, 21, 22))], [])

    def check_links(self, facts, links, each):
        """No device has more XGMI than its model, none is called NVLink."""
        sums = {}
        for link in facts["links"]:
            self.assertNotEqual(link["type"], "NVL")
            if link["type"] == "XGMI":
                # What a part and its device say of each other is the device's.
                inner = (link["a"][:3] == "gpu") != (link["b"][:3] == "gpu")
                for end in ("a", "b"):
                    key = (link[end], inner)
                    count, GBps = sums.get(key, (0, 0))
                    if not (inner and link[end][:3] != "gpu"):
                        sums[key] = (count + link["count"],
                                     GBps + link["GBps"])
        for (device, _), (count, GBps) in sums.items():
            self.assertLessEqual(count, links, device)
            self.assertLessEqual(GBps, links * each * 1.001, device)
        for row in facts["paths"]["gpu_gpu"]:
            for path in row:
                self.assertNotIn(path["type"], ("NVL", "NVB"))
        rings = facts["rings"]
        if rings:
            self.assertLessEqual(rings["channels"] * rings["GBps"],
                                 links * each)
            self.assertLessEqual(rings["most_use"], 1)

    def types(self, facts):
        return {p["type"] for a, row in enumerate(facts["paths"]["gpu_gpu"])
                for b, p in enumerate(row) if a != b}

    # ---- MI200 ------------------------------------------------------------

    def mi250x(self, *matrices, count=8):
        inside = "".join(
            package(p, "".join(
                bridge(pci(f"0000:{0xc1 + i:02x}:00.0", MI250X,
                           rsmi(i, "AMD Instinct MI250X")),
                       f"0000:{0x40 + i:02x}:01.0")
                for i in range(2 * p, 2 * p + 2))) for p in range(count // 2))
        return show(machine(inside, "".join(matrices)))

    def test_flat_matrix_is_held_to_eight_links(self):
        """Seven peers at 100 GB/s would be 14 links."""
        flat = bandwidths(range(8), lambda i, j: 100000)
        for more in ("", hops(range(8), lambda i, j: 1)):
            facts = self.mi250x(flat, more)
            self.assertEqual(len(facts["gpus"]), 8)
            self.assertTrue(facts["links_unknown"])
            self.warned(facts, 21, "14 links", "has 8 of 50")
            self.check_links(facts, 8, 50)
            self.assertEqual(self.types(facts), {"XGMI"})
            self.assertTrue(all(link["assumed"] for link in facts["links"]
                                if link["type"] == "XGMI"))

    def test_flat_matrix_of_four_is_still_no_graph(self):
        facts = self.mi250x(bandwidths(range(4), lambda i, j: 100000), count=4)
        self.warned(facts, 21, "one value for every pair")
        self.check_links(facts, 8, 50)

    def test_true_matrix_is_believed(self):
        """Four links in a package, two and one to three others."""
        def value(i, j):
            return {1: 200000, 2: 100000, 4: 50000, 6: 50000}.get(i ^ j, 50000)

        def far(i, j):
            return 1 if i ^ j in (1, 2, 4, 6) else 2

        facts = self.mi250x(bandwidths(range(8), value), hops(range(8), far))
        self.silent(facts)
        self.check_links(facts, 8, 50)
        paths = facts["paths"]["gpu_gpu"][0]
        self.assertEqual([p["GBps"] for p in paths[1:3]], [200, 100])
        self.assertEqual((paths[3]["type"], paths[3]["hops"]), ("XGMI", 2))

    def test_uneven_matrix_beyond_the_links_is_scaled(self):
        facts = self.mi250x(bandwidths(
            range(8), lambda i, j: 400000 if i ^ j == 1 else 100000))
        self.warned(facts, 20, "1000 GB/s", "8 links of 50")
        for gpu in range(8):  # counts are whole links, so one more at most
            mine = [k for k in facts["links"] if k["type"] == "XGMI" and
                    f"gpu{gpu}" in (k["a"], k["b"])]
            self.assertEqual(len(mine), 7)
            self.assertAlmostEqual(sum(k["GBps"] for k in mine), 400)

    # ---- MI300 ------------------------------------------------------------

    def mi300x(self, value, parts=1):
        inside = "".join(
            package(p, "".join(
                bridge(pci(f"0000:{0x10 + i:02x}:00.0", MI300X, "".join(
                    rsmi(parts * i + k, "AMD Instinct MI300X")
                    for k in range(parts)), 63.0), f"0000:{0x40 + i:02x}:01.0")
                for i in range(4 * p, 4 * p + 4))) for p in range(2))
        return show(machine(inside, bandwidths(range(8 * parts), value) +
                            hops(range(8 * parts), lambda i, j: 1), "3.0.0"))

    def test_mi300x_joins_all_pairs(self):
        for value, GBps in ((50000, 50), (64000, 64)):
            facts = self.mi300x(lambda i, j, value=value: value)
            self.silent(facts)
            self.assertFalse(facts["links_unknown"])
            self.check_links(facts, 7, 64)
            self.assertEqual(facts["paths"]["gpu_gpu"][0][7]["GBps"], GBps)
            self.assertEqual(self.types(facts), {"XGMI"})
            self.assertEqual(facts["rings"]["type"], "XGMI")

    def test_mi300x_beyond_its_links_is_scaled(self):
        facts = self.mi300x(lambda i, j: 100000)
        self.warned(facts, 20, "700 GB/s", "MI300X has 7 links of 64")
        self.check_links(facts, 7, 64)
        self.assertEqual(facts["paths"]["gpu_gpu"][0][7]["GBps"], 64)

    def test_mi300x_in_eight_parts(self):
        """CPX: 64 GPUs, and still seven links a device."""
        facts = self.mi300x(lambda i, j: 819200 if i // 8 == j // 8 else 64000,
                            parts=8)
        self.assertEqual(len(facts["gpus"]), 64)
        self.warned(facts, 22, "8 GPUs in one device")
        self.silent(facts, 2, 20, 21)
        self.check_links(facts, 7, 64)
        self.assertEqual(self.types(facts), {"XGMI"})
        self.assertEqual(facts["paths"]["gpu_gpu"][0][63]["GBps"], 64)

    def check_mi300a(self, facts, parts):
        self.assertEqual(len(facts["gpus"]), 4 * parts)
        self.assertEqual(sorted(g["numa"] for g in facts["gpus"]),
                         sorted(f"numa{i}" for i in range(4)
                                for _ in range(parts)))
        self.check_links(facts, 6, 64)
        self.assertEqual(self.types(facts), {"XGMI"})
        numas = [g["numa"] for g in facts["gpus"]]
        for a, row in enumerate(facts["paths"]["gpu_gpu"]):
            for b, path in enumerate(row):
                if numas[a] != numas[b]:
                    self.assertEqual(path["GBps"], 100)
        joined = [k for k in facts["links"] if k["type"] == "XGMI" and
                  k["GBps"] == 100]
        self.assertEqual(len(joined), 6)  # pairs of devices, each once
        self.assertTrue(100 <= facts["rings"]["channels"] *
                        facts["rings"]["GBps"] <= 300)

    def test_parts_of_a_device_share_its_links(self):
        """TPX is 3 of an MI300A, CPX 6: on one function, on several, and as
        hwloc 2.9 leaves all but the first without a PCI device."""
        model = "AMD Instinct MI300A"
        for parts in (1, 3, 6):
            for way in ("one", "functions", "lost", "uuid"):
                packages, strays = "", ""
                for d in range(4):
                    own = [rsmi(parts * d + k, model, f"{d + 0xab:x}"
                                if way == "uuid" else "")
                           for k in range(parts)]
                    bus = f"000{d}:01:00"
                    cards, lost = pci(bus + ".0", MI300A, "".join(own)), ""
                    if way == "functions":
                        cards = "".join(pci(f"{bus}.{k}", MI300A, os)
                                        for k, os in enumerate(own))
                    elif way != "one":
                        cards = pci(bus + ".0", MI300A, own[0])
                        lost = "".join(own[1:])
                    if way == "uuid":  # below the machine, in no order
                        strays, lost = lost + strays, ""
                    packages += package(d, bridge(cards, f"000{d}:00:01.0") +
                                        lost)
                numbers = range(4 * parts)
                near = bandwidths(numbers, lambda i, j: 819200 if
                                  i // parts == j // parts else 100000)
                far = hops(numbers, lambda i, j: 1 if i // parts == j // parts
                           else 1 + (parts > 1))
                with self.subTest(parts=parts, way=way):
                    self.check_mi300a(show(machine(packages + strays, near +
                                                   far)), parts)

    def test_parts_are_not_exported_without_their_links(self):
        inside = "".join(
            bridge(pci(f"0000:{0xc1 + i:02x}:00.0", MI300X,
                       "".join(rsmi(2 * i + k) for k in range(2))),
                   f"0000:{0x40 + i:02x}:01.0") for i in range(2))
        show(machine(package(0, inside),
                     bandwidths(range(4), lambda i, j: 64000)))
        done = subprocess.run(
            [INFO, "--input", os.path.join(FOLDER.name, "machine.xml"),
             "--export-nccl", "-"], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("gpu0 is a part of the device 0000:c1:00.0",
                      done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_lost_parts_are_found_by_their_numbers(self):
        """Below the machine, without a UUID: numbers count device by device."""
        packages = "".join(package(d, bridge(
            pci(f"000{d}:01:00.0", MI300A, rsmi(3 * d)), f"000{d}:00:01.0"))
            for d in range(4))
        strays = "".join(rsmi(n) for n in range(12) if n % 3)
        facts = show(machine(packages + strays,
                             bandwidths(range(12), lambda i, j: 100000)))
        self.check_mi300a(facts, 3)
        self.warned(facts, 22, "rsmi11", "no PCI device")

    # ---- who names them ---------------------------------------------------

    def one_each(self, *devices, more=""):
        return show(machine(package(0, "".join(
            bridge(pci(f"0000:{0x10 + i:02x}:00.0", kind, inside),
                   f"0000:{0x40 + i:02x}:01.0")
            for i, (kind, inside) in enumerate(devices))) + more))

    def test_each_name_makes_one_gpu(self):
        named = {"nvidia": "0300 [10de:2484] [1458:404c] a1", "amd": VEGA,
                 "intel": "0300 [8086:46a6] [1043:8882] 0c"}
        for vendor, kind, inside in (
                ("amd", VEGA, opencl(0, 0)),
                ("amd", VEGA, opencl(0, 0) + opencl(1, 0)),
                ("amd", VEGA, rsmi(0) + opencl(0, 0) + os_gpu("renderD128")),
                ("amd", VEGA, os_gpu("card0") + os_gpu("renderD128")),
                ("amd", VEGA, ""),
                ("amd", MI300X, ""),
                ("intel", named["intel"], os_gpu("ze0") + opencl(0, 0)),
                ("intel", named["intel"], opencl(2, 0)),
                ("intel", "0380 [8086:0bd5] [8086:0000] 2f",
                 '<object type="OSDev" name="ze0" osdev_type="1">' +
                 os_gpu("ze0.0") + os_gpu("ze0.1") + "</object>"),
                ("intel", "0380 [8086:56c0] [8086:0000] 08", ""),
                ("nvidia", named["nvidia"], opencl(0, 0)),
                ("nvidia", named["nvidia"], "")):
            with self.subTest(kind=kind, inside=inside):
                facts = self.one_each((kind, inside))
                self.assertEqual([g["vendor"] for g in facts["gpus"]],
                                 [vendor])
                self.silent(facts, 2)

    def test_mixed_machine_counts_all(self):
        facts = self.one_each((VEGA, opencl(0, 0)), (VEGA, opencl(0, 1)),
                              (MI250X, rsmi(0) + opencl(0, 2)),
                              ("0302 [10de:20b0] [10de:144e] a1",
                               os_gpu("nvml0") + os_gpu("cuda0") +
                               opencl(1, 0)), (VEGA, ""))
        self.assertEqual([g["vendor"] for g in facts["gpus"]],
                         ["amd", "amd", "amd", "nvidia", "amd"])
        self.silent(facts, 2)

    def test_what_is_no_gpu_is_left_out(self):
        """A console says nothing; what might be one is told."""
        for kind, told in (("0300 [1a03:2000] [15d9:1b95] 41", None),
                           ("0300 [102b:0536] [1028:0739] 04", None),
                           ("0300 [1002:515e] [1028:01b2] 02", "1002:515e"),
                           ("0300 [8086:46a6] [1043:8882] 0c", "8086:46a6"),
                           ("1200 [1da3:1020] [1da3:1020] 01", "1da3:1020")):
            facts = self.one_each((kind, os_gpu("card0")), (MI300X, rsmi(0)))
            self.assertEqual(len(facts["gpus"]), 1, kind)
            if told:
                self.warned(facts, 2, told, "left out")
            else:
                self.silent(facts, 2)
        facts = self.one_each(("1200 [10ee:5000] [10ee:000e] 00",
                               opencl(0, 0, "Accelerator")))
        self.assertEqual(facts["gpus"], [])
        self.warned(facts, 2, "10ee:5000")

    def test_names_without_a_pci_device_count_once(self):
        """Another OpenCL platform's, which cannot say where; one more GPU."""
        facts = self.one_each((VEGA, opencl(0, 0)), (VEGA, opencl(0, 1)),
                              more=opencl(1, 0) + opencl(1, 1) +
                              opencl(2, 0, "CPU"))
        self.assertEqual(len(facts["gpus"]), 2)
        self.warned(facts, 2, "opencl1d1", "one of those counted")
        facts = self.one_each((VEGA, opencl(0, 0)), (VEGA, opencl(0, 1)),
                              more=opencl(0, 2))
        self.assertEqual(len(facts["gpus"]), 3)
        self.warned(facts, 2, "opencl0d2", "counted")
        facts = show(machine(package(0, "") + rsmi(0) + rsmi(1)))
        self.assertEqual(len(facts["gpus"]), 2)


unittest.main(argv=sys.argv[:1])
