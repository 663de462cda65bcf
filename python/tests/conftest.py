"""Databases for the tests: those of other programs and of earlier versions, in ``tests/data`` of the repository."""

import errno
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


def unpacked(archive: Path) -> Path:
    """The content of an archive. It is unpacked once per checkout."""
    directory = ROOT / "target" / "fixtures" / sha256(archive.read_bytes()).hexdigest()[:16]
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as parent:
            new = Path(parent) / "new"
            shutil.unpack_archive(archive, new, filter="data")
            for path in new.rglob("*"):
                if path.is_file():
                    path.chmod(0o444)
            try:
                new.rename(directory)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # else another process was faster
                    raise
    return directory


PUBLIC = unpacked(DATA / "public.tar.gz")
"""The data sets of TensorStore and CloudVolume."""
SETS = sorted(path.parent for path in PUBLIC.glob("*/info"))


@dataclass
class Expected:
    """What the program that wrote a data set says about it."""

    path: Path
    hashes: dict[int, str]
    """The SHA-256 of the value of each key."""
    absent: list[int]


LIMIT = 300
"""Upper bound in seconds on waits for programs and threads. It only ends what hangs."""


@contextmanager
def program(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs Python code in a process of its own. It is killed after the limit, so that reads of its outputs end."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(LIMIT, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


def output_of(process: subprocess.Popen[str]) -> str:
    """What a program prints until it ends. If it fails or was killed, the error has both its outputs."""
    output, errors = process.communicate()
    assert process.returncode == 0, f"the program ended with {process.returncode}: it printed {output!r} and\n{errors}"
    return output


def run_program(code: str, *arguments: str) -> str:
    with program(code, *arguments) as process:
        return output_of(process)


def sha(value: bytes) -> str:
    return sha256(value).hexdigest()


@pytest.fixture(params=SETS, ids=[path.name for path in SETS])
def public(request: pytest.FixtureRequest) -> Expected:
    """Each data set of TensorStore and CloudVolume."""
    path: Path = request.param
    lines = [json.loads(line) for line in (path / "expected.jsonl").read_text().splitlines()]
    hashes = {int(line["key"]): line["sha256"] for line in lines if "absent" not in line}
    return Expected(path, hashes, [int(line["key"]) for line in lines if "absent" in line])


@pytest.fixture(scope="session")
def pairs() -> dict[int, bytes]:
    """The pairs of the store that version 0.1.0 wrote, from its input."""
    data = (DATA / "store-v1" / "pairs.bin2").read_bytes()
    found = {}
    at = 0
    while at < len(data):
        key, preamble, length = struct.unpack_from("<QQQ", data, at)
        at += 24 + preamble
        found[key] = data[at : at + length]
        at += length
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two generations of the same pairs: 1 (raw), which is current, and 2 (gzip)."""
    path = tmp_path / "store"
    shutil.copytree(DATA / "store-v1" / "store", path, symlinks=True)
    make_current(path, 1)
    return path


def make_current(store: Path, number: int) -> None:
    """Publishes a generation as the format says: replaces the symbolic link ``current``."""
    link = store / "new-link"
    link.symlink_to(f"gen-{number:010}")
    link.replace(store / "current")


def remove_generation(store: Path, number: int) -> None:
    shutil.rmtree(store / f"gen-{number:010}")


@pytest.fixture(scope="session")
def corrupt() -> Path:
    """The broken data sets, unpacked."""
    return unpacked(DATA / "corrupt.tar.gz")


@pytest.fixture(scope="session")
def s3() -> Iterator[Callable[[str], S3Store]]:
    """Stores in a bucket of moto, each with its prefix."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    urlopen(Request(f"{url}/bucket", method="PUT")).close()

    def store(prefix: str) -> S3Store:
        return S3Store(
            "bucket",
            prefix=prefix,
            endpoint=url,
            region="us-east-1",
            access_key_id="none",
            secret_access_key="none",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )

    yield store
    server.stop()
