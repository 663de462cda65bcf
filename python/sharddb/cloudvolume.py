"""A reader of shards for CloudVolume, and a writer. Needs ``pip install sharddb[cloudvolume]``.

>>> from cloudvolume import CloudVolume
>>> from sharddb.cloudvolume import ShardReader
>>> cv = CloudVolume("precomputed://file:///data/segmentation")  # doctest: +SKIP
>>> cv.skeleton.reader = ShardReader(cv.cloudpath, cv.cache, cv.skeleton.reader.spec)  # doctest: +SKIP
>>> cv.skeleton.get([42, 43])  # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

import sharddb
from sharddb._extra import needs

with needs("cloudvolume"):
    from cloudvolume.datasource.precomputed import sharding
    from cloudvolume.lib import toabs, toiter
    from cloudvolume.paths import extract_format_protocol
    from tqdm import tqdm, trange

_LABELS_PER_READ = 1024
"""Between two steps of the progress bar."""


class ShardReader(sharding.ShardReader):  # type: ignore[misc] # CloudVolume has no types
    """CloudVolume's ``ShardReader``, which reads the shards of local directories with ShardDb.

    Assign it as ``cv.skeleton.reader`` or ``cv.mesh.reader``. The constructor is CloudVolume's, and so are results and
    errors, except for these:

    - ``get_data`` of several labels also returns those whose values share a range of the file, such as empty values.
    - A file that breaks a rule of the format raises ``sharddb.Corrupt`` where CloudVolume returns a value, or ``None``.

    CloudVolume itself reads paths other than ``file://``, everything while its cache is enabled, and with ``raw=True``
    values that are compressed. Checksums of ShardDb are not verified.

    Files that are created, removed or replaced in the directory are found by the next call. A shard that is overwritten
    in place, as CloudVolume does it, may be read with its old indexes; CloudVolume's reader caches them too. Files are
    not mapped, so a file may be truncated.
    """

    def get_data(
        self, label: Any, path: str = "", progress: bool | None = None, parallel: int = 1, raw: bool = False
    ) -> Any:
        """Returns the value of a label, ``None`` if it is absent; for several labels, a dict of them.

        ``raw`` leaves values compressed. ``parallel`` is only used where CloudVolume reads.
        """
        found: Any = toiter(label, is_iter=True)
        labels, several = list(found[0]), found[1]  # an iterator can be read once

        def read(db: sharddb.Database) -> Any:
            values: dict[int, bytes | None] = dict.fromkeys(map(int, labels))
            keys = [key for key in values if 0 <= key < 2**64]
            for start in trange(0, len(keys), _LABELS_PER_READ, desc="Reading", disable=not progress):
                some = keys[start : start + _LABELS_PER_READ]
                values.update(zip(some, db.get_many(some)))
            return values if several else values[int(labels[0])]

        encoded = raw and self.spec.data_encoding != "raw"
        wanted: Any = labels if several else labels[0]
        own = partial(super().get_data, wanted, path, progress, parallel, raw)
        return own() if encoded else self._read(path, read, own)

    def exists(self, labels: Any, path: str = "", return_byte_range: bool = False, progress: bool | None = None) -> Any:
        """Returns the file of the shard that has a label, ``None`` if it is absent; for several labels, a dict of them.

        With ``return_byte_range``: the file, the offset and the length of the stored value.
        """
        labels, several = toiter(labels, is_iter=True)
        labels = list(labels)

        def read(db: sharddb.Database) -> Any:
            found: dict[Any, Any] = dict.fromkeys(labels)
            present = [label for label in found if 0 <= label < 2**64 and int(label) == label]
            files, file_nos, offsets, lengths = db.locate_many(list(map(int, present)))
            places = zip(present, file_nos.tolist(), offsets.tolist(), lengths.tolist())
            for label, file_no, offset, length in places:
                if file_no >= 0:
                    file = self.join(path, os.path.basename(files[file_no]))
                    found[label] = [file, offset, length] if return_byte_range else file
            return found if several else found[labels[0]]

        own = partial(super().exists, labels if several else labels[0], path, return_byte_range, progress)
        return self._read(path, read, own)

    def list_labels(self, filename: str, path: str = "", size: bool = False) -> Any:
        """Returns the labels in a shard, ascending: ``uint64[n]``; with ``size``, (label, size), largest first."""

        def read(db: sharddb.Database) -> Any:
            digits = max(-(-int(self.spec.shard_bits) // 4), 1)
            name = re.fullmatch(rf"([0-9a-f]{{{digits}}})\.shard", os.path.basename(filename))
            labels = db.keys(shard=int(name[1], 16)) if name else ()
            if not len(labels):
                return own()  # another name, or no labels, which raises
            if not size:
                return np.sort(labels)
            sizes = db.locate_many(labels)[3].astype(np.uint64)
            return sorted(zip(labels, sizes), key=itemgetter(1), reverse=True)

        own = partial(super().list_labels, filename, path, size)
        return self._read(os.path.dirname(self.join(path, filename)), read, own)

    def _read(self, path: str, read: Callable[[sharddb.Database], Any], own: Callable[[], Any]) -> Any:
        """Reads the directory ``path`` by ``read``, or by ``own``, CloudVolume's method, if it is not for ShardDb."""
        _, protocol, volume = extract_format_protocol(self.cloudpath)
        directory = os.path.join(toabs(volume), path)
        if self.cache.enabled or protocol != "file" or not os.path.isdir(directory):
            return own()
        try:
            changed = os.stat(directory).st_mtime_ns
            # within a tick of the clock of the file system, a change after the opening has the same time
            is_recent = abs(time.time_ns() - changed) < _TICK_NS
            open_directory = _database.__wrapped__ if is_recent else _database
            return read(open_directory(directory, str(self.spec.to_json()), changed))
        except (sharddb.Corrupt, sharddb.Io):
            own()  # raises CloudVolume's error, if it has one
            raise


# Upper bound on the resolution of modification times.
_TICK_NS = 2_000_000_000


@lru_cache(maxsize=64)
def _database(directory: str, spec: str, changed: int) -> sharddb.Database:
    """Opens a directory of shards. Readers share it, because CloudVolume creates a reader for each cutout of an image.

    ``changed`` makes it open the directory again after a change.
    """
    return sharddb.open(directory, mode="pread", spec=json.loads(spec))


@contextmanager
def installed() -> Iterator[None]:
    """Makes images use ``ShardReader`` too, in all threads: CloudVolume creates a reader for each cutout.

    >>> with sharddb.cloudvolume.installed():  # doctest: +SKIP
    ...     cutout = cv[:64, :64, :64]
    """
    own, sharding.ShardReader = sharding.ShardReader, ShardReader
    try:
        yield
    finally:
        sharding.ShardReader = own


def synthesize_shard_files(
    spec: Any, data: Mapping[int, bytes], data_offset: Mapping[int, int] | None = None, progress: bool = False
) -> dict[str, bytes]:
    """Returns the files of the shards with these values, by name, like CloudVolume's function.

    With ``data_offset``, for meshes of several resolutions, it is CloudVolume's function.
    """
    if data_offset is not None:
        return dict(sharding.synthesize_shard_files(spec, data, data_offset, progress))
    if not data:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        loader = sharddb.Loader(
            os.path.join(directory, "store"), json.loads(spec.to_json()), checks=False, durable=False, allow_sparse=True
        )
        loader.extend(data)
        loader.finish(tqdm(unit="B", unit_scale=True) if progress else None)
        return {file.name: file.read_bytes() for file in Path(directory).rglob("*.shard")}
