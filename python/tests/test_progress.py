"""Progress bars: what is no bar is refused before the work, and one that raises ends the work before it publishes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharddb

METHODS = ["set_description", "reset", "update"]


class Bar:
    """A bar that raises in one of its methods, in one phase or in each."""

    total: float | None = None

    def __init__(self, raising: str, phase: str | None = None) -> None:
        self.raising, self.only, self.phase = raising, phase, ""

    def called(self, name: str) -> None:
        if name == self.raising and self.only in (None, self.phase):
            raise LookupError(name)

    def set_description(self, text: str) -> None:
        self.phase = text
        self.called("set_description")

    def reset(self) -> None:
        self.called("reset")

    def update(self, n: float) -> None:
        self.called("update")


def loaded(path: Path, count: int, first: int = 0) -> Path:
    with sharddb.Loader(path) as loader:
        loader.extend(np.arange(first, first + count), np.arange(count + 1) * 100, bytes(count * 100))
    return path


PLAN = sharddb.PartPlan(sharddb.plan(count=100_000), 1)


def spilled(store: Path, count: int) -> sharddb.SpillWriter:
    spill = sharddb.SpillWriter(sharddb.job_directory(store, "job"), PLAN, 0)
    spill.extend(np.arange(count), np.arange(count + 1) * 100, bytes(count * 100))
    return spill


def by_load(directory: Path, count: int) -> Callable[[Any], object]:
    loader = sharddb.Loader(directory / "store", mode="replace")
    loader.extend(np.arange(count), np.arange(count + 1) * 100, bytes(count * 100))
    return lambda bar: loader.finish(progress=bar)


def by_update(directory: Path, count: int) -> Callable[[Any], object]:
    puts = {10**6 + key: bytes(100) for key in range(count)}
    return lambda bar: sharddb.update(directory / "store", puts, progress=bar)


def by_merge(directory: Path, count: int) -> Callable[[Any], object]:
    sources = [loaded(directory / "more", count, 10**6)]
    return lambda bar: sharddb.merge(sources, directory / "store", progress=bar)


def by_publication(directory: Path, count: int) -> Callable[[Any], object]:
    built = loaded(directory / "built", count)
    return lambda bar: sharddb.Store(directory / "store").publish(built / "current", progress=bar)


def by_parts(directory: Path, count: int) -> Callable[[Any], object]:
    store = directory / "store"
    receipts = [spilled(store, count).finish()]
    parts = [sharddb.build_part(PLAN, receipts, 0, sharddb.job_directory(store, "job"))]
    return lambda bar: sharddb.publish_parts(store, "job", PLAN, receipts, parts, progress=bar)


WAYS = [by_load, by_update, by_merge, by_publication, by_parts]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    loaded(tmp_path / "store", 2)
    return tmp_path


@pytest.mark.parametrize("count", [1, 100_000])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", WAYS)
def test_a_bar_that_raises_ends_the_work_unpublished(
    base: Path, way: Callable[[Path, int], Callable[[Any], object]], method: str, count: int
) -> None:
    publish = way(base, count)
    with pytest.raises(LookupError, match=method):
        publish(Bar(method))
    store = sharddb.Store(base / "store")
    assert (store.current, [generation.id for generation in store.generations()]) == (1, [1])


@pytest.mark.parametrize("way", [by_load, by_update, by_merge, by_parts])
def test_a_bar_that_raises_when_all_is_written(base: Path, way: Callable[[Path, int], Callable[[Any], object]]) -> None:
    publish = way(base, 1)
    with pytest.raises(LookupError):
        publish(Bar("update", "publish"))
    assert sharddb.Store(base / "store").current == 1
    if way is by_parts:
        publish(None)
        assert sharddb.Store(base / "store").current == 2


class NoTotal:
    __slots__ = ()

    def set_description(self, _text: str) -> None: ...

    def reset(self) -> None: ...

    def update(self, _n: float) -> None: ...


@pytest.mark.parametrize("count", [1, 100_000])
def test_a_class_is_no_bar(base: Path, count: int) -> None:
    with pytest.raises(TypeError, match=r"found the class Bar: call it, as in progress=Bar\(\)"):
        by_load(base, count)(Bar)


NO_BARS = [(lambda _n: None, "function without set_description"), (print, "set_description"), (NoTotal(), "NoTotal without total")]


@pytest.mark.parametrize(("bar", "missing"), NO_BARS)
def test_what_is_no_bar_is_refused_before_the_work(base: Path, bar: Any, missing: str) -> None:
    other = loaded(base / "other", 1, 10)
    spill = spilled(base / "store", 1)
    with sharddb.open(base / "store") as db:
        works: list[Callable[[], object]] = [
            lambda: by_load(base, 1)(bar),
            lambda: sharddb.update(base / "store", iter_fails(), progress=bar),
            lambda: sharddb.merge([other], base / "store", progress=bar),
            lambda: sharddb.reshard(other, base / "out", profile="remote", progress=bar),
            lambda: sharddb.Store(base / "store").publish(other / "current", progress=bar),
            lambda: spill.finish(progress=bar),
            lambda: sharddb.build_part(PLAN, [], 0, base, progress=bar),
            lambda: sharddb.publish_parts(base / "store", "job", PLAN, [], [], progress=bar),
            lambda: sharddb.diff(base / "store", other, progress=bar),
            lambda: db.verify(progress=bar),
        ]
        for work in works:
            with pytest.raises(TypeError, match=f"expected progress to be a bar such as tqdm.*{missing}"):
                work()
    assert sharddb.Store(base / "store").current == 1
    assert not (base / "out").exists() and spill.receipt is None


def iter_fails() -> Any:
    """Pairs that are not read."""
    raise AssertionError("the pairs were read before the bar was checked")
    yield
