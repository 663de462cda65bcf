"""Partitioned builds on Dask.

    import dask.bag, sharddb.dask
    from dask.distributed import Client

    bag = dask.bag.from_sequence(chunks).map(pairs_of_chunk).flatten()    # of pairs (key, value)
    plan = sharddb.plan(count=10**9, value_bytes=10**11, profile="remote")
    sharddb.dask.build(bag, "/shared/store", plan, parts=256, client=Client("scheduler:8786"))

Each chunk of the source is a task, which spills its pairs into one file, divided by part. Then each part is built from its
sections of all spills, and all parts are published together. No pair passes through the scheduler or another worker.
"""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import sharddb
from sharddb._extra import needs

with needs("dask"):
    from dask.base import compute
    from dask.delayed import Delayed, delayed

if TYPE_CHECKING:
    import distributed


# The options that affect the bytes of a part.
_OF_PARTS = ("checks", "value_alignment", "allow_sparse", "durable")

# Those of the publication.
_OF_PUBLICATION = ("info", "sharding_at", "ordered", "allow_empty", "threads", "durable")


def build(
    source: Any,
    store: str | os.PathLike[str],
    spec: Any,
    *,
    parts: int | None = None,
    client: distributed.Client | None = None,
    merge: Callable[[int, list[bytes]], bytes] | None = None,
    on_duplicate: Any = "error",
    memory: int | str = "256MiB",
    temp_dir: str | os.PathLike[str] | None = None,
    columns: tuple[str, str] = ("key", "value"),
    job: str | None = None,
    retries: int = 3,
    progress: Any = None,
    **options: Any,
) -> sharddb.Published:
    """Builds and publishes a generation of a store from the chunks of a Dask collection. Returns what was published.

    ``source``: a bag of pairs, a dataframe whose ``columns`` are integers and bytes, or a sequence of delayed objects, each
    of which is anything that ``Loader.extend`` takes: a mapping, pairs, a tuple ``(keys, offsets, data)``, an Arrow table.
    ``store``: a path on a file system that all workers share. ``spec``: the JSON object "sharding" as a dict, a ``Plan``, or
    a ``PartPlan``, which has its ``parts``; default for others: 4 per thread of the client, at least 16.

    ``client``: runs all tasks, each up to ``retries`` times more if it fails or its worker dies, but not after an exception while
    an iterator is read, such as the generator of ``bag.map_partitions``: a part of it is gone then. Without one, the tasks run
    on the scheduler that Dask is configured for. ``merge``: a function ``f(key, values) -> bytes`` of all values of a key in
    the order of chunks, and within a chunk in the order of pairs. ``on_duplicate``: the policy without it. ``memory``: of
    each task; pairs of a part beyond it are spilled to ``temp_dir``, which should be a local disk of the workers.
    ``threads``: of each task that builds a part, default 1, because Dask runs one task per thread of a worker; and, if it is
    given, of the publication. ``durable``: whether spills, parts and the generation are synced, default true.
    ``progress``: a bar such as ``tqdm()``, whose ``total`` becomes the number of tasks. ``job``: the name of the build, which
    is that of its directory ``parts-<job>`` in the store; default: a random one. ``options``: those of ``Loader`` that do
    not affect the pairs (``info``, ``sharding_at``, ``ordered``, ``checks``, ``value_alignment``, ``allow_sparse``,
    ``allow_empty``).

    Dask makes text of columns of bytes unless ``dataframe.convert-string`` is false or they have the type of Arrow:
    ``pandas.ArrowDtype(pyarrow.binary())``.

    The bytes are those of one ``Loader`` that gets the same pairs in the order of chunks. After an exception nothing was
    published, unless it has a note with the generation: a KeyboardInterrupt that came too late. The files of the job are
    removed unless its tasks are still running; then ``sharddb.clean_parts(store, job)`` removes them.

    Raises what a task raises; ``TypeError``; ``InvalidInput`` if the store has files of a job of that name.
    """
    if unknown := options.keys() - {*_OF_PARTS, *_OF_PUBLICATION}:
        raise TypeError(f"build() got an unexpected keyword argument {min(unknown)!r}")
    store = os.path.abspath(store)
    chunks = _chunks(source)
    plan = spec if isinstance(spec, sharddb.PartPlan) else sharddb.PartPlan(spec, parts or _default_parts(client))
    job = job or uuid.uuid4().hex
    directory = str(sharddb.job_directory(store, job))
    if os.path.lexists(directory):
        message = "expected a new name for the job, found files of one: a build of that name runs, or clean_parts removes them"
        raise sharddb.InvalidInput(message, path=directory)
    of_parts: dict[str, Any] = {name: options[name] for name in _OF_PARTS if name in options}
    of_parts |= {"on_duplicate": merge or on_duplicate, "memory": memory, "temp_dir": temp_dir}
    of_parts["threads"] = options.get("threads") or 1
    of_publication = {name: options[name] for name in _OF_PUBLICATION if name in options}
    of_spills = {"memory": memory, "durable": options.get("durable", True)}
    spill = functools.partial(_spill, directory=directory, plan=plan, options=of_spills, columns=columns)
    run = functools.partial(_run, client=client, retries=retries, step=_steps(progress, len(chunks) + plan.parts))
    try:
        spills = run(spill, [(chunk, task) for task, chunk in enumerate(chunks)], shared=None)
        build_part = functools.partial(_build_part, directory=directory, plan=plan, options=of_parts)
        built = run(build_part, [(part,) for part in range(plan.parts)], shared=spills)
        published = sharddb.publish_parts(store, job, plan, spills, built, **of_publication)
    except BaseException as error:
        _clean(store, job)
        if os.path.lexists(directory):
            error.add_note(f"tasks may still run: once they have ended, sharddb.clean_parts({store!r}, {job!r}) removes their files")
        raise
    _clean(store, job)
    return published


def _chunks(source: Any) -> Sequence[Any]:
    """Returns the chunks of a collection: delayed objects."""
    to_delayed = getattr(source, "to_delayed", None)
    chunks = list(to_delayed() if to_delayed else source)
    for chunk in chunks:
        if not isinstance(chunk, Delayed):
            found = type(chunk).__name__
            raise TypeError(f"expected a bag, a dataframe or a sequence of delayed objects, found a chunk of type {found}")
    return chunks


def _default_parts(client: Any) -> int:
    threads = sum(client.nthreads().values()) if client else os.cpu_count() or 1
    return max(16, 4 * threads)


class _Failed(NamedTuple):
    """What a task has raised that must not run again."""

    error: Exception


def _spill(chunk: Any, task: int, *, directory: str, plan: sharddb.PartPlan, options: dict[str, Any], columns: tuple[str, str]) -> str | _Failed:
    """The map task: spills a chunk. Returns its receipt.

    An iterator that was read in part is not the chunk any more, so what this raises then is returned: Dask would run it again.
    """
    try:
        return _spill_once(chunk, task, directory, plan, options, columns)
    except Exception as error:
        if isinstance(chunk, Iterator):
            return _Failed(error)
        raise


def _spill_once(chunk: Any, task: int, directory: str, plan: sharddb.PartPlan, options: dict[str, Any], columns: tuple[str, str]) -> str:
    with sharddb.SpillWriter(directory, plan, task, **options) as writer:
        # data are one buffer, and a pair is none: three pairs in a tuple are no arrays
        if isinstance(chunk, tuple) and len(chunk) == 3 and not isinstance(chunk[2], (tuple, list)):
            writer.extend(*chunk)
        elif hasattr(chunk, "iloc"):  # a pandas dataframe
            frame: Any = chunk
            keys, values = (frame[column] for column in columns)
            writer.extend(zip(keys.to_numpy(), values, strict=True))
        else:
            writer.extend(chunk)
    assert writer.receipt is not None
    return writer.receipt


def _build_part(part: int, spills: list[str], *, directory: str, plan: sharddb.PartPlan, options: dict[str, Any]) -> str:
    """The reduce task: builds a part. Returns its receipt."""
    return sharddb.build_part(plan, spills, part, directory, **options)


def _run(
    function: Callable[..., str | _Failed],
    arguments: list[tuple[Any, ...]],
    *,
    shared: Any,
    client: Any,
    retries: int,
    step: Callable[[], None],
) -> list[str]:
    """Calls a function for each tuple of arguments, and the shared one if there is one. Returns the results in order."""
    if client is None:
        task = delayed(function, pure=False)
        more = () if shared is None else (delayed(shared, traverse=False),)
        results = compute(*(task(*each, *more) for each in arguments))
        return [_checked(result, step) for result in results]
    from distributed import as_completed

    more = () if shared is None else (client.scatter([shared], broadcast=True, hash=False)[0],)
    task = delayed(function, pure=False)
    futures = client.compute([task(*each, *more) for each in arguments], retries=retries)
    try:
        for future in as_completed(futures):
            _checked(future.result(), step)  # raises what the task raised
        return list(client.gather(futures))
    except BaseException:
        client.cancel(futures)
        raise


def _checked(result: str | _Failed, step: Callable[[], None]) -> str:
    """Takes the step of a task. Returns its receipt, or raises what it has returned."""
    if isinstance(result, _Failed):
        raise result.error
    step()
    return result


def _steps(bar: Any, total: int) -> Callable[[], None]:
    """Returns a function to call after each task."""
    if bar is None:
        return lambda: None
    bar.total = total
    return lambda: bar.update(1)


def _clean(store: str, job: str) -> None:
    """Removes the files of a job, as far as possible: a task of a job that has failed may still add some."""
    try:
        sharddb.clean_parts(store, job)
    except sharddb.Error:
        pass
