"""A loader publishes exactly the pairs that it was given, or nothing."""

import errno
import gc
import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_fork import limit_child

import sharddb

PAIRS = {0: b"", 7: b"seven", 2**64 - 1: b"last", 42: bytes(range(256)) * 100}


def read(store: Path) -> dict[int, bytes]:
    with sharddb.open(store) as db:
        return {int(key): db[int(key)] for key in db.keys()}


def files(directory: Path) -> list[str]:
    """The names below a directory."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def ragged(values: list[bytes]) -> tuple[np.ndarray[Any, Any], bytes]:
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int64)
    return offsets, b"".join(values)


def test_item_assignment(tmp_path: Path) -> None:
    loader = sharddb.Loader(tmp_path / "store")
    for key, value in PAIRS.items():
        loader[key] = value
    published = loader.finish()
    assert read(tmp_path / "store") == PAIRS
    assert (published.generation, published.keys, published.dropped) == (1, 4, 0)
    assert published.value_bytes == sum(map(len, PAIRS.values()))
    assert published.shards == len(list((tmp_path / "store/current").glob("*.shard")))
    assert published.file_bytes == sum(path.stat().st_size for path in (tmp_path / "store/current").glob("*.shard"))
    assert published.spec == json.loads((tmp_path / "store/current/info").read_text())["sharding"]
    assert loader.published == published
    assert repr(published).startswith("Published(generation=1, keys=4, ")


def test_context_manager_finishes(tmp_path: Path) -> None:
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend(PAIRS)
    assert loader.published is not None and loader.published.keys == 4
    assert read(tmp_path / "store") == PAIRS


def test_context_manager_may_be_finished_in_the_block(tmp_path: Path) -> None:
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend(PAIRS)
        loader.finish()
    assert sharddb.Store(tmp_path / "store").current == 1


def test_an_exception_in_the_block_publishes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), sharddb.Loader(tmp_path / "store") as loader:
        loader.extend(PAIRS)
        1 / 0
    assert not (tmp_path / "store").exists()
    assert loader.published is None


VALUES = [b"a", memoryview(b"a"), bytearray(b"a"), np.frombuffer(b"a", np.uint8), np.frombuffer(b"a", np.int8)]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_any_contiguous_buffer(tmp_path: Path, value: Any) -> None:
    with sharddb.Loader(tmp_path / "store") as loader:
        loader[1] = value
        loader[2] = np.arange(3, dtype=">u4")
    assert read(tmp_path / "store") == {1: b"a", 2: bytes([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2])}


@pytest.mark.parametrize("form", ["dict", "items", "lists", "generator", "zip"])
def test_extend_takes_pairs_in_any_form(tmp_path: Path, form: str) -> None:
    forms: dict[str, Callable[[], Any]] = {
        "dict": lambda: PAIRS,
        "items": PAIRS.items,
        "lists": lambda: [[key, value] for key, value in PAIRS.items()],
        "generator": lambda: ((key, value) for key, value in PAIRS.items()),
        "zip": lambda: zip(np.array(list(PAIRS), np.uint64), PAIRS.values(), strict=True),
    }
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend(forms[form]())
    assert read(tmp_path / "store") == PAIRS


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", ">u2", "<i4", ">i4", "<u8", ">u8", "<i8", ">i8"])
def test_ragged_arrays_of_every_integer_dtype(tmp_path: Path, dtype: str) -> None:
    values = [bytes([key]) * key for key in range(100)]
    offsets, data = ragged(values)
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend(np.arange(100).astype(dtype), offsets, data)
    assert read(tmp_path / "store") == dict(enumerate(values))


def test_ragged_arrays_larger_than_a_batch(tmp_path: Path) -> None:
    """More pairs than a batch, values larger than a batch, strided keys, and data that begins after 0."""
    rng = np.random.default_rng(19)
    keys = rng.permutation(np.arange(2 * 40_000, dtype=np.uint64))[::2]
    lengths = rng.integers(0, 60, len(keys))
    lengths[[0, 20_000, 39_999]] = 3 << 20
    offsets = 5 + np.concatenate([[0], np.cumsum(lengths)])
    data = rng.integers(0, 256, offsets[-1] + 9, dtype=np.uint8)
    with sharddb.Loader(tmp_path / "store", memory="64MiB") as loader:
        loader.extend(keys, offsets, data)
    ends = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    expected = {int(key): data[begin:end].tobytes() for key, (begin, end) in zip(keys, ends, strict=True)}
    assert read(tmp_path / "store") == expected


def test_no_pairs(tmp_path: Path) -> None:
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend([], [0], b"")
        loader.extend({})
    assert read(tmp_path / "store") == {}


BAD_ARRAYS = [
    ("float keys", (np.zeros(1), [0, 1], b"a"), TypeError, "integers"),
    ("bool keys", (np.zeros(1, bool), [0, 1], b"a"), TypeError, "integers"),
    ("object keys", (np.zeros(1, object), [0, 1], b"a"), TypeError, "integers"),
    ("negative key", (np.array([-1]), [0, 1], b"a"), OverflowError, "-1"),
    ("large key", ([2**64], [0, 1], b"a"), OverflowError, "18446744073709551616"),
    ("keys in two dimensions", (np.zeros((1, 1), int), [0, 1], b"a"), ValueError, "dimension"),
    ("no offsets", ([1], [], b"a"), ValueError, "one more offset than the 1 keys, found 0"),
    ("too few offsets", ([1], [0], b"a"), ValueError, "found 1 offsets"),
    ("too many offsets", ([1], [0, 1, 1], b"a"), ValueError, "found 3 offsets"),
    ("offsets that descend", ([1, 2, 3], [0, 3, 2, 3], b"abc"), ValueError, "found 2 after 3 at index 2"),
    ("negative offset", ([1], np.array([-1, 1]), b"a"), OverflowError, "-1"),
    ("offset past the data", ([1], [0, 2], b"a"), ValueError, "within the 1 bytes of data, found 2"),
    ("offset past 2**63", ([1], np.array([0, 2**64 - 1], np.uint64), b"a"), ValueError, "within the 1 bytes"),
    ("float offsets", ([1], np.array([0.0, 1.0]), b"a"), TypeError, "integers"),
    ("text as data", ([1], [0, 1], "a"), TypeError, "expected bytes"),
    ("list as data", ([1], [0, 1], [1]), TypeError, "expected bytes"),
    ("strided data", ([1], [0, 1], np.zeros(4, np.uint8)[::2]), ValueError, "contiguous"),
    ("only offsets", ([1], [0, 1]), TypeError, "extend"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), [bad[1:] for bad in BAD_ARRAYS], ids=[b[0] for b in BAD_ARRAYS])
def test_bad_arrays(tmp_path: Path, arguments: Any, error: type[Exception], message: str) -> None:
    loader = sharddb.Loader(tmp_path / "store")
    loader[5] = b"before"
    with pytest.raises(error, match=message):
        loader.extend(*arguments)
    assert not (tmp_path / "store").exists()
    with pytest.raises(sharddb.InvalidInput, match="failed"):
        loader.finish()


BAD_PAIRS: list[tuple[str, Any, type[Exception], str]] = [
    ("number", 7, TypeError, "expected a mapping"),
    ("no pairs", [1, 2], TypeError, "pairs of a key"),
    ("a triple", [(1, b"a", b"b")], ValueError, "found 3 items"),
    ("text", ["ab"], TypeError, "integer"),
    ("text value", [(1, "a")], TypeError, "expected bytes, or an object with a buffer of them, found str"),
    ("no value", {1: None}, TypeError, "NoneType"),
    ("float key", {1.0: b"a"}, TypeError, "integer"),
    ("bool key", {True: b"a"}, TypeError, "bool"),
    ("negative key", {-1: b"a"}, OverflowError, "-1"),
    ("strided value", {1: memoryview(b"abcd")[::2]}, ValueError, "contiguous"),
]


@pytest.mark.parametrize(("pairs", "error", "message"), [bad[1:] for bad in BAD_PAIRS], ids=[bad[0] for bad in BAD_PAIRS])
def test_bad_pairs(tmp_path: Path, pairs: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message), sharddb.Loader(tmp_path / "store") as loader:
        loader.extend(pairs)
    assert not (tmp_path / "store").exists()


def test_a_bad_assignment_is_not_forgotten(tmp_path: Path) -> None:
    loader = sharddb.Loader(tmp_path / "store")
    with pytest.raises(TypeError):
        loader[1] = "text"  # type: ignore[assignment]
    with pytest.raises(sharddb.InvalidInput):
        loader[2] = b"two"
    with pytest.raises(sharddb.InvalidInput):
        loader.finish()
    assert not (tmp_path / "store").exists()


def test_an_iterator_that_raises(tmp_path: Path) -> None:
    def pairs() -> Iterator[tuple[int, bytes]]:
        for key in range(100_000):
            yield key, b"value"
        raise LookupError("the source is gone")

    loader = sharddb.Loader(tmp_path / "store")
    with pytest.raises(LookupError, match="gone"):
        loader.extend(pairs())
    with pytest.raises(sharddb.InvalidInput):
        loader.finish()
    assert not (tmp_path / "store").exists()


def test_a_mapping_that_changes(tmp_path: Path) -> None:
    pairs: dict[int, bytes] = {1: b"a", 2: b"b"}

    def changing() -> Iterator[tuple[int, bytes]]:
        for key, value in pairs.items():
            pairs[key + 10] = value
            yield key, value

    with pytest.raises(RuntimeError, match="changed size"), sharddb.Loader(tmp_path / "store") as loader:
        loader.extend(changing())
    assert not (tmp_path / "store").exists()


def test_use_of_a_loader_within_its_use(tmp_path: Path) -> None:
    loader = sharddb.Loader(tmp_path / "store")

    def pairs() -> Iterator[tuple[int, bytes]]:
        yield 1, b"one"
        loader[2] = b"two"

    with pytest.raises(sharddb.InvalidInput, match="under way"):
        loader.extend(pairs())


def test_duplicate_keys_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(sharddb.DuplicateKey) as raised, sharddb.Loader(tmp_path / "store") as loader:
        loader.extend([(1, b"a"), (2, b"b"), (2, b"c")])
    assert raised.value.key == 2
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("policy", "expected", "dropped"), [("first", b"b", 1), ("last", b"c", 1)])
def test_duplicate_keys_by_policy(tmp_path: Path, policy: Any, expected: bytes, dropped: int) -> None:
    with sharddb.Loader(tmp_path / "store", on_duplicate=policy) as loader:
        loader.extend([(1, b"a"), (2, b"b"), (2, b"c")])
    assert read(tmp_path / "store") == {1: b"a", 2: expected}
    assert loader.published is not None and loader.published.dropped == dropped


def test_a_merge_function_runs_in_the_thread_of_finish(tmp_path: Path) -> None:
    threads = set()
    expected: dict[int, list[bytes]] = {}

    def join(key: int, values: list[bytes]) -> bytes:
        threads.add(threading.current_thread())
        return key.to_bytes(2, "big") + b"|".join(values)

    with sharddb.Loader(tmp_path / "store", on_duplicate=join, memory="16MiB") as loader:
        for part in range(20):
            for key in range(part, 1000, 1 + part):
                value = b"%d" % part * 50
                loader[key] = value
                expected.setdefault(key, []).append(value)
    assert read(tmp_path / "store") == {k: k.to_bytes(2, "big") + b"|".join(v) for k, v in expected.items()}
    assert threads == {threading.current_thread()}


def test_a_merge_function_that_raises(tmp_path: Path) -> None:
    def fail(key: int, values: list[bytes]) -> bytes:
        if key == 500:
            raise LookupError("no such label")
        return values[0]

    with pytest.raises(LookupError, match="no such label"), sharddb.Loader(tmp_path / "store", on_duplicate=fail) as loader:
        loader.extend((key, b"value") for key in range(1000))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("result", [None, "text", 7, ["a"]])
def test_a_merge_function_that_returns_no_bytes(tmp_path: Path, result: Any) -> None:
    with pytest.raises(TypeError, match="for key 3"), sharddb.Loader(tmp_path / "s", on_duplicate=lambda *_: result) as loader:
        loader[3] = b"three"
    assert not (tmp_path / "s").exists()


def test_a_merge_function_that_uses_the_loader(tmp_path: Path) -> None:
    loader: sharddb.Loader

    def reenter(key: int, values: list[bytes]) -> bytes:
        loader[key] = b""
        return b""

    loader = sharddb.Loader(tmp_path / "store", on_duplicate=reenter)
    loader[1] = b"one"
    with pytest.raises(sharddb.InvalidInput, match="has finished"):
        loader.finish()


def test_finish_is_once(tmp_path: Path) -> None:
    loader = sharddb.Loader(tmp_path / "store")
    published = loader.finish()
    for use in (loader.finish, lambda: loader.extend({1: b""}), lambda: loader.__setitem__(1, b"")):
        with pytest.raises(sharddb.InvalidInput, match="finished"):
            use()
    loader.abort()
    assert loader.published == published


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    first = sharddb.Loader(tmp_path / "store")
    with pytest.raises(sharddb.Locked):
        sharddb.Loader(tmp_path / "store")
    first.abort()
    first.abort()
    sharddb.Loader(tmp_path / "store").finish()


def test_a_dropped_loader_leaves_nothing(tmp_path: Path) -> None:
    sharddb.Loader(tmp_path / "store").finish()
    before = files(tmp_path)
    loader = sharddb.Loader(tmp_path / "store", memory="16MiB", temp_dir=tmp_path)
    loader.extend((key, bytes(1000)) for key in range(40_000))
    assert files(tmp_path) != before
    del loader
    gc.collect()
    assert files(tmp_path) == before


def test_a_loader_that_its_merge_function_refers_to_is_dropped(tmp_path: Path) -> None:
    class Job:
        def __init__(self) -> None:
            self.loader = sharddb.Loader(tmp_path / "store", on_duplicate=self.join)

        def join(self, key: int, values: list[bytes]) -> bytes:
            return values[0]

    Job().loader[1] = b"one"
    gc.collect()
    assert not (tmp_path / "store").exists()


def test_a_forked_child_cannot_use_a_loader(tmp_path: Path) -> None:
    loader = sharddb.Loader(tmp_path / "store")
    loader[1] = b"one"
    child = os.fork()
    if child == 0:
        limit_child()
        try:
            loader[2] = b"two"
        except sharddb.InvalidInput as error:
            os._exit(0 if "forked" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    loader[3] = b"three"
    loader.finish()
    assert read(tmp_path / "store") == {1: b"one", 3: b"three"}


def test_options(tmp_path: Path) -> None:
    spec = {
        "@type": "neuroglancer_uint64_sharded_v1",
        "preshift_bits": 1,
        "hash": "identity",
        "minishard_bits": 2,
        "shard_bits": 3,
        "minishard_index_encoding": "gzip",
        "data_encoding": "raw",
    }
    info = {"@type": "neuroglancer_skeletons", "transform": [1] * 12, "sharding": None}
    (tmp_path / "spill").mkdir()
    with sharddb.Loader(
        tmp_path / "store",
        spec,
        info=info,
        memory=64 << 20,
        threads=1,
        temp_dir=tmp_path / "spill",
        ordered=True,
        checks=False,
        value_alignment=64,
        data_encoding="gzip",
        index_encoding="raw",
        durable=False,
        allow_sparse=True,
    ) as loader:
        loader.extend((key, b"%d" % key) for key in range(64))
    written = json.loads((tmp_path / "store/current/info").read_text())
    expected = {**spec, "data_encoding": "gzip", "minishard_index_encoding": "raw"}
    assert written["sharding"] == expected and written["transform"] == [1] * 12
    assert loader.published is not None and loader.published.spec == expected
    assert len(list((tmp_path / "store/current").glob("*.shard"))) == 8
    assert read(tmp_path / "store") == {key: b"%d" % key for key in range(64)}
    with sharddb.Loader(tmp_path / "text", json.dumps(spec), info=json.dumps(info)) as loader:
        loader[1] = b""
    assert loader.published is not None and loader.published.spec == spec


def test_a_scale_of_a_volume(tmp_path: Path) -> None:
    info = {"type": "image", "scales": [{"key": "8_8_8", "encoding": "raw"}, {"key": "16_16_16"}]}
    with sharddb.Loader(tmp_path / "store", info=info, sharding_at="/scales/0") as loader:
        loader[0] = bytes(64)
    assert list((tmp_path / "store/current/8_8_8").glob("*.shard"))
    scales = json.loads((tmp_path / "store/current/info").read_text())["scales"]
    assert scales[1] == {"key": "16_16_16"} and "sharding" in scales[0]


BAD_OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"memory": "1"}, sharddb.InvalidInput, "16 MiB"),
    ({"memory": 0}, sharddb.InvalidInput, "16 MiB"),
    ({"memory": "much"}, ValueError, "expected memory in bytes below 2"),
    ({"memory": ""}, ValueError, "memory"),
    ({"memory": "."}, ValueError, "memory"),
    ({"memory": "1EiB"}, ValueError, "memory"),
    ({"memory": "9" * 400 + "GiB"}, ValueError, "memory"),
    ({"memory": "1." + "9" * 400 + "GiB"}, ValueError, "memory"),
    ({"memory": "99999999PiB"}, ValueError, "memory"),
    ({"memory": "-1GiB"}, ValueError, "memory"),
    ({"memory": -1}, OverflowError, "memory"),
    ({"memory": 2**64}, OverflowError, "memory"),
    ({"memory": 1e9}, TypeError, "memory as an int"),
    ({"memory": True}, TypeError, "memory as an int"),
    ({"profile": "fast"}, sharddb.InvalidInput, "profile"),
    ({"profile": 1}, TypeError, "str"),
    ({"on_duplicate": "concat"}, ValueError, "on_duplicate"),
    ({"on_duplicate": 7}, TypeError, "on_duplicate"),
    ({"data_encoding": "zstd"}, ValueError, "data_encoding"),
    ({"index_encoding": "zstd"}, ValueError, "index_encoding"),
    ({"value_alignment": 3}, sharddb.InvalidInput, "alignment"),
    ({"threads": 0}, ValueError, "thread"),
    ({"threads": -1}, OverflowError, "negative"),
    ({"spec": {}}, sharddb.InvalidSpec, "@type"),
    ({"spec": "{"}, sharddb.InvalidSpec, "JSON"),
    ({"spec": 7}, TypeError, "spec as a dict or JSON text, found int"),
    ({"spec": {1: {2}}}, TypeError, "JSON serializable"),
    ({"info": "["}, sharddb.InvalidSpec, "JSON"),
    ({"info": [1]}, TypeError, "info as a dict"),
    ({"sharding_at": "/scales/0"}, sharddb.InvalidInput, "info"),
    ({"temp_dir": "/no/such/directory"}, sharddb.Io, "/no/such/directory"),
    ({"colour": "red"}, TypeError, r"Loader\(\) got an unexpected keyword argument 'colour'"),
    ({"progress": None, "strict": True}, TypeError, "strict"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD_OPTIONS, ids=[repr(bad[0])[:40] for bad in BAD_OPTIONS])
def test_bad_options(tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sharddb.Loader(tmp_path / "store", **options)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("memory", "works"), [("16MiB", True), ("16m", True), ("0.016GB", False), ("16.5 MiB", True)])
def test_sizes(tmp_path: Path, memory: str, works: bool) -> None:
    if works:
        sharddb.Loader(tmp_path / "store", memory=memory).abort()
    else:
        with pytest.raises(sharddb.InvalidInput, match="found 16,?000,?000 bytes"):
            sharddb.Loader(tmp_path / "store", memory=memory)


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(sharddb.InvalidInput):
        sharddb.Loader(tmp_path)
    assert files(tmp_path) == ["thesis.tex"]


class Bar:
    """A bar with the methods of tqdm that are used."""

    def __init__(self) -> None:
        self.total: float | None = None
        self.phases: list[tuple[str, float | None, float]] = []

    def set_description(self, phase: str) -> None:
        self.phase = phase

    def reset(self) -> None:
        self.phases.append((self.phase, self.total, 0))

    def update(self, n: float) -> None:
        phase, total, done = self.phases.pop()
        self.phases.append((phase, total, done + n))


def test_progress_on_a_bar(tmp_path: Path) -> None:
    bar = Bar()
    loader = sharddb.Loader(tmp_path / "store", durable=False)
    loader.extend((key, bytes(100)) for key in range(100_000))
    loader.finish(progress=bar)
    assert bar.phases and bar.phases[-1][0] in ("write", "publish")
    assert all(total is None or done <= total for _, total, done in bar.phases)


def test_progress_on_tqdm(tmp_path: Path) -> None:
    from tqdm import tqdm

    loader = sharddb.Loader(tmp_path / "store")
    loader[1] = b"one"
    text = io.StringIO()
    with tqdm(unit="B", unit_scale=True, file=text) as bar:
        assert loader.finish(progress=bar).keys == 1
    assert "publish" in text.getvalue()


def test_a_plan_is_a_spec(tmp_path: Path) -> None:
    plan = sharddb.plan(count=10_000_000, value_bytes="1GB")
    assert plan.reason == "unknown keys" and plan.keys == 10_000_000
    with sharddb.Loader(tmp_path / "store", plan, allow_sparse=True) as loader:
        loader[1] = b"one"
    assert loader.published is not None and loader.published.spec == plan.spec
    dense = sharddb.plan(np.arange(100_000), value_bytes=100 * 100_000, profile="remote")
    assert dense.reason == "dense" and dense.spec["hash"] == "identity" and dense.profile == "remote"
    small = sharddb.plan(range(100_000), value_bytes=100 * 100_000, max_shard_bytes="1MiB")
    assert small.spec["shard_bits"] > dense.spec["shard_bits"]
    assert "reason=\"dense\"" in repr(dense)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, TypeError),
        ({"keys": [1], "count": 1}, TypeError),
        ({"keys": [1.5]}, TypeError),
        ({"keys": [-1]}, OverflowError),
        ({"count": -1}, OverflowError),
        ({"count": 1, "max_shard_bytes": 1}, TypeError),
        ({"count": 1, "profile": "x"}, sharddb.InvalidInput),
    ],
)
def test_bad_plans(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        sharddb.plan(**arguments)


@pytest.mark.parametrize(
    "value", [np.array([b"hello"], object), np.array([(1, b"x")], [("n", "i4"), ("object", "O")])], ids=["objects", "a field"]
)
def test_references_to_objects_are_no_bytes(tmp_path: Path, value: Any) -> None:
    uses: list[Callable[[Any], None]] = [
        lambda loader: loader.__setitem__(1, value),
        lambda loader: loader.extend(np.array([1]), np.array([0, 8]), value),
        lambda loader: loader.extend({1: value}),
    ]
    for use in uses:
        loader = sharddb.Loader(tmp_path / "store")
        with pytest.raises(TypeError, match="array of objects"):
            use(loader)
    with pytest.raises(TypeError, match="array of objects"):
        with sharddb.Loader(tmp_path / "store", on_duplicate=lambda _key, _values: value) as loader:
            loader[1] = b""
    assert not (tmp_path / "store" / "current").exists()


def test_the_bar_is_that_of_finish(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'progress'"):
        sharddb.Loader(tmp_path / "store", progress=object())  # type: ignore[call-overload]


def test_masked_arrays_are_no_values(tmp_path: Path) -> None:
    masked = np.ma.masked_array(np.frombuffer(b"secret", np.uint8), mask=[True] + [False] * 5)
    inserts: list[Callable[[sharddb.Loader], None]] = [
        lambda loader: loader.__setitem__(1, masked),
        lambda loader: loader.extend([1], [0, 6], masked),
    ]
    for insert in inserts:
        loader = sharddb.Loader(tmp_path / "store")
        with pytest.raises(TypeError, match="found a masked array"):
            insert(loader)


def test_errors_of_the_system_have_their_number(tmp_path: Path) -> None:
    with pytest.raises(sharddb.Io) as raised:
        sharddb.Loader(tmp_path / ("x" * 300))
    error = raised.value
    assert (error.errno, error.strerror) == (errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    assert error.filename == error.path and os.strerror(errno.ENAMETOOLONG) in str(error)
    with pytest.raises(sharddb.NotFound) as missing:
        sharddb.open(tmp_path / "nothing")
    assert (missing.value.errno, missing.value.filename) == (errno.ENOENT, missing.value.path)
