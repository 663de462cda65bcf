"""Each file of a store as a link, FIFO, directory, hard link, or without permission, for each subcommand."""

import json
import os
import shutil
import socket
from base64 import b64decode
from io import BytesIO

import pairs as pair
import tree
from stage import ERRORS, remove

CURRENT = pair.random_pairs(11, 600, 60)
OLDER = pair.random_pairs(12, 20, 60)
NEW = pair.random_pairs(13, 30, 60)
SPEC = json.dumps(
    {
        "@type": "neuroglancer_uint64_sharded_v1",
        "hash": "murmurhash3_x86_128",
        "preshift_bits": 0,
        "minishard_bits": 9,  # the smallest number with a file `minishards`
        "shard_bits": 1,
    }
)
FILES = ["lock", "history", "gen/lease", "gen/info", "gen/manifest.json", "gen/0.shard", "gen/minishards"]


def as_link(path, outside):
    """A link to the same file elsewhere."""
    os.rename(path, outside)
    path.symlink_to(outside)


def as_hard_link(path, outside):
    os.link(path, outside)


def as_dangling_link(path, outside):
    path.unlink()
    path.symlink_to(outside)


def as_fifo(path, _):
    path.unlink()
    os.mkfifo(path)


def as_socket(path, _):
    path.unlink()
    here = os.open(path.parent, os.O_PATH)  # the name of a socket is limited to 107 bytes
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def as_directory(path, _):
    path.unlink()
    path.mkdir()


def as_full_directory(path, _):
    as_directory(path, _)
    (path / "thesis.tex").write_text("the only copy\n")


def as_unreadable(path, _):
    path.chmod(0)


def as_missing(path, _):
    path.unlink()


FORMS = {
    "link elsewhere": as_link,
    "hard link": as_hard_link,
    "dangling link": as_dangling_link,
    "fifo": as_fifo,
    "socket": as_socket,
    "directory": as_directory,
    "directory with a file": as_full_directory,
    "unreadable file": as_unreadable,
    "missing": as_missing,
}

# Replacements of the link `current`, and the pairs that readers find, if any.
CURRENTS = {
    "text file": (lambda path, _: path.write_text("gen-0000000002"), CURRENT),
    "link to an absolute path of its generation": (lambda path, _: path.symlink_to(path.parent / "gen-0000000002"), None),
    "link to a generation of another store": (lambda path, other: path.symlink_to(other / "gen-0000000001"), None),
    "link to the generation of this number elsewhere": (lambda path, other: path.symlink_to("../other/gen-0000000001"), None),
    "link to a directory": (lambda path, other: path.symlink_to(other), None),
    "link to itself": (lambda path, _: path.symlink_to("current"), None),
    "dangling link": (lambda path, _: path.symlink_to("gen-0000000077"), None),
    "fifo": (lambda path, _: os.mkfifo(path), None),
    "directory": (lambda path, _: path.mkdir(), None),
    "copy of the generation": (lambda path, _: shutil.copytree(path.parent / "gen-0000000002", path), None),
    "empty file": (lambda path, _: path.write_text(""), None),
    "unreadable text file": (lambda path, _: (path.write_text("gen-0000000002"), path.chmod(0)), None),
    "long text file": (lambda path, _: path.write_text("gen-0000000002" * 100_000), None),
}


def run(stage, report):
    """Tries each file in each form, then each form of `current`, with each subcommand."""
    scene = Scene(stage, report)
    cases = [(file, form) for file in FILES for form in FORMS]
    stage.each(lambda case: scene.check_file(*case), stage.with_verbs(cases, VERBS))
    stage.each(lambda case: scene.check_current(*case), stage.with_verbs([(name,) for name in CURRENTS], VERBS))


class Scene:
    """A store of two generations to copy, and the other inputs of the subcommands."""

    def __init__(self, stage, report):
        self.stage = stage
        self.report = report
        self.root = stage.directory("odd")
        self.sources = self.root / "sources"
        self.sources.mkdir()
        pair.write_bin(self.sources / "new.bin", NEW)
        (self.sources / "keys").write_text("".join(f"{key}\n" for key in CURRENT))
        stage.build(self.sources / "store", OLDER)
        stage.build(self.sources / "store", CURRENT, "--sharding", SPEC)
        stage.build(self.sources / "other", OLDER)
        assert (self.sources / "store/gen-0000000002/minishards").exists()
        stage.give(self.root)

    def place(self, name):
        root = self.stage.directory(name.replace("/", "-").replace(" ", "_"), self.root)
        shutil.copytree(self.sources / "store", root / "store", symlinks=True)
        return root

    def check_file(self, verb, file, form):
        root = self.place(f"{verb}-{file}-{form}")
        path = root / "store" / file.replace("gen", "gen-0000000002", 1)
        FORMS[form](path, root / "outside")
        self.check(root, verb, f"{verb} with {file.replace('gen/', '')} as {form}", path, CURRENT)

    def check_current(self, verb, form):
        root = self.place(f"{verb}-current-{form}")
        path = root / "store/current"
        path.unlink()
        make, leads_to = CURRENTS[form]
        shutil.copytree(self.sources / "other", root / "other", symlinks=True)
        make(path, root / "other")
        self.check(root, verb, f"{verb} with current as {form}", path, leads_to or CURRENT)

    def check(self, root, verb, name, path, expected):
        self.stage.give(root)
        before = tree.snapshot(root)
        problems = VERBS[verb](self, root, path, expected)
        after = tree.snapshot(root)
        odd = str(path.relative_to(root))
        kept = [entry for entry in before if entry.split("/")[0] in ("outside", "other")]
        if verb in READING:
            kept = [entry for entry in before if not entry.startswith("out")] + kept
        elif "copy of the generation" not in name:  # which only has files that exist twice
            kept += [entry for entry in before if entry.startswith(f"{odd}/")]
        self.report.case(name, problems + tree.differences(before, after, kept))
        remove(root)

    def sharddb(self, *args):
        return self.stage.sharddb(*args, user=self.stage.user)


def get(scene, root, path, expected):
    key = next(iter(expected))
    outcome = scene.sharddb("get", root / "store", key)
    problems = outcome.problems((0, *ERRORS), names=[path.name])
    if not problems and outcome.code == 0 and outcome.out != expected[key]:
        problems.append(f"expected the value of key {key}, found {outcome.out[:40]}")
    return problems


def get_many(scene, root, path, expected):
    outcome = scene.sharddb("get-many", root / "store", "--keys", scene.sources / "keys", "--values")
    problems = outcome.problems((0, *ERRORS), names=[path.name])
    answers = [json.loads(line) for line in outcome.out.splitlines()]
    found = [(int(answer["key"]), b64decode(answer["value_b64"])) for answer in answers if "value_b64" in answer]
    absent = [answer["key"] for answer in answers if "absent" in answer]
    if absent:
        problems.append(f"expected an error or the value, found absent: {len(absent)} keys")
    return problems + pair.wrong_pairs(found, expected, some=outcome.code != 0)


def keys(scene, root, path, expected):
    outcome = scene.sharddb("keys", root / "store")
    problems = outcome.problems((0, *ERRORS), names=[path.name])
    found = {int(line) for line in outcome.out.split()}
    if not found <= expected.keys() or (outcome.code == 0 and found != expected.keys()):
        problems.append(f"expected {len(expected)} keys, found {len(found)}")
    return problems


def export(scene, root, path, expected):
    outcome = scene.sharddb("export", root / "store", "--format", "bin")
    problems = outcome.problems((0, *ERRORS), names=[path.name])
    return problems + pair.wrong_pairs(pair.read_bin(BytesIO(outcome.out)), expected, some=outcome.code != 0)


def info(scene, root, path, expected):
    outcome = scene.sharddb("info", root / "store", "--json")
    problems = outcome.problems((0, *ERRORS), names=[path.name])
    if outcome.code == 0 and json.loads(outcome.out)["keys"] != len(expected):
        problems.append(f"expected {len(expected)} keys, found {outcome.out.decode()}")
    return problems


def verify(scene, root, path, _):
    return scene.sharddb("verify", root / "store").problems((0, *ERRORS), names=[path.name])


def generations(scene, root, path, _):
    return scene.sharddb("generations", root / "store").problems((0, *ERRORS), names=[path.name])


def salvage(scene, root, path, expected):
    outcome = scene.sharddb("salvage", root / "store", root / "out")
    problems = outcome.problems((0, *ERRORS), names=[path.name])
    if (root / "out/current").is_symlink():
        exported = scene.stage.sharddb("export", root / "out", "--format", "bin")
        problems += pair.wrong_pairs(pair.read_bin(BytesIO(exported.out)), expected, some=outcome.code != 0)
    elif outcome.code == 0:
        problems.append("expected a store, found none")
    return problems


def build(scene, root, path, expected):
    outcome = scene.sharddb("build", root / "store", "--input", scene.sources / "new.bin", "-q")
    return written(scene, root, path, outcome, NEW)


def publish(scene, root, path, expected):
    outcome = scene.sharddb("publish", root / "store", "--from", scene.sources / "other/gen-0000000001")
    return written(scene, root, path, outcome, OLDER)


def publish_this(scene, root, path, expected):
    """Publishes the generation with the odd file into another store."""
    outcome = scene.sharddb("publish", root / "out", "--from", root / "store/gen-0000000002")
    problems = outcome.problems((0, *ERRORS), names=[path.name])
    if outcome.code == 0:
        problems += scene.stage.wrong_in(root / "out", expected)
    elif (root / "out/current").exists():
        problems.append("expected nothing published after an error, found a current generation")
    return problems


def gc(scene, root, path, expected):
    outcome = scene.sharddb("gc", root / "store", "--keep", "1")
    return outcome.problems((0, *ERRORS), names=[path.name])


def rollback(scene, root, path, expected):
    outcome = scene.sharddb("rollback", root / "store", "1")
    return written(scene, root, path, outcome, OLDER)


def written(scene, root, path, outcome, expected):
    problems = outcome.problems((0, *ERRORS), names=[path.name])
    if outcome.code == 0:
        problems += scene.stage.wrong_in(root / "store", expected)
    return problems


READING = {
    "get": get,
    "get-many": get_many,
    "keys": keys,
    "export": export,
    "info": info,
    "verify": verify,
    "generations": generations,
    "salvage": salvage,
    "publish of it": publish_this,
}
VERBS = READING | {"build": build, "publish": publish, "gc": gc, "rollback": rollback}
