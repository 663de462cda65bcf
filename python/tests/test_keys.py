"""Keys are integers from 0 to 2**64 - 1 of any form, and no other object is taken for one."""

import array
import ctypes
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharddb
from conftest import run_program

INTEGERS = [order + kind + size for order in "<>" for kind in "iu" for size in "1248"]
LAST = 2**64 - 1


@pytest.fixture
def db(store: Path) -> Iterator[sharddb.Database]:
    with sharddb.open(store) as db:
        yield db


def ragged(db: sharddb.Database, keys: Any) -> list[bytes | None]:
    data, offsets, found = db.get_ragged(keys)
    ends = zip(offsets[:-1], offsets[1:], found, strict=True)
    return [data[start:end].tobytes() if is_found else None for start, end, is_found in ends]


def located(db: sharddb.Database, keys: Any) -> list[bytes | None]:
    files, *places = db.locate_many(keys)
    return [
        Path(files[file_no]).read_bytes()[offset : offset + length] if file_no >= 0 else None
        for file_no, offset, length in zip(*places, strict=True)
    ]


# every function that takes many keys, as one that returns their values
BATCHES: list[Callable[[sharddb.Database, Any], list[bytes | None]]] = [sharddb.Database.get_many, ragged, located]


@pytest.fixture(params=BATCHES, ids=["get_many", "get_ragged", "locate_many"])
def batch(request: pytest.FixtureRequest, db: sharddb.Database) -> Callable[[Any], list[Any]]:
    return lambda keys: request.param(db, keys)


# ---- arrays ----


@pytest.mark.parametrize("dtype", INTEGERS)
def test_an_array_of_each_dtype_and_byte_order(batch: Any, pairs: dict[int, bytes], dtype: str) -> None:
    keys = np.array([key for key in [*pairs, 3] if key <= np.iinfo(dtype).max], dtype)
    assert len(keys) > 5
    assert batch(keys) == [pairs.get(int(key)) for key in keys]


@pytest.mark.parametrize("dtype", ["<u8", ">u8", "<i4", ">i2"])
def test_a_strided_array(batch: Any, pairs: dict[int, bytes], dtype: str) -> None:
    numbers = np.array([key for key in pairs if key <= np.iinfo(dtype).max], dtype)
    padded = np.full((len(numbers), 3), 3, dtype)
    padded[:, 1] = numbers
    for keys in (padded[:, 1], numbers[::-1], numbers[::2], numbers[5:2:-1], numbers[:0]):
        assert batch(keys) == [pairs.get(int(key)) for key in keys]


def test_an_unaligned_array(batch: Any, pairs: dict[int, bytes]) -> None:
    table = np.zeros(len(pairs), np.dtype([("tag", "u1"), ("key", "<u8")]))
    table["key"] = list(pairs)
    assert batch(table["key"]) == list(pairs.values())


def test_broadcast_keys(batch: Any, pairs: dict[int, bytes]) -> None:
    assert batch(np.broadcast_to(np.uint64(LAST), 3)) == [pairs[LAST]] * 3


@pytest.mark.parametrize("lookup", ["get_many", "get_ragged", "locate_many"])
@pytest.mark.parametrize("keys", [2**40, 2**27], ids=["the keys", "the results"])
def test_more_keys_than_memory(store: Path, lookup: str, keys: int) -> None:
    """The process may have 1.5 GiB more than it has: 2**27 keys fit, and what is found of them does not."""
    code = """
        import resource, sys
        import numpy as np
        import sharddb

        path, lookup, keys = sys.argv[1:]
        db = sharddb.open(path)
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 29), resource.RLIM_INFINITY))
        try:
            getattr(db, lookup)(np.broadcast_to(np.uint8(3), int(keys)))
        except MemoryError as error:
            print(error)
        """
    assert "do not fit into memory" in run_program(code, str(store), lookup, str(keys))


def test_a_single_key_without_an_axis(batch: Any, pairs: dict[int, bytes]) -> None:
    for key in (np.array(LAST, np.uint64), np.array(LAST, ">u8"), np.uint64(LAST)):
        assert batch(key) == [pairs[LAST]]


@pytest.mark.parametrize("code", "bBhHiIlLqQ")
def test_an_array_of_the_standard_library(batch: Any, pairs: dict[int, bytes], code: str) -> None:
    keys = array.array(code, [key for key in pairs if key < 128])
    assert batch(keys) == [pairs[key] for key in keys]
    assert batch(memoryview(keys)) == [pairs[key] for key in keys]


@pytest.mark.parametrize(
    "type_", [ctypes.c_uint64, ctypes.c_int16, ctypes.c_uint64.__ctype_be__, ctypes.c_int32.__ctype_be__]
)
def test_an_array_of_ctypes(batch: Any, pairs: dict[int, bytes], type_: Any) -> None:
    keys = [key for key in pairs if key < 128]
    assert batch((type_ * len(keys))(*keys)) == [pairs[key] for key in keys]


def test_an_object_that_converts_to_an_array(batch: Any, pairs: dict[int, bytes]) -> None:
    class Series:
        def __init__(self, values: Any) -> None:
            self.values = values

        def __array__(self) -> Any:
            return self.values

    assert batch(Series(np.array(list(pairs), ">u8"))) == list(pairs.values())
    with pytest.raises(TypeError):
        batch(Series(np.zeros(2)))


def test_a_mask_is_not_ignored(batch: Any, pairs: dict[int, bytes]) -> None:
    masked = np.ma.masked_array(np.array(list(pairs), "u8"), mask=[True, *[False] * (len(pairs) - 1)])
    with pytest.raises(TypeError, match="masked"):
        batch(masked)
    assert batch(masked.compressed()) == list(pairs.values())[1:]


@pytest.mark.parametrize(
    "keys",
    [
        np.zeros(2, "f8"),
        np.zeros(2, "f4"),
        np.zeros(2, "f2"),
        np.zeros(2, "g"),
        np.zeros(2, "c16"),
        np.zeros(2, "?"),
        np.zeros(2, object),
        np.array([1, 2], object),
        np.zeros(2, "S8"),
        np.zeros(2, "U2"),
        np.zeros(2, "V8"),
        np.zeros(2, "M8[s]"),
        np.zeros(2, "m8[s]"),
        np.zeros(2, [("key", "u8")]),
        np.zeros(0, "f8"),
        np.zeros((), "f8"),
        np.array(True),
        np.True_,
        np.float64(1),
        array.array("d", [1.0]),
        (ctypes.c_bool * 2)(),
        memoryview(b"12345678").cast("c"),
        b"12345678",
        bytearray(8),
        "12345678",
        5,
        None,
        3.5,
    ],
    ids=repr,
)
def test_no_integers(batch: Any, keys: Any) -> None:
    with pytest.raises(TypeError):
        batch(keys)


def test_more_than_one_axis(batch: Any) -> None:
    with pytest.raises(ValueError, match="2 dimensions"):
        batch(np.zeros((2, 2), np.uint64))


@pytest.mark.parametrize("dtype", [dtype for dtype in INTEGERS if "i" in dtype])
def test_a_negative_number_in_an_array(batch: Any, dtype: str) -> None:
    for number in (-1, np.iinfo(dtype).min):
        with pytest.raises(OverflowError, match=f"found {number}(\n|$)"):
            batch(np.array([1, number], dtype))


# ---- iterables ----


def test_iterables(batch: Any, pairs: dict[int, bytes]) -> None:
    for keys in (list(pairs), tuple(pairs), dict(pairs), pairs.keys(), [np.uint64(key) for key in pairs]):
        assert batch(keys) == list(pairs.values())
    assert batch(range(200)) == [pairs.get(key) for key in range(200)]


def test_iterators(db: sharddb.Database, pairs: dict[int, bytes]) -> None:
    assert db.get_many(iter(pairs)) == list(pairs.values())
    assert db.get_many(key for key in pairs) == list(pairs.values())
    assert set(db.get_many(set(pairs))) == set(pairs.values())


def test_an_iterable_that_states_a_wrong_length(batch: Any, pairs: dict[int, bytes]) -> None:
    class Liar(list[int]):
        def __len__(self) -> int:
            return 1 << 60

    assert batch(Liar([0, LAST])) == [pairs[0], pairs[LAST]]


def test_the_exception_of_an_iterable(batch: Any) -> None:
    def fails() -> Iterator[int]:
        yield 1
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        batch(fails())


# ---- single keys ----


class Index:
    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


SINGLE: list[Callable[[sharddb.Database, Any], Any]] = [
    lambda db, key: db[key],
    lambda db, key: db.get(key),
    lambda db, key: bytes(db.view(key)),
    lambda db, key: db.get_many([key])[0],
    lambda db, key: db.get_ragged([key])[0].tobytes(),
]


@pytest.fixture(params=SINGLE, ids=["getitem", "get", "view", "get_many", "get_ragged"])
def lookup(request: pytest.FixtureRequest, db: sharddb.Database) -> Callable[[Any], Any]:
    return lambda key: request.param(db, key)


@pytest.mark.parametrize("key", [0, 1, LAST])
def test_integers_of_each_form(lookup: Any, pairs: dict[int, bytes], key: int) -> None:
    forms: list[Any] = [key, Index(key), np.uint64(key), np.array(key, np.uint64)]
    if key < 128:
        forms += [np.dtype(dtype).type(key) for dtype in INTEGERS]
    for form in forms:
        assert operator.index(form) == key
        assert lookup(form) == pairs[key]


@pytest.mark.parametrize("key", [-1, -(2**63), -(2**64), 2**64, 2**64 + 1, 10**30, Index(-1), Index(2**64), np.int8(-1)])
def test_an_integer_out_of_range(lookup: Any, db: sharddb.Database, key: Any) -> None:
    with pytest.raises(OverflowError, match="expected a key from 0 to"):
        lookup(key)
    with pytest.raises(OverflowError):
        key in db  # noqa: B015


@pytest.mark.parametrize(
    "key",
    [True, False, np.True_, 1.0, np.float64(1), np.float32(1), "1", b"1", None, (1,), np.zeros(2, "u8"), np.array(True), 1j],
    ids=repr,
)
def test_no_integer(lookup: Any, db: sharddb.Database, key: Any) -> None:
    with pytest.raises(TypeError):
        lookup(key)
    with pytest.raises(TypeError):
        key in db  # noqa: B015
