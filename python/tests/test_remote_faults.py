"""A store that fails or misbehaves is a named error with the exception of the store as its cause, and never a wrong value.

Interrupts and cancellation end a call at once, whatever the store does.
"""

import asyncio
import gc
import random
import signal
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import LIMIT, PUBLIC, output_of, program
from remote_stores import ManyRanges, Objects, Ranges, Result, files, keys_apart

import sharddb

VALUES = {key: b"value %d " % key * 20 for key in range(2000)}


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The objects of a generation with several shards."""
    store = tmp_path_factory.mktemp("store")
    with sharddb.Loader(store, profile="local", max_shard_bytes="128KiB") as loader:
        loader.extend(VALUES)
    return files(store / "gen-0000000001")


class Faulty(Objects):
    """A store that applies `fault` to the result of each request, once it is set."""

    fault: Callable[[Result], Any] | None = None

    def get(self, path: str, *, options: dict[str, Any] | None = None) -> Any:
        result = super().get(path, options=options)
        return result if self.fault is None else self.fault(result)


def changed(**attributes: Any) -> Callable[[Result], Any]:
    """Returns the fault that replaces attributes of the result."""

    def fault(result: Result) -> Result:
        for name, value in attributes.items():
            setattr(result, name, value(result) if callable(value) else value)
        return result

    return fault


def raising(error: BaseException) -> Callable[[Result], Any]:
    def fault(_: Result) -> Any:
        raise error

    return fault


FAULTS: dict[str, tuple[Callable[[Result], Any], type[BaseException] | None]] = {
    "a text": (changed(body=lambda result: "x" * len(result.body)), TypeError),
    "none": (lambda result: None, TypeError),
    "no body": (changed(body=None), TypeError),
    "an object": (lambda result: object(), TypeError),
    "too few bytes": (changed(body=lambda result: result.body[:-1]), None),
    "no bytes": (changed(body=b""), None),
    "too many bytes": (changed(body=lambda result: result.body + b"x"), None),
    "wrong bytes": (changed(body=lambda result: bytes(len(result.body))), None),
    "another range": (changed(range=(2**40, 2**40 + 1)), ValueError),
    "a size that is none": (changed(meta={"size": "12"}), TypeError),
    "a size below 0": (changed(meta={"size": -1}), OverflowError),
    "an ETag that is none": (changed(meta={"e_tag": 5, "size": 5}), TypeError),
    "no meta": (changed(meta=None), AttributeError),
    "an exception": (raising(RuntimeError("the network is down")), RuntimeError),
    "an exception without a text": (raising(RuntimeError()), RuntimeError),
    "an exception with a bad text": (raising(type("Odd", (Exception,), {"__str__": lambda self: 1 / 0})()), Exception),
    "a timeout": (raising(TimeoutError("timed out")), TimeoutError),
    "StopIteration": (raising(StopIteration()), Exception),  # a coroutine makes it a RuntimeError
    "a condition that nobody set": (raising(type("PreconditionError", (Exception,), {})()), Exception),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("threads", [1, 8])
def test_faults(objects: dict[str, bytes], name: str, threads: int) -> None:
    fault, cause = FAULTS[name]
    store = Faulty(dict(objects))
    db = sharddb.open("s3://bucket/store", store=store, threads=threads, cache_bytes=0)
    keys = list(VALUES)
    store.fault = fault
    calls: list[Callable[[], object]] = [
        lambda: db[5],
        lambda: db.get_many(keys),
        lambda: asyncio.run(db.get_async(5)),
        lambda: asyncio.run(db.get_many_async(keys)),
        lambda: sharddb.open("s3://bucket/store", store=store),
    ]
    for call in calls:
        with pytest.raises(sharddb.Error) as raised:
            call()
        assert raised.type is not sharddb.Internal
        if cause is not None:
            assert raised.type is sharddb.Io and isinstance(raised.value.__cause__, cause)
            assert type(raised.value.__cause__).__name__ in str(raised.value)
    store.fault = None
    assert db.get_many(keys) == list(VALUES.values())


def test_the_message_of_a_store(objects: dict[str, bytes]) -> None:
    store = Faulty(objects)
    db = sharddb.open("s3://bucket/store", store=store)
    store.fault = raising(PermissionError("no permission\nand much more"))
    with pytest.raises(sharddb.Io) as raised:
        db[5]
    assert "PermissionError: no permission" in str(raised.value) and "much more" not in str(raised.value)
    assert ".shard" in str(raised.value)


def test_missing_objects_that_are_forbidden(objects: dict[str, bytes]) -> None:
    """Without the permission to list, a store answers "no permission" for a missing object, such as ``current`` here."""

    class PermissionDeniedError(Exception):
        """Found by its name, like the class of obstore."""

    class Closed(Objects):
        def __init__(self, error: Exception) -> None:
            super().__init__(objects)
            self.error = error

        def get(self, path: str, *, options: dict[str, Any] | None = None) -> Result:
            try:
                return super().get(path, options=options)
            except FileNotFoundError:
                raise self.error from None

    for error in (PermissionError(13, "forbidden"), PermissionDeniedError("403")):
        assert sharddb.open("s3://bucket/store", store=Closed(error))[5] == VALUES[5]
    with pytest.raises(sharddb.Io, match="current"):
        sharddb.open("s3://bucket/store", store=Closed(TimeoutError("no answer")))


def test_no_database(tmp_path: Path) -> None:
    for store in (Objects({}), Ranges({}), Objects({"info": b""}), Ranges({"info": b"{"})):
        with pytest.raises(sharddb.Error) as raised:
            sharddb.open("s3://bucket/store", store=store)
        assert raised.type in (sharddb.NotFound, sharddb.InvalidSpec, sharddb.Corrupt)


def test_an_object_that_is_too_large(objects: dict[str, bytes]) -> None:
    """Its bytes are not read where its length is known."""
    large = {**objects, "info": bytes(200 << 20)}

    class Unread(Objects):
        def get(self, path: str, *, options: dict[str, Any] | None = None) -> Any:
            result = super().get(path, options=options)
            if path == "info":
                del result.body
            return result

    for store in (Unread(large), Ranges(large)):
        with pytest.raises(sharddb.TooLarge):
            sharddb.open("", store=store)


@pytest.mark.parametrize("store", [object(), None.__class__, 5, "s3://bucket"])
def test_no_store(store: Any) -> None:
    with pytest.raises(TypeError, match="expected store to be an object store with the method get or get_range"):
        sharddb.open("", store=store)
    with pytest.raises(TypeError, match="found"):
        asyncio.run(sharddb.open_async("", store=store))


def test_a_dict_is_no_store() -> None:
    with pytest.raises(sharddb.Io) as raised:
        sharddb.open("", store={})  # type: ignore[call-overload]
    assert isinstance(raised.value.__cause__, TypeError)


def test_a_store_with_coroutines_only(objects: dict[str, bytes]) -> None:
    class Coroutines:
        def __init__(self) -> None:
            self._objects = Objects(objects)

        async def get_async(self, path: str, *, options: Any = None) -> Result:
            return self._objects.get(path, options=options)

    async def main() -> None:
        db = await sharddb.open_async("", store=Coroutines())
        assert await db.get_async(5) == VALUES[5]
        with pytest.raises(sharddb.Io, match="asynchronous methods only"):
            db[1999]

    asyncio.run(main())


def test_get_ranges_with_another_number_of_results(objects: dict[str, bytes]) -> None:
    class Forgetful(ManyRanges):
        def get_ranges(self, path: str, *, starts: Any, ends: Any) -> Any:
            return super().get_ranges(path, starts=starts, ends=ends)[1:]

    with sharddb.open("", store=Forgetful(objects), cache_bytes=0, request_cost="16KiB") as db:
        keys = keys_apart(db, VALUES)
        with pytest.raises(sharddb.Io, match="results of get_ranges"):
            db.get_many(keys)


def test_coroutines_that_are_none(objects: dict[str, bytes]) -> None:
    class Strange(Objects):
        def get_async(self, path: str, *, options: Any = None) -> Any:
            return self.get(path, options=options)  # a result instead of an awaitable

    with pytest.raises(sharddb.Io) as raised:
        asyncio.run(sharddb.open_async("", store=Strange(objects)))
    assert isinstance(raised.value.__cause__, TypeError)


def test_a_store_that_cancels_its_requests(objects: dict[str, bytes]) -> None:
    class Cancelling(Objects):
        async def get_async(self, path: str, *, options: Any = None) -> Any:
            raise asyncio.CancelledError

    with pytest.raises(sharddb.Io, match="the store has cancelled the request"):
        asyncio.run(sharddb.open_async("", store=Cancelling(objects)))


# --- interrupts and cancellation


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_exceptions_that_are_no_errors_pass(objects: dict[str, bytes], threads: int, error: type[BaseException]) -> None:
    store = Faulty(objects)
    db = sharddb.open("", store=store, threads=threads)
    store.fault = raising(error())
    for call in (lambda: db[5], lambda: db.get_many(list(VALUES))):
        with pytest.raises(error):
            call()
    store.fault = None
    assert db.get_many(list(VALUES)) == list(VALUES.values())


def test_ctrl_c_during_a_batch(tmp_path: Path, objects: dict[str, bytes]) -> None:
    """The requests that are under way do not delay it."""
    with sharddb.Loader(tmp_path / "store", max_shard_bytes="128KiB") as loader:
        loader.extend(VALUES)
    code = """
        import linecache, sys, threading, time
        from pathlib import Path
        import sharddb

        class Stuck:
            ready = release = None
            def get_range(self, path, *, start, end):
                if self.release is not None:
                    self.ready.set()
                    self.release.wait()
                file = Path(sys.argv[1], path)
                if not file.is_file():
                    raise FileNotFoundError(path)
                return file.read_bytes()[start:end]

        def waits(thread):
            frame = sys._current_frames()[thread.ident]
            return "arrivals.get()" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)

        def announce():
            store.ready.wait()
            # before it waits, it may be in the callback of a weak reference, whose exceptions Python drops
            while not waits(threading.main_thread()):
                time.sleep(0.01)
            print("ready", flush=True)

        store = Stuck()
        db = sharddb.open("gen-0000000001", store=store)
        store.ready = threading.Event()
        store.release = threading.Event()
        threading.Thread(target=announce).start()
        try:
            db.get_many(range(2000))
        except KeyboardInterrupt:
            print("interrupted", store.release.is_set(), flush=True)
            store.release.set()
        store.release = None
        print(len(db.get_many(range(2000))))
    """
    with program(code, str(tmp_path / "store")) as process:
        assert process.stdout is not None
        if process.stdout.readline() == "ready\n":
            process.send_signal(signal.SIGINT)
        assert output_of(process).splitlines() == ["interrupted False", "2000"]


class Gate(Objects):
    """A store whose asynchronous requests wait until the gate opens, and are counted."""

    opened: asyncio.Event | None = None
    waiting = 0
    most_waiting = 0
    cancelled = 0

    async def get_async(self, path: str, *, options: dict[str, Any] | None = None) -> Any:
        if self.opened is not None:
            self.waiting += 1
            self.most_waiting = max(self.most_waiting, self.waiting)
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            finally:
                self.waiting -= 1
        return self.get(path, options=options)


class Flaky(Objects):
    """A store of which one request in `every` fails."""

    every = 0

    def get(self, path: str, *, options: dict[str, Any] | None = None) -> Any:
        if self.every and len(self.requests) % self.every == 0:
            self.requests.append((path, options))
            raise ConnectionResetError("flaky")
        return super().get(path, options=options)

    async def get_async(self, path: str, *, options: dict[str, Any] | None = None) -> Any:
        await asyncio.sleep(0.001)
        return self.get(path, options=options)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_cancellation(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharddb._transport.TASKS", 3)

    async def main() -> None:
        store = Gate(objects)
        db = await sharddb.open_async("", store=store, cache_bytes=0)
        store.opened = asyncio.Event()
        for call in (db.get_async(5), db.get_many_async(list(VALUES)), db.contains_async(7)):
            task = asyncio.ensure_future(call)
            await until(lambda: store.waiting > 0)
            waiting, before = store.waiting, store.cancelled
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert store.waiting == 0 and store.cancelled == before + waiting
        assert len(asyncio.all_tasks()) == 1
        store.opened.set()
        assert await db.get_many_async(list(VALUES)) == list(VALUES.values())
        assert store.most_waiting == 3

    asyncio.run(main())


def test_a_cancellation_ends_no_other_call() -> None:
    """Many calls need the same index. The one that reads it is cancelled: one of the others reads it."""
    path = PUBLIC / "cv_10k_id"
    with sharddb.open(path) as local:
        key = int(local.keys()[0])

    async def main() -> None:
        store = Gate(files(path))
        db = await sharddb.open_async("", store=store)
        store.opened = asyncio.Event()
        before = len(store.requests)
        first, *others = (asyncio.ensure_future(db.contains_async(key)) for _ in range(20))
        thread = asyncio.ensure_future(asyncio.to_thread(lambda: key in db))
        await until(lambda: store.waiting > 0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert store.waiting == 1
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        store.opened.set()
        assert all(await asyncio.gather(*others, thread))
        assert len(store.requests) == before + 2  # the shard index and the minishard index

    asyncio.run(main())


def test_a_thread_waits_for_a_coroutine() -> None:
    """Two calls need the same index. A thread gets it from the response to a coroutine."""

    path = PUBLIC / "cv_10k_id"
    store = Gate(files(path))
    with sharddb.open(path) as local:
        key = int(local.keys()[0])
        expected = local[key]
    results: list[bytes | None] = []

    async def main() -> None:
        db = sharddb.open("", store=store)
        store.opened = asyncio.Event()
        task = asyncio.ensure_future(db.get_async(key))
        await until(lambda: store.waiting > 0)
        before = len(store.requests)
        thread = threading.Thread(target=lambda: results.append(db.get(key)))
        thread.start()
        await asyncio.to_thread(thread.join, 0.2)
        assert thread.is_alive() and len(store.requests) == before
        store.opened.set()
        assert await task == expected
        await asyncio.to_thread(thread.join, LIMIT)
        assert not thread.is_alive()

    asyncio.run(main())
    assert results == [expected]


def test_a_call_does_not_wait_for_the_loop_of_its_thread() -> None:
    """A coroutine reads an index, and the thread of its loop needs the same index at once: it reads that itself."""
    path = PUBLIC / "cv_10k_id"
    store = Gate(files(path))
    with sharddb.open(path) as local:
        key = int(local.keys()[0])
        expected = local[key]

    async def main() -> None:
        db = sharddb.open("", store=store)
        store.opened = asyncio.Event()
        task = asyncio.ensure_future(db.get_async(key))
        await until(lambda: store.waiting > 0)
        assert db.get(key) == expected
        store.opened.set()
        assert await task == expected

    asyncio.run(main())


def test_a_call_does_not_wait_for_a_loop_that_has_stopped() -> None:
    path = PUBLIC / "cv_10k_id"
    store = Gate(files(path))
    with sharddb.open(path) as local:
        key = int(local.keys()[0])
        expected = local[key]
    db = sharddb.open("", store=store)

    async def begin() -> asyncio.Task[bytes | None]:
        store.opened = asyncio.Event()
        task = asyncio.ensure_future(db.get_async(key))
        await until(lambda: store.waiting > 0)
        return task

    loop = asyncio.new_event_loop()
    task = loop.run_until_complete(begin())
    store.opened = None
    assert db.get(key) == expected
    assert asyncio.run(db.get_async(key)) == expected
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()


class Reentrant(Ranges):
    """A store whose method reads a database, once it is set."""

    db: sharddb.RemoteDatabase | None = None
    keys: Sequence[int] = ()

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.errors: list[Exception] = []

    def get_range(self, path: str, *, start: int, end: int) -> bytes:
        if self.db is not None:
            try:
                self.db.get_many(self.keys)
            except Exception as error:
                self.errors.append(error)
                raise
        return super().get_range(path, start=start, end=end)


@pytest.mark.parametrize("threads", [1, 8])
def test_a_store_that_reads_its_own_database(objects: dict[str, bytes], threads: int) -> None:
    """The call that would wait for itself raises, and so does the one that the store was called for."""
    keys = list(VALUES)
    calls: list[Callable[[sharddb.RemoteDatabase], object]] = [
        lambda db: db[3],
        lambda db: db.get_many(keys),
        lambda db: asyncio.run(db.get_async(3)),
        lambda db: asyncio.run(db.get_many_async(keys)),
    ]
    for call in calls:
        for inner in ([3], keys):
            store = Reentrant(objects)
            store.db, store.keys = sharddb.open("", store=store, threads=threads), inner
            with pytest.raises(sharddb.Io, match="InvalidInput: the store reads") as raised:
                call(store.db)
            assert isinstance(raised.value.__cause__, sharddb.Io | sharddb.InvalidInput)
            assert any(type(error) is sharddb.InvalidInput for error in store.errors)
            db, store.db = store.db, None
            assert db.get_many(keys) == list(VALUES.values())


def test_a_store_with_coroutines_that_reads_its_own_database(objects: dict[str, bytes]) -> None:
    class ReentrantAsync(Objects):
        db: sharddb.RemoteDatabase | None = None

        async def get_async(self, path: str, *, options: dict[str, Any] | None = None) -> Any:
            if self.db is not None:
                await self.db.get_async(3)
            return self.get(path, options=options)

    async def main() -> None:
        store = ReentrantAsync(objects)
        store.db = await sharddb.open_async("", store=store)
        with pytest.raises(sharddb.Io, match="InvalidInput: the store reads"):
            await asyncio.wait_for(store.db.get_async(3), LIMIT)

    asyncio.run(main())


def test_a_store_may_read_other_values_of_its_database(objects: dict[str, bytes]) -> None:
    """Those whose bytes are not the ones that it was called for."""

    class Logged(Ranges):
        db: sharddb.RemoteDatabase | None = None

        def get_range(self, path: str, *, start: int, end: int) -> bytes:
            db, self.db = self.db, None
            if db is not None:
                assert db[other] == VALUES[other]
            return super().get_range(path, start=start, end=end)

    store = Logged(objects)
    db = sharddb.open("", store=store)
    other = keys_apart(db, VALUES)[-1]
    db = store.db = sharddb.open("", store=store)
    assert db[3] == VALUES[3] and store.db is None


@pytest.mark.parametrize("cache_bytes", [0, "64MiB"])
def test_many_callers_of_a_flaky_store(cache_bytes: int | str) -> None:
    """Coroutines of which some are cancelled, and threads: each has its own values or the error of the store."""
    path = PUBLIC / "cv_10k_id"
    with sharddb.open(path) as local:
        keys = [int(key) for key in local.keys()[:2000]]
        expected = dict(zip(keys, local.get_many(keys), strict=True))
    store = Flaky(files(path))
    db = sharddb.open("", store=store, cache_bytes=cache_bytes)
    store.every = 50

    async def call(rng: random.Random) -> str:
        some = rng.sample(keys, rng.choice([1, 20]))
        task = asyncio.ensure_future(db.get_many_async(some))
        if rng.random() < 0.3:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
        try:
            assert await task == [expected[key] for key in some]
            return "right"
        except asyncio.CancelledError:
            return "cancelled"
        except sharddb.Io as error:
            assert isinstance(error.__cause__, ConnectionResetError)
            return "failed"

    async def coroutines(seed: int) -> Counter[str]:
        rng = random.Random(seed)
        counts: Counter[str] = Counter()
        for _ in range(5):
            counts.update(await asyncio.gather(*(call(rng) for _ in range(20))))
        return counts

    def calls(seed: int) -> Counter[str]:
        rng = random.Random(seed)
        counts: Counter[str] = Counter()
        for _ in range(50):
            some = rng.sample(keys, rng.choice([1, 20]))
            try:
                assert db.get_many(some) == [expected[key] for key in some]
                counts["right"] += 1
            except sharddb.Io as error:
                assert isinstance(error.__cause__, ConnectionResetError)
                counts["failed"] += 1
        return counts

    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(6) as pool:
        callers = [pool.submit(asyncio.run, coroutines(seed)) for seed in range(3)]
        callers += [pool.submit(calls, seed) for seed in range(3)]
        for caller in callers:
            counts.update(caller.result(LIMIT))
    assert sum(counts.values()) == 3 * 100 + 3 * 50 and min(counts[name] for name in ("right", "cancelled", "failed")) > 0


def test_a_database_is_freed(objects: dict[str, bytes]) -> None:
    """Neither a cancelled call nor an error keeps the store."""

    async def main() -> None:
        store = Gate(objects)
        db = await sharddb.open_async("", store=store)
        store.opened = asyncio.Event()
        task = asyncio.ensure_future(db.get_async(5))
        await until(lambda: store.waiting > 0)
        task.cancel()
        await asyncio.wait([task])
        stores.append(weakref.ref(store))

    stores: list[weakref.ref[Gate]] = []
    asyncio.run(main())
    faulty = Faulty(objects)
    db = sharddb.open("", store=faulty)
    faulty.fault = raising(RuntimeError("broken"))
    with pytest.raises(sharddb.Io):
        db[5]
    freed = weakref.ref(faulty)
    del db, faulty
    gc.collect()
    assert stores[0]() is None and freed() is None
