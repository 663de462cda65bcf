"""Commits references to the chunks of a precomputed volume to an Icechunk repository, where they are a Zarr array.

    python icechunk_references.py VOLUME REPOSITORY

Needs ``pip install sharddb zarr icechunk``. The chunks stay in the shards; each commit is a version of the references.
When the process ends, a thread of Icechunk 1.1.21 may abort it, after everything is written.
Icechunk 1.1 and 2.3 do not find local files below a directory whose URL has percent-encoded characters, such as a space.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr
from zarr.buffer.cpu import Buffer

import sharddb.references

NAME = "volume"
"""The array in the repository."""


def repository(path: str, files: str) -> icechunk.Repository:
    """Opens or creates a repository that may refer to local files below the directory ``files``."""
    prefix = Path(files).absolute().as_uri() + "/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(Path(files).absolute())))
    )
    return icechunk.Repository.open_or_create(
        icechunk.local_filesystem_storage(path),
        config=config,
        authorize_virtual_chunk_access=icechunk.containers_credentials({prefix: None}),
    )


def commit(volume: str, to: icechunk.Repository) -> str:
    """Commits references to the chunks of scale 0. Returns the snapshot."""
    found = sharddb.references.virtual(volume, scale=0)
    session = to.writable_session("main")
    zarr.open_group(session.store, mode="a")
    asyncio.run(session.store.set(f"{NAME}/zarr.json", Buffer.from_bytes(json.dumps(found.metadata).encode())))
    if hasattr(session.store, "set_virtual_refs_arr"):
        failed = session.store.set_virtual_refs_arr(NAME, *found[1:])
    else:  # Icechunk 1
        cells = zip(np.ndindex(*found.grid), found.locations, found.offsets.tolist(), found.lengths.tolist())
        chunks = [icechunk.VirtualChunkSpec(list(at), *chunk) for at, *chunk in cells if chunk[0]]
        failed = session.store.set_virtual_refs(NAME, chunks)
    if failed:
        raise ValueError(f"expected files of the repository's container, found others for the chunks {failed[:3]}")
    return session.commit(f"refer to {volume}")


def open_array(source: icechunk.Repository) -> Any:
    """Opens the array at the tip of the main branch."""
    return zarr.open_array(source.readonly_session("main").store, path=NAME, mode="r")


if __name__ == "__main__":
    opened = repository(sys.argv[2], sys.argv[1])
    commit(sys.argv[1], opened)
    print(open_array(opened))
