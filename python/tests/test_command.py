"""The command of the package ends as the binary does, though Python has handlers of signals and descriptors of its own.

The tests of the binary, in ``cli/tests/it``, run with this command too: ``scripts/python.sh --installs``.
"""

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import sharddb

SCRIPT = Path(sys.executable).with_name("sharddb")
EITHER = pytest.mark.parametrize("program", [[str(SCRIPT)], [sys.executable, "-m", "sharddb"]], ids=["script", "module"])
LIMIT = 60


def run(program: list[str], *arguments: object, redirections: str = "") -> subprocess.CompletedProcess[bytes]:
    shell = ["bash", "-c", f'exec "$@" {redirections}', "bash", *program, *map(str, arguments)]
    return subprocess.run(shell, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend((key, b"%d" % key) for key in range(100_000))
    return tmp_path / "store"


@EITHER
def test_it_has_the_version_of_the_package(program: list[str]) -> None:
    assert sharddb.__version__ == version("sharddb")
    done = run(program, "--version")
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"sharddb {version('sharddb')}\n", b"")


@EITHER
def test_the_exit_codes_are_those_that_the_help_lists(program: list[str], store: Path) -> None:
    got = run(program, "get", store, 42)
    assert (got.returncode, got.stdout, got.stderr) == (0, b"42", b"")
    assert run(program, "contains", store, 100_000).returncode == 1
    wrong = run(program, "get")
    assert wrong.returncode == 2
    assert b"Usage: sharddb get" in wrong.stderr
    (shard,) = store.glob("gen-*/*.shard")
    shard.chmod(0o644)
    shard.write_bytes(b"")
    assert run(program, "verify", store).returncode == 3
    absent = run(program, "get", store / "none", 42)
    assert (absent.returncode, absent.stdout) == (4, b"")
    assert b"none" in absent.stderr


def test_arguments_need_not_be_utf_8(store: Path) -> None:
    name = os.fsencode(store) + b"\xff"
    os.rename(store, name)
    done = subprocess.run([SCRIPT, "get", name, "7"], capture_output=True, timeout=LIMIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"7", b"")


def test_a_reader_that_leaves_is_no_failure(store: Path) -> None:
    line = 'set -o pipefail; "$1" keys "$2" | head -n 1 | wc -l'
    done = subprocess.run(["bash", "-c", line, "bash", SCRIPT, store], capture_output=True, timeout=LIMIT)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, b"1", b"")


def test_a_full_device_is_a_failure(store: Path) -> None:
    done = run([str(SCRIPT)], "get", store, 7, redirections=">/dev/full")
    assert done.returncode == 4
    assert b"No space left on device" in done.stderr


def test_no_file_gets_the_number_of_a_closed_stream(store: Path) -> None:
    read = run([str(SCRIPT)], "keys", store, redirections=">&-")
    assert (read.returncode, read.stderr) == (0, b"")
    assert run([str(SCRIPT)], "keys", store / "none", redirections="<&- >&- 2>&-").returncode == 4
    assert run([str(SCRIPT)], "copy", store, store.with_name("copy"), "--range", "0..", redirections="<&- >&- 2>&-").returncode == 0
    db = sharddb.open(store.with_name("copy"))
    assert len(db) == 100_000
    assert db.verify("data").is_clean


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("ignored", ["", "trap '' INT; "], ids=["", "in the background of a shell"])
def test_a_signal_ends_a_build_after_its_cleanup(tmp_path: Path, number: signal.Signals, code: int, ignored: str) -> None:
    store, rows = tmp_path / "store", b"".join(b'{"key": %d, "value": "x"}\n' % key for key in range(100_000))
    shell = ["bash", "-c", f'{ignored}exec "$@"', "bash", str(SCRIPT), "build", str(store), "--input", "-", "--format", "ndjson"]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stderr is not None
        child.stdin.write(rows)  # more than a pipe holds: once it is written, the build runs
        child.stdin.flush()
        child.send_signal(number)
        messages = child.stderr.read()
        assert child.wait(LIMIT) == code
    assert messages == b"sharddb: interrupted: nothing published\n"
    assert not list(store.glob("**/*.shard"))


@EITHER
def test_it_needs_no_numpy(program: list[str], store: Path, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('NumPy was imported')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*program, "get", store, "42"], env=environment, capture_output=True, timeout=LIMIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"42", b"")
