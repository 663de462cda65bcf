"""Performs the requests of remote operations by calling an object store of the caller.

A store has the methods of obspec: ``get(path, *, options)``, or ``get_range(path, *, start, end)`` and perhaps
``get_ranges(path, *, starts, ends)``, and their ``_async`` variants. ``get`` is preferred, because it has conditions and
returns the ETag.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from sharddb._sharddb import RemoteOperation, RemoteRequest
from sharddb.errors import InvalidInput

if TYPE_CHECKING:
    from typing_extensions import Buffer

_T = TypeVar("_T")

TASKS = 48
"""Upper bound on the requests of an asynchronous call that are in flight at a time."""


class Get(Protocol):
    """A store that reads an object with conditions, and returns its ETag: ``obspec.Get``."""

    def get(self, path: str, *, options: Any = None) -> Any: ...


class GetRange(Protocol):
    """A store that reads a range of an object: ``obspec.GetRange``."""

    def get_range(self, path: str, *, start: int, end: int) -> Buffer: ...


class GetAsync(Protocol):
    """The asynchronous variant of ``Get``: ``obspec.GetAsync``."""

    def get_async(self, path: str, *, options: Any = None) -> Awaitable[Any]: ...


class GetRangeAsync(Protocol):
    """The asynchronous variant of ``GetRange``: ``obspec.GetRangeAsync``."""

    def get_range_async(self, path: str, *, start: int, end: int) -> Awaitable[Buffer]: ...


ObjectStore = Get | GetRange | GetAsync | GetRangeAsync
"""What ``sharddb.open`` takes as ``store``."""


@dataclass(frozen=True)
class Reply:
    """The bytes of a request, and what the store states about the object."""

    body: Buffer
    etag: str | None = None
    size: int | None = None

    def give(self, operation: RemoteOperation, request: RemoteRequest) -> None:
        operation.answer(request, self.body, self.etag, self.size)


@dataclass(frozen=True)
class TooLarge:
    """The length of an object whose bytes are not read, because it is longer than the request permits."""

    size: int

    def give(self, operation: RemoteOperation, request: RemoteRequest) -> None:
        operation.refuse(request, self.size)


@dataclass(frozen=True)
class Failed:
    """The exception that the store has raised for a request."""

    error: Exception

    def give(self, operation: RemoteOperation, request: RemoteRequest) -> None:
        operation.fail(request, _reason(self.error, request), self.error)


Answer = Reply | TooLarge | Failed


class Transport:
    """The requests of one data set, as calls of a store.

    Raises ``TypeError`` for an object that is not a store.
    """

    def __init__(self, store: ObjectStore, prefix: str, threads: int) -> None:
        self._store = store
        self._threads = threads
        self._loops: Counter[asyncio.AbstractEventLoop] = Counter()
        """The number of operations under way on each event loop."""
        self._prefix = f"{prefix}/" if prefix else ""
        self._get = _method(store, "get")
        self._get_range = _method(store, "get_range")
        self._get_ranges = _method(store, "get_ranges")
        self._get_async = _method(store, "get_async")
        self._get_range_async = _method(store, "get_range_async")
        if not (self._get or self._get_range or self._get_async or self._get_range_async):
            raise TypeError(
                "expected store to be an object store with the method get or get_range of obspec, such as those of "
                f"obstore, found {type(store).__name__}"
            )

    def run(self, operation: RemoteOperation) -> Any:
        """Runs an operation, and returns its result.

        A single request runs on this thread. Several run on at most ``threads`` threads, which end with the operation.
        Any exception ends the operation; a request that is under way then ends on its thread, unobserved.
        """
        arrivals: SimpleQueue[_Arrival | None] = SimpleQueue()
        pool: ThreadPoolExecutor | None = None
        outstanding = 0

        def wake() -> None:
            arrivals.put(None)

        try:
            while (result := operation.poll(wake)) is None:
                groups = self._groups(operation.requests())
                if self._threads == 1 or outstanding == 0 and len(groups) == 1:
                    for group in groups:
                        _give(operation, group, self._perform(group))
                    if groups:
                        continue
                for group in groups:
                    pool = pool or ThreadPoolExecutor(self._threads, "sharddb")
                    pool.submit(self._perform_on_thread, group, arrivals)
                    outstanding += 1
                if outstanding == 0:
                    self._check_loop()
                for arrival in _wait(arrivals):
                    outstanding -= 1
                    arrival.give(operation)
            return result[0]
        finally:
            operation.cancel()
            if pool:
                pool.shutdown(wait=False, cancel_futures=True)

    async def run_async(self, operation: RemoteOperation) -> Any:
        """Runs an operation on the running event loop, and returns its result.

        At most ``TASKS`` requests are in flight. Cancellation, and any other exception, ends the operation and its
        requests.
        """
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()
        waiting: deque[RemoteRequest] = deque()
        tasks: dict[asyncio.Task[Answer], RemoteRequest] = {}

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(arrived.set)
            except RuntimeError:
                pass  # the loop is closed, and nobody waits

        self._loops[loop] += 1
        try:
            while (result := operation.poll(wake)) is None:
                waiting.extend(operation.requests())
                while waiting and len(tasks) < TASKS:
                    request = waiting.popleft()
                    task = loop.create_task(self._perform_async(request))
                    task.add_done_callback(lambda _: arrived.set())
                    tasks[task] = request
                await arrived.wait()
                arrived.clear()
                for task in [task for task in tasks if task.done()]:
                    _give(operation, [tasks.pop(task)], [_answer(task)])
            return result[0]
        finally:
            operation.cancel()
            for task in tasks:
                task.cancel()
            self._loops[loop] -= 1
            if not self._loops[loop]:
                del self._loops[loop]
            if tasks:
                await asyncio.gather(*tasks, return_exceptions=True)

    def _check_loop(self) -> None:
        """Checks that waiting for another operation cannot last for ever, because that one is waiting for this thread.

        Raises ``InvalidInput``.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._loops[loop] > 0:
            raise InvalidInput(
                "expected the asynchronous methods only on the thread of an event loop, found a call that waits for another "
                "one on the same loop: await the method whose name ends with _async"
            )

    def _groups(self, requests: Sequence[RemoteRequest]) -> list[list[RemoteRequest]]:
        """Returns the requests that are one call each.

        A store without ``get`` reads several ranges of an object in one call of ``get_ranges``, if it has that.
        """
        if self._get or not self._get_ranges:
            return [[request] for request in requests]
        groups: dict[object, list[RemoteRequest]] = {}
        for request in requests:
            groups.setdefault(request if request.range is None else request.object, []).append(request)
        return list(groups.values())

    def _perform_on_thread(self, group: list[RemoteRequest], arrivals: SimpleQueue[_Arrival | None]) -> None:
        try:
            arrivals.put(_Arrival(group, self._perform(group)))
        except BaseException as error:  # that of the store, for the thread of the caller
            arrivals.put(_Arrival(group, error))

    def _perform(self, group: list[RemoteRequest]) -> list[Answer]:
        """Performs requests that are one call. Raises what is not an ``Exception``, such as ``KeyboardInterrupt``."""
        try:
            if len(group) > 1:
                return self._read_ranges(group)
            return [self._read(request) for request in group]
        except Exception as error:
            return [Failed(error)] * len(group)

    async def _perform_async(self, request: RemoteRequest) -> Answer:
        """Performs a request. Without an asynchronous method, the synchronous one runs on a thread of the loop."""
        try:
            if self._get_async:
                result = await self._get_async(self._path(request), options=_options(request))
                return _too_large(request, result) or _reply(result, await _body_async(result))
            if self._get or not self._get_range_async:
                return await asyncio.to_thread(self._read, request)
            start, end = _range(request)
            return Reply(await self._get_range_async(self._path(request), start=start, end=end))
        except Exception as error:
            return Failed(error)

    def _read(self, request: RemoteRequest) -> Answer:
        if self._get:
            result = self._get(self._path(request), options=_options(request))
            return _too_large(request, result) or _reply(result, _body(result))
        if not self._get_range:
            raise TypeError(f"{type(self._store).__name__} has asynchronous methods only: use those of the database")
        start, end = _range(request)
        return Reply(self._get_range(self._path(request), start=start, end=end))

    def _read_ranges(self, group: list[RemoteRequest]) -> list[Answer]:
        assert self._get_ranges is not None
        ranges = [_range(request) for request in group]
        bodies = self._get_ranges(
            self._path(group[0]), starts=[start for start, _ in ranges], ends=[end for _, end in ranges]
        )
        if len(bodies) != len(group):
            raise ValueError(f"expected {len(group)} results of get_ranges, found {len(bodies)}")
        return [Reply(body) for body in bodies]

    def _path(self, request: RemoteRequest) -> str:
        return self._prefix + request.object


@dataclass(frozen=True)
class _Arrival:
    """What a thread has read."""

    group: list[RemoteRequest]
    answers: list[Answer] | BaseException

    def give(self, operation: RemoteOperation) -> None:
        if isinstance(self.answers, BaseException):
            raise self.answers
        _give(operation, self.group, self.answers)


def _wait(arrivals: SimpleQueue[_Arrival | None]) -> list[_Arrival]:
    """Waits for answers, or for the wake of another operation. Returns all answers that have arrived."""
    arrived = [arrivals.get()]
    while not arrivals.empty():
        arrived.append(arrivals.get())
    return [arrival for arrival in arrived if arrival is not None]


def _give(operation: RemoteOperation, group: list[RemoteRequest], answers: list[Answer]) -> None:
    for request, answer in zip(group, answers, strict=True):
        try:
            answer.give(operation, request)
        except (TypeError, ValueError, OverflowError) as error:  # the body, the ETag or the size is something else
            Failed(error).give(operation, request)


def _answer(task: asyncio.Task[Answer]) -> Answer:
    if task.cancelled():  # this task is not: only the store can have done that
        return Failed(RuntimeError("the store has cancelled the request"))
    return task.result()


def _method(store: object, name: str) -> Callable[..., Any] | None:
    method = getattr(store, name, None)
    return method if callable(method) else None


def _reason(
    error: Exception, request: RemoteRequest
) -> Literal["not-found", "replaced", "unchanged", "no-permission", "other"]:
    """Returns what an exception says about a request. obstore and other stores have their own classes with these names."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if isinstance(error, FileNotFoundError) or "NotFoundError" in names:
        return "not-found"
    if request.if_match is not None and "PreconditionError" in names:
        return "replaced"
    if request.if_none_match is not None and "NotModifiedError" in names:
        return "unchanged"
    if isinstance(error, PermissionError) or names & {"PermissionDeniedError", "UnauthenticatedError"}:
        return "no-permission"
    return "other"


def _options(request: RemoteRequest) -> dict[str, Any]:
    options = {"range": request.range, "if_match": request.if_match, "if_none_match": request.if_none_match}
    return {name: value for name, value in options.items() if value is not None}


def _range(request: RemoteRequest) -> tuple[int, int]:
    """Returns the range to read. For a whole object, one that shows whether it is too large."""
    return request.range or (0, (request.most or 0) + 1)


def _too_large(request: RemoteRequest, result: Any) -> TooLarge | None:
    """Checks what ``get`` states before its bytes are read. Returns the answer for an object that is too large."""
    if not hasattr(result, "meta"):
        raise TypeError(f"expected the result of get to have bytes and meta, found {type(result).__name__}")
    size = _meta(result, "size", int)
    if request.most is not None and size is not None and size > request.most:
        return TooLarge(size)
    found = getattr(result, "range", None)
    expected = _range(request)[0]
    if found is not None and found[0] != expected:
        raise ValueError(f"expected the bytes from {expected} on, found those from {found[0]} on")
    return None


def _reply(result: Any, body: Buffer) -> Reply:
    return Reply(body, _meta(result, "e_tag", str), _meta(result, "size", int))


def _meta(result: Any, name: str, cls: type[_T]) -> _T | None:
    """Returns what ``get`` states about the object; ``None`` if it does not."""
    value = result.meta.get(name)
    if value is not None and type(value) is not cls:
        raise TypeError(f"expected {name} of an object as {cls.__name__}, found {type(value).__name__}")
    return value


def _body(result: Any) -> Buffer:
    """Returns the bytes of a result of ``get``: ``buffer`` of obspec 0.2, ``bytes`` before."""
    body: Buffer = result.buffer() if hasattr(result, "buffer") else result.bytes()
    return body


async def _body_async(result: Any) -> Buffer:
    body: Buffer = await (result.buffer_async() if hasattr(result, "buffer_async") else result.bytes_async())
    return body
