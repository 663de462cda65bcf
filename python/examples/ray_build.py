"""A partitioned build on Ray Data: Ray moves the pairs of a part together, and the tasks spill and build them.

    pip install "ray[data]" sharddb && python ray_build.py

The pairs are written inside ``map_groups``: Ray may split its output again, so a group is whole only there. Each call
returns a receipt, and the driver keeps one per task: an attempt that Ray repeats writes the same file.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray

import sharddb

ROWS = 20_000


def build(pairs: ray.data.Dataset, store: Path, plan: sharddb.PartPlan) -> sharddb.Published:
    """Builds a store of the columns "key" and "value" of a data set."""
    directory = sharddb.job_directory(store, "ray")

    def with_part(table: pa.Table) -> pa.Table:
        parts = [plan.part_of(key) for key in table["key"].to_numpy()]
        return table.append_column("part", pa.array(parts, pa.int64()))

    def spill(group: pa.Table) -> pa.Table:
        with sharddb.SpillWriter(directory, plan, task=group["part"][0].as_py(), memory="64MiB") as writer:
            writer.extend(group.select(["key", "value"]))
        return pa.table({"receipt": [writer.receipt]})

    @ray.remote
    def build_part(plan: sharddb.PartPlan, spills: list[str], part: int) -> str:
        return sharddb.build_part(plan, spills, part, directory, memory="64MiB")

    grouped = pairs.map_batches(with_part, batch_format="pyarrow").groupby("part")
    spills = [row["receipt"] for row in grouped.map_groups(spill, batch_format="pyarrow").take_all()]
    parts = ray.get([build_part.remote(plan, spills, part) for part in range(plan.parts)])
    return sharddb.publish_parts(store, "ray", plan, spills, parts)


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, logging_level="warning")
    keys = np.random.default_rng(0).permutation(ROWS).astype(np.uint64)
    values = pa.array([b"record %d" % key for key in keys.tolist()], pa.binary())
    pairs = ray.data.from_arrow(pa.table({"key": keys, "value": values})).repartition(8)
    plan = sharddb.PartPlan(sharddb.plan(count=ROWS, value_bytes=12 * ROWS), parts=4)
    with tempfile.TemporaryDirectory() as directory:
        published = build(pairs, Path(directory) / "store", plan)
        with sharddb.open(Path(directory) / "store") as db:
            assert db.get_many(np.arange(ROWS)) == [b"record %d" % key for key in range(ROWS)]
    print(f"{published.keys} keys from Ray: ok")


if __name__ == "__main__":
    main()
