#!/usr/bin/env python3
"""Runs what README.md and docs/command.md show, and compares its output and the figures with what they say.

usage: check_readme.py SHARDDB

SHARDDB is the command, built with the feature remote; the interpreter has the Python package and its requirements
(scripts/python.sh makes it). The blocks run one after the other in a temporary directory (scripts/blocks.py), s3://bucket is a
server of moto on loopback, and the code in the table for users of Neuroglancer is run cell by cell. A line that begins with
cargo must be in .ci/run. The figures of the README are those of docs/peers.json. All first pages begin with the same
sentence. The last line is `N passed, N failed`; exit 1 if any failed.
"""

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import boto3
import plot_speed
from blocks import ROOT, Place, blocks, failure
from moto.server import ThreadedMotoServer

LINES = 150
DATA = ROOT / "tests/data/neuroglancer"

# what each row of the table of the README is in docs/peers.json: the workload, and its unit in ns or bytes
ROWS = {
    "lookup, ns": ("hit", 1),
    "lookup in batches of 256, ns": ("batch", 1),
    "absent key, ns": ("miss", 1),
    "scan, ns per pair": ("scan", 1),
    "opening and the first lookup, µs": ("open + first get", 1000),
    "bytes on disk beyond the value, per pair": ("on disk beyond the value, a key", 1),
}
ENGINES = {"`open`: reads": "sharddb-open", "`open_mapped`": "sharddb", "LMDB": "lmdb", "redb": "redb", "cdb64": "cdb64"}


class Results:
    def __init__(self):
        self.failed = self.passed = 0

    def add(self, name, why=""):
        self.passed, self.failed = self.passed + (not why), self.failed + bool(why)
        print(f"FAIL  {name}\n{why}" if why else f"ok    {name.strip()}", flush=True)


def section(document, title):
    return document.split(f"\n## {title}\n")[1].split("\n## ")[0]


def table(text):
    """The rows of the first table, the head without the line below it."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("|")]
    return [rows[0], *rows[2:]]


def figures(readme):
    """Yields what is said of speed, and why it is not what was measured."""
    report = json.loads((ROOT / "docs/peers.json").read_text())
    head, *rows = table(section(readme, "Speed"))
    measured = {(row["workload"], row["engine"]): row for row in report["rows"] if row["set"] == plot_speed.SET}
    yield "the rows of the table", "" if [row[0] for row in rows] == list(ROWS) else f"expected {list(ROWS)}"
    for name, *cells in rows:
        workload, unit = ROWS[name]
        found = [measured[workload, ENGINES[engine]] for engine in head[1:]]
        expected = [float(f"{(row.get('ns') or row.get('bytes') or row.get('count')) / unit:.3g}") for row in found]
        yield name, "" if [float(cell.replace(",", "")) for cell in cells] == expected else f"expected {expected}, found {cells}"
    times, picture = plot_speed.measured(report), (ROOT / "docs/speed.svg").read_text()
    yield "docs/speed.svg", "" if picture == plot_speed.draw(report) else "expected what scripts/plot_speed.py draws"
    yield "its alternative text", "" if f"![{plot_speed.alternative(times)}]" in readme else plot_speed.alternative(times)
    top, number = readme.split("\n![")[0], r"\d[\d,]{2,}"
    expected = re.findall(number, plot_speed.result(times))
    yield "the times at the top", "" if re.findall(number, top.split("**Fast.**")[1].split("\n")[0]) == expected else f"expected {expected}"


def first_sentences(sharddb):
    """Yields the pages that begin with the sentence of the README, and why one does not."""
    sentence = re.search(r"\*\*(.*?)\*\*", (ROOT / "README.md").read_text())[1]
    help_text = subprocess.run([sharddb, "help"], capture_output=True, text=True).stdout
    python = (ROOT / "python/sharddb/__init__.py").read_text().removeprefix('"""')
    pages = {"sharddb help": help_text, "src/lib.rs": (ROOT / "src/lib.rs").read_text().removeprefix("//! "), "help(sharddb)": python}
    for path in sorted(ROOT.glob("crates/*/README.md")) + [ROOT / "cli/README.md", ROOT / "python/README.md"]:
        pages[str(path.relative_to(ROOT))] = path.read_text().split("\n", 2)[2].replace("**", "")
    for path in ("Cargo.toml", "python/pyproject.toml"):
        pages[path] = re.search(r'^description = "(.*)"$', (ROOT / path).read_text(), flags=re.MULTILINE)[1]
    for name, text in pages.items():
        yield name, "" if text.startswith(sentence.rstrip(".")) else f"expected {sentence!r} first, found {text[:80]!r}"


def lookup(place, readme):
    """Why a store like that of scripts/page.sh does not have the key where docs/lookup.png shows it."""
    sharding = re.search(r"^sharding='(.*)'$", (ROOT / "scripts/page.sh").read_text(), flags=re.MULTILINE)[1]
    build = f"sharddb build pictured --input examples/geonames-cities.ndjson --sharding '{sharding}' --quiet"
    code, printed = place.shell(f"{build} && sharddb locate pictured 53654")
    if code:
        return failure(code, printed)
    found = json.loads(printed)
    shard, minishard = f"shard {found['shard']:x}", f"minishard {found['minishard']}"
    parts = [f"Key {found['key']}", found["hash"], shard, minishard, f"the {found['stored_len']} bytes from {found['offset']:,}]"]
    text = re.search(r"!\[.*\(docs/lookup\.png\)", readme)[0]
    return "" if all(part in text for part in parts) else f"expected {parts}"


def missing_verbs(sharddb):
    help_text = subprocess.run([sharddb, "help"], capture_output=True, text=True).stdout
    verbs = re.findall(r"^  ([a-z-]+) ", help_text.split("Commands:")[1].split("Options:")[0], flags=re.MULTILINE)
    page = (ROOT / "docs/command.md").read_text()
    return [verb for verb in verbs if verb != "help" and not re.search(rf"sharddb {verb}(?![\w-])", page)] if verbs else ["all"]


# ---- the table for users of Neuroglancer ----

READERS = """
import json, sys, warnings
import numpy, sharddb, sharddb.zarr, tensorstore, zarr
from cloudvolume import CloudVolume
warnings.simplefilter("ignore")
ID = int(sys.argv[1])
"""
VOXELS = 'tensorstore.open({"driver": "neuroglancer_precomputed", "kvstore": "file:///DIR/image/"}).result().read().result()'
MESH = 'CloudVolume("file:///DIR/seg").mesh.get(ID)[ID].vertices'


def what_they_have(place, client):
    """Makes the data sets that the rows of the table begin with. Returns the id of a skeleton and that of a mesh."""
    here = place.directory
    for name in ("image", "seg"):
        shutil.copytree(DATA / name, here / name)
    for path in filter(Path.is_file, (DATA / "seg").rglob("*")):
        client.upload_file(str(path), "bucket", f"seg/{path.relative_to(DATA / 'seg')}")
    shutil.copytree(DATA / "seg/s0", here / "mine/s0")
    write_without(here / "mine/info", DATA / "seg/info", "skeletons", "mesh")
    (here / "array.zarr").symlink_to(ROOT / "crates/container/tests/data/zarr_pack/packed.zarr")
    for name, values in (("skeletons", "byid"), ("mesh", "meshes")):
        code, printed = place.shell(f"sharddb export seg/{name} --format dir --output {values}")
        if code:
            sys.exit(failure(code, printed))
    write_without(here / "meshes/info", DATA / "seg/mesh/info", "sharding")
    return (min(int(path.stem) for path in (here / values).glob(pattern)) for values, pattern in (("byid", "*"), ("meshes", "*.index")))


def write_without(copy, info, *members):
    kept = {name: value for name, value in json.loads(info.read_text()).items() if name not in members}
    copy.write_text(json.dumps(kept))


def neuroglancer(place, client, readme):
    """Runs the code of each row; yields it, and why what it gives is not what was put in."""
    rows = table(section(readme, "Neuroglancer, CloudVolume, TensorStore"))[1:]
    foreign, volume, skeletons, meshes, array, store = ([re.findall(r"`([^`]+)`", cell) for cell in row] for row in rows)
    skeleton, mesh = what_they_have(place, client)
    value = (place.directory / f"byid/{skeleton}").read_bytes()

    def python(expression, holds, id=0, before=""):
        code = f"{before}\nfound = {expression}\nassert {holds}, found".replace("DIR", str(place.directory).strip("/"))
        return expression, failure(*place.run([place.python, "-c", READERS + code, str(id)]))

    def command(line):
        return line, failure(*place.shell(line))

    def layer(build, member, expression, holds, id):
        yield command(build)
        info = place.directory / "mine/info"
        info.write_text(json.dumps(json.loads(info.read_text()) | json.loads(f"{{{member}}}")))
        yield python(expression, holds, id)

    yield python(foreign[1][0], f"found == {value}", skeleton)
    yield command(f"{foreign[1][1].replace('ID', str(skeleton))} | cmp - byid/{skeleton}")
    yield python(volume[1][0], f"numpy.array_equal(found[:], {VOXELS})")
    vertices = f"len(found.vertices) and found.vertices.tobytes() == {value}[8 : 8 + found.vertices.nbytes]"
    yield from layer(*skeletons[1][:2], skeletons[2][0], vertices, skeleton)
    yield from layer(*meshes[1][:2], meshes[2][0], f"len({MESH}) and numpy.array_equal(found[ID].vertices, {MESH})", mesh)
    yield command(array[1][0])
    yield python(array[2][0], 'numpy.array_equal(found[..., 0], zarr.open_array("array.zarr")[:].transpose(2, 1, 0))')
    yield python(store[2][0], 'found.read((42).to_bytes(8, "big")).result().value == b"the answer"', before=store[1][0])


def leaving(place, readme):
    """Runs what the section says of the store that the blocks before it have written."""
    export, as_lines, batches = re.findall(r"`([^`]+)`", section(readme, "Leaving"))
    yield export, failure(*place.shell(f"{export} && grep -qx 'the answer' files/42"))
    lines = f"""sharddb export store {as_lines} | grep -c '"key":"42","value_b64":"'$(printf 'the answer' | base64)"""
    yield lines, failure(*place.shell(lines))
    program = f"import pyarrow, sharddb\nassert {batches}.read_all()['value'].to_pylist().count(b'the answer') == 1"
    yield batches, failure(*place.run([place.python, "-c", program]))


# ---- all of it ----


def document(results, place, path, checks):
    text = (ROOT / path).read_text()
    python = [block for language, block in blocks(text) if language == "python"]
    for language, block in blocks(text):
        for line in (line for line in block.splitlines() if language == "sh" and line.startswith("cargo ")):
            command = line.split("#")[0].strip()
            is_run = re.search(rf"{re.escape(command)}( \|\| return)?$", checks, flags=re.MULTILINE)
            results.add(command, "" if is_run else "expected the command in .ci/run, found none")
        if language != "python":
            for name, why in place.check(language, block):
                results.add(name, why)
    if python:
        for name, why in place.program("".join(python)):
            results.add(name, why)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    logging.disable(logging.WARNING)
    sharddb, results = Path(sys.argv[1]).resolve(), Results()
    readme, checks = (ROOT / "README.md").read_text(), (ROOT / ".ci/run").read_text()
    lines = readme.count("\n")
    results.add(f"{lines} lines, at most {LINES}", "" if lines <= LINES else "too many")
    for name, why in [*first_sentences(sharddb), *figures(readme)]:
        results.add(name, why)
    results.add("each verb is in docs/command.md", " ".join(missing_verbs(sharddb)))
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true", "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    try:
        for path in ("README.md", "docs/command.md"):
            with tempfile.TemporaryDirectory() as directory, Place(directory, sharddb, sys.executable) as place:
                document(results, place, path, checks)
                if path == "README.md":
                    results.add("docs/lookup.png", lookup(place, readme))
                    for name, why in [*neuroglancer(place, client, readme), *leaving(place, readme)]:
                        results.add(name, why)
    finally:
        moto.stop()
    print(f"{results.passed} passed, {results.failed} failed")
    sys.exit(results.failed > 0)


if __name__ == "__main__":
    main()
