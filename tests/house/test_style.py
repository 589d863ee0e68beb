#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: what STYLE.md says and a machine can see is true of every file.

Method: walk the tree (build folders excluded), apply one small rule after the
other to each file, print every breach with file and line. clang-format 14 is
the judge of layout; rules about names and forbidden calls are searches.

Usage: test_style.py SOURCE_DIR
"""
import os
import re
import shutil
import subprocess
import sys

SKIPPED = {"build", ".git", ".cache"}
LIBRARY = ("base/", "topo/", "device/", "kernels/wire/", "comm/",
           "overlap/", "doors/")
MARKS = re.compile(r"\b(%s)\b" % "|".join(["TO" + "DO", "FIX" + "ME",
                                           "X" * 3, "HA" + "CK"]))
OUR_T = re.compile(r"(\}|^\s*typedef\b.*?)\s*\b\w+_t\s*;"
                   r"|\b(struct|union|enum)\s+\w+_t\s*\{"
                   r"|typedef\b.*\(\s*\*\s*\w+_t\s*\)")
# A type's tag, the name after its members, or what a typedef of one line names;
# not the second name of a tag.
TYPE = re.compile(r"^\s*(?:typedef )?(?:struct|union|enum) (?!weft_)(\w+)\s*\{"
                  r"|^\} (?!weft_)(\w+);"
                  r"|^\s*typedef\b(?! (?:struct|union|enum) (\w+) \3;)"
                  r"[^;{}(]*?(?:\(\s*\*\s*|\b)(?!weft_)(\w+)\s*"
                  r"(?:\)|\((?!\s*\*)|\[|;|__attribute__)", re.M)
FORWARD = re.compile(r"^\s*typedef (?:struct|union|enum) (?!wefti?_)(\w+) \1;",
                     re.M)
TAG = re.compile(r"^(?:typedef )?(?:struct|union|enum) (wefti_\w+)\s*\{", re.M)
# Nothing hidden, nothing printed, nothing ended, no ordering that a thread
# sanitizer cannot see: in what libweft.so is made of.
FORBIDDEN = [
    (re.compile(r"(?<!__asm__ )\bvolatile\b"), "volatile", ()),
    (re.compile(r"\b(atomic_thread_fence|atomic_signal_fence"
                r"|__sync_synchronize)\s*\("), "a bare fence", ()),
    (re.compile(r"\b(printf|puts|perror|putchar)\s*\(|\b(stdout|stderr)\b"),
     "printing past base/log.h", ("base/output.c",)),
    (re.compile(r"\b(exit|_exit|abort|quick_exit)\s*\("), "ending the process",
     ()),
    (re.compile(r"\b(signal|sigaction|atexit|pthread_atfork)\s*\("),
     "a process-wide hook", ("comm/oob/pmix_source.c",
                             "comm/net/port_guard.c")),  # puts them back
    (re.compile(r"\bgetenv\s*\("), "getenv", ("base/settings.c",)),
]
GETENV = re.compile(r"\b(secure_)?getenv\s*\(")
GETENV_READER = "base/settings.c"


class Report:
    def __init__(self):
        self.breaches = 0

    def breach(self, path, line, text):
        self.breaches += 1
        print("FAILED: %s:%d: %s" % (path, line, text))


def walk(top):
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        for name in sorted(files):
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                yield os.path.relpath(path, top)


def is_c(path):
    return path.endswith((".c", ".h", ".inc", ".cc", ".cu", ".cuh"))


def is_script(path, text):
    return path.endswith((".py", ".sh")) or text.startswith("#!")


def is_source(path, text):
    return (is_c(path) or is_script(path, text) or path.endswith(".cmake")
            or os.path.basename(path) == "CMakeLists.txt")


def check_head(report, path, lines):
    """The licence stands first, after the line that names an interpreter."""
    at = 1 if lines[0].startswith("#!") else 0
    want = "SPDX-License-Identifier: BSD-3-Clause"
    if len(lines) <= at or want not in lines[at]:
        report.breach(path, at + 1, "no %s" % want)


def check_lines(report, path, lines):
    if len(lines) > 600:
        report.breach(path, len(lines), "more than 600 lines")
    for number, line in enumerate(lines, 1):
        found = MARKS.search(line)
        if found:
            report.breach(path, number, "%s in place of work" % found.group())
        if line != line.rstrip():
            report.breach(path, number, "space at the end")


def strip_comments(text):
    """The same text, line by line, without comments and literals."""
    def blank(match):
        kept = "\n" * match.group().count("\n")
        return '""' + kept if match.group()[0] == '"' else " " + kept
    return re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', blank, text,
                  flags=re.S)


def check_c(report, path, text, lines):
    for number, line in enumerate(lines, 1):
        if len(line.expandtabs(8)) > 80:
            report.breach(path, number, "%d columns" % len(line))
        if (GETENV.search(line) and path != GETENV_READER
                and not path.startswith("tests/")):
            report.breach(path, number, "variables have one reader, "
                          + GETENV_READER)
    code = strip_comments(text).split("\n")
    for number, line in enumerate(code, 1):
        if OUR_T.search(line):
            report.breach(path, number, "a type of ours that ends in _t")
        if not path.startswith(LIBRARY):
            continue
        for pattern, what, allowed in FORBIDDEN:
            if pattern.search(line) and path not in allowed:
                report.breach(path, number, "%s in the library" % what)


def check_names(report, paths):
    """A name says where it is; a public header may share its noun's name."""
    seen = {}
    for path in paths:
        name = os.path.basename(path)
        if path.startswith("include/") or not is_c(path):
            continue
        if name in seen:
            report.breach(path, 1, "%s has that name too" % seen[name])
        seen[name] = path


def check_types(report, headers, bodies):
    """One name, one type, so that any two headers can be included together;
    those of the library carry its prefix. Of an opaque one, whose members stand
    in bodies, no header has any."""
    seen = {}
    opaque = {name: path for path, text in bodies
              for name in TAG.findall(strip_comments(text))}
    for path, text in headers:
        code = strip_comments(text)
        for match in FORWARD.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            if path.startswith(LIBRARY):
                report.breach(path, line,
                              "%s has no prefix wefti_" % match.group(1))
        for match in TYPE.finditer(code):
            name = match.group(1) or match.group(2) or match.group(4)
            line = code.count("\n", 0, match.start()) + 1
            if seen.setdefault(name, path) != path:
                report.breach(path, line, "%s has a type %s too" % (
                    seen[name], name))
            if name in opaque and TAG.match(match.group().lstrip()):
                report.breach(path, line, "%s has a type %s too" % (
                    opaque[name], name))
            if path.startswith(LIBRARY) and not name.startswith("wefti_"):
                report.breach(path, line, "%s has no prefix wefti_" % name)


def check_format(report, top, paths):
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not tool:
        report.breach(".clang-format", 1, "clang-format 14 is not installed")
        return
    run = subprocess.run([tool, "--dry-run", "-Werror", *paths], cwd=top,
                         capture_output=True, text=True)
    if run.returncode != 0:
        wrong = sorted({line.split(":")[0] for line in run.stderr.split("\n")
                        if "error:" in line})
        for path in wrong or [".clang-format"]:
            report.breach(path, 1, "clang-format would change it")
        print(run.stderr[:4000])


def main():
    top = os.path.realpath(sys.argv[1])
    report = Report()
    sources, headers, bodies = [], [], []
    for path in walk(top):
        with open(os.path.join(top, path), "rb") as file:
            data = file.read()
        if b"\0" in data or path.startswith("tests/fuzz/corpus/"):
            continue
        text = data.decode("utf-8", errors="replace")
        if not text or not is_source(path, text):
            continue
        sources.append(path)
        lines = text.rstrip("\n").split("\n")
        check_head(report, path, lines)
        check_lines(report, path, lines)
        if is_c(path):
            check_c(report, path, text, lines)
        if path.endswith((".h", ".c")) and not path.startswith("tests/"):
            (headers if path.endswith(".h") else bodies).append((path, text))
    check_names(report, sources)
    check_types(report, headers, bodies)
    check_format(report, top, [path for path in sources if is_c(path)])
    print("%d sources looked at, %d breaches" % (len(sources),
                                                 report.breaches))
    return 1 if report.breaches else 0


sys.exit(main())
