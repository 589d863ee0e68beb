#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_nccl_names.py LIBRARY ABI_HEADER PAGE [INCLUDE_DIR OF nccl.h]

Goal: the library in NCCL's place offers every function of NCCL's, weak, with
its strong twin, and nothing else; its soname is NCCL's. The drop-in page says
of each, once, what happens.
Method: nm and readelf, and the rows of the page's table, beside the list in our
header; and, where nccl.h is installed, beside what that declares.
"""
import os
import re
import subprocess
import sys

HOST, KERNELS = 41, 11


def tool(*command):
    return subprocess.run(command, capture_output=True, text=True,
                          check=True).stdout


def offered(library):
    kinds = {}
    for line in tool("nm", "-D", "--defined-only", library).splitlines():
        _, kind, name = line.split()
        kinds[name] = kind
    return kinds


def listed(path):
    with open(path, encoding="utf-8") as file:
        text = file.read().replace("\\\n", " ")
    names = []
    for macro in ("FUNCTION", "KERNEL"):
        body = re.search(r"#define WEFTI_DOOR_%s_LIST\(X\)(.*)" % macro, text)
        found = re.findall(r"X\((?:const char \*|\w+), (\w+),", body.group(1))
        names.append(["nccl" + name for name in found])
    return names


def declared(folder):
    """What nccl.h and the headers for kernels declare for the host."""
    def names_in(path, pattern):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", file.read(), flags=re.S)
        return set(re.findall(pattern, text))
    host = names_in(os.path.join(folder, "nccl.h"),
                    r"\b(p?nccl[A-Z]\w*)\s*\(")
    kernels = set()
    below = os.path.join(folder, "nccl_device")
    for name in sorted(os.listdir(below) if os.path.isdir(below) else []):
        if name.endswith(".h"):
            kernels |= names_in(
                os.path.join(below, name),
                r"NCCL_EXTERN_C __host__ \w+ (nccl\w+)\(")
    return host, kernels


def documented(path):
    """The names in the first cells of the table of functions."""
    with open(path, encoding="utf-8") as file:
        section = file.read().split("## The functions\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| ([A-Z].*?) \|", section, flags=re.M)
    return sorted("nccl" + name for cell in cells for name in cell.split(", "))


def main():
    failures = []

    def expect(good, text):
        if not good:
            failures.append(text)
            print("FAILED:", text)

    library, header, page = sys.argv[1:4]
    kinds = offered(library)
    host, kernels = listed(header)
    expect(len(host) == HOST and len(kernels) == KERNELS,
           "%d and %d functions in %s" % (len(host), len(kernels), header))
    for name in host + kernels:
        expect(kinds.get(name) == "W", "%s is %s, not weak" % (
            name, kinds.get(name)))
        expect(kinds.get("p" + name) == "T", "p%s is %s, not strong" % (
            name, kinds.get("p" + name)))
    expect(len(kinds) == 2 * (HOST + KERNELS), "more is visible: %s" % (
        sorted(set(kinds) - {p + n for n in host + kernels
                             for p in ("", "p")})))
    expect(documented(page) == sorted(host + kernels), "%s: %s" % (
        page, sorted(set(documented(page)) ^ set(host + kernels))))
    soname = re.search(r"SONAME.*\[(.*)\]", tool("readelf", "-d", library))
    expect(soname and soname.group(1) == "libnccl.so.2", "soname %s" % soname)
    if len(sys.argv) > 4 and os.path.exists(sys.argv[4] + "/nccl.h"):
        theirs, for_kernels = declared(sys.argv[4])
        expect({n for h in host for n in (h, "p" + h)} == theirs,
               "nccl.h: %s" % sorted(
                   {n for h in host for n in (h, "p" + h)} ^ theirs))
        expect(set(kernels) == for_kernels,
               "nccl_device.h: %s" % sorted(set(kernels) ^ for_kernels))
    else:
        print("left out: nccl.h is not installed")
    print("%d names looked at" % len(kinds))
    return 1 if failures else 0


sys.exit(main())
