"""Handles, views and arrays give back what they hold: memory, maps, descriptors and leases."""

import contextlib
import gc
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_current
from test_fork import is_leased

import sharddb

VIEWS = 100_000


def allocated_bytes() -> int:
    """The memory that is not of a file: the kernel may drop pages of files, and read those of libraries again, at any time."""
    gc.collect()
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "VmSwap")) * 1024


def descriptors_of(path: Path) -> int:
    """Those of other files may be closed by threads of other packages at any time."""

    def target(descriptor: Path) -> str:
        with contextlib.suppress(FileNotFoundError):
            return os.readlink(descriptor)
        return ""

    return sum(target(descriptor).startswith(f"{path}/") for descriptor in Path("/proc/self/fd").iterdir())


def maps_of(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


@pytest.mark.parametrize("mode", ["mmap", "pread", "memory"])
def test_views(store: Path, pairs: dict[int, bytes], mode: Any) -> None:
    key = max(pairs, key=lambda key: len(pairs[key]))
    with sharddb.open(store, mode=mode) as db:
        def read(count: int) -> None:
            for _ in range(count):
                assert len(memoryview(db.view(key))) == len(pairs[key])

        read(1000)
        before = allocated_bytes()
        read(VIEWS)
        assert allocated_bytes() - before < 8 << 20  # each copy would be 11 KB


def test_many_views_at_a_time(store: Path, pairs: dict[int, bytes]) -> None:
    """Views of a map are of no size, share it, and keep it when the database is closed."""
    key = max(pairs, key=lambda key: len(pairs[key]))
    with sharddb.open(store, mode="mmap") as db:
        before = allocated_bytes()
        views = [db.view(key) for _ in range(VIEWS)]
        assert allocated_bytes() - before < 64 << 20
    assert all(view == pairs[key] for view in views[:: VIEWS // 10])
    assert maps_of(store) == 1
    views.clear()
    assert maps_of(store) == 0


@pytest.mark.parametrize("mode", ["mmap", "pread", "memory"])
def test_batches(store: Path, pairs: dict[int, bytes], mode: Any) -> None:
    keys = np.array(list(pairs) * 10, np.uint64)
    with sharddb.open(store, mode=mode) as db:
        def read(count: int) -> None:
            for _ in range(count):
                db.get_ragged(keys)
                db.get_many(keys)
                db.keys()
                db.locate_many(keys)
                with pytest.raises(KeyError):
                    db[3]
                with pytest.raises(TypeError):
                    db.get_many([0, 1, "2"])  # type: ignore[list-item]

        read(20)
        before = allocated_bytes()
        read(200)
        assert allocated_bytes() - before < 8 << 20  # each round reads 1 MB or more


def test_opening_and_closing(store: Path) -> None:
    for _ in range(300):
        db = sharddb.open(store)
        snapshot = db.snapshot()
        assert snapshot[0] == db[0]
        assert descriptors_of(store) > 0
        db.close()
        del snapshot
    assert (descriptors_of(store), maps_of(store)) == (0, 0)
    assert not is_leased(store, 1)


def test_refreshes_under_readers(store: Path, pairs: dict[int, bytes]) -> None:
    """Each read is of one generation; those that nobody reads are closed, and their leases end."""
    db = sharddb.open(store)
    keys = np.array(list(pairs), np.uint64)
    failures: list[BaseException] = []
    is_done = threading.Event()

    def read() -> None:
        try:
            while not is_done.is_set():
                data, _, found = db.get_ragged(keys)
                assert found.all() and data.tobytes() == b"".join(pairs.values())
                snapshot = db.snapshot()
                assert snapshot.view(keys[0]) == pairs[int(keys[0])]
                assert len(snapshot.get_many(keys)) == len(pairs)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for round_ in range(300):
        make_current(store, 1 + round_ % 2)
        db.refresh()
    is_done.set()
    for thread in threads:
        thread.join()
    assert not failures
    db.refresh()
    gc.collect()
    db.refresh()  # closes what was replaced
    assert db.stats["open_generations"] == 1
    assert not is_leased(store, 1) and is_leased(store, 2)
    db.close()
    assert (descriptors_of(store), maps_of(store)) == (0, 0)
