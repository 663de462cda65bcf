"""Performs the requests of remote operations by calling an object store of the caller.

A store has the methods of obspec: ``get(path, *, options)``, or ``get_range(path, *, start, end)`` and perhaps
``get_ranges(path, *, starts, ends)``, and their ``_async`` variants. ``get`` is preferred, because it has conditions and
returns the ETag.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from itertools import chain
from queue import SimpleQueue
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from sharddb._file_system import FileSystem, Mapper
from sharddb._sharddb import RemoteOperation, RemoteRequest
from sharddb.errors import InvalidInput

if TYPE_CHECKING:
    from typing_extensions import Buffer

_T = TypeVar("_T")

TASKS = 256
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


class PublishingStore(Protocol):
    """A store with conditional writes: ``obspec.Put``, ``Get``, ``List`` and ``Delete``."""

    def put(self, path: str, file: Any, *, mode: Any = None, use_multipart: bool | None = None) -> Any: ...

    def get(self, path: str, *, options: Any = None) -> Any: ...

    def list(self, prefix: str | None = None, *, chunk_size: int = 50) -> Any: ...

    def delete(self, paths: Any) -> None: ...


ObjectStore = Get | GetRange | GetAsync | GetRangeAsync | FileSystem | Mapper
"""What ``sharddb.open`` takes as ``store``."""


@dataclass(frozen=True)
class Reply:
    """The bytes of a request, and what the store states about the object."""

    body: Buffer
    etag: str | None = None
    size: int | None = None
    times: tuple[float, float] | None = None
    """The seconds until the head of the response, and from there to the end of the body."""

    def give(self, operation: RemoteOperation, request: RemoteRequest) -> None:
        operation.answer(request, self.body, self.etag, self.size, self.times)


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


class Read(Future[Answer]):
    """A request under way. All calls that make it at the same time wait for one read, and one of them performs it.

    It is cancelled if that call ends before: then another one performs the request.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__()
        self.loop = loop
        """The event loop that performs it; ``None`` for a thread."""

    def answer(self, answer: Answer) -> None:
        """Ends the read, unless it was cancelled."""
        if self.set_running_or_notify_cancel():
            self.set_result(answer)


_Arrival = tuple[RemoteRequest, Read] | BaseException
"""A read that has ended, or what the store has raised that is not an ``Exception``."""

_UNDER_WAY: ContextVar[tuple[tuple[object, ...], ...]] = ContextVar("sharddb_under_way", default=())
"""What the store is called for in this context: transport, object and range."""


class Transport:
    """The requests of one data set, as calls of a store.

    Raises ``TypeError`` for an object that is not a store.
    """

    def __init__(self, store: object, prefix: str, threads: int) -> None:
        self.seconds = 0.0
        """The time that operations took; of those at the same time, the sum."""
        self._store = store
        self._threads = threads
        self._claims = RLock()
        """Held while the call is chosen that performs a request. A signal handler may make a call, too."""
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

    @property
    def has_times(self) -> bool:
        """Whether it can tell the wait for a response from the transfer of its body."""
        return bool(self._get or self._get_async)

    def run(self, operation: RemoteOperation) -> Any:
        """Runs an operation, and returns its result.

        A single request runs on this thread. Several run on at most ``threads`` threads, which end with the operation.
        Any exception ends the operation; a request that is under way then ends on its thread, unobserved.
        """
        arrivals: SimpleQueue[_Arrival] = SimpleQueue()
        own: set[Read] = set()
        pool: ThreadPoolExecutor | None = None
        outstanding = 0
        waiting: list[RemoteRequest] = []
        start = perf_counter()
        try:
            while (result := operation.poll()) is None:
                waiting += operation.requests()
                outstanding += len(waiting)
                for group in self._claim_groups(waiting, own, arrivals):
                    if self._threads == 1 or outstanding == 1:
                        copy_context().run(self._perform, group)
                    else:
                        pool = pool or ThreadPoolExecutor(self._threads, "sharddb")
                        pool.submit(copy_context().run, self._perform_on_thread, group, arrivals)
                waiting.clear()
                for request, read in map(_arrived, chain([arrivals.get()], _others(arrivals))):
                    outstanding -= 1
                    own.discard(read)
                    if read.cancelled():
                        waiting.append(request)
                    else:
                        _give(operation, request, read.result())
            return result[0]
        finally:
            self._count_since(start)
            operation.cancel()
            for read in own:
                read.cancel()
            if pool:
                pool.shutdown(wait=False, cancel_futures=True)

    async def run_async(self, operation: RemoteOperation) -> Any:
        """Runs an operation on the running event loop, and returns its result.

        At most ``TASKS`` requests are in flight. Cancellation, and any other exception, ends the operation and its
        requests.
        """
        loop = asyncio.get_running_loop()
        arrivals: asyncio.Queue[_Arrival] = asyncio.Queue()
        own: dict[Read, asyncio.Task[Answer]] = {}
        outstanding = 0
        waiting: deque[RemoteRequest] = deque()

        def arrive(request: RemoteRequest, read: Future[Answer]) -> None:
            assert isinstance(read, Read)
            try:
                loop.call_soon_threadsafe(arrivals.put_nowait, (request, read))
            except RuntimeError:
                pass  # the loop is closed, and nobody waits

        def end(read: Read, task: asyncio.Task[Answer]) -> None:
            if task.cancelled():  # by the store, or the read was cancelled before
                read.answer(Failed(RuntimeError("the store has cancelled the request")))
            elif error := task.exception():
                arrivals.put_nowait(error)
            else:
                read.answer(task.result())

        start = perf_counter()
        try:
            while (result := operation.poll()) is None:
                waiting.extend(operation.requests())
                while waiting and outstanding < TASKS:
                    request = waiting.popleft()
                    read, is_own = self._claim(request, loop)
                    outstanding += 1
                    if is_own:
                        own[read] = loop.create_task(self._answer_async(request))
                        own[read].add_done_callback(partial(end, read))
                    read.add_done_callback(partial(arrive, request))
                for request, read in map(_arrived, chain([await arrivals.get()], _others(arrivals))):
                    outstanding -= 1
                    own.pop(read, None)
                    if read.cancelled():
                        waiting.appendleft(request)
                    else:
                        _give(operation, request, read.result())
            return result[0]
        finally:
            self._count_since(start)
            operation.cancel()
            for read, task in own.items():
                read.cancel()
                task.cancel()
            if own:
                await asyncio.gather(*own.values(), return_exceptions=True)

    def _count_since(self, start: float) -> None:
        with self._claims:
            self.seconds += perf_counter() - start

    def _claim(self, request: RemoteRequest, loop: asyncio.AbstractEventLoop | None) -> tuple[Read, bool]:
        """Returns the read of a request, and whether the caller has to perform it: on ``loop``, or on a thread.

        A call that a method of the store makes waits for no other, because that one may wait for it. Raises ``InvalidInput``
        if it needs the bytes that the method was called for.
        """
        under_way = _UNDER_WAY.get()
        if self._bytes_of(request) in under_way:
            raise InvalidInput(
                f"the store reads {request.object} through the database that has called it to read the same bytes, which "
                "would never end: let its methods read from another source"
            )
        with self._claims:
            read: Read | None = request.read
            if read is None or read.cancelled():
                request.read = read = Read(loop)
                return read, True
        return (read, False) if not under_way and self._ends_alone(read, loop) else (Read(loop), True)

    def _ends_alone(self, read: Read, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Returns whether a read ends while its caller waits, on ``loop`` or by blocking this thread."""
        if read.done() or read.loop is None:  # a thread performs it
            return True
        if loop is not None:
            return read.loop.is_running()
        needs_threads = not self._get_async and (self._get or not self._get_range_async)  # that may all be blocked likewise
        return not needs_threads and read.loop.is_running() and read.loop is not _running_loop()

    def _bytes_of(self, request: RemoteRequest) -> tuple[object, ...]:
        return self, request.object, request.range

    def _claim_groups(
        self, requests: list[RemoteRequest], own: set[Read], arrivals: SimpleQueue[_Arrival]
    ) -> list[list[tuple[RemoteRequest, Read]]]:
        """Claims requests. Returns those that this call has to perform, in groups that are one call of the store each.

        A store without ``get`` reads several ranges of an object in one call of ``get_ranges``, if it has that.
        """
        groups: dict[object, list[tuple[RemoteRequest, Read]]] = {}
        for request in requests:
            read, is_own = self._claim(request, None)
            if is_own:
                own.add(read)
                is_alone = self._get or not self._get_ranges or request.range is None
                groups.setdefault(request if is_alone else request.object, []).append((request, read))
            read.add_done_callback(partial(_arrive, arrivals, request))
        return list(groups.values())

    def _perform_on_thread(self, group: list[tuple[RemoteRequest, Read]], arrivals: SimpleQueue[_Arrival]) -> None:
        try:
            self._perform(group)
        except BaseException as error:  # that of the store, for the thread of the caller
            arrivals.put(error)

    def _perform(self, group: list[tuple[RemoteRequest, Read]]) -> None:
        """Performs requests that are one call. Raises what is not an ``Exception``, such as ``KeyboardInterrupt``."""
        answers = self._answers([request for request, _ in group])
        for (_, read), answer in zip(group, answers, strict=True):
            read.answer(answer)

    def _answers(self, requests: list[RemoteRequest]) -> list[Answer]:
        _UNDER_WAY.set((*_UNDER_WAY.get(), *map(self._bytes_of, requests)))
        try:
            if len(requests) > 1:
                return self._read_ranges(requests)
            return [self._read(request) for request in requests]
        except Exception as error:
            return [Failed(error)] * len(requests)

    async def _answer_async(self, request: RemoteRequest) -> Answer:
        """Performs a request. Without an asynchronous method, the synchronous one runs on a thread of the loop."""
        _UNDER_WAY.set((*_UNDER_WAY.get(), self._bytes_of(request)))
        try:
            if self._get_async:
                begin = perf_counter()
                result = await self._get_async(self._path(request), options=_options(request))
                head = perf_counter()
                return _too_large(request, result) or _reply(result, await _body_async(result), begin, head)
            if self._get or not self._get_range_async:
                return await asyncio.to_thread(self._read, request)
            start, end = _range(request)
            return Reply(await self._get_range_async(self._path(request), start=start, end=end))
        except Exception as error:
            return Failed(error)

    def _read(self, request: RemoteRequest) -> Answer:
        if self._get:
            begin = perf_counter()
            result = self._get(self._path(request), options=_options(request))
            head = perf_counter()
            return _too_large(request, result) or _reply(result, _body(result), begin, head)
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


def _arrive(arrivals: SimpleQueue[_Arrival], request: RemoteRequest, read: Future[Answer]) -> None:
    assert isinstance(read, Read)
    arrivals.put((request, read))


def _others(arrivals: SimpleQueue[_Arrival] | asyncio.Queue[_Arrival]) -> Iterator[_Arrival]:
    """What else has arrived by now. Nobody else takes from the queue."""
    for _ in range(arrivals.qsize()):
        yield arrivals.get_nowait()


def _arrived(arrival: _Arrival) -> tuple[RemoteRequest, Read]:
    if isinstance(arrival, BaseException):
        raise arrival
    return arrival


def _give(operation: RemoteOperation, request: RemoteRequest, answer: Answer) -> None:
    try:
        answer.give(operation, request)
    except (TypeError, ValueError, OverflowError) as error:  # the body, the ETag or the size is something else
        Failed(error).give(operation, request)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


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


def _reply(result: Any, body: Buffer, begin: float, head: float) -> Reply:
    return Reply(body, _meta(result, "e_tag", str), _meta(result, "size", int), (head - begin, perf_counter() - head))


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
