"""After a fork, a handle of the parent reads the same generation in the child with a lease of its own, or says it is gone."""

import faulthandler
import fcntl
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LIMIT, make_current, remove_generation

import sharddb

MODES: list[Any] = ["mmap", "pread", "memory"]


def limit_child() -> None:
    """Lets a signal end this process after the limit, with its stacks. The timer of faulthandler may run in the parent, and
    then cannot be set in a child."""
    faulthandler.register(signal.SIGALRM, file=2, chain=True)
    signal.alarm(LIMIT)


def in_child(check: Callable[[], None]) -> None:
    """Runs `check` in a forked child, and fails if it fails there."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            limit_child()
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the child failed"


def is_leased(store: Path, number: int) -> bool:
    """Whether a process holds the shared lock that keeps the generation."""
    with (store / f"gen-{number:010}" / "lease").open() as lease:
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@pytest.mark.parametrize("mode", MODES)
def test_a_child_reads(store: Path, pairs: dict[int, bytes], mode: Any) -> None:
    db = sharddb.open(store, mode=mode)
    snapshot = db.snapshot()
    view = db.view(0)
    keys = list(pairs)
    iterator, items = iter(db), db.items()
    next(iterator)
    next(items)

    def check() -> None:
        for reader in (db, snapshot):
            assert dict(reader.items()) == pairs
            assert reader.get_many(keys) == list(pairs.values())
            assert reader.generation == 1
        assert view == pairs[0]
        assert len(list(iterator)) == len(list(items)) == len(pairs) - 1

    in_child(check)
    check_parent = dict(db.items())
    assert check_parent == pairs


@pytest.mark.parametrize("of", ["database", "snapshot", "keys", "items"])
def test_a_child_holds_a_lease_of_its_own(store: Path, of: str) -> None:
    """The lease of the child outlives that of the parent."""
    db = sharddb.open(store)
    reader: Any = {"database": lambda: db, "snapshot": db.snapshot, "keys": db.__iter__, "items": db.items}[of]()
    ready_read, ready_write = os.pipe()
    closed_read, closed_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        limit_child()
        assert (reader[0] if isinstance(reader, sharddb.Reader) else next(reader)) is not None
        os.write(ready_write, b".")
        os.read(closed_read, 1)
        os._exit(0 if is_leased(store, 1) else 1)
    os.read(ready_read, 1)
    del reader
    db.close()
    assert is_leased(store, 1), "by the child"
    os.write(closed_write, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not is_leased(store, 1)


def test_a_child_that_closes_leaves_the_lease_to_the_parent(store: Path) -> None:
    db = sharddb.open(store)
    in_child(db.close)
    assert is_leased(store, 1)
    assert db[0] is not None
    db.close()
    assert not is_leased(store, 1)


def test_a_child_serves_the_generation_of_its_parent(store: Path) -> None:
    db = sharddb.open(store)
    snapshot = db.snapshot()
    make_current(store, 2)

    def check() -> None:
        assert db.generation == 1 and snapshot.generation == 1
        assert db[0] == snapshot[0]
        assert db.snapshot().generation == 1
        assert db.refresh() == 2
        assert db.generation == 2 and snapshot.generation == 1
        assert db.refresh() is None

    in_child(check)
    assert db.generation == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_generation_that_was_removed(store: Path, mode: Any) -> None:
    db = sharddb.open(store, mode=mode)
    snapshot = db.snapshot()
    iterators: list[Any] = [iter(db), db.items()]
    before = db[0]
    make_current(store, 2)
    remove_generation(store, 1)

    def check() -> None:
        for iterator in iterators:
            with pytest.raises(sharddb.GenerationGone):
                next(iterator)
        for reader in (db, snapshot):
            with pytest.raises(sharddb.GenerationGone) as raised:
                reader[0]
            assert raised.value.path == str(store / "gen-0000000001")
        with sharddb.open(store) as again:
            assert again.generation == 2 and again[0] == before
        assert db.refresh() == 2
        assert db.generation == 2 and db[0] == before
        with pytest.raises(sharddb.GenerationGone):
            snapshot[0]

    in_child(check)
    assert mode == "pread" or db[0] == before


def test_a_watch_ends_in_a_child(store: Path) -> None:
    db = sharddb.open(store)
    db.watch(0.001)

    def check() -> None:
        assert db.generation == 1
        names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
        assert "sharddb-watch" not in names
        make_current(store, 2)
        assert db.generation == 1
        db.watch(0.001)  # one of its own
        while db.generation != 2:
            pass
        db.close()

    in_child(check)
    db.close()


def test_a_fork_while_other_threads_read(store: Path, pairs: dict[int, bytes]) -> None:
    db = sharddb.open(store)
    keys = np.array(list(pairs), np.uint64)
    is_done = threading.Event()

    def read() -> None:
        while not is_done.is_set():
            db.get_ragged(keys)
            db.refresh()

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            in_child(lambda: assert_equal(db.get_many(keys), list(pairs.values())))
    finally:
        is_done.set()
        for thread in threads:
            thread.join()


def assert_equal(found: Any, expected: Any) -> None:
    assert found == expected


def test_a_grandchild(store: Path) -> None:
    db = sharddb.open(store)

    def check() -> None:
        assert db.generation == 1
        in_child(lambda: assert_equal(db.generation, 1))

    in_child(check)


def read_in_worker(reader: sharddb.Reader) -> tuple[int | None, int]:
    return reader.generation, len(dict(reader.items()))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes(store: Path, method: str) -> None:
    db = sharddb.open(store)
    make_current(store, 2)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(read_in_worker, [db, db.snapshot()]) == [(1, 185)] * 2
