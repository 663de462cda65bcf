"""``push`` and ``pull``: generations between local stores and buckets."""

from __future__ import annotations

import atexit
import os
import sys
import time
from os import PathLike
from typing import TYPE_CHECKING

from sharddb import _sharddb
from sharddb._address import Place, is_url, place_in, without_format
from sharddb._file_system import is_file_system, is_mapper
from sharddb._sharddb import Pulled, Pushed

if TYPE_CHECKING:
    from sharddb._sharddb import _Bar, _Path
    from sharddb._transport import ObjectStore, PublishingStore


def push(
    local: _Path,
    path: str,
    *,
    store: PublishingStore | None = None,
    journal: _Path | None = None,
    progress: _Bar | None = None,
    allow_empty: bool = False,
) -> Pushed:
    """Publishes a copy of a local generation in a bucket: of the current one of a store, or of the directory of one.

    ``path`` is a URL such as ``s3://bucket/store``, whose store ``obstore.store.from_url`` creates, with the credentials of the
    environment. With ``store``, an object store with the methods of obspec, it is the path in it. The store must refuse a ``put`` by
    its ``mode``: the conditional writes of S3, GCS and Azure. This is tried before anything is uploaded.

    The copy has the same files, byte for byte, and is complete before it is current: readers see the old or the new generation, and
    databases follow it by ``refresh``. If the current generation of the bucket is the same, nothing is published. An interrupted push
    is continued by the next one of the same generation, with the help of a file in the directory ``journal`` (default: that of
    the user's caches). Of two publishers at once, the one that ends first wins.

    ``progress`` is a bar such as ``tqdm(unit="B", unit_scale=True)``, in bytes. An exception that it raises, and KeyboardInterrupt,
    ends the push unpublished; a KeyboardInterrupt that arrived during the publication has a note that says so. The parts of a large
    object whose upload was interrupted may stay in the bucket, invisible, until a rule of the bucket removes them. ``allow_empty``:
    whether a generation without keys may replace one with keys.

    Raises ``Locked`` if another publisher was faster, or pushes the same generation to a place of the same name with this
    ``journal``; ``Unsupported`` for a store without conditional writes; ``InvalidInput`` for foreign data here or there;
    ``NotFound`` without a local generation; ``Empty`` for one without keys if the bucket has some; ``Corrupt`` for a damaged local file; ``GenerationGone`` if ``sharddb gc`` removed what
    this push uploaded; ``Io`` with the text of the store's exception; ``TypeError`` for an object that is no such store;
    ``ValueError`` for a path without a store, a URL with one, and a URL that is not that of a directory; ``ImportError`` for a URL
    without obstore.
    """
    if is_file_system(store) or is_mapper(store):
        raise TypeError(
            f"expected a store with conditional writes, such as those of obstore, found {type(store).__name__}, a file system "
            "without them: two publishers could lose a generation"
        )
    directory = None if journal is None else os.path.abspath(os.fspath(journal))
    return _sharddb._push(os.fspath(local), _place(path, store), directory, progress, allow_empty)


def pull(
    path: str,
    local: _Path,
    *,
    store: ObjectStore | None = None,
    generation: str | None = None,
    progress: _Bar | None = None,
    allow_empty: bool = False,
) -> Pulled:
    """Downloads the current generation of a bucket, or that of this name, into a local store, and publishes it there.

    ``path`` and ``store`` are those of ``push``; the store may also be a file system or a mapper of fsspec, which reads a URL
    itself. ``local`` is created if nothing is there. Shards that a local generation has are hard links to them. Files are downloaded
    to a directory beside the store, from which the next pull of the same generation continues, and compared with the manifest before
    they are published. The generation replaces the current local one, to which ``Store.rollback`` goes back; if that is the same
    and has all its files, nothing is published.

    ``progress`` and ``allow_empty`` are those of ``push``.

    Raises ``Corrupt`` if an object is missing or damaged: nothing is published then; ``Empty`` if it has no keys and the local store
    has some; ``NotFound`` if the bucket has no generation,
    or not this one; ``GenerationGone`` if ``sharddb gc`` removed it; ``Locked`` if the local store has a writer; ``InvalidInput`` if
    ``local`` is not a store; ``Io``; and ``TypeError``, ``ValueError`` and ``ImportError`` like ``push``.
    """
    return _sharddb._pull(_place(path, store), os.fspath(local), generation, progress, allow_empty)


def _wait_for_calls() -> None:
    """Waits at the exit of the interpreter for calls of stores that were interrupted: their threads could not run Python code any
    more, and the process would crash. Another KeyboardInterrupt ends it at once.
    """
    try:
        while _sharddb._calls_under_way():
            time.sleep(0.01)
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)


atexit.register(_wait_for_calls)


def _place(path: str | PathLike[str], store: object) -> Place:
    """Returns the place of a generation. Raises ``ValueError`` for a path without a store, and a URL with one; ``ImportError``
    without obstore.
    """
    if is_file_system(store) or is_mapper(store):
        place = place_in(store, path)
        return place._replace(store=place.store.downloads())
    name = without_format(os.fspath(path))
    if store is None:
        return Place(_store_of(name), name.rstrip("/"), "")
    if is_url(name):
        raise ValueError(f"expected a path in the store, which is \"\" for its root, found the URL {name}: without store= it is opened")
    return Place(store, "", name.strip("/"))


def _store_of(url: str) -> object:
    """Returns the store of obstore whose root is a URL."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if not is_url(url):
        raise ValueError(f"expected a URL such as s3://bucket/store, or a path and store=.., found {url!r}")
    if parts.query or parts.fragment or {".", ".."} & set(parts.path.split("/")):
        raise ValueError(f"expected the URL of a directory, without ?, #, . and .., found {url}")
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise ImportError(f"{error}: pip install obstore, or pass store=..", name=error.name, path=error.path) from error
    try:
        return from_url(url)
    except Exception as error:
        raise ValueError(f"expected a URL that obstore opens, found {url}: {str(error).partition(chr(10))[0]}") from error
