"""One scale of a precomputed volume: its array, the grid of its chunks, and their keys."""

from __future__ import annotations

from os import PathLike
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import sharddb

Mode = Literal["auto", "mmap", "pread", "memory"]


class Scale:
    """One sharded scale of a Neuroglancer precomputed volume whose chunks have the encoding "raw".

    As an array it has the axes x, y, z and channel, like TensorStore's. Index 0 along x, y and z is the first voxel of
    the scale, which is at ``voxel_offset`` in the volume.

    Raises ``Unsupported`` if the encoding is not "raw", ``InvalidSpec`` if ``info`` does not describe such a scale, and
    the errors of ``sharddb.open``.
    """

    shape: tuple[int, ...]
    """The size along x, y and z in voxels, and the number of channels."""
    chunk_shape: tuple[int, ...]
    """The size of a chunk. Those at the upper edges are clipped to ``shape``."""
    grid: tuple[int, ...]
    """The number of chunks along each axis; one along channel."""
    dtype: np.dtype[Any]
    attributes: dict[str, Any]
    """``key``, ``resolution`` and ``voxel_offset`` from ``info``."""

    def __init__(self, path: str | PathLike[str], number: int = 0, mode: Mode = "auto") -> None:
        self.db = sharddb.open(path, mode=mode, pointer=f"/scales/{number}")
        info = self.db.info
        try:
            scale = info["scales"][number]
            encoding = scale["encoding"]
            self.shape = (*map(int, scale["size"]), int(info["num_channels"]))
            self.chunk_shape = (*map(int, scale["chunk_sizes"][0]), self.shape[-1])
            self.dtype = np.dtype(info["data_type"]).newbyteorder("<")
            self.attributes = {name: scale[name] for name in ("key", "resolution", "voxel_offset") if name in scale}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._invalid(f"{type(error).__name__}: {error}") from error
        if encoding != "raw":
            raise sharddb.Unsupported(
                f'expected a scale of encoding "raw", found "{encoding}": read it with CloudVolume or TensorStore',
                path=str(self.db.path),
            )
        if self.dtype.kind not in "uif":
            raise self._invalid(f"data of type {self.dtype}")
        if len(self.shape) != 4 or len(self.chunk_shape) != 4 or min(self.shape + self.chunk_shape) < 1:
            raise self._invalid(f"size {self.shape[:-1]} and chunks of {self.chunk_shape[:-1]}")
        self.grid = tuple(-(-size // chunk) for size, chunk in zip(self.shape, self.chunk_shape))
        bits = [(cells - 1).bit_length() for cells in self.grid]
        if sum(bits) > 64:
            raise self._invalid(f"a grid of {self.grid[:3]} chunks, whose keys take more than 64 bits")
        self._bits = [(axis, np.uint64(bit)) for bit in range(max(bits)) for axis in range(4) if bit < bits[axis]]
        """The axis, and the bit of its coordinate, of each bit of a key, lowest first."""

    def _invalid(self, found: str) -> sharddb.InvalidSpec:
        return sharddb.InvalidSpec(f"expected a scale of a volume in info, found {found}", path=str(self.db.path))

    def metadata(self, *bytes_codecs: dict[str, Any]) -> dict[str, Any]:
        """Returns the ``zarr.json`` of the array. ``bytes_codecs`` are applied to the bytes of a chunk."""
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.shape,
            "data_type": self.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.chunk_shape}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [
                {"name": "transpose", "configuration": {"order": [3, 2, 1, 0]}},
                {"name": "bytes", "configuration": {"endian": "little"}},
                *bytes_codecs,
            ],
            "dimension_names": ["x", "y", "z", "channel"],
            "attributes": self.attributes,
        }

    def keys_at(self, positions: npt.ArrayLike) -> npt.NDArray[np.uint64]:
        """Returns the keys of the chunks at ``positions`` in the grid: (n, 4) integers to uint64[n]."""
        at = np.asarray(positions, np.uint64)
        keys = np.zeros(len(at), np.uint64)
        for n, (axis, bit) in enumerate(self._bits):
            keys |= (at[:, axis] >> bit & np.uint64(1)) << np.uint64(n)
        return keys

    def key_at(self, position: tuple[int, ...]) -> int:
        """Returns the key of the chunk at ``position`` in the grid."""
        return int(self.keys_at([position])[0])

    def positions_of(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Returns the positions of chunks in the grid, uint64 (n, 4), without those of keys that no chunk has."""
        at = np.zeros((len(keys), 4), np.uint64)
        for n, (axis, bit) in enumerate(self._bits):
            at[:, axis] |= (keys >> np.uint64(n) & np.uint64(1)) << bit
        last = np.array([cells - 1 for cells in self.grid], np.uint64)
        exists: npt.NDArray[np.bool_] = (at <= last).all(axis=1) & (self.keys_at(at) == keys)
        return at[exists]

    def chunk(self, position: tuple[int, ...]) -> bytes | None:
        """Returns the chunk at ``position``, padded with zeros at the upper edges; ``None`` if it is absent.

        Raises ``Corrupt`` if its length is not that of its voxels.
        """
        key = self.key_at(position)
        [value] = self.db.get_many([key])  # without the GIL, unlike `get`
        if value is None:
            return None
        full = self.chunk_shape
        clipped = [min(n, size - n * at) for n, size, at in zip(full, self.shape, position)]
        expected = int(np.prod(clipped)) * self.dtype.itemsize
        if len(value) != expected:
            raise sharddb.Corrupt(
                f"expected a chunk of {expected} bytes at {position[:3]}, found {len(value)}",
                path=str(self.db.path),
                key=key,
            )
        if clipped == list(full):
            return value
        padded = np.zeros(full[::-1], self.dtype)
        padded[tuple(map(slice, clipped[::-1]))] = np.frombuffer(value, self.dtype).reshape(clipped[::-1])
        return padded.tobytes()
