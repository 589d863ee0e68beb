# SPDX-License-Identifier: BSD-3-Clause
"""What a run says: the table for people, the document for programs."""
import json

from peer import figures


def bytes_text(size):
    for shift, suffix in ((30, "G"), (20, "M"), (10, "K")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{suffix}"
    return str(size)


def number(value, width, digits=2):
    return "-".rjust(width) if value is None else f"{value:{width}.{digits}f}"


HEAD = (f"{'op':>14} {'ranks':>5} {'bytes':>8} {'weft_us':>11} "
        f"{'peer_us':>11} {'ratio':>6} {'low':>6} {'high':>6} {'limit':>6} {'pairs':>6}  "
        "peer (the others, in the pilot); modes: line/hand-over, us")


def modes_text(modes):
    """12 at 0.11/1.8, 3 at 0.25/6.1"""
    return ", ".join(
        f"{mode['pairs']} at one core" if mode["line_us"] is None else
        f"{mode['pairs']} at {mode['line_us']:.2g}/{mode['hand_us']:.2g}"
        for mode in modes)


def row_text(row):
    others = ", ".join(f"{name} {us:.2f}" for name, us in row["all"].items()
                       if name != row["peer"])
    pairs = f"{row['pairs']}{'*' if row['few'] else ' '}"
    return (f"{row['op']:>14} {row['ranks']:5} {bytes_text(row['bytes']):>8} "
            f"{row['weft_us']:11.2f} {number(row['peer_us'], 11)} "
            f"{number(row['ratio'], 6)} {number(row['low'], 6)} "
            f"{number(row['high'], 6)} {number(row['to_limit'], 6)} "
            f"{pairs:>6}  "
            f"{row['variant'] or 'no peer'}"
            + (f" ({others})" if others else "")
            + (f"; {modes_text(row['modes'])}" if row["modes"] else ""))


def means(rows):
    """{operation: geometric mean of its ratios}, and "" for all of them."""
    ratios = {}
    for row in rows:
        if row["ratio"] is not None:
            ratios.setdefault(row["op"], []).append(row["ratio"])
            ratios.setdefault("", []).append(row["ratio"])
    return {op: figures.geometric_mean(values)
            for op, values in ratios.items()}


def summary(rows, others):
    """Lines after the table."""
    found = means(rows)
    lines = []
    if found:
        each = ", ".join(f"{op} {mean:.3f}" for op, mean in found.items()
                         if op)
        below = [f"{row['op']} {bytes_text(row['bytes'])}" for row in rows
                 if row["ratio"] is not None and row["ratio"] < 1]
        lines = [f"geometric mean of the ratios: {found['']:.3f} ({each})",
                 "below 1: " + (", ".join(below) or "none")]
    if any(row["few"] and row["peer"] for row in rows):
        lines.append("* fewer pairs of one mode than asked for")
    lines.append(f"others used {100 * others:.0f}% of the cores meanwhile")
    return lines


def write_json(path, document):
    if path == "-":
        print(json.dumps(document))
        return
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
