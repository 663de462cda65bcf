#!/usr/bin/env python3
"""Finds names of source files, in documents and comments, that no file of the repository has.

    scripts/check_paths.py            check the tracked documents and comments
    scripts/check_paths.py --planted  check that planted mistakes are found

It reads documents (`.md`) and the comments of Rust, Python, JavaScript, shell and TOML, and looks for words that end like a source
file (SOURCE): not for data such as `0.shard`, addresses, absolute paths, or files that git ignores. A path must lead to a tracked
file from the root, the package of the file that names it, the `src` of that package, or the directory of that file. A name without
a directory must be the name of any tracked file. `*` stands for any characters. docs/notebook.md is not checked: it is history, and
its header says that it has the names of its day.

Exit status: 0 if all are found, 1 if not.
"""

import io
import re
import subprocess
import sys
import tokenize
from fnmatch import filter as matches
from posixpath import basename, dirname, join, normpath

from check_layers import ROOT, TOKEN

WORD = re.compile(r"\w+://\S+|[\w.*/${}~<>-]+", re.ASCII)  # an address is one word
SOURCE = r"[\w.*-]+\.(?:md|toml)|[a-z_*][\w.*-]*\.(?:rs|py|pyi|sh|yml|js|mjs|ts|css|html)"  # not Node.js, a proper name
PATH = re.compile(rf"(?:\.\.?/)*(?:[\w.*-]+/)*(?:{SOURCE})", re.ASCII)
BEFORE_DOCSTRINGS = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
PACKAGES = {"Cargo.toml", "pyproject.toml", "package.json"}


def python_text(text):
    """The comments and docstrings of a Python file, at their lines."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or token.type == tokenize.STRING and before in BEFORE_DOCSTRINGS:
            yield token.start[0], token.string
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type


def matched(pattern, text):
    for match in pattern.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[0]


def prose(name, text):
    """`(line, text)` for each document or comment of a file."""
    if name.endswith(".md"):
        yield 1, text
    elif name.endswith(".rs"):
        yield from (found for found in matched(TOKEN, text) if found[1].startswith("/"))
    elif name.endswith((".py", ".pyi")):
        yield from python_text(text)
    elif name.endswith((".js", ".mjs")):
        yield from matched(re.compile(r"(?<!:)//.*"), text)
    elif name.endswith((".sh", ".toml", ".yml")) or name == ".ci/run":
        yield from matched(re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE), text)


def missing(files):
    """`(file, line, path)` for each path that leads nowhere. `files` has the text of each tracked file by its name."""
    names = {basename(file) for file in files}
    homes = {dirname(file) for file in files if basename(file) in PACKAGES} | {""}

    def exists(path, file):
        if "/" not in path:
            return path in names or matches(names, path)
        home = dirname(file)
        while home not in homes:
            home = dirname(home)
        tried = [normpath(join(base, path)) for base in ("", home, join(home, "src"), dirname(file))]
        return any(path in files or matches(files, path) for path in tried)

    for file, text in files.items():
        for first, part in prose(file, text) if file != "docs/notebook.md" else ():
            for line, word in matched(WORD, part):
                path = word.rstrip("./-")
                if PATH.fullmatch(path) and not exists(path, file) and not is_ignored(path):
                    yield file, first + line - 1, path


def is_ignored(path):
    return subprocess.call(["git", "check-ignore", "-q", path], cwd=ROOT, stderr=subprocess.DEVNULL) == 0


def tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: (ROOT / name).read_text(errors="replace") for name in listed if (ROOT / name).is_file()}


def planted(files):
    """The number of planted mistakes that are not found."""
    mistakes = {
        "docs/design.md": "`read/lookups.rs`",
        "README.md": "[text](docs/desing.md)",
        "src/lib.rs": "//! See `gone.rs`.",
        "crates/remote/src/plan.rs": "fn f() {} // as in remote/rounds.rs",
        "scripts/programs.py": "def f():\n    'Like scripts/gone.py.'",
        "scripts/hostile.sh": "true # see hostile/gone.sh",
    }
    found = {file for file, _, _ in missing({**files, **mistakes})}
    for file, text in mistakes.items():
        print(f"{'found' if file in found else 'NOT FOUND'}: {text!r} in {file}")
    return len(mistakes.keys() - found)


def main():
    files = tracked()
    if "--planted" in sys.argv[1:]:
        return 1 if planted(files) else 0
    found = [f"{file}:{line}: there is no {path}" for file, line, path in missing(files)]
    print(*found, f"{len(found)} findings", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
