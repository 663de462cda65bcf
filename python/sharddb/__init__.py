"""Databases of ``uint64 -> bytes`` in the Neuroglancer precomputed sharded format.

``sharddb.open(path)`` opens a store, one generation, or a directory of shards of any writer.
"""

from sharddb._sharddb import Database, Finding, Reader, Snapshot, Value, VerifyReport, open
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
from sharddb.stats import Stats

__all__ = [
    "Cancelled",
    "Corrupt",
    "Database",
    "DuplicateKey",
    "Error",
    "Finding",
    "GenerationGone",
    "Internal",
    "InvalidInput",
    "InvalidSpec",
    "Io",
    "Locked",
    "NotFound",
    "OutOfOrder",
    "Reader",
    "Snapshot",
    "Stats",
    "TooLarge",
    "Unsupported",
    "Value",
    "VerifyReport",
    "open",
]
