"""A Zarr v3 array whose chunks were imported into a database, as ``sharddb import`` does it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

import sharddb

INFO_MEMBER = "zarr"
"""The member of ``info`` that has the metadata of the array."""


class ImportedArray:
    """An array whose chunks are values. The key of a chunk is its number in C order of the grid.

    Where the array was sharded, the chunks are the inner ones, and so are their codecs.

    Raises ``InvalidSpec`` if ``info`` does not have the metadata of an array.
    """

    grid: tuple[int, ...]
    """The number of chunks along each axis."""

    def __init__(self, db: sharddb.Database) -> None:
        self.db = db
        try:
            self._metadata = _unsharded(db.info[INFO_MEMBER])
            shape = self._metadata["shape"]
            chunk_shape = self._metadata["chunk_grid"]["configuration"]["chunk_shape"]
            self.grid = tuple(-(-int(size) // int(chunk)) for size, chunk in zip(shape, chunk_shape, strict=True))
        except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
            found = f"{type(error).__name__}: {error}"
            raise sharddb.InvalidSpec(f"expected a Zarr array in info, found {found}", path=str(db.path)) from error

    def metadata(self) -> dict[str, Any]:
        """Returns the ``zarr.json`` of the array, whose chunks are not in shards."""
        return self._metadata

    def key_at(self, position: tuple[int, ...]) -> int:
        """Returns the key of the chunk at ``position`` in the grid."""
        key = 0
        for at, cells in zip(position, self.grid):
            key = key * cells + at
        return key

    def positions_of(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Returns the positions of chunks in the grid, uint64 (n, axes), without those of keys that no chunk has."""
        rest = keys[keys < prod(self.grid)]
        at = np.zeros((len(rest), len(self.grid)), np.uint64)
        for axis in reversed(range(len(self.grid))):
            rest, at[:, axis] = np.divmod(rest, np.uint64(self.grid[axis]))
        return at

    def chunk(self, position: tuple[int, ...]) -> bytes | None:
        """Returns the encoded chunk at ``position``; ``None`` if it is absent."""
        [value] = self.db.get_many([self.key_at(position)])  # without the GIL, unlike `get`
        return value


def _unsharded(metadata: dict[str, Any]) -> dict[str, Any]:
    """Returns the metadata of the same array with the chunks of its shards, one file per chunk."""
    codecs = metadata["codecs"]
    chunk_shape = metadata["chunk_grid"]["configuration"]["chunk_shape"]
    names = [codec["name"] for codec in codecs]
    if "sharding_indexed" in names:
        at = names.index("sharding_indexed")
        sharding = codecs[at]["configuration"]
        chunk_shape = sharding["chunk_shape"]
        for codec in reversed(codecs[:at]):  # transposes
            chunk_shape = [chunk_shape[axis] for axis in np.argsort(codec["configuration"]["order"])]
        codecs = codecs[:at] + sharding["codecs"]
    return {
        **metadata,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": codecs,
    }
