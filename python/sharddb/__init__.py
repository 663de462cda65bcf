"""Databases of ``uint64 -> bytes`` in the Neuroglancer precomputed sharded format.

``sharddb.open(path)`` opens a store, one generation, or a directory of shards of any writer.
"""

from sharddb._sharddb import Database, Reader, open
from sharddb.errors import (
    Cancelled,
    Corrupt,
    DuplicateKey,
    Error,
    GenerationGone,
    Internal,
    InvalidInput,
    InvalidSpec,
    Io,
    Locked,
    NotFound,
    OutOfOrder,
    TooLarge,
    Unsupported,
)

__all__ = [
    "Cancelled",
    "Corrupt",
    "Database",
    "DuplicateKey",
    "Error",
    "GenerationGone",
    "Internal",
    "InvalidInput",
    "InvalidSpec",
    "Io",
    "Locked",
    "NotFound",
    "OutOfOrder",
    "Reader",
    "TooLarge",
    "Unsupported",
    "open",
]
