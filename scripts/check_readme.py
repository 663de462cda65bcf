#!/usr/bin/env python3
"""Runs the sh blocks of README.md as they are, with the built command.

usage: check_readme.py SHARDDB

The blocks run one after the other in a temporary directory that has links to examples/ and tests/, in a shell that stops
at the first error; 124 is the exit code of a block that is killed after 600 s. A line that begins with cargo is not run, but must be the beginning of a command in .ci/run. The README
has at most 1,200 words. The last line is `N passed, N failed`; exit 1 if any failed.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import limited

ROOT = Path(__file__).resolve().parent.parent
WORDS = 1200


def blocks(readme):
    return re.findall(r"^```sh\n(.*?)^```$", readme, flags=re.DOTALL | re.MULTILINE)


def run(script, directory, sharddb):
    path = f"{sharddb.parent}{os.pathsep}{os.environ['PATH']}"
    shell = limited(["bash", "-e", "-u", "-o", "pipefail", "-c", script])
    done = subprocess.run(shell, cwd=directory, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    return done.returncode, done.stdout[-2000:] + done.stderr


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sharddb = Path(sys.argv[1]).resolve()
    readme, checks = (ROOT / "README.md").read_text(), (ROOT / ".ci/run").read_text()
    words = len(readme.split())
    results = [(f"{words} words, at most {WORDS}", words <= WORDS, "")]
    with tempfile.TemporaryDirectory() as directory:
        for name in ("crates", "examples", "tests"):
            (Path(directory) / name).symlink_to(ROOT / name)
        for block in blocks(readme):
            for line in (line for line in block.splitlines() if line.startswith("cargo ")):
                command = line.split("#")[0].strip()
                results.append((command, command in checks, "expected the command in .ci/run, found none"))
            script = "\n".join(line for line in block.splitlines() if not line.startswith("cargo "))
            if script:
                code, printed = run(script, directory, sharddb)
                results.append((script, code == 0, f"exit code {code}\n{printed}"))
    for name, passed, why in results:
        print(f"ok    {name}" if passed else f"FAIL  {name}\n{why}")
    failed = sum(not passed for _, passed, _ in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
