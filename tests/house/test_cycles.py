#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: the folders inside comm include each other one way, and a reader of one
file need not know many others: no cycle of files is longer than a handful.

Method: read the includes of every file of comm. A folder may include those that
stand before it in ORDER. A .c and the .h of its name count as one file; cycles
of files are the strongly connected components of their graph. Of others' files
a .c knows what it includes: what it declares itself, it defines. (test_layers.py
holds includes to the one form that is read here.)

Usage: test_cycles.py SOURCE_DIR
"""
import collections
import os
import re
import sys

FILES_MOST = 7

# The folders of comm, lowest first; ARCHITECTURE.md says what is in each.
ORDER = ["pattern", "oob", "fabric", "core", "control", "nccl", "streams", "net", "engine",
         "steps", "post", "watch", "mem", "make", "cluster"]

# At file scope, what another file may define.
DECLARED = re.compile(r"^(?!static\b|typedef\b)[A-Za-z_][^;{}=#]*?"
                      r"\b(wefti_\w+)\s*(?:\([^;{}]*\)|\[[^;{}]*\])?\s*;",
                      re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*"comm/([^"]+)"', re.M)


def read_files(top):
    """The text of each source below top, by its path there."""
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            if name.endswith((".c", ".h", ".inc")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    found[os.path.relpath(path, top)] = file.read()
    return found


def strays_of(files):
    """What a .c declares and does not define."""
    found = []
    for path, text in sorted(files.items()):
        code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
        for match in DECLARED.finditer(code) if path.endswith(".c") else ():
            name = match.group(1)
            tag = re.match(r"(?:struct|union|enum)\s+\w+\s*;", match.group())
            defined = re.search(r"^(?!static\b)[A-Za-z_][^;{}]*\b%s\b[^;{}]*"
                                r"(?:\{|= *[^;])" % name, code, re.M)
            if not tag and not defined:
                found.append("comm/%s declares %s, which is another file's: "
                             "include its header" % (path, name))
    return found


def graph_of(includes, node):
    """The edges between nodes; node: from a path to what it belongs to."""
    graph = collections.defaultdict(set)
    for path, targets in includes.items():
        graph[node(path)].update(node(t) for t in targets
                                 if node(t) != node(path))
    return graph


def reach(graph, start):
    seen, stack = set(), [start]
    while stack:
        for target in graph.get(stack.pop(), ()):
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


def cycles_of(graph):
    """Its strongly connected components of two nodes and more."""
    reached = {node: reach(graph, node) for node in list(graph)}
    found, done = [], set()
    for node in sorted(reached):
        if node in done or node not in reached[node]:
            continue
        cycle = sorted(n for n in reached[node] if node in reached.get(n, ()))
        done.update(cycle)
        found.append(cycle)
    return found


def folder_of(path):
    return path.split("/")[0] if "/" in path else ""


def breaches_of(includes):
    """Includes against the order, and folders that it does not name."""
    found = ["comm/%s is in no folder of comm" % path
             for path in includes if not folder_of(path)]
    found += ["comm/%s is not in ORDER, or ORDER names it and it is not there"
              % folder for folder in
              sorted({folder_of(p) for p in includes} - {""} ^ set(ORDER))]
    place = {folder: i for i, folder in enumerate(ORDER)}
    for path, targets in sorted(includes.items()):
        for target in targets:
            if (place.get(folder_of(target), -1) >
                    place.get(folder_of(path), len(ORDER))):
                found.append("comm/%s includes comm/%s: %s comes after %s"
                             % (path, target, folder_of(target),
                                folder_of(path)))
    return found


def main():
    top = os.path.join(os.path.realpath(sys.argv[1]), "comm")
    files = read_files(top)
    includes = {path: INCLUDE.findall(text) for path, text in files.items()}
    failures = breaches_of(includes) + strays_of(files)
    cycles = cycles_of(graph_of(includes, lambda p: os.path.splitext(p)[0]))
    for cycle in cycles:
        if len(cycle) > FILES_MOST:
            failures.append("a cycle of %d files, at most %d are allowed: %s"
                            % (len(cycle), FILES_MOST, " ".join(cycle)))
    print("%d files of comm, %d includes of each other; the longest cycle of "
          "files: %d" % (len(includes), sum(map(len, includes.values())),
                         max(map(len, cycles), default=0)))
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures or not includes else 0


sys.exit(main())
