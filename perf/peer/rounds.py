# SPDX-License-Identifier: BSD-3-Clause
"""Who is measured when.

For one operation on one number of ranks: a pilot runs weft and every variant of
every peer, and picks each size's opponent, the variant with the lowest ratio
to weft's time in pairs of one mode.
Then weft and an opponent take turns, first the one, then the other first, until
enough pairs of one mode have come together. A probe of the machine stands
between any two processes, so each has one right before and right after it.
"""
import dataclasses
import statistics

from peer import catalog, figures, process

PILOT_BUDGET_MS = 250
HOPELESS = 8          # times the fastest at every size
WEFT_EVERY = 3        # variants of the pilot: one of its runs is near in time
BUDGET_MS = 1500
ROUNDS_OF_A_PAIR = 3  # for each pair wanted, at most


@dataclasses.dataclass
class Plan:
    """What is the same for all points of a run."""
    rounds: int       # pairs wanted
    pilot: int        # rounds of the pilot
    prober: object
    show: object      # called with a line on what is going on


class Sides:
    """weft and those that are measured beside it, at one job."""

    def __init__(self, plan, job, peers, limit=None, weft=catalog.Weft):
        self.plan, self.job = plan, job
        self.own = weft         # catalog.Weft, or a Door in its place
        self.peers = peers      # [(peer, variant)]
        self.limit = limit      # such a pair, or None: no such operation
        self.failed = {}        # variant's text: why
        self.wrong = {}         # variant's text: what
        self.number = 0
        self.last_probe = None
        self.bytes = {}         # size asked for: really moved

    def launch(self, peer, variant, sizes, budget_ms):
        """A Run; raises Failure."""
        self.number += 1
        job = dataclasses.replace(self.job, sizes=tuple(sizes),
                                  budget_ms=budget_ms)
        before = self.last_probe or self.plan.prober.take()
        try:
            rows = process.rows_of(peer.command(job, variant))
        finally:
            self.last_probe = self.plan.prober.take()
        if len(rows) != len(sizes):
            raise process.Failure(f"{len(rows)} rows for {len(sizes)} sizes")
        for size, (moved, _) in zip(sizes, rows):
            if self.bytes.setdefault(size, moved) != moved:
                raise process.Failure(f"{moved} bytes instead of "
                                      f"{self.bytes[size]}")
        return figures.Run(self.number, before, self.last_probe,
                           {size: times for size, (_, times)
                            in zip(sizes, rows)})

    def weft(self, sizes):
        try:
            return self.launch(self.own, None, sizes, BUDGET_MS)
        except process.Failure as failure:
            raise process.Failure(
                f"weft, {self.job.op} on {self.job.ranks} ranks: {failure}"
            ) from None

    def peer(self, peer, variant, sizes, budget_ms=BUDGET_MS):
        """A Run, or None: from now on this variant takes no part."""
        try:
            return self.launch(peer, variant, sizes, budget_ms)
        except process.Failure as failure:
            kind = (self.wrong if isinstance(failure, process.Wrong)
                    else self.failed)
            kind[variant.text()] = str(failure)
            if (peer, variant) == self.limit:
                self.limit = None
            else:
                self.peers.remove((peer, variant))
            return None

    # ---- the pilot ---------------------------------------------------------

    def pilot(self, sizes):
        """{variant's text: {size: time by weft's}}, of pairs of one mode: the
        fastest run of all may only have met the fastest mode."""
        weft_runs, runs = [], {}
        for number in range(self.plan.pilot):
            for place, (peer, variant) in enumerate(list(self.peers)):
                if number and self.hopeless(
                        self.ratios(weft_runs, runs, sizes), variant, sizes):
                    continue
                self.show(f"pilot {number + 1} of {self.plan.pilot}: "
                          f"{variant.text()}")
                if place % WEFT_EVERY == 0 or not weft_runs:
                    weft_runs.append(self.weft(sizes))
                run = self.peer(peer, variant, sizes, PILOT_BUDGET_MS)
                if run:
                    runs.setdefault(variant.text(), []).append(run)
        return self.ratios(weft_runs, runs, sizes)

    @staticmethod
    def ratios(weft_runs, runs, sizes):
        found = {}
        for text, mine in runs.items():
            # Without a pair the neighbour in time has to do.
            pairs = figures.match(weft_runs, mine) or [
                (min(weft_runs, key=lambda weft: abs(weft.number - run.number)),
                 run) for run in mine]
            found[text] = {size: statistics.median(
                run.median_us(size) / weft.median_us(size)
                for weft, run in pairs) for size in sizes}
        return found

    @staticmethod
    def hopeless(fastest, variant, sizes):
        """Whether one more run of the pilot cannot make it an opponent."""
        return all(fastest[variant.text()][size] > HOPELESS * min(
            times[size] for times in fastest.values()) for size in sizes)

    def opponent(self, fastest, size):
        """(peer, variant) with the lowest ratio at this size, or None."""
        left = [(fastest[variant.text()][size], number)
                for number, (_, variant) in enumerate(self.peers)
                if variant.text() in fastest]
        return self.peers[min(left)[1]] if left else None

    # ---- pairs -------------------------------------------------------------

    def alone(self, sizes):
        """Runs of weft, where nobody is there to be its opponent."""
        runs = []
        for number in range(self.plan.rounds):
            self.show(f"round {number + 1} of {self.plan.rounds}: weft alone")
            runs.append(self.weft(sizes))
        return runs

    def pairs(self, peer, variant, sizes):
        """(pairs, runs of weft, of the peer, of the limit), or None: the peer
        has failed."""
        weft_runs, peer_runs, limit_runs, pairs = [], [], [], []
        most = self.plan.rounds * ROUNDS_OF_A_PAIR
        for number in range(most):
            self.show(f"round {number + 1}, {len(pairs)} of "
                      f"{self.plan.rounds} pairs: {variant.text()}")
            for weft_turn in (number % 2 == 0, number % 2 != 0):
                if weft_turn:
                    weft_runs.append(self.weft(sizes))
                    continue
                run = self.peer(peer, variant, sizes)
                if not run:
                    return None
                peer_runs.append(run)
            limit = self.peer(*self.limit, sizes) if self.limit else None
            limit_runs += [limit] if limit else []
            pairs = figures.match(weft_runs, peer_runs)
            if len(pairs) >= self.plan.rounds:
                break
        return pairs, weft_runs, peer_runs, limit_runs

    def show(self, text):
        self.plan.show(f"{self.job.op}, {self.job.ranks} ranks, {text}")

    # ---- rows --------------------------------------------------------------

    def rows(self, sizes):
        """One row a size, sizes that move the same bytes once."""
        self.weft(sizes)  # it alone tells what sizes become
        kept = {}
        for size in sizes:
            kept.setdefault(self.bytes[size], size)
        sizes = list(kept.values())
        fastest = self.pilot(sizes)
        rows, waiting = [], sizes
        while waiting:
            chosen = self.opponent(fastest, waiting[0])
            group = [size for size in waiting
                     if self.opponent(fastest, size) == chosen]
            if chosen is None:
                found = [], self.alone(group), [], []
            else:
                # All sizes, as in the pilot: those before a size have warmed
                # caches of memory in the library.
                found = self.pairs(*chosen, sizes)
            if found:
                waiting = [size for size in waiting if size not in group]
                rows += [self.row(size, fastest, chosen, found)
                         for size in group]
        return sorted(rows, key=lambda row: row["bytes"])

    def row(self, size, fastest, chosen, found):
        pairs, weft_runs, peer_runs, limit_runs = found
        seed = f"{self.job.op} {self.job.ranks} {self.bytes[size]}"
        row = {"op": self.job.op, "ranks": self.job.ranks,
               "bytes": self.bytes[size], "peer": None, "variant": None,
               **figures.point(pairs, size, seed), "pairs": len(pairs),
               "rounds": len(weft_runs),
               "modes": figures.modes(pairs),
               "limit_us": None, "to_limit": None}
        limit = figures.point(figures.match(weft_runs, limit_runs), size, seed)
        if limit["ratio"] is not None:
            row.update(limit_us=limit["peer_us"], to_limit=1 / limit["ratio"])
        if not pairs:
            row["weft_us"] = statistics.median(
                run.median_us(size) for run in weft_runs)
        row["all"] = self.all_peers(size, fastest, row["weft_us"])
        if chosen:
            row.update(peer=chosen[1].name, variant=chosen[1].text())
            if not pairs:
                row["peer_us"] = statistics.median(
                    run.median_us(size) for run in peer_runs)
            row["all"][chosen[1].name] = row["peer_us"]
        return row

    def all_peers(self, size, fastest, weft_us):
        """{name: us}, the better variant of each name: the pilot's ratios, as
        times in the modes that weft's was measured in."""
        best = {}
        for _, variant in self.peers:
            ratio = fastest.get(variant.text(), {}).get(size)
            if ratio is not None:
                us = ratio * weft_us
                best[variant.name] = min(best.get(variant.name, us), us)
        return best
