#!/usr/bin/env python3
"""Counts the instructions of lookups and of a build, and compares them with benches/counts/limits.json.

    scripts/count_instructions.py           print the table; fail if an operation takes more instructions than its limit
    scripts/count_instructions.py --accept  write the figures of now as the new limits
    scripts/count_instructions.py --planted check that a few more instructions per lookup are found

callgrind counts them, of one thread and in user space, so the figures of one compiler on one kind of processor are the same in
every run, whatever else the machine does. A limit is the figure that was measured and a margin: a mapped lookup may take one
instruction more, which is less than a bounds check; what copies memory, as a processor does best, 3 %. With another compiler than
that of the limits, all may take 10 % more. A change that makes an operation slower raises its limit in its own commit, which says
what the instructions bought.
"""

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "benches" / "counts" / "limits.json"
SOURCES = ["Cargo.toml", "src", "crates", "cli", "examples", "benches/counts"]  # what cargo needs to build the program
PAIRS = 100_000  # of benches/counts/src/main.rs
OPERATIONS = {
    "hit": "get of a key that exists, mapped",
    "miss": "get of a key that does not, mapped",
    "dependent": "get of a key computed from the value before, mapped",
    "batch": "key of get_each, 1,000 at a time, mapped",
    "open": "get of a key that exists, by one positioned read",
    "load": "pair of a build by one thread",
}


def build(root, target):
    """Returns the path of the program."""
    manifest = Path(root, "benches", "counts", "Cargo.toml")
    command = ["cargo", "build", "--release", "--quiet", "--manifest-path", manifest, "--target-dir", target]
    subprocess.run(command, check=True)
    return Path(target, "release", "counts")


def instructions(program, operation, directory):
    """The instructions of one operation, on average."""
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={os.devnull}"]
    if operation != "load":  # which has other threads, and does nothing else
        command += ["--collect-atstart=no", "--toggle-collect=counts::measured*"]
    command += [program, operation, directory]
    run = subprocess.run(command, capture_output=True, text=True)
    collected = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or collected is None:
        sys.exit(f"{operation}: expected an exit code of 0 and a count, found {run.returncode}\n{run.stderr}")
    return int(collected[1]) / PAIRS


def count(program, operations):
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch, "store")
        subprocess.run([program, "load", store], check=True)
        where = {"load": Path(scratch, "built")}
        return {operation: instructions(program, operation, where.get(operation, store)) for operation in operations}


def most(operation, limit, same_compiler):
    if not same_compiler:
        return limit * 1.1
    return limit * 1.03 if operation in ("open", "load") else limit + 1


def compare(figures, limits):
    """Prints the table; returns the operations that take too many instructions."""
    same_compiler = limits["rustc"] == rustc()
    print(f"instructions, by {rustc()}; the limits are of {limits['rustc']}")
    over = []
    for operation, figure in figures.items():
        at_most = most(operation, limits[operation], same_compiler)
        if figure > at_most:
            over.append(operation)
        mark = "  TOO MANY" if figure > at_most else ""
        print(f"{operation:10} {figure:8.1f}  at most {at_most:8.1f}  per {OPERATIONS[operation]}{mark}")
    return over


def rustc():
    return subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def planted(target):
    """A copy of the sources with one more check per lookup."""
    hot = "src/read/shard/fast_path.rs"
    line = "        let Some(line) = self.minishard_map.line(number) else { return Probe::Undecided };\n"
    check = "        if body.len() <= to_usize(line.start()) {\n            return Probe::Undecided;\n        }\n"
    with tempfile.TemporaryDirectory() as copy:
        tracked = subprocess.run(["git", "ls-files", *SOURCES], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in tracked.stdout.split():
            to = Path(copy, name)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(Path(ROOT, name).read_bytes())
        code = Path(copy, hot).read_text()
        assert code.count(line) == 1, f"expected in {hot} once: {line}"
        Path(copy, hot).write_text(code.replace(line, line + check))
        return count(build(copy, target), ["hit", "miss"])


def main():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), "counts")
    if platform.machine() != "x86_64":
        print(f"skipped: the limits are of x86-64, and this is {platform.machine()}")
        return
    match sys.argv[1:]:
        case ["--accept"]:
            figures = count(build(ROOT, target), OPERATIONS)
            rounded = {operation: round(figure, 1) for operation, figure in figures.items()}
            LIMITS.write_text(json.dumps({"rustc": rustc(), **rounded}, indent=2) + "\n")
        case ["--planted"]:
            found = compare(planted(target), json.loads(LIMITS.read_text()))
            print(f"planted: found in {', '.join(found) or 'none'}")
            sys.exit(0 if found == ["hit", "miss"] else 1)
        case []:
            figures = count(build(ROOT, target), OPERATIONS)
            sys.exit(1 if compare(figures, json.loads(LIMITS.read_text())) else 0)
        case _:
            print(__doc__, file=sys.stderr)
            sys.exit(2)


if __name__ == "__main__":
    main()
