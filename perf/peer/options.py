# SPDX-License-Identifier: BSD-3-Clause
"""The command line of perf/peers."""
import argparse
import os
import re
import shlex
import sys

from peer import catalog

OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
       "alltoall", "alltoallv", "gather", "scatter", "sendrecv", "barrier"]
SIZE_MOST = 1 << 30
RANKS_MOST = 256

EXAMPLES = """examples:
  perf/peers --list
  perf/peers --ops all_reduce --ranks 2 --sizes 8,64K,4M
  perf/peers --ops all --ranks 2,4 --json peers.json --svg peers.svg
  perf/peers --peers openmpi,mpich --rounds 5 --ops barrier
  perf/peers --ops all_reduce,sendrecv --net-emulate 2x1,1gbit
  perf/peers --door openmpi --ops all_reduce,alltoall --ranks 2,4
"""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        """One line, which names the option, its value and what is allowed."""
        sys.stderr.write(f"{self.prog}: {message}\n")
        sys.exit(2)


def read_size(text):
    units = {"K": 10, "M": 20, "G": 30}
    shift = units.get(text[-1:].upper(), 0)
    digits = text[:-1] if shift else text
    # isdecimal alone takes other scripts' digits, and long ones take long.
    plain = digits.isascii() and digits.isdecimal() and len(digits) < 11
    size = int(digits) << shift if plain else 0
    if not 1 <= size <= SIZE_MOST:
        raise argparse.ArgumentTypeError(
            f"{text!r}: allowed is a size from 1 to 1G, such as 8, 64K, 4M")
    return size


def whole(least, most):
    def read(text):
        plain = text.isascii() and text.isdecimal() and len(text) < 10
        if not plain or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r}: allowed is {least} to {most}")
        return int(text)
    return read


def one_of(allowed):
    def read(text):
        if text not in allowed:
            raise argparse.ArgumentTypeError(
                f"{text!r}: allowed is {' '.join(allowed)}")
        return text
    return read


def list_of(read, everything=None):
    """Values separated by commas, each once; "all" where there is such."""
    def parse(text):
        if everything and text == "all":
            return list(everything)
        return list(dict.fromkeys(read(part) for part in text.split(",")))
    return parse


def read_hosts(text):
    """As weft-run reads it: ranks of hosts that are alike or not, and links."""
    spec, _, links = text.partition(",")
    rate = r"\d+[kmg]bit"
    if not (re.fullmatch(r"[1-9]\d{0,2}x[1-9]\d{0,2}", spec) or
            re.fullmatch(r"[1-9]\d{0,2}(\+[1-9]\d{0,2})+", spec)) or (
                "," in text and not re.fullmatch(rf"{rate}(\+{rate})*", links)):
        raise argparse.ArgumentTypeError(
            f"{text!r}: allowed is NODESxRANKS, or the ranks of each node, "
            "then perhaps a comma and the rate of each rail in kbit, mbit or "
            "gbit: 2x1,1gbit or 3+1,1gbit+400mbit")
    if not 2 <= sum(catalog.host_ranks(text)) <= RANKS_MOST:
        raise argparse.ArgumentTypeError(
            f"{text!r}: allowed are 2 to {RANKS_MOST} ranks in all")
    return text


def make_parser(description):
    parser = Parser(
        prog="perf/peers", description=description, epilog=EXAMPLES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--ops", type=list_of(one_of(OPS), OPS), default=["all_reduce"],
        metavar="LIST", help="of " + " ".join(OPS) + ", or all (all_reduce)")
    add("--ranks", type=list_of(whole(2, RANKS_MOST)), default=[2],
        metavar="LIST", help="numbers of ranks, 2 to 256 (2)")
    add("--sizes", type=list_of(read_size), default=[8, 65536, 4194304],
        metavar="LIST", help="bytes, as weft-perf counts them "
        "(8,64K,4M); a barrier has none")
    add("--peers", type=list_of(one_of(catalog.names())), metavar="LIST",
        help="of " + " ".join(catalog.names()) + " (all that are here); a "
        "library's name stands for all ways to run it")
    add("--door", type=one_of(catalog.DOORS), metavar="NAME",
        help="in weft's place that MPI with weft's library preloaded; of "
        + " ".join(catalog.DOORS) + ". Its peer is the same MPI without; "
        "--peers names the way that both are run, else the one of that name")
    add("--net-emulate", type=read_hosts, metavar="SPEC",
        help="as of weft-run, on emulated hosts: 2x2,1gbit, 3+1 or "
        "4x1,1gbit+400mbit; sets --ranks")
    add("--rounds", type=whole(1, 1000), default=15, metavar="N",
        help="pairs of one mode wanted at each point; up to three times as "
        "many rounds are made for them (15)")
    add("--pilot", type=whole(1, 100), default=3, metavar="N",
        help="rounds of the pilot that picks the opponents (3)")
    add("--iterations", type=whole(0, 1000000), default=0, metavar="N",
        help="timed calls a size and process; 0: by size, as weft-perf (0)")
    add("--weft", type=shlex.split, default=[], metavar="FLAGS",
        help="more flags for weft-perf, in one word: --weft=--plan")
    add("--build", metavar="FOLDER",
        default=os.path.join(catalog.ROOT, "build", "release"),
        help="where bin/ is (build/release)")
    add("--json", "-J", metavar="FILE", help="the same as JSON; - is stdout")
    add("--svg", metavar="FILE", help="the ratios as a picture")
    add("--list", action="store_true",
        help="say which peers are here, and how to get the others")
    return parser


def read(description, arguments):
    options = make_parser(description).parse_args(arguments)
    if options.net_emulate:
        options.ranks = [sum(catalog.host_ranks(options.net_emulate))]
    if options.door and options.weft:
        make_parser(description).error(
            "argument --weft: --door runs no weft-perf, whose flags they are")
    if options.door and "sendrecv" in options.ops:
        make_parser(description).error(
            "argument --ops: sendrecv is a message: with --door it is MPI's")
    for option, path in (("--json", options.json), ("--svg", options.svg)):
        folder = os.path.dirname(os.path.abspath(path or "."))
        if path and path != "-" and not os.path.isdir(folder):
            make_parser(description).error(
                f"argument {option}: {path}: no folder {folder}")
    return options
