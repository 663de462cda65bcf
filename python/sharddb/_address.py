"""Addresses of databases: paths and URLs, also as Neuroglancer writes them."""

from __future__ import annotations

import os
import re
from os import PathLike
from typing import Any, NamedTuple

from sharddb._file_system import Files, is_file_system, is_mapper

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FORMAT = re.compile(r"^precomputed://|\|neuroglancer-precomputed:$")  # how Neuroglancer names the format, before and now


def without_format(address: str) -> str:
    """Removes the prefix ``precomputed://`` and the suffix ``|neuroglancer-precomputed:``."""
    return _FORMAT.sub("", address)


def is_url(address: str) -> bool:
    return _URL.match(address) is not None


class Place(NamedTuple):
    """A path in an object store."""

    store: Any
    name: str
    """The path or URL, for messages."""
    prefix: str
    """The path of the objects in the store."""


def place_in(store: object, path: str | PathLike[str]) -> Place:
    """Returns the place of a path. A URL is that of the root of the store, except of a file system, which takes it as a path.

    Raises ``TypeError`` for a file system that threads may not call.
    """
    name = without_format(os.fspath(path)).rstrip("/")
    directory = "" if is_url(name) else name.lstrip("/")
    if is_mapper(store):
        return Place(Files(store.fs, f"{store.root.rstrip('/')}/{directory}"), name or store.root, "")
    if is_file_system(store):
        return Place(Files(store, name), name, "")
    return Place(store, name, directory)
