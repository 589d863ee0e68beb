#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: an include goes one way only, from a folder to those below it.

Method: for every pair of folders, compile a file that includes one header of
the second with the very flags (from compile_commands.json) that the first
folder's sources are built with. It must succeed where the layers allow it and
the build says so, and fail with "no such file" everywhere else. Who sees a
folder sees those in it, but not the other way round. Each header
must also compile alone under its own folder's flags. Then no include may step
around the roots, or around who reads includes: each names "folder/file.h" from
the top of the tree, or <> of something that is not the tree's.

Usage: test_layers.py SOURCE_DIR BUILD_DIR
"""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

# What each folder may see at most; itself is always allowed.
MAY_SEE = {
    "base": [],
    "topo": ["base"],
    "device": ["base"],
    "kernels/wire": ["device", "base"],
    "kernels/math": ["device", "base"],
    "comm/oob": ["base"],
    "comm": ["kernels/wire", "topo", "device", "base"],
    "overlap": ["comm", "kernels/wire", "device", "base"],
    "doors/nccl": ["base"],
    "trainer/mesh": ["base"],
    "trainer": ["overlap", "comm", "kernels/math", "kernels/wire", "topo",
                "device", "base"],
    "perf": ["overlap", "comm", "kernels/math", "kernels/wire", "topo",
             "device", "base"],
}
# What it must see, or the test could not tell a wrong root from a good one.
MUST_SEE = {
    "base": ["base"],
    "topo": ["topo", "base"],
    "device": ["device", "base"],
    "kernels/wire": ["kernels/wire", "base"],
    "kernels/math": ["kernels/math", "base"],
    "comm/oob": ["comm/oob", "base"],
    "comm": ["comm", "comm/oob", "kernels/wire", "device", "base"],
    "overlap": ["overlap", "comm"],
    "doors/nccl": ["doors/nccl", "base"],
    "trainer/mesh": ["trainer/mesh", "base"],
    "trainer": ["trainer/mesh", "overlap", "comm", "kernels/math", "base"],
    "perf": ["perf", "comm", "base"],
}
SKIPPED = {"build", ".git", ".cache"}


def fail(text):
    print("FAILED:", text)
    fail.count += 1


fail.count = 0


def sources_under(top, ends):
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        for name in sorted(files):
            if name.endswith(ends):
                yield os.path.join(folder, name)


def folder_of(path):
    """The innermost of the folders that path lies in; None: it is in none."""
    return max((f for f in MAY_SEE if path.startswith(f + "/")), key=len,
               default=None)


def is_allowed(folder, other):
    return any(other == seen or other.startswith(seen + "/")
               for seen in [folder] + MAY_SEE[folder])


def compile_flags(source_dir, build_dir):
    """For each folder, the command that compiles its first source."""
    with open(os.path.join(build_dir, "compile_commands.json")) as file:
        entries = json.load(file)
    commands = {}
    for entry in sorted(entries, key=lambda e: e["file"]):
        path = os.path.relpath(entry["file"], source_dir)
        folder = folder_of(path)
        if folder and path.endswith(".c") and folder not in commands:
            words = shlex.split(entry["command"])
            # Without "-o object" and "-c source".
            commands[folder] = [
                w for i, w in enumerate(words)
                if w not in ("-o", "-c") and words[i - 1] not in ("-o", "-c")]
    return commands


def compile_include(command, header, build_dir):
    """The compiler's complaint about a file that includes only header."""
    text = '#include "%s"\nextern int wefti_layers_probe;\n' % header
    run = subprocess.run(command + ["-fsyntax-only", "-xc", "-"], input=text,
                         cwd=build_dir, capture_output=True, text=True)
    return run.stderr if run.returncode != 0 else ""


def check_pairs(source_dir, build_dir):
    commands = compile_flags(source_dir, build_dir)
    headers = {}
    for folder in MAY_SEE:
        found = list(sources_under(os.path.join(source_dir, folder), ".h"))
        if found:
            headers[folder] = os.path.relpath(found[0], source_dir)
    pairs = 0
    for folder, command in commands.items():
        for other, header in headers.items():
            pairs += 1
            allowed = is_allowed(folder, other)
            complaint = compile_include(command, header, build_dir)
            # Only the header itself counts: what it includes in turn may be
            # hidden from this folder.
            seen = header + ": No such file" not in complaint
            if seen and not allowed:
                fail("%s can include %s" % (folder, header))
            if not seen and other in MUST_SEE[folder]:
                fail("%s cannot include %s" % (folder, header))
    print("%d folders, %d pairs compiled" % (len(commands), pairs))
    for folder in MAY_SEE:
        top = os.path.join(source_dir, folder)
        if folder not in commands and list(sources_under(top, ".c")):
            fail("no source of %s is in compile_commands.json" % folder)
    return commands


def check_headers(source_dir, build_dir, commands):
    headers = [(commands[folder_of(header)], header)
               for folder in commands if "/" not in folder
               or os.path.dirname(folder) not in commands
               for header in (
                   os.path.relpath(path, source_dir) for path in
                   sources_under(os.path.join(source_dir, folder), ".h"))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = pool.map(
            lambda pair: compile_include(*pair, build_dir), headers)
        for (_, header), complaint in zip(headers, complaints):
            if complaint:
                fail("%s does not compile alone:\n%s" % (header, complaint))
    print("%d headers compiled on their own" % len(headers))


def is_plain(source_dir, path, line):
    """Whether an include names what it should."""
    def is_ours(name):
        return any(os.path.exists(os.path.join(source_dir, top, name))
                   for top in ("", "include"))
    named = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
    if not named or "../" in line:
        return False
    if not path.startswith(tuple(MAY_SEE)):
        return True
    quoted, angled = named.groups()
    return is_ours(quoted) and "/" in quoted if quoted else not is_ours(angled)


def check_includes(source_dir):
    include = re.compile(r"\s*#.*\binclude(?:_next)?\b")
    count = 0
    for full in sources_under(source_dir, (".c", ".h", ".inc")):
        count += 1
        path = os.path.relpath(full, source_dir)
        with open(full, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if (include.match(line)
                        and not is_plain(source_dir, path, line)):
                    fail("%s:%d: %s" % (path, number, line.strip()))
    print("the includes of %d files read" % count)


def main():
    source_dir, build_dir = map(os.path.realpath, sys.argv[1:3])
    commands = check_pairs(source_dir, build_dir)
    check_headers(source_dir, build_dir, commands)
    check_includes(source_dir)
    return 1 if fail.count else 0


sys.exit(main())
