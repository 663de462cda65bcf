"""A disk that cannot be written: a loop device whose backing file has no room, and errors in every n-th system call."""

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pairs as pair
from full_disk import occupy
from outcome import BUG, WATCHDOG
from outcome import run as run_command
from stage import ERRORS, IO, remove

MIB = 1 << 20
OLD = pair.random_pairs(51, 20, 100)
SMALL = pair.random_pairs(52, 50, 300)
LARGE = pair.random_pairs(53, 24_000, 1000)

# System calls that may fail, and their errors. A few also happen while the program is loaded.
CALLS = {
    "fsync": "EIO",
    "pwrite64": "EIO",
    "write": "EIO",
    "rename": "EIO",
    "mkdir": "ENOSPC",
    "symlink": "ENOSPC",
    "unlink": "EIO",
    "unlinkat": "EIO",
    "ftruncate": "EIO",
    "fchmod": "EIO",
    "chmod": "EIO",
    "flock": "EIO",
    "copy_file_range": "EIO",
    "getdents64": "EIO",
    "pread64": "EIO",
    "clone3": "EAGAIN",
    "openat": "EMFILE",
    "statx": "EIO",
    "readlink": "EIO",
    "close": "EIO",
}
FATAL = ("fsync", "pwrite64", "rename", "mkdir", "symlink", "ftruncate")  # no success without these
TRIES = 8  # runs in which a thread may make fewer calls than it did in the counted one
MOST = 40  # upper bound on the calls of a kind and thread that are tried


def run(stage, report):
    """Writes to a disk that fails at writeback, then fails each call of each subcommand that writes."""
    if stage.can_mount:
        writeback(stage, report)
    else:
        report.cannot("a loop device", "mounting needs root")
    if can_inject(stage):
        injected(stage, report)
    else:
        report.cannot("errors in system calls", "strace --inject is missing, or tracing is forbidden")


# ---- writeback ----


def writeback(stage, report):
    """The file system accepts the bytes, and finds only at the sync that the device cannot hold them."""
    sources = stage.directory("writeback")
    small, large = sources / "small", sources / "large"
    stage.build(small, SMALL)
    stage.build(large, LARGE)
    for name, new, memory, rooms in (
        ("small", SMALL, "1GiB", [kib << 10 for kib in range(0, 96, 8)]),
        ("large", LARGE, "16MiB", [mib * MIB for mib in range(0, 64, 8)]),
    ):
        source = stage.input(new)
        built = sources / name
        for room in stage.sample(rooms):
            for verb, words in {
                "build": ["build", "STORE", "--input", source, "--memory", memory, "-q"],
                "publish": ["publish", "STORE", "--from", built / "gen-0000000001"],
            }.items():
                problems = wrong_writeback(stage, verb, words, room, new)
                report.case(f"{verb} of {name} data on a device with room for {room} bytes", problems)
        source.unlink()
    remove(sources)


def wrong_writeback(stage, verb, words, room, new):
    """Runs the subcommand on a device with room for `room` bytes; then checks the result on a working device."""
    with stage.tmpfs("backing", "size=128m") as backing:
        image = backing / "image"
        with open(image, "wb") as file:
            file.truncate(112 * MIB)
        format = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^has_journal", "-E", "lazy_itable_init=0", image]
        subprocess.run(format, check=True, timeout=WATCHDOG)
        with stage.mounted("failing", "-o", "loop", image) as disk:
            stage.build(disk / "store", OLD)
        with stage.mounted("failing", "-o", "loop", image) as disk, single_pages(disk):
            occupy(backing, room)
            expect_bad(disk, room)
            words = [str(disk / "store") if word == "STORE" else word for word in words]
            outcome = stage.sharddb(*words, name=verb)
            problems = outcome.problems((0, IO), names=[disk])
            left = {path.name for path in (disk / "store").iterdir()} - {"current", "history", "lock", "gen-0000000001"}
            if outcome.code and left:
                problems.append(f"expected nothing left behind, found {sorted(left)}")
            (backing / "ballast").unlink()
        with stage.mounted("failing", "-o", "loop,ro", image) as disk:
            return problems + stage.wrong_in(disk / "store", OLD if outcome.code else new)


@contextlib.contextmanager
def single_pages(disk):
    """Makes the loop device write page by page, since it reports a partly written request as complete."""
    device = next(line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[1] == str(disk))
    limit = Path("/sys/block") / Path(device).name / "queue/max_sectors_kb"
    before = limit.read_text()
    limit.write_text("4")
    try:
        yield
    finally:
        limit.write_text(before)


def expect_bad(disk, room):
    """Checks that the device fails: more bytes than its room cannot be synced."""
    probe = disk / "probe"
    with open(probe, "wb") as file:
        file.write(bytes(room + MIB))
        file.flush()
        try:
            os.fsync(file.fileno())
        except OSError:
            return
        finally:
            probe.unlink()
    raise RuntimeError(f"expected a device with room for {room} bytes, found one that takes more")


# ---- system calls ----


def can_inject(stage):
    probe = ["strace", "-f", "-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=1", "sync", stage.work / "sharddb"]
    try:
        return run_command(probe).code == 1
    except OSError:
        return False


def injected(stage, report):
    """Each call of a kind that a subcommand makes fails once, and in another run from that call on."""
    sources = stage.directory("injected")
    source = sources / "new.bin"
    pair.write_bin(source, SMALL)
    stage.build(sources / "new", SMALL)
    stage.build(sources / "store", SMALL)
    stage.build(sources / "store", OLD)
    verbs = {
        "build": (["build", "STORE", "--input", source, "-q", "--threads", "2"], SMALL),
        "publish": (["publish", "STORE", "--from", sources / "new/gen-0000000001"], SMALL),
        "rollback": (["rollback", "STORE"], SMALL),
        "gc": (["gc", "STORE"], OLD),
        "salvage": (["salvage", sources / "new", "OUT"], SMALL),
        "export": (["export", sources / "new", "--format", "bin", "--output", "OUT"], SMALL),
    }
    cases = []
    for verb, (words, new) in verbs.items():
        for call, count in calls_of(stage, sources, words).items():
            for number in range(1, min(count, MOST) + 1):
                cases.append((verb, words, new, call, f"{number}"))
                if call != "close":  # std ends the process if closing a directory fails again while a panic unwinds
                    cases.append((verb, words, new, call, f"{number}+"))
    cases = stage.sample(cases, lambda case: (case[0], case[3]))
    stage.each(lambda case: check_injected(stage, report, sources, *case), cases)
    remove(sources)


def place(stage, sources, words):
    """A store to write into, and the arguments of a subcommand for it."""
    base = stage.directory(f"place-{os.urandom(8).hex()}", sources)
    shutil.copytree(sources / "store", base / "store", symlinks=True)
    return base, [{"STORE": base / "store", "OUT": base / "out"}.get(word, word) for word in words]


def calls_of(stage, sources, words):
    """The largest number of each call in a thread, in a run without errors."""
    base, words = place(stage, sources, words)
    log = base / "log"
    run_command(["strace", "-f", "-o", log, "-e", "trace=" + ",".join(CALLS), stage.command, *words])
    counts = {}
    for task, call in re.findall(r"^(\d+) +(\w+)\(", log.read_text(), re.MULTILINE):
        counts[call, task] = counts.get((call, task), 0) + 1
    remove(base)
    return {call: max((n for (name, _), n in counts.items() if name == call), default=0) for call in CALLS}


def check_injected(stage, report, sources, verb, words, new, call, when):
    for _ in range(TRIES):
        base, arguments = place(stage, sources, words)
        outcome = run_with_error(stage, base, verb, arguments, call, when)
        if "INJECTED" in (base / "log").read_text():
            break
        remove(base)
    else:
        report.case(f"{verb} with an error from {call} number {when}", [f"expected one in {TRIES} runs, found none"])
        return
    if outcome.code == 127 and "loading shared libraries" in outcome.err:
        remove(base)
        return  # the command did not start
    # std panics if a directory cannot be closed
    allowed = ERRORS if call in FATAL else (0, *ERRORS, BUG) if call == "close" else (0, *ERRORS)
    problems = outcome.problems(allowed)
    if verb in ("salvage", "export"):
        problems += wrong_output(stage, verb, base / "out", outcome, new)
    else:
        problems += wrong_store(stage, base / "store", outcome, new)
    report.case(f"{verb} with {CALLS[call]} from {call} number {when}", problems)
    remove(base)


def run_with_error(stage, base, verb, arguments, call, when):
    inject = f"inject={call}:error={CALLS[call]}:when={when}"
    traced = ["strace", "-f", "--seccomp-bpf", "-o", base / "log", "-e", f"trace={call}", "-e", inject]
    return run_command([*traced, stage.command, *arguments], name=verb)


def wrong_output(stage, verb, out, outcome, new):
    if outcome.code:
        return []
    return stage.wrong_in(out, new) if verb == "salvage" else pair.wrong_in_file(out, new)


def wrong_store(stage, store, outcome, new):
    """After success the new pairs; after an error the old ones, or the new ones if it came too late to go back."""
    after_new, after_old = stage.wrong_in(store, new), stage.wrong_in(store, OLD)
    if outcome.code == 0 or not after_new:
        return after_new
    return after_old
