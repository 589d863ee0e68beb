#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: in weft-info's picture nothing is drawn outside the canvas, names and
rates can be read, faults are red, and large machines stay of a size that a
browser can show.

Method: every coordinate of every element is computed: boxes with their sizes,
texts as wide as a broad font makes them, curves along their way. Machines are
texts, files of tests/topo/data, and XML made here.

Usage: test_info_picture.py BIN_DIR DATA_DIR
"""
import functools
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

INFO = os.path.join(sys.argv[1], "weft-info")
DATA = sys.argv[2]
FOLDER = tempfile.TemporaryDirectory()
RED = "#d0342c"


@functools.lru_cache(maxsize=None)
def draw(machine):
    if machine.startswith("<"):
        path = os.path.join(FOLDER.name, "machine.xml")
        with open(path, "w") as file:
            file.write(machine)
        machine = path
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    done = subprocess.run([INFO, "--input", machine, "--svg", "-"], text=True,
                          capture_output=True, timeout=60, env=clean)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    root = tree.fromstring(done.stdout)
    for element in root.iter():
        element.tag = element.tag.split("}")[-1]
    return root


def points_of(element):
    """Extreme points; of a curve many along it."""
    at = {k: float(v) for k, v in element.attrib.items()
          if re.fullmatch(r"-?[\d.]+", v)}
    if element.tag == "rect" and "x" in at:
        return [(at["x"], at["y"]),
                (at["x"] + at["width"], at["y"] + at["height"])]
    if element.tag == "text":
        wide = len(element.text or "") * 0.6 * at["font-size"]
        left = at["x"]
        if element.get("text-anchor") == "middle":
            left -= wide / 2
        return [(left, at["y"] - at["font-size"]),
                (left + wide, at["y"] + 0.25 * at["font-size"])]
    if element.tag == "path":
        n = [float(v) for v in re.findall(r"-?[\d.]+", element.get("d"))]
        ends = [(n[0], n[1]), (n[-2], n[-1])]
        if "Q" not in element.get("d"):
            return ends
        steps = [i / 20 for i in range(21)]
        return [tuple((1 - t) ** 2 * ends[0][k] + 2 * t * (1 - t) * n[2 + k] +
                      t * t * ends[1][k] for k in range(2)) for t in steps]
    return []


def gpu(bus, links="", speed="16.0 GT/s PCIe", sm=80, device="0x20b2"):
    return (f'<pci busid="{bus}" class="0x030200" link_speed="{speed}" '
            f'link_width="16" vendor="0x10de" device="{device}">'
            f'<gpu sm="{sm}">{links}</gpu></pci>')


def system(inside, numa=0):
    return (f'<system version="1"><cpu numaid="{numa}" arch="x86_64" '
            f'vendor="AuthenticAMD" familyid="175" modelid="1" '
            f'affinity="0000ffff">{inside}</cpu></system>')


def deep(levels, inside):
    for level in range(levels):
        inside = (f'<pci busid="0000:{0x80 + level:02x}:00.0" '
                  f'class="0x060400" link_speed="16.0 GT/s PCIe" '
                  f'link_width="16">{inside}</pci>')
    return inside


class Picture(unittest.TestCase):
    def inside(self, root, name=""):
        width, height = float(root.get("width")), float(root.get("height"))
        for element in root.iter():
            for x, y in points_of(element):
                self.assertTrue(-0.5 <= x <= width + 0.5 and
                                -0.5 <= y <= height + 0.5,
                                (name, width, height, x, y,
                                 tree.tostring(element)))
        return width, height

    def texts(self, root):
        return [e.text for e in root.iter("text")]

    def machines(self):
        yield from ("1xH100", "8xH100,8xCX7", "8xV100,4xCX5", "16xV100",
                    "2x(8xV100,4xCX5)", "64x(8xH100,8xCX7)", "8xMI300X",
                    "16xL40,40xROCE100", "1xETH1",
                    "16xA100,8xNUMA", "4xGH200,4xCX7", "2xL40,1xROCE100",
                    "2x(8xH100,8xCX7)+1x(4xA100)+3x(2xL40)+1x(16xV100)+"
                    "1x(1xT4)")
        for name in sorted(os.listdir(DATA)):
            if name.endswith(".xml") and "version3" not in name:
                yield os.path.join(DATA, name)
        yield system(deep(9, gpu("0000:01:00.0")))
        yield system("".join(gpu(f"0000:{i // 32 + 1:02x}:{i % 32:02x}.0")
                             for i in range(300)))

    def test_nothing_is_outside_the_canvas(self):
        for machine in self.machines():
            width, height = self.inside(draw(machine), machine[:80])
            self.assertLess(width, 5200, machine[:80])
            self.assertLess(height, 3000, machine[:80])

    def test_names_and_rates_are_printed(self):
        texts = self.texts(draw("8xH100,8xCX7"))
        for i in range(8):
            for text in (f"gpu{i}", f"nic{i}", f"mlx5_{i}", f"bridge{i}"):
                self.assertIn(text, texts)
        for text, count in (("63 GB/s", 16), ("400 Gb/s", 8), ("H100", 8),
                            ("NV18 450", 8), ("22 GB/s", 1)):
            self.assertEqual(texts.count(text), count, text)
        self.assertEqual(self.texts(draw("8xV100")).count("NV2 50"), 8)
        self.assertTrue([t for t in self.texts(draw("8xMI300X"))
                         if "28 direct links" in t and "64 GB/s" in t])

    def test_numbers_of_others_stand_in_the_boxes(self):
        text = system(gpu("0000:82:00.0") + gpu("0000:01:00.0"))
        texts = self.texts(draw(text))
        self.assertIn("smi, cuda 1", texts)
        at = texts.index("gpu0")
        self.assertEqual(texts[at + 2], "smi, cuda 1")

    def test_faults_are_red_and_told(self):
        def lines(count):
            return (f'<nvlink target="0000:c0:00.0" count="{count}" '
                    'tclass="0x068000"/>')
        root = draw(system("".join(
            gpu(f"0000:0{i + 1}:00.0", lines(12 - (i == 2))) for i in range(4))
            + gpu("0000:05:00.0", lines(12), speed="8.0 GT/s PCIe")))
        self.inside(root)
        red = [e for e in root.iter() if RED in (e.get("fill"),
                                                 e.get("stroke"))]
        self.assertTrue([e for e in red if e.tag == "rect"])
        self.assertEqual(len([e for e in red if e.tag == "path"]), 2)
        told = " ".join(e.text for e in red if e.tag == "text")
        self.assertIn("gpu2 0000:03:00.0: 11 links to other GPUs", told)
        self.assertIn("gpu4 0000:05:00.0: PCIe at Gen 3", told)
        self.assertNotIn(RED, [e.get("stroke") for e in draw(
            "8xH100,8xCX7").iter()])

    def test_what_is_not_drawn_is_counted(self):
        texts = " ".join(self.texts(draw(system("".join(
            gpu(f"0000:{i // 32 + 1:02x}:{i % 32:02x}.0",
                speed="8.0 GT/s PCIe" if i == 299 else "16.0 GT/s PCIe")
            for i in range(300))))))
        self.assertIn("252 more GPUs and NICs are not drawn", texts)
        self.assertIn("gpu299", texts)  # faulty ones are drawn
        texts = self.texts(draw("64x(8xH100,8xCX7)"))
        self.assertIn("host0 (64 equal)", texts)
        self.assertNotIn("gpu8", texts)


unittest.main(argv=sys.argv[:1])
