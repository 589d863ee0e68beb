#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: the folders inside comm include each other one way, and a reader of one
file of theirs need not know many others: no cycle of files is longer than a
handful.

Method: read the includes of every file of comm. A .c and the .h of its name
count as one file. Cycles of folders and of files are the strongly connected
components of those two graphs. A folder is held to the rules if it is in
COVERED; the others are listed with what would be found in them.

Usage: test_cycles.py SOURCE_DIR
"""
import collections
import os
import re
import sys

FILES_MOST = 7

# Only grows. "" is comm itself, without its folders.
COVERED = ["make", "oob", "pattern"]
# Only shrinks: not yet in layers.
OPEN = ["", "cluster", "control", "fabric", "mem", "net", "p2p"]

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


def main():
    top = os.path.join(os.path.realpath(sys.argv[1]), "comm")
    includes = read_includes(top)
    failures = []
    folders = {folder_of(path) for path in includes}
    for folder in sorted(folders ^ set(COVERED + OPEN)):
        failures.append("comm/%s is in none of the lists, or is not there"
                        % folder)
    for cycle in cycles_of(graph_of(includes, folder_of)):
        covered = [f for f in cycle if f in COVERED]
        if covered:
            failures.append("%s: a cycle of folders: %s"
                            % (covered[0], " ".join(cycle)))
    longest = {}
    for cycle in cycles_of(graph_of(includes,
                                    lambda p: os.path.splitext(p)[0])):
        for folder in {folder_of(path) for path in cycle}:
            longest[folder] = max(longest.get(folder, 0), len(cycle))
            if folder in COVERED and len(cycle) > FILES_MOST:
                failures.append("%s: a cycle of %d files, at most %d are "
                                "allowed: %s" % (folder, len(cycle),
                                                 FILES_MOST, " ".join(cycle)))
    print("%d files of comm, %d includes of each other" %
          (len(includes), sum(map(len, includes.values()))))
    print("not covered yet: " + ", ".join(
        "%s (longest cycle of files: %d)" % ("comm/" + f if f else "comm itself",
                                             longest.get(f, 0))
        for f in OPEN))
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures or not includes else 0


sys.exit(main())
