#!/usr/bin/env python3
"""Pushes data sets to an S3 server on loopback (moto), and checks in a browser that Neuroglancer draws them from there.

usage: check_pushed.py SHARDDB DATASET CHECK_DIR

SHARDDB is the command, built with the feature remote; DATASET a precomputed data set with its expectations (ng_expect.json);
CHECK_DIR a copy of ngcheck/ in which setup.sh has run. The image, the skeletons and the meshes become stores, which are pushed.
Neuroglancer opens the generations that `push` prints. The last line is `N passed, N failed`; exit 1 if any failed.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import boto3
from moto.server import ThreadedMotoServer
from programs import limited

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


def main(sharddb, dataset, check, place):
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs every request
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    endpoint = "http://{}:{}".format(*moto.get_host_and_port())
    os.environ |= CREDENTIALS | {"AWS_ENDPOINT_URL": endpoint, "XDG_CACHE_HOME": str(place / "cache")}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="fly", ACL="public-read")

    def push(name, *make):
        """Makes a store and pushes it; returns the path of the generation in the bucket."""
        store = place / name
        subprocess.run(limited([sharddb, *make, store, "--quiet"]), check=True)
        words = limited([sharddb, "push", store, f"s3://fly/{name}", "--quiet"])
        pushed = subprocess.run(words, check=True, stdout=subprocess.PIPE)
        return pushed.stdout.decode().strip().removeprefix("precomputed://s3://fly/")

    info = json.loads((dataset / "seg/info").read_text())
    pushed = {name: push(name, "import", dataset / "seg" / name) for name in ("skeletons", "mesh")}
    info |= {name: f"../{path}" for name, path in pushed.items()}
    pushed["image"] = push("image", "copy", "--range", "0..", "--sharding-at", "/scales/0", dataset / "image")
    for path in (dataset / "seg").rglob("*"):
        if path.is_file() and path.parent.name not in ("skeletons", "mesh"):
            client.upload_file(str(path), "fly", str(path.relative_to(dataset)))
    client.put_object(Bucket="fly", Key="seg/info", Body=json.dumps(info))

    expected = (dataset / "ng_expect.json").read_text().replace("$URL/image", f"$URL/{pushed['image']}")
    scenes = [scene for scene in json.loads(expected)["scenes"] if scene["name"] in pushed]
    for scene in scenes:
        scene["files"] = pushed[scene["name"]] + "/"
    (place / "expect.json").write_text(json.dumps({"scenes": scenes}))
    draw = ["node", check / "run_ng_check.mjs", f"{endpoint}/fly", "--expect", place / "expect.json", "--out", place / "shots"]
    drawn = subprocess.run(limited(draw))
    moto.stop()
    print("1 passed, 0 failed" if drawn.returncode == 0 else "0 passed, 1 failed")
    return drawn.returncode


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: check_pushed.py SHARDDB DATASET CHECK_DIR")
    with tempfile.TemporaryDirectory(prefix="sharddb-pushed-") as place:
        sys.exit(main(os.path.abspath(sys.argv[1]), *map(Path, sys.argv[2:]), Path(place)))
