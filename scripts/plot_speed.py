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
ENGINES = {"sharddb": "ShardDb, mapped", "sharddb-open": "ShardDb, safe", "lmdb": "LMDB", "redb": "redb", "cdb64": "cdb64"}
WORKLOADS = {"hit": "One lookup, ns", "batch": "A lookup in batches of 256, ns", "load": "Load, unsorted, and sync, s"}

# pixels
PANEL, LABEL, VALUE, MARGIN = 320, 116, 44, 20
TOP, BAR = 78, 24


def measured(report):
    """The median times in ns, by workload and engine."""
    times = {(row["workload"], row["engine"]): row["ns"] for row in report["rows"] if row["set"] == SET and "ns" in row}
    return {workload: {engine: times[workload, engine] for engine in ENGINES} for workload in WORKLOADS}


def number(ns, title):
    """Three significant digits, in the unit at the end of the title."""
    if title.endswith(", ns"):
        return f"{float(f'{ns:.3g}'):,.0f}"
    return f"{float(f'{ns / 1e9:.3g}'):.1f}"


def result(times):
    """The sentence that the picture shows."""
    of_lmdb = [f"{times[workload][engine] / times[workload]['lmdb']:.2f}" for workload in ("hit", "batch") for engine in ENGINES]
    mapped, safe, batch, safe_batch = of_lmdb[0], of_lmdb[1], of_lmdb[len(ENGINES)], of_lmdb[len(ENGINES) + 1]
    return f"A lookup takes {mapped} of LMDB's time in mapped files, {safe} by safe reads; in batches {batch} and {safe_batch}"


def alternative(times):
    """The figures of the picture as text."""
    panels = [
        f"{WORKLOADS[workload]}: " + ", ".join(f"{ENGINES[engine]} {number(ns, WORKLOADS[workload])}" for engine, ns in engines.items())
        for workload, engines in times.items()
    ]
    return ". ".join(panels)


def panel(x, title, engines):
    yield text(x, TOP - 8, title, size=13, weight="bold")
    longest = max(engines.values())
    for at, (engine, ns) in enumerate(engines.items()):
        y = TOP + BAR * at
        weight = "bold" if engine.startswith("sharddb") else "normal"
        width = (PANEL - LABEL - VALUE - MARGIN) * ns / longest
        yield text(x + LABEL - 8, y + 15, ENGINES[engine], weight=weight, anchor="end")
        yield f'<rect x="{x + LABEL}" y="{y + 3}" width="{width:.1f}" height="{BAR - 7}" fill="{COLOUR.get(engine, OTHER_COLOUR)}"/>'
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
