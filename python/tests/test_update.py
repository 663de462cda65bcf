"""Updates, merges, and reshards publish what a dict that is changed in the same way has, or nothing."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tqdm import tqdm

import sharddb

BASE = {key: b"%d" % key for key in range(1000)}
FOREIGN = Path(__file__).resolve().parents[2] / "tests" / "data" / "neuroglancer" / "seg" / "skeletons"


def build(store: Path, pairs: dict[int, bytes], **options: Any) -> Path:
    with sharddb.Loader(store, **options) as loader:
        loader.extend(pairs)
    return store


def read(store: Path) -> dict[int, bytes]:
    with sharddb.open(store) as db:
        return {int(key): db[int(key)] for key in db.keys()}


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_puts_and_deletes(tmp_path: Path) -> None:
    store = build(tmp_path / "store", BASE)
    puts = {1: b"one", 5000: b"new"}
    published, changes = sharddb.update(store, puts, np.array([2, 3, 7000], np.uint16))
    expected = {**BASE, **puts}
    del expected[2], expected[3]
    assert read(store) == expected
    assert published is not None and (published.generation, published.keys) == (2, 999)
    assert (changes.added, changes.replaced, changes.deleted, changes.absent, changes.overridden) == (1, 1, 2, 1, 0)
    assert repr(changes).startswith("Changes(added=1, replaced=1, deleted=2, absent=1, overridden=0, ")


def test_deletes_are_after_puts_and_later_puts_count(tmp_path: Path) -> None:
    store = build(tmp_path / "store", BASE)
    _, changes = sharddb.update(store, [(1, b"x"), (1, b"y"), (2, b"z")], [2])
    assert read(store) == {**{key: value for key, value in BASE.items() if key != 2}, 1: b"y"}
    assert changes.overridden == 2


def test_only_puts_and_only_deletes(tmp_path: Path) -> None:
    store = build(tmp_path / "store", {1: b"one"})
    sharddb.update(store, {2: b"two"})
    sharddb.update(store, deletes=[1])
    assert read(store) == {2: b"two"}


def test_untouched_shards_are_linked(tmp_path: Path) -> None:
    spec = sharddb.plan(range(1000), value_bytes=3000).spec | {"shard_bits": 3, "minishard_bits": 2}
    store = build(tmp_path / "store", BASE, spec=spec)
    _, changes = sharddb.update(store, {1: b"one"})
    assert (changes.written_shards, changes.linked_shards) == (1, 7)


def test_strict_names_the_absent_key(tmp_path: Path) -> None:
    store = build(tmp_path / "store", BASE)
    before = files(tmp_path)
    with pytest.raises(sharddb.AbsentKey, match="key 4242") as raised:
        sharddb.update(store, {1: b"one"}, [4242], strict=True)
    assert raised.value.key == 4242 and isinstance(raised.value, KeyError) and not isinstance(raised.value, OSError)
    assert files(tmp_path) == before and sharddb.Store(store).current == 1


def test_an_iterator_that_raises_publishes_nothing(tmp_path: Path) -> None:
    store = build(tmp_path / "store", BASE)
    before = files(tmp_path)

    def puts() -> Iterator[tuple[int, bytes]]:
        yield 1, b"one"
        raise LookupError("the source is gone")

    with pytest.raises(LookupError):
        sharddb.update(store, puts())
    assert files(tmp_path) == before and sharddb.Store(store).current == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (({1.5: b"a"},), TypeError),
        (({1: "a"},), TypeError),
        ((None, [-1]), OverflowError),
        ((None, [1.5]), TypeError),
        ((None, 7), TypeError),
        ((7,), TypeError),
    ],
)
def test_bad_changes(tmp_path: Path, arguments: Any, error: type[Exception]) -> None:
    store = build(tmp_path / "store", BASE)
    with pytest.raises(error):
        sharddb.update(store, *arguments)
    assert read(store) == BASE and sharddb.Store(store).current == 1


def test_bad_options_of_an_update(tmp_path: Path) -> None:
    store = build(tmp_path / "store", BASE)
    with pytest.raises(TypeError, match=r"update\(\) got an unexpected keyword argument 'profile'"):
        sharddb.update(store, {}, profile="local")  # type: ignore[call-arg]
    with pytest.raises(sharddb.InvalidInput, match="16 MiB"):
        sharddb.update(store, {}, memory=1)
    with pytest.raises(sharddb.NotFound):
        sharddb.update(tmp_path / "nothing", {1: b""})
    with sharddb.Loader(store, mode="update"), pytest.raises(sharddb.Locked):
        sharddb.update(store, {1: b""})


def test_a_base_of_another_writer(tmp_path: Path) -> None:
    old = read(FOREIGN)
    changed = sorted(old)[3]
    sharddb.update(tmp_path / "store", {changed: b"another"}, base=FOREIGN)
    assert read(tmp_path / "store") == {**old, changed: b"another"}


def test_merge(tmp_path: Path) -> None:
    one = build(tmp_path / "one", {1: b"a", 2: b"b"}, info={"name": "one"})
    two = build(tmp_path / "two", {3: b"c", 4: b"d"}, info={"name": "two"})
    published = sharddb.merge([one, sharddb.open(two)], tmp_path / "all")
    assert read(tmp_path / "all") == {1: b"a", 2: b"b", 3: b"c", 4: b"d"} and published.keys == 4
    assert json.loads((tmp_path / "all/current/info").read_text())["name"] == "one"
    sharddb.merge(iter([one, two]), tmp_path / "all", info={"name": "both"})
    assert json.loads((tmp_path / "all/current/info").read_text())["name"] == "both"


@pytest.mark.parametrize("profile", [None, "remote"])
def test_merge_with_keys_of_several(tmp_path: Path, profile: Any) -> None:
    stores = [build(tmp_path / name, {1: name.encode(), ord(name): b""}) for name in "abc"]
    with pytest.raises(sharddb.DuplicateKey) as raised:
        sharddb.merge(stores, tmp_path / "all", profile=profile)
    assert raised.value.key == 1 and not (tmp_path / "all").exists()
    rest: dict[int, bytes] = {ord(name): b"" for name in "abc"}
    policies: list[tuple[Any, bytes]] = [("first", b"a"), ("last", b"c"), (lambda _, values: b"+".join(values), b"a+b+c")]
    for policy, expected in policies:
        sharddb.merge(stores, tmp_path / "all", profile=profile, on_duplicate=policy)
        assert read(tmp_path / "all") == {1: expected, **rest}


def test_merge_with_a_function_that_raises(tmp_path: Path) -> None:
    one, two = build(tmp_path / "one", BASE), build(tmp_path / "two", {1: b"a"})

    def fail(key: int, values: list[bytes]) -> bytes:
        raise LookupError(key)

    with pytest.raises(LookupError):
        sharddb.merge([one, two], tmp_path / "all", on_duplicate=fail)
    assert not (tmp_path / "all").exists()


def test_bad_merges(tmp_path: Path) -> None:
    store = build(tmp_path / "store", BASE)
    with pytest.raises(TypeError, match="single path"):
        sharddb.merge(store, tmp_path / "out")  # type: ignore[arg-type]
    with pytest.raises(sharddb.NotFound):
        sharddb.merge([store, tmp_path / "nothing"], tmp_path / "out")
    with pytest.raises(TypeError):
        sharddb.merge([7], tmp_path / "out")  # type: ignore[list-item]
    assert not (tmp_path / "out").exists()


def test_reshard(tmp_path: Path) -> None:
    store = build(tmp_path / "store", BASE, info={"name": "numbers"}, value_alignment=64)
    published = sharddb.reshard(store, tmp_path / "remote", profile="remote", data_encoding="gzip")
    assert read(tmp_path / "remote") == BASE
    assert published.spec["data_encoding"] == published.spec["minishard_index_encoding"] == "gzip"
    info = json.loads((tmp_path / "remote/current/info").read_text())
    assert info["name"] == "numbers" and info["sharddb"]["value_alignment"] == 64
    spec = {**published.spec, "shard_bits": 2, "data_encoding": "raw"}
    assert sharddb.reshard(tmp_path / "remote", tmp_path / "remote", spec).generation == 2
    assert read(tmp_path / "remote") == BASE
    assert sharddb.reshard(store, store, index_encoding="gzip").spec["minishard_index_encoding"] == "gzip"
    assert read(store) == BASE


def test_reshard_of_another_writer(tmp_path: Path) -> None:
    published = sharddb.reshard(FOREIGN, tmp_path / "store", profile="local", data_encoding="raw")
    assert published.spec["data_encoding"] == "raw"
    assert read(tmp_path / "store") == read(FOREIGN)


def test_reshard_without_a_change(tmp_path: Path) -> None:
    store = build(tmp_path / "store", BASE)
    with pytest.raises(TypeError, match="what to change"):
        sharddb.reshard(store, tmp_path / "out")
    with pytest.raises(TypeError, match="on_duplicate"):
        sharddb.reshard(store, tmp_path / "out", profile="local", on_duplicate="last")  # type: ignore[call-arg]


def test_diff(tmp_path: Path) -> None:
    old, new = {**BASE}, {**BASE, 7: b"seven", 5000: b"new"}
    del new[3], new[4]
    build(tmp_path / "old", old)
    build(tmp_path / "new", new, spec=sharddb.plan(count=10**5, value_bytes=10**7, profile="cloudvolume"), allow_sparse=True)
    found = sharddb.diff(tmp_path / "old", sharddb.open(tmp_path / "new"), threads=1)
    assert found.added.tolist() == [5000] and found.added.dtype == np.uint64
    assert sorted(found.removed.tolist()) == [3, 4] and found.changed.tolist() == [7]
    assert found.unchanged == 997 and found
    same = sharddb.diff(tmp_path / "old", tmp_path / "old")
    assert not same and same.unchanged == 1000 and same.equal_shards == 1
    assert "0 added, 0 removed, 0 changed, 1000 unchanged" in repr(same)


def test_progress(tmp_path: Path) -> None:
    """The phases of a merge, and the keys of both databases of a difference."""
    bar = tqdm(file=io.StringIO())
    one, two = build(tmp_path / "one", BASE), build(tmp_path / "two", {**BASE, 7: b"seven"})
    sharddb.merge([one, two], tmp_path / "all", on_duplicate="first", progress=bar)
    assert bar.desc == "publish: "
    sharddb.diff(one, two, progress=bar)
    assert (bar.desc, bar.total, bar.n) == ("compare: ", 2000, 2000)
    sharddb.update(one, {1: b""}, progress=bar)
    assert bar.desc == "publish: "


def test_diff_of_damage(tmp_path: Path) -> None:
    build(tmp_path / "old", BASE)
    build(tmp_path / "new", {**BASE, 1: b"one"})
    shard = next((tmp_path / "new/current/").glob("*.shard"))
    content = shard.read_bytes()
    shard.chmod(0o644)
    shard.write_bytes(content[: len(content) // 2] + b"\xff" * (len(content) - len(content) // 2))
    with pytest.raises(sharddb.Corrupt):
        sharddb.diff(tmp_path / "old", tmp_path / "new")
