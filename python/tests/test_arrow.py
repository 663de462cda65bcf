"""Arrow streams of pyarrow go in and out with the same pairs; streams that do not fit are refused by column and type."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import sharddb

PAIRS = {0: b"", 7: b"seven", 2**64 - 1: b"last", 42: bytes(range(256)) * 100}


def build(store: Path, pairs: Any) -> Path:
    with sharddb.Loader(store) as loader:
        loader.extend(pairs)
    return store


def read(store: Path) -> dict[int, bytes]:
    with sharddb.open(store) as db:
        return {int(key): db[int(key)] for key in db.keys()}


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


INTEGERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]


@pytest.mark.parametrize("integer", INTEGERS)
def test_keys_of_every_integer_type(tmp_path: Path, integer: str) -> None:
    keys = pa.array([1, 127, 0], getattr(pa, integer)())
    assert read(build(tmp_path / "s", table(key=keys, value=pa.array([b"a", b"", b"c"])))) == {1: b"a", 127: b"", 0: b"c"}


@pytest.mark.parametrize("form", ["binary", "large_binary", "binary_view", "string", "large_string", "string_view"])
def test_values_of_every_type(tmp_path: Path, form: str) -> None:
    texts = ["", "a", "twelve bytes", "more than twelve bytes", "\u00e9"]
    is_text = "string" in form
    values = pa.array(texts if is_text else [text.encode() for text in texts], getattr(pa, form)())
    store = build(tmp_path / "s", table(key=pa.array(range(5)), value=values))
    assert read(store) == {key: text.encode() for key, text in enumerate(texts)}


def test_tables_readers_batches_and_slices(tmp_path: Path) -> None:
    keys, values = list(range(100_000)), [b"%d" % key for key in range(100_000)]
    whole = pa.table({"key": pa.array(keys, pa.uint64()), "value": values})
    expected = dict(zip(keys, values, strict=True))
    forms = {
        "table": whole,
        "chunks": pa.concat_tables([whole.slice(0, 10), whole.slice(10, 0), whole.slice(10)]),
        "reader": whole.to_reader(max_chunksize=777),
        "batch": whole.to_batches()[0],
    }
    for name, form in forms.items():
        assert read(build(tmp_path / name, form)) == expected, name
    assert read(build(tmp_path / "slice", whole.slice(99_990, 3))) == {key: b"%d" % key for key in (99_990, 99_991, 99_992)}


def test_columns_by_name_or_two(tmp_path: Path) -> None:
    key, value = pa.array([1]), pa.array([b"a"])
    assert read(build(tmp_path / "named", table(other=pa.array([None]), value=value, key=key))) == {1: b"a"}
    assert read(build(tmp_path / "two", table(segment=key, mesh=value))) == {1: b"a"}


ONE = pa.array([1])
BAD: list[tuple[str, Any, type[Exception], str]] = [
    ("one column", table(key=ONE), ValueError, r'expected the columns "key" and "value", or two columns, found \["key"\]'),
    ("three columns", table(a=ONE, b=ONE, c=ONE), ValueError, "or two columns"),
    ("float keys", table(key=pa.array([1.0]), value=pa.array([b""])), TypeError, 'integers in the column "key", found Float64'),
    ("bool keys", table(key=pa.array([True]), value=pa.array([b""])), TypeError, "found Boolean"),
    ("dates", table(key=pa.array([1], pa.date32()), value=pa.array([b""])), TypeError, "found Date32"),
    ("text keys", table(a=pa.array(["1"]), b=pa.array([b""])), TypeError, 'in the column "a", found Utf8'),
    ("integer values", table(key=ONE, value=ONE), TypeError, 'binary or strings in the column "value", found Int64'),
    ("lists", table(key=ONE, value=pa.array([[b"a"]])), TypeError, "found List"),
    ("null type", table(key=ONE, value=pa.array([None])), ValueError, 'no nulls in the column "value", found one in row 0'),
    ("null keys", table(key=pa.array([1, None]), value=pa.array([b"", b""])), ValueError, 'the column "key", found one in row 1'),
    ("null values", table(key=ONE, value=pa.array([None], pa.binary())), ValueError, 'the column "value", found one in row 0'),
    ("negative key", table(key=pa.array([5, -3]), value=pa.array([b"", b""])), OverflowError, "found -3"),
]


@pytest.mark.parametrize(("stream", "error", "message"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_columns(tmp_path: Path, stream: pa.Table, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(tmp_path / "store", stream)
    assert not (tmp_path / "store").exists()


def test_columns_without_rows_have_any_type(tmp_path: Path) -> None:
    """What pandas and pyarrow make of empty lists."""
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend(pa.table({"key": [], "value": [], "preamble": []}))
        loader.extend(pandas.DataFrame({"key": [], "value": []}, dtype=object))
        loader[1] = b"a"
    assert read(tmp_path / "store") == {1: b"a"}


@pytest.mark.parametrize("bad", [(0, 4, 2), (3, 2, 3), (-1, 1, 2)])
def test_offsets_that_are_not_valid(tmp_path: Path, bad: tuple[int, ...]) -> None:
    offsets = np.array([0, 1, 2])
    values = pa.Array.from_buffers(pa.large_binary(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"abcd")])
    stream = table(key=pa.array([1, 2]), value=values)
    offsets[:] = bad  # pyarrow refuses them at the beginning
    with pytest.raises(ValueError, match='expected valid Arrow data in the column "value"'):
        build(tmp_path / "store", stream)
    assert not (tmp_path / "store").exists()


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    values = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(ValueError, match='in the column "value"'):
        build(tmp_path / "store", table(key=ONE, value=values))


def test_a_stream_that_fails(tmp_path: Path) -> None:
    schema = pa.schema([("key", pa.int64()), ("value", pa.binary())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[1], [b"a"]], schema=schema)
        raise LookupError("the source is gone")

    with pytest.raises(sharddb.InvalidInput, match="the source is gone"):
        build(tmp_path / "store", pa.RecordBatchReader.from_batches(schema, batches()))
    assert not (tmp_path / "store").exists()


def test_objects_that_are_no_streams(tmp_path: Path) -> None:
    class Stream:
        def __init__(self, capsule: Any) -> None:
            self.capsule = capsule

        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            return self.capsule

    used = table(key=ONE, value=pa.array([b"a"])).__arrow_c_stream__()
    build(tmp_path / "once", Stream(used))
    schema = pa.schema([("key", pa.int64())]).__arrow_c_schema__()
    bad: list[tuple[Any, type[Exception]]] = [(7, TypeError), (None, TypeError), (schema, TypeError), (used, sharddb.InvalidInput)]
    for capsule, error in bad:
        with pytest.raises(error):
            build(tmp_path / "store", Stream(capsule))
        assert not (tmp_path / "store").exists()


def test_a_stream_without_batches(tmp_path: Path) -> None:
    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            return capsule

    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda stream: None)
    # get_schema, get_next, get_last_error, release, private_data
    memory = (ctypes.c_void_p * 5)(None, None, None, ctypes.cast(release, ctypes.c_void_p), None)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new(ctypes.addressof(memory), name := b"arrow_array_stream", None)
    with pytest.raises(sharddb.InvalidInput, match="get_next"):
        build(tmp_path / "store", Stream())
    assert name and not (tmp_path / "store").exists()


def test_a_database_is_a_stream(tmp_path: Path) -> None:
    with sharddb.open(build(tmp_path / "store", PAIRS)) as db:
        stream = pa.RecordBatchReader.from_stream(db)
        assert stream.schema == pa.schema(
            [pa.field("key", pa.uint64(), nullable=False), pa.field("value", pa.large_binary(), nullable=False)]
        )
        pairs = pa.table(db)
        assert pairs.column("key").to_pylist() == db.keys().tolist()
    assert dict(zip(pairs.column("key").to_pylist(), pairs.column("value").to_pylist(), strict=True)) == PAIRS
    assert stream.read_all() == pairs, "the stream keeps the generation"


def test_batches_are_bounded(tmp_path: Path) -> None:
    small = build(tmp_path / "small", ((key, b"") for key in range(200_000)))
    rows = [batch.num_rows for batch in pa.RecordBatchReader.from_stream(sharddb.open(small))]
    assert sum(rows) == 200_000 and max(rows) == 65_536
    large = build(tmp_path / "large", {key: bytes(5 << 20) for key in range(7)} | {7: bytes(40 << 20), 8: b""})
    sizes = [batch.column(1).nbytes for batch in pa.RecordBatchReader.from_stream(sharddb.open(large))]
    assert sum(sizes) >= (7 * 5 + 40) << 20
    assert sorted(sizes)[-1] <= (40 << 20) + 4096 and sorted(sizes)[-2] <= (16 << 20) + 4096


def test_an_empty_database(tmp_path: Path) -> None:
    with sharddb.open(build(tmp_path / "store", {})) as db:
        assert pa.table(db).num_rows == 0


def test_damage_is_an_error_of_the_stream(tmp_path: Path) -> None:
    store = build(tmp_path / "store", {key: b"%d" % key for key in range(1000)})
    shard = next((store / "current/").glob("*.shard"))
    content = shard.read_bytes()
    shard.chmod(0o644)
    shard.write_bytes(content[: len(content) // 2] + b"\xff" * (len(content) - len(content) // 2))
    with sharddb.open(store, mode="pread") as db, pytest.raises(pa.ArrowInvalid, match="shard 0"):
        pa.table(db)


def test_from_a_database_to_a_database(tmp_path: Path) -> None:
    with sharddb.open(build(tmp_path / "one", PAIRS)) as db:
        build(tmp_path / "two", db)
    assert read(tmp_path / "two") == PAIRS
    with sharddb.open(tmp_path / "two") as db:
        sharddb.update(tmp_path / "one", db, [7])
    assert read(tmp_path / "one") == {key: value for key, value in PAIRS.items() if key != 7}


def test_polars(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"key": [1, 2], "value": [b"a", b"more than twelve bytes"]})
    expected = {1: b"a", 2: b"more than twelve bytes"}
    assert read(build(tmp_path / "store", frame)) == expected
    with sharddb.open(tmp_path / "store") as db:
        assert dict(polars.DataFrame(db).rows()) == expected


def test_null_rows_of_a_struct(tmp_path: Path) -> None:
    """A row may be null though its key and its value are not."""
    columns = [pa.array([1, 2]), pa.array([b"one", b"two"])]
    rows = pa.StructArray.from_arrays(columns, names=["key", "value"], mask=pa.array([False, True]))
    with pytest.raises(ValueError, match="expected no null rows, found row 1 of a batch null"):
        build(tmp_path / "store", pa.chunked_array([rows]))
    assert not (tmp_path / "store").exists()
    whole = pa.StructArray.from_arrays(columns, names=["key", "value"])
    assert read(build(tmp_path / "store", pa.chunked_array([whole]))) == {1: b"one", 2: b"two"}


def test_a_stream_of_no_batches(tmp_path: Path) -> None:
    with pytest.raises(sharddb.InvalidInput, match="expected an Arrow stream of record batches, found one of Int64"):
        build(tmp_path / "store", pa.chunked_array([[1, 2]]))
