#!/usr/bin/env python3
"""Draws the JSON of benches/peers as an SVG: for each workload, how much faster or slower than LMDB each engine is.

    scripts/plot_peers.py peers.json peers.svg [--set 10Mx100]

Bars start at LMDB and extend to the left for a faster engine, to the right for a slower one, on a logarithmic
scale; two strokes in a bar mark where it is cut off. The numbers next to them are the medians. Needs only Python's standard library.
"""

import argparse
import json
import math
import sys
from xml.sax.saxutils import escape

REFERENCE = "lmdb"
# name in the JSON, label; in bold are the two ways to open a ShardDb
ENGINES = {
    "sharddb": "open_mapped",
    "sharddb-open": "open",
    "lmdb": "lmdb",
    "redb": "redb",
    "cdb64": "cdb64",
    "sqlite": "sqlite",
    "hashbrown": "hashbrown",
    "files": "files",
    "limit-mapped": "limit, mapped",
    "limit-pread": "limit, pread",
}
# name in the JSON, title of the panel
WORKLOADS = [
    ("hit", "hit: keys known ahead"),
    ("dependent", "dependent: the next key is in the value"),
    ("miss", "miss: keys that are absent"),
    ("zipf", "zipf: some keys much more often"),
    ("batch", "batch: 256 keys at a time"),
    ("whole", "whole: every byte of the value"),
    ("scan", "scan: all pairs"),
    ("threads: 1 (wall)", "one thread, wall time of a get"),
    ("threads: 2 (wall)", "two threads, wall time divided by the gets of both"),
    ("threads: 4 (wall)", "four threads"),
    ("threads: 8 (wall)", "eight threads"),
    ("service p50", "single gets, each timed: the median"),
    ("service p99", "single gets: 99 % are faster"),
    ("service p99.9", "single gets: 99.9 % are faster"),
    ("cold", "cold: from the disk"),
    ("cold batch", "cold batch: 256 keys at a time, from the disk"),
    ("open + first get", "open and first get"),
    ("load", "load and sync, pairs in no order"),
]

# where a bare read of a value compares with nothing
WITHOUT_LIMIT = ["miss", "load", "open + first get"]

# pixels
COLUMNS = 2
PANEL_WIDTH = 460
LABEL_WIDTH = 100
VALUE_WIDTH = 54
PAD = 6
BAR = 15
TITLE = 24
GAP = 18
MARGIN = 20
HEADER = 66

# on white, which the picture brings along: dark pages keep its contrast
COLOUR = {"sharddb": "#d9480f", "sharddb-open": "#e8926b", REFERENCE: "#868e96"}
LIMIT_COLOUR = "#adb5bd"
OTHER_COLOUR = "#74a0c8"
TEXT_COLOUR = "#343a40"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", help="what `--json` of benches/peers wrote")
    parser.add_argument("svg", help="where the picture goes")
    parser.add_argument("--set", help="the set of pairs, such as 10Mx100 (default: the last in the file)")
    arguments = parser.parse_args()
    with open(arguments.json, encoding="utf-8") as file:
        report = json.load(file)
    rows = report["rows"]
    sets = list(dict.fromkeys(row["set"] for row in rows))
    chosen = arguments.set or (sets[-1] if sets else None)
    if chosen not in sets:
        sys.exit(f"plot_peers: expected one of the sets {', '.join(sets)}, found {chosen}")
    found = {
        (row["workload"], row["engine"]): row
        for row in rows
        if row["set"] == chosen and row.get("ratio_to_lmdb") and (row["workload"] not in WITHOUT_LIMIT or not is_limit(row["engine"]))
    }
    with open(arguments.svg, "w", encoding="utf-8") as file:
        file.write(draw(chosen, report["machine"], found))


def is_limit(engine):
    return engine.startswith("limit")


def draw(chosen, machine, found):
    """The SVG of all panels."""
    measured = {workload for workload, _ in found}
    workloads = [entry for entry in WORKLOADS if entry[0] in measured]
    engines = [engine for engine in ENGINES if any((workload, engine) in found for workload, _ in workloads)]
    scale = Scale([found[key]["ratio_to_lmdb"] for key in found if key[0] in dict(workloads) and key[1] in engines])

    panel_height = TITLE + BAR * len(engines) + GAP
    width = 2 * MARGIN + COLUMNS * PANEL_WIDTH + (COLUMNS - 1) * GAP
    height = HEADER + math.ceil(len(workloads) / COLUMNS) * panel_height + MARGIN
    parts = [
        canvas(width, height),
        text(MARGIN, 28, f"ShardDb and its peers, {describe(chosen)}", size=17, weight="bold"),
        text(MARGIN, 46, f"Time relative to LMDB (logarithmic): left is faster; // a bar that is cut off. limit: a bare read of the value. {place(machine)}"),
    ]
    for number, (workload, title) in enumerate(workloads):
        x = MARGIN + number % COLUMNS * (PANEL_WIDTH + GAP)
        y = HEADER + number // COLUMNS * panel_height
        parts += panel(x, y, title, [(engine, found.get((workload, engine))) for engine in engines], scale)
    return "\n".join(parts + ["</svg>\n"])


def canvas(width, height):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="11" fill="{TEXT_COLOUR}">\n<rect width="100%" height="100%" fill="#fff"/>'
    )


def panel(x, y, title, bars, scale):
    """One workload: a title, the line of LMDB, a bar per engine."""
    zero = x + LABEL_WIDTH + scale.position(1.0)
    top, bottom = y + TITLE - 4, y + TITLE + BAR * len(bars)
    yield text(x, y + 12, title, weight="bold")
    yield f'<line x1="{zero:.1f}" y1="{top}" x2="{zero:.1f}" y2="{bottom}" stroke="{COLOUR[REFERENCE]}"/>'
    for number, (engine, row) in enumerate(bars):
        yield from bar(x, y + TITLE + BAR * number, engine, row, scale)


def bar(x, y, engine, row, scale):
    """One engine under one workload; "-" if it was not measured."""
    weight = "bold" if engine.startswith("sharddb") else "normal"
    yield text(x + LABEL_WIDTH - 8, y + 10, ENGINES[engine], weight=weight, anchor="end")
    value_x = x + PANEL_WIDTH
    if row is None:
        yield text(value_x, y + 10, "-", anchor="end")
        return
    ratio = row["ratio_to_lmdb"]
    ends = sorted((x + LABEL_WIDTH + scale.position(1.0), x + LABEL_WIDTH + scale.position(ratio)))
    colour = COLOUR.get(engine, LIMIT_COLOUR if is_limit(engine) else OTHER_COLOUR)
    words = f"{ENGINES[engine]}: {time(row['ns'])}, {ratio:.2f} of LMDB"
    yield (
        f'<rect x="{ends[0]:.1f}" y="{y + 2}" width="{ends[1] - ends[0]:.1f}" height="{BAR - 4}" fill="{colour}">'
        f"<title>{escape(words)}</title></rect>"
    )
    if scale.cuts(ratio):
        yield text(ends[1] - 4, y + 10, "//", size=14, weight="bold", anchor="end")
    yield text(value_x, y + 10, time(row["ns"]), weight=weight, anchor="end")


class Scale:
    """Maps ratios to pixels, logarithmically, for all panels."""

    WIDTH = PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH - 2 * PAD
    # bars are cut off at these ratios, with a mark; the number next to a bar is exact
    LEAST, MOST = 1 / 64, 64

    def __init__(self, ratios):
        ratios = [self.clamped(ratio) for ratio in ratios] + [0.5, 2.0]
        self.low, self.high = math.log(min(ratios)), math.log(max(ratios))

    def clamped(self, ratio):
        return min(max(ratio, self.LEAST), self.MOST)

    def cuts(self, ratio):
        return self.clamped(ratio) != ratio

    def position(self, ratio):
        return (math.log(self.clamped(ratio)) - self.low) / (self.high - self.low) * self.WIDTH + PAD


def text(x, y, words, size=None, weight="normal", anchor="start"):
    size = f' font-size="{size}"' if size else ""
    return f'<text x="{x:.1f}" y="{y}"{size} font-weight="{weight}" text-anchor="{anchor}">{escape(words)}</text>'


def time(ns):
    """A time with three significant digits and a unit."""
    for unit in ["ns", "µs", "ms"]:
        if ns < 999.5:
            return f"{ns:.3g} {unit}"
        ns /= 1000
    return f"{ns:.3g} s"


def describe(chosen):
    keys, values = chosen.split("x", 1)
    lengths = "log-normal values (median 200 bytes)" if values == "lognormal" else f"values of {values} bytes"
    return f"{keys} keys, {lengths}"


def place(machine):
    memory = machine["memory_bytes"] / 2**30
    return f"{machine['cpu']}, {machine['cores']} cores, {memory:.0f} GiB, {machine['date']}."


if __name__ == "__main__":
    main()
