#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_struct_rule.py SOURCE_DIR

Goal: no public struct escapes the rule of weft.h: what a caller hands over
begins with size_bytes, and is tried with other sizes.
Method: all structs of include/weft are read. Each begins with size_bytes and
is named in test_struct_sizes.c, or stands below with the reason why not.
"""
import glob
import os
import re
import sys

TOP = os.path.realpath(sys.argv[1])
FREE = {
    "weft_unique_id": "opaque, of fixed length",
    "weft_span": "a handle, passed by value",
    "weft_link": "an array's element",
    "weft_stage_cost": "an array's element",
    "weft_place": "part of weft_verdict",
    "weft_finding": "part of weft_verdict",
    "weft_verdict": "weft's alone to fill, with a fini",
    "weft_schedule_span": "part of weft_schedule_run",
    "weft_schedule_rank": "part of weft_schedule_run",
    "weft_schedule_run": "weft's alone to fill, with a fini",
    "weft_schedule_candidate": "part of weft_advice",
    "weft_advice": "weft's alone to fill, with a fini",
    "weft_bucket_extent": "an array's element",
    "weft_rows": "weft's to make, or of two pointers for ever",
    "weft_pipeline_work": "weft's alone to fill",
    "weft_pipeline_span": "an array's element",
}


def read_structs():
    found = {}
    for path in glob.glob(TOP + "/include/weft/*.h"):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        for name, body in re.findall(r"struct (weft_\w+) \{(.*?)\n\}", text,
                                     re.S):
            found[name] = body.split(";")[0].strip()
    return found


def main():
    structs = read_structs()
    with open(TOP + "/tests/house/test_struct_sizes.c",
              encoding="utf-8") as file:
        tried = file.read()
    wrong = [name + ": listed as free, but there is none"
             for name in FREE if name not in structs]
    for name, first in sorted(structs.items()):
        if name in FREE:
            continue
        if first != "size_t size_bytes":
            wrong.append("%s begins with %r: allowed is size_bytes" %
                         (name, first))
        elif name not in tried:
            wrong.append(name + ": test_struct_sizes.c does not try it")
    for line in wrong:
        print("FAILED: " + line)
    print("%d public structs, %d with size_bytes" %
          (len(structs), len(structs) - len(FREE)))
    sys.exit(1 if wrong or len(structs) < 20 else 0)


main()
