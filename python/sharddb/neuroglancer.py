"""Skeletons for the viewer of neuroglancer-python. Needs ``pip install sharddb[neuroglancer]``.

>>> import neuroglancer, sharddb.neuroglancer
>>> viewer = neuroglancer.Viewer()  # doctest: +SKIP
>>> skeletons = sharddb.neuroglancer.SkeletonSource("segmentation/skeletons")  # doctest: +SKIP
>>> with viewer.txn() as state:  # doctest: +SKIP
...     state.layers["skeletons"] = neuroglancer.SegmentationLayer(source=[skeletons], segments=[42])
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

import sharddb
from sharddb._extra import needs
from sharddb._volume import Mode

with needs("neuroglancer"):
    from neuroglancer import CoordinateSpace
    from neuroglancer.skeleton import Skeleton, VertexAttributeInfo
    from neuroglancer.skeleton import SkeletonSource as _SkeletonSource


class SkeletonSource(_SkeletonSource):  # type: ignore[misc] # neuroglancer has no types
    """The skeletons of a sharded skeleton database: its ``info`` has the type "neuroglancer_skeletons".

    Positions are those after the ``transform`` of ``info``: nanometres, unless ``dimensions`` states another unit. The
    vertex attributes are those of ``info``.

    Raises ``sharddb.InvalidSpec`` if ``info`` does not describe skeletons, and the errors of ``sharddb.open``.
    """

    def __init__(
        self, path: str | PathLike[str], dimensions: Any = None, voxel_offset: Any = None, mode: Mode = "auto"
    ) -> None:
        if dimensions is None:
            dimensions = CoordinateSpace(names=["x", "y", "z"], units=["nm", "nm", "nm"], scales=[1, 1, 1])
        super().__init__(dimensions, voxel_offset)
        self.db = sharddb.open(path, mode=mode)
        info = self.db.info
        if info.get("@type") != "neuroglancer_skeletons":
            raise sharddb.InvalidSpec(
                f'expected an info of type "neuroglancer_skeletons", found {info.get("@type")!r}',
                path=str(self.db.path),
            )
        try:
            self._transform = np.reshape(info.get("transform", np.eye(3, 4)), (3, 4)).astype(np.float64)
            self.vertex_attributes = {
                attribute["id"]: VertexAttributeInfo(np.dtype(attribute["data_type"]), int(attribute["num_components"]))
                for attribute in info.get("vertex_attributes", [])
            }
        except (KeyError, TypeError, ValueError) as error:
            raise sharddb.InvalidSpec(
                f"expected a transform of 12 numbers and vertex attributes, found {error!r}", path=str(self.db.path)
            ) from error

    def get_skeleton(self, object_id: int) -> Any:
        """Returns the skeleton of an object, a ``neuroglancer.skeleton.Skeleton``; ``None`` if it has none.

        Raises ``sharddb.Corrupt`` if its length is not that of its vertices, edges and attributes, and the errors of
        ``db[k]``.
        """
        [value] = self.db.get_many([object_id])
        if value is None:
            return None
        positions, edges, *attributes = self._arrays(object_id, value)
        positions = positions @ self._transform[:, :3].T + self._transform[:, 3]
        return Skeleton(positions, edges, dict(zip(self.vertex_attributes, attributes)))

    def _arrays(self, object_id: int, value: bytes) -> list[npt.NDArray[Any]]:
        """Splits a value into positions (n, 3), edges (m, 2), and an array (n, components) for each attribute."""
        vertices, edges = map(int, np.frombuffer(value.ljust(8, b"\0"), "<u4", 2))
        columns = [(np.dtype("<f4"), vertices, 3), (np.dtype("<u4"), edges, 2)]
        for attribute in self.vertex_attributes.values():
            columns.append((attribute.data_type.newbyteorder("<"), vertices, attribute.num_components))
        ends = np.cumsum([8, *(dtype.itemsize * rows * width for dtype, rows, width in columns)]).tolist()
        if len(value) != ends[-1]:
            raise sharddb.Corrupt(
                f"expected {ends[-1]} bytes for {vertices} vertices and {edges} edges, found {len(value)}",
                path=str(self.db.path),
                key=object_id,
            )
        return [
            np.frombuffer(value, dtype, rows * width, start).reshape(rows, width)
            for (dtype, rows, width), start in zip(columns, ends)
        ]
