"""Runs the loader, the store and the command in hostile environments; started by scripts/hostile.sh."""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENTS = [
    "limits",
    "containers",
    "descriptors",
    "full_disk",
    "bad_sectors",
    "failing_writes",
    "foreign_content",
    "odd_files",
    "two_users",
    "fork",
]


def main():
    parser = argparse.ArgumentParser(prog="scripts/hostile.sh")
    parser.add_argument("--binaries", required=True, help="what cargo test --no-run --message-format=json printed")
    parser.add_argument("--disk", required=True, help="a directory on a disk, for what is too large for memory")
    parser.add_argument("--short", action="store_true", help="only the first and the middle case of each kind")
    parser.add_argument("environment", nargs="*", choices=[[], *ENVIRONMENTS])
    args = parser.parse_args()

    from report import Report
    from stage import Stage, remove

    report = Report()
    os.umask(0o022)
    os.makedirs(args.disk, exist_ok=True)
    work = tempfile.mkdtemp(prefix="sharddb-hostile-")
    in_memory = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2g,mode=755", "hostile", work], capture_output=True)
    try:
        os.chmod(work, 0o755)
        stage = Stage(read_binaries(args.binaries), work, args.disk, args.short)
        for name in args.environment or ENVIRONMENTS:
            begun = time.monotonic()
            report.begin(name.replace("_", " "))
            run_guarded(importlib.import_module(name), stage, report)
            report.end(time.monotonic() - begun)
    finally:
        if in_memory.returncode == 0:
            subprocess.run(["umount", "--lazy", work])
        remove(work)
        remove(args.disk)
    return 0 if report.totals() else 1


def run_guarded(environment, stage, report):
    """Runs an environment; an exception is a failed case, and the next environments still run."""
    try:
        environment.run(stage, report)
    except Exception:
        report.case("ends without an exception", traceback.format_exc().splitlines())


def read_binaries(path):
    """The test programs of the library by name, and the command, from the messages of cargo."""
    binaries = {}
    for line in Path(path).read_text().splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("executable"):
            target, package, is_test = message["target"], Path(message["manifest_path"]).parent, message["profile"]["test"]
            if is_test and package == ROOT and target["kind"] in (["lib"], ["test"]):
                binaries["lib" if target["kind"] == ["lib"] else target["name"]] = message["executable"]
            elif not is_test and (package, target["kind"], target["name"]) == (ROOT / "cli", ["bin"], "sharddb"):
                binaries["sharddb"] = message["executable"]
    return binaries


if __name__ == "__main__":
    sys.exit(main())
