#!/usr/bin/env python3
"""Counts the lines of code of each crate and of its modules: no tests, comments, blank lines.

    scripts/count_lines.py            per crate, and the tracked files
    scripts/count_lines.py --modules  per module of each crate as well
    scripts/count_lines.py --check    compare with the limits below
    scripts/count_lines.py --planted  check that planted long functions and small files are found

A change that needs more raises a limit in its own commit, which says what the lines bought.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from check_layers import ROOT, imports, item_end, load

CRATES = ["src", "cli/src", "python/src", *sorted(str(path.relative_to(ROOT)) for path in Path(ROOT, "crates").glob("*/src"))]
MOST_LINES = {"src": 21_570, "all": 62_800}
MOST_LINES_OF_FUNCTION = 50

# A file of the engine with fewer lines and one importer costs a header, `use` lines and a hop: it belongs into that importer.
FEWEST_LINES_OF_FILE = 60
SMALL_FILES = {  # the file: the reason why it stays
    "bytes/huge.rs": "the only memory that no file or allocator owns",
    "write/key_file.rs": "the writer of one of the files of a generation, like minishard_table.rs",
}


def lines_of(code):
    return sum(1 for line in code.splitlines() if line.strip())


def count(crate_root):
    """The lines of code by the first name of the module's path."""
    lines = Counter()
    for path, module in load(crate_root).items():
        lines[path[0] if path else "(root)"] += lines_of(module.code)
    return lines


def functions(code):
    """The name and the lines of each function with a body."""
    for match in re.finditer(r"\bfn (\w+)[^;{]*(?:\[[^]]*\][^;{]*)*\{", code):
        yield match[1], lines_of(code[match.start() : item_end(code, match.end() - 1)])


def long_functions(code):
    return [f"{name}: {lines}" for name, lines in functions(code) if lines > MOST_LINES_OF_FUNCTION]


def small_files(crate_root):
    """The small files that at most one module imports."""
    modules = load(crate_root)
    importers = {path: set() for path in modules}
    for importer, path, _ in imports(modules):
        importers[path].add(importer)
    for path, module in modules.items():
        name, lines = str(module.file.relative_to(crate_root)), lines_of(module.code)
        has_own_file = path and module.file != modules[path[:-1]].file
        if has_own_file and not module.children and lines < FEWEST_LINES_OF_FILE and len(importers[path]) <= 1:
            yield name, lines


def check():
    lines = {crate: sum(count(Path(ROOT, crate)).values()) for crate in CRATES}
    lines["all"] = sum(lines.values())
    found = [f"{part}: {lines[part]:,} lines of at most {most:,}" for part, most in MOST_LINES.items() if lines[part] > most]
    for crate in CRATES:
        for module in load(Path(ROOT, crate)).values():
            found += [f"{module.file.relative_to(ROOT)}: {function} lines" for function in long_functions(module.code)]
    small = dict(small_files(Path(ROOT, "src")))
    unlisted = {name: lines for name, lines in small.items() if name not in SMALL_FILES}
    found += [f"src/{name}: {lines} lines and one importer: merge it, or list it" for name, lines in unlisted.items()]
    found += [f"src/{name}: listed as small, but it is not" for name in SMALL_FILES if name not in small]
    print("\n".join([*found, f"{len(found)} findings"]))
    return bool(found)


def planted():
    body = "    call();\n" * MOST_LINES_OF_FUNCTION
    long = f"fn long<A, B>(a: [u8; 2]) where A: Copy, B: Copy {{\n{body}}}\n"
    cases = {long: 1, f"fn short() {{\n    call();\n}}\n{body}": 0, f"trait T {{ fn declared(a: [u8; 2]); }}\n{body}": 0}
    right = [len(long_functions(code)) == expected for code, expected in cases.items()]
    with tempfile.TemporaryDirectory() as root:
        files = {"lib": "mod one; mod two; mod used;", "one": "use crate::used::a;\n", "two": body, "used": "fn a() {}"}
        for name, text in files.items():
            Path(root, f"{name}.rs").write_text(text)
        right += [[name for name, _ in small_files(Path(root))] == ["one.rs", "two.rs", "used.rs"]]
        Path(root, "two.rs").write_text("use crate::used::a;\n" + body * 2)
        right += [[name for name, _ in small_files(Path(root))] == ["one.rs"]]
    print(f"{sum(right)} of {len(right)} planted cases found")
    return not all(right)


def report():
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
    sys.exit(check() if "--check" in sys.argv[1:] else planted() if "--planted" in sys.argv[1:] else report())
