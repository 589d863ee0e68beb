# SPDX-License-Identifier: BSD-3-Clause
"""Imported by torch_source.py's Pythons before a test of PyTorch's: what that
asks of gloo is weft's.

Groups of a backend named gloo, or of none, are weft's, and so is what a test
makes by ProcessGroupGloo(store, rank, size, options). Ranks are forked instead
of started anew, and each test's verdict goes to the file that
WEFT_TORCH_VERDICTS names. With WEFT_TORCH_BACKEND=gloo, gloo stays gloo."""
import contextlib
import datetime
import json
import os
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing
import weft_torch
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal import common_distributed

LIMIT = datetime.timedelta(seconds=60)


class OwnOptions:
    """What tests set of gloo's options, of which weft takes the limit."""

    def __init__(self):
        self._timeout, self._threads, self._devices = LIMIT, 2, []
        self.global_ranks_in_group, self.group_name = [], ""


def make_group(store, rank, size, options=None, timeout=LIMIT):
    """In ProcessGroupGloo's place."""
    limit = getattr(options, "_timeout", options) or timeout
    if not isinstance(limit, datetime.timedelta):
        limit = datetime.timedelta(seconds=limit)
    return weft_torch._backend.create(store, rank, size, limit, "gloo's")


make_group._Options = OwnOptions
make_group.create_device = lambda *_, **__: None
make_group.create_default_device = make_group.create_device


def to_weft(name):
    """gloo -> weft, also in cpu:gloo,cuda:nccl; undefined stays."""
    if name is None or "gloo" not in str(name):
        return name
    return str(name).replace("gloo", "weft")


def rename(function, place, default=None):
    """The same with its backend, also where it stands by place, renamed."""
    def call(*args, **options):
        args = list(args)
        if len(args) > place:
            args[place] = to_weft(args[place]) or default
        else:
            options["backend"] = to_weft(options.get("backend")) or default
        with contextlib.suppress(AttributeError):
            if isinstance(options.get("pg_options"), OwnOptions):
                del options["pg_options"]
        return function(*args, **options)
    call.__name__ = function.__name__
    call.__doc__ = function.__doc__
    return call


def install():
    for module in (dist, c10d):
        module.ProcessGroupGloo = make_group
    for name, place, default in (("init_process_group", 0, "cpu:weft"),
                                 ("new_group", 2, None)):
        mine = rename(getattr(c10d, name), place, default)
        setattr(c10d, name, mine)
        setattr(dist, name, mine)
    common_distributed.create_device = make_group.create_device
    torch._C._distributed_c10d.Backend.create_device = staticmethod(
        make_group.create_device)


def fork_ranks():
    case = common_distributed.MultiProcessTestCase
    case._spawn_processes = lambda self: self._start_processes(
        torch.multiprocessing.get_context("fork").Process)


def write_verdicts(path):
    """A line of JSON as a test begins, and one as it ends."""
    def write(test, word, why=""):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps([test.id(), word, why]) + "\n")

    def wrap(name, word):
        plain = getattr(unittest.TextTestResult, name)

        def add(self, test, *more):
            why = ""
            if more and name in ("addFailure", "addError"):
                why = self._exc_info_to_string(more[0], test)
            elif more:
                why = str(more[0])
            write(test, word, why)
            return plain(self, test, *more)
        setattr(unittest.TextTestResult, name, add)

    for name, word in (("startTest", "began"), ("addSuccess", "passed"),
                       ("addFailure", "failed"), ("addError", "failed"),
                       ("addSkip", "skipped"),
                       ("addExpectedFailure", "passed")):
        wrap(name, word)


fork_ranks()
if os.environ.get("WEFT_TORCH_BACKEND") != "gloo":
    install()
if "WEFT_TORCH_VERDICTS" in os.environ:
    write_verdicts(os.environ["WEFT_TORCH_VERDICTS"])
