"""Partitioned builds: the four steps, in one process and in several, have the bytes of one Loader or publish nothing."""

import json
import multiprocessing
import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import run_program

import sharddb

SPEC = {
    "@type": "neuroglancer_uint64_sharded_v1",
    "hash": "murmurhash3_x86_128",
    "preshift_bits": 0,
    "minishard_bits": 2,
    "shard_bits": 4,
    "minishard_index_encoding": "gzip",
    "data_encoding": "gzip",
}
PAIRS = [(key * 3, b"value %d " % key * (key % 9)) for key in range(3000)]
TASKS = 5


def files_of(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store / "current").iterdir() if path.name != "lease"}


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of one Loader."""
    store = tmp_path_factory.mktemp("single") / "store"
    with sharddb.Loader(store, SPEC) as loader:
        loader.extend(PAIRS)
    return files_of(store)


def spill(directory: str | Path, plan: sharddb.PartPlan, task: int, pairs: list[tuple[int, bytes]] = PAIRS) -> str:
    with sharddb.SpillWriter(directory, plan, task, memory="16MiB") as writer:
        writer.extend(pairs[task::TASKS])
    assert writer.receipt is not None
    return writer.receipt


def steps(store: Path, plan: sharddb.PartPlan, job: str = "1") -> tuple[Path, list[str], list[str]]:
    """Spills and builds all parts. Returns the directory and the receipts."""
    directory = sharddb.job_directory(store, job)
    spills = [spill(directory, plan, task) for task in range(TASKS)]
    return directory, spills, [sharddb.build_part(plan, spills, part, directory) for part in range(plan.parts)]


@pytest.mark.parametrize("parts", [1, 3, 16, 40])
def test_bytes_are_those_of_a_loader(tmp_path: Path, single: dict[str, bytes], parts: Any) -> None:
    plan = sharddb.PartPlan(SPEC, parts)
    store = tmp_path / "store"
    _, spills, built = steps(store, plan)
    published = sharddb.publish_parts(store, "1", plan, spills[::-1], built[::-1])
    assert published.keys == len(PAIRS)
    if plan.spec == {**SPEC}:
        assert files_of(store) == single
    with sharddb.open(store) as db:
        assert all(db[key] == value for key, value in PAIRS)
    # a repeated publication returns the same result, and the files of the receipts are gone
    assert sharddb.publish_parts(store, "1", plan, spills, built) == published
    assert sharddb.clean_parts(store) == ["1"]
    assert [path.name for path in store.iterdir() if path.name.startswith("parts-")] == []


def test_a_plan_is_text_and_is_pickled() -> None:
    plan = sharddb.PartPlan(SPEC, 3)
    assert plan.parts == 3 and plan.spec["shard_bits"] == 4
    assert {plan.part_of(key) for key in range(1000)} == {0, 1, 2}
    assert sharddb.PartPlan.parse(str(plan)) == plan == pickle.loads(pickle.dumps(plan))
    assert json.loads(str(plan))["sharding"]["shard_bits"] == 4
    more = sharddb.PartPlan(sharddb.plan(count=1000, value_bytes=100_000), 6)
    assert more.parts == 6 and more.spec["shard_bits"] >= 3
    # parts of an identity hash follow the sample
    identity = {**SPEC, "hash": "identity", "preshift_bits": 2, "minishard_bits": 3, "shard_bits": 8}
    keys = np.arange(1000, dtype=np.uint64)
    counts = np.bincount([sharddb.PartPlan(identity, 4, sample=keys).part_of(int(key)) for key in keys], minlength=4)
    assert counts.min() > 150, counts


@pytest.mark.parametrize("parts", [0, -1, 2**20, 1.5, "3"])
def test_wrong_numbers_of_parts(parts: Any) -> None:
    with pytest.raises((sharddb.InvalidInput, TypeError, OverflowError)):
        sharddb.PartPlan(SPEC, parts)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "{" * 10_000, '{"sharddb_part_plan":1}', "\0"])
def test_texts_that_are_no_plan(tmp_path: Path, text: str) -> None:
    with pytest.raises(sharddb.Error):
        sharddb.PartPlan.parse(text)
    plan = sharddb.PartPlan(SPEC, 2)
    with pytest.raises(sharddb.Error):
        sharddb.build_part(plan, [text], 0, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_several_processes_by_spawn(tmp_path: Path, single: dict[str, bytes]) -> None:
    plan, store = sharddb.PartPlan(SPEC, 4), tmp_path / "store"
    directory = sharddb.job_directory(store, "spawned")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        spills = pool.starmap(spill, [(directory, plan, task) for task in range(TASKS)])
        built = pool.starmap(sharddb.build_part, [(plan, spills, part, directory) for part in range(4)])
    sharddb.publish_parts(store, "spawned", plan, spills, built)
    assert files_of(store) == single


def test_a_block_that_raises_leaves_nothing(tmp_path: Path) -> None:
    plan = sharddb.PartPlan(SPEC, 2)
    with pytest.raises(ZeroDivisionError):
        with sharddb.SpillWriter(tmp_path / "d", plan, 0) as writer:
            writer[1] = b"one"
            1 // 0
    assert writer.receipt is None
    assert list((tmp_path / "d").iterdir()) == []
    for use in (lambda: writer.extend({1: b""}), writer.finish, lambda: writer.__setitem__(1, b"")):
        with pytest.raises(sharddb.InvalidInput, match="has finished or failed"):
            use()


def test_after_a_fork_a_spill_writer_raises(tmp_path: Path) -> None:
    writer = sharddb.SpillWriter(tmp_path, sharddb.PartPlan(SPEC, 2), 0)
    writer[1] = b"one"
    child = os.fork()
    if child == 0:
        try:
            writer[2] = b"two"
        except sharddb.InvalidInput as error:
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert json.loads(writer.finish())["pairs"] == 1


def test_a_task_that_ran_twice_is_one_of_the_two(tmp_path: Path) -> None:
    plan, store = sharddb.PartPlan(SPEC, 3), tmp_path / "store"
    directory, spills, _ = steps(store, plan)
    other = spill(directory, plan, 2, [(key, b"other " + value) for key, value in PAIRS])
    for chosen in (spills[2], other):
        taken = [*spills[:2], chosen, *spills[3:]]
        built = [sharddb.build_part(plan, taken, part, directory) for part in range(3)]
    expected = {key: b"other " + value if at % TASKS == 2 else value for at, (key, value) in enumerate(PAIRS)}
    sharddb.publish_parts(store, "1", plan, taken, built)
    with sharddb.open(store) as db:
        assert all(db[key] == value for key, value in expected.items())


def test_receipts_that_do_not_fit_publish_nothing(tmp_path: Path) -> None:
    plan, store = sharddb.PartPlan(SPEC, 3), tmp_path / "store"
    directory, spills, built = steps(store, plan)
    other_plan = sharddb.PartPlan(SPEC, 2)
    foreign_spill = spill(directory, other_plan, 0)
    again = spill(directory, plan, 0, [(key, b"") for key, _ in PAIRS])
    of_fewer = sharddb.build_part(plan, spills[1:], 0, directory)
    wrong = {
        "a lost part": (spills, built[1:]),
        "a repeated task": ([*spills, again], built),
        "a foreign spill": ([foreign_spill, *spills[1:]], built),
        "a part of fewer spills": (spills, [of_fewer, *built[1:]]),
        "a lost spill": (spills[1:], built),
        "no receipts": ([], []),
    }
    for name, (spills_given, parts_given) in wrong.items():
        with pytest.raises(sharddb.InvalidInput):
            sharddb.publish_parts(store, "1", plan, spills_given, parts_given)
        assert not (store / "current").exists(), name
    for path in directory.glob("task-3-*"):
        path.unlink()
    with pytest.raises(sharddb.NotFound) as raised:
        sharddb.build_part(plan, spills, 0, directory)
    assert "task-3-" in str(raised.value)
    sharddb.publish_parts(store, "1", plan, spills, built)  # the parts are there


def test_a_damaged_spill_is_named(tmp_path: Path) -> None:
    plan = sharddb.PartPlan(SPEC, 2)
    receipt = spill(tmp_path, plan, 0)
    path = next(tmp_path.glob("task-0-*"))
    sound = path.read_bytes()
    for at in random.Random(1).sample(range(len(sound)), 60):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        raised = 0
        for part in range(2):
            try:
                sharddb.build_part(plan, [receipt], part, tmp_path, out=tmp_path / "out")
            except sharddb.Corrupt as error:
                assert path.name in str(error)
                raised += 1
        assert raised > 0, at


def test_a_merge_function_gets_the_values_in_order(tmp_path: Path) -> None:
    plan, store = sharddb.PartPlan(SPEC, 3), tmp_path / "store"
    directory = sharddb.job_directory(store, "merged")
    expected: dict[int, bytes] = {}
    spills: list[str] = []
    for task in range(4):
        with sharddb.SpillWriter(directory, plan, task) as writer:
            for at in range(300):
                value = b"%d.%d " % (task, at)
                writer[at % 50] = value
                expected[at % 50] = expected.get(at % 50, b"") + value
        spills.insert(0, writer.receipt or "")
    merge = lambda _key, values: b"".join(values)  # noqa: E731
    built = [sharddb.build_part(plan, spills, part, directory, on_duplicate=merge) for part in range(3)]
    sharddb.publish_parts(store, "merged", plan, spills, built)
    with sharddb.open(store) as db:
        assert {key: db[key] for key in range(50)} == expected

    def fail(_key: int, _values: list[bytes]) -> bytes:
        raise LookupError("no such label")

    with pytest.raises(LookupError, match="no such label"):
        directory = sharddb.job_directory(store, "failed")
        receipt = spill(directory, plan, 0)
        sharddb.build_part(plan, [receipt], 0, directory, on_duplicate=fail)
    assert [path.name.split("-")[:2] for path in directory.iterdir()] == [["task", "0"]]


def test_bytes_and_memory_of_the_steps(tmp_path: Path) -> None:
    """Besides the input, spills are written and read once, each at most 1.05 times the input, and the output written once."""
    script = """
        import json, os, sys
        import numpy as np
        import sharddb

        def io():
            return {key: int(value) for key, value in (line.split(": ") for line in open("/proc/self/io"))}

        def peak():
            # of this program alone: ru_maxrss begins with that of the process that started it
            (line,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
            return int(line.split()[1]) << 10

        step, directory = sys.argv[1:3]
        plan = sharddb.PartPlan(json.loads(sys.argv[3]), 4)
        keys = np.random.default_rng(0).permutation(400_000).astype(np.uint64)
        before = io(), peak()
        if step == "spill":
            data = np.resize(np.arange(251, dtype=np.uint8), keys.size * 100)
            offsets = np.arange(keys.size + 1, dtype=np.int64) * 100
            before = io(), peak()
            with sharddb.SpillWriter(directory, plan, 0, memory="16MiB") as writer:
                writer.extend(keys, offsets, data)
            result = writer.receipt
        else:
            result = sharddb.build_part(plan, [sys.argv[4]], 1, directory, memory=sys.argv[6], temp_dir=sys.argv[5])
        after = io(), peak()
        print(json.dumps({
            "result": result,
            "read": after[0]["rchar"] - before[0]["rchar"],
            "written": after[0]["wchar"] - before[0]["wchar"],
            "memory": after[1] - before[1],
        }))
    """
    spec = json.dumps({**SPEC, "data_encoding": "raw", "minishard_index_encoding": "raw"})
    (tmp_path / "local").mkdir()

    def run(*arguments: str) -> Any:
        return json.loads(run_program(script, *arguments))

    directory = str(tmp_path / "job")
    spilled = run("spill", directory, spec)
    size = 400_000 * 108
    assert spilled["written"] <= 1.05 * size + 4096
    assert spilled["memory"] <= (16 + 64) << 20
    in_memory = run("build", directory, spec, spilled["result"], str(tmp_path / "local"), "64MiB")
    assert in_memory["read"] <= 1.05 * size / 4 + (1 << 20)
    output = sum(path.stat().st_size for path in Path(directory).glob("part-1-*/*"))
    assert 0 < in_memory["written"] <= output + (64 << 10)
    assert in_memory["memory"] <= (64 + 64) << 20
    spilling = run("build", directory, spec, spilled["result"], str(tmp_path / "local"), "16MiB")
    assert spilling["memory"] <= (16 + 64) << 20
    assert spilling["result"] == in_memory["result"]
    assert list((tmp_path / "local").iterdir()) == []


def test_progress_of_a_spill(tmp_path: Path) -> None:
    phases = []

    class Bar:
        total: float | None = None

        def set_description(self, text: str) -> None:
            phases.append(text)

        def reset(self) -> None:
            pass

        def update(self, n: float) -> None:
            pass

    writer = sharddb.SpillWriter(tmp_path / "spills", sharddb.PartPlan(SPEC, 3), 0, memory="16MiB")
    writer.extend(PAIRS)
    assert writer.finish(progress=Bar()) == writer.receipt
    assert phases
