"""Zarr arrays for zarr-python 3. Needs ``pip install sharddb[zarr]``.

>>> import zarr, sharddb.zarr
>>> array = zarr.open_array(sharddb.zarr.Store("volume", scale=0))  # doctest: +SKIP
>>> array[:64, :64, 0, 0]  # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import sharddb
from sharddb._extra import needs
from sharddb._imported import INFO_MEMBER, ImportedArray
from sharddb._volume import Mode, Scale

with needs("zarr"):
    import zarr.abc.store
    from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


_CHUNK_NAME = re.compile(r"c(/(0|[1-9]\d{0,18}))*", re.ASCII)


class Store(zarr.abc.store.Store):
    """A read-only Zarr v3 store over the data set at ``path``. It pickles.

    A precomputed volume: the sharded scale with the number ``scale`` is the array at the root of the store. It has the
    axes x, y, z and channel and equals what TensorStore reads. Index 0 is the first voxel; ``voxel_offset`` and
    ``resolution`` are in the attributes. Chunks at the upper edges are padded, and absent chunks are zero. Listing reads
    all keys.

    A store of the chunks of an array, as ``sharddb import`` writes it: this array, without shards.

    A Zarr v3 container, as ``sharddb zarr`` and ``sharddb convert`` write it: its files as they are.

    Raises ``sharddb.Unsupported`` for a scale of another encoding than "raw", such as "jpeg" or
    "compressed_segmentation", and the errors of ``sharddb.open``. A read raises ``sharddb.Corrupt`` for a chunk that does
    not have the length of its voxels, and the errors of ``db[k]``.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, scale: int = 0, mode: Mode = "auto", read_only: bool = True
    ) -> None:
        if not read_only:
            raise ValueError("expected read_only=True, found False: this store cannot write")
        super().__init__(read_only=True)
        self.path = Path(path).absolute()
        self._repr = f"sharddb.zarr.Store({str(self.path)!r}, scale={scale}, mode={mode!r})"
        container = (self.path / "zarr.json").is_file()
        self._values: _Values = _Files(self.path) if container else _Chunks(_open(self.path, scale, mode))

    def __repr__(self) -> str:
        return self._repr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and self._repr == other._repr

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        value = await asyncio.to_thread(self._values.get, key, byte_range)
        return None if value is None else prototype.buffer.from_bytes(value)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return await asyncio.gather(*(self.get(key, prototype, byte_range) for key, byte_range in key_ranges))

    async def exists(self, key: str) -> bool:
        return await asyncio.to_thread(self._values.has, key)

    async def list(self) -> AsyncIterator[str]:
        for key in await asyncio.to_thread(lambda: [*self._values.keys()]):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        async for key in self.list():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        start = prefix.rstrip("/") + "/" if prefix else ""
        names = {key[len(start) :].partition("/")[0]: None async for key in self.list_prefix(start)}
        for name in names:
            yield name

    supports_writes = False  # pyright: ignore
    supports_deletes = False  # pyright: ignore
    supports_listing = True  # pyright: ignore

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()

    async def delete(self, key: str) -> None:
        self._check_writable()


def _open(path: Path, scale: int, mode: Mode) -> Scale | ImportedArray:
    try:
        with sharddb.open(path, mode="pread") as db:
            imported = INFO_MEMBER in db.info
    except sharddb.InvalidInput:  # `info` describes several scales
        imported = False
    return ImportedArray(sharddb.open(path, mode=mode)) if imported else Scale(path, scale, mode)


class _Values(Protocol):
    """The keys and values of a store."""

    def get(self, key: str, byte_range: ByteRequest | None) -> bytes | None: ...

    def has(self, key: str) -> bool: ...

    def keys(self) -> Iterator[str]: ...


class _Chunks:
    """The metadata and chunks of an array."""

    def __init__(self, array: Scale | ImportedArray) -> None:
        self._array = array
        self._metadata = json.dumps(array.metadata()).encode()

    def get(self, key: str, byte_range: ByteRequest | None) -> bytes | None:
        if key == "zarr.json":
            value: bytes | None = self._metadata
        else:
            position = self._position(key)
            value = None if position is None else self._array.chunk(position)
        return None if value is None else value[_slice(byte_range, len(value))]

    def has(self, key: str) -> bool:
        position = self._position(key)
        return key == "zarr.json" or position is not None and self._array.key_at(position) in self._array.db

    def keys(self) -> Iterator[str]:
        yield "zarr.json"
        for position in self._array.positions_of(self._array.db.keys()).tolist():
            yield "/".join(["c", *map(str, position)])

    def _position(self, key: str) -> tuple[int, ...] | None:
        """Returns the position of the chunk with this name; ``None`` if the grid has no such chunk."""
        if not _CHUNK_NAME.fullmatch(key):
            return None
        position = tuple(map(int, key.split("/")[1:]))
        grid = self._array.grid
        return position if len(position) == len(grid) and all(map(operator.lt, position, grid)) else None


class _Files:
    """The files of a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, key: str, byte_range: ByteRequest | None) -> bytes | None:
        try:
            with open(self._directory / key, "rb") as file:
                part = _slice(byte_range, os.fstat(file.fileno()).st_size)
                file.seek(part.start)
                return file.read(max(part.stop - part.start, 0))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def has(self, key: str) -> bool:
        return (self._directory / key).is_file()

    def keys(self) -> Iterator[str]:
        return (path.relative_to(self._directory).as_posix() for path in self._directory.rglob("*") if path.is_file())


def _slice(byte_range: ByteRequest | None, size: int) -> slice:
    """Returns the part of a value of ``size`` bytes that a request of zarr-python is for."""
    match byte_range:
        case None:
            return slice(0, size)
        case RangeByteRequest(start=start, end=end):
            return slice(start, min(end, size))
        case OffsetByteRequest(offset=offset):
            return slice(offset, size)
        case SuffixByteRequest(suffix=suffix):
            return slice(max(size - suffix, 0), size)
    raise ValueError(f"Unexpected byte_range, got {byte_range}.")
