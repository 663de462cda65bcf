#!/usr/bin/env python3
"""Draws the picture of the README from the JSON of benches/peers: lookups, batches and a load, in bars from zero.

    scripts/plot_speed.py docs/peers.json docs/speed.svg

Its title is the result, and its <title> the alternative text of the README. Needs only Python's standard library.
"""

import json
import sys
from xml.sax.saxutils import escape

from plot_peers import COLOUR, OTHER_COLOUR, canvas, describe, place, text

SET = "10Mx100"
ENGINES = {"sharddb": "ShardDb, mapped", "sharddb-open": "ShardDb, reads", "lmdb": "LMDB", "redb": "redb", "cdb64": "cdb64"}
WORKLOADS = {"hit": "One lookup, ns", "batch": "A lookup in batches of 256, ns", "load": "Load, unsorted, and sync, s"}
# ShardDb has one loader; the slower of its two measurements is drawn
LOADED = {"sharddb": "ShardDb", "lmdb": "LMDB", "redb": "redb", "cdb64": "cdb64"}

COLOURS = {label: COLOUR[engine] for labels in (ENGINES, LOADED) for engine, label in labels.items() if engine in COLOUR}

# pixels
PANEL, LABEL, VALUE, MARGIN = 320, 116, 44, 20
TOP, BAR = 78, 24


def measured(report):
    """The median times in ns, by workload and label."""
    times = {(row["workload"], row["engine"]): row["ns"] for row in report["rows"] if row["set"] == SET and "ns" in row}
    times["load", "sharddb"] = max(times["load", engine] for engine in ("sharddb", "sharddb-open"))
    return {
        workload: {label: times[workload, engine] for engine, label in (LOADED if workload == "load" else ENGINES).items()}
        for workload in WORKLOADS
    }


def number(ns, title):
    """The time in the unit at the end of the title: ns with three significant digits, s with one decimal."""
    if title.endswith(", ns"):
        return f"{float(f'{ns:.3g}'):,.0f}"
    return f"{ns / 1e9:.1f}"


def result(times):
    """The sentence that the picture shows."""
    mapped, read, lmdb = (number(times["hit"][label], WORKLOADS["hit"]) for label in ("ShardDb, mapped", "ShardDb, reads", "LMDB"))
    return f"A lookup takes {mapped} ns in mapped files and {read} by file reads; LMDB takes {lmdb}"


def alternative(times):
    """The figures of the picture as text."""
    panels = [
        f"{WORKLOADS[workload]}: " + "; ".join(f"{label} {number(ns, WORKLOADS[workload])}" for label, ns in labels.items())
        for workload, labels in times.items()
    ]
    return ". ".join(panels)


def panel(x, title, labels):
    yield text(x, TOP - 8, title, size=13, weight="bold")
    longest = max(labels.values())
    for at, (label, ns) in enumerate(labels.items()):
        y = TOP + BAR * at
        weight = "bold" if label.startswith("ShardDb") else "normal"
        width = (PANEL - LABEL - VALUE - MARGIN) * ns / longest
        yield text(x + LABEL - 8, y + 15, label, weight=weight, anchor="end")
        yield f'<rect x="{x + LABEL}" y="{y + 3}" width="{width:.1f}" height="{BAR - 7}" fill="{COLOURS.get(label, OTHER_COLOUR)}"/>'
        yield text(x + LABEL + width + 5, y + 15, number(ns, title), weight=weight)


def draw(report):
    times = measured(report)
    width, height = MARGIN + PANEL * len(WORKLOADS), TOP + BAR * len(ENGINES) + MARGIN // 2
    subtitle = f"{describe(SET)}; shorter is better. {place(report['machine'])}"
    parts = [
        canvas(width, height),
        f"<title>{escape(alternative(times))}</title>",
        text(MARGIN, 24, result(times), size=16, weight="bold"),
        text(MARGIN, 43, subtitle, size=12),
    ]
    for at, (workload, title) in enumerate(WORKLOADS.items()):
        parts += panel(MARGIN + PANEL * at, title, times[workload])
    return "\n".join(parts + ["</svg>\n"])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(report))


if __name__ == "__main__":
    main()
