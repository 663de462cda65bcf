"""Two ordinary users in one group share a store: each changes what the other wrote, and what is an input stays as it is."""

import subprocess

import pairs as pair
import tree
from stage import USER, remove

OTHER_USER = USER + 1
OLDER = pair.random_pairs(21, 20, 60)
CURRENT = pair.random_pairs(22, 300, 60)
NEW = pair.random_pairs(23, 30, 60)
CHANGES = dict.fromkeys(list(CURRENT)[:3], b"changed")
SPEC = (
    '{"@type": "neuroglancer_uint64_sharded_v1", "hash": "murmurhash3_x86_128", "preshift_bits": 0, "minishard_bits": 1,'
    ' "shard_bits": 4}'
)

# The modes of the files of the store and of the inputs: as they were written, and as a restored backup may have them.
MODES = {"as written": None, "group-writable": "g+w", "for the owner alone to write": "u+w"}


def run(stage, report):
    """Tries each subcommand of the second user on what the first one wrote, in each mode; then the first one writes again."""
    if not stage.is_root:
        report.cannot("two users", "it takes root to become them")
        return
    scene = Scene(stage, report)
    cases = [(mode,) for mode in MODES]
    stage.each(lambda case: scene.check(*case), [(verb, *case) for verb in VERBS for case in stage.sample(cases)])


class Scene:
    """A store of two generations and a single generation, both of the first user, to copy."""

    def __init__(self, stage, report):
        self.stage = stage
        self.report = report
        self.root = stage.directory("two-users")
        self.sources = self.place("sources")
        self.input(self.sources / "older.bin", OLDER)
        self.input(self.sources / "current.bin", CURRENT)
        self.input(self.sources / "new.bin", NEW)
        self.input(self.sources / "changes.bin", CHANGES)
        for source in ("older.bin", "current.bin"):
            self.first("build", self.sources / "store", "--input", self.sources / source, "--sharding", SPEC)

    def place(self, name):
        """A directory of the group, as an administrator makes it: what is created in it belongs to the group."""
        path = self.stage.directory(name.replace(" ", "_"), self.root)
        path.chmod(0o2775)
        return path

    def input(self, path, pairs):
        pair.write_bin(path, pairs)
        path.chmod(0o664)

    def first(self, *args):
        outcome = self.by(USER, *args)
        if outcome.code:
            raise RuntimeError(f"the first user could not prepare: {outcome}")
        return outcome.out

    def by(self, user, *args):
        return self.stage.sharddb(*args, user=user, group=USER, umask=0o002)

    def check(self, verb, mode):
        root = self.place(f"{verb}-{mode}")
        subprocess.run(["cp", "-a", self.sources / "store", root / "store"], check=True)
        subprocess.run(["cp", "-a", self.sources / "store/gen-0000000002", root / "given"], check=True)
        if MODES[mode]:
            subprocess.run(["chmod", "-R", MODES[mode], root / "store", root / "given"], check=True)
        given = tree.snapshot(root / "given")
        name = f"{verb} of what another user wrote, {mode}"
        try:
            changed, expected, is_moved = VERBS[verb](self, root)
        except RuntimeError as error:
            self.report.case(name, [str(error)])
            return
        problems = self.stage.wrong_in(changed, expected)
        if not is_moved:
            problems += tree.differences(given, tree.snapshot(root / "given"))
        again = self.by(USER, "put", changed, next(iter(expected)), "--value", "again")
        problems += again.problems((0,)) + self.stage.wrong_in(changed, {**expected, next(iter(expected)): b"again"})
        self.report.case(name, problems)
        remove(root)

    def second(self, *args):
        outcome = self.by(OTHER_USER, *args)
        problems = outcome.problems((0,))
        if problems:
            raise RuntimeError(f"the second user: {problems}")
        return outcome.out


def put(scene, root):
    key = next(iter(CHANGES))
    scene.second("put", root / "store", key, "--value", "changed")
    return root / "store", {**CURRENT, key: b"changed"}, False


def update(scene, root):
    scene.second("update", root / "store", "--input", scene.sources / "changes.bin")
    return root / "store", {**CURRENT, **CHANGES}, False


def update_base(scene, root):
    scene.second("update", root / "new", "--base", root / "given", "--input", scene.sources / "changes.bin")
    return root / "new", {**CURRENT, **CHANGES}, False


def build(scene, root):
    scene.second("build", root / "store", "--input", scene.sources / "new.bin", "--keep", "1")
    return root / "store", NEW, False


def gc(scene, root):
    scene.second("gc", root / "store", "--keep", "1")
    assert not (root / "store/gen-0000000001").exists()
    return root / "store", CURRENT, False


def rollback(scene, root):
    scene.second("rollback", root / "store")
    return root / "store", OLDER, False


def discard(scene, root):
    scene.second("discard", root / "store", "1")
    return root / "store", CURRENT, False


def publish(scene, root):
    scene.second("publish", root / "store", "--from", root / "given")
    return root / "store", CURRENT, False


def publish_move(scene, root):
    scene.second("publish", root / "store", "--from", root / "given", "--move")
    return root / "store", CURRENT, True


def publish_parts(scene, root):
    (root / "plan").write_bytes(scene.first("plan", "--keys", len(NEW), "--bytes", "1MB", "--parts", "2"))
    job = [root / "store", "night", "--plan", root / "plan"]
    (root / "spill").write_bytes(scene.first("spill", *job, "--task", "0", "--input", scene.sources / "new.bin"))
    parts = [scene.first("build-part", *job, "--spills", root / "spill", "--part", part) for part in ("0", "1")]
    (root / "parts").write_bytes(b"".join(parts))
    scene.second("publish-parts", *job, "--spills", root / "spill", "--parts", root / "parts")
    scene.second("clean-parts", root / "store", "night")
    return root / "store", NEW, False


VERBS = {
    "put": put,
    "update": update,
    "update --base": update_base,
    "build --keep": build,
    "gc": gc,
    "rollback": rollback,
    "discard": discard,
    "publish": publish,
    "publish --move": publish_move,
    "publish-parts": publish_parts,
}
