"""Builds on Dask have the bytes of one Loader, whatever fails on the way."""

import os
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharddb

pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
import dask.bag  # noqa: E402

import sharddb.dask  # noqa: E402

CHUNKS = 64
SPEC = {
    "@type": "neuroglancer_uint64_sharded_v1",
    "hash": "murmurhash3_x86_128",
    "preshift_bits": 0,
    "minishard_bits": 3,
    "shard_bits": 5,
    "minishard_index_encoding": "raw",
    "data_encoding": "raw",
}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    # By default, a cluster closes a worker for good if it is missing 15 s after its process exited. On a loaded machine a worker
    # takes longer to restart, and without any worker tasks stay queued forever.
    settings = {"distributed.scheduler.allowed-failures": 30, "distributed.deploy.lost-worker-timeout": "1h"}
    with dask.config.set(settings):
        with distributed.LocalCluster(n_workers=8, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
            with distributed.Client(cluster) as client:
                yield client


def pairs_of(chunk: int) -> list[tuple[int, bytes]]:
    """The pairs of a chunk: keys in random order over all chunks, each once."""
    keys = list(range(20_000))
    random.Random(1).shuffle(keys)
    return [(key * 77, f"value {key} ".encode() * (key % 7)) for key in keys[chunk::CHUNKS]]


def files_of(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store / "current").iterdir() if path.name != "lease"}


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one Loader, which gets the pairs in another order."""
    store: Path = tmp_path_factory.mktemp("single") / "store"
    with sharddb.Loader(store, SPEC) as loader:
        for chunk in reversed(range(CHUNKS)):
            loader.extend(pairs_of(chunk))
    return store


def assert_nothing_left(store: Path) -> None:
    assert [path.name for path in store.iterdir() if path.name.startswith("parts-")] == []


def test_a_bag_has_the_bytes_of_a_loader(client: Any, single: Path, tmp_path: Path) -> None:
    bag = dask.bag.from_sequence(range(CHUNKS), npartitions=CHUNKS).map(pairs_of).flatten()
    published = sharddb.dask.build(bag, tmp_path / "store", SPEC, parts=11, client=client)
    assert published.keys == 20_000
    assert files_of(tmp_path / "store") == files_of(single)
    assert_nothing_left(tmp_path / "store")


def test_without_a_client(single: Path, tmp_path: Path) -> None:
    delayed = [dask.delayed(pairs_of)(chunk) for chunk in range(CHUNKS)]
    with dask.config.set(scheduler="threads"):
        sharddb.dask.build(delayed, tmp_path / "store", sharddb.PartPlan(SPEC, 7))
    assert files_of(tmp_path / "store") == files_of(single)


def test_a_dataframe(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    import dask.dataframe

    records = pandas.Series([b"%d" % at for at in range(1000)], dtype=pandas.ArrowDtype(pyarrow.binary()))
    frame = pandas.DataFrame({"id": np.arange(1000, dtype="uint64"), "record": records})
    with dask.config.set({"scheduler": "threads"}):
        source = dask.dataframe.from_pandas(frame, npartitions=5)
        sharddb.dask.build(source, tmp_path / "store", SPEC, parts=3, columns=("id", "record"))
    with sharddb.open(tmp_path / "store") as db:
        assert len(db) == 1000 and db[999] == b"999"


def die_once(chunk: int, marks: str) -> list[tuple[int, bytes]]:
    """Like `pairs_of`, but ends the worker at the first call for some chunks."""
    if chunk % 9 == 0:
        try:
            os.close(os.open(f"{marks}/{chunk}", os.O_CREAT | os.O_EXCL))
            os._exit(1)
        except FileExistsError:
            pass
    return pairs_of(chunk)


def test_workers_are_killed(client: Any, single: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    delayed = [dask.delayed(die_once, pure=False)(chunk, str(marks)) for chunk in range(CHUNKS)]
    sharddb.dask.build(delayed, tmp_path / "store", SPEC, parts=5, client=client, retries=30)
    assert len(list(marks.iterdir())) == len(range(0, CHUNKS, 9))
    assert files_of(tmp_path / "store") == files_of(single)


def fail(chunk: int) -> list[tuple[int, bytes]]:
    if chunk == 7:
        raise RuntimeError("chunk 7 is unreadable")
    return pairs_of(chunk)


@pytest.mark.parametrize("with_client", [True, False])
def test_a_failed_task_publishes_nothing(client: Any, tmp_path: Path, with_client: bool) -> None:
    delayed = [dask.delayed(fail)(chunk) for chunk in range(10)]
    with pytest.raises(RuntimeError, match="chunk 7 is unreadable"), dask.config.set(scheduler="threads"):
        sharddb.dask.build(delayed, tmp_path / "store", SPEC, parts=2, client=client if with_client else None, retries=0)
    assert not (tmp_path / "store" / "current").exists()


def failing(chunk: int) -> Iterator[tuple[int, bytes]]:
    """A generator, which cannot be read again after it has raised."""
    for number, pair in enumerate(pairs_of(chunk)):
        if chunk == 7 and number == 100:
            raise RuntimeError("chunk 7 is unreadable")
        yield pair


@pytest.mark.parametrize("with_client", [True, False])
@pytest.mark.parametrize("kind", ["bag", "delayed", "map"])
def test_a_generator_that_fails_is_not_read_again(client: Any, tmp_path: Path, kind: str, with_client: bool) -> None:
    def parsed(pair: tuple[int, bytes]) -> tuple[int, bytes]:
        if pair == pairs_of(7)[100]:
            raise RuntimeError("chunk 7 is unreadable")
        return pair

    sources: dict[str, Any] = {
        "bag": lambda: dask.bag.from_sequence(range(10), npartitions=10).map_partitions(lambda chunks: failing(next(iter(chunks)))),
        "delayed": lambda: [dask.delayed(failing)(chunk) for chunk in range(10)],
        "map": lambda: [dask.delayed(map)(parsed, dask.delayed(pairs_of)(chunk)) for chunk in range(10)],
    }
    with pytest.raises(RuntimeError, match="chunk 7 is unreadable"), dask.config.set(scheduler="threads"):
        sharddb.dask.build(sources[kind](), tmp_path / "store", SPEC, parts=2, client=client if with_client else None)
    assert not (tmp_path / "store" / "current").exists()


def test_a_failed_publication_leaves_no_files(tmp_path: Path) -> None:
    delayed = [dask.delayed(pairs_of)(chunk) for chunk in range(3)]
    with dask.config.set(scheduler="threads"):
        with pytest.raises(TypeError, match="orderd"):
            sharddb.dask.build(delayed, tmp_path / "store", SPEC, parts=2, orderd=True)
        assert not (tmp_path / "store").exists()
        with pytest.raises(sharddb.Error):
            sharddb.dask.build(delayed, tmp_path / "store", SPEC, parts=2, info="{")
    assert not (tmp_path / "store" / "current").exists()
    assert_nothing_left(tmp_path / "store")


def test_the_name_of_another_job_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    plan = sharddb.PartPlan(SPEC, 2)
    other = sharddb.job_directory(store, "nightly")
    with sharddb.SpillWriter(other, plan, 0) as writer:
        writer[7] = b"seven"
        with pytest.raises(sharddb.InvalidInput, match="a new name") as raised:
            sharddb.dask.build([dask.delayed(pairs_of)(0)], store, plan, job="nightly")
        assert raised.value.path == str(other)
    assert writer.receipt is not None and list(other.iterdir()) != []


def test_duplicates_are_errors_that_name_the_key(client: Any, tmp_path: Path) -> None:
    delayed = [dask.delayed([(5, b"a"), (7 + task, b"b")]) for task in range(3)]
    with pytest.raises(sharddb.DuplicateKey) as raised:
        sharddb.dask.build(delayed, tmp_path / "store", SPEC, parts=2, client=client, retries=0)
    assert raised.value.key == 5
    assert not (tmp_path / "store" / "current").exists()


@pytest.mark.parametrize("source", [[1, 2], [b"chunk"], 7, None])
def test_other_sources_are_type_errors(tmp_path: Path, source: Any) -> None:
    with pytest.raises(TypeError):
        sharddb.dask.build(source, tmp_path / "store", SPEC)
    assert list(tmp_path.iterdir()) == []


# ---- the job of igneous: fragments of labels, in files by region, joined into one value per label ----

LABELS, FRAGMENTS, FILES = 50_000, 20, 50


def write_fragments(directory: Path) -> dict[int, bytes]:
    """Writes fragment files, and returns what each label is to be."""
    generator = np.random.default_rng(7)
    labels = np.repeat(np.arange(1, LABELS + 1, dtype=np.uint64) * 1_000_003, FRAGMENTS)
    files = generator.integers(0, FILES, labels.size)
    expected: dict[int, list[bytes]] = {}
    for number in range(FILES):
        mine = labels[files == number]
        generator.shuffle(mine)
        values = [b"%d of %d;" % (label, number) for label in mine.tolist()]
        for label, value in zip(mine.tolist(), values, strict=True):
            expected.setdefault(label, []).append(value)
        offsets = np.cumsum([0] + [len(value) for value in values])
        np.savez(directory / f"{number}.npz", labels=mine, offsets=offsets, data=np.frombuffer(b"".join(values), np.uint8))
    return {label: b"".join(values) for label, values in expected.items()}


def read_fragments(directory: str, number: int) -> tuple[Any, Any, Any]:
    with open(f"{directory}/opened-{number}-{uuid.uuid4().hex}", "x"):
        pass
    with np.load(f"{directory}/{number}.npz") as file:
        return file["labels"], file["offsets"], file["data"]


def join(_label: int, fragments: list[bytes]) -> bytes:
    return b"".join(fragments)


def test_fragments_of_labels_are_joined(client: Any, tmp_path: Path) -> None:
    expected = write_fragments(tmp_path)
    delayed = [dask.delayed(read_fragments)(str(tmp_path), number) for number in range(FILES)]
    sharddb.dask.build(delayed, tmp_path / "store", SPEC, parts=8, client=client, merge=join)
    assert len(list(tmp_path.glob("opened-*"))) == FILES  # each file was opened once
    with sharddb.open(tmp_path / "store") as db:
        assert len(db) == len(expected) == LABELS
        keys = np.array(sorted(expected), dtype=np.uint64)
        assert db.get_many(keys) == [expected[key] for key in keys.tolist()]


def test_threads_and_durability_reach_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is built by one thread unless stated, because Dask runs a task per thread of a worker."""
    found: dict[str, list[Any]] = {"threads": [], "part": [], "spill": []}
    build_part, writer = sharddb.build_part, sharddb.SpillWriter

    def record_part(*arguments: Any, **options: Any) -> str:
        found["threads"].append(options.get("threads"))
        found["part"].append(options.get("durable"))
        return build_part(*arguments, **options)

    def record_spill(*arguments: Any, **options: Any) -> Any:
        found["spill"].append(options.get("durable"))
        return writer(*arguments, **options)

    monkeypatch.setattr(sharddb, "build_part", record_part)
    monkeypatch.setattr(sharddb, "SpillWriter", record_spill)
    bag = dask.bag.from_sequence([(1, b"one"), (2, b"two")], npartitions=1)
    with dask.config.set(scheduler="synchronous"):
        sharddb.dask.build(bag, tmp_path / "one", SPEC, parts=2)
        sharddb.dask.build(bag, tmp_path / "three", SPEC, parts=1, threads=3, durable=False)
    assert found == {"threads": [1, 1, 3], "part": [None, None, False], "spill": [True, False]}


def test_three_pairs_in_a_tuple_are_pairs(tmp_path: Path) -> None:
    chunk = dask.delayed(lambda: ((1, b"one"), (2, b"two"), (3, b"three")))()
    with dask.config.set(scheduler="synchronous"):
        sharddb.dask.build([chunk], tmp_path / "store", SPEC, parts=1)
    with sharddb.open(tmp_path / "store") as db:
        assert dict(db.items()) == {1: b"one", 2: b"two", 3: b"three"}
