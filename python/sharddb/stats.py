"""The types of ``db.stats``."""

from typing import Literal, TypedDict


class Stats(TypedDict):
    """Statistics of an open database; see ``Reader.stats``."""

    generation: int | None
    """The number of the generation that is served; ``None`` for a bare directory."""
    shards: int
    """The number of shards."""
    keys: int | None
    """The number of keys; ``None`` without a manifest."""
    value_bytes: int | None
    """The stored bytes of all values; ``None`` without a manifest."""
    file_bytes: int | None
    """The bytes of all shard files; ``None`` without a manifest."""
    key_file_bytes: int | None
    """The bytes of the key file; ``None`` if there is none."""
    verified_minishards: int
    """The minishards that reads have verified and do not verify again."""
    cache_hits: int
    """Lookups that found their minishard index in the cache."""
    cache_misses: int
    """Lookups that did not find it."""
    cache_bytes: int
    """The size of the cache."""
    process_maps: int
    """The maps of files of all databases in this process."""
    lease: Literal["held", "unavailable"] | None
    """Whether the generation is protected from removal; ``None`` for a bare directory."""
    lease_error: str | None
    """Why the lease is unavailable."""
    open_generations: int
    """The generations that are open, replaced ones included that were in use at the last refresh."""
    swaps: int
    """How often a refresh has changed the generation."""
    age: float
    """Seconds since the database was opened or a refresh last succeeded."""
    failures: int
    """Refreshes that failed since the last one that succeeded."""
    last_error: str | None
    """The last error of a refresh."""


class RemoteStats(TypedDict):
    """Statistics of a database in an object store since it was opened; see ``RemoteReader.stats``."""

    generation: str | None
    """The name of the generation that is served; ``None`` for a bare directory."""
    keys: int | None
    """The number of keys; ``None`` without a manifest."""
    requests: int
    """The requests, those of opening included."""
    bytes: int
    """The bytes of their responses."""
    seconds: float
    """The time that calls took, that of opening included; of calls at the same time, the sum."""
    cache_hits: int
    """The blocks of indexes that reads found in the cache."""
    cache_bytes: int
    """The size of the cache."""
