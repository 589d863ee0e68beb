# SPDX-License-Identifier: BSD-3-Clause
"""The peers: one object each, which knows how the library is found, started,
and got where it is absent.

To add one: its calls in perf/peer/peer_NAME.c or .cc (peer_library.h says
which), its program in perf/peer/CMakeLists.txt, its row in PEERS.
"""
import dataclasses
import json
import os
import shutil
import tempfile

from peer import process

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))


FIRST_HOST = "10.87.0.1"  # the first emulated one, where rank 0 is
LIMIT_S = 60  # for a library to say what it is


def cores():
    return len(os.sched_getaffinity(0))


def host_ranks(spec):
    """How many ranks each host has, of a right --net-emulate."""
    hosts = spec.partition(",")[0]
    if "x" in hosts:
        nodes, ranks = hosts.split("x")
        return [int(ranks)] * int(nodes)
    return [int(ranks) for ranks in hosts.split("+")]


@dataclasses.dataclass(frozen=True)
class Job:
    """One process of one side: what it measures, and where."""
    build: str        # a build folder, with bin/
    scratch: str      # a folder; each process makes folders of its own in it
    op: str
    ranks: int
    sizes: tuple
    iterations: int = 0   # 0: by size
    budget_ms: int = 0    # most time a size; 0: no limit
    hosts: str = ""       # as weft-run --net-emulate; empty: this host
    weft_flags: tuple = ()

    def program(self, name):
        return os.path.join(self.build, "bin", name)

    def folder(self):
        return tempfile.mkdtemp(dir=self.scratch)

    def weft_run(self, bound):
        hosts = ["--net-emulate", self.hosts] if self.hosts else []
        bind = "core" if bound and self.ranks <= cores() else "none"
        return [self.program("weft-run"), "-n", str(self.ranks), "--bind",
                bind, *hosts]

    def measured(self):
        """What follows the folder on a peer's command line."""
        return [self.op, ",".join(map(str, self.sizes)),
                str(self.iterations), str(self.budget_ms)]


@dataclasses.dataclass(frozen=True)
class Variant:
    """A way to run a library; the best one of a name counts."""
    name: str             # what rows call it
    how: str              # what sets it apart from others of that name
    flags: tuple = ()
    on_hosts: bool = False   # for emulated hosts, and not for one host
    environment: tuple = ()  # (name, value) pairs

    def text(self):
        return f"{self.name}, {self.how}"


class Weft:
    """Bound to cores, as an MPI's ranks are, where each has one."""
    name = "weft"

    @staticmethod
    def command(job, _variant=None):
        command = [*job.weft_run(True), job.program("weft-perf"), job.op,
                   "--sizes", ",".join(map(str, job.sizes)), "--samples",
                   "-J", "-", *job.weft_flags]
        if job.iterations:
            command += ["-n", str(job.iterations)]
        if job.op == "broadcast":
            command += ["--inplace"]  # as an MPI's is
        return command


class Door:
    """weft behind an MPI's own names: what bin/peers-NAME calls, with the
    library preloaded, in weft's place; started as one way to run that MPI."""
    name = "weft"

    def __init__(self, peer, variant):
        self.peer, self.variant = peer, variant

    @staticmethod
    def library(build, name):
        return os.path.join(build, "lib", "weft", "mpi", name,
                            "libweft_mpi.so")

    def started(self, job, *more):
        preload = ("LD_PRELOAD", self.library(job.build, self.peer.name))
        hosts = [("WEFT_HOST", FIRST_HOST)] if job.hosts else []
        return self.peer.command(job, self.variant, (preload, *hosts, *more))

    def command(self, job, _variant=None):
        return self.started(job)

    def check(self, job):
        """Raises Failure unless weft has all calls of such a job."""
        path = os.path.join(job.folder(), "report.json")
        process.rows_of(self.started(job, ("WEFT_MPI_REPORT", path)))
        if not os.path.exists(path):
            raise process.Failure(f"{job.op} was left to MPI: no report")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        calls = sum(row["calls"] for row in rows)
        why = {why for row in rows for why in row["left_why"]}
        if why or not calls:
            raise process.Failure(f"{job.op} was left to MPI: "
                                  f"{', '.join(sorted(why)) or 'no call'}")


class Peer:
    """What all libraries share: bin/peers-NAME, and what it says of itself."""

    def __init__(self, name, install, variants, launcher=None):
        self.name = name
        self.install = install    # what makes it present
        self.variants = variants
        self.launcher = launcher  # a program it needs, beside bin/peers-NAME
        self.library = None       # set by find: its own name and version
        self.can = []             # set by find: operations

    def program(self, build):
        return os.path.join(build, "bin", "peers-" + self.name)

    def find(self, build):
        """Empty where the peer can be measured, else why it cannot."""
        program = self.program(build)
        if self.launcher and not shutil.which(self.launcher):
            return f"no {self.launcher}: {self.install}"
        if not os.path.exists(program):
            return (f"no bin/peers-{self.name}: {self.install}, then build "
                    "again")
        status, out, errors = process.run([program, "--can"], LIMIT_S)
        info = process.document(out)
        if status != 0 or not info:
            last = (errors.strip().splitlines() or ["no message"])[-1]
            return f"bin/peers-{self.name} does not run: {last}"
        self.library, self.can = info["library"], info["can"]
        return ""

    def variants_for(self, job):
        """Those that can run such a job."""
        return [variant for variant in self.variants
                if job.op in self.can and variant.on_hosts == bool(job.hosts)]


class OpenMpi(Peer):
    def command(self, job, variant, environment=()):
        exports = [word for name, value in environment
                   for word in ("-x", f"{name}={value}")]
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        shared = job.ranks > cores()
        if job.hosts:
            # Each host takes the cores for its own: it must be told to yield.
            waits = ["--mca", "mpi_yield_when_idle", "1"] if shared else []
            return [*job.weft_run(False),
                    os.path.join(ROOT, "perf", "peers_host"), job.folder(),
                    ",".join(map(str, host_ranks(job.hosts))),
                    shutil.which(self.launcher), *root, *waits,
                    *variant.flags, *exports, self.program(job.build), "-",
                    job.folder(), *job.measured()]
        waits = ["--oversubscribe"] if shared else []
        return [shutil.which(self.launcher), "-n", str(job.ranks), *root,
                *waits, *variant.flags, *exports, self.program(job.build),
                "-", job.folder(), *job.measured()]


class Mpich(Peer):
    def command(self, job, variant, environment=()):
        exports = [word for name, value in environment
                   for word in ("-genv", name, value)]
        if job.hosts:
            return [*job.weft_run(False),
                    os.path.join(ROOT, "perf", "peers_host"), job.folder(),
                    ",".join(map(str, host_ranks(job.hosts))),
                    shutil.which(self.launcher), *variant.flags, *exports,
                    self.program(job.build), "-", job.folder(),
                    *job.measured()]
        return [shutil.which(self.launcher), "-n", str(job.ranks),
                *variant.flags, *exports, self.program(job.build), "-",
                job.folder(), *job.measured()]


class UnderWeftRun(Peer):
    """A library without a launcher of its own."""

    def command(self, job, variant):
        folder = job.folder()
        if job.hosts:
            with open(os.path.join(folder, "interface"), "w",
                      encoding="utf-8") as file:
                file.write("eth0\n")
        bound = "--bind" not in variant.flags
        return ["env", *(f"{name}={value}"
                         for name, value in variant.environment),
                *job.weft_run(bound), "sh", "-c",
                'program=$1; shift; exec "$program" '
                '"$WEFT_RANK/$WEFT_NRANKS" "$@"', "sh",
                self.program(job.build), folder, *job.measured()]


# Without the last two, Open MPI finds no network that UCX is meant for.
UCX = ("--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any",
       "--mca", "pml_ucx_devices", "any")
OB1 = ("--mca", "pml", "ob1")
UNBOUND = ("--bind-to", "none")

PEERS = [
    OpenMpi("openmpi", "apt-get install openmpi-bin libopenmpi-dev", [
        Variant("openmpi", "own binding", OB1),
        Variant("openmpi", "unbound", OB1 + UNBOUND),
        Variant("openmpi-ucx", "own binding", UCX),
        Variant("openmpi-ucx", "unbound", UCX + UNBOUND),
        Variant("openmpi", "tcp", on_hosts=True),
        Variant("openmpi-han", "tcp, hierarchical",
                ("--mca", "coll_han_priority", "90"), on_hosts=True),
    ], "mpirun.openmpi"),
    Mpich("mpich", "apt-get install mpich libmpich-dev", [
        Variant("mpich", "own binding"),
        Variant("mpich", "bound", ("-bind-to", "core")),
        Variant("mpich", "tcp", ("-genv", "UCX_TLS", "self,sysv,posix,tcp",
                                 "-genv", "UCX_NET_DEVICES", "eth0"),
                on_hosts=True),
    ], "mpirun.mpich"),
    UnderWeftRun("gloo", "apt-get install g++ libgloo-dev", [
        Variant("gloo", "bound, tcp"),
        Variant("gloo", "unbound, tcp", ("--bind", "none")),
        Variant("gloo", "tcp", on_hosts=True),
    ]),
    UnderWeftRun("oneccl", "python3 -m venv DIR; DIR/bin/pip install "
                 "oneccl-cpu-devel==2021.15.2; cmake with "
                 "-DCMAKE_PREFIX_PATH=DIR", [
        Variant("oneccl", "bound"),
        Variant("oneccl", "unbound", ("--bind", "none")),
    ]),
]


# Not a peer: what copying each element once would take, see peer_limit.c.
LIMIT = UnderWeftRun("limit", "", [Variant("limit", "bound")])

DOORS = ("openmpi", "mpich")  # doors/mpi


def ways_of(name, hosts):
    """Names of the ways to run one library, on emulated hosts or not."""
    return list(dict.fromkeys(
        variant.name for peer in PEERS if peer.name == name
        for variant in peer.variants if variant.on_hosts == bool(hosts)))


def names():
    """All names that --peers takes: of libraries and of ways to run them."""
    return list(dict.fromkeys(
        name for peer in PEERS
        for name in (peer.name, *(v.name for v in peer.variants))))


def wanted(peer, variant, asked):
    """Whether a list of names, None for all, means this variant."""
    return asked is None or variant.name in asked or (
        peer.name in asked)
