"""The memory limit of a container: a control group whose page cache is full."""

import contextlib
import os
import subprocess
from pathlib import Path

import pairs as pair
from outcome import WATCHDOG
from outcome import run as run_command
from stage import remove

MIB = 1 << 20
LIMITS = (128, 512)  # MiB
VALUE = 3000  # bytes


def run(stage, report):
    """Builds without --memory in each limit."""
    if hierarchy() is None:
        report.cannot("the memory limit of a container", "needs a control group for memory that may have groups below it")
        return
    for limit in LIMITS[:1] if stage.is_short else LIMITS:
        expected = pair.random_pairs(61, limit * MIB * 3 // 2 // VALUE, VALUE)
        source = stage.input(expected)
        base = stage.directory(f"container-{limit}", stage.real_disk)
        with group_of(limit) as group:
            # the shell enters the group, whose page cache the copy fills
            script = 'echo $$ >"$1/cgroup.procs" && cat "$2" >"$3/cache" && shift 3 && exec "$@"'
            build = [stage.command, "build", base / "store", "--input", source, "--format", "bin", "-q"]
            outcome = run_command(["sh", "-c", script, "sh", group, source, base, *build], name="build")
        problems = outcome.problems((0,))
        if outcome.code == 0:
            problems += stage.wrong_in(base / "store", expected)
        report.case(f"build in a container of {limit} MiB with a full page cache", problems)
        source.unlink()
        remove(base)


def hierarchy():
    """The directory in which groups with a memory limit can be made, and the file for the limit; None without one."""
    groups = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    v1 = Path("/sys/fs/cgroup/memory")
    if "memory" in groups and os.access(v1 / "cgroup.procs", os.W_OK):
        return v1, "memory.limit_in_bytes"
    v2 = Path("/sys/fs/cgroup")
    controllers = v2 / "cgroup.subtree_control"
    if os.access(controllers, os.W_OK) and "memory" in controllers.read_text().split():
        return v2, "memory.max"
    return None


@contextlib.contextmanager
def group_of(limit):
    directory, file = hierarchy()
    group = directory / f"sharddb-{os.getpid()}-{limit}"
    group.mkdir()
    try:
        (group / file).write_text(str(limit * MIB))
        yield group
    finally:
        subprocess.run(["rmdir", group], check=True, timeout=WATCHDOG)
