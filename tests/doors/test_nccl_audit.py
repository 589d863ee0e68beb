# SPDX-License-Identifier: BSD-3-Clause
"""test_nccl_audit.py PROGRAM STAND_IN AUDIT: nccl_versions, whose RPATH leads
to nccl_stand_in.c's libnccl.so.2, that file, and weft's audit library.

Goal: a program whose RPATH finds another NCCL runs on weft's with LD_AUDIT, and
on no other where weft's is missing. Method: what it says of the versions that
it meets; LD_LIBRARY_PATH alone must not do."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

AUDIT, STAND_IN, PROGRAM = (os.path.abspath(sys.argv.pop()) for _ in range(3))
WEFT, OTHER = "22809", "1"


def run(*arguments, folder=None, **settings):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("LD_")}
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True,
                          timeout=60, check=False, cwd=folder,
                          env=dict(environment, **settings))


class Audit(unittest.TestCase):
    def versions(self, *arguments, **settings):
        done = run(*arguments, **settings)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_rpath_finds_the_other_one_without(self):
        self.assertEqual(self.versions(), [OTHER, OTHER])
        self.assertEqual(
            self.versions(LD_LIBRARY_PATH=os.path.dirname(AUDIT)),
            [OTHER, OTHER])

    def test_weft_comes_before_rpath(self):
        self.assertEqual(self.versions(LD_AUDIT=AUDIT), [WEFT, WEFT])
        self.assertEqual(
            self.versions(LD_AUDIT="./" + os.path.basename(AUDIT),
                          folder=os.path.dirname(AUDIT)), [WEFT, WEFT])
        self.assertEqual(
            self.versions(LD_AUDIT=os.path.basename(AUDIT),
                          LD_LIBRARY_PATH=os.path.dirname(AUDIT)), [WEFT, WEFT])

    def test_weft_is_found_from_another_folder(self):
        code = ("import ctypes, os; os.chdir('/'); version = ctypes.c_int();"
                "ctypes.CDLL('libnccl.so.2').ncclGetVersion("
                "ctypes.byref(version)); print(version.value)")
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True,
            timeout=60, check=False, cwd=os.path.dirname(AUDIT),
            env=dict(os.environ, LD_AUDIT="./" + os.path.basename(AUDIT)))
        self.assertEqual((done.stdout, done.stderr), (WEFT + "\n", ""))

    def test_a_path_stays_what_it_is(self):
        self.assertEqual(self.versions(STAND_IN, LD_AUDIT=AUDIT),
                         [WEFT, WEFT, OTHER])

    def test_without_weft_beside_it_nothing_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(AUDIT, folder)
            done = run(LD_AUDIT=alone)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(done.stdout, "")
            self.assertIn(os.path.join(folder, "libnccl.so.2"), done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
