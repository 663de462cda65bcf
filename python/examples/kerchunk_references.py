"""Writes references to the chunks of a precomputed volume, and opens them as a Zarr array, without ShardDb.

    python kerchunk_references.py VOLUME references.json

Needs ``pip install sharddb zarr fsspec``. The JSON file is that of kerchunk. It may be combined with other references, or
be served; the third argument is then the URL of the directory of the shards.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import zarr

import sharddb.references


def write(volume: str, output: str, url: str | None = None) -> None:
    """Writes the references of scale 0. ``url`` is that of the directory of the shards, if it is not local."""
    with open(output, "w") as file:
        json.dump(sharddb.references.kerchunk(volume, scale=0, url=url), file)


def open_array(references: str, protocol: str = "file") -> Any:
    """Opens the array that the references describe."""
    options = {"fo": references, "remote_protocol": protocol, "remote_options": {"asynchronous": True}}
    return zarr.open_array("reference://", storage_options=options, mode="r")


if __name__ == "__main__":
    write(*sys.argv[1:])
    print(open_array(sys.argv[2]))
