#!/usr/bin/env python3
"""Finds what a crate hides for the other crates of the workspace, and none of them uses.

    scripts/check_hidden.py            check src and crates/
    scripts/check_hidden.py --planted  check that a planted item is found
    scripts/check_hidden.py --list     print what is hidden, and which crates use it

Hidden is the module `internal` of a crate: what it re-exports, and all that is `pub` in the files of the modules that it has
whole. One is used if another crate, its tests, or a program beside the workspace names it. Types of whole modules are not looked
at: they stand in signatures, and the compiler refuses a type that is more private than its function. Anything else below
`#[doc(hidden)]` is a finding: it would be promised, and not be documented.

Exit status: 0 if all are used, 1 if not.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from check_layers import ROOT, code_of, item_end

HIDING = ["src", "crates/format/src", "crates/container/src", "crates/remote/src", "crates/serve/src"]
ITEM = re.compile(
    r"pub\s+(?:(?:const\s+|unsafe\s+|async\s+)*fn|static|const)\s+(\w+)", re.ASCII
)
OUTSIDE = "#[doc(hidden)]"
HIDDEN = re.compile(r"#\[doc\(hidden\)\]\s*(?:#\[[^\]]*\]\s*)*")
EXPORT = re.compile(r"pub use ([^;]*);")


def hidden_items(crate):
    """`(file, name)` for each hidden item of a crate, whose root is the directory `crate`."""
    for path in sorted(crate.rglob("*.rs")):
        code = code_of(path.read_text())
        for match in HIDDEN.finditer(code):
            body = code[match.end() : item_end(code, match.end())]
            if not body.startswith("pub mod internal"):
                yield path, OUTSIDE
                continue
            for module in " ".join(re.findall(r"whole!\(([^)]*)\)", body)).split():
                yield from in_module(path.parent, module)
            for exported in EXPORT.findall(body):
                names = exported.rpartition("::{")[2] if "{" in exported else exported.rpartition("::")[2]
                yield from ((path, name) for name in re.findall(r"\w+", names))


def in_module(directory, module):
    files = [directory / f"{module}.rs", *sorted((directory / module).rglob("*.rs"))]
    for path in files:
        if path.exists():
            yield from ((path, name) for name in ITEM.findall(code_of(path.read_text())))


def crate_of(path, root):
    """The package that a file belongs to: the tests of the engine are not the engine, as other crates share them."""
    parts = path.relative_to(root).parts
    return "/".join(parts[:2]) if parts[0] in ("crates", "benches") else parts[0]


def unused(root, print_all=False):
    listed = subprocess.run(["git", "ls-files", "*.rs"], cwd=ROOT, capture_output=True, text=True, check=True)
    words = {}
    for path in (root / line for line in listed.stdout.splitlines()):
        if path.exists():
            words.setdefault(crate_of(path, root), set()).update(re.findall(r"\w+", code_of(path.read_text())))
    for crate in HIDING:
        own = crate_of(root / crate / "lib.rs", root)
        for path, name in sorted(set(hidden_items(root / crate))):
            if name == OUTSIDE:
                yield f"{path.relative_to(root)}: {name} outside of the module `internal`"
                continue
            users = [other for other, known in words.items() if other != own and name in known]
            if print_all:
                print(f"{path.relative_to(root)}: {name}: {', '.join(sorted(users))}")
            if not users:
                yield f"{path.relative_to(root)}: {name} is hidden, and no other crate uses it"


def planted():
    """Whether an item that nobody uses is found in each crate."""
    failed = 0
    for crate in HIDING:
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory)
            for source in ("src", "crates"):
                shutil.copytree(ROOT / source, copy / source)
            with open(copy / crate / "lib.rs", "a") as lib:
                lib.write("#[doc(hidden)]\npub mod internal {\n    pub use crate::a::{planted, b};\n}\n")
                lib.write("#[doc(hidden)]\npub fn outside() {}\n")
            lines = list(unused(copy))
            for what, text in [("that nobody uses", ": planted is hidden"), ("outside of `internal`", OUTSIDE)]:
                found = any(text in line for line in lines)
                print(f"{'found' if found else 'NOT FOUND'}: an item {what} in {crate}")
                failed += not found
    return failed


def main():
    if "--planted" in sys.argv[1:]:
        return 1 if planted() else 0
    found = list(unused(ROOT, "--list" in sys.argv[1:]))
    for line in found:
        print(line)
    print(f"{len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
