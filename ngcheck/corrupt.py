#!/usr/bin/env python3
"""Copies a data set and damages the copy: negative cases for run_ng_check.mjs.

usage: corrupt.py KIND SOURCE COPY
"""
import glob, json, os, shutil, struct, sys
kind, src, dst = sys.argv[1:4]
shutil.rmtree(dst, ignore_errors=True); shutil.copytree(src, dst)
def infos():
    for p in glob.glob(dst + "/**/info", recursive=True):
        yield p, json.load(open(p))
def each_sharding(o, f):
    if isinstance(o, dict):
        if o.get("@type") == "neuroglancer_uint64_sharded_v1": f(o)
        for v in o.values(): each_sharding(v, f)
    elif isinstance(o, list):
        for v in o: each_sharding(v, f)
mb = {}                       # directory -> minishard_bits; these data sets have one specification per directory
for p, j in infos():
    d = os.path.dirname(p)
    for key, o in [(".", j)] + [(s["key"], s) for s in j.get("scales", [])] + [(e["key"], e) for e in ([j["by_id"]] if "by_id" in j else []) + j.get("relationships", []) + j.get("spatial", [])]:
        if "sharding" in o: mb[os.path.normpath(os.path.join(d, key))] = o["sharding"]["minishard_bits"]
n = 0
for p in sorted(glob.glob(dst + "/**/*.shard", recursive=True)):
    b = bytearray(open(p, "rb").read()); idx = 16 << mb[os.path.normpath(os.path.dirname(p))]
    if kind == "zero": b = bytearray(len(b))                      # empty shard index, no values
    elif kind == "flip-data":                                     # all bytes between the shard index and the first minishard index
        first = min(s for s, e in struct.iter_unpack("<QQ", bytes(b[:idx])) if s != e) + idx
        b[idx:first] = bytes(x ^ 0xFF for x in b[idx:first])
    elif kind == "flip-index":                                    # the minishard indexes
        first = min(s for s, e in struct.iter_unpack("<QQ", bytes(b[:idx])) if s != e) + idx
        b[first:] = bytes(x ^ 0xFF for x in b[first:])
    elif kind == "wild-offsets":                                  # the shard index refers beyond the end of the file
        for i in range(0, idx, 16):
            s, e = struct.unpack_from("<QQ", b, i)
            if s != e: struct.pack_into("<QQ", b, i, s + (1 << 40), e + (1 << 40))
    elif kind == "backwards":                                     # end < start
        for i in range(0, idx, 16):
            s, e = struct.unpack_from("<QQ", b, i)
            struct.pack_into("<QQ", b, i, e, s)
    elif kind == "trunc": b = b[:len(b) // 2]
    elif kind == "delete": os.remove(p); n += 1; continue
    elif kind == "delete-one":                                    # the last shard of each directory
        if os.path.basename(p) == max(f for f in os.listdir(os.path.dirname(os.path.join(src, os.path.relpath(p, dst)))) if f.endswith(".shard")): os.remove(p); n += 1
        continue
    open(p, "wb").write(b); n += 1
for p, j in infos():
    if kind == "info-hash": each_sharding(j, lambda s: s.update(hash="identity" if s["hash"] != "identity" else "murmurhash3_x86_128"))
    if kind == "info-preshift": each_sharding(j, lambda s: s.update(preshift_bits=s["preshift_bits"] + 3))
    if kind == "info-bits": each_sharding(j, lambda s: s.update(minishard_bits=s["minishard_bits"] + 1, shard_bits=s["shard_bits"] - 1))
    if kind == "info-encoding": each_sharding(j, lambda s: s.update(minishard_index_encoding="raw" if s["minishard_index_encoding"] == "gzip" else "gzip"))
    json.dump(j, open(p, "w"))
print(kind, n, "shards")
