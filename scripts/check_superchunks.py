#!/usr/bin/env python3
"""Reads an array in the superchunk layout of bcolz's RFC, using only that text and the header of bloscpack.

usage: check_superchunks.py ROOT [COLUMN]

Writes the rows to standard output. Uses Python's zlib and C-Blosc (package blosc), and no code of ShardDb.
"""

import json
import struct
import sys
import zlib
from pathlib import Path

import blosc

DIGESTS = {0: (0, lambda _: b""), 1: (4, zlib.adler32), 2: (4, zlib.crc32)}
HEADER = struct.Struct("<4sBBBBiiqq")  # magic, version, options, checksum, typesize, chunk, last chunk, nchunks, room


def chunks(path):
    """The decoded chunks of a superchunk, each verified against its digest."""
    data = path.read_bytes()
    magic, version, options, checksum, typesize, chunk_size, last_chunk, nchunks, room = HEADER.unpack_from(data)
    assert (magic, options) == (b"blpk", 1) and version in (2, 3), path
    offsets = struct.unpack_from(f"<{nchunks + room}q", data, HEADER.size)
    assert offsets[0] == HEADER.size + 8 * len(offsets) and set(offsets[nchunks:]) <= {-1}, path
    length, digest = DIGESTS[checksum]
    for number, offset in enumerate(offsets[:nchunks]):
        blosc_version, _, _, width, nbytes, _, cbytes = struct.unpack_from("<4B3I", data, offset)
        assert blosc_version == 2 and width == typesize, (path, number)
        assert nbytes == (last_chunk if number == nchunks - 1 else chunk_size), (path, number)
        chunk = data[offset : offset + cbytes]
        stated = data[offset + cbytes : offset + cbytes + length]
        found = digest(chunk)
        assert stated == (struct.pack("<I", found) if length else b""), (path, number, "checksum")
        end = offsets[number + 1] if number + 1 < nchunks else len(data)
        assert not any(data[offset + cbytes + length : end]), (path, number, "reserve")
        yield blosc.decompress(chunk)


def rows(root, column=""):
    """The bytes of an array or a column, verified against the sizes in the meta files."""
    storage = json.loads((root / "meta" / "storage").read_text())
    sizes = json.loads((root / "meta" / "sizes").read_text())
    data = root / "data" / column
    numbers = sorted(int(path.name[2:-6]) for path in data.glob("__*__.bin"))
    assert numbers == list(range(1, len(numbers) + 1)), numbers
    superchunks = [list(chunks(data / f"__{number}__.bin")) for number in numbers]
    assert all(len(superchunk) <= storage["superchunksize"] for superchunk in superchunks)
    whole = b"".join(chunk for superchunk in superchunks for chunk in superchunk)
    assert column or sizes["nbytes"] == len(whole), (sizes, len(whole))
    assert len(whole) % sizes["shape"][0] == 0 if whole else sizes["shape"][0] == 0
    return whole


if __name__ == "__main__":
    sys.stdout.buffer.write(rows(Path(sys.argv[1]), *sys.argv[2:]))
