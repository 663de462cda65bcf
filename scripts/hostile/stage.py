"""The stage of the tests: the command, a work directory, an unprivileged user, mounts, and stores with known pairs."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pairs as pair
from outcome import WATCHDOG, run

USER = 64123  # runs nothing else, so that a limit on its processes counts only those of the tests
LIMITED = Path(__file__).with_name("limited.py")

CORRUPT, IO, USAGE = 3, 4, 2
ERRORS = (USAGE, CORRUPT, IO)


def until(is_true, words):
    """Waits until no process holds a file any more: one that another thread starts has all open files of this process until
    the kernel closes them, which may be after it has started."""
    end = time.monotonic() + WATCHDOG
    while not is_true():
        if time.monotonic() > end:
            raise RuntimeError(f"expected that {words} within {WATCHDOG} s, found otherwise")
        time.sleep(0.025)


class Stage:
    """What each environment needs."""

    def __init__(self, binaries, work, disk, is_short):
        self.is_short = is_short
        self.binaries = binaries  # name -> path, of the test programs
        self.work = Path(work)  # open to all users; in memory if that can be mounted
        self.real_disk = Path(disk)  # on which fsync takes time
        self.disk = self.work if is_short else self.real_disk
        self.command = self.work / "sharddb"
        shutil.copy(binaries["sharddb"], self.command)
        self.command.chmod(0o755)
        self.is_root = os.geteuid() == 0
        self.user = USER if self.is_root else None  # the user that runs the command
        self.can_mount = self._can_mount()

    # ---- places ----

    def directory(self, name, parent=None):
        """A new directory owned by the unprivileged user; replaces an old one."""
        path = (parent or self.work) / name
        remove(path)
        path.mkdir(parents=True)
        self.give(path)
        return path

    def give(self, path):
        """Makes the unprivileged user the owner of the entire tree."""
        if self.is_root:
            subprocess.run(["chown", "-R", "-h", f"{USER}:{USER}", path], check=True, timeout=WATCHDOG)

    @contextlib.contextmanager
    def mounted(self, name, *options):
        """Mounts at a new directory: `options` are those of mount(8), without the directory."""
        path = self.work / name
        path.mkdir(exist_ok=True)
        subprocess.run(["mount", *map(str, options), path], check=True, timeout=WATCHDOG)
        try:
            yield path
        finally:
            until(lambda: subprocess.run(["umount", path], capture_output=True).returncode == 0, f"{path} is not in use")
            path.rmdir()

    def tmpfs(self, name, *options):
        return self.mounted(name, "-t", "tmpfs", "-o", ",".join(("mode=777", *options)), "hostile")

    def _can_mount(self):
        try:
            with self.tmpfs("probe", "size=1m"):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False

    # ---- cases ----

    def sample(self, cases, kind=lambda case: None):
        """All cases; in the short form the first and the middle one of each kind."""
        if not self.is_short:
            return list(cases)
        kinds = {}
        for case in cases:
            kinds.setdefault(kind(case), []).append(case)
        return [same[at] for same in kinds.values() for at in sorted({0, len(same) // 2})]

    def with_verbs(self, cases, verbs):
        """Each case with each verb; in the short form with two verbs, which are others for the next case."""
        verbs, count = list(verbs), 2 if self.is_short else len(verbs)
        steps = [step * len(verbs) // count for step in range(count)]
        return [(verbs[(number + step) % len(verbs)], *case) for number, case in enumerate(cases) for step in steps]

    # ---- runs ----

    def sharddb(self, *args, user=None, **options):
        """Runs the command, as this user or the given one."""
        return run([self.command, *args], user=user, **options)

    def limited(self, limits, *argv, env=None, name=None):
        """Runs a program under limits, which are options of limited.py."""
        environment = dict(os.environ, **(env or {}))
        return run([sys.executable, LIMITED, *limits, "--", *argv], env=environment, name=name)

    def each(self, function, cases):
        """Calls the function with each case, on as many threads as there are processors."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(function, cases))

    # ---- stores ----

    def build(self, store, pairs, *options):
        """Builds a generation in normal conditions, which must succeed."""
        source = self.input(pairs)
        outcome = self.sharddb("build", store, "--input", source, "--format", "bin", "-q", *options)
        source.unlink()
        if outcome.code:
            raise RuntimeError(f"a build without any obstacle failed: {outcome}")

    def input(self, pairs):
        """A file of these pairs in the format bin."""
        path = self.work / f"input-{os.urandom(8).hex()}.bin"
        pair.write_bin(path, pairs)
        path.chmod(0o644)
        return path

    def wrong_in(self, database, expected):
        """What is wrong with a database that must have exactly these pairs and verify without findings."""
        output = self.disk / f"export-{os.urandom(8).hex()}.bin"
        exported = self.sharddb("export", database, "--format", "bin", "--output", output)
        problems = exported.problems((0,)) + self.sharddb("verify", database, "-q").problems((0,))
        if output.exists():
            problems += pair.wrong_in_file(output, expected)
            output.unlink()
        return problems


def remove(path):
    """Removes a tree, whatever its modes. A missing tree is no error."""
    path = Path(path)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        for directory, _, _ in os.walk(path):
            os.chmod(directory, 0o700)
        shutil.rmtree(path)
