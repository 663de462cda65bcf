#!/usr/bin/env python3
"""Renders what `cargo binstall sharddb-cli` downloads, and finds it in the archives of a release.

usage: binstall.py DIST

Exit: 0 if each archive of DIST has the name of the URL, and the program at its path.
"""

import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"]


def render(template, **values):
    for name, value in values.items():
        template = template.replace(f"{{ {name} }}", value)
    if "{" in template:
        sys.exit(f"binstall.py: unknown name in {template}")
    return template


def main(dist):
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    package = tomllib.loads((ROOT / "cli/Cargo.toml").read_text())["package"]["metadata"]["binstall"]
    for target in TARGETS:
        values = {"repo": workspace["repository"], "version": workspace["version"], "target": target, "bin": "sharddb", "binary-ext": ""}
        url, path = render(package["pkg-url"], **values), render(package["bin-dir"], **values)
        with tarfile.open(dist / url.rpartition("/")[2]) as archive:
            if not archive.getmember(path).mode & 0o111:
                sys.exit(f"binstall.py: {path} in {archive.name} cannot be executed")
        print(url, path)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
