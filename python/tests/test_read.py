"""All reads return what the program that wrote the data says, in each mode."""

import contextlib
import gzip
import io
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from conftest import LIMIT, Expected, make_current, remove_generation, sha

import sharddb
import sharddb._sharddb

Mode = Literal["auto", "mmap", "pread", "memory"]
LEVELS: list[Literal["structure", "index", "data"]] = ["structure", "index", "data"]
MODES: list[Mode] = ["auto", "mmap", "pread", "memory"]


@pytest.fixture(params=MODES)
def db(request: pytest.FixtureRequest, store: Path) -> Iterator[sharddb.Database]:
    with sharddb.open(store, mode=request.param) as db:
        yield db


@pytest.fixture(params=[1, 2], ids=["raw", "gzip"])
def generation(request: pytest.FixtureRequest, store: Path) -> Path:
    return store / f"gen-{request.param:010}"


# ---- data sets of other programs ----


@pytest.mark.parametrize("mode", MODES)
def test_a_data_set_of_another_program(public: Expected, mode: Mode) -> None:
    keys = sorted(public.hashes)
    with sharddb.open(public.path, mode=mode) as db:
        assert len(db) == len(keys)
        assert db.keys(sorted=True).tolist() == keys
        assert sorted(db) == keys
        assert {key: sha(value) for key, value in db.items()} == public.hashes
        for key in keys:
            assert sha(db[key]) == public.hashes[key]
            assert sha(bytes(db.view(key))) == public.hashes[key]
            assert key in db
        for key in public.absent:
            assert key not in db
            assert db.get(key) is None
            with pytest.raises(KeyError):
                db[key]
        assert [value and sha(value) for value in db.get_many(public.absent)] == [None] * len(public.absent)
        assert db.generation is None
        assert db.info == json.loads((public.path / "info").read_text())


def test_locations_are_those_of_the_stored_bytes(public: Expected) -> None:
    with sharddb.open(public.path) as db:
        keys = [*public.hashes, *public.absent]
        files, file_no, offsets, lengths = db.locate_many(keys)
        for key, number, offset, length in zip(keys, file_no.tolist(), offsets.tolist(), lengths.tolist(), strict=True):
            if key in public.hashes:
                stored = Path(files[number]).read_bytes()[offset : offset + length]
                assert sha(gzip.decompress(stored) if db.spec["data_encoding"] == "gzip" else stored) == public.hashes[key]
            else:
                assert (number, offset, length) == (-1, 0, 0)
        assert [column.dtype.name for column in (file_no, offsets, lengths)] == ["int32", "int64", "int64"]


# ---- single keys ----


def test_a_mapping(db: sharddb.Database, pairs: dict[int, bytes]) -> None:
    assert len(db) == len(pairs)
    assert dict(db.items()) == pairs
    assert {key: db[key] for key in db} == pairs
    assert 3 not in pairs and 3 not in db
    assert db.get(3) is None
    assert db.get(3, b"default") == b"default"
    assert db.get(3, default=7) == 7
    with pytest.raises(KeyError) as raised:
        db[3]
    assert raised.value.args == (3,)


def test_an_empty_value_is_a_value(db: sharddb.Database, pairs: dict[int, bytes]) -> None:
    empty = next(key for key, value in pairs.items() if not value)
    assert db[empty] == b""
    assert db.get(empty) == b""
    assert empty in db
    assert len(db.view(empty)) == 0
    assert bytes(db.view(empty)) == b""
    assert db.view(empty) == b""


def test_a_view_has_a_readonly_buffer(generation: Path, pairs: dict[int, bytes]) -> None:
    key = max(pairs, key=lambda key: len(pairs[key]))
    with sharddb.open(generation) as db:
        view = db.view(key)
    # the database is closed, and its files may go
    for file in generation.iterdir():
        file.unlink()
    memory = memoryview(view)
    assert memory.readonly and memory.format == "B" and memory.shape == (len(pairs[key]),)
    assert memory == pairs[key] and view == pairs[key] and view == view
    assert view != pairs[key][1:] and view != "text" and not view == None  # noqa: E711
    assert np.frombuffer(memory, np.uint8).tobytes() == pairs[key]
    with pytest.raises(TypeError):
        memory[0] = 0
    with pytest.raises((BufferError, TypeError)):
        io.BytesIO(b"other").readinto(view)
    with pytest.raises(TypeError):
        hash(view)


def test_a_view_of_an_absent_key(db: sharddb.Database) -> None:
    with pytest.raises(KeyError):
        db.view(3)


# ---- batches ----


def test_batches(generation: Path, pairs: dict[int, bytes]) -> None:
    keys = [*pairs, 3, *pairs, 3]  # repeated and absent
    expected = [pairs.get(key) for key in keys]
    for mode in MODES:
        with sharddb.open(generation, mode=mode) as db:
            assert db.get_many(keys) == expected
            data, offsets, found = db.get_ragged(np.array(keys, np.uint64))
            assert [column.dtype.name for column in (data, offsets, found)] == ["uint8", "int64", "bool"]
            assert (len(offsets), len(found)) == (len(keys) + 1, len(keys))
            assert found.tolist() == [value is not None for value in expected]
            assert data.tobytes() == b"".join(value or b"" for value in expected)
            assert offsets.tolist() == np.cumsum([0] + [len(value or b"") for value in expected]).tolist()
            data[:] = 0  # arrays are of the caller
            assert db.get_many(keys) == expected


def test_no_keys(db: sharddb.Database) -> None:
    assert db.get_many([]) == []
    data, offsets, found = db.get_ragged([])
    assert (data.tolist(), offsets.tolist(), found.tolist()) == ([], [0], [])
    assert [column.dtype.name for column in (data, offsets, found)] == ["uint8", "int64", "bool"]
    files, file_no, offsets, lengths = db.locate_many([])
    assert (files, len(file_no), len(offsets), len(lengths)) == ([], 0, 0, 0)
    assert db.get_into([], np.empty((0, 4), np.uint8)).tolist() == []


@pytest.fixture
def equal_lengths(pairs: dict[int, bytes]) -> dict[int, bytes]:
    """The pairs of the most frequent length that is a multiple of 4 and not 0."""
    by_length: dict[int, dict[int, bytes]] = {}
    for key, value in pairs.items():
        by_length.setdefault(len(value), {})[key] = value
    return max((group for length, group in by_length.items() if length), key=len)


@pytest.mark.parametrize("dtype", ["u1", "S1", "bool", [("a", "u1")]])
def test_values_of_a_fixed_size(db: sharddb.Database, equal_lengths: dict[int, bytes], dtype: Any) -> None:
    keys = [*equal_lengths, 3]
    length = len(next(iter(equal_lengths.values())))
    out = np.frombuffer(bytearray(b"\1" * (length * len(keys))), dtype).reshape(len(keys), length)
    found = db.get_into(keys, out)
    assert found.tolist() == [True] * len(equal_lengths) + [False]
    assert [row.tobytes() for row in out] == [*equal_lengths.values(), b"\1" * length]


def test_a_value_of_another_length_names_its_key(db: sharddb.Database, pairs: dict[int, bytes]) -> None:
    key = next(key for key, value in pairs.items() if len(value) > 1)
    with pytest.raises(sharddb.InvalidInput, match=f"found one of {len(pairs[key])} .key {key}.") as raised:
        db.get_into([key], np.empty(1, np.uint8))
    assert raised.value.key == key and isinstance(raised.value, ValueError)


def read_only(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    array = np.zeros(shape, np.uint8)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "found"),
    [
        (np.zeros((2, 8), np.uint8)[:, ::2], "not C-contiguous"),
        (np.zeros((4, 4), np.uint8)[::2], "not C-contiguous"),
        (np.asfortranarray(np.zeros((2, 4), np.uint8)), "not C-contiguous"),
        (read_only((2, 4)), "read-only"),
        (np.zeros((3, 4), np.uint8), "3 rows for 2 keys"),
        (np.zeros((2, 1), object), "objects"),
        (np.zeros(2, [("O", "u4"), ("b", object)]), "objects"),
        (b"12345678", "read-only"),
    ],
)
def test_an_array_that_cannot_take_values(store: Path, out: Any, found: str) -> None:
    with sharddb.open(store) as db, pytest.raises(ValueError, match=found):
        db.get_into([0, 1], out)


def test_an_array_with_a_field_that_is_named_like_objects(store: Path, equal_lengths: dict[int, bytes]) -> None:
    length = len(next(iter(equal_lengths.values())))
    out = np.zeros(len(equal_lengths), [("O", "u1"), ("OP", "u1", (length - 1,))])
    with sharddb.open(store) as db:
        assert db.get_into(list(equal_lengths), out).all()
    assert [row.tobytes() for row in out] == list(equal_lengths.values())


@pytest.mark.parametrize("out", [np.zeros((), np.uint8), [0], None])
def test_no_array_with_an_axis(db: sharddb.Database, out: Any) -> None:
    with pytest.raises(TypeError, match="expected an array with at least one axis"):
        db.get_into([0], out)


# ---- listing ----


@pytest.mark.parametrize(
    "selection",
    [
        slice(None),
        slice(5, None),
        slice(None, 1 << 40),
        slice(1, 2**64 - 1),
        slice(2**64 - 1, 2**64),
        slice(2**64, None),
        slice(9, 5),
        range(0, 1 << 33),
        range(5, 5),
        range(0, 2**64),
    ],
)
def test_a_range_of_keys(db: sharddb.Database, pairs: dict[int, bytes], selection: slice | range) -> None:
    first = selection.start or 0
    stop = 2**64 if selection.stop is None else selection.stop
    assert db.keys(selection).tolist() == sorted(key for key in pairs if first <= key < stop)


def test_all_keys(db: sharddb.Database, pairs: dict[int, bytes]) -> None:
    assert db.keys().dtype == np.uint64
    assert db.keys().tolist() == list(db)
    assert db.keys(sorted=True).tolist() == sorted(pairs)


@pytest.mark.parametrize(
    ("selection", "error"),
    [
        (slice(0, 10, 2), ValueError),
        (range(10, 0, -1), ValueError),
        (slice(-1, None), OverflowError),
        (slice(0, 2**64 + 1), OverflowError),
        (slice(0.5, None), OverflowError),
        ((1, 2), TypeError),
        (7, TypeError),
    ],
)
def test_no_range_of_keys(db: sharddb.Database, selection: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        db.keys(selection)


# ---- options and metadata ----


@pytest.mark.parametrize("verify", ["once", "never", "always"])
def test_verification_of_reads(store: Path, pairs: dict[int, bytes], verify: Any) -> None:
    with sharddb.open(store, verify=verify) as db:
        assert dict(db.items()) == pairs


@pytest.mark.parametrize("options", [{"mode": "map"}, {"verify": "twice"}])
def test_an_unknown_option(store: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        sharddb.open(store, **options)


def test_a_pointer_selects_a_scale(tmp_path: Path, public: Expected) -> None:
    """The data set as the second scale of a volume."""
    spec = json.loads((public.path / "info").read_text())
    sharding = find_sharding(spec)
    scale = tmp_path / "scale"
    scale.mkdir()
    for shard in public.path.glob("*.shard"):
        (scale / shard.name).write_bytes(shard.read_bytes())
    info = {"scales": [{"key": "other", "sharding": sharding}, {"key": "scale", "sharding": sharding}]}
    (tmp_path / "info").write_text(json.dumps(info))
    with pytest.raises(sharddb.InvalidInput):
        sharddb.open(tmp_path)
    with sharddb.open(tmp_path, pointer="/scales/1") as db:
        assert {key: sha(value) for key, value in db.items()} == public.hashes


def find_sharding(info: Any) -> Any:
    if isinstance(info, dict):
        if "sharding" in info:
            return info["sharding"]
        return next((found for value in info.values() if (found := find_sharding(value))), None)
    return None


@pytest.mark.parametrize(
    ("name", "f_type", "is_mapped"),
    [
        ("ext4", 0xEF53, True),
        ("xfs", 0x58465342, True),
        ("btrfs", 0x9123683E, True),
        ("tmpfs", 0x01021994, True),
        ("overlay", 0x794C7630, True),
        ("nfs", 0x6969, False),
        ("lustre", 0x0BD00BD0, False),
        ("gpfs", 0x47504653, False),
        ("fuse", 0x65735546, False),
        ("cifs", 0xFF534D42, False),
        ("smb2", 0xFE534D42, False),
        ("9p", 0x01021997, False),
        ("ceph", 0x00C36400, False),
        ("afs", 0x5346414F, False),
        ("beegfs", 0x19830326, False),
        ("nothing known", 0x12345678, False),
        ("zero", 0, False),
    ],
)
def test_which_file_systems_are_mapped(name: str, f_type: int, is_mapped: bool) -> None:
    assert sharddb._sharddb._maps_files_on(f_type) == is_mapped


def test_metadata(store: Path) -> None:
    with sharddb.open(str(store)) as db:
        assert db.path == store
        assert db.generation == 1
        assert db.spec == {
            "@type": "neuroglancer_uint64_sharded_v1",
            "hash": "murmurhash3_x86_128",
            "preshift_bits": 0,
            "minishard_bits": 2,
            "shard_bits": 3,
            "minishard_index_encoding": "raw",
            "data_encoding": "raw",
        }
        assert db.info == json.loads((store / "current" / "info").read_text())
        stats = db.stats
        assert set(stats) == set(sharddb.Stats.__annotations__)
        assert (stats["generation"], stats["shards"], stats["keys"], stats["lease"]) == (1, 8, 185, "held")
        assert repr(db) == f'<sharddb.Database "{store}" (gen-0000000001)>'


def test_a_closed_database(store: Path) -> None:
    with sharddb.open(store) as db:
        snapshot = db.snapshot()
    assert repr(db) == "<sharddb.Database, closed>"
    uses: list[Any] = [
        lambda: db[0],
        lambda: db.get(0),
        lambda: 0 in db,
        lambda: len(db),
        lambda: iter(db),
        lambda: db.items(),
        lambda: db.keys(),
        lambda: db.view(0),
        lambda: db.get_many([]),
        lambda: db.get_ragged([]),
        lambda: db.get_into([], np.empty(0)),
        lambda: db.locate_many([]),
        lambda: db.refresh(),
        lambda: db.watch(1),
        lambda: db.snapshot(),
        lambda: db.verify(),
        lambda: db.stats,
        lambda: db.spec,
        lambda: db.info,
        lambda: db.generation,
        lambda: db.path,
        lambda: db.__reduce__(),
    ]
    for use in uses:
        with pytest.raises(sharddb.InvalidInput, match="found a closed one"):
            use()
    db.close()  # again
    assert len(snapshot) == 185  # is a handle of its own
    snapshot.close()
    with pytest.raises(sharddb.InvalidInput):
        snapshot[0]


# ---- generations ----


def test_refresh_follows_the_store(store: Path, pairs: dict[int, bytes]) -> None:
    with sharddb.open(store) as db:
        before = db.snapshot()
        assert db.refresh() is None
        make_current(store, 2)
        assert db.generation == 1
        assert db.refresh() == 2
        assert (db.generation, db.spec["data_encoding"]) == (2, "gzip")
        assert db.refresh() is None
        assert (before.generation, before.spec["data_encoding"]) == (1, "raw")
        assert dict(before.items()) == dict(db.items()) == pairs
        assert before.path == store / "gen-0000000001"
        make_current(store, 1)
        assert db.refresh() == 1


def test_a_generation_stays(store: Path) -> None:
    with sharddb.open(store / "gen-0000000001") as db:
        make_current(store, 2)
        assert db.refresh() is None
        with pytest.raises(sharddb.InvalidInput):
            db.watch(1)
        assert db.generation == 1


def test_a_refresh_releases_the_generation_before(store: Path, pairs: dict[int, bytes]) -> None:
    db = sharddb.open(store)
    assert db.get_many(list(pairs)) == list(pairs.values())
    make_current(store, 2)
    assert db.refresh() == 2
    assert db.stats["open_generations"] == 1
    with sharddb.Loader(store, mode="replace") as loader:
        loader[1] = b"third"
    report = sharddb.Store(store).gc(1)
    assert (report.removed, report.in_use) == ([1], [2])


def test_refresh_to_a_generation_that_is_gone(store: Path) -> None:
    with sharddb.open(store) as db:
        make_current(store, 2)
        remove_generation(store, 2)
        with pytest.raises(sharddb.GenerationGone):
            db.refresh()
        assert db.generation == 1 and db[0] is not None
        assert db.stats["failures"] == 1


def wait_for(condition: Any) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.001)


def test_a_watch_follows_until_the_database_is_closed(store: Path) -> None:
    wait_for(lambda: watches() == 0)  # those of earlier tests have ended
    db = sharddb.open(store)
    db.watch(0.001)
    make_current(store, 2)
    wait_for(lambda: db.generation == 2)
    assert watches() == 1
    db.watch(0.001)  # replaces the first
    wait_for(lambda: watches() == 1)
    make_current(store, 1)
    wait_for(lambda: db.generation == 1)
    db.watch(None)
    wait_for(lambda: watches() == 0)
    db.watch(60)
    db.close()
    wait_for(lambda: watches() == 0)


def watches() -> int:
    """The number of threads of watches."""

    def name(task: Path) -> str:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
            return (task / "comm").read_text().strip()
        return ""

    return [name(task) for task in Path("/proc/self/task").iterdir()].count("sharddb-watch")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_no_interval(store: Path, seconds: float) -> None:
    with sharddb.open(store) as db, pytest.raises(ValueError):
        db.watch(seconds)


# ---- damage ----


def test_damage_is_an_exception_with_its_place(store: Path, pairs: dict[int, bytes]) -> None:
    with sharddb.open(store) as db:
        key = max(pairs, key=lambda key: len(pairs[key]))
        files, file_no, offsets, _ = db.locate_many([key])
    shard = Path(files[file_no[0]])
    damaged = bytearray(shard.read_bytes())
    damaged[offsets[0] + 5] ^= 1
    shard.chmod(0o644)
    shard.write_bytes(damaged)
    with sharddb.open(store, mode="pread", verify="always") as db:
        reads: list[Any] = [
            lambda: db[key],
            lambda: db.get(key),
            lambda: db.view(key),
            lambda: db.get_many([key]),
            lambda: db.get_ragged([key]),
            lambda: db.get_into([key], np.zeros((1, len(pairs[key])), np.uint8)),
            lambda: dict(db.items()),
        ]
        for read in reads:
            with pytest.raises(sharddb.Corrupt) as raised:
                read()
            error = raised.value
            assert (error.kind, error.path, error.key) == ("corrupt", str(shard), key)
            assert error.shard == int(shard.stem, 16) and error.minishard is not None
        report = db.verify()
        assert not report.is_clean and report.errors >= 1 and report.level == "data"
        assert any(finding.path == str(shard) and finding.severity == "error" for finding in report.findings)


def test_broken_data_sets(corrupt: Path) -> None:
    """Undamaged keys of each set have their values; others have them too, are absent, or raise an error of the package."""
    outcomes: dict[str, int] = {}
    for path in sorted(path.parent for path in corrupt.glob("*/info")):
        probe = json.loads((path / "probe.json").read_text())
        hashes = {int(line["key"]): line.get("sha256") for line in map(json.loads, (path / "expected.jsonl").open())}
        for mode in MODES[1:3] if "bomb" not in path.name else MODES[1:2]:
            try:
                db = sharddb.open(path, mode=mode)
            except sharddb.Error as error:
                outcomes[error.kind] = outcomes.get(error.kind, 0) + 1
                assert not probe["ok_keys"] or error.kind in ("invalid-spec", "corrupt", "io"), path
                continue
            with db:
                for key in probe["ok_keys"]:
                    assert sha(db[key]) == hashes[key], (path, key)
                    assert db.get_many([key]) == [db[key]]
                reads: list[Any] = [lambda db=db, key=key: db.get(key) for key in probe["keys"]]
                for read in [*reads, db.keys, db.verify, lambda db=db: db.keys(sorted=True)]:
                    try:
                        read()
                    except sharddb.Error as error:
                        outcomes[error.kind] = outcomes.get(error.kind, 0) + 1
    assert outcomes["corrupt"] > 100 and outcomes["invalid-spec"] > 20, outcomes


class Bar:
    """What `tqdm` has, with a record."""

    total: float | None = None

    def __init__(self) -> None:
        self.shown = 0
        self.names: list[str] = []

    def set_description(self, desc: str, /) -> None:
        self.names.append(desc)

    def reset(self) -> None:
        self.shown = 0

    def update(self, n: int, /) -> None:
        self.shown += n


def test_verification(store: Path, pairs: dict[int, bytes]) -> None:
    with sharddb.open(store) as db:
        for level in LEVELS:
            bar = Bar()
            report = db.verify(level, bar)
            assert report.is_clean and report.level == level and report.findings == []
            assert report.shards == 8
            assert str(report).endswith("0 errors, 0 warnings, 0 notes")
            assert bar.names == ["verify"] and bar.shown == bar.total
        assert (report.keys, report.value_bytes) == (185, sum(map(len, pairs.values())))
        with pytest.raises(ValueError, match="level"):
            db.verify("everything")  # type: ignore[arg-type]


def test_an_exception_of_a_bar_is_raised(store: Path) -> None:
    class Broken(Bar):
        def update(self, n: int, /) -> None:
            raise RuntimeError("enough")

    with sharddb.open(store) as db, pytest.raises(RuntimeError, match="enough"):
        db.verify(progress=Broken())


# ---- threads and signals ----


def test_a_batch_ends_at_an_interrupt(store: Path) -> None:
    """A batch of many positioned reads, which take far longer than the time until the signal, ends at the signal."""
    keys = np.zeros(20_000_000, np.uint8)
    with sharddb.open(store, mode="pread") as db:
        timer = threading.Timer(0.1, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            db.get_ragged(keys)
        timer.join()


def test_other_threads_run_during_a_batch(store: Path) -> None:
    """Python takes the lock of the interpreter from no thread here: another one runs only if the batch gives it away."""
    ticks = 0
    is_done = False

    def tick() -> None:
        nonlocal ticks
        while not is_done:
            ticks += 1
            time.sleep(0.0001)

    keys = np.zeros(200_000, np.uint8)
    thread = threading.Thread(target=tick)
    interval = sys.getswitchinterval()
    with sharddb.open(store) as db:
        thread.start()
        sys.setswitchinterval(1000)
        try:
            for _ in range(1000):  # the other thread may have no core during one batch
                before = ticks
                db.get_ragged(keys)
                if ticks > before:
                    break
            else:
                pytest.fail("no other thread has run during a batch")
        finally:
            sys.setswitchinterval(interval)
            is_done = True
            thread.join()


def test_a_masked_array_takes_no_values(db: sharddb.Database) -> None:
    out = np.ma.masked_array(np.zeros((1, 4), np.uint8), mask=True)
    with pytest.raises(ValueError, match="found a masked array"):
        db.get_into([0], out)


def test_info_of_a_generation_that_was_removed(store: Path) -> None:
    with sharddb.open(store, mode="memory") as db:
        assert db.info["sharding"] == db.spec
        remove_generation(store, 1)
        with pytest.raises(sharddb.GenerationGone):
            db.info


def test_options_of_a_remote_database(store: Path, tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [{"disk_cache": tmp_path}, {"cache_bytes": 1}, {"disk_cache_bytes": 1}, {"request_cost": 1}, {"threads": 1}]
    for option in options:
        with pytest.raises(TypeError, match=f"expected {next(iter(option))} only next to a store"):
            sharddb.open(store, **option)
    for option in ({"mode": "pread"}, {"verify": "typo"}):
        with pytest.raises(TypeError, match=f"expected {next(iter(option))} only without a store"):
            sharddb.open("path", store=object(), **option)  # type: ignore[call-overload]


def test_a_snapshot_pins_no_other_generation(store: Path) -> None:
    """The database of a snapshot moves on and is closed; only the generation of the snapshot stays in use."""
    db = sharddb.open(store)
    snapshot = db.snapshot()
    make_current(store, 2)
    assert db.refresh() == 2
    db.close()
    with sharddb.Loader(store, mode="replace") as loader:
        loader[1] = b"third"
    assert sharddb.Store(store).gc(1).in_use == [1]
    assert snapshot.generation == 1 and snapshot.stats["open_generations"] == 1
    snapshot.close()
