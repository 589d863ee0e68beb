# SPDX-License-Identifier: BSD-3-Clause
"""The ratios as a picture: one panel for each number of ranks, one line for
each operation, its interval as a band behind it; 1 is marked. The file needs
nothing else, and follows a reader's light or dark background."""
import math
from xml.sax.saxutils import escape

from peer import report

WIDTH, HEIGHT = 640, 320     # of a panel's plot
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 48, 44
LINE = 16                    # between two names
TICKS = (0.1, 0.2, 0.25, 0.33, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4,
         6, 8, 10, 15, 20, 30, 50, 100, 200, 500, 1000)
TICKS_MOST = 11

# Hues that most kinds of eyes tell apart (Okabe and Ito, 2008), for light and
# for dark paper; dashes tell the second round of them.
LIGHT = ("#0072b2", "#d55e00", "#008a63", "#b0478a", "#946b00", "#6f42c1",
         "#555555")
DARK = ("#56b4e9", "#ff8c42", "#2fd6a0", "#e69ac6", "#e6b422", "#b79cff",
        "#bbbbbb")
DASHES = ("", "6 3", "2 3")

# Classes rather than variables, which not every reader of SVG knows.
STYLE = """<style>
text { font: 12px sans-serif; }
.head { font-weight: bold; font-size: 14px; }
polyline { fill: none; stroke-width: 2; }
.one { stroke-width: 1.5; }
%s@media (prefers-color-scheme: dark) {
%s}
</style>
"""


def rules(paper, ink, grid, colours):
    lines = [f".paper {{ fill: {paper}; }}",
             f"text {{ fill: {ink}; }} .one {{ stroke: {ink}; }}",
             f".grid {{ stroke: {grid}; }}"]
    lines += [f".l{number} {{ stroke: {colour}; }} "
              f".f{number} {{ fill: {colour}; }}"
              for number, colour in enumerate(colours)]
    return "\n".join(lines) + "\n"


class Scale:
    """Logarithmic, from values to places."""

    def __init__(self, low, high, begin, end):
        self.low, self.high = math.log(low), math.log(high)
        self.begin, self.end = begin, end

    def place(self, value):
        share = (math.log(value) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)


class Panel:
    """All rows of one number of ranks."""

    def __init__(self, rows, ops, top):
        self.rows, self.ops = rows, ops
        # A barrier moves nothing and stands left of the smallest size.
        sizes = sorted({row["bytes"] for row in rows if row["bytes"] > 0})
        self.sizes = sizes or [1]
        self.zero = self.sizes[0] / 4
        least = self.zero if any(row["bytes"] == 0 for row in rows) else \
            self.sizes[0]
        self.x = Scale(least / 1.3, self.sizes[-1] * 1.3, LEFT, LEFT + WIDTH)
        low = min([row["low"] for row in rows] + [0.9])
        high = max([row["high"] for row in rows] + [1.1])
        self.span = low / 1.05, high * 1.05
        self.top = top + TOP
        self.y = Scale(*self.span, self.top + HEIGHT, self.top)

    def at(self, row, field):
        return (self.x.place(row["bytes"] or self.zero),
                self.y.place(row[field]))

    def grid(self):
        ticks = [tick for tick in TICKS
                 if self.span[0] <= tick <= self.span[1]]
        while len(ticks) > TICKS_MOST:
            ticks = [tick for number, tick in enumerate(ticks)
                     if tick == 1 or number % 2]
        parts = []
        for tick in ticks:
            y = self.y.place(tick)
            kind = "one" if tick == 1 else "grid"
            parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{LEFT + WIDTH}"'
                         f' y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" '
                         f'text-anchor="end">{tick:g}</text>')
        return parts + self.size_names()

    def size_names(self):
        places = [(self.x.place(size), report.bytes_text(size))
                  for size in self.sizes]
        if any(row["bytes"] == 0 for row in self.rows):
            places.insert(0, (self.x.place(self.zero), "0"))
        parts, free = [], 0
        for x, text in places:
            if x >= free:
                parts.append(f'<text x="{x:.1f}" y="{self.top + HEIGHT + 18}" '
                             f'text-anchor="middle">{text}</text>')
                free = x + 44
        return parts

    def curve(self, op, look):
        rows = sorted((row for row in self.rows if row["op"] == op),
                      key=lambda row: row["bytes"])
        line = [self.at(row, "ratio") for row in rows]
        parts = []
        if len(rows) > 1:
            edge = [self.at(row, "high") for row in rows] + \
                [self.at(row, "low") for row in reversed(rows)]
            parts.append(f'<polygon points="{points(edge)}" '
                         f'class="{look.fill}" fill-opacity="0.15"/>')
            parts.append(f'<polyline points="{points(line)}" '
                         f'class="{look.line}" {look.dash}/>')
        for row, (x, y) in zip(rows, line):
            low, high = self.at(row, "low")[1], self.at(row, "high")[1]
            if len(rows) == 1:
                parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" '
                             f'y2="{high:.1f}" class="{look.line}" '
                             'stroke-width="6" stroke-opacity="0.3"/>')
            title = escape(
                f"{op}, {report.bytes_text(row['bytes'])}: {row['ratio']:.2f} "
                f"({row['low']:.2f} to {row['high']:.2f}) of {row['variant']}")
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" '
                         f'class="{look.fill}"><title>{title}</title>'
                         '</circle>')
        return parts

    def draw(self, looks):
        ranks = self.rows[0]["ranks"]
        parts = [f'<text class="head" x="{LEFT}" y="{self.top - 22}">{ranks} '
                 'ranks</text>',
                 f'<text x="{LEFT}" y="{self.top - 7}">time of the best peer / '
                 'time of weft (above 1 weft is faster), 95% interval</text>',
                 *self.grid(),
                 f'<text x="{LEFT + WIDTH}" y="{self.top + HEIGHT + 36}" '
                 'text-anchor="end">bytes</text>']
        for number, op in enumerate(self.ops):
            look = looks[op]
            x, y = LEFT + WIDTH + 14, self.top + 8 + LINE * number
            parts += self.curve(op, look)
            parts.append(f'<line x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}" '
                         f'class="{look.line}" stroke-width="3" '
                         f'{look.dash}/>')
            parts.append(f'<text x="{x + 32}" y="{y + 4}">{op}</text>')
        return parts


class Look:
    def __init__(self, number):
        self.line, self.fill = (f"{kind}{number % len(LIGHT)}"
                                for kind in "lf")
        dash = DASHES[number // len(LIGHT) % len(DASHES)]
        self.dash = f'stroke-dasharray="{dash}"' if dash else ""


def points(places):
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def picture(document):
    """The text of the SVG; rows without a ratio are left out."""
    rows = [row for row in document["rows"] if row["ratio"] is not None]
    ops = list(dict.fromkeys(row["op"] for row in rows))
    looks = {op: Look(number) for number, op in enumerate(ops)}
    width, parts, top = LEFT + WIDTH + RIGHT, [], 0
    for ranks in sorted({row["ranks"] for row in rows}):
        mine = [row for row in rows if row["ranks"] == ranks]
        panel = Panel(mine, [op for op in ops
                             if any(row["op"] == op for row in mine)], top)
        parts += panel.draw(looks)
        top += TOP + HEIGHT + BOTTOM
    if not rows:
        parts.append('<text x="20" y="30">No point has a ratio: no peer, or no '
                     'pair of one mode.</text>')
    top = max(top, LINE * 4) + LINE
    machine = document["machine"]
    parts.append(f'<text x="{LEFT}" y="{top - 8}">'
                 + escape(f"{machine['cores']} cores, load "
                          f"{machine['load']:.1f}, others used "
                          f"{100 * machine['others']:.0f}%; peers: "
                          + ("; ".join(peer["library"] for peer in
                                       document["peers"].values()) or "none"))
                 + '</text>')
    style = STYLE % (rules("#ffffff", "#1a1a1a", "#dddddd", LIGHT),
                     rules("#16181c", "#e8e8e8", "#3a3d44", DARK))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
            f'height="{top}" viewBox="0 0 {width} {top}">\n{style}'
            '<rect class="paper" width="100%" height="100%"/>\n'
            + "\n".join(parts) + "\n</svg>\n")


def write(path, document):
    with open(path, "w", encoding="utf-8") as file:
        file.write(picture(document))
