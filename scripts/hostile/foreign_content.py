"""Directories with a user's files, under every name that the program uses, where each subcommand writes."""

import os
import shutil
from pathlib import Path

import pairs as pair
import tree
from stage import ERRORS, remove

OLD = pair.random_pairs(1, 40, 100)
OLDER = pair.random_pairs(2, 30, 100)
NEW = pair.random_pairs(3, 50, 100)
CHUNKS = {key: bytes([key] * 4) for key in range(4)}
TEXT = b"the only copy of a thesis\n"
RECENT, ANCIENT = "tmp-gen-1-18a1b2c3d4e5f607", "tmp-gen-999999-18a1b2c3d4e5f607"  # the form of our own names


def text(name, content=TEXT, mode=0o644):
    """A user's file."""

    def make(directory):
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)

    return make


def folder(name, inside="1.tex"):
    """A user's directory, with a file or empty."""

    def make(directory):
        (directory / name).mkdir()
        if inside:
            (directory / name / inside).write_bytes(TEXT)

    return make


def link(name, target):
    """A user's symbolic link."""
    return lambda directory: os.symlink(target, directory / name)


def hard_link(name):
    """A hard link to a user's file, which is in the directory `outside`."""
    return lambda directory: os.link(directory.parent / "outside" / "victim", directory / name)


def fifo(name):
    return lambda directory: os.mkfifo(directory / name)


def all_of(*makes):
    return lambda directory: [make(directory) for make in makes]


# Files of a user. No name here is that of a store's own file.
BESIDE = {
    "a user's tmp-thesis": folder("tmp-thesis"),
    "a user's tmp-notes.txt": text("tmp-notes.txt"),
    "a user's tmp-": text("tmp-"),
    "tmp-gen- file": text("tmp-gen-notes.txt"),
    "tmp-gen- without a number": folder("tmp-gen-thesis"),
    "tmp-gen- of our form, not our content": folder(RECENT),
    "tmp-gen- of our form, a shard's name and a thesis": all_of(folder(ANCIENT, "0.shard"), text(f"{ANCIENT}/a.tex")),
    "tmp-gen- of our form, a file": text(RECENT),
    "tmp-gen- of our form, a link": link(RECENT, "../outside"),
    "tmp-gen- of our form, spill links to a user's directory": all_of(
        folder(RECENT, None), link(f"{RECENT}/spill", "../../outside")
    ),
    "tmp-gc-gen- of our form, not our content": folder("tmp-gc-gen-0000000001"),
    "tmp-gc-notes": text("tmp-gc-notes"),
    "tmp-gc-gen-1": folder("tmp-gc-gen-1"),
    "tmp-current file": text("tmp-current"),
    "tmp-current directory": folder("tmp-current"),
    "tmp-current link elsewhere": link("tmp-current", "../outside"),
    "lease directory": folder("lease"),
    "lease file": text("lease"),
    "lease link": link("lease", "../outside/victim"),
    "lease fifo": fifo("lease"),
    "info file": text("info"),
    "info unreadable": text("info", mode=0),
    "info directory": folder("info"),
    "info fifo": fifo("info"),
    "info of a data set": text("info", b'{"sharding": {"@type": "neuroglancer_uint64_sharded_v1"}}'),
    "manifest.json": text("manifest.json"),
    "0.shard": text("0.shard"),
    "minishards": text("minishards"),
    "spill directory": folder("spill"),
    "spill link": link("spill", "../outside"),
    "history": text("history"),
    "moved-notes": text("moved-notes"),
    "moved-gen-1": text("moved-gen-1"),
    "the records of moves, of our form, not our content": all_of(
        *(text(f"moved-gen-{number:010}") for number in range(1, 5))
    ),
    "moved-gen- directory": folder("moved-gen-0000000003"),
    "moved-gen- link": link("moved-gen-0000000003", "../outside/victim"),
    "current.1 file": text("current.1"),
    "current.1 directory": folder("current.1"),
    "current.old": folder("current.old"),
    "parts-notes": folder("parts-notes"),
    "zarr.json": text("zarr.json", b'{"zarr_format": 3, "node_type": "array"}'),
    "bcolz meta": folder("meta", "storage"),
    "notes.txt": text("notes.txt"),
    "a name that is not UTF-8": lambda directory: Path(os.fsdecode(bytes(directory) + b"/\xff.txt")).write_bytes(TEXT),
    "gen-1": folder("gen-1"),
    "gen-notes": text("gen-notes"),
    "gen-9999999999, empty": folder("gen-9999999999", None),
    "gen-9999999999 with a file": folder("gen-9999999999"),
    "gen-9999999999 file": text("gen-9999999999"),
    "gen-0000000007 with a file": folder("gen-0000000007"),
    "gen-0000000007 link": link("gen-0000000007", "../outside"),
    "gen-0000000007 fifo": fifo("gen-0000000007"),
    "gen-0000000000 with a file": folder("gen-0000000000"),
}

# Files of a user under the names of a store's own files, which they replace.
INSTEAD = {
    "lock of another program": text("lock", b"pid=4711 host=alpha and more of it\n"),
    "lock of another program, short": text("lock", b"4711\n"),
    "lock of many lines": text("lock", b"gen-0000000001\n" * 3 + TEXT),
    "lock that is long": text("lock", TEXT * 50_000),
    "lock that begins with zeros": text("lock", bytes(30) + TEXT),
    "lock link to a user's file": link("lock", "../outside/victim"),
    "lock link to nothing": link("lock", "../outside/nothing"),
    "lock hard link": hard_link("lock"),
    "lock directory": folder("lock"),
    "lock fifo": fifo("lock"),
    "lock unreadable": text("lock", mode=0),
    "lock read-only": text("lock", mode=0o444),
    "history of another program": text("history"),
    "history that is long": text("history", b"gen-0000000001\n" * 1001),
    "history link to a user's file": link("history", "../outside/victim"),
    "history directory": folder("history"),
    "history fifo": fifo("history"),
    "history unreadable": text("history", mode=0),
    "current link elsewhere": link("current", "../outside"),
    "current link to a release": all_of(folder("releases"), link("current", "releases"), folder("tmp-uploads")),
    "current link to an absolute place": link("current", "/etc"),
    "current link to itself": link("current", "current"),
    "current link to nothing": link("current", "nothing"),
    "current directory": folder("current"),
    "current file": text("current"),
    "current empty": text("current", b""),
    "current that is long": text("current", TEXT * 50_000),
    "current fifo": fifo("current"),
    "current unreadable": text("current", mode=0),
    "gen-0000000001 with a user's file": folder("gen-0000000001"),
    "gen-0000000001 file": text("gen-0000000001"),
    "gen-0000000001 link": link("gen-0000000001", "../outside"),
}

# Names that a new file system or desktop creates in each directory. The program ignores them.
IGNORED = {
    "lost+found": folder("lost+found", None),
    "dotfiles": all_of(text(".directory"), folder(".Trash-0")),
}

GENERATION_LINK = ("gen-0000000007 link", "gen-0000000001 link")

# A data set of another format hides a store in the same directory, but not its generations.
HIDING = {"zarr.json", "bcolz meta"}

# The subcommands that create a missing store.
CREATING = {"build", "build --keep 1", "import", "publish", "publish --move"}


def run(stage, report):
    """Tries each content, in a directory of its own and in a store, with each subcommand."""
    scene = Scene(stage)
    # a directory with generations, even damaged ones, may have lost the files next to them, so it becomes a store
    cases = [("bare", name, make, not name.startswith("gen-")) for name, make in (BESIDE | INSTEAD).items()]
    cases += [("bare", name, make, False) for name, make in IGNORED.items()]
    cases += [("store", name, make, False) for name, make in (BESIDE | INSTEAD | IGNORED).items()]
    stage.each(lambda case: scene.check(report, *case), stage.with_verbs(cases, scene.verbs))


class Scene:
    """The inputs of the subcommands, and a store to copy."""

    def __init__(self, stage):
        self.stage = stage
        self.root = stage.directory("foreign")
        self.sources = self.root / "sources"
        self.sources.mkdir()
        pair.write_bin(self.sources / "input.bin", NEW)
        stage.build(self.sources / "new", NEW)
        stage.build(self.sources / "store", OLDER)
        stage.build(self.sources / "store", OLD)
        write_zarr(self.sources / "array.zarr")
        stage.give(self.root)
        self.verbs = {  # the arguments, and the pairs that are current afterwards
            "build": (["build", "STORE", "--input", self.sources / "input.bin"], NEW),
            "build --keep 1": (["build", "STORE", "--input", self.sources / "input.bin", "--keep", "1"], NEW),
            "import": (["import", self.sources / "array.zarr", "STORE"], CHUNKS),
            "publish": (["publish", "STORE", "--from", self.sources / "new/gen-0000000001"], NEW),
            "publish --move": (["publish", "STORE", "--from", "COPY", "--move"], NEW),
            "gc": (["gc", "STORE", "--keep", "1"], OLD),
            "rollback": (["rollback", "STORE"], OLDER),
            "salvage": (["salvage", self.sources / "new", "STORE"], NEW),
        }

    def check(self, report, verb, base, name, make, must_refuse):
        arguments, expected = self.verbs[verb]
        root = self.stage.directory(f"{verb}-{base}-{name}".replace("/", " ").replace(" ", "_"), self.root)
        store, copy = root / "store", root / "copy"
        (root / "outside").mkdir()
        (root / "outside" / "victim").write_bytes(TEXT)
        if base == "store":
            shutil.copytree(self.sources / "store", store, symlinks=True)
            for own in named_by(make, root):
                remove(store / own)
        else:
            store.mkdir()
        make(store)
        foreign = named_by(make, root, with_content=True)
        if verb == "publish --move":
            shutil.copytree(self.sources / "new/gen-0000000001", copy)
        self.stage.give(root)

        before = tree.snapshot(root)
        outcome = self.stage.sharddb(
            *(str({"STORE": store, "COPY": copy}.get(word, word)) for word in arguments),
            user=self.stage.user,
            name=f"{verb}",
        )
        after = tree.snapshot(root)

        problems = outcome.problems((0, *ERRORS), names=[store.relative_to(self.root)])
        kept = [entry for entry in before if entry.split("/")[0] == "outside"]
        # a link in place of a generation is collected as a link, and its target stays
        kept += [f"store/{entry}" for entry in foreign if not name.endswith(GENERATION_LINK)]
        problems += tree.differences(before, after, kept)
        readable = store / "current/" if name in HIDING else store
        if outcome.code == 0:
            if must_refuse:
                problems.append("expected an error, since this is no store but a user's directory")
            problems += self.stage.wrong_in(readable, expected)
        elif "cannot remove gen-" in outcome.err and (base == "store" or verb != "gc"):
            problems += self.stage.wrong_in(readable, expected)  # done, except for the foreign entry
        else:
            if name in IGNORED and verb in (CREATING if base == "bare" else self.verbs.keys() - {"salvage"}):
                problems.append(f"expected success, found exit code {outcome.code}: {outcome.err.strip()}")
            made = {"store/lock"} if base == "bare" and name.startswith("gen-") else set()
            problems += tree.differences(before, after, (before.keys() | after.keys()) - made)
        report.case(f"{verb} into a {base} directory with {name}", problems)
        remove(root)


def named_by(make, root, with_content=False):
    """The names that a content has in a directory: the topmost ones, or all of them."""
    twin = root / "twin" / "store"
    twin.mkdir(parents=True)
    (root / "twin" / "outside").mkdir()
    (root / "twin" / "outside" / "victim").write_bytes(b"")
    make(twin)
    names = list(tree.snapshot(twin))
    remove(root / "twin")
    return [name for name in names if with_content or "/" not in name]


def write_zarr(directory):
    """A Zarr v3 array of 4 x 4 bytes in four plain chunks."""
    (directory / "c/0").mkdir(parents=True)
    (directory / "c/1").mkdir()
    (directory / "zarr.json").write_text(
        '{"zarr_format": 3, "node_type": "array", "shape": [4, 4], "data_type": "uint8", "fill_value": 255,'
        ' "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}},'
        ' "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},'
        ' "codecs": [{"name": "bytes"}], "attributes": {}}'
    )
    for key, chunk in CHUNKS.items():
        (directory / f"c/{key // 2}/{key % 2}").write_bytes(chunk)
