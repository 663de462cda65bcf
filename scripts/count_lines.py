#!/usr/bin/env python3
"""Counts the lines of code of each crate and of its modules: no tests, comments, blank lines.

    scripts/count_lines.py            per crate, and the tracked files
    scripts/count_lines.py --modules  per module of each crate as well
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from check_layers import ROOT, load

CRATES = ["src", "cli/src", "python/src", *sorted(str(path.relative_to(ROOT)) for path in Path(ROOT, "crates").glob("*/src"))]


def count(crate_root):
    """The lines of code by the first name of the module's path."""
    lines = Counter()
    for path, module in load(crate_root).items():
        lines[path[0] if path else "(root)"] += sum(1 for line in module.code.splitlines() if line.strip())
    return lines


def main():
    total = 0
    for crate in CRATES:
        modules = count(Path(ROOT, crate))
        total += sum(modules.values())
        print(f"{sum(modules.values()):7,}  {crate}")
        if "--modules" in sys.argv[1:]:
            for name, lines in sorted(modules.items()):
                print(f"    {lines:7,}  {name}")
    print(f"{total:7,}  lines of code")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    print(f"{len(listed.stdout.splitlines()):7,}  tracked files")


if __name__ == "__main__":
    main()
