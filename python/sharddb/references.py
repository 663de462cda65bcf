"""References to the chunks of a precomputed volume, with which other packages read it as a Zarr v3 array.

>>> import sharddb.references
>>> sharddb.references.kerchunk("volume", scale=0)  # doctest: +SKIP
{'version': 1, 'refs': {'zarr.json': '{...}', 'c/0/0/0/0': ['file:///data/volume/s0/0.shard', 16, 262144], ...}}

A reference is a file, an offset and a length. It is valid until the file is replaced or removed: for a store, until the
generation is removed.
"""

from __future__ import annotations

import json
from os import PathLike, path as paths
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

import sharddb
from sharddb._volume import Scale


class References(NamedTuple):
    """A Zarr v3 array with the axes x, y, z and channel, whose chunks are ranges of files. Chunks are in C order."""

    metadata: dict[str, Any]
    """The ``zarr.json`` of the array."""
    grid: tuple[int, ...]
    """The number of chunks along each axis."""
    locations: list[str]
    """The URL of the file of each chunk; empty if the volume lacks the chunk, whose values are then zero."""
    offsets: npt.NDArray[np.uint64]
    """The offset of each chunk in its file, in bytes."""
    lengths: npt.NDArray[np.uint64]
    """The length of each chunk, in bytes."""


def virtual(path: str | PathLike[str], scale: int = 0, url: str | None = None) -> References:
    """Returns references to the chunks of a sharded scale, for icechunk: the arguments of ``set_virtual_refs_arr``.

    ``url`` is that of the directory of the shards. Default: ``file://`` and its path, percent-encoded.

    Cost: reads the indexes; memory is O(cells of the grid).

    Raises ``sharddb.Unsupported`` if the encoding of the scale is not "raw", or if its chunks do not divide its size: the
    chunks at the upper edges are then clipped, and Zarr needs them whole; ``sharddb.zarr.Store`` pads them. Also raises
    the errors of ``sharddb.open``.
    """
    volume = Scale(path, scale)
    if any(size % chunk for size, chunk in zip(volume.shape, volume.chunk_shape)):
        raise sharddb.Unsupported(
            f"expected chunks that divide the volume, found chunks of {volume.chunk_shape[:3]} in {volume.shape[:3]}: those at "
            "the upper edges are clipped; read the volume with sharddb.zarr.Store",
            path=str(volume.db.path),
        )
    files, file_no, offsets, lengths = volume.db.locate_many(volume.keys_at(np.indices(volume.grid).reshape(4, -1).T))
    urls = [f"{url.rstrip('/')}/{paths.basename(file)}" if url else Path(file).as_uri() for file in files]
    gzip = [{"name": "gzip", "configuration": {"level": 6}}] if volume.db.spec["data_encoding"] == "gzip" else []
    return References(
        volume.metadata(*gzip),
        volume.grid,
        np.array([*urls, ""])[file_no].tolist(),  # -1 is a chunk that the volume lacks
        offsets.astype(np.uint64),
        lengths.astype(np.uint64),
    )


def kerchunk(path: str | PathLike[str], scale: int = 0, url: str | None = None) -> dict[str, Any]:
    """Returns references to the chunks of a sharded scale, for the ``ReferenceFileSystem`` of fsspec (version 1).

    The array is at the root. Arguments, cost and errors are those of ``virtual``, but the default of ``url`` is not
    percent-encoded: fsspec does not decode it.
    """
    found = virtual(path, scale, url)
    chunks = zip(np.ndindex(*found.grid), found.locations, found.offsets.tolist(), found.lengths.tolist())
    refs: dict[str, Any] = {"zarr.json": json.dumps(found.metadata)}
    for position, location, offset, length in chunks:
        if location:
            refs["/".join(["c", *map(str, position)])] = [location if url else unquote(location), offset, length]
    return {"version": 1, "refs": refs}
