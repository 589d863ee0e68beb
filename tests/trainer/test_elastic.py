#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_elastic.py BIN_DIR [NODES] - an elastic run loses ranks and goes on.

Goal: when a rank of four is killed at a random moment, the job ends well with
three; its losses from the checkpoint on are, bit for bit, those of a run of
three that resumes from that checkpoint. So it is when rank 0 is the one, when
the batch does not divide, and when a second rank dies later; where ranks share
layers, sequences or experts, whole groups of them go on, or none. One that
began with an imported model and has no checkpoint begins with that model
again. With NODES, such as 2x2, the four stand on emulated nodes (root and
iproute2), and a whole node is lost; or only its link, and then one side alone
goes on; and ranks that moe.node_limit forbids to share experts do not. Sums
take no notice of the nodes then (WEFT_SUM_FLAT).

Method: weft-run --elastic with a tiny model, where a sanitizer watches
(WEFT_TEST_FEW) a tinier one, and fewer cases; the test waits until the metrics
have a random number of lines (seed printed), kills by pid, and afterwards
starts the reference from a copy of the checkpoints as they were.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from products import WITHOUT_ONEDNN

BIN = sys.argv[1]
NODES = ["--net-emulate", sys.argv[2]] if len(sys.argv) > 2 else []
DEADLINE_S = 120
STEPS = 40
FEW = "WEFT_TEST_FEW" in os.environ
CONFIG = """
model: {layers: 2, hidden_size: %s, heads: 4, kv_heads: 2, ffn_size: 96,
        seq_length: %s}
data: {paths: [text.txt], validation_fraction: %s}
train: {steps: %d, micro_batch_size: 2, global_batch_size: %d, lr: 1.0e-2,
        warmup_steps: 3, validate_every: 20, gradient_stats_every: 5,
        elastic: true}
overlap: {bucket_mb: 0.05}
checkpoint: {dir: ckpt, every: 5, keep: 100}
generate: {bytes: 4}
"""
SIZES = ("32", "8", "0.01") if FEW else ("64", "32", "0.1")


def fail(text):
    print("FAILED: " + text)
    sys.exit(1)


def make_folder(batch):
    folder = tempfile.mkdtemp(prefix="weft-elastic-")
    words = ["warp", "weft", "loom", "thread", "and", "a", "shuttle"]
    with open(folder + "/text.txt", "w") as file:
        file.write(" ".join(random.choice(words) for _ in range(4000)))
    with open(folder + "/job.yaml", "w") as file:
        file.write(CONFIG % (*SIZES, STEPS, batch))
    return folder


def start(folder, nranks, *more):
    nodes = NODES if nranks == 4 else []
    # The reference has one host, so hosts must not matter for its sums.
    flat = dict(os.environ, WEFT_SUM_FLAT="on") if NODES else None
    command = [BIN + "/weft-run", "-n", str(nranks), "--elastic", *nodes,
               "--timeout", str(DEADLINE_S), BIN + "/weft-train",
               folder + "/job.yaml", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=flat)


def read_lines(path):
    """What each step's last line says; a line cut short is not one yet."""
    steps = {}
    try:
        with open(path) as file:
            for line in file:
                if not line.endswith("\n"):
                    break  # or its rest would come next, as if it were one
                row = json.loads(line)
                for tensor in row.get("gradients", []):
                    if len(tensor["tensor"]) > 32 or tensor["elems"] > 10**6:
                        fail("not a tensor of the model: %s" % tensor)
                steps[row["step"]] = (row["loss"], row["grad_norm"])
    except FileNotFoundError:
        pass
    return steps


def find_rank(launcher, rank):
    """The process of a rank, by its environment."""
    path = "/proc/%d/task/%d/children" % (launcher, launcher)
    for pid in open(path).read().split():
        try:
            variables = open("/proc/%s/environ" % pid).read().split("\0")
        except OSError:
            continue
        if "WEFT_RANK=%d" % rank in variables:
            return int(pid)
    fail("rank %d has no process" % rank)


def kill_after(job, metrics, lines, rank):
    end = time.monotonic() + DEADLINE_S
    while len(read_lines(metrics)) < lines:
        if job.poll() is not None or time.monotonic() > end:
            fail("ended before %d lines:\n%s" % (lines, job.stderr.read()))
        time.sleep(0.002)
    os.kill(find_rank(job.pid, rank), signal.SIGKILL)


def finish(job):
    out, err = job.communicate(timeout=DEADLINE_S)
    if job.returncode != 0:
        fail("exit %d:\n%s%s" % (job.returncode, out, err))
    return err


def begin_step(err, left, of):
    """The step that the last recovery went back to."""
    mark = "; %d of %d ranks go on from step " % (left, of)
    if mark not in err:
        fail("no word of %r in:\n%s" % (mark, err))
    return int(err.split(mark)[-1].split()[0].rstrip(";"))


def reference(folder, nranks, step, *settings):
    """A run of nranks from the checkpoint of step."""
    kept = folder + "/kept"
    shutil.rmtree(kept, ignore_errors=True)
    os.mkdir(kept)
    more = [*settings, "--metrics", folder + "/reference.jsonl",
            "--set", "checkpoint.dir=" + folder + "/elsewhere"]
    if step > 0:
        name = "step_%08d" % step
        shutil.copytree(folder + "/ckpt/" + name, kept + "/" + name)
        more += ["--resume", kept]
    finish(start(folder, nranks, *more))
    return read_lines(folder + "/reference.jsonl")


def run_case(batch, victims):
    folder = make_folder(batch)
    metrics = folder + "/metrics.jsonl"
    job = start(folder, 4, "--metrics", metrics)
    lines = 0
    for victim in victims:
        lines += random.randint(1, (STEPS - 8) // len(victims))
        kill_after(job, metrics, lines, victim)
    err = finish(job)
    left = 4 - len(victims)
    step = begin_step(err, left, left + 1)
    for victim in victims:
        if "rank %d: SIGKILL" % victim not in err:
            fail("rank %d is not named:\n%s" % (victim, err))
    went = read_lines(metrics)
    should = reference(folder, left, step)
    if sorted(went) != list(range(1, STEPS + 1)):
        fail("steps: %s" % sorted(went))
    for number in range(step + 1, STEPS + 1):
        if went[number] != should[number]:
            fail("step %d: %s, and resumed on %d ranks %s"
                 % (number, went[number], left, should[number]))
    print("batch %d, rank%s %s killed, from step %d: %d steps the same"
          % (batch, "s" if len(victims) > 1 else "",
             " ".join(map(str, victims)), step, STEPS - step))
    shutil.rmtree(folder)


TENSOR = ("parallel.tensor_model_parallel_size=2",)
CONTEXT = ("parallel.context_parallel_size=2",)
EXPERTS = ("parallel.expert_model_parallel_size=2", "model.experts=4",
           "model.ffn_size=64", "moe.balance_every=2")
ROWS = ("parallel.sequence_parallel=true",)


def sharing_case(settings, ranks, left):
    """Ranks share layers, sequences or experts: whole groups go on, with the
    losses of a run of as many; the ranks that are over end well."""
    folder = make_folder(24)
    metrics = folder + "/metrics.jsonl"
    more = [word for setting in settings for word in ("--set", setting)]
    job = start(folder, ranks, "--metrics", metrics, *more)
    victim = random.randint(0, ranks - 1)
    kill_after(job, metrics, random.randint(1, STEPS - 8), victim)
    err = finish(job)
    step = begin_step(err, left, ranks)
    over = ranks - 1 - left
    if ("; %d %s over, without a whole group" %
            (over, "is" if over == 1 else "are") in err) != (over > 0):
        fail("%d over:\n%s" % (over, err))
    went = read_lines(metrics)
    should = reference(folder, left, step, *more)
    for number in range(step + 1, STEPS + 1):
        if went[number] != should[number]:
            fail("%s, step %d: %s, and resumed on %d ranks %s"
                 % (settings, number, went[number], left, should[number]))
    print("%s, rank %d of %d killed, from step %d: %d go on"
          % (settings[0], victim, ranks, step, left))
    shutil.rmtree(folder)


def group_case():
    """No whole group is left: the run ends, and says what it lacks."""
    folder = make_folder(24)
    metrics = folder + "/metrics.jsonl"
    job = start(folder, 2, "--metrics", metrics, "--set", *TENSOR)
    kill_after(job, metrics, random.randint(1, STEPS - 8), random.randint(0, 1))
    _, err = job.communicate(timeout=DEADLINE_S)
    if job.returncode == 0 or "of the 1 left none can be made: it takes " \
       "tensor_model_parallel_size 2" not in err:
        fail("exit %d, without a word of the group:\n%s"
             % (job.returncode, err))
    print("one of two ranks of a layer killed: the run ends by name")
    shutil.rmtree(folder)


def hosts_case():
    """Two ranks of each host have all experts together. Once one is lost, the
    two that would go on are of two hosts, which moe.node_limit forbids."""
    folder = make_folder(24)
    metrics = folder + "/metrics.jsonl"
    more = [word for setting in EXPERTS + (
        "moe.node_limit=1", "moe.nodes=1") for word in ("--set", setting)]
    job = start(folder, 4, "--metrics", metrics, *more)
    kill_after(job, metrics, random.randint(1, STEPS - 8), 0)
    _, err = job.communicate(timeout=DEADLINE_S)
    # The rank that is over has ended well, and with it the job.
    if "parts of the experts: one is on ranks 0 and 1, which are on " \
       "different hosts" not in err or STEPS in read_lines(metrics):
        fail("exit %d, without a word of the hosts, or to the end:\n%s"
             % (job.returncode, err))
    print("rank 0 killed, experts of a part on two hosts: the run ends by name")
    shutil.rmtree(folder)


def import_case():
    """No checkpoint to go back to, and rank 0, which has read it, is lost."""
    folder = make_folder(16)
    metrics = folder + "/metrics.jsonl"
    more = ["--import-hf", folder + "/llama", "--set", "checkpoint.every=0"]
    finish(start(folder, 1, "--export-hf", folder + "/llama", "--set",
                 "train.steps=3", "--set", "train.seed=7"))
    job = start(folder, 3, "--metrics", metrics, "--set",
                "train.global_batch_size=24", *more)
    kill_after(job, metrics, random.randint(1, STEPS - 8), 0)
    if begin_step(finish(job), 2, 3) != 0:
        fail("a step to go back to, without checkpoints")
    should = folder + "/should.jsonl"
    finish(start(folder, 2, "--metrics", should, "--set",
                 "train.global_batch_size=24", *more))
    if read_lines(metrics) != read_lines(should):
        fail("two that are left do not begin with the imported model")
    print("rank 0 killed, from an import: %d steps the same" % STEPS)
    shutil.rmtree(folder)


def inside_case():
    """The newest state stands inside a step of as many ranks as are lost."""
    folder = make_folder(24)
    inside = ["--set", "train.elastic=false", "--set", "checkpoint.inside=2"]
    job = start(folder, 3, *inside, "--set", "train.steps=10000")
    end = time.monotonic() + DEADLINE_S
    names = []
    while not names and time.monotonic() < end:
        if os.path.isdir(folder + "/ckpt/inside"):
            names = [name for name in os.listdir(folder + "/ckpt/inside")
                     if name >= "step_00000006" and name[-1] not in "05"]
        time.sleep(0.001)
    ranks = [find_rank(job.pid, rank) for rank in range(3)]
    job.kill()
    for rank in ranks:
        try:
            os.kill(rank, signal.SIGKILL)
        except ProcessLookupError:
            pass
    job.wait()
    metrics = folder + "/metrics.jsonl"
    job = start(folder, 3, "--metrics", metrics, "--resume", folder + "/ckpt",
                "--set", "train.steps=200", "--set", "checkpoint.every=500")
    kill_after(job, metrics, 1, 2)
    step = begin_step(finish(job), 2, 3)
    if step % 5 != 0:
        fail("two ranks go on inside a step of three, after %d" % step)
    print("rank 2 of 3 killed after a snapshot inside: from step %d" % step)
    shutil.rmtree(folder)


def cut_case(nodes, victim, losers):
    """A node's link is set down: one side goes on, the other must not."""
    folder = make_folder(24)
    metrics = folder + "/metrics.jsonl"
    os.environ.update(WITHOUT_ONEDNN, WEFT_TIMEOUT_MS="8000",
                      WEFT_WARN_MS="300")
    NODES[1] = nodes
    job = start(folder, 4, "--metrics", metrics)
    end = time.monotonic() + DEADLINE_S
    while len(read_lines(metrics)) < 12 and time.monotonic() < end:
        time.sleep(0.005)
    subprocess.run(["nsenter", "-t", str(find_rank(job.pid, victim)), "-n",
                    "ip", "link", "set", "eth0", "down"], check=True)
    err = finish(job)
    step = begin_step(err, 4 - len(losers), 4)
    for rank in range(4):
        lost = "rank %d: exit 1" % rank in err
        if lost != (rank in losers):
            fail("cut of %d in %s: rank %d: %s" % (victim, nodes, rank, err))
    if "may be alive and have gone on without" not in err:
        fail("no reason printed:\n" + err)
    if sorted(read_lines(metrics)) != list(range(1, STEPS + 1)):
        fail("steps: %s" % sorted(read_lines(metrics)))
    print("link of rank %d in %s cut, from step %d" % (victim, nodes, step))
    shutil.rmtree(folder)


def check_that_none_left_is_a_failure():
    end = subprocess.run([BIN + "/weft-run", "-n", "2", "--elastic", "sh", "-c",
                          "exit 3"], stderr=subprocess.PIPE, text=True,
                         timeout=DEADLINE_S)
    if end.returncode != 3 or "exit 3" not in end.stderr:
        fail("none left: exit %d: %s" % (end.returncode, end.stderr))


def main():
    seed = int(os.environ.get("TEST_SEED", time.time_ns() % 10**9))
    print("TEST_SEED=%d" % seed)
    random.seed(seed)
    if NODES:
        run_case(24, random.choice([[0], [3], [2, 3]]))
        hosts_case()
        for _ in range(20 if os.environ.get("WEFT_TEST_LONG") else 0):
            run_case(24, random.sample(range(4), random.randint(1, 3)))
        if os.environ.get("WEFT_TEST_LONG"):
            cut_case("3+1,1gbit", 3, [3])
            cut_case("2x2,1gbit", 1, [2, 3])
            cut_case("1+3,1gbit", 0, [0])
        return
    check_that_none_left_is_a_failure()
    if not FEW:
        run_case(24, [random.randint(1, 3)])
    run_case(16, [0, random.randint(1, 3)])
    import_case()
    inside_case()
    sharing_case(*random.choice(((TENSOR, 4, 2), (CONTEXT, 4, 2),
                                 (TENSOR + ROWS, 3 + 1, 2))))
    sharing_case(EXPERTS, 4, 2)
    group_case()
    if os.environ.get("WEFT_TEST_LONG"):
        for _ in range(20):
            run_case(random.choice([16, 24]), [random.randint(0, 3)])
            run_case(24, random.sample(range(4), 2))
        for settings in (TENSOR, TENSOR + ROWS, CONTEXT, EXPERTS,
                         TENSOR + ROWS + EXPERTS):
            sharing_case(settings, 4, 2)


if NODES and (os.geteuid() != 0 or not shutil.which("ip") or
              not shutil.which("tc")):
    print("skipped: emulated nodes need root and iproute2")
    sys.exit(77)
main()
