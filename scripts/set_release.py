#!/usr/bin/env python3
"""Writes the version and the address of the repository to every file that has them.

    scripts/set_release.py VERSION   set the version, in the lock files too, and the address of Cargo.toml
    scripts/set_release.py           check that all files agree with Cargo.toml, whose `repository` is the address

Exit: 0 if all agree, 1 with the findings, 2 for other arguments.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = r"https://[^\s\"')]+?"
VERSIONS = {  # in each file, the part in parentheses is the version, wherever the pattern matches
    "Cargo.toml": r'^version = "([^"]+)"|^sharddb[\w-]* = \{ version = "=([^"]+)"',
    "python/Cargo.toml": r'^version = "([^"]+)"',
    "CITATION.cff": r"^version: (\S+)",
    "recipe.yaml": r"^  version: (\d\S+)",
}
ADDRESSES = {
    "Cargo.toml": rf'^(?:repository|homepage) = "({ADDRESS})"',
    "python/pyproject.toml": rf'^(?:Homepage|Repository) = "({ADDRESS})"',
    "CITATION.cff": rf"^repository-code: ({ADDRESS})$",
    "recipe.yaml": rf"^  (?:homepage|repository): ({ADDRESS})$|^  url: ({ADDRESS})/releases/",
}


def found(places):
    """(file, what stands there) for each match of the patterns."""
    for file, pattern in places.items():
        matches = re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)
        yield from ((file, "".join(match)) for match in matches or [""])


def replace(places, value):
    for file, pattern in places.items():
        path = ROOT / file

        def written(match):
            group = match.lastindex
            return match[0][: match.start(group) - match.start()] + value + match[0][match.end(group) - match.start() :]

        path.write_text(re.sub(pattern, written, path.read_text(), flags=re.MULTILINE))


def first(places):
    return next(value for file, value in found(places) if file == "Cargo.toml")


def locked():
    """The manifests beside the lock files, which name the version of the crates."""
    listed = subprocess.run(["git", "ls-files", "*Cargo.lock"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Path(lock).with_name("Cargo.toml") for lock in listed.split()]


def main(arguments):
    if arguments:
        replace(VERSIONS, arguments[0])
        replace(ADDRESSES, first(ADDRESSES))
        for manifest in locked():
            subprocess.run(["cargo", "update", "--quiet", "--workspace", "--manifest-path", manifest], cwd=ROOT, check=True)
    findings = [
        f"{file}: {value or 'nothing'} instead of {first(places)}, the {name} of Cargo.toml: scripts/set_release.py {first(VERSIONS)}"
        for name, places in (("version", VERSIONS), ("address", ADDRESSES))
        for file, value in found(places)
        if value != first(places)
    ]
    print("\n".join([*findings, f"{len(findings)} findings"]))
    return bool(findings)


if __name__ == "__main__":
    if len(sys.argv) > 2 or any(not re.fullmatch(r"\d+\.\d+\.\d+", version) for version in sys.argv[1:]):
        print(*__doc__.splitlines()[2:4], sep="\n", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1:]))
