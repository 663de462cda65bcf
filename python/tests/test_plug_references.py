"""References: fsspec and Icechunk read the chunks of a volume from its shards as the array that TensorStore reads."""

import json
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharddb

zarr = pytest.importorskip("zarr", minversion="3")
ts = pytest.importorskip("tensorstore")

import sharddb.references  # noqa: E402

NEUROGLANCER = Path(__file__).resolve().parents[2] / "tests" / "data" / "neuroglancer"


@pytest.fixture(params=["image", "seg", "sparse"])
def volume(request: Any, tmp_path: Path) -> Path:
    """A volume whose chunks divide it: values raw; gzip; gzip with absent chunks, two channels, and a path to be quoted."""
    if request.param != "sparse":
        return NEUROGLANCER / str(request.param)
    directory = tmp_path / "50% of #1 ünïcode"
    array = np.zeros((12, 8, 4, 2), "uint16")
    array[5, 6, 2], array[0, 0, 0, 1], array[11, 7, 3] = (7, 300), 9, 11
    sharding = json.loads((NEUROGLANCER / "seg" / "info").read_text())["scales"][0]["sharding"] | {"hash": "identity"}
    ts.open(
        {
            "driver": "neuroglancer_precomputed",
            "kvstore": {"driver": "file", "path": f"{directory}/"},
            "multiscale_metadata": {"type": "image", "data_type": "uint16", "num_channels": 2},
            "scale_metadata": {
                "size": array.shape[:3], "chunk_size": [4, 4, 4], "resolution": [1, 1, 1], "encoding": "raw", "sharding": sharding,
            },
        },
        create=True,
    ).result().write(array).result()  # fmt: skip
    return directory


def read_with_tensorstore(volume: Path) -> Any:
    kvstore = {"driver": "file", "path": f"{volume}/"}
    return ts.open({"driver": "neuroglancer_precomputed", "kvstore": kvstore}, read=True).result().read().result()


def test_fsspec_reads_what_tensorstore_reads(volume: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    script = pytest.importorskip("kerchunk_references")
    references = str(tmp_path / "references.json")
    script.write(str(volume), references)
    array = script.open_array(references)
    assert array.store.read_only
    np.testing.assert_array_equal(array[...], read_with_tensorstore(volume))


def test_icechunk_reads_what_tensorstore_reads(volume: Path, tmp_path: Path) -> None:
    volume = Path(shutil.copytree(volume, tmp_path / "volume"))
    script = pytest.importorskip("icechunk_references")
    repository = script.repository(str(tmp_path / "repository"), str(volume))
    assert script.commit(str(volume), repository)
    np.testing.assert_array_equal(script.open_array(repository)[...], read_with_tensorstore(volume))
    again = script.repository(str(tmp_path / "repository"), str(volume))
    np.testing.assert_array_equal(script.open_array(again)[1:3, 1, :, 0], read_with_tensorstore(volume)[1:3, 1, :, 0])


@pytest.mark.parametrize("name", ["kerchunk_references", "icechunk_references"])
def test_the_programs_print_the_array(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Path(__file__).resolve().parents[1] / "examples" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(program), str(NEUROGLANCER / "image"), str(tmp_path / "output")])
    # in this process: at the end of a short one, Icechunk 1.1.21 aborts in one of twenty runs
    runpy.run_path(str(program), run_name="__main__")
    assert "shape=(128, 128, 128, 1) dtype=uint8" in capsys.readouterr().out


def test_a_reference_is_the_stored_bytes(volume: Path) -> None:
    found = sharddb.references.kerchunk(volume)["refs"]
    db = sharddb.open(volume, pointer="/scales/0")
    files, file_no, offsets, lengths = db.locate_many(keys := db.keys())
    places = {(f"file://{files[no]}", offset, length) for no, offset, length in zip(file_no, offsets.tolist(), lengths.tolist())}  # fmt: skip
    assert {tuple(place) for name, place in found.items() if name != "zarr.json"} == places
    assert len(found) == len(keys) + 1


def test_the_url_of_a_served_volume(volume: Path) -> None:
    found = sharddb.references.virtual(volume, url="https://example.org/volume/s0/")
    local = sharddb.references.virtual(volume)
    for url, path in zip(found.locations, local.locations):
        assert url == path and not url or url == f"https://example.org/volume/s0/{path.rpartition('/')[2]}"
    refs = sharddb.references.kerchunk(volume, url="https://example.org/volume/s0")["refs"]
    assert {place[0] for name, place in refs.items() if name != "zarr.json"} == set(found.locations) - {""}


def test_absent_chunks_have_no_reference(tmp_path: Path) -> None:
    shutil.copytree(NEUROGLANCER / "image", tmp_path / "image")
    (tmp_path / "image" / "s0" / "3.shard").unlink()
    found = sharddb.references.virtual(tmp_path / "image")
    assert found.grid == (4, 4, 4, 1) and len(found.locations) == 64
    absent = np.array([not location for location in found.locations])
    assert absent.sum() == 8
    assert not found.offsets[absent].any() and not found.lengths[absent].any()


@pytest.mark.parametrize("size", [[127, 128, 128], [128, 129, 128], [128, 128, 1]])
def test_clipped_chunks_are_refused(tmp_path: Path, size: list[int]) -> None:
    shutil.copytree(NEUROGLANCER / "image", tmp_path / "image")
    info = json.loads((tmp_path / "image" / "info").read_text())
    info["scales"][0]["size"] = size
    (tmp_path / "image" / "info").write_text(json.dumps(info))
    for references in (sharddb.references.virtual, sharddb.references.kerchunk):
        with pytest.raises(sharddb.Unsupported, match="expected chunks that divide the volume") as raised:
            references(tmp_path / "image")
        assert raised.value.path == str(tmp_path / "image")


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    shutil.copytree(NEUROGLANCER / "image", tmp_path / "image")
    info = json.loads((tmp_path / "image" / "info").read_text())
    info["scales"][0]["encoding"] = "jpeg"
    (tmp_path / "image" / "info").write_text(json.dumps(info))
    with pytest.raises(sharddb.Unsupported, match='encoding "raw", found "jpeg"'):
        sharddb.references.virtual(tmp_path / "image")
