# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed's backend "weft", for tensors in host memory and on GPUs
by CUDA.

    import torch.distributed, weft_torch
    torch.distributed.init_process_group("weft")

With other backends beside it: init_process_group("cpu:weft,cuda:nccl").
"""
import os
import socket

import torch
import torch.distributed

if not torch.cuda.is_initialized():
    # Read when CUDA starts: streams on one connection wait for each other, and
    # a rank has more of them than the 8 of the default.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

from . import _backend  # noqa: E402

__all__ = ["version"]
version = _backend.version


def _name_host():
    """Ranks of several hosts meet at an address of this one by which it reaches
    the master; those of one host on its loopback."""
    size = os.environ.get("WORLD_SIZE")
    if ("WEFT_HOST" in os.environ or "MASTER_ADDR" not in os.environ
            or size == os.environ.get("LOCAL_WORLD_SIZE")):
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((os.environ["MASTER_ADDR"], 9))
        except OSError:
            return  # then creation says who is missing
        address = probe.getsockname()[0]
    if not address.startswith("127."):
        os.environ["WEFT_HOST"] = address


def _create(common, _options):
    _name_host()
    name = "world" if common.group_id == "0" else f"group {common.group_id}"
    return _backend.create(common.store, common.group_rank, common.group_size,
                           common.timeout, name)


torch.distributed.Backend.register_backend("weft", _create, extended_api=True,
                                           devices=["cpu", "cuda"])
