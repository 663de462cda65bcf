"""What is pushed is in the bucket as it is on disk, and comes back; what fails or is refused leaves `current` as it was."""

import os
import pickle
import random
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import obstore
import obstore.fsspec
import pytest
from conftest import LIMIT, PUBLIC, output_of, program
from obstore.store import LocalStore, MemoryStore, S3Store
from remote_stores import Objects, Ranges, files
from test_progress import METHODS, NO_BARS, Bar
from test_store import Bar as Counting

import sharddb

PARTS_BYTES = 25 << 20
"""Length of a value in several parts of 8 MiB."""


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals are in the directory of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


@pytest.fixture
def local(tmp_path: Path) -> Path:
    return add(tmp_path / "store", {1: b"one", 2: b"two"})


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a shard of several parts."""
    return add(tmp_path_factory.mktemp("large") / "store", {7: random.Random(7).randbytes(PARTS_BYTES)})


def add(store: Path, pairs: dict[int, bytes]) -> Path:
    with sharddb.Loader(store, mode="update" if store.exists() else None) as loader:
        loader.extend(pairs)
    return store


def objects(store: Any) -> dict[str, bytes]:
    """Returns what a store has, as obstore lists and reads it."""
    return {meta["path"]: bytes(obstore.get(store, meta["path"]).bytes()) for page in obstore.list(store) for meta in page}


class Through:
    """A store that passes its calls on to one in memory. Tests override what fails."""

    def __init__(self) -> None:
        self.memory = MemoryStore()

    def put(self, path: str, file: Any, **options: Any) -> Any:
        return self.memory.put(path, file, **options)

    def get(self, path: str, **options: Any) -> Any:
        return self.memory.get(path, **options)

    def head(self, path: str) -> Any:
        return self.memory.head(path)

    def list(self, prefix: str | None = None, **options: Any) -> Any:
        return self.memory.list(prefix, **options)

    def delete(self, paths: str) -> None:
        self.memory.delete(paths)


@pytest.fixture(params=["memory", "python", "s3"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Stores of obstore, and one whose methods are Python."""
    if request.param == "s3":
        s3: Callable[[str], S3Store] = request.getfixturevalue("s3")
        return s3(tmp_path.name)
    return MemoryStore() if request.param == "memory" else Through()


# --- push and pull


def test_a_copy_follows_its_store(bucket: Any, local: Path, tmp_path: Path) -> None:
    first = sharddb.push(local, "some/store", store=bucket)
    assert first.published == first.generation and (first.keys, first.keys_before, first.skipped) == (2, None, 0)
    assert objects_of(bucket, f"some/store/{first.generation}/") == files(local / "current")
    assert (first.objects, first.bytes) == (3, sum(map(len, files(local / "current").values())))
    db = sharddb.open("some/store", store=bucket)
    assert dict(db.items()) == {1: b"one", 2: b"two"}

    again = sharddb.push(local, "some/store", store=bucket)
    assert (again.generation, again.published, again.skipped) == (first.generation, None, 3)

    add(local, {3: b"three"})
    second = sharddb.push(local / "current", "/some/store/", store=bucket)
    assert second.published != first.published and (second.keys, second.keys_before) == (3, 2)
    assert db.refresh() == second.generation and db[3] == b"three"

    copy = tmp_path / "copy"
    pulled = sharddb.pull("some/store", copy, store=bucket)
    assert (pulled.generation, pulled.published, pulled.pulled) == (1, 1, second.generation)
    assert files(copy / "current") == files(local / "current")
    assert sharddb.pull("some/store", copy, store=bucket).published is None
    older = sharddb.pull("some/store", copy, store=bucket, generation=first.generation)
    assert older.published == 2 and len(sharddb.open(copy)) == 2
    for report in (first, again, older):
        assert pickle.loads(pickle.dumps(report)) == report and hash(report)
        assert eval(repr(report), {"Pushed": dict, "Pulled": dict})["generation"] == report.generation


def objects_of(bucket: Any, prefix: str) -> dict[str, bytes]:
    store = bucket.memory if isinstance(bucket, Through) else bucket
    return {path.removeprefix(prefix): body for path, body in objects(store).items() if path.startswith(prefix)}


def test_an_object_of_several_parts(bucket: Any, large: Path, tmp_path: Path) -> None:
    pushed = sharddb.push(large, "store", store=bucket)
    assert objects_of(bucket, f"store/{pushed.generation}/") == files(large / "current")
    assert sharddb.pull("store", tmp_path / "copy", store=bucket).bytes > PARTS_BYTES
    assert files(tmp_path / "copy" / "current") == files(large / "current")


def test_a_url(s3: Callable[[str], S3Store], local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = s3("by/url").config
    environment = {"ENDPOINT_URL": str(config.get("endpoint")), "REGION": "us-east-1", "ACCESS_KEY_ID": "none", "SECRET_ACCESS_KEY": "none"}
    for name, value in {**environment, "ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    pushed = sharddb.push(local, "s3://bucket/by/url")
    assert sharddb.open("s3://bucket/by/url", store=s3("by/url")).generation == pushed.generation
    for form in ("s3://bucket/by/url/", "precomputed://s3://bucket/by/url"):
        assert sharddb.pull(form, tmp_path / "copy").pulled == pushed.generation
    files = obstore.fsspec.FsspecStore("s3", config=s3("").config, client_options=s3("").client_options)
    for system, path in ((files, "s3://bucket/by/url"), (files, "bucket/by/url"), (files.get_mapper("s3://bucket/by/url"), "")):
        assert sharddb.open(path, store=system).verify().is_clean
    with pytest.raises(sharddb.NotFound, match="s3://bucket/by/nothing"):
        sharddb.pull("s3://bucket/by/nothing", tmp_path / "copy")


def test_file_systems_and_mappers(local: Path, tmp_path: Path) -> None:
    store = MemoryStore()
    pushed = sharddb.push(local, "", store=store)
    memory = fsspec.filesystem("memory")
    memory.pipe({f"/pulled/store/{path}": body for path, body in objects(store).items()})
    places = [(memory, "/pulled/store"), (memory, "memory://pulled/store"), (memory.get_mapper("/pulled/store"), "")]
    for number, (system, path) in enumerate(places):
        copy = tmp_path / f"copy{number}"
        assert sharddb.pull(path, copy, store=system).pulled == pushed.generation
        assert files(copy / "current") == files(local / "current")
        with pytest.raises(TypeError, match="expected a store with conditional writes, .* found .*, a file system"):
            sharddb.push(local, path, store=system)
        db = sharddb.open(path, store=system)
        assert db.verify().is_clean and db.verify("lengths").is_clean
    memory.pipe(f"/pulled/store/{pushed.generation}/more", b"")
    assert [type(finding) for finding in db.verify("lengths").findings] == [sharddb.Corrupt]


@pytest.mark.parametrize("prefix", ["é", "a b", "a%20b", "a?b#c", "~[x]{y}^|<z>*", ""])
def test_a_prefix_of_any_characters(local: Path, tmp_path: Path, prefix: str) -> None:
    store = MemoryStore()
    assert sharddb.push(local, prefix, store=store).published
    assert sharddb.push(local, prefix, store=store).published is None
    db = sharddb.open(prefix, store=store)
    assert db.verify().is_clean and len(db) == 2
    assert sharddb.pull(prefix, tmp_path / "copy", store=store).published == 1


def test_references_without_a_size(local: Path) -> None:
    store = MemoryStore()
    sharddb.push(local, "", store=store)
    sources = local.parent / "objects"
    for path, body in objects(store).items():
        (sources / path).parent.mkdir(parents=True, exist_ok=True)
        (sources / path).write_bytes(body)
    references = {f"r/{path.relative_to(sources)}": [str(path)] for path in sources.rglob("*") if path.is_file()}
    system = fsspec.filesystem("reference", fo=references)
    assert system.find("r", detail=True)["r/current"]["size"] is None
    assert sharddb.open("r", store=system).verify().is_clean


# --- what is refused


@pytest.mark.parametrize("url", ["s3://bucket/store?v=2", "s3://bucket/store#2", "s3://bucket/a/../b", "nothing://a/b"])
def test_urls_of_no_directory(local: Path, tmp_path: Path, url: str) -> None:
    """obstore ignores the rest of such a URL, and replaced what is at its beginning."""
    with pytest.raises(ValueError, match="expected .* URL .*, found"):
        sharddb.push(local, url)
    with pytest.raises(ValueError, match="expected .* URL .*, found"):
        sharddb.pull(url, tmp_path / "copy")


def test_a_url_next_to_a_store(local: Path, tmp_path: Path) -> None:
    """The URL was the name of the root, whatever its path."""
    store = MemoryStore()
    with pytest.raises(ValueError, match='expected a path in the store, which is "" for its root, found the URL s3://bucket/some'):
        sharddb.push(local, "s3://bucket/some", store=store)
    with pytest.raises(ValueError, match="found the URL s3://bucket/some"):
        sharddb.pull("s3://bucket/some", tmp_path / "copy", store=store)
    assert objects(store) == {}


def test_what_is_no_store_or_no_place(local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Callable[..., object]] = [
        lambda path, **place: sharddb.push(local, path, **place),
        lambda path, **place: sharddb.pull(path, tmp_path / "copy", **place),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="expected store to be an object store with the methods .* of obspec, .* found object without"):
            call("store", store=object())
        with pytest.raises(ValueError, match="expected a URL such as s3://bucket/store, or a path and store=.., found 'some/store'"):
            call("some/store")
        with pytest.raises(sharddb.InvalidInput, match="names separated by /"):
            call("some//store", store=MemoryStore())
    with pytest.raises(TypeError, match="found Ranges without put"):
        sharddb.push(local, "", store=Ranges({}))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    for call in calls:
        with pytest.raises(ImportError, match="pip install obstore, or pass store="):
            call("s3://bucket/store")
    assert not (tmp_path / "copy").exists()


def test_an_error_names_the_bucket_and_no_secret(s3: Callable[[str], S3Store], tmp_path: Path) -> None:
    class Secret(Through):
        def __repr__(self) -> str:
            return "Secret(key='of the user')"

    for store, name in ((s3("of/nobody"), 'S3Store(bucket="bucket", prefix="of/nobody")/a/current'), (Secret(), "Secret/a/current")):
        with pytest.raises(sharddb.NotFound) as raised:
            sharddb.pull("a", tmp_path / "copy", store=store)
        assert raised.value.path == name


class WithoutConditions(Through):
    def put(self, path: str, file: Any, **options: Any) -> Any:
        return super().put(path, file, **{**options, "mode": "overwrite"})


def test_a_store_without_conditional_writes(local: Path, tmp_path: Path) -> None:
    without = WithoutConditions()
    with pytest.raises(sharddb.Unsupported, match="expected a store with conditional writes"):
        sharddb.push(local, "store", store=without)
    assert objects(without.memory) == {}
    (tmp_path / "bucket").mkdir()
    with pytest.raises(sharddb.Unsupported):
        sharddb.push(local, "store", store=LocalStore(tmp_path / "bucket"))


def test_what_cannot_be_pushed_or_pulled(local: Path, tmp_path: Path) -> None:
    store = MemoryStore()
    with pytest.raises(sharddb.InvalidInput):
        sharddb.push(PUBLIC / "cv_10k_id", "store", store=store)
    with pytest.raises(sharddb.NotFound):
        sharddb.push(tmp_path / "nothing", "store", store=store)
    store.put("foreign/info", b"{}")
    with pytest.raises(sharddb.InvalidInput, match="found a data set with an info"):
        sharddb.push(local, "foreign", store=store)
    with pytest.raises(sharddb.NotFound):
        sharddb.pull("nothing", tmp_path / "copy", store=store)
    sharddb.push(local, "store", store=store)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(sharddb.InvalidInput):
        sharddb.pull("store", tmp_path / "file", store=store)
    with pytest.raises(sharddb.InvalidInput):
        sharddb.pull("store", tmp_path / "copy", store=store, generation="gen-1")


def test_an_empty_generation_replaces_no_keys_unless_allowed(bucket: Any, local: Path, tmp_path: Path) -> None:
    with sharddb.Loader(tmp_path / "empty"):
        pass
    sharddb.push(local, "store", store=bucket)
    sharddb.pull("store", tmp_path / "copy", store=bucket)
    with pytest.raises(sharddb.Empty, match="has 2 keys: nothing was published"):
        sharddb.push(tmp_path / "empty", "store", store=bucket)
    emptied = sharddb.push(tmp_path / "empty", "store", store=bucket, allow_empty=True)
    assert (emptied.keys, emptied.keys_before) == (0, 2)
    with pytest.raises(sharddb.Empty, match="gen-0000000001 has 2 keys"):
        sharddb.pull("store", tmp_path / "copy", store=bucket)
    assert len(sharddb.open(tmp_path / "copy")) == 2
    assert sharddb.pull("store", tmp_path / "copy", store=bucket, allow_empty=True).published == 2
    assert len(sharddb.open(tmp_path / "copy")) == 0


# --- what fails


class Failing(Through):
    """Fails in the writes of objects of this name, after some parts of one that has several."""

    def __init__(self, name: str, parts: int = 0) -> None:
        super().__init__()
        self.name, self.parts = name, parts

    def put(self, path: str, file: Any, **options: Any) -> Any:
        if self.name and path.endswith(self.name):
            if not isinstance(file, bytes):
                for _ in range(self.parts):
                    next(file)
            raise ConnectionResetError("the planned failure")
        return super().put(path, file, **options)


@pytest.mark.parametrize("name", ["/info", ".shard", "/manifest.json", "store/current"])
def test_a_push_that_fails_is_continued(local: Path, name: str) -> None:
    store = Failing(name)
    with pytest.raises(sharddb.Io, match="the planned failure"):
        sharddb.push(local, "store", store=store)
    assert "store/current" not in objects(store.memory)
    left = [path for path in objects(store.memory) if "gen-" in path]
    store.name = ""
    pushed = sharddb.push(local, "store", store=store)
    assert pushed.skipped == len(left)
    assert objects_of(store, f"store/{pushed.generation}/") == files(local / "current")


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_an_upload_of_parts_that_fails_ends(large: Path, parts: int) -> None:
    store = Failing(".shard", parts)
    with pytest.raises(sharddb.Io, match="the planned failure"):
        sharddb.push(large, "store", store=store)
    assert "store/current" not in objects(store.memory)
    store.name = ""
    assert sharddb.push(large, "store", store=store).published


class Ending(Through):
    """Does not read all parts, and answers as if it did."""

    def put(self, path: str, file: Any, **options: Any) -> Any:
        return super().put(path, file if isinstance(file, bytes) else next(file), **{**options, "use_multipart": False})


def test_an_upload_that_ends_too_early_is_not_published(large: Path) -> None:
    store = Ending()
    with pytest.raises(sharddb.Io, match="it ended before it had all parts"):
        sharddb.push(large, "store", store=store)
    assert "store/current" not in objects(store.memory)


def test_a_damaged_local_file_is_not_published(large: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(large, copy, symlinks=True)
    shard = next((copy / "current").glob("*.shard"))
    with shard.open("r+b") as file:
        file.seek(20 << 20)
        file.write(b"damage")
    store = Through()
    with pytest.raises(sharddb.Corrupt, match=shard.name):
        sharddb.push(copy, "store", store=store)
    assert not any(path.endswith((".shard", "current")) for path in objects(store.memory))


class Overtaken(Through):
    """Another publisher is faster: it is done when the manifest is written."""

    def __init__(self, other: Path) -> None:
        super().__init__()
        self.other = other

    def put(self, path: str, file: Any, **options: Any) -> Any:
        if path.endswith("manifest.json") and (other := self.other):
            self.other = Path()
            if other != Path():
                sharddb.push(other, "store", store=self.memory)
        return super().put(path, file, **options)


def test_of_two_publishers_one_is_refused(local: Path, tmp_path: Path) -> None:
    store = Overtaken(add(tmp_path / "other", {9: b"nine"}))
    with pytest.raises(sharddb.Locked):
        sharddb.push(local, "store", store=store)
    assert dict(sharddb.open("store", store=store).items()) == {9: b"nine"}


@pytest.mark.parametrize("damage", ["bytes", "length", "missing"])
def test_a_damaged_object(large: Path, tmp_path: Path, damage: str) -> None:
    store = MemoryStore()
    generation = sharddb.push(large, "store", store=store).generation
    db = sharddb.open("store", store=store)
    path, body = next((path, body) for path, body in objects(store).items() if path.endswith(".shard"))
    store.delete(path)
    if damage != "missing":
        store.put(path, body[:-1] + (bytes([body[-1] ^ 1]) if damage == "bytes" else b""))
    with pytest.raises(sharddb.Corrupt, match=Path(path).name):
        sharddb.pull("store", tmp_path / "copy", store=store)
    assert not list((tmp_path / "copy").glob("gen-*"))
    report = db.verify()
    assert not report.is_clean and (report.level, report.generation) == ("data", generation)
    assert [(type(finding), finding.path) for finding in report.findings] == [(sharddb.Corrupt, path)]
    assert db.verify("lengths").is_clean == (damage == "bytes")
    assert pickle.loads(pickle.dumps(report)).findings[0].path == path


# --- verify


@pytest.mark.parametrize("name", ["manifest.json", "info"])
def test_a_damaged_manifest_is_a_finding(local: Path, name: str) -> None:
    store = MemoryStore()
    generation = sharddb.push(local, "store", store=store).generation
    db = sharddb.open("store", store=store)
    path = f"store/{generation}/{name}"
    store.put(path, objects(store)[path].replace(b"0", b"1"))
    assert [(type(finding), finding.path) for finding in db.verify().findings] == [(sharddb.Corrupt, path)]


def test_verify_reads_the_values_where_there_is_no_list(local: Path) -> None:
    store = Objects(files(local / "current"))
    for stores, path in ((store, ""), (Ranges(files(PUBLIC / "cv_10k_id")), "")):
        with sharddb.open(path, store=stores) as db:
            values = sum(len(value) for _, value in db.items())
            for level in ("lengths", "data"):
                assert db.verify(level) == (level, None, values, [])
    shard = next(name for name in store.objects if name.endswith(".shard"))
    store.objects[shard] = store.objects[shard].replace(b"two", b"TWO")
    assert [finding.key for finding in sharddb.open("", store=store).verify().findings] == [2]
    with pytest.raises(ValueError, match='expected level to be "lengths" or "data", found \'index\''):
        db.verify("index")  # type: ignore[arg-type]
    with pytest.raises(sharddb.InvalidInput):
        db.verify()  # closed


def test_a_snapshot_verifies_its_generation(local: Path) -> None:
    store = MemoryStore()
    first = sharddb.push(local, "store", store=store).generation
    snapshot = sharddb.open("store", store=store).snapshot()
    add(local, {3: b"three"})
    sharddb.push(local, "store", store=store)
    assert snapshot.verify().generation == first
    for path in objects(store):
        if first in path:
            store.delete(path)
    with pytest.raises((sharddb.GenerationGone, sharddb.NotFound)):
        snapshot.verify()


# --- progress and signals


def test_bars(large: Path, tmp_path: Path) -> None:
    store = MemoryStore()
    pushed = sharddb.push(large, "store", store=store, progress=(bar := Counting()))
    assert (bar.phases, bar.total, bar.done) == (["copy"], pushed.bytes, pushed.bytes)
    pulled = sharddb.pull("store", tmp_path / "copy", store=store, progress=(bar := Counting()))
    assert (bar.phases, bar.total, bar.done) == (["copy"], pulled.bytes, pulled.bytes)
    for path in ("store", f"store/{pushed.generation}"):
        db = sharddb.open(path, store=store)
        report = db.verify(progress=(bar := Counting()))
        assert (bar.phases, bar.done) == (["verify"], report.bytes)


@pytest.mark.parametrize("method", METHODS)
def test_a_bar_that_raises_ends_the_work_unpublished(local: Path, tmp_path: Path, method: str) -> None:
    store = MemoryStore()
    with pytest.raises(LookupError, match=method):
        sharddb.push(local, "store", store=store, progress=Bar(method))
    assert "store/current" not in objects(store)
    sharddb.push(local, "store", store=store)
    with pytest.raises(LookupError, match=method):
        sharddb.pull("store", tmp_path / "copy", store=store, progress=Bar(method))
    assert not list((tmp_path / "copy").glob("gen-*"))
    for path in ("store", "store/" + sharddb.open("store", store=store).generation):  # type: ignore[operator]
        with pytest.raises(LookupError, match=method):
            sharddb.open(path, store=store).verify(progress=Bar(method))


@pytest.mark.parametrize(("bar", "missing"), NO_BARS)
def test_what_is_no_bar_is_refused_before_the_work(local: Path, tmp_path: Path, bar: Any, missing: str) -> None:
    store = Through()
    db = sharddb.open("", store=Objects(files(local / "current")))
    works: list[Callable[[], Any]] = [
        lambda: sharddb.push(local, "store", store=store, progress=bar),
        lambda: sharddb.pull("store", tmp_path / "copy", store=store, progress=bar),
        lambda: db.verify(progress=bar),
    ]
    for work in works:
        with pytest.raises(TypeError, match=f"expected progress to be a bar such as tqdm.*{missing}"):
            work()
    assert objects(store.memory) == {} and not (tmp_path / "copy").exists()


HANGING = """
import os, signal, sys, threading
import sharddb
sys.path.insert(0, sys.argv[3])
from test_bucket import Through

class Hanging(Through):
    def put(self, path, file, **options):
        if path.endswith(sys.argv[4]):
            if not isinstance(file, bytes):
                next(file)
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait()
        return super().put(path, file, **options)

try:
    sharddb.push(sys.argv[1], "store", store=Hanging(), journal=sys.argv[2])
except KeyboardInterrupt as error:
    print("interrupted", getattr(error, "__notes__", []), flush=True)
os._exit(0)  # a thread of the store hangs
"""


@pytest.mark.parametrize("name", ["/info", ".shard"])
@pytest.mark.parametrize("size", ["small", "parts"])
def test_ctrl_c_ends_a_push_whose_store_hangs(local: Path, large: Path, tmp_path: Path, name: str, size: str) -> None:
    store = local if size == "small" else large
    with program(HANGING, str(store), str(tmp_path / "journal"), str(Path(__file__).parent), name) as process:
        assert output_of(process) == "interrupted []\n"


EXIT = """
import os, signal, sys, threading, time
import sharddb
sys.path.insert(0, sys.argv[3])
from test_bucket import Through

class Slow(Through):
    def put(self, path, file, **options):
        if path.endswith("/info"):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(int(sys.argv[4])):
                time.sleep(0.001)
        return super().put(path, file, **options)

if sys.argv[5:]:
    timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()
try:
    sharddb.push(sys.argv[1], "store", store=Slow(), journal=sys.argv[2])
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(("steps", "code"), [(300, 0), (10**9, 130)])
def test_the_interpreter_exits_after_an_interrupted_push(local: Path, tmp_path: Path, steps: int, code: int) -> None:
    """A thread that runs Python code at the end of the interpreter ends the process by a signal."""
    arguments = [str(local), str(tmp_path / "journal"), str(Path(__file__).parent), str(steps), *["again"] * (code != 0)]
    with program(EXIT, *arguments) as process:
        output, errors = process.communicate()
        assert (process.returncode, output) == (code, "interrupted\n"), errors


class Signals(Through):
    """A signal arrives during the publication."""

    def put(self, path: str, file: Any, **options: Any) -> Any:
        written = super().put(path, file, **options)
        if path == "store/current":
            os.kill(os.getpid(), signal.SIGINT)
        return written


def test_a_signal_during_the_publication_says_so(local: Path) -> None:
    store = Signals()
    with pytest.raises(KeyboardInterrupt) as raised:
        sharddb.push(local, "store", store=store)
    generation = sharddb.open("store", store=store).generation
    assert raised.value.__notes__ == [f"{generation} was published before this exception was raised"]


def test_threads(large: Path, tmp_path: Path) -> None:
    """Other threads run during a push, and several pushes at a time."""
    store = Through()
    failures = list[BaseException]()

    def push(number: int) -> None:
        try:
            assert sharddb.push(large, f"store{number}", store=store, journal=tmp_path / str(number)).published
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=push, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not failures and not any(thread.is_alive() for thread in threads)
