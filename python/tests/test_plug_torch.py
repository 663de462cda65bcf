"""The example of a PyTorch dataset: forked and spawned workers read what was written. Does not need PyTorch."""

import hashlib
import json
import multiprocessing
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PUBLIC

import sharddb
import torch_dataset
from torch_dataset import Values

SET = PUBLIC / "cv_10k_id"


def expected_digests() -> dict[int, str]:
    lines = map(json.loads, (SET / "expected.jsonl").read_text().splitlines())
    return {int(line["key"]): line["sha256"] for line in lines if "sha256" in line}


def read(dataset: Values, indices: list[int], results: Any) -> None:
    """What a worker of a ``DataLoader`` does."""
    values = dataset.__getitems__(indices)
    results.put(
        [(int(dataset.keys[at]), hashlib.sha256(value.tobytes()).hexdigest()) for at, value in zip(indices, values)]
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_read_every_value_once(method: str) -> None:
    dataset = Values(str(SET))
    dataset[0]  # the database is in use before the workers start
    context: Any = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    order = np.random.default_rng(3).permutation(len(dataset)).tolist()
    workers = [context.Process(target=read, args=(dataset, order[n::2], results)) for n in range(2)]
    for worker in workers:
        worker.start()
    found = dict(pair for _ in workers for pair in results.get())
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert found == expected_digests()
    assert hashlib.sha256(dataset[0].tobytes()).hexdigest() == found[int(dataset.keys[0])], "the parent still reads"


def test_the_program_reads_all_bytes(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["torch_dataset.py", str(SET)])
    torch_dataset.main()
    with sharddb.open(SET) as db:
        assert capsys.readouterr().out == f"{sum(len(value) for _, value in db.items())} bytes in {len(db)} values\n"


def test_a_chosen_set_of_keys() -> None:
    keys = np.array(list(expected_digests())[5:8], np.uint64)
    dataset = pickle.loads(pickle.dumps(Values(str(SET), keys)))
    assert len(dataset) == 3
    batch = dataset.__getitems__([2, 0, 0])
    assert [value.tobytes() for value in batch] == [dataset[at].tobytes() for at in (2, 0, 0)]
    assert hashlib.sha256(dataset[1].tobytes()).hexdigest() == expected_digests()[int(keys[1])]


def test_an_absent_key_raises() -> None:
    absent = max(expected_digests()) + 1
    dataset = Values(str(SET), np.array([absent], np.uint64))
    with pytest.raises(KeyError, match=str(absent)):
        dataset[0]
    with pytest.raises(KeyError, match=str(absent)):
        dataset.__getitems__([0])


def test_a_worker_reads_the_generation_of_its_parent(tmp_path: Path) -> None:
    with sharddb.Loader(tmp_path / "store", mode="replace") as loader:
        loader[1] = b"old"
    dataset = Values(str(tmp_path / "store"))
    with sharddb.Loader(tmp_path / "store", mode="replace") as loader:
        loader[1] = b"new"
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy[0].tobytes() == dataset[0].tobytes() == b"old"
    assert Values(str(tmp_path / "store"))[0].tobytes() == b"new"
