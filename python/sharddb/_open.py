"""``open`` and ``open_async``: of a local path, or of a path in an object store."""

from __future__ import annotations

import os
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, overload

from sharddb import _sharddb
from sharddb._address import is_url, place_in, without_format
from sharddb._sharddb import Database
from sharddb.remote import CACHE_BYTES, DISK_CACHE_BYTES, THREADS, RemoteDatabase, RemoteSource

if TYPE_CHECKING:
    from sharddb._transport import ObjectStore


@overload
def open(
    path: str | PathLike[str],
    *,
    store: None = None,
    mode: Literal["auto", "mmap", "pread", "memory"] = "auto",
    verify: Literal["once", "never", "always"] = "once",
    pointer: str | None = None,
    spec: dict[str, Any] | str | None = None,
) -> Database: ...


@overload
def open(
    path: str,
    *,
    store: ObjectStore,
    pointer: str | None = None,
    spec: dict[str, Any] | str | None = None,
    cache_bytes: int | str = CACHE_BYTES,
    disk_cache: str | PathLike[str] | None = None,
    disk_cache_bytes: int | str = DISK_CACHE_BYTES,
    request_cost: int | str | None = None,
    threads: int = THREADS,
) -> RemoteDatabase: ...


def open(
    path: str | PathLike[str],
    *,
    store: ObjectStore | None = None,
    mode: Literal["auto", "mmap", "pread", "memory"] = "auto",
    verify: Literal["once", "never", "always"] = "once",
    pointer: str | None = None,
    spec: dict[str, Any] | str | None = None,
    cache_bytes: int | str = CACHE_BYTES,
    disk_cache: str | PathLike[str] | None = None,
    disk_cache_bytes: int | str = DISK_CACHE_BYTES,
    request_cost: int | str | None = None,
    threads: int = THREADS,
) -> Database | RemoteDatabase:
    """Opens a database: a store, the directory of one generation, or a directory of native or foreign shards.

    Without ``store``, ``path`` is a path or a ``file://`` URL. ``mode`` selects how files are read. "mmap" maps them:
    lookups copy nothing but their result. "pread" uses positioned reads. "memory" reads all files first. "auto" maps
    files on local file systems, and uses positioned reads on all others (NFS, Lustre, GPFS, FUSE, SMB, 9p). Nobody may
    truncate or edit files while they are mapped, and an I/O error on a mapped file ends the process with SIGBUS; removing
    files is safe. "pread" and "memory" have no such condition. ``verify`` selects when reads verify checksums: "once", at
    the first use of most bytes, "always" or "never".

    With ``store``, the result is a ``RemoteDatabase``. Its reads always verify checksums. ``store`` is an object store with the
    methods of obspec, such as those of obstore, or a file system or a mapper of fsspec. ``path`` is the path in it; a URL such as
    ``s3://bucket/store`` names the root of the store in messages, except of a file system, which reads it. ``cache_bytes`` is the
    memory for indexes. ``disk_cache`` is a directory that keeps up to ``disk_cache_bytes`` of them for later processes; several
    processes may share it. It needs a URL as ``path``, which distinguishes the data sets in it. ``request_cost`` is what a request
    costs, in bytes that arrive in the same time: from 16 KiB to 2 MiB, by default 64 KiB, and 16 KiB for local files; or "measured":
    by the times of the responses so far, if the store has ``get``. A call reads at most that many bytes in vain for each request
    that it saves. ``threads`` is the number of requests of a call that are in flight at a time: with 1, the
    store is called by the thread of the caller only.

    ``pointer`` is the JSON pointer of the object in ``info`` that has the member "sharding", such as "/scales/0".

    ``spec`` is the sharding specification, a dict or JSON text, for a directory of shards without ``info``, or to override
    it. A generation that is opened with it is read like foreign data: without its checksums.

    A prefix ``precomputed://`` and a suffix ``|neuroglancer-precomputed:`` of ``path`` are ignored.

    Raises ``NotFound`` (a ``FileNotFoundError``), ``InvalidSpec``, ``InvalidInput``, ``Corrupt``, ``Unsupported``,
    ``TooLarge``, ``GenerationGone`` or ``Io``, whose cause is the exception of the store; ``TypeError`` for an object that
    is not a store, and for an option that the other kind of database has; ``ValueError`` for a URL without a store.
    """
    if store is not None:
        _refuse("without a store", mode=(mode, "auto"), verify=(verify, "once"))
        source = _source(path, store, pointer, spec, cache_bytes, disk_cache, disk_cache_bytes, request_cost, threads)
        return RemoteDatabase(source, source.open())
    _refuse(
        "next to a store",
        cache_bytes=(cache_bytes, CACHE_BYTES),
        disk_cache=(disk_cache, None),
        disk_cache_bytes=(disk_cache_bytes, DISK_CACHE_BYTES),
        request_cost=(request_cost, None),
        threads=(threads, THREADS),
    )
    return _sharddb.open(_local(path), mode=mode, verify=verify, pointer=pointer, spec=spec)


async def open_async(
    path: str,
    *,
    store: ObjectStore,
    pointer: str | None = None,
    spec: dict[str, Any] | str | None = None,
    cache_bytes: int | str = CACHE_BYTES,
    disk_cache: str | PathLike[str] | None = None,
    disk_cache_bytes: int | str = DISK_CACHE_BYTES,
    request_cost: int | str | None = None,
    threads: int = THREADS,
) -> RemoteDatabase:
    """Opens a database in an object store, like ``open``, with the asynchronous methods of the store."""
    source = _source(path, store, pointer, spec, cache_bytes, disk_cache, disk_cache_bytes, request_cost, threads)
    return RemoteDatabase(source, await source.open_async())


def _refuse(where: str, **options: tuple[object, object]) -> None:
    """Raises ``TypeError`` for the first option whose value is not its default."""
    for name, (value, default) in options.items():
        if value != default:
            raise TypeError(f"expected {name} only {where}, found {value!r}")


def _source(
    path: str | PathLike[str],
    store: ObjectStore,
    pointer: str | None,
    spec: dict[str, Any] | str | None,
    cache_bytes: int | str,
    disk_cache: str | PathLike[str] | None,
    disk_cache_bytes: int | str,
    request_cost: int | str | None,
    threads: int,
) -> RemoteSource:
    if threads < 1:
        raise ValueError(f"expected at least one thread, found {threads}")
    place = place_in(store, path)
    if disk_cache is not None and not is_url(place.name):
        raise ValueError(
            f"expected a URL as path, which distinguishes the data sets in disk_cache, found {place.name!r}: pass the URL of "
            "the root of the store"
        )
    directory = None if disk_cache is None else os.path.abspath(os.fspath(disk_cache))
    return RemoteSource(place, pointer, spec, cache_bytes, directory, disk_cache_bytes, request_cost, threads)


def _local(path: str | PathLike[str]) -> str | PathLike[str]:
    """Returns the local path of a ``file://`` URL, and any other path as it is."""
    text = os.fspath(path)
    if not isinstance(text, str):
        return path
    text = without_format(text)
    if not is_url(text):
        return text
    from urllib.parse import unquote, urlsplit

    url = urlsplit(text)
    if url.scheme == "file" and url.netloc in ("", "localhost") and not (url.query or url.fragment):
        return unquote(url.path)
    raise ValueError(
        f"expected a path or a file URL, found {text}: for an object store, "
        f"pass store=obstore.store.from_url({text!r}) or another one with the methods of obspec"
    )
