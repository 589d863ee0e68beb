# SPDX-License-Identifier: BSD-3-Clause
"""Builds weft_torch for the tests: torch_package.py LIB FOLDER, the folder of
libweft.so and where to build, against the torch of WEFT_TORCH_PYTHON, else of
this Python. What has not changed is not built again. Without a torch of 2.1 or
later there is nothing to build: exit status 77."""
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PYTHON = os.environ.get("WEFT_TORCH_PYTHON", sys.executable)


def find_torch(*others):
    """Its version, or why there is none; others: modules needed, too."""
    done = subprocess.run(
        [PYTHON, "-c", "import setuptools, torch, " + ", ".join(
            ("torch.distributed",) + others) + "; print(torch.__version__)"],
        capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip().split("\n")[-1]
    version = done.stdout.strip()
    numbers = [int(n) for n in re.findall(r"\d+", version)[:2]]
    return (version, "") if numbers >= [2, 1] else (None, f"torch {version}")


def need_torch(*others):
    """Ends the test as skipped where there is none."""
    torch, why = find_torch(*others)
    if not torch:
        print(f"{PYTHON}: no torch of 2.1 or later ({why}): nothing to test "
              "weft_torch with; WEFT_TORCH_PYTHON can name a Python")
        sys.exit(77)


def package_of(folder):
    return os.path.join(folder, "python")


def build(lib, folder):
    for part in ("python", "include"):
        shutil.copytree(os.path.join(ROOT, part), os.path.join(folder, part),
                        ignore=shutil.ignore_patterns("build", "*.egg-info"),
                        dirs_exist_ok=True)
    done = subprocess.run(
        [PYTHON, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=package_of(folder), capture_output=True, text=True, check=False,
        env=dict(os.environ, WEFT_LIB=lib, MAX_JOBS="2"))
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


if __name__ == "__main__":
    need_torch()
    build(os.path.abspath(sys.argv[1]), sys.argv[2])
