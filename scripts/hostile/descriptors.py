"""Large builds with few descriptors: many runs, many large pairs, many shards."""

import json

import pairs as pair


def run(stage, report):
    """Each case would need more files than the limit if it kept them open, as the first edition did."""
    values = lambda: pair.numbered_pairs(200_000, 1000)
    cases = [
        ("200,000 values of 1000 bytes", 64, values, ()),
        ("100 values of 1.2 MiB", 64, lambda: pair.numbered_pairs(100, 1_258_288), ()),
        ("1,100 values of 1.05 MiB", 1024, lambda: pair.numbered_pairs(1100, 1_101_000), ()),
    ]
    for bits in (11, 12):
        shards = ("--sharding", json.dumps(sharding(bits)))
        for limit in (64, 1024):
            cases.append((f"{1 << bits} shards", limit, lambda: pair.numbered_pairs(20_000, 96), shards))
    if stage.is_short:
        cases = [case for case in cases if "1,100" not in case[0]]  # 1.2 GB; 100 such values have a lower limit
    for name, limit, make, options in cases:
        check(stage, report, name, limit, make(), options)


def sharding(bits):
    """Key k is in shard k mod 2^bits."""
    return {
        "@type": "neuroglancer_uint64_sharded_v1",
        "hash": "identity",
        "preshift_bits": 0,
        "minishard_bits": 0,
        "shard_bits": bits,
    }


def check(stage, report, name, limit, expected, options):
    place = stage.directory("descriptors", stage.disk)
    source, store = place / "input.bin", place / "store"
    pair.write_bin(source, expected)
    outcome = stage.limited(
        ["--nofile", str(limit)],
        stage.command,
        *("build", store, "--input", source, "--memory", "16MiB", "--threads", "2", "-q", *options),
        name="build",
    )
    problems = outcome.problems((0,))
    source.unlink()
    if outcome.code == 0:
        problems += stage.wrong_in(store, expected)
    report.case(f"build of {name} with {limit} descriptors", problems)
    stage.directory("descriptors", stage.disk).rmdir()
