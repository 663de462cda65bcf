"""Pairs of keys and values: made from a seed, written as input for the command, read from its output."""

import random
import struct

RECORD = struct.Struct("<QQ")


def random_pairs(seed, count, length):
    """`count` pairs with keys of 64 random bits and values of `length` random bytes."""
    source = random.Random(seed)
    return {source.getrandbits(64): source.randbytes(length) for _ in range(count)}


def numbered_pairs(count, length):
    """`count` pairs with the keys 0, 1, 2, ... and values of `length` bytes that differ."""
    return {key: key.to_bytes(8, "little") * (length // 8) for key in range(count)}


def write_bin(path, pairs):
    """Writes the pairs in the format `bin`: key, length, value."""
    with open(path, "wb") as file:
        for key, value in pairs.items():
            file.write(RECORD.pack(key, len(value)))
            file.write(value)


def read_bin(file):
    """The pairs of an open file in the format `bin`. A truncated value shows as a wrong one."""
    while header := file.read(RECORD.size):
        if len(header) < RECORD.size:
            raise ValueError("expected a complete record, found the end within it")
        key, length = RECORD.unpack(header)
        yield key, file.read(length)


def wrong_pairs(found, expected, *, some=False):
    """What is wrong with these pairs: they must be all of `expected`, or a subset with `some`, each once."""
    met = set()
    try:
        for key, value in found:
            if expected.get(key) != value:
                return [f"expected the stored value of key {key}, found another of {len(value)} bytes"]
            if key in met:
                return [f"expected each key once, found {key} twice"]
            met.add(key)
    except ValueError as error:
        return [str(error)]
    return [] if some or len(met) == len(expected) else [f"expected {len(expected)} pairs, found {len(met)}"]


def wrong_in_file(path, expected, *, some=False):
    """What is wrong with a file in the format `bin`."""
    with open(path, "rb") as file:
        return wrong_pairs(read_bin(file), expected, some=some)
