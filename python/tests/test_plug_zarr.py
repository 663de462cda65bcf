"""``sharddb.zarr.Store``: zarr-python reads of volumes equal TensorStore's, and zarr-python's own tests of stores pass."""

# mypy: disable-error-code="assignment"

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA, ROOT, unpacked

import sharddb

zarr = pytest.importorskip("zarr", minversion="3")
ts = pytest.importorskip("tensorstore")

import sharddb.zarr  # noqa: E402
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest  # noqa: E402
from zarr.core.buffer import cpu, default_buffer_prototype  # noqa: E402
from zarr.testing.store import StoreTests  # noqa: E402

PACK = ROOT / "crates" / "container" / "tests" / "data" / "zarr_pack"
ARRAYS = unpacked(PACK.parent / "zarr.tar.gz")
FIXTURES = [
    DATA / "neuroglancer" / "image",
    DATA / "neuroglancer" / "seg",
    *sorted((ARRAYS / "precomputed").iterdir()),
]


def read_with_tensorstore(volume: Path, scale: int = 0) -> Any:
    kvstore = {"driver": "file", "path": f"{volume}/"}
    spec = {"driver": "neuroglancer_precomputed", "kvstore": kvstore, "scale_index": scale}
    return ts.open(spec, read=True).result().read().result()


def sharding(bits: tuple[int, int, int] = (1, 1, 1), encoding: str = "raw") -> dict[str, Any]:
    return {
        "@type": "neuroglancer_uint64_sharded_v1",
        "preshift_bits": bits[0],
        "hash": "identity",
        "minishard_bits": bits[1],
        "shard_bits": bits[2],
        "minishard_index_encoding": "gzip",
        "data_encoding": encoding,
    }


def write_with_tensorstore(volume: Path, array: Any, chunk: list[int], **scale: Any) -> None:
    """Writes a volume of one scale; ``array`` has the axes x, y, z and channel."""
    spec = {
        "driver": "neuroglancer_precomputed",
        "kvstore": {"driver": "file", "path": f"{volume}/"},
        "multiscale_metadata": {"type": "image", "data_type": array.dtype.name, "num_channels": array.shape[3]},
        "scale_metadata": {
            "size": array.shape[:3],
            "chunk_size": chunk,
            "resolution": [4, 4, 40],
            "encoding": "raw",
            "sharding": sharding(),
            **scale,
        },
    }
    ts.open(spec, create=True).result().write(array).result()


def random(shape: tuple[int, ...], dtype: str) -> Any:
    values = np.random.default_rng(5).integers(1, 200, shape)
    return values.astype(dtype)


@pytest.mark.parametrize("volume", FIXTURES, ids=lambda path: path.name)
def test_a_fixture_equals_tensorstore(volume: Path) -> None:
    array = zarr.open_array(sharddb.zarr.Store(volume), mode="r")
    expected = read_with_tensorstore(volume)
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array[...], expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64", "float32"])
def test_every_data_type(tmp_path: Path, dtype: str) -> None:
    array = random((9, 8, 7, 1), dtype)
    write_with_tensorstore(tmp_path, array, [4, 4, 4])
    read = zarr.open_array(sharddb.zarr.Store(tmp_path), mode="r")[...]
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("encoding", ["raw", "gzip"])
@pytest.mark.parametrize(
    ("shape", "chunk"),
    [
        ((16, 8, 4, 1), [4, 4, 4]),  # the grid divides the volume
        ((17, 9, 5, 1), [4, 4, 4]),  # clipped along each axis
        ((3, 2, 1, 1), [4, 4, 4]),  # one chunk, larger than the volume
        ((5, 1, 33, 3), [2, 8, 16]),  # channels, and chunks of unequal sides
    ],
)
def test_edges_and_channels(tmp_path: Path, shape: tuple[int, ...], chunk: list[int], encoding: str) -> None:
    array = random(shape, "uint16")
    write_with_tensorstore(tmp_path, array, chunk, sharding=sharding(encoding=encoding), voxel_offset=[100, -7, 3])
    read = zarr.open_array(sharddb.zarr.Store(tmp_path), mode="r")
    np.testing.assert_array_equal(read[...], array)
    np.testing.assert_array_equal(read[1:3, -1, :, 0], array[1:3, -1, :, 0])
    assert read.attrs["voxel_offset"] == [100, -7, 3]
    assert read.metadata.dimension_names == ("x", "y", "z", "channel")


@pytest.mark.parametrize("mode", ["auto", "mmap", "pread", "memory"])
def test_a_store_of_a_volume(tmp_path: Path, mode: Any) -> None:
    volume = DATA / "neuroglancer" / "seg"
    with sharddb.open(volume, pointer="/scales/0") as db:
        loader = sharddb.Loader(tmp_path / "store", db.spec, info=db.info, sharding_at="/scales/0")
        loader.extend(db.items())
        loader.finish()
    array = zarr.open_array(sharddb.zarr.Store(tmp_path / "store", mode=mode), mode="r")
    np.testing.assert_array_equal(array[...], read_with_tensorstore(volume))


def test_the_second_scale(tmp_path: Path) -> None:
    arrays = [random((8, 8, 8, 1), "uint8"), random((4, 4, 4, 1), "uint8")]
    write_with_tensorstore(tmp_path, arrays[0], [4, 4, 4], key="large")
    write_with_tensorstore(tmp_path, arrays[1], [4, 4, 4], key="small", resolution=[8, 8, 80])
    for scale, array in enumerate(arrays):
        np.testing.assert_array_equal(read_with_tensorstore(tmp_path, scale), array)
        np.testing.assert_array_equal(zarr.open_array(sharddb.zarr.Store(tmp_path, scale=scale))[...], array)


def test_keys_of_no_chunk_are_not_listed(tmp_path: Path) -> None:
    info = json.loads((DATA / "neuroglancer" / "image" / "info").read_text())
    loader = sharddb.Loader(tmp_path / "store", sharding(), info=info, sharding_at="/scales/0")
    loader.extend({3: b"", 64: b"beyond the grid", 2**64 - 1: b""})
    loader.finish()
    assert listed(sharddb.zarr.Store(tmp_path / "store").list()) == ["zarr.json", "c/1/1/0/0"]


def test_absent_chunks_are_zero_and_not_listed(tmp_path: Path) -> None:
    array = np.zeros((12, 12, 12, 1), "uint8")
    array[5, 10, 2] = 7  # the chunk 1, 2, 0
    write_with_tensorstore(tmp_path, array, [4, 4, 4])
    store = sharddb.zarr.Store(tmp_path)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], array)
    keys = listed(store.list())
    assert sorted(keys) == ["c/1/2/0/0", "zarr.json"]


def test_every_chunk_is_listed_once() -> None:
    store = sharddb.zarr.Store(DATA / "neuroglancer" / "image")
    grid = [f"c/{x}/{y}/{z}/0" for x in range(4) for y in range(4) for z in range(4)]
    assert sorted(listed(store.list())) == [*sorted(grid), "zarr.json"]
    assert sorted(listed(store.list_prefix("c/3/3/"))) == [f"c/3/3/{z}/0" for z in range(4)]
    assert sorted(listed(store.list_dir(""))) == ["c", "zarr.json"]
    assert sorted(listed(store.list_dir("c/2"))) == ["0", "1", "2", "3"]
    assert listed(store.list_dir("d")) == []


@pytest.mark.parametrize(
    "key",
    [
        "c/4/0/0/0",
        "c/0/0/0/1",
        "c/0/0/0",
        "c/00/0/0/0",
        "c/-1/0/0/0",
        "c/" + "9" * 5000 + "/0/0/0",
        "zarr",
        "",
        "c/١/0/0/0",
    ],
)
def test_other_names_are_absent(key: str) -> None:
    store = sharddb.zarr.Store(DATA / "neuroglancer" / "image")
    assert value_of(store, key) is None
    assert not zarr.core.sync.sync(store.exists(key))


def test_parts_of_a_chunk() -> None:
    store = sharddb.zarr.Store(DATA / "neuroglancer" / "image")
    whole = value_of(store, "c/1/2/3/0")
    assert len(whole) == 32**3
    assert value_of(store, "c/1/2/3/0", RangeByteRequest(5, 9)) == whole[5:9]
    assert value_of(store, "c/1/2/3/0", RangeByteRequest(32**3 - 1, 32**4)) == whole[-1:]
    assert value_of(store, "c/1/2/3/0", OffsetByteRequest(32**3 - 3)) == whole[-3:]
    assert value_of(store, "c/1/2/3/0", SuffixByteRequest(2)) == whole[-2:]
    assert value_of(store, "c/1/2/3/0", SuffixByteRequest(32**4)) == whole


@pytest.mark.parametrize("encoding", ["jpeg", "png", "compressed_segmentation", "compresso"])
def test_other_encodings_are_refused(tmp_path: Path, encoding: str) -> None:
    info = change_info(tmp_path, encoding=encoding)
    with pytest.raises(sharddb.Unsupported, match=f'found "{encoding}"') as raised:
        sharddb.zarr.Store(tmp_path)
    assert raised.value.path == str(tmp_path)
    assert info


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"size": [4, 4]}, "size"),
        ({"size": "large"}, "ValueError"),
        ({"size": None}, "TypeError"),
        ({"chunk_sizes": []}, "IndexError"),
        ({"chunk_sizes": [[0, 4, 4]]}, "chunks of"),
        ({"chunk_sizes": [[4, 4, 4, 4]]}, "chunks of"),
        ({"size": [2**40, 2**40, 2**40]}, "more than 64 bits"),
    ],
)
def test_an_info_that_describes_no_array_is_refused(tmp_path: Path, change: dict[str, Any], found: str) -> None:
    change_info(tmp_path, **change)
    with pytest.raises(sharddb.InvalidSpec, match=found):
        sharddb.zarr.Store(tmp_path)


def test_a_scale_that_is_absent_is_refused() -> None:
    with pytest.raises(sharddb.Error):
        sharddb.zarr.Store(DATA / "neuroglancer" / "image", scale=1)


def test_a_chunk_of_another_length_is_corrupt(tmp_path: Path) -> None:
    write_with_tensorstore(tmp_path, random((8, 8, 8, 1), "uint8"), [4, 4, 4])
    change_info(tmp_path, source=tmp_path, size=[8, 8, 7])
    array = zarr.open_array(sharddb.zarr.Store(tmp_path), mode="r")
    with pytest.raises(sharddb.Corrupt, match=r"expected a chunk of 48 bytes at \(0, 0, 1\), found 64") as raised:
        array[0, 0, 6]  # of one chunk: which of several is read first is not known
    assert raised.value.key == 4


def test_a_store_pickles() -> None:
    store = sharddb.zarr.Store(DATA / "neuroglancer" / "seg")
    copy = pickle.loads(pickle.dumps(store))
    assert copy == store
    assert copy != sharddb.zarr.Store(DATA / "neuroglancer" / "image")
    assert value_of(copy, "c/0/0/0/0") == value_of(store, "c/0/0/0/0")


@pytest.mark.parametrize(
    "like", [ARRAYS / "unsharded.zarr", PACK / "packed.zarr", PACK / "resharded.zarr"], ids=lambda path: path.name
)
def test_an_imported_array(tmp_path: Path, like: Path) -> None:
    """The same chunks, under the metadata of the array in files of one chunk and of two kinds of shards."""
    info = {"zarr": json.loads((like / "zarr.json").read_text())}
    chunks = {
        tuple(map(int, file.parts[-3:])): file.read_bytes() for file in (ARRAYS / "unsharded.zarr" / "c").glob("*/*/*")
    }
    write_chunks(tmp_path / "store", info, chunks)
    store = sharddb.zarr.Store(tmp_path / "store")
    expected = zarr.open_array(zarr.storage.LocalStore(ARRAYS / "unsharded.zarr", read_only=True), mode="r")
    array = zarr.open_array(store, mode="r")
    np.testing.assert_array_equal(array[...], expected[...])
    assert dict(array.attrs) == dict(expected.attrs) and array.dtype == expected.dtype
    assert set(listed(store.list())) == {"zarr.json", *("c/" + "/".join(map(str, position)) for position in chunks)}
    assert value_of(store, "c/7/0/0") is None and value_of(store, "c/0/0") is None


def write_chunks(store: Path, info: dict[str, Any], chunks: dict[tuple[int, ...], bytes]) -> None:
    """Writes a store as ``sharddb import`` does it. The grid of the array in ``zarr/pack`` is 7 x 5 x 4."""
    loader = sharddb.Loader(store, info=info)
    loader.extend({(z * 5 + y) * 4 + x: chunk for (z, y, x), chunk in chunks.items()})
    loader.finish()


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [50, 70]},
        {"shape": None},
        {"chunk_grid": {}},
        {"codecs": None},
        {"codecs": [{"name": "sharding_indexed"}]},
    ],
)
def test_metadata_that_describe_no_array_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    metadata = json.loads((PACK / "packed.zarr" / "zarr.json").read_text())
    write_chunks(tmp_path / "store", {"zarr": metadata | change}, {(0, 0, 0): b""})
    with pytest.raises(sharddb.InvalidSpec, match="expected a Zarr array in info"):
        sharddb.zarr.Store(tmp_path / "store")


@pytest.mark.parametrize("container", sorted((ARRAYS / "arrays").iterdir()), ids=lambda path: path.name)
def test_a_container_reads_as_with_zarr_itself(container: Path) -> None:
    expected = zarr.open_array(zarr.storage.LocalStore(container, read_only=True), mode="r")[...]
    np.testing.assert_array_equal(zarr.open_array(sharddb.zarr.Store(container), mode="r")[...], expected)


def listed(keys: Any) -> list[str]:
    async def collect() -> list[str]:
        return [key async for key in keys]

    found: list[str] = zarr.core.sync.sync(collect())
    return found


def value_of(store: sharddb.zarr.Store, key: str, byte_range: Any = None) -> Any:
    buffer = zarr.core.sync.sync(store.get(key, default_buffer_prototype(), byte_range))
    return None if buffer is None else buffer.to_bytes()


def change_info(directory: Path, source: Path = DATA / "neuroglancer" / "image", **scale: Any) -> dict[str, Any]:
    """Writes the ``info`` of another volume with these members of its scale."""
    info: dict[str, Any] = json.loads((source / "info").read_text())
    info["scales"][0].update(scale)
    (directory / "info").write_text(json.dumps(info))
    (directory / info["scales"][0]["key"]).mkdir(exist_ok=True)
    return info


class TestContainer(StoreTests[sharddb.zarr.Store, cpu.Buffer]):
    """The tests of zarr-python for stores, without those that write through the store."""

    store_cls = sharddb.zarr.Store
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        (tmp_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
        return {"path": tmp_path}

    async def set(self, store: sharddb.zarr.Store, key: str, value: Any) -> None:
        file = store.path / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(value.to_bytes())

    async def get(self, store: sharddb.zarr.Store, key: str) -> Any:
        return self.buffer_cls.from_bytes((store.path / key).read_bytes())

    def test_store_repr(self, store: sharddb.zarr.Store) -> None:
        assert repr(store) == f"sharddb.zarr.Store({str(store.path)!r}, scale=0, mode='auto')"

    def test_store_supports_writes(self, store: sharddb.zarr.Store) -> None:
        assert not store.supports_writes
        assert not store.supports_deletes

    def test_store_supports_listing(self, store: sharddb.zarr.Store) -> None:
        assert store.supports_listing

    def test_store_read_only(self, store: sharddb.zarr.Store) -> None:
        assert store.read_only
        with pytest.raises(ValueError, match="expected read_only=True"):
            sharddb.zarr.Store(store.path, read_only=False)

    @pytest.mark.parametrize("read_only", [True])
    async def test_store_open_read_only(self, open_kwargs: dict[str, Any], read_only: bool) -> None:
        await super().test_store_open_read_only(open_kwargs, read_only)

    # these write through the store, or expect an empty one
    test_serializable_store = None
    test_set = test_set_not_open = test_set_many = test_set_if_not_exists = None
    test_delete = test_delete_dir = test_delete_nonexistent_key_does_not_raise = None
    test_exists = test_clear = test_is_empty = test_getsize_prefix = None
    test_list = test_list_prefix = test_list_empty_path = test_list_dir = None
