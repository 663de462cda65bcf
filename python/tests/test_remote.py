"""A database in an object store gives the same answers as the same files on disk, in few requests."""

import asyncio
import itertools
import json
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import numpy as np
import obstore
import obstore.fsspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from conftest import DATA, LIMIT, PUBLIC, Expected, run_program, sha
from obstore.store import HTTPStore, LocalStore, MemoryStore, S3Store
from remote_stores import ManyRanges, Objects, Ranges, files, keys_apart, make_current, publish, remove, web_server
from test_fork import in_child

import sharddb

VALUES = {key: b"value %d " % key * (key % 7) for key in range(3000)}


@pytest.fixture(scope="session")
def local_profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generation of the profile "local": raw indexes beside their values."""
    store = tmp_path_factory.mktemp("local")
    with sharddb.Loader(store, profile="local") as loader:
        loader.extend(VALUES)
    return store / "gen-0000000001"


@pytest.fixture(scope="session")
def foreign() -> Path:
    """Shards of CloudVolume: raw indexes, 10,000 keys."""
    return PUBLIC / "cv_10k_id"


def memory_store(objects: dict[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    upload(store, objects)
    return store


STORES: dict[str, Callable[[Path], Any]] = {
    "LocalStore": lambda path: LocalStore(path),
    "MemoryStore": lambda path: memory_store(files(path)),
    "Objects": lambda path: Objects(files(path)),
    "Ranges": lambda path: Ranges(files(path)),
    "ManyRanges": lambda path: ManyRanges(files(path)),
}


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("number", [1, 2])
def test_every_store_has_every_value(store: Path, pairs: dict[int, bytes], kind: str, number: int) -> None:
    generation = store / f"gen-{number:010}"
    with sharddb.open("", store=STORES[kind](generation)) as db, sharddb.open(generation) as local:
        assert {key: db[key] for key in pairs} == pairs
        assert db.get_many(list(pairs)) == list(pairs.values())
        assert (db.spec, db.info, db.stats["keys"]) == (local.spec, local.info, len(pairs))
        absent = next(key for key in range(1000) if key not in pairs)
        assert absent not in db and min(pairs) in db
        assert db.get(absent) is None and db.get(absent, b"default") == b"default"
        with pytest.raises(KeyError) as raised:
            db[absent]
        assert raised.value.args == (absent,)


def test_data_of_other_writers(public: Expected) -> None:
    with sharddb.open("", store=LocalStore(public.path)) as db:
        assert {key: sha(db[key]) for key in public.hashes} == public.hashes
        assert all(key not in db and db.get(key) is None for key in public.absent)
        keys = [*public.hashes, *public.absent]
        found = [None if value is None else sha(value) for value in db.get_many(keys)]
        assert found == [*public.hashes.values(), *[None] * len(public.absent)]
        assert db.generation is None


def test_requests_of_the_local_profile(local_profile: Path) -> None:
    store = Objects(files(local_profile))
    db = sharddb.open("", store=store)
    for key in (0, 5, 2999):
        assert store.count(lambda: db[key]) == 1
    assert store.count(lambda: 10**12 in db) <= 1
    before = db.stats
    assert store.count(lambda: db.get_many(list(VALUES))) == db.stats["requests"] - before["requests"]
    assert db.stats["bytes"] - before["bytes"] >= sum(map(len, VALUES.values()))


def test_a_request_costs_bytes_and_seconds(tmp_path: Path) -> None:
    """A batch of every second key: one request, or those that a lower cost of a request permits."""
    with sharddb.Loader(tmp_path / "store", profile="local") as loader:
        loader.extend({key: bytes(20_000) for key in range(100)})
    counts = []
    for options in ({}, {"request_cost": "16KiB"}):
        store = Objects(files(tmp_path / "store" / "gen-0000000001"))
        db = sharddb.open("", store=store, **options)  # type: ignore[call-overload]
        before = db.stats
        counts.append(store.count(lambda db=db: db.get_many(range(0, 100, 2))))  # type: ignore[misc]
        assert before["seconds"] < db.stats["seconds"]
        assert db.stats["requests"] - before["requests"] == counts[-1]
    assert counts[0] <= 2 and counts[1] > 50, counts


def test_a_request_for_a_local_file_costs_less(tmp_path: Path) -> None:
    """Between the keys are 20,000 bytes: fewer than a request of an object store costs, and more than one for a file."""
    generation = tmp_path / "store" / "gen-0000000001"
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend({key: bytes(20_000) for key in range(100)})

    def requests(path: str, store: Any, **options: Any) -> int:
        db = sharddb.open(path, store=store, **options)
        before: int = db.stats["requests"]
        db.get_many(range(0, 100, 2))
        after: int = db.stats["requests"]
        return after - before

    local, memory = fsspec.filesystem("file"), MemoryStore()
    for name, content in files(generation).items():
        memory.put(name, content)
    assert min(requests(str(generation), local), requests("", LocalStore(generation))) > 50
    assert max(requests("", memory), requests(str(generation), local, request_cost=64 << 10)) <= 2


def test_a_measured_cost_is_that_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of this test, a million bytes arrive in the time that a request waits."""
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend({key: bytes(100_000 if key else 1_000_000) for key in range(100)})
    clock = itertools.count()
    monkeypatch.setattr("sharddb._transport.perf_counter", lambda: float(next(clock)))
    counts = []
    for options in ({}, {"request_cost": "measured"}):
        store = Objects(files(tmp_path / "store" / "gen-0000000001"))
        with sharddb.open("", store=store, **options) as db:  # type: ignore[call-overload]
            assert len(db[0]) == 1_000_000
            counts.append(store.count(lambda db=db: db.get_many(range(1, 100, 2))))  # type: ignore[misc]
    assert counts[0] > 2 * counts[1], counts
    with pytest.raises(ValueError, match='request_cost, or "measured", in bytes'):
        sharddb.open("", store=MemoryStore(), request_cost="estimated")
    with pytest.raises(ValueError, match="store with the method get"):
        sharddb.open("", store=fsspec.filesystem("memory"), request_cost="measured")


def test_requests_of_other_writers(foreign: Path) -> None:
    """Three for the first key of a minishard, and one for the next."""
    store = Objects(files(foreign))
    db = sharddb.open("", store=store)
    key = int(json.loads((foreign / "expected.jsonl").open().readline())["key"])
    assert store.count(lambda: db[key]) == 3
    hits = db.stats["cache_hits"]
    assert store.count(lambda: db[key]) == 1
    assert db.stats["cache_hits"] > hits
    assert 0 < db.stats["cache_bytes"] <= 64 << 20


def test_a_batch_of_many_requests(foreign: Path) -> None:
    """The requests of a batch run on several threads, on one, in calls of `get_ranges`, or as tasks."""
    with sharddb.open(foreign) as local:
        keys = local.keys()
        expected = local.get_many(keys)
    objects = files(foreign)
    for store in (Objects(objects), Ranges(objects), ManyRanges(objects), LocalStore(foreign)):
        for threads in (1, 4, 32):
            with sharddb.open("", store=store, threads=threads, cache_bytes="1MiB") as db:
                assert db.get_many(keys) == expected
                assert db.get_many(keys[::-7]) == expected[::-7]
                assert db.get_many([]) == []


def test_get_ranges_is_one_call(local_profile: Path) -> None:
    store = ManyRanges(files(local_profile))
    with sharddb.open("", store=store, cache_bytes=0, request_cost="16KiB") as db:
        keys = keys_apart(db, VALUES)
        assert len(keys) > 2
        store.calls.clear()
        assert db.get_many(keys) == [VALUES[key] for key in keys]
        assert any(" of " in call for call in store.calls)


@pytest.mark.parametrize("number", [1, 2])
def test_all_keys_and_pairs(store: Path, pairs: dict[int, bytes], number: int) -> None:
    generation = store / f"gen-{number:010}"
    with sharddb.open("", store=LocalStore(generation)) as db, sharddb.open(generation) as local:
        assert db.keys().tolist() == local.keys().tolist()
        assert db.keys(sorted=True).tolist() == sorted(pairs)
        for some in (range(5, 1000), slice(None, 100), slice(1000, None), range(2**64 - 5, 2**64), range(0)):
            assert db.keys(some).tolist() == local.keys(some).tolist()
        assert [*db.items()] == [*local.items()]
        with pytest.raises(TypeError, match="a range or a slice"):
            db.keys(5)  # type: ignore[arg-type]

        async def read() -> None:
            assert [pair async for pair in db.items_async()] == [*local.items()]
            assert (await db.keys_async()).tolist() == local.keys().tolist()
            async for pair in db.items_async():
                break  # closes the rest

        asyncio.run(read())


def test_items_stay_with_their_generation(store: Path, pairs: dict[int, bytes], bucket: Objects) -> None:
    db = sharddb.open("", store=bucket)
    before = db.items()
    first_pair = next(before)
    publish(bucket.objects, store / "gen-0000000002", 2)
    assert db.refresh() is not None
    assert dict([first_pair, *before]) == pairs == dict(db.items())


def test_items_after_an_error(local_profile: Path) -> None:
    """An error ends the iteration: no pair is lost without one."""
    store = Objects(files(local_profile))
    db = sharddb.open("", store=store)
    name = max(path for path in store.objects if path.endswith(".shard"))
    store.objects[name] = store.objects[name][:-1] + b"?"
    items = db.items()
    with pytest.raises(sharddb.Corrupt):
        list(items)
    assert list(items) == []
    with pytest.raises(sharddb.Corrupt):
        list(db.items())


def test_a_scale_of_a_volume() -> None:
    path = DATA / "neuroglancer" / "image"
    with sharddb.open(path, pointer="/scales/0") as local:
        for db in (
            sharddb.open("", store=LocalStore(path), pointer="/scales/0"),
            sharddb.open("neuroglancer/image", store=LocalStore(DATA), pointer="/scales/0"),
        ):
            assert [*db.items()] == [*local.items()] and db.info == local.info
            assert pickle.loads(pickle.dumps(db)).spec == local.spec


def test_shards_without_info(public: Expected) -> None:
    objects = files(public.path)
    spec = json.loads(objects.pop("info"))["sharding"]
    with pytest.raises(sharddb.NotFound):
        sharddb.open("", store=Objects(objects))
    for given in (spec, json.dumps(spec)):
        with sharddb.open("", store=Objects(objects), spec=given) as db:
            assert {key: sha(db[key]) for key in [*public.hashes][:20]} == dict([*public.hashes.items()][:20])


def test_a_cache_on_disk(tmp_path: Path, foreign: Path) -> None:
    """A second run makes fewer requests. Only a URL says which data it is."""
    url = "https://example.org/data"
    keys = [int(line["key"]) for line in map(json.loads, (foreign / "expected.jsonl").open())][:50]
    with sharddb.open(foreign) as local:
        expected = local.get_many(keys)
    requests = []
    for _ in range(2):
        store = Objects(files(foreign))
        with sharddb.open(url, store=store, disk_cache=tmp_path / "cache", disk_cache_bytes="10MiB") as db:
            assert [db[key] for key in keys] == expected
            assert pickle.loads(pickle.dumps(db))[keys[0]] == expected[0]
        requests.append(len(store.requests))
    assert requests[1] < requests[0]
    with pytest.raises(ValueError, match="expected a URL as path"):
        sharddb.open("data", store=store, disk_cache=tmp_path / "cache")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("not of a cache")
    with pytest.raises(sharddb.InvalidInput):
        sharddb.open(url, store=store, disk_cache=tmp_path / "other")


def test_places(local_profile: Path) -> None:
    """The bytes at the place of a value are the value: the profile has no compression."""
    with sharddb.open("", store=LocalStore(local_profile)) as db:
        for key in (1, 2, 2999):
            place = db.locate(key)
            assert place is not None
            path, offset, length = place
            assert (local_profile / path).read_bytes()[offset : offset + length] == VALUES[key]
        assert db.locate(10**12) is None


def test_places_of_many_values(local_profile: Path, foreign: Path) -> None:
    for directory in (local_profile, foreign):
        with sharddb.open("", store=LocalStore(directory)) as db, sharddb.open(directory) as local:
            keys = [2**63, *local.keys()[:2000].tolist(), 2**63 - 1]
            expected: tuple[Any, ...] = local.locate_many(keys)
            for places in (db.locate_many(keys), asyncio.run(db.locate_many_async(keys))):
                assert [directory / name for name in places[0]] == [Path(file) for file in expected[0]]
                columns: tuple[Any, ...] = places[1:]
                for column, of_local in zip(columns, expected[1:], strict=True):
                    assert column.dtype == of_local.dtype and column.tolist() == of_local.tolist()
            assert [len(column) for column in db.locate_many([])] == [0, 0, 0, 0]


def test_keys_that_are_none(local_profile: Path) -> None:
    with sharddb.open("", store=LocalStore(local_profile)) as db:
        for key, error in ((-1, OverflowError), (2**64, OverflowError), (True, TypeError), ("1", TypeError)):
            with pytest.raises(error):
                db[key]  # type: ignore[index]
            with pytest.raises(error):
                db.get_many([key])  # type: ignore[list-item]


def test_batches_are_those_of_a_local_database(local_profile: Path) -> None:
    keys = [5, 10**12, 0, 2999, 5]

    async def compare(db: sharddb.RemoteDatabase) -> None:
        batches: list[tuple[Any, ...]] = [db.get_ragged(keys), await db.get_ragged_async(iter(keys)), local.get_ragged(keys)]
        for columns in zip(*batches, strict=True):
            assert columns[0].dtype == columns[1].dtype == columns[2].dtype
            assert columns[0].tolist() == columns[1].tolist() == columns[2].tolist()
            assert columns[0].flags.writeable
        assert db.view(5) == await db.view_async(5) == VALUES[5] and db.view(5).readonly
        with pytest.raises(KeyError):
            db.view(10**12)
        with pytest.raises(KeyError):
            await db.view_async(10**12)

    with sharddb.open("", store=LocalStore(local_profile)) as db, sharddb.open(local_profile) as local:
        asyncio.run(compare(db))
        data, offsets, found = db.get_ragged([])
        assert (data.size, offsets.tolist(), found.size) == (0, [0], 0)
        assert list(db) == list(local) and list(iter(db))[0] == int(db.keys()[0])


def test_values_of_a_fixed_size(local_profile: Path) -> None:
    """Those of `VALUES` with an equal length, of which `out` has room for one more."""
    keys = [key for key in range(1000, 3000) if key % 7 == 2]
    size = len(VALUES[keys[0]])
    store = Objects(files(local_profile))
    with sharddb.open("", store=store) as db:
        for read in (db.get_into, lambda *arguments: asyncio.run(db.get_into_async(*arguments))):
            out = np.full((len(keys) + 1, size), 7, np.uint8)
            found = read([*keys, 10**12], out)
            assert found.tolist() == [True] * len(keys) + [False]
            assert [row.tobytes() for row in out[:-1]] == [VALUES[key] for key in keys] and (out[-1] == 7).all()
            out = np.full((3, size), 7, np.uint8)
            with pytest.raises(sharddb.InvalidInput, match=f"expected values of {size} bytes") as raised:
                read([keys[0], 1, keys[1]], out)
            assert raised.value.key == 1
            assert out[0].tobytes() == VALUES[keys[0]] and (out[1:] == 7).all()
            for bad in (np.zeros((2, size), np.uint8), np.zeros((3, size), np.uint8)[:, ::2]):
                with pytest.raises(ValueError, match="one row per key"):
                    assert store.count(lambda: read(keys[:3], bad)) == 0


# --- paths and URLs


def test_a_path_in_the_store(local_profile: Path) -> None:
    store = Objects(files(local_profile, "a/b/"))
    for path in ("a/b", "/a/b/", "a/b|neuroglancer-precomputed:", "a/b/|neuroglancer-precomputed:"):
        with sharddb.open(path, store=store) as db:
            assert db[5] == VALUES[5]
    with pytest.raises(sharddb.NotFound):
        sharddb.open("a", store=store)


def test_a_url_is_the_root_of_the_store(local_profile: Path) -> None:
    store = Objects(files(local_profile))
    for url in ("s3://bucket/some/store", "https://example.org/store/|neuroglancer-precomputed:"):
        with sharddb.open(url, store=store) as db:
            assert db[5] == VALUES[5]
            assert db.path in url and url.partition("|")[0].rstrip("/") in repr(db)
    with pytest.raises(sharddb.NotFound, match="s3://bucket/nothing"):
        sharddb.open("s3://bucket/nothing", store=Objects({}))


def test_a_store_of_obstore_from_a_url(local_profile: Path) -> None:
    url = local_profile.as_uri()
    with sharddb.open(url, store=obstore.store.from_url(url)) as db:
        assert db[5] == VALUES[5]


@pytest.mark.parametrize("url", ["s3://bucket/store", "https://example.org/a", "precomputed://gs://b", "gs://b|neuroglancer-precomputed:"])
def test_a_url_without_a_store(url: str) -> None:
    with pytest.raises(ValueError, match=r"store=obstore\.store\.from_url\('\w+://[a-z./]+'\)"):
        sharddb.open(url)


@pytest.mark.parametrize("form", ["{}", "precomputed://{}", "precomputed://{}/", "{}/|neuroglancer-precomputed:"])
def test_addresses_of_neuroglancer(local_profile: Path, form: str) -> None:
    store = Objects(files(local_profile, "a/"))
    for path in ("a", "s3://bucket/a"):
        with sharddb.open(form.format(path), store=Objects(files(local_profile)) if "s3" in path else store) as db:
            assert db[5] == VALUES[5] and db.path == path


def test_a_file_url_is_a_path(tmp_path: Path, local_profile: Path) -> None:
    path = tmp_path / "with space"
    shutil.copytree(local_profile, path)
    for text in (path.as_uri(), f"{path}|neuroglancer-precomputed:", f"{path.as_uri()}/|neuroglancer-precomputed:"):
        with sharddb.open(text) as db:
            assert type(db) is sharddb.Database and db[5] == VALUES[5] and db.path == path
    with pytest.raises(ValueError, match="file://host"):
        sharddb.open("file://host/path")


# --- a web server


def http_store(url: str) -> HTTPStore:
    return HTTPStore.from_url(url, client_options={"allow_http": True}, retry_config={"max_retries": 0})


def test_a_web_server(store: Path, pairs: dict[int, bytes]) -> None:
    """The log of the server has the requests that the statistics state."""
    objects: dict[str, bytes] = {}
    first = publish(objects, store / "gen-0000000001", 1)
    with web_server(objects) as (url, log):
        db = sharddb.open(url, store=http_store(url), cache_bytes=0)
        snapshot = db.snapshot()
        assert db.generation == first and db.get_many(list(pairs)) == list(pairs.values())
        assert {key: db[key] for key in pairs} == pairs
        assert asyncio.run(db.get_many_async(list(pairs))) == list(pairs.values())
        assert db.stats["requests"] == len(log)
        assert db.refresh() is None and db.stats["requests"] == len(log)
        second = publish(objects, store / "gen-0000000002", 2)
        remove(objects, first)
        assert db.refresh() == second and db.get_many(list(pairs)) == list(pairs.values())
        with pytest.raises(sharddb.GenerationGone, match=first):
            snapshot.get_many(list(pairs))
        assert "/current " in log[:3]


def test_foreign_data_on_a_web_server(foreign: Path) -> None:
    """`If-Match` finds that a shard was replaced."""
    objects = files(foreign)
    with web_server(objects) as (url, _), sharddb.open(foreign) as local:
        db = sharddb.open(url, store=http_store(url), cache_bytes=0)
        snapshot = db.snapshot()
        keys = local.keys()
        assert snapshot.get_many(keys) == local.get_many(keys)
        objects.update({path: body + b"more" for path, body in objects.items() if path.endswith(".shard")})
        with pytest.raises(sharddb.GenerationGone):
            snapshot.get_many(keys)
        assert db.get_many(keys) == local.get_many(keys)


def test_a_web_server_without_ranges(foreign: Path) -> None:
    with web_server(files(foreign), has_ranges=False) as (url, _):
        db = sharddb.open(url, store=http_store(url))
        with pytest.raises(sharddb.Io, match="(?i)range") as raised:
            db[1]
        assert raised.value.__cause__ is not None


def test_no_web_server(foreign: Path) -> None:
    with web_server({}) as (url, _):
        store = http_store(url)
    with pytest.raises(sharddb.Io, match=url):
        sharddb.open(url, store=store)


# --- file systems of fsspec


def file_systems(objects: dict[str, bytes]) -> dict[str, tuple[Any, str]]:
    """A store and the path of a directory in it, which has these objects: file systems and mappers."""
    memory = fsspec.filesystem("memory")
    memory.pipe({f"/some/store/{path}": body for path, body in objects.items()})
    return {
        "memory": (memory, "/some/store"),
        "url": (memory, "memory://some/store/"),
        "precomputed": (memory, "precomputed://memory://some/store"),
        "mapper": (memory.get_mapper("/some/store"), ""),
        "mapper of a parent": (memory.get_mapper("/some/"), "store"),
        "mapper and its URL": (memory.get_mapper("/some/store"), "memory://some/store"),
        "directory": (fsspec.filesystem("dir", path="/some", fs=memory), "store"),
    }


@pytest.mark.parametrize("kind", file_systems({}))
def test_file_systems_and_mappers(store: Path, pairs: dict[int, bytes], kind: str) -> None:
    objects: dict[str, bytes] = {}
    name = publish(objects, store / "gen-0000000001", 1)
    files, path = file_systems(objects)[kind]
    with sharddb.open(path, store=files) as db:
        assert db.generation == name and len(db) == len(pairs)
        assert db.get_many(list(pairs)) == list(pairs.values()) and dict(db.items()) == pairs
        assert asyncio.run(db.get_many_async(list(pairs))) == list(pairs.values())
        assert pickle.loads(pickle.dumps(db)).get_many(list(pairs)) == list(pairs.values())
    with pytest.raises(sharddb.NotFound):
        sharddb.open("nothing", store=files)


def test_a_local_file_system(store: Path, pairs: dict[int, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store)
    for path in (str(store / "current"), (store / "current").as_uri(), "current"):
        with sharddb.open(path, store=fsspec.filesystem("file")) as db:
            assert dict(db.items()) == pairs


def test_s3_by_a_file_system(s3: Callable[[str], S3Store], store: Path, pairs: dict[int, bytes]) -> None:
    objects: dict[str, bytes] = {}
    publish(objects, store / "gen-0000000001", 1)
    remote = s3("by/files")
    upload(remote, objects)
    files = obstore.fsspec.FsspecStore("s3", config=remote.config, client_options=remote.client_options)
    for path in ("bucket/by/files", "s3://bucket/by/files"):
        with sharddb.open(path, store=files) as db:
            assert dict(db.items()) == pairs
    with pytest.raises(sharddb.NotFound, match="s3://bucket/nothing"):
        sharddb.open("s3://bucket/nothing", store=files)


def test_a_file_system_for_coroutines_only() -> None:
    files = obstore.fsspec.FsspecStore("s3", asynchronous=True)
    with pytest.raises(TypeError, match="FsspecStore with asynchronous=True: leave that out"):
        sharddb.open("bucket/store", store=files)


# --- the methods of a local database


def test_the_number_of_keys(local_profile: Path, foreign: Path) -> None:
    db = sharddb.open("", store=(store := Objects(files(local_profile))))
    assert store.count(lambda: len(db)) == 0 and len(db) == len(VALUES) == len(db.snapshot())
    with sharddb.open(foreign) as local:
        db = sharddb.open("", store=(store := Objects(files(foreign))), cache_bytes=0)
        assert len(db) == len(local)
        assert store.count(lambda: len(db)) == 0
        db.refresh()
        read = store.count(lambda: list(db))
        assert store.count(lambda: len(db)) == 0 and read == store.count(db.keys)


def test_an_arrow_stream(tmp_path: Path, local_profile: Path, foreign: Path) -> None:
    for directory in (local_profile, foreign):
        with sharddb.open(directory) as local, sharddb.open("", store=Objects(files(directory))) as db:
            assert pa.table(db) == pa.table(local)
            with sharddb.Loader(tmp_path / directory.name) as loader:
                loader.extend(db)
            assert dict(sharddb.open(tmp_path / directory.name).items()) == dict(local.items())


def test_an_arrow_stream_that_fails(local_profile: Path) -> None:
    store = Objects(files(local_profile))
    db = sharddb.open("", store=store)
    store.objects = {path: body for path, body in store.objects.items() if not path.endswith(".shard")}
    with pytest.raises(pa.ArrowInvalid, match="GenerationGone: "):
        pa.table(db)


def test_the_coroutines_of_a_local_database(local_profile: Path) -> None:
    """A function that awaits a database serves a local one and a remote one."""

    async def read(db: sharddb.Database | sharddb.RemoteDatabase) -> None:
        assert await db.get_async(5) == VALUES[5] and await db.get_async(10**9) is None
        assert await db.get_async(10**9, b"default") == await db.get_async(key=10**9, default=b"default") == b"default"
        assert await db.get_many_async(np.arange(4)) == [VALUES[key] for key in range(4)]
        for lookup in (db.get_async, db.get_many_async):
            with pytest.raises(TypeError, match="int"):
                await lookup("5")  # type: ignore[arg-type, call-overload]

    for db in (sharddb.open(local_profile), sharddb.open("", store=Objects(files(local_profile)))):
        with db:
            asyncio.run(read(db))


# --- S3


def test_a_bucket_in_s3(s3: Callable[[str], S3Store], store: Path, pairs: dict[int, bytes]) -> None:
    objects: dict[str, bytes] = {}
    remote = s3("some/store")
    first = publish(objects, store / "gen-0000000001", 1)
    upload(remote, objects)
    db = sharddb.open("s3://bucket/some/store", store=remote)
    assert db.generation == first and db.get_many(list(pairs)) == list(pairs.values())
    assert asyncio.run(db.get_async(max(pairs))) == pairs[max(pairs)]
    again = pickle.loads(pickle.dumps(db))
    assert again[max(pairs)] == pairs[max(pairs)]
    before = db.stats["requests"]
    assert db.refresh() is None and db.stats["requests"] == before + 1
    second = publish(objects, store / "gen-0000000002", 2)
    upload(remote, objects)
    assert db.refresh() == second and db.get_many(list(pairs)) == list(pairs.values())
    with pytest.raises(sharddb.NotFound, match="s3://bucket/nothing"):
        sharddb.open("s3://bucket/nothing", store=s3("nothing"))


def test_foreign_data_in_s3(s3: Callable[[str], S3Store], foreign: Path) -> None:
    """`If-Match` finds that a shard was replaced."""
    remote = s3("foreign")
    upload(remote, files(foreign))
    snapshot = sharddb.open("", store=remote, cache_bytes=0).snapshot()
    with sharddb.open(foreign) as local:
        keys = local.keys()
        assert snapshot.get_many(keys) == local.get_many(keys)
    upload(remote, {path: body + b"more" for path, body in files(foreign).items() if path.endswith(".shard")})
    with pytest.raises(sharddb.GenerationGone):
        snapshot.get_many(keys)


def upload(store: Any, objects: dict[str, bytes]) -> None:
    for path, body in objects.items():
        obstore.put(store, path, body)


# --- generations


@pytest.fixture
def bucket(store: Path) -> Objects:
    """A bucket with the first generation of `store`."""
    objects: dict[str, bytes] = {}
    publish(objects, store / "gen-0000000001", 1)
    return Objects(objects)


def test_refresh(store: Path, pairs: dict[int, bytes], bucket: Objects) -> None:
    db = sharddb.open("s3://bucket/store", store=bucket)
    first = db.generation
    assert first is not None and db.get_many(list(pairs)) == list(pairs.values())
    results: list[str | None] = []
    assert bucket.count(lambda: results.append(db.refresh())) == 1
    snapshot = db.snapshot()
    second = publish(bucket.objects, store / "gen-0000000002", 2)
    assert db.generation == first
    results.append(db.refresh())
    results.append(db.refresh())
    assert results == [None, second, None]
    assert (db.generation, db.stats["generation"], snapshot.generation) == (second, second, first)
    assert db.spec["data_encoding"] == "gzip" and snapshot.spec["data_encoding"] == "raw"
    for reader in (db, snapshot):
        assert reader.get_many(list(pairs)) == list(pairs.values())
    assert repr(db) == f"<sharddb.RemoteDatabase 's3://bucket/store' ({second})>"
    assert repr(snapshot).startswith("<sharddb.RemoteSnapshot 's3://bucket/store'")


def test_a_removed_generation(store: Path, pairs: dict[int, bytes], bucket: Objects) -> None:
    """A database goes on with the current one; a snapshot says that its generation is gone."""
    db = sharddb.open("", store=bucket)
    snapshot = db.snapshot()
    first = db.generation
    assert first is not None
    second = publish(bucket.objects, store / "gen-0000000002", 2)
    remove(bucket.objects, first)
    with pytest.raises(sharddb.GenerationGone):
        snapshot.get_many(list(pairs))
    with pytest.raises(sharddb.GenerationGone):
        snapshot[max(pairs)]
    assert db.get_many(list(pairs)) == list(pairs.values())
    assert db.generation == second


def test_foreign_data_that_is_replaced(foreign: Path) -> None:
    """The ETag of a shard changes between two reads of it: an error of the snapshot, not a mix."""
    store = Objects(files(foreign))
    db = sharddb.open("", store=store)
    snapshot = db.snapshot()
    with sharddb.open(foreign) as local:
        keys = local.keys()
        expected = local.get_many(keys)
    assert db.get_many(keys) == snapshot.get_many(keys) == expected
    for path in store.objects:
        if path.endswith(".shard"):
            store.objects[path] += b"more"
    with pytest.raises(sharddb.GenerationGone, match=r"\.shard"):
        snapshot.get_many(keys)
    assert db.get_many(keys) == expected


# --- several callers


def test_a_hundred_coroutines(local_profile: Path) -> None:
    async def main() -> None:
        db = await sharddb.open_async("", store=LocalStore(local_profile))
        keys = range(0, 3000, 30)
        assert await asyncio.gather(*(db.get_async(key) for key in keys)) == [VALUES[key] for key in keys]
        assert await db.get_many_async(list(VALUES)) == list(VALUES.values())
        assert await db.contains_async(5) and not await db.contains_async(10**12)
        assert await db.get_async(10**12, b"none") == b"none"
        assert await db.locate_async(5) == db.locate(5)
        assert await db.refresh_async() is None

    asyncio.run(main())


def test_a_store_without_coroutines(local_profile: Path) -> None:
    """The synchronous methods run on threads of the loop."""

    async def main() -> None:
        db = await sharddb.open_async("", store=Ranges(files(local_profile)))
        keys = list(range(0, 3000, 30))
        assert await asyncio.gather(*(db.get_async(key) for key in keys)) == [VALUES[key] for key in keys]

    asyncio.run(main())


def test_coroutines_and_threads_share_indexes(foreign: Path) -> None:
    """Many callers at once need the same indexes: each is read once."""
    with sharddb.open(foreign) as local:
        keys = [int(key) for key in local.keys()[:64]]
        expected = local.get_many(keys)

    class Slow(Objects):
        async def get_async(self, path: str, *, options: dict[str, Any] | None = None) -> Any:
            result = self.get(path, options=options)
            await asyncio.sleep(0.001)
            return result

    store = Slow(files(foreign))
    db = sharddb.open("", store=store)

    async def read() -> list[bytes | None]:
        return list(await asyncio.gather(*(db.get_async(key) for key in keys)))

    with ThreadPoolExecutor(6) as pool:
        calls: list[Any] = [pool.submit(asyncio.run, read()) for _ in range(3)]
        calls += [pool.submit(lambda: [db.get(key) for key in keys]) for _ in range(3)]
        assert all(call.result(LIMIT) == expected for call in calls)
    ranges = [(path, str(options.get("range"))) for path, options in store.requests]
    values = {(path, str((offset, offset + length))) for path, offset, length in map(db.locate, keys)}  # type: ignore[misc]
    indexes_read = [read for read in ranges if read not in values]
    assert len(indexes_read) == len(set(indexes_read))


def test_threads(local_profile: Path) -> None:
    db = sharddb.open("", store=LocalStore(local_profile))

    def read(start: int) -> bool:
        keys = [(start + 37 * n) % 3000 for n in range(200)]
        return [db[key] for key in keys] == [VALUES[key] for key in keys] == db.get_many(keys)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(16)))


def test_no_thread_outlives_a_call(foreign: Path) -> None:
    before = set(threading.enumerate())
    with sharddb.open("", store=Objects(files(foreign))) as db, sharddb.open(foreign) as local:
        db.get_many(local.keys())
    for thread in set(threading.enumerate()) - before:
        thread.join(LIMIT)
        assert not thread.is_alive()


# --- life of a handle


def test_close(local_profile: Path) -> None:
    db = sharddb.open("", store=LocalStore(local_profile))
    snapshot = db.snapshot()
    with db:
        pass
    for call in (lambda: db[1], lambda: db.refresh(), lambda: db.snapshot(), lambda: db.stats, lambda: pickle.dumps(db)):
        with pytest.raises(sharddb.InvalidInput, match="closed"):
            call()
    assert snapshot[1] == VALUES[1]
    assert repr(db) == "<sharddb.RemoteDatabase '', closed>"
    db.close()


def test_pickle(tmp_path: Path, store: Path, pairs: dict[int, bytes]) -> None:
    """A pickle has the store, the arguments and the generation; the next refresh follows the store."""
    objects: dict[str, bytes] = {}
    publish(objects, store / "gen-0000000001", 1)
    write(tmp_path / "bucket", objects)
    db = sharddb.open("bucket", store=LocalStore(tmp_path), threads=3, cache_bytes="1MiB")
    first, keys = db.generation, list(pairs)
    pickles = [pickle.dumps(db), pickle.dumps(db.snapshot())]
    second = publish(objects, store / "gen-0000000002", 2)
    write(tmp_path / "bucket", objects)
    again, snapshot = map(pickle.loads, pickles)
    assert (type(again), type(snapshot)) == (sharddb.RemoteDatabase, sharddb.RemoteSnapshot)
    for reader in (again, snapshot):
        assert reader.generation == reader.stats["generation"] == first
        assert reader.get_many(keys) == list(pairs.values())
        assert reader.locate(keys[1]) == db.locate(keys[1])
        assert pickle.loads(pickle.dumps(reader)).generation == first
    assert again.refresh() == second
    assert again.get_many(keys) == list(pairs.values())
    shutil.rmtree(tmp_path / "bucket" / str(first))
    for pickled in pickles:
        with pytest.raises(sharddb.GenerationGone, match=str(first)):
            pickle.loads(pickled)
    make_current(objects, 2)
    fresh = pickle.loads(pickle.dumps(again))
    assert fresh.generation == second and fresh.refresh() is None


def write(directory: Path, objects: dict[str, bytes]) -> None:
    for path, body in objects.items():
        if path == "current" or not (directory / path).exists():  # an object that is written again is another one
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(body)


def test_pickle_of_a_store_that_does_not(local_profile: Path) -> None:
    class Unpicklable(Objects):
        def __reduce__(self) -> Any:
            raise TypeError("this store stays")

    with sharddb.open("", store=Unpicklable(files(local_profile))) as db, pytest.raises(TypeError, match="stays"):
        pickle.dumps(db)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child(local_profile: Path) -> None:
    db = sharddb.open("", store=Objects(files(local_profile)))

    def check() -> None:
        for call in (lambda: db[1], lambda: db.get_many([1]), lambda: db.refresh(), lambda: db.snapshot()):
            with pytest.raises(sharddb.InvalidInput, match="forked child"):
                call()
        assert repr(db) == "<sharddb.RemoteDatabase ''>"  # also in a debugger
        assert pickle.loads(pickle.dumps(sharddb.open("", store=Objects(files(local_profile)))))[1] == VALUES[1]

    in_child(check)
    assert db[1] == VALUES[1]


def test_another_process(tmp_path: Path, local_profile: Path) -> None:
    """A pickle opens in a process that has only the package and the store."""
    with sharddb.open("", store=LocalStore(local_profile)) as db:
        (tmp_path / "pickle").write_bytes(pickle.dumps(db))
    code = """
        import pickle, sys
        from pathlib import Path
        print(pickle.loads(Path(sys.argv[1]).read_bytes())[5])
    """
    assert run_program(code, str(tmp_path / "pickle")) == f"{VALUES[5]!r}\n"
