#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: weft-info speaks the engineer's language: the numbers that nvidia-smi and
CUDA use, NV# between GPUs, CPU lists, PCIe rates of NICs; what is equal is told
once and counted, what is grave first; what nobody read is unknown; and --routes
gives host memory no rate of NVLink, and is quick for many ranks.

Method: machines written here as NCCL's and hwloc's XML, or as texts; what the
program prints and what it writes as JSON are held against what was written.

Usage: test_info_facts.py BIN_DIR
"""
import functools
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import unicodedata
import unittest

INFO = os.path.join(sys.argv[1], "weft-info")
SANITIZED = any(name in INFO for name in ("asan", "tsan"))
FOLDER = tempfile.TemporaryDirectory()


@functools.lru_cache(maxsize=None)
def run(machine, *args):
    """A text that describes a machine, or XML."""
    if machine.startswith("<"):
        path = os.path.join(FOLDER.name, "machine.xml")
        with open(path, "w") as file:
            file.write(machine)
        machine = path
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    done = subprocess.run([INFO, "--input", machine, *args], text=True,
                          capture_output=True, timeout=60, env=clean)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def facts_of(machine, *args):
    return json.loads(run(machine, "--json", "-", *args))


# ---- NCCL's format --------------------------------------------------------

def pci(bus, inside, kind="0x030200", speed="16.0 GT/s PCIe", width=16,
        device="0x20b2", vendor="0x10de"):
    return (f'<pci busid="{bus}" class="{kind}" link_speed="{speed}" '
            f'link_width="{width}" vendor="{vendor}" device="{device}">'
            f'{inside}</pci>')


def gpu(bus, links="", dev=None, sm=80, **more):
    dev = "" if dev is None else f' dev="{dev}"'
    return pci(bus, f'<gpu{dev} sm="{sm}">{links}</gpu>', **more)


def link(bus, count, kind="0x030200"):
    return f'<nvlink target="{bus}" count="{count}" tclass="{kind}"/>'


def net(name, gbps, dev=0):
    return (f'<net name="{name}" dev="{dev}" speed="{gbps * 1000}" port="1" '
            f'guid="0x{dev + 1:x}"/>')


def card(bus, *nets, **more):
    more = {"kind": "0x020000", "device": "0x1017", "vendor": "0x15b3",
            **more}
    return pci(bus, f'<nic>{"".join(nets)}</nic>', **more)


def cpu(numa, inside, host=""):
    return (f'<cpu numaid="{numa}" {host} arch="x86_64" vendor="AuthenticAMD" '
            f'familyid="175" modelid="1" '
            f'affinity="00000000,0000ffff,00000000,0000ffff">{inside}</cpu>')


def system(*cpus):
    return '<system version="1">' + "".join(cpus) + "</system>"


class Names(unittest.TestCase):
    def perlmutter(self, devs=False):
        """Four A100, the last bus on the first node; four links a pair."""
        buses = ["0000:c1:00.0", "0000:81:00.0", "0000:41:00.0",
                 "0000:03:00.0"]
        return system(*(cpu(numa, gpu(bus, "".join(
            link(other, 4) for other in buses if other != bus),
            dev=3 - numa if devs else None)) for numa, bus
            in enumerate(buses)))

    def test_indexes_of_nvidia_smi_and_cuda_stand_beside_weft_s_own(self):
        for devs in (False, True):
            facts = facts_of(self.perlmutter(devs))
            for i, g in enumerate(facts["gpus"]):
                self.assertEqual(g["id"], f"gpu{i}")
                for name in ("smi_index", "nvml_index", "pci_order",
                             "cuda_index_pci_bus_id",
                             "cuda_index_fastest_first"):
                    self.assertEqual(g[name], 3 - i, name)
                self.assertEqual(g["smi_from"],
                                 "read" if devs else "pci order")
            text = run(self.perlmutter(devs))
            for i in range(4):
                self.assertRegex(text, rf"gpu{i} +{3 - i} +{3 - i} A100")
            self.assertIn("smi: the index of nvidia-smi", text)

    def test_unlike_gpus_have_no_order_by_default(self):
        text = system(cpu(0, gpu("0000:01:00.0") +
                          gpu("0000:02:00.0", sm=70, device="0x1db6")))
        for g in facts_of(text)["gpus"]:
            self.assertIsNone(g["cuda_index_fastest_first"])
            self.assertIsNotNone(g["cuda_index_pci_bus_id"])
        self.assertIn("FASTEST_FIRST, orders unlike", " ".join(
            run(text).split()))

    def test_makers_beside_each_other_have_a_legend_each(self):
        amd = dict(vendor="0x1002", device="0x74a1", sm=942)
        both = " ".join(run(system(cpu(0, gpu("0000:01:00.0") + gpu(
            "0000:02:00.0", **amd)))).split())
        self.assertIn("of nvidia-smi and NVML, or of rocm-smi", both)
        self.assertIn("cuda: CUDA's index", both)
        alone = " ".join(run(system(cpu(0, gpu("0000:02:00.0",
                                               **amd)))).split())
        self.assertIn("smi: the index of rocm-smi", alone)
        self.assertNotIn("CUDA's index", alone)

    def test_each_host_counts_from_0(self):
        facts = facts_of("2x(8xH100)")
        self.assertEqual([g["smi_index"] for g in facts["gpus"]],
                         2 * list(range(8)))

    def test_pairs_are_named_by_their_nvlinks(self):
        names = facts_of(self.perlmutter())["paths"]["gpu_gpu_names"]
        self.assertEqual(names[0], ["X", "NV4", "NV4", "NV4"])
        for machine, name in (("8xH100", "NV18"), ("8xA100", "NV12"),
                              ("16xV100", "NV6"), ("4xMI300X", "XGMI"),
                              ("2xL40", "PHB")):
            text = run(machine)
            row = next(line.split() for line in
                       text[text.index("Paths"):].splitlines()
                       if line.startswith("gpu0 "))
            self.assertEqual(row[1:3], ["X", name], machine)
        buses = [f"0000:0{i + 1}:00.0" for i in range(3)]
        counts = {(0, 1): 2, (1, 2): 1}
        uneven = system(cpu(0, "".join(gpu(bus, "".join(
            link(buses[b if a == i else a], n)
            for (a, b), n in counts.items() if i in (a, b)))
            for i, bus in enumerate(buses))))
        names = facts_of(uneven)["paths"]["gpu_gpu_names"]
        self.assertEqual(names[0][:2], ["X", "NV2"])
        self.assertEqual(names[1], ["NV2", "X", "NV1"])

    def test_a_dead_link_is_not_counted_between_its_gpu_and_others(self):
        inside = "".join(gpu(f"0000:0{i + 1}:00.0",
                             link("0000:c0:00.0", 11 if i == 2 else 12,
                                  "0x068000")) for i in range(4))
        names = facts_of(system(cpu(0, inside)))["paths"]["gpu_gpu_names"]
        self.assertEqual(names[0], ["X", "NV12", "NV11", "NV12"])
        self.assertEqual(names[2], ["NV11", "NV11", "X", "NV11"])

    def test_the_legend_explains_what_was_printed_and_nothing_else(self):
        for machine in ("8xH100,8xCX7", "2x(8xV100,4xCX5)", "2xL40,1xROCE100",
                        "8xMI300X"):
            text = run(machine)
            paths = text[text.index("Paths"):text.index("Channels")]
            said = set(re.findall(r"\b(?:[A-Z][A-Z0-9]{2,3}|X)\b",
                                  "\n".join(
                line[7:] for line in paths.splitlines()
                if line.startswith(("gpu", "between hosts")))))
            said = {re.sub(r"NV\d+", "NV#", word) for word in said}
            legend = " ".join(paths[paths.rindex("\n\n", 0, -2):].split())
            listed = set(re.findall(r"(?:^|; )([A-Z#]+):", legend))
            self.assertEqual(said, listed, machine)


class Processors(unittest.TestCase):
    def test_cpu_list_model_cores_and_memory_of_a_node(self):
        cores = "".join(f'<object type="Core" os_index="{i}" '
                        f'cpuset="0x{(1 << i) | (1 << (i + 4)):08x}"/>'
                        for i in range(4))
        text = ('<topology version="2.0"><object type="Machine" '
                'cpuset="0x000000ff"><info name="Architecture" '
                'value="x86_64"/><object type="Package" cpuset="0x000000ff">'
                '<info name="CPUVendor" value="AuthenticAMD"/>'
                '<info name="CPUModel" value="AMD EPYC 7763 64-Core"/>'
                '<object type="NUMANode" os_index="0" cpuset="0x000000ff" '
                f'local_memory="270000000000"/>{cores}</object></object>'
                '</topology>')
        numa, = facts_of(text)["numas"]
        self.assertEqual(numa["cpu_list"], "0-7")
        self.assertEqual(numa["cpu_count"], 8)
        self.assertEqual(numa["cores"], 4)
        self.assertEqual(numa["memory_bytes"], 270000000000)
        self.assertEqual(numa["cpu_model"], "AMD EPYC 7763 64-Core")
        self.assertRegex(run(text), r"numa0 +4 +8 +270 +0-7\n"
                                    r"  CPU AMD EPYC 7763 64-Core \(x86_64\)")

    def test_what_a_file_does_not_say_is_not_made_up(self):
        numa, = facts_of(system(cpu(0, gpu("0000:01:00.0"))))["numas"]
        self.assertEqual(numa["cpu_list"], "0-15,64-79")
        self.assertEqual(numa["cpu_count"], 32)
        for name in ("cores", "memory_bytes", "cpu_model"):
            self.assertIsNone(numa[name])
        self.assertIn("CPU AuthenticAMD family 175 model 1",
                      run(system(cpu(0, gpu("0000:01:00.0")))))

    def test_every_second_cpu_is_a_short_list(self):
        text = system(cpu(0, gpu("0000:01:00.0"))).replace(
            "00000000,0000ffff,00000000,0000ffff",
            "55555555,55555555,55555555,55555555")
        self.assertRegex(run(text), r"64 +\? +0-126:2\n")
        self.assertEqual(facts_of(text)["numas"][0]["cpu_list"],
                         ",".join(map(str, range(0, 127, 2))))


class Nics(unittest.TestCase):
    def test_pcie_of_a_nic_is_printed(self):
        text = system(cpu(0, gpu("0000:01:00.0") + card(
            "0000:02:00.0", net("mlx5_0", 100, 0), net("mlx5_1", 100, 1),
            speed="8.0 GT/s PCIe", width=8)))
        facts = facts_of(text)
        self.assertAlmostEqual(facts["nics"][0]["pcie"]["GBps"], 7.877, 3)
        self.assertEqual(facts["nics"][0]["pcie"]["width"], 8)
        self.assertRegex(run(text), r"nic0 .* 7\.877  read")
        warning, = [w for w in facts["warnings"] if w["code"] == 12]
        self.assertIn("too little for its 2 ports of 25 GB/s",
                      warning["text"])

    def test_a_state_that_nobody_read_is_unknown_and_the_port_is_used(self):
        for machine in (system(cpu(0, gpu("0000:01:00.0") + card(
                "0000:02:00.0", net("mlx5_0", 100)))), "1xH100,1xCX7"):
            facts = facts_of(machine)
            self.assertEqual(facts["nics"][0]["state"], "unknown")
            self.assertNotIn(" active", run(machine))
            self.assertNotEqual(facts["paths"]["gpu_nic"][0][0]["type"],
                                "DIS")

    def test_wifi_is_named_and_carries_nothing(self):
        facts = facts_of(system(cpu(0, gpu("0000:01:00.0") + card(
            "0000:02:00.0", net("wlp2s0", 1), vendor="0x8086",
            device="0x2723", kind="0x028000"))))
        self.assertEqual(facts["nics"][0]["kind"], "wifi")
        self.assertEqual(facts["paths"]["gpu_nic"][0][0]["type"], "DIS")
        self.assertIsNone(facts["gpus"][0]["nic"])
        self.assertIsNone(facts["rings_multinode"])
        self.assertTrue([w for w in facts["warnings"]
                         if w["code"] == 25 and "Wi-Fi" in w["text"]])


class Warnings(unittest.TestCase):
    def all_at_gen4(self, hosts=1):
        return system(*(cpu(0, "".join(
            gpu(f"0000:{i + 1:02x}:00.0", sm=90, device="0x2330")
            for i in range(8)) + card("0000:20:00.0", net("mlx5_0", 0)),
            f'host_hash="0x{h + 1:x}"') for h in range(hosts)))

    def test_h100s_all_at_gen_4_are_one_line(self):
        facts = facts_of(self.all_at_gen4())
        self.assertEqual(len([w for w in facts["warnings"]
                              if w["code"] == 12]), 8)
        group = facts["warning_groups"][0]
        self.assertEqual((group["code"], group["count"], group["devices"],
                          group["severity"]), (12, 8, "gpu0-7", "fault"))
        text = run(self.all_at_gen4())
        self.assertEqual(text.count("idle or degraded"), 1)
        self.assertIn(" 12 gpu0-7 (8 times): PCIe at Gen 4 x16", text)

    def test_grave_ones_come_first(self):
        order = [g["severity"] for g in
                 facts_of(self.all_at_gen4())["warning_groups"]]
        self.assertIn("doubt", order)
        self.assertEqual(order, sorted(
            order, key=["fault", "doubt", "note"].index))
        text = run(self.all_at_gen4())
        text = text[text.index("Warnings"):]
        self.assertLess(text.index("\n 12 "), text.index("\n 17 "))

    def test_the_same_of_many_hosts_is_one_line(self):
        facts = facts_of(self.all_at_gen4(4))
        group = facts["warning_groups"][0]
        self.assertEqual((group["count"], group["devices"]), (32, "gpu0-31"))

    def test_every_warning_is_counted_in_one_group(self):
        for machine in (self.all_at_gen4(), self.all_at_gen4(3)):
            facts = facts_of(machine)
            self.assertEqual(sum(g["count"] for g in facts["warning_groups"]),
                             len(facts["warnings"]))

    def test_ids_in_texts_that_differ_are_general(self):
        inside = "".join(gpu(f"0000:0{i + 1}:00.0",
                             link(f"0000:0{i + 1}:00.0", 1))
                         for i in range(3))
        groups = facts_of(system(cpu(0, inside)))["warning_groups"]
        self.assertEqual([g["count"] for g in groups if g["code"] == 6], [3])


class Hosts(unittest.TestCase):
    def test_64_equal_hosts_are_one_line_with_a_count(self):
        text = run("64x(8xH100,8xCX7)")
        self.assertIn("host0-63, 64 equal: 8 x H100, 8 NICs", text)
        rows = [line for line in text.splitlines() if " H100 " in line
                and line.startswith("gpu")]
        self.assertEqual(len(rows), 8)
        self.assertLess(len(text.splitlines()), 80)
        kind, = facts_of("64x(8xH100,8xCX7)")["host_kinds"]
        self.assertEqual((kind["first"], kind["count"]), ("host0", 64))

    def test_a_host_that_differs_is_shown_beside_the_others(self):
        text = run("3x(8xH100,8xCX7)+(8xH100,7xCX7)+4x(8xH100,8xCX7)")
        self.assertIn("host0-2,4-7, 7 equal: 8 x H100, 8 NICs", text)
        self.assertIn("host3, 1: 8 x H100, 7 NICs", text)

    def test_one_lost_link_makes_a_host_of_its_own(self):
        def host(number, count):
            return cpu(0, "".join(
                gpu(f"0000:0{i + 1}:00.0", link("0000:c0:00.0", count,
                                                "0x068000"))
                for i in range(2)), f'host_hash="0x{number}"')
        kinds = facts_of(system(host(1, 12), host(2, 12), host(3, 11),
                                host(4, 12)))["host_kinds"]
        self.assertEqual([(k["first"], k["count"]) for k in kinds],
                         [("host0", 3), ("host2", 1)])

    def test_a_host_of_many_gpus_is_bounded(self):
        inside = "".join(gpu(f"0000:{i // 32 + 1:02x}:{i % 32:02x}.0")
                         for i in range(200))
        text = run(system(cpu(0, inside)))
        self.assertIn("and 160 more GPUs", text)
        self.assertLess(len(text.splitlines()), 150)
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80, line)


class Printable(unittest.TestCase):
    """U+009B begins an escape sequence, as ESC [ does; files may hold it."""

    def check(self, text, path="machine.xml"):
        path = os.path.join(FOLDER.name, path)
        with open(path, "w") as file:
            file.write(text)
        svg = os.path.join(FOLDER.name, "machine.svg")
        done = subprocess.run([INFO, "--input", path, "--json", "-", "--svg",
                               svg], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = subprocess.run([INFO, "--input", path], capture_output=True,
                              timeout=60)
        with open(svg, "rb") as file:
            picture = file.read().decode()
        for printed in (done.stdout.decode(), text.stdout.decode(), picture,
                        text.stderr.decode()):
            self.assertEqual([c for c in printed if c != "\n" and
                              unicodedata.category(c) == "Cc"], [])
        return text.stdout.decode(), picture

    def test_names_and_what_warnings_quote(self):
        plain = system(cpu(0, gpu("0000:01:00.0") +
                           card("0000:02:00.0", net("NAME", 100))))
        for old in ("NAME", "x86_64", "AuthenticAMD", "0000:02:00.0",
                    "16.0 GT/s PCIe", 'sm="80'):
            for evil in ("\u009b31m", "&#155;31m"):
                new = old[:4] + evil if old.startswith("sm") else evil
                self.check(plain.replace(old, new))
        self.assertIn("nic0   \\xc2\\x9b31m", self.check(
            plain.replace("NAME", "&#155;31m"))[0])

    def test_the_file_s_own_name(self):
        text, _ = self.check(system(cpu(0, gpu("0000:01:00.0"))),
                             "a\033[31m\u009b.xml")
        self.assertIn("\\x1b[31m", text)

    def test_names_are_cut_between_characters(self):
        for i in range(8):
            name = "n" * i + "\u00e9\u20ac" * 14
            text, _ = self.check(system(cpu(0, gpu("0000:01:00.0") + card(
                "0000:02:00.0", net(name, 100), speed=name))))
            self.assertIn("n" * i + "\\xc3", text)

    def test_a_long_path_is_cut_between_characters(self):
        text = system(cpu(0, gpu("0000:01:00.0")))
        for i in range(4):
            _, picture = self.check(text, "n" * i + "\u00e9\u20ac" * 18)
            self.assertNotIn("&#195;", picture)


class Routes(unittest.TestCase):
    def test_host_memory_has_no_rate(self):
        """The rate of NVLink is that of the level it makes, and no other's."""
        for machine in ("8xH100,8xCX7", "2x(8xH100,8xCX7)", "8xMI300X",
                        "4x(4xA100,4xCX6)"):
            text = run(machine, "--routes")
            for line in text[text.index("Routes of"):].splitlines():
                if "shared memory" in line:
                    self.assertEqual("GB/s of NVLink or XGMI" in line,
                                     line.lstrip().startswith("nvlink"))
                    self.assertEqual(line.count("GB/s"),
                                     line.count("of NVLink or XGMI"))
            for route in facts_of(machine, "--routes")["routes"]:
                for level in route["levels"]:
                    if level["fabric"] == "shm":
                        self.assertEqual(level["GBps"] is not None,
                                         level["name"] == "nvlink")

    def test_the_network_has_the_rate_of_its_nics(self):
        routes = facts_of("2x(8xH100,8xCX7)", "--routes")["routes"]
        self.assertEqual(routes[0]["levels"][-1]["GBps"], 50)
        self.assertIn("50 GB/s between two, by net",
                      run("2x(8xH100,8xCX7)", "--routes"))
        slow = facts_of("2x(8xH100,1xETH10)", "--routes")["routes"]
        self.assertEqual(slow[0]["levels"][-1]["GBps"], 1.25)

    def test_of_512_ranks_take_less_than_a_second(self):
        def spend_once(*args):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            facts = run.__wrapped__("64x(8xH100,8xCX7)", "--json", "-", *args)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return json.loads(facts), (after.ru_utime + after.ru_stime -
                           before.ru_utime - before.ru_stime)

        def spend(*args):
            """Seconds of the processor, the least of two: what else runs
            on its core makes it slower, and never faster. A sanitizer's limit
            has room for that."""
            runs = [spend_once(*args) for _ in range(1 if SANITIZED else 2)]
            return runs[0][0], min(seconds for _, seconds in runs)

        _, machine = spend() # is read and written all the same
        facts, all_of_it = spend("--routes", "-n", "512")
        self.assertEqual(facts["routes"][0]["levels"][-1]["ranks"], 512)
        self.assertLess(all_of_it - machine, 10 if SANITIZED else 1)


unittest.main(argv=sys.argv[:1])
