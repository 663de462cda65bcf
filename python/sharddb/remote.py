"""Databases in an object store or on a web server: ``sharddb.open(path, store=store)``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, SupportsIndex, TypeVar, overload

from sharddb import _sharddb
from sharddb._file_system import Files, is_local
from sharddb._sharddb import RemoteHandle, RemoteOperation, _arrow_stream, _check_rows, _copy_into, _key_array
from sharddb.errors import Corrupt, Error, GenerationGone, InvalidInput, NotFound
from sharddb.stats import RemoteStats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sharddb._address import Place
    from sharddb._sharddb import _Bar, _Keys
    from sharddb._transport import Transport

    _Locations = tuple[list[str], NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]

_T = TypeVar("_T")

CACHE_BYTES = 64 << 20
"""The default memory for indexes, in bytes."""

DISK_CACHE_BYTES = 1 << 30
"""The default capacity of a cache on disk, in bytes."""

FILE_COST = 16 << 10
"""What a request costs where the objects are local files, in bytes, as in the command."""

THREADS = 32
"""The default upper bound on the requests of a call that are in flight at a time."""


class RemoteSource(NamedTuple):
    """What is opened: the arguments of ``sharddb.open``. It pickles if the store does."""

    place: Place
    pointer: str | None
    spec: dict[str, Any] | str | None
    cache_bytes: int | str
    disk_cache: str | None
    disk_cache_bytes: int | str
    request_cost: int | str | None
    threads: int

    def _opening(self, directory: str | None) -> tuple[RemoteOperation, Transport]:
        """Returns the operation that opens the data set, or a directory of it."""
        store, name, prefix = self.place
        name, prefix = ("/".join(filter(None, (path, directory))) for path in (name or type(store).__name__, prefix))
        from sharddb._transport import Transport  # asyncio takes longer to import than the rest of the package

        disk_cache = None if self.disk_cache is None else (self.disk_cache, self.disk_cache_bytes)
        cost = FILE_COST if self.request_cost is None and is_local(store) else self.request_cost
        operation = RemoteHandle.open(name, self.pointer, self.spec, self.cache_bytes, disk_cache, cost)
        transport = Transport(store, prefix, self.threads)
        if self.request_cost == "measured" and not transport.has_times:
            raise ValueError(
                f'expected a store with the method get for request_cost="measured", found {type(store).__name__}: give bytes'
            )
        return operation, transport

    def open(self, directory: str | None = None) -> _Served:
        operation, transport = self._opening(directory)
        return _Served(transport.run(operation), transport, directory)

    async def open_async(self) -> _Served:
        operation, transport = self._opening(None)
        return _Served(await transport.run_async(operation), transport)


class _Served(NamedTuple):
    """An open data set, or the directory of one generation of it."""

    handle: RemoteHandle
    transport: Transport
    directory: str | None = None
    """The directory of the generation; ``None`` if the data set was opened."""

    @property
    def generation(self) -> str | None:
        return self.directory or self.handle.generation

    def path_of(self, name: str) -> str:
        """Returns the path of an object relative to the place that was opened."""
        return name if self.directory is None else f"{self.directory}/{name}"

    def located(self, location: tuple[str, int, int] | None) -> tuple[str, int, int] | None:
        """Makes the path of a location relative to the place that was opened."""
        return location and (self.path_of(location[0]), *location[1:])

    def all_located(self, locations: _Locations) -> _Locations:
        """Makes the paths of locations relative to the place that was opened."""
        return [self.path_of(name) for name in locations[0]], *locations[1:]

    def pinned(self) -> _Served:
        return _Served(self.handle.pinned(), self.transport, self.directory)


class RemoteVerifyReport(NamedTuple):
    """What ``RemoteReader.verify`` has found."""

    level: str
    """"lengths" or "data"."""
    generation: str | None
    """The name of the generation in its store; ``None`` for a bare directory."""
    bytes: int
    """The bytes of the objects that were verified, or of the values that were read."""
    findings: list[Error]
    """The damaged and missing objects, as exceptions with their places."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


class RemoteReader:
    """A database in an object store, or a snapshot of one: a mapping of ``int`` from 0 to 2**64 - 1 to ``bytes``.

    A method whose name ends with ``_async`` is a coroutine, which calls the asynchronous methods of the store on the
    running event loop, or the synchronous ones on threads of the loop if the store has no others. Cancelling it ends its
    requests. All methods may be called from several threads and event loops: calls that need the same index at the same
    time read it once.

    Every read of data that has checksums is verified. If the store has ``get`` and returns ETags, an object that was
    replaced is ``GenerationGone``. Without ETags, data of ShardDb is protected by its checksums, and foreign data is not.

    A method of the store that reads its own database raises ``InvalidInput`` if it needs the bytes that it was called for.
    In a forked child, all reads raise it: open the database there.
    """

    def __init__(self, source: RemoteSource, served: _Served) -> None:
        self._source = source
        self._served: _Served | None = served
        self._counted: tuple[_Served, int] | None = None
        """What was served when all keys were read, and their number."""

    def _open(self) -> _Served:
        if self._served is None:
            raise InvalidInput("expected an open database, found a closed one", path=self.path)
        return self._served

    def _run(self, start: Callable[[RemoteHandle], RemoteOperation]) -> Any:
        served = self._open()
        return served.transport.run(start(served.handle))

    async def _run_async(self, start: Callable[[RemoteHandle], RemoteOperation]) -> Any:
        served = self._open()
        return await served.transport.run_async(start(served.handle))

    @overload
    def get(self, key: SupportsIndex, default: None = None) -> bytes | None: ...

    @overload
    def get(self, key: SupportsIndex, default: _T) -> bytes | _T: ...

    def get(self, key: SupportsIndex, default: object = None) -> object:
        """Returns the value of a key, or ``default`` if the key is absent.

        Raises ``TypeError`` or ``OverflowError`` for a key that is not an integer from 0 to 2**64 - 1; ``Io`` if the
        store raises, with its exception as the cause, or returns a wrong number of bytes; ``Corrupt`` for wrong bytes;
        ``TooLarge``; and ``GenerationGone`` if the generation was removed, or an object of it replaced. A database opens
        the current generation then and tries once more.
        """
        value = self._run(lambda handle: handle.get(key))
        return default if value is None else value

    @overload
    async def get_async(self, key: SupportsIndex, default: None = None) -> bytes | None: ...

    @overload
    async def get_async(self, key: SupportsIndex, default: _T) -> bytes | _T: ...

    async def get_async(self, key: SupportsIndex, default: object = None) -> object:
        """Returns the value of a key, or ``default`` if the key is absent. Raises the errors of ``get``."""
        value = await self._run_async(lambda handle: handle.get(key))
        return default if value is None else value

    def __getitem__(self, key: SupportsIndex, /) -> bytes:
        """Returns the value of a key. Raises ``KeyError`` if the key is absent, and the errors of ``get``."""
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: SupportsIndex, /) -> bool:
        """Returns whether there is a key. Reads no value. Raises the errors of ``get``."""
        found: bool = self._run(lambda handle: handle.contains(key))
        return found

    async def contains_async(self, key: SupportsIndex) -> bool:
        """Returns whether there is a key. Reads no value. Raises the errors of ``get``."""
        found: bool = await self._run_async(lambda handle: handle.contains(key))
        return found

    def __len__(self) -> int:
        """Returns the number of keys. Reads all indexes of foreign data, once. Raises the errors of ``keys``."""
        served = self._open()
        count = served.handle.key_count
        if count is not None:
            return count
        counted = self._counted
        if counted is None or counted[0] is not served:
            counted = served, len(self.keys())
        return counted[1]

    def __iter__(self) -> Iterator[int]:
        """Iterates over the keys in storage order, as integers. Reads all indexes first, like ``keys``.

        Raises the errors of ``keys``.
        """
        return iter(self.keys().tolist())

    def view(self, key: SupportsIndex, /) -> memoryview:
        """Returns the value of a key as a read-only buffer. Raises ``KeyError`` if the key is absent.

        The bytes are those of ``get``: nothing is copied again. Raises the errors of ``get``.
        """
        return memoryview(self[key])

    async def view_async(self, key: SupportsIndex) -> memoryview:
        """Returns the value of a key as a read-only buffer, like ``view``."""
        value = await self.get_async(key)
        if value is None:
            raise KeyError(key)
        return memoryview(value)

    def get_many(self, keys: _Keys, /) -> list[bytes | None]:
        """Returns the values of many keys, in their order; ``None`` for each absent key. Keys may repeat.

        All requests are planned together: few, and of few bytes. ``keys`` is an array of any integer dtype with at most
        one dimension, or an iterable of integers.

        Raises the errors of ``get`` for the first value that cannot be read.
        """
        values: list[bytes | None] = self._run(lambda handle: handle.get_many(keys))
        return values

    async def get_many_async(self, keys: _Keys, /) -> list[bytes | None]:
        """Returns the values of many keys, like ``get_many``."""
        values: list[bytes | None] = await self._run_async(lambda handle: handle.get_many(keys))
        return values

    def get_ragged(self, keys: _Keys, /) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_]]:
        """Returns the values of many keys, one after the other: ``(data, offsets, found)``.

        ``data`` is a ``uint8`` array, ``offsets`` is ``int64[n + 1]``, ``found`` is ``bool[n]``. The value of ``keys[i]`` is
        ``data[offsets[i]:offsets[i + 1]]``, with no bytes if ``found[i]`` is false. The values are in memory twice.

        ``keys``, requests and errors are those of ``get_many``.
        """
        return _ragged(self.get_many(keys))

    async def get_ragged_async(self, keys: _Keys, /) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_]]:
        """Returns the values of many keys, one after the other, like ``get_ragged``."""
        return _ragged(await self.get_many_async(keys))

    def get_into(self, keys: _Keys, /, out: NDArray[Any]) -> NDArray[np.bool_]:
        """Copies values of a fixed size into the rows of an array: that of ``keys[i]`` to ``out[i]``. Returns ``found``,
        ``bool[n]``.

        ``out`` is a writable C-contiguous array of any dtype without objects, whose first axis has the length of ``keys``;
        the bytes of each ``out[i]`` are the bytes of a value. Rows of absent keys do not change.

        Raises ``ValueError`` for another ``out``, before any request; ``InvalidInput`` (a ``ValueError``) with the key of the
        first value that has another length, after which the rows before it are written; and the errors of ``get_many``.
        """
        numbers = _key_array(keys)
        _check_rows(out, len(numbers))
        return _copy_into(numbers, self.get_many(numbers), out)

    async def get_into_async(self, keys: _Keys, /, out: NDArray[Any]) -> NDArray[np.bool_]:
        """Copies values of a fixed size into the rows of an array, like ``get_into``."""
        numbers = _key_array(keys)
        _check_rows(out, len(numbers))
        return _copy_into(numbers, await self.get_many_async(numbers), out)

    def locate(self, key: SupportsIndex) -> tuple[str, int, int] | None:
        """Returns where the value of a key is stored: ``(object, offset, length)``, or ``None`` if the key is absent.

        ``object`` is a path relative to that of the database. The offset and the length are those of the stored bytes:
        where ``spec["data_encoding"]`` is "gzip", these are a gzip member of the value. Raises the errors of ``get``.
        """
        served = self._open()
        return served.located(served.transport.run(served.handle.locate(key)))

    async def locate_async(self, key: SupportsIndex) -> tuple[str, int, int] | None:
        """Returns where the value of a key is stored, like ``locate``."""
        served = self._open()
        return served.located(await served.transport.run_async(served.handle.locate(key)))

    def locate_many(self, keys: _Keys, /) -> _Locations:
        """Returns where the values of many keys are stored: ``(objects, object_no, offsets, lengths)``.

        ``objects`` is a list of paths relative to that of the database; ``object_no`` is ``int32[n]``, an index into it, or
        -1 for an absent key; ``offsets`` and ``lengths`` are ``int64[n]``, those of ``locate``, 0 for an absent key. Keys
        that share an index read it once.

        ``keys`` is that of ``get_many``. Raises the errors of ``get``, but does not try again.
        """
        served = self._open()
        return served.all_located(served.transport.run(served.handle.locate_many(keys)))

    async def locate_many_async(self, keys: _Keys, /) -> _Locations:
        """Returns where the values of many keys are stored, like ``locate_many``."""
        served = self._open()
        return served.all_located(await served.transport.run_async(served.handle.locate_many(keys)))

    def keys(self, range: range | slice | None = None, sorted: bool = False) -> NDArray[np.uint64]:
        """Returns the keys as a ``uint64`` array.

        Without arguments: all keys in storage order. With ``sorted``: all keys, ascending. With ``range``, a ``range(start,
        stop)`` or ``slice(start, stop)``: the keys from ``start`` up to, but without, ``stop``, ascending.

        Cost: reads all indexes, or the key file where there is one. Raises the errors of ``get``, but does not try again;
        ``TypeError``, ``ValueError`` or ``OverflowError`` for another range.
        """
        served = self._open()
        keys: NDArray[np.uint64] = served.transport.run(served.handle.keys(range, sorted))
        if range is None:
            self._counted = served, len(keys)
        return keys

    async def keys_async(self, range: range | slice | None = None, sorted: bool = False) -> NDArray[np.uint64]:
        """Returns the keys as a ``uint64`` array, like ``keys``."""
        keys: NDArray[np.uint64] = await self._run_async(lambda handle: handle.keys(range, sorted))
        return keys

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Iterates over the pairs of the current generation in storage order. Reads each byte once, about 8 MiB per batch.

        Preambles are not read: a value of data with preambles is a ``ValueWithPreamble`` whose ``preamble`` raises ``Unsupported``,
        so that no copy loses them. Raises the errors of ``get``, but does not try again. An error ends the iteration.
        """
        for pairs in _batches(self._open()):
            yield from pairs

    async def items_async(self) -> AsyncIterator[tuple[int, bytes]]:
        """Iterates over the pairs of the current generation, like ``items``."""
        served = self._open()
        cursor = served.handle.items()
        while batch := await served.transport.run_async(cursor.next()):
            pairs, cursor = batch
            for pair in pairs:
                yield pair

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns all pairs as an Arrow stream, a capsule, as ``pyarrow.table(db)`` and ``polars.DataFrame(db)`` read it.

        The columns are those of ``Reader.__arrow_c_stream__``, except that all preambles are null. The pairs and their batches
        are those of ``items``. Each batch is read when the consumer requests it, on its thread. The consumer turns every exception
        into one of its own, also KeyboardInterrupt. ``requested_schema`` is ignored.
        """
        served = self._open()
        return _arrow_stream(_batches(served), served.handle.has_preambles)

    def verify(self, level: Literal["lengths", "data"] = "data", progress: _Bar | None = None) -> RemoteVerifyReport:
        """Verifies the generation: "lengths" (the manifest, and the lengths of all objects), or "data" (also all bytes, which are
        read). Returns a report; defects are findings, not exceptions. To verify more, ``sharddb.pull`` it and verify the copy.

        All values are read instead, and the first that cannot be read is the only finding, if there is no manifest or list of objects
        to compare: for foreign data, for one generation that was opened by its path, and in a store without ``list``.

        ``progress`` is a bar such as ``tqdm(unit="B", unit_scale=True)``, in bytes.

        Raises ``ValueError`` for another level, ``GenerationGone`` or ``NotFound`` if the generation was removed, or has no manifest,
        and ``Io``.
        """
        if level not in ("lengths", "data"):
            raise ValueError(f'expected level to be "lengths" or "data", found {level!r}')
        served = self._open()
        store, name, prefix = self._source.place
        if isinstance(store, Files):
            store = store.downloads()
        generation = served.generation
        if generation is None or not hasattr(store, "list"):
            return _verify_values(served, level, progress)
        try:
            bytes, findings = _sharddb._verify_in_bucket((store, name, prefix), generation, level == "data", progress)
        except Corrupt as error:  # the manifest or the info, without which nothing else can be compared
            return RemoteVerifyReport(level, generation, 0, [error])
        return RemoteVerifyReport(level, generation, bytes, findings)

    def snapshot(self) -> RemoteSnapshot:
        """Returns a snapshot of the generation that is served now. No request."""
        return RemoteSnapshot(self._source, self._open().pinned())

    @property
    def path(self) -> str:
        """The path or URL that was opened."""
        return self._source.place.name

    @property
    def generation(self) -> str | None:
        """The name of the generation in its store; ``None`` for a bare directory."""
        return self._open().generation

    @property
    def spec(self) -> dict[str, Any]:
        """The sharding specification: the object ``"sharding"`` of ``info``, with all members."""
        return self._open().handle.spec

    @property
    def info(self) -> dict[str, Any]:
        """The file ``info``, parsed."""
        return self._open().handle.info

    @property
    def stats(self) -> RemoteStats:
        """The requests, bytes, seconds and cache hits since the database was opened; see ``sharddb.RemoteStats``.

        What a call costs is the difference between two of them.
        """
        served = self._open()
        stats: RemoteStats = {**served.handle.stats, "seconds": served.transport.seconds, "generation": served.generation}
        return stats

    def close(self) -> None:
        """Closes the database. Later calls of methods raise ``InvalidInput``; the store stays open."""
        self._served = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            generation = None if self._served is None else self._served.generation
        except InvalidInput:  # in a forked child
            generation = None
        state = ", closed" if self._served is None else f" ({generation})" if generation else ""
        return f"<sharddb.{type(self).__name__} {self.path!r}{state}>"

    def __reduce__(self) -> tuple[Callable[..., RemoteReader], tuple[Any, ...]]:
        """Pickles the store, the arguments of ``sharddb.open`` and the generation.

        Unpickling opens that generation, or raises ``GenerationGone``; a database then follows its store at ``refresh``.
        """
        return _open_again, (type(self), self._source, self._open().generation)


class RemoteDatabase(RemoteReader):
    """A database in an object store: a store that was published there, one generation, or a directory of shards.

    A database that was opened by the path of a store serves its current generation: the one that was current when it was
    opened or at the last ``refresh``. If a read finds that this one was removed, it refreshes once.
    """

    def refresh(self) -> str | None:
        """Switches to the current generation of the store, newer or older: one request if it is served already.

        Returns its name, or ``None`` if it is served already, or if the database stays with one generation. Snapshots
        stay with theirs. After an exception (those of ``sharddb.open``) the old generation is served.
        """
        served = self._open()
        before = served.generation
        if served.directory is None:
            self._run(lambda handle: handle.refresh())
        else:
            self._served = self._source.open()
        return self._changed(before)

    async def refresh_async(self) -> str | None:
        """Switches to the current generation of the store, like ``refresh``."""
        served = self._open()
        before = served.generation
        if served.directory is None:
            await self._run_async(lambda handle: handle.refresh())
        else:
            self._served = await self._source.open_async()
        return self._changed(before)

    def _changed(self, before: str | None) -> str | None:
        self._counted = None
        generation = self._open().generation
        return generation if generation != before else None


class RemoteSnapshot(RemoteReader):
    """One generation of a database in an object store: all reads see the same pairs, whatever is published.

    There is no lease: a read raises ``GenerationGone`` if the generation was removed meanwhile.
    """


def _verify_values(served: _Served, level: str, progress: _Bar | None) -> RemoteVerifyReport:
    """Reads all values, up to the first that cannot be read."""
    _sharddb._check_bar(progress)
    if progress is not None:
        progress.set_description("verify")
        progress.total = None
        progress.reset()
    bytes, findings = 0, list[Error]()
    try:
        for pairs in _batches(served):
            more = sum(len(value) for _, value in pairs)
            bytes += more
            if progress is not None:
                progress.update(more)
    except Corrupt as error:
        findings.append(error)
    return RemoteVerifyReport(level, served.generation, bytes, findings)


def _batches(served: _Served) -> Iterator[list[tuple[int, bytes]]]:
    """Iterates over the pairs of what is served, as lists of about 8 MiB."""
    cursor = served.handle.items()
    while batch := served.transport.run(cursor.next()):
        pairs, cursor = batch
        yield pairs


def _ragged(values: list[bytes | None]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_]]:
    """Returns values one after the other, as ``get_ragged`` does."""
    import numpy as np

    found = np.array([value is not None for value in values], np.bool_)
    present = [value or b"" for value in values]
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in present], out=offsets[1:])
    return np.frombuffer(bytearray().join(present), np.uint8), offsets, found


def _open_again(cls: type[RemoteReader], source: RemoteSource, generation: str | None) -> RemoteReader:
    """Opens the generation that another process served."""
    served = source.open()
    if generation is not None and served.generation != generation:
        try:
            served = source.open(generation)
        except NotFound as error:
            message = f"expected {generation}, found it removed: open the store again, which serves its current generation"
            raise GenerationGone(message, path=source.place.name) from error
    return cls(source, served.pinned() if cls is RemoteSnapshot else served)
