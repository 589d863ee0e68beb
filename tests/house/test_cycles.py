#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: the folders inside comm include each other one way, and a reader of one
file need not know many others: no cycle of files is longer than a handful.

Method: read the includes of every file of comm. A folder may include those that
stand before it in ORDER. A .c and the .h of its name count as one file; cycles
of files are the strongly connected components of their graph.

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

INCLUDE = re.compile(r'^\s*#\s*include\s*"comm/([^"]+)"', re.M)


def read_includes(top):
    """For each file below top, relative to it, what it includes of comm."""
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            if name.endswith((".c", ".h", ".inc")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    found[os.path.relpath(path, top)] = INCLUDE.findall(
                        file.read())
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
    includes = read_includes(top)
    failures = breaches_of(includes)
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
