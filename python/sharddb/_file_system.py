"""File systems and mappers of fsspec, as object stores that are read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Protocol, TypeGuard

CHUNK_BYTES = 8 << 20
"""Number of bytes of a download that are read at a time."""

_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)


class FileSystem(Protocol):
    """What is called of a file system of fsspec."""

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> Any: ...

    def info(self, path: str) -> Any: ...

    def find(self, path: str, *, detail: bool) -> Any: ...


class Mapper(Protocol):
    """What is called of a mapper of fsspec: a directory of a file system."""

    fs: Any
    root: str


class Files:
    """The files below a directory of a file system, as a store with ``get_range``."""

    def __init__(self, system: FileSystem, root: str) -> None:
        if getattr(system, "asynchronous", False):
            raise TypeError(
                f"expected a file system that threads may call, found {type(system).__name__} with asynchronous=True: leave that out"
            )
        self._system = system
        self._root = root.rstrip("/")

    def get_range(self, path: str, *, start: int, end: int) -> Any:
        return self._system.cat_file(self._path(path), start=start, end=end)

    def downloads(self) -> Downloads:
        """Returns the same files as whole objects."""
        return Downloads(self._system, self._root)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if self._root else path


class Downloads(Files):
    """The files below a directory of a file system, as a store with ``get`` and ``list``, for whole objects."""

    def get(self, path: str, *, options: dict[str, Any] | None = None) -> Download:
        found = self._system.info(self._path(path))
        if found["type"] != "file":
            raise FileNotFoundError(self._path(path))
        part = (options or {}).get("range", {"offset": 0})
        start, end = part if isinstance(part, tuple) else (part["offset"], found["size"])
        return Download(self, path, range(start, min(end, found["size"])), found["size"])

    def list(self, prefix: str, **_options: object) -> Iterator[list[dict[str, Any]]]:
        """Lists the files below a directory, page by page."""
        for path, found in self._system.find(self._path(prefix), detail=True).items():
            name = f"{prefix}/" + f"/{path}".rpartition(f"/{prefix}/")[2]  # of a path that may have a protocol
            size = found["size"]
            yield [_meta(name, self._system.info(path)["size"] if size is None else size)]


class Download:
    """An object that is read in chunks: what ``get`` returns."""

    def __init__(self, files: Files, path: str, part: range, size: int) -> None:
        self.meta = _meta(path, size)
        self.range = part.start, part.stop
        self._files = files

    def __iter__(self) -> Iterator[Any]:
        start, stop = self.range
        for at in range(start, stop, CHUNK_BYTES):
            yield self._files.get_range(self.meta["path"], start=at, end=min(at + CHUNK_BYTES, stop))


def _meta(path: str, size: int) -> dict[str, Any]:
    return {"path": path, "size": size, "last_modified": _UNKNOWN_TIME, "e_tag": None, "version": None}


def is_mapper(store: object) -> TypeGuard[Mapper]:
    return isinstance(getattr(store, "root", None), str) and is_file_system(getattr(store, "fs", None))


def is_file_system(store: object) -> TypeGuard[FileSystem]:
    return all(callable(getattr(store, name, None)) for name in ("cat_file", "info", "find"))


def is_local(store: object) -> bool:
    """Returns whether a store reads files of this machine: as fsspec or as obstore."""
    store = store._system if isinstance(store, Files) else store
    return bool({"LocalFileSystem", "LocalStore"} & {cls.__name__ for cls in type(store).__mro__})
