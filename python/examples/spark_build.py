"""A partitioned build on Spark: Spark moves the pairs of a part together, and the tasks spill and build them.

    pip install pyspark sharddb && python spark_build.py

Spark repeats tasks that fail, and runs slow ones twice: a task writes the same file again, and the driver gets one receipt
per task.
"""

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark import RDD, SparkConf, SparkContext

import sharddb

ROWS = 20_000


def build(pairs: "RDD[tuple[int, bytes]]", store: Path, plan: sharddb.PartPlan) -> sharddb.Published:
    """Builds a store of pairs. All executors see the path of the store."""
    directory = str(sharddb.job_directory(store, "spark"))

    def spill(task: int, mine: Iterable[tuple[int, bytes]]) -> Iterator[str]:
        with sharddb.SpillWriter(directory, plan, task, memory="64MiB") as writer:
            writer.extend(mine)
        yield writer.receipt

    def build_part(part: int) -> str:
        return sharddb.build_part(plan, spills, part, directory, memory="64MiB")

    by_part = pairs.partitionBy(plan.parts, plan.part_of)
    spills = by_part.mapPartitionsWithIndex(spill).collect()
    parts = pairs.context.parallelize(range(plan.parts), plan.parts).map(build_part).collect()
    return sharddb.publish_parts(store, "spark", plan, spills, parts)


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster("local[2]").setAppName("sharddb").set("spark.ui.enabled", "false")
    conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
    plan = sharddb.PartPlan(sharddb.plan(count=ROWS, value_bytes=12 * ROWS), parts=4)
    with SparkContext(conf=conf) as context, tempfile.TemporaryDirectory() as directory:
        pairs = context.parallelize(range(ROWS), 8).map(lambda key: (key, b"record %d" % key))
        published = build(pairs, Path(directory) / "store", plan)
        with sharddb.open(Path(directory) / "store") as db:
            assert db.get_many(range(ROWS)) == [b"record %d" % key for key in range(ROWS)]
    print(f"{published.keys} keys from Spark: ok")


if __name__ == "__main__":
    main()
