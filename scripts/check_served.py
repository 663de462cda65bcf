#!/usr/bin/env python3
"""Reads the data set of the Neuroglancer check through `sharddb serve` with TensorStore and CloudVolume.

usage: check_served.py SHARDDB [DATASET]

SHARDDB   the command
DATASET   default: tests/data/neuroglancer

Both readers must find the same voxels, skeletons and annotations as in the local files: through /raw/, where they read the
shards, and through /objects/, where they request single chunks. The values of get and get-many must be those too, and a
swap of a store must be seen. The last line is `N passed, N failed`; exit 1 if any failed.
"""

import base64
import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import numpy as np
import tensorstore
from cloudvolume import CloudVolume
from programs import LIMIT, Server, limited

ROOT = Path(__file__).resolve().parent.parent
passed = failed = 0


def check(what, holds):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    print("ok  " if holds else "FAIL", what, flush=True)


class Served:
    """Paths that a server serves. `url(area)` is where an area begins."""

    def __init__(self, sharddb, *paths):
        self.server = Server([sharddb, "serve", *map(str, paths), "--quiet"], r"https?://\S+")
        self.root = self.server.url.removesuffix("/")

    def url(self, path):
        return f"{self.root}/{path}"

    def get(self, path, body=None):
        with urllib.request.urlopen(urllib.request.Request(self.url(path), data=body), timeout=LIMIT) as answer:
            return answer.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        code = self.server.stop()
        check(f"the server stops without an error: {code} {self.server.printed}" if code else "the server stops without an error", code == 0)


def voxels_by_tensorstore(kvstore):
    spec = {"driver": "neuroglancer_precomputed", "kvstore": kvstore, "open": True}
    return tensorstore.open(spec, read=True).result().read().result()


def voxels_by_cloudvolume(path):
    return np.asarray(CloudVolume(path, progress=False, cache=False, use_https=False)[:])


def volumes(server, dataset):
    for name in ["image", "seg"]:
        local = voxels_by_tensorstore(f"file://{dataset}/{name}/")
        check(f"{name}: the local voxels are not all equal", len(np.unique(local)) > 1)
        for area in ["raw", "objects"]:
            url = server.url(f"{area}/{name}")
            check(f"{name}, {area}: TensorStore", np.array_equal(voxels_by_tensorstore(f"{url}/"), local))
            check(f"{name}, {area}: CloudVolume", np.array_equal(voxels_by_cloudvolume(f"precomputed://{url}"), local))


def keys(server, path):
    found, cursor = [], ""
    while True:
        page = json.loads(server.get(f"api/{path}/keys?limit=500{cursor}"))
        found += [int(key) for key in page["keys"]]
        if page["next"] is None:
            return found
        cursor = "&cursor=" + page["next"]


def skeletons(server, dataset):
    ids = keys(server, "seg/skeletons")
    check("skeletons: 1000 keys", len(set(ids)) == 1000)
    local, served = (CloudVolume(f"precomputed://{root}", progress=False, cache=False)
                     for root in [f"file://{dataset}/seg", server.url("raw/seg")])
    same = all(
        np.array_equal(a.vertices, b.vertices) and np.array_equal(a.edges, b.edges)
        for a, b in ((local.skeleton.get(id), served.skeleton.get(id)) for id in ids[:20])
    )
    check("skeletons: CloudVolume", same)
    check("meshes: CloudVolume", meshes(local, served, [int(key) for key in keys(server, "seg/mesh")][:3]))


def meshes(local, served, ids):
    pairs = ((local.mesh.get(id)[id], served.mesh.get(id)[id]) for id in ids)
    return all(len(a.vertices) > 0 and np.array_equal(a.vertices, b.vertices) for a, b in pairs)


def annotations(server, dataset):
    info = json.loads((dataset / "ann/info").read_text())
    for member in [info["by_id"], *info["relationships"], *info["spatial"]]:
        name = member["key"]
        local, served = (
            tensorstore.KvStore.open({"driver": "neuroglancer_uint64_sharded", "metadata": member["sharding"], "base": base}).result()
            for base in [f"file://{dataset}/ann/{name}/", server.url(f"raw/ann/{name}/")]
        )
        ids = keys(server, f"ann/{name}")
        values = {id: local.read(id.to_bytes(8, "big")).result().value for id in ids}
        check(f"annotations, {name}: keys", len(ids) > 0 and len(local.list().result()) == len(ids))
        check(f"annotations, {name}: TensorStore",
              all(served.read(id.to_bytes(8, "big")).result().value == value for id, value in values.items()))
        check(f"annotations, {name}: get",
              all(server.get(f"api/ann/{name}/get/{id}") == value for id, value in values.items()))
        lines = server.get(f"api/ann/{name}/get-many", json.dumps([str(id) for id in ids]).encode()).splitlines()
        found = {int(line["key"]): base64.b64decode(line["value"]) for line in map(json.loads, lines)}
        check(f"annotations, {name}: get-many", found == values)


def swaps(sharddb):
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        spec = None
        for text in ["one", "two"]:
            pairs = "".join(f'{{"key": {key}, "text": "{text} {key}"}}\n' for key in range(100))
            build = [sharddb, "build", store, "--input", "-", "--format", "ndjson", "--quiet"]
            subprocess.run(limited(build), input=pairs, text=True, check=True)
        with Served(sharddb, store) as server:
            for number, text in [(1, "one"), (2, "two")]:
                subprocess.run(limited([sharddb, "rollback", store, number, "--quiet"]), check=True)
                spec = json.loads(server.get("raw/store/info"))["sharding"]
                base = {"driver": "neuroglancer_uint64_sharded", "metadata": spec, "base": server.url("raw/store/")}
                kvstore = tensorstore.KvStore.open(base).result()
                values = [kvstore.read(key.to_bytes(8, "big")).result().value for key in range(100)]
                check(f"a swap to generation {number}: TensorStore", values == [f"{text} {key}".encode() for key in range(100)])


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    sharddb = sys.argv[1]
    dataset = Path(sys.argv[2] if len(sys.argv) == 3 else ROOT / "tests/data/neuroglancer").resolve()
    with Served(sharddb, dataset) as server:
        volumes(server, dataset)
        skeletons(server, dataset)
        annotations(server, dataset)
    swaps(sharddb)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
