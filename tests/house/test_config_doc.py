#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: docs/config.md lists every key of a configuration as weft-train has it.

Method: the page must be what weft-train --keys prints, and name each key that
the examples use.

Usage: test_config_doc.py SOURCE_DIR BUILD_DIR
"""
import difflib
import glob
import os
import re
import subprocess
import sys


def main():
    source, build = sys.argv[1:3]
    printed = subprocess.run([os.path.join(build, "bin", "weft-train"),
                              "--keys"], check=True, stdout=subprocess.PIPE,
                             text=True, timeout=10).stdout
    with open(os.path.join(source, "docs", "config.md"),
              encoding="utf-8") as file:
        page = file.read()
    for line in difflib.unified_diff(page.splitlines(), printed.splitlines(),
                                     "docs/config.md", "weft-train --keys",
                                     lineterm=""):
        print(line)
    keys = set(re.findall(r"^(?:\| `|## )(\w+)", page, re.M))
    used = set()
    for path in glob.glob(os.path.join(source, "examples", "*.yaml")):
        with open(path, encoding="utf-8") as file:
            used.update(re.findall(r"^\s+(\w+):", file.read(), re.M))
    if page != printed or not used or not used <= keys:
        print("FAILED: write the page anew by weft-train --keys; "
              "not there:", sorted(used - keys))
        return 1
    print(len(keys), "keys,", len(used), "of them in examples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
