"""A file system that is full at every n-th page, for each subcommand that writes."""

import os
import shutil

import pairs as pair
from stage import IO, until

PAGE = 4096
MIB = 1 << 20
OLD = pair.random_pairs(31, 20, 100)
VERBS = {
    "build": ["build", "{disk}/store", "--input", "{source}", "--memory", "{memory}", "-q"],
    "build of a new store": ["build", "{disk}/new", "--input", "{source}", "--memory", "{memory}", "-q"],
    "update": ["update", "{disk}/store", "--input", "{source}", "--memory", "{memory}", "-q"],
    "merge": ["merge", "{disk}/new", "{built}", "--memory", "{memory}", "-q"],
    "reshard": ["reshard", "{built}", "{disk}/new", "--profile", "remote", "--memory", "{memory}", "-q"],
    "copy": ["copy", "{built}", "{disk}/new", "--range", "..", "--memory", "{memory}", "-q"],
    "publish": ["publish", "{disk}/store", "--from", "{built}/current/"],
    "salvage": ["salvage", "{built}", "{disk}/new"],
    "export": ["export", "{built}", "--format", "bin", "--output", "{disk}/new"],
    "export to a directory": ["export", "{built}", "--format", "dir", "--output", "{disk}/new"],
}


def run(stage, report):
    """Small data with room from 0 bytes up, page by page; large data, with spills, in steps of 4 MiB."""
    if not stage.can_mount:
        report.cannot("a full tmpfs", "mounting needs root")
        return
    small = Scene(stage, report, "small", pair.random_pairs(32, 60, 700), "1GiB", PAGE)
    large = Scene(stage, report, "large", pair.random_pairs(33, 24_000, 1000), "16MiB", 4 * MIB)
    cases = [(scene, verb) for scene in (large, small) for verb in VERBS]
    cases.remove((large, "export to a directory"))  # 24,000 files
    stage.each(lambda case: case[0].fill(case[1]), cases)
    large.spill_elsewhere()


class Scene:
    """Data to write, in all forms that the subcommands take."""

    def __init__(self, stage, report, name, new, memory, step):
        self.stage = stage
        self.report = report
        self.name = name
        self.new = new
        self.memory = memory
        self.step = step
        base = stage.directory(f"sources-{name}")
        self.source = base / "new.bin"
        pair.write_bin(self.source, new)
        self.built = base / "new"
        stage.build(self.built, new, "--memory", memory)
        self.old = base / "old"
        stage.build(self.old, OLD)

    def fill(self, verb):
        """Increases the room on a disk until the subcommand succeeds."""
        with self.stage.tmpfs(f"full-{self.name}-{verb}".replace(" ", "-"), "size=96m") as disk:
            for room in self.rooms():
                if self.check(disk, verb, room):
                    return
        self.report.case(f"{verb} of {self.name} data", ["expected success with 80 MiB, found errors"])

    def rooms(self):
        """From 0 bytes up in equal steps; in the short form each is four times the one before."""
        if not self.stage.is_short:
            return range(0, 80 * MIB, self.step)
        return [0, *(room for power in range(0, 32, 2) if (room := self.step << power) < 80 * MIB)]

    def check(self, disk, verb, room):
        """Runs the subcommand with `room` bytes free; returns whether it succeeded."""
        clear(disk)
        shutil.copytree(self.old, disk / "store", symlinks=True)
        occupy(disk, room)
        words = [word.format(disk=disk, built=self.built, source=self.source, memory=self.memory) for word in VERBS[verb]]
        outcome = self.stage.sharddb(*words, name=verb)
        problems = outcome.problems((0, IO), names=[disk]) + self.wrong_after(disk, verb, outcome)
        if outcome.code == IO:
            remove_ballast(disk)
            again = self.stage.sharddb(*words, name=f"{verb}, repeated with room")
            problems += again.problems((0,)) + self.wrong_after(disk, verb, again)
        self.report.case(f"{verb} of {self.name} data with {room} bytes free", problems)
        return outcome.code == 0

    def wrong_after(self, disk, verb, outcome):
        """What is wrong on the disk after a subcommand."""
        store, new = disk / "store", disk / "new"
        failed = outcome.code != 0
        if verb in ("build", "update", "publish"):
            left = {path.name for path in store.iterdir()} - {"current", "history", "lock", "gen-0000000001"}
            problems = [f"expected nothing left behind, found {sorted(left)}"] if failed and left else []
            new = {**OLD, **self.new} if verb == "update" else self.new
            return problems + self.stage.wrong_in(store, OLD if failed else new)
        if failed:
            left = sorted(path.name for path in disk.iterdir() if path.name not in ("store", "ballast"))
            return [f"expected nothing left behind, found {left}"] if left else []
        if verb == "export":
            return pair.wrong_in_file(new, self.new)
        if verb == "export to a directory":
            return pair.wrong_pairs(((int(path.name), path.read_bytes()) for path in new.iterdir()), self.new)
        return self.stage.wrong_in(new, self.new)

    def spill_elsewhere(self):
        """The store has room, but the directory of the spills has none."""
        with self.stage.tmpfs("full-spills", "size=96m") as disk:
            for room in self.stage.sample(range(0, 32 * MIB, 4 * MIB)):
                self.report.case(f"build with {room} bytes for spills", self.wrong_with_spills(disk, room))

    def wrong_with_spills(self, disk, room):
        store = self.stage.directory("full-store") / "store"
        shutil.copytree(self.old, store, symlinks=True)
        occupy(disk, room)
        outcome = self.stage.sharddb(
            *("build", store, "--input", self.source, "--memory", self.memory, "--temp-dir", disk, "-q"),
            name="build with spills elsewhere",
        )
        problems = outcome.problems((0, IO), names=[disk])
        problems += self.stage.wrong_in(store, OLD if outcome.code else self.new)
        left = {path.name for path in disk.iterdir()} - {"ballast"}
        left |= {path.name for path in store.iterdir()} - {"current", "history", "lock", "gen-0000000001", "gen-0000000002"}
        return problems + ([f"expected nothing left behind, found {left}"] if left else [])


def put_ballast(disk, room):
    """Writes the file `ballast`; returns the bytes that are free then."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free(disk) - room))
    return free(disk)


def remove_ballast(disk):
    """Removes the file `ballast`; its space is free then."""
    ballast = disk / "ballast"
    room = free(disk) + ballast.stat().st_size
    ballast.unlink()
    until(lambda: free(disk) + PAGE >= room, f"the space of {ballast} is free")


def free(disk):
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


def clear(disk):
    """Removes everything on the disk."""
    for entry in disk.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def occupy(disk, room):
    """Fills the disk up to `room` bytes with a file `ballast`.

    The space of a file that was removed may become free later, so the disk is filled until it has no more room than that.
    """

    def has_room():
        return room <= put_ballast(disk, room) + PAGE <= room + 2 * PAGE and is_full(disk)

    until(has_room, f"{room} bytes are free on {disk}, and no more")


def is_full(disk):
    """Whether the disk has no more room than it states."""
    try:
        with open(disk / "probe", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, free(disk) + PAGE)
        return False
    except OSError:
        return True
    finally:
        (disk / "probe").unlink(missing_ok=True)
