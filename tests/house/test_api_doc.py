#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_api_doc.py SOURCE_DIR

Goal: docs/api.md has every public function, type and constant as the headers
have it now, and none of them is without its contract.
Method: scripts/api --check on the tree, and on copies of it in which something
was added, renamed or left out: each must be told. The names on the page are
compared with those that the compiler finds in the headers.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.realpath(sys.argv[1])
FUNCTION = ("/*\n * weft_new_thing - something new.\n *\n"
            " * Returns     OK | ERR_INVALID.\n */\n"
            "weft_status weft_new_thing(int argument);\n\n")
# What is done to a header: file, text, its replacement, what is then said.
CHANGES = [
    ("comm.h", "/* Why a communicator has failed.",
     FUNCTION + "/* Why a communicator has failed.",
     "lacks: | `weft_new_thing` | something new | `OK`, `ERR_INVALID` |"),
    ("comm.h", "weft_comm_abort", "weft_comm_stop", "lacks: | `weft_comm_stop`"),
    ("comm.h", " * Returns     OK | ERR_INVALID.  Threads: any, also while",
     " * Threads: any, also while", 'weft_comm_abort: no "Returns"'),
    ("mem.h", " *             ERR_NO_MEMORY | the fault",
     " *             ERR_PEER | the fault", "lacks: | `weft_mem_put`"),
    ("comm.h", "/* How a report is written. */\n", "",
     "weft_comm_format: no comment says what it is"),
    ("mem.h", "WEFT_MEM_SLOTS = 64,", "WEFT_MEM_SLOTS = 64, WEFT_MEM_MORE,",
     "lacks: Constants: `WEFT_MEM_SLOTS`, `WEFT_MEM_MORE`"),
    ("types.h", '    X(PROD, "prod")', '    X(MEAN, "mean")',
     "`WEFT_REDOP_MEAN`"),
    ("plan.h", "posted again and again", "posted", "lacks: Operations that are"),
    ("mem.h", "weft_mem_get_bytes      how large each rank's is.", "",
     "weft_mem_get_bytes: no comment says what it is for"),
]


def fail(text):
    print("FAILED: " + text)
    sys.exit(1)


def check(top):
    run = subprocess.run([os.path.join(TOP, "scripts/api"), "--check", top],
                         capture_output=True, text=True)
    return run.returncode, run.stderr


def check_changes():
    for name, old, new, said in CHANGES:
        with tempfile.TemporaryDirectory() as top:
            shutil.copytree(TOP + "/include", top + "/include")
            os.mkdir(top + "/docs")
            shutil.copy(TOP + "/docs/api.md", top + "/docs")
            path = os.path.join(top, "include/weft", name)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            if old not in text:
                fail("%s has no %r any more: name another" % (name, old))
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace(old, new))
            code, error = check(top)
            if code == 0 or said not in error:
                fail("%s, %r: exit %d, %s" % (name, new, code, error))
    print("%d changes of headers were told" % len(CHANGES))


def compiled_names():
    """Of functions, types and enumerators, as the compiler has them."""
    run = subprocess.run(["cc", "-std=c11", "-E", "-P", "-I", TOP + "/include",
                          "-include", "weft/weft.h", "-xc", "/dev/null"],
                         capture_output=True, text=True, check=True)
    text = run.stdout
    names = set(re.findall(r"\b(weft_\w+) *\(", text))
    names |= set(re.findall(r"\b(?:struct|enum|union) (weft_\w+)", text))
    for body in re.findall(r"\benum(?: weft_\w+)? *\{([^}]*)\}", text):
        names |= set(re.findall(r"\bWEFT_\w+", body))
    return names


def main():
    code, error = check(TOP)
    if code != 0:
        fail(error)
    with open(TOP + "/docs/api.md", encoding="utf-8") as file:
        page = set(re.findall(r"`(\w+)(?:\(X\))?`", file.read()))
    missing = compiled_names() - page
    if missing:
        fail("docs/api.md lacks " + " ".join(sorted(missing)))
    check_changes()


main()
