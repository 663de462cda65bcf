"""A disk that cannot be read from some sector on: ext4 on a loop device whose backing file was truncated.

A page fault in a map is then SIGBUS, a positioned read EIO. The file is truncated at the first and the middle block of
each file of a generation, one case each.
"""

import json
import os
import re
import shutil
import subprocess
from base64 import b64decode
from io import BytesIO

import pairs as pair
from outcome import WATCHDOG
from stage import CORRUPT, IO, USAGE, remove

BLOCK = 4096
OLD = pair.random_pairs(41, 50, 100)
CURRENT = pair.random_pairs(42, 3000, 300)
SPEC = json.dumps(
    {
        "@type": "neuroglancer_uint64_sharded_v1",
        "hash": "murmurhash3_x86_128",
        "preshift_bits": 0,
        "minishard_bits": 9,
        "shard_bits": 2,
    }
)


def run(stage, report):
    """Truncates the disk at each place and runs each subcommand that reads.

    Subcommands that walk a database use their default options, which are positioned reads. Single lookups map the
    files by default, and a bad sector is then SIGBUS, as the help of --storage says; here they use pread.
    """
    if not stage.can_mount:
        report.cannot("a loop device", "mounting needs root")
        return
    sources = stage.directory("bad-sources")
    image = sources / "image"
    keys = sources / "keys"
    keys.write_text("".join(f"{key}\n" for key in CURRENT))
    try:
        make_image(stage, image)
    except subprocess.CalledProcessError as error:
        report.cannot("a loop device", f"no ext4 on one: {error.stderr.decode().strip()}")
        return
    places = stage.sample(cuts(image), lambda place: file_of(place[0]).split(".")[-1])
    for number, (what, block) in enumerate(places):
        cut = sources / "cut"
        shutil.copy(image, cut)
        with stage.mounted(f"bad-{number}", "-o", "loop,ro", cut) as disk:
            os.truncate(cut, block * BLOCK)  # after mounting, since a disk that is too short cannot be mounted
            report.case(f"the sectors from {what} on are bad", wrong_limit(disk, what))
            for verb, check in VERBS.items():
                report.case(f"{verb}, bad from {what} on", check(stage, disk / "store", keys))
    remove(sources)


def make_image(stage, image):
    """A disk of 24 MiB with a store of two generations."""
    with open(image, "wb") as file:
        file.truncate(24 << 20)
    format = ["mkfs.ext4", "-q", "-F", "-b", str(BLOCK), "-O", "^has_journal", image]
    subprocess.run(format, check=True, capture_output=True, timeout=WATCHDOG)
    with stage.mounted("whole", "-o", "loop", image) as disk:
        stage.build(disk / "store", OLD)
        stage.build(disk / "store", CURRENT, "--sharding", SPEC)
        if problems := stage.wrong_in(disk / "store", CURRENT):
            raise RuntimeError(f"expected a whole store before the disk is cut, found {problems}")


def cuts(image):
    """Places to cut: a description and a block number, at the start and middle of the current generation's files."""
    places = []
    for name in ("info", "manifest.json", "minishards", "0.shard", "1.shard", "2.shard", "3.shard"):
        path = f"/store/gen-0000000002/{name}"
        debugfs = ["debugfs", "-R", f"blocks {path}", image]
        listed = subprocess.run(debugfs, check=True, capture_output=True, text=True, timeout=WATCHDOG)
        blocks = [int(block) for block in listed.stdout.split()]
        places += [(name, min(blocks)), (f"block {len(blocks) // 4} of {name}", blocks[len(blocks) // 4])]
        places.append((f"block {len(blocks) // 2} of {name}", blocks[len(blocks) // 2]))
        places.append((f"the last block of {name}", max(blocks)))
    distinct = {block: what for what, block in reversed(places)}
    return [(what, block) for block, what in sorted(distinct.items(), reverse=True)]


def file_of(what):
    """The name of the file in the description of a place."""
    return re.search(r"[\w.]+$", what)[0]


def wrong_limit(disk, what):
    """Checks that the disk is bad: reading the file that the cut is in must fail."""
    name = file_of(what)
    try:
        (disk / "store/gen-0000000002" / name).read_bytes()
    except OSError as error:
        return [] if error.errno == 5 else [f"expected EIO, found {error}"]
    return [f"expected EIO from {name}, found that it can be read"]


# ---- subcommands ----


def verify(stage, store, _):
    outcome = stage.sharddb("verify", store)
    return outcome.problems((CORRUPT, IO), names=[store])


def export(stage, store, _):
    outcome = stage.sharddb("export", store, "--format", "bin")
    problems = outcome.problems((0, CORRUPT, IO), names=[store])
    return problems + pair.wrong_pairs(pair.read_bin(BytesIO(outcome.out)), CURRENT, some=outcome.code != 0)


def keys(stage, store, _):
    outcome = stage.sharddb("keys", store)
    found = {int(line) for line in outcome.out.split()}
    problems = outcome.problems((0, CORRUPT, IO), names=[store])
    if not found <= CURRENT.keys() or (outcome.code == 0 and len(found) < len(CURRENT)):
        problems.append(f"expected {len(CURRENT)} keys, found {len(found)}")
    return problems


def get_many(stage, store, keys):
    outcome = stage.sharddb("get-many", store, "--keys", keys, "--values", "--storage", "pread")
    problems = outcome.problems((0, CORRUPT, IO), names=[store])
    answers = [json.loads(line) for line in outcome.out.splitlines()]
    found = [(int(answer["key"]), b64decode(answer["value_b64"])) for answer in answers if "value_b64" in answer]
    if any("absent" in answer for answer in answers):
        problems.append("expected a value or an error of each key, found absent ones")
    return problems + pair.wrong_pairs(found, CURRENT, some=outcome.code != 0)


def get(stage, store, _):
    problems = []
    for key in list(CURRENT)[:3]:
        outcome = stage.sharddb("get", store, key, "--storage", "pread")
        problems += outcome.problems((0, CORRUPT, IO), names=[store])
        if outcome.code == 0 and outcome.out != CURRENT[key]:
            problems.append(f"expected the value of key {key}, found another")
    return problems


def info(stage, store, _):
    return stage.sharddb("info", store).problems((0, CORRUPT, IO), names=[store])


def salvage(stage, store, _):
    out = stage.directory("salvaged") / "store"
    outcome = stage.sharddb("salvage", store, out)
    problems = outcome.problems((0, CORRUPT, IO), names=[store])
    if (out / "current").is_symlink():
        exported = stage.sharddb("export", out, "--format", "bin")
        problems += exported.problems((0,))
        problems += pair.wrong_pairs(pair.read_bin(BytesIO(exported.out)), CURRENT, some=outcome.code != 0)
    elif outcome.code == 0:
        problems.append("expected a store, found none")
    return problems


def publish(stage, store, _):
    """Damaged data is refused, and nothing is published."""
    target = stage.directory("published") / "store"
    stage.build(target, OLD)
    outcome = stage.sharddb("publish", target, "--from", store / "gen-0000000002")
    problems = outcome.problems((USAGE, CORRUPT, IO), names=[store])
    return problems + stage.wrong_in(target, OLD)


VERBS = {
    "verify": verify,
    "export": export,
    "keys": keys,
    "get-many": get_many,
    "get": get,
    "info": info,
    "salvage": salvage,
    "publish": publish,
}
