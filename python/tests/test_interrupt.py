"""Ctrl-C ends a build in every phase: the old generation stays current, and no file is left."""

import os
import signal
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import output_of, program, run_program

import sharddb

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import sharddb

store, phase, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

class Bar:
    total = None
    def set_description(self, text):
        self.text = text
    def reset(self):
        if self.text == phase:
            # from the process itself, since from another one it may arrive long after the phase
            threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
    def update(self, n):
        pass

def ready():
    if phase == "insert":
        print("ready", flush=True)

def main():
    rng = np.random.default_rng(0)
    size = 500
    loader = sharddb.Loader(store, mode="replace", memory="16MiB", threads=2, on_duplicate=on_duplicate, ordered=True)
    offsets = np.arange(count + 1, dtype=np.int64) * size
    data = rng.integers(0, 256, count * size, dtype=np.uint8)
    ready()
    while True:
        loader.extend(rng.integers(0, 2**62, count, dtype=np.int64), offsets, data)
        if phase != "insert":
            break
    loader.finish(progress=Bar())

on_duplicate = "error"
EXTRA
try:
    main()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def interrupt(code: str, *arguments: str) -> list[str]:
    """Runs a program, sends SIGINT if its first line is `ready`, and returns the other lines that it prints."""
    with program(code, *arguments) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        if first == "ready\n":
            process.send_signal(signal.SIGINT)
            first = ""
        return (first + output_of(process)).splitlines()


def make(store: Path) -> None:
    with sharddb.Loader(store) as loader:
        loader[1] = b"old"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    make(tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize("phase", ["insert", "sort", "merge", "write", "order"])
def test_a_build(tmp_path: Path, phase: str) -> None:
    # on a busy machine the build may end before the thread that handles signals gets a core: with more pairs it takes longer
    for count in (200_000, 400_000, 800_000, 1_600_000):
        store = tmp_path / str(count)
        make(store)
        before = files(store)
        output = interrupt(PROGRAM.replace("EXTRA", ""), str(store), phase, str(count))
        if output == ["interrupted"] and sharddb.Store(store).current == 1:
            break
    else:
        pytest.fail("every build ended before the signal arrived")
    assert files(store) == before
    with sharddb.open(store) as db:
        assert dict(db.items()) == {1: b"old"}


def test_a_merge_function(store: Path) -> None:
    before = files(store)
    extra = textwrap.dedent("""
        def on_duplicate(key, values):
            if not seen:
                seen.append(key)
                print("ready", flush=True)
            while True:  # until the signal arrives
                time.sleep(0.001)
        seen = []
    """)
    assert interrupt(PROGRAM.replace("EXTRA", extra), str(store), "none", "400000") == ["interrupted"]
    assert files(store) == before


ITERABLE = """
import itertools, sys
import sharddb

class Keys:
    '''An iterable in C, so that no Python code handles the signal.'''
    def __iter__(self):
        print("ready", flush=True)
        return zip(itertools.count(), itertools.repeat(b"value"))

try:
    CALL
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("call", ["sharddb.Loader(sys.argv[1], mode='replace').extend(Keys())", "sharddb.update(sys.argv[1], Keys())"])
def test_an_iterable_of_c(store: Path, call: str) -> None:
    before = files(store)
    assert interrupt(ITERABLE.replace("CALL", call), str(store)) == ["interrupted"]
    assert files(store) == before


def test_another_signal_handler_that_raises(tmp_path: Path) -> None:
    """The exception of any handler ends the work, not only KeyboardInterrupt."""

    def handle(number: int, frame: object) -> None:
        raise LookupError("enough")

    previous = signal.signal(signal.SIGUSR1, handle)
    try:

        class Bar:
            total: float | None = None

            def set_description(self, text: str) -> None:
                os.kill(os.getpid(), signal.SIGUSR1)

            def reset(self) -> None:
                pass

            def update(self, n: float) -> None:
                pass

        loader = sharddb.Loader(tmp_path / "store")
        loader.extend((key, bytes(1000)) for key in range(100_000))
        with pytest.raises(LookupError, match="enough"):
            loader.finish(progress=Bar())
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_a_signal_after_the_swap_does_not_undo_it(tmp_path: Path) -> None:
    """A signal that arrives while `current` is swapped, or later: the result is published and is known."""
    code = """
        import os, signal, sys, threading, time
        import sharddb
        loader = sharddb.Loader(sys.argv[1])
        loader[1] = b"one"
        def send():
            while not os.path.lexists(sys.argv[1] + "/current"):
                time.sleep(0.0005)
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=send)
        thread.start()
        try:
            loader.finish()
            thread.join()
        except KeyboardInterrupt:
            pass
        print(loader.published is not None)
    """
    for number in range(5):
        store = tmp_path / str(number)
        assert run_program(code, str(store)) == "True\n"
        assert sharddb.Store(store).current == 1


def test_an_interrupt_after_the_swap_says_what_was_published(tmp_path: Path) -> None:
    """Of many interrupts at about the time of the swap, one comes before the return."""
    code = """
        import os, queue, signal, sys, threading
        import sharddb

        class Bar:
            total = None
            def __init__(self):
                self.shown = queue.SimpleQueue()
                self.update = self.shown.put  # runs no Python code, which would handle the signal
                threading.Thread(target=self.interrupt).start()
            def interrupt(self):
                while self.text != "publish":
                    self.shown.get()
                os.kill(os.getpid(), signal.SIGINT)
            text = ""
            def set_description(self, text):
                self.text = text
            def reset(self):
                pass

        for key in range(500):
            try:
                sharddb.update(sys.argv[1], {key: b"value"}, progress=Bar())
            except KeyboardInterrupt as error:
                notes = getattr(error, "__notes__", [])
                if notes:
                    print(notes, os.readlink(sys.argv[1] + "/current"))
                    break
    """
    make(tmp_path / "store")
    printed = run_program(code, str(tmp_path / "store"))
    generation = f"gen-{sharddb.Store(tmp_path / 'store').current:010}"
    assert printed == f"['{generation} was published before this exception was raised'] {generation}\n"
