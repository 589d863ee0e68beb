#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Goal: the interface that the fake CUDA driver declares for itself
(tests/fake/fake_abi.h, fake_functions.h) is that of the toolkit's cuda.h.

Method: compile a file that includes cuda.h and asserts every constant, the
size of every structure and the place of its members, and then declares every
function again with the fake's arguments, which must agree; the versions of
functions are names in cudaTypedefs.h. A wrong value must be found, too.

Usage: test_fake_abi.py COMPILER CUDA_INCLUDE SOURCE_DIR ROOT
"""
import os
import re
import subprocess
import sys

# The fake's structures whose layout counts, and members of them.
LAYOUTS = {
    "CUuuid": ["bytes"],
    "CUipcMemHandle": ["reserved"],
    "CUipcEventHandle": ["reserved"],
    "CUstreamBatchMemOpParams": [
        "operation", "waitValue.address", "waitValue.value64",
        "waitValue.value", "waitValue.flags", "writeValue.address",
        "writeValue.value64", "writeValue.flags"],
    "CUdevResource": ["type", "sm.smCount", "sm.minSmPartitionSize",
                      "sm.smCoscheduledAlignment"],
    "CUmemAllocationProp": ["type", "requestedHandleTypes", "location.type",
                            "location.id", "win32HandleMetaData",
                            "allocFlags.usage"],
    "CUmemAccessDesc": ["location.type", "location.id", "flags"],
}


def constants(abi):
    found = dict(re.findall(r"\b(CU_\w+) = ([^,\n}]+)", abi))
    found.update(re.findall(r"X\((CUDA_\w+), (\d+),", abi))
    return found


def functions(text):
    """(name, variant, version) of each."""
    plain = re.sub(r"\s*\\\n\s*", " ", text)
    return re.findall(r"X\((\w+), (\w+), (\d+), \(", plain)


def layout_program(include):
    lines = [include, "#include <stddef.h>", "#include <stdio.h>",
             "int main(void)", "{"]
    for name, members in LAYOUTS.items():
        lines.append('printf("%s %%zu\\n", sizeof(%s));' % (name, name))
        lines += ['printf("%s.%s %%zu\\n", offsetof(%s, %s));'
                  % (name, member, name, member) for member in members]
    return "\n".join(lines + ["return 0;", "}", ""])


class Compiler:
    def __init__(self, command, cuda, root):
        self.flags = [command, "-xc", "-std=gnu11", "-w", "-I", root,
                      "-isystem", cuda]

    def complaint(self, text):
        run = subprocess.run(self.flags + ["-fsyntax-only", "-"], input=text,
                             capture_output=True, text=True)
        return run.stderr if run.returncode else ""

    def output(self, text, program):
        subprocess.run(self.flags + ["-o", program, "-"], input=text,
                       check=True, text=True)
        result = subprocess.run([program], check=True, capture_output=True,
                                text=True)
        os.unlink(program)
        return result.stdout


def main():
    command, cuda, source, root = sys.argv[1:5]
    compiler = Compiler(command, cuda, root)
    folder = os.path.join(source, "tests", "fake")
    with open(os.path.join(folder, "fake_abi.h")) as file:
        abi = file.read()
    with open(os.path.join(folder, "fake_functions.h")) as file:
        known = functions(file.read())
    with open(os.path.join(cuda, "cudaTypedefs.h")) as file:
        typedefs = set(re.findall(r"PFN_(\w+?_v\d+)\b", file.read()))
    failures = []

    values = constants(abi)
    asserts = "#include <cuda.h>\n" + "".join(
        '_Static_assert(%s == (%s), "%s");\n' % (name, value, name)
        for name, value in values.items())
    failures.append(compiler.complaint(asserts))
    if not compiler.complaint(asserts.replace("== (1)", "== (77)", 1)):
        failures.append("a wrong value is not found")

    program = os.path.join(root, "..", "fake_abi_layout")
    ours = compiler.output(
        layout_program('#include "tests/fake/fake_abi.h"'), program)
    theirs = compiler.output(layout_program("#include <cuda.h>"), program)
    if ours != theirs:
        failures.append("layouts: ours\n%s\ncuda.h's\n%s" % (ours, theirs))

    undefined = "".join("#undef %s\n" % name for name, _, _ in known)
    again = ("#include <cuda.h>\n" + undefined
             + "#define TESTS_FAKE_FAKE_ABI_H\n"
             + '#include "tests/fake/fake_functions.h"\n')
    failures.append(compiler.complaint(again))
    for name, variant, version in known:
        if "%s_v%s" % (name, version) not in typedefs:
            failures.append("%s: no version %s in cudaTypedefs.h"
                            % (variant, version))
    failures = [text for text in failures if text]
    for text in failures:
        print("FAILED:", text)
    print("%d constants, %d layouts, %d functions compared"
          % (len(values), len(LAYOUTS), len(known)))
    return 1 if failures or not values or not known else 0


sys.exit(main())
